"""The arguments of forward, tensors and numbers, and the scalars besides."""

from math import prod

from fusegen.core.held_layers import paths
from fusegen.core.poolings import window_names
from fusegen.core.spec import Input, Param, Spec
from fusegen.core.tensor_shapes import first_shape

WINDOW = '"int | tuple[int, ...] | None"'  # the type of a number of a window
TRAINING = "training"  # the argument of a function with dropout, and the attribute of its class


def argument(of: Input | Param) -> str:
    """Return a tensor or a number as a parameter of a function."""
    if isinstance(of, Param):
        return f"{of.name}: float"
    return f"{of.name}: Tensor" if of.split is None else optional(of.name)


def kernel_scalars(spec: Spec) -> list[Param]:
    """Return the scalars of the kernel that are keywords."""
    return [param for param in spec.scalars if param.position is None]


def keyword_scalars(spec: Spec) -> list[Param]:
    """Return the scalars that are keywords, and the constructor's, as declared."""
    drawn = [each.scale for each in spec.dropouts]
    own = [each for each in kernel_scalars(spec) if each not in drawn]
    places = {param.name: place for place, param in enumerate(spec.params)}
    return sorted([*own, *spec.rates], key=lambda each: places.get(each.name, -1))


def chosen(spec: Spec) -> dict[str, str]:
    """Return the constructor's numbers that calls have last, as parameters with their defaults, by name.

    They are the number of groups that a dimension has, if rows are such, and those of the windows.
    """
    names = [spec.over.groups] if spec.over is not None and spec.over.groups else []
    kinds = {**dict.fromkeys(names, "int"), **dict.fromkeys(window_names(spec), WINDOW)}
    known = {each.symbol: each for each in spec.init}
    return {
        name: f"{name}: {'bool' if isinstance(known[name].default, bool) else kind} = {known[name].text}"
        for name, kind in kinds.items()
    }


def last_arguments(spec: Spec) -> dict[str, str]:
    """Return what kernels do not read and calls have last: parameters with their defaults, by name."""
    found = chosen(spec)
    if spec.reduction != "none":
        found["reduction"] = f'reduction: str = "{spec.reduction}"'
    if reduces_index(spec):
        found["ignore_index"] = "ignore_index: int = -100"  # which index picks nothing
    return found


def reduces_index(spec: Spec) -> bool:
    """Return True if the values of rows with an index are reduced, as in losses of classes."""
    return bool(spec.indices) and spec.reduction != "none"


def optional(name: str) -> str:
    """Return a tensor that a call may leave out."""
    return f'{name}: "Tensor | None" = None'


def example(of: Input | Param, spec: Spec) -> str:
    """Return the tensor or number that `get_inputs` gives for an argument."""
    if isinstance(of, Param):
        return repr(of.default)
    sizes, filling = ", ".join(map(str, of.shape)) or "()", of.fill
    if of.index is not None and spec.over is not None:
        shape = first_shape(spec) or spec.inputs[0].shape
        return f"torch.randint({prod(spec.over.parted(shape)[1])}, {of.shape})"
    if of.is_mask:
        return f"torch.rand({sizes}) < 0.5"
    if filling.kind != "uniform":
        return f"torch.{filling.kind}({sizes})"
    return f"torch.empty({sizes}).uniform_({filling.low!r}, {filling.high!r})"


def function_name(spec: Spec) -> str:
    """The function that the kernel is called by: the plain one, or of views and masks one of its own."""
    return f"_{spec.name}" if spec.is_prepared else spec.name


def prepared(of: Input, spec: Spec, owner: str = "") -> str:
    """Return the argument of the kernel for a tensor, whose name stands behind that of its owner."""
    view = f"{owner}{paths(spec).get(of.name, of.name) if owner else of.name}"
    if of.unsqueeze is not None:
        view += f".unsqueeze({of.unsqueeze})"
    if of.along is not None:
        return f'KERNELS.along("{of.name}", {view}, {spec.inputs[0].name}, {of.along})'
    if of.index is not None:
        return view if reduces_index(spec) else f'KERNELS.index("{of.name}", {view}, {of.index})'
    if not of.is_mask:
        return view
    others = [each.name for each in spec.inputs if not each.is_mask]
    return f'KERNELS.mask("{of.name}", {", ".join([view, *others])})'


def local_names(spec: Spec) -> frozenset[str]:
    """Return the tensors and scalars that forward has as variables: others are attributes of the model."""
    drawn = (name for each in spec.dropouts for name in (each.kept.name, each.scale.name))
    bias = (spec.bias.name,) if spec.bias else ()
    return frozenset([*(each.name for each in spec.inputs), *bias, *drawn])


def drawn_lines(spec: Spec, owner: str = "") -> list[str]:
    """Return the lines that draw the masks of dropouts; the attributes of a model stand behind its name."""
    local, places, lines = local_names(spec), {each.name: each for each in spec.tensors}, []
    for each in spec.dropouts:
        rate = f"{owner}{each.rate}" if each.rate.isidentifier() else each.rate
        tensors = [prepared(places[name], spec, "" if name in local else owner) for name in each.reads]
        drawn = f"KERNELS.dropout({', '.join([rate, f'{owner}{TRAINING}', *tensors])})"
        lines.append(f"{each.kept.name}, {each.scale.name} = {drawn}")
    return lines


def views(spec: Spec, parameters: str) -> dict[str, str | list[str]]:
    """Return the function of the kernel, and the plain one that calls it, if that takes views or masks."""
    tensors = [prepared(each, spec) for each in spec.tensors]
    given = [*tensors, *(scalar.name for scalar in spec.scalars), *last_arguments(spec), "out=out"]
    return {
        "function_name": function_name(spec),
        "view_parameters": parameters if spec.is_prepared else "",
        "view_arguments": ", ".join(given),
        "drawn_lines": drawn_lines(spec),
    }
