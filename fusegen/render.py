"""From printed functions to the text of a module; the only file that knows jinja2.

Templates hold the shell of a file and receive finished strings: nothing is decided in them. A name that a
template uses and the context lacks, or the other way round, is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
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
QUALIFIERS = {Device.CUDA: "__device__ __forceinline__", Device.CPU: "inline"}


@dataclass(frozen=True, slots=True)
class KernelText:
    """What the printers wrote for one kernel.

    Attributes:
        name: the operator's name.
        functor: the C++ type that the kernel's template takes.
        inputs, outputs: the names of the tensors.
        notes: per device, comment lines above the function.
        definitions: per device, the function of one element in each math type.
        elements: per device, the statement that calls it.
    """

    name: str
    functor: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: dict[Device, tuple[str, ...]]
    definitions: dict[Device, tuple[str, ...]]
    elements: dict[Device, str]


@dataclass(frozen=True, slots=True)
class Texts:
    """What the printers wrote for one spec.

    Attributes:
        notation: the formula in mathematical notation.
        counts: a line for each kernel that counts its operations.
        forward, backward: the kernels.
        functions: per device, the functions of the table that the kernels call.
        scalars: the names of the scalars that the kernels read.
        uniforms: C++ statements for those of them that are computed from parameters.
        rounds: whether operations are followed by eager's rounding.
        eager: Python lines that compute the same by PyTorch's own operations.
        eager_gradient: likewise for the gradient, where it is read off the output.
        autocast: whether eager computes this in float32 under CUDA's autocast.
    """

    notation: str
    counts: tuple[str, ...]
    forward: KernelText
    backward: KernelText
    functions: dict[Device, tuple[str, ...]]
    scalars: tuple[str, ...]
    uniforms: tuple[str, ...]
    rounds: bool
    eager: tuple[str, ...]
    eager_gradient: tuple[str, ...]
    autocast: bool

    @property
    def from_output(self) -> bool:
        """Whether the gradient is read off the output."""
        return bool(self.eager_gradient)


def sources(spec: Spec, texts: Texts) -> dict[str, str]:
    """The C++ texts of a module, by the part of it they are."""
    elements = [ELEMENTS[dtype] for dtype in spec.dtypes]
    kernels = (texts.forward, texts.backward)
    shared = {
        "name": spec.name,
        "elements": elements,
        "headers": [element.header for element in elements if element.header],
        "float16": "float16" in spec.dtypes,
        "given": [p.name for p in spec.params],
        "scalars": texts.scalars,
        "uniforms": texts.uniforms,
        "rounds": texts.rounds,
        "dtypes": _either(spec.dtypes),
    }

    def kernel_source(device: Device) -> str:
        rows = [_kernel_row(kernel) | _device_row(kernel, device) for kernel in kernels]
        functions = texts.functions[device]
        own = {"kernels": rows, "functions": functions, "qualifier": QUALIFIERS[device]}
        return fill("kernel.j2", shared | own)

    return {
        "call": fill("call.h.j2", shared),
        "layout": fill("layout.cpp.j2", shared),
        "cuda_prelude": fill("prelude.cu.j2", shared),
        "cuda": kernel_source(Device.CUDA),
        "cpu_prelude": fill("prelude.cpp.j2", shared),
        "cpu": kernel_source(Device.CPU),
        "binding": fill(
            "binding.cpp.j2", shared | {"kernels": [_kernel_row(kernel) for kernel in kernels]}
        ),
    }


def _kernel_row(kernel: KernelText) -> dict[str, Any]:
    inputs, outputs = len(kernel.inputs), len(kernel.outputs)
    return {"name": kernel.name, "functor": kernel.functor, "inputs": inputs, "outputs": outputs,
            "tensors": inputs + outputs}  # fmt: skip


def _device_row(kernel: KernelText, device: Device) -> dict[str, Any]:
    definitions, element = kernel.definitions[device], kernel.elements[device]
    return {"notes": kernel.notes[device], "definitions": definitions, "element": element}


def module(spec: Spec, texts: Texts) -> str:
    """The whole text of a generated module."""
    inputs, params = [i.name for i in spec.inputs], [p.name for p in spec.params]
    first, arguments = inputs[0], [*inputs, *params]
    defaults = [f"{p.name}={float(p.default)!r}" for p in spec.params]
    split = spec.inputs[-1].split
    in_place = len(inputs) == 1 and not spec.layers
    attribute = spec.name if spec.name not in params else f"{spec.name}_kernels"
    extra = ["inplace=False"] if in_place else [f"dim={split}"] if split is not None else []
    keywords = ["out=None"] if split is None else []
    tensors = inputs if split is None else [first, f"{inputs[1]}=None"]
    constructor = [*(name for name, _ in spec.init), *defaults, *extra]
    kept = [*params, *(argument.split("=")[0] for argument in extra)]
    model = [*inputs, *(f"self.{name}" for name in params)]
    halved = [*(f"{name}=self.{name}" for name in params), "dim=self.dim"]
    gradient = [*texts.backward.inputs, *params]
    context: dict[str, Any] = {
        "name": spec.name,
        "attribute": attribute,
        "digest": spec.digest,
        "build_options": "",
        "summary": spec.summary,
        "source": spec.source,
        "notation": texts.notation,
        "counts": texts.counts,
        "inputs": inputs,
        "gradient_inputs": texts.backward.inputs,
        "first": first,
        "several": len(inputs) > 1,
        "inplace": in_place,
        "split": split is not None,
        "from_output": texts.from_output,
        "arguments": ", ".join(arguments),
        "gradient_arguments": ", ".join(gradient),
        "params_tuple": ", ".join(params) + ("," if len(params) == 1 else ""),
        "trailing_params": "".join(f", {name}" for name in params),
        "none_params": ", None" * len(params),
        "saves": "the output is" if texts.from_output else f"{' and '.join(inputs)} are"
        if len(inputs) > 1 else f"{first} is",
        "saved": "(output,)" if texts.from_output else "inputs[:INPUTS]",
        "unusual": _unusual(inputs),
        "differing_shapes": " or ".join(f"{first}.shape != {name}.shape" for name in inputs[1:]),
        "requires_grad": _any_of(f"{name}.requires_grad" for name in inputs),
        "call_on_clone": ", ".join([f"{first}.clone() if graded else {first}", *params]),
        "scalar_lines": _lines(params, 'if {0}.__class__ is not float:\n    {0} = scalar("{0}", {0})'),
        "autocast_lines": _lines(
            inputs if texts.autocast else (),
            'if {0}.is_cuda and torch.is_autocast_enabled("cuda") and {0}.element_size() == 2:\n    {0} = {0}.float()',
        ),
        "constructor": "".join(f", {argument}" for argument in constructor),
        "constructor_lines": [
            *(f"self.{layer.attribute} = nn.{layer.kind}({', '.join(layer.args)})" for layer in spec.layers),
            *(f"self.{name} = {name}" for name in kept),
        ],
        "forward_parameters": ", ".join(tensors),
        "forward_lines": [
            *(f"{first} = self.{layer.attribute}({first})" for layer in spec.layers),
            *(("if self.inplace:", f"    return {spec.name}({', '.join([*model, 'inplace=True'])})")
              if in_place else ()),
            *((f"if {inputs[1]} is None:", f"    return {spec.name}({', '.join([first, *halved])})")
              if split is not None else ()),
        ],
        "model_arguments": ", ".join(model),
        "function_parameters": ", ".join([*tensors, *defaults, *extra, *(["*"] if keywords else []), *keywords]),
        "function_lines": [
            *(("if inplace:", f"    return overwrite({', '.join(arguments)})") if in_place else ()),
            *((f"if {inputs[1]} is None:", f"    return halves({', '.join([first, 'dim', *params])})")
              if split is not None else ()),
            *(("if out is not None:", f"    return write(out, {', '.join(arguments)})") if keywords else ()),
        ],
        "doc": _doc(spec, texts, inputs, in_place, split),
        "eager_lines": texts.eager,
        "eager_gradient_lines": texts.eager_gradient or _pulled(texts.backward.inputs[0], inputs, params),
        "dtype_names": spec.dtypes,
        "schema": _schema(inputs, params),
        "kernels": [
            {
                "name": kernel.name,
                "schema": _schema(kernel.inputs, params),
                "returns": "Tensor" if len(kernel.outputs) == 1 else f"({', '.join(['Tensor'] * len(kernel.outputs))})",
                "out_schema": _schema(kernel.inputs, params, len(kernel.outputs)),
                "inputs": len(kernel.inputs),
                "outputs": len(kernel.outputs),
            }
            for kernel in (texts.forward, texts.backward)
        ],
        "example_inputs": [_example(i.shape, i.fill) for i in spec.inputs],
        "example_init": [value for _, value in spec.init],
        **{f"{part}_source": text for part, text in sources(spec, texts).items()},
    }  # fmt: skip
    return fill(MODULE, context)


def _unusual(inputs: list[str]) -> str:
    first, *others = inputs
    checks = [f"{first}.__class__ not in PLAIN", f"{first}.dtype not in DTYPES"]
    for name in others:
        checks += [f"{name}.__class__ not in PLAIN", f"{name}.dtype is not {first}.dtype"]
        checks += [f"{name}.device != {first}.device"]
    return " or ".join(checks)


def _any_of(conditions: Iterable[str]) -> str:
    text = " or ".join(conditions)
    return f"({text})" if " or " in text else text


def _lines(names: Iterable[str], pattern: str) -> list[str]:
    return [line for name in names for line in pattern.format(name).split("\n")]


def _doc(spec: Spec, texts: Texts, inputs: list[str], in_place: bool, split: int | None) -> list[str]:
    """What the plain function's docstring says below its first line."""
    first, listed = inputs[0], ", ".join(inputs)
    math = " or ".join(math.value for math in maths(spec.dtypes))
    rounding = "rounded after every operation" if texts.rounds else "rounded once"
    lines = [f"Shape: {first} of any shape, with any strides."]
    if len(inputs) > 1:
        lines = [f"Shape: {listed} of shapes that broadcast, with any strides."]
    if split is not None:
        lines += [f"    Without {inputs[1]}, {first} is split in two halves along dim."]
    lines += [f"Dtype: {_either(spec.dtypes)}; computed in {math} and {rounding}.",
              "    Others, and tensor subclasses, are left to PyTorch's own operations."]  # fmt: skip
    if in_place:
        lines += [f"In place: inplace=True writes over {first}; out=y into y, without a gradient."]
    lines += ["Raises: RuntimeError or TypeError for what eager refuses, before anything is launched."]
    return lines


def _pulled(grad: str, inputs: list[str], params: list[str]) -> tuple[str, ...]:
    """The gradient by differentiating the eager form; inputs are broadcast, so that each gets a whole one."""
    names = ", ".join(inputs)
    spread = [f"{names} = torch.broadcast_tensors({names})"] if len(inputs) > 1 else []
    pull = f"_, pull = torch.func.vjp(lambda {names}: eager({', '.join([*inputs, *params])}), {names})"
    return (*spread, pull, f"return pull({grad})")


def _schema(tensors: Iterable[str], params: list[str], outputs: int = 0) -> str:
    given = [f"Tensor({chr(97 + k)}!) OUT{k}" for k in range(outputs)]
    return ", ".join(
        [*(f"Tensor {name}" for name in tensors), *(f"float {name}" for name in params), *given]
    )


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
