"""The registration of a module's kernels, and the function and its gradient in PyTorch's own operations."""

from collections.abc import Iterable, Mapping

from fusegen.algebra.derive import derive_eager, detached
from fusegen.algebra.simplify.constants import constants_folded
from fusegen.codegen.printers.pytorch import statements
from fusegen.codegen.render.python import MOST, Context, filled, input_names, param_names
from fusegen.compiler.pipeline import Compiled
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.spec import Spec
from fusegen.core.term import names
from fusegen.schedule.forms import Form

INTERFACE = 3  # of modules and their runtime, which has it too


def eager(of: Compiled) -> Context:
    """Return the function and its gradient in PyTorch's own operations.

    The gradient has lines where these operations say it; else it is eager's own.
    """
    first = of.algebra.derivations.backward.first
    own = of.from_output or of.algebra.pytorch_bits
    return {
        "gradient_arguments": ", ".join([*_backward(of), *param_names(of.spec)]),
        "eager_lines": statements(constants_folded(of.declared.eager)),
        "eager_gradient_lines": statements(first, several=True) if own else (),
    }


def registration(of: Compiled, forms: Iterable[Form], keywords: Iterable[str]) -> list[str]:
    """Return the lines of a registration: name, arguments with further keywords, and sources."""
    spec = of.spec
    masks = [each for each in detached(of.declared.eager) if each not in spec.masks]  # masks never have one
    tuples = {
        "unread": [f'"{name}"' for name in _unread(of)],
        "detached": [f'"{name}"' for name in masks],
        "gradients": [*map(str, of.outputs)] if len({*of.outputs}) < len(of.outputs) else [],
    }
    parts = registered(spec, _backward(of), keywords, tuples)
    sources = ["CUDA_SOURCE", "CPU_SOURCE", *(form.keyword for form in forms if form.keyword)]
    return filled([*parts, f"sources=Sources({', '.join(sources)})"], MOST)


def registered(
    spec: Spec,  # of the module
    backward: Iterable[str],  # the tensors that the gradient reads
    keywords: Iterable[str],  # arguments in front of the kernels'
    tuples: Mapping[str, list[str]],  # arguments behind these, which are left out where they are empty
) -> list[str]:
    """Return the arguments of a registration but for the sources."""
    scalars = [f"float {name}" for name in param_names(spec)]
    parts = [f'"{spec.name}"', f"interface={INTERFACE}", "eager=eager", *keywords]
    for kernel, tensors in {"forward": input_names(spec), "backward": backward}.items():
        parts += [f'{kernel}="{", ".join([*(f"Tensor {name}" for name in tensors), *scalars])}"']
    dtypes = [f"torch.{dtype}" for dtype in spec.dtypes] if spec.dtypes != tuple(ELEMENTS) else []
    every = {**tuples, "dtypes": dtypes}.items()
    parts += [f"drawn={len(spec.dropouts)}"] * bool(spec.dropouts)
    return [*parts, *(f"{key}=({', '.join(own)}{',' * (len(own) == 1)})" for key, own in every if own)]


def _backward(of: Compiled) -> tuple[str, ...]:
    return of.algebra.derivations.backward.program.inputs


def _unread(of: Compiled) -> tuple[str, ...]:
    """Return the inputs that the gradient does not read, though it takes them.

    Nor does that of eager's operations, which a second derivative runs: `x / b * b` reads b there.
    """
    programs = of.programs.backward, derive_eager(of.declared.eager)
    read = {name for program in programs for term in program.terms for name in names(term)}
    _, *taken = of.programs.backward.inputs
    return tuple(name for name in taken if name not in read)
