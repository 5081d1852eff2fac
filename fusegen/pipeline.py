"""From a spec's file to the text of its module.

stage      in                    out
parse      YAML text             Spec, every part with its place
compose    Spec, other specs     Program, over the real numbers
derive     Program               Program of its gradients
simplify   Program               Program in fewer operations, and the rewrites that led there
finite     Program               Program without NaN at infinity where there is a limit
hoist      Programs              Programs in which what only parameters decide has a name
lower      Program               Kernel per device and math type; no algebra below this line
verify     Kernel                nothing, or the law it breaks
print      Kernel                C++ text
render     texts                 the module
write      texts by path         files, touched only when their bytes change
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fusegen import render
from fusegen.agreement import check_references
from fusegen.compose import compose, expanded
from fusegen.cost import (
    CUBIC,
    FINE_CUBIC,
    FINE_PIECE,
    LOOK_UP,
    ONE_WORD,
    PIECE,
    TABLE,
    TEST,
    TESTED,
    alone,
    cost,
    in_16_bits,
    pieced,
    slots,
    slots_in_one_word,
)
from fusegen.derive import aten_gradient, derive, inlined, is_arithmetic, unrounded
from fusegen.elements import ELEMENTS, maths
from fusegen.errors import FusegenError, Span, SpecErrors, TooMany, TwoOfOneName, Unreadable
from fusegen.expected import Formula, with_uniforms
from fusegen.finite import finite
from fusegen.hoist import bounds, hoisted
from fusegen.ir import Device, Kernel, Math, operations
from fusegen.launch import Table, beside, class_of, shipped
from fusegen.library import Library, load
from fusegen.lower import lower, notes, uniforms
from fusegen.mask import masked
from fusegen.ops import TRANSCENDENTAL
from fusegen.parse import parse_spec
from fusegen.pieces import Centres, centres, fits
from fusegen.printers import dump
from fusegen.printers.approximations import approximates, errs
from fusegen.printers.cpp import ROUNDED, CppPrinter, definitions, headers, literal, uniform, wide
from fusegen.printers.notation import notation
from fusegen.printers.pytorch import autocasts, statements
from fusegen.render import Binding, Halves, Singles, remarks
from fusegen.roundoff import (
    AMPLE,
    BRIEF,
    IN_DOUBLE,
    ROUNDING,
    TRUSTED,
    TRUSTED_IN_16_BITS,
    Roundoff,
    function,
    roundoff,
)
from fusegen.roundoff.graph import DOUBLE, FLOAT, Range
from fusegen.sample import Point
from fusegen.simplify import simplify
from fusegen.simplify.constants import check_constants, constants_folded
from fusegen.simplify.forms import formed
from fusegen.simplify.search import Score, improved
from fusegen.simplify.stable import stable
from fusegen.spec import FIELDS, Spec
from fusegen.term import Program, Rewrite
from fusegen.verify import broken_law

FRAMES = 4  # of Python's stack that a nested operation takes
HALVES = {None: Halves.COMPUTED, TESTED: Halves.TESTED, TABLE: Halves.LOOKED_UP}


@dataclass(frozen=True)
class GradientForms:
    """How the gradient's program came to be.

    Attributes:
        derived: the gradient as it was differentiated.
        program: what is left of it.
        rewrites: what led there, in order.
    """

    derived: Program
    program: Program
    rewrites: tuple[Rewrite, ...]


@dataclass(frozen=True)
class Compilation:
    """One spec on its way through the stages; each is run when it is first asked for."""

    spec: Spec
    library: Library
    binding: Binding = Binding.STABLE
    launches: Table = field(default_factory=shipped)

    @cached_property
    def declared(self) -> Program:
        """The program as declared."""
        program = self.eager if self.spec.numerics == "eager" else self.compose(False)
        check_constants(program, self.spec.dtypes, self.spec.params)
        return program

    @cached_property
    def forms(self) -> tuple[Program, tuple[Rewrite, ...]]:
        """An accurate program in its stable forms, and the rewrites to these; an eager one as it is."""
        if self.spec.numerics == "eager":
            return self.declared, ()
        found, first = stable(constants_folded(self.declared))
        found, second = formed(found if first else self.declared)
        return found, (*first, *second)

    @cached_property
    def improved(self) -> tuple[Program, tuple[Rewrite, ...]]:
        """The forms of the least estimated error, and the further rewrites to these."""
        if self.spec.numerics == "eager":
            return self.composed, ()
        return improved(self.composed, lambda program: self.formula.score(program, ""))

    @cached_property
    def formula(self) -> Formula:
        """The formula as declared, at the defaults of its parameters."""
        params = {param.name: param.default for param in self.spec.params}
        return Formula(self.declared, self.eager, params, dict(self.spec.assume))

    @property
    def composed(self) -> Program:
        """The program as declared; an accurate one in its best forms."""
        return self.forms[0]

    @cached_property
    def eager(self) -> Program:
        """The program of the operations that PyTorch would run; references are compared before use."""
        program = self.compose(True)
        check_references(self.spec, self.library)
        return program

    def compose(self, eager: bool) -> Program:
        """The spec and those it names as one program, of PyTorch's own operations where `eager`."""
        return compose(self.spec, self.library, self.library.names(), eager)

    @cached_property
    def stable(self) -> Program:
        """A program equal to the formula over the real numbers, in which little cancels."""
        if self.spec.numerics == "accurate":
            return self.improved[0]
        return formed(stable(constants_folded(self.compose(False)))[0])[0]

    @cached_property
    def derived(self) -> Program:
        """The gradients of the composed program.

        Where PyTorch has one kernel for the whole, an eager spec takes its gradient too; so does a spec of
        arithmetic only, whose forward kernel already gives PyTorch's bits.
        """
        own = aten_gradient(self.eager)
        if own is not None and self.spec.numerics == "eager":
            return own
        if own is not None and is_arithmetic(self.composed, own):
            return unrounded(own)
        return derive(self.composed, self.spec.numerics == "eager")

    @cached_property
    def simplified(self) -> tuple[Program, tuple[Rewrite, ...]]:
        """The program in fewer operations, and how it came to be."""
        program, rewrites = self.improved
        found, further = simplify(expanded(program), dict(self.spec.assume))
        return found, (*rewrites, *further)

    @property
    def gradient(self) -> tuple[Program, tuple[Rewrite, ...]]:
        """The program of the gradients in fewer operations, and how it came to be."""
        return self.gradient_forms.program, self.gradient_forms.rewrites

    @cached_property
    def gradient_forms(self) -> GradientForms:
        """The gradient of the composed program; of its best form, where that loses less in float."""
        if self.spec.numerics == "eager":
            return GradientForms(self.derived, *simplify(expanded(self.derived), dict(self.spec.assume)))
        first, best = self.forms_of_gradient(self.derived, self.composed), self.improved[0]
        if best == self.composed or not self.score_of_gradient(first.program)[0]:
            return first
        second = self.forms_of_gradient(derive(best), best)
        return min(first, second, key=lambda forms: self.score_of_gradient(forms.program))

    def forms_of_gradient(self, derived: Program, forward: Program) -> GradientForms:
        """The gradient that was derived of a form of the forward pass, in fewer operations."""
        program, rewrites = simplify(expanded(derived), dict(self.spec.assume))
        program, first = formed(program)
        # a form may leave one use of a step, and that use take another
        program, second = formed(inlined(program, {let.name for let in forward.lets}))
        better, third = improved(program, self.score_of_gradient)
        return GradientForms(derived, better, (*rewrites, *first, *second, *third))

    def score_of_gradient(self, program: Program) -> Score:
        """What a program of the gradients loses in float."""
        return self.formula.score(program, program.inputs[0])

    @cached_property
    def settled(self) -> tuple[Program, ...]:
        """Forward and gradient; accurate ones tend to their limits at infinity."""
        programs = (self.simplified[0], self.gradient[0])
        if self.spec.numerics == "accurate" and not self.arithmetic:
            params = {param.name: param.default for param in self.spec.params}
            inputs = self.composed.inputs
            programs = (finite(programs[0], inputs, params), finite(programs[1], inputs, params))
        return programs

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """What is lowered: forward and gradient."""
        return hoisted(self.settled)

    def kernels(self, device: Device) -> tuple[Kernel, ...]:
        """The kernels of a device, forward and then backward, one per math type."""
        return (*self.one_way(False, device), *self.one_way(True, device))

    def one_way(self, gradient: bool, device: Device) -> tuple[Kernel, ...]:
        """The kernels of forward or gradient on a device, one per math type."""
        own = maths(self.spec.dtypes)
        float_loses = not self.trusted[device][gradient]
        return tuple(
            self.kernel(gradient, device, math) for math in ((Math.DOUBLE,) if float_loses else own)
        )

    def printed(self, gradient: bool, device: Device) -> tuple[Kernel, ...]:
        """Those of them that are called, and that of double if it helps elements of another type."""
        called = {kernel.math: kernel for kernel in self.one_way(gradient, device)}
        in_16_bits = self.in_16_bits if device is Device.CUDA else self.settled_by_double
        if in_16_bits[gradient] or self.singles[device][gradient] is not Singles.COMPUTED:
            called.setdefault(Math.DOUBLE, self.kernel(gradient, device, Math.DOUBLE))
        if device is Device.CUDA and self.all_looked_up(gradient) and 32 not in self.widths:
            called.pop(Math.FLOAT, None)
        return tuple(called.values())

    def all_looked_up(self, gradient: bool) -> bool:
        """Whether no 16-bit result of forward or gradient is computed on CUDA, whatever the scalars are."""
        return self.halves[gradient] is Halves.LOOKED_UP and not self.spec.params

    def kernel(self, gradient: bool, device: Device, kind: Math, settled: bool = False) -> Kernel:
        """The kernel of forward or gradient, checked; in one word where double settles its results."""
        if (gradient, device, kind, settled) not in self.lowered:
            self.lowered[gradient, device, kind, settled] = self.lower(gradient, device, kind, settled)
        return self.lowered[gradient, device, kind, settled]

    @cached_property
    def lowered(self) -> dict[tuple[bool, Device, Math, bool], Kernel]:
        """The kernels that were asked for already."""
        return {}

    def lower(self, gradient: bool, device: Device, kind: Math, settled: bool) -> Kernel:
        """The same, lowered now."""
        derived = self.gradient_forms.derived
        which, incoming = ("backward", derived.inputs[0]) if gradient else ("forward", None)
        name = f"{self.spec.name}_{which}{'_short' if settled else ''}"
        program = self.programs[gradient]
        assert not gradient or program.inputs == derived.inputs, "a gradient reads what is saved for it"
        kernel = lower(name, program, device, kind, self.precise, incoming, settled)
        law = broken_law(kernel)
        assert law is None, f"{name}: {law}"
        return kernel

    @cached_property
    def arithmetic(self) -> bool:
        """Whether this is one of PyTorch's kernels that approximate nothing, so that it gives its bits."""
        return aten_gradient(self.eager) is not None and is_arithmetic(self.composed, self.derived)

    @cached_property
    def precise(self) -> bool:
        """Whether kernels compute in two words: what approximates, if the spec is accurate."""
        return self.spec.numerics == "accurate" and not is_arithmetic(*self.programs)

    @cached_property
    def roundoffs(self) -> dict[Device, tuple[Roundoff, ...]]:
        """The estimated errors of forward and gradient in float, by device; none for PyTorch's bits."""
        if self.spec.numerics == "eager" or self.arithmetic or Math.FLOAT not in maths(self.spec.dtypes):
            return {}
        return {device: (self.roundoff(device, False), self.roundoff(device, True)) for device in Device}

    def roundoff(self, device: Device, gradient: bool, within: Range = FLOAT) -> Roundoff:
        """The estimated error of forward or gradient with float's digits, and float's or double's range."""
        kernel, pieces = self.kernel(gradient, device, Math.FLOAT), self.centres[gradient]
        by_pieces = within is FLOAT and device is Device.CUDA and pieces is not None
        fitted = function(self.kernel(gradient, device, Math.DOUBLE), self.given) if by_pieces else None

        def given(point: Point) -> bool:
            return fitted is not None and pieces is not None and fits(pieces, fitted, point[self.moving])

        sample = self.formula.sample(kernel)
        return roundoff(kernel, sample, self.given, given=given, within=within)

    @property
    def moving(self) -> str:
        """The input of a function of one tensor."""
        return self.composed.inputs[0]

    @cached_property
    def given(self) -> dict[str, float]:
        """The values that the spec gives to its scalars."""
        return with_uniforms(self.formula.params, *self.programs)

    @cached_property
    def trusted(self) -> dict[Device, tuple[bool, ...]]:
        """Whether float is enough for forward and gradient, by device: it is no worse than promised."""
        found: dict[Device, tuple[bool, ...]] = dict.fromkeys(Device, (True, True))
        for device, errors in self.roundoffs.items():
            found[device] = tuple(self.enough(device, bool(k), error) for k, error in enumerate(errors))
        if 32 not in self.widths:  # on CUDA for 16 bits, if no more are kept of any result
            both = zip(found[Device.CUDA], self.trusted_in_16_bits, strict=True)
            found[Device.CUDA] = tuple(map(any, both))
        return found

    def enough(self, device: Device, gradient: bool, error: Roundoff) -> bool:
        """Whether the error in float is within the contract, or no larger than in double."""
        return self.kept(device, gradient, error) or not self.in_double(device, gradient) < error.ulp

    def kept(self, device: Device, gradient: bool, error: Roundoff) -> bool:
        """Whether an error is within the contract: a few ulp, or eager's own error."""
        if error.ulp <= TRUSTED[device]:
            return True
        eager = self.formula.eager_error(device, gradient)
        return error.ulp <= eager.ulp + 2 * ROUNDING and math.isfinite(error.ulp)

    def in_double(self, device: Device, gradient: bool) -> float:
        """The estimated error of double, in ulp of a float32 result."""
        return self.roundoff(device, gradient, DOUBLE).ulp * IN_DOUBLE

    @cached_property
    def trusted_in_16_bits(self) -> tuple[bool, bool]:
        """Whether float is enough for their 16-bit results on CUDA, none of which is looked up."""
        if 16 not in self.widths or not self.roundoffs:
            return False, False
        errors = [error.ulp for error in self.roundoffs[Device.CUDA]]
        doubles = [self.kernel(gradient, Device.CUDA, Math.DOUBLE) for gradient in (False, True)]
        forward, backward = (
            most <= TRUSTED_IN_16_BITS and not alone(double, reads)
            for reads, (most, double) in enumerate(zip(errors, doubles, strict=True), 1)
        )
        return forward, backward

    @cached_property
    def ample(self) -> tuple[bool, bool]:
        """Whether one word of double computes on CUDA what float would lose of forward and gradient."""
        forward, backward = (ulp <= AMPLE for ulp in self.ulp_of_double)
        return forward, backward

    @cached_property
    def ulp_of_double(self) -> tuple[float, float]:
        """Their errors with float's digits and double's range, in ulp; infinite if double is not used."""
        found = []
        for gradient, trusted in enumerate(self.trusted[Device.CUDA]):
            computed = self.singles[Device.CUDA][gradient] is Singles.DOUBLE or bool(self.spec.params)
            taken = computed and not trusted
            found.append(self.roundoff(Device.CUDA, bool(gradient), DOUBLE).ulp if taken else math.inf)
        forward, backward = found
        return forward, backward

    @property
    def one_word(self) -> str:
        """How many bits of one word of double are right, if a kernel takes it."""
        taken = [ulp for ulp in self.ulp_of_double if ulp <= AMPLE]
        return ("39" if max(taken) <= BRIEF else "44") if taken else ""

    @cached_property
    def singles(self) -> dict[Device, tuple[Singles, Singles]]:
        """How forward and gradient come by float32 results, by device; on the CPU by 16-bit ones, too."""
        return {device: (self.single(device, False), self.single(device, True)) for device in Device}

    def single(self, device: Device, gradient: bool) -> Singles:
        """How forward or gradient comes by them on a device; a module has pieces of one kind."""
        if device is Device.CUDA and 32 not in self.widths:
            known = self.trusted[device][gradient] or self.all_looked_up(gradient)
            return Singles.COMPUTED if known else Singles.DOUBLE
        double = self.kernel(gradient, device, Math.DOUBLE)
        if not self.trusted[device][gradient]:
            reads_scalars = Singles.DECLARED if device is Device.CUDA else Singles.DOUBLE
            of_one = reads_scalars if double.params else Singles.CUBICS
            return of_one if alone(double, 1 + gradient) else Singles.DOUBLE
        if device is Device.CPU or not self.pieced[gradient]:
            return Singles.COMPUTED
        all_trusted = all(itertools.chain(*self.trusted.values()))
        return Singles.PIECES if all_trusted else Singles.CUBICS

    @cached_property
    def pieced(self) -> tuple[bool, bool]:
        """Whether forward and gradient take less time in float32 on CUDA as cubic polynomials."""
        forward, backward = (self.from_double(gradient, 32) for gradient in (False, True))
        return bool(forward and pieced(forward[0], 1)), bool(backward and pieced(backward[0], 2))

    @cached_property
    def centres(self) -> tuple[Centres | None, ...]:
        """Where these polynomials are."""
        doubles = (self.kernel(gradient, Device.CUDA, Math.DOUBLE) for gradient in (False, True))
        both = zip(self.pieced, doubles, strict=True)
        return tuple(centres(function(double, self.given)) if has else None for has, double in both)

    @cached_property
    def in_16_bits(self) -> tuple[str | None, str | None]:
        """How double makes 16-bit results of forward and gradient right on CUDA."""
        cheaper = approximates(self.kernels(Device.CUDA))
        found: list[str | None] = []
        for reads, trusted in enumerate(self.trusted[Device.CUDA], 1):
            kernels = self.from_double(reads > 1, 16)
            if not (trusted or self.trusted_in_16_bits[reads - 1]):
                double = self.kernel(reads > 1, Device.CUDA, Math.DOUBLE)
                found.append(TABLE if alone(double, reads) and 16 in self.widths else None)
            elif kernels:
                found.append(in_16_bits(*kernels, reads, cheaper, cheaper and errs(kernels[0])))
            else:
                found.append(None)
        forward, backward = found
        return forward, backward

    @cached_property
    def halves(self) -> tuple[Halves, Halves]:
        """How forward and gradient come by 16-bit results on CUDA."""
        found = []
        for gradient, how in enumerate(self.in_16_bits):
            kernels = self.from_double(bool(gradient), 16)
            in_doubt = self.cheaper and kernels is not None and errs(kernels[0])
            trusted = self.trusted[Device.CUDA][gradient]
            in_float = trusted or self.trusted_in_16_bits[gradient]
            if how is None and not in_float and 16 in self.widths:
                found.append(Halves.DOUBLE)
            else:
                tested = in_doubt and bool(self.spec.params) and trusted
                found.append(Halves.DECLARED if how == TABLE and tested else HALVES[how])
        forward, backward = found
        return forward, backward

    @cached_property
    def settled_by_double(self) -> tuple[bool, bool]:
        """Whether double decides on the CPU how 16-bit results of forward and gradient are rounded."""
        found = []
        for gradient, how in enumerate(self.singles[Device.CPU]):
            kernels = self.from_double(bool(gradient), 16, Device.CPU)
            approximate = kernels is not None and not TRANSCENDENTAL.isdisjoint(operations(kernels[0]))
            found.append(how is Singles.CUBICS or (how is Singles.COMPUTED and approximate))
        forward, backward = found
        return forward, backward

    @cached_property
    def short(self) -> dict[Device, tuple[Kernel | None, ...]]:
        """What forward and gradient take in 16 bits, by device, if it is less than what floats take."""
        found: list[Kernel | None] = []
        ways = zip((False, True), self.singles[Device.CPU], self.settled_by_double, strict=True)
        for gradient, how, settles in ways:
            long, short = (self.kernel(gradient, Device.CPU, Math.FLOAT, less) for less in (False, True))
            taken = how is Singles.COMPUTED and settles and operations(short) != operations(long)
            found.append(short if taken else None)
        return {Device.CPU: tuple(found), Device.CUDA: self.in_float}

    @cached_property
    def in_float(self) -> tuple[Kernel | None, ...]:
        """What they take in 16 bits on CUDA, if double computes floats there."""
        ways = zip((False, True), self.trusted[Device.CUDA], self.trusted_in_16_bits, strict=True)
        return tuple(
            self.kernel(gradient, Device.CUDA, Math.FLOAT, True) if enough and not trusted else None
            for gradient, trusted, enough in ways
        )

    @property
    def widths(self) -> set[int]:
        """The bits of the elements."""
        return {ELEMENTS[dtype].bits for dtype in self.spec.dtypes}

    def from_double(
        self, gradient: bool, bits: int, device: Device = Device.CUDA
    ) -> tuple[Kernel, Kernel] | None:
        """A device's kernels in float and in double, if double may help elements of so many bits."""
        approximate = self.spec.numerics == "accurate" and not self.arithmetic
        if not approximate or bits not in self.widths:
            return None
        single, double = (self.kernel(gradient, device, math) for math in Math)
        return single, double

    @cached_property
    def cheaper(self) -> bool:
        """Whether there are cheaper functions for 16-bit results that are computed, on CUDA."""
        return approximates(self.kernels(Device.CUDA)) and bool(self.computed)

    @cached_property
    def computed(self) -> tuple[Kernel, ...]:
        """The kernels on CUDA that compute 16-bit results in float, if only with some scalars."""
        ways = (self.one_way(gradient, Device.CUDA) for gradient in (False, True))
        passes = zip(ways, self.in_16_bits, self.trusted[Device.CUDA], strict=True)
        own = (
            kernel
            for some, how, trusted in passes
            if trusted and (how != TABLE or self.spec.params)
            for kernel in some
        )
        return (*own, *filter(None, self.in_float))

    @cached_property
    def masks(self) -> tuple[tuple[Kernel, Kernel], ...]:
        """On CUDA the kernels of the bit that decides a gradient, and of what it decides; by math type.

        None where a bit does not, or where results are not just computed.
        """
        if (*self.singles[Device.CUDA], *self.in_16_bits) != (Singles.COMPUTED,) * 2 + (None,) * 2:
            return ()
        found = tuple(filter(None, map(masked, self.one_way(True, Device.CUDA))))
        return found if self.binding is Binding.STABLE else ()

    @cached_property
    def mask(self) -> render.MaskText | None:
        """What the printers write of these."""
        if not self.masks:
            return None
        bits, taken = zip(*self.masks, strict=True)
        bit, multiple = (CppPrinter(kernels[0]).element() for kernels in (bits, taken))
        return render.MaskText(bit, multiple, definitions(bits, ()), definitions(taken, ()))

    @cached_property
    def texts(self) -> render.Texts:
        """What the printers write."""
        kernels = {device: (*self.printed(False, device), *self.printed(True, device)) for device in Device}
        read = {name for kernel in kernels[Device.CUDA] for name in kernel.params}
        hosted = {let.name: let for program in self.programs for let in uniforms(program)}
        called = {device: (*kernels[device], *filter(None, self.short[device])) for device in Device}
        forward, backward = (self.one_way(gradient, Device.CUDA)[0] for gradient in (False, True))
        derived = self.gradient_forms.derived
        grad, *saved = derived.inputs
        from_output = tuple(saved) != self.composed.inputs
        return render.Texts(
            notation=notation(self.spec),
            counts=(f"Forward: {_counts(forward)}", f"Gradient: {_counts(backward)}"),
            forward=self.kernel_text("Forward", ("y",), self.simplified, ()),
            backward=self.kernel_text(
                "Backward", self.composed.inputs, self.gradient,
                (_what_gradient(self.composed.inputs, grad, saved),),
            ),
            mask=self.mask,
            headers={device: headers(several) for device, several in called.items()},
            scalars=tuple(name for name in (*self.composed.params, *hosted) if name in read),
            bounds=bounds(self.composed),
            declared=tuple(literal(p.default, Math.DOUBLE) for p in self.spec.params),
            uniforms=tuple(uniform(let) for let in hosted.values()),
            fast=self.cheaper,
            ample=self.one_word,
            rounds=any(ROUNDED in operations(kernel) for kernel in kernels[Device.CUDA]),
            eager=statements(constants_folded(self.eager)),
            eager_gradient=statements(derived, several=True) if from_output or self.arithmetic else (),
            from_output=from_output,
            autocast=autocasts(self.eager),
        )  # fmt: skip

    def kernel_text(
        self, functor: str, outputs: tuple[str, ...], simplified: tuple[Program, tuple[Rewrite, ...]],
        says: tuple[str, ...],
    ) -> render.KernelText:  # fmt: skip
        """What the printers write for one kernel."""
        program, rewrites = simplified
        gradient = functor == "Backward"
        open_ = [
            kind for kind, opens in zip(Math, (self.cheaper, self.ample[gradient]), strict=True) if opens
        ]
        kernels = {device: self.printed(gradient, device) for device in Device}
        short = {device: several[gradient] for device, several in self.short.items()}
        emitted = {
            device: [
                definitions(several, open_ if device is Device.CUDA else ()) for several in both if several
            ]
            for device, own in kernels.items()
            for both in [(own, tuple(filter(None, (short[device],))))]
        }
        said = says or (notation(self.spec),)
        how, settles = self.in_16_bits[gradient], self.settled_by_double[gradient]
        singles = {device: both[gradient] for device, both in self.singles.items()}
        reads, by_double = len(program.inputs), {}
        if how == TABLE:
            by_double[16] = TABLE, LOOK_UP[reads]
        cpu, cuda = (kernels[device][0] for device in (Device.CPU, Device.CUDA))
        halved = short[Device.CUDA] or cuda
        if short[Device.CUDA]:
            by_double[16] = cost(halved, 2, self.cheaper), slots(halved, self.cheaper)
        if how == TESTED:
            by_double[16] = TESTED, slots(halved, True) + TEST
        if singles[Device.CUDA] is Singles.PIECES:
            by_double[32] = CUBIC[reads], PIECE[reads]
        if singles[Device.CUDA] in render.FITTED:
            by_double[32] = FINE_CUBIC[reads], FINE_PIECE[reads]
        elif self.ample[gradient]:
            by_double[32] = ONE_WORD, slots_in_one_word(self.kernel(gradient, Device.CUDA, Math.DOUBLE))
        remarked = {
            Device.CPU: remarks.on_cpu(
                cpu, wide(cpu), singles[Device.CPU], settles, bool(short[Device.CPU])
            ),
            Device.CUDA: remarks.on_cuda(
                cuda,
                wide(cuda),
                self.halves[gradient],
                bool(self.spec.params),
                singles[Device.CUDA],
                bool(short[Device.CUDA]),
            ),
        }
        return render.KernelText(
            name=f"{self.spec.name}_{functor.lower()}",
            functor=functor,
            inputs=program.inputs,
            outputs=outputs,
            notes={
                device: (*said, *map(dump.rewrite, rewrites), *notes(program, device), *remarked[device])
                for device in Device
            },
            definitions={device: tuple(itertools.chain(*emitted[device])) for device in Device},
            elements={device: CppPrinter(own[0]).element() for device, own in kernels.items()},
            short={device: CppPrinter(own).element() if own else "" for device, own in short.items()},
            shares=self.shares(f"{self.spec.name}_{functor.lower()}", kernels[Device.CUDA], by_double),
            halves=self.halves[gradient],
            settled=settles,
            singles=singles,
            centres=self.centres[gradient] if singles[Device.CUDA] is Singles.PIECES else None,
            ample=self.ample[gradient],
        )

    def shares(
        self, name: str, kernels: tuple[Kernel, ...], by_double: Mapping[int, tuple[str, int]]
    ) -> tuple[render.Share, ...]:
        """How dense tensors are shared out among a CUDA kernel's threads, for each width of elements.

        Args:
            name: of the kernel.
            kernels: one for each math type.
            by_double: the class and the instructions of what double computes before or settles, by bits.
        """
        elements = {ELEMENTS[dtype].bits: ELEMENTS[dtype] for dtype in self.spec.dtypes}
        by_math = {kernel.math: kernel for kernel in kernels}
        shares = []
        for bits, element in sorted(elements.items()):
            kernel, cheap = by_math.get(element.compute, kernels[-1]), self.cheaper and element.halves
            what, each = by_double.get(bits) or (cost(kernel, bits // 8, cheap), slots(kernel, cheap))
            rows = class_of(what, len(kernel.inputs))
            shares.append(render.Share(bits, each, what, rows, self.launches.chosen(name, rows, bits)))
        return tuple(shares)

    @cached_property
    def sources(self) -> dict[str, str]:
        """The C++ texts of the module by their part."""
        return render.sources(self.spec, self.texts, self.binding)

    @cached_property
    def module(self) -> str:
        """The text of the module."""
        return render.module(self.spec, self.texts, self.binding)


def compilation(path: Path, binding: Binding = Binding.STABLE) -> Compilation:
    """The compilation of one file; the specs it names are looked up beside it.

    Raises:
        SpecErrors: every mistake in it.
    """
    return Compilation(load(path), Library(path.parent), binding, beside(path.parent))


def modules(paths: tuple[Path, ...], output: Path) -> dict[Path, str]:
    """The text of every spec's module under the path it belongs to; nothing is written.

    As for `compilations`.
    """
    bindings = dict.fromkeys(paths, Binding.STABLE)
    return {path: compiled.module for path, compiled in compilations(bindings, output).items()}


def compilations(bindings: Mapping[Path, Binding], output: Path) -> dict[Path, Compilation]:
    """Every spec's compilation, run to its end, under the path that its module belongs to.

    Args:
        bindings: of the modules, by the files of the specs.
        output: the folder of the modules.

    Raises:
        SpecErrors: every mistake in all of the specs.
    """
    found: dict[Path, Compilation] = {}
    errors: list[FusegenError] = []
    for path, binding in bindings.items():
        try:
            compiled = compilation(path, binding)
            module, span = output / f"{compiled.spec.name}.py", compiled.spec.span
            if module in found:
                first = found[module].spec.span.file
                raise TwoOfOneName(span, name=compiled.spec.name, first=first, module=module.as_posix())
            _finish(compiled)
            found[module] = compiled
        except SpecErrors as several:
            errors += several.errors
        except FusegenError as error:
            errors.append(error)
    if errors:
        raise SpecErrors(errors)
    return found


def _finish(compiled: Compilation) -> None:
    """Run a compilation to its end.

    Raises:
        TooMany: its operations nest deeper than Python's stack allows.
    """
    try:
        assert compiled.module
    except RecursionError:
        limit = sys.getrecursionlimit() // FRAMES
        remedy = "split it into several specs"
        raise TooMany(
            compiled.spec.span, what="the spec", limit=limit, parts="nested operations", remedy=remedy
        ) from None


def stage(path: Path, name: str) -> str:
    """What one stage makes of a spec, as text.

    Args:
        path: the file of the spec.
        name: a key of `STAGES`.
    """
    return STAGES[name](compilation(path)).rstrip("\n") + "\n"


STAGES: dict[str, Callable[[Compilation], str]] = {
    "parse": lambda c: dump.spec(c.spec),
    "compose": lambda c: dump.program(c.composed),
    "derive": lambda c: dump.program(c.gradient_forms.derived),
    "simplify": lambda c: "\n".join(
        line
        for program, rewrites in (c.simplified, c.gradient)
        for line in (*map(dump.rewrite, rewrites), dump.program(program))
    ),
    "ir": lambda c: "\n".join(
        dump.kernel(kernel)
        for device in Device
        for kernel in (*c.kernels(device), *filter(None, c.short[device]))
    ),
    "cuda": lambda c: render.short(c.spec, c.texts)["cuda"],
    "cpu": lambda c: render.short(c.spec, c.texts)["cpu"],
    "module": lambda c: c.module,
}


def starter(name: str, path: Path) -> str:
    """The text of a new spec, with a comment for every key.

    Raises:
        SpecErrors: the name cannot be one.
        Unreadable: the file exists.
    """
    if path.exists():
        raise Unreadable(Span(path.as_posix()), why="the file exists", remedy="choose another name")
    text = render.fill("spec.yaml.j2", {"name": name, "fields": FIELDS})
    parse_spec(text, path.as_posix())
    return text


def _what_gradient(inputs: tuple[str, ...], grad: str, saved: list[str]) -> str:
    """The comment above a gradient."""
    of = " and ".join(inputs)
    each = "the gradients of" if len(inputs) > 1 else "the gradient of"
    return f"From {grad}, the gradient of y, and {' and '.join(saved)}: {each} {of}."


def _counts(kernel: Kernel) -> str:
    count = Counter(name for name in operations(kernel) if name != ROUNDED)
    total = sum(count.values())
    listed = ", ".join(f"{number} {name}" for name, number in count.items())
    return f"{total} operation{'s' if total != 1 else ''} an element: {listed or 'none'}."
