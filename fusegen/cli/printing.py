"""The forms in which `check` prints a record: text, a line, JSON, or an annotation of GitHub."""

from collections.abc import Callable

import click

from fusegen.cli import github, stat
from fusegen.cli.json_records import Record, print_records
from fusegen.errors import counted

REMEDY = "run 'python -m fusegen build' (and 'schema'), read the diff, commit it"


def _print_summary(found: Record) -> None:
    count = found["differences"] + found["complaints"]
    if found["differences"]:
        click.echo(f"{counted(count, 'file')} differ{'s' if count == 1 else ''}; {REMEDY}", err=True)
    elif not count:
        bare = found["uncertified"]
        one = found["modules"] == 1
        agree, who = (
            ("is what its spec says", "") if one else ("are what their specs say", f"{bare} of them ")
        )
        told = f", {who}without a certificate" if bare else ""
        click.echo(f"{counted(found['modules'], 'module')} {agree}{told}")


TEXTS: dict[str, Callable[[Record], None]] = {  # by kind, the printing of a record as text
    "difference": lambda found: click.echo(found["diff"], nl=False),
    **dict.fromkeys(
        ("complaint", "certificate", "reference"), lambda found: click.echo(found["text"], err=True)
    ),
    "summary": _print_summary,
}


def _print_in_short(found: Record) -> None:
    """Print a difference in one line, and after the last their number."""
    if found["kind"] == "summary" and found["differences"]:
        click.echo(stat.total(found))
    IN_SHORT.get(found["kind"], TEXTS[found["kind"]])(found)


def _print_annotation(found: Record) -> None:
    line = github.of_record(found)
    if line:
        click.echo(line)
    else:
        _print_summary(found)


IN_SHORT: dict[str, Callable[[Record], None]] = {"difference": lambda found: click.echo(stat.row(found))}
FORMS: dict[str, Callable[[Record], None]] = {  # the printing of a record
    "text": lambda found: TEXTS[found["kind"]](found),
    "json": lambda found: print_records([found]),
    "stat": _print_in_short,
    "github": _print_annotation,
}
