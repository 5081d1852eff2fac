"""Libraries compiled ahead of time: where they run, how modules find them, and what is said of others."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from budget import HANG
from conftest import Workshop
from processes import Forked, environment, script

from fusegen.cli import libraries
from fusegen.errors import FusegenError
from fusegen.project import toolkit
from fusegen.runtime import prebuilt, targets
from fusegen.tools import compile_ahead

SPEC = "formula: x * x\n"
USE = """
import torch
from generated.squared import squared
x = torch.tensor([1.5, -3.0], requires_grad=True)
y = squared(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist())
"""
RESULTS = "[2.25, 9.0] [3.0, -6.0]\n"
VECTORS = torch.backends.cpu.get_cpu_capability()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9.0", "90"),
        ("10.0", "100"),
        ("9.0a", "90"),
        ("10.0f", "100"),
        ("9.0+PTX", "90ptx"),
        ("Hopper", None),
        ("90", None),
        ("9.0;", None),
    ],
)
def test_an_architecture_is_a_compute_capability(text: str, found: str | None) -> None:
    assert targets.architecture(text) == found


@pytest.mark.together
@pytest.mark.parametrize(
    ("device", "built_for", "present", "runs"),
    [
        ("cuda", ("80",), ("80",), True),
        ("cuda", ("80",), ("86",), True),  # a later minor version
        ("cuda", ("86",), ("80",), False),
        ("cuda", ("80",), ("90",), False),  # another major version
        ("cuda", ("80ptx",), ("90",), True),
        ("cuda", ("90ptx",), ("80",), False),
        ("cuda", ("80", "90"), ("80", "90"), True),
        ("cuda", ("80", "90"), ("80", "100"), False),  # every GPU has to be served
        ("cuda", ("100",), ("103",), True),
        ("cuda", ("100",), ("110",), False),
        ("cpu", ("DEFAULT",), ("AVX512",), True),
        ("cpu", ("AVX2",), ("AVX2",), True),
        ("cpu", ("AVX512",), ("AVX2",), False),
        ("cpu", ("SVE256",), ("SVE256",), True),
        ("cpu", ("AVX2",), ("SVE256",), False),
    ],
)
def test_a_library_runs_where_its_targets_do(
    device: str, built_for: tuple[str, ...], present: tuple[str, ...], runs: bool
) -> None:
    assert targets.serves(device, built_for, present) is runs


def test_names_that_commands_know_without_torch_are_those_of_the_runtime() -> None:
    assert libraries.VECTORS == targets.VECTORS


def test_nvcc_makes_machine_code_for_each_architecture_and_ptx_where_it_is_asked_for() -> None:
    assert targets.flags_of("cuda", ("80", "90ptx")) == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=compute_90",
        "-gencode=arch=compute_90,code=sm_90",
    ]


def test_a_convolution_has_the_instructions_of_sm_90_alone() -> None:
    assert targets.flags_of("cuda", ("80", "90ptx"), "convolved") == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=compute_90",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-DFUSEGEN_SM90A",
    ]
    others = ("80", "100ptx")
    assert targets.flags_of("cuda", others, "convolved") == targets.flags_of("cuda", others)


def test_builds_on_first_use_have_the_architectures_of_the_environment_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "here", lambda device: ("90",))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0 8.6;10.0+PTX Ampere")
    assert targets.wanted("cuda") == ("100ptx", "80", "86", "90")
    assert targets.wanted("cpu") == ("90",)


def test_architectures_are_those_listed_or_those_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "here", lambda device: ())
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    assert compile_ahead.architectures("9.0, 8.0") == ("80", "90")
    with pytest.raises(FusegenError, match="no GPU architecture to compile for"):
        compile_ahead.architectures(None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    assert compile_ahead.architectures(None) == ("75",)


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a module whose libraries for the CPU are compiled, which nobody changes."""
    made = Workshop(tmp_path_factory.mktemp("ahead"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.folder)
        made.build("squared", SPEC)
        result = made.run("compile", "--device", "cpu")
    assert result.exit_code == 0, result.output
    kinds = [Path(line.split()[1]).name.split("_")[3:5] for line in result.output.splitlines()]
    assert kinds == [["forward", "cpu"], ["backward", "cpu"], ["schemas.so"]]
    return made.folder


@pytest.fixture
def built(compiled_once: Path, workshop: Workshop) -> Workshop:
    shutil.copytree(compiled_once, workshop.folder, dirs_exist_ok=True)
    return workshop


def used(folder: Path, **more: str) -> tuple[str, str]:
    """The output and the warnings of a process that uses the module; it finds no compiler."""
    env = environment(folder / "builds", **{"CXX": "/nonexistent", "PYTHONPATH": str(folder), **more})
    return Forked(USE, env).communicate(timeout=HANG)


def library(folder: Path, kernel: str) -> Path:
    [found] = folder.glob(f"*_{kernel}_cpu_*.so")
    return found


def test_a_module_takes_its_libraries_where_there_is_no_compiler(built: Workshop) -> None:
    assert used(built.folder) == (RESULTS, "")
    assert not (built.folder / "builds" / "fusegen").exists()


def test_libraries_are_found_in_the_folders_of_the_environment(built: Workshop) -> None:
    elsewhere = built.folder / "elsewhere"
    (built.folder / "generated" / "_libraries").rename(elsewhere)
    folders = f"/nonexistent:{elsewhere}"
    assert used(built.folder, FUSEGEN_LIBRARIES=folders) == (RESULTS, "")
    assert used(built.folder)[0] == ""


@pytest.mark.full
def test_what_is_compiled_is_not_compiled_again_and_replaces_what_is_outdated(built: Workshop) -> None:
    assert built.run("compile", "--device", "cpu").output == "unchanged: 3 libraries\n"
    folder = built.folder / "generated" / "_libraries"
    before = library(folder, "forward")
    built.build("squared", "formula: x * x + 0 * x + 1\n")
    lines = built.run("compile", "--device", "cpu").output.splitlines()
    assert f"removed  {before.relative_to(built.folder)}" in lines
    assert library(folder, "forward") != before
    assert not before.with_suffix(".sum").exists()


def spoiled(path: Path, how: str) -> str:
    """Changes a library; the reason why it is not used."""
    prefix, vectors, content = path.stem.rsplit("_", 2)
    if how == "content":
        new, reason = (
            f"{prefix}_{vectors}_0123456789abcdef",
            "it was compiled from another version of the module",
        )
    elif how == "target":
        new, reason = f"{prefix}_VSX_{content}", f"it was compiled for VSX, and this is {VECTORS}"
    else:
        path.write_bytes(path.read_bytes()[:-1])
        damaged = "it is damaged, renamed or writable by others"
        return f"{path}: {damaged}, or does not load in PyTorch {torch.__version__}"
    for suffix in (".so", ".sum"):
        path.with_suffix(suffix).rename(path.with_name(new + suffix))
    return f"{path.with_name(new + '.so')}: {reason}"


@pytest.mark.parametrize("how", ["content", "target", "damage"])
def test_a_library_that_does_not_fit_is_named_and_the_kernel_is_built(built: Workshop, how: str) -> None:
    path = library(built.folder / "generated" / "_libraries", "forward")
    place, _, reason = spoiled(path, how).partition(": ")
    out, err = used(built.folder)
    assert out == ""
    assert err.splitlines()[0] == f"squared: {place} is not used: {reason}; the kernel is built here"
    assert err.endswith("RuntimeError: squared: no C++ compiler /nonexistent; install g++ or set CXX\n")


def test_of_several_libraries_that_run_here_the_one_with_more_instructions_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    for name in ("AVX2", "DEFAULT", "AVX512"):
        (tmp_path / prebuilt.file_name(("space", "forward", "cpu"), (name,), "00")).touch()
    monkeypatch.setenv(prebuilt.VARIABLE, str(tmp_path))
    monkeypatch.setattr(targets, "here", lambda device: ("AVX2",))
    monkeypatch.setattr(prebuilt, "load_whole", lambda path, *_: tried.append(path.stem.split("_")[3]))
    assert not prebuilt.load("module", ("space", "forward", "cpu"), "00")
    assert tried == ["AVX2", "DEFAULT"]


@pytest.mark.full
@pytest.mark.skipif(toolkit.home() is None, reason="needs nvcc")
def test_a_library_for_gpus_is_compiled_without_a_gpu(workshop: Workshop) -> None:
    workshop.build("squared", f"{SPEC}dtypes: [float32]\n")
    printed = workshop.done("compile", "--device", "cuda", "--arch", "8.0,9.0")
    names = [Path(line.split()[1]).stem.split("_")[3:7] for line in printed.splitlines()]
    assert names == [["forward", "cuda", "80", "90"], ["backward", "cuda", "80", "90"]]
    path = workshop.folder / printed.split()[1]
    needed = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True).stdout
    assert all(f"[{name}" in needed for name in ("libtorch_cuda.so]", "libtorch_cpu.so]", "libcudart.so."))
    symbols = subprocess.run(["readelf", "-SW", str(path)], capture_output=True, text=True).stdout
    assert ".nv_fatbin" in symbols


SHIPPED = """
import torch
import my_kernels
from my_kernels.shape.rows_softmax import rows_softmax
x = torch.tensor([1.5, -3.0], requires_grad=True)
y = my_kernels.squared(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist())
print(rows_softmax(torch.zeros(1, 4)).tolist(), my_kernels.__all__)
"""


@pytest.mark.full
def test_a_wheel_needs_no_compiler(built: Workshop) -> None:
    (built.folder / "specs" / "shape").mkdir()
    built.spec(
        "shape/rows_softmax",
        "name: rows_softmax\nsummary: A softmax.\nover: [-1]\nformula: softmax(x)\n",
        head=False,
    )
    assert built.run("build").exit_code == 0
    words = ("compile", "--device", "cpu", "--isa", "DEFAULT", "--wheel", "my-kernels==1.0")
    printed = built.done(*words)
    [wheel] = (built.folder / "dist").iterdir()
    assert printed.endswith(f"new      dist/{wheel.name}\n")
    before = wheel.read_bytes()
    assert built.run(*words).output.endswith(f"changed  dist/{wheel.name}\n")
    assert wheel.read_bytes() == before
    place = built.folder / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        "--target",
        str(place),
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    env = environment(built.folder / "builds", CXX="/nonexistent", PYTHONPATH=str(place))
    out, err = Forked(SHIPPED, env).communicate(timeout=HANG)
    names = "['RowsSoftmax', 'Squared', 'rows_softmax', 'squared']"
    assert (out, err) == (f"{RESULTS}[[0.25, 0.25, 0.25, 0.25]] {names}\n", "")
    assert not (built.folder / "builds" / "fusegen").exists()


@pytest.mark.parametrize(
    "text", ["my-kernels", "1==2", "a==", "==1", "a/b==1", "class-==1", "a==1\n", "a==../1"]
)
def test_a_wheel_has_a_name_and_a_version(workshop: Workshop, text: str) -> None:
    assert workshop.refused("compile", "--wheel", text) == (
        f"--wheel: {text!r} is no name and version of a wheel\n"
        "  hint: write both, as in --wheel my-kernels==1.0\n"
    )


MISTAKES = [
    (
        ("--device", "cuda", "--arch", "Hopper"),
        "--arch: 'Hopper' is no GPU architecture\n"
        "  hint: write the compute capability, as 9.0, or 9.0+PTX for newer GPUs, too\n",
    ),
    (
        ("--device", "cuda"),
        "--device cuda: no GPU architecture to compile for: there is no GPU here, and TORCH_CUDA_ARCH_LIST "
        "is not set\n  hint: name some, as in --arch 8.0,9.0\n",
    ),
    (
        ("--device", "cuda", "--arch", "9.0"),
        "--device cuda: there is no nvcc\n"
        "  hint: install the CUDA toolkit and set CUDA_HOME, or pip install 'fusegen[cuda]'\n",
    ),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_one_sentence(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(targets, "here", lambda device: ())
    monkeypatch.setattr(toolkit, "home", lambda: None)
    workshop.build("squared", SPEC)
    result = workshop.run("compile", *words)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)


def test_libraries_of_pybind_are_not_compiled(workshop: Workshop) -> None:
    workshop.spec("squared", SPEC)
    assert workshop.run("build", "--binding", "pybind").exit_code == 0
    assert workshop.refused("compile") == (
        "generated: the modules of generated have the binding pybind, whose libraries fit one PyTorch and "
        "one Python\n  hint: only modules of the binding stable are compiled ahead of time\n"
    )


@pytest.mark.parametrize("compiler", ["false", "/nonexistent"])
def test_what_a_compiler_says_is_kept(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    workshop.build("squared", SPEC)
    monkeypatch.setenv("CXX", compiler)
    said = workshop.refused("compile", "--device", "cpu")
    [log] = (workshop.folder / "generated" / "_libraries").glob("*_forward_*.log")
    assert log.read_text().startswith(f"{compiler} ")
    assert said == (
        f"generated/_libraries/{log.stem}.so: the forward kernel of squared did not compile for cpu\n"
        f"  hint: the compiler's output is in generated/_libraries/{log.name}\n"
    )


@pytest.mark.full
def test_flags_that_a_compiler_refuses_are_left_out(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.build("squared", SPEC)
    refusing = 'case "$*" in *-fno-thread-jumps*|*-finline-limit*-Werror*) exit 1;; esac'
    words = script(workshop.folder, "clang++", f'{refusing}\nexec /usr/bin/env c++ "$@"\n')
    monkeypatch.setenv("CXX", words)
    lines = workshop.run("compile", "--device", "cpu", "--isa", "DEFAULT").output.splitlines()
    assert [line.split()[0] for line in lines] == ["new"] * 3


EXPORT = """
import torch
from generated.squared import ModelNew
net = torch.nn.Sequential(torch.nn.Linear(4, 3), ModelNew()).eval()
torch.nn.init.constant_(net[0].weight, 0.5)
torch.nn.init.constant_(net[0].bias, 1)
program = torch.export.export(net, (torch.ones(2, 4),))
torch._inductor.aoti_compile_and_package(program, package_path="net.pt2")
"""
PROGRAM = r"""
#include <dlfcn.h>
#include <cstdio>
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
int main(int count, char** names) {
  for (int k = 2; k < count; ++k)
    if (!dlopen(names[k], RTLD_NOW)) return std::puts(dlerror()), 1;
  torch::inductor::AOTIModelPackageLoader net(names[1]);
  std::vector<at::Tensor> inputs{at::ones({2, 4})};
  std::printf("%g\n", net.run(inputs)[0].sum().item<float>());
}
"""


@pytest.mark.full
def test_a_package_of_aotinductor_runs_without_python(built: Workshop) -> None:
    from torch.utils import cpp_extension

    env = environment(built.folder / "builds", PYTHONPATH=str(built.folder))
    subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT], cwd=built.folder, env=env, check=True)
    source, program = built.file("main.cpp", PROGRAM), built.folder / "main"
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    [linked] = cpp_extension.library_paths()
    flags = ["-std=c++20", "-O0", f"-L{linked}", f"-Wl,-rpath,{linked}", "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run(["c++", *includes, str(source), *flags, "-ldl", "-o", str(program)], check=True)
    folder = built.folder / "generated" / "_libraries"
    [schemas] = folder.glob("*_schemas.so")
    command = [str(program), "net.pt2", str(schemas), str(library(folder, "forward"))]
    done = subprocess.run(command, cwd=built.folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "54\n"), done.stderr
