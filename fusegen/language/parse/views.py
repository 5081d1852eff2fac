"""Views of tensors, which are taken before the kernel, which then reads a name.

``unsqueeze(a, 1)`` is one of an input. ``along(weight, 1)`` is one of a parameter or a buffer of one
dimension, which is aligned with dimension 1 of the first input, whatever the rank of that is. A view stands
for a name only, and every formula reads this tensor by the same view.
"""

from dataclasses import replace

from fusegen.core.constructor import Item, StateTensor
from fusegen.core.spec import Input, Named, Spec, Step
from fusegen.core.tensor_shapes import first_shape
from fusegen.core.term import Name, Number, SpecCall, Term, rebuild
from fusegen.errors import FusegenError, NotAView, Span
from fusegen.language.parse.terms import ALONG, VIEW

ARGUMENTS = ("input", "dim")
REMEDY = f"write  {VIEW}(a, 1)  with the name of an input and a dimension"
REMEDY_ALONG = f"write  {ALONG}(weight, 1)  with the name of a Parameter or a Buffer and a dimension"
REMEDIES = {VIEW: REMEDY, ALONG: REMEDY_ALONG}
ALIKE = "read it alike everywhere, or declare two inputs"


def with_views(spec: Spec) -> tuple[Spec, list[FusegenError]]:
    """Return the spec with its views at its inputs, names in their places, and every mistake in them."""
    reader = _Reader(spec)
    where = tuple(Named(line.name, reader.names(line.term), line.span) for line in spec.where)
    formula = reader.names(spec.formula) if spec.formula else None
    chain = tuple(map(reader.step, spec.chain))
    if not reader.views:
        return spec, reader.errors
    reader.check_reads()
    inputs = tuple(replace(i, unsqueeze=reader.views.get(i.name)) for i in spec.inputs)
    layers = tuple(map(reader.held, spec.layers))
    found = replace(spec, inputs=inputs, layers=layers, where=where, formula=formula, chain=chain)
    return found, reader.errors


class _Reader:
    """The views so far, the first plain read of each name, and the mistakes."""

    def __init__(self, spec: Spec) -> None:
        self.inputs: dict[str, Input] = {each.name: each for each in spec.inputs}
        self.state = {item.attribute: item for item in spec.layers if isinstance(item, StateTensor)}
        self.first = replace(spec.inputs[0], shape=first_shape(spec) or spec.inputs[0].shape)
        self.running = spec.inputs[0].name if spec.chain else ""
        self.views: dict[str, int] = {}
        self.plain: dict[str, Span] = {self.running: spec.chain[0].span} if spec.chain else {}
        self.errors: list[FusegenError] = []

    def names(self, term: Term) -> Term:
        """Return a term with a name for each view."""
        match term:
            case SpecCall(spec, _, _, span) if spec in REMEDIES:
                return self.view(term, span)
            case Name(name, span):
                self.plain.setdefault(name, span)
                return term
            case _:
                return rebuild(term, self.names)

    def step(self, step: Step) -> Step:
        """Return a step of a chain; a view is none."""
        if step.call is None:
            return replace(step, term=self.names(step.term) if step.term else None)
        if step.call.spec in REMEDIES:
            self.refuse(step.call.span, "a chain's running value has no views", REMEDIES[step.call.spec])
        return replace(step, call=SpecCall(
            step.call.spec, (), tuple((key, self.names(value)) for key, value in step.call.keywords),
            step.call.span,
        ))  # fmt: skip

    def view(self, call: SpecCall, span: Span) -> Term:
        """Return the name that a view is of."""
        given = [*zip(ARGUMENTS, call.args, strict=False), *call.keywords]
        found = dict(given)
        name, dim, remedy = found.get("input"), found.get("dim"), REMEDIES[call.spec]
        known, kind = (
            (self.inputs, "an input") if call.spec == VIEW else (self.state, "a parameter or buffer")
        )
        if len(call.args) > len(ARGUMENTS) or sorted(key for key, _ in given) != ["dim", "input"]:
            self.refuse(span, f"{call.spec} takes {kind} and a dimension", remedy)
        elif not isinstance(name, Name) or name.name not in known:
            self.refuse(span, f"{call.spec} takes the name of {kind}, and nothing else", remedy)
        elif not isinstance(dim, Number) or dim.value.denominator != 1:
            self.refuse(span, f"the dimension of {call.spec} is a whole number", remedy)
        elif call.spec == VIEW:
            self.note(self.inputs[name.name], int(dim.value), span)
        else:
            self.run_along(self.state[name.name], int(dim.value), span)
        return name if isinstance(name, Name) else call

    def run_along(self, of: StateTensor, dim: int, span: Span) -> None:
        """Keep the dimension that a tensor of one dimension runs along, if the first input has it."""
        rank = len(self.first.shape)
        if len(of.shape) != 1:
            problem = f"{of.attribute} of shape {list(of.shape)} has not one dimension"
            self.refuse(span, problem, f"{ALONG} takes a tensor of one; others broadcast as they are")
        elif not 0 <= dim < rank:
            problem = f"{self.first.name} of shape {list(self.first.shape)} has no dimension {dim}"
            remedy = f"it is one of 0 to {rank - 1}; the shape is declared under `inputs`"
            self.refuse(span, problem, remedy)
        elif self.views.setdefault(of.attribute, dim) != dim:
            known = f"{ALONG}({of.attribute}, {self.views[of.attribute]})"
            self.refuse(span, f"{of.attribute} is already read as {known}", ALIKE)

    def held(self, item: Item) -> Item:
        """Return an item of the constructor with its view."""
        if isinstance(item, StateTensor):
            return replace(item, along=self.views.get(item.attribute))
        return item

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
                view = VIEW if name in self.inputs else ALONG
                problem = f"{name} is read as it is here, and elsewhere as {view}({name}, {dim})"
                self.refuse(self.plain[name], problem, ALIKE)
        runs = [name for name in self.views if name in self.state]
        if runs and self.first.name in self.views:
            problem = f"{runs[0]} runs along {self.first.name}, which is read by a view"
            self.refuse(self.state[runs[0]].span, problem, "declare the input with its dimension of size 1")

    def refuse(self, span: Span, problem: str, remedy: str = REMEDY) -> None:
        self.errors.append(NotAView(span, problem=problem, remedy=remedy))
