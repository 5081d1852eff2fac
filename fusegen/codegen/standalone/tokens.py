"""The tokens of a body, and a reader of them."""

import re

from fusegen.codegen.standalone.functions import parts
from fusegen.core.header_files import without_comments

TOKEN = re.compile(
    r"0x[\da-fA-F.]+(?:p[+-]?\d+)?f?|\.?\d[\d.]*(?:e[+-]?\d+)?[fu]?|[A-Za-z_]\w*|::|->|<<|<=|>=|==|!=|&&|\|\|"
    r"|[-+*/|&^]=|\+\+|--|\"[^\"]*\"|\S"
)
LEVELS = [signs.split() for signs in ("= += -= *= |= &= ^=", "?", "||", "&&", "|", "^", "&", "== !=",
          "< > <= >=", "<< >>", "+ -", "* / %")]  # fmt: skip
LEVEL = {sign: level for level, signs in enumerate(LEVELS) for sign in signs}
LOGIC = {"&&", "||", "==", "!=", "<", ">", "<=", ">="}
QUALIFIERS = {"const", "constexpr", "static", "volatile"}
BUILT_IN = {*"float double int bool auto uint32_t int32_t uint64_t int64_t unsigned".split()}


class Unread(Exception):
    """C++ that is not read."""


class Tokens:
    """The tokens of a text, and where a reader is among them."""

    def __init__(self, text: str) -> None:
        code = re.sub(r"^\s*#.*$", "", without_comments(text), flags=re.MULTILINE)
        self.tokens: list[str] = [*TOKEN.findall(code), ";", ""]
        self.at = 0

    @property
    def next(self) -> str:
        """The next token."""
        return self.tokens[self.at]

    def take(self, *expected: str) -> str:
        """Return the next token, and go on."""
        token = self.next
        if not token or (expected and token not in expected):
            raise Unread(f"{token} for {expected}")
        self.at += 1
        return token

    def past(self, closing: str) -> str:
        """Go past what closes the parenthesis that was taken; return what lies inside."""
        begin, depth, opening = self.at, 1, {")": "(", "}": "{", "]": "[", ">": "<"}[closing]
        while depth:
            depth += {opening: 1, closing: -1}.get(self.take(), 0)
        return " ".join(self.tokens[begin : self.at - 1])

    def until(self, end: str) -> str:
        """Go past a token; return what lies in front of it."""
        begin = self.at
        while self.take() != end:
            pass
        return " ".join(self.tokens[begin : self.at - 1])

    def sign(self) -> str:
        """Return the next token, or the two of a shift."""
        return ">>" if self.tokens[self.at : self.at + 2] == [">", ">"] else self.next

    def explicit(self) -> list[str]:
        """Read the arguments of a template, if such follow."""
        found = re.match(
            r"< ((?:[\w:]+|[*,] |< [\w, ]+ > ?| )*?) ?> \(", " ".join(self.tokens[self.at : self.at + 24])
        )
        if self.next != "<" or not found:
            return []
        self.take()
        return parts(self.past(">"))
