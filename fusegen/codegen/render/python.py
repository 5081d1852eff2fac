"""The Python of a module: its signatures, the bodies of its functions, its operators.

Each function gives a part of the context of the module's template, as finished strings.
"""

from collections.abc import Iterable
from typing import Any

from fusegen.codegen.render.forward_arguments import (
    TRAINING,
    argument,
    kernel_scalars,
    keyword_scalars,
    last_arguments,
    optional,
    views,
)
from fusegen.core.dtypes import maths
from fusegen.core.poolings import is_reduced, window_names
from fusegen.core.signatures import Choice, choice_of, refusal_of
from fusegen.core.spec import Param, Spec

Context = dict[str, Any]
LINE = 110  # characters of a list of parameters on the line of its function
IF_NOT_FLOAT = "if {0}.__class__ is not float:"
MOST = 116  # characters of a line behind a margin of four


def tensors_and_scalars(spec: Spec, bounds: Iterable[str]) -> Context:
    """Return the arguments of a module's functions, and what is known of them, as of bounds of clamps."""
    inputs, params = input_names(spec), param_names(spec)
    own, numbers = [p.name for p in kernel_scalars(spec)], [number.name for number in spec.numbers]
    unusual = [f"{number.name}.__class__ is not float" for number in spec.numbers]
    unusual += [f"{name} != {name}" for name in bounds]  # NaN, of which PyTorch's clamp makes NaN
    return {
        "annotation": f'"{result_type(spec)}"' if spec.results else result_type(spec),
        "inputs": inputs,
        "first": inputs[0],
        "arguments": ", ".join([*inputs, *params]),
        "eager_arguments": ", ".join([*inputs, *params, *window_names(spec)]),
        "statistics": "",  # the constructor's arguments of a layer with those of batches
        "layer_call": "",  # the call of a layer that has these
        "called": ", ".join([*inputs, *params, *last_arguments(spec)]),
        "unusual": " or ".join(unusual),
        "scalar_lines": [
            *_each(numbers, IF_NOT_FLOAT, '    {0} = KERNELS.number("{0}", {0})'),
            *_each(own, IF_NOT_FLOAT, '    {0} = KERNELS.scalar("{0}", {0})'),
            *_refused(spec),
        ],
    }


def function(spec: Spec, rounding: str) -> Context:
    """Return the plain function: parameters, docstring with the rounding in words, what precedes calls."""
    choice, tensors, words = _choice(spec), list(map(argument, spec.tensors)), []
    if spec.inputs[-1].split is None:
        words += [f'out: "{result_type(spec)} | None" = None']
    if choice:
        words += [f'{choice.argument}: str = "{choice.word}"']
    if _has_alias(spec):
        tensors = [optional(i.name) for i in spec.tensors]
        words += ['input: "Tensor | None" = None']
    numbers = list(map(argument, spec.numbers))
    further, last = ["*", *words] if words else [], [*last_arguments(spec).values()]
    parameters = [*defaults(kernel_scalars(spec)), *options(spec), *last]
    given = [*defaults(keyword_scalars(spec)), *options(spec), *training(spec), *last]
    own = tensors[: len(tensors) - len(spec.dropouts)]
    return {
        **views(spec, listed([*own, *numbers, *given, *further])),
        "function_parameters": listed([*tensors, *numbers, *parameters, *further]),
        **_optional_arguments(spec),
        "doc": _doc(spec, rounding),
    }


def result_type(spec: Spec) -> str:
    """Return the type of what the function returns."""
    return f"tuple[{', '.join(['Tensor'] * len(spec.results))}]" if spec.results else "Tensor"


def _has_alias(spec: Spec) -> bool:
    names = (*input_names(spec), *param_names(spec))
    return "input" not in names and not (spec.numbers or spec.is_prepared or spec.indices)


def _optional_arguments(spec: Spec) -> dict[str, list[str]]:
    """The lines that read optional arguments: `input_lines` before the scalars, `function_lines` after.

    One test finds out whether a call gives any of them, unless other lines need the first tensor before.
    """
    inputs, params = input_names(spec), param_names(spec)
    first, choice, halves = inputs[0], _choice(spec), spec.inputs[-1].split is not None
    arguments, before, lines = ", ".join([*inputs, *params, *last_arguments(spec)]), [], []
    given = {"inplace": "inplace"} if in_place(spec) else {}
    given |= {} if halves else {"out": "out is not None"}
    if _has_alias(spec) and (choice or halves):
        before = [
            f"if {first} is None or input is not None:",
            f"    {first} = KERNELS.first({first}, input)",
        ]
    elif _has_alias(spec):
        given |= {"input": f"input is not None or {first} is None"}
    if choice:
        word, to = choice.argument, f"{first} if inplace else out" if in_place(spec) else "out"
        call = f"KERNELS.other_form({choice.function}, {to}, {arguments}, {word}={word})"
        lines += [f'if {word} != "{choice.word}":', f"    return {call}"]
    if halves:
        call = f"KERNELS.halves({', '.join([first, 'dim', *params])})"
        lines += [f"if {inputs[1]} is None:", f"    return {call}"]
    elif given.keys() == {"out"}:
        lines += ["if out is not None:", f"    return KERNELS.write(out, {arguments})"]
    else:
        words = ", ".join(f"{word}={word}" for word in given)
        lines += [
            f"if {' or '.join(given.values())}:",
            f"    return KERNELS.with_options({arguments}, {words})",
        ]
    return {"input_lines": before, "function_lines": lines}


def input_names(spec: Spec) -> list[str]:
    """Return the names of the tensors."""
    return [i.name for i in spec.tensors]


def param_names(spec: Spec) -> list[str]:
    """Return the names of the scalars that a call may set."""
    return [p.name for p in spec.scalars]


def in_place(spec: Spec) -> bool:
    """Return True if the function can write over its input: there is one, and nothing else runs."""
    alone = not (spec.layers or spec.front or spec.leads or spec.is_prepared or is_reduced(spec))
    return alone and len(spec.tensors) == 1


def either(words: tuple[str, ...]) -> str:
    """Return some words with "or" before the last."""
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def listed(parameters: list[str], margin: str = "") -> str:
    """Return parameters on one line, or on lines of their own, behind the margin of the function."""
    line = ", ".join(parameters)
    if len(line) <= LINE:
        return line
    lines = filled(parameters, MOST - len(margin))
    return "".join(f"\n{margin}    {line}" for line in lines) + f"\n{margin}"


def filled(parts: list[str], most: int) -> list[str]:
    """Return parts with a comma behind each, on as few lines of so many characters as they take."""
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(f"{part},") > most:
            lines.append("")
        lines[-1] += f"{part}, "
    return [line.rstrip() for line in lines]


def defaults(scalars: Iterable[Param]) -> list[str]:
    """Return scalars as keywords with their defaults."""
    return [f"{scalar.name}: float = {scalar.default!r}" for scalar in scalars]


def options(spec: Spec) -> list[str]:
    """Return the arguments that say how, after those that say what."""
    split = spec.inputs[-1].split
    if in_place(spec):
        return ["inplace: bool = False"]
    return [f"dim: int = {split}"] if split is not None else []


def training(spec: Spec) -> list[str]:
    """Return the argument that says whether dropout drops anything, as PyTorch's functions have it."""
    return [f"{TRAINING}: bool = True"] if spec.dropouts else []


def _choice(spec: Spec) -> Choice | None:
    """Return the word that PyTorch's function takes, if the spec is that function of one tensor."""
    choice = choice_of(spec.reference)
    free = choice is not None and choice.argument != spec.inputs[0].name
    free = free and not spec.is_prepared
    return choice if free and len(spec.tensors) == 1 and not spec.scalars else None


def _refused(spec: Spec) -> list[str]:
    """Return the lines that refuse scalars as the function of PyTorch's does that the spec names."""
    refusal = refusal_of(spec.reference, param_names(spec))
    if refusal is None:
        return []
    return [f"if {refusal.condition}:", f'    raise {refusal.error}("{spec.name}: {refusal.sentence}")']


def _each(names: Iterable[str], *lines: str) -> list[str]:
    return [line.format(name) for name in names for line in lines]


def _doc(spec: Spec, rounding: str) -> list[str]:
    inputs = input_names(spec)
    first, several = inputs[0], ", ".join(inputs)
    math = " or ".join(math.value for math in maths(spec.dtypes))
    lines = [f"Shape: {first} of any shape, with any strides."]
    if len(inputs) > 1:
        lines = [f"Shape: {several} of shapes that broadcast, with any strides."]
    if spec.numbers:
        numbers = ", ".join(number.name for number in spec.numbers)
        lines += [f"Numbers: {numbers}; a tensor without dimensions and without a gradient is one, too."]
    for each in spec.tensors:
        if each.along is not None:
            lines += [f"    {each.name}, of one dimension, runs along dimension {each.along} of {first}."]
    if spec.masks:
        masks = ", ".join(each.name for each in spec.tensors if each.name in spec.masks)
        lines += [f"Masks: {masks}; 0 or 1 in the dtype of the other tensors, without a gradient."]
    if spec.inputs[-1].split is not None:
        lines += [f"    Without {inputs[1]}, {first} is split in two halves along dim."]
    lines += [f"Dtype: {either(spec.dtypes)}, computed in {math} and {rounding}; others by PyTorch."]
    if in_place(spec):
        lines += [f"In place: inplace=True writes over {first}; out=y into y, without a gradient."]
    return [
        *lines,
        "Raises: RuntimeError or TypeError for what eager refuses, before anything is launched.",
    ]
