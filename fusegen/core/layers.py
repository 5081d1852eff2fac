"""The layers of torch.nn that may stand before a chain, one tensor in and one out, with their signatures.

Arguments are in PyTorch's order. One that ends in ``=`` has a default; those after ``*`` go by name only.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a layer."""

    positional: tuple[str, ...]  # those that may be given by place, in order
    named: tuple[str, ...]  # those that are given by name only
    required: frozenset[str]  # those without a default
    text: str  # as a message shows it


def _signature(layer: str, written: str) -> Signature:
    before, _, after = written.partition("* ")
    positional, named = (tuple(arg.rstrip("=") for arg in part.split()) for part in (before, after))
    required = frozenset(arg for arg in written.split() if arg != "*" and not arg.endswith("="))
    shown = ", ".join(arg.replace("=", "=...") for arg in written.split())
    return Signature(positional, named, required, f"{layer}({shown})")


_POOL = "kernel_size stride= padding="
_PLACE = "device= dtype="
_NORM = f"eps= affine= {_PLACE} * bias="
_BATCH = f"num_features eps= momentum= affine= track_running_stats= {_PLACE} * bias="
_CONV = "in_channels out_channels kernel_size stride= padding="
_WRITTEN = {
    "AvgPool1d": f"{_POOL} ceil_mode= count_include_pad=",
    **dict.fromkeys(("AvgPool2d", "AvgPool3d"), f"{_POOL} ceil_mode= count_include_pad= divisor_override="),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), _BATCH),
    **dict.fromkeys(
        ("Conv1d", "Conv2d", "Conv3d"), f"{_CONV} dilation= groups= bias= padding_mode= {_PLACE}"
    ),
    **dict.fromkeys(
        ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        f"{_CONV} output_padding= groups= bias= dilation= padding_mode= {_PLACE}",
    ),
    "Dropout": "p= inplace=",
    "Flatten": "start_dim= end_dim=",
    "GroupNorm": f"num_groups num_channels {_NORM}",
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), _BATCH),
    "LayerNorm": f"normalized_shape eps= elementwise_affine= bias= {_PLACE}",
    "Linear": f"in_features out_features bias= {_PLACE}",
    **dict.fromkeys(
        ("MaxPool1d", "MaxPool2d", "MaxPool3d"), f"{_POOL} dilation= return_indices= ceil_mode="
    ),
    "RMSNorm": f"normalized_shape eps= elementwise_affine= {_PLACE}",
}
PRODUCERS: dict[str, Signature | None] = {  # None takes any arguments
    layer: None if layer == "Identity" else _signature(layer, _WRITTEN[layer])
    for layer in sorted({*_WRITTEN, "Identity"})
}
