"""An eager program as Python on PyTorch's own operations: what it says is what PyTorch would run.

Parameters are Python numbers. A part that reads only parameters is a Python number as well, so that it
never changes the dtype of a tensor. Python computes its sums and products; PyTorch computes every other
operation on tensors of one double, since Python raises where PyTorch gives NaN or an infinity.
"""

from collections.abc import Callable
from fractions import Fraction

from fusegen.core.aten import ATEN
from fusegen.core.ops import OPS
from fusegen.core.ops.row import ATOM, COMPARE, SUM, UNARY
from fusegen.core.term import Apply, Name, Number, Program, SpecCall, Term, infinite, names, walk

SPELT = {  # where PyTorch's spelling is not torch.NAME
    "relu6": "nn.functional.relu6",
    "saturate": "nn.functional.hardtanh",
    "softplus": "nn.functional.softplus",
    "ndtr": "torch.special.ndtr",
}
POWER = ATOM - 0.5  # ** binds tighter than a sign
CONSTANTS = {"pi": "torch.pi", "e": "torch.e"}
TRANSPARENT = {"round_to_storage": 0, "select_by_width": 1, "detach": 0}  # which argument is the whole
COMPOSED: dict[str, Callable[..., Term]] = {
    "fma": lambda a, b, c: a * b + c,
    "quotient": lambda a, b: a / b,
}
TENSORS_ONLY = ("maximum", "minimum")
BOUNDED = {"clamp": "torch.clamp", "saturate": "torch.clamp"}  # with bounds that are all tensors
# Python never refuses these
PLAIN = (*"add sub mul neg fma round_to_storage select_by_width detach".split(), *CONSTANTS)
DIVISIONS = ("div", "quotient")
ZERO = Number(Fraction(0))
# what PyTorch's functions refuse of their scalars
ACCEPTED: dict[str, Callable[..., bool]] = {
    "torch.nn.functional.softshrink": lambda lambd: lambd >= 0,
    "torch.nn.functional.hardtanh": lambda low, high: low <= high,
}
# what PyTorch cannot differentiate twice, and what its vmap does not take
LIMITED = ("torch.nn.functional.hardsigmoid", "torch.nn.functional.rrelu")


def statements(program: Program, *, several: bool = False) -> tuple[str, ...]:
    """Return the lines of a function body that returns the value of a program, or a tuple of its values."""
    printer = Printer(set(program.inputs), _whole(program))
    lines = printer.steps(program)
    values = [printer.text(result) for result in program.results]
    return (*lines, f"return {', '.join(values)}{',' if several and len(values) == 1 else ''}")


def _whole(program: Program) -> Term | None:
    """Return the function of PyTorch's that the program is: it refuses the scalars that PyTorch refuses."""
    match program.results:
        case (Apply("round_to_storage", (SpecCall(_, args) as call,)),) if not program.lets:
            own = tuple(map(Name, (*program.inputs, *program.params)))
            return call if args == own else None
    return None


def _is_called(part: Apply) -> bool:
    return (
        bool(part.args)
        and not OPS[part.op].infix
        and part.op not in ("pow", "cube", *TRANSPARENT, *COMPOSED)
    )


def _plain(term: Term) -> bool:
    """Tell whether Python's own arithmetic computes a term of numbers and never raises."""
    match term:
        case Apply(op, (part, divisor)) if op in DIVISIONS:
            return isinstance(divisor, Number) and divisor != ZERO and _plain(part)
        case Apply(op, args):
            return op in PLAIN and all(map(_plain, args))
    return not isinstance(term, SpecCall)


class Printer:
    """Prints terms of tensors and of Python numbers."""

    def __init__(self, tensors: set[str], whole: Term | None = None) -> None:
        self.tensors, self.whole = tensors, whole

    def steps(self, program: Program) -> list[str]:
        """Return the lines that compute the steps of a program."""
        lines = []
        for let in program.lets:
            lines.append(f"{let.name} = {self.text(let.term)}")
            if self.is_tensor(let.term):
                self.tensors.add(let.name)
        return lines

    def is_tensor(self, term: Term) -> bool:
        """Tell whether a term reads a tensor."""
        return bool(self.tensors & set(names(term)))

    def text(self, term: Term, place: float = 0) -> str:
        """Return a term for a place that needs at least the strength `place`."""
        text, strength = self.visit(term)
        return f"({text})" if strength < place else text

    def visit(self, term: Term) -> tuple[str, float]:
        """Return the text of a term and its strength."""
        if not self.is_tensor(term) and not _plain(term):
            return f"{_Scalars(self).text(term, ATOM)}.item()", ATOM
        return self.node(term)

    def node(self, term: Term) -> tuple[str, float]:
        """Return the same by the kind of the term."""
        match term:
            case Number(value) if infinite(term):
                return ("-torch.inf", UNARY) if value < 0 else ("torch.inf", ATOM)
            case Number(value):
                whole = value.denominator == 1 and abs(value) < 2**53
                return str(value) if whole else repr(float(value)), UNARY if value < 0 else ATOM
            case Name(name):
                return self.name(name), ATOM
            case SpecCall():
                return self.fused(term)
            case Apply("detach", (part,)) if self.is_tensor(part):
                return self.detached(part)
            case Apply(op, args) if op in TRANSPARENT:
                return self.visit(args[TRANSPARENT[op]])
            case Apply(op, args) if op in COMPOSED:
                return self.visit(COMPOSED[op](*args))
            case Apply(op, args):
                return self.operation(op, args)

    def name(self, name: str) -> str:
        """Return a variable as an operand."""
        return name

    def detached(self, term: Term) -> tuple[str, float]:
        """Return a tensor without its gradient."""
        return f"{self.text(term, ATOM)}.detach()", ATOM

    def number(self, term: Term) -> str:
        """Return a term without tensors as a Python number."""
        return self.text(term)

    def operation(self, op: str, args: tuple[Term, ...]) -> tuple[str, float]:
        """Return an operation by Python's symbol for it, or by torch's function."""
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
        return self.where(*args) if op == "where" else self.function(op, args), ATOM

    def where(self, condition: Term, chosen: Term, other: Term) -> str:
        """A selection; of two numbers the first is made a tensor, which has the dtype of the result."""
        numbers = not self.is_tensor(chosen) and not self.is_tensor(other)
        first = self.tensor(chosen, condition) if numbers else self.text(chosen)
        return f"torch.where({self.condition(condition)}, {first}, {self.text(other)})"

    def condition(self, term: Term) -> str:
        """Return a comparison as a tensor."""
        return self.text(term) if self.is_tensor(term) else _Scalars(self).condition(term)

    def function(self, op: str, args: tuple[Term, ...]) -> str:
        """Return a call of torch's function; a number becomes a tensor where only a tensor is taken."""
        bounded = op in BOUNDED and any(map(self.is_tensor, args[1:]))
        like = Apply(op, args)
        shown = [
            self.tensor(arg, like) if k == 0 or bounded or op in TENSORS_ONLY else self.text(arg)
            for k, arg in enumerate(args)
        ]
        name = BOUNDED[op] if bounded else SPELT.get(op, f"torch.{op}")
        return f"{name}({', '.join(shown)})"

    def tensor(self, term: Term, like: Term) -> str:
        """Return a term as a tensor; a number has the dtype that it would give the tensors of `like`."""
        if self.is_tensor(term):
            return self.text(term)
        name = next(name for name in names(like) if name in self.tensors)
        return f"torch.zeros_like({name}) + {self.text(term, SUM + 1)}"

    def fused(self, call: SpecCall) -> tuple[str, float]:
        """Return a call of PyTorch's function, or what it computes where that takes no such scalars."""
        row = ATEN[call.spec]
        count = len(call.args) - len(row.params)
        tensors, scalars = call.args[:count], call.args[count:]
        if not self.accepts(call, scalars):
            return self.visit(row.forward(*call.args))
        path, _, keywords = call.spec.rstrip(")").partition("(")
        function = path.removeprefix("torch.") if path.startswith("torch.nn.") else path
        shown = [self.tensor(arg, call) for arg in tensors]
        if count == 2:  # it takes both in one
            joined = f"torch.stack(torch.broadcast_tensors({', '.join(shown)}))"
            return f"{function}({joined}, 0)[0]", ATOM
        shown += map(self.number, scalars)
        return f"{function}({', '.join([*shown, *([keywords] if keywords else [])])})", ATOM

    def accepts(self, call: SpecCall, scalars: tuple[Term, ...]) -> bool:
        """Tell whether PyTorch's function takes these scalars."""
        if self.whole is not call and call.spec in LIMITED:
            return False
        if self.whole is call or call.spec not in ACCEPTED:
            return not any(map(self.is_tensor, scalars))
        values = [scalar.value for scalar in scalars if isinstance(scalar, Number)]
        return len(values) == len(scalars) and ACCEPTED[call.spec](*values)


class _Scalars(Printer):
    def __init__(self, outer: Printer) -> None:
        super().__init__(set())
        self.outer = outer

    def is_tensor(self, term: Term) -> bool:
        return any(
            isinstance(part, Name | SpecCall) or (isinstance(part, Apply) and _is_called(part))
            for part in walk(term)
        )

    def visit(self, term: Term) -> tuple[str, float]:
        return self.node(term)

    def name(self, name: str) -> str:
        return f"torch.tensor({name}, dtype=torch.float64)"

    def detached(self, term: Term) -> tuple[str, float]:
        return self.visit(term)

    def number(self, term: Term) -> str:
        return self.outer.text(term)

    def condition(self, term: Term) -> str:
        return self.text(term) if self.is_tensor(term) else f"torch.tensor({self.text(term)})"

    def tensor(self, term: Term, like: Term) -> str:
        text = self.text(term)
        return text if self.is_tensor(term) else f"torch.tensor({text}, dtype=torch.float64)"

    def accepts(self, call: SpecCall, scalars: tuple[Term, ...]) -> bool:
        return self.outer.accepts(call, scalars)
