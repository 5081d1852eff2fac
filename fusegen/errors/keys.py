"""A key of a spec, or its value, that is wrong."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class UnknownKey(FusegenError):
    sentence = "unknown key {key!r}"
    hint = "{near}"


class DuplicateKey(FusegenError):
    sentence = "the key {key!r} is given twice (first in line {first})"
    hint = "keep one of them"


class MissingField(FusegenError):
    sentence = "the field {key!r} is missing"
    hint = "{remedy}"


class Empty(FusegenError):
    sentence = "{key} is empty"
    hint = "{remedy}"


class WrongType(FusegenError):
    sentence = "{key} should be {expected}"
    hint = "for example  {example}"


class NotScalar(FusegenError):
    sentence = "{key} should be a number, and is {found}"
    hint = (
        "a scalar is  params: {{{key}: 1.0}};  a tensor is an argument under `inputs`, or held by the "
        "module under `layers`, as  - {key}: 'Parameter(ones(64))'"
    )


class WrongValue(FusegenError):
    sentence = "{value!r} is not a valid {key}"
    hint = "{remedy}"


class BadName(FusegenError):
    sentence = "{name!r} cannot be a name: {why}"
    hint = "a name is a lower-case letter, then at most 63 lower-case letters, digits or underscores"


class NameTaken(FusegenError):
    sentence = "{name!r} is already {holder}"
    hint = "choose another name"


class NameIsNotStem(FusegenError):
    sentence = "the spec is called {name!r} but its file is {file!r}"
    hint = "name the file {name}.yaml, or the spec {stem!r}"


class TwoOfOneName(FusegenError):
    sentence = "{name!r} is the name of {first}, too, so that both would write {module}"
    hint = "give each spec a name of its own, or build them one at a time with another --output"


class MisplacedSplit(FusegenError):
    sentence = "split is for the second of exactly two inputs, and {name!r} is input {position} of {number}"
    hint = "it halves the first input where the second is not given, as torch.nn.functional.glu does"


class MisplacedMask(FusegenError):
    sentence = "{problem}"
    hint = "{remedy}"


class UnsafeText(FusegenError):
    sentence = "{key} holds {what}, which could end or disguise a comment in the generated code"
    hint = "keep to one line of plain text"


class FormulaOrChain(FusegenError):
    sentence = "a spec has exactly one of formula and chain; this one has {found}"
    hint = "{remedy}"


class ReservedPrimitive(FusegenError):
    sentence = "{name!r} is a built-in function; a spec of that name is it, or adds parameters to it"
    hint = "write  formula: {call}  or choose another name"
