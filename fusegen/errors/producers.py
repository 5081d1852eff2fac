"""A layer, a parameter or a buffer of the module, or an argument of its constructor, that does not fit."""

from fusegen.errors.base import Sentence

WrongArgument = Sentence("{argument} of {layer} is {expected}, not {value}", "for example  {example}")
NotAnInitialiser = Sentence("this is no initialiser of a {kind}: {problem}", "{remedy}")
NotAShape = Sentence(
    "a shape is a tuple of whole numbers, zero or more, not {value}",
    "write  zeros(64, 1, 1),  or  zeros(shape)  where `init` has  shape: [64, 1, 1]",
)
WholeNumbers = Sentence(
    "{written} makes a tensor of whole numbers, and formulas are of real ones",
    "write {value}.0 in place of {value}",
)
StateOfLayer = Sentence(
    "{name!r} is a {kind}, which cannot be an argument of {of}",
    "arguments are numbers, True, False, None, words in quotes, tuples, or names from `init`",
)
UnreadState = Sentence(
    "no formula reads the {kind} {name!r}",
    "read it, or keep it unread as  - {name}: {{unread: '{kind}({initialiser})'}}",
)
ReadUnread = Sentence(
    "a formula reads the {kind} {name!r}, which is declared as unread",
    "write  - {name}: '{kind}({initialiser})'",
)
NotBroadcast = Sentence(
    "the shape {shape} of {name!r} does not broadcast with the shape {other_shape} of {other}",
    "sizes are compared from the last one on, and are equal or 1; see `init` and `inputs`",
)
NotANumber = Sentence(
    "{name!r} is an argument of the constructor, but no number: it is {value}",
    "formulas read numbers of `init`; a tensor is a Parameter or a Buffer under `layers`",
)
SplitWithState = Sentence(
    "an input that may be left out comes last, and the {kind} {name!r} would come after it",
    "leave `split` out",
)
