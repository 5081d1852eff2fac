"""Numbers of certification: roundings and ulp, the filter's intervals, the sweep's sums."""

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, reduce
from itertools import combinations
from typing import Any

import pytest
import torch
from budget import FULL, SHARE, thinned
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from fusegen.algebra.simplify.stable import stable
from fusegen.core.ops import OPS
from fusegen.core.term import Let, Name, Number, Program, Term, call, names, substitute
from fusegen.evidence.certify import exact, guard, slopes, specials, sweep, tried_inputs
from fusegen.evidence.certify.cells import CELL, EAGER, NEGATIVE, OURS, POSITIVE, Cells
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.exact import Reals
from fusegen.evidence.certify.findings import Evidence, Function, Subject
from fusegen.evidence.certify.interval_filter import CPU_FLAGS, IntervalFilter, SweepTotals

X, Y, Z = (Name(name) for name in "xyz")
DTYPES = {"float32": (24, -126, 127), "float16": (11, -14, 15), "bfloat16": (8, -126, 127)}
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for small tensors take more time than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def doubles(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def floats(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def unary(term: Term) -> Program:
    return Program(("x",), (), (), (term,))


def subject_of(
    name: str, program: Program, given: Function, eager: Function | None = None, **more: Any
) -> Subject:
    return Subject(name, program, stable(program)[0], {}, given, eager, **more)


# --- rounding -------------------------------------------------------------------------------------------


def nearest(number: Fraction, dtype: str) -> float:
    """A number rounded to a dtype, ties to even, by exact arithmetic."""
    bits, least, most = DTYPES[dtype]
    size, exponent = abs(number), least
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    quantum = Fraction(2) ** (exponent - bits + 1)
    rounded = round(size / quantum) * quantum
    magnitude = math.inf if rounded >= Fraction(2) ** (most + 1) else float(rounded)
    return math.copysign(magnitude, number)


def rounded(hi: float, lo: float, dtype: str) -> float:
    kind = getattr(torch, dtype)
    return float(exact.reals(doubles(hi), doubles(lo), kind).rounded)


@st.composite
def numbers(draw: st.DrawFn, dtype: str) -> tuple[float, float]:
    """Two doubles whose sum is anywhere, or at or beside a tie: of subnormals, and beyond the range too."""
    bits, least, most = DTYPES[dtype]
    exponent = draw(st.integers(least - bits - 2, most + 2))
    tie = draw(st.integers(2**bits, 2 ** (bits + 1) - 1)) << (52 - bits)
    whole = draw(st.sampled_from([tie - 1, tie, tie + 1]) | st.integers(2**52, 2**53 - 1))
    if exponent < least:  # fewer places are left
        places = max(1, bits + 1 - (least - exponent))
        whole = (whole >> (53 - places) << (53 - places)) + draw(st.sampled_from([-1, 0, 1]))
    hi = math.ldexp(draw(st.sampled_from([1, -1])) * whole, exponent - 52)
    lo = hi * draw(st.sampled_from([0.0, 2.0**-53, -(2.0**-54), 2.0**-70, -(2.0**-90)])) * 0.99
    assume(hi + lo == hi)
    return hi, lo


def assert_rounded(hi: float, lo: float, dtype: str) -> None:
    found, expected = rounded(hi, lo, dtype), nearest(Fraction(hi) + Fraction(lo), dtype)
    assert (found, math.copysign(1, found)) == (expected, math.copysign(1, hi))


@EVERY_DTYPE
@given(data=st.data())
def test_a_sum_of_two_doubles_is_rounded_once(dtype: str, data: st.DataObject) -> None:
    assert_rounded(*data.draw(numbers(dtype)), dtype)


@pytest.mark.parametrize("sign", [1, -1])
@EVERY_DTYPE
def test_half_of_the_least_number_is_a_tie(dtype: str, sign: int) -> None:
    bits, least, _ = DTYPES[dtype]
    half = sign * math.ldexp(0.5, least - bits + 1)
    for hi in (half, half * (1 - 2**-53), half * (1 + 2**-52)):
        for lo in (0.0, 2**-60 * half, -(2**-60) * half):
            assert_rounded(hi, lo, dtype)


@pytest.mark.together
@pytest.mark.parametrize("hi", [0.0, -0.0, math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324])
@EVERY_DTYPE
def test_an_end_of_the_doubles_is_rounded_like_any_number(hi: float, dtype: str) -> None:
    expected = torch.tensor(hi, dtype=torch.float64).to(getattr(torch, dtype))
    assert math.copysign(1, rounded(hi, 0.0, dtype)) == math.copysign(1, hi) or math.isnan(hi)
    assert rounded(hi, 0.0, dtype) == pytest.approx(float(expected), abs=0, rel=0, nan_ok=True)


def test_a_double_is_its_own_rounding() -> None:
    assert rounded(0.1, 1e-18, "float64") == 0.1


# --- ulps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
def test_an_ulp_is_the_unit_in_the_last_place(dtype: str) -> None:
    kind = getattr(torch, dtype)
    info = torch.finfo(kind)
    sizes = doubles(0.0, math.nan, info.smallest_normal, 1.0, 1.999, 2.0, info.max, math.inf)
    least = info.smallest_normal * info.eps
    expected = [least, least, least, info.eps, info.eps, 2 * info.eps]
    found = exact.ulp(sizes, kind).tolist()
    assert found[:6] == expected
    assert {info.max / ulp for ulp in found[6:]} == {2 ** (tried_inputs.FRACTION_BITS[kind] + 1) - 1}


def test_an_ulp_is_that_of_the_result_where_terms_cancel() -> None:
    """GELU by erf, far out: as small as a result is, so small is its ulp."""
    tail = -0.5 * math.erfc(12.5 / math.sqrt(2)) * 12.5
    found = exact.errors(floats(1e16 * tail), reals(tail))
    assert found.tolist() == [pytest.approx(1e16 * 2**23, rel=1)]
    assert found[0] > 1e22


def reals(*hi: float, dtype: torch.dtype = torch.float32) -> Reals:
    return exact.reals(doubles(*hi), torch.zeros(len(hi), dtype=torch.float64), dtype)


# --- errors ---------------------------------------------------------------------------------------------

INF, NAN, MOST = math.inf, math.nan, torch.finfo(torch.float32).max
ERRORS = {
    (1.0, 1.0): 0.0,
    (1.0 + 2**-23, 1.0): 1.0,
    (1.0, 1.0 + 2**-25): 0.25,
    (-1.0, 1.0): 2.0**24,
    (2.0**-149, 0.0): 1.0,
    (0.0, 2.0**-200): 2.0**-51,
    (NAN, 1.0): INF,
    (INF, 1.0): 2.0**151 - 2.0**23,
    (INF, INF): 0.0,
    (INF, 1e300): 0.0,
    (MOST, 1e300): 1.0,
    (MOST, -1e300): 2.0**25 - 1,
    (NAN, NAN): 0.0,
    (INF, NAN): 0.0,
    (1.0, NAN): INF,
}


@pytest.mark.together
@pytest.mark.parametrize(("got", "real"), ERRORS, ids=str)
def test_an_error_is_counted_in_ulp(got: float, real: float) -> None:
    assert exact.errors(floats(got), reals(real)).tolist() == [ERRORS[got, real]]


def test_the_second_double_counts() -> None:
    real = exact.reals(doubles(1.0), doubles(2.0**-60), torch.float64)
    assert exact.errors(doubles(1.0), real).tolist() == [2.0**-8]
    assert exact.errors(doubles(1.0 + 2**-52), real).tolist() == [1 - 2.0**-8]


def test_what_overflows_early_is_counted_apart() -> None:
    got = floats(INF, INF, MOST, -INF)
    found = exact.accuracy((floats(1, 2, 3, 4),), got, reals(MOST, 2.0**128, MOST, -1.0))
    assert (found.overflows, found.misrounded, found.ulp) == (2, 0, 0.0)


def test_results_are_misrounded_or_beyond_the_neighbour() -> None:
    one = 1.0
    got = torch.tensor([one, one + 2**-10, one + 2**-9, NAN, NAN, one], dtype=torch.float16)
    real = reals(one, one, one, one, NAN, one + 2**-12, dtype=torch.float16)
    found = exact.accuracy((torch.arange(6.0),), got, real)
    assert (found.misrounded, found.beyond_neighbour) == (3, 2)


@pytest.mark.parametrize("dtype", tried_inputs.INTEGERS)
def test_neighbours_are_one_apart(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    a = torch.tensor([1, 1, 1, 1, 0.0, -0.0, least, -least, info.max, INF, NAN, NAN, -INF], dtype=dtype)
    one = [1, 1 + info.eps, 1 - info.eps / 2, 1 - info.eps]
    b = torch.tensor([*one, -0.0, least, -least, 0, INF, INF, NAN, INF, INF], dtype=dtype)
    expected = [True, True, True, False, True, True, False, True, True, True, False, False, False]
    assert exact.neighbours(a, b).tolist() == expected
    assert exact.neighbours(b, a).tolist() == expected


def test_the_worst_inputs_are_of_different_magnitudes() -> None:
    at = floats(1.0, 1.5, -1.0, 4.0, 64.0, 1024.0, 0.0)
    got = floats(*(1 + k * 2**-23 for k in (1, 3, 2, 5, 4, 0.9, 0)))
    found = exact.worst((at,), got, reals(*[1.0] * 7), exact.errors(got, reals(*[1.0] * 7)))
    assert [(float.fromhex(row.inputs[0]), row.ulp) for row in found] == [
        (4.0, 5.0), (64.0, 4.0), (1.5, 3.0), (-1.0, 2.0),
    ]  # fmt: skip
    assert (found[0].got, found[0].real) == ((1 + 5 * 2**-23).hex(), (1.0).hex())


def test_bits_differ_but_for_nan() -> None:
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    a = torch.cat([floats(0.0, 1.0, NAN, NAN), other])
    b = floats(-0.0, 1.0, NAN, 1.0, NAN)
    assert exact.bits_differ(a, b).tolist() == [True, False, False, True, False]


# --- inputs ---------------------------------------------------------------------------------------------


def test_a_sample_holds_both_sides_of_every_kink_and_is_the_same_each_time() -> None:
    program = Program(("x",), ("a",), (), (call("relu6", X + 3) / Name("a"),))
    params = {"a": Fraction(5, 2)}
    (found,) = tried_inputs.sample(program, params, torch.float64)
    held = set(found.tolist())
    for kink in (-3.0, 3.0, 2.5, 0.4):
        assert {math.nextafter(kink, -INF), kink, math.nextafter(kink, INF)} <= held
    assert found.isfinite().all()
    assert torch.equal(found, tried_inputs.sample(program, params, torch.float64)[0])


def test_every_sixteen_bit_number_is_an_input() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        assert sorted(tried_inputs.every(dtype).view(torch.int16).tolist()) == list(range(-(2**15), 2**15))


@pytest.mark.parametrize("count", [1, 2**18, 3 * 2**20 + 5])
def test_runs_are_spread_and_apart(count: int) -> None:
    found = list(tried_inputs.runs(count, 2**16))
    assert len(set(found)) == len(found) == max(1, count // 2**16)
    assert all(start % 2**16 == 0 and 0 <= start < 2**32 for start in found)
    assert count == 1 or {start >> 31 for start in found} == {0, 1}


def test_as_many_runs_as_there_are_inputs_are_all_of_them() -> None:
    assert list(tried_inputs.runs(2**32, 2**26)) == list(range(0, 2**32, 2**26))


@pytest.mark.parametrize(
    ("count", "length"),
    [
        (1, 1),
        (255, 1),
        (256, 1),
        (512, 2),
        (100_000, 256),
        (2**24 - 1, 2**15),
        (2**24, 2**16),
        (2**30, 2**16),
    ],
)
def test_a_small_sample_is_of_short_runs(count: int, length: int) -> None:
    """So that it meets many exponents, and fractions that are not all round."""
    assert sweep.run_of(count) == length


# --- the filter -----------------------------------------------------------------------------------------

FORMS: dict[str, Term] = {
    **{
        op: call(op, *([X < Y, Y, Z] if op == "where" else (X, Y, Z)[: len(row.args)]))
        for op, row in OPS.items()
        if row.args and not row.boolean
    },
    "x * pi": X * call("pi"),
    "x * e": X * call("e"),
    "1 + tanh(x)": 1 + call("tanh", X),
    "tanh(x) + 1": call("tanh", X) + 1,
    "1 - tanh(x)": 1 - call("tanh", X),
    "1 + erf(x)": 1 + call("erf", X),
    "1 - sigmoid(x)": 1 - call("sigmoid", X),
    "relu(x / 3 - 1 / 3)": call("relu", X / 3 - Number(Fraction(1, 3))),
    "0.1 * x * x": Fraction(1, 10) * X * X,
    **{f"x ** {power}": call("pow", X, Fraction(power)) for power in ("2", "3", "4", "1/2", "-1", "-1/2")},
    **{f"x ** {power}": call("pow", X, Fraction(power)) for power in ("-2", "17/10", "5", "-7", "0", "1")},
}
VIAS: dict[str, Term] = {
    "x": X,
    "x / 3": X / 3,
    "nearly x / 3": (X / 3 + 2**29) - 2**29,
    "roughly x / 3": (X / 3 + 2**52) - 2**52,
}
KINKS = (0.0, 0.25, 1.0, 3.0, 6.0)
FAR = (5e-324, 1e-310, 1e-300, 1e-20, 88.0, 700.0, 1e5, 1e20, MOST, 1e300)
DECIDED = 2.0**-12


def chosen(name: str, terms: Iterable[Term]) -> Term:
    """One of some terms: that whose number an input is."""
    *rows, last = enumerate(terms)
    return reduce(lambda rest, row: call("where", Name(name) <= row[0], row[1], rest), rows[::-1], last[1])


def of_many(program: Program) -> IntervalFilter:
    """A filter of so many forms that to compile it as others are takes three times as long."""
    found = IntervalFilter(stable(program)[0], {})
    with pytest.MonkeyPatch.context() as patch:
        flags = tuple("-O1" if flag == "-O3" else flag for flag in CPU_FLAGS)
        patch.setattr("fusegen.evidence.certify.interval_filter.CPU_FLAGS", flags)
        assert found.cpu
    return found


PARTS = 2 * SHARE  # of the forms; a library of all of them takes twice as long to compile as these
PART = {form: tuple(list(FORMS)[k % PARTS :: PARTS]) for k, form in enumerate(FORMS)}


@cache
def filter_of(part: tuple[str, ...]) -> IntervalFilter:
    """Some forms in one library; `form` and `via` say which of what."""
    forms = (substitute(FORMS[form], {"x": Name("u")}) for form in part)
    let = Let("u", chosen("via", VIAS.values()))
    return of_many(Program(("form", "via", "x", "y", "z"), (), (let,), (chosen("form", forms),)))


def points() -> list[tuple[float, float, float]]:
    """Kinks against kinks, random numbers of every size, and what is far out; y is below z."""
    generator = torch.Generator().manual_seed(3)
    random = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    random *= torch.logspace(-3, 2, 60, dtype=torch.float64).unsqueeze(1)
    mixed = [(x, min(y, z), max(y, z)) for x, y, z in random.tolist()]
    at_kinks = [(x, y, z) for x in (-1.0, *KINKS) for y, z in combinations(KINKS, 2)]
    signed = [sign * x for x in (*KINKS, *FAR) for sign in (1, -1)]
    return [*mixed, *at_kinks, *((x, 1.5, 6.0) for x in signed)]


@pytest.mark.together
@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("form", thinned(FORMS))
def test_an_interval_holds_the_number_and_its_slopes(form: str, via: str) -> None:
    term = substitute(FORMS[form], {"x": VIAS[via]})
    arguments = tuple(sorted(names(term)))
    enclosure = Enclosure(Program(arguments, (), (), (term,)), {})
    at = points() if len(arguments) > 1 else sorted({(x, 1.5, 6.0) for x, _, _ in points()})
    places = PART[form].index(form), list(VIAS).index(via)
    which = [torch.full((len(at),), float(place)) for place in places]
    columns = torch.tensor(at, dtype=torch.float64).T
    found = filter_of(PART[form]).enclose(*which, *columns)
    slots = [0, *(3 + "xyz".index(name) for name in arguments)]
    decided = defined = 0
    for point, *intervals in zip(at, *found[slots].tolist(), strict=True):
        real = enclosure(*(point["xyz".index(name)] for name in arguments))
        for interval, number in zip(intervals, real, strict=True):
            if not math.isnan(number.hi):
                assert guard.holds(interval, number), (point, intervals, real)
                low, high = (min(max(end, -(2.0**128)), 2.0**128) for end in interval)
                defined += 1
                decided += high - low <= DECIDED * float(exact.ulp(doubles(abs(number.hi)), torch.float32))
        low, high = intervals[0]
        assert not math.isnan(real[0].hi) or INF in (-low, high), point
    wide = "ly" in via or form == "x ** 5"  # a power of a negative number is left to enclosures
    assert decided > 0.8 * defined or wide


@pytest.mark.full
def test_a_program_that_is_another_function_is_no_filter() -> None:
    subject = subject_of("planted", unary(1 + call("erf", X)), torch.clone)
    guard.check(subject, IntervalFilter(subject.stable, {}))
    nearly = unary(call("erfc", -X) * (1 + Fraction(1, 2**40)))
    with pytest.raises(guard.WrongFilter, match="the stable program of planted is not its formula: at "):
        guard.check(subject, IntervalFilter(nearly, {}))
    kink = subject_of("planted", unary(call("relu", X)), torch.clone)
    other = unary(call("where", X >= 0, X, 0))  # the same but for the slope at 0
    with pytest.raises(guard.WrongFilter, match=r"at -?0\.0 its derivative lies between 1\.0 and 1\.0"):
        guard.check(kink, IntervalFilter(other, {}))


# --- the sweep ------------------------------------------------------------------------------------------

RUN = 2**16  # of a sample of 2**24
PI = tuple(
    map(float.fromhex, ("0x3.243F6A8p0", "0x0.0000000885A308p0", "0x0.00000000000000D313198A2E037p0"))
)


def planted(value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> Function:
    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return value(x).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return grads[0] * slope(*ctx.saved_tensors)

    apply: Function = Planted.apply
    return apply


def off(values: Tensor, inputs: Tensor, most: int) -> Tensor:
    """Values that miss by up to so many last places, as the bits of the inputs say; some become NaN."""
    noise = inputs.view(torch.int32) * 40503 // 128 % (2 * most + 1) - most
    return (values.view(torch.int32) + noise).view(torch.float32)


def swept(
    monkeypatch: pytest.MonkeyPatch, judged: Subject, interval_filter: IntervalFilter, start: int
) -> tuple[Tensor, sweep.Swept]:
    """One run of inputs, and what the sweep finds on it."""
    monkeypatch.setattr(sweep, "runs", lambda count, length: iter([start]))
    x = (torch.arange(start, start + RUN) - 2**32 * (start >= 2**31)).to(torch.int32).view(torch.float32)
    return x, sweep.sweep(judged, interval_filter, "cpu", 2**24, lambda done: None)


STARTS = {"above 1": 0x3F800000, "below -1": 0xBF800000, "small": 0x00000000, "overflowing": 0x7EA20000}


@given(lengths=st.lists(st.integers(0, 40), max_size=12), room=st.integers(1, 50))
def test_open_inputs_are_thinned_evenly(lengths: list[int], room: int) -> None:
    every = torch.arange(sum(lengths), dtype=torch.int32).flip(0)
    opened = sweep.OpenInputs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "MOST_OPEN", room)
        for part in torch.split(every, lengths):
            opened.add(part)
    kept = every[:: opened.step]
    assert opened.ordered().tolist() == kept.flip(0).tolist()
    assert (opened.seen, opened.count) == (len(every), len(kept))
    assert len(kept) <= room
    assert opened.step == 1 or len(every[:: opened.step // 2]) > room


@pytest.fixture(scope="module")
def times() -> IntervalFilter:
    """Of a product that is never a tie."""
    return IntervalFilter(unary(call("pi") * X), {})


def times_pi(x: Tensor) -> Reals:
    """Floats times pi, as two doubles; pi is cut so that the first two products are exact."""
    high, middle, low = (x * part for part in PI)
    hi = high + middle
    return exact.reals(hi, middle - (hi - high) + low, torch.float32)


@pytest.mark.full
@pytest.mark.parametrize("run", STARTS)
def test_the_sums_of_a_sweep_are_those_of_every_input(
    monkeypatch: pytest.MonkeyPatch, times: IntervalFilter, run: str
) -> None:
    def near(x: Tensor) -> Tensor:
        return (math.pi * x.double()).float()

    slope = floats(math.pi)
    given = planted(lambda x: off(near(x), x, 3), lambda x: off(slope.expand_as(x).clone(), x, 2))
    eager = planted(lambda x: off(near(x), x + x, 1), lambda x: slope.expand_as(x))
    subject = subject_of("times", unary(call("pi") * X), given, eager)
    x, found = swept(monkeypatch, subject, times, STARTS[run])
    totals = found.totals
    assert (found.inputs, totals.open, len(found.open), found.lost) == (RUN, 0, 0, 0)
    results = [slopes.value_and_slopes(function, (x,)) for function in (given, eager)]
    for k, factors in enumerate((x.tolist(), [1.0] * RUN)):
        real = times_pi(doubles(*factors))
        ours, theirs = (result[k] for result in results)
        for who, got in enumerate((ours, theirs)):
            expected = exact.accuracy((x,), got, real)
            assert totals.misrounded[k][who] == expected.misrounded
            assert totals.overflows[k][who] == expected.overflows
            largest = float(found.cells.largest(k, who).max())
            assert min(largest, 1e38) == pytest.approx(min(expected.ulp, 1e38), abs=2**-11)
        differ = exact.bits_differ(ours, theirs)
        further = differ & (exact.errors(ours, real) > exact.errors(theirs, real) * (1 + 2**-12))
        assert (totals.bits_differ[k], totals.worse_than_eager[k]) == (differ.sum(), further.sum())
        defined = ours[~ours.isnan()]
        assert (-totals.lowest_given[k], totals.highest_given[k]) == (defined.min(), defined.max())
    for who, (value, _) in enumerate(results):
        steps = (value.double().diff() * (-1 if STARTS[run] >= 2**31 else 1))[torch.arange(1, RUN) % 16 > 0]
        assert totals.monotonicity_breaks[who] == (steps < 0).sum()


# --- many inputs at a time ------------------------------------------------------------------------------

FAR_OFF = {
    16: (24, 24),
    4096: (24, 9),
}  # by 2^24 ulp, and where neighbours are judged together, eager by less
AT = {
    "above 1": 0x3F800000,
    "the end of a cell": 0x3F9FF000,
    "below -1": 0xBF8A0000,
    "small": 0x00000000,
    "a power of two of the result": 0x3FA2F000,
    "overflowing": 0x7EA2F000,
}


def far_off(values: Tensor, inputs: Tensor, most: int) -> Tensor:
    """Values that miss by up to 2**most last places, mostly by few, as the bits of the inputs say."""
    bits = inputs.view(torch.int32).long() * 2654435761 % 2**32
    size = 2 ** (bits % 4096).double().div(4096).pow(3).mul(most)
    size = torch.where(bits % 64 < 48, 0.0, size).long() * (1 - 2 * (bits // 4096 % 2))
    return (values.view(torch.int32).long() + size).to(torch.int32).view(torch.float32)


@pytest.mark.together
@pytest.mark.parametrize("count", FAR_OFF)
@pytest.mark.parametrize("start", AT)
def test_the_cells_of_a_sweep_are_those_of_every_input(
    times: IntervalFilter, start: str, count: int
) -> None:
    """Inputs judged one by one, and neighbours judged together."""
    bits = torch.arange(AT[start], AT[start] + MANY)
    x = (bits - 2**32 * (bits >= 2**31)).to(torch.int32).view(torch.float32)
    real = [times_pi(x.double()), times_pi(torch.ones(MANY, dtype=torch.float64))]
    columns = [
        [far_off(one.hi.float(), x / (1 + 2 * who + k), most) for k, one in enumerate(real)]
        for who, most in enumerate(FAR_OFF[count])
    ]
    totals, cells = tallied(times, columns, AT[start], count)
    cell = AT[start] // CELL
    assert (totals.open, int(cells.inputs[cell]), int(cells.inputs.sum())) == (0, MANY, MANY)
    assert cells.signs[:, cell].tolist() == [POSITIVE if x[-1] > 0 else NEGATIVE, POSITIVE]
    for k, one in enumerate(real):
        for who in (OURS, EAGER):
            found = exact.counted_errors(columns[who][k], one)
            largest = float(cells.largest(k, who)[cell])
            assert min(largest, 1e38) == pytest.approx(
                min(float(found.max()), 1e38), rel=2**-20, abs=2**-11
            )
            at = float.fromhex(cells.worst_input(k, who, cell))
            assert min(float(found[x == at]), 1e38) == pytest.approx(
                min(largest, 1e38), rel=2**-20, abs=2**-10
            )
            counts = cells.counts(k, who)
            assert counts.sum() == counts[cell].sum() > 0
            for level, number in enumerate(counts[cell].tolist()):
                at_most, at_least = (4.0 * 2**level * (1 + side * 2**-12) for side in (-1, 1))
                low, high = (int((found > end).sum()) for end in (at_least, at_most))
                assert low <= number <= high
    if count == MANY and "1" in start:
        few, _ = tallied(times, columns, AT[start], 16)
        assert ends(totals) != ends(few)  # so that neighbours were judged together


@pytest.mark.parametrize("count", FAR_OFF)
def test_an_error_that_rounds_to_4_ulp_is_counted_in_no_cell(count: int) -> None:
    """It is 4 + 2^-24 ulp at 1; a level below the first one is the last one of the cell before."""
    just_below, start = IntervalFilter(unary(X * (1 - Fraction(1, 2**47))), {}), 0x3FC00000
    bits = torch.arange(start, start + MANY, dtype=torch.int32)
    x, one = bits.view(torch.float32), torch.ones(MANY)
    totals, cells = tallied(just_below, [[(bits + 4).view(torch.float32), one], [x, one]], start, count)
    assert (totals.open, int(cells.inputs[start // CELL])) == (0, MANY)
    assert float(cells.largest(0, OURS).max()) == 4
    assert int(cells.above.sum()) == 0


# texts without a function of their own, and constants
ELSEWHERE = {
    "fma",
    "quotient",
    "round_to_storage",
    "select_by_width",
    "clamp_to_lowest",
    "clamp_to_highest",
    "where",
    "x ** 0",
    "x ** 1",
}
OF_ONE = {
    name: substitute(form, {"y": Number(Fraction(3, 2)), "z": Number(Fraction(6))})
    for name, form in FORMS.items()
    if name not in ELSEWHERE
}
FIRST, BINADES = 24, 4  # the exponent of the first form's binades, and how many each form has
PLACES_IN_A_BINADE = (0, 0x123000, 0x400000, 0x7FF000)
MANY = 4096
TOGETHER = 9 if FULL else 3  # forms in one library, which computes all of them for every input
GROUPS = [list(OF_ONE)[k :: -(-len(OF_ONE) // TOGETHER)] for k in range(-(-len(OF_ONE) // TOGETHER))]
PLACE = {form: (tuple(group), k) for group in GROUPS for k, form in enumerate(group)}


@pytest.fixture(
    scope="module", params=[-3, pytest.param(3, marks=pytest.mark.full)], ids=["small", "large"]
)
def of_group(request: pytest.FixtureRequest) -> Callable[[tuple[str, ...]], IntervalFilter]:
    """The filter of some forms, each in binades of its own, where its argument begins at a power of two."""

    def made(group: tuple[str, ...]) -> IntervalFilter:
        terms, edges = [], []
        for k, form in enumerate(group):
            begin = FIRST + BINADES * k - 127
            terms.append(substitute(OF_ONE[form], {"x": X * Fraction(2) ** (request.param - begin)}))
            edges.append(Fraction(2) ** (begin + BINADES))
        pieces = list(zip(edges, terms, strict=True))[-2::-1]
        return of_many(
            unary(
                reduce(
                    lambda rest, row: call("where", call("abs", X) < row[0], row[1], rest),
                    pieces,
                    terms[-1],
                )
            )
        )

    return cache(made)


@pytest.mark.full
@pytest.mark.parametrize(
    "sign", [0, pytest.param(2**31, marks=pytest.mark.full)], ids=["positive", "negative"]
)
@pytest.mark.parametrize(
    "form", [form if form in GROUPS[0] else pytest.param(form, marks=pytest.mark.full) for form in OF_ONE]
)
def test_many_inputs_at_a_time_give_the_sums_of_few(
    of_group: Callable[[tuple[str, ...]], IntervalFilter], form: str, sign: int
) -> None:
    group, place = PLACE[form]
    of_all, binades = of_group(group), sign + ((FIRST + BINADES * place) << 23)
    together = 0
    for start in [binades + k * 2**23 + place for k in range(BINADES) for place in PLACES_IN_A_BINADE]:
        bits = torch.arange(start, start + MANY)
        x = (bits - 2**32 * (bits >= 2**31)).to(torch.int32).view(torch.float32)
        real = of_all.enclose(x.double()).mean(-1)
        real = real.clamp(-3e38, 3e38).nan_to_num(0.0).float()
        columns = [[off(column, x * (1 + who), 2 - who) for column in real] for who in (0, 1)]
        columns = [[torch.where(r == 0, r, c) for r, c in zip(real, own, strict=True)] for own in columns]
        (many, cells), (few, cells_of_few) = (
            tallied(of_all, columns, start, count) for count in (MANY, 16)
        )
        if few.open:  # terms that cancel, or NaN; polynomials are narrower
            assert many.open <= few.open
            together += sums(many) == sums(few)
            continue
        assert sums(many) == sums(few)
        assert close(many) == pytest.approx(close(few), abs=2)
        assert errors(cells) == pytest.approx(errors(cells_of_few), rel=2**-12, abs=2**-12)
        assert torch.equal(cells.inputs, cells_of_few.inputs)
        assert ends(many) == pytest.approx(ends(few), rel=2**-36, abs=2**-160)
        # of many a rounding is allowed for; a power of two, where results are not, is left to few
        together += ends(many) != ends(few) or bool((real == real[:, :1]).all(-1).any())
    assert together > 0 or form in ("x + y", "x - y", "x * y")  # every other result of which is a tie


def tallied(
    interval_filter: IntervalFilter, columns: list[list[Tensor]], start: int, count: int
) -> tuple[SweepTotals, Cells]:
    """The totals and the cells of a run of inputs, judged so many at a time."""
    totals, room, cells = SweepTotals.empty(), torch.empty(MANY, dtype=torch.int32), Cells.on("cpu")
    for first in range(0, MANY, count):
        task = sweep._task(columns, first, count, start + first, room, cells)
        interval_filter.cpu.sweep(ctypes.byref(task), ctypes.byref(totals), None)
    return totals, cells


def sums(totals: SweepTotals) -> list[int]:
    return [*totals.overflows[0], *totals.overflows[1], *totals.bits_differ, totals.mismatches, totals.open]


def close(totals: SweepTotals) -> list[int]:
    """The counts that may be close: a tie, two results as far, two values but for a rounding."""
    return [
        *totals.misrounded[0],
        *totals.misrounded[1],
        *totals.worse_than_eager,
        *totals.monotonicity_breaks,
    ]


def errors(cells: Cells) -> list[float]:
    return [float(cells.largest(k, who).max()) for k in (0, 1) for who in (0, 1)]


def ends(totals: SweepTotals) -> list[float]:
    return [*totals.lowest, *totals.highest, *totals.lowest_given, *totals.highest_given]


def judged(
    monkeypatch: pytest.MonkeyPatch, start: int, term: Term, given: Function, **more: Any
) -> Evidence:
    monkeypatch.setattr(sweep, "runs", lambda count, length: iter([start]))
    subject = subject_of("planted", unary(term), given, **more)
    return Evaluator(replace(subject, stable=subject.program), "cpu").evidence("float32", 2**24)


@pytest.mark.full
def test_what_the_filter_leaves_open_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tenth = Fraction(1, 10)
    term = 1 + call("relu", tenth * X - tenth)  # at 1, doubles do not tell the side of the kink

    def value(x: Tensor) -> Tensor:
        near = (1 + (0.1 * x.double() - 0.1).relu()).float()
        return torch.where(x == 1, 1 + 2**-23, near)

    given = planted(value, lambda x: torch.where(x > 1, floats(0.1), floats(0.0)))
    value_, slope = judged(monkeypatch, 0x3F800000, term, given, eager=given).outputs
    assert (value_.given.misrounded, value_.given.worst[0].inputs, value_.given.ulp) == (
        1,
        ((1.0).hex(),),
        1.0,
    )
    assert (slope.given.misrounded, value_.bits_differ, value_.worse_than_eager) == (0, 0, 0)


@pytest.mark.full
def test_an_error_counts_where_a_part_of_the_formula_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    given = planted(lambda x: torch.full_like(x, 1e-3), torch.zeros_like)
    subject = subject_of("planted", unary(1 / (1 + call("exp", -X))), given)
    _, found = swept(monkeypatch, subject, IntervalFilter(subject.program, {}), 0xC4480000)  # from -800 on
    seen = float(found.cells.largest(0, 0).max()) > 1
    assert seen or found.totals.open == RUN


def test_another_function_is_told_by_its_first_and_its_worst_input(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = 1 + 2**-20, 1 + 2**-18

    def wrong(x: Tensor) -> Tensor:
        return torch.where((x >= first) & (x <= last), x * (1 + 256 * (x - first) + 2**-11), x)

    same = planted(torch.clone, torch.ones_like)
    other = planted(wrong, torch.ones_like)
    found = judged(
        monkeypatch, 0x3F800000, call("relu", X), same, eager=other, reference="torch.relu"
    ).mismatch
    assert found is not None
    assert found.count == 25
    assert found.first == (first.hex(), first.hex(), float(wrong(floats(first))).hex())
    assert found.worst == (last.hex(), last.hex(), float(wrong(floats(last))).hex())
    assert (
        judged(monkeypatch, 0x3F800000, call("relu", X), same, eager=same, reference="r").mismatch is None
    )


def test_the_worst_results_are_those_of_whole_vectors() -> None:
    """PyTorch's elu on the CPU, for one, is nearer to its function in the elements that fill no vector."""

    def value(x: Tensor) -> Tensor:
        return torch.where(torch.arange(x.numel()) < x.numel() // 64 * 64, x + 1, x)

    eager = planted(value, torch.ones_like)
    subject = subject_of("planted", unary(X + 1), planted(lambda x: x + 1, torch.ones_like), eager=eager)
    evaluator = Evaluator(subject, "cpu")
    for count in (1, 63, 64, 100):
        x = torch.linspace(-1, 1, count)
        given, beside = evaluator.in_vectors((x,))
        assert torch.equal(given[0], x + 1)
        assert torch.equal(beside[0], x + 1)


# eager's vectors give 0 for NaN, and 1 for it in the few elements after them
@pytest.mark.parametrize(
    ("given_at_nan", "beside"), [(0.0, 0.0), (1.0, 1.0), (2.0, 1.0)], ids=["vectors", "elements", "neither"]
)
def test_a_special_value_is_held_against_what_eager_gives_either_way(
    given_at_nan: float, beside: float
) -> None:
    def eager(x: Tensor) -> Tensor:
        return torch.where(x.isnan(), 0.0 if x.numel() > 64 else 1.0, x)

    subject = subject_of(
        "planted",
        unary(call("relu", X)),
        planted(lambda x: torch.where(x.isnan(), given_at_nan, x), torch.ones_like),
        eager=planted(eager, torch.ones_like),
    )
    found = specials.found(Evaluator(subject, "cpu"), torch.float32)[0]
    told = {(special.given, special.eager) for special in found if special.input == "nan"}
    assert told == {(repr(given_at_nan), repr(beside))}


@pytest.mark.full
def test_a_sigmoid_that_is_as_good_as_one_is_decided() -> None:
    found = IntervalFilter(unary(X * call("sigmoid", Number(Fraction(17, 10)) * X)), {})
    intervals = found.enclose(doubles(20.0, 1e6, 1e30))[0]
    assert bool((intervals[:, 1] - intervals[:, 0] <= DECIDED / 4 * intervals[:, 0] * 2**-23).all())
