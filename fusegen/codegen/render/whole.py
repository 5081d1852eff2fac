"""The text of a module: its kernels in the order in which they run, and the class that runs them."""

import re
from collections.abc import Sequence

from fusegen.codegen.render import fill, long_lines
from fusegen.codegen.render.python import Context

MODULE, OPERATORS = "module.py.j2", "operators.py.j2"
CONSTANTS = ("SHARED_SOURCE", "CUDA_SOURCE", "CPU_SOURCE", "CONVOLUTION_SOURCE", "KERNELS")
FUNCTIONS = ("eager", "eager_gradient")
OWN = re.compile(  # the names that the text of one kernel makes in its module
    rf"\b(?:{'|'.join(CONSTANTS)})\b|(?:(?<=def )|(?<==))(?:{'|'.join(FUNCTIONS)})\b"
)


def module(
    own: Context,  # what the templates take, of the last kernel
    fronts: Sequence[tuple[str, Context]] = (),  # the same of those in front of it, with their names
) -> str:
    """Return the text of a module."""
    ahead = [line for name, front in fronts for line in _ran(name, front)]
    checked = [_renamed(name, line) for name, front in fronts for line in front["checked"]]
    classes = ["BatchStatistics"] * bool(own["statistics"])
    classes += sorted({each["runtime_class"] for each in (own, *(front for _, front in fronts))})
    counts = [f"{name}. {line}" for name, front in fronts for line in front["counts"]]
    titles = ("", *(f".{name}" for name, _ in fronts))
    operators = [_renamed(name, fill(OPERATORS, front)) for name, front in fronts]
    context = {
        "certificates": [f"{own['name']}{title}.certificate.txt" for title in titles],
        "operators": "\n\n".join([*operators, fill(OPERATORS, own)]),
        "imported": [*classes, "Sources"],
        "counts": [*counts, *own["counts"]],
        "constructor_lines": [*own["constructor_lines"], *checked],
        "forward_lines": [*ahead, *own["forward_lines"]],
    }
    return long_lines.python(fill(MODULE, {**own, **context}))


def _ran(name: str, front: Context) -> list[str]:
    """Return the lines that run the layers of a kernel in front, and this."""
    call = front["layer_call"] or front["function_call"]
    return [_renamed(name, line) for line in (*front["layer_lines"], f"{front['first']} = {call}")]


def _renamed(name: str, text: str) -> str:
    """Return a text in which the names that a kernel makes begin with its own."""
    return OWN.sub(lambda found: f"{name.upper() if found[0].isupper() else name}_{found[0]}", text)
