"""Calls in which a word says which function is meant, such as ``gelu(x, approximate="tanh")``."""

import ast
from collections.abc import Callable

from fusegen.core.signatures import FORMS
from fusegen.errors import RepeatedArgument, Span, UnknownForm


def form(name: str, node: ast.Call, place: Callable[[ast.AST], Span]) -> tuple[str, list[ast.keyword]]:
    """Return the spec that a call means, and the keywords besides the word that says so.

    Raises:
        UnknownForm, RepeatedArgument: the word is none of the function's, or there are two.
    """
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
