"""The arguments of forward, tensors and numbers, and the scalars besides."""

from math import prod

from fusegen.core.spec import Input, Param, Spec


def argument(of: Input | Param) -> str:
    """Return a tensor or a number as a parameter of a function."""
    if isinstance(of, Param):
        return f"{of.name}: float"
    return f"{of.name}: Tensor" if of.split is None else optional(of.name)


def keyword_scalars(spec: Spec) -> list[Param]:
    """Return the scalars that are keywords, and the constructor's."""
    return [param for param in spec.scalars if param.position is None]


def groups(spec: Spec) -> list[str]:
    """Return the name of the argument that says how many groups a dimension has, if rows are such."""
    return [spec.over.groups] if spec.over is not None and spec.over.groups else []


def optional(name: str) -> str:
    """Return a tensor that a call may leave out."""
    return f'{name}: "Tensor | None" = None'


def example(of: Input | Param, spec: Spec) -> str:
    """Return the tensor or number that `get_inputs` gives for an argument."""
    if isinstance(of, Param):
        return repr(of.default)
    sizes, filling = ", ".join(map(str, of.shape)) or "()", of.fill
    if of.index is not None and spec.over is not None:
        return f"torch.randint({prod(spec.over.parted(spec.inputs[0].shape)[1])}, {of.shape})"
    if of.is_mask:
        return f"torch.rand({sizes}) < 0.5"
    if filling.kind != "uniform":
        return f"torch.{filling.kind}({sizes})"
    return f"torch.empty({sizes}).uniform_({filling.low!r}, {filling.high!r})"


def is_prepared(spec: Spec) -> bool:
    """Return True if the kernel takes something else of an input: a view, or a mask as numbers."""
    return any(each.is_viewed or each.is_mask for each in spec.tensors)


def function_name(spec: Spec) -> str:
    """The function that the kernel is called by: the plain one, or of views and masks one of its own."""
    return f"_{spec.name}" if is_prepared(spec) else spec.name


def prepared(of: Input, spec: Spec, owner: str = "") -> str:
    """Return the argument of the kernel for a tensor, whose name stands behind that of its owner."""
    view = f"{owner}{of.name}"
    if of.unsqueeze is not None:
        view += f".unsqueeze({of.unsqueeze})"
    if of.along is not None:
        return f'KERNELS.along("{of.name}", {view}, {spec.inputs[0].name}, {of.along})'
    if of.index is not None:
        return f'KERNELS.index("{of.name}", {view}, {of.index})'
    if not of.is_mask:
        return view
    others = [each.name for each in spec.inputs if not each.is_mask]
    return f'KERNELS.mask("{of.name}", {", ".join([view, *others])})'


def views(spec: Spec, parameters: str) -> dict[str, str]:
    """Return the function of the kernel, and the plain one that calls it, if that takes views or masks."""
    tensors = [prepared(each, spec) for each in spec.tensors]
    given = [*tensors, *(scalar.name for scalar in spec.scalars), *groups(spec), "out=out"]
    return {
        "function_name": function_name(spec),
        "view_parameters": parameters if is_prepared(spec) else "",
        "view_arguments": ", ".join(given),
    }
