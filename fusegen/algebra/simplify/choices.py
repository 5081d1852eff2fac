"""Stable forms of selections: differences of relus, choices by one condition, signs in front."""

from collections.abc import Sequence
from fractions import Fraction

from fusegen.algebra.simplify.kinks import at_the_kink
from fusegen.algebra.simplify.monomials import (
    ONCE,
    ZERO,
    Factor,
    Product,
    gathered,
    key,
    negated,
    product_of,
    sum_of,
    sum_term,
    summands,
    term_of,
    total,
)
from fusegen.core.term import Apply, Name, Number, Term, call, names


def difference_of_relus(term: Term) -> Term | None:
    """relu(a) - relu(a - d) of a d above 0: 0, then a, then d; slopes at the kinks as before."""
    parts = summands(term)
    for i, first in enumerate(parts):
        for j, second in enumerate(parts):
            a, b = _relu(first), _relu(second)
            if i == j or a is None or b is None:
                continue
            apart = total(a[0], negated(b[0]))
            common = first.without(a[1])
            if not isinstance(apart, Number) or apart.value <= 0:
                continue
            if key(term_of(common)) != key(term_of(second.without(b[1]).scaled(-ONCE))):
                continue
            bent = call("where", call("gt", a[0], apart), apart, call("relu", a[0]))
            rest = [part for k, part in enumerate(parts) if k not in (i, j)]
            return sum_term((common.times(product_of(bent)), *rest))
    return None


def choices_by_one_condition(term: Term) -> Term | None:
    """Return the sum of two choices by the same condition as one choice between sums."""
    parts = summands(term)
    chosen = [(place, *found) for place, part in enumerate(parts) if (found := _choice(part))]
    for i, (first, condition, *a) in enumerate(chosen):
        for second, other, *b in chosen[i + 1 :]:
            if condition == other:
                sides = (sum_term((x, y)) for x, y in zip(a, b, strict=True))
                rest = [part for k, part in enumerate(parts) if k not in (first, second)]
                return sum_term((product_of(call("where", condition, *sides)), *rest))
    return None


def factor_of_choices(term: Term) -> Term | None:
    """Take a factor out of a sum that masks it: g a + (0 if c else g b) is g (a + (0 if c else b)).

    An infinite g, such as an incoming gradient, then meets no difference of infinities.
    """
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    # if every summand is masked, a NaN of the factor would no longer be masked
    masks = [_masks(side) for side in term.args]
    if any(masks) and not all(masks):
        for name in names(term):
            if (rest := _over_name(term, name)) is not None:
                return Name(name) * rest
    return None


def _masks(term: Term) -> bool:
    """Tell whether a term is 0 under some condition, whatever its factors are."""
    match term:
        case Apply("where", (_, a, b)):
            return ZERO in (a, b) or _masks(a) or _masks(b)
        case Apply("add" | "sub", (a, b)):
            return _masks(a) and _masks(b)
    return False


def _over_name(term: Term, name: str) -> Term | None:
    """Divide a sum of products and choices by a name; None where a part lacks it."""
    match term:
        case Name():
            return Number(ONCE) if term.name == name else None
        case Apply("mul", (a, b)):
            if (left := _over_name(a, name)) is not None:
                return b if left == Number(ONCE) else left * b
            if (right := _over_name(b, name)) is not None:
                return a if right == Number(ONCE) else a * right
        case Apply("where", (condition, a, b)):
            left, right = (ZERO if side == ZERO else _over_name(side, name) for side in (a, b))
            return None if left is None or right is None else call("where", condition, left, right)
        case Apply("add" | "sub" as op, (a, b)):
            left, right = _over_name(a, name), _over_name(b, name)
            return None if left is None or right is None else call(op, left, right)
    return None


def in_branches(term: Term) -> tuple[Product, Term, Term, Term] | None:
    """Split a sum or function with a selection in it.

    The parts are a common factor of the sum, the condition, and the sum or function with either branch.
    """
    match term:
        case Apply("add" | "sub"):
            parts = sum_of(term)
            found = [(k, *choice) for k, part in enumerate(parts) if (choice := _choice(part))]
            if len(found) == 1:
                place, condition, *branches = found[0]
                rest = (*parts[:place], *parts[place + 1 :])
                common = _common(rest)
                if any(_over(branch, common) is None for branch in branches):
                    common = Product(ONCE)
                a, b = (
                    _shortest([_over(part, common) or part for part in (*rest, each)]) for each in branches
                )
                return common, condition, a, b
        case Apply(op, (Apply("where", (condition, a, b)),)):
            return Product(ONCE), condition, call(op, a), call(op, b)
    return None


def _common(parts: Sequence[Product]) -> Product:
    """Return the factors of some products without coefficients if all have the same, else 1."""
    own = [part.scaled(1 / part.coefficient) for part in parts if part.coefficient]
    return own[0] if len({key(term_of(each)) for each in own}) == 1 else Product(ONCE)


def _over(product: Product, by: Product) -> Product | None:
    """Divide a product by factors of it; None where it lacks one."""
    left = product.times(by.inverse())
    return left if len(left.factors) == len(product.factors) - len(by.factors) else None


def _shortest(parts: Sequence[Product]) -> Term:
    """Add up some products; the terms of a sum in the last one are added singly where some cancel."""
    flat = [*parts[:-1], *sum_of(term_of(parts[-1]))]
    return sum_term(flat if len(gathered(flat)) < len(flat) else parts)


def slope_of_times_relu6(term: Term) -> Term | None:
    """A product p relu6(t), plus q where relu6 rises, by t: p times t + q / p there, which rounds less.

    The factor stays outside, so that it is NaN wherever p is; its number goes in: (t + q / p) / 6 is
    h / 3 + 1/2 where t is h + 3.
    """
    if not (isinstance(term, Apply) and term.op == "add"):
        return None
    for first, second in (term.args, term.args[::-1]):
        clamped, rising = _relu6(product_of(first)), _where_relu6_rises(second)
        if clamped is None or rising is None:
            continue
        (t, by), (below, above, slope) = clamped, rising
        ratio = slope.times(by.inverse())
        if (below, above) == (_kink("le", t, 0), _kink("ge", t, 6)) and all(
            f.power > 0 for f in ratio.factors
        ):
            number = by.coefficient
            between = sum_term(part.scaled(number) for part in sum_of(total(t, term_of(ratio))))
            selected = call("where", below, 0, call("where", above, Number(6 * number), between))
            return term_of(by.scaled(1 / number).times(product_of(selected)))
    return None


def _relu6(product: Product) -> tuple[Term, Product] | None:
    """Return the argument of the relu6 in a product, and the other factors, none of which is 0."""
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("relu6", (t,)), Fraction(numerator=1, denominator=1)) if product.coefficient:
                return t, product.without(place)
    return None


def _where_relu6_rises(term: Term) -> tuple[Term, Term, Product] | None:
    """Return the two conditions under which a term is 0, and its value elsewhere."""
    match term:
        case Apply("where", (below, Number(Fraction(numerator=0)), Apply("where", (above, zero, slope)))):
            return (below, above, product_of(slope)) if zero == ZERO else None
    return None


def _kink(op: str, line: Term, level: int) -> Term:
    """Return a comparison of a line with a level, as forms have it."""
    return at_the_kink(call(op, line, level), {})


def _choice(product: Product) -> tuple[Term, Product, Product] | None:
    """Return the condition of the choice in a product, and the product with either side."""
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("where", (condition, a, b)), Fraction(numerator=1, denominator=1)):
                rest = product.without(place)
                return condition, rest.times(product_of(a)), rest.times(product_of(b))
    return None


def _relu(product: Product) -> tuple[Term, int] | None:
    """Return the argument of the relu in a product, and its place."""
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("relu", (a,)), Fraction(numerator=1, denominator=1)):
                return a, place
    return None


def sign_in_front(term: Term) -> Term | None:
    """Return an odd function of a negative multiple as minus that of the positive one."""
    match term:
        case Apply("tanh" | "erf" | "sin" | "sinpi" as op, (a,)):
            product = product_of(a)
            if product.coefficient < 0 and product.factors:
                return negated(call(op, term_of(product.scaled(-ONCE))))
    return None
