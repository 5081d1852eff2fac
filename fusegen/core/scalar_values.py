"""Values of the scalars of a formula other than the defaults: a grid for one at a time, and draws of all.

`certify` tries a kernel at these, as it may have other code at 0 or by the sign; `build` looks for zeros of
results there, which a formula may not have at its defaults.
"""

import random
import struct
from collections.abc import Mapping
from fractions import Fraction

SEED = 20261
DRAWS, OCTAVES = 6, 10  # draws of all scalars together, log-uniform within 2**-10 to 2**10


def held(value: float) -> Fraction:
    """Return the float32 nearest to a value: the op-math of every type has it."""
    return Fraction(struct.unpack("f", struct.pack("f", value))[0])


HALVES = tuple(Fraction(k, 2) for k in range(-6, 7))
SIZES = (held(0.1), held(0.01), Fraction(1, 2**30), Fraction(2**30), Fraction(2**33))
VALUES = (*HALVES, *(sign * size for size in SIZES for sign in (1, -1)))


def combinations(scalars: Mapping[str, Fraction]) -> list[dict[str, Fraction]]:
    """Return the combinations that are tried: one scalar at a time, then all of them drawn."""
    found = [{**scalars, name: value} for name in scalars for value in VALUES]
    draw = random.Random(SEED)
    for _ in range(DRAWS if scalars else 0):
        found.append(
            {name: draw.choice((1, -1)) * held(2 ** draw.uniform(-OCTAVES, OCTAVES)) for name in scalars}
        )
    return [values for values in found if values != scalars]
