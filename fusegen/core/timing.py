"""Steps of a run and their seconds, as records of the logger ``fusegen``, which `--verbose` shows."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

LOG = logging.getLogger("fusegen")  # of the runtime of modules, too
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def step(title: str) -> Iterator[None]:
    """Logs a step with its seconds when it ends, also by an error."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        LOG.info("%7.2f s  %s", time.perf_counter() - begin, title)


def timed(title: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a function, whose call is a step."""
    with step(title):
        return function(*args, **kwargs)
