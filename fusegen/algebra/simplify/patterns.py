"""Rows of `stable` matched against terms, whatever their order, grouping and common factors.

A pattern's names are variables. ``1 + erf(a)`` matches any two summands that are c and c erf(u), for one
c: the row replaces them by c times its right side. A summand that is one variable matches any product: the
a of ``log(1 + a)`` is -2 x² / y in ``log(1 - 2 x² / y)``. A product matches among further factors. An
argument matches where the variable can be solved for: ``sigmoid(-a)`` binds a to minus what stands there.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache

from fusegen.algebra.nan_propagation import keeps_nan
from fusegen.algebra.simplify.constants import folded, snapped
from fusegen.algebra.simplify.monomials import (
    ONCE,
    Factor,
    Key,
    Product,
    gathered,
    key,
    multiple,
    product_of,
    sum_of,
    sum_term,
    term_of,
)
from fusegen.algebra.simplify.rules import Rule
from fusegen.core.term import KEPT, Apply, Name, Number, Term, names, rebuild

Found = dict[str, Term]


def rewritten(rule: Rule, term: Term) -> Term | None:
    """Return a term after one use of a rule, or nothing where the rule does not match."""
    match rule.left:
        case Apply("add" | "sub"):
            return _sum_rewritten(rule, term) if _is(term, "add", "sub") else None
        case Apply("mul" | "div"):
            return _product_rewritten(rule, term) if _is(term, "mul", "div", "neg") else None
    found = unified(rule.left, term, {})
    return None if found is None else filled(rule.right, found)


def filled(pattern: Term, found: Mapping[str, Term]) -> Term:
    """A pattern with its variables replaced, constants as one number each, multiples multiplied out."""
    match pattern:
        case Name(name):
            return found[name]
        case Apply("where" | "lt" | "gt" | "le" | "ge" as op, args):
            return Apply(op, tuple(filled(arg, found) for arg in args))
        case Apply() if not names(pattern):
            return constant(pattern)
    line = product_of(rebuild(pattern, lambda part: part if names(part) else constant(part)))
    match line.factors:
        case (Factor(Name(name), Fraction(numerator=1, denominator=1)),):
            return multiple(line.coefficient, found[name])
    whole = rebuild(pattern, lambda part: filled(part, found))
    return _gathered(whole) if _is(whole, "add", "sub") else whole


def _gathered(term: Term) -> Term:
    """A sum with equal products added up, as it is where there are none, or where a name would be lost."""
    parts = sum_of(term)
    left = gathered(parts)
    found = sum_term(left) if len(left) < len(parts) else term
    return found if keeps_nan(term, found) else term


def constant(term: Term) -> Term:
    """Return a term without names as one number."""
    found = folded(rebuild(term, constant))
    return Number(snapped(found.value)) if isinstance(found, Number) else found


def unified(pattern: Term, term: Term, found: Found) -> Found | None:
    """Return the terms that the variables of a pattern stand for, if it matches a whole term; else None."""
    match pattern:
        case Name(name) if name in found:
            return found if key(found[name]) == key(term) else None
        case Name(name):
            if name.endswith("_") and not isinstance(term, Number):
                return None
            return {**found, name: term}
        case Number():
            return found if key(pattern) == key(term) else None
        case Apply("add" | "sub"):
            return _whole_sum(pattern, term, found)
        case Apply("mul" | "neg" | "div"):
            return _multiple(pattern, term, found)
    if not isinstance(pattern, Apply) or not isinstance(term, Apply) or term.op != pattern.op:
        return None
    known: Found | None = found
    for part, value in zip(pattern.args, term.args, strict=True):
        known = None if known is None else unified(part, value, known)
    return known


def _is(term: Term, *ops: str) -> bool:
    return isinstance(term, Apply) and term.op in ops


def _multiple(pattern: Term, term: Term, found: Found) -> Found | None:
    """Return a variable solved for in a multiple of it; any other product compared as a whole."""
    line = product_of(rebuild(pattern, lambda part: part if names(part) else constant(part)))
    match line.factors:
        case (Factor(Name(name), Fraction(numerator=1, denominator=1)),) if name not in found:
            return {**found, name: multiple(1 / line.coefficient, term)}
        case (Factor(Name(number)), Factor(Name(name))) if number.endswith("_") and name not in found:
            by = product_of(term).coefficient
            return None if by in (0, 1) else {**found, number: Number(by), name: multiple(1 / by, term)}
    if set(names(pattern)) <= found.keys():
        return found if key(filled(pattern, found)) == key(term) else None
    for known, rest in _in_product(line, product_of(term), found):
        if rest == Product(Fraction(1)):
            return known
    return None


def _whole_sum(pattern: Term, term: Term, found: Found) -> Found | None:
    """Return the variables of a sum that is all of a term."""
    if not _is(term, "add", "sub"):
        return None
    for known, common, left in _in_sum(sum_of(pattern), sum_of(term), found):
        if not left and common == Product(Fraction(1)):
            return known
    return None


def _sum_rewritten(rule: Rule, term: Term) -> Term | None:
    for found, common, left in _in_sum(sum_of(rule.left), sum_of(term), {}):
        right = filled(rule.right, found)
        if common.factors:
            return sum_term((common.times(product_of(right)), *left))
        return sum_term((*(part.scaled(common.coefficient) for part in sum_of(right)), *left))
    return None


def _product_rewritten(rule: Rule, term: Term) -> Term | None:
    whole = product_of(term)
    for found, rest in _in_product(product_of(rule.left), whole, {}):
        return term_of(rest.times(product_of(filled(rule.right, found))))
    return None


def _in_sum(
    pattern: tuple[Product, ...], whole: tuple[Product, ...], found: Found
) -> Iterator[tuple[Found, Product, list[Product]]]:
    """Every way in which the parts of a pattern times c are summands: variables, c, the other summands."""
    parts = sorted(pattern, key=_weight, reverse=True)
    first, *others = parts
    for k, summand in enumerate(whole):
        for known, common in _in_product(first, summand, found):
            yield from _others(others, known, common, [*whole[:k], *whole[k + 1 :]])


def _others(
    parts: list[Product], found: Found, common: Product, left: list[Product]
) -> Iterator[tuple[Found, Product, list[Product]]]:
    """Yield every way in which all parts of a pattern, times something, are among summands."""
    if not parts:
        yield found, common, left
        return
    part, *others = parts
    own = term_of(part)
    bound = set(names(own)) <= found.keys()
    wanted = _mark(product_of(filled(own, found)).times(common) if bound else common)
    for k, summand in enumerate(left):
        rest = left[:k] + left[k + 1 :]
        ways = iter(((found, summand),)) if bound else _in_product(part, summand, found)
        for known, beside in ways:
            if _mark(beside) == wanted:
                yield from _others(others, known, common, rest)


@lru_cache(maxsize=KEPT)
def _mark(product: Product) -> tuple[Fraction, Key]:
    """Return a key of two products that differ in order and grouping alone."""
    return product.coefficient, key(term_of(product))


def _weight(product: Product) -> int:
    """Return the specificity of a part of a pattern: functions before powers before numbers."""
    return sum(2 + len(names(f.base)) if isinstance(f.base, Apply) else 1 for f in product.factors)


def _in_product(pattern: Product, whole: Product, found: Found) -> Iterator[tuple[Found, Product]]:
    """Every way in which a pattern's factors are factors of a product: the variables, and the rest."""
    match pattern.factors:
        case (Factor(Name(name), Fraction(numerator=1, denominator=1)),) if name not in found:
            yield {**found, name: term_of(whole.scaled(1 / pattern.coefficient))}, Product(ONCE)
            return
    functions = [factor for factor in pattern.factors if isinstance(factor.base, Apply)]
    variables = [factor for factor in pattern.factors if isinstance(factor.base, Name)]
    for known, rest in _functions(functions, whole, found):
        bound, left = known, rest
        for factor in variables:
            bound, left = _without_variable(factor, bound, left)
        if left is not None:
            yield bound, left.scaled(1 / pattern.coefficient)


def _functions(
    functions: list[Factor], whole: Product, found: Found
) -> Iterator[tuple[Found, Product | None]]:
    if not functions:
        yield found, whole
        return
    wanted, *others = functions
    for k, factor in enumerate(whole.factors):
        ratio = factor.power / wanted.power
        if ratio < 1:
            continue
        known = unified(wanted.base, factor.base, found)
        if known is None:
            continue
        rest = whole.without(k)
        if factor.power != wanted.power:
            rest = rest.times(Product(Fraction(1), (Factor(factor.base, factor.power - wanted.power),)))
        yield from _functions(others, rest, known)


def _without_variable(factor: Factor, found: Found, rest: Product | None) -> tuple[Found, Product | None]:
    """A product without a variable's power; an unbound one stands for the first factor of that power."""
    assert isinstance(factor.base, Name)
    if rest is None or factor.base.name in found:
        return found, _divided(rest, found[factor.base.name], factor.power) if rest else None
    for k, own in enumerate(rest.factors):
        if own.power == factor.power:
            return {**found, factor.base.name: own.base}, rest.without(k)
    return found, None


def _divided(rest: Product | None, term: Term, power: Fraction) -> Product | None:
    """Return a product without a power of a term, if all that is in the term is in the product."""
    if rest is None:
        return None
    by = product_of(term)
    powers = {key(factor.base): factor.power for factor in rest.factors}
    for factor in by.factors:
        if powers.get(key(factor.base), Fraction(0)) / (factor.power * power) < 1:
            return None
    for _ in range(abs(power.numerator)):
        rest = rest.times(by.inverse() if power > 0 else by)
    return rest
