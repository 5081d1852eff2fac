"""torch.onnx.export: the graph of a generated module computes what the module computes."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kernels import NAMES, compiled, generated
from torch import Tensor, nn

ONNX = pytest.importorskip("onnx", reason="ONNX export needs fusegen[onnx]")
pytest.importorskip("onnxscript", reason="ONNX export needs fusegen[onnx]")

from onnx.reference import ReferenceEvaluator  # noqa: E402

from fusegen.core.aten import ATEN  # noqa: E402
from fusegen.core.ops.language import LANGUAGE  # noqa: E402
from fusegen.core.term import Apply, Name, walk  # noqa: E402
from fusegen.models.onnx import ON_NUMBERS, PRIMITIVES, translation_table  # noqa: E402

# the exporter's own
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
GATES = ("swiglu", "geglu", "reglu", "glu")
EXPORTED = ("celu", "geglu", "gelu", "conv_relu_hardswish")  # of one tensor, of two, of layers
CONSTANTS = {"pi", "e"}  # numbers
ARGUMENTS = {"conv_relu_hardswish": (3, 4, 3), "snake_per_channel": (3,)}
FUNCTIONS = {  # of the language, where PyTorch has no fused function
    "arithmetic": "square(x) + cube(x) - 2 * x / 3",
    "reciprocals": "reciprocal(abs(x) + 1) + rsqrt(abs(x) + 1) + sqrt(abs(x))",
    "exponentials": "exp(-abs(x)) + exp2(-abs(x)) + expm1(x / 1000)",
    "logarithms": "log(abs(x) + 1) + log2(abs(x) + 1) + log1p(abs(x) / 1000)",
    "waves": "sin(x) + cos(x)",
    "normal": "erf(x) + erfc(x) + ndtr(x)",
    "powers": "pow(abs(x) + 1, 1.5) + pow(2, x / 4)",
    "selections": "clamp(x, -1, 2) + clamp_min(x, 0.5) + clamp_max(x, 0.5) + minimum(x, 1) + maximum(x, 1)",
    "comparisons": "where(x < 0, -1, where(x == 0, 0, where(x >= 2, x, sign(x))))",
    "logistic": "sigmoid(x) + softplus(x) + relu6(x)",
}
INPUTS = {
    "gated": "inputs: {a: {shape: [3, 8]}, m: {shape: [8], dtype: bool}}\nformula: where(m, a, tanh(a))"
}


def exported(network: nn.Module, given: tuple[Tensor, ...], *modules: ModuleType) -> Any:
    """The ONNX model of a network."""
    table = translation_table(*modules)
    program: Any = torch.onnx.export(
        network.eval(), given, dynamo=True, custom_translation_table=table, verbose=False
    )
    return program.model_proto


def assert_computes(model: Any, function: Callable[..., Tensor], given: tuple[Tensor, ...]) -> None:
    """The model, by ONNX's own reference, computes what the function does."""
    feed = {each.name: t.numpy() for each, t in zip(model.graph.input, given, strict=True)}
    [result] = ReferenceEvaluator(model).run(None, feed)
    torch.testing.assert_close(torch.from_numpy(result), function(*given).detach(), atol=2e-6, rtol=2e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EXPORTED else pytest.mark.full) for name in NAMES]
)
def test_a_module_is_exported(name: str, extensions: Path) -> None:
    module = generated(name)
    network = module.ModelNew(*ARGUMENTS.get(name, ()))
    torch.manual_seed(0)
    given: tuple[Tensor, ...] = (torch.randn(2, 3, 8, 8) * 3, torch.randn(3, 8, 8))
    given = given if name in GATES else given[:1]
    assert_computes(exported(network, given, module), network, given)


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_formula_is_exported(name: str, tmp_path: Path) -> None:
    module = compiled(tmp_path, f"own_{name}", f"formula: {FUNCTIONS[name]}\n")
    given = (torch.cat([torch.randn(30) * 3, torch.tensor([0.0, 1, -1, 2])]),)
    assert_computes(exported(module.ModelNew(), given, module), module.eager, given)


@pytest.mark.full
@pytest.mark.parametrize("name", INPUTS)
def test_a_mask_is_exported(name: str, tmp_path: Path) -> None:
    module = compiled(tmp_path, name, INPUTS[name] + "\n")
    given = (torch.randn(3, 8), torch.arange(8) % 3 == 0)
    assert_computes(exported(module.ModelNew(), given, module), module.eager, given)


@pytest.mark.full
def test_the_policy_decompose_needs_no_table(extensions: Path) -> None:
    kernels, network = generated("gelu").KERNELS, generated("gelu").ModelNew()
    kernels.compile_policy = "decompose"
    given = (torch.randn(4, 5),)
    assert_computes(exported(network, given), network, given)
    kernels.compile_policy = None


def test_every_operation_of_the_language_has_a_row() -> None:
    assert {op.name for op in LANGUAGE} - CONSTANTS <= PRIMITIVES.keys()
    formulas = [row.forward(*map(Name, (*row.inputs, *row.params))) for row in ATEN.values()]
    assert {
        part.op for each in formulas for part in walk(each) if isinstance(part, Apply)
    } <= PRIMITIVES.keys()
    assert ON_NUMBERS.keys() <= PRIMITIVES.keys()
