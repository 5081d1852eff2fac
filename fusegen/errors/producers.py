"""A layer, a parameter or a buffer of the module, or an argument of its constructor, that does not fit."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class WrongArgument(FusegenError):
    sentence = "{argument} of {layer} is {expected}, not {value}"
    hint = "for example  {example}"


class NotAnInitialiser(FusegenError):
    sentence = "this is no initialiser of a {kind}: {problem}"
    hint = "{remedy}"


class NotAShape(FusegenError):
    sentence = "a shape is a tuple of whole numbers, zero or more, not {value}"
    hint = "write  zeros(64, 1, 1),  or  zeros(shape)  where `init` has  shape: [64, 1, 1]"


class WholeNumbers(FusegenError):
    sentence = "{written} makes a tensor of whole numbers, and formulas are of real ones"
    hint = "write {value}.0 in place of {value}"


class StateOfLayer(FusegenError):
    sentence = "{name!r} is a {kind}, which cannot be an argument of {of}"
    hint = "arguments are numbers, True, False, None, words in quotes, tuples, or names from `init`"


class UnreadState(FusegenError):
    sentence = "no formula reads the {kind} {name!r}"
    hint = "read it, or keep it unread as  - {name}: {{unread: '{kind}({initialiser})'}}"


class ReadUnread(FusegenError):
    sentence = "a formula reads the {kind} {name!r}, which is declared as unread"
    hint = "write  - {name}: '{kind}({initialiser})'"


class NotBroadcast(FusegenError):
    sentence = "the shape {shape} of {name!r} does not broadcast with the shape {other_shape} of {other}"
    hint = "sizes are compared from the last one on, and are equal or 1; see `init` and `inputs`"


class NotANumber(FusegenError):
    sentence = "{name!r} is an argument of the constructor, but no number: it is {value}"
    hint = "formulas read numbers of `init`; a tensor is a Parameter or a Buffer under `layers`"


class SplitWithState(FusegenError):
    sentence = "an input that may be left out comes last, and the {kind} {name!r} would come after it"
    hint = "leave `split` out"
