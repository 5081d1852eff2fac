"""The arguments of a call of a spec, by the names of its inputs and parameters."""

from collections.abc import Collection, Mapping
from fractions import Fraction

from fusegen.core.ops import OPS
from fusegen.core.signatures import argument_named
from fusegen.core.spec import Spec
from fusegen.core.term import Apply, Number, SpecCall, Term
from fusegen.errors import NotReal, RepeatedArgument, UnknownArgument, WrongArity, counted


def bound_arguments(spec: Spec, call: SpecCall) -> dict[str, Term]:
    """Return the value of every input and parameter of `spec` in a call of it."""
    arguments = [*(i.name for i in spec.tensors), *(p.name for p in spec.scalars)]
    values: dict[str, Term] = {p.name: Number(Fraction(repr(p.default)), p.span) for p in spec.scalars}
    values |= zip(arguments, call.args, strict=False)
    given = set(arguments[: len(call.args)])
    for written, value in call.keywords:
        tensors = arguments[: len(spec.tensors)]
        name = written if written in arguments else argument_named(written, tensors)
        check_argument(call, name, arguments, given, signature_of(spec))
        values[name] = value
        given.add(name)
    required = [*(tensor.name for tensor in spec.tensors), *(number.name for number in spec.numbers)]
    missing = [name for name in required if name not in given]
    if missing or len(call.args) > len(arguments):
        total = len(call.args) + len(call.keywords)
        expected = counted(len(spec.tensors), "tensor")
        expected += f" and {counted(len(spec.scalars), 'parameter')}" if spec.scalars else ""
        found = f"{total or 'none'} {'is' if total < 2 else 'are'}"
        signature = signature_of(spec)
        raise WrongArity(call.span, name=spec.name, expected=expected, found=found, signature=signature)
    return values


def check_masks(spec: Spec, call: SpecCall, values: Mapping[str, Term]) -> None:
    """Refuse a mask in the place of a number, and a number in the place of a mask."""
    for name, value in values.items():
        if name not in spec.masks:
            check_number(call, name, value)
        elif not is_condition(value):
            remedy = "hand on an input with  dtype: bool"
            expected = f"the mask {name!r} of {spec.name!r}"
            raise NotReal(call.span, what="a number", expected=expected, remedy=remedy)


def check_number(call: SpecCall, name: str, value: Term) -> None:
    """Refuse a mask in the place of a number."""
    if is_condition(value):
        remedy = "a mask selects, as in  where(mask, a, b)"
        raise NotReal(
            call.span, what="a mask", expected=f"the number {name!r} of {call.spec!r}", remedy=remedy
        )


def is_condition(value: Term) -> bool:
    """Return True if a value is true or false: a mask, as kernels read it."""
    return isinstance(value, Apply) and OPS[value.op].boolean


def check_argument(
    call: SpecCall, name: str, known: Collection[str], given: Collection[str], signature: str
) -> None:
    """Refuse a keyword argument that is unknown or already given."""
    if name in given:
        raise RepeatedArgument(call.span, name=call.spec, argument=name, signature=signature)
    if name not in known:
        raise UnknownArgument(call.span, name=call.spec, argument=name, signature=signature)


def signature_of(spec: Spec) -> str:
    """Return a spec as a call of it is written."""
    params = [p.name if p.position is not None else f"{p.name}={p.default:g}" for p in spec.scalars]
    return f"{spec.name}({', '.join([*(i.name for i in spec.tensors), *params])})"
