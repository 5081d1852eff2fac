"""Specs with a pooling: their language, and their kernels beside PyTorch's in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from hypothesis import given
from hypothesis import strategies as st
from parsed import spec_file
from test_cuda_text import NVCC, nvcc
from test_rows import GPU, made
from torch import Tensor, nn
from windows_emulated import emulated

from fusegen.compiler.window_kernels import CompiledWindows
from fusegen.core.poolings import window_of
from fusegen.errors import SpecErrors
from fusegen.evidence.certify.enclosures.ball_rows import values
from fusegen.evidence.certify.enclosures.window_balls import WindowBalls, elements
from fusegen.language.library import load as load_spec
from fusegen.language.parse import parse_spec
from fusegen.project import build
from fusegen.runtime.flags import CUDA_FLAGS

F = nn.functional
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Case:
    """A spec with a pooling, what it computes by PyTorch, and the shapes of its tensors."""

    body: str
    reference: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]


def of_operands(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.silu(F.max_pool2d(torch.tanh(x) * scale, 3, 2, 1)) + 2 * shift


def adaptive_of_operands(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    sizes: Any = (5, None)
    return F.silu(F.adaptive_max_pool2d(torch.tanh(x) * scale, sizes)) + 2 * shift


def sum_pool1d(x: Tensor) -> Tensor:
    return F.avg_pool2d(x[:, :, None], (1, 4), (1, 3), (0, 2), divisor_override=1)[:, :, 0]


CASES = {
    "max_of_relu": Case(
        "formula: max_pool2d(relu(x), 2)\n", lambda x: F.max_pool2d(F.relu(x), 2), ((2, 3, 9, 12),)
    ),
    "max_dilated": Case(
        "formula: max_pool2d(x, (2, 3), stride=(1, 2), padding=1, dilation=(2, 1), ceil_mode=True)\n",
        lambda x: F.max_pool2d(x, (2, 3), (1, 2), 1, (2, 1), ceil_mode=True),
        ((2, 3, 9, 12),),
    ),
    "max_of_lines": Case(
        "chain: ['max_pool1d(kernel_size=8, padding=4, dilation=3)']\n",
        lambda x: F.max_pool1d(x, 8, padding=4, dilation=3),
        ((2, 3, 67),),
    ),
    "max_of_volumes": Case(
        "formula: max_pool3d(x, 3, stride=2, padding=1)\n",
        lambda x: F.max_pool3d(x, 3, 2, 1),
        ((2, 2, 5, 6, 7),),
    ),
    "max_of_large_images": Case(
        "formula: max_pool2d(silu(x), 3, 2, 1)\n",
        lambda x: F.max_pool2d(F.silu(x), 3, 2, 1),
        ((1, 2, 70, 45),),
    ),
    "max_of_large_volumes": Case(
        "formula: max_pool3d(x, 3, stride=2, padding=1, dilation=3)\n",
        lambda x: F.max_pool3d(x, 3, 2, 1, 3),
        ((1, 1, 17, 18, 35),),
    ),
    "max_of_wide_windows": Case(
        "formula: max_pool1d(x, 1200, stride=1)\n",
        lambda x: F.max_pool1d(x, 1200, 1),
        ((1, 1, 4000),),
    ),
    "max_of_windows_for_teams": Case(
        "formula: max_pool1d(x, 4100, stride=900, dilation=2, padding=9)\n",
        lambda x: F.max_pool1d(x, 4100, 900, 9, 2),
        ((1, 2, 12000),),
    ),
    "average_for_teams": Case(
        "formula: avg_pool1d(x, 9000, stride=500, padding=4000)\n",
        lambda x: F.avg_pool1d(x, 9000, 500, 4000),
        ((1, 2, 12000),),
    ),
    "min_behind_a_chain": Case(
        "chain: [x * x, 'min_pool2d(kernel_size=2, stride=1)', x / 3]\n",
        lambda x: -F.max_pool2d(-x * x, 2, 1) / 3,
        ((3, 6, 7),),
    ),
    "average": Case(
        "formula: avg_pool2d(x, kernel_size=3, stride=2, padding=1)\n",
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        ((2, 3, 9, 12),),
    ),
    "average_of_large_images": Case(
        "formula: avg_pool2d(tanh(x), 4, 3, 2)\n",
        lambda x: F.avg_pool2d(torch.tanh(x), 4, 3, 2),
        ((1, 2, 41, 70),),
    ),
    "average_of_elements": Case(
        "formula: avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False)\n",
        lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
        ((2, 3, 10, 12),),
    ),
    "average_late": Case(
        "formula: avg_pool1d(x, 4, 3, 2, ceil_mode=True)\n",
        lambda x: F.avg_pool1d(x, 4, 3, 2, ceil_mode=True),
        ((2, 3, 12),),
    ),
    "average_by_three": Case(
        "formula: avg_pool3d(x, 2, divisor_override=3)\n",
        lambda x: F.avg_pool3d(x, 2, divisor_override=3),
        ((2, 2, 4, 5, 7),),
    ),
    "average_in_a_chain": Case(
        "chain: [x - 0.5, tanh, 'avg_pool2d(kernel_size=2)', sigmoid]\n",
        lambda x: torch.sigmoid(F.avg_pool2d(torch.tanh(x - 0.5), 2)),
        ((2, 3, 9, 12),),
    ),
    "sum_of_lines": Case(
        "formula: sum_pool1d(x, 4, stride=3, padding=2)\n", sum_pool1d, ((2, 3, 13),)
    ),
    "operands": Case(
        "inputs: {x: {shape: [2, 3, 9, 12]}, scale: {shape: [3, 1, 1]}, shift: {shape: [3, 1, 1]}}\n"
        "params: {times: 2}\n"
        "formula: silu(max_pool2d(tanh(x) * scale, 3, 2, 1)) + times * shift\n",
        of_operands,
        ((2, 3, 9, 12), (3, 1, 1), (3, 1, 1)),
    ),
}  # fmt: skip
CASES |= {
    "of_the_constructor": Case(
        "init: {kernel_size: 3, stride: 2, padding: 1, late: true, counts: false, by: null}\n"
        "formula: avg_pool2d(tanh(x), kernel_size, stride, padding, late, counts, by) * 2\n",
        lambda x: F.avg_pool2d(torch.tanh(x), 3, 2, 1, True, False) * 2,
        ((2, 3, 10, 12),),
    ),
    "global_average": Case(
        "chain: [x * sigmoid(x), 'adaptive_avg_pool2d(output_size=1)', tanh]\n",
        lambda x: torch.tanh(F.adaptive_avg_pool2d(F.silu(x), 1)),
        ((2, 3, 17, 70),),
    ),
    "global_maximum": Case(
        "formula: adaptive_max_pool3d(x, 1) ** 2\n",
        lambda x: F.adaptive_max_pool3d(x, 1) ** 2,
        ((2, 2, 5, 6, 7),),
    ),
    "adaptive_lines": Case(
        "formula: adaptive_avg_pool1d(x, 7)\n", lambda x: F.adaptive_avg_pool1d(x, 7), ((2, 3, 4500),)
    ),
    "adaptive_maximum": Case(
        "inputs: {x: {shape: [2, 3, 70, 70]}, scale: {shape: [3, 1, 1]}, shift: {shape: [3, 1, 1]}}\n"
        "params: {times: 2}\n"
        "formula: silu(adaptive_max_pool2d(tanh(x) * scale, (5, None))) + times * shift\n",
        adaptive_of_operands,
        ((2, 3, 70, 70), (3, 1, 1), (3, 1, 1)),
    ),
    "adaptive_of_few": Case(
        "init: {output_size: [3, 400]}\nformula: adaptive_avg_pool2d(x, output_size) ** 2\n",
        lambda x: F.adaptive_avg_pool2d(x, (3, 400)) ** 2,
        ((1, 2, 5, 3),),
    ),
    "adaptive_of_one": Case(
        "formula: adaptive_max_pool1d(x * x, 1500)\n",
        lambda x: F.adaptive_max_pool1d(x * x, 1500),
        ((1, 2, 1),),
    ),
}
BOUNDS = {torch.float32: 0.51, torch.bfloat16: 0.51, torch.float16: 0.51, torch.float64: 8.0}  # in ulp


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    folder = tmp_path_factory.mktemp("windows")

    @functools.cache
    def module(name: str) -> ModuleType:
        case = CASES[name]
        inputs = "" if "inputs" in case.body else f"inputs: {{x: {{shape: {list(case.shapes[0])}}}}}\n"
        return made(folder, name, inputs + case.body)

    return module


def drawn(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(shapes) + sum(map(len, shapes)))
    return [torch.randn(shape, generator=generator).mul(8).round().div(8).to(dtype) for shape in shapes]


def assert_near(own: Tensor, exact: Tensor, bound: float) -> None:
    """Results are within so many ulp; where terms cancel, of the largest one."""
    info = torch.finfo(own.dtype)
    assert own.shape == exact.shape
    if not own.numel():
        return
    ulp = torch.exp2(torch.floor(torch.log2(exact.abs().clamp(min=info.tiny)))) * info.eps
    rest = 2.0**-46 * exact.abs().max()
    worst = ((own.double() - exact).abs() - rest).clamp(min=0) / ulp
    assert worst.max() <= bound, f"{float(worst.max())} ulp"


def exact_of(case: Any, tensors: list[Tensor]) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """The value in float64, an incoming gradient, and the gradients for it; masks have none."""
    wide = [t.double().requires_grad_() if t.is_floating_point() else t for t in tensors]
    value = case.reference(*wide)
    grad = torch.randn(value.shape, generator=torch.Generator().manual_seed(5)).to(tensors[0])
    graded = [t for t in wide if t.requires_grad]
    return value.detach(), grad, torch.autograd.grad(value, graded, grad.double())


@pytest.mark.few(2)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_those_of_pytorch(
    modules: Any, name: str, dtype: torch.dtype, device: str
) -> None:
    module, case = modules(name), CASES[name]
    tensors = [t.to(device) for t in drawn(case.shapes, dtype)]
    exact, grad, gradients = exact_of(case, tensors)
    leaves = [t.requires_grad_() for t in tensors]
    value = getattr(module, name)(*leaves)
    assert value.dtype == dtype
    assert_near(value.detach(), exact, BOUNDS[dtype])
    made = torch.autograd.grad(value, leaves, grad)
    for own, other, leaf in zip(made, gradients, leaves, strict=True):
        summed = leaf.dim() < leaves[0].dim()  # PyTorch adds the gradients of its elements
        assert_near(own, other, 64 if summed else BOUNDS[dtype])


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_cuda_text_computes_the_same(modules: Any, name: str, dtype: torch.dtype) -> None:
    case, kernels = CASES[name], emulated(modules(name))
    tensors = drawn(case.shapes, dtype)
    exact, grad, gradients = exact_of(case, tensors)
    shapes = (tensors[0].shape, exact.shape)
    whole = [t.expand(shapes[not kernels.kernels.is_front(k)]) for k, t in enumerate(tensors)]
    params = (2.0,) * kernels.kernels.signature.params
    assert_near(kernels.forward(whole, params), exact, BOUNDS[dtype])
    for own, other in zip(kernels.backward([grad, *whole], params), gradients, strict=True):
        summed = own.shape != other.shape
        assert_near(own.double().sum_to_size(other.shape).to(dtype), other, 64 if summed else BOUNDS[dtype])


@pytest.mark.full
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_cuda_text_compiles_without_a_warning(modules: Any, tmp_path: Path) -> None:
    text = modules("operands").KERNELS.texts().cuda
    nvcc(tmp_path, "operands", text, *CUDA_FLAGS, "-ptx", "-arch=compute_90")


ADAPTIVE = ("global_maximum", "adaptive_lines", "adaptive_of_one")
SPECIALS = {
    "a NaN": lambda x: x.view(-1).__setitem__(slice(0, 60, 7), torch.nan),
    "infinities": lambda x: x.view(-1).__setitem__(slice(0, 60, 7), torch.inf),
    "minus infinity alone": lambda x: x.fill_(-torch.inf),
    "equal elements": lambda x: x.fill_(1),
}


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", ["max_dilated", "max_of_lines", "average_of_elements", *ADAPTIVE])
@pytest.mark.parametrize("special", SPECIALS)
def test_special_values_are_where_pytorch_has_them(
    modules: Any, name: str, special: str, device: str
) -> None:
    """NaN is the largest, and the first of the largest has the gradient."""
    case, module = CASES[name], modules(name)
    x = drawn(case.shapes, torch.float32)[0].to(device)
    SPECIALS[special](x)
    ours, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    made, eager = getattr(module, name)(ours), case.reference(theirs)
    torch.testing.assert_close(made.double(), eager, rtol=1e-6, atol=1e-5, equal_nan=True)
    grad = torch.randn(made.shape).to(device)
    own, other = (
        torch.autograd.grad(made, ours, grad)[0],
        torch.autograd.grad(eager, theirs, grad.double())[0],
    )
    torch.testing.assert_close(own.double(), other, rtol=1e-6, atol=1e-5, equal_nan=True)


@pytest.mark.full
@given(st.data())
def test_any_size_of_a_tensor_is_pooled_as_pytorch_does(modules: Any, data: Any) -> None:
    name = data.draw(st.sampled_from(["max_dilated", "average_of_elements", "max_of_relu"]))
    sizes = data.draw(st.tuples(*[st.integers(0, 3)] * 2, *[st.integers(1, 9)] * 2))
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))
    try:
        expected = CASES[name].reference(x)
    except RuntimeError:
        if x.numel():
            with pytest.raises(RuntimeError, match=f"{name}: a window is larger than the tensor"):
                getattr(modules(name), name)(x)
        return
    torch.testing.assert_close(getattr(modules(name), name)(x), expected)


IN_BOXES = {  # and the most elements along a dimension
    "max_of_relu": 70, "max_of_large_images": 70, "max_dilated": 40, "average_of_elements": 40,
    "max_of_large_volumes": 24, "max_of_lines": 3000,
}  # fmt: skip


@pytest.mark.full
@given(st.data())
def test_cuda_text_pools_planes_of_any_size(modules: Any, data: Any) -> None:
    """Each size has boxes of its own: whole planes, several of them, or a part of one."""
    name = data.draw(st.sampled_from([*IN_BOXES]))
    case, kernels = CASES[name], emulated(modules(name))
    rank = len(kernels.kernels.window[0])
    sizes = [*data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))]
    sizes += [data.draw(st.integers(1, IN_BOXES[name])) for _ in range(rank)]
    x = drawn((tuple(sizes),), torch.float32)[0]
    try:
        exact, grad, gradients = exact_of(case, [x])
    except RuntimeError:
        return
    assert_near(kernels.forward([x]), exact, 0.51)
    [own] = kernels.backward([grad, x])
    assert_near(own, gradients[0], 0.51)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "sliced": lambda x: torch.cat([x, x], -1)[..., 1 : 1 + x.shape[-1]],
    "one image": lambda x: x[0],
    "no image": lambda x: x[:0],
}


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["operands", "average"])
def test_layouts_give_the_same(modules: Any, name: str, layout: str) -> None:
    module, case = modules(name), CASES[name]
    first, *others = drawn(case.shapes, torch.float32)
    x = LAYOUTS[layout](first)
    exact, grad, gradients = exact_of(case, [x, *others])
    leaves = [t.detach().requires_grad_() for t in (x, *others)]
    value = getattr(module, name)(*leaves)
    assert_near(value.detach(), exact, 0.51)
    for own, other in zip(torch.autograd.grad(value, leaves, grad), gradients, strict=True):
        torch.testing.assert_close(own.double(), other, rtol=1e-5, atol=1e-5)
    is_last = x.is_contiguous(memory_format=torch.channels_last) if x.dim() == 4 and x.numel() else False
    assert not is_last or value.is_contiguous(memory_format=torch.channels_last)


def assert_taken_by_torch(module: Any, name: str, reference: Any, tensors: list[Tensor]) -> None:
    """Calls by out=, torch.compile, torch.export, vmap and jvp give what a reference does."""
    function, (first, *others), expected = getattr(module, name), tensors, reference(*tensors)
    out = torch.empty_like(expected)
    assert function(*tensors, out=out) is out
    torch.testing.assert_close(out, expected)
    compiled = torch.compile(lambda *t: function(*t) * 2, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*tensors), 2 * expected)
    program = torch.export.export(module.ModelNew(), tuple(tensors))
    torch.testing.assert_close(program.module()(*tensors), expected)
    assert [n for n in program.graph.nodes if name in str(n.target) and n.op == "call_function"]
    batch = torch.vmap(function, (0, *[None] * len(others)))(torch.stack([first, -first]), *others)
    torch.testing.assert_close(batch[1], reference(-first, *others))
    own, other = (
        torch.func.jvp(lambda x, of=of: of(x, *others), (first,), (-first,))[1]
        for of in (function, reference)
    )
    torch.testing.assert_close(own, other)


@pytest.mark.full
def test_calls_of_torch(modules: Any) -> None:
    module, case = modules("operands"), CASES["operands"]
    tensors = drawn(case.shapes, torch.float32)
    assert_taken_by_torch(module, "operands", case.reference, tensors)
    x = torch.randn(1, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x.requires_grad_()  # of elements that differ, at which the largest one stays
    wide = [t.double() for t in tensors[1:]]
    assert torch.autograd.gradgradcheck(lambda x: module.operands(x, *wide), x)


@pytest.mark.full
def test_derivatives_of_a_batch_of_batches(modules: Any) -> None:
    """PyTorch's poolings take four dimensions at most, of which vmap and a caller may add more."""
    module, case = modules("average_in_a_chain"), CASES["average_in_a_chain"]
    x = torch.randn(2, 2, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    own = torch.func.jvp(torch.vmap(module.average_in_a_chain), (x,), (x.sin(),))
    other = torch.func.jvp(torch.vmap(case.reference), (x,), (x.sin(),))
    for a, b in zip(own, other, strict=True):
        torch.testing.assert_close(a, b)
    one = x[0, :1, :1]
    torch.testing.assert_close(
        torch.func.hessian(module.average_in_a_chain)(one), torch.func.hessian(case.reference)(one)
    )
    assert torch.autograd.gradgradcheck(module.average_in_a_chain, x[:1].requires_grad_())


def test_a_symbolic_trace_takes_tensors_of_other_shapes(modules: Any) -> None:
    module, case = modules("operands"), CASES["operands"]
    tensors = drawn(case.shapes, torch.float32)
    traced = torch.fx.symbolic_trace(module.ModelNew())
    torch.testing.assert_close(traced(*tensors), case.reference(*tensors))


@pytest.mark.parametrize("shape", [(0, 3, 9, 12), (2, 0, 9, 12)])
def test_an_empty_batch_lies_in_memory_as_its_fake(modules: Any, shape: tuple[int, ...]) -> None:
    module = modules("max_of_relu")
    x = torch.empty(shape).to(memory_format=torch.channels_last)
    made = module.max_of_relu(x)
    fake = module.max_of_relu(x.to("meta"))
    assert made.shape == fake.shape == (*shape[:2], 4, 6)
    assert made.stride() == fake.stride()


def test_a_dimension_without_elements_is_refused(modules: Any) -> None:
    module = modules("average")
    for x in (torch.zeros(2, 3, 0, 4), torch.zeros(2, 3, 0, 4, device="meta")):
        with pytest.raises(RuntimeError, match="average: a dimension of the windows has no elements"):
            module.average(x)


@pytest.mark.parametrize(
    ("call", "most"),
    [
        ("max_pool1d(x, 2, padding=2, dilation=3)", 1),
        ("max_pool2d(x, 2, padding=2, dilation=3)", 1),
        ("max_pool3d(x, 2, padding=2, dilation=3)", 1),
    ],
)
def test_a_padding_that_pytorch_refuses_is_a_mistake(workshop: Workshop, call: str, most: int) -> None:
    body = f"inputs: {{x: {{shape: [2, 3, 9, 9, 9]}}}}\nformula: {call}\n"
    with pytest.raises(SpecErrors, match=f"PyTorch takes at most {most}"):
        load_spec(workshop.spec("wide", body))
    name, _, _ = call.partition("(")
    function, x = getattr(F, name), torch.zeros(1, 1, *[20] * int(name[-2]))
    function(x, 2, padding=most, dilation=3)
    with pytest.raises(RuntimeError, match=r"pad(ding)? should be"):
        function(x, 2, padding=most + 1, dilation=3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "inputs: {x: {shape: [2, 3, 9, 8]}}\nformula: max_pool2d(relu(x), 9)\n",
            "max_pool2d has no window of 9 x 9 elements in a tensor of shape 2 x 3 x 9 x 8",
        ),
        (
            "inputs: {x: {shape: [2, 3, 8, 8]}}\nlayers: [conv: 'Conv2d(3, 4, 3)']\n"
            "chain: [relu, 'avg_pool2d(kernel_size=7)']\n",
            "avg_pool2d has no window of 7 x 7 elements in a tensor of shape 2 x 4 x 6 x 6",
        ),
    ],
)
def test_a_window_without_room_in_the_example_is_a_mistake(
    workshop: Workshop, body: str, message: str
) -> None:
    with pytest.raises(SpecErrors) as caught:
        load_spec(workshop.spec("large", body))
    assert f": {message}\n" in str(caught.value)
    assert str(caught.value).endswith("hint: give x a larger shape")


def test_a_tensor_without_windows_is_refused(modules: Any) -> None:
    pool = modules("max_of_relu").max_of_relu
    with pytest.raises(RuntimeError) as caught:
        pool(torch.zeros(1, 3, 1, 2))
    assert str(caught.value).splitlines()[0] == (
        "max_of_relu: a window is larger than the tensor with its padding"
    )
    with pytest.raises(RuntimeError) as caught:
        pool(torch.zeros(5))
    assert str(caught.value).splitlines()[0] == (
        "max_of_relu: a tensor has too few dimensions for its windows and the channels before them"
    )


WINDOWS = [
    (2, 2, 0, 1, False), (3, 2, 1, 1, False), (3, 1, 1, 2, True), (5, 3, 2, 1, True), (2, 5, 1, 1, True),
    (4, 3, 2, 3, True), (1, 1, 0, 1, False), (7, 7, 3, 1, False),
]  # fmt: skip


@pytest.mark.parametrize("numbers", WINDOWS)
def test_windows_have_the_sizes_and_elements_of_pytorch(numbers: tuple[Any, ...]) -> None:
    """The windows that certificates judge by, beside unfolded indices of PyTorch's max_pool1d."""
    kernel, stride, padding, dilation, ceil = numbers
    call = f"max_pool1d(x, {kernel}, {stride}, {padding}, {dilation}, {ceil})"
    window = window_of(parse_spec(f"name: w\nsummary: A test.\nformula: {call}\n", "w.yaml"))
    assert window is not None
    for size in range(max(1, window.whole[0] - 2 * padding), 20):
        found = elements(window, (size,))
        for place in range(size):
            x = torch.full((1, size), -1.0)
            x[0, place] = 1
            eager = F.max_pool1d(x, kernel, stride, padding, dilation, ceil_mode=ceil)
            assert [place in of.places for of in found] == (eager[0] == 1).tolist()


def test_explain_shows_both_passes(workshop: Workshop) -> None:
    workshop.spec("pooled", "formula: avg_pool2d(tanh(x), 3, padding=1) + 1\n")
    shown = workshop.run("explain", "pooled").output
    assert "pooled = sum(tanh(x))" in shown
    assert "y = pooled / row_length + 1" in shown
    assert "Windows of (3, 3) at (3, 3), padding (1, 1), dilation (1, 1)." in shown


@pytest.mark.parametrize(
    "name", ["max_dilated", "average_of_elements", "operands", "global_average", "adaptive_maximum"]
)
def test_certificates_judge_by_the_values_of_pytorch(name: str, tmp_path: Path) -> None:
    """Values and gradients in balls, beside PyTorch's in float64, where elements are equal, too."""
    case = CASES[name]
    path = spec_file(tmp_path, name, case.body)
    compiled = build.compiled_either(path)
    assert isinstance(compiled, CompiledWindows)
    first, *others = drawn(((2, 3, 9, 12), (2, 3, 1, 1), (2, 3, 1, 1))[: len(case.shapes)], torch.float64)
    planes = [first[0, :, :7, :5], *(t[0] for t in others)]
    exact, grad, gradients = exact_of(case, planes)
    in_front = [each.name in compiled.in_front for each in compiled.spec.tensors]
    whole = [t.expand(planes[0].shape if f else exact.shape) for t, f in zip(planes, in_front, strict=True)]
    windows = elements(compiled.window, (7, 5))
    params = {"times": Fraction(2)} if compiled.spec.params else {}
    balls = WindowBalls(compiled.declared, params, windows, in_front)
    found = values(balls, [t.contiguous() for t in whole], [grad], torch.float64)
    torch.testing.assert_close(found[0][0].reshape(exact.shape), exact)
    for (hi, _, _), t, other in zip(found[1:], whole, gradients, strict=True):
        torch.testing.assert_close(hi.reshape(t.shape).sum_to_size(other.shape), other)
