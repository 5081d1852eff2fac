"""Networks of forwards with conditions on sizes, arguments by name and structures: what graphs hold for."""

import copy
import inspect
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fusegen.errors import NotAModel
from fusegen.models.lift.forwards import function_of
from fusegen.models.lift.found import found
from fusegen.models.lift.model_graphs import with_examples
from fusegen.models.lift.network import Network
from fusegen.models.lift.regions.original import original
from fusegen.models.lift.regions.region_module import put_in

RUNS_ITSELF = "{}: the graph holds for other arguments, sizes, dtypes or modes; the model itself runs"


@dataclass
class Output:
    """The result of a decoder, which PyTorch does not know as a structure."""

    hidden: Tensor
    pooled: Tensor | None
    count: int


class Norm(nn.Module):
    """An RMS norm that computes in float32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, size))

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the input's shape and dtype."""
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class Decoder(nn.Module):
    """A decoder block: a norm, rotary embedding, attention, a gated layer, and arguments by name."""

    frequency: Tensor

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = Norm(size)
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.gate, self.up, self.down = nn.Linear(size, 32), nn.Linear(size, 32), nn.Linear(32, size)
        self.register_buffer("frequency", torch.linspace(0.1, 1, 4))

    def forward(
        self, x: Tensor, *, mask: Tensor | None = None, scale: float = 1.0, is_pooled: bool = True
    ) -> Output:
        """The hidden state, and its pooled form."""
        batch, length, size = x.shape
        y = self.norm(x)
        query, key, value = (
            layer(y).view(batch, length, 2, size // 2).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        angles = torch.arange(length)[:, None] * self.frequency[None]
        cosine, sine = (torch.cat([each, each], -1) for each in (angles.cos(), angles.sin()))
        query, key = (each * cosine + turned(each) * sine for each in (query, key))
        if length > 24:
            query = query * 2
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + mixed.transpose(1, 2).reshape(batch, length, size) * scale
        y = self.norm(x)
        y = F.dropout(self.down(F.silu(self.gate(y)) * self.up(y)), 0.1, self.training)
        x = x + y
        return Output(x, torch.tanh(x.mean(1) * 2) * 3 if is_pooled else None, 3)


def turned(x: Tensor) -> Tensor:
    """The halves of heads, the second one negative in front."""
    one, other = x.chunk(2, -1)
    return torch.cat([-other, one], -1)


def network(model: nn.Module, inputs: Any) -> Network:
    """The network of a model, whose regions run PyTorch's operations."""
    of = found(model, inputs, least_passes=1)
    kernels = {
        f"region{place}": original(each.region, each.inputs_of_kernel, each.numbers)
        for place, each in enumerate(of.chosen)
    }
    calls = list(zip(of.chosen, kernels, strict=True))
    for graph in of.modes.graphs:
        put_in(graph, [call for call in calls if call[0].region.result.graph is graph])
    return Network(of.model, of.modes, kernels)


def tokens(batch: int = 3, length: int = 10) -> Tensor:
    """A hidden state."""
    return torch.randn(batch, length, 16, generator=torch.Generator().manual_seed(5))


def results(model: nn.Module, call: Callable[[Any], Any]) -> list[Any]:
    """The result of a model, and the gradients of its parameters."""
    torch.manual_seed(1)
    model.zero_grad()
    out = call(model)
    tensors = [each for each in torch.utils._pytree.tree_leaves(vars(out)) if isinstance(each, Tensor)]
    torch.autograd.backward([each.square().sum() for each in tensors])
    return [type(out), vars(out), [each.grad for each in model.parameters()]]


def assert_same(own: nn.Module, model: nn.Module, call: Callable[[Any], Any]) -> None:
    pair = results(own, call), results(model, call)
    assert pair[0][0] is pair[1][0]
    torch.testing.assert_close(pair[0][1:], pair[1][1:], rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def lifted() -> tuple[Network, Decoder]:
    """A network of a decoder, and another decoder with equal parameters."""
    model = Decoder()
    return network(model, {"x": tokens()}), Decoder()


def told(call: Callable[[], object]) -> list[str]:
    """The warnings of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in found]


SIZES = {"as lifted": (3, 10), "other sizes": (2, 7), "one": (1, 10), "a token": (2, 1)}


@pytest.mark.parametrize("mode", [nn.Module.train, nn.Module.eval])
@pytest.mark.parametrize("case", SIZES)
def test_the_graph_holds_for_other_sizes(case: str, mode: Any, lifted: tuple[Network, Decoder]) -> None:
    own, model = map(mode, lifted)
    x = tokens(*SIZES[case])
    assert told(lambda: assert_same(own, model, lambda of: of(x))) == []
    assert told(lambda: assert_same(own, model, lambda of: of(x=x, scale=1.0, mask=None))) == []


OTHERS: dict[str, Callable[[Any], Any]] = {
    "a constant": lambda of: of(tokens(), scale=2.0),
    "a constant of another type": lambda of: of(tokens(), scale=1),
    "a truth": lambda of: of(tokens(), is_pooled=False),
    "another structure": lambda of: of(tokens(), mask=torch.ones(10, 10) > 0),
    "a size that decides": lambda of: of(tokens(2, 25)),
    "another layout": lambda of: of(tokens(16, 10).transpose(0, 1).contiguous().transpose(0, 1)),
}


ANOTHER = {
    case: f"Decoder: forward was traced with {usual}, and {usual.partition('=')[0]} is another value; "
    "the model itself runs"
    for case, usual in (
        ("a constant", "scale=1.0"), ("a constant of another type", "scale=1.0"),
        ("a truth", "is_pooled=True"), ("another structure", "mask=None"),
    )
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("case", OTHERS)
def test_other_calls_run_the_model_itself_and_say_so_once(case: str) -> None:
    own, model = network(Decoder(), {"x": tokens()}), Decoder()
    [sentence] = told(lambda: assert_same(own, model, OTHERS[case]))
    assert sentence == ANOTHER.get(case, RUNS_ITSELF.format("Decoder"))
    assert told(lambda: assert_same(own, model, OTHERS[case])) == []


class Recovering(nn.Module):
    """A model that knows the error of one of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.norm = nn.Linear(64, 8), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return a dict: torch.fx cannot trace what asks for classes."""
        assert isinstance(x, Tensor), "torch.fx cannot trace this"
        try:
            x = self.wide(x)
        except RuntimeError:
            x = x * 2
        return {"out": torch.relu(self.norm(x)) + 1}


def test_layers_behind_an_error_that_the_model_knows_are_recorded() -> None:
    own = network(Recovering(), {"x": torch.randn(4, 16)})
    called = [str(node.target) for node in own.graph.nodes if node.op == "call_module"]
    assert "region0" in called  # which has the norm
    assert told(lambda: own(torch.randn(4, 16))) == []


@pytest.mark.full
def test_another_dtype_of_parameters_runs_the_model_itself() -> None:
    own, model = network(Decoder(), {"x": tokens()}).eval().bfloat16(), Decoder().eval().bfloat16()
    x = tokens().bfloat16()
    assert told(lambda: own(x)) == [RUNS_ITSELF.format("Decoder")]
    assert own(x).hidden.dtype is torch.bfloat16
    assert torch.equal(own(x).hidden, model(x).hidden)


@pytest.mark.full
def test_autocast_runs_the_model_itself() -> None:
    own, model = network(Decoder(), {"x": tokens()}).eval(), Decoder().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert told(lambda: own(tokens())) == [RUNS_ITSELF.format("Decoder")]
        assert torch.equal(own(tokens()).hidden, model(tokens()).hidden)
    assert told(lambda: own(tokens())) == []


def test_a_call_that_the_model_does_not_take_raises_what_it_raises(lifted: tuple[Network, Decoder]) -> None:
    own, model = lifted
    with pytest.raises(TypeError) as expected:
        model(tokens(), other=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TypeError) as raised:
            own(tokens(), other=1)
    assert str(raised.value) == str(expected.value)
    assert inspect.signature(own.forward) == inspect.signature(model.forward)


COPIES: dict[str, Callable[[Network], Network]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda own: pickle.loads(pickle.dumps(own)),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_has_parameters_of_its_own(way: str, lifted: tuple[Network, Decoder]) -> None:
    own = lifted[0].eval()
    other = COPIES[way](own)
    assert other.state_dict().keys() == lifted[1].state_dict().keys()
    before = own(tokens()).hidden
    with torch.no_grad():
        other.get_parameter("gate.bias").add_(1)
    assert torch.equal(own(tokens()).hidden, before)
    assert not torch.equal(other(tokens()).hidden, before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not torch.equal(other(tokens(), scale=2.0).hidden, own(tokens(), scale=2.0).hidden)


def test_a_compiler_records_the_model(lifted: tuple[Network, Decoder]) -> None:
    own, model = (each.eval() for each in lifted)
    compiled: Any = torch.compile(own, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens(), scale=2.0).hidden, model(tokens(), scale=2.0).hidden)


class Holder(nn.Module):
    """A function as a module, with layers and a buffer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.layer, self.norm = function, nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.act = nn.Hardswish(inplace=True)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, *given: Any, **named: Any) -> Any:
        """The function's value."""
        return self.function(self, *given, **named)


def branch(m: Any, x: Tensor) -> Any:
    if x.shape[0] > 3:
        x = x * 2
    return torch.relu(m.layer(x)) * 2


def loop(m: Any, x: Any) -> Any:
    for _ in range(x.shape[1] // 2):
        x = torch.relu(m.layer(x)) * 2
    return x


def checked(m: Any, x: Tensor) -> Any:
    if not isinstance(x, Tensor):
        raise TypeError("no tensor")
    return m.act(m.norm(m.layer(x))) * 2 + x


def without_gradients(m: Any, x: Tensor) -> Any:
    y = m.layer(x)
    with torch.no_grad():
        gate = torch.sigmoid(y) * int(x.shape[1])
    return torch.tanh(y) * gate


HOLDS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], bool]] = {  # if a call keeps the graph
    "another dtype": (lambda m, x: torch.relu(x) * 2, lambda x: x.double(), True),
    "another dtype, which it reads": (
        lambda m, x: torch.relu(x).to(x.dtype) * 2, lambda x: x.double(), False,
    ),
    "another layout": (lambda m, x: torch.relu(m.layer(x)) * 2, lambda x: x.t().contiguous().t(), True),
    "another layout, which it asks for": (
        lambda m, x: (torch.relu(x) * 2).contiguous().view(-1), lambda x: x.t().contiguous().t(), False,
    ),
    "another number of dimensions": (
        lambda m, x: torch.relu(x) * (2 if len(x.shape) == 2 else 3), lambda x: x[None], False,
    ),
    "another number": (lambda m, x, k=2.0: torch.relu(x) * k, lambda x: (x, 3.0), False),
    "one row": (lambda m, x: torch.relu(m.layer(x)) * 2, lambda x: x[:1], True),
}  # fmt: skip


@pytest.mark.parametrize("case", HOLDS)
def test_what_the_graph_does_not_decide_by_may_be_another(case: str) -> None:
    function, change = HOLDS[case][:2]
    own, model, given = (
        network(Holder(function), (torch.randn(4, 4),)),
        Holder(function),
        change(torch.randn(4, 4)),
    )
    args = given if isinstance(given, tuple) else (given,)
    warned = told(lambda: torch.testing.assert_close(own(*args), model(*args)))
    assert (warned == []) == HOLDS[case][2]


def test_a_forward_that_asks_for_autocast_runs_itself_there() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        return torch.relu(x) * (3 if torch.is_autocast_enabled("cpu") else 2)

    own, x = network(Holder(forward), (torch.randn(4, 4),)), torch.randn(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert told(lambda: torch.testing.assert_close(own(x), torch.relu(x) * 3)) == [
            RUNS_ITSELF.format("Holder")
        ]
    torch.testing.assert_close(own(x), torch.relu(x) * 2)


def test_a_size_of_one_that_broadcasts_stays_one() -> None:
    def broadcast(m: Any, x: Tensor, y: Tensor) -> Any:
        return torch.relu(m.layer(x)) * y

    own, x = network(Holder(broadcast), (torch.randn(1, 4), torch.randn(1, 1))), torch.randn(3, 4)
    y = torch.randn(3, 1)
    torch.testing.assert_close(own(x, y), Holder(broadcast)(x, y))
    assert told(lambda: own(x, torch.randn(3, 4)))


def test_a_compiler_records_how_graphs_with_structures_are_called() -> None:
    model, x = Holder(lambda m, x: (torch.relu(m.layer(x)) * 2, {"x": x + 1})), torch.randn(2, 4)
    modes = with_examples(model, "Holder", (x,))
    assert modes.signature is not None
    call = modes.signature.called(function_of(modes.graphs[0]), model, Holder.forward)
    compiled = torch.compile(lambda x: call(model, x), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))


def in_place(m: Any, x: Tensor) -> Any:
    y = m.layer(x) * int(x.shape[1])
    before = y.exp()
    y.mul_(len(x.shape))
    y += 1
    return y * torch.sigmoid(y) + before


def nested(m: Any, pair: tuple[Tensor, Mapping[str, Tensor]]) -> Any:
    x, others = pair
    y = torch.tanh(m.layer(x) + others["y"]) * 2
    return {"y": y, "shape": (x.shape[0], [y.sum(), None])}


def constant(m: Any, x: Tensor) -> Any:
    y = m.layer(x)
    return torch.max(y, torch.tensor(0.25 * x.dim())) * F.softplus(y) * int(x.shape[1])


FORWARDS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a condition on a size": (branch, (torch.randn(2, 4),)),
    "a loop over a size": (loop, (torch.randn(2, 4),)),
    "a question for the class": (checked, (torch.randn(5, 4),)),
    "no gradients": (without_gradients, (torch.randn(2, 4),)),
    "writes in place": (in_place, (torch.randn(2, 4),)),
    "structures": (nested, ((torch.randn(2, 4), {"y": torch.randn(4)}),)),
    "a constant": (constant, (torch.randn(2, 4),)),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", [nn.Module.train, nn.Module.eval])
@pytest.mark.parametrize("case", FORWARDS)
def test_the_network_computes_what_the_model_does(case: str, mode: Any) -> None:
    function, given = FORWARDS[case]
    own, model = mode(network(Holder(function), given)), mode(Holder(function))
    assert [each for each in own.graph.nodes if "region" in str(each.target)]
    for each in (own, copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        found, expected = results_of(each, given), results_of(model, given)
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(dict(own.named_buffers()), dict(model.named_buffers()))


def results_of(model: nn.Module, given: tuple[Any, ...]) -> list[Any]:
    model.zero_grad()
    if model.training:
        model.load_state_dict(Holder(branch).state_dict(), strict=False)  # statistics of norms
    out = model(*copy.deepcopy(given))
    leaves = [each for each in torch.utils._pytree.tree_leaves(out) if isinstance(each, Tensor)]
    torch.autograd.backward([each.square().sum() for each in leaves])
    return [out, [each.grad for each in model.parameters()]]


def looked_up(m: Any, x: Mapping[str, Tensor]) -> Any:
    row = m.layer.weight[x["place"]] * 2
    return torch.tanh(row.float()).to(m.layer.weight.dtype) * 3


def test_other_parameters_with_the_same_inputs_run_the_model_itself() -> None:
    given = ({"place": torch.tensor([2, 0, 1])},)
    own, model = network(Holder(looked_up), given), Holder(looked_up)
    assert told(lambda: torch.testing.assert_close(own(*given), model(*given))) == []
    for each in (own, model):
        each.bfloat16()
    assert told(lambda: torch.testing.assert_close(own(*given), model(*given))) == [
        RUNS_ITSELF.format("Holder")
    ]


def checked_by_mode(m: Any, x: Tensor) -> Any:
    return checked(m, x) * 2 if m.training else checked(m, x)


def test_a_layer_keeps_its_hooks_its_mode_and_its_place() -> None:
    own: Any = network(Holder(checked_by_mode), (torch.randn(5, 4),)).train()
    assert len(own.modes.graphs) == 2
    seen: list[str] = []
    own.norm.register_forward_hook(lambda *_: seen.append("norm"))
    own.norm.eval()
    before = own.norm.running_mean.clone()
    assert told(lambda: own(torch.randn(5, 4))) == []
    assert seen == ["norm"]
    assert torch.equal(own.norm.running_mean, before)
    own.layer = nn.Linear(4, 4)
    x = torch.randn(5, 4)
    y = own.norm(own.layer(x))
    torch.testing.assert_close(own(x), (F.hardswish(y) * 2 + x) * 2)


def encoded(m: Any, x: Tensor) -> Any:
    y = m.encoder(x) * (2 if m.training else 1)
    return torch.tanh(y) * len(x.shape) * 2 if isinstance(x, Tensor) else y


@pytest.mark.full
def test_the_layers_of_a_layer_are_its_own() -> None:
    """A layer of torch.nn with layers is one call, whatever the modes of these."""
    model = Holder(encoded)
    model.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    own: Any = network(model, (torch.randn(2, 5, 8),)).train()
    calls = [str(node.target) for node in own.graph.nodes if node.op == "call_module"]
    assert [each for each in calls if "region" not in each] == ["encoder"]
    own.encoder.dropout.eval()
    x = torch.randn(3, 4, 8)
    assert told(lambda: torch.testing.assert_close(own(x), encoded(own, x))) == []


def by_mode(m: Any, x: Tensor) -> Any:
    y = m.layer(x) * (2 if m.inner.training else 1)
    return torch.tanh(y) * len(x.shape[:1]) * 3 if isinstance(y, Tensor) else y


class Inner(nn.Module):
    """A module whose mode another one reads."""


def test_a_module_in_another_mode_runs_the_model_itself() -> None:
    model = Holder(by_mode)
    model.inner = Inner()
    own: Any = network(model, (torch.randn(2, 4),))
    x = torch.randn(2, 4)
    for mode in (True, False):
        own.train(mode)
        assert told(lambda: torch.testing.assert_close(own(x), by_mode(own, x))) == []
    own.inner.train()
    assert told(lambda: torch.testing.assert_close(own(x), by_mode(own, x))) == [
        "Holder: a Inner and the network are in different modes; the model itself runs"
    ]


class Box:
    """An object that is no structure."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def kept(m: Any, x: Tensor) -> Any:
    y = torch.relu(m.layer(x)) * int(x.shape[1])
    m.seen = [y]
    return y * 2


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "an object": (
        lambda m, x: Box(torch.relu(m.layer(x["x"])) * 2),
        "forward returns a Box, which its graph does not make",
    ),
    "a condition on a value": (
        lambda m, x: x["x"] * 2 if x["x"].sum() > 0 else x["x"],
        "forward cannot be traced, as a condition in it depends on its inputs",
    ),
    "a tensor that stays": (
        lambda m, x: kept(m, x["x"]),
        "forward sets the attribute seen to a tensor, which its graph does not",
    ),
    "a write to an input": (
        lambda m, x: x["x"].mul_(2).relu(),
        "mul in place: it writes to an input or a parameter",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_captured_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    function, why = REFUSED[case]
    with pytest.raises(NotAModel) as error:
        network(Holder(function), ({"x": torch.randn(2, 4)},))
    assert error.value.message == f"this is no model to lift: {why}"


class _Counted(nn.Module):
    """A model that counts how often forward runs."""

    def __init__(self, *, reads_mode: bool) -> None:
        super().__init__()
        self.norm, self.reads_mode = nn.BatchNorm1d(8), reads_mode

    def forward(self, x: Tensor) -> Tensor:
        RUNS.append(self)
        y: Tensor = self.norm(torch.tanh(x)) * (2 if self.reads_mode and self.training else 3)
        return y


class _Switched(_Counted):
    """A model whose mode changes more than the mode."""

    def train(self, mode: bool = True) -> "_Switched":
        super().train(mode)
        return self


RUNS: list[nn.Module] = []


def test_a_forward_that_reads_no_mode_is_captured_once() -> None:
    inner: list[nn.Module] = [
        _Counted(reads_mode=False),
        _Counted(reads_mode=True),
        _Switched(reads_mode=False),
    ]
    for model, graphs, runs in zip(inner, (1, 2, 1), (1, 2, 2), strict=True):
        RUNS.clear()
        modes = with_examples(nn.Sequential(model), "a model", (torch.randn(4, 8),))
        assert (len(modes.graphs), len(RUNS)) == (graphs, runs)
