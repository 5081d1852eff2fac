"""Modules of rows by the call in C++ have the bits of the call in Python, which takes other shapes."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
from test_compiled_call import CALLS, Counted, drawn
from test_compiled_call import in_cpp as in_cpp
from test_compiled_call import library as library
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Case = tuple[str, list[tuple[int, ...]], list[float]]
# the shapes of tensors that kernels take as they are, and scalars
TAKEN: dict[str, Case] = {
    "a row for all": ("layer_norm", [(3, 5), (5,), (5,)], [1e-5]),
    "one row": ("layer_norm", [(5,), (5,), (5,)], [1e-5]),
    "a row of its own": ("layer_norm", [(3, 5), (3, 5), (3, 5)], [1e-5]),
    "three dimensions": ("rms_norm", [(2, 3, 5), (5,)], [1e-5]),
    "no feature": ("scaled_masked_softmax", [(3, 5), (3, 5)], [0.5]),
    "no rows": ("rms_norm", [(0, 5), (5,)], [1e-5]),
    "one tensor": ("softmax", [(3, 5)], []),
    "a value of a row": ("logsumexp", [(3, 5)], []),
    "no rows, of two sums in one loop": ("layer_norm", [(0, 5), (5,), (5,)], [1e-5]),
}
LEFT: dict[str, Case] = {
    "one feature of two": ("layer_norm", [(3, 5), (3, 5), (5,)], [1e-5]),
    "a row with another dimension": ("layer_norm", [(3, 5), (1, 5), (1, 5)], [1e-5]),
    "features of a larger shape": ("layer_norm", [(5,), (3, 5), (3, 5)], [1e-5]),
    "a row that broadcasts": ("scaled_masked_softmax", [(3, 5), (5,)], [0.5]),
    "a number": ("scaled_masked_softmax", [(3, 5), ()], [0.5]),
}


def prepared(case: Case) -> tuple[Counted, list[Any]]:
    """A module's call that counts what it leaves to Python, and the arguments of one."""
    name, shapes, scalars = case
    counted = Counted(f"rows/{name}", lambda of, run: CALLS.in_front(of, run, of.usual_shapes))
    return counted, [*drawn(*shapes), *scalars]


def derived(call: Any, arguments: list[Any]) -> tuple[list[Tensor], list[int]]:
    """The value of a call and its gradients, and how many elements each tensor has that it saves."""
    tensors, saved = [t for t in arguments if isinstance(t, Tensor)], []

    def pack(t: Tensor) -> Tensor:
        saved.append(t.numel())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = call(*arguments)
    torch.manual_seed(2)
    return [y, *torch.autograd.grad(y, tensors, torch.randn_like(y))], saved


@pytest.mark.parametrize("kind", [*TAKEN, *LEFT])
def test_bits_strides_and_what_is_saved(kind: str) -> None:
    counted, arguments = prepared(TAKEN.get(kind) or LEFT[kind])
    with torch.no_grad():
        plain = counted.call(*arguments)
    (found, saved), left = derived(counted.call, arguments), counted.left
    wanted, saved_by_python = derived(counted.python, arguments)
    assert left == (2 if kind in LEFT else 0)
    assert saved == saved_by_python
    assert torch.equal(plain, found[0])
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_may_compute_it_again_in_python(reentrant: bool) -> None:
    counted, (x, weight, bias, eps) = prepared(TAKEN["a row for all"])
    calls = [counted.python, counted.taken]
    y = checkpoint(lambda t: calls.pop()(t, weight, bias, eps), x, use_reentrant=reentrant)
    y.sum().backward()
    assert calls == []
    found = [t.grad for t in (x, weight, bias)]
    wanted = torch.autograd.grad(counted.python(x, weight, bias, eps).sum(), (x, weight, bias))
    assert all(map(torch.equal, found, wanted))


def test_a_call_and_its_gradient_run_no_python() -> None:
    counted, arguments = prepared(TAKEN["a row for all"])
    call, frames = counted.made.otherwise(counted.call, counted.kernels.call), list[str]()
    y = call(*arguments)
    run_backward: Any = torch.autograd.Variable._execution_engine.run_backward

    def seen(frame: Any, event: str, _: Any) -> None:
        frames.extend([frame.f_code.co_name] if event == "call" else [])

    sys.setprofile(seen)
    run_backward((call(*arguments),), (y,), False, False, tuple(arguments[:3]), False, False)
    sys.setprofile(None)
    assert frames == []


def test_options_are_read_by_the_function() -> None:
    counted, (x, weight, bias, eps) = prepared(TAKEN["a row for all"])
    call = counted.made.otherwise(counted.call, counted.kernels.call)
    with torch.no_grad():
        expected, out = call(x, weight, bias, eps), torch.empty(3, 5)
        assert torch.equal(call(x, bias=bias, weight=weight), expected)
        assert call(x, weight, bias, out=out) is out
    assert torch.equal(out, expected)
    with pytest.raises(TypeError, match=r"^layer_norm: eps must be a number, not str$"):
        call(x, weight, bias, "small")


def test_compiled_autograd_asks_a_node_what_it_has() -> None:
    counted, arguments = prepared(TAKEN["a row for all"])
    wanted, _ = derived(counted.python, arguments)
    compiler = torch.compile(backend="aot_eager")
    with torch._dynamo.compiled_autograd._enable(compiler):
        for _ in range(2):
            found, _ = derived(counted.taken, arguments)
            assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("kind", ["a row for all", "one tensor"])
def test_modes_of_pytorch(kind: str) -> None:
    counted, arguments = prepared(TAKEN[kind])
    wanted, _ = derived(counted.python, arguments)
    with torch.inference_mode():
        assert counted.taken(*arguments).is_inference()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(counted.call(*arguments), wanted[0])
    torch.use_deterministic_algorithms(True)
    found, _ = derived(counted.taken, arguments)
    torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, found, wanted))


def test_threads_share_a_call() -> None:
    counted, arguments = prepared(TAKEN["a row for all"])
    tensors = [t for t in arguments if isinstance(t, Tensor)]
    wanted = torch.autograd.grad(counted.python(*arguments).sum(), tensors)
    same: list[bool] = []

    def work() -> None:
        for _ in range(50):
            found = torch.autograd.grad(counted.taken(*arguments).sum(), tensors)
            same.append(all(map(torch.equal, found, wanted)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 150
