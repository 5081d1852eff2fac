"""Files, functions and signatures are small; the lists of larger ones may only shrink."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from conftest import ROOT
from definitions import Defined, definitions

PACKAGE, TEMPLATES = ROOT / "fusegen", ROOT / "templates"
MOST_LINES, MOST_OF_A_FUNCTION, MOST_PARAMETERS = 250, 40, 6
FILES: dict[str, int] = {}
FUNCTIONS: dict[str, int] = {}
TEXTS: dict[str, int] = {}
MOST_OF_A_MODULE = {"hardsigmoid.py": 150, "gelu.py": 160}
MOST_OF_OTHER_MODULES = (305, 530)  # of one kernel, and of several
LONG_MODULES = {
    "kernelbench/conv_transpose3d_silu_group_norm_hardswish.py": 423,
    "losses/weighted_cross_entropy_in_float32.py": 329,
}
KERNELS = re.compile(r"^(?:\w+_)?KERNELS = ", re.MULTILINE)
PARAMETERS = {"lower/__init__.py lower": 7}


def every_function() -> Iterator[tuple[str, Defined]]:
    """Yield the functions of the package, by the file and the name."""
    for each in definitions(PACKAGE):
        if each.kind is ast.FunctionDef:
            yield f"{each.path.relative_to(PACKAGE).as_posix()} {each.name}", each


def too_large(sizes: Iterator[tuple[str, int]], most: int) -> dict[str, int]:
    """The entries that are larger than they should be."""
    return {name: size for name, size in sizes if size > most}


def assert_within(found: dict[str, int], listed: dict[str, int]) -> None:
    """Everything too large is listed, no larger than there, and nothing is listed that is not."""
    assert {name: size for name, size in found.items() if size > listed.get(name, 0)} == {}
    assert found.keys() == listed.keys(), "take what has become small enough off the list"


def line_counts(paths: Iterable[Path], folder: Path) -> Iterator[tuple[str, int]]:
    """The number of lines of some files, by their path in a folder."""
    for path in paths:
        yield path.relative_to(folder).as_posix(), len(path.read_text(encoding="utf-8").splitlines())


def texts() -> list[Path]:
    """The templates, and the headers of kernels and of the filter."""
    beside = [folder for folder in PACKAGE.rglob("include") if folder.is_dir()]
    return [path for folder in (TEMPLATES, *beside) for path in folder.rglob("*") if path.is_file()]


def test_files_are_small() -> None:
    assert_within(too_large(line_counts(PACKAGE.rglob("*.py"), PACKAGE), MOST_LINES), FILES)


def test_templates_and_headers_are_small() -> None:
    assert_within(too_large(line_counts(texts(), ROOT), MOST_LINES), TEXTS)


def test_there_are_templates_and_headers_to_look_at() -> None:
    assert {path.parent.relative_to(ROOT).as_posix() for path in texts()} >= {
        "templates",
        "fusegen/evidence/certify/include",
        "fusegen/runtime/include",
        "fusegen/runtime/include/cpu",
        "fusegen/runtime/include/cuda",
    }


def test_generated_modules_are_short() -> None:
    paths = [path for path in (ROOT / "generated").rglob("*.py") if path.parent.name != "_runtime"]
    counts = dict(line_counts(paths, ROOT / "generated"))
    assert counts.keys() >= MOST_OF_A_MODULE.keys()
    long = {name: n for name, n in counts.items() if n > MOST_OF_A_MODULE.get(name, _most(name))}
    assert_within(long, LONG_MODULES)


def _most(module: str) -> int:
    """The most lines of a module, by the number of its kernels."""
    text = (ROOT / "generated" / module).read_text(encoding="utf-8")
    return MOST_OF_OTHER_MODULES[len(KERNELS.findall(text)) > 1]


def test_functions_are_short() -> None:
    sizes = ((name, function.lines) for name, function in every_function())
    assert_within(too_large(sizes, MOST_OF_A_FUNCTION), FUNCTIONS)


def test_functions_take_few_parameters() -> None:
    counts = ((name, function.parameters) for name, function in every_function())
    assert_within(too_large(counts, MOST_PARAMETERS), PARAMETERS)
