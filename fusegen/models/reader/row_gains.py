"""Where a kernel of rows is faster than the operations of a layer: a row of a table, or nowhere.

A layer of one operation, as torch.nn.LayerNorm, has a fused kernel of PyTorch; one that is written out, as
the RMS norms of transformers, has a pass over memory for each operation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

FUSED, WRITTEN_OUT = "fused", "written out"
TRAINING, EVALUATION = "in training", "in evaluation"  # of batch norms, whose rows are channels
# A sum that is computed with the next layer's norm saves the GPU one pass over it and a launch, 2 to 4 us,
# and takes the CPU up to twice as long as both apart: 60 us for 34 on a slow one. Of fewer elements, as
# when a language model generates, the GPU waits for the CPU anyway. Not timed on a GPU.
HANDED = 2**22
MODES = {False: "where no gradients are recorded", True: "where gradients are recorded"}
# On CUDA a call of a fused kernel saves nothing but memory's time: of 32 MiB at least, as a region does.
LARGE = 2**23


@dataclass(frozen=True)
class Gain:
    """The rows of which a kernel is faster.

    Attributes:
        shortest, longest: the elements of a row.
        least: the elements of the tensor.
    """

    shortest: int
    longest: int
    least: int = 0

    def takes(self, columns: int, elements: int) -> bool:
        """Tell if it is faster for a tensor."""
        return self.shortest <= columns <= self.longest and elements >= self.least


# By device, function, how the layer writes it, the bytes of an element, and whether gradients are recorded.
# CUDA, fused: docs/rows.md (H200), both passes together where gradients are recorded. CUDA, written out:
# six passes or more for one. CPU: PyTorch 2.13, one thread of two cores; a norm of 2 Mi elements takes
# 0.9 ms in bfloat16 for 2.4 to 3.0, and with gradients 5 to 7 ms for 11 to 18.
Key = tuple[str, str, str, int, bool]
GAINS: dict[Key, Gain] = {
    ("cuda", "softmax", FUSED, 4, False): Gain(2048, 8192, LARGE),
    ("cuda", "softmax", FUSED, 4, True): Gain(1024, 32768, LARGE),
    ("cuda", "softmax", FUSED, 2, False): Gain(1024, 32768, LARGE),
    ("cuda", "softmax", FUSED, 2, True): Gain(1024, 32768, LARGE),
    ("cuda", "layer_norm", FUSED, 4, False): Gain(1024, 32768, LARGE),
    ("cuda", "layer_norm", FUSED, 4, True): Gain(2048, 8192, LARGE),
    ("cuda", "layer_norm", FUSED, 2, False): Gain(1024, 2048, LARGE),
    ("cuda", "rms_norm", FUSED, 4, False): Gain(1024, 32768, LARGE),
    ("cuda", "rms_norm", FUSED, 4, True): Gain(1024, 8192, LARGE),
    ("cuda", "rms_norm", FUSED, 2, False): Gain(1024, 32768, LARGE),
    ("cuda", "rms_norm", FUSED, 2, True): Gain(1024, 4096, LARGE),
    **{
        ("cuda", name, WRITTEN_OUT, size, recorded): Gain(64, 32768)
        for name in ("softmax", "layer_norm", "rms_norm")
        for size in (2, 4)
        for recorded in (False, True)
    },
    **{
        ("cpu", "rms_norm", written, size, recorded): Gain(64, 32768, 2**21 if recorded else 2**16)
        for written in (FUSED, WRITTEN_OUT)
        for size, recorded in ((2, False), (2, True), (4, True))
    },
}
# A norm with the sum in front of it, 4,096 rows of 4,096 on an H200 (docs/reports/reductions.md): in
# float32 an RMS norm takes 0.089 ms for 0.098, and with gradients 0.247 for 0.285, a layer norm 0.084 for
# 0.105 and 0.282 for 0.298; in bfloat16 PyTorch's two kernels are faster (0.053 for 0.084). Written out,
# a norm has six passes or more for one. On a CPU it is not known to be faster (2,048 rows of 1,024: a
# step of 17.4 ms for 17.4).
GAINS |= {
    (device, f"add_{name}", written, size, recorded): gain
    for (device, name, written, size, recorded), gain in GAINS.items()
    if device == "cuda" and name.endswith("norm") and not recorded and (written, size) != (FUSED, 2)
}
GAINS |= {
    ("cuda", f"add_{name}_norm", FUSED, 4, True): Gain(4096, 4096, LARGE) for name in ("rms", "layer")
}
# A batch norm in training with what is behind it, 64 x 64 x 56 x 56 and more on an H200, forward and
# gradient together (docs/reports/reductions.md): in float32 1.2 to 1.8 times, in bfloat16 1.6 to 2.4
# times as fast, with ReLU, a sum and ReLU, or hardswish. Its row is what lies side by side, a channel of
# one image. Neither is evaluation timed nor are channels that are neighbours. On a CPU it is slower (8 x
# 64 x 56 x 56 with ReLU: a step of 12.5 ms for 15.7 in float32, but 10.9 for 7.7 in bfloat16, and 24 for
# 17 with hardswish).
GAINS |= {
    ("cuda", "batch_norm", TRAINING, size, True): Gain(56 * 56, 2**32, 64 * 64 * 56 * 56) for size in (2, 4)
}

# Rotary embeddings of heads of 128 on an H200 (PyTorch 2.11), of 4 x 16 x 2048: in bfloat16 54 us of the
# GPU for 245, and with the gradient 108 for 537; in float32 56 for 272, and 113 for 620. A call takes the
# CPU 90 us for 70, so that small tensors gain nothing. On a CPU 2.7 ms for 4.7 of 2 Mi elements in float32,
# and 0.45 for 0.55 of 256 Ki; in 16 bits some are slower.
GAINS |= {
    **{
        ("cuda", "rotary", WRITTEN_OUT, size, recorded): Gain(16, 1024, LARGE)
        for size in (2, 4)
        for recorded in (False, True)
    },
    **{("cpu", "rotary", WRITTEN_OUT, 4, recorded): Gain(16, 1024, 2**18) for recorded in (False, True)},
}
# The loss of 16-bit logits, of 8,192 rows on an H200 (PyTorch 2.11), when it converted some rows at a time:
# of 128,256 classes 6.0 ms for 6.9, and with the gradient 15.6 for 13.5, in 2.4 GB for 12.6, so that memory
# decides. Of 32,000 classes 1.4 ms for 1.6, and 3.7 for 3.3 in 0.8 GB for 3.2. Of 1,024 rows the calls took
# the CPU longer than the GPU. On a CPU it was slower. Without the conversion it is not timed yet.
GAINS |= {
    ("cuda", "cross_entropy", WRITTEN_OUT, 2, recorded): Gain(1024, 2**20, 2**26)
    for recorded in (False, True)
}


def is_gain(name: str, written: str, x: Tensor, columns: int, *, is_recorded: bool) -> bool:
    """Tell if the kernel of a function is faster for a tensor."""
    gain = GAINS.get((x.device.type, name, written, x.dtype.itemsize, is_recorded))
    return gain is not None and gain.takes(columns, x.numel())


def gains(name: str, written: str, columns: int, *tensors: Tensor | None) -> bool:
    """Tell if the kernel of a function is faster for the first tensor, as the gradients of all say."""
    x = tensors[0]
    assert x is not None
    recorded = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    return is_gain(name, written, x, columns, is_recorded=recorded)


def modes_of(name: str, written: str, device: str, dtype: torch.dtype, columns: int | None) -> set[bool]:
    """Return in which modes the kernel of a function is faster for large tensors: with gradients or not."""
    rows = {mode: GAINS.get((device, name, written, dtype.itemsize, mode)) for mode in MODES}
    return {mode for mode, row in rows.items() if row and row.takes(columns or row.shortest, row.least)}


def clause(modes: set[bool]) -> str:
    """Return in which mode alone a kernel runs; empty where that is each."""
    return MODES[next(iter(modes))] if len(modes) == 1 else ""


def slower(device: str, dtype: torch.dtype) -> str:
    """Return why PyTorch's operations stay, a clause."""
    return f"no kernel is known to be faster in {str(dtype).removeprefix('torch.')} on {device}"
