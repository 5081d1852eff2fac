"""A formula that means nothing, or nothing that can be computed."""

from fusegen.errors.base import FusegenError, Sentence


class NotAFormula(FusegenError):
    sentence = "this is not a formula: {problem}"
    hint = "{remedy}"


class NumberOutOfRange(FusegenError):
    sentence = "{what} does not fit in float64"
    hint = "it holds sizes from 5e-324 to 1.79e308"


class Undefined(FusegenError):
    sentence = "{what} has no real value"
    hint = "{remedy}"


UnknownName = Sentence("{name!r} is neither an input, a parameter, a named step nor a constant", "{near}")
NotAnInput = Sentence("{name!r} is not an input", "{near}")
NotAView = Sentence("{problem}", "{remedy}")
NotInInit = Sentence("{name!r} is not an argument of the constructor", "{near}")
UnknownFunction = Sentence("unknown function {name!r}{lack}", "{near}")
WrongArity = Sentence("{name} takes {expected}, but {found} given", "it is {signature}")
UnknownArgument = Sentence("{name} has no argument {argument!r}", "it is {signature}")
UnknownForm = Sentence("{argument} of {name} is {known}", "for example  {name}(x, {argument}={example})")
RepeatedArgument = Sentence("{name} is given the argument {argument!r} twice", "it is {signature}")
MissingArgument = Sentence("{name} is not given its argument {argument!r}", "it is {signature}")
NotReal = Sentence("{what} stands where {expected} is expected", "{remedy}")
BeyondFloat32 = Sentence(
    "{what} does not fit in float32, in which kernels of {dtypes} compute",
    "it holds sizes from 1.4e-45 to 3.4e38; rescale the formula, or write  dtypes: [float64]",
)
InfinityInArithmetic = Sentence(
    "{what} stands in arithmetic, which formulas do with numbers only",
    "compare with it or select it, as in  where(x > 0, x, -inf)  or  clamp(x, 0, inf)",
)
Unused = Sentence("{what} {name!r} is declared but never used", "use it or remove it")
ConstantFormula = Sentence(
    "the formula does not use {name!r}, the input of a spec that declares none",
    "use {name}, or name the tensors under `inputs`",
)
