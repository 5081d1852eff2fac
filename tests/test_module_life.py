"""From import to first use: what a module needs, builds, keeps, and says when it cannot.

Each story runs in processes of its own, on a folder of builds of its own.
"""

import os
import re
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from budget import HANG
from conftest import ROOT
from kernels import NAMES, by_module, complaints, generated, with_runtime
from processes import ANSWER, CAUGHT, MODULE, USE, built, script, started, told
from processes import cache as cache
from torch import nn

from fusegen.core.spec import NAME_PATTERN
from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_attribute
from fusegen.runtime.flags import CPU_FLAGS
from fusegen.runtime.tools import find_torchs, split_compile

# Import and exec


def test_importing_builds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, generated.hardsigmoid as m; m.ModelNew(); m.get_init_inputs()\n"
        "print('torch.utils.cpp_extension' in sys.modules)"
    )
    assert told(code, tmp_path) == "False\n"
    assert built(tmp_path) == []


@pytest.mark.full
def test_two_modules_live_side_by_side(cache: Path) -> None:
    code = (
        "import torch, generated.hardsigmoid as a, generated.relu as b\nx = torch.tensor([-1.0, 7.0])\n"
        "print(a.hardsigmoid(x).tolist(), b.relu(x).tolist(), a.KERNELS is not b.KERNELS)"
    )
    assert told(code, cache) == "[0.3333333432674408, 1.0] [0.0, 7.0] True\n"


def test_a_model_is_copied_pickled_and_saved(cache: Path) -> None:
    code = (
        "import copy, io, pickle, torch, generated.hardtanh as m\n"
        "model = m.ModelNew(min_val=-0.5); x = torch.tensor([-9.0, 9.0]); print(model(x).tolist())\n"
        "for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):\n"
        "    print(other(x).tolist(), other.min_val)\n"
        "conv = __import__('generated.conv_relu_hardswish', fromlist=['x'])\n"
        "first, second = conv.ModelNew(2, 3, 3), conv.ModelNew(2, 3, 3); x = torch.randn(1, 2, 5, 5)\n"
        "with torch.no_grad():\n"
        "    print(torch.equal(first(x), second(x)))\n"
        "    second.load_state_dict(first.state_dict()); print(torch.equal(first(x), second(x)))\n"
        "    print(torch.equal(copy.deepcopy(first)(x), first(x)))\n"
    )
    assert told(code, cache) == "[-0.5, 1.0]\n" + 3 * "[-0.5, 1.0] -0.5\n" + "False\nTrue\nTrue\n"


# The text

HARNESS = re.compile(
    r"\b(try\s*:|except\b|pass\b)|import\s+(threading|multiprocessing|concurrent)|__future__"
)
RUNTIME = [
    path
    for path in sorted((ROOT / "fusegen/runtime").rglob("*"))
    if path.suffix != ".pyc" and path.is_file()
]


@pytest.mark.together
@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: path.name)
def test_no_file_of_the_runtime_has_a_word_that_benchmark_harnesses_refuse(path: Path) -> None:
    assert not HARNESS.search(path.read_text(encoding="utf-8"))


@pytest.mark.together
@pytest.mark.parametrize("name", by_module(NAMES))
def test_a_module_holds_little_of_its_own(name: str) -> None:
    """Its names are those that are there for users, the two forms of eager, and constants."""
    module = generated(name)
    own = module.__name__
    made = {key for key, value in vars(module).items() if getattr(value, "__module__", "") == own}
    alias = "".join(word.capitalize() for word in name.split("_"))
    made -= {"eager_gradient"}  # where it is not that of `eager`
    made -= {f"_{name}"}  # of a tensor that is aligned with another first
    assert made == {name, "ModelNew", alias, "eager", "get_inputs", "get_init_inputs"}
    assert getattr(module, alias) is module.ModelNew
    assert set(module.__all__) == made - {"eager"}


# The cache


def test_a_second_process_needs_no_compiler(cache: Path) -> None:
    before = built(cache)
    assert told(USE, cache, PATH="/nonexistent", CXX="/nonexistent/c++") == ANSWER
    assert built(cache) == before


def test_another_text_is_another_build(cache: Path, tmp_path: Path) -> None:
    changed = with_runtime(tmp_path / "other") / "hardsigmoid.py"
    text = MODULE.read_text(encoding="utf-8")
    assert text.count("/ M(6)") == 1
    changed.write_text(text.replace("/ M(6)", "/ M(5)"), encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{USE.replace('generated.', 'other.')}"
    assert told(code, cache) == ANSWER.replace("0.6666666865348816", "0.800000011920929")
    assert told(USE, cache) == ANSWER


def test_first_use_logs_what_it_builds(tmp_path: Path) -> None:
    code = "import logging; logging.basicConfig(level=logging.INFO, format='%(name)s %(message)s')\n" + USE
    lines_seen: list[str] = []
    for expected in (2, 0):  # what binds the kernel, and its loops for float32
        process = started(code, tmp_path)
        out, err = process.communicate(timeout=HANG)
        assert (process.returncode, out) == (0, ANSWER)
        start = "fusegen building hardsigmoid_forward for cpu as "
        lines = [line for line in err.splitlines() if line.startswith(start)]
        assert len(lines) == expected, err
        lines_seen += lines
    libraries = [name for name in built(tmp_path) if name.endswith(".so")]
    assert sorted(Path(line).name for line in lines_seen) == sorted(libraries)


@pytest.mark.full
def test_both_passes_are_built_by_the_first_call_with_a_gradient(tmp_path: Path) -> None:
    code = (
        "import torch; from generated.hardsigmoid import hardsigmoid\n"
        "x = torch.ones(3, requires_grad={gradient}); y = hardsigmoid(x); print(y.shape)"
    )
    for gradient, kernels in ((False, ["forward"]), (True, ["backward", "forward"])):
        folder = tmp_path / kernels[0]
        told(code.replace("{gradient}", str(gradient)), folder)
        libraries = {name.split("_")[3] for name in built(folder) if name.endswith(".so")}
        assert sorted(libraries) == kernels


@pytest.mark.full
def test_processes_that_start_at_once_all_succeed(tmp_path: Path) -> None:
    """They wait for the one that builds; the compiler runs once."""
    count = tmp_path / "count"
    compiler = script(
        tmp_path, "counted", f'case "$*" in *main.cpp*) echo >> {count};; esac\nexec c++ "$@"\n'
    )
    processes = [started(USE, tmp_path / "builds", CXX=compiler) for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=HANG)
        assert (out, complaints(err)) == (ANSWER, "")
        assert process.returncode == 0
    assert len(count.read_text(encoding="utf-8").splitlines()) == 1


def test_threads_that_start_at_once_all_succeed(tmp_path: Path) -> None:
    code = (
        "import torch; from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "from generated.hardsigmoid import ModelNew; model, x = ModelNew(), torch.ones(3)\n"
        "with Pool(4) as pool: results = list(pool.map(lambda _: model(x).tolist(), range(8)))\n"
        "print(len(results), len({str(r) for r in results}))"
    )
    assert told(code, tmp_path) == "8 1\n"


@pytest.mark.full
def test_a_build_that_was_killed_does_not_stand_in_the_way(tmp_path: Path) -> None:
    """Nor does its compiler, which still runs when the next build is done."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    os.mkfifo(begun)
    sleep = f'{sys.executable} -c "import time; time.sleep({2 * HANG})"'
    slow = script(tmp_path, "slow", f"echo > {begun}\n{sleep}\necho > {ended}\n")
    builds = tmp_path / "builds"
    process = started(USE, builds, CXX=slow)
    assert begun.read_text(encoding="utf-8") == "\n"  # which waits for the compiler to start
    os.kill(process.pid, signal.SIGKILL)  # only it: its compiler sleeps on, as an orphan would
    process.communicate()
    try:
        assert told(USE, builds) == ANSWER
        assert not ended.exists()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# What cannot be built


def test_no_compiler_is_one_sentence(tmp_path: Path) -> None:
    for path, compiler, named in (
        (os.environ["PATH"], "no-such-c++ -m64", "no-such-c++ -m64"),
        ("/no", "", "c++"),
    ):
        more = {"CXX": compiler} if compiler else {}
        [line] = told(CAUGHT, tmp_path, PATH=path, **more).splitlines()
        sentence = f"hardsigmoid: no C++ compiler {named}; install g++ or set CXX"
        assert line == f"RuntimeError {sentence} None False"


def test_no_ninja_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For the CPU only the binding pybind needs it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RuntimeError, match=r"^hardsigmoid: no ninja; pip install ninja$"):
        find_torchs("hardsigmoid", "cpu")


# Tools


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH with what a build needs, but ninja."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("as", "c++", "cat", "collect2", "g++", "ld", "sh", "which"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return folder


def test_a_build_for_the_cpu_needs_the_compiler_only(tools: Path, tmp_path: Path) -> None:
    """It starts neither ninja nor PyTorch's functions, and sets no variable."""
    code = f"import sys; sys.executable = {str(tmp_path / 'python')!r}\n{USE}; import os\n"
    code += "print(os.environ['PATH'], 'CXX' in os.environ, 'torch.utils.cpp_extension' in sys.modules)"
    assert told(code, tmp_path / "builds", PATH=str(tools)) == f"{ANSWER}{tools} False False\n"


def test_ninja_is_found_beside_the_interpreter(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment that is not activated."""
    monkeypatch.setenv("PATH", str(tools))
    assert find_torchs("hardsigmoid", "cpu") == f"{tools}{os.pathsep}{Path(sys.executable).parent}"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "compiler",
    [
        "",
        "launcher  'c++' -DUNUSED=1",
        *(pytest.param(text, marks=pytest.mark.full) for text in (" ", "launcher g++")),
    ],
)
def test_a_compiler_may_be_empty_or_have_a_launcher(compiler: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script(tmp_path, "launcher", f'echo "$1" >> {ran}\nexec "$@"\n')
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    code = f"{USE}; import os; print(repr(os.environ['CXX']))"
    assert told(code, tmp_path / "builds", CXX=compiler, PATH=path) == f"{ANSWER}{compiler!r}\n"
    assert ran.exists() == ("launcher" in compiler)


@pytest.mark.full
def test_threads_that_build_several_modules_take_turns(tmp_path: Path) -> None:
    """The variables that a build sets are those of the whole process."""
    script(tmp_path, "launcher", 'sleep 0.1\nexec "$@"\n')
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    code = """
import os, torch
from concurrent.futures import ThreadPoolExecutor
from generated import hardsigmoid, hardswish, relu, relu6
modules = hardsigmoid, hardswish, relu, relu6
functions = [getattr(module, module.__name__.rpartition(".")[2]) for module in modules]
before = dict(os.environ)
with ThreadPoolExecutor(4) as pool:
    print([y.item() for y in pool.map(lambda function: function(torch.ones(())), functions)])
print(dict(os.environ) == before)
"""
    assert told(code, tmp_path / "builds", CXX="launcher g++", PATH=path).splitlines() == [
        "[0.6666666865348816, 0.6666666865348816, 1.0, 1.0]",
        "True",
    ]


def test_a_flag_that_the_compiler_refuses_is_left_out(tmp_path: Path) -> None:
    """As clang does: it stops at one of GCC's flags, and warns of another. Others are never left out."""
    compiled = tmp_path / "compiled"
    compiler = script(
        tmp_path,
        "g++",
        'case "$*" in *-O3*-Werror*) exit 1;; esac\n'
        'case "$*" in *-fno-thread-jumps*) echo unknown argument >&2; exit 1;; esac\n'
        'case "$*" in *-finline-limit*-Werror*) exit 1;; esac\n'
        f'case "$*" in *main.cpp*) echo "$*" >> {compiled};; esac\nexec /usr/bin/env c++ "$@"\n',
    )
    assert told(USE, tmp_path / "builds", CXX=compiler) == ANSWER
    [command] = compiled.read_text(encoding="utf-8").splitlines()
    flags = CPU_FLAGS
    refused = {"-finline-limit=100000", "-fno-thread-jumps"}
    assert {flag for flag in flags if flag not in command.split()} == refused


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        ("release 13.0, V13.0.48", ["-Xptxas=--split-compile=0"]),
        ("release 14.1, V14.1.2", ["-Xptxas=--split-compile=0"]),
        ("release 12.8, V12.8.93", []),
        ("nothing", []),
    ],
)
def test_the_version_of_nvcc_decides_over_its_flags(
    release: str, flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", "nvcc", f"echo Cuda compilation tools, {release}\n")
    monkeypatch.delenv("PYTORCH_NVCC", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.6" if flags else "13.0")
    assert split_compile(str(tmp_path)) == flags
    monkeypatch.setenv("PYTORCH_NVCC", script(tmp_path, "other", "echo release 13.2,\n"))
    assert split_compile("/nowhere") == ["-Xptxas=--split-compile=0"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    [line] = told(CAUGHT, tmp_path / "file").splitlines()
    folder = tmp_path / "file" / "fusegen"
    hint = "set TORCH_EXTENSIONS_DIR to a folder that can be written"
    sentence = f"cannot build in {folder}: Not a directory; {hint}"
    assert line == f"RuntimeError hardsigmoid: {sentence} None True"


def test_a_compiler_that_fails_is_one_sentence_and_a_log(tmp_path: Path) -> None:
    noise = "i=0; while [ $i -lt 1000 ]; do echo error line $i; i=$((i+1)); done; exit 1\n"
    failing = script(
        tmp_path, "failing", f'case "$*" in *main.cpp*) {noise.strip()};; esac\nexec c++ "$@"\n'
    )
    code = CAUGHT + "attempt()\n" + "import os; os.environ['CXX'] = 'c++'; attempt()\n"
    first, second, third = told(code, tmp_path / "builds", CXX=failing).splitlines()
    assert first.removesuffix("True") == second.removesuffix("False")  # the second one is raised by C++
    found = re.fullmatch(
        r"RuntimeError hardsigmoid: the forward kernel did not compile for cpu; "
        r"the compiler's output is in (\S+) None True",
        first,
    )
    assert found
    log = Path(found[1]).read_text(encoding="utf-8")
    assert all(f"error line {i}\n" in log for i in (0, 500, 999))
    assert third + "\n" == ANSWER


def test_what_a_crash_left_is_not_taken_for_a_library(tmp_path: Path) -> None:
    """Only a whole library has a library's name; a half-built folder beside it changes nothing."""
    half = tmp_path / "fusegen" / "tmpabandoned" / "hardsigmoid.so"
    half.parent.parent.mkdir(mode=0o755)
    half.parent.mkdir()
    half.write_bytes(b"half")
    assert told(USE, tmp_path) == ANSWER
    assert half.exists()


def test_many_threads_of_a_pool_can_use_a_model(cache: Path) -> None:
    module = generated("relu6")
    x = [torch.randn(1000 + k) * 9 for k in range(16)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(module.relu6, x))
    for given, result in zip(x, results, strict=True):
        assert torch.equal(result, torch.nn.functional.relu6(given))


@pytest.mark.together
@pytest.mark.parametrize("name", [n for n in dir(nn.Module()) if re.fullmatch(NAME_PATTERN, n)])
def test_no_spec_can_hide_what_a_module_already_has(name: str) -> None:
    with pytest.raises(FusegenError, match=f"^: '{name}' (is already|cannot be a name)"):
        check_attribute(name, Span(""))
