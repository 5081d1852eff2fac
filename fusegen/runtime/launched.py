"""The operators of kernels that Python launches, until a call needs the library that nvcc makes."""

import functools
import logging
from typing import Any, Callable, Dict, Optional

import torch

from .launcher import Launcher

BY_KERNEL = "_launched"  # an attribute of operators: the registrations by kernel, None for those removed


def implement(kernels: Any, operators: Any, kernel: str, library: "Optional[Callable[[], None]]") -> None:
    """Register the operators of a kernel, forward or backward, for CUDA.

    Args:
        kernels: of a module.
        operators: these.
        kernel: which one.
        library: loads the library that nvcc makes, for other tensors than dense ones; None without nvcc.
    """
    launcher, name = Launcher(kernels, kernel), kernels.name
    launcher.library = library and functools.partial(_instead, operators, launcher, library)
    made = {kernel: launcher.new, f"{kernel}_out": launcher.into}
    if kernels.sources.bitmask and library is None:
        made.update(without_bitmasks(kernels, launcher)[kernel])
    registered = torch.library.Library(operators.name, "IMPL")
    for suffix, function in made.items():
        registered.impl(f"{name}_{suffix}", function, "CUDA")
    vars(operators).setdefault(BY_KERNEL, {})[kernel] = registered
    logging.getLogger("fusegen").info("%s_%s: NVRTC compiles it, Python launches it", name, kernel)


def remove(operators: Any, kernel: str) -> None:
    """Remove the operators of a kernel, which its library replaces, if Python launches it."""
    registered = vars(operators).setdefault(BY_KERNEL, {}).get(kernel)
    vars(operators)[BY_KERNEL][kernel] = None
    if registered is not None:
        registered._destroy()


def is_removed(operators: Any, kernel: str) -> bool:
    """Return True if Python is not to launch a kernel, which has a library."""
    return vars(operators).get(BY_KERNEL, {}).get(kernel, operators) is None


def _instead(operators: Any, launcher: Any, library: "Callable[[], None]", suffix: str) -> Any:
    """Return the operator of a kernel's library, which takes the place of its launcher."""
    library()
    return getattr(operators, f"{launcher.kernels.name}_{launcher.kernel}{suffix}").default._op


def without_bitmasks(kernels: Any, launcher: Launcher) -> "Dict[str, Dict[str, Any]]":
    """Return the operators with a bitmask, by kernel: gradients come from the tensor, or from a copy."""
    saves_output = kernels.signature.saved != kernels.signature.tensors

    def forward_masked(*arguments: Any) -> Any:
        return launcher.new(*arguments), arguments[0].new_empty(0, dtype=torch.uint8)

    def forward_masked_out(*arguments: Any) -> Any:
        x, out = arguments[0], arguments[-1]
        before = None if saves_output else x.clone()
        launcher.into(*arguments)
        return out.clone() if before is None else before

    def backward_masked(*arguments: Any) -> Any:
        return launcher.new(*arguments[:-1])

    def backward_by_mask(grad: Any, like: Any, *others: Any) -> Any:
        *params, saved = others
        return launcher.new(grad, saved, *params)

    return {
        "forward": {"forward_masked": forward_masked, "forward_masked_out": forward_masked_out},
        "backward": {"backward_masked": backward_masked, "backward_by_mask": backward_by_mask},
    }
