"""The installed package: a wheel that builds the committed modules from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from budget import FULL, HANG
from compiler import Once
from kernels import GENERATED, ROOT

FEW = ("conv_relu_hardswish", "geglu", "hardtanh")  # of layers, of several tensors, with scalars
SOME = (*FEW, "mish_mish", "silu", "snake") if FULL else FEW
READ = (".py", ".h", ".cuh")  # the suffixes of what the compiler reads in its own folder
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def run(*command: str, folder: Path, **more: str) -> str:
    """The output of a command that runs in a folder; it has to end well."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=kept | more, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(extensions: Path) -> Path:
    """The wheel of the checkout, made once for all workers."""
    pytest.importorskip("hatchling")
    with Once(str(extensions / "wheel" / "made")) as made:
        if made:
            folder = extensions / "wheel"
            own = ("wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", ".", str(ROOT))
            run(*PIP, *own, folder=folder)
            Path(made).touch()
    [path] = (extensions / "wheel").glob("fusegen-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, extensions: Path) -> Path:
    """A folder with the wheel installed, and nothing else."""
    folder = extensions / "installed"
    with Once(str(extensions / "wheel" / "installed")) as made:
        if made:
            own = ("install", "--no-deps", "--quiet", "--target", str(folder), str(wheel))
            run(*PIP, *own, folder=extensions)
            Path(made).touch()
    return folder


def test_the_wheel_holds_all_that_the_compiler_reads(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("templates", "specs", "generated"):
        for path in filter(Path.is_file, (ROOT / folder).rglob("*")):
            if "__pycache__" in path.parts:
                continue
            assert f"fusegen/{path.relative_to(ROOT).as_posix()}" in held
    for path in (ROOT / "fusegen").rglob("*"):
        assert path.suffix not in READ or path.relative_to(ROOT).as_posix() in held
    assert {"fusegen/evidence/certify/include/interval.h", "fusegen/runtime/include/layout.h"} <= held
    assert "fusegen/specs/schema.json" in held
    tops = {name.split("/")[0] for name in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fusegen"}
    assert not [name for name in held if "__pycache__" in name]


def test_an_installed_compiler_writes_the_committed_modules(installed: Path, tmp_path: Path) -> None:
    """From an empty folder, its own templates and specs; the checkout is not looked at."""
    python = (
        [sys.executable, "-P", "-m", "fusegen"]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-m", "fusegen"]
    )
    more = {"PYTHONPATH": str(installed)}
    where = run(sys.executable, "-c", "import fusegen; print(fusegen.__file__)", folder=tmp_path, **more)
    assert Path(where.strip()).is_relative_to(installed)
    run(*python, "build", *SOME, "--output", "out", folder=tmp_path, **more)
    for name in SOME:  # but for the path of the spec, which is the project's
        committed = (
            (GENERATED / f"{name}.py").read_text(encoding="utf-8").replace(f"specs/{name}.yaml", name)
        )
        assert (tmp_path / "out" / f"{name}.py").read_text(encoding="utf-8") == committed
    for path in (GENERATED / "_runtime").glob("*.py"):
        assert (tmp_path / "out" / "_runtime" / path.name).read_bytes() == path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_an_installed_compiler_writes_a_filter(installed: Path, tmp_path: Path) -> None:
    """The headers that lie inside the package stand in its text."""
    text = "from fusegen.evidence.certify.interval_filter_text import source; "
    text += "from fusegen.core.term import Name, Program; "
    text += "print(source(Program(('x',), (), (), (Name('x'),)), {}, {}))"
    more = {"PYTHONPATH": str(installed)}
    assert "struct Series {" in run(sys.executable, "-c", text, folder=tmp_path, **more)


@pytest.mark.full
def test_an_installed_compiler_builds_a_spec_of_ones_own(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    spec = "name: doubled\nsummary: A test.\nchain: [hardswish, 2 * x]\n"
    (tmp_path / "specs" / "doubled.yaml").write_text(spec, encoding="utf-8")
    run(sys.executable, "-m", "fusegen", "build", folder=tmp_path, PYTHONPATH=str(installed))
    text = (tmp_path / "generated" / "doubled.py").read_text(encoding="utf-8")
    taken = 'x: "Tensor | None" = None, inplace: bool = False, *, out: "Tensor | None" = None, '
    assert f"\ndef doubled(\n    {taken}" in text


MODELS = """
import pathlib, torch, fusegen
from torch import nn
assert "fusegen" in torch._dynamo.list_backends()
model = nn.Sequential(nn.Linear(4, 4), nn.SiLU())
report = fusegen.patch(model)
print(report.replaced, pathlib.Path(fusegen.generated.silu.__file__).parent.name)
report.undo()
call = torch.compile(lambda x: nn.functional.gelu(x + 1) * 2, backend="fusegen")
x = torch.ones(4096)
torch.testing.assert_close(call(x), nn.functional.gelu(x + 1) * 2)
print(sorted(path.name for path in pathlib.Path("fusegen_regions").glob("*.py")))
"""


@pytest.mark.full
def test_an_installed_compiler_has_modules_for_models_and_a_backend(
    installed: Path, tmp_path: Path
) -> None:
    more = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    printed = run(sys.executable, "-W", "ignore", "-c", MODELS, folder=tmp_path, **more)
    assert printed.splitlines() == [
        "(Replaced(path='1', before='SiLU()', module='silu', when=''),) generated",
        "['add_gelu_mul.py']",
    ]
