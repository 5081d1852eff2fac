"""Thin convolutions whose kernel is built in the background: what runs before, after, and if it fails."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from budget import waited_for
from kernels import compiled
from processes import built
from thin_modules import CHAIN, Module, as_on_a_gpu, by_pytorch, emulated_library, model_and_input, own
from torch import Tensor

from fusegen.runtime import compiled_call

SLOW = "while [ ! -e {go} ]; do sleep 0.05; done; cp {library} made.so"  # in place of nvcc
KILLED = "echo $$ > {go}; exec sleep 600"


class Late:
    """A module whose kernel for a convolution is built by a command of a test, for tensors on the CPU."""

    def __init__(self, module: Module, folder: Path) -> None:
        self.module, self.folder, self.begun = module, folder, 0
        self.model, self.x = model_and_input(module)

    def call(self) -> tuple[bool, list[Tensor]]:
        """Return whether a call was one kernel, and its result and gradients."""
        ran: list[bool] = []
        convolved = self.module.KERNELS.convolved

        def noted(*arguments: Any) -> Any:
            made = convolved(*arguments)
            ran.append(made is not None)
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.module.KERNELS, "convolved", noted)
            found = _graded(self.model, self.x)
        return any(ran), found

    def files(self) -> list[str]:
        """The suffixes of what is in the folder of builds of the kernel."""
        return [Path(name).suffix for name in built(self.folder) if "_convolved_cuda" in name]


def _graded(call: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = call(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), x)]


@pytest.fixture
def late(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Late:
    """The module, with a command whose mark `go` ends it, or has the number of its process."""
    name, script = request.param
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "builds"))
    monkeypatch.setenv("FUSEGEN_BACKGROUND", "1")
    monkeypatch.setitem(vars(torch.ops), compiled_call.BEGUN, "")  # whose build takes long
    module = compiled(tmp_path, name, CHAIN)
    found = Late(module, tmp_path / "builds")
    library = emulated_library(module, tmp_path) if "cp" in script else None
    text = script.format(go=tmp_path / "go", library=library)
    build, thin_build = own(module, "build"), own(module, "thin_build")
    is_ready, is_loaded = thin_build.is_ready, build.is_loaded
    as_on_a_gpu(module, monkeypatch)

    def words(_: object) -> list[str]:
        found.begun += 1
        return ["sh", "-c", text]

    def on_the_cpu(kernels: Any, operators: Any, kernel: str, device: str) -> bool:
        return bool(is_loaded(kernels, operators, kernel, "cpu" if kernel == "convolved" else device))

    monkeypatch.setattr(thin_build, "is_ready", is_ready)
    monkeypatch.setattr(thin_build, "words", words)
    monkeypatch.setattr(build, "is_loaded", on_the_cpu)
    monkeypatch.setattr(build, "can_load", lambda *_: True)
    return found


@pytest.mark.full
@pytest.mark.parametrize("late", [("thin_late", SLOW)], indirect=True)
def test_pytorchs_convolution_runs_until_the_kernel_is_built(late: Late, tmp_path: Path) -> None:
    wanted = _graded(lambda x: by_pytorch(late.model, x), late.x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own(late.module, "thin_build"), "is_captured", lambda: True)
        ran, before = late.call()
        assert (ran, late.begun, late.files()) == (False, 0, [])  # a CUDA graph captures the call
    torch.use_deterministic_algorithms(True)
    try:
        assert own(late.module, "thin_build").is_ready(late.module.KERNELS)  # its first use waits
    finally:
        torch.use_deterministic_algorithms(False)
    for _ in range(2):
        ran, again = late.call()
        assert not ran
        assert all(torch.equal(a, b) for a, b in zip(before, again, strict=True))
    assert (late.begun, late.files()) == (1, [".lock"])
    (tmp_path / "go").touch()
    waited_for(lambda: ".sum" in late.files() and ".so" in late.files())
    ran, after = late.call()
    assert ran
    for each in (before, after):
        for found, expected in zip(each, wanted, strict=True):
            assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert late.call()[0]
    assert late.begun == 1


@pytest.mark.full
@pytest.mark.parametrize("late", [("thin_of_another", SLOW)], indirect=True)
def test_a_build_of_another_process_that_made_nothing_is_begun_here(late: Late, tmp_path: Path) -> None:
    def is_locked(*_: object) -> None:
        raise BlockingIOError

    (tmp_path / "go").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own(late.module, "background"), "build", is_locked)
        assert not late.call()[0]
        assert not late.call()[0]
        assert late.begun == 1  # which is looked for again after a while only
        patch.setattr(own(late.module, "thin_build"), "WAIT", 0)
        vars(late.module.KERNELS.operators)["_fusegen_convolved"].again = 0
        assert not late.call()[0]
    assert not late.call()[0]
    waited_for(lambda: ".sum" in late.files() and ".so" in late.files())
    assert late.call()[0]
    assert late.begun > 2


@pytest.mark.full
@pytest.mark.parametrize("late", [("thin_killed", KILLED)], indirect=True)
def test_a_build_that_is_killed_is_one_sentence(late: Late, tmp_path: Path, warned: list[str]) -> None:
    number = tmp_path / "go"
    assert not late.call()[0]
    waited_for(lambda: number.exists() and number.read_text() != "")
    os.kill(int(number.read_text()), signal.SIGKILL)
    waited_for(lambda: bool(warned))
    for _ in range(2):
        assert not late.call()[0]
    [message] = warned
    what = "the kernel of the convolution was not built for cuda; the compiler's output is in "
    end = "; PyTorch's convolution runs in its place"
    assert re.fullmatch(rf"thin_killed: {re.escape(what)}\S+\.log{re.escape(end)}", message)
    assert late.begun == 1
    assert late.files() == [".lock", ".log"]


def test_the_command_compiles_both_parts_and_links_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By compilers that note what they are given."""
    module = compiled(tmp_path, "thin_words", CHAIN)
    build, thin_build = own(module, "build"), own(module, "thin_build")
    monkeypatch.setattr(build.tools, "cuda_compiler", lambda name: "nvcc")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("PYTORCH_NVCC", "some nvcc")
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    [wanted] = build.missing(module.KERNELS, module.KERNELS.operators, "convolved", "cuda")
    sentence = r"^thin_words: no nvcc; install the CUDA toolkit or set CUDA_HOME$"
    with pytest.raises(RuntimeError, match=sentence):
        thin_build.words(wanted)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", "/home of cuda")
    [_, _, script] = thin_build.words(wanted)
    host, cuda, link = script.split(" && ")
    assert host.endswith("-c main.cpp -o host.o")
    assert cuda.startswith("some nvcc -std=c++17")
    assert "--fmad=false" in cuda
    assert "code=sm_90a" in cuda
    assert cuda.endswith("-c main.cu -o cuda.o")
    assert " -shared host.o cuda.o " in link
    assert "'-L/home of cuda/lib64'" in link
    texts = thin_build.sources(wanted)
    assert "FUSEGEN_REGISTER_CONVOLVED(" in texts["main.cpp"]
    assert '#define FUSEGEN_MODULE "thin_words"' in texts["main.cpp"]
    assert "FUSEGEN_CONVOLVED(" in texts["main.cu"]
