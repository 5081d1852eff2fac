"""The operators of a module, as PyTorch knows them: names, schemas, fake tensors, batches, first use.

The namespace, as ``fusegen_NAME_SIGNATURE``, changes only with the signature, so that a program that was
exported before a module was rebuilt loads after it. Where a process has two modules of one name and
signature and of different kernels, the second has the digest of its kernels in the namespace, too.
"""

import functools
from string import ascii_lowercase
from typing import Any, Callable, Tuple

import torch

from . import build, fusion, multiplied_operator, saved_rows, thin_operator
from .bitmask import new_bitmask, with_bitmask
from .cache import digest
from .calls import batched, have_kernel
from .checks import check
from .flavour import define, register_fake, register_vmap
from .shared import listed, result_types
from .signature import Signature
from .turns import OF_NAMES, taken


def registered(kernels: Any) -> Any:
    """Return the namespace of a module's operators; kernels are loaded when they are first asked for."""
    return space_of(kernels, kernels.signature.namespace, _define)


def space_of(kernels: Any, namespace: str, define_all: "Callable[[Any, Any], None]") -> Any:
    """Return a namespace of operators, which are defined where there are none of the same kernels.

    Args:
        kernels: have texts.
        namespace: its name, unless other kernels of the process have it.
        define_all: tells PyTorch of the operators of some kernels in a namespace.
    """
    with taken(torch.ops, OF_NAMES):  # threads may import modules of one name at once
        return _registered(kernels, namespace, define_all)


def _registered(kernels: Any, namespace: str, define_all: "Callable[[Any, Any], None]") -> Any:
    first = getattr(getattr(torch.ops, namespace), "_texts", None)
    if first is not None and first() != kernels.texts():  # another module has the name
        namespace = f"{namespace}_{digest(repr(kernels.texts()))}"
    operators = getattr(torch.ops, namespace)
    if not hasattr(operators, "_texts"):
        operators._library = torch.library.Library(namespace, "DEF")  # lives as long as they do
        define_all(kernels, operators)
        operators._texts = kernels.texts
    return operators


def _define(kernels: Any, operators: Any) -> None:
    """Tell PyTorch of a module's operators."""
    signature, library = kernels.signature, operators._library
    name, rules = signature.name, kernels.rules
    made = signature.results + signature.kept
    define(library, f"{name}({signature.forward}) -> {result_types(made)}", *kernels.tags)
    library.impl(name, lambda *arguments: kernels.composed(*arguments), "CompositeImplicitAutograd")
    for kernel, arguments, inputs, outputs in signature.kernels:
        written = "".join(f", Tensor({_alias(k)}!) OUT{k}" for k in range(outputs))
        define(library, f"{name}_{kernel}({arguments}) -> {result_types(outputs)}", "flexible_layout")
        define(library, f"{name}_{kernel}_out({arguments}{written}) -> ()")
        for suffix, new in (("", outputs), ("_out", 0)):
            operator = getattr(operators, f"{name}_{kernel}{suffix}").default
            loading = _first_use(kernels, operators, operator, (kernel, inputs, new))
            library.impl(f"{name}_{kernel}{suffix}", loading, "CompositeExplicitAutograd")
            library.impl(f"{name}_{kernel}{suffix}", loading, "CompositeImplicitAutogradNestedTensor")
            register_fake(operator, kernels.shapes((kernel, inputs, new, outputs - new)), library)
            rule = rules[kernel] if new else batched
            register_vmap(operator, _vectorized(operator, rule), lib=library)
    if kernels.sources.bitmask:
        _define_with_bitmask(kernels, operators)
    if kernels.saves:
        saved_rows.define_operators(kernels, operators, functools.partial(_loading, kernels, operators))
    if kernels.reduces_index:
        _define_reduced(kernels, operators)
    if kernels.sources.convolution:
        thin_operator.define_operators(kernels, operators)
    if kernels.sources.product:
        multiplied_operator.define_operator(kernels, operators)
    whole = getattr(operators, name).default
    register_vmap(whole, _vectorized(whole), lib=library)


def _alias(k: int) -> str:
    """The name of the k-th tensor that an operator writes, in its schema: a letter, or the same twice."""
    return ascii_lowercase[k % 26] * (1 + k // 26)


def _define_with_bitmask(kernels: Any, operators: Any) -> None:
    """Tell PyTorch of the operators that write or read a bitmask."""
    signature, library = kernels.signature, operators._library
    name, gradient = signature.name, shaped_like(signature, ("backward", 2, 1, 0))
    for which, schema, inputs, fake in (
        ("forward_masked", f"{signature.forward}) -> (Tensor, Tensor)", 1, with_bitmask),
        ("forward_masked_out", f"{signature.forward}, Tensor(a!) OUT0) -> Tensor", 1, new_bitmask),
        ("backward_masked", f"{signature.backward}, Tensor mask) -> Tensor", 2, gradient),
        ("backward_by_mask", f"{signature.backward}, Tensor mask) -> Tensor", 2, gradient),
    ):
        define(library, f"{name}_{which}({schema}")
        operator, kernel = getattr(operators, f"{name}_{which}").default, which.split("_")[0]
        loading = _first_use(kernels, operators, operator, (kernel, inputs, 2), build.load_library)
        library.impl(operator.name(), loading, "CompositeExplicitAutograd")
        register_fake(operator, fake, library)


def _define_reduced(kernels: Any, operators: Any) -> None:
    """Tell PyTorch of the operator that gives the reduction of values of rows, and its divisor."""
    signature, library = kernels.signature, operators._library
    name, inputs = f"{signature.name}_forward_reduced", len(signature.tensors)
    define(library, f"{name}({signature.forward}, float divisor) -> (Tensor, Tensor)")
    operator = getattr(operators, name).default

    def fake(first: Any, *others: Any) -> Any:
        value = first.new_empty((), dtype=kernels.values_in(first.dtype))
        return value, first.new_empty((), dtype=torch.float64)

    loading = _first_use(kernels, operators, operator, ("forward", inputs, 2))
    library.impl(name, loading, "CompositeExplicitAutograd")
    register_fake(operator, fake, library)


def _loading(kernels: Any, operators: Any, name: str, kernel: str, made: int) -> "Callable[..., Any]":
    """Return `_first_use` of an operator, by its name, of a kernel with so many results."""
    [inputs] = [count for which, _, count, _ in kernels.signature.kernels if which == kernel]
    return _first_use(kernels, operators, getattr(operators, name).default, (kernel, inputs, made))


def _first_use(
    kernels: Any,
    operators: Any,
    operator: Any,
    of: "Tuple[str, int, int]",
    load: "Callable[..., None]" = build.load,
) -> "Callable[..., Any]":
    """Return the operator on a device whose kernel is not loaded yet: loads it and starts again.

    Tensors that no kernel takes make the forward operator return None for each tensor it makes, so that
    PyTorch's own operations take its place with their gradient; into a given tensor, these write here.
    """
    kernel, inputs, made = of
    first = kernels.results if kernels.row_dtype and kernel == "backward" else 0  # in the dtype of elements

    def loading(*arguments: Any) -> Any:
        devices = {t.device.type for t in arguments[:inputs]}
        if not have_kernel(*arguments[:inputs]):
            none = f"no kernel for such tensors on {', '.join(sorted(devices))}"
            check(kernel == "forward", kernels.name, none)
            if not made:
                count = len(arguments) - kernels.results
                for out, result in zip(arguments[count:], listed(kernels.by_pytorch(*arguments[:count]))):
                    out.copy_(result)
            return (None,) * made if made > 1 else None
        load(kernels, operators, kernel, "cuda" if "cuda" in devices else "cpu", arguments[first].dtype)
        return operator(*arguments)

    return loading


def shaped_like(signature: Signature, of: "Tuple[str, int, int, int]") -> "Callable[..., Any]":
    """Return an operator's result without the elements, laid in memory as the kernel would lay it.

    Args:
        signature: of the module.
        of: the kernel, and the numbers of its inputs, of its new outputs, and of given ones.
    """
    module, (kernel, inputs, outputs, given) = signature.name, of

    def fake(*arguments: Any) -> Any:
        fusion.install()  # before the keys of Inductor's caches are computed
        tensors, written = arguments[:inputs], arguments[len(arguments) - given :]
        alike = len({(t.dtype, t.device) for t in (*tensors, *written)}) == 1
        check(alike, module, "expected tensors of one dtype and device")
        result = functools.reduce(torch.add, tensors) if inputs > 1 else torch.neg(*tensors)
        owners = signature.owners(kernel, [t.shape for t in tensors])
        own = [tensors[k] for k in owners] or [result]  # whose shapes the results have
        fits = all(t.shape == like.shape for t, like in zip(written, own))
        check(fits, module, "out has another shape than the result")
        made = [result_like(result, like.shape) for like in own[:outputs]]
        return tuple(made) if outputs > 1 else made[0] if made else None

    return fake


def result_like(whole: torch.Tensor, shape: "torch.Size") -> torch.Tensor:
    """Return a new tensor laid as the whole, or, of an operand that is broadcast to it, without gaps."""
    if shape == whole.shape:
        return torch.empty_like(whole)
    if (1,) * (whole.dim() - len(shape)) + tuple(shape) == tuple(whole.shape):
        return torch.empty_like(whole).reshape(shape)
    return whole.new_empty(shape)


def _vectorized(
    function: "Callable[..., Any]", rule: "Callable[..., Any]" = batched
) -> "Callable[..., Any]":
    return lambda info, in_dims, *arguments: rule(function, in_dims, arguments)
