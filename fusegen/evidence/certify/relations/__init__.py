"""Relations between calls of one function: what does not change its results has to leave every bit.

No exact value is needed. Each row of `RELATIONS` is a relation; its cases are calls that are compared with
one contiguous call at 4,096 of the judged points, drawn with the seed `trial.SEED`. A call that PyTorch's
function refuses as well is no case; neither is one that a callable beside a formula refuses.

    trial            the points, and the results of the contiguous call
    incoming         the incoming gradient: scaled, and in other layouts
    autograd_modes   autograd, torch.func, out= and in place
    memory_layouts   strides, gaps, ranks, lengths; another layout for one of several inputs
    sizes            broadcast operands, large tensors, special values together
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from fusegen.evidence.certify.findings import Function, Relations, Subject
from fusegen.evidence.certify.relations import autograd_modes, incoming, memory_layouts, sizes
from fusegen.evidence.certify.relations.trial import Case, Compared, Trial, trial

RELATIONS: dict[str, Callable[[Trial], Iterator[Case]]] = {
    "linear in the incoming gradient": incoming.linear,
    "one result in every layout of the incoming gradient": incoming.incoming_layouts,
    "one result in every mode": autograd_modes.modes,
    "one result in every layout": memory_layouts.layouts,
    "one result where layouts differ": memory_layouts.layouts_that_differ,
    "one result of broadcast inputs": sizes.broadcast,
    "one result in every size": sizes.sizes,
    "NaN as in eager": sizes.specials,
}
CaseCall = Callable[[Trial], Iterable[Compared]]
MOST_NAMED = 3  # cases of a broken relation that its sentence names


def judged_relations(subject: Subject, device: str, dtype: torch.dtype) -> Relations:
    """Judge the relations of a subject on a device in one dtype.

    Raises:
        ValueError: the function overwrites its input, or gives other results the second time.
    """
    tried = trial(subject, device, dtype)
    if tried is None:
        return Relations()
    kept, broken = 0, []
    for relation, cases in RELATIONS.items():
        found: dict[str, str] = {}
        for name, case in cases(tried):
            said = _broken(tried, case)
            kept += said == ""
            if said:
                found[name] = said
        if found:
            broken.append(_sentence(relation, found))
    return Relations(kept, tuple(broken))


def _broken(tried: Trial, case: CaseCall) -> str | None:
    """Say what a case breaks: nothing if it is kept, and None if it is no case."""
    try:
        return _difference(tried, case)
    except Exception as error:  # whatever a stranger's function raises
        if tried.eager is None or _refused(tried, tried.eager, case):
            return None
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"the call fails, {why}"


def _refused(tried: Trial, eager: Function, case: CaseCall) -> bool:
    """True if PyTorch's function refuses a call, too; it takes none of the keywords, which are left out."""
    try:
        _difference(replace(tried, function=lambda *tensors, **keywords: eager(*tensors)), case)
    except Exception:
        return True
    return False


def _difference(tried: Trial, case: CaseCall) -> str:
    """Say which results of a call differ: of the output that has most of them, with one of its inputs."""
    most, said = 0, ""
    for compared in case(tried):
        count = int(compared.differ.sum())
        if count > most:
            most, total = count, compared.differ.numel()
            said = f"{count:,} of {total:,} results of {compared.output} differ{_example(tried, compared)}"
    return said


def _example(tried: Trial, compared: Compared) -> str:
    """Name the inputs of the first result that differs, where it is of one point."""
    if compared.index is None or compared.index.shape != compared.differ.shape:
        return ""
    place = compared.index.flatten()[compared.differ.flatten().nonzero()[0]]
    each = zip(tried.names, compared.points or tried.points, strict=True)
    return f", as at {', '.join(f'{name} = {float(column[place]).hex()}' for name, column in each)}"


def _sentence(relation: str, found: dict[str, str]) -> str:
    """Say which cases of a relation are broken, the first of them at length."""
    (first, said), *others = found.items()
    names = [name for name, _ in others[:MOST_NAMED]]
    if len(others) > MOST_NAMED:
        names.append(f"{len(others) - MOST_NAMED} more cases")
    return f"{relation}: with {first}, {said}{'; also with ' + ', '.join(names) if names else ''}"
