"""Tensors that no kernel takes as they are: lazy views, layouts, inference tensors, other devices."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import assert_same, function
from processes import told
from torch import Tensor

Call = Callable[..., Any]
EAGER: dict[str, Call] = {"relu": F.relu, "silu": F.silu, "hardtanh": F.hardtanh}


# Views that PyTorch computes when they are read


def negated(name: str) -> tuple[Tensor, Tensor]:
    """A view of negated numbers, and what it is a view of."""
    if name == "the imaginary part of a conjugate":
        base = torch.tensor([1 + 2j, 3 - 4j, -1 - 0.5j])
        return base.conj().imag, base
    base = torch.tensor([1.0, -2.0, 0.5])
    return torch._neg_view(base), base


NEGATED = ("the imaginary part of a conjugate", "a negation")


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize("view", NEGATED)
def test_a_negated_view(view: str, name: str) -> None:
    (ours, base), (theirs, other) = negated(view), negated(view)
    call, eager = function(name), EAGER[name]
    torch.testing.assert_close(call(ours), eager(theirs))
    assert call(ours, inplace=True) is ours
    eager(theirs, inplace=True)
    torch.testing.assert_close(base, other)
    written, base = negated(view)
    call(torch.arange(-1.0, 2.0), out=written)
    torch.testing.assert_close(written.resolve_neg(), eager(torch.arange(-1.0, 2.0)))
    leaf = torch.randn(3, requires_grad=True)
    [gradient] = torch.autograd.grad(call(leaf), leaf, negated(view)[0])
    [expected] = torch.autograd.grad(eager(leaf), leaf, negated(view)[0])
    torch.testing.assert_close(gradient, expected)


def test_a_gate_splits_a_negated_view() -> None:
    x, grad = torch.randn(2, 6), torch.randn(2, 3)
    leaf = torch._neg_view(x).requires_grad_()
    plain = (-x).requires_grad_()
    [actual] = torch.autograd.grad(function("swiglu")(leaf), leaf, torch._neg_view(grad))
    [expected] = torch.autograd.grad(function("swiglu")(plain), plain, -grad)
    assert_same(actual.resolve_neg(), expected)


def test_a_conjugated_view_in_place() -> None:
    ours, theirs = (torch.tensor([1 + 2j, 3 - 4j]) for _ in range(2))
    function("silu")(ours.conj(), inplace=True)
    F.silu(theirs.conj(), inplace=True)
    torch.testing.assert_close(ours, theirs)


# Layouts, as eager takes or refuses them

DENSE = torch.tensor([[1.0, -2.0], [0.0, 3.0]])
LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "nested": lambda: torch.nested.nested_tensor([DENSE[0], DENSE[1, :1]]),
    "sparse": lambda: DENSE.to_sparse(),
    "compressed": lambda: DENSE.to_sparse_csr(),
    "mkldnn": lambda: DENSE.to_mkldnn(),
}


def outcome(call: Call, x: Tensor) -> Any:
    """The values that a call gives, or the class of what it raises."""
    try:
        y = call(x)
    except (RuntimeError, NotImplementedError) as error:
        return type(error)
    return [t.tolist() for t in y.unbind()] if y.is_nested else y.to_dense().tolist()


@pytest.mark.together
@pytest.mark.filterwarnings("ignore:.*(nested tensors|Sparse CSR|sparse csr|Sparse invariant).*")
@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_taken_or_refused_as_eager_does(layout: str, name: str) -> None:
    call, eager = function(name), EAGER[name]
    expected = outcome(eager, LAYOUTS[layout]())
    assert outcome(call, LAYOUTS[layout]()) == expected
    x = LAYOUTS[layout]()
    assert outcome(lambda t: call(t, inplace=True), x) == expected
    if isinstance(expected, list):
        assert outcome(lambda t: t, x) == expected


@pytest.mark.filterwarnings("ignore:.*nested tensors.*")
def test_nested_tensors_have_gradients() -> None:
    for name, eager in (("relu", F.relu), ("swiglu", lambda a: F.silu(a) * a)):
        call = function(name) if name == "relu" else lambda a: function("swiglu")(a, a)
        leaf = LAYOUTS["nested"]().requires_grad_()
        grads = [torch.autograd.grad(f(leaf), leaf, LAYOUTS["nested"]())[0] for f in (call, eager)]
        for actual, expected in zip(*(g.unbind() for g in grads), strict=True):
            torch.testing.assert_close(actual, expected)


# Inference tensors


@pytest.mark.parametrize("name", EAGER)
def test_an_inference_tensor_is_not_written_over_outside_inference_mode(name: str) -> None:
    with torch.inference_mode():
        x, out, other = torch.randn(3), torch.zeros(3), torch.randn(3)
    before, call = x.clone(), function(name)
    with pytest.raises(RuntimeError, match=r"^Inplace update to inference tensor outside InferenceMode"):
        EAGER[name](other, inplace=True)  # after it has written
    sentence = (
        f"{name}: an inference tensor cannot be written over outside of inference mode; clone() it first"
    )
    writings: list[Call] = [lambda: call(x, inplace=True), lambda: call(torch.randn(3), out=out)]
    for writing in writings:
        with pytest.raises(RuntimeError) as raised:
            writing()
        assert str(raised.value) == sentence
    assert_same(x, before)
    assert out.tolist() == [0.0] * 3
    assert_same(call(x), call(before))


# Devices without a kernel

ON_ANOTHER_DEVICE = """
    import warnings

    import torch
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    from generated.relu import relu

    _setup_privateuseone_for_python_backend("other")
    new = lambda: torch._C._acc.create_empty_tensor([3], torch.float32)
    done, library = [], torch.library.Library("aten", "IMPL")
    library.impl("relu", lambda x: done.append("relu") or new(), "PrivateUse1")
    library.impl("copy_", lambda x, y, wait=False: done.append("copy_") or x, "PrivateUse1")
    x, out = new(), new()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert relu(x).device.type == "other"
        assert relu(x, inplace=True) is x
        assert relu(x, out=out) is out
        assert relu(new().requires_grad_()).grad_fn is not None
    print(done, [str(warning.message) for warning in told])
"""


def test_a_device_without_a_kernel_takes_pytorchs_operations_and_warns_once(extensions: Path) -> None:
    said = told(textwrap.dedent(ON_ANOTHER_DEVICE), extensions)
    calls = ["relu", "relu", "copy_", "relu", "copy_", "relu"]
    sentence = "relu: no kernel for other; PyTorch's own operations run there instead"
    assert said == f"{calls} {[sentence]}\n"
