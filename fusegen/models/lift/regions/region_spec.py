"""The spec of a region: its text, and the key that equal regions share."""

import ast
import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import fx

from fusegen.core.spec import Spec
from fusegen.errors import FusegenError, SpecErrors
from fusegen.language.parse import parse_spec
from fusegen.models.lift.fx_graph import LAYER, START, Operation, Traced
from fusegen.models.lift.labels import label_of, plain
from fusegen.models.lift.regions.front import CONVOLUTION, Front, front_of
from fusegen.models.lift.regions.naming import input_names, label_names, operations, titles, words_of
from fusegen.models.lift.regions.pointwise import LABEL, NODE, is_mask, numbers_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.source_of_calls import written_of
from fusegen.models.lift.spec_text import (
    OUTSIDE,
    SCHEMA,
    body_lines,
    inputs_text,
    map_text,
    quoted,
    where_lines,
)
from fusegen.models.lift.steps import Steps, steps
from fusegen.models.reader.aten_calls import hint, value_of
from fusegen.models.reader.formula import substituted
from fusegen.models.reader.row_calls import HELD
from fusegen.schedule.thin_convolution import thin

NAME = "region_of_a_graph"
HEADS = ("where:", "chain:", "formula:")  # lines of their own
GROUPS = "num_groups"  # the argument that counts parts of a dimension, where it has no other name


@dataclass(frozen=True)
class RegionSpec:
    """A region as a spec."""

    region: Region  # it
    key: str  # equal for regions that compute the same of inputs of the same kinds
    inputs: tuple[str, ...]  # the names of its inputs, in their order
    params: Mapping[str, str]  # the names of its parameters, by label
    lines: tuple[str, ...]  # of the spec, below the name and the summary
    formula: tuple[str, ...]  # the lines of the formula or of the chain
    front: Front | None = None  # the convolution in front of the region that the spec has, too

    @property
    def titles(self) -> Iterator[str]:
        """Its names, the best one first."""
        if self.front is None:
            return titles(self.region)
        return titles(self.front.behind, [f"conv{'x'.join(map(str, self.front.layer.kernel_size))}"])

    @property
    def numbers(self) -> tuple[float, ...]:
        """The values of its parameters in the model, in their order; groups are no parameter."""
        known = {
            str(label_of(each)): plain(each) for node in self.region.nodes for each in numbers_of(node)
        }
        groups = label_of(self.region.rows.groups) if self.region.rows else None
        return tuple(known[label] for label in self.params if label != groups)

    def has_name(self, name: str) -> bool:
        """Return True if the spec has a name for something in it."""
        return bool(re.search(rf"\b{name}\b", "\n".join((*self.lines, *self.formula))))

    @property
    def title(self) -> str:
        """The best of its names."""
        return next(self.titles)

    @property
    def inputs_of_kernel(self) -> tuple[fx.Node, ...]:
        """The nodes that the function of the spec takes, in order."""
        if self.front is None:
            return self.region.inputs
        bias = self.front.bias
        return (self.front.output, *self.front.others, *([bias] if bias is not None else []))

    @property
    def body(self) -> str:
        """The formula, or the steps of the chain, in one line."""
        plain = re.sub(r"^(?:formula: |chain: \[(.*)\]$| *- )", r"\1", "\n".join(self.formula), flags=re.M)
        return ", ".join(line.strip() for line in plain.splitlines() if line not in HEADS)

    def text(self, name: str, source: str) -> str:
        """Return the text of the spec under a name."""
        steps = operations(self.region if self.front is None else self.front.behind)
        steps[:0] = ["convolution"] * (self.front is not None)
        kind = next((kind for _, kind in written_of(self.region.result).modules[-1:]), "")
        summary = f"{', '.join(steps).capitalize()}{f' of {kind}' if kind else ''}, as one kernel."
        head = [SCHEMA, f"name: {name}", f"summary: {quoted(summary, OUTSIDE)}"]
        return "\n".join([*head, f"source: {quoted(source)}", *self.lines, *self.formula]) + "\n"


def written(region: Region) -> RegionSpec:
    """Return the spec of a region of a graph with example values from a source."""
    names = input_names(region)
    params = label_names(region.labels, names.values())
    body = _steps(region, names, params)
    lines = [_inputs(region, names), *_rows(region, names, params)]
    groups = label_of(region.rows.groups) if region.rows else None
    known = {str(label_of(each)): plain(each) for node in region.nodes for each in numbers_of(node)}
    values = {name: json.dumps(known[label]) for label, name in params.items() if label != groups}
    if values:
        lines.insert(1, f"params: {map_text(values)}")
    formula = (*where_lines(body), *body_lines(body, names[region.inputs[0]]))
    return RegionSpec(
        region, _key(region), tuple(names[node] for node in region.inputs), params, tuple(lines), formula
    )


def convolved(of: RegionSpec) -> RegionSpec:
    """Return the spec of a region with the thin convolution in front of it; as it was where there is none.

    Its graph is one whose biases are split.
    """
    has_norm = any(LAYER in node.meta for node in of.region.nodes)
    front = None if of.region.reduces or has_norm else front_of(of.region)
    if front is None:
        return of
    behind = written(front.behind)
    shown = {behind.inputs[0]: _input(front.x)} | {
        name: _input(node) for name, node in zip(behind.inputs[1:], front.others, strict=True)
    }
    layer = quoted(f"Conv2d({front.arguments})")
    made = replace(
        behind,
        region=of.region,
        key=f"{front.arguments}; {behind.key}",
        lines=(inputs_text(shown), f"layers: [{CONVOLUTION}: {layer}]", *behind.lines[1:]),
        front=front,
    )
    if refused(made):
        return of
    found = thin(parsed(made))
    return made if found is not None and found.has_few_terms and found.is_large else of


def parsed(of: RegionSpec) -> Spec:
    """Return the spec of a region.

    Raises:
        FusegenError, SpecErrors: the language cannot hold it.
    """
    return parse_spec(of.text(NAME, "a graph"), f"{NAME}.yaml")


def refused(of: RegionSpec) -> str:
    """Return why the language cannot hold the spec of a region, in a sentence; empty where it can."""
    try:
        parsed(of)
    except SpecErrors as errors:
        return errors.errors[0].message
    except FusegenError as error:
        return error.message
    return ""


def _steps(region: Region, names: Mapping[fx.Node, str], params: Mapping[str, str]) -> Steps:
    """Return the operations of a region as the steps of a chain."""
    known: dict[str, ast.expr] = {f"{NODE}{node.name}": ast.Name(name) for node, name in names.items()}
    known[f"{NODE}{region.inputs[0].name}"] = ast.Name(START)
    known |= {f"{LABEL}{label}": ast.Name(name) for label, name in params.items()}
    made = []
    for part in region.parts:
        body, key = substituted(part.body, known), f"{NODE}{part.node.name}"
        if isinstance(body, ast.Name):  # another name of a value
            known[key] = body
        else:
            of = written_of(part.node)
            made.append(Operation(key, body, words_of(part)[-1], 0, of.statement, of.variable))
    others = tuple(f"{NODE}{node.name}" for node in region.others)
    traced = Traced({}, tuple(made), f"{NODE}{region.result.name}", others)
    taken = {*names.values(), *params.values()}
    return steps(traced, names[region.inputs[0]], taken)


def _rows(region: Region, names: Mapping[fx.Node, str], params: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a region of rows, of its weights along the channels, and of its groups."""
    if region.rows is None:
        return
    groups = region.rows.groups
    name = params.get(label_of(groups) or "", GROUPS)
    if region.rows.layer:
        yield f"layers: [{HELD}: BatchNorm2d({hint(region.whole.shape[1])})]"
    if groups:
        yield f"init: {{{name}: {plain(groups)}}}"
    held = [f"{names[each]}: Parameter(ones({hint(value_of(each).shape[0])}))" for each in region.along]
    if held:
        yield f"layers: [{', '.join(held)}]"
    yield f"over: {region.rows.over(region.whole.dim(), name)}"


def _inputs(region: Region, names: Mapping[fx.Node, str]) -> str:
    shown = {names[node]: _input(node) for node in region.inputs if node not in region.along}
    return inputs_text(shown)


def _input(node: fx.Node) -> str:
    shape = [hint(size) for size in value_of(node).shape] or [1]
    return f"{{shape: {shape}, dtype: bool}}" if is_mask(node) else f"{{shape: {shape}, fill: randn}}"


def _key(region: Region) -> str:
    """Return the operations in names that depend on their order only."""
    places = {node: f"in{place}" for place, node in enumerate(region.inputs)}
    places |= {node: f"t{place}" for place, node in enumerate(region.nodes)}
    known: dict[str, ast.expr] = {f"{NODE}{node.name}": ast.Name(name) for node, name in places.items()}
    known |= {f"{LABEL}{label}": ast.Name(f"p{place}") for place, label in enumerate(region.labels)}
    bodies = (ast.unparse(substituted(copy.deepcopy(part.body), known)) for part in region.parts)
    masks = ["mask" if is_mask(node) else "float" for node in region.inputs]
    rows = [region.rows.over(region.whole.dim(), GROUPS)] if region.rows else []
    return "; ".join([*rows, *masks, *bodies, *(places[node] for node in region.others)])
