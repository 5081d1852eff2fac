"""Layers whose forwards call kernels in the place of norms with what is around these, and of functions."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fusegen.models.patch import batch_calls, batches, handed, rotary, sums
from fusegen.models.patch.batch_calls import IN_PLACE
from fusegen.models.patch.batches import Batched
from fusegen.models.patch.forwards import HELPER, function_of, tree_of
from fusegen.models.patch.handed import Handed, Link
from fusegen.models.patch.rotary import Rotated
from fusegen.models.patch.sums import Added


@dataclass(frozen=True)
class Rewritten:
    """The norms of a layer that run in kernels with others, and the functions that kernels stand in for."""

    sums: tuple[Added, ...]
    batches: tuple[Batched, ...]
    rotations: tuple[Rotated, ...] = ()
    ends: tuple[Handed, ...] = ()  # at most one

    @property
    def parts(self) -> tuple[Added | Batched | Rotated | Handed, ...]:
        """All of them."""
        return *self.sums, *self.batches, *self.rotations, *self.ends

    @property
    def acts(self) -> tuple[str, ...]:
        """The activations that are in kernels."""
        return tuple(each.act for each in self.batches if each.act)

    def choose(self, *of: str) -> Batched | None:
        """Return the kernel of a norm and what is behind it."""
        return next((each for each in self.batches if each.of_what == of), None)

    def forward(self, kind: Any) -> Callable[..., Any]:
        """Return the forward of layers of a class that calls these kernels."""
        original: Callable[..., Any] = kind.forward
        tree = tree_of(kind)
        if tree is None:  # of a pickled layer, whose code has changed since
            return original
        sums.rewrite(tree, {each.name: each for each in self.sums})
        batch_calls.rewrite(tree, inspect.unwrap(original).__globals__, self.choose)
        rotary.rewrite(tree, {each.name: each for each in self.rotations})
        if self.ends:
            handed.rewrite(tree)
        helpers = {each.name: each.call() for each in self.parts}
        changed = function_of(original, tree, {HELPER: helpers, IN_PLACE: operator.iadd})

        @functools.wraps(original)
        def forward(layer: nn.Module, *given: Any, **named: Any) -> Any:
            run = changed if kind.forward is original else kind.forward
            return run(layer, *given, **named)

        return forward


def rewritten(holder: nn.Module, link: Link | None) -> tuple[Rewritten, tuple[str, ...]] | None:
    """Return what kernels compute in a forward, beside single layers, with texts; None for nothing.

    Args:
        holder: the layer with the forward.
        link: the norm behind it, if it ends with a sum.
    """
    rows = {name: found for name, layer in holder.named_children() if (found := sums.norm_of(name, layer))}
    norms, rotations = batches.norms_in(holder), rotary.rotations_in(holder)
    is_own = (rows or norms or rotations or link) and "forward" not in vars(holder)
    tree = tree_of(type(holder)) if is_own else None
    if tree is None:
        return None
    texts = sums.rewrite(tree, rows)

    def choose(norm: str, *of: str) -> Batched | None:
        return batches.batched(holder, norm, *of) if norm in norms else None

    scope = inspect.unwrap(type(holder).forward).__globals__
    joined = batch_calls.rewrite(tree, scope, choose)
    turned = rotary.rewrite(tree, rotations)
    plan = Rewritten(
        tuple(rows[name] for name in texts),
        tuple(part for part, _ in joined),
        tuple(rotations[name] for name in turned),
        () if link is None else (link.handed,),
    )
    last = () if link is None else (link.text,)
    named = (*texts.values(), *(text for _, text in joined), *turned.values(), *last)
    return (plan, named) if plan.parts else None
