"""The name of the backend of torch.compile, with fusegen installed and from a checkout that is not."""

import os
import subprocess
import sys
from importlib.metadata import distributions, entry_points
from pathlib import Path

import pytest
from conftest import ROOT

import fusegen
from fusegen.core.registration import FUNCTION, GROUP, NAME, Finder


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the packages that are installed here, without fusegen."""
    folder = tmp_path_factory.mktemp("packages")
    for place in map(Path, filter(lambda path: path.endswith("site-packages"), sys.path)):
        for path in place.iterdir():
            if "fusegen" not in path.name and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return folder


def told(code: str, *places: Path) -> str:
    """Return the output of a process that finds packages in these places only."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, "-S", "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout


LIGHT = """
import sys
import fusegen
print(*(name in sys.modules for name in ("torch", "importlib.metadata", "fusegen.models.backend")))
"""
USE = """
import torch
import fusegen.models.backend
def backend(graph, inputs, **given):
    print("compiled", given)
    return graph.forward
fusegen.models.backend.fusegen = backend
for _ in range(2):
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend="fusegen", options={"regions": "here"})(torch.ones(2))
print(torch._dynamo.list_backends().count("fusegen"))
"""
COMPILED = 2 * "compiled {'options': {'regions': 'here'}}\n" + "1\n"
ORDERS = {
    "fusegen first": "import fusegen",
    "torch first": "import torch, fusegen",
    "dynamo first": "import torch._dynamo, fusegen",
    "backends listed first": "import torch; torch._dynamo.list_backends(); import fusegen",
    "twice": "import torch._dynamo, fusegen, importlib; importlib.reload(fusegen)",
}


def test_the_import_of_fusegen_imports_little() -> None:
    assert told(LIGHT, ROOT) == "False False False\n"


@pytest.mark.full
@pytest.mark.parametrize("order", ORDERS)
def test_a_checkout_that_is_not_installed_is_known_by_name(order: str, packages: Path) -> None:
    out = told(ORDERS[order] + USE, packages, ROOT)
    assert out == COMPILED


@pytest.mark.full
def test_an_installed_package_is_known_once(packages: Path, tmp_path: Path) -> None:
    """As its own metadata says, whether fusegen was imported or not."""
    installed = tmp_path / "fusegen-1.2.3.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: fusegen\nVersion: 1.2.3\n")
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\n{NAME} = {FUNCTION}\n")
    code = """
import fusegen
from importlib.metadata import distributions, version
print(version("fusegen"), [each.version for each in distributions(name="fusegen")])
"""
    assert told(code, ROOT) == f"{fusegen.__version__} ['{fusegen.__version__}']\n"
    assert told(code, tmp_path, ROOT) == "1.2.3 ['1.2.3']\n"
    out = told(ORDERS["fusegen first"] + USE, tmp_path, packages, ROOT)
    assert out == COMPILED


def test_the_finder_gives_what_pyproject_declares() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'[project.entry-points.{GROUP}]\n{NAME} = "{FUNCTION}"\n' in declared
    assert [point.value for point in entry_points(group=GROUP, name=NAME)] == [FUNCTION]


def test_the_finder_gives_nothing_else() -> None:
    assert len([each for each in sys.meta_path if isinstance(each, Finder)]) == 1
    assert [*distributions(name="fusegen-other")] == []
    assert [*distributions(path=[])] == []
