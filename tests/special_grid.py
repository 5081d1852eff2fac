"""Programs and PyTorch's operations at infinities, NaN and zeros beside numbers of every size."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fusegen.codegen.printers.pytorch import statements
from fusegen.compiler import stages
from fusegen.compiler.stages import Declared
from fusegen.core.method import Both
from fusegen.core.spec import Spec
from fusegen.core.term import INFINITY, Apply, Name, Number, Program, Term
from fusegen.language.library import Library
from fusegen.numerics.ieee import column

SPECIAL = (math.inf, -math.inf, math.nan, 0.0, -0.0)
SIZES = (1e-38, 1e-20, 1e-3, 0.75, 1.0, 3.0, 1e4, 1e19, 1e38)
ORDINARY = (*SIZES, *(-size for size in SIZES))
NUMPY: dict[torch.dtype, type[np.floating[Any]]] = {torch.float32: np.float32, torch.float64: np.float64}
NEAR = {torch.float32: 1e-3, torch.float64: 1e-6}  # relative; where eager cancels, see `differences`
Points = Sequence[Sequence[float]]
Columns = tuple[npt.NDArray[np.float64], ...]


@dataclass(frozen=True)
class Subject:
    """A spec's programs with guards, and PyTorch's operations for the same formula."""

    spec: Spec  # the spec
    declared: Declared  # its formula
    programs: Both[Program]  # of the value and of the gradients
    eager: Callable[..., Tensor]  # from the inputs and the scalars

    @property
    def params(self) -> dict[str, float]:
        """The scalars at their defaults."""
        return {param.name: float(param.default) for param in self.spec.scalars}


def subject(spec: Spec, library: Library) -> Subject:
    """The subject of a spec, whose kernels are not built."""
    declared = stages.declared(spec, library)
    programs = stages.limited(declared, stages.derived(declared))
    inputs = (*declared.eager.inputs, *declared.eager.params)
    text = "\n    ".join((f"def eager({', '.join(inputs)}):", *statements(declared.eager)))
    scope: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    exec(text, scope)
    return Subject(spec, declared, programs, scope["eager"])


def grid(count: int) -> tuple[tuple[float, ...], ...]:
    """Points with a special value of at least one input."""
    values = (*SPECIAL, *ORDINARY)
    return tuple(
        point
        for point in itertools.product(values, repeat=count)
        if any(math.isnan(x) or math.isinf(x) or x == 0 for x in point)
    )


def _double(number: Fraction) -> float:
    if abs(number) < INFINITY:
        return float(number)
    return math.inf if number > 0 else -math.inf


def computed(program: Program, known: Mapping[str, npt.NDArray[np.float64]], dtype: torch.dtype) -> Columns:
    """The results of a program at some points, each operation rounded to a dtype."""
    values = dict(known)
    [length] = {len(each) for each in values.values()}

    def rounded(found: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        with np.errstate(all="ignore"):
            return found.astype(NUMPY[dtype]).astype(np.float64)

    def value(term: Term) -> npt.NDArray[np.float64]:
        match term:
            case Number(number):
                return rounded(np.full(length, _double(number)))
            case Name(name):
                return values[name]
            case Apply("clamp_to_lowest" | "clamp_to_highest" as op, (part,)):
                bound = float(torch.finfo(dtype).max) / 4
                found = value(part)
                return np.maximum(found, -bound) if op == "clamp_to_lowest" else np.minimum(found, bound)
            case Apply("sign", (part,)):
                return np.nan_to_num(np.sign(value(part)))  # of NaN it is 0, as PyTorch's
            case Apply(op, args):
                return rounded(column(op, [value(arg) for arg in args]) * np.ones(length))
        raise AssertionError("compose has replaced every call of a spec")

    for let in program.lets:
        values[let.name] = value(let.term)
    return tuple(map(value, program.results))


def ours(subject: Subject, points: Points, dtype: torch.dtype) -> list[Tensor]:
    """The value and the gradients that the programs give, where the incoming gradient is 1."""
    names = subject.programs.forward.inputs
    columns = torch.tensor(points, dtype=dtype).double().T.numpy()
    known = dict(zip(names, columns, strict=True))
    known |= {name: np.full(len(points), float(NUMPY[dtype](x))) for name, x in subject.params.items()}
    (result,) = computed(subject.programs.forward, known, dtype)
    incoming, *saved = subject.programs.backward.inputs
    own = known | {name: result for name in saved if name not in known} | {incoming: np.ones(len(points))}
    return [torch.from_numpy(each) for each in (result, *computed(subject.programs.backward, own, dtype))]


def eagers(subject: Subject, points: Points, dtype: torch.dtype) -> list[Tensor]:
    leaves = [column.clone().requires_grad_() for column in torch.tensor(points, dtype=dtype).T]
    result = subject.eager(*leaves, *subject.params.values())
    if not result.requires_grad:
        return [result.double().expand(len(points))] + [torch.zeros(len(points)).double() for _ in leaves]
    slopes = torch.autograd.grad(result, leaves, torch.ones_like(result), materialize_grads=True)
    return [each.detach().double() for each in (result, *slopes)]
