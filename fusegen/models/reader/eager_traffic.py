"""The memory traffic of operators in eager: one row for its kernels and for those of its gradient."""

from dataclasses import dataclass

from fusegen.models.reader.aten_table import IDENTITIES


@dataclass(frozen=True)
class Moved:
    """The traffic of an operator.

    Attributes:
        kernels: that eager runs, each of which reads the operands and writes the result.
        gradient: the tensors that eager moves for the gradient of each operand, by its place; the last
            number is that of all behind it. Masks count as nothing. Without a row, the gradient of the
            result and a tensor are read, and a gradient is written. See derivatives.yaml of PyTorch.
    """

    kernels: int = 1
    gradient: tuple[int, ...] = (3,)


USUAL = Moved()
TRAFFIC: dict[str, Moved] = {  # by operators, and by functions that run several
    **dict.fromkeys(("detach", *IDENTITIES), Moved(0, (0,))),
    **dict.fromkeys(("add", "clone", "positive"), Moved(gradient=(0,))),
    **dict.fromkeys(("sub", "subtract"), Moved(gradient=(0, 2))),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv"), Moved(gradient=(3, 11))),
    **dict.fromkeys(("neg", "rsub", "where"), Moved(gradient=(2,))),
    **dict.fromkeys(("abs", "log1p", "log2", "exp2", "expm1", "sin", "sqrt"), Moved(gradient=(5,))),
    **dict.fromkeys(("clamp", "clip"), Moved(gradient=(5,))),
    **dict.fromkeys(("maximum", "minimum", "max", "min"), Moved(gradient=(12,))),
    **dict.fromkeys(("pow", "square", "rsqrt"), Moved(gradient=(7,))),
    **dict.fromkeys(("erf", "erfc"), Moved(gradient=(11,))),
    "addcmul": Moved(gradient=(0, 5)),
    "cos": Moved(gradient=(7,)),
    "masked_fill": Moved(2, (2,)),
    "ndtr": Moved(gradient=(15,)),
    "reciprocal": Moved(gradient=(8,)),
    "softsign": Moved(gradient=(22,)),
    "tanhshrink": Moved(gradient=(8,)),
}


def moved_by(name: str) -> Moved:
    """Return the row of an operator."""
    return TRAFFIC.get(name, USUAL)
