"""The arguments of a call of a spec, by the names of its inputs and parameters."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from fusegen.errors import (
    RepeatedArgument,
    UnknownArgument,
    WrongArity,
    counted,
)
from fusegen.signatures import argument_named
from fusegen.spec import Spec
from fusegen.term import (
    Number,
    SpecCall,
    Term,
)


def bound_arguments(spec: Spec, call: SpecCall) -> dict[str, Term]:
    """The value of every input and parameter of `spec` in a call of it."""
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


def check_argument(
    call: SpecCall, name: str, known: Collection[str], given: Collection[str], signature: str
) -> None:
    """Refuse a keyword argument that is unknown or already given."""
    if name in given:
        raise RepeatedArgument(call.span, name=call.spec, argument=name, signature=signature)
    if name not in known:
        raise UnknownArgument(call.span, name=call.spec, argument=name, signature=signature)


def signature_of(spec: Spec) -> str:
    """A spec as a call of it is written."""
    params = [p.name if p.position is not None else f"{p.name}={p.default:g}" for p in spec.scalars]
    return f"{spec.name}({', '.join([*(i.name for i in spec.tensors), *params])})"
