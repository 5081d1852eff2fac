"""The faults of each module: their places, parameters, pairs, layouts and sizes are drawn from a seed."""

import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mutants import places
from mutants.errors import CHANGES, HALF, PERCENT, Planted, at_places, told, uniform, where_eager_errs
from mutants.faults import GRADIENT, TANGENT, VALUE, Fault, Tensors, everywhere

LINEAR = "linear in the incoming gradient: "
INCOMING = "one result in every layout of the incoming gradient: "
MODES, LAYOUTS = "one result in every mode: ", "one result in every layout: "
DIFFER, BROADCAST = "one result where layouts differ: ", "one result of broadcast inputs: "
SIZES, NAN = "one result in every size: ", "NaN as in eager: "

PLANTED = (
    Planted("gelu", "bfloat16", "C4", keywords=("inplace", "out")),
    Planted("gelu", "float32", "C1", sweeps=True),
    Planted("elu", "float16", "C4", keywords=("inplace", "out"), params=("alpha",)),
    Planted("relu_hardswish", "bfloat16", "C4", keywords=("inplace", "out"), negative=False),
    Planted("swiglu", "float32", "C3", tensors=2),
    Planted("snake_per_channel", "float64", "C3", keywords=("out",), tensors=2),
)


def faults(module: Planted, seed: int) -> Iterator[Fault]:
    """Return the faults of a module, the same ones for each seed but for what is drawn."""
    draw = random.Random(f"{seed} {module.name}")
    yield from uniform(module)
    yield from at_places(module, draw)
    if module.sweeps:  # the faults of all modules but those are judged before a sweep
        yield from where_eager_errs(draw)
        return
    yield from _incoming(draw)
    yield from _in_layouts(draw)
    yield from _in_modes(module)
    yield from _from_sizes(draw)
    if module.tensors > 1:
        yield from _of_several(module, draw)
    for name in module.params:
        yield from _at_parameters(name, draw)


def _incoming(draw: random.Random) -> Iterator[Fault]:
    most = 2.0 ** draw.randint(1, 5)
    factor = draw.choice((1.01, 1.5, -1.0))
    changes: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
        "squared": (lambda grad: grad * grad, LINEAR),
        "ignored": (torch.ones_like, LINEAR),
        "without its sign": (torch.abs, LINEAR),
        f"clamped to {most:g}": (lambda grad: grad.clamp(-most, most), LINEAR),
        "of 0 taken for 1": (lambda grad: torch.where(grad == 0, 1, grad), LINEAR),
        f"times {factor:g} where it has strides": (
            lambda grad: grad if grad.is_contiguous() else grad * factor, INCOMING),
        "expanded, read from another place": (
            lambda grad: grad * 2 if 0 in grad.stride() else grad, LINEAR),
    }  # fmt: skip
    for name, (change, rule) in changes.items():
        yield Fault(f"incoming gradient {name}", GRADIENT, change, rule)


def _in_layouts(draw: random.Random) -> Iterator[Fault]:
    dims, stride, offset = draw.choice((2, 4, 5)), draw.choice((2, 3)), draw.choice((1, 3))
    rest, length = draw.randrange(1, 8), draw.randrange(2, 72)
    layouts: dict[str, Callable[[Tensor], Any]] = {
        f"of {dims} dimensions": lambda x: x.dim() == dims,
        "of no dimension": lambda x: x.dim() == 0,
        "transposed": lambda x: x.dim() == 2 and x.stride(0) == 1 and x.stride(1) > 1,
        f"with stride {stride}": lambda x: x.dim() == 1 and x.stride(0) == stride,
        f"from place {offset} on": lambda x: x.storage_offset() == offset and x.is_contiguous(),
        "with gaps between rows": lambda x: x.dim() == 2 and x.stride(1) == 1 and x.stride(0) > x.shape[1],
        "in channels_last": lambda x: x.dim() == 4 and not x.is_contiguous(),
        "expanded": lambda x: 0 in x.stride(),
        f"of {length} elements": lambda x: x.numel() == length,
        f"whose length leaves {rest} of 8": lambda x: places.tail(x, rest),
    }
    for name, layout in layouts.items():
        part, what = draw.choice(((VALUE, "1 % off"), (VALUE, "zero"), (GRADIENT, "50 % off")))
        yield Fault(f"{part} {what} {name}", part, CHANGES[what], LAYOUTS, places.of_first(layout))


def _in_modes(module: Planted) -> Iterator[Fault]:
    modes: dict[str, Callable[[Tensors, Mapping[str, Any]], bool]] = {
        "under no_grad": lambda tensors, _: (
            not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        ),
        "in inference_mode": lambda tensors, _: torch.is_inference_mode_enabled(),
        "without a gradient": lambda tensors, _: not any(t.requires_grad for t in tensors),
        "under vmap": lambda tensors, _: torch._C._functorch.is_batchedtensor(tensors[0]),
    }
    for name, where in modes.items():
        yield Fault(f"value 1 % off {name}", VALUE, PERCENT, MODES, where)
    for keyword in module.keywords:
        called = partial(places.called, keyword)
        yield Fault(f"value 1 % off with {keyword}=", VALUE, PERCENT, MODES, called)
    yield Fault("gradient 50 % off under create_graph", GRADIENT, _of_a_graph, MODES)
    yield Fault("tangent 50 % off", TANGENT, HALF, MODES)
    if module.tensors > 1:
        name = "gradient 1 % off if only the second is asked for"
        yield Fault(name, GRADIENT, PERCENT, MODES, places.second_only)


def _from_sizes(draw: random.Random) -> Iterator[Fault]:
    for part in (VALUE, GRADIENT):
        least = 2 ** draw.randint(14, 20)
        what = draw.choice(("1 % off", "50 % off"))
        large = partial(places.large, least)
        yield Fault(f"{part} {what} from {least:,} elements on", part, CHANGES[what], SIZES, large)
    last = places.of_first(places.last)
    yield Fault("value zero at the end of a large tensor", VALUE, CHANGES["zero"], SIZES, last)


def _of_several(module: Planted, draw: random.Random) -> Iterator[Fault]:
    factor = draw.choice((0.25, -0.5, 1.0, -1.0, 2.0, 3.0, -3.0, 4.0))
    apart = draw.choice((0.25, -0.5, 1.0, -1.0, 2.0, 3.0, -4.0))
    lines: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        f"where the second input is {factor:g} times the first": lambda x, y: y == (factor * x).to(y.dtype),
        f"where the second input is the first and {apart:g}": lambda x, y: (
            y == (x.double() + apart).to(y.dtype)
        ),
        "where both are powers of two": lambda x, y: places.power(x) & places.power(y),
    }
    for name, line in lines.items():
        for part in (VALUE, GRADIENT):
            on = places.of_both(line)
            yield Fault(f"{part} 50 % off {name}", part, HALF, told(part, module.rule), on)

    shapes: dict[str, tuple[Callable[[Tensor, Tensor], bool], str]] = {
        "if the second is a row": (lambda x, y: y.dim() == 1 and x.dim() == 2, BROADCAST),
        "if the second is a column": (
            lambda x, y: y.shape[-1:] == (1,) and x.shape[-1:] != (1,),
            BROADCAST,
        ),
        "if the first is a number": (lambda x, y: x.dim() == 0 and y.dim() > 0, BROADCAST),
        "if their strides differ": (lambda x, y: x.shape == y.shape and x.stride() != y.stride(), DIFFER),
    }
    for name, (shape, rule) in shapes.items():
        part = draw.choice((VALUE, GRADIENT))
        yield Fault(f"{part} 50 % off {name}", part, HALF, rule, places.of_both(shape))
    if module.name == "swiglu":  # the only one of these whose inputs may be infinite
        lost = places.of_both(_nan_beside_inf)
        yield Fault("NaN lost beside an infinity", VALUE, torch.nan_to_num, NAN, lost)


def _at_parameters(name: str, draw: random.Random) -> Iterator[Fault]:
    values = draw.sample([k / 2 for k in range(-6, 7) if k not in (0, 2)], 3)
    values += [draw.choice((2.0**30, -(2.0**30), 2.0**-30, 2.0**33))]
    for value in values:
        part, what = draw.choice(((VALUE, "1 % off"), (VALUE, "negated"), (GRADIENT, "50 % off")))
        rule = re.escape(f"with {name} = {value:.6g}: {part}")
        yield Fault(
            f"{part} {what} at {name} = {value:g}",
            part,
            CHANGES[what],
            rule,
            everywhere,
            partial(places.has, name, value),
        )
    yield Fault(
        f"value 1 % off unless 2 {name} is whole",
        VALUE,
        PERCENT,
        f"with {name} = ",
        at=partial(places.odd, name),
    )


def _of_a_graph(grad: Tensor) -> Tensor:
    """Return a wrong gradient where a graph of it is recorded."""
    return HALF(grad) if torch.is_grad_enabled() else grad


def _nan_beside_inf(x: Tensor, y: Tensor) -> Tensor:
    return y.isnan() & x.isinf()
