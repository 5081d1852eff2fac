"""Calls that a graph which is being captured records otherwise than as their operators."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental import proxy_tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only


def called(
    tracer: Any,  # records it
    node: tuple[str, Any],  # the kind of the node that stands for it, and what that calls
    given: Any,  # its arguments by place and by name
    run: Callable[[], Any],  # runs it
) -> Any:
    """Return the result of a call that is one node of a graph, whatever operators it runs.

    A tensor that it hands on is another one in the graph.
    """
    read = {id(each) for each in tree_leaves(given)}
    with proxy_tensor.disable_proxy_modes_tracing():
        made = tree_map_only(Tensor, lambda each: each.view_as(each) if id(each) in read else each, run())
    proxy = tracer.create_proxy(*node, *tree_map(tracer.unwrap_proxy, given))
    return proxy_tensor.track_tensor_tree(made, proxy, constant=None, tracer=tracer)


def note_arithmetic(function: Callable[..., Any], given: tuple[Any, ...], made: Any) -> None:
    """Record arithmetic on sizes with its operands as they are, in the graph that is being captured."""
    mode: Any = proxy_tensor.get_proxy_mode()
    if mode is not None and isinstance(made, proxy_tensor.py_sym_types):
        # what PyTorch has registered has plain operands, and it keeps the first that it is given
        made_by: Any = proxy_tensor._compute_proxy
        compute = functools.partial(made_by, mode.tracer, func=function, args=given, out=made)
        mode.tracer.symnode_tracker[made] = proxy_tensor.thunkify(mode.tracer, compute)


def note_sizes(tracer: Any, tensor: Tensor) -> fx.Node | None:
    """Let the sizes of a tensor be those of it, and return its node; others may have the same sizes."""
    of: Any = proxy_tensor.get_proxy_slot(tensor, tracer, None)
    for dim, size in enumerate(tensor.shape if of is not None else ()):
        if isinstance(size, torch.SymInt) and size.node.is_symbolic():
            read = functools.partial(_size, tracer, of.proxy, dim, size)
            tracer.symnode_tracker[size] = proxy_tensor.thunkify(tracer, read)
    return None if of is None else of.proxy.node


def _size(tracer: Any, of: Any, dim: int, size: Any) -> Any:
    proxy = tracer.create_proxy("call_function", torch.ops.aten.sym_size.int, (of, dim), {})
    return proxy_tensor.set_meta(proxy, size)
