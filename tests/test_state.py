"""Parameters, buffers and numbers of the constructor: as a module declares them, and as it computes."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import compiled
from parsed import spec as parsed
from torch import Tensor, nn
from torch.nn import functional as F

from fusegen.codegen.printed import Binding
from fusegen.core import tensor_shapes
from fusegen.core.constructor import Layer, StateTensor
from fusegen.errors import SpecErrors
from fusegen.language.library import Library
from fusegen.project import build, standalone

TWO = "dtypes: [float32, float64]\n"


def text(body: str, binding: Binding = Binding.STABLE) -> str:
    """The module of a spec named `gate`."""
    from fusegen.compiler.pipeline import compiled

    return build.module(compiled(parsed(body), Library(Path("specs"))), binding)


# --- what a spec says -----------------------------------------------------------------------------------

INIT = "init: {n: 8, wide: [8, 1, 1], low: -0.5, values: [0.5, 1.5]}\ninputs: {x: {shape: [4, 8, 8, 8]}}\n"
INITIALISERS: dict[str, tuple[str, tuple[int, ...]]] = {
    "randn(wide)": ("torch.randn(wide)", (8, 1, 1)),
    "rand(n, 1, 1)": ("torch.rand(n, 1, 1)", (8, 1, 1)),
    "zeros((n, 1, 1))": ("torch.zeros((n, 1, 1))", (8, 1, 1)),
    "ones(n)": ("torch.ones(n)", (8,)),
    "ones(())": ("torch.ones(())", ()),
    "full(wide, 0.25)": ("torch.full(wide, 0.25)", (8, 1, 1)),
    "full((n, 1, 1), low)": ("torch.full((n, 1, 1), low)", (8, 1, 1)),
    "full(n, -1.5)": ("torch.full((n,), -1.5)", (8,)),
    "full(1, 2.5)": ("torch.full((1,), 2.5)", (1,)),
    "tensor(low)": ("torch.tensor(low)", ()),
    "tensor(0.5)": ("torch.tensor(0.5)", ()),
    "2 * randn(n)": ("2 * torch.randn(n)", (8,)),
    "low * randn(wide)": ("low * torch.randn(wide)", (8, 1, 1)),
    "randn(wide) * -0.02": ("torch.randn(wide) * -0.02", (8, 1, 1)),
}


@pytest.mark.together
@pytest.mark.parametrize("written", INITIALISERS)
@pytest.mark.parametrize("kind", ["Parameter", "Buffer"])
def test_an_initialiser_is_what_pytorch_calls(written: str, kind: str) -> None:
    [item] = parsed(f"{INIT}layers: [t: '{kind}({written})']\nformula: x * t").layers
    assert isinstance(item, StateTensor)
    assert (item.kind.value, item.text, item.shape) == (kind, *INITIALISERS[written])
    values = {"torch": torch, "n": 8, "wide": (8, 1, 1), "low": -0.5}
    assert eval(item.text, values).shape == item.shape  # of a row above


def test_a_tensor_of_several_numbers_has_their_shape() -> None:
    body = "init: {values: [0.5, 1.5]}\ninputs: {x: {shape: [4, 2]}}\n"
    [item] = parsed(f"{body}layers: [t: 'Parameter(tensor(values))']\nformula: x * t").layers
    assert isinstance(item, StateTensor)
    assert (item.text, item.shape) == ("torch.tensor(values)", (2,))


def test_scalars_are_numbers_of_init_that_formulas_read_then_params() -> None:
    spec = parsed(
        "params: {alpha: 1.5}\ninit: {low: -2, unread: 3, shape: [8], high: 0.5}\n"
        "chain: ['clamp(x, low, 4)', x * alpha, 'minimum(x, high)']"
    )
    assert [(scalar.name, scalar.default) for scalar in spec.scalars] == [
        ("low", -2.0), ("high", 0.5), ("alpha", 1.5),
    ]  # fmt: skip


def test_formulas_read_an_argument_by_its_symbol() -> None:
    body = (
        "init: {clamp: {default: 2, symbol: low}, N: 8}\nlayers: [w: Parameter(ones(N))]\n"
        "inputs: {x: {shape: [4, 8]}}\nformula: clamp(x * w, low, 4)"
    )
    assert [(scalar.name, scalar.default) for scalar in parsed(body).scalars] == [("low", 2.0)]
    module = text(body)
    assert "    def __init__(self, clamp=2, N=8) -> None:\n" in module
    assert "        self.low = clamp\n" in module
    assert 'return f"clamp={self.low}"\n' in module


SYMBOLS = {  # what is wrong with a symbol, and the sentence
    "clamp: {default: 2, symbol: exp}": "'exp' is already a function",
    "clamp: {default: 2, symbol: 'a b'}": "'a b' cannot be a name: it is not a lower-case word",
    "clamp: {default: 2, symbol: half}": "'half' is already an attribute of torch.nn.Module",
    "clamp: {default: 2, symbol: x}": "'x' is already an input",
    "clamp: {default: 2, symbol: n}, n: 3": "'n' is already an argument of the constructor",
    "clamp: {symbol: low}": "clamp should be a map with its default",
    "clamp: {default: 2, name: low}": "'name' is not a valid part of an argument",
    "clamp: {default: 2, symbol: low}": "the symbol 'low' is declared but never used",
    "self: 2": "'self' cannot be a name: the generated module uses it",
    "__n: 2": "'__n' cannot be a name: it is no plain name of at most 64 characters",
    "lambda: 2": "'lambda' cannot be a name: it is a keyword of Python",
}


@pytest.mark.parametrize("init", SYMBOLS)
def test_a_symbol_is_a_name_of_its_own(init: str) -> None:
    read = " + half" if "half" in init else ""
    with pytest.raises(SpecErrors) as told:
        parsed(f"init: {{{init}}}\nformula: x * 2{read}")
    assert SYMBOLS[init] in str(told.value)


def test_an_attribute_hides_the_argument_of_its_name() -> None:
    spec = parsed("init: {scale: 2, n: 8}\nlayers: [scale: Parameter(ones(n))]\n"
                  "inputs: {x: {shape: [4, 8]}}\nformula: x * scale")  # fmt: skip
    assert [tensor.name for tensor in spec.tensors] == ["x", "scale"]
    assert spec.scalars == ()


def test_a_named_step_hides_the_argument_of_its_name() -> None:
    spec = parsed("init: {u: 2}\nwhere: {u: x + 1}\nformula: x * u")
    assert spec.scalars == ()


CLASS = """\
init: {in_channels: 8, out_channels: 16, kernel_size: 3, constant_value: 0.5, bias_shape: [16, 1, 1], s: 2}
inputs: {x: {shape: [4, 8, 12, 12], fill: rand}}
layers:
  - conv: Conv2d(in_channels, out_channels, kernel_size, padding='same', bias=False)
  - bias: Parameter(randn(bias_shape) * 0.02)
  - steps: {unread: 'Buffer(zeros(()))'}
  - mean: Buffer(full(bias_shape, 0.25))
chain: ["minimum(x, constant_value)", x + bias - mean, x * s]
"""


def test_the_class_is_that_of_the_golden_text(golden: Callable[[str, str], None]) -> None:
    module = text(CLASS)
    begin = module.index("@KERNELS.function")
    golden("parameters.txt", module[begin:])


@pytest.mark.few(1)
@pytest.mark.parametrize("binding", Binding)
def test_a_model_with_parameters_is_written_for_every_binding(binding: Binding) -> None:
    module = text(CLASS, binding)
    call = "self.gate.gate_cpu(x, self.bias, self.mean, self.constant_value, self.s, out=out)"
    assert call in module
    alone = {
        Binding.STABLE: "gate(x, self.bias, self.mean, self.constant_value, self.s)",
        Binding.PYBIND: call,
    }
    assert alone[binding] in standalone.text(module, binding.value)


@pytest.mark.full
def test_a_standalone_file_makes_the_model_without_a_name() -> None:
    scope: dict[str, Any] = {"bias_shape": "of the harness"}
    exec(standalone.text(text(CLASS), "stable"), scope)
    model = scope["ModelNew"](*scope["get_init_inputs"]())
    assert [*model.state_dict()] == ["bias", "steps", "mean", "conv.weight"]
    assert torch.equal(model.mean, torch.full((16, 1, 1), 0.25))
    assert scope["bias_shape"] == "of the harness"


def test_a_function_with_parameters_is_called_by_other_specs_with_their_tensors(workshop: Workshop) -> None:
    weight = "layers: [weight: 'Parameter(full((8, 1), 0.25))']\ninputs: {x: {shape: [4, 8, 3]}}\n"
    workshop.spec("leak", f"{weight}formula: where(x > 0, x, weight * x)")
    workshop.spec("gate", "inputs: {a: {}, b: {}}\nformula: leak(a, b) + 1")
    assert workshop.run("build", "gate").exit_code == 0
    assert "def eager(a, b):" in Path("generated/gate.py").read_text()
    workshop.spec("gate", "chain: [leak]")
    assert "'leak' takes 2 tensors" in workshop.run("build", "gate").output


def test_an_explanation_shows_what_the_model_holds(workshop: Workshop) -> None:
    workshop.spec("gate", CLASS)
    lines = workshop.run("explain", "gate").output.split("\n\n")[1].splitlines()
    assert [re.split("  +", line.strip()) for line in lines] == [
        ["What the model holds"],
        ["attribute", "made by", "use"],
        [
            "conv",
            "Conv2d(in_channels, out_channels, kernel_size, padding='same', bias=False)",
            "runs on x before the kernel",
        ],
        ["bias", "Parameter(randn(bias_shape) * 0.02)", "a tensor of the kernel, of the shape (16, 1, 1)"],
        ["steps", "Buffer(zeros(()))", "is only held"],
        ["mean", "Buffer(full(bias_shape, 0.25))", "a tensor of the kernel, of the shape (16, 1, 1)"],
        ["constant_value", "0.5", "a scalar of the kernel"],
        ["s", "2", "a scalar of the kernel"],
    ]


# --- what is computed -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A spec, and the model that it says, written by hand."""

    body: str  # all of the spec but its name and its summary
    init: Callable[..., None]  # makes the attributes; its arguments are those of `get_init_inputs`
    forward: Callable[..., Tensor]  # the value, from the model and the inputs
    shown: str = ""  # what its repr shows of its arguments


def conv_min(m: Any, i: int, o: int, k: int, constant: float, shape: Sequence[int], scale: float) -> None:
    m.conv = nn.Conv2d(i, o, k)
    m.constant_value = constant
    m.bias = nn.Parameter(torch.randn(shape))
    m.scaling_factor = scale


def conv_transpose(m: Any, i: int, o: int, shape: Sequence[int], stride: int, padding: int) -> None:
    m.unread = nn.Parameter(torch.randn(shape))
    m.conv_transpose = nn.ConvTranspose2d(
        i, o, (4, 3), stride, padding=padding, output_padding=1, groups=2, dilation=2, bias=False
    )
    m.bias = nn.Parameter(0.5 * torch.randn(shape))


def prelu(m: Any, n: int, start: float) -> None:
    m.weight = nn.Parameter(torch.full((n, 1, 1), start))


def swish(m: Any, beta: float) -> None:
    m.beta = nn.Parameter(torch.tensor(beta))
    m.register_buffer("scale", torch.rand(1))


def snake(m: Any, channels: int) -> None:
    m.alpha = nn.Parameter(1.5 * torch.ones(channels, 1))


MODELS = {
    "conv_min_add_scale": Model(
        f"{TWO}init: {{in_channels: 4, out_channels: 6, kernel_size: 3, constant_value: 0.5, "
        "bias_shape: [6, 1, 1], scaling_factor: 2.0}\ninputs: {x: {shape: [3, 4, 9, 7], fill: rand}}\n"
        "layers: [conv: 'Conv2d(in_channels, out_channels, kernel_size)', "
        "bias: Parameter(randn(bias_shape))]\n"
        'chain: ["minimum(x, constant_value)", x + bias, x * scaling_factor]\n',
        conv_min,
        lambda m, x: (torch.min(m.conv(x), torch.tensor(m.constant_value)) + m.bias) * m.scaling_factor,
        "constant_value=0.5, scaling_factor=2.0",
    ),
    "conv_transpose_subtract_add_tanh": Model(
        f"{TWO}init: {{i: 4, o: 6, bias_shape: [6, 1, 1], stride: 3, padding: 1}}\n"
        "inputs: {x: {shape: [3, 4, 5, 6]}, add_input: {shape: [3, 6, 18, 19]}}\n"
        "layers:\n"
        "  - unread: {unread: Parameter(randn(bias_shape))}\n"
        "  - conv_transpose: ConvTranspose2d(i, o, (4, 3), stride, padding=padding, output_padding=1, "
        "groups=2, dilation=2, bias=False)\n"
        "  - bias: Parameter(0.5 * randn(bias_shape))\n"
        "chain: [x - bias, x + add_input, tanh]\n",
        conv_transpose,
        lambda m, x, other: torch.tanh(m.conv_transpose(x) - m.bias + other),
    ),
    "prelu": Model(
        f"{TWO}init: {{num_parameters: 5, start: 0.25}}\ninputs: {{x: {{shape: [3, 5, 4, 6]}}}}\n"
        "layers: [weight: 'Parameter(full((num_parameters, 1, 1), start))']\n"
        "formula: where(x > 0, x, weight * x)\n",
        prelu,
        lambda m, x: F.prelu(x, m.weight.flatten()),
    ),
    "swish_beta": Model(
        f"{TWO}init: {{beta: 1.25}}\ninputs: {{x: {{shape: [3, 50]}}}}\n"
        "layers: [beta: Parameter(tensor(beta)), scale: Buffer(rand(1))]\n"
        "formula: x * sigmoid(beta * x) * scale\n",
        swish,
        lambda m, x: x * torch.sigmoid(m.beta * x) * m.scale,
    ),
    "snake_alpha": Model(
        f"{TWO}init: {{channels: 5}}\ninputs: {{x: {{shape: [3, 5, 20]}}}}\n"
        "layers: [alpha: 'Parameter(1.5 * ones(channels, 1))']\n"
        "formula: x + square(sin(alpha * x)) / alpha\n",
        snake,
        lambda m, x: x + torch.sin(m.alpha * x) ** 2 / m.alpha,
    ),
}


@pytest.fixture(
    scope="module",
    params=[
        name if name == "conv_min_add_scale" else pytest.param(name, marks=pytest.mark.full)
        for name in MODELS
    ],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    return Case(name, MODELS[name], compiled(folder, name, MODELS[name].body))


@dataclass(frozen=True)
class Case:
    """A model with its module."""

    name: str
    model: Model
    module: ModuleType

    def ours(self, seed: int = 0) -> nn.Module:
        """The generated model, made with a seed."""
        torch.manual_seed(seed)
        made: nn.Module = self.module.ModelNew(*self.module.get_init_inputs())
        return made

    def eager(self, seed: int = 0) -> nn.Module:
        """The model that is written by hand, made with a seed."""
        of = self.model

        class Eager(nn.Module):
            def __init__(self, *arguments: Any) -> None:
                super().__init__()
                of.init(self, *arguments)

            def forward(self, *inputs: Tensor) -> Tensor:
                return of.forward(self, *inputs)

        torch.manual_seed(seed)
        return Eager(*self.module.get_init_inputs())

    def inputs(self, scale: float) -> list[Tensor]:
        """Signed inputs of the declared shapes."""
        torch.manual_seed(7)
        return [scale * torch.randn_like(x) for x in self.module.get_inputs()]


def results(model: nn.Module, inputs: Sequence[Tensor], seed: int = 3) -> list[Tensor]:
    """The value of a model, and the gradients of its inputs and its parameters, in double."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    value = model(*leaves)
    torch.manual_seed(seed)
    grad = torch.randn(value.shape, dtype=torch.float64).to(value.dtype)
    wanted = [*leaves, *model.parameters()]
    found = torch.autograd.grad(value, wanted, grad, allow_unused=True)
    return [value.detach().double(), *(torch.zeros(()) if g is None else g.double() for g in found)]


def randomised(model: nn.Module) -> nn.Module:
    """A model whose parameters and buffers are other than they were made."""
    torch.manual_seed(11)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.copy_(tensor + 0.5 * torch.rand_like(tensor))
    return model


@pytest.mark.few(1)
def test_the_state_is_that_of_the_model_after_the_same_seed(case: Case) -> None:
    ours, eager = case.ours().state_dict(), case.eager().state_dict()
    assert list(ours) == list(eager)
    assert all(torch.equal(ours[name], eager[name]) for name in eager)
    assert [name for name, _ in case.ours().named_parameters()] == [
        name for name, _ in case.eager().named_parameters()
    ]
    made, draw = case.ours(5), torch.rand(1)
    assert torch.equal(draw, (case.eager(5), torch.rand(1))[1])  # as many random numbers were drawn
    made.load_state_dict(case.eager(6).state_dict())


@pytest.mark.few(1)
def test_results_and_gradients_are_those_of_the_model(case: Case) -> None:
    for scale in (1.0, 30.0):
        inputs = case.inputs(scale)
        ours, eager = randomised(case.ours()), randomised(case.eager())
        exact = results(copy.deepcopy(eager).double(), [x.double() for x in inputs])
        pairs = zip(results(ours, inputs), results(eager, inputs), exact, strict=True)
        for found, usual, real in pairs:
            size = float(real.abs().max())
            error, eagers = (float((of - real).abs().max()) for of in (found, usual))
            assert error <= 2 * eagers + 1e-6 * size, (case.name, scale, error, eagers, size)


@pytest.mark.full
def test_results_in_double_are_those_of_the_model(case: Case) -> None:
    inputs = [x.double() for x in case.inputs(3.0)]
    ours, eager = randomised(case.ours()).double(), randomised(case.eager()).double()
    for found, real in zip(results(ours, inputs), results(eager, inputs), strict=True):
        assert torch.allclose(found, real, rtol=1e-12, atol=1e-12)


def test_a_copy_and_a_pickle_compute_the_same(case: Case) -> None:
    model, inputs = randomised(case.ours()), case.inputs(1.0)
    value = model(*inputs)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(*inputs), value)
        assert [*other.state_dict()] == [*model.state_dict()]


def test_a_repr_shows_the_numbers_that_formulas_read(case: Case) -> None:
    own = "" if not hasattr(case.module.ModelNew, "extra_repr") else case.ours().extra_repr()
    assert own == case.model.shown


def test_one_graph_compiles_with_its_gradients(case: Case) -> None:
    torch.compiler.reset()
    model, inputs = randomised(case.ours()), case.inputs(1.0)
    whole: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    for found, usual in zip(results(whole, inputs), results(model, inputs), strict=True):
        assert torch.allclose(found, usual, rtol=1e-6, atol=1e-6)


@pytest.mark.full
def test_gradients_can_be_differentiated(case: Case) -> None:
    spec = parsed(case.model.body)
    [shape, *_] = [tensor.shape for tensor in spec.tensors[len(spec.inputs) :]]
    torch.manual_seed(2)
    inputs = [torch.randn(2, *shape, dtype=torch.float64) for _ in spec.inputs]
    state = [torch.rand(shape, dtype=torch.float64) + 0.5 for _ in spec.tensors[len(spec.inputs) :]]
    leaves = [tensor.requires_grad_() for tensor in (*inputs, *state)]
    assert torch.autograd.gradgradcheck(getattr(case.module, case.name), leaves, eps=1e-5, atol=1e-3)


# --- what is refused ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    body = "init: {n: 4, factor: 2.0}\nlayers: [bias: Parameter(zeros(n))]\n"
    body += "dtypes: [float32]\ninputs: {x: {shape: [3, 4]}}\nformula: x * factor + bias\n"
    return compiled(tmp_path_factory.mktemp("scaled"), "scaled", body)


def test_arguments_of_the_constructor_have_their_defaults(scaled: ModuleType) -> None:
    x = torch.randn(3, 5)
    model = scaled.ModelNew(n=5)
    assert (model.factor, tuple(model.bias.shape)) == (2.0, (5,))
    assert torch.equal(scaled.ModelNew(5, 0.5)(x), x * 0.5)
    assert scaled.get_init_inputs() == [4, 2.0]
    model.factor = 3
    assert torch.equal(model(x), x * 3)


def test_the_function_takes_the_parameter_and_the_scalar(scaled: ModuleType) -> None:
    x, bias = torch.randn(3, 4), torch.randn(3, 1)
    assert torch.equal(scaled.scaled(x, bias, factor=4), x * 4 + bias)
    assert torch.equal(scaled.scaled(x, bias), x * 2 + bias)
    with pytest.raises(TypeError, match="scaled: the argument bias is missing"):
        scaled.scaled(x)


def test_a_parameter_in_place_of_a_scalar_is_refused(scaled: ModuleType) -> None:
    model = scaled.ModelNew(factor=nn.Parameter(torch.tensor(2.0)))
    sentence = "scaled: factor must be a number: the kernels compute no gradient of it"
    with pytest.raises(TypeError, match=sentence):
        model(torch.ones(3, 4))


def test_shapes_that_do_not_broadcast_are_refused_at_the_call(scaled: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"scaled: the shapes \[3, 5\] and \[4\] do not broadcast"):
        scaled.ModelNew(n=4)(torch.ones(3, 5))


# --- shapes ---------------------------------------------------------------------------------------------

SHAPES = {
    "Linear(6, 4)": (2, 3, 6),
    "Conv1d(4, 8, 3, 2, 1)": (2, 4, 11),
    "Conv2d(4, 8, (3, 5), dilation=2, groups=2)": (2, 4, 12, 13),
    "Conv2d(4, 8, 3, padding='same')": (2, 4, 9, 8),
    "Conv3d(4, 8, 3, padding='valid', stride=(1, 2, 3))": (2, 4, 9, 8, 7),
    "ConvTranspose1d(4, 8, 3, 2, output_padding=1)": (2, 4, 7),
    "ConvTranspose2d(4, 8, (3, 4), stride=(2, 3), padding=(1, 2), dilation=2)": (2, 4, 5, 6),
    "ConvTranspose3d(4, 8, 3, stride=2, padding=1, output_padding=(0, 1, 1), groups=4)": (2, 4, 5, 6, 7),
    "BatchNorm2d(4)": (2, 4, 5, 6),
    "Dropout()": (2, 3),
}


@pytest.mark.parametrize("call", SHAPES)
def test_the_shape_after_a_layer_is_pytorchs(call: str) -> None:
    [layer] = parsed(f'layers: [first: "{call}"]\nchain: [relu]').layers
    assert isinstance(layer, Layer)
    made = eval(f"nn.{call}", {"nn": nn})  # of a row above
    assert tensor_shapes.after((layer,), SHAPES[call]) == made(torch.randn(SHAPES[call])).shape


def test_a_shape_that_pytorch_refuses_or_that_is_unknown_is_none() -> None:
    for call, shape in {"Linear(6, 4)": (2, 5), "Conv2d(4, 8, 3)": (4, 9, 9), "Flatten()": (2, 4, 8, 8),
                        "Conv1d(4, 8, 9)": (2, 4, 5)}.items():  # fmt: skip
        [layer] = parsed(f'layers: [first: "{call}"]\nchain: [relu]').layers
        assert isinstance(layer, Layer)
        assert tensor_shapes.after((layer,), shape) is None
