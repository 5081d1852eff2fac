"""The comments of a module's C++: each note once, where it applies.

The formula and the rewrites stand above the function of an element, methods above the type of a kernel, and
what both passes have in common above that of the forward pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from textwrap import wrap

from fusegen.codegen.emit.remarks import remarks
from fusegen.codegen.printers import dump
from fusegen.codegen.printers.function_text import Functions
from fusegen.codegen.printers.notation import notation, term
from fusegen.compiler.pipeline import Compiled
from fusegen.core.method import Pass
from fusegen.core.targets import Device
from fusegen.core.term import Name, Rewrite, Term, rebuild, walk
from fusegen.lower import notes

WIDTH = 120  # of a line
COMMENT = WIDTH - len("// ")
LONG = 30  # characters of a part that a rewrite leaves as it is, from which it is left out
OMITTED = Name("…")
FORWARD = "Forward. "


@dataclass(frozen=True, slots=True)
class Comments:
    """The lines above the C++ of a pass."""

    # above the functions of a device, or, without a device, above the one that both share
    functions: Mapping[Device | None, tuple[str, ...]]
    kernels: Mapping[Device, tuple[str, ...]]  # by device, above the type of the kernel


def comments(of: Compiled, written: Mapping[Pass, Functions]) -> dict[Pass, Comments]:
    """Return the comments of both passes."""
    found = {device: _of_device(of, written, device) for device in Device}
    return {
        which: Comments(
            {None: _above(of, which) if written[which].shared else ()}
            | {device: own[which][0] for device, own in found.items()},
            {device: own[which][1] for device, own in found.items()},
        )
        for which in Pass
    }


def _above(of: Compiled, which: Pass) -> tuple[str, ...]:
    return (_title(of, which), *_rewrites(of, which))


def _of_device(
    of: Compiled, written: Mapping[Pass, Functions], device: Device
) -> dict[Pass, tuple[tuple[str, ...], tuple[str, ...]]]:
    lowered = {which: notes(of.algebra.derivations[which].program, device) for which in Pass}
    inside = {which: lowered[which] if written[which].own[device] else () for which in Pass}
    beside = {which: _without(lowered[which], inside[which]) for which in Pass}
    inside[Pass.BACKWARD] = _without(inside[Pass.BACKWARD], inside[Pass.FORWARD])
    types = once(*((*beside[which], *remarks(of, which, device)) for which in Pass))
    titled = device.like is Device.CUDA  # whose source comes before that of the CPU
    above = {which: _above(of, which) if titled and not written[which].shared else () for which in Pass}
    return {which: ((*above[which], *inside[which]), types[which]) for which in Pass}


def once(forward: tuple[str, ...], backward: tuple[str, ...]) -> dict[Pass, tuple[str, ...]]:
    """Return the notes on both passes as lines; those on both stand above the forward pass only, first."""
    both = tuple(note for note in forward if note in backward)
    own = _without(forward, both)
    if both and own:
        own = tuple(FORWARD + note for note in own)
    return {Pass.FORWARD: _lines((*both, *own)), Pass.BACKWARD: _lines(_without(backward, both))}


def sentence(value: Rewrite) -> str:
    """Return a rewrite as a sentence, shortened where it takes more than a line."""
    whole = dump.rewrite(value)
    return whole if len(whole) <= COMMENT else dump.rewrite(shortened(value))


def shows(value: Rewrite) -> bool:
    """Return True if a rewrite changes the formula as it is printed; x ** 3 and cube(x) are both x³."""
    return term(value.before) != term(value.after)


def shortened(value: Rewrite) -> Rewrite:
    """Return a rewrite without the longest part that it leaves as it is, if that is long."""
    left = set(walk(value.after))
    parts = {term(part): part for part in walk(value.before) if part in left}
    text = max(parts, key=len, default="")
    if len(text) < LONG:
        return value
    before, after = (_omitting(whole, parts[text]) for whole in (value.before, value.after))
    return replace(value, before=before, after=after)


def _omitting(whole: Term, part: Term) -> Term:
    return OMITTED if whole == part else rebuild(whole, lambda inner: _omitting(inner, part))


def _rewrites(of: Compiled, which: Pass) -> tuple[str, ...]:
    """Return the rewrites of a pass that show, in the gradient without those of the forward pass."""
    rewrites = {w: of.algebra.derivations[w].rewrites for w in Pass}
    found = {w: tuple(sentence(each) for each in rewrites[w] if shows(each)) for w in Pass}
    return found[which] if which is Pass.FORWARD else _without(found[which], found[Pass.FORWARD])


def _title(of: Compiled, which: Pass) -> str:
    if which is Pass.FORWARD:
        return notation(of.spec)
    grad, *saved = of.algebra.derivations.backward.first.inputs
    return f"From {grad}, the gradient of y, and {' and '.join(saved)}: {_gradients(of)}."


def _gradients(of: Compiled) -> str:
    inputs, count = of.declared.composed.inputs, len({*of.outputs})
    if count == len(inputs):
        return f"the gradient{'s' * (count > 1)} of {' and '.join(inputs)}"
    groups = [
        " and ".join(name for name, at in zip(inputs, of.outputs, strict=False) if at == place)
        for place in range(count)
    ]
    return "; ".join(f"the {'common ' * (' and ' in names)}gradient of {names}" for names in groups)


def _without(notes: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(note for note in notes if note not in others)


def _lines(notes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for note in notes for line in wrap(note, COMMENT))
