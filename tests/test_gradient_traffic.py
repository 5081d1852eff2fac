"""The memory traffic of the gradients of regions, in eager and in a kernel, and the rule of training."""

import copy
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatching import after_each
from test_regions import graph_of
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from fusegen.core.method import Pass
from fusegen.models.lift.lifted_network import lifted_network
from fusegen.models.lift.regions.gradient import gradient_traffic
from fusegen.models.lift.regions.partition import partition
from fusegen.models.lift.regions.region_spec import written
from fusegen.models.lift.regions.worth import Traffic
from fusegen.models.lift.rule import Rule

Call = Callable[[Any, Tensor, Tensor], Any]
COUNT = 1000
WHOLE = 4 * COUNT  # bytes of a tensor


def moved_by_autograd(call: Call, *inputs: Tensor) -> int:
    """The bytes that the gradient of a function moves in eager."""
    given = [each.clone().requires_grad_(each.is_floating_point()) for each in inputs]
    result = call(None, *given)
    incoming = torch.ones_like(result)
    moved: list[int] = []

    def count(operator: Any, given: tuple[Any, ...], found: Any) -> None:
        if not operator.is_view:
            tensors = [each for each in tree_leaves((given, found)) if isinstance(each, Tensor)]
            moved.extend(each.numel() * each.element_size() for each in tensors if each.dim())

    with after_each(count):
        torch.autograd.grad(
            result, [each for each in given if each.requires_grad], incoming, allow_unused=True
        )
    return sum(moved)


def traffic_of(call: Call, *inputs: Tensor) -> Traffic:
    """The traffic of the gradient of a function that is one region."""
    _, graph = graph_of(call, *inputs)
    [region] = partition(graph).regions
    return gradient_traffic(written(region))


def doubled(x: Tensor) -> Tensor:
    x *= 2
    return x


UNARY = (
    *(torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2),
    *(
        torch.log1p,
        torch.sin,
        torch.cos,
        torch.sqrt,
        torch.rsqrt,
        torch.square,
        torch.reciprocal,
        torch.abs,
    ),
    *(operator.neg, torch.erf, torch.special.erfc, torch.special.ndtr, F.gelu, F.silu, F.mish, F.hardswish),
    *(
        F.hardsigmoid,
        F.softplus,
        F.elu,
        F.selu,
        F.leaky_relu,
        F.relu6,
        F.hardtanh,
        F.softsign,
        F.tanhshrink,
    ),
)
OTHERS: dict[str, Call] = {
    "a sum": lambda m, x, y: torch.relu(x + y),
    "a difference": lambda m, x, y: torch.relu(x - y),
    "a product": lambda m, x, y: torch.relu(x * y),
    "a product with itself": lambda m, x, y: torch.relu(x * x) + y,
    "a quotient": lambda m, x, y: torch.relu(x / y),
    "numbers": lambda m, x, y: (2 - x * 3) / 2 + y,
    "a number over a tensor": lambda m, x, y: 2 / x + y,
    "a power": lambda m, x, y: x**3 + y,
    "the larger": lambda m, x, y: torch.relu(torch.maximum(x, y)),
    "bounds": lambda m, x, y: torch.clamp(x, 0.6, 0.9) + y,
    "addcmul": lambda m, x, y: torch.relu(torch.addcmul(x, x, y)),
    "a value that is read twice": lambda m, x, y: torch.tanh(x) * torch.relu(x) + y,
    "a value without a gradient": lambda m, x, y: torch.relu(x) * torch.sigmoid(y).detach(),
    "statements": lambda m, x, y: doubled(x + 1).relu() + y,
}


def between(each: Callable[[Tensor], Tensor]) -> Call:
    """A function of one tensor, then relu and a sum."""
    return lambda m, x, y: torch.relu(each(x)) + y


CALLS = {**{each.__name__: between(each) for each in UNARY}, **OTHERS}


@pytest.mark.few(20)
@pytest.mark.together
@pytest.mark.parametrize("case", CALLS)
def test_eager_moves_the_bytes_for_a_gradient(case: str) -> None:
    x, y = torch.rand(COUNT) + 0.5, torch.rand(COUNT) + 0.5
    found = moved_by_autograd(CALLS[case], x, y)
    assert 0 <= found - traffic_of(CALLS[case], x, y).eager <= WHOLE / 2  # masks


MASKED: dict[str, Call] = {
    "a choice": lambda m, x, y: torch.where(y, x, torch.tanh(x)),
    "a choice of a number": lambda m, x, y: torch.where(y, torch.relu(x), 0.0),
    "a number in places": lambda m, x, y: torch.relu(x).masked_fill(y, 0.0),
}


@pytest.mark.parametrize("case", MASKED)
def test_eager_moves_the_bytes_for_a_gradient_by_masks(case: str) -> None:
    x, mask = torch.rand(COUNT), torch.rand(COUNT) > 0.5
    found = moved_by_autograd(MASKED[case], x, mask)
    assert 0 <= found - traffic_of(MASKED[case], x, mask).eager <= WHOLE / 2


BROADCAST: dict[str, Call] = {
    "a sum": lambda m, x, y: torch.relu(x + y),
    "a product": lambda m, x, y: torch.relu(x * y),
}


@pytest.mark.parametrize("case", BROADCAST)
def test_eager_adds_up_the_gradient_of_an_operand_that_is_broadcast(case: str) -> None:
    x, y = torch.rand(10, COUNT // 10), torch.rand(COUNT // 10)
    slack = 2 * y.numel() * y.element_size()  # which a product reads, and a sum writes
    assert abs(moved_by_autograd(BROADCAST[case], x, y) - traffic_of(BROADCAST[case], x, y).eager) <= slack


IN_A_KERNEL: dict[str, tuple[Call, float]] = {  # the tensors that the kernel of a gradient moves
    "one activation, of its result": (lambda m, x, y: torch.relu(x), 3),
    "a chain": (lambda m, x, y: torch.relu(x) * 2, 3),
    "equal gradients": (lambda m, x, y: torch.relu(x + y), 4),
    "a gradient and its negative": (lambda m, x, y: torch.relu(x - y), 5),
    "a gate": (lambda m, x, y: F.silu(x) * y, 5),
    "a residual, which is not read": (lambda m, x, y: torch.tanh(x) + y, 4),
    "sums alone": (lambda m, x, y: x + y + 1, 2),
}


@pytest.mark.parametrize("case", IN_A_KERNEL)
def test_a_kernel_moves_the_bytes_for_a_gradient(case: str) -> None:
    call, tensors = IN_A_KERNEL[case]
    assert traffic_of(call, torch.randn(COUNT), torch.randn(COUNT)).kernel == tensors * WHOLE


def test_a_kernel_adds_up_the_gradient_of_an_operand_that_is_broadcast() -> None:
    x, y = torch.randn(10, COUNT // 10), torch.randn(COUNT // 10)
    moved = traffic_of(lambda m, x, y: torch.relu(x + y), x, y)
    assert moved.kernel == 3 * WHOLE + 2 * WHOLE // 10  # reads three, writes two


# --- the rule --------------------------------------------------------------------------------------------

EVALUATION, TRAINING = Rule(), Rule(passes=tuple(Pass))
GRADIENT = "in training a kernel and that of its gradient save too few bytes"
SMALL = "it moves so few bytes that the call of a kernel takes longer"
VERDICTS: dict[str, tuple[Rule, str, Call, int, str]] = {  # the last: why not
    "sums alone": (EVALUATION, "cpu", lambda m, x, y: x + y + 1, 1 << 11, ""),
    "sums alone in training": (TRAINING, "cpu", lambda m, x, y: x + y + 1, 1 << 11, GRADIENT),
    "a residual": (EVALUATION, "cuda", OTHERS["a sum"], 1 << 22, ""),
    "less": (EVALUATION, "cuda", OTHERS["a sum"], (1 << 22) - 1, SMALL),
    "a residual in training": (TRAINING, "cuda", OTHERS["a sum"], 1 << 24, ""),
    "less in training": (TRAINING, "cuda", OTHERS["a sum"], (1 << 24) - 1, GRADIENT),
    "a chain in training": (TRAINING, "cuda", lambda m, x, y: torch.relu(x) * 2, 1 << 22, ""),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_in_training_a_kernel_saves_the_calls_of_two(case: str, use_worth: None) -> None:
    rule, device, call, count, why = VERDICTS[case]
    like = torch.empty(count, device="meta")
    _, graph = graph_of(call, like, like)
    for node in graph.nodes:
        node.meta["val"] = FakeTensor(FakeTensorMode(), like, torch.device(device))
    [region] = partition(graph).regions
    found, told = rule.spec(region)
    assert (found is None, told) == (bool(why), why)


class Sums(nn.Module):
    """Sums, whose gradient is no work for eager."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.one, self.two, self.three = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the input's shape."""
        y: Tensor = self.one(x) + self.two(x) + self.three(x)
        return y


@pytest.mark.full
def test_a_region_that_is_no_gain_in_training_has_a_kernel_in_evaluation(tmp_path: Path) -> None:
    model, x = Sums(), torch.randn(6, 4)
    network = lifted_network(model, x, tmp_path)
    assert ["add_add" in of(network).code for of in (nn.Module.train, nn.Module.eval)] == [False, True]
    assert list(network.state_dict()) == list(model.state_dict())
    for each in (network, copy.deepcopy(network)):
        torch.testing.assert_close(each.eval()(x), model(x))
        y = each.train()(x)
        slopes = torch.autograd.grad(y.square().sum(), [*each.parameters()])
        torch.testing.assert_close(
            slopes, torch.autograd.grad(model(x).square().sum(), [*model.parameters()])
        )


@pytest.mark.full
def test_a_region_that_is_a_gain_in_both_has_one_graph(tmp_path: Path) -> None:
    network = lifted_network(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Softsign()), torch.randn(6, 4), tmp_path
    )
    assert len(network.modes.graphs) == 1
