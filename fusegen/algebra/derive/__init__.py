"""The gradient of a program, as a program: reverse-mode differentiation of terms.

Every step of the forward program is given a name, the rules of `gradients.GRADIENTS` are applied from the
result back to the inputs, and what is used once goes back to where it is used. What comes out reads grad
(the gradient of the result) and the inputs, or the output alone where that is as good, and computes one
gradient for each input. Parameters are constants.

Source: Griewank and Walther 2008, Evaluating Derivatives, chapter 3.
"""

from collections.abc import Mapping

from fusegen.algebra.derive.attached import attached, stops
from fusegen.algebra.derive.eager_gradient import EagerReverse, WrittenReverse
from fusegen.algebra.derive.inline import free_name, inlined
from fusegen.algebra.derive.reverse import GRAD, Reverse
from fusegen.core.aten import ATEN
from fusegen.core.gradients import GRADIENTS
from fusegen.core.ops import OPS, TRANSCENDENTAL
from fusegen.core.term import Apply, Let, Name, Program, SpecCall, Term, applied, children, rebuild

__all__ = [
    "aten_gradient",
    "attached",
    "derive",
    "derive_eager",
    "derive_written",
    "detached",
    "inlined",
    "is_arithmetic",
    "stops",
    "unrounded",
]

OUTPUT = "output"


def derive(program: Program) -> Program:
    """Return the program of the gradients of a program with one result.

    Returns:
        A program that reads the gradient of the result, then what has to be saved: the inputs, or the
        output. It has a result for each input.
    """
    from_output = _from_output(program)
    return from_output if from_output is not None else Reverse(program).backward()


def derive_eager(program: Program) -> Program:
    """Return the same, computed and rounded as PyTorch's eager operations do; it reads the inputs."""
    return EagerReverse(program).backward()


def derive_written(program: Program) -> Program:
    """Return the same, with a step for each operation as often as it is written."""
    return WrittenReverse(program).backward()


def _from_output(program: Program) -> Program | None:
    """Return the gradient read off the output: only of one primitive, applied to the input itself."""
    match program:
        case Program((x,), params, (), (Apply(op, (Name(name), *_)),)) if name == x:
            rule = GRADIENTS[op].from_value
            if rule is not None:
                grad, output = Name(free_name(GRAD, params)), Name(free_name(OUTPUT, params))
                return Program((grad.name, output.name), params, (), (rule(grad, output),))
    return None


def aten_gradient(eager: Program) -> Program | None:
    """The gradient as a kernel of PyTorch's computes it, of an eager program that is that kernel alone."""
    match eager:
        case Program(inputs, params, (), (Apply("round_to_storage", (SpecCall(reference, args),)),)):
            if tuple(arg.name for arg in args if isinstance(arg, Name))[: len(inputs)] != inputs:
                return None
            kernel = ATEN[reference]
            grad, output = Name(free_name(GRAD, (*inputs, *params))), Name(free_name(OUTPUT, params))
            saved = (output,) if kernel.saves == "output" else args[: len(inputs)]
            results = kernel.gradients(grad, saved, args[len(inputs) :])
            names_ = (grad.name, output.name) if kernel.saves == "output" else (grad.name, *inputs)
            return Program(names_, params, (), results)
    return None


def is_arithmetic(*programs: Program) -> bool:
    """Return True if nothing in these programs approximates."""
    return not any(applied(program.terms) & TRANSCENDENTAL for program in programs)


def unrounded(program: Program) -> Program:
    """Return the program without roundings to the storage type on its way."""

    def plain(term: Term) -> Term:
        term = rebuild(term, plain)
        return term.args[0] if isinstance(term, Apply) and term.op == "round_to_storage" else term

    lets = tuple(Let(let.name, plain(let.term)) for let in program.lets)
    return Program(program.inputs, program.params, lets, tuple(map(plain, program.results)))


def detached(program: Program) -> tuple[str, ...]:
    """Return the inputs that eager's operations read, if at all, where no gradient is recorded.

    So does ``where(x > 0, 1, 0)`` read x, whose result requires no gradient, while that of ``sign(x)``
    has one, of zeros.
    """
    recorded: dict[str, frozenset[str]] = {name: frozenset({name}) for name in program.inputs}
    for let in program.lets:
        recorded[let.name] = _recorded(let.term, recorded)
    found = frozenset[str]().union(*(_recorded(result, recorded) for result in program.results))
    return tuple(name for name in program.inputs if name not in found)


def _recorded(term: Term, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the inputs that a gradient of a term goes back to."""
    match term:
        case Name(name):
            return known.get(name, frozenset())
        case Apply(op) if op == "detach" or OPS[op].boolean:
            return frozenset()
    return frozenset[str]().union(*(_recorded(part, known) for part in children(term)))
