"""Modules that one model runs, and work that is done side by side."""

import _thread
import contextlib
import os
import queue
import sys
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

MODULES, PASSES = "_companions", "_passes"  # attributes of the kernels of a module


def join(several: "Iterable[Any]", *passes: str) -> None:
    """Tell modules that one model runs them all: the first use of one builds its like of all.

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
    """Return the modules and passes that a model runs with a kernel of one, but for that kernel itself."""
    passes = {kernel, *vars(kernels).get(PASSES, ())}
    modules = [*vars(kernels).get(MODULES, {}).values()]  # to which another thread may add
    every = ((each, each_pass) for each in modules for each_pass in sorted(passes) if has(each, each_pass))
    return [one for one in every if one[0] is not kernels or one[1] != kernel]


def has(kernels: Any, kernel: str) -> bool:
    """Return True if a module has a kernel, as each has a forward and a backward one."""
    return kernel in ("forward", "backward", kernels.sources.joined)


def each(
    work: "Callable[[Any], Any]", items: "Sequence[Any]", most: "Optional[int]" = None
) -> "Iterator[Tuple[Any, Any]]":
    """Yield items with the result of their work or its exception, by threads.

    Args:
        work: to do on each item.
        items: these.
        most: threads; by itself one for each processor, or MAX_JOBS, which PyTorch's own builds read.
    """
    count = min(len(items), most or jobs())
    if count == 1:  # in the caller's thread, which Ctrl+C interrupts
        yield from ((item, outcome(work, item)) for item in items)
        return
    waiting: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
    ended: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    left = list(items)
    with contextlib.ExitStack() as stack:
        stack.callback(sys.setdlopenflags, sys.getdlopenflags())  # PyTorch changes them as it loads
        stack.callback(lambda: [ended.get() for _ in left])  # so that no thread works on
        for _ in range(count):
            _thread.start_new_thread(_work, (work, waiting, ended))
        while left:
            left.pop()
            yield ended.get()


def _work(work: "Callable[[Any], Any]", waiting: Any, ended: Any) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            item = waiting.get_nowait()
            ended.put((item, outcome(work, item)))


def jobs() -> int:
    """Return the number of builds that run at once."""
    given = os.environ.get("MAX_JOBS", "")
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return max(1, int(given)) if given.isdigit() else len(allowed(0))


class _Outcome:
    """The result of a block, or its exception."""

    found: Any = None

    def __enter__(self) -> "_Outcome":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.found = self.found if error is None else error
        return isinstance(error, Exception)


def outcome(work: "Callable[[Any], Any]", item: Any) -> Any:
    """Return the result of work on an item, or its exception."""
    with _Outcome() as block:
        block.found = work(item)
    return block.found
