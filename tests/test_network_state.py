"""The state of a network: its copies, pickles and replicas, and models whose state it would lose."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_faithful_lift import Model, network
from torch import Tensor, fx, nn

from fusegen.errors import FusegenError
from fusegen.models.lift.lifted_network import CALLED, lifted_network
from fusegen.models.lift.network import Network
from fusegen.models.lift.pickled import graph_of, rows

X = torch.linspace(-2, 2, 32).view(4, 8)


def chain(model: Any, x: Tensor) -> Tensor:
    """A layer and a region that reads a buffer."""
    y: Tensor = torch.tanh(model.lin(x) * model.mean + x) * 2
    return y


def noisy(model: Any, x: Tensor) -> Tensor:
    """Other operations in training."""
    return chain(model, x + torch.randn(8) if model.training else x)


def long(model: Any, x: Tensor) -> Tensor:
    """Many regions, more than the limit of recursion lets torch.fx pickle."""
    for _ in range(80):
        x = chain(model, x)
    return x


def unpickled(of: Network) -> Network:
    """The network of a pickle."""
    found: Network = pickle.loads(pickle.dumps(of))
    return found


def loaded(of: Network) -> Network:
    """The network of a file."""
    file = io.BytesIO()
    torch.save(of, file)
    file.seek(0)
    found: Network = torch.load(file, weights_only=False)
    return found


COPIES: dict[str, Callable[[Network], Network]] = {
    "deepcopy": copy.deepcopy,
    "pickle": unpickled,
    "torch.save": loaded,
}
FORWARDS: dict[str, Callable[[Any, Tensor], Tensor]] = {"modes": noisy, "long": long}


@pytest.mark.few(2)
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("case", FORWARDS)
def test_a_copy_has_the_graphs_and_tensors_of_its_own(case: str, way: str) -> None:
    own = network(Model(FORWARDS[case]))
    other = COPIES[way](own)
    for mode in (nn.Module.eval, nn.Module.train):
        assert mode(other).code == mode(own).code
        results = []
        for each in (own, other):
            torch.manual_seed(2)
            results.append(each(X))
        assert torch.equal(*results)
    with torch.no_grad():
        other.get_parameter("lin.bias").add_(1)
    assert not torch.equal(other.eval()(X), own.eval()(X))


def test_rows_keep_names_arguments_and_constants() -> None:
    def forward(x: Tensor, scale: float = 2.0, *, pair: bool = False) -> Any:
        y = torch.cat([x[:, 1:], x.view(4, -1)], dim=1).to(torch.float64)
        return {"y": y.clamp(min=scale, max=torch.float32.itemsize)[..., None], "pair": (pair, y)}

    graph = fx.symbolic_trace(forward).graph
    next(node for node in graph.nodes if node.op == "call_method")._rename("other_7")
    made = graph_of(pickle.loads(pickle.dumps(rows(graph))))
    made.lint()
    assert made.python_code("self").src == graph.python_code("self").src
    assert [node.name for node in made.nodes] == [node.name for node in graph.nodes]


@pytest.mark.few(1)
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_compiled_network_runs_its_own_tensors(way: str) -> None:
    own = network(Model(chain))
    own.compile(backend="eager")
    before = own(X)
    other = COPIES[way](own)
    with torch.no_grad():
        other.get_parameter("lin.bias").add_(1)
    assert torch.equal(own(X), before)
    assert not torch.equal(other(X), before)


def test_a_model_that_was_compiled_in_place_is_not_what_its_network_runs() -> None:
    model, seen = Model(chain), []

    def count(graph: Any, _: Any) -> Any:
        seen.append(graph)
        return graph

    model.compile(backend=count)
    own = network(model)
    torch.testing.assert_close(own(X), chain(model, X))
    assert not seen
    model(X)
    assert len(seen) == 1


def test_a_replica_runs_its_own_tensors() -> None:
    model: Any = Model(lambda model, x: torch.tanh(x * model.mean + x) * model.mean)
    own = network(model)
    replica: Any = own._replicate_for_data_parallel()
    replica._buffers["mean"] = model.mean + 1
    again = replica._replicate_for_data_parallel()
    again._buffers["mean"] = model.mean + 2
    for each, more in ((own, 0), (replica, 1), (again, 2)):
        mean = model.mean + more
        torch.testing.assert_close(each(X), torch.tanh(X * mean + X) * mean)


@pytest.mark.full
def test_a_network_of_a_traced_module_has_no_second_graph() -> None:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(80)]
    own = network(fx.symbolic_trace(nn.Sequential(*layers)))
    assert torch.equal(unpickled(own)(X), own(X))
    assert not [key for key, value in vars(own).items() if isinstance(value, fx.Graph)]


# --- what is refused -------------------------------------------------------------------------------------


def told(model: nn.Module) -> str:
    """The message of a refusal."""
    with pytest.raises(FusegenError) as error:
        lifted_network(model, X)
    return str(error.value)


@pytest.mark.parametrize("method", CALLED)
def test_a_method_that_a_network_would_not_call_is_refused(method: str) -> None:
    def own(self: Any, *given: Any, **named: Any) -> Any:
        return getattr(nn.Module, method)(self, *given, **named)

    for base in (Model, fx.GraphModule):
        of: Any = type("Own", (base,), {method: own})
        model = of(chain) if base is Model else of(nn.Module(), fx.symbolic_trace(nn.Tanh()).graph)
        assert told(model) == (
            f"{type(model).__name__}: this is no model to lift: "
            f"its class has a {method} of its own, which a network would not call\n"
            "  hint: lift torch.nn.Sequential(model), which calls it"
        )


ATTRIBUTES = (
    *("graph", "code", "compile_policy", "modes", "remarks", "_own_kind"),
    *("_compile", "_owned", "_kernels", "_compile_policy"),
)
VALUES: dict[str, Callable[[], Any]] = {
    "child": lambda: nn.Linear(8, 8),
    "parameter": lambda: nn.Parameter(torch.ones(8)),
    "number": lambda: 3,
}


@pytest.mark.together
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_that_a_network_has_too_is_refused(name: str, kind: str) -> None:
    model = Model(chain)
    setattr(model, name, VALUES[kind]())
    assert told(model) == (
        f"Model: this is no model to lift: it has the attribute {name}, which a network has, too\n"
        "  hint: lift torch.nn.Sequential(model), which calls it"
    )


def test_the_children_of_a_model_may_have_such_methods_and_attributes() -> None:
    of: Any = type("Own", (Model,), {"get_extra_state": lambda self: 3})
    inner = of(chain)
    inner.graph = nn.Linear(8, 8)
    model = nn.Sequential(inner)
    own = network(model)
    assert own.state_dict()["0._extra_state"] == 3
    torch.testing.assert_close(own(X), model(X))
