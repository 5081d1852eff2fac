"""A program with folds as Python on PyTorch's own operations."""

from collections.abc import Collection

from fusegen.codegen.printers.pytorch import Printer
from fusegen.core.folds import FIRST, LENGTH, makes_a_loop
from fusegen.core.ops.row import ATOM
from fusegen.core.row_dimensions import Over
from fusegen.core.scans import CUMPROD, SCANS, Scan
from fusegen.core.spec import Spec
from fusegen.core.term import Program, SpecCall, names


def row_statements(
    spec: Spec,  # whose rows are reduced
    program: Program,  # of eager's operations
    of_rows: Collection[int],  # the results that are a row's: without its dimensions, unless they are kept
) -> tuple[str, ...]:
    """Return the lines of a function body that returns the values of a program."""
    assert spec.over is not None
    over, first = spec.over.of_views, spec.inputs[0].name
    dims = dimensions(over, first)
    printer = (_ChannelPrinter if over.of_channel else _RowPrinter)(
        set(program.inputs), dims, _pads(over, first)
    )
    read = {name for term in program.terms for name in names(term)}
    sizes = _length(over, first)
    lines = [f"{LENGTH} = {sizes}"] if LENGTH in read else []
    for each in spec.indices:
        places = f"torch.arange({sizes}, device={first}.device){_laid(over, first)}"
        lines.append(f"{each.name} = {places} == {each.name}")
    lines += printer.steps(program)
    values = [printer.text(result) for result in program.results]
    for k in () if spec.over.keeps else of_rows:
        values[k] = f"torch.squeeze({values[k]}, {dims})"
    return (*lines, f"return {', '.join(values)}")


def dimensions(over: Over, first: str) -> str:
    """Return the dimensions of a row of a tensor as Python."""
    if over.of_channel:
        return f"(0, *range(2, {first}.dim()))"
    match over.named:
        case ():
            return f"tuple(range({over.first}, {first}.dim()))"
        case (one,):
            return str(one)
        case several:
            return str(several)


def _length(over: Over, first: str) -> str:
    if over.of_channel:
        return f"{first}.numel() // {first}.shape[1]"
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

    def __init__(self, tensors: set[str], dims: str, pads: str) -> None:
        super().__init__(tensors)
        self.dims, self.pads = dims, pads

    def fused(self, call: SpecCall) -> tuple[str, float]:
        """Return a fold, or a call of PyTorch's function."""
        if not makes_a_loop(call):
            return super().fused(call)
        if call.spec in SCANS:
            return self.scanned(SCANS[call.spec], self.tensor(call.args[0], call)), ATOM
        values = "[0]" if call.spec in FIRST else ""  # beside which PyTorch has their places
        element = self.tensor(call.args[0], call)
        return f"torch.{call.spec}({element}, {self.dims}, keepdim=True){values}", ATOM

    def scanned(self, scan: Scan, element: str) -> str:
        """Return a scan; without its own element it is one of the elements before, and of none 0 or 1."""
        if scan.reverse:
            element = f"torch.flip({element}, ({self.dims},))"
        if scan.exclusive:
            element = f"nn.functional.pad({element}, ({self.pads}), value={int(scan.kind == CUMPROD)})"
        found = f"torch.{scan.kind}({element}, {self.dims})"
        return f"torch.flip({found}, ({self.dims},))" if scan.reverse else found


class _ChannelPrinter(_RowPrinter):
    """Prints terms whose two folds, of the mean and of the variance, may be given."""

    def __init__(self, tensors: set[str], dims: str, pads: str) -> None:
        super().__init__(tensors, dims, pads)
        self.folds: dict[str, int] = {}  # by their elements; a formula may write one of them twice

    def fused(self, call: SpecCall) -> tuple[str, float]:
        """Return the sum that a mean or a variance is a share of, or a call of PyTorch's function."""
        if not makes_a_loop(call):
            return super().fused(call)
        element = self.tensor(call.args[0], call)
        which = self.folds.setdefault(element, len(self.folds))
        return f"KERNELS.channel_sum({element}, moments, batch, {which})", ATOM


def _pads(over: Over, first: str) -> str:
    """Return the arguments of `pad` that put an element in front of a row and drop the last one."""
    others = str(-1 - over.first) if over.first < 0 else f"({first}.dim() - {1 + over.first})"
    return f"*(0, 0) * {others}, 1, -1" if others != "0" else "1, -1"
