"""The YAML text of a lifted spec."""

import ast
import hashlib
import inspect
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fusegen.compiler.pipeline import compiled
from fusegen.core.write import Change, changes
from fusegen.errors import Span, SpecEdited, SpecExists
from fusegen.language.library import Library, shipped
from fusegen.language.parse import parse_spec
from fusegen.models.lift.constructed_state import Constructed
from fusegen.models.lift.labels import plain
from fusegen.models.lift.load import Problem
from fusegen.models.lift.model_inputs import Given
from fusegen.models.lift.steps import Steps

DIGEST = "# lifted text: "  # of the lines below: lift replaces no spec that was edited
SCHEMA = "# yaml-language-server: $schema=schema.json"
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ ().*/+=;'-]*")  # text that needs no quotes in a flow sequence
OUTSIDE = re.compile(r"[A-Za-z_][A-Za-z0-9_ ().*/+=;'<>,-]*")  # on a line of its own
WORDS = re.compile(r"(?i)(y|n|yes|no|on|off|true|false|null|none|inf|nan)")
WIDTH = 100
MOST_INPUTS = 80  # characters of inputs in one line
MOST = 160  # characters of a summary


def source_line(problem: Problem) -> str:
    """Return the line of a spec that says where it is from."""
    return f"source: {quoted(f'lifted from {problem.source}')}"


def spec_text(name: str, problem: Problem, of: Constructed, given: Given, body: Steps) -> str:
    """Return the text of a model's spec: its constructor, its inputs, its formula or chain."""
    lines = [
        SCHEMA,
        f"name: {name}",
        f"summary: {quoted(_summary(problem), OUTSIDE)}",
        source_line(problem),
    ]
    lines.append(_inputs(given))
    if of.arguments:
        lines.append(f"init: {map_text(_init(of, given, body))}")
    if of.order:
        lines.append("layers:")
        lines += [f"  - {name}: {_made(name, of, body)}" for name in of.order]
    lines += where_lines(body)
    return with_digest("\n".join([*lines, *body_lines(body, given.names[given.first])]) + "\n")


def checked(path: Path, text: str, source: str) -> tuple[Change, ...]:
    """Return the changes that writing a compiled spec makes; `source` is the line that marks its model.

    Raises:
        SpecExists: the file holds a spec of another origin.
        SpecEdited: the file was edited since it was written.
        SpecErrors: a name, or what the compiler refuses.
    """
    made = changes({path: text})
    if any(change.before is not None and source not in change.before.splitlines() for change in made):
        raise SpecExists(Span(str(path)), source=source.partition("lifted from ")[2].strip('"'))
    if any(change.before is not None and is_edited(change.before) for change in made):
        raise SpecEdited(Span(str(path)))
    compiled(parse_spec(text, path.as_posix()), Library(path.parent))
    return made


def with_digest(text: str) -> str:
    """Return a text with a first line that has its digest, by which an edited file is known."""
    return f"{DIGEST}{_digest(text)}\n{text}"


def without_digest(text: str) -> str:
    """Return the lines below that of the digest; all of a text that has none."""
    first, _, rest = text.partition("\n")
    return rest if first.startswith(DIGEST) else text


def is_edited(text: str) -> bool:
    """Return True if a text is not as it was written; also where it has no digest."""
    first, _, rest = text.partition("\n")
    return first != f"{DIGEST}{_digest(rest)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def quoted(text: str, pattern: re.Pattern[str] = PLAIN) -> str:
    """Return a text as YAML takes it, in quotes where it needs them; by default inside of brackets."""
    is_plain = pattern.fullmatch(text) and not WORDS.fullmatch(text) and text == text.strip()
    return text if is_plain else json.dumps(text)


def read_names(body: Steps) -> frozenset[str]:
    """Return the names that formulas read."""
    formulas = [*body.where.values(), *(step for _, step in body.chain), *filter(None, [body.formula])]
    return frozenset(n.id for each in formulas for n in ast.walk(each) if isinstance(n, ast.Name))


def _inputs(given: Given) -> str:
    return inputs_text(
        {key: _input(value, given.fills.get(key, "")) for key, value in given.values.items()}
    )


def inputs_text(shown: Mapping[str, str]) -> str:
    """Return the inputs of a spec, in a line each where they are many."""
    if len(shown) == 1 or sum(map(len, shown.values())) < MOST_INPUTS:
        return f"inputs: {map_text(shown)}"
    return "\n".join(["inputs:", *(f"  {key}: {value}" for key, value in shown.items())])


def _input(value: Any, fill: str) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    kind = "dtype: bool" if value.dtype is torch.bool else f"fill: {fill or 'randn'}"
    return f"{{shape: {list(value.shape)}, {kind}}}"


def map_text(entries: Mapping[str, str]) -> str:
    """Return a mapping in one line."""
    return "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"


def _init(of: Constructed, given: Given, body: Steps) -> dict[str, str]:
    """The constructor's arguments, with the names by which formulas read them where these are others."""
    read, found = read_names(body), {}
    for name, value in of.arguments.items():
        symbol, text = given.symbols[name], _value(plain(value))
        is_other = symbol != name and symbol in read
        found[name] = f"{{default: {text}, symbol: {symbol}}}" if is_other else text
    return found


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _made(name: str, of: Constructed, body: Steps) -> str:
    call = quoted(of.layers.get(name) or of.state[name], OUTSIDE)
    unread = name in of.state and name not in read_names(body)
    return f"{{unread: {json.dumps(of.state[name])}}}" if unread else call


def where_lines(body: Steps) -> list[str]:
    """Return the lines of `where`."""
    lines = {key: ast.unparse(value) for key, value in body.where.items()}
    line = f"where: {map_text({key: quoted(value) for key, value in lines.items()})}"
    if len(line) <= WIDTH:
        return [line] if lines else []
    return ["where:", *(f"  {key}: {quoted(value, OUTSIDE)}" for key, value in lines.items())]


def body_lines(body: Steps, running: str) -> list[str]:
    """Return the line of `formula`, those of several results, or those of `chain`."""
    if body.results:
        lines = {name: quoted(ast.unparse(each), OUTSIDE) for name, each in body.results.items()}
        return ["formula:", *(f"  {name}: {line}" for name, line in lines.items())]
    if body.formula is not None:
        short = None if body.where else short_step(body.formula, running)
        return (
            [f"chain: [{short}]"] if short else [f"formula: {quoted(ast.unparse(body.formula), OUTSIDE)}"]
        )
    written = [_step(name, step, running) for name, step in body.chain]
    line = f"chain: [{', '.join(written)}]"
    return [line] if len(line) <= WIDTH else ["chain:", *(f"  - {step}" for step in written)]


def _step(name: str, step: ast.expr, running: str) -> str:
    text = short_step(step, running) or quoted(ast.unparse(step))
    return f"{name}: {text}" if name else text


def short_step(step: ast.expr, running: str) -> str | None:
    """Return a step as a call of another spec without its tensor; None where it is an expression."""
    match step:
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=first)], keywords=keywords):
            if (
                first == running
                and name in specs()
                and not any(running in _read(k.value) for k in keywords)
            ):
                usual = {"softplus": {"beta": "1", "threshold": "20"}}.get(name, {})
                words = [f"{k.arg}={ast.unparse(k.value)}" for k in keywords]
                shown = [word for word in words if word not in {f"{k}={v}" for k, v in usual.items()}]
                return quoted_in_flow(f"{name}({', '.join(shown)})" if shown else name)
    return None


def quoted_in_flow(text: str) -> str:
    """Return a call as an item of a flow sequence."""
    return json.dumps(text) if "," in text else quoted(text)


def specs() -> Collection[str]:
    """Return the names of the specs that come with fusegen."""
    return {path.stem for path in shipped().glob("*.yaml")}


def _read(body: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}


def _summary(problem: Problem) -> str:
    """Return the first sentence of the model's docstring, in printable ASCII."""
    text = inspect.getdoc(problem.model) or ""
    own = "__doc__" in vars(problem.model) and vars(problem.model)["__doc__"]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "") if own else ""
    plain_text = "".join(c for c in first if c.isascii() and c.isprintable())[:MOST].strip()
    return plain_text or f"The model {problem.attribute} of {problem.path.name}."
