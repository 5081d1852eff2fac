"""Formulas and specs from their text."""

from pathlib import Path

from fusegen.core.spec import Spec
from fusegen.core.term import Term
from fusegen.errors import Span
from fusegen.language.parse import parse_spec
from fusegen.language.parse.formula import parse_formula


def parsed(text: str, scope: str = "x y") -> Term:
    """The term that a formula over the names in `scope` denotes."""
    return parse_formula(text, Span("formula", 1, 1, text).after, scope.split())


def spec(body: str) -> Spec:
    """A spec named `gate`."""
    return parse_spec(f"name: gate\nsummary: A test.\n{body}\n", "specs/gate.yaml")


def spec_file(folder: Path, name: str, body: str) -> Path:
    """The path of a new NAME.yaml in a folder."""
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\nsummary: A test.\n{body.rstrip()}\n", encoding="utf-8")
    return path
