"""The calls of a captured forward: structures of arguments and results, and what its graphs hold for."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, Tensor, nn
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
from torch.utils import _pytree as pytree

Forward = Callable[..., Any]
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout)
OTHERS = "the graph holds for other arguments, sizes, dtypes or modes"
OTHER = "forward was traced with {0}={1!r}, and {0} is another value"


class Unlike(ValueError):
    """A call for which a graph does not hold, in a clause."""


class _Opened:
    """A dataclass that PyTorch does not know as a structure."""

    def __init__(self, of: Any) -> None:
        self.kind = type(of)
        self.fields = {each.name: _opened(getattr(of, each.name)) for each in dataclasses.fields(of)}


def _made(values: Any, context: Any) -> Any:
    kind, names = context
    made = object.__new__(kind)  # whose constructor may take other arguments
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


pytree.register_pytree_node(_Opened, lambda of: ([*of.fields.values()], (of.kind, tuple(of.fields))), _made)


def _opened(value: Any) -> Any:
    def opened(leaf: Any) -> Any:
        is_one = dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)
        return _Opened(leaf) if is_one else leaf

    return pytree.tree_map(opened, value)


@dataclass(frozen=True)
class Kind:
    """A tensor among the leaves of a structure."""

    # dtype, device: of it; None where any will do
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    # of the images or filters of a parameter, which decide the layout of results
    stride: tuple[int, ...] | None = None
    dims: int | None = None  # how many dimensions an argument has


@dataclass(frozen=True)
class Structure:
    """A structure of tensors and constants."""

    containers: Any  # with the places of leaves in them
    leaves: tuple[Any, ...]  # a `Kind` for each tensor, and each constant

    @functools.cached_property
    def spec(self) -> pytree.TreeSpec:
        """The containers as PyTorch describes them, which warns where it is copied or pickled."""
        return pytree.tree_structure(_opened(self.containers))

    def __getstate__(self) -> dict[str, Any]:
        return {"containers": self.containers, "leaves": self.leaves}

    def tensors(self, value: Any) -> list[Tensor] | None:
        """Return the tensors of a value; None where it has another structure, dtype, device or constant."""
        leaves, spec = pytree.tree_flatten(_opened(value))
        if len(leaves) != len(self.leaves) or spec != self.spec:
            return None
        if not all(map(_is, leaves, self.leaves)):
            return None
        return [each for each, kind in zip(leaves, self.leaves, strict=True) if isinstance(kind, Kind)]

    def value(self, tensors: Sequence[Any]) -> Any:
        """Return the value of some tensors."""
        if self.containers == 0:  # it is the only leaf
            return tensors[0] if isinstance(self.leaves[0], Kind) else self.leaves[0]
        left = iter(tensors)
        leaves = [next(left) if isinstance(each, Kind) else each for each in self.leaves]
        return pytree.tree_unflatten(leaves, self.spec)


def _is(leaf: Any, of: Any) -> bool:
    if isinstance(of, Kind):
        same = isinstance(leaf, Tensor) and (of.dtype is None or leaf.dtype is of.dtype)
        same = same and (of.dims is None or leaf.dim() == of.dims)
        same = same and (of.device is None or leaf.device == of.device)
        return same and (of.stride is None or leaf.stride() == of.stride)
    return leaf is of or (type(leaf) is type(of) and isinstance(leaf, PLAIN) and leaf == of)


def structure_of(value: Any) -> tuple[Structure, list[Any]]:
    """Return the structure of a value, and its tensors and symbolic sizes."""
    leaves, spec = pytree.tree_flatten(_opened(value))
    tensors = [each for each in leaves if isinstance(each, Tensor | SymInt)]
    kinds = (_kind(each) if isinstance(each, Tensor | SymInt) else each for each in leaves)
    return Structure(pytree.tree_unflatten([*range(len(leaves))], spec), tuple(kinds)), tensors


def _kind(leaf: Any) -> Kind:
    return Kind(leaf.dtype, leaf.device, dims=leaf.dim()) if isinstance(leaf, Tensor) else Kind()


@dataclass(frozen=True)
class Signature:
    """The calls for which the graphs of a captured forward hold."""

    inputs: Structure  # of the arguments by place and by name
    outputs: tuple[Structure, ...]  # of the results in each mode, in the order of the graphs
    guards: tuple[str, ...]  # conditions on the sizes of inputs, in Python
    # the dtypes, the devices and the layouts of parameters and buffers that decide, by name
    state: Mapping[str, Kind]
    casts: bool  # dtypes and devices are in the graphs, which autocast would change
    names: tuple[str, ...]  # of the arguments that are tensors by place, where these are all; else none

    def called(self, graphs: Forward, network: nn.Module, forward: Forward | None) -> Forward:
        """Return the forward of a network, which runs the graph of its mode.

        Raises:
            Unlike: the graphs do not hold for a call.
        """
        signature = inspect.signature(forward) if forward is not None else None
        holds = _condition(self.guards)
        kept = [*self._kept(network)]
        kinds = [each for each in self.inputs.leaves if isinstance(each, Kind)]
        is_autocast: Any = torch._C._is_any_autocast_enabled
        for each in (self.inputs, *self.outputs):
            _ = each.spec  # a compiler cannot make it, as Python takes a lock

        def call(of: nn.Module, *args: Any, **kwargs: Any) -> Any:
            tensors: Sequence[Any] | None = args
            if kwargs or len(args) != len(self.names) or not all(map(_is, args, kinds)):
                tensors = self._tensors(signature, of, args, kwargs)
            fits = tensors is not None and all(_is(own[name], kind) for own, name, kind in kept)
            if tensors is None or not fits or (self.casts and is_autocast()) or not holds(tensors):
                raise Unlike(OTHERS)
            return self.outputs[0 if of.training else -1].value(graphs(of, *tensors))

        return call

    def _tensors(self, signature: Any, of: nn.Module, args: Any, kwargs: Any) -> list[Tensor] | None:
        """Return the tensors of any call; None where the graphs hold for others.

        Raises:
            Unlike: an argument has another value than its default.
        """
        given = bound(signature, of, args, kwargs) if signature is not None else None
        tensors = None if given is None else self.inputs.tensors(given)
        if tensors is None and given is not None:
            _, given_by_name = self.inputs.containers
            for name, value in signature.bind(of, *args, **kwargs).arguments.items():
                usual = signature.parameters[name].default
                if name not in given_by_name and isinstance(usual, PLAIN) and not _is(value, usual):
                    raise Unlike(OTHER.format(name, usual))
        return tensors

    def _kept(self, network: nn.Module) -> Iterator[tuple[Mapping[str, Any], str, Kind]]:
        """Yield the parameters and buffers of a network with the kinds that its graphs hold for."""
        for name, kind in self.state.items():
            path, _, attribute = name.rpartition(".")
            module = network.get_submodule(path)
            yield (
                module._parameters if attribute in module._parameters else module._buffers,
                attribute,
                kind,
            )


def kinds(model: nn.Module) -> dict[str, Kind]:
    """Return the dtypes and devices of a model's parameters and buffers, by name."""
    every = (*model.named_parameters(), *model.named_buffers())
    return {
        name: Kind(each.dtype, each.device, each.stride() if each.dim() > 3 else None)
        for name, each in every
    }


def layouts(model: nn.Module) -> dict[str, Kind]:
    """Return the layouts of a model's images and filters, by name."""
    return {
        name: Kind(stride=kind.stride) for name, kind in kinds(model).items() if kind.stride is not None
    }


def names_by_place(signature: inspect.Signature, inputs: Structure) -> tuple[str, ...]:
    """Return the names of the arguments that are all tensors, and the first of a forward; else none."""
    by_place, by_name = inputs.containers
    first = [each.name for each in _of(signature)[1 : 1 + len(by_name)]]
    is_all = not by_place and [*by_name.values()] == [*range(len(inputs.leaves))]
    is_plain = is_all and first == [*by_name] and all(isinstance(each, Kind) for each in inputs.leaves)
    return tuple(first) if is_plain else ()


def of_any_dtype(inputs: Structure) -> Structure:
    """Return the structure of the same arguments whose tensors may have any dtype and device."""
    leaves = (Kind(dims=each.dims) if isinstance(each, Kind) else each for each in inputs.leaves)
    return Structure(inputs.containers, tuple(leaves))


def bound(signature: inspect.Signature, model: nn.Module, args: Any, kwargs: Any) -> Any:
    """Return the arguments of a forward by place and by name; None where it does not take these.

    All that can be are given by name, and those that are their defaults are left out.
    """
    try:
        found = signature.bind(model, *args, **kwargs).arguments
    except TypeError:
        return None
    by_place: list[Any] = []
    by_name: dict[str, Any] = {}
    has_more = any(each.kind is each.VAR_POSITIONAL and each.name in found for each in _of(signature))
    for each in _of(signature)[1:]:
        if each.kind is each.VAR_POSITIONAL:
            by_place += found.get(each.name, ())
        elif each.kind is each.VAR_KEYWORD:
            by_name |= found.get(each.name, {})
        elif each.kind is each.POSITIONAL_ONLY or (has_more and each.kind is each.POSITIONAL_OR_KEYWORD):
            by_place.append(found.get(each.name, each.default))
        elif each.name in found and not _is(found[each.name], each.default):
            by_name[each.name] = found[each.name]
    return tuple(by_place), by_name


def _of(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [*signature.parameters.values()]


def _condition(guards: Sequence[str]) -> Callable[[Sequence[Tensor]], bool]:
    """Return the function that tells whether guards hold for tensors."""
    if not guards:
        return lambda tensors: True
    body = " and ".join(f"({each})" for each in guards)
    names: dict[str, Any] = {**SYMPY_INTERP}  # of symbolic_shapes.py
    exec(f"def holds(L): return bool({body})", names)
    return lambda tensors: names["holds"]({f"t{place}": each for place, each in enumerate(tensors)})
