"""The copy from NCHW to channels_last: CUDA's text in emulation, and modules with a convolution."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated import EMULATION, FLAGS, LAUNCH, SHARED, Guarded, call_type
from emulated import defined as defined
from kernels import generated
from torch import Tensor, nn

from fusegen.core.header_files import inlined
from fusegen.runtime import producers

INCLUDE = Path(producers.__file__).parent / "include"
TEXT = '#include "cuda/elements.cuh"\n#include "cuda/channels_last.cuh"\nFUSEGEN_TRANSPOSED(t)\n'
SCALAR_TYPES = {torch.float32: 6, torch.float16: 5, torch.bfloat16: 15, torch.float64: 7}
INVALID = b"invalid argument"
SIZES = [(1, 64, 64), (2, 65, 63), (1, 3, 5), (2, 16, 130), (3, 24, 36), (1, 1, 70), (1, 130, 8)]


@pytest.fixture(scope="module")
def transposed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The function that the binding calls."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("transposed")
    text = inlined(TEXT, lambda name: (INCLUDE / name).read_text(encoding="utf-8"))
    text, launches = LAUNCH.subn(r"emulate(\1, \2, ", f'#include "cuda_emulation.h"\n{text}')
    text, staged = SHARED.subn(r"\1* const \2 = shared<\1>();", text)
    assert (launches, staged) == (1, 1)
    source, library = folder / "t.cpp", folder / "t.so"
    source.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["g++", *FLAGS, f"-I{EMULATION}", str(source), "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    launch = ctypes.CDLL(str(library)).t_transposed_launch
    launch.restype, launch.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return launch


def call_of(x: Tensor, y: Tensor) -> ctypes.Structure:
    """A call whose tensors are indexed alike, with as many dimensions."""
    call = call_type(2, 0)()
    call.numel, call.rank, call.dtype = x.numel(), x.dim(), SCALAR_TYPES[x.dtype]
    call.size[: x.dim()] = x.shape
    for k, t in enumerate((x, y)):
        call.data[k], call.stride[k][: x.dim()] = t.data_ptr(), t.stride()
    return call


@pytest.mark.few
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_matrices_are_transposed(transposed: Any, size: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Of any size and from any address on; vectors of 16 bytes, of 8, and elements."""
    count, rows, columns = size
    for shift in (0, 1, 4):
        rooms = [Guarded(count * rows * columns, dtype, shift) for _ in range(2)]
        source = rooms[0].values.view(count, rows, columns)
        source.copy_(torch.arange(source.numel()).view_as(source) % 2039)
        x, y = source.mT, rooms[1].values.view(count, columns, rows)
        if count == 1:
            x, y = x[0], y[0]
        assert transposed(ctypes.byref(call_of(x, y))) is None
        assert torch.equal(x, y)
        rooms[0].check()
        rooms[1].check()


def test_rows_may_lie_apart(transposed: Any) -> None:
    x, room = torch.randn(2, 20, 50)[:, :17, :41].mT, Guarded(2 * 41 * 24, torch.float32)
    y = room.values.view(2, 41, 24)[..., :17]
    assert transposed(ctypes.byref(call_of(x, y))) is None
    assert torch.equal(x, y)
    room.check(y)


def test_other_layouts_are_refused(transposed: Any) -> None:
    x = torch.randn(2, 3, 4, 5)
    for given in ((x, x.clone()), (x[0], x[0].clone()), (x[0, 0, 0], x[0, 0, 0].clone())):
        assert transposed(ctypes.byref(call_of(*given))) == INVALID


GIVEN: dict[str, tuple[Tensor, bool]] = {  # as if on a GPU
    "an image": (torch.zeros(2, 16, 4, 4), True),
    "a volume": (torch.zeros(1, 16, 2, 4, 4), True),
    "few channels": (torch.zeros(2, 15, 8, 8), False),
    "few pixels": (torch.zeros(2, 64, 3, 5), False),
    "a gradient": (torch.zeros(2, 16, 4, 4, requires_grad=True), False),
    "channels last": (torch.zeros(2, 16, 4, 4).to(memory_format=torch.channels_last), False),
    "no batch": (torch.zeros(16, 4, 4), False),
    "empty": (torch.zeros(0, 16, 4, 4), False),
}


class OnGPU(Tensor):
    """A tensor that says that it lies on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("name", GIVEN)
def test_inputs_of_its_own_copy(name: str) -> None:
    x, expected = GIVEN[name]
    assert not producers.transposes(x)
    assert producers.transposes(x.as_subclass(OnGPU)) == expected
    if name == "a gradient":
        with torch.no_grad():
            assert producers.transposes(x.as_subclass(OnGPU))


@pytest.mark.parametrize("copied", [True, False])
def test_a_convolution_takes_its_input_channels_last(
    copied: bool, monkeypatch: pytest.MonkeyPatch, extensions: None
) -> None:
    """Where there is no kernel, the operator copies as PyTorch does."""
    kernels, layer = generated("conv_relu_hardswish").KERNELS, nn.Conv2d(16, 8, 3).bfloat16()
    asked: list[Tensor] = []
    seen: list[Tensor] = []
    own: Any = sys.modules[type(kernels).__module__.replace("activation", "producers")]
    convolved = own.convolved
    monkeypatch.setattr(own, "adds_bias_apart", lambda x: True)

    def transposes(x: Tensor) -> bool:
        asked.append(x)
        return copied

    def watched(layer: Any, x: Tensor) -> Any:
        seen.append(x)
        return convolved(layer, x)

    monkeypatch.setattr(own, "transposes", transposes)
    monkeypatch.setattr(own, "convolved", watched)
    x = torch.randn(2, 16, 9, 7).bfloat16()
    with torch.no_grad():
        y, bias = kernels.without_bias(layer, x)
        torch.testing.assert_close(y + bias, layer(x), rtol=2e-2, atol=2e-2)
    assert asked[0] is x
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(seen[0], x)


def test_other_modules_have_no_such_operator() -> None:
    kernels = generated("swiglu").KERNELS
    assert not kernels.sources.transposes
    assert "transpose" not in kernels.texts().cuda
    assert "transposed" not in kernels.texts().binding


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "conv_relu_hardswish": True,
        "rows/softmax_of_channels": True,
        "rows/softmax": False,
        "rows/group_norm": False,
        "rows/global_mean_of_silu": False,
        "batches/batch_norm": True,
        "windows/max_pool_of_relu": True,
    }.items(),
)
def test_inputs_stay_where_kernels_would_copy_outputs(
    name: str, expected: bool, monkeypatch: pytest.MonkeyPatch, extensions: None
) -> None:
    kernels: Any = generated(name).KERNELS
    own: Any = sys.modules[kernels.without_bias.__module__]
    monkeypatch.setattr(own, "adds_bias_apart", lambda x: True)
    seen: list[Tensor] = []
    convolved = own.convolved

    def watched(layer: Any, x: Tensor) -> Any:
        seen.append(x)
        return convolved(layer, x)

    monkeypatch.setattr(own, "convolved", watched)
    kernels.without_bias(nn.Conv2d(4, 8, 3).bfloat16(), torch.randn(2, 4, 9, 7).bfloat16())
    assert seen[0].is_contiguous(memory_format=torch.channels_last) is expected
