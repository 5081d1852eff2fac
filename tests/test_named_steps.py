"""Steps of a chain that have a name, which later steps read."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import Modules
from parsed import spec
from torch import Tensor
from torch.nn import functional as F

from fusegen.algebra.compose import compose
from fusegen.codegen.printers.dump import program as written
from fusegen.codegen.printers.notation import notation
from fusegen.language.library import Library


def of_input(x: Tensor) -> Tensor:
    return x + torch.sigmoid(x) * 2


def of_step(x: Tensor) -> Tensor:
    gate = torch.sigmoid(x) * 2
    return torch.tanh(gate) * gate


def of_both(x: Tensor, y: Tensor) -> Tensor:
    first = F.gelu(x)
    second = first * y
    return torch.where(first > second, F.silu(second), first)


def of_detached(x: Tensor) -> Tensor:
    kept = torch.tanh(x).detach()
    return F.relu(torch.tanh(x)) * kept


BODIES: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "of_input": ("chain: [original: x, sigmoid, x * 2, x + original]", of_input),
    "of_step": ("chain: [sigmoid, gate: x * 2, tanh, x * gate]", of_step),
    "of_both": (
        "inputs: {x: {}, y: {}}\n"
        "chain: [first: gelu, second: x * y, silu, 'where(first > second, x, first)']",
        of_both,
    ),
    "of_detached": ("chain: [kept: tanh, relu, x * detach(kept)]", of_detached),
    "by_name_alone": ("chain: [a: sigmoid, b: a * 2, tanh(b) * b]", of_step),
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    folder = tmp_path_factory.mktemp("steps")
    return Modules(folder, {name: body for name, (body, _) in BODIES.items()})


@pytest.mark.few(1)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("compiling", [False, True], ids=["called", "compiled"])
def test_value_and_gradients_are_pytorchs(
    name: str, compiling: bool, modules: dict[str, ModuleType]
) -> None:
    expected, ours = BODIES[name][1], getattr(modules[name], name)
    if compiling:
        ours = torch.compile(ours, fullgraph=True, backend="aot_eager")
    count = expected.__code__.co_argcount
    generator = torch.Generator().manual_seed(7)
    tensors = [3 * torch.randn(257, dtype=torch.float64, generator=generator) for _ in range(count)]

    def results(function: Any) -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        y = function(*leaves)
        return [y, *torch.autograd.grad(y, leaves, torch.linspace(-2, 3, 257, dtype=torch.float64))]

    for found, exact in zip(results(ours), results(expected), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)


WRITTEN = {
    "chain: [original: x, sigmoid, x * 2, x + original]": (
        "original = x,  x = sigmoid(x),  x = x · 2,  y = x + original",
        "given x\nafter_sigmoid = sigmoid(x)\nstep3 = after_sigmoid · 2\nreturn step3 + x",
    ),
    "chain: [sigmoid, doubled: x * 2, tanh, x * doubled]": (
        "x = sigmoid(x),  x = doubled = x · 2,  x = tanh(x),  y = x · doubled",
        "given x\nafter_sigmoid = sigmoid(x)\ndoubled = after_sigmoid · 2\nafter_tanh = tanh(doubled)\n"
        "return after_tanh · doubled",
    ),
    "where: {u: x + 1}\nchain: [v: x * u, tanh, x - v]": (
        "u = x + 1,  x = v = x · u,  x = tanh(x),  y = x - v",
        "given x\nu = x + 1\nv = x · u\nafter_tanh = tanh(v)\nreturn after_tanh - v",
    ),
}


@pytest.mark.parametrize("body", WRITTEN)
def test_a_name_is_kept_in_the_formula_and_in_the_program(body: str) -> None:
    formula, program = WRITTEN[body]
    parsed = spec(body)
    assert notation(parsed) == formula
    assert written(compose(parsed, Library(Path("specs")))) == program


def test_a_name_is_a_named_line_of_the_kernels(workshop: Workshop) -> None:
    workshop.spec("gate", "dtypes: [float64]\nchain: [x + 1, wide: x * x, relu, x * wide]")
    text = workshop.run("show", "gate", "--stage", "module").output
    assert text.count("const double wide = step1 * step1;") >= 2  # on both devices
    assert "wide = step1 * step1" in text[text.index("def eager") :]
    parsed = workshop.run("show", "gate", "--stage", "parse").output
    assert "chain: x + 1, wide: x · x, relu(), x · wide" in parsed


@pytest.mark.full
def test_a_step_of_another_spec_keeps_its_names_apart(workshop: Workshop) -> None:
    """Two uses of a spec with a named step, in a chain that has a step of this name."""
    workshop.spec("inner", "chain: [kept: sigmoid, tanh, x + kept]")
    workshop.spec("gate", "chain: [kept: x * 2, inner, inner, x * kept]")
    composed = workshop.run("show", "gate", "--stage", "compose").output
    assert "kept = x · 2" in composed
    assert "kept2 = sigmoid(kept)" in composed
    assert "kept3 = sigmoid(after_inner)" in composed
