"""The kernels of a test's own formula at a few points, without PyTorch's binding: a second a formula.

The CPU text and the emulated CUDA text of a module are compiled beside a precompiled header, and called
through the structure that the binding would fill.
"""

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import compiler
import torch
from emulated import (
    EMULATION,
    FLUSHED,
    INVERSE,
    LAUNCH,
    PREFETCH,
    SCALAR_TYPES,
    SHARED,
    State,
    call_type,
    shapes,
)
from kernels import compiled
from torch import Tensor
from torch.utils.cpp_extension import include_paths

from fusegen.compiler.pipeline import Compiled
from fusegen.project.build import compiled_file

DTYPES = (torch.float32, torch.bfloat16, torch.float64)
FLAGS = ("-std=c++17", "-O0", "-ffp-contract=off", "-fPIC", "-w")
FLAGS_OF = {
    "cpu": ("-mavx2", "-mfma", "-mf16c", *(f"-I{path}" for path in include_paths())),
    "cuda": ("-pthread", f"-I{EMULATION}"),
}
STANDARD = ("algorithm", "atomic", "cmath", "cstdint", "cstring", "limits", "type_traits")
HEADERS_OF = {  # all that texts of a device include, compiled once a run
    "cpu": ("torch/headeronly/util/BFloat16.h", "torch/headeronly/util/Half.h"),
    "cuda": ("cuda_fp16.h", "cuda_bf16.h", "cuda_pipeline_primitives.h"),
}
SERIAL = """
namespace fusegen {
namespace {
using Task = void (*)(int64_t, int64_t, void*);
void parallel_for(int64_t begin, int64_t end, int64_t, Task task, void* context) {
  task(begin, end, context);
}
}
}
"""


@dataclass(frozen=True)
class Formula:
    """A formula as a user would declare it."""

    formula: str  # in the spec language
    params: dict[str, float] = field(default_factory=dict)  # its scalars with the values that are tried
    inputs: tuple[str, ...] = ("x",)  # its tensors
    dtypes: tuple[torch.dtype, ...] = DTYPES  # of the tensors

    @property
    def body(self) -> str:
        """The spec, but for its name and its summary."""
        inputs = ", ".join(f"{name}: {{}}" for name in self.inputs)
        params = ", ".join(f"{name}: {value!r}" for name, value in self.params.items())
        kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
        lines = [f"inputs: {{{inputs}}}", f"params: {{{params}}}", f'formula: "{self.formula}"']
        return "\n".join([*lines, f"dtypes: [{kinds}]"]) + "\n"


class Elements:
    """A formula's module, and its kernels on the CPU (``cpu``) and emulated (``cuda``)."""

    def __init__(self, formula: Formula, name: str, folder: Path) -> None:
        """Compile the module below `folder`, where its kernels will be built."""
        self.formula, self.name, self.folder = formula, name, folder
        self.module: ModuleType = compiled(folder, name, formula.body)
        self.libraries: dict[str, ctypes.CDLL] = {}

    @cached_property
    def compilation(self) -> Compiled:
        """The stages of the formula."""
        return compiled_file(self.folder / f"{self.name}.yaml")

    def __call__(self, device: str, *inputs: Tensor) -> list[Tensor]:
        """The value and the gradient of each input, where the incoming gradient is 1."""
        (y,) = self._launch(device, "forward", *inputs)
        return [y, *self.gradients(device, y, torch.ones_like(y), *inputs)]

    def gradients(self, device: str, y: Tensor, grad: Tensor, *inputs: Tensor) -> list[Tensor]:
        """The gradient of each input from the value and an incoming gradient."""
        _, *saved = self.compilation.algebra.derivations.backward.first.inputs
        known = dict(zip(self.formula.inputs, inputs, strict=True))
        distinct = self._launch(device, "backward", grad, *(known.get(n, y) for n in saved))
        return [distinct[k] for k in self.module.KERNELS.signature.outputs]

    def eager(self, *inputs: Tensor) -> list[Tensor]:
        """The same in PyTorch's operations."""
        leaves = [t.clone().requires_grad_() for t in inputs]
        y = self.module.eager(*leaves, *self.formula.params.values())
        grads = torch.autograd.grad(y, leaves, torch.ones_like(y), materialize_grads=True)
        return [y.detach(), *grads]

    def _launch(self, device: str, kernel: str, *inputs: Tensor) -> list[Tensor]:
        """The results of a kernel for tensors of one dimension and one length."""
        counts = dict(zip(("forward", "backward"), shapes(self.module), strict=True))
        outputs = [torch.empty_like(inputs[0]) for _ in range(counts[kernel][1])]
        launch = getattr(self._library(device), f"{self.name}_{kernel}_launch")
        launch.restype = ctypes.c_char_p
        for _ in range(2):  # a table is filled at the first launch
            assert launch(ctypes.byref(self._call([*inputs, *outputs]))) is None
        return outputs

    def _call(self, tensors: Sequence[Tensor]) -> Any:
        """The structure that the binding fills for tensors of one dimension."""
        own = list(self.formula.params.values()) if given(self.module) else []
        call: Any = call_type(len(tensors), len(own))()
        first = tensors[0]
        call.data[:] = [t.data_ptr() for t in tensors]
        call.numel, call.rank, call.dense, call.aligned = first.numel(), 1, True, False
        call.dtype, call.size[0] = SCALAR_TYPES[first.dtype], first.numel()
        for k in range(len(tensors)):
            call.stride[k][0] = 1
        if own:
            call.param[:] = own
        return call

    def _library(self, device: str) -> ctypes.CDLL:
        if device not in self.libraries:
            text = {"cpu": _cpu_text, "cuda": _cuda_text}[device](self.module)
            library = built(text, device)
            if device == "cuda":
                State.in_dll(library, "emulation").chip = 90
            self.libraries[device] = library
        return self.libraries[device]


def _cpu_text(module: ModuleType) -> str:
    return f"#include <cstdint>\n{SERIAL}{module.CPU_TEXTS[-1]}"


def given(module: ModuleType) -> bool:
    """True if a call of the kernels has scalars."""
    return (
        re.search(r"^struct Forward : \w+<\d, \d, \w+, \d+>", module.CUDA_SOURCE, re.MULTILINE) is not None
    )


def _cuda_text(module: ModuleType) -> str:
    text = LAUNCH.sub(r"emulate(\1, \2, ", f"#include <cuda_fp16.h>\n{module.CUDA_TEXT}")
    text = SHARED.sub(r"\1* const \2 = shared<\1>();", text)
    return PREFETCH.sub("  fetched(from, bytes);", INVERSE.sub(FLUSHED, text))


def built(text: str, device: str) -> ctypes.CDLL:
    """The library of a text, compiled once a run."""
    flags = [*FLAGS, *FLAGS_OF[device]]
    headers = "".join(f"#include <{name}>\n" for name in (*HEADERS_OF[device], *STANDARD))
    before = compiler.compiled_once(Path(os.environ["TORCH_EXTENSIONS_DIR"]), headers, flags)
    return ctypes.CDLL(str(compiler.library(text, [*flags, "-shared", *before])))
