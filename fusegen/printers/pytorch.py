"""An eager program as Python on PyTorch's own operations: what it says is what PyTorch would run."""

from __future__ import annotations

from fusegen.aten import ATEN
from fusegen.ops import ATOM, COMPARE, OPS, UNARY
from fusegen.term import Apply, Name, Number, Program, SpecCall, Term, names, walk

SPELT = {  # where PyTorch's spelling is not torch.NAME
    "relu6": "nn.functional.relu6",
    "saturate": "nn.functional.hardtanh",
    "softplus": "nn.functional.softplus",
    "ndtr": "torch.special.ndtr",
}
AUTOCAST_FLOAT32 = {  # what CUDA's autocast computes in float32, by our names
    "exp", "expm1", "log", "log1p", "log2", "pow", "cube", "square", "reciprocal", "rsqrt", "softplus",
    "torch.nn.functional.softplus",
}  # fmt: skip
POWER = ATOM - 0.5  # ** binds tighter than a sign
CONSTANTS = {"pi": "torch.pi", "e": "torch.e"}


def statements(program: Program, several: bool = False) -> tuple[str, ...]:
    """The lines of a function body that returns the value of a program, or a tuple of its values."""
    printer = _Printer(set(program.inputs))
    lines = []
    for let in program.lets:
        lines.append(f"{let.name} = {printer.text(let.term)}")
        if printer.is_tensor(let.term):
            printer.tensors.add(let.name)
    values = [printer.text(result) for result in program.results]
    return (*lines, f"return {', '.join(values)}{',' if several and len(values) == 1 else ''}")


def autocasts(program: Program) -> bool:
    """Whether CUDA's autocast computes a part of the program in float32, and hence gives float32."""
    terms = [*(let.term for let in program.lets), *program.results]
    parts = [part for term in terms for part in walk(term)]
    used = {part.op for part in parts if isinstance(part, Apply)}
    return bool(AUTOCAST_FLOAT32 & (used | {part.spec for part in parts if isinstance(part, SpecCall)}))


class _Printer:
    def __init__(self, tensors: set[str]) -> None:
        self.tensors = tensors

    def is_tensor(self, term: Term) -> bool:
        return bool(self.tensors & set(names(term)))

    def text(self, term: Term, place: float = 0) -> str:
        """A term for a place that needs at least the strength `place`."""
        text, strength = self.visit(term)
        return f"({text})" if strength < place else text

    def visit(self, term: Term) -> tuple[str, float]:
        match term:
            case Number(value):
                whole = value.denominator == 1 and abs(value) < 2**53
                return str(value) if whole else repr(float(value)), UNARY if value < 0 else ATOM
            case Name(name):
                return name, ATOM
            case SpecCall(reference, args):
                return self.fused(reference, args), ATOM
            case Apply("rounded", (inner,)) | Apply("by_width", (_, inner)):
                return self.visit(inner)
            case Apply("fma", (a, b, c)):
                return self.visit(a * b + c)
            case Apply("quotient", (a, b)):
                return self.visit(a / b)
            case Apply(op, args):
                return self.operation(op, args)

    def operation(self, op: str, args: tuple[Term, ...]) -> tuple[str, float]:
        """An operation by Python's symbol for it, or by torch's function."""
        row = OPS[op]
        match args:
            case ():
                return CONSTANTS[op], ATOM
            case (base, *exponent) if op in ("pow", "cube"):
                power = self.text(exponent[0], POWER) if exponent else "3"
                return f"{self.text(base, ATOM)} ** {power}", POWER
            case (operand,) if row.infix:
                return row.infix + self.text(operand, UNARY), UNARY
            case (left, right) if row.infix:
                tight = row.strength + (row.strength > COMPARE)
                return (
                    f"{self.text(left, row.strength)} {row.infix} {self.text(right, tight)}",
                    row.strength,
                )
        return self.function(op, args), ATOM

    def function(self, op: str, args: tuple[Term, ...]) -> str:
        """A call of torch's function; where it takes tensors only, a scalar becomes one, in double."""
        own = op in ("maximum", "minimum")
        shown = []
        for arg in args:
            wrap = not self.is_tensor(arg) and (own or len(args) == 1)
            shown.append(f"torch.tensor({self.text(arg)}, dtype=torch.float64)" if wrap else self.text(arg))
        return f"{SPELT.get(op, f'torch.{op}')}({', '.join(shown)})"

    def fused(self, reference: str, args: tuple[Term, ...]) -> str:
        """A call of PyTorch's function; one that halves its tensor gets the halves joined."""
        path, _, keywords = reference.rstrip(")").partition("(")
        tensors = len(args) - len(ATEN[reference].params)
        shown = [self.text(arg) for arg in args]
        if tensors == 2:
            shown = [f"torch.cat(torch.broadcast_tensors({', '.join(shown)}), -1)"]
        function = path.removeprefix("torch.") if path.startswith("torch.nn.") else path
        return f"{function}({', '.join([*shown, *([keywords] if keywords else [])])})"
