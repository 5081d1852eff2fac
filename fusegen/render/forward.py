"""The arguments of forward, tensors and numbers, and the scalars besides."""

from __future__ import annotations

from fusegen.spec import Input, Param, Spec


def argument(of: Input | Param) -> str:
    """A tensor or a number as a parameter of a function."""
    if isinstance(of, Param):
        return f"{of.name}: float"
    return f"{of.name}: Tensor" if of.split is None else optional(of.name)


def keyword_scalars(spec: Spec) -> list[Param]:
    """The scalars that are keywords, and the constructor's."""
    return [param for param in spec.scalars if param.position is None]


def optional(name: str) -> str:
    """A tensor that a call may leave out."""
    return f'{name}: "Tensor | None" = None'


def example(of: Input | Param) -> str:
    """What `get_inputs` gives of an argument."""
    if isinstance(of, Param):
        return repr(of.default)
    sizes, filling = ", ".join(map(str, of.shape)) or "()", of.fill
    if filling.kind != "uniform":
        return f"torch.{filling.kind}({sizes})"
    return f"torch.empty({sizes}).uniform_({filling.low!r}, {filling.high!r})"
