"""The numbers of windows, of PyTorch's poolings: their values, the sizes of results, and their C++."""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .checks import check

Sizes = Tuple[int, ...]
MOST = 2**20  # of a number
LARGE = "a window is larger than the tensor with its padding"
FLAGS = {"ceil_mode": False, "count_include_pad": True}


class Window(NamedTuple):
    """Windows of a size.

    Attributes:
        kernel, stride, padding, dilation: for each of their dimensions.
        ceil: whether windows may begin late.
        counts_padding, divisor: of averages, the divisor 0 where elements are counted.
    """

    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    ceil: bool
    counts_padding: bool = True
    divisor: int = 0

    def size(self, module: str, d: int, of: int) -> int:
        """Return the size of the result along a dimension, for that of a tensor."""
        stride, padding = self.stride[d], self.padding[d]
        span = of + 2 * padding - self.dilation[d] * (self.kernel[d] - 1) - 1
        found = (span + (stride - 1 if self.ceil else 0)) // stride + 1
        made = found - 1 if self.ceil and (found - 1) * stride >= of + padding else found
        check(made > 0, module, LARGE)
        return made

    @property
    def dims(self) -> str:
        """The numbers as the binding takes them."""
        each = ", ".join("{" + ", ".join(map(str, of)) + "}" for of in self[:4])
        return f"{{{len(self.kernel)}, {each}, {str(self.ceil).lower()}}}"

    def defines(self) -> str:
        """Return the lines of C++ that give kernels the numbers."""
        lacks = 3 - len(self.kernel)
        lines = []
        for name, numbers in zip(("KERNEL", "STRIDE", "PADDING", "DILATION"), self[:4]):
            whole = (*[0 if name == "PADDING" else 1] * lacks, *numbers)
            lines.append(f"#define FUSEGEN_{name} {', '.join(map(str, whole))}\n")
        counts = f"COUNTS_PADDING = {str(self.counts_padding).lower()}"
        divisors = f"static constexpr bool {counts}; static constexpr int64_t DIVISOR = {self.divisor};"
        return "".join([*lines, f"#define FUSEGEN_DIVISORS {divisors}\n"])


class Adaptive(NamedTuple):
    """Windows of which the result has the sizes of `output`, None for that of the tensor."""

    output: "Tuple[Optional[int], ...]"

    def size(self, module: str, d: int, of: int) -> int:
        """Return the size of the result along a dimension, for that of a tensor."""
        given = self.output[d]
        return of if given is None else given

    @property
    def dims(self) -> str:
        """The numbers as the binding takes them."""
        sizes = ", ".join(str(size or 0) for size in self.output)
        return f"{{{len(self.output)}, {{1}}, {{1}}, {{0}}, {{1}}, false, true, {{{sizes}}}}}"

    def defines(self) -> str:
        """Return no line: kernels find the sizes in their call."""
        return ""


def window_of(numbers: "Sequence[Any]") -> Any:
    """Return the windows of a module of which the numbers are fixed."""
    return Window(*numbers) if len(numbers) > 1 else Adaptive(*numbers)


def of_numbers(module: str, rank: int, **given: Any) -> Any:
    """Return the windows of PyTorch's arguments, for so many dimensions.

    Raises:
        TypeError, RuntimeError: of what PyTorch's poolings refuse.
    """
    if "output_size" in given:
        return Adaptive(_each(module, "output_size", given["output_size"], rank, 1))
    kernel = _each(module, "kernel_size", given["kernel_size"], rank, 1)
    stride = given.get("stride")
    strides = kernel if stride is None else _each(module, "stride", stride, rank, 1)
    padding = _each(module, "padding", given.get("padding", 0), rank, 0)
    dilation = _each(module, "dilation", given.get("dilation", 1), rank, 1)
    for size, before in zip(kernel, padding):
        wide = f"the padding {before} is more than half of a window of {size}"
        check(2 * before <= size, module, wide)
    ceil, counts = (given.get(name, usual) for name, usual in FLAGS.items())
    for name, flag in zip(FLAGS, (ceil, counts)):
        check(isinstance(flag, bool), module, f"{name} is True or False", TypeError)
    divisor = given.get("divisor_override")
    [by] = [0] if divisor is None else _each(module, "divisor_override", divisor, 1, 1)
    return Window(kernel, strides, padding, dilation, ceil, counts, by)


def _each(module: str, name: str, given: Any, rank: int, least: int) -> "Sizes":
    """Return a number for each dimension; an adaptive one of several may be None."""
    several: "Sequence[Any]" = given if isinstance(given, (tuple, list)) else (given,)
    may_lack = name == "output_size" and len(several) > 1
    fits = all(type(each) is int or (each is None and may_lack) for each in several)
    of = f"a whole number, or a tuple of {rank}" if rank > 1 else "a whole number"
    check(fits and len(several) in (1, rank), module, f"{name} is {of}", TypeError)
    least_is = f"{name} is at least {least} and at most {MOST}"
    check(all(each is None or least <= each <= MOST for each in several), module, least_is)
    whole = tuple(several) * rank if len(several) == 1 else tuple(several)
    return whole


def plain(numbers: "Sequence[Any]") -> "List[Any]":
    """Return the numbers of a call as PyTorch's functions take them."""
    return [of[0] if isinstance(of, (tuple, list)) and len(of) == 1 else of for of in numbers]
