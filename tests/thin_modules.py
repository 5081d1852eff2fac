"""Modules with a thin convolution whose library for CUDA is emulated, for tensors on the CPU."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated import FLAGS
from kernels import compiled
from thin_emulated import on_cpu
from torch import Tensor, nn
from torch.utils.cpp_extension import include_paths, library_paths

from fusegen.runtime.library_names import definition

CHAIN = """\
inputs: {x: {shape: [2, 3, 9, 12]}}
init: {channels: 3, divisor: 2.0}
layers:
  - conv: Conv2d(channels, 5, 3, stride=(2, 1), padding=1)
  - multiplier: Parameter(randn((5, 1, 1)))
chain: [x * multiplier, "leaky_relu(negative_slope=0.1)", x / divisor]
"""
INDEX = "aoti_torch_get_device_index(tensor[k].get(), &index);"  # which the CPU has not
SHARED_MEMORY = "\nstatic const bool given = [] { emulation.shared = 99 * 1024; return true; }();\n"
Module = Any  # a generated module
MADE: dict[tuple[str, str], Module] = {}  # by name and spec


def emulated(folder: Path, name: str, body: str) -> Module:
    """The module of a spec, whose library with a convolution is emulated, for tensors on the CPU.

    It is one for the process: operators run the functions of the first module that defined them, which a
    test of a second module would not reach.
    """
    if (name, body) not in MADE:
        made = compiled(folder, name, body)
        emulate(made, folder)
        MADE[name, body] = made
    return MADE[name, body]


def emulate(made: Module, folder: Path) -> None:
    """Compiles and loads the library of a module with a convolution, for tensors on the CPU."""
    load: Any = torch.ops.load_library
    load(emulated_library(made, folder))


def emulated_library(made: Module, folder: Path) -> Path:
    """The library of a module with a convolution, compiled for tensors on the CPU."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    name = made.KERNELS.name
    texts, namespace = made.KERNELS.texts(), made.KERNELS.operators.name
    parts = "#define WITHOUT_FORWARD\n#define WITHOUT_BACKWARD\n#define WITH_CONVOLVED\n"
    binding = definition(namespace, name) + texts.binding.replace('"KEY"', '"CPU"')
    assert binding.count(INDEX) == 1
    sources = {
        "binding": parts + binding.replace(INDEX, f"{INDEX} index = 0;"),
        "kernel": parts + on_cpu(texts.joined) + SHARED_MEMORY,
    }
    flags = {
        "binding": ["-std=c++17", "-fPIC", *(f"-I{path}" for path in include_paths())],
        "kernel": FLAGS,
    }
    for part, text in sources.items():
        stem = f"{folder}/{name}_{part}"
        Path(f"{stem}.cpp").write_text(text, encoding="utf-8")
        command = ["g++", *flags[part], "-c", f"{stem}.cpp", "-o", f"{stem}.o"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    library = folder / f"{name}_convolved.so"
    objects = [f"{folder}/{name}_{part}.o" for part in sources]
    torch_libraries = [*(f"-L{path}" for path in library_paths()), "-ltorch_cpu"]
    linked = ["g++", "-shared", "-fsanitize=undefined", "-pthread", *objects, *torch_libraries]
    subprocess.run([*linked, "-o", str(library)], check=True)
    return library


def own(module: Module, part: str = "thin_operator") -> Any:
    """A file of the module's own runtime."""
    return sys.modules[type(module.KERNELS).__module__.replace("activation", part)]


def as_on_a_gpu(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has tensors taken as if they were on a GPU where one kernel is faster."""
    for part in ("thin", "thin_operator"):
        monkeypatch.setattr(own(module, part), "on_gpu", lambda x: isinstance(x, Tensor))
    monkeypatch.setattr(own(module), "losses", lambda x, weight, shape: ())
    monkeypatch.setattr(own(module, "thin_build"), "is_ready", lambda *_: True)


def calls_on_a_gpu(module: Module, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The calls of `convolved` from now on, as if tensors were on a GPU: whether each was one kernel."""
    as_on_a_gpu(module, monkeypatch)
    calls: list[bool] = []
    convolved, by_one_kernel = module.KERNELS.convolved, own(module)._by_one_kernel

    def counted(*arguments: Any) -> Any:
        made = convolved(*arguments)
        calls.append(made is not None)
        return made

    def told(*arguments: Any) -> Any:
        made = by_one_kernel(*arguments)
        assert made is not None, "PyTorch's convolution ran in the kernel's place"
        return made

    monkeypatch.setattr(module.KERNELS, "convolved", counted)
    monkeypatch.setattr(own(module), "_by_one_kernel", told)
    return calls


def model_and_input(module: Module, dtype: torch.dtype = torch.float32) -> tuple[Any, Tensor]:
    """A model, and an input of its convolution."""
    torch.manual_seed(0)
    return module.ModelNew().to(dtype), torch.randn(2, 3, 9, 12).to(dtype)


def by_pytorch(model: Any, x: Tensor) -> Tensor:
    """The result of the model of `CHAIN`, by PyTorch's operations."""
    y: Tensor = nn.functional.leaky_relu(model.conv(x) * model.multiplier, 0.1) / model.divisor
    return y
