"""Where the candidate of a problem comes from: a standalone file, or a spec that one is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kernelbench.problem import key
from fusegen.codegen.printed import Binding
from fusegen.core import manifest
from fusegen.errors import FusegenError, SpecErrors
from fusegen.language import library
from fusegen.project import modules, standalone

SPECS = Path("specs")
MODULES = Path("generated")  # that are committed
FOLDERS = (SPECS / "kernelbench", SPECS)  # of specs; the first that has one of the name
NAMES = Path(__file__).parent / "names.json"  # the spec of each known problem
BINDING = Binding.STABLE


@dataclass(frozen=True)
class Made:
    """A candidate."""

    path: Path  # of its file, or of its spec
    text: str = ""  # its Python
    refused: str = ""  # why there is none: the compiler refuses the spec, or the file cannot be read


@dataclass(frozen=True)
class Candidates:
    """The known candidates."""

    files: Mapping[str, Path]  # standalone files or specs, by the key of their name
    # problems whose candidate has another name, each with that name or with a file
    names: Mapping[str, str | Path]

    def of(self, problem: str) -> Path | None:
        """Return the standalone file or the spec of a problem, or nothing."""
        named = self.names.get(problem)
        if isinstance(named, Path):
            return named
        return self.files.get(key(named or "")) or self.files.get(key(problem))


def found(folder: Path | None, names: Path | None) -> Candidates:
    """Return the standalone files of a folder, or the specs where there is none.

    Args:
        folder: of standalone files.
        names: a file of names, which win over those of `NAMES`.

    Raises:
        ValueError: `names` is not a JSON object of strings.
    """
    if folder:
        files = {key(path.stem): path for path in sorted(folder.glob("*.py"))}
    else:
        specs = (path for place in reversed(FOLDERS) for path in sorted(place.glob("*.yaml")))
        files = {key(path.stem): path for path in specs}
    return Candidates(files, _named(NAMES) | (_named(names) if names else {}))


def made(candidates: Mapping[Path, Path], jobs: int) -> dict[Path, Made]:
    """Return the texts of candidates, by the files of their problems; specs are compiled some at a time.

    Args:
        candidates: standalone files and specs, by the files of their problems.
        jobs: processes that compile.
    """
    paths = tuple(dict.fromkeys(candidates.values()))
    specs = [path for path in paths if path.suffix != ".py"]
    if jobs > 1 and len(specs) > 1:
        with ProcessPoolExecutor(min(jobs, len(specs))) as pool:
            known = dict(zip(paths, pool.map(_made, paths), strict=True))
    else:
        known = {path: _made(path) for path in paths}
    return {problem: known[path] for problem, path in candidates.items()}


def _made(path: Path) -> Made:
    """Return the text of a candidate, or why there is none."""
    try:
        if path.suffix == ".py":
            return Made(path, path.read_text(encoding="utf-8"))
        if known := committed(path):
            return Made(path, standalone.text(known, BINDING.value))
        built = compiled(path)
        return Made(path, standalone.text(built.text, BINDING.value, apart=built.apart))
    except (SpecErrors, FusegenError, OSError, UnicodeDecodeError) as error:
        return Made(path, refused=str(error))


def committed(spec: Path) -> str:
    """Return the committed module of a spec.

    It is empty where there is none, one of another text of the spec, or one of several kernels.

    Raises:
        SpecErrors: every mistake in the spec.
        OSError, UnicodeDecodeError: the module cannot be read.
    """
    path = MODULES / f"{library.place(spec)}.py"
    if not path.is_file() or manifest.read(MODULES).binding != BINDING.value:
        return ""
    text = path.read_text(encoding="utf-8")
    loaded = library.load(spec)
    return text if f"\n# Spec {loaded.digest}." in text and not loaded.front else ""


def compiled(spec: Path) -> modules.Built:
    """Return the module that the compiler makes of a spec.

    Raises:
        SpecErrors: every mistake in the spec.
    """
    [built] = modules.built((spec,), MODULES, BINDING).values()
    return built


def _named(path: Path) -> dict[str, str | Path]:
    """Return the names in a file; what ends in .py or .yaml is a path relative to it."""
    read = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(read, dict) or not all(isinstance(name, str) for name in read.values()):
        raise ValueError(
            f"{path} should be a JSON object: of each problem the name or file of its candidate"
        )
    return {
        problem: path.parent / name if name.endswith((".py", ".yaml")) else name
        for problem, name in read.items()
    }
