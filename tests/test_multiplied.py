"""Linear layers that are one kernel with what is behind them: their bits in emulation, and which they are."""

from __future__ import annotations

import ctypes
import importlib
from types import ModuleType
from typing import Any

import pytest
import torch
from emulated import SCALAR_TYPES, Kernel, State, call_type, run
from linear_emulated import built, multiplied, product
from torch import Tensor, nn

KINDS = {  # modules of KernelBench, by how the function of an element is computed in float32: their scalars
    "linear_divide_gelu": (10.0,),  # by its formula
    "linear_shift_relu": (),  # by a formula of an operand
    "linear_mish_mish": (),  # by cubics
    "linear_shift_silu_tanh_gelu_hardtanh": (),  # by curves and an operand
}


def module_of(name: str) -> ModuleType:
    """A module of KernelBench."""
    return importlib.import_module(f"generated.kernelbench.{name}")


def operands_of(kernels: Any, shape: tuple[int, int]) -> list[list[Tensor]]:
    """Operands of a kernel besides its first: one number for each feature, for all, and for each result."""
    draw = torch.Generator().manual_seed(5)
    sizes = (shape[1:], (), shape) if kernels.inputs > 1 else ((),)
    several = [[torch.randn(size, generator=draw) for _ in range(kernels.inputs - 1)] for size in sizes]
    return several


def fit(kernel: Kernel) -> None:
    """Have a first call, of one element, fit what cubics a kernel has."""
    one, call = torch.zeros(1), kernel.call()
    call.numel, call.rank, call.size[0], call.dtype = 1, 1, 1, SCALAR_TYPES[one.dtype]
    call.data[:] = [one.data_ptr()] * (kernel.inputs + 1)
    assert kernel.launch(ctypes.byref(call)) is None


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.full] * (k > 1)) for k, n in enumerate(KINDS)]
)
def test_one_kernel_has_the_bits_of_two(name: str) -> None:
    kernels, params = module_of(name).KERNELS, KINDS[name]
    text = kernels.texts().joined + "FUSEGEN_PRODUCT(linear_together, TOGETHER)\n"
    library = built("together", f"#define WITHOUT_BACKWARD\n{text}")
    tensors, state = kernels.inputs + 1, State.in_dll(library, "emulation")
    behind = getattr(library, f"{name}_forward_launch")
    behind.restype = ctypes.c_char_p
    kernel = Kernel(behind, call_type(tensors, len(params)), kernels.inputs, 1, state)
    fit(kernel)
    draw = torch.Generator().manual_seed(3)
    x, weight, bias = (torch.randn(size, generator=draw) for size in ((5, 36), (132, 36), (132,)))
    x[1, 3], x[2, 5], x[3], bias[7], bias[9] = torch.inf, torch.nan, 0, torch.inf, torch.nan
    x[4] = torch.arange(36) == 3
    for operands in operands_of(kernels, (5, 132)):
        wide = [t.expand(5, 132) for t in operands]
        call = kernel.call()
        for k, t in enumerate(wide, 1):
            call.data[k], call.stride[k][:2] = t.data_ptr(), t.stride()
        if params:
            call.param[:] = params
        made = multiplied(getattr(library, f"{name}_multiplied_launch"), call, (x, weight, bias))
        between = product(library, "together", x, weight, bias)
        [expected] = run(kernel, between, *wide, params=params, dense=False)
        assert made.isfinite().sum() > 300
        torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(made.signbit()[made == 0], expected.signbit()[made == 0])
