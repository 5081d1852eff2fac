"""The operator of a linear layer with the kernel of a module behind it, ``NAME_multiplied``.

Its arguments are those of ``linear_together``, and the operands and the scalars of the kernel.
"""

from typing import Any

from . import build
from .flavour import define, register_fake


def define_operator(kernels: Any, operators: Any) -> None:
    """Tell PyTorch of the operator, which tells whether it ran: not where its memory could not be had."""
    name, library = f"{kernels.name}_multiplied", operators._library
    _, *others = kernels.signature.forward.split(", ")
    factors = [f"Tensor {of}" for of in ("left", "right", "bias", "largest", "norm")]
    taken = ", ".join([*factors, *(f"{of}_" for of in others), "Tensor(a!) OUT0"])
    define(library, f"{name}({taken}) -> bool")
    kernel = getattr(operators, name).default

    def loading(*arguments: Any) -> bool:
        build.load(kernels, operators, "multiplied", "cuda")
        return bool(kernel(*arguments))

    library.impl(name, loading, "CompositeExplicitAutograd")
    register_fake(kernel, lambda *arguments: True, library)
