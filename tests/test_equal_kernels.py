"""Modules whose C++ differs in the name only: it is compiled once, and each has its own names."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import compiled, with_runtime
from parsed import spec_file
from processes import built, script, told

from fusegen.codegen import runtime_text
from fusegen.codegen.render import Binding
from fusegen.project import build
from fusegen.runtime import library_names, nvrtc, program, recipe
from fusegen.tools import compile_ahead
from fusegen.tools.compile_ahead.shared_library import Library
from fusegen.tools.compile_ahead.shared_library import compiled as compiled_library

BODY = "formula: x * sigmoid(x) + 2\n"
NAMES = ("one", "two_prod")  # of which a header has a function
COUNTED = """case "$*" in *main.cpp*) echo >> {count};; esac
exec c++ $(echo "$@" | sed s/-O3/-O0/)
"""
USE = """
import sys, torch
sys.path.insert(0, {folder!r})
from pack import {names}
from pack._runtime import together
def use(module):
    x = torch.tensor([-1.0, 0.0, 3.0], requires_grad=True)
    y = getattr(module, module.KERNELS.name)(x)
    grad, = torch.autograd.grad(y.sum(), x)
    wanted = x * torch.sigmoid(x) + 2
    expected, = torch.autograd.grad(wanted.sum(), x)
    assert torch.allclose(y, wanted) and torch.allclose(grad, expected)
    try:
        module.KERNELS.forward_out(x.detach(), torch.ones(4))
    except RuntimeError as error:
        print(f"{{error}}\\n", end="")  # whole, of two threads, too
"""
IN_TURN = "for module in ({names},): use(module)\n"
JOINED = "together.join([each.KERNELS for each in ({names},)])\n" + IN_TURN
IN_THREADS = """
import threading
threads = [threading.Thread(target=use, args=(module,)) for module in ({names},)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def refusals(*names: str) -> list[str]:
    return [f"{name}: out has another shape than the result" for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("equal"), Binding.STABLE)


def packed(folder: Path, binding: Binding) -> Path:
    package = folder / "pack"
    package.mkdir()
    (with_runtime(package, binding.value) / "__init__.py").touch()
    for name in NAMES:
        spec = spec_file(folder, name, BODY)
        text = build.module(build.compiled_file(spec), binding)
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


class Counted:
    """A compiler that counts its calls, and what it builds."""

    def __init__(self, folder: Path) -> None:
        self.count, self.builds = folder / "count", folder / "builds"
        self.path = script(folder, "counted", COUNTED.format(count=self.count))

    @property
    def calls(self) -> int:
        """The number of calls until now."""
        return len(self.count.read_text(encoding="utf-8"))

    def told(self, folder: Path, code: str, *names: str, **more: str) -> list[str]:
        """The lines of a process that uses modules."""
        text = (USE + code).format(folder=str(folder), names=", ".join(names))
        return told(text, self.builds, CXX=self.path, **more).splitlines()


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("code", [IN_TURN, JOINED, IN_THREADS], ids=["in turn", "joined", "in threads"])
def test_two_names_are_compiled_once(code: str, folder: Path, counted: Counted) -> None:
    """A call for each of the two passes; every module has a library, with its own names."""
    assert sorted(counted.told(folder, code, *NAMES)) == refusals(*NAMES)
    assert counted.calls == 2
    suffixes = [Path(name).suffix for name in built(counted.builds)]
    assert {suffix: suffixes.count(suffix) for suffix in suffixes} == {".lock": 4, ".so": 8, ".sum": 8}


def test_another_process_compiles_nothing_for_another_name(folder: Path, counted: Counted) -> None:
    assert counted.told(folder, IN_TURN, NAMES[0]) == refusals(NAMES[0])
    assert counted.calls == 2
    assert counted.told(folder, IN_TURN, NAMES[1], PATH="/nonexistent") == refusals(NAMES[1])
    assert counted.told(folder, IN_TURN, *NAMES, PATH="/nonexistent") == refusals(*NAMES)
    assert counted.calls == 2


@pytest.mark.full
def test_a_damaged_library_serves_no_other_name(folder: Path, counted: Counted) -> None:
    assert counted.told(folder, IN_TURN, NAMES[0]) == refusals(NAMES[0])
    for path in counted.builds.rglob("*.so"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert counted.told(folder, IN_TURN, NAMES[1]) == refusals(NAMES[1])
    assert counted.calls == 4


@pytest.mark.full
def test_two_names_are_compiled_once_with_pybind(tmp_path: Path, counted: Counted) -> None:
    folder = packed(tmp_path, Binding.PYBIND)
    assert counted.told(folder, IN_TURN, *NAMES) == refusals(*NAMES)
    assert counted.calls == 2
    assert counted.told(folder, IN_TURN, *NAMES, PATH="/nonexistent") == refusals(*NAMES)


@pytest.mark.full
def test_names_of_another_module_are_not_loaded(tmp_path: Path) -> None:
    """Its sum is right, and its path: namespaces of two projects and names may make the same one."""
    module = compiled(tmp_path, "one", BODY)
    kernels, x = module.KERNELS, torch.ones(3)
    module.one(x)
    found = recipe.recipe_of_part(kernels.texts(), "forward", "binding")
    found = recipe.for_targets(found, "cpu", _targets())
    runtime = type(kernels).__module__.rpartition(".")[0]
    cache = __import__(f"{runtime}.cache", fromlist=["cache"])
    path = cache.cache_folder("one") / recipe.file_name(kernels.operators.name, ("forward", "cpu"), found)
    names = library_names.encoded(kernels.operators.name, "one")
    assert cache.load_whole(path, "", names)
    other = library_names.encoded(kernels.operators.name, "two")
    assert cache.load_whole(path, "", other) is None


def _targets() -> tuple[str, ...]:
    from fusegen.runtime import targets

    return targets.wanted("cpu")


# The text


def test_only_what_a_module_defines_has_another_name() -> None:
    text = """
HOST_DEVICE M tanh_forward(M x) { return tanh(x) + tanh_slope(x) + my_tanh_forward; }
HOST_DEVICE M tanh_forward_single_word(M x) { return tanh<SINGLE_WORD>(tanh_mask(x)) * tanh_curve12(x); }
FUSEGEN_KERNELS(tanh)
FUSEGEN_CONVOLVED(tanh, Forward, 3)
FUSEGEN_REGISTER(fusegen::names().space, "KEY", tanh_backward, 1, 1, 0)
FUSEGEN_REGISTER_BITMASK_FORWARD(fusegen::names().space, "CPU", tanh, 0)
#define FUSEGEN_SYMBOL "tanh"
"""
    wanted = """
HOST_DEVICE M it_forward(M x) { return tanh(x) + tanh_slope(x) + my_tanh_forward; }
HOST_DEVICE M it_forward_single_word(M x) { return tanh<SINGLE_WORD>(it_mask(x)) * it_curve12(x); }
FUSEGEN_KERNELS(it)
FUSEGEN_CONVOLVED(it, Forward, 3)
FUSEGEN_REGISTER(fusegen::names().space, "KEY", it_backward, 1, 1, 0)
FUSEGEN_REGISTER_BITMASK_FORWARD(fusegen::names().space, "CPU", it, 0)
#define FUSEGEN_SYMBOL "it"
"""
    assert library_names.under("it", text, "tanh") == wanted


def test_no_header_has_a_word_that_a_module_may_define() -> None:
    """Else a module of its beginning would take a header's function for its own."""
    own = re.compile(rf"\b[a-z]\w*?_(?:{library_names.OWN})\w*")
    words = {
        word
        for name in {*runtime_text.header_names()} - {*runtime_text.CALL}  # which no module includes
        for line in runtime_text.header(name).splitlines()
        for word in own.findall(re.sub(r'//.*|"[^"]*"', "", line))
    }
    known = {"run_transposed", "run_multiplied", "run_apart", "store_apart"}
    assert words == known  # neither `run` nor `store` can be a name


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_equal_kernels_have_one_recipe_and_others_have_not(device: str, tmp_path: Path) -> None:
    found = {
        name: recipe.recipe_of(compiled(tmp_path, name, body).KERNELS.texts(), "forward", device)
        for name, body in (("one", BODY), ("two_prod", BODY), ("other", "formula: x * sigmoid(x) + 3\n"))
    }
    contents = {name: recipe.content_of(each) for name, each in found.items()}
    assert contents["one"] == contents["two_prod"] != contents["other"]
    symbols = {name: set(re.findall(r"\bkernel_[0-9a-f]{16}", str(each))) for name, each in found.items()}
    assert symbols["one"] == symbols["two_prod"]
    assert not symbols["one"] & symbols["other"]  # where a program loads them globally
    assert [len(each) for each in symbols.values()] == [1, 1, 1]


# The bytes


def test_a_library_has_its_names_once() -> None:
    def library(namespace: str, name: str) -> bytes:
        return b"\x7fELF" + library_names.encoded(namespace, name) + b"code"

    one, other = library("fusegen_one_012345", "one"), library("fusegen_longer_012345", "longer")
    assert library_names.renamed(one, "fusegen_longer_012345", "longer") == other
    assert library_names.renamed(other, "fusegen_one_012345", "one") == one
    for broken in (b"\x7fELF", one + one, one[:40]):
        assert library_names.renamed(broken, "fusegen_one_012345", "one") is None


# Ahead of time, and without nvcc


@pytest.mark.full
def test_two_names_are_compiled_once_ahead_of_time(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both names have a library, which a process without a compiler loads."""
    for name in NAMES:
        workshop.spec(name, BODY)
    assert workshop.run("build").exit_code == 0
    made: list[tuple[str, str]] = []

    def counting(of: Library) -> bytes:
        made.append((of.module, of.kernel))
        return compiled_library(of)

    monkeypatch.setattr(compile_ahead, "compiled", counting)
    assert workshop.run("compile", "--device", "cpu").exit_code == 0
    assert sorted(made) == sorted(
        [("one", "forward"), ("one", "backward"), ("one", "schemas"), ("two_prod", "schemas")]
    )
    package = workshop.folder / "pack"
    (workshop.folder / "generated").rename(package)
    counted = Counted(workshop.folder)
    lines = counted.told(workshop.folder, IN_TURN, *NAMES, PATH="/nonexistent", FUSEGEN_LIBRARIES="")
    assert lines == refusals(*NAMES)
    assert not counted.count.exists()


@pytest.fixture
def by_nvrtc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts that NVRTC compiles."""
    texts: list[str] = []

    def compile_(_: object, text: str, *__: object) -> bytes:
        texts.append(text)
        return b"machine code"

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(nvrtc, "required", lambda module: None)
    monkeypatch.setattr(nvrtc, "include_folders", lambda module: [])
    monkeypatch.setattr(nvrtc, "compiled", compile_)
    monkeypatch.setattr(program.KernelKey, "architecture", "90")
    return texts


def test_two_names_are_compiled_once_by_nvrtc(by_nvrtc: list[str]) -> None:
    def code_of(name: str, constant: int) -> bytes:
        cuda = f"M {name}_forward(M x) {{ return tanh(x) + {constant}; }}\nFUSEGEN_KERNELS({name})\n"
        operators = SimpleNamespace(name=f"fusegen_{name}_012345")
        kernels: Any = SimpleNamespace(name=name, sources=SimpleNamespace(cuda=cuda), operators=operators)
        return program.code_of(kernels, program.KernelKey("forward", torch.float32, True, 0))

    for name in NAMES:
        assert code_of(name, 1) == b"machine code"
    assert len(by_nvrtc) == 1
    code_of("one", 2)
    assert len(by_nvrtc) == 2
