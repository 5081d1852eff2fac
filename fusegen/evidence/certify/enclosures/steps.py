"""The steps of a program in their order, each different one once."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fusegen.core.term import Apply, Name, Number, Program, SpecCall, Term

Step = tuple[Any, tuple[int, ...]]  # the operation, or a number, and the slots of its arguments


class Steps:
    """A program, which calls no other spec, with values for its parameters.

    Slots hold what is given, the inputs first, and then the result of each step.
    """

    def __init__(self, program: Program, params: Mapping[str, Fraction], *further: str) -> None:
        names = (*program.inputs, *further)
        self.steps: list[Step] = []
        self.given = len(names)
        self._known: dict[Step, int] = {}
        self._scope = {name: slot for slot, name in enumerate(names)}
        self._scope |= {name: self._step(value) for name, value in params.items()}
        for let in program.lets:
            self._scope[let.name] = self._slot(let.term)
        self.results = [*map(self._slot, program.results)]

    def _slot(self, term: Term) -> int:
        match term:
            case Number(value):
                return self._step(value)
            case Name(name):
                return self._scope[name]
            case Apply(op, args) | SpecCall(op, args):
                return self._step(op, *map(self._slot, args))
        raise AssertionError(term)

    def _step(self, op: object, *args: int) -> int:
        step = op, args
        if step not in self._known:
            self._known[step] = self.given + len(self.steps)
            self.steps.append(step)
        return self._known[step]
