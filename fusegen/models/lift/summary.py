"""The report of a model: a table with a line for each kernel, and what stays PyTorch's."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import fx

from fusegen.core.chips import USUAL, Chip
from fusegen.errors import counted
from fusegen.models.lift.float_losses import is_loss
from fusegen.models.lift.found import Found
from fusegen.models.lift.fx_graph import what
from fusegen.models.lift.places import span_of
from fusegen.models.lift.regions.biases import without_bias
from fusegen.models.lift.regions.builds import Named
from fusegen.models.lift.regions.expected import expected
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.lift.regions.worth import Traffic, in_bytes, traffic
from fusegen.models.lift.source_of_calls import NO_CALLS, operation
from fusegen.models.reader.aten_calls import layer_of, value_of

MOST_LINES, MOST_KINDS = 6, 8  # of the model's lines and of kinds of calls that a line names
LEFT = "stays PyTorch's: {calls}{places}: {why}"
EXPECTED = "microseconds as expected on {chip}, for those of eager's operations at the speed of a copy"
LAYERS, IS_LAYER = "layers", "is a layer"
APART = "a kernel adds the bias"
OF_LIBRARY, UNCAST = (
    "the library's kernel runs: {calls}{places}: {why}",
    "it reads logits of 16 bits without a cast",
)
MODES = ("training", "evaluation")


@dataclass(frozen=True)
class Kernel:
    """A kernel, with the regions of a graph that run it."""

    name: str
    times: int  # how many regions run it in a forward
    places: str  # of the calls in them
    read: int  # tensors
    written: int  # tensors
    saved: int  # bytes of a forward on the example inputs
    eager: int  # bytes that their operations move in PyTorch
    expected: float | None = None  # seconds of the kernel by the cost model, on CUDA
    eager_seconds: float | None = None  # of the operations at the speed of a copy


@dataclass(frozen=True)
class Left:
    """Calls that stay PyTorch's for one reason."""

    calls: tuple[tuple[str, int], ...]  # the number of each kind
    places: str
    why: str


@dataclass(frozen=True)
class Graph:
    """A graph of a forward."""

    mode: str  # that it is for; empty where it is for both
    kernels: tuple[Kernel, ...]
    left: tuple[Left, ...]
    moved: int  # bytes that all pointwise operations and reductions move in PyTorch

    @property
    def saved(self) -> int:
        """The bytes that kernels save."""
        return sum(each.saved for each in self.kernels)

    @property
    def regions(self) -> int:
        """Return how many regions run kernels."""
        return sum(each.times for each in self.kernels)


@dataclass(frozen=True)
class Report:
    """The report of a model."""

    model: str  # the name of its class
    dtype: str  # of its first region
    graphs: tuple[Graph, ...]
    chip: str  # on which times are expected, as sentences have it

    def lines(self) -> Iterator[str]:
        """Yield a sentence, the table, and what stays PyTorch's."""
        names = {each.name for graph in self.graphs for each in graph.kernels}
        clauses = [
            f"{f'in {each.mode} ' if each.mode else ''}{counted(each.regions, 'region')} "
            f"save{'s' * (each.regions == 1)} {in_bytes(each.saved)} of {in_bytes(each.moved)}"
            for each in self.graphs
        ]
        kernels = counted(len(names), "kernel")
        of = f"{'; '.join(clauses)} that pointwise operations and reductions move"
        yield f"{self.model}, {self.dtype}: {kernels}; {of}"
        if any(each.expected is not None for graph in self.graphs for each in graph.kernels):
            yield EXPECTED.format(chip=self.chip)
        yield from table([(each, mode) for each, mode in self._in_modes("kernels")])
        for left, mode in self._in_modes("left"):
            calls = [f"{number} {kind}" for kind, number in left.calls[:MOST_KINDS]]
            others = sum(number for _, number in left.calls[MOST_KINDS:])
            calls += [counted(others, "other")] * (others > 0)
            places = f" ({left.places})" if left.places else ""
            text = OF_LIBRARY if left.why == UNCAST else LEFT
            yield text.format(calls=", ".join(calls), places=places, why=left.why) + (
                f" (in {mode})" if mode else ""
            )

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the report as records: of the model, of each kernel and of each reason."""
        for each in self.graphs:
            numbers = {"regions": each.regions, "saved": each.saved, "moved": each.moved}
            yield {"kind": "model", "model": self.model, "dtype": self.dtype, "mode": each.mode, **numbers}
        for kernel, mode in self._in_modes("kernels"):
            yield {"kind": "kernel", "mode": mode, **asdict(kernel)}
        for left, mode in self._in_modes("left"):
            yield {"kind": "left", "mode": mode, **asdict(left), "calls": dict(left.calls)}

    def _in_modes(self, part: str) -> list[tuple[Any, str]]:
        """Return kernels or reasons with their mode, which is empty for those that are equal in both."""
        every = [(each, graph.mode) for graph in self.graphs for each in getattr(graph, part)]
        times = Counter(each for each, _ in every)
        both = {each for each, number in times.items() if number > 1}
        return [*dict.fromkeys((each, "" if each in both else mode) for each, mode in every)]


def summary(of: Found, names: Named, device: str, chip: Chip = USUAL) -> Report:
    """Return the report of a model's regions with their names, on a type of device, for CUDA on a chip."""
    modes = MODES if len(of.modes.graphs) > 1 else ("",)
    graphs = zip(of.modes.graphs, modes, strict=True)
    dtype = str(value_of(of.chosen[0].region.result).dtype).removeprefix("torch.")
    on = chip if device == "cuda" else None
    made = (_graph(of, names, on, graph, mode) for graph, mode in graphs)
    return Report(type(of.model).__name__, dtype, tuple(made), chip.title)


def _graph(of: Found, names: Named, chip: Chip | None, graph: fx.Graph, mode: str) -> Graph:
    chosen = [each for each in of.chosen if each.region.result.graph is graph]
    by_name = {
        path: [each for each in chosen if names.names[each.key] == path.stem] for path in names.texts
    }
    kernels = tuple(_kernel(path, regions, chip) for path, regions in by_name.items() if regions)
    others = (traffic(each).eager for each in of.unchosen if each.result.graph is graph)
    left = {node: why for node, why in of.left.items() if node.graph is graph}
    moved = sum(each.eager for each in kernels) + sum(others)
    return Graph(mode, kernels, tuple(_left(left)), moved)


def _kernel(spec: Path, regions: Sequence[RegionSpec], chip: Chip | None) -> Kernel:
    """Return the line of a kernel that some regions run."""
    each = [traffic(one.region) for one in regions]
    moved = Traffic(sum(t.passes for t in each), sum(t.eager for t in each), sum(t.kernel for t in each))
    nodes = [
        node for one in regions for node in (*one.region.nodes, *(one.front.calls if one.front else ()))
    ]
    first = regions[0].region
    sizes = (len(regions[0].inputs_of_kernel), len(first.results))
    made = Kernel(spec.stem, len(regions), places(nodes), *sizes, moved.saved, moved.eager)
    if chip is None:
        return made
    times = [expected(spec, one, t, chip) for one, t in zip(regions, each, strict=True)]
    return replace(made, expected=sum(t.kernel for t in times), eager_seconds=sum(t.eager for t in times))


def _left(nodes: Mapping[fx.Node, str]) -> Iterator[Left]:
    """Yield the calls that stay PyTorch's, by reason."""
    by_reason: dict[str, list[fx.Node]] = {}
    for node, why in nodes.items():
        if node.op == "call_module" or operation(node) not in NO_CALLS:
            reason = APART if node.target is without_bias else LAYERS if why.endswith(IS_LAYER) else why
            reason = UNCAST if is_loss(node) else reason
            by_reason.setdefault(reason, []).append(node)
    for why, found in by_reason.items():
        kinds = Counter(map(_kind, found)).most_common()
        yield Left(tuple(kinds), "" if why == LAYERS else places(found), why)


def _kind(node: fx.Node) -> str:
    """Return what a node calls: the class of a layer, or an operation."""
    if node.target is without_bias:
        owner: Any = node.graph.owning_module
        return type(owner.get_submodule(str(node.all_input_nodes[0].target))).__name__
    layer = layer_of(node)
    return type(layer).__name__ if layer is not None else what(node)


def places(nodes: Iterable[fx.Node]) -> str:
    """Return the model's lines of some nodes: ``block.py:18, 20-22``."""
    spans = {(Path(span.file).name, span.line) for node in nodes if (span := span_of(node)).line}
    shown = []
    for name, lines in itertools.groupby(sorted(spans), key=lambda span: span[0]):
        ranges = [*_ranges([line for _, line in lines])]
        more = [f"{len(ranges) - MOST_LINES} more"] * (len(ranges) > MOST_LINES)
        shown.append(f"{name}:{', '.join([*ranges[:MOST_LINES], *more])}")
    return ", ".join(shown)


def _ranges(lines: Sequence[int]) -> Iterator[str]:
    """Yield ordered lines, those that follow each other as one."""
    for _, group in itertools.groupby(enumerate(lines), key=lambda one: one[1] - one[0]):
        found = [line for _, line in group]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def table(kernels: Sequence[tuple[Kernel, str]]) -> Iterator[str]:
    """Yield the lines of a table of kernels."""
    rows = [_cells(each, mode) for each, mode in kernels]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for times, *cells in rows:
        padded = [times.rjust(widths[0]), *map(str.ljust, cells, widths[1:])]
        yield f"  {'  '.join(padded)}".rstrip()


def _cells(of: Kernel, mode: str) -> tuple[str, ...]:
    """Return the cells of a kernel."""
    saved = f"{in_bytes(of.saved)} saved of {in_bytes(of.eager)}"
    if of.expected is not None and of.eager_seconds is not None:
        saved += f", {of.expected * 1e6:.3g} us for {of.eager_seconds * 1e6:.3g}"
    moved = f"{of.read} read, {of.written} written"
    return (f"{of.times}x", of.name, of.places, moved, saved, f"in {mode}" if mode else "")
