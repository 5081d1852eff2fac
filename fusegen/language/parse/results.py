"""A formula of several results: a map from their names to formulas, in which one may read another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from fusegen.core.poolings import poolings
from fusegen.core.row_dimensions import Over
from fusegen.core.spec import MAX_INPUTS, Named, Spec
from fusegen.core.term import Name, walk
from fusegen.errors import Empty, FusegenError, NameTaken, NotWithResults, ResultCycle, TooMany
from fusegen.language.parse import document as yaml
from fusegen.language.parse.formula import parse_formula
from fusegen.language.parse.names import check_variable
from fusegen.language.parse.shapes import as_mapping, as_scalar

EXAMPLE = "formula: {y: s * sigmoid(s), s: a + b}"
Collecting = Callable[[], AbstractContextManager[None]]


def read_results(
    node: yaml.Node, variables: Sequence[str], steps: Sequence[str], collecting: Collecting
) -> tuple[Named, ...]:
    """Return the results of a formula in the order in which they are declared; none where it is one alone.

    Args:
        node: the formula.
        variables: the names that it may read, besides named steps and its results.
        steps: the named steps.
        collecting: notes a mistake and goes on.

    Raises:
        Empty, TooMany: there are none, or too many.
    """
    if not isinstance(node, yaml.Mapping):
        return ()
    entries = as_mapping(node, "formula", "a map from names", EXAMPLE).entries
    if not entries:
        raise Empty(node.span, key="formula", remedy=f"name its results, as in  {EXAMPLE}")
    if len(entries) > MAX_INPUTS:
        remedy = "compute them by several modules"
        raise TooMany(node.span, what="the formula", limit=MAX_INPUTS, parts="results", remedy=remedy)
    names, found = [key for key, _, _ in entries], list[Named]()
    for key, span, value in entries:
        with collecting():
            check_variable(key, span)
            if key in (*variables, *steps):
                holder = "a named step" if key in steps else "an input or a parameter"
                raise NameTaken(span, name=key, holder=holder)
            scalar = as_scalar(value, key, "a formula", EXAMPLE)
            found.append(
                Named(key, parse_formula(scalar.text, scalar.at, [*variables, *steps, *names]), span)
            )
    return tuple(found)


def in_order(lines: Sequence[Named]) -> tuple[Named, ...]:
    """Return named steps and results, each behind those that it reads.

    Raises:
        ResultCycle: one reads itself.
    """
    by_name = {each.name: each for each in lines}
    reads = {
        name: [part.name for part in walk(each.term) if isinstance(part, Name) and part.name in by_name]
        for name, each in by_name.items()
    }
    try:
        return tuple(by_name[name] for name in TopologicalSorter(reads).static_order())
    except CycleError as error:
        cycle = error.args[1][::-1]
        raise ResultCycle(by_name[cycle[0]].span, name=cycle[0], cycle=" -> ".join(cycle)) from None


def with_results(spec: Spec, results: Sequence[Named]) -> Spec:
    """Return a spec with results, which are lines of its `where`; several run in the kernels of rows."""
    if not results:
        return spec
    spec = replace(spec, formula=Name(results[0].name))
    if not results[1:]:
        return spec
    return replace(
        spec, results=tuple(each.name for each in results), over=spec.over or Over(-1, is_declared=False)
    )


def results_are_plain(spec: Spec) -> Iterator[FusegenError]:
    """Yield mistakes of a spec with several results: what its kernels, those of rows, do not take."""
    if not spec.results:
        return
    is_split = any(each.split is not None for each in spec.inputs)
    is_of_channel = bool(spec.over and spec.over.of_channel)
    cases: list[tuple[str, bool, str, str]] = [  # the key, whether it is refused, what it is, what to do
        ("numerics", spec.numerics == "eager", "numerics: eager", "leave it out; results are rounded once"),
        ("reference", bool(spec.reference), "a reference", "leave it out"),
        ("formula", any(poolings(spec)), "a pooling", "pool in another spec"),
        ("reduction", spec.reduction != "none", f"reduction: {spec.reduction}", "return values of rows"),
        ("inputs", is_split, "split", "declare two inputs"),
        ("over", is_of_channel, str(spec.over), "return the norm alone"),
    ]
    for key, is_refused, what, remedy in cases:
        if is_refused:
            yield NotWithResults(spec.at(key), what=what, remedy=remedy)
    if len(spec.results) + len(spec.tensors) >= MAX_INPUTS:
        remedy = "the gradient reads a tensor for each; compute them by several modules"
        parts = "tensors and results"
        yield TooMany(spec.span, what=spec.name, limit=MAX_INPUTS - 1, parts=parts, remedy=remedy)
