"""The part of the rewrite of Inductor's graphs that is about thin convolutions with a kernel behind them.

One operator of both stays where its kernel is faster than PyTorch's convolution and a kernel behind it, as
far as sizes are known, where no gradient computes the convolution again, and where Inductor has nothing to
fuse the kernel with. Otherwise it is divided into these two, of which the rewrite then treats the second as
any other operator.
"""

from typing import Any, Dict, Iterable, Set

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .neighbours import Facts, is_fused_with_reader
from .policy import policy_of
from .thin_operator import losses


def to_divide(graph: Any, whole: "Dict[Any, Any]", pointwise: "Set[Any]") -> "Set[Any]":
    """Return the operators of both among the nodes of a graph that are divided.

    Args:
        graph: of Inductor, with values.
        whole: by each such operator, the module's kernels.
        pointwise: the other operators of modules.
    """
    if _is_ahead_of_time():
        return set(whole)
    facts, found = Facts.of(graph, pointwise), set()
    for node, kernels in whole.items():
        policy = policy_of(kernels.compile_policy)
        loses = _is_slower(node) or _is_computed_again(node) or is_fused_with_reader(node, facts)
        if policy == "decompose" or (policy == "auto" and loses):
            found.add(node)
    return found


def merge_convolutions(graph: Any, before: "Iterable[Any]") -> None:
    """Let a gradient read the convolution that a division made, where it would compute it again.

    Args:
        graph: after the division.
        before: its nodes before.
    """
    old = set(before)
    every = [node for node in graph.nodes if node.target is torch.ops.aten.convolution.default]
    for made in (node for node in every if node not in old):
        for other in every:
            if other in old and other.args == made.args and other > made:
                other.replace_all_uses_with(made)
                graph.erase_node(other)


def _is_ahead_of_time() -> bool:
    """True for a package of AOTInductor, which may run without Python, in which the operator is written."""
    from torch._inductor.virtualized import V

    return bool(V.aot_compilation)


def _is_computed_again(node: Any) -> bool:
    """True if a gradient has the same convolution, which takes at least the time that one kernel saves."""
    x, weight = node.args[:2]
    return any(
        user.target is torch.ops.aten.convolution.default and user.args[:2] == (x, weight)
        for user in x.users
    )


def _is_slower(node: Any) -> bool:
    """True if one kernel is known to be slower than PyTorch's convolution, or not to take its input."""
    x, weight = (each.meta["val"] for each in node.args[:2])
    in_channels_last = (x.stride(1) == 1, x.shape[1] > 1)
    known = map(statically_known_true, losses(x, weight, node.meta["val"].shape))
    return any(known) or all(map(statically_known_true, in_channels_last))
