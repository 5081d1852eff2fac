"""The subjects of certification: the module of a spec, or any callable by its dotted name."""

import ast
import inspect
import json
import pkgutil
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from fusegen.codegen.render.forward_arguments import function_name
from fusegen.compiler import stages
from fusegen.compiler.pipeline import Compiled
from fusegen.core.aten import ATEN
from fusegen.core.spec import Spec
from fusegen.errors import NoSuchCallable, NotAReference, Span
from fusegen.evidence.certify import allowed
from fusegen.evidence.certify.findings import Function, Subject
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec
from fusegen.project.loader import built

OVERWRITING = frozenset({"out", "inplace"})  # keywords of a module's function


def of_spec(compiled: Compiled, output: Path) -> Subject:
    """Return the module of a spec, at the defaults of its parameters.

    Raises:
        NotBuilt: there is no such module, or it is not what the spec says.
        NotAReference: the reference is no function of PyTorch.
    """
    return of_module(compiled, built(compiled, output))


def of_module(compiled: Compiled, module: Any) -> Subject:
    """Return the function of a spec in a module, likewise."""
    spec = compiled.spec
    own: Any = getattr(module, function_name(spec))
    is_eager = compiled.declared.is_eager
    program = stages.real(spec, compiled.library) if is_eager else compiled.declared.program
    keywords = OVERWRITING & set(inspect.signature(own).parameters)
    stable = stages.stable_program(spec, compiled.library) if is_eager else compiled.algebra.best

    def at(params: dict[str, Fraction]) -> Subject:
        numbers = {name: float(value) for name, value in params.items()}
        return Subject(
            name=spec.name,
            program=program,
            stable=stable,
            params=params,
            given=lambda *tensors, **keywords: own(*tensors, *numbers.values(), **keywords),
            eager=_eager(spec, module, numbers),
            compared=_compared(spec, numbers),
            promise=_promise(compiled),
            reference=spec.reference,
            assume={name: (float(i.low), float(i.high)) for name, i in spec.ranges.items()},
            masks=spec.masks,
            keywords=keywords,
            with_params=at if params else None,
        )

    return at({p.name: Fraction(p.default) for p in spec.scalars})


def of_callable(
    name: str,  # of the callable
    given: Function,  # the callable
    formula: str,  # as a spec has it
    inputs: tuple[str, ...],  # the names of the tensors in it
    specs: Path,  # the folder of the specs that the formula may call
) -> Subject:
    """Return a callable beside a formula.

    Raises:
        SpecErrors: the formula is none.
    """
    keys = {
        "name": "formula",
        "summary": name,
        "inputs": {tensor: {} for tensor in inputs},
        "formula": formula,
    }
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
    spec, library = parse_spec(text, "formula"), Library(specs)
    return Subject(name, stages.real(spec, library), stages.stable_program(spec, library), {}, given)


def _promise(compiled: Compiled) -> str:
    if compiled.declared.is_eager:
        return "eager"
    return "arithmetic" if compiled.algebra.pytorch_bits else "accurate"


def _eager(spec: Spec, module: Any, numbers: dict[str, float]) -> Function:
    """Return the reference, or the module's own operations of PyTorch, with the parameters given."""
    if spec.reference and spec.reference not in ATEN:
        return _called(spec, numbers)
    return lambda *tensors: module.eager(*tensors, *numbers.values())


def _compared(spec: Spec, numbers: dict[str, float]) -> Function | None:
    """The reference where the module's operations do not call it: the spec lacks a parameter of it."""
    row = ATEN.get(spec.reference)
    return _called(spec, numbers) if row and not set(row.params) <= set(numbers) else None


def _called(spec: Spec, numbers: dict[str, float]) -> Function:
    """Return the reference with its words and the parameters; of a class, what those make."""
    found, (_, call, _) = allowed.resolved(spec), spec.reference.partition("(")
    given = {**numbers, **(_words(spec.reference) if call else {})}
    if not isinstance(found, type):
        return _of_views(spec, _of_masks(spec, partial(found, **given)))
    try:
        made = _of_views(spec, _of_masks(spec, found(**given)))
    except (TypeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise NotAReference(spec.at("reference"), reference=spec.reference, why=why) from None
    return made


def _of_masks(spec: Spec, function: Function) -> Function:
    """Return the function with its masks as bool, of tensors of numbers."""
    if not spec.masks:
        return function
    masks = [each.is_mask for each in spec.tensors]
    return lambda *tensors: function(*(t != 0 if m else t for t, m in zip(tensors, masks, strict=True)))


def _of_views(spec: Spec, function: Function) -> Function:
    """Return the function of points, which lie along the dimension along which parameters run."""
    dims = [each.along for each in spec.tensors if each.along is not None]
    if not dims:
        return function

    def of_points(*tensors: Any) -> Any:
        shape = (*[1] * dims[0], -1)
        given = zip(tensors, spec.tensors, strict=True)
        found = function(*(t if of.along is not None else t.reshape(shape) for t, of in given))
        return found.reshape(tensors[0].shape)

    return of_points


def named(name: str) -> Function:
    """The callable of a dotted name, perhaps with words: ``torch.nn.functional.gelu(approximate='tanh')``.

    A class is called with the words. Modules on the way are imported.

    Raises:
        NoSuchCallable: the name leads to nothing that can be called.
    """
    path, call, _ = name.partition("(")
    try:
        found = pkgutil.resolve_name(path)
        given = _words(name) if call else {}
        made = found(**given) if isinstance(found, type) else found
    except Exception as error:
        raise NoSuchCallable(Span(name), name=path, why=str(error)) from None
    if not callable(made):
        kind = type(made).__name__
        raise NoSuchCallable(Span(name), name=path, why=f"it is of type {kind}, which cannot be called")
    return partial(made, **given) if given and made is found else made


def _words(name: str) -> dict[str, Any]:
    """Return the words that a call gives, which are numbers, texts and the like."""
    call = ast.parse(name, mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError("its arguments need their names")
    return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
