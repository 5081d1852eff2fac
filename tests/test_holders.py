"""Outputs of layers that kernels write over: only those that nothing else sees or holds."""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dispatching import Called, after_each
from kernels import generated
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook

from fusegen.runtime import holders, producers

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(4, 6), (3, 4)),
    "Linear of a batch": (lambda: nn.Linear(4, 6), (2, 3, 4)),
    "Linear without a bias": (lambda: nn.Linear(4, 6, bias=False), (2, 3, 4)),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3), (2, 4, 9, 9)),
    "Conv2d of an image": (lambda: nn.Conv2d(4, 6, 3), (4, 9, 9)),
    "Conv3d": (lambda: nn.Conv3d(4, 6, 3), (1, 4, 5, 5, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3), (2, 4, 9, 9)),
}


def is_reused(layer: nn.Module, x: Tensor) -> bool:
    """Call a layer as generated modules do, and tell if a kernel writes over its output."""
    y = layer(x)
    out = producers.reused(layer, y)
    return out is y


@pytest.mark.together
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", LAYERS)
def test_an_output_that_nothing_holds_is_written_over(name: str, mode: Any) -> None:
    make, shape = LAYERS[name]
    layer, x = make(), torch.randn(shape)
    with mode():
        assert is_reused(layer, x)
    assert not is_reused(layer, x)


@contextlib.contextmanager
def wrapped(owner: Any, name: str, keep: Callable[[Tensor], Any]) -> Iterator[None]:
    """Replace a function by one that keeps something of each result."""
    with pytest.MonkeyPatch.context() as patch:
        own = getattr(owner, name)

        def forward(*given: Any, **named: Any) -> Any:
            y = own(*given, **named)
            keep(y)
            return y

        patch.setattr(owner, name, forward)
        yield


@contextlib.contextmanager
def hooked(keep: Callable[[Tensor], Any]) -> Iterator[None]:
    """Put a hook on every layer."""
    handle = register_module_forward_hook(lambda layer, given, y: keep(y))
    yield
    handle.remove()


def dispatched(keep: Callable[[Tensor], Any]) -> Any:
    """Return a mode that keeps something of each operation's result."""
    return after_each(lambda operator, given, y: keep(y))


def called(keep: Callable[[Tensor], Any]) -> Any:
    """Return a mode that keeps something of the result of each layer's function."""
    return Called(lambda of, y: keep(y) if of in (functional.linear, functional.conv2d) else None)


WATCHERS: dict[str, Callable[[Callable[[Tensor], Any]], Any]] = {
    "a dispatch mode": dispatched,
    "a function mode": called,
    "a hook of all layers": hooked,
    "a forward of the class": lambda keep: wrapped(nn.Linear, "forward", keep),
    "a call of every class": lambda keep: wrapped(nn.Module, "__call__", keep),
    "a function of PyTorch": lambda keep: wrapped(functional, "linear", keep),
}
KEPT: dict[str, Callable[[Tensor], Any]] = {
    "the output": lambda y: y,
    "a view": lambda y: y[None],
    "a part": lambda y: y[0],
    "a detached tensor": lambda y: y.detach(),
    "the memory": lambda y: y.untyped_storage(),
    "an array": lambda y: y.numpy(),
    "a weak reference": weakref.ref,
}


@pytest.mark.parametrize("name", ["Linear", "Linear of a batch"])
@pytest.mark.parametrize("what", KEPT)
@pytest.mark.parametrize("watcher", WATCHERS)
def test_what_somebody_holds_stays(watcher: str, what: str, name: str) -> None:
    make, shape = LAYERS[name]
    layer, x, kept = make(), torch.randn(shape), list[Any]()
    with torch.no_grad():
        with WATCHERS[watcher](lambda y: kept.append(KEPT[what](y))):
            assert not is_reused(layer, x)
        assert kept
        assert is_reused(layer, x)


@pytest.mark.parametrize("what", ["y._base", "weakref.ref(y._base)"])
def test_what_an_output_is_a_view_of_stays(what: str) -> None:
    layer, x, kept = nn.Linear(4, 6), torch.randn(2, 3, 4), list[Any]()
    with (
        torch.no_grad(),
        wrapped(functional, "linear", lambda y: kept.append(eval(what, globals(), {"y": y}))),
    ):
        assert not is_reused(layer, x)


def test_a_default_device_holds_nothing() -> None:
    layer, x = nn.Linear(4, 6), torch.randn(3, 4)
    with torch.no_grad(), torch.device("cpu"):
        assert is_reused(layer, x)
        assert not holders.is_under_mode()
        with Called(lambda of, y: None):
            assert holders.is_under_mode()


def test_a_result_of_another_kind_has_memory_of_its_own() -> None:
    layer, x = nn.Linear(4, 6), torch.randn(3, 4)
    with torch.no_grad():
        y = layer(x)
        for other in (torch.randn(2, 3, 6), torch.randn(6).double(), torch.randn(6, device="meta")):
            out = producers.reused(layer, y, other)
            assert out is None
        out = producers.reused(nn.Identity(), y)
        assert out is None
        out = producers.reused(layer, y.to_sparse())
        assert out is None


WHOLE: dict[str, Callable[[Callable[[Tensor], Any]], Any]] = {
    **{name: WATCHERS[name] for name in ("a dispatch mode", "a function mode", "a call of every class")},
    "a forward of the class": lambda keep: wrapped(nn.Conv2d, "forward", keep),
    "a function of PyTorch": lambda keep: wrapped(nn.Conv2d, "_conv_forward", keep),
}


@pytest.mark.parametrize("watcher", WHOLE)
def test_a_generated_module_leaves_what_others_hold(watcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = generated("conv_relu_hardswish")
    model, x = module.ModelNew(3, 4, 3), torch.randn(2, 3, 9, 9)
    written: list[Tensor] = []
    write = module.KERNELS.write

    def noted(out: Tensor, *given: Any) -> Any:
        written.append(out)
        return write(out, *given)

    monkeypatch.setattr(module.KERNELS, "write", noted)
    kept: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():
        expected = model(x)
        assert len(written) == 1
        with WHOLE[watcher](lambda y: kept.append((y, y.clone()))):
            found = model(x)
    torch.testing.assert_close(found, expected)
    assert len(written) == 1
    assert kept
    assert all(torch.equal(y, copied) for y, copied in kept)
