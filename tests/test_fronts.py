"""Kernels among the layers of a spec, which run where they stand: one of each form in one module."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from parsed import spec
from test_rows import made
from torch import Tensor, nn

from fusegen.codegen.printed import Binding
from fusegen.core.tensor_shapes import first_shape, result_shape
from fusegen.errors import SpecErrors
from fusegen.project import build, standalone

F = nn.functional
BODY = """\
inputs: {x: {shape: [2, 3, 9, 8]}}
init: {channels: 3, width: 6, parts: 2, size: {default: 2, symbol: pool_size}, factor: 1.5}
layers:
  - conv: Conv2d(channels, width, 1)
  - bn: BatchNorm2d(width)
  - shift: Parameter(ones(width, 1, 1))
  - normed:
      over: [0, 2, ...]
      where: {d: x - mean(x)}
      formula: d * rsqrt(mean(d ** 2) + bn.eps) * along(bn.weight, 1) + along(bn.bias, 1)
  - pooled: {formula: "max_pool2d(silu(x), pool_size)"}
  - scaled: {chain: [x * factor, x + shift]}
  - linear: Linear(4, 4)
  - centred: {over: ["1 / parts", ...], chain: [tanh, x - mean(x)]}
over: [1]
keepdim: true
formula: logsumexp(x)
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return made(tmp_path_factory.mktemp("fronts"), "several", BODY)


def exact(model: Any, x: Tensor, size: int = 2, factor: float = 1.5) -> Tensor:
    """The same by PyTorch's operations."""
    y = model.linear(F.max_pool2d(F.silu(model.bn(model.conv(x))), size) * factor + model.shift).tanh()
    groups = y.unflatten(1, (2, -1))
    centred = (groups - groups.mean((2, 3, 4), keepdim=True)).flatten(1, 2)
    result: Tensor = centred.logsumexp(1, keepdim=True)
    return result


def models(module: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a model, and one of float64 with its state."""
    torch.manual_seed(2)
    model = module.ModelNew().to(dtype)
    other = module.ModelNew().double()
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn_like(each))
    other.load_state_dict(model.state_dict())
    return model, other


def special(shape: tuple[int, ...], value: float) -> Tensor:
    x = torch.randn(shape)
    x[1, 2, 0, 0] = value
    return x


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.5, 1e4, torch.nan, torch.inf, -torch.inf])
def test_values_gradients_and_statistics_are_pytorchs(
    module: Any, dtype: torch.dtype, value: float
) -> None:
    """In training and in evaluation; a NaN, as infinities make it, is in the whole channel of a batch."""
    model, other = models(module, dtype)
    x = special((2, 3, 9, 8), value).to(dtype).requires_grad_()
    y = x.detach().double().requires_grad_()
    tolerance = 1e-12 if dtype is torch.float64 else 2e-5
    for training in (True, False):
        ours, theirs = model.train(training)(x), exact(other.train(training), y)
        assert ours.shape == theirs.shape == (2, 1, 4, 4)
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
        for key, held in other.state_dict().items():
            found = model.state_dict()[key].to(held.dtype)
            torch.testing.assert_close(found, held, rtol=tolerance, atol=tolerance, equal_nan=True)
        if abs(value) < torch.inf:
            incoming = torch.randn(ours.shape, dtype=dtype)
            mine = torch.autograd.grad(ours, [x, *model.parameters()], incoming)
            exacts = torch.autograd.grad(theirs, [y, *other.parameters()], incoming.double())
            for one, two in zip(mine, exacts, strict=True):
                torch.testing.assert_close(one.double(), two, rtol=tolerance, atol=100 * tolerance)


@pytest.mark.full
def test_numbers_of_the_constructor_reach_their_kernels(module: Any) -> None:
    torch.manual_seed(3)
    model = module.ModelNew(4, 4, 2, 3, 0.25).double()
    assert repr(model).startswith("Several(\n  size=3, factor=0.25, parts=2\n")
    x = torch.randn(2, 4, 13, 12, dtype=torch.float64)
    torch.testing.assert_close(model(x), exact(model, x, 3, 0.25))
    with pytest.raises(TypeError, match="several_pooled: kernel_size is a whole number"):
        module.ModelNew(4, 4, 2, 3.5)


@pytest.mark.full
def test_derivatives_of_any_order_and_the_compiler_go_through_all_kernels(module: Any) -> None:
    model, _ = models(module, torch.float64)
    model.eval()
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    [slope] = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    [other] = torch.autograd.grad(exact(model, x).sum(), x, create_graph=True)
    torch.testing.assert_close(*(torch.autograd.grad(each.square().sum(), x) for each in (slope, other)))
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)


def test_the_module_states_its_kernels_in_order(module: Any) -> None:
    text = Path(module.__file__).read_text(encoding="utf-8")
    heads = [line.split(":")[0] for line in text.splitlines()[4:9]]
    assert heads == [*(f"#   {name}" for name in ("normed", "pooled", "scaled", "centred", "then"))]
    assert "from ._runtime import Activation, Channels, Rows, Windows, Sources\n" in text
    forward = text.split("    def forward(self, x: Tensor)")[1].split("\n\n")[0].splitlines()[1:-3]
    assert [line.strip() for line in forward] == [
        "x = self.conv(x)",
        "x = NORMED_KERNELS.layer(self.bn, x, self.bn.eps)",
        "x = several_pooled(x, self.pool_size)",
        "x = several_scaled(x, self.shift, self.factor)",
        "x = CENTRED_KERNELS.linear(self.linear, x)",
        "x = several_centred(x, self.parts)",
    ]


@pytest.mark.full
def test_a_standalone_file_has_all_kernels(tmp_path: Path) -> None:
    """One of elements alone, too, with a linear layer between its kernels."""
    path = tmp_path / "two.yaml"
    path.write_text(
        "name: two\nsummary: A test.\nlayers:\n  - first: {formula: tanh(x)}\n  - linear: 'Linear(4, 3)'\n"
        "formula: sigmoid(x)\n",
        encoding="utf-8",
    )
    own: dict[str, Any] = {}
    module = build.rendered(build.compiled_either(path))
    exec(standalone.text(module.text, Binding.STABLE.value, apart=module.apart), own)
    model, x = own["ModelNew"](), torch.randn(5, 4)
    torch.testing.assert_close(model(x), model.linear(x.tanh()).sigmoid())


def test_shapes_go_from_kernel_to_kernel() -> None:
    found = spec(BODY)
    assert [each.name for each in found.kernels] == [
        *(f"gate_{name}" for name in ("normed", "pooled", "scaled", "centred")),
        "gate",
    ]
    shapes = [(2, 6, 9, 8), (2, 6, 9, 8), (2, 6, 4, 4), (2, 6, 4, 4), (2, 6, 4, 4)]
    assert [first_shape(each) for each in found.kernels] == shapes
    assert result_shape(found) == (2, 1, 4, 4)


def test_the_shape_of_what_another_spec_may_reduce_is_not_known() -> None:
    """A step that is a spec may have a value a row, so that no shape is refused behind it."""
    body = "inputs: {{x: {{shape: [4, 5]}}}}\nlayers: [a: {{over: [-1], chain: [{}]}}]\nformula: tanh(x)"
    shapes = [
        first_shape(spec(body.format(step))) for step in ("logsumexp", "gelu", "other", "other, x + 1")
    ]
    assert shapes == [(4,), (4, 5), None, None]


REFUSED = {  # what is written under `layers` and behind them, and what is said of it
    "  - a: {over: [1], mean: x, formula: x}\nformula: tanh(x)": "unknown key 'mean'",
    "  - a: {over: [1]}\nformula: x": "a spec has exactly one of formula and chain; this one has neither",
    "  - a: {formula: x + y}\nformula: x": (
        "'y' is neither an input, a parameter, a named step nor a constant"
    ),
    "  - a: {over: [1], formula: {b: sum(x), c: mean(x)}}\nformula: x": (
        "formula should be one expression in a kernel in front of another"
    ),
    "  - a: {formula: tanh(x)}\n  - a: {formula: tanh(x)}\nformula: x": "'a' is already a kernel in front",
    "  - forward: {formula: tanh(x)}\nformula: x": "'forward' is already an attribute of torch.nn.Module",
    "  - eager: {formula: tanh(x)}\nformula: x": "'eager' cannot be a name: the generated module uses it",
    "  - a: {formula: tanh(x)}\nnumerics: eager\nformula: relu(x)": (
        "numerics: eager is of one kernel, and 'a' is another in front of it"
    ),
    "  - a: {formula: tanh(x)}\nreference: torch.relu\nformula: relu(x)": (
        "a reference is of one kernel, and 'a' is another in front of it"
    ),
    "".join(f"  - a{k}: {{formula: tanh(x)}}\n" for k in range(2000)) + "formula: x": (
        "the spec has more than 15 kernels among the layers"
    ),
    "  - b: Parameter(ones(4))\n  - a: {formula: tanh(x)}\nformula: x": (
        "no formula reads the Parameter 'b'"
    ),
    "  - a: {over: [1], formula: sum(x)}\nover: [3]\nformula: sum(x)": (
        "3 of the shape [1024] are no row: neighbouring dimensions of the first input, in their order"
    ),
    "  - a: {chain: [dropout]}\ninputs: {x: {shape: [4]}, kept: {shape: [4]}}\nformula: x * kept": (
        "'kept' is already what a dropout draws"
    ),
    "  - conv: Conv2d(3, 4, 3)\n  - a: {formula: tanh(x)}\n"
    "inputs: {x: {shape: [2, 3, 5, 5]}, conv_bias: {shape: [3]}}\nformula: x * conv_bias": (
        "'conv_bias' is already the bias of a layer"
    ),
    "  - gate_d: Conv2d(3, 4, 3)\n  - a: {formula: tanh(x)}\n  - d_bias: {formula: tanh(x)}\n"
    "inputs: {x: {shape: [2, 3, 5, 5]}}\nformula: exp(x)": (
        "'gate_d_bias' is already the function of a kernel"
    ),
    "  - a: {formula: tanh(x)}\ninputs: {x: {shape: [4]}, gate_a: {shape: [4]}}\nformula: x * gate_a": (
        "'gate_a' is already the function of a kernel"
    ),
    "  - b_eager: {formula: tanh(x)}\n  - gate_b: {formula: tanh(x)}\nformula: exp(x)": (
        "'gate_b_eager' is already the function of a kernel"
    ),
    "  - a: {over: [1], chain: [argmax]}\nformula: tanh(x)": (
        "'a' finds places, which are int64, and the kernel behind it reads numbers"
    ),
    "  - a: {formula: '1.5'}\nformula: tanh(x)": "this step does not use the running value 'x'",
    "  - a: {formula: x - 1}\nassume: {x: '[0, inf)'}\nformula: relu(x)": (
        "an interval of the first input is of one kernel, and 'a' is another in front of it"
    ),
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused_is_said_in_a_sentence(body: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        spec(f"layers:\n{body}")
    [error] = caught.value.errors
    assert str(error).splitlines()[0].split(": ", 1)[1] == REFUSED[body]


def test_what_takes_one_kernel_says_so(workshop: Workshop) -> None:
    workshop.spec("gate", "layers: [a: {over: [1], formula: softmax(x)}]\nformula: tanh(x)\n")
    workshop.spec("other", "formula: gate(x) + 1\n")
    for command in ("bench", "hub gates"):
        found = workshop.run(*command.split(), "gate")
        assert (found.exit_code, "'gate' has kernels in front of its own" in found.output) == (2, True)
    assert "'gate' has layers of its own" in workshop.run("build", "other").output
    explained = workshop.run("explain", "gate").output
    assert explained.index("gate_a: A test.") < explained.index("Loop 1") < explained.index("gate: A test.")
