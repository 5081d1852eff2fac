"""Kernels in front of a spec's own, each of which is a spec: their names and their layers."""

from collections.abc import Iterable
from dataclasses import replace

from fusegen.core.constructor import Item, Layer
from fusegen.core.held_layers import parts
from fusegen.core.spec import Spec


def title(front: Spec, whole: Spec) -> str:
    """Return the name that a spec gives to a kernel in front of its own."""
    return front.name.removeprefix(f"{whole.name}_")


def shared(kernels: Iterable[tuple[Spec, int, set[str]]], layers: tuple[Item, ...]) -> tuple[Spec, ...]:
    """Return kernels, each with the layers that run right in front of it, and with the state that it reads.

    The last one has all items, as the constructor makes them all.

    Args:
        kernels: in order, with the number of items in front of each, and the names that it reads.
        layers: the items of the constructor.
    """
    every = tuple(kernels)
    read_by_any = {name for _, _, read in every for name in read}
    held = {item.attribute for item in layers if not read_by_any.isdisjoint(parts(item.attribute))}
    found, begin = list[Spec](), 0
    for kernel, end, read in every:
        ahead = {item.attribute for item in layers[begin:end] if isinstance(item, Layer)} - held
        ahead |= {name for name in held if not read.isdisjoint(parts(name))}
        ahead |= {item.attribute for item in layers if item.attribute in read}
        own = tuple(item for item in layers if item.attribute in ahead)
        if kernel is every[-1][0]:
            own = tuple(item if item.attribute in ahead else _made(item, read_by_any) for item in layers)
        found.append(replace(kernel, layers=own))
        begin = end
    return tuple(found)


def _made(item: Item, read: set[str]) -> Item:
    """Return an item that the constructor makes for a kernel in front."""
    if isinstance(item, Layer):
        return replace(item, runs=False)
    return replace(item, is_read=item.is_read and item.attribute not in read)
