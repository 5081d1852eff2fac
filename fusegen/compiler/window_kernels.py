"""The kernels of a spec with a pooling: what is computed of each element, and of each window.

All arithmetic is in double, so that a result of at most 32 bits is rounded once.
"""

from dataclasses import dataclass

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import attached
from fusegen.algebra.derive.reverse import Reverse
from fusegen.algebra.simplify import simplify
from fusegen.compiler.placed import Placed
from fusegen.compiler.stages import eager_operations, real, stable_form
from fusegen.core.folds import is_fold
from fusegen.core.ir import Kernel, Math, Ref, expressions, parts
from fusegen.core.method import Both, Pass
from fusegen.core.poolings import Window, poolings, window_of
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Let, Name, Program, SpecCall, Term, names, needed, rebuild, unused
from fusegen.core.timing import timed
from fusegen.errors import NothingReduced, NotPooled, OfTwoSizes, OnePooling
from fusegen.language.library import Library
from fusegen.lower import lower

POOLED = "pooled"  # the value of a window, unless the spec has the name


@dataclass(frozen=True)
class Parts:
    """A program in front of a pooling and the one behind it, or their gradients."""

    front: Program  # of an element of the tensors in the pooling; its result is pooled
    behind: Program  # of a window: its pooled value, and an element of the tensors behind


@dataclass(frozen=True)
class CompiledWindows(Placed):
    """The result of every stage, of a spec with a pooling."""

    window: Window  # its windows
    declared: Program  # its program
    eager: Program  # the operations that PyTorch would run
    programs: Both[Parts]  # the two parts of both passes
    # of each of these, by pass and device: in front, and behind
    kernels: Both[dict[Device, tuple[Kernel, Kernel]]]

    @property
    def outputs(self) -> tuple[int, ...]:
        """For each tensor, the result that is its gradient: each has its own."""
        return tuple(range(len(self.spec.tensors)))

    @property
    def in_front(self) -> tuple[str, ...]:
        """The tensors that are read in the pooling."""
        return self.programs.forward.front.inputs

    @property
    def pooled(self) -> str:
        """The name of the value of a window."""
        return self.programs.forward.behind.inputs[0]


def compiled_windows(spec: Spec, library: Library) -> CompiledWindows:
    """Return every stage of a spec with a pooling, in order; nothing is written.

    Raises:
        FusegenError: a mistake in it.
    """
    name, window = spec.name, window_of(spec)
    assert window is not None
    declared = timed(f"{name}: compose", real, spec, library)
    eager = eager_operations(spec, library)
    forward = parted(spec, attached(declared))
    backward = timed(f"{name}: derive", _gradients, parted(spec, declared))
    programs = Both(forward, backward).map(lambda both: _simplified(spec, both))
    kernels = Both.of(lambda which: {device: _kernels(name, programs, which, device) for device in Device})
    return CompiledWindows(spec, library, window, declared, eager, programs, kernels)


def _kernels(name: str, programs: Both[Parts], which: Pass, device: Device) -> tuple[Kernel, Kernel]:
    end = "" if which is Pass.FORWARD else "_gradient"
    found = programs[which]
    return (
        lower(f"{name}_front{end}", found.front, device, Math.DOUBLE),
        lower(f"{name}_behind{end}", found.behind, device, Math.DOUBLE),
    )


def parted(spec: Spec, program: Program) -> Parts:
    """Return what a program computes in front of its pooling, and behind it.

    Raises:
        OnePooling: it has several, of different values.
        NothingReduced, NotPooled, OfTwoSizes: of the tensors that it reads.
    """
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    pooled, folds = unused(POOLED, taken), dict[SpecCall, None]()

    def replaced(term: Term) -> Term:
        if is_fold(term):
            folds.setdefault(term)
            return Name(pooled)
        return rebuild(term, replaced)

    lets = tuple(Let(let.name, replaced(let.term)) for let in program.lets)
    results = tuple(map(replaced, program.results))
    (fold, *others) = folds
    own = poolings(spec)[0]
    if others:
        raise OnePooling(own.span, first=own.spec)
    front = _part(program, program.lets, fold.args, ())
    behind = _part(program, lets, results, (pooled,))
    first, places = program.inputs[0], {each.name: each.span for each in spec.tensors}
    if not front.inputs:
        raise NothingReduced(own.span, what=f"what {own.spec} reduces", of="window")
    if first in behind.inputs:
        raise NotPooled(places[first], name=first)
    for name in front.inputs:
        if name in behind.inputs:
            raise OfTwoSizes(places[name], name=name)
    return Parts(front, behind)


def _part(
    program: Program, lets: tuple[Let, ...], results: tuple[Term, ...], given: tuple[str, ...]
) -> Program:
    """Return the program of some results, of what they read."""
    lets = needed(lets, results)
    read = {name for term in (*(let.term for let in lets), *results) for name in names(term)}
    inputs = tuple(name for name in program.inputs if name in read)
    return Program((*given, *inputs), tuple(p for p in program.params if p in read), lets, results)


def _gradients(forward: Parts) -> Parts:
    """Return the gradients of both parts, of which that in front is given that of a pooled value."""
    return Parts(*(attached(Reverse(program).backward()) for program in (forward.front, forward.behind)))


def _simplified(spec: Spec, parts: Parts) -> Parts:
    def simple(program: Program) -> Program:
        return simplify(expanded(stable_form(program)[0]), spec.ranges)[0]

    return Parts(simple(parts.front), simple(parts.behind))


def reads(kernel: Kernel, name: str) -> bool:
    """Return True if a kernel uses an input or a parameter."""
    every = (part for expr in expressions(kernel) for part in parts(expr))
    return any(part == Ref(name) for part in every)
