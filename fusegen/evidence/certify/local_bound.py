"""The findings of the local bound: errors by cell of a sweep, or by box of a sample."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Breach:
    """A rule of the local bound that an output breaks; docs/certificates.md has the rules."""

    rule: str  # ``C1`` to ``C6``
    # count, of: how many cells, boxes or binades break it, and of how many
    count: int
    of: int
    unit: str  # ``cells``, ``boxes`` or ``binades``
    # ulp, eager: the largest errors of ours and of eager's in the worst of them
    ulp: float
    eager: float
    inputs: tuple[str, ...]  # of our largest error there, as hexadecimal floats


@dataclass(frozen=True)
class Run:
    """Neighbouring cells with errors above 4 ulp."""

    # low, high: the least and the largest input, as hexadecimal floats
    low: str
    high: str
    # ulp, eager: the largest errors of ours and of eager's
    ulp: float
    eager: float


@dataclass(frozen=True)
class Local:
    """The errors of an output by cell of a float32 sweep, or by point of a sample."""

    over: tuple[int, int] = (0, 0)  # how many cells or points have an error above 4 ulp, ours and eager's
    blind: int = 0  # in how many cells eager is no yardstick: half of its errors exceed 128 ulp
    kept: int = 0  # in how many of those ours is within 4 ulp
    # the cells in which ours is above 4 ulp, as at most `MOST_RUNS` intervals that cover them
    runs: tuple[Run, ...] = ()
    breaches: tuple[Breach, ...] = ()  # the rules that are broken
    # the same cells as intervals without a gap, as many as there are; not written down
    clusters: tuple[Run, ...] = ()
