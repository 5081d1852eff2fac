"""A key of a spec, or its value, that is wrong."""

from fusegen.errors.base import Sentence

UnknownKey = Sentence("unknown key {key!r}", "{near}")
DuplicateKey = Sentence("the key {key!r} is given twice (first in line {first})", "keep one of them")
MissingField = Sentence("the field {key!r} is missing", "{remedy}")
Empty = Sentence("{key} is empty", "{remedy}")
WrongType = Sentence("{key} should be {expected}", "for example  {example}")
NotScalar = Sentence(
    "{key} should be a number, and is {found}",
    "a scalar is  params: {{{key}: 1.0}};  a tensor is an argument under `inputs`, or held by the "
    "module under `layers`, as  - {key}: 'Parameter(ones(64))'",
)
WrongValue = Sentence("{value!r} is not a valid {key}", "{remedy}")
BadName = Sentence(
    "{name!r} cannot be a name: {why}",
    "a name is a lower-case letter, then at most 63 lower-case letters, digits or underscores",
)
NameTaken = Sentence("{name!r} is already {holder}", "choose another name")
NameIsNotStem = Sentence(
    "the spec is called {name!r} but its file is {file!r}",
    "name the file {name}.yaml, or the spec {stem!r}",
)
TwoOfOneName = Sentence(
    "{name!r} is the name of {first}, too, so that both would write {module}",
    "give each spec a name of its own, or build them one at a time with another --output",
)
MisplacedSplit = Sentence(
    "split is for the second of exactly two inputs, and {name!r} is input {position} of {number}",
    "it halves the first input where the second is not given, as torch.nn.functional.glu does",
)
MisplacedMask = Sentence("{problem}", "{remedy}")
MisplacedIndex = Sentence("{problem}", "{remedy}")
UnsafeText = Sentence(
    "{key} holds {what}, which could end or disguise a comment in the generated code",
    "keep to one line of plain text",
)
FormulaOrChain = Sentence("a spec has exactly one of formula and chain; this one has {found}", "{remedy}")
ReservedPrimitive = Sentence(
    "{name!r} is a built-in function; a spec of that name is it, or adds parameters to it",
    "write  formula: {call}  or choose another name",
)
