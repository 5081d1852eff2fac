"""The modules of the library, which come with fusegen."""

import functools
import inspect
import pkgutil
from types import ModuleType

PACKAGE = "fusegen.generated"


def module(name: str) -> ModuleType:
    """Import a module of the library, under the lock that Python has for each module."""
    found: ModuleType = pkgutil.resolve_name(f"{PACKAGE}.{name}")
    return found


def numbers_of(name: str) -> dict[str, float]:
    """Return the arguments of a module that are numbers, with their defaults."""
    given = inspect.signature(module(name).ModelNew).parameters.values()
    return {
        each.name: each.default for each in given if each.annotation == "float" or each.annotation is float
    }


def names() -> tuple[str, ...]:
    """Return the modules of pointwise functions."""
    return _names(PACKAGE)


def row_names() -> tuple[str, ...]:
    """Return the modules of functions of rows, in their folder."""
    return _names(f"{PACKAGE}.rows")


def batch_names() -> tuple[str, ...]:
    """Return the modules of functions of channels, in their folder."""
    return _names(f"{PACKAGE}.batches")


@functools.cache
def _names(package: str) -> tuple[str, ...]:
    """Return the modules of a package, those of short names first."""
    found = pkgutil.iter_modules(pkgutil.resolve_name(package).__path__)
    return tuple(
        sorted((each.name for each in found if not each.ispkg), key=lambda name: (len(name), name))
    )
