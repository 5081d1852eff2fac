"""The layer classes of a spec as text: a forward and no state, as `kernels.kernelize` takes them."""

from collections.abc import Iterator

from fusegen.codegen.render.forward_arguments import kernel_scalars
from fusegen.core.spec import Input, Param, Spec
from fusegen.errors import NotALayer, Span

CLASS = '''
class {name}(nn.Module):
    """{summary}"""

    has_backward: bool = True
    can_torch_compile: bool = True
{attributes}
    def forward(self, {signature}) -> Tensor:
        return _{function}({call})
'''
HALVES = "The same of one tensor, which is split in two halves along dimension {split}."


def names(spec: Spec) -> tuple[str, ...]:
    """Return the names of a spec's layers: its own in CamelCase, and one for halves of a tensor."""
    camel = "".join(part.capitalize() for part in spec.name.split("_"))
    return (camel, f"{camel}Halves") if spec.inputs[-1].split is not None else (camel,)


def texts(spec: Spec) -> Iterator[str]:
    """Yield a pointwise spec's classes; scalars and state are attributes of the module that adopts a layer.

    Raises:
        NotALayer: it has a layer of torch.nn in front of it.
    """
    if spec.producer is not None:
        what = f"a layer of torch.nn, {spec.producer.attribute}"
        raise NotALayer(Span(spec.span.file), name=spec.name, what=what)
    for each in spec.dropouts:
        raise NotALayer(each.span, name=spec.name, what="dropout, which reads whether the model trains")
    first, *halves = names(spec)
    given = [f"{each.name}: {'float' if isinstance(each, Param) else 'Tensor'}" for each in spec.arguments]
    called = [each.name for each in spec.arguments]
    tensors, scalars = held(spec), kernel_scalars(spec)
    attributes = [f"{each.name}: Tensor" for each in tensors]
    attributes += [f"{each.name}: float" for each in scalars]
    call = [*called, *(f"self.{each.name}" for each in tensors)]
    yield CLASS.format(
        name=first,
        summary=_summary(spec),
        attributes="".join(f"    {line}\n" for line in attributes),
        signature=", ".join(given),
        function=spec.name,
        call=", ".join([*call, *(f"{each.name}=self.{each.name}" for each in scalars)]),
    )
    for name in halves:
        split = spec.inputs[-1].split
        yield CLASS.format(
            name=name,
            summary=f"{_summary(spec)} {HALVES.format(split=split)}",
            attributes="",
            signature="input: Tensor",
            function=spec.name,
            call=f"input, dim={split}",
        )


def held(spec: Spec) -> list[Input]:
    """Return the tensors that are attributes of the module which adopts a layer."""
    return [each for each in spec.tensors if each.name in spec.small]


def _summary(spec: Spec) -> str:
    return spec.summary.replace("\\", "\\\\").replace('"""', "'''")
