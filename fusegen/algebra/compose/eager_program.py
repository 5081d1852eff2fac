"""A program of the operations that PyTorch would run, each rounded to the storage type."""

from collections.abc import Mapping
from fractions import Fraction

from fusegen.algebra.compose.composer import Composer, Library
from fusegen.core.aten import ATEN
from fusegen.core.ops import OPS
from fusegen.core.row_dimensions import Over
from fusegen.core.spec import Spec
from fusegen.core.term import Apply, Name, Number, SpecCall, Term, applied, names

VIEWS = ("detach",)  # operations that compute nothing
READ_TWICE = ("cube",)  # operations that eager runs as several, of which two read the argument
EAGER_KERNELS: dict[str, tuple[str, tuple[int, ...]]] = {  # and the arguments that the operation fixes
    "relu": ("torch.nn.functional.relu", ()),
    "relu6": ("torch.nn.functional.relu6", ()),
    "saturate": ("torch.nn.functional.hardtanh", ()),
    "sigmoid": ("torch.sigmoid", ()),
    "tanh": ("torch.tanh", ()),
    "softplus": ("torch.nn.functional.softplus", (1, 20)),
}


class EagerComposer(Composer):
    """The lets of a program of PyTorch's own operations."""

    def __init__(
        self,
        library: Library,
        known: tuple[str, ...],
        taken: list[str],
        over: Over | None = None,
        *,
        numbers: set[str],
    ) -> None:
        """Take, beside what every composer takes, the names of what Python computes in double."""
        super().__init__(library, known, taken, over)
        self.numbers = numbers

    def bind(self, name: str, value: Term) -> Term:
        """Return a new let; one of Python's numbers is another of these."""
        bound = super().bind(name, value)
        if isinstance(bound, Name) and set(names(value)) <= self.numbers:
            self.numbers.add(bound.name)
        return bound

    def value(self, spec: Spec, values: dict[str, Term], path: tuple[str, ...]) -> Term:
        """Return the value of a spec: one kernel of PyTorch's, if it is that, else its operations."""
        fused = fused_call(spec, values)
        if fused is None:
            return super().value(spec, values, path)
        tensors = zip(spec.tensors, fused.args, strict=False)
        args = (self.bind(f"{spec.name}_{tensor.name}", arg) for tensor, arg in tensors)
        return Apply("round_to_storage", (SpecCall(fused.spec, (*args, *fused.args[len(spec.tensors) :])),))

    def pooling(self, call: SpecCall) -> Term:
        """Return a pooling, which eager runs as one operation."""
        return Apply("round_to_storage", (call,), call.span)

    def fold(self, fold: SpecCall) -> Term:
        """Return one reduction, rounded as eager stores it."""
        return Apply("round_to_storage", (fold,), fold.span)

    def operation(self, step: Apply) -> Term:
        """Return one operation as eager runs it: by a kernel of `aten.ATEN` if it has one, and rounded."""
        if step.op in VIEWS or set(names(step)) <= self.numbers:
            return step
        if step.op == "div" and set(names(step.args[0])) <= self.numbers:  # Tensor.__rtruediv__
            inverse = self.operation(Apply("reciprocal", step.args[1:], step.span))
            step = Apply("mul", (inverse, step.args[0]), step.span)
        if step.op in READ_TWICE:
            step = Apply(step.op, tuple(self.bind(f"{step.op}_x", arg) for arg in step.args), step.span)
        if step.op not in EAGER_KERNELS:
            return step if OPS[step.op].boolean else Apply("round_to_storage", (step,), step.span)
        kernel, further = EAGER_KERNELS[step.op]
        inputs = len(ATEN[kernel].inputs)
        args = [self.bind(f"{step.op}_x", arg) for arg in step.args[:inputs]]
        numbers = tuple(Number(Fraction(value)) for value in further)
        return Apply("round_to_storage", (SpecCall(kernel, (*args, *step.args[inputs:], *numbers)),))


def fused_call(spec: Spec, values: Mapping[str, Term]) -> SpecCall | None:
    """A call of the one kernel of PyTorch's that a spec is, on its inputs and parameters; or nothing."""
    kernel = ATEN.get(spec.reference)
    if kernel is None or not set(kernel.params) <= {p.name for p in spec.scalars}:
        return None
    if spec.masks or "detach" in applied(_terms(spec)):  # the kernel takes none, or has another gradient
        return None
    args = (*(i.name for i in spec.tensors), *kernel.params)
    return SpecCall(spec.reference, tuple(values[name] for name in args))


def _terms(spec: Spec) -> list[Term]:
    """Return the terms that a spec holds."""
    found = [line.term for line in spec.where] + [step.term for step in spec.chain if step.term]
    return [*found, *([spec.formula] if spec.formula else [])]
