"""The algebra of a spec, stage by stage: programs over the real numbers, before any is lowered.

stage      in                      out
compose    Spec, other specs       Declared: the formula, eager's operations, the stable form
derive     Declared                Both[Derivation]: value and gradient in fewer operations
limit      Declared, Derivations   Both[Program] without NaN at infinity where there is a limit
hoist      Both[Program]           Both[Program] in which scalars that parameters decide have names
"""

from dataclasses import dataclass, replace
from functools import partial

from fusegen.algebra.compose import compose, compose_eager, expanded
from fusegen.algebra.derive import (
    aten_gradient,
    attached,
    derive,
    derive_eager,
    detached,
    inlined,
    is_arithmetic,
    stops,
    unrounded,
)
from fusegen.algebra.hoist import hoisted
from fusegen.algebra.limits import finite
from fusegen.algebra.simplify import simplify
from fusegen.algebra.simplify.constants import check_constants, constants_folded
from fusegen.algebra.simplify.identities import IDENTITIES, IN_RANGE, SERIES, Row
from fusegen.algebra.simplify.rewrites import formed
from fusegen.algebra.simplify.search import Found, improved
from fusegen.algebra.simplify.stable import stable
from fusegen.compiler.estimates import Formula
from fusegen.compiler.mended import Mending, judged_kinds
from fusegen.compiler.other_scalars import over_common_factors
from fusegen.compiler.reference_check import check_references
from fusegen.core.candidates import Candidate, cheapest
from fusegen.core.method import Both, Pass
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program, Rewrite
from fusegen.language.library import Library


@dataclass(frozen=True)
class Declared:
    """A spec as a program."""

    spec: Spec  # the spec
    program: Program  # its formula as declared; eager's operations if it has eager numerics
    eager: Program  # the operations that PyTorch would run
    formula: Formula  # the formula as declared, at the defaults of its parameters
    composed: Program  # the program in its stable forms; an eager one as it is
    forms: tuple[Rewrite, ...]  # the rewrites that led to these

    @property
    def is_eager(self) -> bool:
        """True if the spec promises eager's results."""
        return self.spec.numerics == "eager"


@dataclass(frozen=True)
class Derivation:
    """The origin of a program."""

    first: Program  # what it started from: the formula as declared, or the gradient as differentiated
    forms: tuple[Rewrite, ...]  # the rewrites to the stable forms
    rewrites: tuple[Rewrite, ...]  # the rewrites from there, in order
    program: Program  # what is left


@dataclass(frozen=True)
class Algebra:
    """The programs of both passes."""

    derivations: Both[Derivation]  # their origins
    best: Program  # the form of the formula with the least estimated error
    pytorch_bits: bool  # whether they are one of PyTorch's kernels, without approximation: its bits result


def real(spec: Spec, library: Library) -> Program:
    """Return the spec and those that it names as one program over the real numbers."""
    return compose(spec, library, library.names())


def eager_operations(spec: Spec, library: Library) -> Program:
    """Return the program of the operations that PyTorch would run; references are compared before use."""
    program = compose_eager(spec, library, library.names())
    check_references(spec, library)
    return program


def declared(spec: Spec, library: Library) -> Declared:
    """Return the stage compose."""
    is_eager = spec.numerics == "eager"
    program = eager_operations(spec, library) if is_eager else real(spec, library)
    check_constants(program, spec.dtypes, spec.scalars)
    eager = program if is_eager else eager_operations(spec, library)
    formula = Formula(program, eager, {each.name: each.default for each in spec.scalars}, spec.ranges)
    composed, forms = (program, ()) if is_eager else stable_form(program)
    return Declared(spec, program, eager, formula, composed, forms)


def stable_form(program: Program) -> tuple[Program, tuple[Rewrite, ...]]:
    """Return a program in its stable forms, and the rewrites to these."""
    found, first = stable(constants_folded(program))
    found, second = formed(found if first else program)
    return found, (*first, *second)


def stable_program(spec: Spec, library: Library) -> Program:
    """Return a program equal to the formula over the real numbers, in which little cancels."""
    if spec.numerics == "eager":
        return formed(stable(constants_folded(real(spec, library)))[0])[0]
    return best_form(declared(spec, library))[0]


def best_form(of: Declared) -> tuple[Program, tuple[Rewrite, ...]]:
    """Return the form of the least estimated error, and the further rewrites to it."""
    if of.is_eager:
        return of.composed, ()
    return _searched(of, of.composed, Pass.FORWARD, (*IDENTITIES, *IN_RANGE))


def _searched(of: Declared, program: Program, which: Pass, rows: tuple[Row, ...]) -> Found:
    """Return the form of a pass's program with the least estimated error, and the rewrites to it."""
    formula = of.formula
    incoming = program.inputs[0] if which is Pass.BACKWARD else ""
    return improved(
        program,
        lambda program: formula.score(program, incoming),
        lambda: formula.enough(Device.CPU, which),
        rows,
        lambda program: formula.blamed(program, incoming),
    )


def differentiated(of: Declared) -> Program:
    """Return the gradients of the composed program.

    Where PyTorch has one kernel for the whole, an eager spec takes its gradient too; so does a spec of
    arithmetic only, whose forward kernel already gives PyTorch's bits.
    """
    own = aten_gradient(of.eager)
    if own is not None and of.is_eager:
        return own
    if own is not None and is_arithmetic(of.composed, own):
        return unrounded(own)
    return attached(derive_eager(of.composed) if of.is_eager else derive(of.composed))


def derived(of: Declared) -> Algebra:
    """Return the stages derive and simplify."""
    best, further = best_form(of)
    value, taken = _with_series(of, (best, further))
    forward = _value(of, value, taken)
    first, own = differentiated(of), aten_gradient(of.eager)
    arithmetic = own is not None and is_arithmetic(of.composed, first)
    return Algebra(Both(forward, _gradient(of, first, (best, value))), best, arithmetic)


def _with_series(of: Declared, best: Found) -> Found:
    """The form that also power series lead to, where fewer results are lost in it than in the best one."""
    if of.is_eager:
        return best
    found = _searched(of, of.composed, Pass.FORWARD, (*IDENTITIES, *SERIES, *IN_RANGE))
    tried = (Candidate(form, of.formula.score(form[0], "")[:2]) for form in (best, found))
    return cheapest(tried) or best


def _value(of: Declared, best: Program, further: tuple[Rewrite, ...]) -> Derivation:
    """Return the formula in fewer operations; without its stopped gradients it has other forms, too."""
    forms, stopped = of.forms, stops(best)
    if stopped and not of.is_eager:
        stopped, plain = stops(of.program), attached(of.program)
        composed, forms = stable_form(plain)
        attached_ = replace(of, program=plain, composed=composed)
        best, further = _with_series(attached_, best_form(attached_))
    program, rewrites = simplify(expanded(attached(best)), of.spec.ranges)
    return Derivation(of.program, forms, (*stopped, *further, *rewrites), program)


def _gradient(of: Declared, first: Program, forward: tuple[Program, ...]) -> Derivation:
    """The gradient of the composed program; of another form of it, where that loses less in float."""
    if of.is_eager:
        program, rewrites = simplify(expanded(first), of.spec.ranges)
        return Derivation(first, (), rewrites, program)
    tried = {of.composed: _measured(of, _in_forms(of, first, of.composed))}
    for form in forward:
        if form not in tried and all(any(each.cost[:2]) for each in tried.values()):
            tried[form] = _measured(of, _in_forms(of, attached(derive(form)), form))
    found = cheapest(tried.values())
    assert found is not None
    return found


def _measured(of: Declared, gradient: Derivation) -> Candidate[Derivation]:
    program = gradient.program
    return Candidate(gradient, of.formula.score(program, program.inputs[0]))


def _in_forms(of: Declared, first: Program, forward: Program) -> Derivation:
    """Return the gradient that was derived of a form of the forward pass, in fewer operations."""
    program, rewrites = simplify(expanded(first), of.spec.ranges)
    program, second = formed(program)  # which may leave one use of a step, and that use take another
    program, third = formed(inlined(program, {let.name for let in forward.lets}))
    better, fourth = _searched(of, program, Pass.BACKWARD, (*IDENTITIES, *SERIES, *IN_RANGE))
    better, fifth = over_common_factors(of.formula, better, better.inputs[0])
    return Derivation(first, (), (*rewrites, *second, *third, *fourth, *fifth), better)


def limited(of: Declared, algebra: Algebra) -> Both[Program]:
    """Return the stage limit: accurate programs tend to their limits at infinity, and have their mends."""
    programs = algebra.derivations.map(lambda found: found.program)
    if of.is_eager or algebra.pytorch_bits:
        return programs
    limits = partial(finite, inputs=of.composed.inputs, params=of.formula.params, assume=of.spec.ranges)
    kinds = judged_kinds(of.spec) - ({"nan"} if detached(of.eager) else set())  # selections leave it out
    return Mending(of.formula, limits, kinds).mended(programs, programs.map(limits))


def named(of: Algebra, programs: Both[Program]) -> Both[Program]:
    """Return the stage hoist: what only parameters decide has a name, and is computed once a call."""
    found = Both(*hoisted(tuple(programs)))
    saved = of.derivations[Pass.BACKWARD].first.inputs
    assert found.backward.inputs == saved, "a gradient reads what is saved for it"
    return found
