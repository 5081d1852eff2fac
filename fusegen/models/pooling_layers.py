"""The poolings of torch.nn on the library's kernels: each class is torch.nn's own, with another forward.

So the constructor, its arguments and repr are PyTorch's. What has no kernel, as `return_indices`, runs
PyTorch's forward, as does what PyTorch refuses, for its message.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fusegen.models.nn_classes import Run, functions, kind

MOST = 2**20  # of a number of a window
NUMBERS = {  # the attributes of a layer that its kernels take, in their order
    "Max": ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "Avg": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "AdaptiveMax": ("output_size",),
    "AdaptiveAvg": ("output_size",),
}
NAMES = {"Max": "max", "Avg": "avg", "AdaptiveMax": "adaptive_max", "AdaptiveAvg": "adaptive_avg"}
FUNCTIONS = functions(f"windows.{name}_pool{rank}d" for name in NAMES.values() for rank in (1, 2, 3))


FLAGS = ("ceil_mode", "count_include_pad")


def _run(name: str, rank: int) -> Run:
    """Return what runs the kernels of a class for windows of some dimensions."""
    function = FUNCTIONS[f"{NAMES[name]}_pool{rank}d"]
    numbers = NUMBERS[name][: -1 if (name, rank) == ("Avg", 1) else None]

    def run(own: Any, x: Tensor) -> Tensor | None:
        if x.dim() not in (rank + 1, rank + 2) or x.numel() == 0 or getattr(own, "return_indices", False):
            return None
        given = {number: getattr(own, number) for number in numbers}
        usual = all(_is_legal(number, value, rank) for number, value in given.items())
        return function(x, *given.values()) if usual and _fit(given, x.shape[-rank:]) else None

    return run


def _is_legal(name: str, value: Any, rank: int) -> bool:
    """Return True if PyTorch takes a value for an argument of windows of some dimensions."""
    if name in FLAGS:
        return isinstance(value, bool)
    if name == "divisor_override":
        return value is None or (type(value) is int and 1 <= value <= MOST)
    is_tuple, is_output = isinstance(value, tuple | list), name == "output_size"
    if is_output and is_tuple and len(value) != rank:
        return False
    least, lacks, each = int(name != "padding"), is_output and is_tuple, _each(value, rank)
    numbers = [number for number in each if number is not None or rank == 1 or not lacks]
    return len(each) == rank and all(type(n) is int and least <= n <= MOST for n in numbers)


def _fit(given: dict[str, Any], sizes: tuple[int, ...]) -> bool:
    """Return True if a plane of some sizes has windows, and these reach far enough out of their padding."""
    if "output_size" in given:
        return True
    numbers = (given["kernel_size"], given["padding"], given.get("dilation", 1))
    each = zip(sizes, *(_each(number, len(sizes)) for number in numbers), strict=True)
    return all(2 * p <= k and size + 2 * p > d * (k - 1) for size, k, p, d in each)


def _each(number: Any, rank: int) -> tuple[Any, ...]:
    several = tuple(number) if isinstance(number, tuple | list) else (number,)
    return several * rank if len(several) == 1 else several


POOLINGS = {f"{name}Pool{rank}d": _run(name, rank) for name in NAMES for rank in (1, 2, 3)}
globals().update({name: kind(getattr(nn, name), run, __name__) for name, run in POOLINGS.items()})
__all__ = [*POOLINGS]
