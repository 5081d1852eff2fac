"""Prepared launches of dense tensors, and the library that takes the place of Python's launches."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernels import assert_same, generated
from nvrtc_emulated import launched_on_cpu
from torch import Tensor

from fusegen.runtime import build, driver, launched, layouts, nvrtc, tools
from fusegen.runtime.launcher import Launcher

F32, F16, F64 = torch.float32, torch.float16, torch.float64


def values(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The arguments of the prepared launches of a test, whose kernels run on the CPU."""
    launched_on_cpu(monkeypatch)
    launch, made = driver.launch_here, []

    def noted(module: str, device: int, *rest: Any) -> None:
        made.append(rest[-1])
        launch(module, device, *rest)

    monkeypatch.setattr(driver, "launch_here", noted)
    return made


CASES = [("gelu", "forward", ()), ("leaky_relu", "backward", (0.25,)), ("swiglu", "backward", ())]


@pytest.mark.parametrize(("name", "kernel", "params"), CASES)
def test_the_second_call_of_dense_tensors_is_prepared(
    name: str, kernel: str, params: tuple[float, ...], arguments: list[bytes]
) -> None:
    """Its argument has the bytes of the first call's, and its results the bits."""
    of = Launcher(generated(name).KERNELS, kernel)
    inputs = [values(6, 1040) * (k + 1) for k in range(of.inputs)]
    first = of.new(*inputs, *params)
    assert arguments == []
    again = of.new(*inputs, *params)
    results = [*again] if of.outputs > 1 else [again]
    for one, other in zip([*first] if of.outputs > 1 else [first], results, strict=True):
        assert_same(one, other)
    layout = layouts.layout_of(name, (*inputs, *results), inputs[0].shape)
    assert arguments == [layouts.packed(layout, F32, True, params)]
    given = [torch.empty_like(out) for out in results]
    of.into(*inputs, *params, *given)
    for one, other in zip(results, given, strict=True):
        assert_same(one, other)
    assert len(arguments) == 2


OTHERS = {
    "with gaps": lambda x, y: (x[:, ::2], y[:, ::2]),
    "off the boundary of a vector": lambda x, y: (x.view(-1)[1:9], y.view(-1)[1:9]),
    "of another shape": lambda x, y: (x, y[:1]),
    "of another dtype": lambda x, y: (x.double(), y.double()),
    "without elements": lambda x, y: (x[:0], y[:0]),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", OTHERS)
def test_other_tensors_take_the_general_way(kind: str, arguments: list[bytes]) -> None:
    of = Launcher(generated("swiglu").KERNELS, "forward")
    of.new(values(4, 16), values(4, 16))
    gate, up = OTHERS[kind](values(4, 16), values(4, 16) + 1)
    found = of.new(gate, up)
    assert arguments == []
    torch.testing.assert_close(found, torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize(("shift", "prepared"), [(0, 1), (4, 0), (16, 1)])
def test_results_over_memory_of_inputs(shift: int, prepared: int, arguments: list[bytes]) -> None:
    of = Launcher(generated("relu").KERNELS, "forward")
    of.new(values(16))
    room = values(32)
    x, out = room[:16], room[shift : shift + 16]
    real = torch.relu(x.clone())
    of.into(x, out)
    assert_same(out, real)
    assert len(arguments) == prepared


def test_what_is_not_dense_takes_the_library(arguments: list[bytes]) -> None:
    """So do 16-bit tensors of a module whose library has tables in shared memory."""
    asked: list[str] = []

    def library(suffix: str) -> Any:
        asked.append(suffix)
        return lambda *tensors: "the library's"

    of = Launcher(generated("gelu").KERNELS, "forward")
    of.library = library
    x = values(4, 16)
    assert isinstance(of.new(x), Tensor)
    assert of.new(x[:, ::2]) == "the library's"
    assert of.new(x.half()) == "the library's"
    of.into(x[:, ::2], torch.empty(4, 8))
    assert asked == ["", "", "_out"]


def has_launches(kernel: str) -> bool:
    name = f"{generated('relu').KERNELS.operators.name}::relu_{kernel}"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"))


@pytest.mark.parametrize("begins", [False, True])
def test_a_library_takes_the_place_of_launches(begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = generated("relu").KERNELS
    loaded: list[tuple[object, ...]] = []
    monkeypatch.setattr(tools, "begins_by_nvrtc", lambda: begins)
    monkeypatch.setattr(build, "load", lambda kernels, operators, *of: loaded.append(of))
    launched.implement(kernels, kernels.operators, "forward", None)
    assert has_launches("forward")
    assert not launched.is_removed(kernels.operators, "forward")
    build.load_library(kernels, kernels.operators, "forward", "cuda")
    assert has_launches("forward") != begins
    assert launched.is_removed(kernels.operators, "forward") == begins
    assert loaded == [("forward", "cuda", None)]
    launched.remove(kernels.operators, "forward")
    vars(kernels.operators).pop(launched.BY_KERNEL)


FOUND = nvrtc.Nvrtc(None, (13, 0), "/x/libnvrtc.so.13")
BEGINS = [
    ("", True, FOUND, True, True),
    ("nvcc", True, FOUND, True, False),
    ("nvrtc", True, FOUND, True, False),
    ("", False, FOUND, True, False),
    ("", True, None, True, False),
    ("", True, FOUND._replace(version=(12, 8)), True, False),
    ("", True, FOUND, False, False),
]


@pytest.mark.parametrize(("chosen", "nvcc", "found", "headers", "begins"), BEGINS)
def test_nvrtc_begins_where_both_compilers_are(
    chosen: str, nvcc: bool, found: Any, headers: bool, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tools.COMPILER, chosen)
    monkeypatch.setattr(tools, "has_nvcc", lambda: nvcc)
    monkeypatch.setattr(nvrtc, "found", lambda: found)
    monkeypatch.setattr(nvrtc, "cuda_major", lambda: 13)
    monkeypatch.setattr(nvrtc, "has_headers", lambda: headers)
    assert tools.begins_by_nvrtc() == begins


@pytest.mark.parametrize(
    ("current", "statuses", "contexts"), [(0, [0], 0), (0, [201, 0], 1), (1, [0], 1)], ids=str
)
def test_the_context_is_made_current_where_it_is_not(
    current: int, statuses: list[int], contexts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Any, ...]] = []
    entered: list[int] = []

    def launch(*arguments: Any) -> int:
        given.append(arguments)
        return statuses[len(given) - 1]

    def on_device(module: str, device: int) -> Any:
        entered.append(device)
        return contextlib.nullcontext()

    monkeypatch.setattr(driver, "library", lambda: SimpleNamespace(cuLaunchKernel=launch))
    monkeypatch.setattr(driver, "OnDevice", on_device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current, raising=False)
    driver.launch_here("m", 0, driver.Handle(7), (5, 64), 9, b"argument")
    assert entered == [0] * contexts
    assert len(given) == len(statuses)
    *numbers, argument, _ = given[-1][1:]
    assert numbers == [5, 1, 1, 64, 1, 1, 0, 9]
    assert argument[0] == b"argument"
