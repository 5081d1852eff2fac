"""Specs whose rows are channels: kernels beside PyTorch's in float64, layers beside torch.nn's."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from channels_emulated import emulated
from conftest import Workshop
from test_cuda_text import NVCC, nvcc
from test_rows import GPU, made
from torch import Tensor, nn

from fusegen.errors import SpecErrors
from fusegen.runtime.flags import CUDA_FLAGS

F = nn.functional
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SHAPES = ((8, 40), (5, 6, 11), (3, 5, 7, 9), (2, 3, 4, 5, 6), (2, 18, 24, 24))
EPS = 1e-5
HEAD = """\
inputs: {{x: {{shape: [4, 6, 5, 5]}}, residual: {{shape: [4, 6, 5, 5]}}}}
init: {{num_features: 6}}
layers: [weight: Parameter(ones(num_features)), bias: Parameter(zeros(num_features))]
params: {{eps: 1.0e-5}}
over: [0, 2, ...]
where: {{u: "{before}", centred: u - mean(u)}}
formula: {behind}
"""
NORM = "centred * rsqrt(mean(centred ** 2) + eps) * along(weight, 1) + along(bias, 1)"
CASES: dict[str, tuple[str, str, Callable[..., Tensor]]] = {
    "added_relu": ("x", f"relu({NORM} + residual)", lambda y, r: F.relu(y + r)),
    "added_hardswish": ("x", f"hardswish({NORM} + residual)", lambda y, r: F.hardswish(y + r)),
    "behind_tanh": ("tanh(x)", f"silu({NORM}) * residual", lambda y, r: F.silu(y) * r),
}


def exact(name: str, tensors: list[Tensor], training: bool = True, given: Tensor | None = None) -> Tensor:
    """Return what a case computes, by PyTorch's operations."""
    x, residual, weight, bias = tensors
    mean, var = (None, None) if given is None else given.unbind(1)
    u = torch.tanh(x) if name == "behind_tanh" else x
    return CASES[name][2](F.batch_norm(u, mean, var, weight, bias, training, 0.1, EPS), residual)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    folder = tmp_path_factory.mktemp("channels")

    @functools.cache
    def module(name: str) -> ModuleType:
        before, behind, _ = CASES[name]
        return made(folder, name, HEAD.format(before=before, behind=behind))

    return module


def drawn(shape: tuple[int, ...], dtype: torch.dtype, layout: str = "plain") -> list[Tensor]:
    """Return tensors of a layout, and a weight and a bias in float32, or in float64 beside such tensors."""
    generator = torch.Generator().manual_seed(len(shape))
    found = [(torch.randn(shape, generator=generator) * 3 + 1).to(dtype) for _ in range(2)]
    if layout == "channels last":
        found = [t.movedim(1, -1).contiguous().movedim(-1, 1) for t in found]
    if layout == "expanded":
        found = [t[:1].expand(shape) for t in found]
    if layout == "with gaps":
        found = [t.repeat_interleave(2, -1)[..., ::2] for t in found]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return [*found, *(torch.randn(shape[1], generator=generator, dtype=wide) for _ in range(2))]


def assert_near(own: Tensor, other: Tensor, dtype: torch.dtype) -> None:
    """Results are within an ulp of the largest one; sums of what was computed in float in more."""
    assert own.shape == other.shape
    ulp = 16 if dtype == torch.float64 else 1 if own.dtype == dtype else 64
    bound = ulp * torch.finfo(own.dtype).eps * float(other.abs().max())
    assert float((own.double() - other).abs().max()) <= bound


def compared(name: str, function: Callable[..., Tensor], tensors: list[Tensor]) -> None:
    """Compare a function and its gradients with PyTorch's in float64 on a CPU.

    On CUDA PyTorch's hardswish of float64 multiplies by a sixth in float.
    """
    leaves = [t.detach().requires_grad_() for t in tensors]
    wide = [t.detach().cpu().double().requires_grad_() for t in tensors]
    own, other = function(*leaves), exact(name, wide)
    grad = torch.randn(own.shape, generator=torch.Generator().manual_seed(7)).to(own)
    assert_near(own.detach().cpu(), other.detach(), tensors[0].dtype)
    gradients = torch.autograd.grad(other, wide, grad.cpu().double())
    for one, two in zip(torch.autograd.grad(own, leaves, grad), gradients, strict=True):
        assert_near(one.cpu(), two, tensors[0].dtype)


@pytest.mark.few(3)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("layout", ["plain", "channels last", "expanded", "with gaps"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_float64(
    modules: Any, name: str, dtype: torch.dtype, layout: str, device: str
) -> None:
    function = getattr(modules(name), name)
    for shape in SHAPES[layout == "expanded" :]:  # without channels of one value
        compared(name, function, [t.to(device) for t in drawn(shape, dtype, layout)])


def test_bits_do_not_depend_on_the_threads_or_the_layout(modules: Any) -> None:
    function, tensors = modules("added_relu").added_relu, drawn((6, 5, 64, 64), torch.float32)
    found = []
    before = torch.get_num_threads()
    for threads, layout in itertools.product((1, 2), (torch.contiguous_format, torch.channels_last)):
        torch.set_num_threads(threads)
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        there = [t.contiguous(memory_format=layout) if t.dim() == 4 else t for t in leaves]
        result = function(*there)
        assert result.is_contiguous(memory_format=layout)
        found.append([result, *torch.autograd.grad(result, leaves, tensors[1])])
    torch.set_num_threads(before)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


@pytest.mark.few(1)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("name", ["added_relu", "behind_tanh"])
def test_cuda_text_computes_the_same(modules: Any, name: str, dtype: torch.dtype, training: bool) -> None:
    kernels = emulated(modules(name))
    params = (EPS, float(training))
    for shape, layout in (
        ((3, 5, 7, 9), "plain"),
        ((2, 35, 4), "channels last"),
        ((2, 2, 64, 96), "plain"),
    ):
        tensors = drawn(shape, dtype, layout)
        given = torch.rand(shape[1], 2, dtype=torch.float64) + 0.5
        wide = [t.double().requires_grad_() for t in tensors]
        other = exact(name, wide, training, None if training else given)
        elements, numbers = tensors[:2], [t.double() for t in tensors[2:]]
        moments = given[:0] if training else given
        own, found = kernels.forward([*elements, *numbers, moments], params)
        assert_near(own, other.detach(), dtype)
        grad = torch.randn(shape).to(dtype).as_strided(shape, elements[0].stride())
        moments = found if training else given
        gradients = torch.autograd.grad(other, wide, grad.double())
        for one, two in zip(
            kernels.backward([grad, *elements, *numbers, moments], params), gradients, strict=True
        ):
            assert_near(one if one.shape == own.shape else one.to(tensors[2].dtype), two, dtype)


@pytest.mark.full
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_cuda_text_compiles_without_a_warning(modules: Any, tmp_path: Path) -> None:
    text = modules("behind_tanh").KERNELS.texts().cuda
    nvcc(tmp_path, "behind_tanh", text, *CUDA_FLAGS, "-ptx", "-arch=compute_90")


@pytest.mark.full
def test_a_compiled_layer_takes_other_batches_and_no_bias(modules: Any) -> None:
    layers: list[Any] = [modules("added_relu").AddedRelu(6).double(), nn.BatchNorm2d(6).double()]
    for layer in layers:
        layer.bias = None
    own, other = layers
    torch.compiler.reset()
    compiled: Any = torch.compile(own, backend="aot_eager")
    for batch in (4, 6, 7):
        x, residual = torch.randn(2, batch, 6, 3, 3, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, residual), F.relu(other(x) + residual))
    for buffer, right in zip(own.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(buffer, right)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "the average of all": {"momentum": None},
    "no weight": {"affine": False},
    "no statistics": {"track_running_stats": False},
    "others": {"eps": 1e-3, "momentum": 0.3},
}


@pytest.mark.parametrize("momentum", [0.1, 0.5, 0.9, 1.0, None])
def test_large_statistics_leave_no_rounding_behind(modules: Any, momentum: float | None) -> None:
    own = modules("added_relu").AddedRelu(6, momentum=momentum).double()
    other = nn.BatchNorm2d(6, momentum=momentum).double()
    x, residual = torch.randn(2, 4, 6, 5, 5, dtype=torch.float64)
    for layer in (own, other):
        for buffer in (layer.get_buffer("running_mean"), layer.get_buffer("running_var")):
            buffer.fill_(1e12)
    own(x, residual)
    other(x)
    near = 1e-14  # of the mean's terms, which are about 1: a buffer of 1e12 has a unit of 1e-4
    torch.testing.assert_close(own.state_dict(), other.state_dict(), rtol=near, atol=near)


@pytest.mark.parametrize("options", OPTIONS)
def test_twenty_steps_are_those_of_torch(modules: Any, options: str) -> None:
    """Training moves weights and statistics as torch.nn's layer does; then evaluation is the same."""
    own = modules("added_relu").AddedRelu(6, **OPTIONS[options]).double()
    other = nn.BatchNorm2d(6, **OPTIONS[options]).double()
    assert repr(own).partition("(")[2] == repr(other).partition("(")[2]
    for weight in other.parameters():
        nn.init.normal_(weight)
    own.load_state_dict(other.state_dict())
    for training in [True] * 20 + [False]:
        own.train(training)
        other.train(training)
        x, residual = torch.randn(2, 4, 6, 5, 5, dtype=torch.float64) * 2 + 1
        found = []
        for layer in (own, other):
            leaf = x.clone().requires_grad_()
            result = own(leaf, residual) if layer is own else F.relu(layer(leaf) + residual)
            result.square().mean().backward()
            found += [(result, leaf.grad)]
            for weight in layer.parameters():
                assert weight.grad is not None
                weight.data -= 0.1 * weight.grad
                weight.grad = None
        torch.testing.assert_close(*found)
        torch.testing.assert_close(own.state_dict(), other.state_dict())
    other.load_state_dict(own.state_dict())


def test_tensors_of_16_bits_have_a_layer_in_float32(modules: Any) -> None:
    own, other = modules("added_relu").AddedRelu(6), nn.BatchNorm2d(6)
    x, residual = torch.randn(2, 4, 6, 5, 5).bfloat16()
    result = own(x, residual)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result, F.relu(other(x.float()) + residual).bfloat16())
    torch.testing.assert_close(own.state_dict(), other.state_dict())


def test_one_element_of_a_channel_is_refused_in_training_only(modules: Any) -> None:
    layer = modules("added_relu").AddedRelu(6)
    x = torch.randn(1, 6, 1)
    with pytest.raises(ValueError, match=r"more than one value for each channel in training"):
        layer(x, x)
    layer.eval()
    assert layer(x, x).shape == x.shape


@pytest.mark.parametrize("shape", [(6,), (2, 5)])
def test_other_shapes_are_refused(modules: Any, shape: tuple[int, ...]) -> None:
    layer, x = modules("added_relu").AddedRelu(6), torch.randn(shape)
    with pytest.raises((ValueError, RuntimeError), match=r"^added_relu: expected"):
        layer(x, x)


def test_an_empty_batch_leaves_the_statistics(modules: Any) -> None:
    layer, x = modules("added_relu").AddedRelu(6), torch.randn(0, 6, 3)
    assert layer(x, x).shape == x.shape
    assert torch.equal(layer.running_mean, torch.zeros(6))


def test_special_values_spoil_their_channel_only(modules: Any) -> None:
    function, tensors = modules("added_relu").added_relu, drawn((4, 6, 5), torch.float32)
    tensors[0][0, 0, 0], tensors[0][1, 1, 1], tensors[0][:, 2] = torch.inf, torch.nan, 7.0
    own, other = function(*tensors), exact("added_relu", [t.double() for t in tensors])
    assert torch.equal(own.isnan(), other.isnan())
    assert own[:, :2].isnan().all()
    torch.testing.assert_close(own[:, 2:], other[:, 2:].float())


def test_a_mean_far_from_0_leaves_the_variance(modules: Any) -> None:
    """Squares less the square of a mean would leave no digit of float."""
    function, tensors = modules("added_relu").added_relu, drawn((64, 6, 25), torch.float32)
    tensors[0] = torch.randn(64, 6, 25) * 2**-9 + 2.0**14
    compared("added_relu", function, tensors)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_layers_update_their_statistics(modules: Any, backend: str) -> None:
    layer = modules("added_relu").AddedRelu(6)
    other = copy.deepcopy(layer)
    function = torch.compile(layer, fullgraph=True, backend=backend)
    for _ in range(2):
        x = torch.randn(4, 6, 5, 5)
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        results = [each(leaf, x) for each, leaf in zip((function, other), leaves, strict=True)]
        sum(r.sin().sum() for r in results).backward()
        torch.testing.assert_close(*results)
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    torch.testing.assert_close(layer.state_dict(), other.state_dict())


def test_exported_layers_update_their_statistics(modules: Any) -> None:
    layer, x = modules("added_relu").AddedRelu(6), torch.randn(4, 6, 5, 5)
    program = torch.export.export(layer, (x, x)).module()
    torch.testing.assert_close(program(x, x), layer(x, x))
    torch.testing.assert_close(program.state_dict()["running_var"], layer.running_var)


def test_transforms_and_second_derivatives_are_those_of_pytorch(modules: Any) -> None:
    function = modules("added_relu").added_relu
    x, residual, weight, bias = drawn((3, 2, 4), torch.float64)
    leaves = [t.requires_grad_() for t in (x, residual, weight, bias)]
    assert torch.autograd.gradgradcheck(function, leaves)
    batch = torch.stack([x, 2 * x]).detach()
    there = torch.func.vmap(lambda t: function(t, residual, weight, bias))(batch)
    torch.testing.assert_close(there, torch.stack([function(t, residual, weight, bias) for t in batch]))
    gradient = torch.func.grad(lambda t: function(t, residual, weight, bias).sin().sum())(x.detach())
    [other] = torch.autograd.grad(function(*leaves).sin().sum(), [x])
    torch.testing.assert_close(gradient, other)


WEIGHTED = "* along(weight, 1) + along(bias, 1) + residual"
REFUSED = {
    "a mean alone": f"centred * eps {WEIGHTED}",
    "a variance by one less": f"centred * rsqrt(var(u, 1) + eps) {WEIGHTED}",
    "a maximum behind": f"amax({NORM} + residual)",
}


SPREADS = ("mean(square(u - mean(u)))", "var(u, correction=0)")


@pytest.mark.few(1)
@pytest.mark.parametrize("spread", SPREADS)
def test_terms_that_are_written_twice_are_those_of_a_step(workshop: Workshop, spread: str) -> None:
    norm = f"(u - mean(u)) * rsqrt({spread} + eps) * along(weight, 1) + along(bias, 1)"
    body = HEAD.format(before="x", behind=f"relu({norm} + residual)")
    kernels: Any = made(workshop.folder, "written", body.replace(", centred: u - mean(u)", "")).KERNELS
    compared("added_relu", lambda *given: kernels.run(*given, EPS), drawn(SHAPES[1], torch.float32))


def test_what_is_averaged_reads_no_scalar(workshop: Workshop) -> None:
    body = HEAD.format(before="tanh(x * eps)", behind=f"{NORM} + residual")
    with pytest.raises(
        SpecErrors, match="rows of channels have batch statistics: what is averaged reads eps"
    ):
        made(workshop.folder, "refused", body)


def test_a_reduction_of_elements_is_refused(workshop: Workshop) -> None:
    body = HEAD.format(before="x", behind=f"{NORM} + residual")
    with pytest.raises(SpecErrors, match="reduction: mean is of values of rows"):
        made(workshop.folder, "refused", f"{body}reduction: mean\n")


@pytest.mark.parametrize("name", REFUSED)
def test_other_reductions_are_refused_in_a_sentence(workshop: Workshop, name: str) -> None:
    with pytest.raises(
        SpecErrors, match="rows of channels have batch statistics: reductions begin with a mean"
    ):
        made(workshop.folder, "refused", HEAD.format(before="x", behind=REFUSED[name]))
