"""Layers of torch.nn whose parts formulas read, as ``norm.weight``: they hold these, and do not run."""

from collections.abc import Callable
from dataclasses import replace

from fusegen.core.constructor import Item, Kind, Layer, StateTensor
from fusegen.core.held_layers import SCALAR, TENSORS, eps, is_held, read_as, tensors
from fusegen.core.spec import Param, Spec
from fusegen.core.term import Name, SpecCall, Term, rebuild
from fusegen.errors import FusegenError, NameTaken, NotHeld, Span
from fusegen.language.parse.checks import read_names


def with_held(spec: Spec) -> tuple[Spec, list[FusegenError]]:
    """Return the spec with tensors and scalars for the parts of layers that formulas read, and mistakes."""
    used = read_names(spec)
    if not any("." in name for name in used):
        return spec, []
    items, params, errors = list[Item](), list[Param](), list[FusegenError]()
    for item in spec.layers:
        read = {part: used.get(f"{item.attribute}.{part}") for part in (*TENSORS, SCALAR)}
        if not isinstance(item, Layer) or not is_held(item.kind) or not any(read.values()):
            items.append(item)
            continue
        own, scalars, mistakes = _parts(item, read)
        if item.kind.startswith("BatchNorm") and not (spec.over and spec.over.of_channel):
            problem = f"{item.attribute!r}, a {item.kind}, has statistics of a batch"
            remedy = "set  over: [0, 2, ...] , or leave its parts out, so that PyTorch runs it"
            mistakes.append(NotHeld(next(filter(None, read.values())), problem=problem, remedy=remedy))
        names = [part.attribute for part in own] + [scalar.name for scalar in scalars]
        holder = f"a part of {item.attribute}"
        others = {each.symbol for each in spec.init} & used.keys()
        errors += [NameTaken(used[name], name=name, holder=holder) for name in names if name in others]
        items += [replace(item, runs=False), *own]
        params += scalars
        errors += mistakes
    changed = _with_terms(spec, _renamed)
    return replace(changed, layers=tuple(items), params=(*spec.params, *params)), errors


def _parts(
    layer: Layer, read: dict[str, Span | None]
) -> tuple[list[StateTensor], list[Param], list[FusegenError]]:
    """Return the tensors and the scalars that formulas read of a layer, and mistakes in that."""
    shapes, number, errors = tensors(layer), eps(layer), list[FusegenError]()
    found, scalars = list[StateTensor](), list[Param]()
    for part, span in read.items():
        path, name = f"{layer.attribute}.{part}", read_as(layer.attribute, part)
        if part == SCALAR and span and number is not None:
            scalars.append(Param(name, number, layer.span, path=path))
        elif span and part in shapes:
            found.append(
                StateTensor(
                    name, Kind.PARAMETER, path, "", shapes[part], is_read=True, span=layer.span, path=path
                )
            )
        elif span:
            problem = f"{layer.attribute!r}, a {layer.kind}, has no {part} with these arguments"
            errors.append(NotHeld(span, problem=problem, remedy="leave it out, or give the layer one"))
        elif part in shapes:
            problem = f"formulas read {layer.attribute!r} without its {part}"
            remedy = f"read  {path}  too: a layer whose parts are read does not run"
            errors.append(NotHeld(layer.span, problem=problem, remedy=remedy))
    return found, scalars, errors


def _renamed(term: Term) -> Term:
    """Return a term that reads parts of layers by the names that kernels have for them."""
    match term:
        case Name(name, span) if "." in name:
            return Name(read_as(*name.split(".")), span)
    return rebuild(term, _renamed)


def _with_terms(spec: Spec, change: Callable[[Term], Term]) -> Spec:
    """Return a spec whose terms are changed."""
    where = tuple(replace(line, term=change(line.term)) for line in spec.where)
    steps = []
    for step in spec.chain:
        call = change(step.call) if step.call else None
        assert call is None or isinstance(call, SpecCall)
        steps.append(replace(step, term=step.term and change(step.term), call=call))
    return replace(spec, where=where, formula=spec.formula and change(spec.formula), chain=tuple(steps))
