"""Kernels among the layers of a spec, which run in front of its own, where they stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fusegen.core.folds import FINDS
from fusegen.core.kernel_order import shared, title
from fusegen.core.poolings import window_names
from fusegen.core.spec import NUMERICS, REDUCTIONS, Spec
from fusegen.core.term import SpecCall, walk
from fusegen.errors import FusegenError, NameTaken, NotWithFronts, PlaceInFront, Span, TooMany
from fusegen.language.parse import document as yaml
from fusegen.language.parse.checks import read_names, terms_of
from fusegen.language.parse.names import check_attribute, check_module
from fusegen.language.schema import KERNEL_KEYS

MAX_FRONTS = 15  # each is compiled by itself


@dataclass(frozen=True, slots=True)
class Front:
    """A kernel among the layers, as it is written."""

    name: str
    span: Span
    before: int  # the number of layers, parameters and buffers in front of it
    fields: yaml.Mapping


def parted(node: yaml.Node) -> tuple[yaml.Node, tuple[Front, ...], list[FusegenError]]:
    """Return the field `layers` without its kernels, these, and a mistake where they are too many."""
    if not isinstance(node, yaml.Sequence):
        return node, (), []
    items, fronts = list[yaml.Node](), list[Front]()
    for item in node.items:
        match item:
            case yaml.Mapping(((name, span, yaml.Mapping(entries) as fields),)) if any(
                key in KERNEL_KEYS for key, _, _ in entries
            ):
                fronts.append(Front(name, span, len(items), fields))
            case _:
                items.append(item)
    mistakes = list[FusegenError]()
    if len(fronts) > MAX_FRONTS:
        own = {"what": "the spec", "limit": MAX_FRONTS, "parts": "kernels among the layers"}
        mistakes = [TooMany(fronts[MAX_FRONTS].span, **own, remedy="split it into several specs")]
    return replace(node, items=tuple(items)), tuple(fronts[:MAX_FRONTS]), mistakes


def named(front: Front, spec: str) -> str:
    """Return the name of the kernel of a front in a spec: that of its function.

    Raises:
        BadName, NameTaken: it is none.
    """
    check_attribute(front.name, front.span)
    check_module(f"{spec}_{front.name}", front.span)
    return f"{spec}_{front.name}"


def kernels_of(spec: Spec, fronts: Sequence[tuple[Front, Spec]]) -> tuple[Spec, ...]:
    """Return the kernels of a spec in the order in which they run, its own last, each with what is its own.

    Args:
        spec: its own.
        fronts: those in front, with all that the spec declares.
    """
    if not fronts:
        return (spec,)
    kernels = [*((kernel, front.before) for front, kernel in fronts), (spec, len(spec.layers))]
    reads = [{*read_names(kernel)} for kernel, _ in kernels]
    every = [(kernel, before, read) for (kernel, before), read in zip(kernels, reads, strict=True)]
    return tuple(
        kernel if kernel.name == spec.name else _own(kernel) for kernel in shared(every, spec.layers)
    )


def _own(front: Spec) -> Spec:
    """Return a kernel in front without what the last one has alone."""
    read = {*read_names(front), *window_names(front), *([front.over.groups] if front.over else [])}
    init = tuple(each for each in front.init if each.symbol == each.name or each.symbol in read)
    alone = replace(
        front, reference="", numerics=NUMERICS[0], reduction=REDUCTIONS[0], divisor="", results=()
    )
    inputs = (replace(front.inputs[0], split=None),)
    return replace(alone, inputs=inputs, params=(), init=init, assume=(), accept=(), leads=True)


def fronts_are_plain(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of a spec with kernels in front of its own: what goes with one kernel alone."""
    if spec.front is None or spec.leads:
        return
    taken = {
        "numerics: eager": spec.numerics == "eager",
        "a reference": bool(spec.reference),
        "split": any(each.split is not None for each in spec.inputs),
        "an interval of the first input": any(name == spec.inputs[0].name for name, _ in spec.assume),
    }
    for what in (what for what, is_there in taken.items() if is_there):
        yield NotWithFronts(spec.span, what=what, name=title(spec.front, spec))
    for front in spec.kernels[:-1]:
        calls = [part for term in terms_of(front) for part in walk(term)]
        calls += [step.call for step in front.chain if step.call]
        if any(isinstance(each, SpecCall) and each.spec in FINDS for each in calls):
            yield PlaceInFront(front.span, name=title(front, spec))


def names_are_apart(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of names that the text of several kernels gives to two things.

    Forward has the inputs, the biases of convolutions and what dropouts draw as variables beside the
    functions of the kernels, and a kernel in front has functions of its own name.
    """
    if spec.front is None or spec.leads:
        return
    *fronts, _ = spec.kernels
    functions = dict.fromkeys((each.name for each in spec.kernels), "the function of a kernel")
    biases = {each.bias.name: each.bias.span for each in spec.kernels if each.bias}
    drawn = {each.name for front in fronts for of in front.dropouts for each in (of.kept, of.scale)}
    holders = dict.fromkeys(drawn, "what a dropout draws") | dict.fromkeys(biases, "the bias of a layer")
    holders |= functions
    for each in spec.arguments:
        if each.name in holders and each != spec.inputs[0]:
            yield NameTaken(each.span, name=each.name, holder=holders[each.name])
    yield from (NameTaken(biases[n], name=n, holder=functions[n]) for n in biases if n in functions)
    for front in fronts:
        own = {f"{title(front, spec)}_{name}" for name in ("eager", "eager_gradient")}
        for name in sorted(own & {*functions}):
            yield NameTaken(front.span, name=name, holder=functions[name])
