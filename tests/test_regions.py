"""The pointwise regions of graphs: what belongs to one, what it computes, and its spec."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from budget import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fusegen.language.parse import parse_spec
from fusegen.models.lift.captured_modes import captured_in_each_mode
from fusegen.models.lift.found import regions_of
from fusegen.models.lift.model_graphs import with_examples
from fusegen.models.lift.modes import Modes
from fusegen.models.lift.regions import builds
from fusegen.models.lift.regions.aliases import unsafe, writes
from fusegen.models.lift.regions.growing import MOST_OPERATIONS, MOST_TENSORS
from fusegen.models.lift.regions.original import original
from fusegen.models.lift.regions.partition import partition
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.regions.region_module import put_in
from fusegen.models.lift.regions.region_spec import RegionSpec, written
from fusegen.models.lift.regions.worth import traffic
from fusegen.models.lift.rule import Rule
from fusegen.models.reader.aten_calls import value_of


class Model(nn.Module):
    """A function as a module, with a few layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.conv, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.act, self.leaky = nn.SiLU(inplace=True), nn.LeakyReLU(0.2)
        self.bias = nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        """The function's value."""
        return self.function(self, x, y)


def graph_of(function: Callable[..., Any], *inputs: Tensor) -> tuple[nn.Module, fx.Graph]:
    model = Model(function)
    given = inputs or (torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3))
    [graph] = with_examples(model, "Model", given).graphs
    return model, graph


def names(region: Region) -> str:
    return " ".join(node.name for node in region.nodes)


def shared(m: Any, x: Tensor, y: Tensor) -> Any:
    a = x * 2
    return torch.relu(a) + m.norm(torch.tanh(a))


def diamond(m: Any, x: Tensor, y: Tensor) -> Any:
    a = x * 2
    return torch.relu(a) + torch.tanh(a)


def around(m: Any, x: Tensor, y: Tensor) -> Any:
    a = torch.exp(x)
    return a * 2 + m.norm(a)  # the product may not run before the norm, and may run with the sum


def gate(m: Any, x: Tensor, y: Tensor) -> Any:
    return torch.sigmoid(x.mean((2, 3), keepdim=True) + 1) * y * 2


def in_place(m: Any, x: Tensor, y: Tensor) -> Any:
    z = m.conv(x)
    z += y
    return m.act(z)


def masked(m: Any, x: Tensor, y: Tensor) -> Any:
    return torch.where(x > 0, x, y * 0.5).masked_fill(y < 1, -1.0)


REGIONS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "a chain": (lambda m, x, y: torch.tanh(x * 2) + y, ["mul tanh add"]),
    "layers part regions": (lambda m, x, y: F.relu(m.norm(F.silu(x) * 2) + 1), ["silu mul", "add relu"]),
    "a value that is read outside ends a region": (shared, ["mul", "tanh", "relu add"]),
    "branches that meet": (diamond, ["mul relu tanh add"]),
    "no path leaves and comes back": (around, ["exp", "mul add"]),
    "a smaller value is computed inside": (gate, ["add sigmoid mul mul_1"]),
    "activations are operations": (lambda m, x, y: m.leaky(x) + m.act(m.conv(y)), ["leaky act add"]),
    "in place on a new value": (in_place, ["add_ act"]),
    "parameters": (lambda m, x, y: torch.exp(x + m.bias), ["add exp"]),
    "masks inside and outside": (masked, ["gt mul where lt masked_fill"]),
    "views and softmax stay": (lambda m, x, y: (x * 2).flatten(1).softmax(1) * 3 - 1, ["mul", "mul_1 sub"]),
    "integers stay": (lambda m, x, y: x * (y.argmax() + 1) * 2, ["mul_1"]),
    "a clone inside": (lambda m, x, y: (x * 2).clone().detach() + y, ["mul clone detach add"]),
    "a clone alone is no region": (lambda m, x, y: m.norm(x).clone(), []),
    "several results": (lambda m, x, y: (torch.exp(x) * y, torch.tanh(y) - x), ["exp mul", "tanh sub"]),
    "what nothing reads is no region": (lambda m, x, y: (x * 3, y)[1].relu() * 2, ["relu mul_1"]),
}


@pytest.mark.together
@pytest.mark.parametrize("case", REGIONS)
def test_the_regions_of_a_graph(case: str) -> None:
    function, expected = REGIONS[case]
    _, graph = graph_of(function)
    assert [names(region) for region in partition(graph).regions] == expected


REASONS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "softmax": (lambda m, x, y: x.softmax(1), "softmax", "the language has no such operation"),
    "a layer": (lambda m, x, y: m.norm(x), "norm", "BatchNorm2d is a layer"),
    "a reduction": (lambda m, x, y: x.max(dim=1)[0], "max_1", "along a dimension it is a reduction"),
    "dtypes": (lambda m, x, y: x * y.half(), "mul", "its tensors are of several dtypes or devices"),
    "integers": (lambda m, x, y: x.long() * 2, "mul", "it computes with int64, and a kernel with floats"),
    "complex numbers": (
        lambda m, x, y: torch.fft.fft(x) * 2, "mul", "it computes with complex64, and a kernel with floats",
    ),
    "a size": (lambda m, x, y: x * x.size(0), "mul", "it reads the number size, which forward computes"),
    "a mask as a number": (
        lambda m, x, y: x * (y > 0), "mul", "it computes with bool, and a kernel with floats",
    ),
    "an argument": (
        lambda m, x, y: torch.div(x, 2, rounding_mode="floor"), "div",
        "the argument rounding_mode='floor' is not known",
    ),
    "a random operation": (
        lambda m, x, y: x + torch.rand_like(x), "rand_like", "the language has no such operation",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REASONS)
def test_why_a_call_is_no_pointwise_operation(case: str) -> None:
    function, called, why = REASONS[case]
    _, graph = graph_of(function)
    reasons = {node.name: reason for node, reason in partition(graph).reasons.items()}
    assert reasons[called] == why


def test_an_activation_with_a_hook_is_a_layer() -> None:
    model = Model(lambda m, x, y: m.leaky(x) * 2)
    model.leaky.register_forward_hook(lambda *_: None)
    [graph] = with_examples(model, "Model", (torch.randn(3), torch.randn(3))).graphs
    assert {node.name: why for node, why in partition(graph).reasons.items()} == {"leaky": "it has hooks"}


def test_a_region_has_so_many_operations_and_tensors() -> None:
    def long(m: Any, x: Tensor, y: Tensor) -> Any:
        for number in range(MOST_OPERATIONS + 4):
            x = torch.sin(x) if number % 2 else x * 1.5
        return x

    def wide(m: Any, x: Tensor, y: Tensor) -> Any:
        for _ in range(MOST_TENSORS + 2):
            x = x + m.norm(y)
        return x

    for function in (long, wide):
        _, graph = graph_of(function)
        regions = partition(graph).regions
        assert len(regions) == 2
        assert max(len(region.parts) for region in regions) <= MOST_OPERATIONS
        assert max(len(region.inputs) for region in regions) <= MOST_TENSORS


def test_operators_of_aten_are_operations() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return F.gelu(x * 2 + y).clamp(min=-1.0)

    graph = torch.export.export(Wrapped(function), (torch.randn(3), torch.randn(3))).graph
    [region] = partition(graph).regions
    assert region_text(region) == 'chain: [x * 2, x + y, gelu, "clamp_min(x, -1.0)"]'


class Wrapped(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The function's value."""
        return self.function(x, y)


def region_text(region: Region) -> str:
    return "\n".join(written(region).formula)


def only(function: Callable[..., Any], *inputs: Tensor) -> RegionSpec:
    _, graph = graph_of(function, *inputs)
    [region] = partition(graph).regions
    return written(region)


SPECS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "a chain": (
        lambda m, x, y: torch.tanh(x * 2) + y,
        ["inputs: {x: {shape: [2, 4, 3, 3], fill: randn}, y: {shape: [2, 4, 3, 3], fill: randn}}",
         "formula: tanh(x * 2) + y"],
    ),
    "a parameter has its name": (
        lambda m, x, y: torch.tanh(m.bias * x),
        ["inputs: {x: {shape: [2, 4, 3, 3], fill: randn}, bias: {shape: [4, 1, 1], fill: randn}}",
         "formula: tanh(bias * x)"],
    ),
    "branches that meet twice": (
        lambda m, x, y: (a := torch.exp(x)) * (b := torch.tanh(a)) + b,
        ["inputs: {x: {shape: [2, 4, 3, 3], fill: randn}}",
         "chain: [value: exp(x), tanh, value * x + x]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPECS)
def test_the_spec_of_a_region(case: str) -> None:
    function, expected = SPECS[case]
    found = only(function)
    assert [*found.lines, *found.formula] == expected
    assert parse_spec(found.text("some_region", "a test"), "some_region.yaml").summary.endswith(
        "one kernel."
    )


def test_a_mask_from_outside_is_an_input() -> None:
    found = only(lambda m, x, y: torch.where(y, x * 2, -1.0) * 3, torch.randn(2, 3), torch.ones(2, 3) > 0)
    assert found.lines == ("inputs: {x: {shape: [2, 3], fill: randn}, y: {shape: [2, 3], dtype: bool}}",)


def test_equal_regions_have_one_key_and_others_another() -> None:
    def function(m: Any, x: Tensor, y: Tensor) -> Any:
        one = m.norm(torch.tanh(x * 2) + m.bias)
        two = m.norm(torch.tanh(one * 2) + y)
        return m.norm(torch.tanh(two * 3) + y)

    _, graph = graph_of(function)
    keys = [written(region).key for region in partition(graph).regions]
    assert keys[0] == keys[1] != keys[2]


def test_names_are_by_operations_and_those_of_other_specs_are_kept(tmp_path: Path) -> None:
    chain = only(lambda m, x, y: torch.tanh(x * 2) + y)
    (tmp_path / "mul_tanh_add.yaml").write_text("name: mul_tanh_add\nformula: x\n")
    found = builds.named([chain], tmp_path, "a test", taken={"mul_tanh_add_2"})
    assert set(found.names.values()) == {"mul_tanh_add_3"}
    for path, text in found.texts.items():
        path.write_text(text)
    smaller = only(lambda m, x, y: torch.tanh(x * 2) + y, torch.randn(5), torch.randn(5))
    again = builds.named([smaller], tmp_path, "another test", taken={"mul_tanh_add_2"})
    assert again == found  # whatever the sizes


def test_a_shipped_spec_is_not_shadowed(tmp_path: Path) -> None:
    found = builds.named([only(lambda m, x, y: torch.tanh(F.gelu(x)))], tmp_path, "a test")
    assert set(found.names.values()) == {"gelu_tanh_2"}


WORTH: dict[str, tuple[Callable[..., Any], int, bool]] = {
    "one pass": (lambda m, x, y: torch.relu(x), 1, False),
    "one pass of two tensors": (lambda m, x, y: x + y, 1, False),
    "two passes": (lambda m, x, y: torch.relu(x) * 2, 2, True),
    "an operation of three passes": (lambda m, x, y: F.softsign(x), 3, True),
    "a detach is none": (lambda m, x, y: torch.relu(x.detach()), 1, False),
}


@pytest.mark.parametrize("case", WORTH)
def test_the_passes_that_eager_takes(case: str) -> None:
    function, passes, is_worth = WORTH[case]
    model, graph = graph_of(function)
    [region] = partition(graph).regions
    moved = traffic(region)
    assert (moved.passes, moved.saved > 0) == (passes, is_worth)
    found = regions_of(model, Modes((graph,)), Rule())
    assert bool(found.chosen) is is_worth
    assert ("alone it is as fast in PyTorch as in a kernel" in found.left.values()) is not is_worth


SMALL = {  # the device, the elements and dtype of a relu(x + y) * 2, and whether a kernel is worth its call
    "just enough": ("cuda", 1 << 21, torch.float32, True),
    "not enough": ("cuda", (1 << 21) - 1, torch.float32, False),
    "half as many bytes": ("cuda", 1 << 21, torch.bfloat16, False),
    "just enough on the CPU": ("cpu", 1 << 10, torch.float32, True),
    "not enough on the CPU": ("cpu", (1 << 10) - 1, torch.float32, False),
    "512 numbers": ("cpu", 512, torch.float32, False),
}


@pytest.mark.parametrize("case", SMALL)
def test_a_kernel_saves_what_its_call_costs(case: str, use_worth: None) -> None:
    device, numel, dtype, is_worth = SMALL[case]
    shape = torch.empty(numel, dtype=dtype, device="meta")
    model, graph = graph_of(lambda m, x, y: torch.relu(x + y) * 2, shape, shape)
    for node in graph.nodes:
        node.meta["val"] = FakeTensor(FakeTensorMode(), shape, torch.device(device))
    found = regions_of(model, Modes((graph,)), Rule())
    assert bool(found.chosen) is is_worth
    assert (
        "it moves so few bytes that the call of a kernel takes longer" in found.left.values()
    ) is not is_worth
    other = {"cpu": "cuda", "cuda": "cpu"}[device]  # which may be asked for
    assert bool(regions_of(model, Modes((graph,)), Rule(device=other)).chosen) is (device == "cuda")


def test_the_bytes_that_a_kernel_saves() -> None:
    _, graph = graph_of(lambda m, x, y: torch.relu(x + y) * 2, torch.randn(10), torch.randn(10))
    moved = traffic(partition(graph).regions[0])
    assert (moved.eager, moved.kernel, moved.saved) == (7 * 40, 3 * 40, 4 * 40)


def without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.mul_(2)


UNSAFE: dict[str, tuple[Callable[..., Any], str]] = {
    "an input": (lambda m, x, y: x.mul_(2), "it writes to an input or a parameter"),
    "a parameter": (lambda m, x, y: m.bias.detach().add_(1) * x, "it writes to an input or a parameter"),
    "what a layer writes to is read before": (
        lambda m, x, y: torch.tanh(z := m.conv(x)) + m.act(z), "what it writes to is read elsewhere",
    ),
    "a view that is read": (
        lambda m, x, y: (v := (z := m.conv(x)).view(-1)) * z.relu_().view(-1) + v,
        "what it writes to is read elsewhere",
    ),
    "a value with a gradient, without one": (
        lambda m, x, y: without_gradients(m.conv(x)),
        "it writes without a gradient to a value that has one",
    ),
    "a view of an input": (lambda m, x, y: x.view(-1).relu_(), "it writes to an input or a parameter"),
    "a view of what is read again": (
        lambda m, x, y: (z := m.conv(x)).view(-1).relu_() + z[0, 0, 0, 0],
        "what it writes to is read elsewhere",
    ),
    "an item, and another": (
        lambda m, x, y: (z := m.conv(x))[0].relu_() + z[1], "what it writes to is read elsewhere",
    ),
    "the only view of a new value": (lambda m, x, y: m.conv(x).view(-1)[1:].relu_(), ""),
    "a new value": (lambda m, x, y: m.conv(x).relu_(), ""),
    "a layer on an input": (lambda m, x, y: m.act(x), "it writes to an input or a parameter"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSAFE)
def test_writes_that_no_new_value_can_replace(case: str) -> None:
    function, why = UNSAFE[case]
    given = (torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3))
    [graph] = captured_in_each_mode(Model(function), given, {}).graphs
    assert [unsafe(node) for node in graph.nodes if writes(node)] == [why]


def written_statements(m: Any, x: Tensor, y: Tensor) -> Any:
    z = m.conv(x)
    z.mul_(2)
    z += y
    F.relu(z, inplace=True)
    return torch.tanh(z) * z


def read_before(m: Any, x: Tensor, y: Tensor) -> Any:
    z = m.conv(x)
    first = torch.tanh(z) * 2
    z *= y
    second = torch.relu(z) + 1
    F.leaky_relu(z, 0.1, inplace=True)
    z.sigmoid_()
    return first + z, second + z


def random_scale(m: Any, x: Tensor, y: Tensor) -> Any:
    kept = x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(0.5)
    kept.div_(0.5)
    return torch.relu(x * kept + y)


FOLLOWED: dict[str, Callable[..., Any]] = {
    "statements": written_statements,
    "values that are read before": read_before,
    "random numbers": random_scale,
    "what is read again": lambda m, x, y: (z := m.conv(x)).relu_() + z,
    "truths": lambda m, x, y: torch.where((x > 0) & (y > 0), x * y, torch.exp(x) + y),
    "no gradient wanted": lambda m, x, y: torch.tanh(x + y.detach().requires_grad_(False)) * y,
}


@pytest.mark.parametrize("case", FOLLOWED)
def test_what_stands_behind_a_write_reads_its_result(case: str) -> None:
    model = Model(FOLLOWED[case])
    inputs = (torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3))
    [graph] = with_examples(model, "Model", inputs).graphs
    assert not any(unsafe(node) for node in graph.nodes if writes(node))
    regions = partition(graph).regions
    for number, region in enumerate(regions):
        setattr(model, f"region_{number}", original(region, region.inputs))
    written = [RegionSpec(region, "", (), {}, (), ()) for region in regions]
    put_in(graph, [(of, f"region_{number}") for number, of in enumerate(written)])
    results = []
    for run in (fx.GraphModule(model, graph), model):
        torch.manual_seed(0)
        results.append(run(*(each.clone() for each in inputs)))
    lifted, expected = results
    whole = expected if isinstance(expected, tuple) else (expected,)
    torch.testing.assert_close(lifted, whole, rtol=0, atol=0)


def test_the_first_input_is_that_which_eager_takes_the_layout_from() -> None:
    def block(m: Any, x: Tensor, y: Tensor) -> Any:
        return x + y.permute(0, 1, 3, 2) * m.bias

    model, graph = graph_of(block)
    [region] = partition(graph).regions
    assert [node.name for node in region.inputs] == ["x", "permute", "bias"]
    x, y = torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3)
    assert (
        original(region, region.inputs)(x, y.permute(0, 1, 3, 2), model.bias).stride()
        == block(model, x, y).stride()
    )


def test_examples_leave_parameters_and_buffers_as_they_are() -> None:
    model = Model(lambda m, x, y: m.norm(m.conv(x)) + y)
    before = copy.deepcopy(model.state_dict())
    [graph] = with_examples(model, "Model", (torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3))).graphs
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [value_of(node).shape for node in graph.nodes if node.op == "call_module"] == [(2, 4, 3, 3)] * 2


# --- any graph: a region computes what its operations do, and its order is the graph's ------------------

UNARY = (torch.tanh, torch.relu, torch.sigmoid, F.silu, F.gelu, torch.abs)
BINARY = (torch.add, torch.mul, torch.sub, torch.maximum)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """Operations on earlier values: a function or a barrier, and the places of what it reads."""
    count = draw(st.integers(1, 12))
    kinds = st.sampled_from(("unary", "unary", "binary", "binary", "norm", "mean"))
    return [
        (draw(kinds), draw(st.integers(0, 5)), draw(st.integers(0, n + 1)), draw(st.integers(0, n + 1)))
        for n in range(count)
    ]


class Program(nn.Module):
    """A random program of pointwise operations and others."""

    def __init__(self, steps: list[tuple[str, int, int, int]]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of the last two values."""
        values = [x, y]
        for kind, which, one, other in self.steps:
            a, b = values[one], values[other]
            if kind == "unary":
                values.append(UNARY[which](a))
            elif kind == "binary":
                values.append(BINARY[which % len(BINARY)](a, b))
            else:
                values.append(a.softmax(-1) if kind == "norm" else a.mean(-1, keepdim=True) + b)
        return values[-1] + values[-2]


@settings(max_examples=examples(75), deadline=None)
@given(programs())
def test_regions_are_convex_and_compute_what_their_operations_do(
    steps: list[tuple[str, int, int, int]],
) -> None:
    model = Program(steps).double()
    inputs = (torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64))
    [graph] = with_examples(model, "Program", inputs).graphs
    values = Recorder(model, graph).values(inputs)
    order = {node: place for place, node in enumerate(graph.nodes)}
    regions = partition(graph).regions
    inside = [node for region in regions for node in region.nodes]
    assert len(inside) == len(set(inside))
    for region in regions:
        assert all(order[each] < order[region.result] for each in region.inputs)
        assert not any(set(node.users) - set(region.nodes) for node in region.nodes[:-1])
        result = original(region, region.inputs)(*(values[node] for node in region.inputs))
        assert torch.equal(result, values[region.result])


class Recorder(fx.Interpreter):
    """Runs a graph and keeps the value of each node."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        super().__init__(model, garbage_collect_values=False, graph=graph)

    def values(self, inputs: tuple[Tensor, ...]) -> dict[fx.Node, Tensor]:
        """The tensors of all nodes."""
        self.run(*inputs)
        return dict(self._named())

    def _named(self) -> Iterator[tuple[fx.Node, Tensor]]:
        yield from ((node, value) for node, value in self.env.items() if isinstance(value, Tensor))
