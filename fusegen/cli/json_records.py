"""The records that commands print with `--json`: JSON lines, an object a line, of one form.

The first key is ``kind``; docs/commands.md lists the kinds and the keys of each. An infinite number is the
text "inf".
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

from fusegen.cli.streams import holds

Record = Mapping[str, Any]

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON lines: an object a line.")


def record(kind: str, **values: Any) -> Record:
    """Return a record of some kind."""
    return {"kind": kind, **values}


def print_records(records: Iterable[Record]) -> None:
    """Print records, each as soon as it is known."""
    for each in records:
        line = json.dumps(_finite(each), ensure_ascii=False, allow_nan=False)
        if not holds(line):  # a letter is escaped as JSON does, not spelled
            line = json.dumps(_finite(each), allow_nan=False)
        click.echo(line)


def _finite(value: Any) -> Any:
    """Return a value with texts for the numbers that JSON lacks."""
    match value:
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case float() if value - value != 0:
            return str(value)
    return value
