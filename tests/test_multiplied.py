"""Linear layers that are one kernel with what is behind them: their bits, and which they are."""

import ctypes
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from emulated import SCALAR_TYPES, Kernel, State, call_type, run
from linear_emulated import Layer, built, multiplied, product
from test_cuda_text import NVCC
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


def long(of: Layer) -> Layer:
    """A layer of the same results and two levels of terms, which blocks take."""
    x, weight = (torch.nn.functional.pad(t, (0, 512)) for t in of[:2])
    return Layer(x, weight, of.bias, levels=2)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.full] * (k > 1)) for k, n in enumerate(KINDS)]
)
def test_one_kernel_has_the_bits_of_two(name: str) -> None:
    kernels, params = module_of(name).KERNELS, KINDS[name]
    text = kernels.texts().joined + "FUSEGEN_PRODUCT(linear_together, TOGETHER)\n"
    library = built("together", f"#define WITHOUT_BACKWARD\n{text}")
    tensors, state = kernels.inputs + 1, State.in_dll(library, "emulation")
    state.multiprocessors = 4
    behind = getattr(library, f"{name}_forward_launch")
    behind.restype = ctypes.c_char_p
    kernel = Kernel(behind, call_type(tensors, len(params)), kernels.inputs, 1, state)
    fit(kernel)
    draw = torch.Generator().manual_seed(3)
    x, weight, bias = (torch.randn(size, generator=draw) for size in ((5, 36), (132, 36), (132,)))
    of = Layer(x, weight, bias)
    x[1, 3], x[2, 5], x[3], bias[7], bias[9] = torch.inf, torch.nan, 0, torch.inf, torch.nan
    x[4] = torch.arange(36) == 3
    for operands in operands_of(kernels, (5, 132)):
        wide = [t.expand(5, 132) for t in operands]
        call = kernel.call()
        for k, t in enumerate(wide, 1):
            call.data[k], call.stride[k][:2] = t.data_ptr(), t.stride()
        if params:
            call.param[:] = params
        [expected] = run(kernel, product(library, "together", of), *wide, params=params, dense=False)
        assert expected.isfinite().sum() > 300
        for state.chip, divided in ((90, of), (80, of), (80, long(of))):
            made = multiplied(getattr(library, f"{name}_multiplied_launch"), call, divided)
            torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(made.signbit()[made == 0], expected.signbit()[made == 0])


@pytest.mark.full
@pytest.mark.parametrize("chip", ["80", "90a"])
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_nvcc_compiles_a_kernel_of_operands_without_a_spill(tmp_path: Path, chip: str) -> None:
    """For the host, too, and beside the sums of gradients, which share memory."""
    assert NVCC
    source = tmp_path / "multiplied.cu"
    text = module_of("linear_shift_silu_tanh_gelu_hardtanh").KERNELS.texts().joined
    source.write_text(f"#define WITHOUT_FORWARD\n#define WITHOUT_BACKWARD\n{text}", encoding="utf-8")
    flags = f"-std=c++17 -O3 --fmad=false -c -Xptxas -v -gencode=arch=compute_{chip},code=sm_{chip}".split()
    flags += ["-DFUSEGEN_SM90A"] * (chip == "90a")
    command = [NVCC, *flags, str(source), "-o", str(tmp_path / "multiplied.o")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    spills = [line for line in told.stderr.splitlines() if "spill stores" in line]
    assert len(spills) >= 4
    assert all(" 0 bytes spill stores, 0 bytes spill loads" in line for line in spills)
    assert "serialized" not in told.stderr


class Called:
    """A module of a layer with an operand behind it, whose tensors are as on a GPU with kernels."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put PyTorch's operations in place of the kernel."""
        module = module_of("linear_shift_relu")
        self.kernels: Any = module.KERNELS
        self.model = module.ModelNew(8, 6, (6,))  # of 8 terms and 6 features
        self.layer = self.model.gemm
        # of the kernel of both, what it was given behind the factors
        self.calls: list[tuple[Any, ...]] = []
        runtime = type(self.kernels).__module__.rpartition(".")[0]
        for part, name in (
            ("linear", "on_gpu"),
            ("linear_operator", "is_worth"),
            ("linear_operator", "fits"),
            ("build", "can_load"),
        ):
            monkeypatch.setattr(sys.modules[f"{runtime}.{part}"], name, lambda *given: True)
        call = sys.modules[f"{runtime}.linear_call"]
        monkeypatch.setattr(call, "facts", lambda weight: (weight, weight))
        monkeypatch.setattr(self.kernels, "multiply", self.multiply)

    def multiply(self, weight: Tensor, x: Tensor, bias: Tensor, *others: Any) -> bool:
        """The kernel of both."""
        _, _, operand, out = others
        self.calls.append(tuple(operand.shape))
        added = bias if bias.numel() else None  # which the layer has not
        out.copy_(self.kernels.eager(nn.functional.linear(x, weight, added), operand))
        return True

    def __call__(self, x: Any, operand: Any) -> Any:
        """Both as one kernel, or None."""
        return self.kernels.multiplied(self.layer, x, operand)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    """A module as if on a GPU."""
    return Called(monkeypatch)


OPERANDS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "one for each feature": lambda: (torch.randn(4, 8), torch.randn(6)),
    "one for all": lambda: (torch.randn(4, 8), torch.randn(())),
    "one for each row": lambda: (torch.randn(4, 8), torch.randn(4, 1)),
    "one for each result": lambda: (torch.randn(4, 8), torch.randn(6, 4).t()),
    "features of more dimensions": lambda: (torch.randn(2, 3, 8), torch.randn(6)),
    "results of more dimensions": lambda: (torch.randn(2, 3, 8), torch.randn(2, 3, 6)),
    "no copy of rows that lie apart": lambda: (torch.randn(4, 16)[:, ::2], torch.randn(6)),
}


@pytest.mark.parametrize("what", OPERANDS)
def test_both_are_one_kernel_without_a_gradient(called: Called, what: str) -> None:
    x, operand = OPERANDS[what]()
    with torch.no_grad():
        expected = called.kernels.eager(called.layer(x), operand)
        assert torch.equal(called(x, operand), expected)
    assert called.calls == [(x.numel() // 8, 6)]


def test_a_model_runs_the_one_kernel(called: Called) -> None:
    x = torch.randn(4, 8)
    with torch.inference_mode():
        assert torch.equal(called.model(x), called.kernels.eager(called.layer(x), called.model.bias))
    assert len(called.calls) == 1


def with_hook(of: Called) -> Any:
    """A call of a layer whose output somebody sees."""
    of.layer.register_forward_hook(lambda *_: None)
    return of(torch.ones(4, 8), torch.ones(6))


def of_transposed(of: Called) -> Any:
    """A call of a layer whose weight lies by columns."""
    of.layer.weight = nn.Parameter(torch.randn(8, 6).t())
    return of(torch.ones(4, 8), torch.ones(6))


APART: dict[str, Callable[[Called], Any]] = {
    "a gradient": lambda of: torch.enable_grad()(of)(torch.randn(4, 8), of.model.bias),
    "an operand that enlarges": lambda of: of(torch.randn(4, 8), torch.randn(2, 4, 6)),
    "an operand of other sizes": lambda of: of(torch.randn(4, 8), torch.randn(5)),
    "an operand of rows, of more dimensions": lambda of: of(torch.randn(2, 3, 8), torch.randn(3, 6)),
    "another dtype": lambda of: of(torch.randn(4, 8), torch.randn(6, dtype=torch.float64)),
    "a number": lambda of: of(torch.randn(4, 8), 2.0),
    "a layer with a hook": with_hook,
    "a weight by columns": of_transposed,
}


@pytest.mark.parametrize("what", APART)
def test_both_stay_two_kernels(called: Called, what: str) -> None:
    with torch.no_grad():
        assert APART[what](called) is None
    assert called.calls == []


def test_torch_fx_records_two_calls(called: Called) -> None:
    torch.fx.symbolic_trace(called.model)
    assert called.calls == []


def test_memory_that_is_short_leaves_two_kernels(called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*given: Any) -> bool:
        raise torch.OutOfMemoryError

    for kernel in (short, lambda *given: False):
        monkeypatch.setattr(called.kernels, "multiply", kernel)
        with torch.no_grad():
            assert called(torch.randn(4, 8), torch.randn(6)) is None


def test_the_operator_has_a_fake() -> None:
    kernels = module_of("linear_scale_residual").KERNELS
    operator = kernels.operators.linear_scale_residual_multiplied.default
    names = [argument.name for argument in operator._schema.arguments]
    assert names == ["left", "right", "bias", "largest", "norm", "scaling_factor_", "OUT0"]


def test_modules_without_a_layer_have_no_such_kernel() -> None:
    from kernels import generated

    kernels = generated("swiglu").KERNELS
    assert kernels.texts().joined == ""
    assert not hasattr(kernels.operators, "swiglu_multiplied")
