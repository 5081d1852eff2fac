"""The kernels of a spec whose rows are channels: a loop for the moments, and the phases behind it."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from fusegen.algebra.derive import attached
from fusegen.algebra.rows.flat import flat, levels
from fusegen.algebra.rows.phases import Schedule, part_of, schedule
from fusegen.algebra.rows.repeats import once_each
from fusegen.algebra.rows.row_gradient import derive_rows
from fusegen.compiler.row_checks import check_reductions
from fusegen.compiler.row_kernels import CompiledRows, phase_kernels, simplified
from fusegen.compiler.stages import eager_operations, real
from fusegen.core.folds import SHARE, SUM, Fold, Level, is_fold
from fusegen.core.method import Both
from fusegen.core.spec import Spec
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, call, names, rebuild, substitute
from fusegen.core.timing import timed
from fusegen.errors import NoRowValues, NotStatistics
from fusegen.language.library import Library

MEAN, VAR = "row_mean", "row_var"  # of a channel, found in its first loop or given
MOMENTS = (Fold("mean", "Mean"), Fold("var", "Variance"))  # of one result, by one loop
PAIR = "begin with a mean and the mean of squared differences to it"


@dataclass(frozen=True)
class CompiledChannels(CompiledRows):
    """The result of every stage, of a spec whose rows are channels.

    The first phase of both passes has one result of an element, of which a loop finds the mean and the
    variance: what follows reads these.
    """

    channels: tuple[str, ...]  # the tensors with a number for each channel
    found_forward = 1


def compiled_channels(spec: Spec, library: Library) -> CompiledChannels:
    """Return every stage of a spec whose rows are channels, in order; nothing is written.

    Raises:
        FusegenError: a mistake in it.
    """
    name, channels = spec.name, tuple(each.name for each in spec.tensors if each.along == 1)
    if any(each.along == 1 for each in spec.tensors[: len(spec.tensors) - len(channels)]):
        raise NotStatistics(spec.span, problem="tensors along dimension 1 stand behind all others")
    declared = timed(f"{name}: compose", real, spec, library)
    check_reductions(spec, declared, channels)
    if spec.reduction != "none":
        raise NoRowValues(spec.at("reduction"), reduction=spec.reduction)
    eager = eager_operations(spec, library)
    of_channels = dict.fromkeys(channels, Level.ROW)
    once = timed(f"{name}: repeats", once_each, declared, of_channels)
    backward = timed(f"{name}: derive", derive_rows, once, [Level.ELEMENT], (), channels)
    made = Both(
        _scheduled(spec, attached(declared), channels, 0),
        _scheduled(spec, attached(backward), channels, len(channels)),
    )
    both = Both(*(simplified(spec, each) for each in made))
    return CompiledChannels(spec, library, declared, eager, both, phase_kernels(name, both), channels)


def _scheduled(spec: Spec, program: Program, channels: Collection[str], sums: int) -> Schedule:
    """Return the phases of a program, of which the first one finds the mean and the variance.

    Raises:
        NotStatistics: it has none, or reduces more in front of the last phase but one.
    """
    program = flat(program, dict.fromkeys(channels, Level.ROW))
    terms = {let.name: let.term for let in program.lets}
    for total, term in terms.items():
        if is_fold(term) and term.spec == SUM.name:
            found = _with_moments(program, channels, total)
            if found is not None:
                made = schedule(found, (), (*channels, MEAN, VAR), sums)
                of = levels(program, dict.fromkeys(channels, Level.ROW))
                averaged = part_of(program, of, term.args[:1])
                if averaged.params:
                    raise NotStatistics(spec.span, problem=f"what is averaged reads {averaged.params[0]}")
                first = replace(made.phases[0], elements=averaged, folds=MOMENTS, folded=(MEAN, VAR))
                if made.stored is Level.ELEMENT and len(made.phases) <= 2 + bool(sums):
                    params = (*program.params, *channels)
                    return replace(made, params=params, phases=(first, *made.phases[1:]))
    raise NotStatistics(spec.span, problem=f"reductions {PAIR}")


def _with_moments(program: Program, channels: Collection[str], total: str) -> Program | None:
    """Return a program that reads the mean and the variance of what is summed as values that are given."""
    of = levels(program, dict.fromkeys(channels, Level.ROW))
    steps: dict[str, Term] = {}
    for let in program.lets:
        if of[let.name] is Level.ELEMENT:
            steps[let.name] = substitute(let.term, steps)
    terms = {let.name: let.term for let in program.lets}
    mean = call("mul", Name(total), Name(SHARE))
    element = substitute(_folded(terms[total]), steps)
    for name, term in terms.items():
        if is_fold(term) and name != total:
            match substitute(_folded(term), steps):
                case Apply("square", (Apply("sub", (left, Name(center))),)) | Apply(
                    "pow", (Apply("sub", (left, Name(center))), Number(2))
                ) if left == element and terms.get(center) == mean:
                    given: dict[Term, Term] = {
                        mean: Name(MEAN),
                        call("mul", Name(name), Name(SHARE)): Name(VAR),
                    }
                    return _replaced(program, given, {total, name})
    return None


def _folded(term: Term) -> Term:
    assert is_fold(term)
    return term.args[0]


def _replaced(program: Program, given: dict[Term, Term], folds: set[str]) -> Program | None:
    """Return a program without two folds, if it reads them in given terms only."""

    def change(term: Term) -> Term:
        return given.get(term) or rebuild(term, change)

    lets = tuple(Let(let.name, change(let.term)) for let in program.lets if let.name not in folds)
    results = tuple(map(change, program.results))
    if folds & {name for term in (*(let.term for let in lets), *results) for name in names(term)}:
        return None
    return Program(program.inputs, (*program.params, MEAN, VAR), lets, results)
