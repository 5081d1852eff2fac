"""Modules that many threads import, build and call for the first time at once, in their own processes."""

import subprocess
import sys
from pathlib import Path

import pytest
from kernels import GENERATED, ROOT
from processes import built, environment, told

from fusegen.project import standalone

REPETITIONS = 4
TOGETHER = """
import sys, threading, traceback, torch
THREADS = 16
failures, start = [], threading.Barrier(THREADS)

def guarded(work, k):
    start.wait()
    try:
        work(k)
    except BaseException:
        failures.append(traceback.format_exc())

def together(work):
    threads = [threading.Thread(target=guarded, args=(work, k)) for k in range(THREADS)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    print(len(failures), *failures[:1])

class Other:
    def find_spec(self, name, path=None, target=None):
        return None

def churn(stop):
    # as setuptools does, which PyTorch imports to build: it puts a finder in front, and takes it away again
    other = Other()
    while not stop.is_set():
        sys.meta_path.insert(0, other)
        sys.meta_path.remove(other)

sys.setswitchinterval(1e-5)  # so that threads meet
"""
EXECUTE = """
import shlex, sysconfig  # which Python itself may overlook while a finder is taken away
from pathlib import Path
texts = [Path(path).read_text() for path in {paths}]
spaces = [dict() for _ in range(THREADS)]
stop = threading.Event()
churning = threading.Thread(target=churn, args=(stop,))
churning.start()
together(lambda k: exec(texts[k % len(texts)], spaces[k]))
stop.set()
churning.join()
print(len({{space["KERNELS"].__class__ for space in spaces}}))
print(len({{space["KERNELS"].operators.name for space in spaces}}))
print(len([finder for finder in sys.meta_path if type(finder).__name__ == "Runtime"]))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Standalone files of modules, for pybind11, each with a runtime of its own or that of another."""
    folder = tmp_path_factory.mktemp("standalone")
    paths = []
    for name in ("hardsigmoid", "relu", "swiglu", "conv_relu_hardswish", "silu"):
        paths.append(folder / f"{name}.py")
        text = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
        paths[-1].write_text(standalone.text(text, "pybind"), encoding="utf-8")
    return [str(path) for path in paths]


@pytest.mark.few(1)
@pytest.mark.parametrize("repetition", range(REPETITIONS))
@pytest.mark.parametrize("count", [1, 5])
def test_threads_execute_standalone_files(
    count: int, repetition: int, files: list[str], tmp_path: Path
) -> None:
    """Of one file, or of several; each runtime and each namespace of operators is made once."""
    texts = [Path(path).read_text(encoding="utf-8") for path in files[:count]]
    runtimes = len({text.partition("RUNTIME = ")[2].partition("class Runtime")[0] for text in texts})
    out = told(TOGETHER + EXECUTE.format(paths=files[:count]), tmp_path)
    assert out.splitlines() == ["0", str(runtimes), str(count), str(runtimes)]


CALL = """
import importlib
names = {names}
def call(k):
    name = names[k % len(names)]
    module = importlib.import_module("generated." + name)
    x = torch.linspace(-4, 4, 9, requires_grad=True)
    y = module.ModelNew()(x)
    [slope] = torch.autograd.grad(y.sum(), x)
    with torch.no_grad():
        assert torch.equal(y, module.ModelNew()(x))
    expected = getattr(torch.nn.functional, name)(x)
    assert torch.allclose(y, expected)
    assert torch.allclose(slope, torch.autograd.grad(expected.sum(), x)[0])
together(call)
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of builds that is empty before the first test."""
    return tmp_path_factory.mktemp("builds")


@pytest.mark.few(1)
@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_threads_import_build_and_call_modules(repetition: int, builds: Path) -> None:
    """The first repetition builds each kernel once; the others find what it built.

    Two modules have two kernels each, and of each kernel the binding and the loops for float32.
    """
    assert told(TOGETHER + CALL.format(names=["relu6", "hardsigmoid"]), builds) == "0\n"
    made = [name for name in built(builds) if name.endswith(".so")]
    assert len(made) == 8


def run(code: str, folder: Path) -> str:
    """Return the output of a process that finds fusegen, too."""
    command = [sys.executable, "-c", TOGETHER + code]
    process = subprocess.run(
        command, env=environment(folder), cwd=ROOT, capture_output=True, text=True, check=True
    )
    return process.stdout


PATCH = """
from torch import nn
import fusegen
NAMES = "hardsigmoid", "hardtanh", "relu6"
def patch(k):
    model = nn.Sequential(nn.Hardsigmoid(), nn.Hardtanh(-0.5, 2.0), nn.ReLU6())
    assert len(fusegen.patch(model).replaced) == 3
    assert [type(layer).__module__ for layer in model] == ["fusegen.generated." + name for name in NAMES]
for _ in range(8):
    together(patch)
    for name in NAMES:
        del sys.modules["fusegen.generated." + name]
"""


@pytest.mark.full
def test_threads_patch_models(tmp_path: Path) -> None:
    assert run(PATCH, tmp_path) == 8 * "0\n"


LOAD = """
from pathlib import Path
from fusegen.project.loader import imported
found = [None] * THREADS
def load(k):
    found[k] = imported(Path({path!r}))
for _ in range(4):
    together(load)
    classes = {{module.KERNELS.__class__ for module in found}}
    print(len({{module.__name__ for module in found}}), len(classes))
    for name in [name for name in sys.modules if name.startswith("fusegen_built_")]:
        del sys.modules[name]
"""


@pytest.mark.full
def test_threads_load_a_file(tmp_path: Path) -> None:
    """Each has a module of its own, and all have one runtime."""
    assert run(LOAD.format(path=str(GENERATED / "relu.py")), tmp_path) == 4 * "0\n16 1\n"
