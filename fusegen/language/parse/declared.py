"""Laws of the names that a spec declares: each is unique and read, and a function keeps its name."""

from collections.abc import Iterator

from fusegen.core.constructor import Argument
from fusegen.core.kernel_order import title
from fusegen.core.ops import OPS
from fusegen.core.spec import Named, Param, Spec
from fusegen.core.term import Apply, Name, walk
from fusegen.errors import (
    ConstantFormula,
    FusegenError,
    NameTaken,
    ReservedPrimitive,
    StepIgnoresValue,
    Unused,
)
from fusegen.language.parse.checks import read_names

ARGUMENT = "an argument of the constructor"


def _shared_names(spec: Spec) -> Iterator[FusegenError]:
    """Yield one mistake for each name that two things have."""
    holders: dict[str, str] = {spec.name: "the spec's own name"}
    if spec.name in OPS:  # a primitive's spec shares its name with the function, never with a variable
        holders = {}
    if any(param.name == spec.name for param in spec.params):  # as in torch.nn.functional.threshold
        holders = {}
    arguments = {argument.name for argument in spec.init}
    for param in spec.params:
        if param.name in arguments and param.position is None and not param.path:
            yield NameTaken(param.span, name=param.name, holder=ARGUMENT)
    if "dim" in arguments and spec.inputs[-1].split is not None:
        span = next(each.span for each in spec.init if each.name == "dim")
        yield NameTaken(span, name="dim", holder="the argument of a split")
    own = arguments - {each.name for each in _renamed(spec)}
    for each in _renamed(spec):
        if each.symbol in own:
            yield NameTaken(each.span, name=each.symbol, holder=ARGUMENT)
    declared = [(i.name, i.span, "an input") for i in spec.inputs]
    declared += [(p.name, p.span, _holder(p)) for p in spec.params]
    declared += [(line.name, line.span, _kind(spec, line)) for line in spec.where]
    declared += [(s.label.name, s.label.span, "a named step") for s in spec.chain if s.label]
    declared += [(item.attribute, item.span, item.holder) for item in spec.layers]
    declared += [(each.symbol, each.span, "a symbol of `init`") for each in _renamed(spec)]
    fronts = () if spec.leads else spec.kernels[:-1]
    declared += [(title(each, spec), each.span, "a kernel in front") for each in fronts]
    declared += [(spec.bias.name, spec.bias.span, "the bias of a layer")] if spec.bias else []
    for name, span, holder in declared:
        if name in holders:
            yield NameTaken(span, name=name, holder=holders[name])
        holders.setdefault(name, holder)


def _renamed(spec: Spec) -> Iterator[Argument]:
    """Return the arguments that formulas read by another name."""
    return (each for each in spec.init if each.symbol != each.name)


def _kind(spec: Spec, line: Named) -> str:
    return "a result" if line.name in spec.results else "a named step"


def _holder(param: Param) -> str:
    return "a parameter" if param.position is None else "an input"


def _unused(spec: Spec) -> Iterator[FusegenError]:
    """Yield one mistake for each input, parameter and named step that nothing reads."""
    used = {*read_names(spec), *spec.results}
    if spec.chain:
        used.add(spec.inputs[0].name)
    declared = [("the input", i.name, i.span) for i in spec.inputs]
    declared += [(f"the {_holder(p).split()[1]}", p.name, p.span) for p in spec.params]
    declared += [("the named step", line.name, line.span) for line in spec.where]
    declared += [("the named step", s.label.name, s.label.span) for s in spec.chain if s.label]
    read = {each for front in spec.kernels[:-1] for each in front.init}
    declared += [("the symbol", each.symbol, each.span) for each in _renamed(spec) if each not in read]
    for what, name, span in declared:
        if name not in used and name == spec.inputs[0].name and spec.leads:
            yield StepIgnoresValue(spec.formula.span if spec.formula else spec.span, running=name)
        elif name not in used and span == spec.span:  # the input that every spec has
            yield ConstantFormula(spec.formula.span if spec.formula else span, name=name)
        elif name not in used:
            yield Unused(span, what=what, name=name)


def _other_than_its_function(spec: Spec) -> Iterator[FusegenError]:
    """Yield a mistake where a spec named like a function is another one.

    It is that function, or it reads it and has parameters besides, as softplus has beta and threshold. In a
    formula the name means the function, in a chain the spec with its parameters.
    """
    if spec.name not in OPS:
        return
    op = OPS[spec.name]
    variables = [*(i.name for i in spec.tensors), *(p.name for p in spec.scalars)]
    arguments = tuple(Name(variable) for variable in variables)
    terms = [line.term for line in spec.where] + ([spec.formula] if spec.formula else [])
    reads = any(isinstance(part, Apply) and part.op == op.name for term in terms for part in walk(term))
    adds = reads and spec.scalars and len(spec.tensors) == len(op.args)
    if not adds and (spec.where or spec.formula != Apply(op.name, arguments)):
        call = op.signature if len(variables) != len(op.args) else f"{op.name}({', '.join(variables)})"
        yield ReservedPrimitive(spec.span, name=spec.name, call=call)


NAMES = (_shared_names, _unused, _other_than_its_function)
