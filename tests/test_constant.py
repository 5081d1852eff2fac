"""Formulas through which PyTorch records no gradient: the module's results require one where eager's do."""

import itertools
import shutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from kernels import Modules
from parsed import parsed
from torch import Tensor

from fusegen.algebra.derive import detached
from fusegen.core.term import Program

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

BODIES = {  # float64 runs PyTorch's operations
    "step": "dtypes: [float32]\nformula: where(x > 0, 1, 0)\n",
    "select": "dtypes: [float32]\ninputs: {x: {}, y: {}}\nformula: where(x > 0, y * y, 0)\n",
    "sign_test": "dtypes: [float32]\nformula: sign(x)\n",
    "either": "dtypes: [float32]\ninputs: {x: {}, y: {split: -1}}\nformula: where(x > y, 2, 1)\n",
}
DETACHED = {"step": ("x",), "select": ("x",), "sign_test": (), "either": ("x", "y")}
Tensors = tuple[Tensor, ...]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    folder = tmp_path_factory.mktemp("constant")
    return Modules(folder, BODIES)


@pytest.fixture(params=BODIES)
def module(modules: dict[str, ModuleType], request: pytest.FixtureRequest) -> ModuleType:
    return modules[request.param]


def name_of(module: ModuleType) -> str:
    return str(module.KERNELS.name)


def given(module: ModuleType, dtype: torch.dtype, needed: tuple[bool, ...] = ()) -> Tensors:
    count = module.KERNELS.inputs
    first = torch.tensor([-2.0, -0.5, 0.0, 0.25, 1.5, torch.nan], dtype=dtype)
    each = [first, first.nan_to_num(3.0).roll(2)][:count]
    return tuple(t.requires_grad_(n) for t, n in zip(each, needed or (False,) * count, strict=True))


def history(function: Callable[..., Tensor], inputs: Tensors) -> list[Any]:
    """Return if the result requires a gradient, and the gradients but for second ones of zeros."""
    y = function(*inputs)
    if not y.requires_grad:
        return [False]
    leaves = [t for t in inputs if t.requires_grad]
    first = torch.autograd.grad(y, leaves, torch.full_like(y, 3), create_graph=True, allow_unused=True)
    recorded = [g.square().sum() for g in first if g is not None and g.requires_grad]
    second: tuple[Tensor | None, ...] = ()
    if recorded:
        total = torch.stack(recorded).sum()
        second = torch.autograd.grad(total, leaves, allow_unused=True)
    return [True, first, [g for g in second if g is not None and g.nan_to_num().any()]]


def test_the_tensors_are_told_from_eager_s_operations(module: ModuleType) -> None:
    assert module.KERNELS.detached == DETACHED[name_of(module)]


@pytest.mark.parametrize(
    ("formula", "names"),
    [
        ("x - x + y", ()),
        ("sign(x) * detach(y)", ("y",)),
        ("clamp(x, 0, where(y > 1, 2, 3))", ("y",)),
        ("where(x > 0, x, y)", ()),
        ("maximum(detach(x + y), 1)", ("x", "y")),
    ],
)
def test_a_gradient_ends_at_conditions_and_where_it_is_detached(
    formula: str, names: tuple[str, ...]
) -> None:
    assert detached(Program(("x", "y"), (), (), (parsed(formula),))) == names


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_results_require_a_gradient_where_those_of_eager_do(module: ModuleType, dtype: torch.dtype) -> None:
    function = getattr(module, name_of(module))
    for needed in itertools.product((True, False), repeat=module.KERNELS.inputs):
        found, expected = (history(f, given(module, dtype, needed)) for f in (function, module.eager))
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.few(1)
def test_the_operator_and_a_traced_call_record_as_much(module: ModuleType) -> None:
    kernels = module.KERNELS
    whole = (True,) * kernels.inputs
    inputs = given(module, torch.float32, whole)
    expected = history(module.eager, inputs)
    for call in (kernels.overload, torch.fx.symbolic_trace(module.ModelNew())):
        torch.testing.assert_close(history(call, inputs), expected, equal_nan=True)


def test_transforms_give_zeros(module: ModuleType) -> None:
    function, places = getattr(module, name_of(module)), tuple(range(module.KERNELS.inputs))
    inputs = tuple(t.nan_to_num(0.75) for t in given(module, torch.float32))
    ways: dict[str, Callable[[Any], Any]] = {
        "grad": lambda f: torch.func.grad(lambda *t: f(*t).sum(), places)(*inputs),
        "jacrev": lambda f: torch.func.jacrev(f, places)(*inputs),
        "hessian": lambda f: torch.func.hessian(lambda *t: f(*t).sum(), places)(*inputs),
        "each": lambda f: torch.func.vmap(torch.func.grad(f, places))(*inputs),
        "jvp": lambda f: torch.func.jvp(f, inputs, inputs),
    }
    for way in ways.values():
        torch.testing.assert_close(way(function), way(module.eager))


def test_in_place_and_into_a_tensor(modules: dict[str, ModuleType]) -> None:
    step, select = modules["step"], modules["select"]
    leaf = torch.tensor([-1.0, 2.0], requires_grad=True)
    step.step(leaf * 2, inplace=True).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0, 0]
    out = torch.empty(2)
    assert step.step(leaf, out=out).tolist() == [0, 1]
    assert not out.requires_grad
    message = r"^select: a call with out= has no gradient; call it under no_grad\(\)$"
    with pytest.raises(RuntimeError, match=message):
        select.select(torch.ones(2), leaf, out=out)


def test_halves_that_are_compared_require_no_gradient(modules: dict[str, ModuleType]) -> None:
    for dtype in (torch.float32, torch.float64):
        whole = torch.tensor([-1.0, 2.0, 1.0, 1.0], dtype=dtype, requires_grad=True)
        y = modules["either"].either(whole)
        assert (y.tolist(), y.requires_grad) == ([1, 2], False)


def test_a_network_records_no_gradient_for_a_step(modules: dict[str, ModuleType]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), modules["step"].ModelNew())
    compiled_model: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert [m(torch.ones(4, 3)).requires_grad for m in (model, compiled_model)] == [False, False]
