"""The report of a lifted model: fused operations, layers left to PyTorch, and unread arguments."""

from collections.abc import Iterator

from fusegen.errors import counted
from fusegen.language.parse import parse_spec
from fusegen.models.lift.lifted import Lifted

RENAMED = "formulas read the {what} {old} as {new}, since {old} cannot be a name there"


def report(of: Lifted) -> Iterator[str]:
    """Yield sentences, in order."""
    spec = parse_spec(of.text, f"specs/{of.name}.yaml")
    fused = [f"{each.what} (line {each.line})" if each.line else each.what for each in of.traced.operations]
    also = f", which adds the bias of {spec.producer.attribute}, too" if spec.bias and spec.producer else ""
    yield f"fused: {', '.join(fused)}: {counted(len(fused), 'operation')} in 1 kernel{also}"
    for attribute, line in of.traced.layers.items():
        kind = of.of.layers[attribute].partition("(")[0]
        yield f"PyTorch's: {attribute} (line {line}): {kind} is a layer, and runs before the kernel"
    for old, new in of.given.names.items():
        if old != new:
            yield RENAMED.format(what="input", old=old, new=new)
    for each in spec.init:
        if each.symbol != each.name:
            yield RENAMED.format(what="argument", old=each.name, new=each.symbol)
    for name, fill in of.given.fills.items():
        if not fill:
            yield f"get_inputs fills {name} by neither rand nor randn; the spec says randn"
    for name in of.unread:
        value = of.of.arguments[name]
        yield f"neither layers nor formulas read the argument {name}; the spec is for {name}={value!r} only"
