"""Gradients that a bit of each element decides: in emulation, without a GPU, and on one."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Workshop
from emulated import Emulated, Guarded, Kernel, emulated, run, width
from emulated import defined as defined
from kernels import DTYPES, NAMES, assert_same, by_class, by_module, function, generated, patterns, scalars
from torch import Tensor

from fusegen.core.ir import Call, Const, Let, Math, Ref
from fusegen.core.ir import Kernel as Formula
from fusegen.core.targets import Device
from fusegen.project import build
from fusegen.schedule.bitmask_gradient import LARGE, masked

MASKED = [name for name in NAMES if generated(name).KERNELS.sources.bitmask]
KINKS = (-3.0, 3.0, -2.5, 2.5, -1.0, 1.0, 6.0, -0.5, 0.5, 20.0)
EMULATED = ("relu", "leaky_relu", "hardtanh", "clamp_scale_clamp_divide")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.3, torch.inf, -torch.inf, torch.nan)
EXPANDED = "chain: [relu, 'x * 3', 'clamp(x, 1, 2)']\n"
CUDA: Any = torch.cuda  # which declares no types for streams
DUAL: Any = torch.autograd.forward_ad  # nor does this
GPP = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

X, GRAD, A = Ref("x"), Ref("grad"), Ref("a")
ZERO, ONE = Const(0.0), Const(1.0)
POSITIVE = Call("gt", (X, ZERO))


def where(condition: Call, value: Any, other: Any) -> Call:
    return Call("where", (condition, value, other))


def gradient(result: Any, *lets: Let) -> Formula:
    return Formula("f_backward", Device.CUDA, Math.FLOAT, ("grad", "x"), ("a",), lets, (result,))


def test_what_a_gradient_does_by_a_bit() -> None:
    assert MASKED == [
        "clamp_scale_clamp_divide", "hardshrink", "hardsigmoid", "hardsigmoid_keras", "hardtanh",
        "leaky_relu", "relu", "relu6", "rrelu", "softshrink", "threshold",
    ]  # fmt: skip


def test_a_gradient_falls_in_two() -> None:
    scaled = Let("scaled", Call("mul", (GRAD, A)))
    inner = Let("inner", where(Call("lt", (X, A)), Ref("scaled"), ZERO))
    found = masked(gradient(where(POSITIVE, Ref("inner"), ZERO), scaled, inner))
    assert found is not None
    bit, taken = found
    assert (bit.name, bit.inputs, bit.params, bit.lets) == ("f_mask", ("x",), ("a",), ())
    assert bit.results == (where(POSITIVE, where(Call("lt", (X, A)), ONE, ZERO), ZERO),)
    assert (taken.name, taken.inputs, taken.lets) == ("f_backward_masked", ("grad", "mask"), (scaled,))
    assert taken.results == (where(Call("gt", (Ref("mask"), ZERO)), Ref("scaled"), ZERO),)


HALF = Call("mul", (GRAD, Const(0.5)))
UNLIKE = {
    "three multiples": where(POSITIVE, GRAD, where(Call("lt", (X, A)), HALF, ZERO)),
    "one multiple": HALF,
    "a multiple that reads the element": where(POSITIVE, Call("mul", (GRAD, X)), ZERO),
    "a condition on what comes in": where(Call("gt", (GRAD, ZERO)), GRAD, ZERO),
    "a product with the choice": Call("mul", (GRAD, where(POSITIVE, ONE, ZERO))),
}


@pytest.mark.parametrize("result", UNLIKE.values(), ids=UNLIKE)
def test_what_a_bit_does_not_decide(result: Any) -> None:
    assert masked(gradient(result)) is None


def test_a_name_of_the_spec_is_no_mask() -> None:
    taken = replace(gradient(where(POSITIVE, GRAD, Call("mul", (GRAD, Ref("mask"))))), params=("mask",))
    assert masked(taken) is None


@pytest.mark.parametrize(
    "body",
    [
        "formula: x * clamp(x, 0, 1)",  # the gradient reads x
        "inputs: {x: {}, y: {}}\nformula: relu(x) + y",  # two tensors
        "chain: [relu, sigmoid]",
    ],
)
def test_other_modules_have_no_mask(body: str, workshop: Workshop) -> None:
    assert "bitmask" not in build.module(build.compiled_file(workshop.spec("other", body)))


def test_a_chain_may_have_one(workshop: Workshop) -> None:
    text = build.module(build.compiled_file(workshop.spec("expanded", EXPANDED)))
    assert "FUSEGEN_BITMASK_KERNELS(expanded" in text


# In emulation


@pytest.fixture(scope="module")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Emulated]:
    """A function from the name of a committed module to its emulation, compiled once."""
    folder = tmp_path_factory.mktemp("masked")
    return cache(lambda name: emulated(generated(name), name, folder, len(scalars(name)[0])))


def with_mask(kernel: Kernel, launch: Any, mask: Guarded) -> Kernel:
    """A kernel that is launched with a mask."""
    return replace(kernel, launch=lambda call: launch(call, mask.values.data_ptr()))


@pytest.mark.few(1)
@pytest.mark.together
@GPP
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", by_class(EMULATED))
@pytest.mark.parametrize("vectors", [1, 129])
def test_the_gradient_is_what_it_is_without_a_mask(
    name: str, dtype: torch.dtype, vectors: int, emulate: Callable[[str], Emulated]
) -> None:
    """And the element is not read again: NaN stands in its place."""
    both = emulate(name)
    keep, take = both.masked
    every = patterns(dtype, 2**14, KINKS)
    torch.manual_seed(vectors)
    x = every[torch.randint(len(every), (vectors * width(dtype),))]
    special = torch.tensor(SPECIAL, dtype=dtype)
    grad = special[torch.randint(len(special), x.shape)]
    mask = Guarded(vectors, torch.uint8)
    for params in scalars(name):
        [y] = run(with_mask(both.forward, keep, mask), x, params=params)
        assert_same(y, run(both.forward, x, params=params)[0], x)
        saved = y if generated(name).OPERATORS.__name__.startswith("fusegen_relu_") else x
        unread = torch.full_like(x, torch.nan)
        [given] = run(with_mask(both.backward, take, mask), grad, unread, params=params)
        assert_same(given, run(both.backward, grad, saved, params=params)[0], grad, x)
        mask.check()


# On the CPU, which keeps no mask


@pytest.mark.full
@pytest.mark.parametrize("name", ["relu", "hardtanh"])
def test_the_operators_keep_no_mask_on_the_cpu(name: str, extensions: Path) -> None:
    module, [params, *_] = generated(name), scalars(name)
    x = torch.randn(64)
    y, mask = module.KERNELS.forward_masked(x, *params)
    assert_same(y, module.KERNELS.forward(x, *params), x)
    assert mask.numel() == 0
    saved, grad = y if name == "relu" else x, torch.randn(64)
    ours = module.KERNELS.backward_masked(grad, saved, *params, mask)
    assert_same(ours, module.KERNELS.backward(grad, saved, *params), grad, x)


@pytest.mark.full
@pytest.mark.parametrize("name", by_module(["relu6", "leaky_relu", "hardtanh"]))
def test_in_place_a_tensor_may_be_written_over_again(name: str, extensions: Path) -> None:
    """As in eager, which saves a copy; and what autograd does with a gradient is what it does with any."""
    module, [params, *_] = generated(name), scalars(name)
    leaf = torch.randn(64, requires_grad=True)
    tensor = leaf * 1
    y = module.KERNELS.in_place_with_bitmask.apply(tensor, tensor[:0].clone(), *params)
    y.mul_(1)
    grads = torch.randn(3, 64)
    expected = torch.stack([module.KERNELS.backward(grad, leaf.detach(), *params) for grad in grads])
    [one] = torch.autograd.grad(y, leaf, grads[0], retain_graph=True)
    assert_same(one, expected[0], leaf)
    for batched in (
        torch.autograd.grad(y, leaf, grads, retain_graph=True, is_grads_batched=True),
        torch.func.vmap(lambda g: torch.autograd.grad(y, leaf, g, retain_graph=True))(grads),
    ):
        assert_same(batched[0], expected)
    grad = grads[0].clone().requires_grad_()
    [first] = torch.autograd.grad(y, leaf, grad, create_graph=True)
    by_grad, by_x = torch.autograd.grad(first, (grad, leaf), grads[1], retain_graph=True)
    assert_same(by_grad, expected[1], leaf)
    assert_same(by_x, torch.zeros(64))
    with DUAL.dual_level():
        dual = DUAL.make_dual(grads[0], grads[2])
        [given] = torch.autograd.grad(y, leaf, dual, retain_graph=True)
        assert_same(DUAL.unpack_dual(given).tangent, expected[2], leaf)


# On a GPU


def behind(y: Tensor) -> str:
    """The name of autograd's node that gave a tensor."""
    assert y.grad_fn is not None
    return y.grad_fn.name()


def both_gradients(name: str, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Through autograd, as large tensors have it, and without a mask."""
    module, [params, *_] = generated(name), scalars(name)
    leaf = x.detach().requires_grad_()
    y = function(name)(leaf)
    assert (behind(y) == "BitmaskForwardBackward") == (x.numel() >= LARGE)
    [ours] = torch.autograd.grad(y, leaf, grad)
    saved = y.detach() if name == "relu" else x
    return ours, module.KERNELS.backward(grad, saved, *params)


@pytest.mark.together
@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", by_module(MASKED))
def test_a_large_gradient_is_what_it_is_without_a_mask_on_a_gpu(
    name: str, dtype: torch.dtype, extensions: Path
) -> None:
    every = patterns(dtype, LARGE, KINKS, "cuda")
    x = every[: len(every) // 16 * 16]
    special = torch.tensor(SPECIAL, dtype=dtype, device="cuda")
    grad = special[torch.randint(len(special), x.shape, device="cuda")]
    assert_same(*both_gradients(name, x, grad), grad, x)


LAID: dict[str, Callable[[Tensor], Tensor]] = {
    "not in whole vectors": lambda x: x[: LARGE + 1],
    "unaligned": lambda x: x[1:],
    "transposed": lambda x: x[: 2**24].view(2**10, 2**14).t(),
    "every other": lambda x: x[::2],
    "channels last": lambda x: x[: 2**24].view(2**5, 2**10, 2**9).transpose(1, 2),
    "overlapping": lambda x: x[: LARGE // 2].expand(2, -1),
}


@pytest.mark.together
@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("kind", LAID)
@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_tensors_of_any_layout_have_their_gradient_on_a_gpu(kind: str, name: str, extensions: Path) -> None:
    x = LAID[kind](torch.randn(2**24 + 4, device="cuda"))
    for grad in (torch.randn(x.shape, device="cuda"), torch.ones(1, device="cuda").expand_as(x)):
        assert_same(*both_gradients(name, x, grad), grad, x)
    across = torch.randn(x.shape[::-1], device="cuda").permute(*reversed(range(x.dim())))
    assert_same(*both_gradients(name, x, across), across, x)


@pytest.mark.gpu
@GPU
def test_a_bit_of_each_element_is_what_is_kept_on_a_gpu(extensions: Path) -> None:
    module = generated("relu6")
    for dtype in DTYPES:
        x = torch.randn(LARGE, device="cuda").to(dtype)
        y, mask = module.KERNELS.forward_masked(x)
        assert mask.numel() == LARGE // width(dtype)
        bits = (mask[:, None] >> torch.arange(width(dtype), device="cuda")) & 1
        assert torch.equal(bits.flatten().bool(), (x > 0) & (x < 6))
        assert_same(y, module.KERNELS.forward(x), x)


@pytest.mark.gpu
@GPU
def test_a_mask_of_another_stream_on_a_gpu(extensions: Path) -> None:
    x = torch.randn(LARGE, device="cuda", requires_grad=True)
    grad = torch.randn(LARGE, device="cuda")
    stream = CUDA.Stream()
    stream.wait_stream(CUDA.current_stream())
    with CUDA.stream(stream):
        y = function("relu")(x)
    CUDA.current_stream().wait_stream(stream)
    [given] = torch.autograd.grad(y, x, grad)
    assert_same(given, torch.where(x > 0, grad, 0), x)


@pytest.mark.gpu
@GPU
def test_a_mask_in_a_graph_on_a_gpu(extensions: Path) -> None:
    x = torch.randn(LARGE, device="cuda", requires_grad=True)
    grad = torch.randn(LARGE, device="cuda")
    both_gradients("relu", x, grad)  # builds them
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        [captured] = torch.autograd.grad(function("relu")(x), x, grad)
    with torch.no_grad():
        x.neg_()
    graph.replay()
    assert_same(captured, torch.where(x > 0, grad, 0), x)


@pytest.mark.gpu
@GPU
def test_second_derivatives_beside_a_mask_on_a_gpu(extensions: Path) -> None:
    x = torch.randn(LARGE, device="cuda", requires_grad=True)
    grad = torch.randn(LARGE, device="cuda", requires_grad=True)
    [first] = torch.autograd.grad(function("relu6")(x), x, grad, create_graph=True)
    by_grad, by_x = torch.autograd.grad(first.sum(), (grad, x))
    assert torch.equal(by_grad, ((x > 0) & (x < 6)).float())
    assert not by_x.any()


IN_PLACE = ("relu", "relu6", "leaky_relu", "hardtanh", "threshold")


@pytest.mark.together
@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_the_mask_is_all_that_is_kept_on_a_gpu(
    name: str, dtype: torch.dtype, extensions: Path
) -> None:
    """Of what was there before; whatever layout the incoming gradient has, and differentiated again."""
    module, [params, *_] = generated(name), scalars(name)
    every = patterns(dtype, LARGE, KINKS, "cuda")
    x = every[: len(every) // 2**10 * 2**10].view(-1, 2**10)
    grads = {
        "alike": torch.randn_like(x, dtype=torch.float32).to(dtype),
        "expanded": torch.ones(1, dtype=dtype, device="cuda").expand_as(x),
        "transposed": torch.ones(2**10, len(x), dtype=dtype, device="cuda").cumsum(0).t(),
        "unaligned": torch.ones(x.numel() + 1, dtype=dtype, device="cuda")[1:].view_as(x),
    }
    leaf = x.clone().requires_grad_()
    before = torch.cuda.memory_allocated()
    y = function(name)(leaf * 1, inplace=True)
    assert behind(y) == "BitmaskInPlaceBackward"
    assert torch.cuda.memory_allocated() - before <= 1.25 * y.nbytes
    assert_same(y.detach(), module.KERNELS.forward(x, *params), x)
    saved = y.detach() if name == "relu" else x
    for grad in grads.values():
        [given] = torch.autograd.grad(y, leaf, grad, retain_graph=True)
        assert_same(given, module.KERNELS.backward(grad, saved, *params), grad, x)
    grad = grads["alike"].requires_grad_()
    [first] = torch.autograd.grad(y, leaf, grad, create_graph=True)
    by_grad, by_x = torch.autograd.grad(first, (grad, leaf), grads["transposed"])
    assert_same(by_grad, module.KERNELS.backward(grads["transposed"], saved, *params), x)
    assert not by_x.any()


@pytest.mark.gpu
@GPU
def test_gradients_of_a_batch_in_place_on_a_gpu(extensions: Path) -> None:
    leaf = torch.randn(LARGE, device="cuda", requires_grad=True)
    y = function("leaky_relu")(leaf * 1, inplace=True)
    grads = torch.randn(3, LARGE, device="cuda")
    [given] = torch.autograd.grad(y, leaf, grads, retain_graph=True, is_grads_batched=True)
    assert_same(given, torch.where(leaf > 0, grads, grads * 0.01))
    [again] = torch.func.vmap(lambda grad: torch.autograd.grad(y, leaf, grad))(grads)
    assert_same(again, given)


def nodes(node: Any) -> set[str]:
    """The names of all there is behind a node of autograd's."""
    return {node.name()}.union(*(nodes(other) for other, _ in node.next_functions if other))


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize(
    "laid",
    [
        lambda x: x[::2],
        lambda x: x[1:],
        lambda x: x[: LARGE + 1],
        lambda x: x[: 4 * LARGE].view(2**12, -1).t(),
    ],
    ids=["every other", "unaligned", "not in whole vectors", "transposed"],
)
def test_what_no_mask_goes_with_is_copied_in_place_on_a_gpu(
    laid: Callable[[Tensor], Tensor], extensions: Path
) -> None:
    whole = torch.randn(4 * LARGE + 4, device="cuda")
    x, leaf = laid(whole), torch.zeros(1, device="cuda", requires_grad=True)
    y = function("relu6")(laid(whole + leaf), inplace=True)
    assert "BitmaskInPlaceBackward" not in nodes(y.grad_fn)
    [given] = torch.autograd.grad(y, leaf, torch.ones_like(y))
    assert given.item() == ((x > 0) & (x < 6)).sum().item()


@pytest.mark.gpu
@GPU
def test_a_tensor_that_changed_is_told_of_on_a_gpu(extensions: Path) -> None:
    x = torch.randn(LARGE, device="cuda")
    y = function("relu6")(x.requires_grad_())
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), x)
