"""Graphs of TorchDynamo as graphs of operators, which compute what they did."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._dynamo.backends.debugging import aot_eager
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from fusegen.errors import NotCaptured
from fusegen.models.backend import put_kernels_in
from fusegen.models.lift.dynamo_graph import operators_of, take_over
from fusegen.models.lift.found import regions_of
from fusegen.models.lift.modes import Modes
from fusegen.models.lift.regions.aliases import disturbs
from fusegen.models.lift.rule import Rule
from fusegen.models.reader.aten_table import GUARDED

Call = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore")  # TorchDynamo's own


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing was compiled before, and sizes may be values."""
    torch._dynamo.reset()
    settings: Any = torch._dynamo.config
    with settings.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


class Replay:
    """A backend that runs the operators of graphs."""

    def __init__(self) -> None:
        self.regions: list[int] = []
        self.kinds: list[set[str]] = []

    def __call__(self, graph: fx.GraphModule, inputs: Any) -> Call:
        """Compile a graph."""
        state, shown = torch.get_rng_state(), graph.print_readable(print_output=False)
        made = operators_of(graph)
        assert torch.equal(torch.get_rng_state(), state)  # no number is drawn
        assert graph.print_readable(print_output=False) == shown  # the graph is as it was
        is_whole = any(map(disturbs, made.graph.nodes))
        found = (
            []
            if is_whole
            else regions_of(made, Modes((made.graph,)), Rule(2, rows=GUARDED, saved=1)).chosen
        )
        self.regions.append(len(found))
        take_over(graph, made)
        graph.graph.lint()
        self.kinds.append({named(node) for node in graph.graph.nodes if node.op.startswith("call_")})
        run: Call = aot_eager(graph, inputs)
        return run


def named(node: fx.Node) -> str:
    return (
        "aten"
        if isinstance(node.target, OpOverload)
        else getattr(node.target, "__name__", str(node.target))
    )


def chain(x: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(x + 1) * 2)


class Square(torch.autograd.Function):
    """A function with a backward of its own, which is not that of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        """Five times the slope."""
        return 5 * slopes[0] * ctx.saved_tensors[0]


square: Call = Square.apply


def writes(x: Tensor) -> Tensor:
    y = chain(x) + 0
    y.mul_(2)
    y[0] = 3.0
    y[1].add_(1)
    return torch.sigmoid(y) * y + 1


def drops(x: Tensor) -> Tensor:
    return chain(F.dropout(chain(x), 0.3)) + torch.rand(8) + torch.rand_like(x)


def aliases(x: Tensor) -> Any:
    y = chain(x)
    return x, y, y.view(-1), x[0], y.detach()


def pieces(x: Tensor) -> Any:
    one, other = chain(x).chunk(2)
    return [torch.tanh(one) * other + 1, {"sum": (one + other).sum(), "none": None, "size": x.size(0)}]


def constants(x: Tensor) -> Tensor:
    return chain(x)[[0, 2]] * torch.tensor(2.0) + torch.tensor([3.0]) + torch.arange(8) + 1 / (x[:2] + 9)


def sized(x: Tensor) -> Tensor:
    return chain(x).view(x.shape[0] // 2, -1) * x.shape[1] + x.numel()


def by_values(x: Tensor) -> Tensor:
    found = chain(chain(x)[x[:, 0].nonzero()[:, 0]])
    is_long: Any = torch._check
    is_long(x.size(0) > 1)
    return found * x.detach().sum().item()


def apart(x: Tensor) -> Tensor:
    return chain(checkpoint(lambda y: torch.sin(y) * 2, chain(x), use_reentrant=False))


def branches(x: Tensor) -> Tensor:
    return chain(torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (chain(x),)))


CASES: dict[str, tuple[Call, int, set[str]]] = {  # with its regions, and calls that are no operators
    "a chain": (chain, 1, set()),
    "writes in place": (writes, 2, {"tensor"}),
    "random numbers": (drops, 2, {"rand"}),
    "results that share memory": (aliases, 1, set()),
    "pieces": (pieces, 2, set()),
    "constants": (constants, 3, {"tensor", "arange", "truediv"}),
    "sizes": (sized, 2, set()),
    "sizes by values": (by_values, 1, {"nonzero", "item"}),
    "a checkpoint": (apart, 2, {"tag_activation_checkpoint"}),
    "a backward of its own": (lambda x: chain(square(chain(x))), 2, {"autograd_function_apply"}),
    "branches": (branches, 2, {"cond"}),
    "a cast": (lambda x: chain(x.double()).float() * 2 + 1, 2, set()),
}


def ran(call: Call, x: Tensor) -> Any:
    """The value, the gradient and the input behind a call with fixed random numbers."""
    torch.manual_seed(0)
    leaf = x.clone().requires_grad_()
    value = call(leaf)
    total = torch.stack(
        [each.square().sum() for each in tree_leaves(value) if isinstance(each, Tensor)]
    ).sum()
    [slope] = torch.autograd.grad(total, leaf)
    return [each.detach() if isinstance(each, Tensor) else each for each in tree_leaves(value)], slope


@pytest.mark.parametrize("case", CASES)
def test_operators_compute_what_the_graph_does(case: str) -> None:
    call, regions, kept = CASES[case]
    x, backend = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)), Replay()
    compiled = torch.compile(call, backend=backend, fullgraph=True)
    torch.testing.assert_close(ran(compiled, x), ran(call, x))
    assert backend.regions == [regions]
    assert kept <= backend.kinds[0] <= kept | {"aten", "getitem", "ge", "le"}


def test_sizes_stay_symbols() -> None:
    backend = Replay()
    compiled = torch.compile(sized, backend=backend, fullgraph=True, dynamic=True)
    for rows in (4, 6, 10):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), sized(x))
    assert backend.regions == [1]  # of one graph, in which sizes are no numbers of formulas


def test_buffers_are_written_as_before() -> None:
    x, backend = torch.randn(16, 8), Replay()
    one, other = (nn.Sequential(nn.BatchNorm1d(8), nn.Tanh(), nn.Hardswish()) for _ in range(2))
    compiled = torch.compile(one, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(ran(compiled, x), ran(other, x))
    torch.testing.assert_close(one.state_dict(), other.state_dict())
    assert int(other.state_dict()["0.num_batches_tracked"]) == 2


def test_casts_of_autocast_around_a_call_are_its_own() -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.relu(torch.sigmoid(x @ x.mT) * 2)

    x = torch.randn(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = torch.compile(forward, backend=Replay(), fullgraph=True)(x)
        torch.testing.assert_close(value, forward(x))
    assert value.dtype is torch.bfloat16


def with_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = chain(x @ x.mT)
    return chain(y)


def without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = chain(x)
    return chain(y) * x


@pytest.mark.parametrize("forward", [with_autocast, without_gradient])
def test_no_region_lies_across_a_change_of_mode(forward: Call, tmp_path: Path) -> None:
    def put(graph: fx.GraphModule, inputs: Any) -> Call:
        before = graph.code
        assert put_kernels_in(graph, tmp_path) == 0
        assert graph.code == before
        run: Call = aot_eager(graph, inputs)
        return run

    x = torch.randn(128, 128, requires_grad=True)  # large enough for kernels
    results = [run(x) for run in (torch.compile(forward, backend=put, fullgraph=True), forward)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(each.float().sum(), x) for each in results))


def mapped(x: Tensor) -> Tensor:
    return chain(torch.vmap(lambda row: row.sin() * 2)(chain(x)))


def reshaped_in_place(x: Tensor) -> Tensor:
    return chain(chain(x).unsqueeze_(0))


def apart_from_autograd(x: Tensor) -> Tensor:
    return chain(x.data) * x


REFUSED = {
    apart_from_autograd: "TypeError: a tensor in it is of no operator$",
    mapped: "RuntimeError: ",
    reshaped_in_place: r"TypeError: \w+ gives another tensor than in TorchDynamo$",
}


@pytest.mark.parametrize("forward", REFUSED)
def test_a_graph_that_refuses_is_left_with_a_sentence(forward: Call) -> None:
    def refuse(graph: fx.GraphModule, _: Any) -> Call:
        before = graph.code
        with pytest.raises(NotCaptured) as refused:
            operators_of(graph)
        said.append(str(refused.value))
        assert graph.code == before
        return graph

    said, x = list[str](), torch.randn(4, 8)
    torch.testing.assert_close(torch.compile(forward, backend=refuse, fullgraph=True)(x), forward(x))
    [sentence] = said
    start = "a graph of torch.compile: it cannot be captured as operators, as it raises "
    assert re.match(start + REFUSED[forward], sentence)


def item_before(x: Tensor) -> Tensor:
    y = x * 2
    z = y.exp()
    y[0] = 5.0
    return z * y


def view_before(x: Tensor) -> Tensor:
    y = x * 2
    z = y[1].exp()
    y[0].mul_(2)
    return z * y


def item_behind(x: Tensor) -> Tensor:
    y = x * 2
    first = y[0]
    y[1] = 5.0
    first.mul_(2)
    return y.exp() * first


def of_an_input(x: Tensor) -> Tensor:
    x[0] = 5.0
    return x.exp() * 2


def list_behind(x: Tensor) -> Tensor:
    y = x * 2
    z = y.exp()
    torch._foreach_add_([y], 1.0)
    return z * y


def list_written(x: Tensor) -> Tensor:
    y = x * 2
    torch._foreach_add_([y], 1.0)
    return y.exp() * y


def by_checkpoint(call: Call, x: Tensor) -> Tensor:
    found: Tensor = checkpoint(call, x, use_reentrant=False)
    return found


def within(x: Tensor) -> Tensor:
    y = x * 2
    z = y.exp()
    return z + by_checkpoint(lambda of: of.mul_(2).sin(), y)


def dropped_within(x: Tensor) -> Tensor:
    y = x * 2
    z = y.exp()
    return z + by_checkpoint(lambda of: F.dropout(of, 0.5, True, True), y)


def read_within(x: Tensor) -> Tensor:
    y = x * 2
    z = y.exp()
    return z + by_checkpoint(lambda of: F.dropout(of, 0.5, True, False).sin(), y)


def view_of_within(x: Tensor) -> Tensor:
    y = x * 2
    z = y.exp()
    by_checkpoint(lambda of: of.view(-1), y).mul_(2)
    return z * y


WRITES = {item_before: True, view_before: True, item_behind: False, of_an_input: True, chain: False}
WRITES |= {list_behind: True, list_written: False}
WRITES |= {within: True, dropped_within: True, read_within: False, view_of_within: True}


@pytest.mark.parametrize("forward", WRITES)
def test_a_write_disturbs_where_its_value_is_read_before(forward: Call) -> None:
    def look(graph: fx.GraphModule, _: Any) -> Call:
        assert any(map(disturbs, operators_of(graph).graph.nodes)) is WRITES[forward]
        return graph

    torch.compile(forward, backend=look, fullgraph=True)(torch.randn(4, 8))
