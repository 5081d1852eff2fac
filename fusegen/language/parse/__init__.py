"""YAML text in, `Spec` out: strict keys, strict types, and every mistake told at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

from fusegen.core.constructor import Argument
from fusegen.core.digest import digest
from fusegen.core.spec import DEFAULT_SHAPE, DTYPES, NUMERICS, REDUCTIONS, Fill, Input, Named, Spec
from fusegen.core.term import Term
from fusegen.errors import (
    FormulaOrChain,
    FusegenError,
    MissingField,
    NameIsNotStem,
    NoRowDtype,
    NoValuesKept,
    Span,
    SpecErrors,
    UnknownKey,
    WrongType,
    meant,
    nearest,
)
from fusegen.language.parse import fields
from fusegen.language.parse.chain import read_chain
from fusegen.language.parse.document import Mapping, Node, read_document, read_text
from fusegen.language.parse.formula import parse_formula
from fusegen.language.parse.fronts import Front, kernels_of, named, parted
from fusegen.language.parse.init import Scope, read_init, symbols
from fusegen.language.parse.inputs import read_numbers
from fusegen.language.parse.layer_field import part_names, read_layers, state_names
from fusegen.language.parse.over import read_over, read_reduction, with_parts
from fusegen.language.parse.results import in_order, read_results, with_results
from fusegen.language.parse.shapes import as_scalar
from fusegen.language.parse.spec_laws import checked
from fusegen.language.schema import FIELDS, KERNEL_KEYS

__all__ = ["parse_spec", "read_text"]

T = TypeVar("T")
Default = TypeVar("Default")
_KEYS = tuple(field.key for field in FIELDS)
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
        self.fronts: tuple[Front, ...] = ()
        self.root = Span(file)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note a mistake and go on behind the block."""
        try:
            yield
        except FusegenError as error:
            self.errors.append(error)

    def read(self, key: str, value: Callable[[Node], T], default: Default) -> T | Default:
        """Return the value of a field, or the default where it is absent or wrong."""
        if key in self.nodes:
            with self.collecting():
                return value(self.nodes[key])
        return default

    def spec(self, text: str) -> Spec | None:
        """Return the spec, or nothing after a mistake that leaves the formulas without meaning."""
        self.root = Span(self.file, 1, 1, text.split("\n", 1)[0].rstrip("\r"))
        self.take(read_document(text, self.file, self.errors))
        name = self.read("name", fields.name, "")
        texts: dict[str, Any] = {
            key: self.read(key, partial(fields.text, key=key), "") for key in ("summary", "source")
        }
        self.required(name)
        inputs = self.read("inputs", fields.inputs, ())
        params = (*self.read("inputs", read_numbers, ()), *self.read("params", fields.params, ()))
        init = self.read("init", read_init, ())
        layers = self.read("layers", lambda node: read_layers(node, self.arguments(init)), ())
        reference = self.read("reference", fields.reference, "")
        numerics = self.read("numerics", lambda n: fields.word(n, "numerics", NUMERICS), NUMERICS[0])
        dtypes = self.read("dtypes", fields.dtypes, DTYPES)
        variables = self.keys("inputs") or ("x",)
        running = inputs[0].name if inputs else variables[0]
        masks = {each.name for each in inputs if each.is_mask}
        assume = self.read("assume", lambda n: fields.assume(n, (*variables, *self.state()), masks), ())
        accept = self.read("accept", fields.accept, ())
        reduction, divisor = self.read("reduction", read_reduction, (REDUCTIONS[0], ""))
        computed, results = self.computed(variables, running)
        fronts = [(front, *self.front(front, name, running)) for front in self.fronts]
        if self.errors:
            return None
        spec = Spec(
            name=name, **texts, inputs=inputs or self.usual, params=params, init=init,
            scalars=params, layers=layers, **computed, reference=reference,
            numerics=numerics, dtypes=dtypes, assume=assume, accept=accept,
            digest=digest(text, 12), span=self.root, reduction=reduction, divisor=divisor,
            places=self.located(),
        )  # fmt: skip
        ahead = [(front, replace(spec, name=of, span=front.span, **own)) for front, of, own in fronts]
        found = None
        for kernel in kernels_of(with_parts(with_results(spec, results)), ahead):
            found, mistakes = checked(replace(kernel, front=found))
            self.errors += mistakes
        return found

    def computed(self, variables: Sequence[str], running: str) -> tuple[dict[str, Any], tuple[Named, ...]]:
        """Return what a kernel computes, as fields of its spec: its rows and its formulas; and results."""
        over = self.read("over", lambda node: read_over(node, self.nodes), None)
        for key, sentence in (("keepdim", NoValuesKept), ("row_dtype", NoRowDtype)):
            if key in self.nodes and "over" not in self.nodes:
                self.errors.append(sentence(self.places[key], found="this spec has no rows"))
        scope = [*variables, *self.keys("params"), *self.attributes()]
        where, results = self.lines(scope)
        scope += self.keys("where")
        formula = self.read("formula", lambda node: _formula(node, scope), None)
        chain = self.read("chain", lambda node: read_chain(node, scope, running, self.collecting), ())
        return {"over": over, "where": where, "formula": formula, "chain": chain}, results

    def front(self, front: Front, spec: str, running: str) -> tuple[str, dict[str, Any]]:
        """Return the name of a kernel in front of the spec's own, and what it computes."""
        inner = _Reader(self.file)
        inner.errors, inner.root, name = self.errors, front.span, ""
        inner.nodes = {key: self.nodes[key] for key in ("init", "layers") if key in self.nodes}
        inner.take(front.fields, KERNEL_KEYS)
        inner.one_formula()
        with self.collecting():
            name = named(front, spec)
        computed, results = inner.computed((running,), running)
        if results:
            expected = "one expression in a kernel in front of another"
            example, place = "formula: tanh(x)", results[0].span
            self.errors.append(WrongType(place, key="formula", expected=expected, example=example))
        return name, computed | {"places": (*self.located(), *inner.located())}

    def located(self) -> tuple[tuple[str, Span], ...]:
        """Return the keys, and where their values are written."""
        return tuple((key, node.span) for key, node in self.nodes.items())

    def lines(self, scope: list[str]) -> tuple[tuple[Named, ...], tuple[Named, ...]]:
        """Return the named steps, with the results of the formula among them, and the results alone."""
        read, steps = [*scope, *self.keys("formula")], self.keys("where")
        where = self.read("where", lambda node: fields.where(node, read, self.collecting), ())
        results = self.read("formula", lambda node: read_results(node, scope, steps, self.collecting), ())
        with self.collecting():
            return in_order((*where, *results)) if results else where, results
        return where, results

    def take(self, document: Mapping, keys: Sequence[str] = _KEYS) -> None:
        """Keep the fields of a document, and a mistake for each key that is none."""
        for key, span, node in document.entries:
            with self.collecting():
                if key not in keys:
                    self.places.setdefault(meant(key, keys), span)
                    known = f"the keys are {', '.join(keys)}"
                    raise UnknownKey(span, key=key, near=nearest(key, keys, known))
                self.nodes[key], self.places[key] = node, span
        if keys == _KEYS and "layers" in self.nodes:
            self.nodes["layers"], self.fronts, mistakes = parted(self.nodes["layers"])
            self.errors += mistakes

    @property
    def usual(self) -> tuple[Input, ...]:
        """The inputs of a spec that names none."""
        return (Input("x", DEFAULT_SHAPE, Fill("randn"), self.root),)

    def arguments(self, init: tuple[Argument, ...]) -> Scope:
        """Return the names that arguments of a layer may have."""
        values = {argument.name: argument.default for argument in init}
        return Scope(self.keys("init"), values, self.state())

    def state(self) -> dict[str, str]:
        """The kinds of the module's own tensors, by attribute, also where they are wrong otherwise."""
        return state_names(self.nodes["layers"]) if "layers" in self.nodes else {}

    def attributes(self) -> list[str]:
        """Return the attributes of the model that formulas may read, unless `where` has the name."""
        read = symbols(self.nodes["init"]) if "init" in self.nodes else []
        parts = part_names(self.nodes["layers"]) if "layers" in self.nodes else []
        return [*self.state(), *parts, *(name for name in read if name not in self.keys("where"))]

    def keys(self, key: str) -> tuple[str, ...]:
        """Return the names that a field declares, also where it is wrong otherwise."""
        return fields.keys(self.nodes[key]) if key in self.nodes else ()

    def required(self, name: str) -> None:
        """Check that the fields every spec has are there, and that the file is named for the spec.

        A key that is misspelt counts as there: one mistake gets one message.
        """
        for key in ("name", "summary"):
            with self.collecting():
                if key not in self.places:
                    raise MissingField(self.root, key=key, remedy=f"add  {_EXAMPLES[key]}")
        self.one_formula()
        with self.collecting():
            path = PurePath(self.file)
            if name and path.stem != name:
                place = self.nodes["name"].span
                raise NameIsNotStem(place, name=name, file=path.name, stem=path.stem)

    def one_formula(self) -> None:
        """Check that there is either a formula or a chain."""
        with self.collecting():
            both = [key for key in ("formula", "chain") if key in self.places]
            if len(both) == 2:
                remedy = "write the formula as a step of the chain"
                raise FormulaOrChain(self.places["chain"], found="both", remedy=remedy)
            if not both:
                remedy = f"add  {_FORMULA}  or  {_EXAMPLES['chain']}"
                raise FormulaOrChain(self.root, found="neither", remedy=remedy)


def _formula(node: Node, scope: list[str]) -> Term | None:
    if isinstance(node, Mapping):  # of several results
        return None
    scalar = as_scalar(node, "formula", "an expression", _FORMULA)
    return parse_formula(scalar.text, scalar.at, scope)
