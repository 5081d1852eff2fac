"""Calls in which a word says which function is meant, such as ``gelu(x, approximate="tanh")``."""

import ast
from collections.abc import Callable

from fusegen.core.scans import CUMPROD, CUMSUM, FLAGS, Scan
from fusegen.core.signatures import FORMS
from fusegen.errors import RepeatedArgument, Span, UnknownForm


def form(name: str, node: ast.Call, place: Callable[[ast.AST], Span]) -> tuple[str, list[ast.keyword]]:
    """Return the spec that a call means, and the keywords besides the word that says so.

    Raises:
        UnknownForm, RepeatedArgument: the word is none of the function's, or there are two.
    """
    if name in (CUMSUM, CUMPROD):
        return _scan(name, node, place)
    argument, forms = FORMS.get(name, ("", {}))
    words = [keyword for keyword in node.keywords if keyword.arg == argument]
    others = [keyword for keyword in node.keywords if keyword.arg != argument]
    if not words:
        return name, others
    usual, *_, last = forms
    if len(words) > 1:
        signature = f"{name}(x, {argument}={usual!r})"
        raise RepeatedArgument(place(words[1]), name=name, argument=argument, signature=signature)
    value = words[0].value
    word = value.value if isinstance(value, ast.Constant) else None
    if not isinstance(word, str) or word not in forms:
        known = " or ".join(map(repr, forms))
        raise UnknownForm(place(value), name=name, argument=argument, known=known, example=repr(last))
    return forms[word], others


def _scan(name: str, node: ast.Call, place: Callable[[ast.AST], Span]) -> tuple[str, list[ast.keyword]]:
    """Return the scan that a call means: ``cumsum(x, reverse=True)`` is `cumsum_reverse`."""
    given: dict[str, bool] = {}
    for keyword in (each for each in node.keywords if each.arg in FLAGS):
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if not isinstance(value, bool):
            argument, where = str(keyword.arg), place(keyword.value)
            raise UnknownForm(where, name=name, argument=argument, known="True or False", example="True")
        if keyword.arg in given:
            signature = f"{name}(x, {', '.join(f'{flag}=False' for flag in FLAGS)})"
            raise RepeatedArgument(place(keyword), name=name, argument=keyword.arg, signature=signature)
        given[str(keyword.arg)] = value
    return Scan(name, **given).name, [each for each in node.keywords if each.arg not in FLAGS]
