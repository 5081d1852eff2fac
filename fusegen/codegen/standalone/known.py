"""Modules whose kernels a file runs in loops of its own: what they may have, and what they include."""

import re
from dataclasses import dataclass

from fusegen.codegen.standalone.reading import Module

KEYWORDS = "interface eager eager_gradient forward backward sources "  # of every registration
METHODS = "function scalar with_options write run "  # of KERNELS
OWN = (  # names of every file
    "torch ctypes nn Tensor Call Kernels LIBRARY TYPES NAME ctx run operator kernels plain known eager "
    "transformed "
)
REGISTERED = re.compile(r"^\w*KERNELS = (\w+)\(", re.MULTILINE)
CALLED = re.compile(r"\bKERNELS\.(\w+)")
LOOPS = ("rows", "windows", "channels", "parts", "wide_values")  # headers of both devices
LAUNCHES = ("window_layouts", "row_total", "wide_total")  # of CUDA
INCLUDED = {  # by modules, and by files in its place: what scans join is in a header of its own
    '"cuda/scans.cuh"': '"cuda/math.cuh"\n#include "scan_phases.h"',
    '"cpu/scans.h"': '"cpu/math.h"\n#include "scan_phases.h"',
    **{f'"cuda/{name}.cuh"': '"cuda/math.cuh"' for name in (*LOOPS, *LAUNCHES)},
    **{f'"cpu/{name}.h"': '"cpu/math.h"' for name in LOOPS},
    **{f'"cuda/{name}.cuh"': '"cuda/exp_below.cuh"' for name in ("largest_and_terms", "wide_terms")},
}


@dataclass(frozen=True)
class Known:
    """All that files of a kind know of a module, in words.

    Attributes:
        kernels: the class of its kernels in the runtime.
        keywords: of its registration, beside those of every one.
        methods: of its kernels, beside those of all.
        own: names of the file, which the module's functions and tensors must not have.
    """

    kernels: str
    keywords: str
    methods: str
    own: str

    def read(self, text: str) -> Module | None:
        """Return the module of a text, of which all is known; None where something is not."""
        if REGISTERED.findall(text) != [self.kernels]:
            return None
        module = Module(text)
        pairs = (
            (CALLED.findall(text), METHODS + self.methods),
            (module.given, KEYWORDS + self.keywords),
        )
        is_known = all(set(found).issubset(words.split()) for found, words in pairs)
        return module if is_known and self.leaves([module.name, *module.signature("forward")]) else None

    def leaves(self, names: list[str]) -> bool:
        """Return True if the file has no names of its own among some."""
        return set(names).isdisjoint((OWN + self.own).split())


def with_headers_of_files(module: str) -> str:
    """Return a module's text that includes what files do."""
    for header, other in INCLUDED.items():
        module = module.replace(header, other)
    return module
