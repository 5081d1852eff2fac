"""Forwards of layers with kernels in the place of statements and calls, by a table of rules.

A rule says which kernels a layer may have, and rewrites the forward to call those that it finds. It runs
twice: of the layer, where it chooses kernels, and of its class, also where a copy is unpickled, with those
that the plan has.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from fusegen.models.patch import batch_calls, batches, handed, rotary, sums
from fusegen.models.patch.derived import Found, derive
from fusegen.models.patch.forwards import HELPER, Parts, function_of, tree_of

Choose = Callable[[Any], Any]  # returns the kernel of a key, or None


@dataclass(frozen=True)
class Rule:
    """A form of code that kernels stand in for.

    Attributes:
        choices: returns what gives the kernels of a layer; None where it has none.
        rewrite: has a forward call the helpers of kernels, and yields these and what they compute, as code.
        key: of a kernel.
    """

    choices: Callable[[nn.Module], Choose | None]
    rewrite: Callable[[ast.FunctionDef, Any, Choose], Parts]
    key: Callable[[Any], Any] = operator.attrgetter("name")


RULES = (
    Rule(sums.choices, sums.rewrite),
    Rule(batches.choices, batch_calls.rewrite, operator.attrgetter("key")),
    Rule(rotary.choices, rotary.rewrite),
    Rule(lambda holder: None, handed.rewrite),  # by the link to the norm behind the layer
)


@dataclass(frozen=True)
class Rewritten:
    """The kernels of a forward, by rule."""

    parts: tuple[tuple[Any, ...], ...]

    @property
    def acts(self) -> tuple[str, ...]:
        """The activations that are in kernels."""
        return tuple(name for parts in self.parts for each in parts for name in each.acts)

    def forward(self, kind: Any) -> Callable[..., Any]:
        """Return the forward of layers of a class that calls these kernels."""
        original: Callable[..., Any] = kind.forward
        tree = tree_of(kind)
        if tree is None:  # of a pickled layer, whose code has changed since
            return original
        rules = zip(RULES, self.parts, strict=True)
        _rewrite(tree, original, [{rule.key(part): part for part in own}.get for rule, own in rules])
        helpers = {part.name: part.call() for own in self.parts for part in own}
        return function_of(original, tree, {HELPER: helpers, batch_calls.IN_PLACE: operator.iadd})


def _rewrite(tree: ast.FunctionDef, forward: Any, choices: Sequence[Choose | None]) -> list[dict[Any, str]]:
    """Rewrite a forward by the rules, and return the kernels of each with what they compute."""
    scope = inspect.unwrap(forward).__globals__
    rules = zip(RULES, choices, strict=True)
    return [{} if choose is None else dict(rule.rewrite(tree, scope, choose)) for rule, choose in rules]


def rewritten(holder: nn.Module, link: handed.Link | None) -> Found | None:
    """Return what kernels compute in a forward, beside single layers; None for nothing.

    Args:
        holder: the layer with the forward.
        link: the norm behind it, if it ends with a sum.
    """
    choices = [rule.choices(holder) for rule in RULES]
    if link is not None:
        choices[-1] = {handed.KEY: link.handed}.get
    tree = tree_of(type(holder)) if any(choices) and "forward" not in vars(holder) else None
    if tree is None:
        return None
    found = _rewrite(tree, type(holder).forward, choices)
    every = [each for parts in found for each in parts.items()]
    if not every:
        return None
    name, last = type(holder).__name__, "" if link is None else link.text
    lines = [(f"{name}, {text or last}", part.module, part.when(holder)) for part, text in every]
    plan = Rewritten(tuple(map(tuple, found)))

    def join(layer: nn.Module) -> None:
        derive(layer, plan)
        if link is not None:
            link.join(layer)

    return Found(lines, join)
