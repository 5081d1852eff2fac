"""A spec and the specs it names, put together into one `Program`.

A chain's steps are applied one after the other. Whatever a step needs more than once is bound to a name:
the lines of `where` keep theirs, the value of a step `relu` is called `after_relu`. Names taken from
another spec are renamed where they would meet a name already in use.

An eager program is one of the operations that PyTorch would run, each followed by `round_to_storage`,
eager's rounding to the storage type. A spec whose `reference` is one of the kernels of `aten.ATEN` is one
such operation, and stays a call of it.
"""

from fractions import Fraction

from fusegen.algebra.compose.composer import Composer, Library
from fusegen.algebra.compose.eager_program import EagerComposer, fused_call
from fusegen.core.aten import ATEN
from fusegen.core.folds import LENGTH, makes_a_loop
from fusegen.core.poolings import is_reduced
from fusegen.core.spec import Spec
from fusegen.core.term import Apply, Let, Name, Number, Program, SpecCall, Term, needed, rebuild, walk
from fusegen.errors import SpecErrors, TooMany

ZERO = Number(Fraction(0))
MAX_SIZE = 512  # of a program, whose errors are estimated at some thousand points; specs have 2 to 28

__all__ = ["Library", "compose", "compose_eager", "expanded", "fused_call"]


def compose(spec: Spec, library: Library, known: tuple[str, ...] = ()) -> Program:
    """Return the program of a spec over the real numbers.

    Args:
        spec: what to compose.
        library: finds other specs by name.
        known: names to suggest.

    Raises:
        SpecErrors: every step and call that does not fit.
    """
    return _composed(spec, Composer(library, known, _names(spec), spec.over))


def compose_eager(spec: Spec, library: Library, known: tuple[str, ...]) -> Program:
    """Return the program of PyTorch's own operations, rounded after each; as for `compose`."""
    numbers = {*(each.name for each in spec.scalars), LENGTH}
    composer = EagerComposer(library, known, _names(spec), spec.over, numbers=numbers)
    return _composed(spec, composer)


def _names(spec: Spec) -> list[str]:
    """Return the names of inputs and parameters."""
    names = [*(each.name for each in spec.tensors), *(each.name for each in spec.scalars)]
    return [*names, LENGTH] if is_reduced(spec) else names


def _composed(spec: Spec, composer: Composer) -> Program:
    inputs, params = (tuple(v.name for v in values) for values in (spec.tensors, spec.scalars))
    values: dict[str, Term] = {name: Name(name) for name in inputs + params}
    if is_reduced(spec):
        params = (*params, LENGTH)
    # as kernels read them
    values |= {name: Apply("ne", (Name(name), ZERO)) for name in sorted(spec.conditions)}
    if spec.bias:
        first = spec.inputs[0].name
        added = composer.operation(Apply("add", (Name(first), Name(spec.bias.name))))
        values[first] = composer.bind(f"{first}_with_bias", added)
    result = composer.value(spec, values, (spec.name,))
    if composer.errors:
        raise SpecErrors(composer.errors)
    results = tuple(values[name] for name in spec.results) or (result,)
    program = Program(inputs, params, needed(composer.lets, results), results)
    if sum(1 for term in program.terms for part in walk(term) if not _rounds(part)) > MAX_SIZE:
        where = spec.formula.span if spec.formula is not None else spec.chain[-1].span
        parts, remedy = "operations and operands", "compute it by several modules, one after the other"
        raise SpecErrors([TooMany(where, what="the spec", limit=MAX_SIZE, parts=parts, remedy=remedy)])
    return program


def _rounds(term: Term) -> bool:
    return isinstance(term, Apply) and term.op == "round_to_storage"


def expanded(program: Program) -> Program:
    """The program with each call of one of PyTorch's kernels replaced by what that kernel computes."""

    def expand(term: Term) -> Term:
        term = rebuild(term, expand)
        if not isinstance(term, SpecCall) or makes_a_loop(term):
            return term
        return ATEN[term.spec].forward(*term.args)

    lets = tuple(Let(let.name, expand(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(expand, program.results)))
