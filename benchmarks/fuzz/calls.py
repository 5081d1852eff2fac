"""Random calls of a module, each compared with the plain call or with eager."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

WIDE, NARROW = 1e-4, 4e-2  # of sums and derivatives, relative to the largest result
MOST = {2: NARROW, 4: WIDE, 8: WIDE}  # by the bytes of an element
NEAR_0 = 0.1  # of sums that cancel, whose rounding is that of their addends
CALLS = 12  # of a module: to build it takes longer
SHAPES = ((4, 6), (2, 3, 4), (5,), (2, 0, 3), (), (1, 7), (2, 3, 4, 4))


class Called:
    """A module's function with its numbers and parameters, and eager's.

    Attributes:
        module: with `KERNELS` and `eager`.
        call: the function of the tensors alone; `eager` in PyTorch's operations.
        kinds: for each tensor, whether it is a mask.
    """

    def __init__(self, module: Any, function: Any, params: dict[str, float], kinds: list[bool]) -> None:
        """Take what is called."""
        self.module, self.function, self.params, self.kinds = module, function, params, kinds
        self.kernels, self.words = module.KERNELS, inspect.signature(function).parameters

    def call(self, *tensors: Any, **words: Any) -> Any:
        """Return the module's function."""
        return self.function(*tensors, **self.params, **words)

    def eager(self, *tensors: Any) -> Any:
        """Return the same by PyTorch's operations, as they would promote."""
        return self.module.eager(*tensors, *self.params.values())


def failures(of: Called, chance: random.Random, dtype: torch.dtype) -> Iterator[str]:
    """Return a sentence for each form of call that differs, or fails where eager does not."""
    for form in chance.choices(list(FORMS), k=CALLS):
        generator = torch.Generator().manual_seed(chance.randrange(2**31))
        try:
            said = FORMS[form](of, chance, dtype, generator)
        except Exception as error:  # whatever it is, a traceback is what is looked for
            said = f"{type(error).__name__}: {error}"
        if said:
            yield f"{form} in {dtype}: {said[:600]}"


def tensors(of: Called, shape: Any, dtype: torch.dtype, generator: torch.Generator) -> list[Tensor]:
    """Return ordinary tensors, and masks where they are taken; no NaN results of them, if such are found.

    Gradients are compared at them, which are not defined where the value is not.
    """
    found = []
    for mask in of.kinds:
        drawn = torch.randn(shape, generator=generator) * 1.5 + 0.3
        found.append(drawn > 0 if mask else drawn.to(dtype))
    for other in (0.75, 0.25, 2.5, -0.5):
        with torch.no_grad():
            undefined = of.eager(*found).isnan()
        found = [t if t.dtype == torch.bool else t.masked_fill(undefined, other) for t in found]
    return found


def differs(found: Any, expected: Any, most: float = 0.0) -> str:
    """Return how two results differ, if they do, by more than so much of the largest."""
    if isinstance(found, tuple | list):
        return next((s for a, b in zip(found, expected, strict=True) if (s := differs(a, b, most))), "")
    if found is None or expected is None:
        none = [t for t in (found, expected) if t is not None]
        return "a gradient is missing" if any(bool(t.count_nonzero()) for t in none) else ""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{tuple(found.shape)} {found.dtype}, not {tuple(expected.shape)} {expected.dtype}"
    a, b = found.double(), expected.double()
    finite = b[b.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    apart = (a - b).abs() > most * (scale + b.abs() + NEAR_0)
    wrong = torch.where(a.isnan() | b.isnan(), a.isnan() & ~b.isnan(), apart & (a != b))
    return (
        f"{a[wrong].flatten()[:3].tolist()}, not {b[wrong].flatten()[:3].tolist()}" if wrong.any() else ""
    )


def _laid(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Return layouts: the same elements, laid otherwise, give the same bits."""
    shape = chance.choice(SHAPES)
    given = tensors(of, shape, dtype, generator)
    plain = of.call(*given)
    ways: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.movedim(0, -1).contiguous().movedim(-1, 0) if t.dim() else t,
        lambda t: torch.stack([t, t], -1)[..., 0],
        lambda t: torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape),
        lambda t: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t.clone(),
    ]
    laid = [chance.choice(ways)(t) for t in given]
    return differs(of.call(*laid), plain)


def _into(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Return results in place, into a tensor, and without a gradient are those of the plain call."""
    given = tensors(of, chance.choice(SHAPES), dtype, generator)
    plain = of.call(*given)
    with torch.no_grad():
        found = [of.call(*given)]
    if "inplace" in of.words:
        found.append(of.call(given[0].clone(), inplace=True))
    if "out" in of.words:
        found.append(of.call(*given, out=torch.empty_like(plain)))
    return differs(found, [plain] * len(found))


def _broadcast(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Return operands of other shapes: values and summed gradients are those of expanded operands."""
    shape = chance.choice([s for s in SHAPES if s])
    given = tensors(of, shape, dtype, generator)
    small = [
        t if k == 0 else t[tuple(slice(0, chance.choice((1, None))) for _ in shape)]
        for k, t in enumerate(given)
    ]
    small = [t[0] if k and t.shape[0] == 1 and chance.random() < 0.5 else t for k, t in enumerate(small)]

    def run(laid: Callable[[Tensor], Tensor]) -> list[Any]:
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in small]
        y = of.call(*map(laid, leaves))
        return [y.detach(), *_gradients(y, leaves)]

    return differs(run(lambda t: t), run(lambda t: t.expand(shape)), MOST[dtype.itemsize])


def _gradients(y: Tensor, leaves: list[Tensor], **words: Any) -> list[Any]:
    wanted = [t for t in leaves if t.requires_grad]
    if not y.requires_grad:
        return [None for _ in wanted]
    grad = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    return list(torch.autograd.grad(y, wanted, grad, allow_unused=True, **words))


def _required(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Return a result requires a gradient, and has gradients, where eager's does: those of float64."""
    given = tensors(of, chance.choice(SHAPES), dtype, generator)
    needed = [t.is_floating_point() and chance.random() < 0.6 for t in given]

    def run(function: Any, laid: Callable[[Tensor], Tensor]) -> tuple[bool, list[Any]]:
        leaves = [laid(t.clone()).requires_grad_(n) for t, n in zip(given, needed, strict=True)]
        y = function(*leaves)
        return y.requires_grad, _gradients(y, leaves)

    (found, ours), (expected, _) = run(of.call, lambda t: t), run(of.eager, lambda t: t)
    if found != expected:
        return f"requires_grad is {found}, eager's {expected}, where {needed}"
    _, exact = run(of.eager, lambda t: t if t.dtype == torch.bool else t.double())
    narrowed = [None if t is None else t.to(dtype) for t in exact]
    return differs(ours, narrowed, MOST[dtype.itemsize])


def _changed(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """A tensor that is changed between the passes is refused, or the gradients are those of before."""
    given = tensors(of, chance.choice([s for s in SHAPES if s]), dtype, generator)

    def run(changed: int | None) -> list[Any]:
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
        inner = [t * 1 if t.is_floating_point() else t.clone() for t in leaves]
        y = of.call(*inner)
        if changed is not None:
            with torch.no_grad():
                inner[changed].zero_()
        return _gradients(y, leaves)

    before = run(None)
    try:
        after = run(chance.randrange(len(given)))
    except RuntimeError as error:
        return "" if "modified by an inplace operation" in str(error) else str(error)
    return differs(after, before)


def _twice(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Return second derivatives are eager's, in float64."""
    given = tensors(of, (3, 2), torch.float64, generator)

    def run(function: Any) -> list[Any]:
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
        y = function(*leaves)
        first = [g for g in _gradients(y, leaves, create_graph=True) if g is not None and g.requires_grad]
        if not first:
            return [None for t in leaves if t.requires_grad]
        total = torch.stack([g.square().sum() for g in first]).sum()
        return list(torch.autograd.grad(total, [t for t in leaves if t.requires_grad], allow_unused=True))

    return differs(run(of.call), run(of.eager), WIDE)


def _transformed(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Transform of torch.func, and forward mode, give what they give of eager, in float64."""
    given = tensors(of, (3, 2), torch.float64, generator)
    places = tuple(k for k, t in enumerate(given) if t.is_floating_point())
    ways: dict[str, Callable[[Any], Any]] = {
        "vmap": lambda f: torch.func.vmap(f)(*given),
        "grad": lambda f: torch.func.grad(lambda *t: f(*t).sum(), places)(*given),
        "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(lambda *t: f(*t).sum(), places))(*given),
        "jacrev": lambda f: torch.func.jacrev(f, places)(*given),
        "jacfwd": lambda f: torch.func.jacfwd(f, places)(*given),
        "hessian": lambda f: torch.func.hessian(lambda *t: f(*t).sum(), places)(*given),
    }
    way = ways[chance.choice(list(ways))]
    return differs(_flat(way(of.call)), _flat(way(of.eager)), WIDE)


def _flat(found: Any) -> list[Any]:
    return [t for part in found for t in _flat(part)] if isinstance(found, tuple) else [found]


def _dual(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Forward mode gives eager's tangent."""
    given = tensors(of, (3, 2), torch.float64, generator)

    def run(function: Any) -> list[Any]:
        forward: Any = torch.autograd.forward_ad
        with forward.dual_level():
            duals = [forward.make_dual(t, t * 2) if t.is_floating_point() else t for t in given]
            return [forward.unpack_dual(function(*duals)).tangent]

    return differs(run(of.call), run(of.eager), WIDE)


def _other(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Return other dtypes, and mixed ones, give eager's dtype and values, or both refuse them."""
    floats = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
    kinds = chance.choice([floats, [torch.int32], [torch.bool]])  # of both, a number decides the dtype
    given = tensors(of, (3, 4), torch.float32, generator)
    chosen = [chance.choice(kinds) for _ in given]
    given = [t if t.dtype == torch.bool else t.to(kind) for t, kind in zip(given, chosen, strict=True)]
    results = []
    for function in (of.call, of.eager):
        try:
            results.append(function(*given))
        except Exception as error:  # either may refuse; only one is a difference
            results.append(error)
    ours, eager = results
    refused = [isinstance(each, Exception) for each in results]
    if any(refused):
        return "" if all(refused) else f"{chosen}: {ours!r}, eager {eager!r}"
    return differs(ours, eager, NARROW)


def _compiled(of: Called, chance: random.Random, dtype: torch.dtype, generator: torch.Generator) -> str:
    """Return a traced call gives the plain one's results."""
    given = tensors(of, (3, 4), dtype, generator)
    torch._dynamo.reset()
    traced: Any = torch.compile(of.call, backend="aot_eager")
    results = []
    for function in (traced, of.call):
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
        y = function(*leaves)
        results.append([y.detach(), *_gradients(y, leaves)])
    return differs(results[0], results[1], MOST[dtype.itemsize])


FORMS: dict[str, Callable[[Called, random.Random, torch.dtype, torch.Generator], str]] = {
    "layout": _laid,
    "in place": _into,
    "broadcast": _broadcast,
    "requires_grad": _required,
    "changed": _changed,
    "second derivative": _twice,
    "transform": _transformed,
    "forward mode": _dual,
    "dtype": _other,
    "torch.compile": _compiled,
}
