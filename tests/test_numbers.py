"""Numbers among `inputs`: scalars of forward."""

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch
from conftest import Workshop
from kernels import DTYPES, compiled
from torch import Tensor

pytestmark = pytest.mark.usefixtures("optimised")

PRODUCT = "inputs: {a: {shape: [4, 8], fill: rand}, s: 3.14}\nformula: a * s\n"
MIXED = """inputs: {a: {shape: [8]}, s: 2, b: {shape: [4, 8]}, t: -0.5}
params: {beta: 1.5}
formula: a * s + sigmoid(b * t) * beta
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("product"), "product", PRODUCT)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("mixed"), "mixed", MIXED)


VALUES: dict[str, Any] = {
    "a float": 2.5,
    "a whole number": 3,
    "a truth": True,
    "a number of numpy's": numpy.float64(0.1),
    "an infinity": math.inf,
    "no number": math.nan,
    "a tensor": torch.tensor(1.25),
    "a whole tensor": torch.tensor(7),
    "a parameter without a gradient": torch.nn.Parameter(torch.tensor(0.75), requires_grad=False),
}


@pytest.mark.together
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_number_is_what_pytorch_takes_as_one(value: str, dtype: torch.dtype, product: ModuleType) -> None:
    a = torch.tensor([0.0, -0.0, 1.5, -3.0, math.inf, -math.inf, math.nan, 1e-3], dtype=dtype)
    found = product.product(a, VALUES[value])
    torch.testing.assert_close(found, a * float(VALUES[value]), rtol=0, atol=0, equal_nan=True)
    assert found.dtype == dtype


def test_a_kernel_runs_and_not_pytorchs_operation(product: ModuleType) -> None:
    a = torch.rand(64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        product.ModelNew()(a, 2.0)
    names = {event.name for event in profile.events()}
    assert not names & {"aten::mul", "aten::mul_"}
    assert any(name.endswith("::product_forward") for name in names), names


REFUSED: dict[str, tuple[Any, str]] = {
    "a tensor with a gradient": (torch.tensor(2.0, requires_grad=True), "the kernels compute no gradient"),
    "a parameter": (torch.nn.Parameter(torch.tensor(2.0)), "the kernels compute no gradient of it"),
    "a tensor with dimensions": (torch.ones(1), "s must be a number, not Tensor"),
    "a complex tensor": (torch.tensor(1j), "s must be a number, not Tensor"),
    "a complex number": (1j, "s must be a number, not complex"),
    "a text": ("2", "s must be a number, not str"),
    "nothing": (None, "s must be a number, not NoneType"),
}


@pytest.mark.together
@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_no_number_is_refused(case: str, device: str, product: ModuleType) -> None:
    """Also on another device, where a tensor is not read: its gradient would be lost in silence."""
    value, says = REFUSED[case]
    if isinstance(value, Tensor):
        value = value.to(device).detach().requires_grad_(value.requires_grad)
    a = torch.rand(8, device=device)
    with pytest.raises(TypeError, match=f"product: .*{says}"):
        product.product(a, value)


def test_a_tensor_elsewhere_is_not_waited_for(product: ModuleType) -> None:
    """A tensor of the device meta has no value: to read it raises."""
    a, s = torch.rand(4, 8, device="meta"), torch.tensor(2.0, device="meta")
    assert product.product(a, s).shape == (4, 8)
    out = torch.empty(4, 8, device="meta")
    assert product.product(a, s, out=out) is out


def test_forward_has_the_order_of_the_spec_and_the_function_the_tensors_first(mixed: ModuleType) -> None:
    a, b = torch.randn(8, dtype=torch.float64), torch.randn(4, 8, dtype=torch.float64)
    model = mixed.ModelNew(beta=0.5)
    expected = a * 3 + torch.sigmoid(b * 0.25) * 0.5
    torch.testing.assert_close(model(a, 3, b, 0.25), expected, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(mixed.mixed(a, b, 3, 0.25, 0.5), expected, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(mixed.mixed(a, b, t=0.25, s=3, beta=0.5), expected, rtol=1e-14, atol=1e-15)
    assert [x if isinstance(x, float) else tuple(x.shape) for x in mixed.get_inputs()] == [
        (8,),
        2.0,
        (4, 8),
        -0.5,
    ]
    assert mixed.get_init_inputs() == []
    assert repr(model) == f"{type(model).__name__}(beta=0.5)"
    model(*mixed.get_inputs())


@pytest.mark.full
def test_gradients_reach_every_tensor(mixed: ModuleType) -> None:
    tensors = [torch.randn(8, dtype=torch.float64), torch.randn(4, 8, dtype=torch.float64)]
    leaves = [t.clone().requires_grad_() for t in tensors]
    others = [t.clone().requires_grad_() for t in tensors]
    grad = torch.randn(4, 8, dtype=torch.float64)
    found = torch.autograd.grad(mixed.mixed(*leaves, 3, 0.25), leaves, grad)
    y = others[0] * 3 + torch.sigmoid(others[1] * 0.25) * 1.5
    for ours, theirs in zip(found, torch.autograd.grad(y, others, grad), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.full
def test_a_compiled_graph_takes_every_number(product: ModuleType) -> None:
    model: Any = torch.compile(product.ModelNew(), fullgraph=True, backend="aot_eager")
    a = torch.rand(8)
    for s in (2.5, 3.5, 4.5, 7, torch.tensor(0.5)):
        torch.testing.assert_close(model(a, s), a * float(s))


def test_a_call_of_a_spec_gives_its_number(workshop: Workshop) -> None:
    workshop.spec("scaled", "inputs: {a: {}, s: 3}\nformula: a * s")
    workshop.spec("gate", "chain: [relu, scaled(s=2), 'scaled(x, 4)']")
    composed = workshop.run("show", "gate", "--stage", "compose").output
    assert "return after_scaled · 4" in composed
    workshop.spec("gate", "chain: [relu, scaled]")
    result = workshop.run("build", "gate")
    assert "scaled takes 1 tensor and 1 parameter, but 1 is given" in result.output
    assert "hint: it is scaled(a, s)" in result.output


@pytest.mark.full
def test_a_standalone_file_has_it_too(workshop: Workshop, tmp_path: Path) -> None:
    workshop.spec("gate", PRODUCT)
    assert workshop.run("build", "gate", "--standalone", str(tmp_path)).exit_code == 0
    module: dict[str, Any] = {}
    exec((tmp_path / "gate.py").read_text(encoding="utf-8"), module)
    a, s = module["get_inputs"]()
    torch.testing.assert_close(module["ModelNew"](*module["get_init_inputs"]())(a, s), a * 3.14)
