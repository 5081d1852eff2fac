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


def is_viewed(spec: Spec) -> bool:
    """Whether a view of an input is taken before the kernel."""
    return any(each.unsqueeze is not None for each in spec.inputs)


def function_name(spec: Spec) -> str:
    """The function that the kernel is called by: the plain one, or of views one of its own."""
    return f"_{spec.name}" if is_viewed(spec) else spec.name


def viewed(of: Input) -> str:
    """What the kernel is given of a tensor."""
    return of.name if of.unsqueeze is None else f"{of.name}.unsqueeze({of.unsqueeze})"


def views(spec: Spec, parameters: str) -> dict[str, str]:
    """The function of the kernel, and the plain one that calls it, if that takes views."""
    given = [*map(viewed, spec.tensors), *(scalar.name for scalar in spec.scalars), "out=out"]
    return {
        "function_name": function_name(spec),
        "view_parameters": parameters if is_viewed(spec) else "",
        "view_arguments": ", ".join(given),
    }
