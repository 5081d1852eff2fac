"""A program with folds as Python on PyTorch's own operations."""

from fusegen.codegen.printers.pytorch import Printer
from fusegen.core.folds import LENGTH, Level, is_fold
from fusegen.core.ops.row import ATOM
from fusegen.core.spec import Over, Spec
from fusegen.core.term import Program, SpecCall, names


def row_statements(spec: Spec, program: Program, stored: Level) -> tuple[str, ...]:
    """Return the lines of a function body that returns the value of a program.

    Args:
        spec: whose rows are reduced.
        program: of eager's operations.
        stored: what its result belongs to; a row's has no dimensions of the row.
    """
    assert spec.over is not None
    over, first = spec.over.of_views, spec.inputs[0].name
    dims = dimensions(over, first)
    printer = _RowPrinter(set(program.inputs), dims)
    read = {name for term in program.terms for name in names(term)}
    sizes = _length(over, first)
    lines = [f"{LENGTH} = {sizes}"] if LENGTH in read else []
    for each in spec.indices:
        places = f"torch.arange({sizes}, device={first}.device){_laid(over, first)}"
        lines.append(f"{each.name} = {places} == {each.name}")
    for let in program.lets:
        lines.append(f"{let.name} = {printer.text(let.term)}")
        if printer.is_tensor(let.term):
            printer.tensors.add(let.name)
    value = printer.text(program.results[0])
    return (
        *lines,
        f"return {value}" if stored is Level.ELEMENT else f"return torch.squeeze({value}, {dims})",
    )


def dimensions(over: Over, first: str) -> str:
    """Return the dimensions of a row of a tensor as Python."""
    match over.named:
        case ():
            return f"tuple(range({over.first}, {first}.dim()))"
        case (one,):
            return str(one)
        case several:
            return str(several)


def _length(over: Over, first: str) -> str:
    """Return the number of elements of a row of a tensor as Python."""
    if len(over.named) == 1:
        return f"{first}.shape[{over.first}]"
    return f"{first}.shape[{over.first}:{over.first + over.count if over.count else ''}].numel()"


def _laid(over: Over, first: str) -> str:
    """Return the end of an expression that lays numbers of a row's elements along the dimensions of it."""
    if over == Over(-1):
        return ""
    last = over.first + over.count if over.count else 0
    ones = f", *(1,) * ({-last if over.first < 0 else f'{first}.dim() - {last}'})" if over.count else ""
    return f".reshape(*{first}.shape[{over.first}:{last or ''}]{ones})"


class _RowPrinter(Printer):
    """Prints terms of tensors, of which folds keep the dimensions."""

    def __init__(self, tensors: set[str], dims: str) -> None:
        super().__init__(tensors)
        self.dims = dims

    def fused(self, call: SpecCall) -> tuple[str, float]:
        """Return a fold, or a call of PyTorch's function."""
        if not is_fold(call):
            return super().fused(call)
        return f"torch.{call.spec}({self.tensor(call.args[0], call)}, {self.dims}, keepdim=True)", ATOM
