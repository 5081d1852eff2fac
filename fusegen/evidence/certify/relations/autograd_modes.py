"""One result in every mode of autograd, of torch.func and of the function itself."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from fusegen.evidence.certify.relations.trial import COUNT, SIDE, Case, Compared, Results, Trial
from fusegen.evidence.certify.slopes import Points, filled

Mode = Callable[[Trial], Results]
ALL_SUBSETS = 4  # inputs up to which every subset of them is tried; of more, each alone


def modes(trial: Trial) -> Iterator[Case]:
    """Call a function in each mode."""
    for name, mode in {**MODES, **_subsets(trial), **_directions(trial), **_overwriting(trial)}.items():
        yield name, partial(_in_mode, mode)


def _in_mode(mode: Mode, trial: Trial) -> list[Compared]:
    index = torch.arange(COUNT, device=trial.device)
    return trial.same([None if t is None else t.reshape(-1) for t in mode(trial)], index)


def _no_grad(trial: Trial) -> Results:
    with torch.no_grad():
        return (trial.function(*_leaves(trial)),)


def _inference(trial: Trial) -> Results:
    with torch.inference_mode():
        return (trial.function(*trial.points),)


def _made_in_inference(trial: Trial) -> Results:
    with torch.inference_mode():
        return (trial.function(*(t.clone() for t in trial.points)),)


def _create_graph(trial: Trial) -> Results:
    leaves = _leaves(trial)
    y = trial.function(*leaves)
    slopes = torch.autograd.grad(y, leaves, _ones(y), create_graph=True, allow_unused=True)
    return (y, *filled(slopes, leaves))


def _second_pass(trial: Trial) -> Results:
    """Return the gradients of a second pass over a graph that is kept."""
    leaves = _leaves(trial)
    y = trial.function(*leaves)
    torch.autograd.grad(y, leaves, 3 * _ones(y), retain_graph=True, allow_unused=True)
    return (y, *filled(torch.autograd.grad(y, leaves, _ones(y), allow_unused=True), leaves))


def _backward(trial: Trial) -> Results:
    leaves = tuple(nn.Parameter(t.detach()) for t in trial.points)
    y = trial.function(*leaves)
    torch.autograd.backward(y, _ones(y))
    return (y, *filled(tuple(t.grad for t in leaves), leaves))


def _vjp(trial: Trial) -> Results:
    found: Any = torch.func.vjp(trial.function, *trial.points)
    y, pull = found
    return (y, *pull(_ones(y)))


def _of_rows(trial: Trial) -> Results:
    squares = tuple(t.view(SIDE, SIDE) for t in trial.points)
    return (torch.func.vmap(trial.function)(*squares),)


def _of_columns(trial: Trial) -> Results:
    squares = tuple(t.view(SIDE, SIDE) for t in trial.points)
    return (torch.func.vmap(trial.function, in_dims=1, out_dims=1)(*squares),)


def _vmap_of_grad(trial: Trial) -> Results:
    which = tuple(range(len(trial.points)))
    return (None, *torch.func.vmap(torch.func.grad(trial.function, which))(*trial.points))


MODES: dict[str, Mode] = {
    "without a gradient": lambda trial: (trial.function(*trial.points),),
    "no_grad": _no_grad,
    "inference_mode": _inference,
    "tensors made in inference_mode": _made_in_inference,
    "create_graph": _create_graph,
    "a second pass over the graph": _second_pass,
    "backward() of parameters": _backward,
    "torch.func.vjp": _vjp,
    "vmap over rows": _of_rows,
    "vmap over columns": _of_columns,
    "vmap of grad": _vmap_of_grad,
}


def _subsets(trial: Trial) -> dict[str, Mode]:
    """Return a mode for each proper subset of the inputs: only these need a gradient."""
    places = range(len(trial.points))
    sizes = range(1, len(places)) if len(places) <= ALL_SUBSETS else range(1, 2)
    subsets = itertools.chain.from_iterable(itertools.combinations(places, size) for size in sizes)
    return {
        f"gradient of {' and '.join(trial.names[k] for k in subset)} only": partial(_of_subset, subset)
        for subset in subsets
    }


def _of_subset(subset: tuple[int, ...], trial: Trial) -> Results:
    leaves = [t.detach().requires_grad_(k in subset) for k, t in enumerate(trial.points)]
    y = trial.function(*leaves)
    if not y.requires_grad:
        return (y,)
    slopes = torch.autograd.grad(y, [leaves[k] for k in subset], _ones(y), allow_unused=True)
    found: list[Tensor | None] = [y, *([None] * len(leaves))]
    for k, slope in zip(subset, slopes, strict=True):
        found[1 + k] = torch.zeros_like(leaves[k]) if slope is None else slope
    return found


def _directions(trial: Trial) -> dict[str, Mode]:
    """Return a mode for each input: the derivative along it, which is its gradient."""
    return {
        f"{how} along {name}": partial(along, k)
        for how, along in (("jvp", _jvp), ("forward-mode", _dual))
        for k, name in enumerate(trial.names)
    }


def _jvp(k: int, trial: Trial) -> Results:
    tangents = tuple(torch.full_like(t, i == k) for i, t in enumerate(trial.points))
    found: Any = torch.func.jvp(trial.function, trial.points, tangents)
    y, along = found
    return _alone(k, trial, y, along)


def _dual(k: int, trial: Trial) -> Results:
    untyped: Any = forward_ad
    with untyped.dual_level():
        given = list(trial.points)
        given[k] = untyped.make_dual(given[k], torch.ones_like(given[k]))
        y, along = untyped.unpack_dual(trial.function(*given))
        return _alone(k, trial, y, torch.zeros_like(y) if along is None else along)


def _alone(k: int, trial: Trial, y: Tensor, along: Tensor) -> Results:
    """Return a derivative in the place of its gradient, but for zeros, to which 0 times others is added."""
    want, others = trial.expected[1 + k], [t for i, t in enumerate(trial.expected[1:]) if i != k]
    exempt = (want == 0) & (along == 0)
    for other in others:
        exempt |= ~other.isfinite()
    found: list[Tensor | None] = [y, *([None] * len(trial.names))]
    found[1 + k] = torch.where(exempt, want, along)
    return found


def _overwriting(trial: Trial) -> dict[str, Mode]:
    found: dict[str, Mode] = {}
    if "out" in trial.keywords:
        found |= {"out=": _out, "out= with strides": _strided_out}
    if "inplace" in trial.keywords:
        found |= {"in place": _in_place, "in place with a gradient": _graded_in_place}
    return found


def _out(trial: Trial) -> Results:
    out = torch.full_like(trial.points[0], -7)
    trial.function(*trial.points, out=out)
    return (out,)


def _strided_out(trial: Trial) -> Results:
    out = torch.full((COUNT, 2), -7.0, device=trial.device, dtype=trial.dtype)
    trial.function(*trial.points, out=out[:, 0])
    clean = bool((out[:, 1] == -7).all())  # nothing is written in between
    return (out[:, 0] if clean else torch.full_like(trial.points[0], torch.nan),)


def _in_place(trial: Trial) -> Results:
    first, *others = (t.clone() for t in trial.points)
    trial.function(first, *others, inplace=True)
    return (first,)


def _graded_in_place(trial: Trial) -> Results:
    leaves = _leaves(trial)
    first, *others = leaves
    y = trial.function(first.clone(), *others, inplace=True)
    return (y, *filled(torch.autograd.grad(y, leaves, _ones(y), allow_unused=True), leaves))


def _leaves(trial: Trial) -> Points:
    return tuple(t.detach().requires_grad_() for t in trial.points)


def _ones(y: Tensor) -> Tensor:
    return torch.ones_like(y)
