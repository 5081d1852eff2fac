"""From printed functions to the text of a module; the only file that knows jinja2.

Templates hold the shell of a file and receive finished strings: nothing is decided in them. A name that a
template uses and the context lacks, or the other way round, is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta

from fusegen.elements import ELEMENTS, maths
from fusegen.ir import Device
from fusegen.spec import Fill, Spec

MODULE = "module.py.j2"


@dataclass(frozen=True, slots=True)
class Texts:
    """What the printers wrote for one spec.

    Attributes:
        notation: the formula in mathematical notation.
        counts: one line that counts the operations.
        notes: per device, comment lines that say what differs from the formula, and why.
        functions: per device, the functions of the table that its kernels call.
        definitions: per device, the function of one element in each math type.
        rounds: whether operations are followed by eager's rounding.
    """

    notation: str
    counts: str
    notes: dict[Device, tuple[str, ...]]
    functions: dict[Device, tuple[str, ...]]
    definitions: dict[Device, tuple[str, ...]]
    rounds: bool


def sources(spec: Spec, texts: Texts) -> dict[str, str]:
    """The C++ texts of a module, by the part of it they are."""
    inputs, params = [i.name for i in spec.inputs], [p.name for p in spec.params]
    elements = [ELEMENTS[dtype] for dtype in spec.dtypes]

    def value(*values: str) -> str:
        arguments = [*values, *(f"p.{name}" for name in params)]
        return f"{spec.name}_formula{'<T>' if texts.rounds else ''}({', '.join(arguments)})"

    shared = {
        "name": spec.name,
        "elements": elements,
        "headers": [element.header for element in elements if element.header],
        "float16": "float16" in spec.dtypes,
        "inputs": inputs,
        "params": params,
        "notation": texts.notation,
        "rounds": texts.rounds,
    }
    cuda = {
        "notes": texts.notes[Device.CUDA],
        "functions": texts.functions[Device.CUDA],
        "definitions": texts.definitions[Device.CUDA],
        "call": value(*(f"load({name}_v.at[k])" for name in inputs)),
        "params_argument": ", const Params<decltype(load(T()))> p" if params else "",
    }
    cpu = {
        "notes": texts.notes[Device.CPU],
        "functions": texts.functions[Device.CPU],
        "definitions": texts.definitions[Device.CPU],
        "tile_call": value(*(f"{name}_m[j]" for name in inputs)),
        "dense_call": value(*(f"load({name}_in[k])" for name in inputs)),
        "strided_call": value(*(f"load({name}_in[k * {name}_step])" for name in inputs)),
    }
    schema = [f"Tensor {name}" for name in inputs] + [f"float {name}" for name in params]
    binding = {"schema_arguments": ", ".join(schema), "dtypes": _either(spec.dtypes)}
    return {
        "call": fill("call.h.j2", shared),
        "cuda_prelude": fill("prelude.cu.j2", shared),
        "cuda": fill("kernel.cu.j2", shared | cuda),
        "cpu_prelude": fill("prelude.cpp.j2", shared),
        "cpu": fill("kernel.cpp.j2", shared | cpu),
        "binding": fill("binding.cpp.j2", shared | binding),
    }


def module(spec: Spec, texts: Texts) -> str:
    """The whole text of a generated module."""
    inputs, params = [i.name for i in spec.inputs], [p.name for p in spec.params]
    defaults = [f"{p.name}={float(p.default)!r}" for p in spec.params]
    constructor = [name for name, _ in spec.init] + defaults
    first = inputs[0]
    context: dict[str, Any] = {
        "name": spec.name,
        "digest": spec.digest,
        "summary": spec.summary,
        "source": spec.source,
        "notation": texts.notation,
        "counts": texts.counts,
        "inputs": inputs,
        "params": params,
        "dtypes": _either(spec.dtypes),
        "computed": " or ".join(math.value for math in maths(spec.dtypes)),
        "rounding": "rounded after every operation" if texts.rounds else "rounded once",
        "shape": f"{first} of any shape, with any strides"
        if len(inputs) == 1
        else f"{', '.join(inputs)} of shapes that broadcast, with any strides",
        "constructor": "".join(f", {argument}" for argument in constructor),
        "layers": [
            f"{layer.attribute} = nn.{layer.kind}({', '.join(layer.args)})" for layer in spec.layers
        ],
        "layer_calls": [f"{first} = self.{layer.attribute}({first})" for layer in spec.layers],
        "model_arguments": ", ".join([*inputs, *(f"self.{name}" for name in params)]),
        "function_parameters": ", ".join([*inputs, *defaults]),
        "function_arguments": ", ".join([*inputs, *params]),
        "example_inputs": [_example(i.shape, i.fill) for i in spec.inputs],
        "example_init": [value for _, value in spec.init],
        **{f"{part}_source": text for part, text in sources(spec, texts).items()},
    }
    return fill(MODULE, context)


def fill(template: str, context: dict[str, Any]) -> str:
    """A template filled in; its names and the context's have to be the same."""
    environment = _environment()
    text = (_folder() / template).read_text(encoding="utf-8")
    wanted = jinja2.meta.find_undeclared_variables(environment.parse(text))
    assert wanted <= set(context), f"{template} wants {sorted(wanted - set(context))}"
    return environment.from_string(text).render(context)


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )


def _folder() -> Path:
    """The templates: inside the installed package, or beside it in a checkout."""
    inside = Path(str(resources.files("fusegen"))) / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"


def _either(words: tuple[str, ...]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _example(shape: tuple[int, ...], filling: Fill) -> str:
    sizes = ", ".join(map(str, shape)) or "()"
    if filling.kind != "uniform":
        return f"torch.{filling.kind}({sizes})"
    return f"torch.empty({sizes}).uniform_({filling.low!r}, {filling.high!r})"
