"""Forms in which little cancels, for the screen: equal over the reals to what a formula may say.

`Compilation.stable` has taken the forms that kernels compute. These are for what a formula writes out.
"""

from __future__ import annotations

from fusegen.simplify.rules import Rule, matched
from fusegen.term import Let, Name, Program, Term, call, rebuild, substitute

_A, _G = Name("a"), Name("g")
_TANH, _ERF, _SIGMOID = (call(op, _A) for op in ("tanh", "erf", "sigmoid"))
_DOUBLED = {  # 1 + f and 1 - f, of an f between -1 and 1
    "tanh": (_TANH, 2 * call("sigmoid", 2 * _A), 2 * call("sigmoid", -2 * _A)),
    "erf": (_ERF, call("erfc", -_A), call("erfc", _A)),
}
STABLE = (
    *(
        rule
        for name, (f, plus, minus) in _DOUBLED.items()
        for rule in (
            Rule(f"one plus {name}", 1 + f, plus),
            Rule(f"one plus {name}", f + 1, plus),
            Rule(f"one minus {name}", 1 - f, minus),
            Rule(f"one plus {name}", _G + _G * f, _G * plus),
            Rule(f"one minus {name}", _G - _G * f, _G * minus),
        )
    ),
    Rule("one minus sigmoid", 1 - _SIGMOID, call("sigmoid", -_A)),
    Rule("one minus sigmoid", _G - _G * _SIGMOID, _G * call("sigmoid", -_A)),
    Rule("exponential less one", call("exp", _A) - 1, call("expm1", _A)),
    Rule("softplus", call("log", 1 + call("exp", _A)), call("softplus", _A)),
    Rule("softplus", call("log1p", call("exp", _A)), call("softplus", _A)),
    Rule("logarithm of one and more", call("log", 1 + _A), call("log1p", _A)),
    Rule("sigmoid", 1 / (1 + call("exp", -_A)), _SIGMOID),
)


def stable(program: Program) -> Program:
    """The program with every form of `STABLE` taken that matches."""
    lets = tuple(Let(let.name, _taken(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(_taken, program.results)))


def _taken(term: Term) -> Term:
    term = rebuild(term, _taken)
    for rule in STABLE:
        found = matched(rule.left, term, {})
        if found is not None:
            return substitute(rule.right, found)
    return term
