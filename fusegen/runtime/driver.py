"""The launches of kernels by the CUDA driver, without the CUDA runtime, for code that NVRTC compiled."""

import ctypes
import functools
import struct
from typing import Any, Optional, Tuple

import torch

from .checks import check

NON_BLOCKING, RELAXED = 1, 2  # CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
Handle = ctypes.c_void_p
ARGUMENT = ctypes.c_char_p * 1
LAUNCH: Any = (Handle, *[ctypes.c_uint] * 7, Handle, ARGUMENT, Handle)  # of cuLaunchKernel


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """Return the driver's library."""
    found = ctypes.CDLL("libcuda.so.1")
    found.cuLaunchKernel.argtypes = LAUNCH
    return found


def check_status(module: str, status: int) -> None:
    """Raise an error of one sentence if the driver refused a call."""
    if status != 0:
        text = ctypes.c_char_p()
        library().cuGetErrorString(status, ctypes.byref(text))
        check(False, module, f"CUDA error {status}: {(text.value or b'unknown').decode()}")


@functools.lru_cache(maxsize=None)
def _context(device: int) -> Handle:
    """Return the context that PyTorch uses on a device, too."""
    of, context = ctypes.c_int(), Handle()
    check_status("CUDA", library().cuInit(0))
    check_status("CUDA", library().cuDeviceGet(ctypes.byref(of), device))
    check_status("CUDA", library().cuDevicePrimaryCtxRetain(ctypes.byref(context), of))
    return context


class OnDevice:
    """Makes the context of a device the current one of this thread, for a while."""

    def __init__(self, module: str, device: int) -> None:
        self.module, self.context = module, _context(device)

    def __enter__(self) -> None:
        check_status(self.module, library().cuCtxPushCurrent_v2(self.context))

    def __exit__(self, *_: Any) -> None:
        library().cuCtxPopCurrent_v2(ctypes.byref(Handle()))


class Relaxed:
    """Lets this thread load code and wait for a stream of its own while another stream is captured."""

    def __enter__(self) -> None:
        self.mode = ctypes.c_int(RELAXED)
        library().cuThreadExchangeStreamCaptureMode(ctypes.byref(self.mode))

    def __exit__(self, *_: Any) -> None:
        library().cuThreadExchangeStreamCaptureMode(ctypes.byref(self.mode))


def load(module: str, code: bytes) -> Handle:
    """Return the loaded machine code of some kernels, on the current device."""
    loaded = Handle()
    check_status(module, library().cuModuleLoadData(ctypes.byref(loaded), code))
    return loaded


def function(module: str, loaded: Handle, name: bytes) -> Handle:
    """Return a kernel by its name."""
    found = Handle()
    check_status(module, library().cuModuleGetFunction(ctypes.byref(found), loaded, name))
    return found


def launch(
    module: str, kernel: Handle, grid: "Tuple[int, int]", stream: "Optional[int]", argument: bytes
) -> None:
    """Launch a kernel of one argument.

    Args:
        module: its name.
        kernel: of `function`.
        grid: the number of blocks, and of threads of a block.
        stream: the handle of the stream, of the current device.
        argument: its bytes, which the driver copies.
    """
    check_status(module, _status(kernel, grid, stream, argument))


def launch_here(
    module: str,
    device: int,
    kernel: Handle,
    grid: "Tuple[int, int]",
    stream: "Optional[int]",
    argument: bytes,
) -> None:
    """Launch a kernel of a device, which mostly is this thread's current one; see `launch`."""
    if torch._C._cuda_getDevice() == device:
        status = _status(kernel, grid, stream, argument)
        if status != NO_CONTEXT:  # which a thread has before its first call of CUDA
            check_status(module, status)
            return
    with OnDevice(module, device):
        launch(module, kernel, grid, stream, argument)


def _status(kernel: Handle, grid: "Tuple[int, int]", stream: "Optional[int]", argument: bytes) -> int:
    """Launch a kernel, and return the driver's status."""
    blocks, threads = grid
    return library().cuLaunchKernel(
        kernel, blocks, 1, 1, threads, 1, 1, 0, stream, ARGUMENT(argument), None
    )


def run_turns(module: str, kernel: Handle, turns: int, grid: "Tuple[int, int]") -> None:
    """Launch a kernel of one number with 0, 1, ... in a stream of its own, and waits for the last."""
    stream = Handle()
    check_status(module, library().cuStreamCreate(ctypes.byref(stream), NON_BLOCKING))
    for turn in range(turns):
        launch(module, kernel, grid, stream.value, struct.pack("=i", turn))
    status = library().cuStreamSynchronize(stream)
    library().cuStreamDestroy_v2(stream)
    check_status(module, status)
