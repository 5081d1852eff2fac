"""A formula that means nothing, or nothing that can be computed."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class NotAFormula(FusegenError):
    sentence = "this is not a formula: {problem}"
    hint = "{remedy}"


class UnknownName(FusegenError):
    sentence = "{name!r} is neither an input, a parameter, a named step nor a constant"
    hint = "{near}"


class NotAnInput(FusegenError):
    sentence = "{name!r} is not an input"
    hint = "{near}"


class NotAView(FusegenError):
    sentence = "{problem}"
    hint = "{remedy}"


class NotInInit(FusegenError):
    sentence = "{name!r} is not an argument of the constructor"
    hint = "{near}"


class UnknownFunction(FusegenError):
    sentence = "unknown function {name!r}{lack}"
    hint = "{near}"


class WrongArity(FusegenError):
    sentence = "{name} takes {expected}, but {found} given"
    hint = "it is {signature}"


class UnknownArgument(FusegenError):
    sentence = "{name} has no argument {argument!r}"
    hint = "it is {signature}"


class UnknownForm(FusegenError):
    sentence = "{argument} of {name} is {known}"
    hint = "for example  {name}(x, {argument}={example})"


class RepeatedArgument(FusegenError):
    sentence = "{name} is given the argument {argument!r} twice"
    hint = "it is {signature}"


class MissingArgument(FusegenError):
    sentence = "{name} is not given its argument {argument!r}"
    hint = "it is {signature}"


class NotReal(FusegenError):
    sentence = "{what} stands where {expected} is expected"
    hint = "{remedy}"


class NumberOutOfRange(FusegenError):
    sentence = "{what} does not fit in float64"
    hint = "it holds sizes from 5e-324 to 1.79e308"


class BeyondFloat32(FusegenError):
    sentence = "{what} does not fit in float32, in which kernels of {dtypes} compute"
    hint = "it holds sizes from 1.4e-45 to 3.4e38; rescale the formula, or write  dtypes: [float64]"


class InfinityInArithmetic(FusegenError):
    sentence = "{what} stands in arithmetic, which formulas do with numbers only"
    hint = "compare with it or select it, as in  where(x > 0, x, -inf)  or  clamp(x, 0, inf)"


class Undefined(FusegenError):
    sentence = "{what} has no real value"
    hint = "{remedy}"


class Unused(FusegenError):
    sentence = "{what} {name!r} is declared but never used"
    hint = "use it or remove it"


class ConstantFormula(FusegenError):
    sentence = "the formula does not use {name!r}, the input of a spec that declares none"
    hint = "use {name}, or name the tensors under `inputs`"
