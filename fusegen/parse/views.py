"""Views of inputs, ``unsqueeze(a, 1)``, which are taken before the kernel, which then reads a name.

A view stands for the name of an input only, and every formula reads this input by the same view.
"""

from __future__ import annotations

from dataclasses import replace

from fusegen.errors import FusegenError, NotAView, Span
from fusegen.parse.terms import VIEW
from fusegen.spec import Input, Named, Spec, Step
from fusegen.term import Name, Number, SpecCall, Term, rebuild

ARGUMENTS = ("input", "dim")
REMEDY = f"write  {VIEW}(a, 1)  with the name of an input and a dimension"
ALIKE = "read it alike everywhere, or declare two inputs"


def with_views(spec: Spec) -> tuple[Spec, list[FusegenError]]:
    """The spec with its views at its inputs, names in their places, and every mistake in them."""
    reader = _Reader(spec)
    where = tuple(Named(line.name, reader.names(line.term), line.span) for line in spec.where)
    formula = reader.names(spec.formula) if spec.formula else None
    chain = tuple(map(reader.step, spec.chain))
    if not reader.views:
        return spec, reader.errors
    reader.check_reads()
    inputs = tuple(replace(i, unsqueeze=reader.views.get(i.name)) for i in spec.inputs)
    return replace(spec, inputs=inputs, where=where, formula=formula, chain=chain), reader.errors


class _Reader:
    """The views so far, the first plain read of each name, and the mistakes."""

    def __init__(self, spec: Spec) -> None:
        self.inputs: dict[str, Input] = {each.name: each for each in spec.inputs}
        self.running = spec.inputs[0].name if spec.chain else ""
        self.views: dict[str, int] = {}
        self.plain: dict[str, Span] = {self.running: spec.chain[0].span} if spec.chain else {}
        self.errors: list[FusegenError] = []

    def names(self, term: Term) -> Term:
        """A term with a name for each view."""
        match term:
            case SpecCall(spec, _, _, span) if spec == VIEW:
                return self.view(term, span)
            case Name(name, span):
                self.plain.setdefault(name, span)
                return term
            case _:
                return rebuild(term, self.names)

    def step(self, step: Step) -> Step:
        """A step of a chain; a view is none."""
        if step.call is None:
            return replace(step, term=self.names(step.term) if step.term else None)
        if step.call.spec == VIEW:
            self.refuse(step.call.span, "a chain's running value has no views")
        return replace(step, call=SpecCall(
            step.call.spec, (), tuple((key, self.names(value)) for key, value in step.call.keywords),
            step.call.span,
        ))  # fmt: skip

    def view(self, call: SpecCall, span: Span) -> Term:
        """The name that a view is of."""
        given = [*zip(ARGUMENTS, call.args, strict=False), *call.keywords]
        found = dict(given)
        name, dim = found.get("input"), found.get("dim")
        if len(call.args) > len(ARGUMENTS) or sorted(key for key, _ in given) != ["dim", "input"]:
            self.refuse(span, f"{VIEW} takes an input and a dimension")
        elif not isinstance(name, Name) or name.name not in self.inputs:
            self.refuse(span, f"{VIEW} takes the name of an input, and nothing else")
        elif not isinstance(dim, Number) or dim.value.denominator != 1:
            self.refuse(span, f"the dimension of {VIEW} is a whole number")
        else:
            self.note(self.inputs[name.name], int(dim.value), span)
        return name if isinstance(name, Name) else call

    def note(self, of: Input, dim: int, span: Span) -> None:
        """Keep the view of an input, if it has this dimension."""
        rank = len(of.shape)
        if not -rank - 1 <= dim <= rank:
            remedy = f"it is one of {-rank - 1} to {rank}; the shape is declared under `inputs`"
            problem = f"{of.name} of shape {list(of.shape)} has no place {dim} for a dimension"
            self.refuse(span, problem, remedy)
        elif of.split is not None or any(other.split is not None for other in self.inputs.values()):
            self.refuse(span, "an input that may be split in halves has no views", "leave out its split")
        elif self.views.setdefault(of.name, dim) != dim:
            known = f"{VIEW}({of.name}, {self.views[of.name]})"
            self.refuse(span, f"{of.name} is already read as {known}", ALIKE)

    def check_reads(self) -> None:
        """Refuse inputs that are read by a view and as they are."""
        for name, dim in self.views.items():
            if name in self.plain:
                problem = f"{name} is read as it is here, and elsewhere as {VIEW}({name}, {dim})"
                self.refuse(self.plain[name], problem, ALIKE)

    def refuse(self, span: Span, problem: str, remedy: str = REMEDY) -> None:
        self.errors.append(NotAView(span, problem=problem, remedy=remedy))
