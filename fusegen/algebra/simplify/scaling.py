"""Forms of products, quotients and roots whose values on the way neither overflow nor underflow."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce

from fusegen.algebra.simplify.differences import moves
from fusegen.algebra.simplify.monomials import (
    HALF,
    ONCE,
    Factor,
    Product,
    gathered,
    product_of,
    sum_of,
    sum_term,
    summands,
    term_of,
)
from fusegen.algebra.simplify.patterns import constant
from fusegen.algebra.simplify.rules import Rule
from fusegen.core.term import Apply, Name, Number, Term, call

MOST_SQUARES = 4  # under a root
MOST_FACTORS, MOST_TURNED = 10, 4  # of a product that is taken in another order; in several orders
GATED = ("times_ndtr", "times_tanh_softplus")  # x times what is 1 or 0 far out
_A, _B, _C = Name("a"), Name("b"), Name("c")

POWERS = (
    Rule("power of sigmoid", call("pow", call("sigmoid", _A), _B),
         call("exp", -_B * call("softplus", -_A))),
    Rule("slope of a power of sigmoid", call("pow", call("sigmoid", _A), _B) * call("sigmoid_slope", _A),
         call("pow", call("sigmoid", _A), _B + 1) * call("sigmoid", -_A)),
    Rule("slope of a power of one plus exp", call("pow", 1 + _B * call("exp", _A), _C) * call("exp", _A),
         call("pow", 1 + _B * call("exp", _A), _C + 1) / (call("exp", -_A) + _B)),
    Rule("root of a square", call("sqrt", call("square", _A)), call("abs", _A)),
)  # fmt: skip


def root_of_squares(term: Term) -> Iterator[Term]:
    """sqrt(a² + b²) as hypot(a, b), more squares in turn; sqrt(1 + (a / b)²) also as hypot(b, a) / |b|."""
    match term:
        case Apply("sqrt" | "rsqrt" as op, (base,)):
            roots = [root for part in gathered(sum_of(base)) if (root := _root(part)) is not None]
            if not 1 <= len(roots) <= MOST_SQUARES or len(roots) < len(gathered(sum_of(base))):
                return
            below = _common_divisor(roots)
            if below.factors:
                whole = _norm([root.times(below) for root in roots])
                size = call("abs", term_of(below))
                yield whole / size if op == "sqrt" else size / whole
            yield _norm(roots) if op == "sqrt" else 1 / _norm(roots)


def powers_of_squares(term: Term) -> Iterator[Term]:
    """Yield a product with powers of a² + b² by those of hypot(a, b), quotients before products."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "neg")):
        return
    product = product_of(term)
    for place, factor in enumerate(product.factors):
        roots = [_root(part) for part in gathered(summands(factor.base))]
        if 1 < len(roots) <= MOST_SQUARES and None not in roots and factor.power.denominator == 2:
            whole = _norm([root for root in roots if root is not None])
            powers = Product(ONCE, (Factor(whole, factor.power * 2),))
            yield from _reordered(product.without(place).times(powers))


def _norm(roots: list[Product]) -> Term:
    whole: Term = term_of(roots[0]) if len(roots) > 1 else call("abs", term_of(roots[0]))
    for root in roots[1:]:
        whole = call("scaled_hypot", whole, term_of(root))
    return whole


def _common_divisor(roots: list[Product]) -> Product:
    """Return the product by whose multiple none of some products is a quotient."""
    found = Product(ONCE)
    for root in roots:
        below = [f for f in root.times(found).factors if f.power < 0]
        found = found.times(Product(ONCE, tuple(Factor(f.base, -f.power) for f in below)))
    return found


def _root(product: Product) -> Product | None:
    """Return the product, but for its sign, whose square a product is."""
    if product.coefficient <= 0 or any(f.power % 2 for f in product.factors):
        return None
    by = constant(call("sqrt", Number(product.coefficient)))
    if not isinstance(by, Number):
        return None
    return Product(by.value, tuple(Factor(f.base, f.power / 2) for f in product.factors))


def quotient_by_square(term: Term) -> Iterator[Term]:
    """Yield a / (k a² + c) as 1 / (k a + c / a), whose sum overflows where the quotient is 0."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "neg")):
        return
    product = product_of(term)
    for place, factor in enumerate(product.factors):
        if factor.power not in (-1, -2) or not isinstance(factor.base, Apply):
            continue
        for a, square, rest in _squares(factor.base):
            power = next((f.power for f in product.factors if f.base == a), Fraction(0))
            if power < 1:
                continue
            by = sum_term((square.times(_over(a)),)) + sum_term(rest) / a
            left = product.without(place).times(_over(a))
            left = left.times(Product(ONCE, (Factor(factor.base, factor.power + 1),)))
            far = term_of(left) * (1 / by) if left.factors or left.coefficient != 1 else 1 / by
            yield call("where", call("gt", call("abs", a), 1), far, term)  # c / a does not overflow


def _over(a: Term) -> Product:
    return Product(ONCE, (Factor(a, -ONCE),))


def _squares(base: Term) -> Iterator[tuple[Term, Product, list[Product]]]:
    """Yield the a, k a² and c of the ways in which a sum is k a² + c, of which neither is negative."""
    parts = gathered(sum_of(base))
    for k, part in enumerate(parts):
        rest = [*parts[:k], *parts[k + 1 :]]
        match part.factors:
            case (Factor(a, Fraction(numerator=2, denominator=1)),) if rest:
                yield a, part, rest


def gate_far_out(term: Term) -> Iterator[Term]:
    """Yield a gated multiple k x, over k: x itself or 0 where x is so large that k x may overflow."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "neg", *GATED)):
        return
    product = product_of(term)
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply(op, (argument,)), Fraction(numerator=1, denominator=1)) if op in GATED:
                line = product_of(argument)
                inner = term_of(replace(line, coefficient=ONCE))
                if not line.factors or abs(line.coefficient) <= 1:
                    continue
                signed = inner if line.coefficient > 0 else call("neg", inner)
                open_ = (
                    product.without(place)
                    .scaled(abs(line.coefficient))
                    .times(Product(ONCE, (Factor(call("relu", signed), ONCE),)))
                )
                yield call("where", call("gt", call("abs", inner), 2**64), term_of(open_), term)


def reordered(term: Term) -> Iterator[Term]:
    """Yield a product of the same factors in other orders, in which quotients come before products.

    Two factors have a name in common: those that vary on their own have no order that is better for all.
    """
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "neg", "square", "cube")):
        return
    product = product_of(term)
    own = [name for factor in product.factors for name in moves(factor.base)]
    if len(set(own)) < len(own) or any(abs(factor.power) > 1 for factor in product.factors):
        yield from _reordered(product)


def _reordered(product: Product) -> Iterator[Term]:
    if sum(abs(factor.power) for factor in product.factors) > MOST_FACTORS:
        return
    above = [f for factor in product.factors for f in _single(factor, 1)]
    below = [f for factor in product.factors for f in _single(factor, -1)]
    if abs(product.coefficient) != 1:
        above.insert(0, Number(abs(product.coefficient)))
    if not 2 < len(above) + len(below) <= MOST_FACTORS:
        return
    for first, second in _orders(above, below):
        found = _interleaved(first, second)
        yield found if product.coefficient > 0 else call("neg", found)


def _single(factor: Factor, sign: int) -> Iterator[Term]:
    """Yield a factor of a positive or a negative power, as often as it stands there."""
    power = factor.power * sign
    if power > 0:
        yield from [factor.base] * int(power)
        if power % 1 == HALF:
            yield call("sqrt", factor.base)


def _orders(above: list[Term], below: list[Term]) -> Iterator[tuple[Sequence[Term], Sequence[Term]]]:
    yield above, below
    yield above[::-1], below
    if len(above) <= MOST_TURNED:
        turned = [(*above[k:], *above[:k]) for k in range(len(above))]
        yield from ((first, second) for first in turned for second in (below, below[::-1]))


def _interleaved(above: Sequence[Term], below: Sequence[Term]) -> Term:
    """Return factors and divisors by turns: a / p * b / q * c."""
    if not above:
        return 1 / reduce(lambda p, q: p * q, below)
    whole, divisors = above[0], list(below)
    for factor in (*above[1:], None):
        if divisors:
            whole = whole / divisors.pop(0)
        if factor is not None:
            whole = whole * factor
    for divisor in divisors:
        whole = whole / divisor
    return whole
