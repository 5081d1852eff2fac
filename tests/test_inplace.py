"""Writing over an input and into a given tensor: values, autograd's bookkeeping, and every refusal."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import (
    CLASSES,
    DEVICES,
    DTYPES,
    LAYOUTS,
    LIBRARY,
    arranged,
    assert_same,
    by_module,
    function,
    generated,
    patterns,
    scalars,
    smooth,
)
from torch import Tensor

Call = Callable[..., Tensor]


def takes(word: str) -> list[str]:
    return [name for name in LIBRARY if word in inspect.signature(function(name)).parameters]


INPLACE, OUT = takes("inplace"), takes("out")
INPLACE_CLASSES, OUT_CLASSES = ([name for name in CLASSES if name in of] for of in (INPLACE, OUT))
EAGERS: dict[str, Call] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "leaky_relu": F.leaky_relu,
    "rrelu": F.rrelu,
    "threshold": lambda x, inplace: F.threshold(x, 0.0, 0.0, inplace=inplace),
}


def test_what_pytorch_writes_in_place_so_do_we() -> None:
    assert set(EAGERS) <= set(INPLACE)
    assert set(INPLACE) <= set(OUT) | {n for n in LIBRARY if LIBRARY[n].inputs > 1}


# Values


@pytest.mark.few(5)
@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(INPLACE))
def test_in_place_writes_what_the_function_gives(name: str, device: str) -> None:
    for dtype in DTYPES:
        x = patterns(dtype, 2**12, LIBRARY[name].kinks, device)
        expected, kept = function(name)(x), x.clone()
        version = kept._version
        assert function(name)(kept, inplace=True) is kept
        assert_same(kept, expected, x)
        assert kept._version == version + 1
        written = x.clone()
        assert generated(name).ModelNew(inplace=True)(written) is written
        assert_same(written, expected, x)


@pytest.mark.few(5)
@pytest.mark.together
@pytest.mark.parametrize("name", ["hardswish", "relu"])
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "expanded"])
def test_in_place_of_any_layout(name: str, layout: str) -> None:
    for dtype in DTYPES:
        x = arranged(layout, dtype)
        expected = function(name)(x)
        base = x if x._base is None else x._base
        before, strides = base.clone(), x.stride()
        untouched = torch.ones_like(base, dtype=torch.bool)
        untouched.as_strided(x.shape, x.stride(), x.storage_offset()).fill_(False)
        function(name)(x, inplace=True)
        assert_same(x, expected)
        assert x.stride() == strides
        if base.is_contiguous():
            assert_same(base[untouched], before[untouched])  # the rest of the storage stays


@pytest.mark.few(3)
@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(OUT))
def test_out_is_written_and_returned(name: str, device: str) -> None:
    for dtype in DTYPES:
        tensors = smooth(name, 6, 7, device=device, dtype=dtype)
        expected = function(name)(*tensors)
        for out in (
            torch.empty(6, 7, device=device, dtype=dtype),
            torch.empty(7, 6, device=device, dtype=dtype).t(),
            torch.empty(6, 14, device=device, dtype=dtype)[:, ::2],
            torch.empty(0, device=device, dtype=dtype),
        ):
            version = out._version
            strides = out.stride() if out.numel() else None
            assert function(name)(*tensors, out=out) is out
            assert_same(out, expected)
            assert out._version > version
            assert strides is None or out.stride() == strides
        same = tensors[0].clone()
        function(name)(same, *tensors[1:], out=same)  # over the input itself
        assert_same(same, expected)


# Gradients


@pytest.mark.few(5)
@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(INPLACE))
def test_the_gradient_of_in_place_is_the_functions(name: str, device: str) -> None:
    """Against the function out of place, and against PyTorch's in place; other steps before and after."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        [x] = smooth(name, 5, 8, device=device, dtype=dtype)

        def steps(call: Callable[[Tensor], Tensor], x: Tensor = x) -> tuple[Tensor, Tensor]:
            leaf = x.clone().requires_grad_()
            value = call(leaf * 1.5) * 2
            [gradient] = torch.autograd.grad(value.sum(), leaf)
            return value.detach(), gradient

        ours = steps(lambda t: function(name)(t, inplace=True))
        plain = steps(lambda t: function(name)(t))
        for actual, expected in zip(ours, plain, strict=True):
            assert_same(actual, expected)
        if name in EAGERS:
            theirs = steps(lambda t: EAGERS[name](t, inplace=True))
            room = 16 * torch.finfo(dtype).eps
            if name in ("hardsigmoid", "hardswish"):  # eager's 1/6 has a float's digits
                room = max(room, 1e-7)
            for actual, expected in zip(ours, theirs, strict=True):
                torch.testing.assert_close(actual, expected, rtol=room, atol=room)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", by_module(["hardswish", "relu", "relu6", "tanh", "elu"]))
def test_in_place_on_a_view_reaches_its_base(name: str) -> None:
    [x] = smooth(name, 4, 6)
    call = function(name)

    def steps(act: Callable[[Tensor], Any]) -> Tensor:
        leaf = x.clone().requires_grad_()
        base = leaf * 1.5
        act(base[:, ::2])
        [gradient] = torch.autograd.grad((base * base).sum(), leaf)
        return gradient

    ours = steps(lambda t: call(t, inplace=True))
    theirs = steps(lambda t: t.copy_(call(t.clone())))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", INPLACE_CLASSES)
def test_a_second_derivative_through_in_place(name: str) -> None:
    if name == "hardsigmoid":
        pytest.skip("PyTorch has no second derivative of it; test_library.py asks for ours")
    [x] = smooth(name, 5)
    results = []
    for inplace in (True, False):
        leaf = x.clone().requires_grad_()
        [first] = torch.autograd.grad(
            function(name)(leaf * 1.5, inplace=inplace).square().sum(), leaf, create_graph=True
        )
        results.append(torch.autograd.grad(first.square().sum(), leaf)[0])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", INPLACE_CLASSES)
def test_autograd_notices_a_saved_tensor_that_changed(name: str) -> None:
    """By us: what another step saved. By another step: what we saved."""
    message = "modified by an inplace operation"
    leaf = torch.randn(5, requires_grad=True)
    x = leaf * 2
    y = x.exp()  # saves its result
    function(name)(y, inplace=True)
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.backward(y.sum())
    x = leaf * 2
    y = x.sin()  # saves its input
    function(name)(x, inplace=True)
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.backward(y.sum())
    x = leaf * 2
    y = function(name)(x)
    with torch.no_grad():
        x.mul_(3)
        y.mul_(3)
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.backward(y.sum())
    x = leaf * 2
    out = x.sin()
    function(name)(torch.randn(5), out=x.detach())
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.backward(out.sum())


# Refusals: before anything is written


def refused(call: Call, *watched: Tensor, match: str | None, error: type[Exception] = RuntimeError) -> None:
    """The call fails in such words, and no watched tensor has changed, nor its version."""
    before = [(t.detach().clone(), t._version) for t in watched]
    with pytest.raises(error, match=match):
        call()
    for t, (values, version) in zip(watched, before, strict=True):
        assert torch.equal(t.detach(), values)
        assert t._version == version


@pytest.mark.parametrize("name", INPLACE_CLASSES)
def test_a_leaf_and_its_views_are_not_written_over(name: str) -> None:
    leaf = torch.randn(6, requires_grad=True)
    message = "a leaf that requires a gradient cannot be written over|leaf Variable"
    for x in (leaf, leaf.view(2, 3), leaf[::2]):
        refused(lambda x=x: function(name)(x, inplace=True), leaf, match=message)
        if name in EAGERS:
            refused(lambda x=x: EAGERS[name](x, inplace=True), leaf, match="leaf Variable")
    with torch.no_grad():
        expected = function(name)(leaf)
        assert function(name)(leaf, inplace=True) is leaf
    assert_same(leaf.detach(), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", INPLACE_CLASSES)
def test_elements_that_share_their_place_are_not_written(name: str, device: str) -> None:
    shared = torch.randn(1, 5, device=device)
    message = "share their memory|single memory location"
    refused(lambda: function(name)(shared.expand(4, 5), inplace=True), shared, match=message)
    refused(
        lambda: function(name)(torch.zeros(4, 5, device=device), out=shared.expand(4, 5)),
        shared,
        match=message,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OUT_CLASSES)
def test_an_output_that_overlaps_an_input_in_part_is_refused(name: str, device: str) -> None:
    x = torch.randn(20, device=device)
    others = [torch.randn(12, device=device) for _ in range(LIBRARY[name].inputs - 1)]
    message = "share their memory|overlap"
    for first, out in ((x[:12], x[1:13]), (x[1:13], x[:12]), (x[:12].flip(0)[:12], x[:12])):
        if first.data_ptr() < x.data_ptr() or first.data_ptr() >= x.data_ptr() + x.nbytes:
            continue
        refused(lambda a=first, o=out: function(name)(a, *others, out=o), x, match=message)
    square = torch.randn(4, 4, device=device)
    more = [torch.randn(4, 4, device=device) for _ in others]
    refused(lambda: function(name)(square, *more, out=square.t()), square, match=message)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OUT_CLASSES)
def test_an_output_of_another_kind_is_refused(name: str, device: str) -> None:
    tensors = smooth(name, 4, 5, device=device, dtype=torch.float32)
    call = function(name)
    for out, message in (
        (torch.zeros(5, 4, device=device), "shape"),
        (torch.zeros(4, 5, 1, device=device), "shape"),
        (torch.zeros(4, 1, device=device), "shape"),
        (torch.zeros(4, 5, device=device, dtype=torch.float64), "out is torch.float64|dtype"),
        (torch.zeros(4, 5, device=device, dtype=torch.float16), "out is torch.float16|dtype"),
        (torch.zeros(4, 5, device=device, dtype=torch.int64), "out is torch.int64|dtype"),
    ):
        refused(lambda o=out: call(*tensors, out=o), out, match=message)
    out = torch.zeros(4, 5, device=device)
    graded = [t.clone().requires_grad_() for t in tensors]
    refused(
        lambda: call(*graded, out=out), out, match="no gradient|don't support automatic differentiation"
    )
    leaf = torch.zeros(4, 5, device=device, requires_grad=True)
    refused(lambda: call(*tensors, out=leaf), leaf, match="no gradient|don't support automatic")
    with torch.no_grad():
        assert_same(call(*graded, out=out), call(*tensors))
        assert_same(call(*tensors, out=leaf).detach(), call(*tensors))


@pytest.mark.parametrize("name", ["hardswish", "elu"])
def test_an_output_on_another_device_is_refused(name: str) -> None:
    tensors = smooth(name, 4, 5, dtype=torch.float32)
    meta = torch.zeros(4, 5, device="meta")
    for given, out in ((tensors, meta), ([t.to("meta") for t in tensors], torch.zeros(4, 5))):
        with pytest.raises(RuntimeError, match="device"):
            function(name)(*given, out=out)


@pytest.mark.parametrize("name", ["hardswish", "elu"])
def test_an_output_of_another_kind_is_refused_without_elements_too(name: str) -> None:
    """Of meta tensors, by which a compiler finds mistakes before anything runs."""
    tensors = smooth(name, 4, 5, device="meta", dtype=torch.float32)
    for out in (torch.empty(5, 4, device="meta"), torch.empty(4, 5, device="meta", dtype=torch.float64)):
        with pytest.raises(RuntimeError, match=r"shape|dtype|out is"):
            function(name)(*tensors, out=out)


@pytest.mark.parametrize("name", by_module(sorted(EAGERS)))
def test_in_place_on_integers_is_eagers(name: str) -> None:
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        x = torch.tensor([0, 1, 2, 7]).to(dtype)
        ours, theirs = x.clone(), x.clone()
        try:
            EAGERS[name](theirs, inplace=True)
        except Exception as error:
            refused(lambda x=ours: function(name)(x, inplace=True), ours, match=None, error=Exception)
            with pytest.raises(type(error)):
                function(name)(ours, inplace=True)
            continue
        function(name)(ours, inplace=True)
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "name", by_module(["leaky_relu", "elu", "celu", "rrelu", "hardshrink", "threshold"])
)
def test_in_place_takes_any_parameters(name: str) -> None:
    for given in scalars(name):
        [x] = smooth(name, 50, dtype=torch.float32)
        expected = function(name)(x, *given)
        assert_same(function(name)(x.clone(), *given, inplace=True), expected)


def test_negative_slopes_in_place_save_what_the_gradient_needs() -> None:
    """Eager refuses them, because it saves the output; ours saves a copy of the input."""
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    y = generated("leaky_relu").leaky_relu(x * 1.0, -0.5, inplace=True)
    torch.autograd.backward(y.sum())
    assert x.grad is not None
    assert x.grad.tolist() == [-0.5, 1.0]
    assert not math.isnan(y.sum().item())
