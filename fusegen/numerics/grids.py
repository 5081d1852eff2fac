"""The spacing of the cubic polynomials that give a function's float32 results on CUDA.

A warp takes the longer to look 32 of them up the more cache lines they lie in. So there are as few as the
function lets there be: a line begins as early as it fits, and centres are as far apart as a sample says.
Centres decide speed alone: wherever they are, no piece is used whose error exceeds its bound.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from fusegen.core.cubic import UNIFORM, Function, HalfGrid, UniformGrid, is_wrong, piece_fits, to_float, ulp

STEPS = tuple(2.0**-e for e in (4, 5, 6, 7))
FINEST_STEP = STEPS[-1]
LINE_STARTS = (0.25, 0.5, *map(float, (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64)))
LINE_POINT, LAST = 2.0**10, 2.0**126  # where the line passes through, and up to where it is tried
LINE_SAMPLES = (*(k / 16 for k in range(1, 1024)), *(2.0**e for e in range(6, 127)))
MOST_SAMPLED = 16.0  # the largest |x| at which a step is tried; few numbers are larger
SPREADS = (1.0, 2.0, 4.0)  # of the normal distributions that say how many numbers a piece has
MOST_MISFITS = 1e-4  # the share of these numbers where the error of the piece may exceed its bound
LINE_ULP, CUBIC_ULP = 0.75, 0.5  # that a polynomial may err by before it is rounded
PIECES_CHECKED = 4  # from 0 on: many numbers are there; near a zero the first value's rounding decides
MOST_FALL = 0.6  # of a centre's value, up to the end of its piece, so that few digits cancel


def uniform_grid(function: Function) -> UniformGrid:
    """Return the grid with the fewest pieces that fit a function."""
    return UniformGrid(_half_grid(function), _half_grid(lambda sizes: function([-size for size in sizes])))


def _half_grid(function: Function) -> HalfGrid:
    """Return the centres on one side of 0, where a function takes sizes."""
    sampled = dict(zip(LINE_SAMPLES, function(LINE_SAMPLES), strict=True))
    linear_tail = next((end for end in LINE_STARTS if _is_linear(sampled, end)), None)
    end = linear_tail or LINE_STARTS[-1]
    values = function([k * FINEST_STEP for k in range(int(min(end, MOST_SAMPLED) / FINEST_STEP) + 5)])

    def enough(step: float) -> bool:
        return _misfit_rate(values, step) <= MOST_MISFITS and all(
            piece_fits(function, step, k, UNIFORM) for k in range(PIECES_CHECKED)
        )

    step = next(filter(enough, STEPS), FINEST_STEP)
    return HalfGrid(step, int(end / step) + 1, linear_tail is not None)


def _is_linear(values: Mapping[float, float], end: float) -> bool:
    """Yield True if a line gives all that lies beyond an end."""
    rise = (values[LAST] - values[LAST / 2]) / (LAST / 2)
    slope, base = to_float(rise), to_float(values[LINE_POINT] - rise * LINE_POINT)

    def misses() -> Iterator[bool]:
        for size, exact in values.items():
            if size >= end:
                yield is_wrong(base + slope * size, exact, LINE_ULP)

    return not any(misses())


def _misfit_rate(values: Sequence[float], step: float) -> float:
    """Return the share of numbers whose piece would err by too much, were centres a step apart.

    Its quadratic leaves a quarter of the cubic Chebyshev polynomial, by the fourth differences of values.
    """
    wide = int(step / FINEST_STEP)
    found = 0.0
    for centre in range(0, len(values) - 4, wide):
        near = range(max(centre - wide // 2, 0), min(centre + wide // 2 + 1, len(values) - 4))
        if not _is_smooth(values, centre, wide, near):
            found += sum(_density(centre * FINEST_STEP, scale) for scale in SPREADS) / len(SPREADS)
    return found * step


def _is_smooth(values: Sequence[float], centre: int, wide: int, near: range) -> bool:
    """Yield True if one piece would give what is near its centre."""
    if centre:
        rise = abs(values[centre + 1] - values[centre - 1]) / 2
        if not rise * wide / 2 <= MOST_FALL * abs(values[centre]):
            return False

    def misses() -> Iterator[bool]:
        for k in near:
            a, b, c, d, e = values[max(k - 2, 0) :][:5]
            left = abs(a - 4 * b + 6 * c - 4 * d + e) * wide**3
            yield not left * (wide / 1536 if centre else k / 6144) <= CUBIC_ULP * ulp(values[k])

    return not any(misses())


def _density(x: float, scale: float) -> float:
    """Of a normal distribution."""
    return math.exp(-((x / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))
