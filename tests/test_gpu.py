"""The compiled CUDA kernels against PyTorch on a GPU: every bit, every layout, streams, graphs, first use.

It needs torch and pytest, a GPU and nvcc, and nothing of fusegen.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from budget import HANG
from kernels import (
    DTYPES,
    EXACT,
    LAYOUTS,
    LIBRARY,
    ROOT,
    arranged,
    assert_same,
    assert_same_in_any_layout,
    compiled,
    function,
    generated,
    in_a_graph,
    meaningful_strides,
    nearest,
    patterns,
    ulps,
)
from torch import Tensor, nn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

CUDA: Any = torch.cuda  # which declares no types for streams
COUNT = 2**24
KINKS = (-3.0, 3.0, -2.5, 2.5, -1.0, 1.0, 6.0, -0.5, 0.5)
EAGER: dict[str, Callable[..., Tensor]] = {name: LIBRARY[name].eager for name in EXACT}

# Where PyTorch's own kernels on CUDA depart from their functions, and ours do not follow.
SIGN_OF_ZERO_LOST = ("relu", "relu6")  # clamping kernels turn -0.0 into +0.0 before torch 2.14
SIXTH_IN_FLOAT: dict[
    str, Callable[[Tensor], Tensor]
] = {  # in float64 these multiply by the float nearest to 1/6, widened
    "hardsigmoid": lambda x: F.relu6(x + 3) * (1 / 6),
    "hardswish": lambda x: x * F.relu6(x + 3) * (1 / 6),
}
KEEPS_SIGN = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


kernel = function


def negative_zero(x: Tensor) -> Tensor:
    """Where x is -0.0."""
    return (x == 0) & torch.signbit(x)


def eager(name: str, x: Tensor) -> Tensor:
    """Eager's result, with the sign of zero that it loses put back."""
    expected = EAGER[name](x)
    if name in SIGN_OF_ZERO_LOST and not KEEPS_SIGN:
        expected = torch.where(negative_zero(x), x, expected)
    return expected


def every_float32() -> Iterator[Tensor]:
    """All 2^32 float32 values, 2^26 at a time."""
    for start in range(-(2**31), 2**31, 2**26):
        bits = torch.arange(start, start + 2**26, device="cuda").to(torch.int32)
        yield bits.view(torch.float32)


# Values


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EAGER)
def test_every_bit_is_eagers(name: str, dtype: torch.dtype) -> None:
    x = patterns(dtype, COUNT, KINKS, "cuda")
    assert bool(negative_zero(x).any())
    assert bool(x.isnan().any())
    actual = kernel(name)(x)
    if dtype == torch.float64 and name in SIXTH_IN_FLOAT:
        assert_same(actual, SIXTH_IN_FLOAT[name](x), x)
        near = {"rtol": 1e-7, "atol": 1e-300}  # the two sixths differ by 2e-8; subnormals by a step
        assert torch.allclose(actual, EAGER[name](x), equal_nan=True, **near)
        return
    expected = EAGER[name](x)
    if name in SIGN_OF_ZERO_LOST and not KEEPS_SIGN:
        at = negative_zero(x)
        assert bool(torch.signbit(actual[at]).all())
        expected = torch.where(at, x, expected)
    assert_same(actual, expected, x)


@pytest.mark.parametrize("name", EAGER)
def test_every_float32_there_is_gives_eagers_bits(name: str) -> None:
    for x in every_float32():
        assert_same(kernel(name)(x), eager(name, x), x)


def gradients(name: str, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Ours and eager's."""
    leaf = x.detach().requires_grad_()
    [ours], [theirs] = (torch.autograd.grad(f(leaf), leaf, grad) for f in (kernel(name), EAGER[name]))
    return ours, theirs


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_every_bit_of_a_gradient_is_eagers(name: str, dtype: torch.dtype) -> None:
    """Of a gradient of 1, of random ones, and of special ones; NaN and both zeros, too."""
    x = patterns(dtype, COUNT, KINKS, "cuda")
    generator = torch.Generator("cuda").manual_seed(1)
    random = torch.randn(x.shape, generator=generator, device="cuda").to(dtype)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, -1.0, 1e-7], device="cuda").to(
        dtype
    )
    picked = special[torch.randint(len(special), x.shape, generator=generator, device="cuda")]
    for grad in (torch.ones_like(x), random, picked, random.flip(0)[: x.numel()]):
        ours, theirs = gradients(name, x, grad)
        if dtype == torch.float64 and name in SIXTH_IN_FLOAT:
            torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-300, equal_nan=True)
        else:
            assert_same(ours, theirs, x, grad)


@pytest.mark.parametrize("name", EXACT)
def test_every_float32_there_is_has_eagers_gradient(name: str) -> None:
    generator = torch.Generator("cuda").manual_seed(2)
    random = torch.randn(2**26, generator=generator, device="cuda")
    for k, x in enumerate(every_float32()):
        for grad in (torch.ones_like(x), random.roll(k)):
            assert_same(*gradients(name, x, grad), x, grad)


def test_relu_hardswish_is_within_two_ulp_of_its_chain_on_every_float32() -> None:
    assert (
        max(ulps(kernel("relu_hardswish")(x), F.hardswish(eager("relu", x))) for x in every_float32()) <= 2
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_hardsigmoid_keras_is_its_formula(dtype: torch.dtype) -> None:
    x = patterns(dtype, COUNT, KINKS, "cuda")
    wide = x if dtype == torch.float64 else x.float()
    assert_same(kernel("hardsigmoid_keras")(x), (wide * 0.2 + 0.5).clamp(0, 1).to(dtype), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_hardswish_is_within_two_ulp_of_its_steps(dtype: torch.dtype) -> None:
    """But for the sign of zero of eager's relu, and in float64, where its 1/6 has only a float's digits."""
    x = patterns(dtype, COUNT, KINKS, "cuda")
    actual = kernel("relu_hardswish")(x)
    steps = F.relu(x)
    steps = SIXTH_IN_FLOAT["hardswish"](steps) if dtype == torch.float64 else F.hardswish(steps)
    overflows = steps.isinf() & ~x.isinf()
    assert ulps(actual[~overflows], steps[~overflows]) <= (2 if dtype.itemsize > 2 else 1)
    above = x[overflows]  # here the function is x, and eager's x * 6 is not a number any more
    assert bool((above > torch.finfo(dtype).max / 8).all())
    assert torch.equal(actual.isnan(), x.isnan())
    assert bool((actual[x == -torch.inf] == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_hardtanh_takes_its_bounds_at_run_time(dtype: torch.dtype) -> None:
    x = patterns(dtype, 2**16, (-0.3, 0.7), "cuda")
    for low, high in ((-0.3, 0.7), (0.1, 0.2), (-torch.inf, 2.0)):
        assert_same(kernel("hardtanh")(x, low, high), F.hardtanh(x, low, high), x)


def test_a_layer_in_front_runs_on_the_gpu() -> None:
    module = generated("conv_relu_hardswish")
    model = module.ModelNew(*module.get_init_inputs()).cuda()
    x = torch.randn(4, 8, 33, 35, device="cuda")
    for layout in (torch.contiguous_format, torch.channels_last):
        given = x.contiguous(memory_format=layout)
        with torch.no_grad():
            middle = F.relu(model.conv(given))
            actual, expected = model(given), middle * torch.clamp((middle + 3) / 6, 0, 1)
        assert torch.allclose(actual, expected, rtol=1e-5, atol=1e-5)
        assert actual.stride() == expected.stride()


# Layouts


@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_gives_eagers_values_and_strides(layout: str, dtype: torch.dtype) -> None:
    x = arranged(layout, dtype, "cuda")
    actual, expected = kernel("hardtanh")(x), F.hardtanh(x)
    assert_same(actual, expected, x)
    assert meaningful_strides(actual) == meaningful_strides(expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_offset_and_every_length(dtype: torch.dtype) -> None:
    """Misaligned by 0 to 8 elements; every residue of the vector and of the block."""
    x = torch.randn(6000, dtype=dtype, device="cuda") * 3
    expected = F.hardtanh(x)
    for offset in range(9):
        lengths = [*range(0, 40), *range(500, 530), *range(1015, 1035), *range(2040, 2060), 5000]
        for n in lengths:
            view = x[offset : offset + n]
            assert torch.equal(kernel("hardtanh")(view), expected[offset : offset + n]), (offset, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_whole_vectors_and_rows_that_miss_it(dtype: torch.dtype) -> None:
    x = torch.randn(150, 4, 128, dtype=dtype, device="cuda")
    odd = torch.randn(250, 2, 129, dtype=dtype, device="cuda")
    for view in (
        x[:, 1:3, 16:64], x[3:4, ::2, :64].expand(99, 2, 64), x.transpose(0, 1)[..., 32:],
        x[:, 1:3, 17:65], x[:, 1:3, 16:65], odd[:, :, :64], x[..., ::2], x[:, :, :1].expand(150, 4, 64),
    ):  # fmt: skip
        assert_same(kernel("hardtanh")(view), F.hardtanh(view), view)


def room_for(elements: int) -> None:
    """Skip where the GPU cannot hold two float16 tensors of so many elements, and some more."""
    free, _ = torch.cuda.mem_get_info()
    if free < 5 * elements:
        pytest.skip(f"needs {5 * elements >> 30} GiB of GPU memory, and {free >> 30} are free")


@pytest.mark.parametrize("offset", [0, 3])
def test_more_elements_than_31_bits_count(offset: int) -> None:
    """The front, the seam and the end, aligned and not, flat and strided."""
    n = 2**31 + 2**20 + 5
    room_for(n)
    x = torch.zeros(n + offset, dtype=torch.float16, device="cuda")[offset:]
    parts = [slice(0, 5000), slice(2**31 - 5000, 2**31 + 5000), slice(n - 5000, n)]
    for part in parts:
        x[part] = torch.randn(part.stop - part.start, device="cuda").half() * 3
    x[2**30] = 2
    actual = kernel("hardtanh")(x)
    for part in (*parts, slice(2**30 - 9, 2**30 + 9)):
        assert_same(actual[part], F.hardtanh(x[part]), x[part])
    assert int(torch.count_nonzero(actual[2**20 : 2**30])) == 0
    del actual
    torch.cuda.empty_cache()


def test_a_view_of_more_elements_than_31_bits_count() -> None:
    """Expanded: the strided walk with its wide index."""
    rows, columns = 2**20 + 7, 2**11 + 1
    room_for(rows * columns)
    row = torch.randn(columns, device="cuda").half() * 3
    actual = kernel("hardtanh")(row.expand(rows, columns))
    assert actual.shape == (rows, columns)
    expected = F.hardtanh(row)
    for part in (actual[:3], actual[rows // 2 : rows // 2 + 3], actual[-3:]):
        assert_same(part, expected.expand(3, columns))
    assert bool((actual.sum(0, dtype=torch.float64) - expected.double() * rows).abs().max() < 1e-3)
    del actual
    torch.cuda.empty_cache()


# Streams, graphs, devices


def test_it_runs_on_the_current_stream() -> None:
    """Behind a slow predecessor of its own stream; on the default stream it would read the old values."""
    x = torch.zeros(2**20, device="cuda")
    torch.cuda.synchronize()
    side = CUDA.Stream()
    with torch.cuda.stream(side):
        kernel("hardtanh")(x)  # so that memory for the output is at hand
        CUDA._sleep(200_000_000)
        x.fill_(0.5)
        y = kernel("hardtanh")(x)
        assert not side.query()  # the call came back before its work was done
    side.synchronize()
    assert bool((y == 0.5).all())


def test_a_graph_captures_and_replays_it() -> None:
    x = torch.randn(100_003, device="cuda")
    model = generated("relu_hardswish").ModelNew()
    model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
        z = model(y.view(-1)[1:])
    for _ in range(3):
        x.copy_(torch.randn_like(x) * 4)
        graph.replay()
        torch.cuda.synchronize()
        assert_same(y, model(x), x)
        assert_same(z, model(y[1:]))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("silu_hardswish", torch.float32), ("mish_mish", torch.float32), ("gelu", torch.bfloat16)],
)
def test_where_blocks_ask_ahead_results_are_those_of_small_tensors(name: str, dtype: torch.dtype) -> None:
    n = 2**25 + 2**12 + 3  # a whole block is there to be asked for, and an end of less than one
    x = (torch.randn(n, device="cuda") * 4).to(dtype)
    small = [kernel(name)(x[k : k + 2**20]) for k in range(0, n, 2**20)]
    assert_same(kernel(name)(x), torch.cat(small))


def test_backward_runs_on_the_stream_of_forward() -> None:
    """As autograd has it: wherever backward is called, and behind what that stream still has to do."""
    x = torch.zeros(2**20, device="cuda", requires_grad=True)
    side = CUDA.Stream()
    side.wait_stream(CUDA.current_stream())
    with torch.cuda.stream(side):
        torch.autograd.grad(kernel("hardswish")(x).sum(), x)
        CUDA._sleep(1_000_000_000)  # half a second: others may use the machine, too
        source = torch.full_like(x, 0.75)
        leaf = source.requires_grad_()
        y = kernel("hardswish")(leaf)
        [gradient] = torch.autograd.grad(y, leaf, torch.ones_like(y))
        assert not side.query()
    side.synchronize()
    assert_same(gradient, torch.full_like(gradient, 0.75))


def test_two_streams_at_once_do_not_disturb_each_other() -> None:
    inputs = [torch.randn(2**20, device="cuda") for _ in range(8)]
    expected = [F.hardswish(x) for x in inputs]
    torch.cuda.synchronize()
    streams = [CUDA.Stream() for _ in range(4)]
    results = []
    for k, x in enumerate(inputs):
        with torch.cuda.stream(streams[k % 4]):
            results.append(kernel("hardswish")(x))
    torch.cuda.synchronize()
    for actual, wanted in zip(results, expected, strict=True):
        assert_same(actual, wanted)


# Results that are looked up


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_looked_up_does_not_depend_on_how_many_there_are(dtype: torch.dtype) -> None:
    """Small tensors look up in global memory, large ones in shared memory, and what is left of a vector."""
    mish = kernel("mish_mish")
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16, device="cuda").view(dtype)
    few = mish(every)
    rest = every.numel() - 5
    many = mish(torch.cat([every.repeat(1024), every[:rest]]))
    for part in (*many[:-rest].view(-1, every.numel())[::341], torch.cat([many[-rest:], few[rest:]])):
        assert_same(part, few, every)
    grad = torch.randn(every.numel(), device="cuda").to(dtype)
    module = generated("mish_mish")
    few = module.KERNELS.backward(grad, every)
    many = module.KERNELS.backward(grad.repeat(1025), every.repeat(1025))
    for part in many.view(-1, every.numel())[::341]:
        assert_same(part, few, grad, every)
    assert_same(mish(every.view(256, 256).t()), mish(every).view(256, 256).t())
    assert_same(mish(every[1:]), mish(every)[1:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["silu", "softplus", "elu", "celu", "glu"])
def test_what_is_tested_is_rounded_as_double_is_wherever_a_tensor_lies(
    name: str, dtype: torch.dtype
) -> None:
    """All of them with an incoming gradient of 1, and nearly all with others."""
    module = generated(name)
    params = {"softplus": (0.1, 20.0), "elu": (0.3,), "celu": (1.7,)}.get(name, ())
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16, device="cuda").view(dtype)
    x = every[every.isfinite() & (every.abs() > 2.0**-60) & (every.abs() < 60)]
    x = x[: len(x) // 512 * 512].repeat(40)
    inputs = [torch.full_like(x, 1.7), x][-module.INPUTS :]
    generator = torch.Generator("cuda").manual_seed(6)
    others = torch.randn(len(x), device="cuda", generator=generator).to(dtype)
    for grad in (torch.ones_like(x), others):
        exact = module.KERNELS.backward(grad.double(), *(t.double() for t in inputs), *params)
        found = module.KERNELS.backward(grad, *inputs, *params)
        exact, found = ((t,) if isinstance(t, Tensor) else t for t in (exact, found))
        theirs = module.KERNELS.eager_gradient(grad, *inputs, *params)
        for slope, real, eager in zip(found, (nearest(t, dtype) for t in exact), theirs, strict=True):
            assert ulps(slope, real) <= 1
            wrong = int((slope != real).sum())
            assert wrong <= max(int((eager != real).sum()), 1e-5 * len(x))
            assert wrong == 0 or name == "glu" or grad[0] != 1
    y = module.KERNELS.forward(*inputs, *params)
    real = nearest(module.KERNELS.forward(*(t.double() for t in inputs), *params), dtype)
    assert int((y != real).sum()) <= (1e-4 * len(x) if name in ("glu", "softplus") else 0)
    turned = [t.view(-1, 512).t() for t in inputs]
    assert torch.equal(module.KERNELS.forward(*turned, *params).t().reshape(-1), y)
    assert torch.equal(module.KERNELS.forward(*(t[3:] for t in inputs), *params), y[3:])
    over = inputs[-1].clone()
    module.KERNELS.forward_out(*inputs[:-1], over, *params, over)
    assert torch.equal(over, y)


def test_a_polynomial_does_not_depend_on_where_a_tensor_lies() -> None:
    module = generated("mish_mish")
    assert_same_in_any_layout(module, "mish_mish", torch.randn(1001, 997, device="cuda").mul_(4))


FIRST_USED = {torch.bfloat16: 2**-8, torch.float32: 2**-21}  # and how near that is to the real value


@pytest.mark.parametrize("dtype", FIRST_USED)
def test_what_is_first_used_in_a_graph_is_filled_there(tmp_path: Path, dtype: torch.dtype) -> None:
    module = compiled(tmp_path, "first_in_graph", "chain: [mish, mish, tanh]")
    x = torch.randn(100_003, device="cuda", dtype=dtype) * 4
    graph, y = in_a_graph(module, x)
    exact = torch.tanh(F.mish(F.mish(x.double())))
    torch.testing.assert_close(y.double(), exact, rtol=FIRST_USED[dtype], atol=1e-38)
    captured = y.clone()
    assert_same(module.KERNELS.forward(x), captured, x)
    x.copy_(x.flip(0))
    graph.replay()
    torch.cuda.synchronize()
    assert_same(y, captured.flip(0), x)


@pytest.mark.parametrize("dtype", FIRST_USED)
def test_streams_that_need_something_filled_first_all_find_it_so(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    module = compiled(tmp_path, "first_on_streams", "chain: [mish, mish, sigmoid]")
    x = torch.randn(2**20, device="cuda", dtype=dtype) * 4
    module.KERNELS.forward(x.double())
    streams, results = [CUDA.Stream() for _ in range(4)], []
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            results.append(module.KERNELS.forward(x))
    torch.cuda.synchronize()
    exact = torch.sigmoid(F.mish(F.mish(x.double())))
    torch.testing.assert_close(results[0].double(), exact, rtol=FIRST_USED[dtype], atol=2**-25)
    for result in results[1:]:
        assert_same(result, results[0], x)


@pytest.mark.parametrize("name", ["hardswish", "tanh", "swiglu", "elu", "mish_mish"])
def test_a_graph_captures_forward_and_backward(name: str) -> None:
    """Also what writes in place and into a given tensor."""
    shape = (LIBRARY[name].inputs, 100_003)
    source = torch.randn(shape, device="cuda")
    leaves = [row.clone().requires_grad_() for row in source]
    grad = torch.randn(100_003, device="cuda")
    out = torch.empty_like(grad)
    side = CUDA.Stream()
    side.wait_stream(CUDA.current_stream())
    with torch.cuda.stream(side):
        torch.autograd.grad(kernel(name)(*leaves), leaves, grad)
    CUDA.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = kernel(name)(*leaves)
        captured = torch.autograd.grad(y, leaves, grad)
        if LIBRARY[name].inputs == 1:
            with torch.no_grad():
                kernel(name)(leaves[0], out=out)
                kernel(name)(out, inplace=True)
    for _ in range(3):
        with torch.no_grad():
            for leaf in leaves:
                leaf.copy_(torch.randn_like(leaf) * 4)
            grad.copy_(torch.randn_like(grad))
        graph.replay()
        torch.cuda.synchronize()
        fresh = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        again = kernel(name)(*fresh)
        assert_same(y.detach(), again.detach())
        for actual, wanted in zip(captured, torch.autograd.grad(again, fresh, grad), strict=True):
            assert_same(actual, wanted)
        if LIBRARY[name].inputs == 1:
            assert_same(out, kernel(name)(again.detach()))


def test_it_runs_on_the_device_of_its_tensor() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x = torch.randn(1000, device="cuda:1", requires_grad=True)
    with torch.cuda.device(0):
        y = kernel("hardtanh")(x)
        [gradient] = torch.autograd.grad(y.sum(), x)
        assert torch.cuda.current_device() == 0
    assert y.device == gradient.device == x.device
    assert_same(y.detach(), F.hardtanh(x.detach()), x.detach())
    assert_same(gradient, (x.detach().abs() < 1).float())
    with pytest.raises(RuntimeError, match="device"):
        kernel("swiglu")(x, torch.randn(1000, device="cuda:0"))
    with pytest.raises(RuntimeError, match="device"):
        kernel("hardtanh")(x.detach(), out=torch.empty(1000, device="cuda:0"))
    with torch.cuda.device(1):
        side = CUDA.Stream()
    with torch.cuda.stream(side):
        CUDA._sleep(50_000_000)
        late = torch.full((1000,), 0.25, device="cuda:1")
        with torch.cuda.device(0):
            z = kernel("hardtanh")(late)
    side.synchronize()
    assert bool((z == 0.25).all())


def test_an_exponential_is_finite_up_to_the_largest_float(tmp_path: Path) -> None:
    module = compiled(tmp_path, "power_test", "formula: exp(x)")
    x = torch.cat([torch.linspace(88, 88.8, 801), torch.linspace(-104, -87, 1701)]).cuda()
    assert ulps(module.power_test(x).cpu(), x.cpu().double().exp().float()) <= 1


def test_nothing_but_the_output_is_allocated() -> None:
    x = torch.randn(2**20, device="cuda")
    kernel("hardtanh")(x)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = kernel("hardtanh")(x)
    assert torch.cuda.max_memory_allocated() - before == y.nbytes


def peak(call: Callable[..., Tensor], *tensors: Tensor) -> int:
    """The most bytes that a forward and a backward held at once, beside their inputs."""
    leaves = [t.detach().requires_grad_() for t in tensors]

    def both() -> tuple[Tensor, ...]:
        y = call(*leaves)
        return torch.autograd.grad(y, leaves, torch.ones_like(y))

    both()
    gc.collect()  # tensors of earlier tests that are freed meanwhile would count as room
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    both()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.together
@pytest.mark.parametrize("name", LIBRARY)
def test_forward_and_backward_hold_no_more_than_eagers(name: str) -> None:
    tensors = [torch.randn(2**20, device="cuda") for _ in range(LIBRARY[name].inputs)]
    most = peak(kernel(name), *tensors)
    assert most <= peak(LIBRARY[name].eager, *tensors)
    assert most <= (2 + LIBRARY[name].inputs) * tensors[0].nbytes  # value, its gradient, the gradients
    if name == "relu_hardswish":  # a chain holds what one activation does
        assert most <= peak(kernel("hardswish"), *tensors)


@pytest.mark.parametrize("name", ["swiglu", "geglu", "glu", "reglu"])
def test_halves_of_one_tensor_are_not_copied(name: str) -> None:
    x = torch.randn(1024, 2048, device="cuda")

    def chunked(t: Tensor) -> Tensor:
        return LIBRARY[name].eager(*t.chunk(2, -1))

    most = peak(kernel(name), x)
    assert most <= peak(chunked, x)
    assert most <= 2 * x.nbytes  # two halves: the value and its gradient; and the gradient of x


def test_in_place_allocates_what_the_gradient_needs() -> None:
    x = torch.randn(2**20, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kernel("hardtanh")(x, inplace=True)
    assert torch.cuda.max_memory_allocated() == before
    y = x.clone().requires_grad_() * 1
    held = torch.cuda.memory_allocated()
    kernel("relu")(y, inplace=True)  # from the output, which is there
    assert torch.cuda.memory_allocated() == held


# Mistakes


def test_a_tensor_of_another_kind_is_refused() -> None:
    sentence = "hardsigmoid: expected float32, float16, bfloat16 or float64 tensors, all of one dtype"
    for dtype in (torch.int32, torch.uint8, torch.bool, torch.complex64):
        x = torch.ones(3, device="cuda").to(dtype)
        with pytest.raises(RuntimeError) as raised:
            generated("hardsigmoid").KERNELS.forward(x)
        assert str(raised.value) == sentence
        for call in (kernel("hardsigmoid"), F.hardsigmoid):
            with pytest.raises(NotImplementedError, match="not implemented for"):
                call(x)
    with pytest.raises(RuntimeError) as raised:
        kernel("hardsigmoid")(torch.eye(3, device="cuda").to_sparse())
    assert "Could not run 'aten::hardsigmoid'" in str(raised.value)  # as PyTorch says


def test_tensors_of_two_devices_are_refused() -> None:
    cuda, cpu = torch.ones(3, device="cuda"), torch.ones(3)
    for pair in ((cuda, cpu), (cpu, cuda)):
        with pytest.raises(RuntimeError, match="device"):
            kernel("swiglu")(*pair)
    with pytest.raises(RuntimeError, match="device"):
        kernel("hardtanh")(cuda, out=torch.zeros(3))
    with pytest.raises(RuntimeError, match="device"):
        kernel("hardtanh")(cpu, out=torch.zeros(3, device="cuda"))
    alone = torch.tensor(2.0)  # without dimensions it may lie on the CPU, as in PyTorch
    assert_same(kernel("swiglu")(cuda, alone), kernel("swiglu")(cuda, alone.cuda()))


def spoken(code: str, folder: Path, **more: str) -> str:
    """The output of a process that runs some Python."""
    env = os.environ | {"TORCH_EXTENSIONS_DIR": str(folder), "PYTHONPATH": str(ROOT)} | more
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_nvcc_that_fails_is_one_sentence_and_a_log(tmp_path: Path) -> None:
    binary = tmp_path / "cuda" / "bin" / "nvcc"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\necho broken toolkit\nexit 1\n", encoding="utf-8")
    binary.chmod(0o755)
    code = (
        "import torch; from generated.hardsigmoid import hardsigmoid\n"
        "try: hardsigmoid(torch.ones(3, device='cuda'))\n"
        "except RuntimeError as error: print(error, error.__suppress_context__)"
    )
    told = spoken(code, tmp_path / "builds", CUDA_HOME=str(tmp_path / "cuda"), PYTORCH_NVCC=str(binary))
    start = "hardsigmoid: the forward kernel did not compile for cuda; the compiler's output is in "
    assert told.startswith(start)
    assert len(told.splitlines()) == 1
    log = told[len(start) :].split()[0]
    assert "broken toolkit" in Path(log).read_text(encoding="utf-8")


def test_no_nvcc_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "import torch; from torch.utils import cpp_extension; cpp_extension.CUDA_HOME = None\n"
        "from generated.hardsigmoid import hardsigmoid\n"
        "try: hardsigmoid(torch.ones(3, device='cuda'))\n"
        "except RuntimeError as error: print(error)"
    )
    sentence = "hardsigmoid: no nvcc; install the CUDA toolkit or set CUDA_HOME\n"
    assert spoken(code, tmp_path) == sentence


# First use


def test_first_use_builds_one_kernel_a_device_and_a_second_process_none(tmp_path: Path) -> None:
    code = (
        "import torch; from generated.hardsigmoid import hardsigmoid\n"
        "for x in torch.ones(3), torch.ones(3, device='cuda'): print(hardsigmoid(x).tolist())\n"
    )
    answer = spoken(code, tmp_path)
    libraries = sorted(path.name for path in tmp_path.rglob("*.so"))
    assert [name.split("_")[1:2] + name.split("_")[3:5] for name in libraries] == [
        ["hardsigmoid", "forward", "cpu"], ["hardsigmoid", "forward", "cuda"],
    ]  # fmt: skip
    assert spoken(code, tmp_path, CXX="/none", PYTORCH_NVCC="/none") == answer
    assert sorted(path.name for path in tmp_path.rglob("*.so")) == libraries


def test_a_benchmark_runs_the_model_on_the_gpu() -> None:
    """As harnesses do: text executed, model built from its own arguments, timed by events, checked."""
    pytest.importorskip("jinja2")
    from fusegen.project import standalone

    text = standalone.text((ROOT / "generated" / "hardswish.py").read_text(encoding="utf-8"), "stable")
    space: dict[str, object] = {}
    exec(text, space)
    made, arguments = space["ModelNew"], space["get_init_inputs"]
    assert isinstance(made, type)
    assert callable(arguments)
    model = made(*arguments()).cuda()
    assert isinstance(model, nn.Module)
    x = torch.randn(4096, 1024, device="cuda")
    y = model(x)
    torch.cuda.synchronize()
    assert_same(y, F.hardswish(x), x)
