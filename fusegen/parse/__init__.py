"""YAML text in, `Spec` out: strict keys, strict types, and every mistake told at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import TypeVar

from fusegen.constructor import Argument
from fusegen.errors import (
    ConstantFormula,
    FormulaOrChain,
    FusegenError,
    MissingField,
    NameIsNotStem,
    NameTaken,
    ReservedPrimitive,
    Span,
    SpecErrors,
    UnknownKey,
    Unused,
    meant,
    nearest,
)
from fusegen.ops import OPS
from fusegen.parse import fields
from fusegen.parse.chain import read_chain
from fusegen.parse.document import Node, read_document, read_text
from fusegen.parse.formula import parse_formula
from fusegen.parse.init import Scope, read_init
from fusegen.parse.inputs import read_numbers
from fusegen.parse.laws import LAWS, read_names, scalars_of
from fusegen.parse.layers import read_layers, state_names
from fusegen.parse.shapes import as_scalar
from fusegen.spec import DEFAULT_SHAPE, DTYPES, FIELDS, NUMERICS, Fill, Input, Param, Spec
from fusegen.term import Apply, Name, Term, walk

__all__ = ["parse_spec", "read_text"]

T = TypeVar("T")
Default = TypeVar("Default")
_KEYS = tuple(field.key for field in FIELDS)
_KNOWN_KEYS = "the keys are " + ", ".join(_KEYS)
_EXAMPLES = {field.key: field.example for field in FIELDS}
_FORMULA = "formula: x * clamp(x + 3, 0, 6) / 6"


def parse_spec(text: str, file: str) -> Spec:
    """The spec that a YAML text declares; `file` is its path as shown, whose stem is the spec's name.

    Raises:
        SpecErrors: every mistake found, in the order of their places.
    """
    reader = _Reader(file)
    spec = None
    with reader.collecting():
        spec = reader.spec(text)
    if reader.errors or spec is None:
        raise SpecErrors(reader.errors)
    return spec


class _Reader:
    """Reads one document; mistakes gather in `errors`."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors: list[FusegenError] = []
        self.nodes: dict[str, Node] = {}
        self.places: dict[str, Span] = {}
        self.root = Span(file)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note a mistake and go on behind the block."""
        try:
            yield
        except FusegenError as error:
            self.errors.append(error)

    def read(self, key: str, value: Callable[[Node], T], default: Default) -> T | Default:
        """The value of a field, or the default where it is absent or wrong."""
        if key in self.nodes:
            with self.collecting():
                return value(self.nodes[key])
        return default

    def spec(self, text: str) -> Spec | None:
        """The spec, or nothing after a mistake that leaves the formulas without meaning."""
        document = read_document(text, self.file, self.errors)
        self.root = Span(self.file, 1, 1, text.split("\n", 1)[0].rstrip("\r"))
        for key, span, node in document.entries:
            with self.collecting():
                self.places.setdefault(meant(key, _KEYS), span)
                if key not in _KEYS:
                    raise UnknownKey(span, key=key, near=nearest(key, _KEYS, _KNOWN_KEYS))
                self.nodes[key], self.places[key] = node, span
        name = self.read("name", fields.name, "")
        summary = self.read("summary", lambda node: fields.text(node, "summary"), "")
        source = self.read("source", lambda node: fields.text(node, "source"), "")
        self.required(name)
        usual = (Input("x", DEFAULT_SHAPE, Fill("randn"), self.root),)
        inputs = self.read("inputs", fields.inputs, ())
        params = (*self.read("inputs", read_numbers, ()), *self.read("params", fields.params, ()))
        init = self.read("init", read_init, ())
        layers = self.read("layers", lambda node: read_layers(node, self.arguments(init)), ())
        reference = self.read("reference", fields.reference, "")
        numerics = self.read("numerics", lambda n: fields.word(n, "numerics", NUMERICS), NUMERICS[0])
        dtypes = self.read("dtypes", fields.dtypes, DTYPES)
        variables = self.keys("inputs") or ("x",)
        running = inputs[0].name if inputs else variables[0]
        assume = self.read("assume", lambda node: fields.assume(node, variables), ())
        scope = [*variables, *self.keys("params"), *self.attributes()]
        where = self.read("where", lambda node: fields.where(node, scope, self.collecting), ())
        scope += self.keys("where")
        formula = self.read("formula", lambda node: _formula(node, scope), None)
        chain = self.read("chain", lambda node: read_chain(node, scope, running, self.collecting), ())
        if self.errors:
            return None
        spec = Spec(
            name=name, summary=summary, source=source, inputs=inputs or usual, params=params, init=init,
            scalars=params, layers=layers, where=where, formula=formula, chain=chain, reference=reference,
            reference_span=self.nodes["reference"].span if reference else self.root,
            numerics=numerics, dtypes=dtypes, assume=assume, digest=_digest(text), span=self.root,
        )  # fmt: skip
        spec = replace(spec, scalars=scalars_of(spec))
        self.errors += [error for law in (*_LAWS, *LAWS) for error in law(spec)]
        return spec

    def arguments(self, init: tuple[Argument, ...]) -> Scope:
        """What the arguments of a layer may name."""
        values = {argument.name: argument.default for argument in init}
        return Scope(self.keys("init"), values, self.state())

    def state(self) -> dict[str, str]:
        """The kinds of the module's own tensors, by attribute, also where they are wrong otherwise."""
        return state_names(self.nodes["layers"]) if "layers" in self.nodes else {}

    def attributes(self) -> list[str]:
        """The attributes of the model that formulas may read, unless `where` has the name."""
        return [*self.state(), *(name for name in self.keys("init") if name not in self.keys("where"))]

    def keys(self, key: str) -> tuple[str, ...]:
        """The names that a field declares, also where it is wrong otherwise."""
        return fields.keys(self.nodes[key]) if key in self.nodes else ()

    def required(self, name: str) -> None:
        """Check that the fields every spec has are there, and that the file is named for the spec.

        A key that is misspelt counts as there: one mistake gets one message.
        """
        for key in ("name", "summary"):
            with self.collecting():
                if key not in self.places:
                    raise MissingField(self.root, key=key, remedy=f"add  {_EXAMPLES[key]}")
        with self.collecting():
            both = [key for key in ("formula", "chain") if key in self.places]
            if len(both) == 2:
                remedy = "write the formula as a step of the chain"
                raise FormulaOrChain(self.places["chain"], found="both", remedy=remedy)
            if not both:
                remedy = f"add  {_FORMULA}  or  {_EXAMPLES['chain']}"
                raise FormulaOrChain(self.root, found="neither", remedy=remedy)
        with self.collecting():
            path = PurePath(self.file)
            if name and path.stem != name:
                place = self.nodes["name"].span
                raise NameIsNotStem(place, name=name, file=path.name, stem=path.stem)


def _formula(node: Node, scope: list[str]) -> Term:
    scalar = as_scalar(node, "formula", "an expression", _FORMULA)
    return parse_formula(scalar.text, scalar.at, scope)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _shared_names(spec: Spec) -> Iterator[FusegenError]:
    """One mistake for each name that two things have."""
    holders: dict[str, str] = {spec.name: "the spec's own name"}
    if spec.name in OPS:  # a primitive's spec shares its name with the function, never with a variable
        holders = {}
    if any(param.name == spec.name for param in spec.params):  # as in torch.nn.functional.threshold
        holders = {}
    arguments = {argument.name for argument in spec.init}
    for param in spec.params:
        if param.name in arguments and param.position is None:
            yield NameTaken(param.span, name=param.name, holder="an argument of the constructor")
    declared = [(i.name, i.span, "an input") for i in spec.inputs]
    declared += [(p.name, p.span, _holder(p)) for p in spec.params]
    declared += [(line.name, line.span, "a named step") for line in spec.where]
    declared += [(s.label.name, s.label.span, "a named step") for s in spec.chain if s.label]
    declared += [(item.attribute, item.span, item.holder) for item in spec.layers]
    for name, span, holder in declared:
        if name in holders:
            yield NameTaken(span, name=name, holder=holders[name])
        holders.setdefault(name, holder)


def _holder(param: Param) -> str:
    return "a parameter" if param.position is None else "an input"


def _unused(spec: Spec) -> Iterator[FusegenError]:
    """One mistake for each input, parameter and named step that nothing reads."""
    used = set(read_names(spec))
    if spec.chain:
        used.add(spec.inputs[0].name)
    declared = [("the input", i.name, i.span) for i in spec.inputs]
    declared += [(f"the {_holder(p).split()[1]}", p.name, p.span) for p in spec.params]
    declared += [("the named step", line.name, line.span) for line in spec.where]
    declared += [("the named step", s.label.name, s.label.span) for s in spec.chain if s.label]
    for what, name, span in declared:
        if name not in used and span == spec.span:  # the input that every spec has
            yield ConstantFormula(spec.formula.span if spec.formula else span, name=name)
        elif name not in used:
            yield Unused(span, what=what, name=name)


def _other_than_its_function(spec: Spec) -> Iterator[FusegenError]:
    """A mistake where a spec named like a function is another one.

    It is that function, or it reads it and has parameters besides, as softplus has beta and threshold. In a
    formula the name means the function, in a chain the spec with its parameters.
    """
    if spec.name not in OPS:
        return
    op = OPS[spec.name]
    variables = [*(i.name for i in spec.tensors), *(p.name for p in spec.scalars)]
    arguments = tuple(Name(variable) for variable in variables)
    terms = [line.term for line in spec.where] + ([spec.formula] if spec.formula else [])
    reads = any(isinstance(part, Apply) and part.op == op.name for term in terms for part in walk(term))
    adds = reads and spec.scalars and len(spec.tensors) == len(op.args)
    if not adds and (spec.where or spec.formula != Apply(op.name, arguments)):
        call = op.signature if len(variables) != len(op.args) else f"{op.name}({', '.join(variables)})"
        yield ReservedPrimitive(spec.span, name=spec.name, call=call)


_LAWS = (_shared_names, _unused, _other_than_its_function)
