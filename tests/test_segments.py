"""The unary segments of programs: which there are, and that a program with curves is the same function."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusegen.algebra.segments import segments
from fusegen.core.ops.double_word import CURVE
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, applied, call
from fusegen.numerics.ieee import value

X, B, R, U = map(Name, ("x", "b", "r", "u"))
SUM = X + B


def all_pay(segment: Program) -> bool:
    """A segment with a function in it."""
    return not applied(segment.terms).isdisjoint({"tanh", "sigmoid", "exp"})


def program(*results: Term, lets: tuple[Let, ...] = ()) -> Program:
    return Program(("x", "b", "r"), (), lets, results)


def curve(of: Term, place: int) -> Apply:
    return Apply(CURVE, (of, Number(Fraction(place))))


U_LET = Let("u", SUM)
CASES: dict[str, tuple[Program, tuple[Term, ...], tuple[Term, ...]]] = {  # results, and curves
    "a function of a sum": (program(call("tanh", SUM)), (curve(SUM, 0),), (call("tanh", U),)),
    "of a named sum": (program(call("tanh", U), lets=(U_LET,)), (curve(U, 0),), (call("tanh", U),)),
    "numbers behind it belong to it": (
        program(call("tanh", SUM) * 2 + 1),
        (curve(SUM, 0),),
        (call("tanh", U) * 2 + 1,),
    ),
    "a chain is one segment": (
        program(call("sigmoid", call("tanh", SUM))),
        (curve(SUM, 0),),
        (call("sigmoid", call("tanh", U)),),
    ),
    "an operand ends it": (
        program(call("tanh", SUM) * 2 + R),
        (curve(SUM, 0) + R,),
        (call("tanh", U) * 2,),
    ),
    "before an operand": (program(call("tanh", X) * R), (curve(X, 0) * R,), (call("tanh", U),)),
    "before and after one": (
        program(call("sigmoid", call("tanh", X) * R)),
        (curve(curve(X, 1) * R, 0),),
        (call("sigmoid", U), call("tanh", U)),
    ),
    "two paths that meet": (
        program(call("tanh", SUM) * SUM),
        (curve(SUM, 0),),
        (call("tanh", U) * U,),
    ),
    "of two values it is none": (program(call("tanh", X) * call("exp", B)), (curve(X, 0) * curve(B, 1),),
                                 (call("tanh", U), call("exp", U))),
    "factors of one value are one curve": (
        program(call("tanh", SUM) * R * call("exp", SUM)),
        (curve(SUM, 0) * R,),
        (call("tanh", U) * call("exp", U),),
    ),
    "equal segments are one curve": (
        program(R * call("tanh", SUM), call("tanh", SUM)),
        (R * curve(SUM, 0), curve(SUM, 0)),
        (call("tanh", U),),
    ),
    "equal functions of two values are one curve": (
        program(call("tanh", X) * call("tanh", B)),
        (curve(X, 0) * curve(B, 0),),
        (call("tanh", U),),
    ),
    "arithmetic pays nothing": (program((X + B) * 2 + R), ((X + B) * 2 + R,), ()),
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("name", CASES)
def test_segments_are_the_largest_functions_of_one_value(name: str) -> None:
    of, outer, curves = CASES[name]
    found = segments(of, all_pay)
    assert found.outer.results == outer
    assert tuple(each.results[0] for each in found.curves) == curves
    assert all(len(each.inputs) == 1 for each in found.curves)


def test_a_smaller_segment_is_a_curve_where_the_largest_does_not_pay() -> None:
    found = segments(
        program(call("relu", call("tanh", SUM))), lambda each: each.results[0] == call("tanh", U)
    )
    assert found.outer.results == (call("relu", curve(SUM, 0)),)


def test_factors_are_curves_of_their_own_where_their_product_does_not_pay() -> None:
    product = R * call("tanh", SUM) * call("exp", SUM)
    found = segments(program(product), lambda each: len(applied(each.terms) & {"tanh", "exp"}) == 1)
    assert found.outer.results == (R * curve(SUM, 0) * curve(SUM, 1),)


def test_steps_that_only_a_curve_reads_are_in_it_alone() -> None:
    lets = (U_LET, Let("v", call("tanh", U)), Let("w", Name("v") * 2))
    found = segments(program(Name("w") + R, lets=lets), all_pay)
    assert found.outer == program(Name("w") + R, lets=(U_LET, Let("w", curve(U, 0))))
    assert found.curves == (Program(("u",), (), (Let("v", call("tanh", U)),), (Name("v") * 2,)),)


def numbers(of: Program, given: dict[str, float], curves: tuple[Program, ...] = ()) -> list[float]:
    """The results of a program; its curves are computed by their own programs."""
    known = dict(given)

    def number(term: Term) -> float:
        match term:
            case Number(exact):
                return float(exact)
            case Name(name):
                return known[name]
            case Apply(op, (argument, Number(place))) if op == CURVE:
                own = curves[int(place)]
                return numbers(own, {own.inputs[0]: number(argument)}, curves)[0]
            case Apply(op, args):
                return value(op, [number(arg) for arg in args])
        raise AssertionError(term)

    for let in of.lets:
        known[let.name] = number(let.term)
    return [number(result) for result in of.results]


def terms(*leaves: Term) -> st.SearchStrategy[Term]:
    """Terms of some leaves."""
    return st.recursive(
        st.sampled_from(leaves),
        lambda part: st.one_of(
            st.builds(call, st.sampled_from(["tanh", "sigmoid", "relu", "neg"]), part),
            st.builds(call, st.sampled_from(["add", "sub", "mul"]), part, part),
        ),
        max_leaves=12,
    )


INPUTS = (X, B, R, Number(Fraction(1, 2)))
ANY = terms(*INPUTS, Name("first"))


@given(terms(*INPUTS), ANY, ANY)
def test_a_program_with_curves_is_the_same_function(first: Term, second: Term, third: Term) -> None:
    of, point = program(second, third, lets=(Let("first", first),)), {"x": 0.3, "b": -1.7, "r": 2.9}
    found = segments(of, all_pay)
    expected = numbers(of, point)  # factors of a product may stand in another order
    assert numbers(found.outer, point, found.curves) == pytest.approx(expected, rel=1e-12, abs=1e-12)
