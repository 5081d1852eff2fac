"""Exponentials of rows that are at most 1: of an element less the largest one of its row."""

import re
from collections.abc import Mapping, Sequence

from fusegen.compiler.row_kernels import PhaseKernels
from fusegen.core.folds import AMAX
from fusegen.core.ir import Call, Expr, Kernel, Ref, calls


def largest(phases: Sequence[PhaseKernels]) -> dict[str, Expr]:
    """Return the formulas of elements whose largest one of a row is a value of it, by the value's name."""
    return {
        name: inlined(of.elements, of.elements.results[place])
        for of in phases
        for place, (name, fold) in enumerate(zip(of.phase.folded, of.phase.folds, strict=False))
        if fold == AMAX
    }


def inlined(kernel: Kernel, expr: Expr) -> Expr:
    """Return an expression with each step in place of its name."""
    lets = {let.name: let.value for let in kernel.lets}
    match expr:
        case Ref(name) if name in lets:
            return inlined(kernel, lets[name])
        case Call(op, args, word, body):
            return Call(op, tuple(inlined(kernel, arg) for arg in args), word, body)
    return expr


def fall(phases: Sequence[PhaseKernels]) -> bool:
    """Return True if a phase has an exponential of an element less the largest of its row."""
    tops = largest(phases)
    return any(below(each.elements, tops) for each in phases)


def below(kernel: Kernel, of_row: Mapping[str, Expr]) -> dict[str, list[Expr]]:
    """Return by values of a row the exponentials of elements less these, where no element is larger."""
    found: dict[str, list[Expr]] = {}
    others = set()
    for made in calls(kernel):
        match made:
            case Call("exp", (Call("sub", (element, Ref(name))),)):
                found.setdefault(name, []).append(inlined(kernel, made))
                if inlined(kernel, element) != of_row.get(name):
                    others.add(name)
    return {name: each for name, each in found.items() if name not in others}


def are_bounded(kernel: Kernel, of_row: Mapping[str, Expr]) -> bool:
    """Return True if all results of a kernel are such exponentials."""
    found = [each for several in below(kernel, of_row).values() for each in several]
    return all(inlined(kernel, result) in found for result in kernel.results)


def named(text: str, kernel: Kernel, of_row: Mapping[str, Expr]) -> str:
    """Return the text of a function in which such exponentials have their own name."""
    for name in below(kernel, of_row):
        text = re.sub(rf"\bexp\((\w+ - {name})\)", r"exp_below(\1)", text)
    return text
