"""Laws of a spec's constructor, parameters and buffers, checked after parsing."""

from collections.abc import Callable, Iterator

from fusegen.core.constructor import Argument, Sizes, StateTensor, literal
from fusegen.core.layer_arguments import is_real
from fusegen.core.poolings import of_tensors, window_names
from fusegen.core.spec import MAX_ARGUMENTS, MAX_INPUTS, Param, Spec
from fusegen.core.tensor_shapes import broadcast, first_shape
from fusegen.core.term import Name, SpecCall, Term, walk
from fusegen.errors import (
    FusegenError,
    NameTaken,
    NotANumber,
    NotBroadcast,
    NumberOutOfRange,
    ReadUnread,
    Span,
    SplitWithState,
    TooLarge,
    UnreadState,
)
from fusegen.language.parse.names import check_attribute, check_variable


def read_names(spec: Spec) -> dict[str, Span]:
    """Return the names that formulas read, each with the first place where it stands."""
    return _named(terms_of(spec), spec)


def _named(terms: list[Term], spec: Spec) -> dict[str, Span]:
    found: dict[str, Span] = {}
    for term in terms:
        for part in walk(term):
            if isinstance(part, Name):
                found.setdefault(part.name, part.span)
    for each in spec.dropouts:
        found.setdefault(each.rate, each.span)
    return found


def terms_of(spec: Spec, change: Callable[[Term], Term] = lambda term: term) -> list[Term]:
    """Return the terms that a spec is written in, each changed by a function."""
    terms = [line.term for line in spec.where]
    terms += [spec.formula] if spec.formula else []
    terms += [step.term for step in spec.chain if step.term]
    calls = [change(step.call) for step in spec.chain if step.call]
    values = (value for call in calls if isinstance(call, SpecCall) for _, value in call.keywords)
    return [*map(change, terms), *values]


def scalars_of(spec: Spec) -> tuple[Param, ...]:
    """The scalars of the function: numbers of forward, those of `init` that are read, then `params`."""
    read = (argument for argument, _ in _read(spec))
    numbers = (each for each in read if is_real(each.default) and _fits(each))
    own = (Param(each.symbol, _number(each), each.span) for each in numbers)
    keywords = (param for param in spec.params if param.position is None)
    return (*spec.numbers, *own, *keywords, *(each.scale for each in spec.dropouts))


def _read(spec: Spec) -> Iterator[tuple[Argument, Span]]:
    """Yield the arguments of the constructor that formulas read, and where."""
    used = _named(terms_of(spec, of_tensors), spec)
    held = {item.attribute for item in spec.layers if isinstance(item, StateTensor)}
    others = {*held, *(i.name for i in spec.inputs), *(p.name for p in spec.params)}
    others |= {line.name for line in spec.where} | {step.label.name for step in spec.chain if step.label}
    for argument in spec.init:
        if argument.symbol in used and argument.symbol not in others:
            yield argument, used[argument.symbol]


def _number(argument: Argument) -> float:
    assert isinstance(argument.default, int | float)
    return float(argument.default)


def _fits(argument: Argument) -> bool:
    try:
        _number(argument)
    except OverflowError:
        return False
    return True


def scalars_are_numbers(spec: Spec) -> Iterator[FusegenError]:
    """One mistake for each argument that a formula or a call reads and that the function cannot have."""
    layers = {item.attribute for item in spec.layers}
    for argument, place in _read(spec):
        if not is_real(argument.default):
            yield NotANumber(place, name=argument.symbol, value=literal(argument.default))
        elif not _fits(argument):
            yield NumberOutOfRange(argument.span, what=f"the number {argument.text}")
        else:
            yield from _name_is_free(argument, layers)
    yield from _counts_have_names(spec, layers)


def _counts_have_names(spec: Spec, layers: set[str]) -> Iterator[FusegenError]:
    """Yield mistakes of the names of numbers of windows and of groups, which calls take behind scalars."""
    numbers, groups = window_names(spec), spec.over.groups if spec.over else ""
    holders = {spec.name: "the spec's own name", "input": "the tensor, as PyTorch's functions name it"}
    holders |= {each.symbol: "a scalar of the formula" for each, _ in _read(spec) if each.symbol in numbers}
    for argument in (each for each in spec.init if each.symbol in (groups, *numbers)):
        if argument.symbol in holders:
            yield NameTaken(argument.span, name=argument.symbol, holder=holders[argument.symbol])
        else:
            yield from _name_is_free(argument, layers)


def _name_is_free(argument: Argument, layers: set[str]) -> Iterator[FusegenError]:
    """Yield a mistake of an argument of the function that the module or its class has another use for."""
    if argument.symbol in layers:
        yield NameTaken(argument.span, name=argument.symbol, holder="a layer")
        return
    try:
        check_variable(argument.symbol, argument.span)
        check_attribute(argument.symbol, argument.span)
    except FusegenError as error:
        yield error


def state_is_read(spec: Spec) -> Iterator[FusegenError]:
    """Yield one mistake for each parameter or buffer that is not read as it is declared."""
    used = read_names(spec)
    for item in _state(spec):
        fields = {"name": item.attribute, "kind": item.kind.value, "initialiser": item.initialiser}
        if item.is_read and item.attribute not in used:
            yield UnreadState(item.span, **fields)
        if not item.is_read and item.attribute in used:
            yield ReadUnread(used[item.attribute], **fields)


def state_fits_inputs(spec: Spec) -> Iterator[FusegenError]:
    """Mistakes of more tensors than a function takes, and of one behind an input that may be left out."""
    read = [item for item in _state(spec) if item.is_read]
    if read and spec.inputs[-1].split is not None:
        yield SplitWithState(read[0].span, name=read[0].attribute, kind=read[0].kind.value)
    if len(spec.tensors) > MAX_INPUTS and read:
        size, what = f"{len(spec.tensors)} tensors", "the list of inputs, parameters and buffers"
        remedy = "compute it in several specs"
        yield TooLarge(read[-1].span, what=what, size=size, limit=MAX_INPUTS, remedy=remedy)


def operators_have_room(spec: Spec) -> Iterator[FusegenError]:
    """A mistake of more arguments than an operator of PyTorch has: the gradient's, that writes them all."""
    tensors, written = len(spec.tensors), len(spec.tensors) - len(spec.masks)
    count = 1 + tensors + len(spec.scalars) + written
    if count > MAX_ARGUMENTS and tensors <= MAX_INPUTS:
        what, size = "the operator of the gradient", f"{count} arguments, which are tensors and scalars"
        remedy = f"compute it in several specs: this one has {tensors} tensors, each with a gradient"
        yield TooLarge(spec.inputs[-1].span, what=what, size=size, limit=MAX_ARGUMENTS, remedy=remedy)


def shapes_broadcast(spec: Spec) -> Iterator[FusegenError]:
    """Yield one mistake for each parameter or buffer whose shape does not fit the tensors before it."""
    before = list(_shapes(spec))
    used = read_names(spec)
    for item in (item for item in _state(spec) if item.is_read and item.attribute in used):
        own = item.aligned(len(first_shape(spec) or spec.inputs[0].shape))
        unlike = [(what, shape) for what, shape in before if not broadcast(own, shape)]
        if unlike:
            other, shape = unlike[0]
            yield NotBroadcast(item.span, shape=own, name=item.attribute, other_shape=shape, other=other)
        before.append((repr(item.attribute), own))


def _shapes(spec: Spec) -> Iterator[tuple[str, Sizes]]:
    """Yield the shapes of the tensors that formulas read as inputs, as far as they are known."""
    first, *others = spec.inputs
    shape = first_shape(spec)
    if shape is not None:
        layer = spec.producer
        yield f"the output of {layer.attribute!r}" if layer else repr(first.name), shape
    yield from ((repr(each.name), each.shape) for each in others)


def _state(spec: Spec) -> Iterator[StateTensor]:
    return (item for item in spec.layers if isinstance(item, StateTensor))


LAWS = (scalars_are_numbers, state_is_read, state_fits_inputs, operators_have_room, shapes_broadcast)
