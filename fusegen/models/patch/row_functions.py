"""The function of rows that a layer computes, found by what its forward does.

A forward is read as operators of ATen, for tensors of each rank and dtype, in training and in evaluation. A
function of the library is the same if values and gradients are equal in float64, casts between the
operators left out, on rows of each size: so that eps is the same, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.models.patch.library import module, numbers_of, row_names
from fusegen.models.reader.layer_calls import operators_of, twin
from fusegen.models.reader.operator_call import Call, Calls
from fusegen.models.reader.run_calls import CASTS, run

FOLDS = frozenset(
    ("mean", "sum", "var", "amax", "softmax", "log_softmax", "logsumexp", "norm", "linalg_vector_norm")
) | {"layer_norm", "rms_norm"}  # operators that reduce rows
VIEWS = frozenset("permute transpose movedim unsqueeze view contiguous".split())
POINTWISE = frozenset(
    "add sub rsub mul div neg pow square sqrt rsqrt reciprocal exp log abs maximum clamp_min clamp".split()
)
KNOWN = FOLDS | VIEWS | POINTWISE | CASTS
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
BESIDE = ((6,), (2, 3), (2, 3, 2))  # the dimensions beside a row
LENGTH = 7  # of a row where no parameter says it, and more for each rank
SCALES = (1e-8, 1e-3, 1e-2, 1.0, 30.0, 1e4)  # of rows; tiny ones show eps
CLOSE: Any = {"rtol": 1e-8, "atol": 1e-10}
OTHER = "the library has no such function of rows"


@dataclass(frozen=True)
class Function:
    """A function of rows of the library, with its arguments.

    Attributes:
        name: of its module.
        parameters: of the layer, in the order of the function's arguments.
        numbers: the arguments behind them.
    """

    name: str
    parameters: tuple[str, ...]
    numbers: tuple[float, ...]

    def eager(self, x: Tensor, weights: dict[str, Tensor]) -> Any:
        """Return the function in PyTorch's operations."""
        of = module(f"rows.{self.name}")
        return of.eager(x, *(weights[name] for name in self.parameters), *self.numbers)


@dataclass(frozen=True)
class Reading:
    """A function of rows and where a layer computes it.

    Attributes:
        function: it.
        along: the dimension of a row, by the rank of the tensor.
        dtypes: for which the layer returns the dtype that it is given.
        is_fused: the layer runs one operator.
    """

    function: Function
    along: tuple[tuple[int, int], ...]
    dtypes: tuple[torch.dtype, ...]
    is_fused: bool


def read(layer: nn.Module, length: int | None) -> Reading | str | None:
    """Return the function of rows that a layer computes.

    Args:
        layer: it.
        length: of a row; None where the layer has no parameters.

    Returns:
        A clause where the library has no such function; None where the layer reduces no rows.
    """
    found: Function | None = None
    along = dict[int, int]()
    first, reduces = Calls((), None), False
    for size, dim in _shapes(length):
        calls = _calls(layer, torch.float32, size)
        if calls is None or not any(call.name in FOLDS for call in calls.made):
            continue
        reduces = True
        candidates = _candidates(layer, calls) if found is None else iter((found,))
        same = next((each for each in candidates if _is_same(layer, calls, size, dim, each)), None)
        if same is not None:
            first = first if found is not None else calls
            found = same
            along.setdefault(len(size), dim)
    if found is None:
        return OTHER if reduces else None
    places = tuple(along.items())
    dtypes = tuple(each for each in DTYPES if _keeps(layer, each, length, places[0], found))
    return Reading(found, places, dtypes, len({call.name for call in first.made} - VIEWS) == 1)


def _shapes(length: int | None) -> Iterator[tuple[list[int], int]]:
    """Yield sizes of tensors with rows of a length, and the dimension of a row: the last one, or 1."""
    for beside in BESIDE:
        for dim in dict.fromkeys((len(beside), 1)):
            yield [*beside[:dim], length or LENGTH + len(beside), *beside[dim:]], dim


def _calls(layer: nn.Module, dtype: torch.dtype, size: Sequence[int]) -> Calls | None:
    """Return the operators of a layer; None where its modes differ, or for one that no row has."""
    x = torch.empty(size, dtype=dtype, device="cpu")
    ours, other = twin(layer), twin(layer)
    ours.training, other.training = True, False
    calls = operators_of(ours, x)
    if calls is None or calls.result is None or calls != operators_of(other, x):
        return None
    return calls if all(map(_is_known, calls.made)) else None


def _is_known(call: Call) -> bool:
    return call.name in KNOWN and not call.overload._schema.is_mutable


def _candidates(layer: nn.Module, calls: Calls) -> Iterator[Function]:
    """Yield the functions of the library with the layer's parameters and the numbers of the calls."""
    numbers = {
        float(each) for call in calls.made for each in call.arguments.values() if type(each) in (int, float)
    }
    for name in row_names():
        kernels, own = module(f"rows.{name}").KERNELS, numbers_of(f"rows.{name}")
        is_of_rows = kernels.results == 1 and not kernels.once_a_row
        if not is_of_rows or tuple(kernels.signature.tensors[1:]) != kernels.features:
            continue
        if kernels.inputs != 1 + len(layer._parameters):
            continue
        for parameters in itertools.permutations(layer._parameters):
            for given in itertools.product(sorted(numbers), repeat=len(own)):
                yield Function(name, parameters, given)


def _is_same(layer: nn.Module, calls: Calls, size: list[int], dim: int, of: Function) -> bool:
    """Tell if calls compute a function of rows and its gradients, and lay the result as its kernel does."""
    draw = torch.Generator("cpu").manual_seed(0)

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=draw, dtype=torch.float64, device="cpu")

    rows = [1 if place == dim else each for place, each in enumerate(size)]
    count = torch.Size(rows).numel()
    scales = torch.tensor(SCALES, dtype=torch.float64, device="cpu").repeat(count)[:count].reshape(rows)
    x = scales * drawn(*size) + 0.3 * scales
    weights = {name: 1 + 0.5 * drawn(size[dim]) for name in layer._parameters}
    grad = drawn(*size)

    def results(function: Callable[[Tensor, dict[str, Tensor]], Any]) -> list[Tensor]:
        with torch.inference_mode(mode=False), torch.enable_grad():
            given = x.clone().requires_grad_()
            own = {name: each.clone().requires_grad_() for name, each in weights.items()}
            value = function(given, own)
            return [value.detach(), *torch.autograd.grad(value, [given, *own.values()], grad)]

    try:
        ours = results(lambda x, own: of.eager(x.movedim(dim, -1), own).movedim(-1, dim))
        theirs = results(lambda x, own: run(calls, [x, *own.values()], casts=False))
    except (RuntimeError, TypeError, IndexError):  # of sizes that only one of both takes
        return False
    laid = torch.empty_like(x.movedim(dim, -1), memory_format=torch.contiguous_format).movedim(-1, dim)
    return theirs[0].stride() == laid.stride() and all(
        a.shape == b.shape and torch.allclose(a, b, **CLOSE) for a, b in zip(ours, theirs, strict=True)
    )


def _keeps(
    layer: nn.Module, dtype: torch.dtype, length: int | None, place: tuple[int, int], of: Function
) -> bool:
    """Tell if a layer computes a function in a dtype, and returns the dtype."""
    [(size, dim)] = [each for each in _shapes(length) if (len(each[0]), each[1]) == place]
    calls = _calls(layer, dtype, size)
    if calls is None or not _is_same(layer, calls, size, dim, of):
        return False
    sizes = [size, *[[size[dim]]] * len(layer._parameters)]
    return bool(run(calls, [torch.ones(each, dtype=dtype, device="cpu") for each in sizes]).dtype == dtype)
