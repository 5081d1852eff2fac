"""The formats that an explanation is written in."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fusegen.codegen.printers import latex
from fusegen.codegen.printers.notation import term as plain
from fusegen.core.spec import Spec
from fusegen.core.term import Let, Name, Term

LATEX = str.maketrans(  # a spec's words may hold anything
    {sign: f"\\{sign}" for sign in "_%&#${}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
)
MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in r"\`*_[]<>|#"})


@dataclass(frozen=True)
class Format:
    """A format of explanations."""

    term: Callable[[Term], str]  # a formula
    line: Callable[[str], str]  # a formula on a line of its own
    heading: Callable[[str], str]  # above a part
    step: Callable[[int, str], str]  # one step, from its number and its sentence
    table: Callable[[list[tuple[str, ...]]], list[str]]  # from rows, the first being the heads
    word: Callable[[str], str] = str  # what is no formula


def head(style: Format, spec: Spec) -> list[str]:
    """Return the first lines of an explanation."""
    title = style.heading(f"{spec.name}: {spec.summary}").lstrip("\n")
    return [title, *[style.word(spec.source)] * bool(spec.source)]


def named(style: Format, lets: Iterable[Let]) -> Iterator[str]:
    """Yield lines of formulas behind their names."""
    yield from (style.line(f"{style.term(Name(let.name))} = {style.term(let.term)}") for let in lets)


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _markdown(rows: list[tuple[str, ...]]) -> list[str]:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return ["", head, "|" + "---|" * len(rows[0]), *others, ""]


def _tabular(rows: list[tuple[str, ...]]) -> list[str]:
    lines = [rf"{' & '.join(map(_escaped, row))} \\" for row in rows]
    columns = "l" * len(rows[0])
    return [rf"\begin{{tabular}}{{{columns}}}", lines[0], r"\hline", *lines[1:], r"\end{tabular}", ""]


def _escaped(text: str) -> str:
    return text.translate(LATEX)


def _quoted(text: str) -> str:
    return text.translate(MARKDOWN)


FORMATS = {
    "text": Format(
        term=plain,
        line=lambda text: f"    {text}",
        heading=lambda text: f"\n{text}",
        step=lambda number, text: f"  {number:>2}. {text}",
        table=_columns,
    ),
    "markdown": Format(
        term=lambda term: f"`{plain(term)}`",
        line=lambda text: f"    {text.replace('`', '')}",
        heading=lambda text: f"\n### {_quoted(text)}\n",
        step=lambda number, text: f"{number}. {text}",
        table=_markdown,
        word=_quoted,
    ),
    "latex": Format(
        term=lambda term: f"${latex.term(term)}$",
        line=lambda text: f"\\[ {text.replace('$', '')} \\]",
        heading=lambda text: f"\n\\subsection*{{{_escaped(text)}}}\n",
        step=lambda number, text: f"\\paragraph{{{number}.}} {text}",
        table=_tabular,
        word=_escaped,
    ),
}
