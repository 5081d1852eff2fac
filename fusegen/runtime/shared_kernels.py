"""Kernels that all modules of a runtime share: their sources, and the operators that load them."""

import functools
from typing import Any, Callable, Sequence

import torch

from . import build, flavour, operators
from .flavour import define
from .headers import inlined
from .settings import NAMESPACE
from .sources import Texts, header

Define = Callable[[Any, Any], None]


def space_of(name: str) -> str:
    """Return the name of the namespace that operators of such kernels have."""
    return f"{NAMESPACE}_{name}"


@functools.lru_cache(None)
def texts(name: str, binding: str, cuda: str) -> Texts:
    """Return the sources of some kernels with their headers in their places."""
    return Texts(name, "", inlined(binding, header), "", inlined(cuda, header), "")


class SharedKernels:
    """Kernels with operators of their own.

    Attributes:
        name: of the kernels.
        texts: returns their sources.
        operators: the namespace of the operators.
    """

    def __init__(self, name: str, texts: "Callable[[], Texts]", define_all: Define) -> None:
        """Define the operators.

        Args:
            name: of the kernels.
            texts: returns their sources.
            define_all: tells PyTorch of the operators in a namespace.
        """
        self.name, self.texts = name, texts
        self.operators = operators.space_of(self, space_of(name), define_all)


def can_load(kernels: "Callable[[], SharedKernels]", names: "Sequence[str]") -> bool:
    """Return True if kernels can be built, or are shipped; else they are not asked for.

    Args:
        kernels: returns them.
        names: of those that are to be loaded.
    """
    if not flavour.PRODUCTS or torch.version.hip:
        return False
    return all(build.can_load(kernels(), kernels().operators, name) for name in names)


def into(kernel: str, taken: str) -> Define:
    """Return what defines an operator that writes into a given tensor, and loads its kernel before.

    Args:
        kernel: its name.
        taken: what the operator takes, in a schema.
    """

    def define_one(of: SharedKernels, space: Any) -> None:
        name = f"{of.name}_{kernel}"
        define(space._library, f"{name}({taken}) -> ()")

        def loading(*arguments: Any) -> None:
            build.load(of, space, kernel, "cuda")
            getattr(space, name).default(*arguments)

        space._library.impl(name, loading, "CompositeExplicitAutograd")

    return define_one
