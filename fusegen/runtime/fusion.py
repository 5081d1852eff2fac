"""The rewrite of Inductor's graphs that puts PyTorch's operations in place of operators.

It is one of Inductor's custom passes, ``joint_custom_pre_pass``, which sees forward and backward in one
graph, before they are partitioned. Those that were there before run first. Its identity, a part of the keys
of Inductor's caches, covers the policies and the formulas of all modules of the process.
"""

import contextlib
import functools
import hashlib
import sys
from typing import Any, Callable, Dict, List, Set, Tuple

from .policy import policy_of
from .thin_operator import by_steps

DECOMPOSED: "Dict[Any, Tuple[Any, str]]" = {}  # by operator: the module's kernels, and forward or backward
WHOLE: "Dict[Any, Any]" = {}  # by the operator of a convolution and a kernel: the module's kernels
VERSION = 5  # of this rewrite, of `neighbours` and of `thin_rewrite`; a part of its identity


def register(kernels: Any) -> None:
    """Make the operators of a module known to the rewrite."""
    for kernel in ("forward", "backward"):
        operator = getattr(kernels.operators, f"{kernels.name}_{kernel}").default
        DECOMPOSED[operator] = (kernels, kernel)
    if kernels.sources.convolution:
        WHOLE[getattr(kernels.operators, f"{kernels.name}_convolution_forward").default] = kernels


def install() -> None:
    """Put the rewrite into Inductor's configuration, where Inductor is loaded and takes such passes."""
    if "torch._inductor" not in sys.modules or _keys_are_computed():
        return
    with contextlib.suppress(ImportError):  # of an older PyTorch
        from .rewrite import configure

        configure()


def _keys_are_computed() -> bool:
    """Return True while Inductor traces a graph after it has computed the graph's keys for its caches."""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    if virtualized is None:
        return False
    values: Any = virtualized.V
    return not isinstance(values.fake_mode, virtualized.NullHandler) and not values.aot_compilation


def identity() -> str:
    """Return the digest of what decides the rewrite: policies and formulas of all modules."""
    parts = [
        f"{operator.name()} {policy_of(kernels.compile_policy)} {_formulas(kernels)}"
        for operator, (kernels, _) in list(DECOMPOSED.items())  # which other threads may extend
    ]
    return hashlib.sha256("\n".join([str(VERSION), *sorted(parts)]).encode()).hexdigest()


@functools.lru_cache(None)
def _formulas(kernels: Any) -> str:
    """Return the digest of the two eager forms of a module."""
    own = kernels.eager, kernels.eager_gradient
    return hashlib.sha256(repr([_code(form.__code__) for form in own]).encode()).hexdigest()


def _code(code: Any) -> "List[Any]":
    """Return the parts of a code object that decide a function's results, without its place in a file."""
    consts = [_code(c) if hasattr(c, "co_code") else repr(c) for c in code.co_consts]
    return [code.co_code, code.co_names, code.co_varnames, code.co_freevars, consts]


def decompose(graph: Any) -> None:
    """Put PyTorch's operations in place of operators, by the policies of their modules."""
    _divide(graph)
    ours = _among(graph, DECOMPOSED)
    policies = {node: policy_of(kernels.compile_policy) for node, (kernels, _) in ours.items()}
    chosen = {node for node, policy in policies.items() if policy == "decompose"}
    open_ = {node for node, policy in policies.items() if policy != "kernel"}
    if open_ - chosen:
        from .neighbours import is_brief, with_neighbours

        near = with_neighbours(graph, open_) | set(filter(is_brief, open_))
        chosen |= {node for group in _groups(open_, ours) if group & near for node in group}
    forms = {"forward": "eager", "backward": "eager_outputs"}
    _replace(graph, {node: getattr(ours[node][0], forms[ours[node][1]]) for node in chosen})


def _divide(graph: Any) -> None:
    """Put PyTorch's convolution and the module's operator in place of operators of both."""
    whole = _among(graph, WHOLE)
    if whole:
        from .thin_rewrite import merge_convolutions, to_divide

        before, chosen = list(graph.nodes), to_divide(graph, whole, {*_among(graph, DECOMPOSED)})
        _replace(graph, {node: _steps(whole[node]) for node in chosen})
        merge_convolutions(graph, before)


def _steps(kernels: Any) -> "Callable[..., Any]":
    return functools.partial(by_steps, kernels, kernels.forward)


def _among(graph: Any, operators: "Dict[Any, Any]") -> "Dict[Any, Any]":
    """Return the entries of some operators, by the nodes that call them."""
    called = (node for node in graph.nodes if node.op == "call_function")
    return {node: operators[node.target] for node in called if node.target in operators}


def _groups(nodes: "Set[Any]", ours: "Dict[Any, Tuple[Any, str]]") -> "List[Set[Any]]":
    """Return each call's forward operator with its gradient's, which are decomposed together."""
    groups: "Dict[Any, Set[Any]]" = {node: {node} for node in nodes if ours[node][1] == "forward"}
    alone = []
    for node in nodes:
        kernels, kernel = ours[node]
        if kernel == "backward":
            forward = _forward_of(node, kernels, groups)
            if forward is None:
                alone.append({node})
            else:
                groups[forward].add(node)
    return [*groups.values(), *alone]


def _forward_of(node: Any, kernels: Any, forwards: "Dict[Any, Set[Any]]") -> Any:
    """The forward operator whose tensors, or whose result, a gradient reads; nothing if there is none."""
    saved = 1 + len(kernels.signature.saved)
    grad, *tensors = node.args[:saved]
    near = [
        n
        for t in tensors
        for of in (t, *t.all_input_nodes)  # which a smaller operand was expanded from
        for n in (of, *of.users)
        if n in forwards and n.target.namespace == node.target.namespace
    ]
    for forward in near:
        read = _with_expanded({forward, grad, *forward.args[: kernels.inputs]})
        if set(tensors) <= read and forward.args[kernels.inputs :] == node.args[saved:]:
            return forward
    return None


def _with_expanded(nodes: "Set[Any]") -> "Set[Any]":
    """Return nodes, and those that expand them."""
    users = {user for node in nodes for user in node.users}
    return nodes | {user for user in users if str(user.target) == "aten.expand.default"}


def _replace(graph: Any, forms: "Dict[Any, Callable[..., Any]]") -> None:
    """Put functions in place of nodes, by Inductor's own pattern matcher."""
    if not forms:
        return
    from torch._inductor.pattern_matcher import (
        CallFunctionVarArgs,
        PatternMatcherPass,
        register_graph_pattern,
    )

    patterns = PatternMatcherPass()
    targets = list({node.target for node in forms})

    def is_chosen(match: Any) -> bool:
        return match.output_node() in forms

    @register_graph_pattern(CallFunctionVarArgs(targets), extra_check=is_chosen, pass_dict=patterns)
    def _(match: Any, *arguments: Any) -> None:
        form = forms[match.output_node()]
        match.replace_by_example(form, list(arguments), run_functional_passes=False)

    patterns.apply(graph)
