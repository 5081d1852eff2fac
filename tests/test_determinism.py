"""The same spec gives the same bytes: under any hash seed, from any folder, and twice in a row."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPT = """
import pathlib, sys
from fusegen.core import config
from fusegen.evidence import show
from fusegen.language import schema
from fusegen.project import build
config.use(config.found(pathlib.Path()))
for name in sys.argv[2:]:
    compiled = build.compiled_file(pathlib.Path(sys.argv[1], f"{name}.yaml"))
    for stage in show.STAGES.values():
        print(stage(compiled))
print(schema.schema_text())
"""
RICH = """\
name: rich
summary: Everything at once.
inputs: {x: {}, gate: {}, weight: {shape: [3], fill: 'uniform(-1, 2.5)'}}
params: {alpha: 0.3, beta: 1e-7}
where: {u: x * gate + alpha, v: tanh(u) - sqrt(2) * weight}
chain: [x + v, relu6, 'hardtanh(max_val=beta)', gelu_like, 'maximum(x, gate) ** 3', clamp(min=0)]
assume: {x: '[0, inf)', gate: '(-1, 1)'}
"""
GELU = """\
name: gelu_like
summary: Half of it.
params: {slope: 1.702}
formula: x * sigmoid(slope * x) * exp(1/3) / pi
"""
NAMES = ("rich", "gelu_like", *sorted(path.stem for path in (ROOT / "specs").glob("*.yaml")))
FEW = ("rich", "relu")


def everything(folder: Path, cwd: Path, seed: str, names: Sequence[str]) -> bytes:
    """The output of every stage for some specs of a folder, in a fresh process."""
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, os.path.relpath(folder, cwd), *names]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed specs, and two that use more of the language."""
    folder = tmp_path_factory.mktemp("determinism") / "specs"
    folder.mkdir()
    (folder.parent / "pyproject.toml").write_text("[tool.fusegen]\n", encoding="utf-8")
    (folder / "rich.yaml").write_text(RICH, encoding="utf-8")
    (folder / "gelu_like.yaml").write_text(GELU, encoding="utf-8")
    for path in (ROOT / "specs").glob("*.yaml"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.full
@pytest.mark.parametrize(
    "names", [FEW, pytest.param(NAMES, marks=pytest.mark.full)], ids=["a few", "the library"]
)
def test_every_stage_gives_the_same_bytes_under_another_hash_seed_and_from_another_folder(
    specs: Path, names: Sequence[str]
) -> None:
    """As `check` does under a seed drawn by lot."""
    home = everything(specs, specs.parent, "0", names)
    assert home.count(b"DO NOT EDIT") == len(names)
    elsewhere = specs.parent / "far" / "away"
    elsewhere.mkdir(parents=True, exist_ok=True)
    assert everything(specs, elsewhere, "4294967295", names) == home


def test_nothing_of_the_machine_is_in_a_module() -> None:
    """Of those that are committed, which `check` builds here."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "generated").glob("*.py"))
    for word in (str(ROOT), os.uname().nodename, sys.version.split()[0]):
        assert not re.search(rf"\b{re.escape(word)}\b", text), word
