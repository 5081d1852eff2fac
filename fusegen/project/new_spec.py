"""The text of a new spec, for `fusegen new`."""

from pathlib import Path

from fusegen.codegen import render
from fusegen.errors import Span, Unreadable
from fusegen.language.parse import parse_spec
from fusegen.language.schema import FIELDS


def starter(name: str, path: Path) -> str:
    """Return the text of a new spec, with a comment for every key.

    Raises:
        SpecErrors: the name cannot be one.
        Unreadable: the file exists.
    """
    if path.exists():
        raise Unreadable(Span(path.as_posix()), why="the file exists", remedy="choose another name")
    text = render.fill("spec.yaml.j2", {"name": name, "fields": FIELDS})
    parse_spec(text, path.as_posix())
    return text
