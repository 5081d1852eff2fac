"""From a spec to the plan of its module: the order of the stages.

stage      in                        out
parse      YAML text                 Spec, every part with its place
compose    Spec, other specs         Declared: programs over the real numbers
derive     Declared                  value and gradient in fewer operations, with the rewrites
limit      Programs                  Programs without NaN at infinity where there is a limit, mended
hoist      Programs                  Programs in which scalars that parameters decide have names
distinct   Programs                  Programs in which equal gradients are one result
lower      Programs                  Kernels per device and variant, verified; no algebra below this line
words      Kernels                   Kernels in single words where these are enough and faster
halves     Programs, Kernels         Kernels that take series where double would lose 16-bit results
curves     Programs, Kernels         Curves: kernels on CUDA with piecewise cubics for their unary segments
measure    Programs, Kernels         Facts: estimated errors, instruction counts
choose     Facts                     Plan: the method of each pass, device and dtype

`emit` prints the kernels that the plan takes and renders the module; `build` writes it.
"""

from dataclasses import dataclass

from fusegen.algebra.derive import is_arithmetic
from fusegen.algebra.equal_gradients import distinct, output_of, owners
from fusegen.compiler import stages
from fusegen.compiler.curves import curves
from fusegen.compiler.measure import Measured, measure
from fusegen.compiler.placed import Placed
from fusegen.compiler.single_words import in_fewer_words, in_series
from fusegen.compiler.stages import Algebra, Declared
from fusegen.core.facts import NONE_MISSED, Curves, Facts
from fusegen.core.ir import Kernel
from fusegen.core.method import Both, Variant
from fusegen.core.poolings import is_reduced
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.core.timing import timed
from fusegen.errors import NotOfElements
from fusegen.language.library import Library
from fusegen.lower.variants import Kernels, candidates
from fusegen.schedule.forms import Form, Planned, taken
from fusegen.schedule.plan import Plan, choose


@dataclass(frozen=True)
class Compiled(Placed):
    """The result of every stage."""

    declared: Declared  # its programs as declared
    algebra: Algebra  # value and gradient in fewer operations, and what led there
    limited: Both[Program]  # these, with their limits at infinity
    outputs: tuple[int, ...]  # for each tensor, the result of the backward program that is its gradient
    programs: Both[Program]  # what is lowered
    kernels: Kernels  # what that gives
    facts: Both[Facts]  # what was measured of each pass
    plan: Plan  # how each result is obtained

    @property
    def planned(self) -> Planned:
        """The spec, what was measured of it and its plan, as forms of kernels read them."""
        return Planned(self.spec, self.kernels, self.plan)

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms of its kernels."""
        return taken(self.planned)

    def in_variant(self, device: Device, variant: Variant) -> Both[Kernel]:
        """Return both passes in a variant, or in float or double where a pass has no such kernel."""
        like = Variant.DOUBLE if variant in (Variant.DOUBLE, Variant.SERIES) else Variant.FLOAT
        return Both.of(
            lambda which: self.kernels.get((which, device, variant), self.kernels[which, device, like])
        )

    @property
    def from_output(self) -> bool:
        """True if the gradient is read off the output."""
        return self.algebra.derivations.backward.first.inputs[1:] != self.declared.composed.inputs


def compiled(spec: Spec, library: Library) -> Compiled:
    """Return every stage of a spec, in order, with the specs that it may name; nothing is written.

    Raises:
        FusegenError: a mistake in it.
    """
    if is_reduced(spec):
        what = "windows" if spec.over is None else "rows"
        raise NotOfElements(spec.span, name=spec.name, what=what)
    name = spec.name
    declared = timed(f"{name}: compose", stages.declared, spec, library)
    algebra = timed(f"{name}: derive", stages.derived, declared)
    limited = timed(f"{name}: limit", stages.limited, declared, algebra)
    forward, backward = timed(f"{name}: hoist", stages.named, algebra, limited)
    outputs = output_of(spec, backward)
    programs = Both(forward, distinct(backward, outputs))
    double_word = not (declared.is_eager or is_arithmetic(*programs))
    stored = owners(outputs)
    kernels = timed(f"{name}: lower", candidates, spec, programs, stored, double_word=double_word)
    if double_word:
        kernels = timed(f"{name}: words", in_fewer_words, spec, programs, kernels, declared.formula)
    approximates = not (declared.is_eager or algebra.pytorch_bits)
    missed = Both(NONE_MISSED, NONE_MISSED)
    if approximates:
        kernels, missed = timed(f"{name}: halves", in_series, spec, programs, kernels, declared.formula)
    by_curves: Both[Curves | None] = Both(None, None)
    if double_word and approximates:
        forward, backward = (found.program for found in algebra.derivations)
        simplified = Both(forward, distinct(backward, outputs))
        by_curves = timed(f"{name}: curves", curves, spec, simplified, kernels, declared.formula)
    measured = Measured(spec, declared.formula, programs, kernels, by_curves, missed, approximates)
    facts = timed(f"{name}: measure", measure, measured)
    plan = timed(f"{name}: choose", choose, facts, spec.dtypes)
    return Compiled(spec, library, declared, algebra, limited, outputs, programs, kernels, facts, plan)
