"""``detach(u)`` in a formula: u itself, whose gradient is 0; PyTorch's autograd is the reference."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import Modules
from torch import Tensor

Function = Callable[..., Tensor]
BODIES: dict[str, tuple[str, Function]] = {
    "scaled_residual": (
        "params: {scale: 2.0}\nformula: x * scale + detach(x)",
        lambda x: x * 2.0 + x.detach(),
    ),
    "gate": ("formula: detach(sigmoid(x)) * x", lambda x: torch.sigmoid(x).detach() * x),
    "straight_through": ("formula: x + detach(sign(x) - x)", lambda x: x + (torch.sign(x) - x).detach()),
    "of_two": (
        "inputs: {x: {}, y: {}}\nformula: x * detach(y) + tanh(y)",
        lambda x, y: x * y.detach() + torch.tanh(y),
    ),
    "in_a_chain": (
        "where: {kept: detach(x)}\nchain: [tanh, x * kept, gelu]",
        lambda x: torch.nn.functional.gelu(torch.tanh(x) * x.detach()),
    ),
    "nested": ("formula: x * detach(x + detach(x * x))", lambda x: x * (x + (x * x).detach()).detach()),
    "in_a_bound": (
        "formula: clamp(x, -1, detach(x) / 2)",
        lambda x: torch.clamp(x, torch.tensor(-1.0, dtype=x.dtype), x.detach() / 2),
    ),
    "nothing_else": ("formula: detach(x) * 2", lambda x: x.detach() * 2),
    "as_eager": (
        "numerics: eager\nformula: x * x + detach(x) * tanh(x)",
        lambda x: x * x + x.detach() * torch.tanh(x),
    ),
}
VALUES = (-30.0, -2.5, -1.0, -0.3, -0.0, 0.0, 1e-3, 0.7, 1.0, 3.0, 20.0)
TWICE = ("scaled_residual", "gate", "of_two", "nested")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    folder = tmp_path_factory.mktemp("detach")
    return Modules(folder, {name: body for name, (body, _) in BODIES.items()})


def leaves(function: Function) -> list[Tensor]:
    """A leaf for each argument, every pair of values among them."""
    columns = torch.meshgrid(*[torch.tensor(VALUES, dtype=torch.float64)] * 2, indexing="ij")
    count = function.__code__.co_argcount
    return [column.reshape(-1).clone().requires_grad_() for column in columns[:count]]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [name if name in TWICE else pytest.param(name, marks=pytest.mark.full) for name in BODIES]
)
def test_value_and_gradients_are_those_of_autograd(name: str, modules: dict[str, ModuleType]) -> None:
    expected, ours = BODIES[name][1], getattr(modules[name], name)
    given, own = leaves(expected), leaves(expected)
    y, z = expected(*given), ours(*own)
    torch.testing.assert_close(z, y, rtol=1e-13, atol=1e-16)
    assert z.requires_grad == y.requires_grad
    if not y.requires_grad:
        return
    g = torch.linspace(-2, 3, y.numel(), dtype=torch.float64)
    wanted = torch.autograd.grad(y, given, g, allow_unused=True, materialize_grads=True)
    for found, exact in zip(torch.autograd.grad(z, own, g), wanted, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_are_those_of_autograd(name: str, modules: dict[str, ModuleType]) -> None:
    expected, ours = BODIES[name][1], getattr(modules[name], name)

    def twice(function: Callable[..., Any], own: list[Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad((function(*own) * own[0]).sum(), own, create_graph=True)
        return torch.autograd.grad(torch.stack([(part * part).sum() for part in first]).sum(), own)

    for found, exact in zip(twice(ours, leaves(expected)), twice(expected, leaves(expected)), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-13)


@pytest.mark.full
@pytest.mark.parametrize("name", ["gate", pytest.param("straight_through", marks=pytest.mark.full)])
def test_forward_mode_and_a_compiled_graph_stop_it_too(name: str, modules: dict[str, ModuleType]) -> None:
    expected, ours = BODIES[name][1], getattr(modules[name], name)
    x = torch.randn(64, dtype=torch.float64)
    t = torch.randn(64, dtype=torch.float64)
    found, exact = (torch.func.jvp(function, (x,), (t,))[1] for function in (ours, expected))
    torch.testing.assert_close(found, exact)
    own = x.clone().requires_grad_()
    traced: Any = torch.compile(ours, fullgraph=True, backend="aot_eager")
    torch.autograd.backward(traced(own).sum())
    given = x.clone().requires_grad_()
    torch.autograd.backward(expected(given).sum())
    torch.testing.assert_close(own.grad, given.grad)


@pytest.mark.full
def test_it_is_written_for_readers_and_gone_from_the_kernels(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x * sigmoid(detach(x))")
    text = workshop.run("show", "gate", "--stage", "module").output
    assert "y = x · sigmoid(detach(x))" in text
    assert "// Stopped gradient: detach(x) is x." in text
    assert "sigmoid_x = x.detach()\n    return x * torch.sigmoid(sigmoid_x)" in text
    for stage in ("ir", "derive", "simplify"):
        shown = workshop.run("show", "gate", "--stage", stage).output
        assert "detach" not in shown.replace("Stopped gradient: detach(x) is x.", "")
    workshop.spec("silu_of_its_own", "formula: x * sigmoid(x)")
    assert body(text) == body(workshop.run("show", "silu_of_its_own", "--stage", "module").output)


def body(module: str) -> list[str]:
    """The lines of a module's forward kernel."""
    found = re.search(r"^HOST_DEVICE [^\n]*_forward\(.*?^}", module, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found.group().splitlines()[1:]


def test_the_fused_kernel_of_a_reference_does_not_take_its_place(workshop: Workshop) -> None:
    """Its values are the same, its gradient is not."""
    workshop.spec("gate", "formula: relu(detach(x))\nreference: torch.nn.functional.relu\nnumerics: eager")
    text = workshop.run("show", "gate", "--stage", "module").output
    assert "relu_x = x.detach()\n    return nn.functional.relu(relu_x)" in text


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("detach(x, 1)", "detach takes 1 argument, but 2 are given"),
        ("detach(x > 0)", "a comparison stands where a number is expected"),
        ("x + detach", "the function detach without its arguments stands where a number is expected"),
    ],
)
def test_a_call_that_is_none_is_refused(
    formula: str, says: str, tmp_path: Path, workshop: Workshop
) -> None:
    workshop.spec("gate", f"formula: {formula}")
    result = workshop.run("build", "gate")
    assert (result.exit_code, says in result.output) == (2, True), result.output
