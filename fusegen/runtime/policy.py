"""The policy under torch.compile: a generated operator stays one, or becomes PyTorch's own operations.

``kernel`` keeps the operator, and ``decompose`` traces the module's ``eager`` formula in its place, which
Inductor fuses with its neighbours. ``auto``, the default, does so only where Inductor has a neighbour to
fuse it with, or where a kernel on CUDA is shorter than the call of an operator (see `neighbours`). The
environment variable FUSEGEN_COMPILE and `set_compile_policy` hold for all modules of a runtime;
``KERNELS.compile_policy`` of a module comes before both. Without any of them the project's configuration
decides.
"""

import os
from typing import Any, Callable, Optional

from .flavour import is_compiling
from .settings import POLICY

POLICIES = ("auto", "kernel", "decompose")
VARIABLE = "FUSEGEN_COMPILE"


def checked(policy: Any, source: str) -> str:
    """Return a policy, if it is one.

    Raises:
        ValueError: it is none.
    """
    if policy not in POLICIES:
        raise ValueError(f"{source} must be 'auto', 'kernel' or 'decompose', not {policy!r}")
    return str(policy)


_policy = checked(os.environ.get(VARIABLE, POLICY), VARIABLE)


def set_compile_policy(policy: str) -> str:
    """Set the policy of all modules that have none of their own; compiled functions are recompiled.

    Args:
        policy: ``auto``, ``kernel`` or ``decompose``.

    Returns:
        The policy before.

    Raises:
        ValueError: there is no such policy.
    """
    global _policy
    before, _policy = _policy, checked(policy, "the policy under torch.compile")
    return before


def policy_of(own: "Optional[str]") -> str:
    """Return the policy of a module, by its own, if it has one; dynamo reads it and keeps a guard on it."""
    return _policy if own is None else own


class UnderCompile:
    """The part of a module's kernels that compilers record."""

    name: str
    eager: "Callable[..., Any]"  # the function in PyTorch's own operations
    overload: Any  # the operator, with its gradient
    _compile_policy: "Optional[str]" = None

    @property
    def compile_policy(self) -> "Optional[str]":
        """The module's own policy under torch.compile, or None."""
        return self._compile_policy

    @compile_policy.setter
    def compile_policy(self, policy: "Optional[str]") -> None:
        source = f"{self.name}: compile_policy"
        self._compile_policy = None if policy is None else checked(policy, source)

    @property
    def stays_kernel(self) -> bool:
        """True if a compiler keeps the operator whatever its neighbours are."""
        return policy_of(self._compile_policy) == "kernel"

    def operator(self, *arguments: Any) -> Any:
        """Return the call as tracers record it: the operator, or PyTorch's operations by the policy."""
        if is_compiling() and policy_of(self._compile_policy) == "decompose":
            return self.eager(*arguments)
        return self.overload(*arguments)
