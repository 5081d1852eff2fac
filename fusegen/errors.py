"""Spans, and every sentence fusegen says when a user's input is wrong.

An error class is one sentence and one hint, written once, with holes for the particulars. It is raised
with the `Span` it speaks of and prints as

    specs/gate.yaml:4:14: unknown name 'bb'
        formula: x + bb
                     ^
      hint: ...
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

CONTEXT_COLUMNS, COLUMNS_BEHIND = 96, 24  # of a long line: how much is shown, how much after the caret
MAX_PARTICULAR, MAX_TOLD = 400, 20


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text a user wrote: a file, a line and a column (both from 1), and that line."""

    file: str
    line: int = 0
    column: int = 0
    text: str = ""

    def after(self, characters: int) -> Span:
        """The place so many characters further along the same line."""
        return Span(self.file, self.line, self.column + characters, self.text)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def caret(self) -> str:
        """The line and a caret below the column; nothing when the place is a whole file."""
        if not self.text.strip():
            return ""
        left = max(0, self.column - (CONTEXT_COLUMNS - COLUMNS_BEHIND))
        shown = "".join(c if c.isprintable() else " " for c in self.text[left:][:CONTEXT_COLUMNS])
        indent = len(shown) - len(shown.lstrip())
        return f"    {shown.strip()}\n    {' ' * (self.column - 1 - left - indent)}^\n"


class FusegenError(Exception):
    """A mistake a user can make. A subclass states its sentence and its hint once."""

    sentence = "{detail}"
    hint = ""

    def __init__(self, span: Span, /, **particulars: object) -> None:
        """Place the sentence at `span` and fill its holes."""
        particulars = {name: _short(value) for name, value in particulars.items()}
        self.span = span
        self.message = self.sentence.format(**particulars)
        hint = self.hint.format(**particulars)
        tail = f"  hint: {hint}\n" if hint else ""
        super().__init__(f"{span}: {self.message}\n{span.caret()}{tail}".rstrip("\n"))


class SpecErrors(Exception):
    """Several mistakes in one spec, told at once, in the order of their places."""

    def __init__(self, errors: Iterable[FusegenError]) -> None:
        """Hold `errors` sorted by line and column."""
        self.errors = tuple(sorted(errors, key=lambda e: (e.span.file, e.span.line, e.span.column)))
        told = [str(error) for error in self.errors[:MAX_TOLD]]
        more = len(self.errors) - len(told)
        super().__init__("\n".join([*told, f"and {counted(more, 'more mistake')}"] if more else told))


def _short(value: object) -> object:
    """A particular as a sentence shows it: a very long text by its start."""
    long = isinstance(value, str) and len(value) > MAX_PARTICULAR
    return f"{str(value)[:60]}..." if long else value


def counted(number: int, noun: str) -> str:
    """A number of things in words: ``no tensor``, ``1 tensor``, ``2 tensors``."""
    return f"{number or 'no'} {noun}{'s' if number > 1 else ''}"


def meant(name: str, known: Iterable[str]) -> str:
    """The known word nearest to `name`, or nothing where none is near."""
    return next(iter(difflib.get_close_matches(name[:80], sorted(known), n=1, cutoff=0.6)), "")


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint that names the known word nearest to `name`, or `otherwise`."""
    close = meant(name, known)
    return f"did you mean '{close}'?" if close else otherwise


# --- the file ---------------------------------------------------------------------------------------


class Unreadable(FusegenError):
    sentence = "{why}"
    hint = "{remedy}"


class NoAccess(FusegenError):
    sentence = "this cannot be {act}: {why}"
    hint = "{remedy}"


class BadManifest(FusegenError):
    sentence = "this is not a manifest of fusegen: {why}"
    hint = "choose another --output; or delete the file, and 'python -m fusegen build' writes it anew"


class NotGenerated(FusegenError):
    sentence = "fusegen did not write this file, and the module of a spec would replace it"
    hint = "move it, give the spec another name, or choose another --output"


class OtherBinding(FusegenError):
    sentence = (
        "the folder has modules of the binding {binding!r}, such as {name}, that this would not remake"
    )
    hint = "name no spec, so that all are made with --binding {other}; or choose another --output"


class NoSuchSpec(FusegenError):
    sentence = "there is no spec {name!r}"
    hint = "{near}"


class TooLarge(FusegenError):
    sentence = "{what} is too large: {size}, where at most {limit} are allowed"
    hint = "{remedy}"


class TooMany(FusegenError):
    sentence = "{what} has more than {limit} {parts}"
    hint = "{remedy}"


class NotYaml(FusegenError):
    sentence = "this is not valid YAML: {problem}"
    hint = "{remedy}"


class YamlFeature(FusegenError):
    sentence = "{feature} are not allowed in a spec"
    hint = "{remedy}"


# --- the fields -------------------------------------------------------------------------------------


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


class UnsafeText(FusegenError):
    sentence = "{key} holds {what}, which could end or disguise a comment in the generated code"
    hint = "keep to one line of plain text"


class FormulaOrChain(FusegenError):
    sentence = "a spec has exactly one of formula and chain; this one has {found}"
    hint = "{remedy}"


class ReservedPrimitive(FusegenError):
    sentence = "{name!r} is a built-in function; a spec of that name is it, or adds parameters to it"
    hint = "write  formula: {call}  or choose another name"


# --- the formula ------------------------------------------------------------------------------------


class NotAFormula(FusegenError):
    sentence = "this is not a formula: {problem}"
    hint = "{remedy}"


class UnknownName(FusegenError):
    sentence = "{name!r} is neither an input, a parameter, a named step nor a constant"
    hint = "{near}"


class NotAnInput(FusegenError):
    sentence = "{name!r} is not an input"
    hint = "{near}"


class NotInInit(FusegenError):
    sentence = "{name!r} is not an argument of the constructor"
    hint = "{near}"


class UnknownFunction(FusegenError):
    sentence = "{name!r} is neither a function nor a spec"
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


class Undefined(FusegenError):
    sentence = "{what} has no real value"
    hint = "{remedy}"


class Unused(FusegenError):
    sentence = "{what} {name!r} is declared but never used"
    hint = "use it or remove it"


class ConstantFormula(FusegenError):
    sentence = "the formula does not use {name!r}, the input of a spec that declares none"
    hint = "use {name}, or name the tensors under `inputs`"


# --- composing --------------------------------------------------------------------------------------


class ChainCycle(FusegenError):
    sentence = "the spec refers to itself: {cycle}"
    hint = "write the step out as an expression in {running}"


class StepIgnoresValue(FusegenError):
    sentence = "this step does not use the running value {running!r}"
    hint = "name a spec, call one with its parameters, or write an expression in {running}"


class StepHasInputs(FusegenError):
    sentence = "{name!r} takes {takes}, so the running value alone does not make it a step"
    hint = "write the step as a call: {signature}"


class StepHasLayers(FusegenError):
    sentence = "{name!r} has layers of its own, so it cannot be used inside another spec"
    hint = "use its chain of steps instead"


class ReferenceTensors(FusegenError):
    sentence = "{reference} takes {takes}, and this spec has {found}"
    hint = "name a function of the spec's tensors, or leave the reference out"


class NotAReference(FusegenError):
    sentence = "{reference} cannot be a reference: {why}"
    hint = "name a function of torch or torch.nn.functional, or a module of torch.nn, of the spec's tensors"


# --- certifying -------------------------------------------------------------------------------------


class NotBuilt(FusegenError):
    sentence = "the module of {name} is not what its spec says"
    hint = "run 'python -m fusegen build {name}' first"


class NoSuchCallable(FusegenError):
    sentence = "{name} leads to nothing that can be called: {why}"
    hint = "give a dotted name below a module that can be imported here, such as torch.nn.functional.gelu"


class NoDevice(FusegenError):
    sentence = "there is no CUDA GPU here"
    hint = "use --device cpu"


class Misbehaves(FusegenError):
    sentence = "{name} is not a function of tensors that can be certified: {why}"
    hint = "it has to return a new tensor of its input's shape, dtype and device, the same each time"


class OtherFunction(FusegenError):
    sentence = (
        "{reference} is not this formula: they differ at {count} {dtype} inputs; the first is {first}, "
        "where the formula gives {real} and {reference} {got}; the worst is {worst}, with {worst_real} and "
        "{worst_got}"
    )
    hint = "name the function that the formula is, or leave the reference out"


# --- measuring --------------------------------------------------------------------------------------


class DoesNotFit(FusegenError):
    sentence = "{case} needs about {needed} GiB, and {free} GiB are free"
    hint = "{fits} elements fit"


class NothingToMeasure(FusegenError):
    sentence = "none of {names} is made for {dtypes}"
    hint = "leave --dtype out, or add it to the spec's dtypes"


class NothingToTune(FusegenError):
    sentence = "there is no CUDA GPU here"
    hint = "run it on the GPU that the kernels are for"


class Unequal(FusegenError):
    sentence = "launched as {launch} it gives other bits than as {other}"
    hint = "this is an error in fusegen; please report it with the GPU's name"


class BadLaunches(FusegenError):
    sentence = "this is no table of launches: {why}"
    hint = "leave it to 'fusegen tune', or see fusegen/launch.toml"


class NoPicture(FusegenError):
    sentence = "there is no picture of this: {why}"
    hint = "name a spec with float32 and a file.svg or file.png"


class NoSuchCompetitor(FusegenError):
    sentence = "this is no module that can compete: {why}"
    hint = "give FILE.py:CLASS, a torch.nn.Module that is made as ModelNew is"


class NoMeasurements(FusegenError):
    sentence = "these are no measurements that can be compared: {why}"
    hint = "give a file that this version's 'fusegen bench --json FILE' has written"


class BadShape(FusegenError):
    sentence = "{shape!r} is no shape"
    hint = "write sizes with an x between them, such as 4096x4096"
