"""The text of a module: its kernels in the order in which they run, and the class that runs them."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from fusegen.codegen.render import fill, long_lines
from fusegen.codegen.render.python import Context

MODULE, OPERATORS, CLASS = "module.py.j2", "operators.py.j2", "class.py.j2"
CONSTANTS = ("SHARED_SOURCE", "CUDA_SOURCE", "CPU_SOURCE", "CONVOLUTION_SOURCE", "KERNELS")
FUNCTIONS = ("eager", "eager_gradient")
OWN = re.compile(  # the names that the text of one kernel makes in its module
    rf"\b(?:{'|'.join(CONSTANTS)})\b|(?:(?<=def )|(?<==))(?:{'|'.join(FUNCTIONS)})\b"
)
Fronts = Mapping[str, Context]  # what the templates take of the kernels in front of the last one, by name
NONE: Fronts = MappingProxyType({})
LAST = ""  # the name of the last kernel among those of a module


def module(own: Context, fronts: Fronts = NONE) -> str:
    """Return the text of a module, from what templates take of its last kernel and of those in front."""
    ahead = [_renamed(name, line) for name, front in fronts.items() for line in _ran(front)]
    checked = [_renamed(name, line) for name, front in fronts.items() for line in front["checked"]]
    counts = [f"{name}. {line}" for name, front in fronts.items() for line in front["counts"]]
    operators = [_renamed(name, fill(OPERATORS, front)) for name, front in fronts.items()]
    lines = {
        "constructor_lines": [*own["constructor_lines"], *checked],
        "forward_lines": [*ahead, *own["forward_lines"]],
    }
    context = {
        "operators": "\n\n".join([*operators, fill(OPERATORS, own)]),
        "model": fill(CLASS, own | lines),
        "counts": [*counts, *own["counts"]],
    }
    return _filled(own | context, fronts)


def apart(own: Context, fronts: Fronts) -> dict[str, str]:
    """Return the text of a module of each kernel alone, by its name, from what `module` takes.

    The last one has the class, which calls the functions of the others; the layer of one is `NAME_layer`.
    """
    texts = {
        name: _filled(front | {"operators": fill(OPERATORS, front), "model": ""})
        for name, front in fronts.items()
    }
    layers = {
        name: front["layer_call"].replace("KERNELS.layer(", f"{name}_layer(")
        for name, front in fronts.items()
    }
    ahead = [line for name, front in fronts.items() for line in _ran(front | {"layer_call": layers[name]})]
    model = fill(CLASS, own | {"forward_lines": [*ahead, *own["forward_lines"]]})
    return texts | {LAST: _filled(own | {"operators": fill(OPERATORS, own), "model": model})}


def _filled(context: Context, fronts: Fronts = NONE) -> str:
    """Return the text of a module, with what it imports and where its evidence lies."""
    classes = ["BatchStatistics"] * bool(context["statistics"])
    classes += sorted({each["runtime_class"] for each in (context, *fronts.values())})
    titles = ("", *(f".{name}" for name in fronts))
    names = {
        "certificates": [f"{context['name']}{title}.certificate.txt" for title in titles],
        "imported": [*classes, "Sources"],
    }
    return long_lines.python(fill(MODULE, context | names))


def _ran(front: Context) -> list[str]:
    """Return the lines that run the layers of a kernel in front, and this."""
    return [*front["layer_lines"], f"{front['first']} = {front['layer_call'] or front['function_call']}"]


def _renamed(name: str, text: str) -> str:
    """Return a text in which the names that a kernel makes begin with its own."""
    return OWN.sub(lambda found: f"{name.upper() if found[0].isupper() else name}_{found[0]}", text)
