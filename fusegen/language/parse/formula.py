"""The formula language: Python's expression syntax, read through a whitelist.

Python's own parser builds the tree (`ast.parse` runs nothing); this file admits numbers, names, arithmetic,
one comparison at a time, and calls by plain name. Everything else is told apart by what it is.
"""

import ast
import warnings
from collections.abc import Callable, Collection

from fusegen.core.poolings import POOLINGS
from fusegen.core.term import SpecCall, Term
from fusegen.errors import NotAFormula, Span, TooLarge
from fusegen.language.parse.foreign import REMEDY
from fusegen.language.parse.forms import form
from fusegen.language.parse.pooling_call import pooling_call
from fusegen.language.parse.terms import MAX_LENGTH, MAX_PARENTHESES, Reader, too_deep, too_many


def parse_tree(text: str, at: Callable[[int], Span]) -> tuple[ast.expr, Callable[[ast.AST], Span]]:
    """Return the tree of one Python expression, and where each node was written.

    Raises:
        NotAFormula: it is not an expression in printable ASCII.
        TooLarge, TooMany: it is longer, or nests deeper, than any formula should.
    """
    _check_size(text, at)
    if "#" in text:
        remedy = "put the comment on a line of its own outside of the formula"
        raise NotAFormula(
            at(text.index("#")), problem="a comment is not part of the language", remedy=remedy
        )
    text = _flat(text)
    odd = next((i for i, c in enumerate(text) if not (c.isascii() and c.isprintable())), None)
    if odd is not None:
        problem = f"the character {text[odd]!r} has no meaning in one"
        raise NotAFormula(at(odd), problem=problem, remedy="write pi, x**2, sqrt(x) in plain ASCII")
    _check_parentheses(text, at)
    stripped = text.strip()
    skipped = len(text) - len(text.lstrip())
    try:
        tree = _expression(stripped, lambda offset: at(skipped + offset))
    except (MemoryError, RecursionError):
        raise too_deep(at(0)) from None
    return tree, lambda node: at(skipped + getattr(node, "col_offset", 0))


def _expression(text: str, at: Callable[[int], Span]) -> ast.expr:
    """Return the tree of a text that neither begins nor ends with a blank.

    Raises:
        NotAFormula: it is not an expression.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd spellings that are refused later
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        offset = (getattr(error, "offset", None) or 1) - 1
        ended = not text or text[-1] in "+-*/,<>=!"
        where = len(text) if ended else max(0, min(offset, len(text) - 1))
        problem = "it ends too early" if ended else "its grammar breaks here"
        raise NotAFormula(at(where), problem=problem if text else "it is empty", remedy=REMEDY) from None


def parse_formula(text: str, at: Callable[[int], Span], scope: Collection[str]) -> Term:
    """Return the term that a formula denotes, `scope` being the names it may use.

    Raises:
        NotAFormula, TooLarge, TooMany, UnknownName, WrongArity, UnknownArgument, RepeatedArgument,
        NotReal, NumberOutOfRange.
    """
    tree, place = parse_tree(text, at)
    return Reader(_flat(text).lstrip(), tree, place, scope).real(tree, 0)


def parse_parameters(text: str, at: Callable[[int], Span], scope: Collection[str]) -> SpecCall:
    """Return a call without its tensor, such as ``leaky_relu(negative_slope=0.1)``.

    Raises:
        NotAFormula, TooLarge, TooMany, UnknownName, WrongArity, UnknownArgument, RepeatedArgument,
        NotReal, NumberOutOfRange.
    """
    tree, place = parse_tree(text, at)
    reader = Reader(_flat(text).lstrip(), tree, place, scope)
    assert isinstance(tree, ast.Call)
    assert isinstance(tree.func, ast.Name)
    reader.check_arguments(tree)
    if tree.func.id in POOLINGS:
        return pooling_call(tree, place, None)
    name, written = form(tree.func.id, tree, place)
    keywords = tuple((k.arg or "", reader.real(k.value, 1)) for k in written)
    return SpecCall(name, (), keywords, place(tree))


def _flat(text: str) -> str:
    """Return a text on one line, with every character where it was."""
    return "".join(" " if character in "\r\n" else character for character in text)


def _check_size(text: str, at: Callable[[int], Span]) -> None:
    remedy = "name parts of it under `where`"
    if len(text) > MAX_LENGTH:
        size, limit = f"{len(text):,} characters", f"{MAX_LENGTH:,}"
        raise TooLarge(at(0), what="the formula", size=size, limit=limit, remedy=remedy)
    depth = 0
    for index, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_PARENTHESES:
            raise too_many("nested parentheses", MAX_PARENTHESES, at(index))


def _check_parentheses(text: str, at: Callable[[int], Span]) -> None:
    opened: list[int] = []
    for index, character in enumerate(text):
        if character == "(":
            opened.append(index)
        elif character == ")" and opened:
            opened.pop()
        elif character == ")":
            problem = "this parenthesis closes nothing"
            raise NotAFormula(at(index), problem=problem, remedy="remove it, or open one before it")
        elif character in "'\"":
            return  # a text, which is refused later, may hold anything
    if opened:
        remedy = "close it; inside [...] or {...} of YAML, quote an expression that holds a comma"
        raise NotAFormula(at(opened[-1]), problem="this parenthesis is never closed", remedy=remedy)
