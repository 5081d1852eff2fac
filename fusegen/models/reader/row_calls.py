"""Operators that reduce rows, and casts between floats, as formulas.

A kernel of rows computes them between operations of elements: sums in double, and no rounding at a cast.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fusegen.models.reader.aten_table import Form, Rows, form
from fusegen.models.reader.operator_call import Call
from fusegen.models.reader.run_calls import CASTS

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WHERE = frozenset(  # arguments that `reduced` looks at, and those that choose a kernel of PyTorch
    "dim dtype keepdim normalized_shape output_size num_groups use_input_stats momentum cudnn_enable "
    "cudnn_enabled".split()
)
CENTRED = "(input - mean(input)) * rsqrt(mean((input - mean(input)) ** 2) + eps)"
RMS_NORM = "input * rsqrt(mean(input ** 2) + eps)"
OF_ELEMENTS = (" * weight + bias", " * weight", "")
OF_CHANNELS = (" * along(weight, 1) + along(bias, 1)", " * along(weight, 1)", "")
HELD = "bn"  # the name of a batch norm in the spec of a region
BATCH_NORM = f"{CENTRED} * along({HELD}.weight, 1) + along({HELD}.bias, 1)".replace(
    " eps)", f" {HELD}.eps)"
)
EXPONENTIALS = frozenset(("softmax", "log_softmax", "logsumexp"))
NORMS = frozenset(("layer_norm", "rms_norm", "group_norm", "instance_norm"))
POOLS = frozenset(f"adaptive_avg_pool{rank}d" for rank in (1, 2, 3))
FUSED = frozenset(("softmax", "log_softmax")) | NORMS  # of which PyTorch has a kernel


@dataclass(frozen=True)
class Reduced:
    """The dimensions that an operator reduces together.

    Attributes:
        dims: neighbouring dimensions, which begin with 0 at the first one.
        groups: the parts in which the first of them is cut, each of which, and all behind it, is a row; 0
            where it is not cut.
        layer: the path of the batch norm whose channels are the rows; empty where they are no channels.
    """

    dims: tuple[int, ...]
    groups: int = 0
    layer: str = ""

    def over(self, rank: int, groups: str) -> str:
        """Return the dimensions of a tensor as a spec declares them; its argument `groups` counts parts."""
        if self.layer:
            return "[0, 2, ...]"
        if self.groups:
            return f'["{self.dims[0]} / {groups}", ...]'
        back = rank if self.dims[-1] == rank - 1 else 0
        return f"[{', '.join(str(each - back) for each in self.dims)}]"


def _row(text: str, **given: Any) -> Form:
    return replace(form(text, **given), free=WHERE)


def _moment(name: str) -> tuple[Form, ...]:
    texts = {f"{name}(self, 0)": {"unbiased": False}, f"{name}(self, 1)": {"unbiased": True}}
    return *(_row(text, **given) for text, given in texts.items()), _row(f"{name}(self, correction)")


FOLDS: Rows = {  # whose value is one of the row
    **{name: (_row(f"{name}(self)"),) for name in ("mean", "sum", "amax", "amin", "logsumexp")},
    **{name: _moment(name) for name in ("var", "std")},
    "linalg_vector_norm": (_row("norm(self)", ord=2), _row("norm(self)", ord=2.0)),
    **{name: (_row("mean(self)"),) for name in POOLS},
}
OF_ROWS: Rows = {
    **FOLDS,
    **{name: (_row(f"{name}(self)"),) for name in ("softmax", "log_softmax")},
    "layer_norm": tuple(_row(f"{CENTRED}{own}") for own in OF_ELEMENTS),
    "rms_norm": tuple(_row(f"{RMS_NORM}{own}") for own in OF_ELEMENTS[1:]),
    **{
        name: tuple(_row(f"{CENTRED}{own}") for own in OF_CHANNELS)
        for name in ("group_norm", "instance_norm")
    },
}
CAST_ROWS: Rows = {
    name: (
        Form(
            ast.Name("self"),
            free=frozenset("dtype device non_blocking copy memory_format layout pin_memory other".split()),
        ),
    )
    for name in CASTS
}


def reduced(call: Call, rank: int) -> Reduced | None:
    """Return the neighbouring dimensions that a call reduces, of floats; None where it reduces others.

    Args:
        call: of an operator of `OF_ROWS`.
        rank: the number of dimensions of its first argument.
    """
    given: Mapping[str, Any] = call.arguments
    if rank < 2 or given.get("dtype") not in (None, *FLOATS):
        return None
    match call.name:
        case "group_norm":
            return Reduced(tuple(range(1, rank)), given["num_groups"])
        case "instance_norm":
            return Reduced(tuple(range(2, rank))) if rank > 2 and given["use_input_stats"] else None
        case "layer_norm" | "rms_norm":
            dims = [*range(rank - len(given["normalized_shape"]), rank)]
        case name if name in POOLS:
            size = given["output_size"]
            dims = [*range(rank - len(size), rank)] if {*size} == {1} else []
        case _:
            of = given.get("dim")
            dims = (
                []
                if of is None
                else sorted(each % rank for each in (of if isinstance(of, Sequence) else [of]))
            )
    is_run = bool(dims) and dims == [*range(dims[0], dims[-1] + 1)] and len(dims) < rank
    return Reduced(tuple(dims)) if is_run else None
