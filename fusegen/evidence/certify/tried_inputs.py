"""The inputs that a function is tried on: all of them where that can be, else a stated sample.

A sample is stratified: as many random bits of each sign and exponent, ordinary numbers, and every place
where a formula may have a kink, with its neighbours. Of several tensors the columns are shuffled
independently; kinks and specials of two meet on a grid, and some points lie on a line of two inputs, which
are a factor or a distance apart that is a small power of two, 3 or a constant of the formula.
It is the same each time.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from fusegen.core.term import Apply, Number, Program, Term, walk
from fusegen.evidence.certify.findings import Ranges, Subject

INTEGERS = {
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float64: torch.int64,
}
FRACTION_BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7, torch.float64: 52}
EACH, ORDINARY, NEIGHBOURS, MOST_KINKS = 16, 2**14, 3, 400
MODERATE, ON_GRIDS, TIED = 1e4, 2**14, 2**7  # TIED: the points on a line
FACTORS = tuple(sign * size for size in (0.25, 0.5, 1.0, 2.0, 3.0, 4.0) for sign in (1, -1))
MOST_CONSTANTS = 4  # of a formula, which two inputs are apart
MOST_REAL = 2**900  # of constants that become doubles
SPECIALS = (math.nan, math.inf, -math.inf, 0.0, -0.0)
ANYWHERE = (-math.inf, math.inf)  # the range of an input that has none


def every(dtype: torch.dtype) -> Tensor:
    """Return every value of a 16-bit type, infinities and NaN included."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)


def specials(dtype: torch.dtype) -> Tensor:
    """NaN, the infinities, both zeros."""
    return torch.tensor(SPECIALS, dtype=dtype)


def sample(
    program: Program, params: Mapping[str, Fraction], dtype: torch.dtype, masks: Collection[str] = ()
) -> tuple[Tensor, ...]:
    """Return a sample of finite inputs, one-dimensional tensors of a dtype; masks are 0 and 1 only."""
    generator = torch.Generator().manual_seed(20)
    at_kinks = _neighbours(kinks(program, params), dtype)
    columns = []
    for _ in program.inputs:
        ordinary = (_normal(ORDINARY, generator) * 4).to(dtype)
        columns.append(torch.cat([_stratified(dtype, generator), ordinary]))
    if len(columns) == 1:
        column = torch.cat([at_kinks, columns[0]])
        return (column[column.isfinite()],)
    mixed = [column[torch.randperm(len(column), generator=generator)] for column in columns]
    near = torch.stack([(_normal(ORDINARY, generator) * 3).to(dtype) for _ in columns])
    sizes = torch.stack([_moderate(ORDINARY, generator).to(dtype) for _ in columns])
    pairs = list(itertools.combinations(range(len(columns)), 2))
    few = torch.cat([at_kinks, columns[0][:4]])
    each = max(4, math.isqrt(ON_GRIDS // len(pairs)))
    few = few[:: -(-len(few) // each)]
    parts = [torch.stack(mixed), near, sizes]
    ordinary = torch.cat([near[:, : TIED // 2], sizes[:, : TIED - TIED // 2]], 1)
    for pair in pairs:
        parts += [
            _on_grid(pair, few, len(columns), generator),
            *_tied(pair, ordinary, apart(program, params)),
        ]
    points = torch.cat(parts, 1)
    points = points[:, points.isfinite().all(0)]
    for k, name in enumerate(program.inputs):
        points[k] = (points[k] > 0).to(dtype) if name in masks else points[k]
    return tuple(points)


def within(points: tuple[Tensor, ...], ranges: Sequence[tuple[float, float]]) -> Tensor:
    """Return a mask of the points whose every input lies in its range."""
    inside = torch.ones_like(points[0], dtype=torch.bool)
    for column, (low, high) in zip(points, ranges, strict=True):
        inside &= (column.double() >= low) & (column.double() <= high)
    return inside


def inside(subject: Subject, points: tuple[Tensor, ...]) -> Tensor:
    """Return a mask of the points whose every input lies in its judged range."""
    ranges = judged_ranges(subject.program, subject.assume)
    return within(points, [ranges.get(name, ANYWHERE) for name in subject.program.inputs])


def judged(subject: Subject, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return the sample in the judged range."""
    points = sample(subject.program, subject.params, dtype, subject.masks)
    mask = inside(subject, points)
    return tuple(column[mask] for column in points)


def judged_ranges(program: Program, assume: Ranges) -> dict[str, tuple[float, float]]:
    """The range of each input that is judged: as assumed; else of several tensors up to 1e4 in size."""
    if len(program.inputs) == 1:
        return dict(assume)
    return {name: assume.get(name, (-MODERATE, MODERATE)) for name in program.inputs}


def runs(count: int, length: int) -> Iterator[int]:
    """Yield the first bits of runs of a power of two of float32 patterns, spread evenly over all 2**32."""
    number = max(1, count // length)
    if number * length >= 2**32:
        yield from range(0, 2**32, length)
        return
    step = 2**32 // number
    generator = torch.Generator().manual_seed(21)
    for k in range(number):
        offset = int(torch.randint(0, max(1, step - length + 1), (), generator=generator))
        yield (k * step + offset) // length * length


def kinks(program: Program, params: Mapping[str, Fraction]) -> list[float]:
    """Return possible kinks of a formula of these constants: they, their sums and their quotients."""
    parts = [*_parts(program)]
    found = {Fraction(0), Fraction(1), *params.values(), *_constants(program)}
    if any(isinstance(part, Apply) and part.op == "relu6" for part in parts):
        found.add(Fraction(6))
    pairs = list(itertools.product(sorted(found), repeat=2))
    found |= {a + b for a, b in pairs} | {a - b for a, b in pairs} | {a / b for a, b in pairs if b}
    near = sorted(found, key=lambda value: (abs(value), value))[:MOST_KINKS]
    return sorted({float(sign * value) for value in near for sign in (1, -1) if abs(value) < MOST_REAL})


def _parts(program: Program) -> Iterator[Term]:
    for term in (*(let.term for let in program.lets), *program.results):
        yield from walk(term)


def _constants(program: Program) -> set[Fraction]:
    return {part.value for part in _parts(program) if isinstance(part, Number)}


def _on_grid(pair: tuple[int, int], few: Tensor, columns: int, generator: torch.Generator) -> Tensor:
    """Return every two of a few values for a pair of inputs; the others are drawn from them."""
    found = few[torch.randint(len(few), (columns, len(few) ** 2), generator=generator)]
    for k, values in zip(pair, torch.meshgrid(few, few, indexing="ij"), strict=True):
        found[k] = values.flatten()
    return found


def apart(program: Program, params: Mapping[str, Fraction]) -> tuple[float, ...]:
    """The factors and the distances of two inputs: small powers of two, 3, and constants of the formula."""
    own = {float(value) for value in {*params.values(), *_constants(program)} if abs(value) < MOST_REAL}
    further = sorted(own - {0.0, *FACTORS}, key=lambda value: (abs(value), value))[:MOST_CONSTANTS]
    return (*FACTORS, *further)


def _tied(pair: tuple[int, int], points: Tensor, far: tuple[float, ...]) -> Iterator[Tensor]:
    """Points of which two inputs are a factor or a distance apart, and points that are powers of two."""
    x, dtype = points[pair[0]].double(), points.dtype
    for other in (line for by in far for line in (by * x, x + by)):
        tied = points.clone()
        tied[pair[1]] = other.to(dtype)
        yield tied
    powers = points.clone()
    for k in pair:
        _, exponents = torch.frexp(points[k].double())
        powers[k] = torch.copysign(torch.ldexp(torch.ones_like(x), exponents - 1), points[k].double()).to(
            dtype
        )
    yield powers


def _normal(count: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, generator=generator, dtype=torch.float64)


def _neighbours(values: list[float], dtype: torch.dtype) -> Tensor:
    at = torch.tensor(values, dtype=torch.float64).to(dtype)
    bits = at.view(INTEGERS[dtype])
    return torch.cat([bits + k for k in range(-NEIGHBOURS, NEIGHBOURS + 1)]).view(dtype)


def _stratified(dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return random fractions under each sign and exponent, and the ends of each."""
    fraction, width = FRACTION_BITS[dtype], 8 * dtype.itemsize
    exponents = torch.arange(2 ** (width - 1 - fraction) - 1) << fraction
    each = EACH if dtype.itemsize != 4 else 8 * EACH
    random = torch.randint(0, 2**fraction, (len(exponents), each), generator=generator)
    random[:, 0], random[:, 1] = 0, 2**fraction - 1
    positive = (exponents[:, None] + random).flatten()
    if width == 64:
        return torch.cat([positive.view(dtype), -positive.view(dtype)])
    positive = positive.to(INTEGERS[dtype]).view(dtype)
    return torch.cat([positive, -positive])


def _moderate(count: int, generator: torch.Generator) -> Tensor:
    """Return numbers of either sign from 2**-20 to 1e4, as many in each octave."""
    size = 2 ** (torch.rand(count, generator=generator, dtype=torch.float64) * 33.28 - 20)
    return torch.where(torch.rand(count, generator=generator) < 0.5, -size, size)
