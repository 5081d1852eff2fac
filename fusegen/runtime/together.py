"""Modules that one model runs, and work that is done side by side."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, List, Sequence, Tuple

MODULES, PASSES = "_companions", "_passes"  # attributes of the kernels of a module


def join(several: "Iterable[Any]", *passes: str) -> None:
    """Tell modules that one model runs them all: the first use of one builds the same pass of all.

    Modules of another runtime build by themselves.

    Args:
        several: the kernels of each module.
        passes: further ones that are needed, too.
    """
    every = list(several)
    for kernels in every:
        alike = {id(each): each for each in every if type(each) is type(kernels)}
        vars(kernels).setdefault(MODULES, {}).update(alike)
        vars(kernels).setdefault(PASSES, set()).update(passes)


def companions(kernels: Any, kernel: str) -> "List[Tuple[Any, str]]":
    """Return the kernels and passes that a model runs with a pass of a module, but for that pass itself."""
    passes = {kernel, *vars(kernels).get(PASSES, ())}
    modules = vars(kernels).get(MODULES, {}).values()
    every = ((each, each_pass) for each in modules for each_pass in sorted(passes))
    return [one for one in every if one[0] is not kernels or one[1] != kernel]


def each(work: "Callable[[Any], Any]", items: "Sequence[Any]") -> "Iterator[Tuple[Any, Any]]":
    """Yield items with the result of their work or its exception, by a thread for each processor.

    MAX_JOBS, which PyTorch's own builds read, may ask for fewer.
    """
    if len(items) == 1:  # in the caller's thread, which Ctrl+C interrupts
        yield items[0], _tried(work, items[0])
        return
    flags = sys.getdlopenflags()  # which PyTorch changes while it loads a library, in each thread
    try:
        with ThreadPoolExecutor(min(len(items), jobs())) as pool:
            yield from zip(items, pool.map(lambda item: _tried(work, item), items))
    finally:
        sys.setdlopenflags(flags)


def jobs() -> int:
    """Return the number of builds that run at once."""
    given = os.environ.get("MAX_JOBS", "")
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return max(1, int(given)) if given.isdigit() else len(allowed(0))


def _tried(work: "Callable[[Any], Any]", item: Any) -> Any:
    try:
        return work(item)
    except Exception as error:
        return error
