"""The class of a module, named after its spec: its constructor, forward and repr, as finished strings."""

from collections.abc import Iterable
from textwrap import wrap

from fusegen.codegen.printers.notation import formulas, notation
from fusegen.codegen.render import constructor_text
from fusegen.codegen.render.forward_arguments import (
    argument,
    chosen,
    drawn_lines,
    example,
    function_name,
    kernel_scalars,
    keyword_scalars,
    last_arguments,
    local_names,
    prepared,
)
from fusegen.codegen.render.python import (
    MOST,
    Context,
    defaults,
    filled,
    function,
    in_place,
    input_names,
    listed,
    options,
    tensors_and_scalars,
)
from fusegen.codegen.render.registration import registered
from fusegen.compiler.placed import Placed
from fusegen.core.held_layers import paths
from fusegen.core.poolings import window_names
from fusegen.core.spec import Spec
from fusegen.schedule.forms import Form

MARGIN = " " * 12  # of the lines of a result in brackets
TAKEN = {
    "Activation",
    "BatchStatistics",
    "Channels",
    "Dropouts",
    "ModelNew",
    "Parts",
    "Rows",
    "Sources",
    "Tensor",
    "Windows",
}  # classes that a module has anyway


def head(of: Placed) -> Context:
    """Return what the head of a module says of its spec."""
    spec = of.spec
    return {
        "name": spec.name,
        "origin": of.origin,
        "dots": "." * len(of.place.parts),
        "digest": spec.digest,
        "summary": spec.summary,
        "source": spec.source,
        "notation": notation(spec),
        "formulas": formulas(spec),
    }


def reduced(of: Placed, backward: Iterable[str], further: Iterable[str]) -> Context:
    """Return what modules of rows and of windows have in common, of the tensors that their gradient reads.

    Further lines follow in the registration.
    """
    own = [*registered(of.spec, backward, (), {}), "sources=Sources(CUDA_SOURCE, CPU_SOURCE)"]
    return {
        **head(of),
        "autocasts": False,
        **tensors_and_scalars(of.spec, ()),
        **model(of.spec, ()),
        **function(of.spec, "rounded once"),
        "eager_gradient_lines": (),
        "registration": [*filled(own, MOST), *further],
    }


def model(spec: Spec, forms: Iterable[Form]) -> Context:
    """Return the name, the constructor and the body of the class, for the forms of its kernels."""
    inputs, own = input_names(spec), [scalar.name for scalar in keyword_scalars(spec)]
    first, arguments, kept = inputs[0], _arguments(spec), _kept(spec)
    lines = constructor_text.layer_lines(spec)
    for form in forms:
        if form.call:
            lines[-1:] = [*_joined(form.call, spec, arguments), *lines[-1:]]
    lines += drawn_lines(spec, "self.")
    if constructor_text.reuses(spec) and spec.producer:
        layer = f"self.{spec.producer.attribute}"
        tensors = arguments[: len(spec.tensors)]
        lines += [f"out = KERNELS.reused({', '.join([layer, *tensors])})"]
        arguments += ["out=out"]
    arguments += ["self.inplace"] * in_place(spec)
    if spec.inputs[-1].split is not None:
        keywords = [f"{name}=self.{name}" for name in kept]
        lines += [f"if {inputs[1]} is None:", f"    return {spec.name}({', '.join([first, *keywords])})"]
    named = "".join(word.capitalize() for word in spec.name.split("_"))
    class_name = "ModelNew" if named in TAKEN else named
    return {
        "attribute": spec.name if spec.name not in own else f"{spec.name}_kernels",
        "constructor": listed(["self", *_constructor(spec)], "    "),
        "constructor_lines": [
            *constructor_text.lines(spec, {name: _taken(spec, name) for name in kept}),
            *_checked(spec),
        ],
        "checked": _checked(spec),
        "layer_lines": [*constructor_text.layer_lines(spec), *drawn_lines(spec, "self.")],
        "function_call": f"{function_name(spec)}({', '.join(_arguments(spec))})",
        "forward_parameters": ", ".join(map(argument, spec.arguments)),
        "shown": _shown(spec),
        "class_name": class_name,
        "public": sorted({class_name, "ModelNew", spec.name, "get_inputs", "get_init_inputs"}),
        "forward_lines": lines,
        "model_arguments": ", ".join(arguments),
        "example_inputs": [example(each, spec) for each in spec.arguments],
        "example_init": [argument.text for argument in spec.init],
    }


def _arguments(spec: Spec) -> list[str]:
    owners = dict.fromkeys(local_names(spec), "")
    tensors = [prepared(each, spec, owners.get(each.name, "self.")) for each in spec.tensors]
    numbers = [number.name for number in spec.numbers]
    scalars = [*(each.name for each in kernel_scalars(spec)), *last_arguments(spec)]
    return [*tensors, *numbers, *(place(spec, name) for name in scalars)]


def _constructor(spec: Spec) -> list[str]:
    """Return the arguments of the constructor, of which `init` has the numbers that calls have last."""
    own = defaults(param for param in spec.params if param.position is None and not param.path)
    kept = [text for name, text in last_arguments(spec).items() if name not in chosen(spec)]
    return [*constructor_text.arguments(spec), *own, *kept, *options(spec)]


def place(spec: Spec, name: str) -> str:
    """Return where forward has a scalar."""
    return name if name in local_names(spec) else f"self.{paths(spec).get(name, name)}"


def _checked(spec: Spec) -> list[str]:
    """Return the line that finds the kernels for the numbers of windows, and so refuses wrong ones."""
    names = ", ".join(f"self.{name}" for name in window_names(spec))
    return [f"KERNELS.of({names})"] * bool(names)


def _joined(call: str, spec: Spec, arguments: list[str]) -> list[str]:
    """Return the lines that run the layer in front and the kernel as one, where they are one."""
    layer = f"self.{spec.producer.attribute}" if spec.producer else ""
    bias = spec.bias.name if spec.bias else ""
    given = ["None" if argument == bias else argument for argument in arguments]
    return [
        f"out = KERNELS.{call}({', '.join([layer, *given])})",
        "if out is not None:  # both were one kernel",
        "    return out",
    ]


def _kept(spec: Spec) -> list[str]:
    words = (option.split(":")[0] for option in options(spec))
    names = [
        *(_kept(spec.front) if spec.front else ()),
        *(scalar.name for scalar in keyword_scalars(spec) if not scalar.path),
        *last_arguments(spec),
        *words,
    ]
    return [*dict.fromkeys(names)]


def _taken(spec: Spec, kept: str) -> str:
    """Return the constructor's name of an argument that the model keeps."""
    return next((each.name for each in spec.init if each.symbol == kept), kept)


def _on_lines(values: str) -> str:
    """Return an f-string, or several, one a line, that Python joins."""
    first, *others = wrap(values, MOST - len(MARGIN) - len("return"))
    if not others:
        return f'f"{first}"'
    *ahead, last = [f'{MARGIN}f"{each} "' for each in (first, *others)]
    return "\n".join(["(", *ahead, f'{last[:-2]}"', f"{MARGIN[4:]})"])


def _shown(spec: Spec) -> str:
    """Return the model's repr of its arguments, as an expression; nothing where it has none."""
    shown = (name for name in _kept(spec) if name != "inplace")
    values = ", ".join(f"{_taken(spec, name)}={{self.{name}}}" for name in shown)
    if not in_place(spec):
        return _on_lines(values) if values else ""
    if not values:
        return '"inplace=True" if self.inplace else ""'
    return f'f"{values}" + (", inplace=True" if self.inplace else "")'
