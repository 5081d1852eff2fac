"""Lines longer than a reader's window, broken where their meaning stays."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import NamedTuple

WIDTH = 120  # of a line
FURTHER = "    "  # in front of what follows a break
HEAD = 2  # lines of a module that name its spec and the command that makes it: tools read them whole
SPACE = re.compile(r" (?![ {])")
OPERATORS = "+-*/=&|<?:"
TEXT = re.compile(r'(?<=")[^"\\{}]+(?=")')  # of a string on one line, without its quotes


class Gap(NamedTuple):
    """A place where a line may break."""

    rank: int  # the lower, the better
    column: int  # where the first part ends
    quote: str = ""  # of a string, which goes on in a string of its own


def cpp(text: str) -> str:
    """Return C++ whose statements and comments stand on lines of `WIDTH` characters, but for long names."""
    return "\n".join(part for line in text.split("\n") for part in _of_cpp(line))


def python(text: str) -> str:
    """Return Python on lines of `WIDTH` characters, but for long names; strings of C++ stay as they are."""
    lines = text.split("\n")
    if max(map(len, lines)) <= WIDTH:
        return text
    docstrings, gaps = _rows_of_docstrings(text), _gaps(text)
    kept = {*_rows_of_strings(text), *range(HEAD)} - docstrings.keys()
    made: list[str] = []
    for row, line in enumerate(lines):
        if len(line) <= WIDTH or row in kept:
            made.append(line)
        elif row in docstrings:
            made += _wrapped(line, docstrings[row])
        elif line.lstrip().startswith("#"):
            made += _comment(line, "# ")
        else:
            made += _broken(line, gaps.get(row, []))
    return "\n".join(made)


def _of_cpp(line: str) -> Iterable[str]:
    if len(line) <= WIDTH:
        return [line]
    if line.lstrip().startswith("//"):
        return _comment(line, "// ")
    depths = _depths(line)
    columns = [found.start() for found in SPACE.finditer(line)]
    return _broken(line, [Gap(_rank(line, column, depths[column]), column) for column in columns])


def _depths(line: str) -> list[int]:
    """Return the number of brackets around each character of a line of C++."""
    depths, depth = [], 0
    for character in line:
        depth += (character in "([") - (character in ")]")
        depths.append(depth)
    return depths


def _rank(line: str, column: int, depth: int) -> int:
    """Return the rank of a space: first the fewest brackets, then whole arguments, then operators."""
    before, behind = line[column - 1], line[column + 1]
    place = 0 if before in ",;(" else 1 if behind in OPERATORS else 2 if before not in OPERATORS else 3
    return 2 * depth + place


def _comment(line: str, mark: str) -> list[str]:
    """Return a comment on as many lines as it takes, each behind its mark."""
    return _wrapped(line, line[: line.index(mark.strip())] + mark)


def _wrapped(line: str, margin: str) -> list[str]:
    return wrap(line, WIDTH, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False)


def _broken(line: str, gaps: Iterable[Gap]) -> Iterator[str]:
    """Yield a line in parts: each ends at the best place of its second half."""
    margin = line[: len(line) - len(line.lstrip())] + FURTHER
    begun, head, left = 0, "", [gap for gap in gaps if gap.column > len(margin)]
    while len(head) + len(line) - begun > WIDTH:
        last = begun + WIDTH - len(head)
        near = [gap for gap in left if last - WIDTH // 2 < gap.column <= last - len(gap.quote)]
        found = near or [gap for gap in left if begun < gap.column][:1]
        if not found:
            break
        _, column, quote = min(found, key=lambda gap: (gap.rank, -gap.column))
        yield f"{head}{line[begun:column]}{quote}".rstrip()
        begun, head = column + (line[column] == " "), margin + quote
    yield head + line[begun:]


def _gaps(text: str) -> dict[int, list[Gap]]:
    """Return where the lines of Python may break, by row: within brackets, and within strings there."""
    lines = text.split("\n")
    found: dict[int, list[Gap]] = {}
    depth, end = 0, (0, 0)
    for token in _tokens(text):
        row, column = token.start[0] - 1, token.start[1]
        of_row = found.setdefault(row, [])
        if depth and token.start[0] == end[0] and token.string.strip():
            if column > end[1]:
                of_row.append(Gap(_rank(lines[row], end[1], depth), end[1]))
            elif lines[row][column - 1] == "(":
                of_row.append(Gap(2 * depth + 1, column))
        if depth and token.type == tokenize.STRING and (words := TEXT.search(token.string)):
            starts = (column + words.start() + at.end() for at in re.finditer(", ", words[0]))
            of_row += [Gap(2 * depth + 2, at, '"') for at in starts]
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        end = token.end
    return found


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text).readline)


def _rows_of_strings(text: str) -> set[int]:
    """Return the rows of strings of several lines."""
    return {
        row - 1
        for token in _tokens(text)
        if token.type == tokenize.STRING and token.start[0] != token.end[0]
        for row in range(token.start[0], token.end[0] + 1)
    }


def _rows_of_docstrings(text: str) -> dict[int, str]:
    """Return the rows of docstrings, with their margins."""
    found: dict[int, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            rows = range(node.lineno - 1, node.end_lineno or node.lineno)
            found |= dict.fromkeys(rows, " " * node.col_offset)
    return found
