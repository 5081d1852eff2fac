"""Powers by a scalar as PyTorch takes them: by 1/2 a root, and by -1/2 one over it.

They differ from pow at -inf, where the root is NaN, and at -0, whose root is -0. A power by a tensor is pow
in PyTorch, too.

Source: PyTorch, aten/src/ATen/native/cpu/PowKernel.cpp and cuda/PowKernel.cu, pow_tensor_scalar.
"""

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

from fusegen.core.term import Apply, Let, Name, Program, Term, applied, call, rebuild, unused

HALF = Fraction(1, 2)


def with_roots(program: Program, scalars: Collection[str]) -> Program:
    """Return a program that takes powers by some scalars as roots where these are 1/2 or -1/2."""
    if "pow" not in applied(program.terms):
        return program
    found = _Rooted(program, scalars)
    for let in program.lets:
        term = let.term if let.name in scalars else found.term(let.term)
        found.lets.append(replace(let, term=term))
    results = tuple(found.term(result) for result in program.results)
    return replace(program, lets=tuple(found.lets), results=results)


class _Rooted:
    def __init__(self, program: Program, scalars: Collection[str]) -> None:
        self.scalars = frozenset(scalars)
        self.taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
        self.lets: list[Let] = []

    def term(self, term: Term) -> Term:
        """Return a term with such powers; a base is a step, as it is read three times."""
        term = rebuild(term, self.term)
        match term:
            case Apply("pow", (base, Name(name) as exponent)) if name in self.scalars:
                if not isinstance(base, Name):
                    step = unused("base", self.taken)
                    self.taken.add(step)
                    self.lets.append(Let(step, base))
                    base = Name(step)
                root = call("where", call("gt", exponent, 0), call("sqrt", base), call("rsqrt", base))
                power = call("pow", base, exponent)
                return call("where", call("eq", call("abs", exponent), HALF), root, power)
        return term
