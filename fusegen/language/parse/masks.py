"""Laws of masks: inputs of dtype bool, which formulas read as the condition of `where` and nowhere else."""

from collections.abc import Iterator

from fusegen.core.spec import Spec
from fusegen.core.term import Apply, Name, SpecCall, Term
from fusegen.errors import FusegenError, MisplacedMask, NotReal
from fusegen.language.parse.terms import no_condition


def _misplaced(spec: Spec) -> Iterator[FusegenError]:
    """Yield one mistake for each place among the inputs that no mask can have."""
    masks = [each for each in spec.inputs if each.is_mask and each.index is None]
    first = spec.inputs[0]
    if len(masks) == len(spec.inputs):
        problem = "every input is a mask, so that none gives the result its dtype"
        yield MisplacedMask(first.span, problem=problem, remedy="declare an input that is not a mask")
    elif first.is_mask and (spec.chain or spec.producers or spec.front):
        reader = "a chain starts from" if spec.chain else "the layers take"
        problem = f"{first.name!r} is a mask, and {reader} the first input"
        yield MisplacedMask(first.span, problem=problem, remedy="declare another input before it")
    elif masks and spec.inputs[-1].split is not None:
        problem = f"{masks[0].name!r} is a mask, which is not split in halves"
        yield MisplacedMask(masks[0].span, problem=problem, remedy="leave out the split")


def _misread(spec: Spec) -> Iterator[FusegenError]:
    """One mistake for each mask that is read as a number, and for each number that is read as a mask."""
    steps = (step.term or step.call for step in spec.chain)
    for term in (*(line.term for line in spec.where), *steps, spec.formula):
        if term is not None:
            yield from _within(term, spec.conditions)


def _within(term: Term, masks: frozenset[str]) -> Iterator[FusegenError]:
    match term:
        case Name(name, span) if name in masks:
            remedy = f"a mask selects, as in  where({name}, a, b)"
            yield NotReal(span, what=f"the mask {name!r}", expected="a number", remedy=remedy)
        case Apply("where", (Name(name, span), *others)):
            if name not in masks:
                yield no_condition(span)
            for part in others:
                yield from _within(part, masks)
        case Apply(_, args):
            for part in args:
                yield from _within(part, masks)
        case SpecCall(_, args, keywords):  # which may hand a mask on
            for part in (*args, *(value for _, value in keywords)):
                if not (isinstance(part, Name) and part.name in masks):
                    yield from _within(part, masks)


MASKS = (_misplaced, _misread)
