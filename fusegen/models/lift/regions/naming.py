"""Names of regions, of their inputs and of their parameters: those of the model's source.

A region is named by the innermost class of the model that its calls are in, and by what it does there:
``squeeze_excitation_hardsigmoid_mul``. A module whose calls are all in the region stands for them by its
own name, and so does a function of the model. An input has the name that the first statement to read it
has for it.
"""

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torch import fx

from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_module, check_variable
from fusegen.models.lift.places import Frame
from fusegen.models.lift.regions.pointwise import Pointwise, operation_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.source_of_calls import AROUND, NO_CALLS, operation, written_of
from fusegen.models.lift.source_text import BINARY
from fusegen.models.lift.steps import RUNNING

WISHED = "wished"  # the key of a name for a node, in its meta
TITLE = "title"  # the key of the word for a node of several operations
OWN = frozenset(("bn", "conv", "num_groups", "training"))  # what specs of regions and their calls have
PREFIX = re.compile(r"^l_.*_(?:parameters|buffers)_")  # of a parameter in a graph of TorchDynamo
PLACE = re.compile(r"arg\d+_\d+")  # of an input in a captured graph, which has no name
LETTERS, NUMBERS = ("y", "z", "w", "v", "u"), ("scale", "factor", "number")
INPUT = "input"  # of an activation's forward, which tells nothing
MOST_WORDS, MOST_LETTERS = 5, 60  # of a name
ANY = frozenset("model model_new net network module main".split())  # classes whose names tell nothing
SKIPPED = re.compile("residual|shortcut|identity|skip")  # what a model adds behind a branch
ARITHMETIC = frozenset("add sub mul div pow neg".split())


def titles(region: Region, front: Sequence[str] = ()) -> Iterator[str]:
    """Yield names for a region, the best one first; later ones are for regions beside one of that name.

    Args:
        region: it.
        front: words for what runs in front of it.
    """
    holder, words = _holder_and_words(region)
    first = [*holder, *front, *words]
    yield _legal(first)
    if words != operations(region):
        yield _legal([*holder, *front, *operations(region)])
    if any(str(node.meta.get(WISHED)).endswith("var") for node in region.inputs):
        yield _legal([*first, "eval"])
    if region.others:
        yield _legal([*first, "and", *map(operation, region.others)])
    known = (name for name in input_names(region).values() if name not in (RUNNING, *LETTERS))
    yield from (_legal([*first, "with", name]) for name in known)
    yield from (_legal([*first, str(number)]) for number in itertools.count(2))


def operations(region: Region) -> list[str]:
    """Return the operations of a region in words, in order; of many, those that are no arithmetic."""
    return _few([word for part in region.parts for word in words_of(part)])


def _few(words: list[str]) -> list[str]:
    """Return words, or where they are many the first ones and the last, or those that are no arithmetic."""
    if len(words) <= MOST_WORDS:
        return words
    told = [word for word in words if word not in ARITHMETIC]
    return told if 0 < len(told) <= MOST_WORDS else [*words[: MOST_WORDS - 2], "to", words[-1]]


def words_of(part: Pointwise) -> list[str]:
    """Return an operation in words; a sum with what a model keeps for it is named after that."""
    given = part.node.meta.get(TITLE) or (operation_of(part.node) if part.is_of_rows else "")
    found = [str(given)] if given else [*_words(part.body)]
    if found == ["add"]:
        of = written_of(part.node)
        names = (of.name(place)[0] for place in range(len(of.operands)))
        return next((["residual"] for name in names if SKIPPED.search(name)), found)
    return found


def _words(body: ast.AST) -> Iterator[str]:
    """Yield the operations of a formula in the order in which they run."""
    for child in ast.iter_child_nodes(body):
        yield from _words(child)
    match body:
        case ast.Call(func=ast.Name(id=name)):
            yield name
        case ast.BinOp(op=op) | ast.Compare(ops=[op]):
            yield BINARY[type(op)]
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "neg"


def _holder_and_words(region: Region) -> tuple[list[str], list[str]]:
    """Return the class that a region is in, and what it does there, in words."""
    written = [written_of(part.node) for part in region.parts]
    calls = [each for part, each in zip(region.parts, written, strict=True) if _is_call(part)]
    common = _common([each.modules for each in calls])
    counts = Counter(path for each in calls for path, _ in each.modules)
    kinds = {
        path: kind for each in calls for path, kind in each.modules if counts[path] == each.calls[path]
    }
    whole = {path: named for path, kind in kinds.items() if (named := _in_words(kind))}
    holder = _in_words(common[-1][1]) if common else []
    if common and common[-1][0] in whole:
        return holder, [
            word for part in region.parts if not written_of(part.node).modules for word in words_of(part)
        ]
    words = list(_in_modules(region, whole, len(common)))
    sizes = Counter(path for path, _ in words)
    modules = [path for path in sizes if path]
    if len(modules) == 1 and 2 * sizes[modules[0]] > len(words):  # a norm with a sum in front
        return whole[modules[0]], [word for path, own in words if not path for word in own]
    if modules:
        return holder, _few([word for _, group in itertools.groupby(words) for word in next(group)[1]])
    function = _function([each.functions for each in calls]) if len(calls) > 1 else ""
    return holder, [function] if function else operations(region)


def _is_call(part: Pointwise) -> bool:
    return operation(part.node) not in NO_CALLS and bool(written_of(part.node).modules)


def _in_modules(
    region: Region, whole: Mapping[str, list[str]], depth: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield the path and the words of the module that each operation is in, or its own words.

    Args:
        region: of these operations.
        whole: the words of modules that are in the region as a whole, by their paths.
        depth: of the module around all of them.
    """
    inside = Counter(path for part in region.parts for path, _ in written_of(part.node).modules[depth:])
    for part in region.parts:
        paths = (path for path, _ in written_of(part.node).modules[depth:])
        path = next((each for each in paths if each in whole and inside[each] > 1), "")
        yield path, whole[path] if path else words_of(part)


def _common(every: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return what sequences begin with."""
    return [first[0] for first in itertools.takewhile(_are_equal, zip(*every, strict=False))]


def _are_equal(items: Sequence[Any]) -> bool:
    return items.count(items[0]) == len(items)


def _function(every: Sequence[Sequence[Frame]]) -> str:
    """Return the innermost function below forward that all calls are in; empty where there is none."""
    depth = len(_common(every))
    names = {(each[depth].file, each[depth].function) if len(each) > depth else None for each in every}
    one = names.pop() if len(names) == 1 else None
    name = one[1] if one else every[0][depth - 1].function if depth else ""
    return "" if name in AROUND or "forward" in name else name.strip("_").lower()


def _in_words(kind: str) -> list[str]:
    """Return the name of a class in words: ``LlamaRMSNorm`` is ``llama_rms_norm``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).strip("_").lower()
    return [] if words in ANY else [re.sub(r"_net(?=_|$)", "net", words)]


def _legal(words: Sequence[str]) -> str:
    """Return words, as many as fit, as a name that a spec may have."""
    [*lengths] = itertools.accumulate(len(word) + 1 for word in words)
    fitting = [word for word, length in zip(words, lengths, strict=True) if length <= MOST_LETTERS]
    whole = "_".join([*fitting, *words[-1:]] if len(fitting) < len(words) else words)
    name = re.sub(r"[^a-z0-9_]+|^[^a-z]+", "_", whole)[:MOST_LETTERS].strip("_") or "region"
    with suppress(FusegenError):
        check_module(name, Span(""))
        check_variable(name, Span(""))
        return name
    return f"{name}_region"


def input_names(region: Region) -> dict[fx.Node, str]:
    """Return a name for each input of a region: that of the model's source, or a letter."""
    first, *others = region.inputs
    wishes = {node: [*_wishes(node, region)] for node in region.inputs}
    wishes[first] = [*_wishes(first, region, is_running=True)]
    taken = set(OWN)
    has_running = any(each[0] == RUNNING for node in others if (each := wishes[node]))
    usual = [*wishes[first], *([] if has_running else [RUNNING])]
    found = {first: _free(usual, LETTERS, taken)}
    return found | {node: _free(wishes[node], LETTERS, taken) for node in others}


def _wishes(node: fx.Node, region: Region, *, is_running: bool = False) -> Iterator[str]:
    """Yield the names of a value: that of the source, or those of an attribute of the model.

    What runs through a region is named after the module that made it only beside other tensors.
    """
    if WISHED in node.meta:
        yield str(node.meta[WISHED])
    computed = [each for each in region.inputs if each.op != "get_attr" and WISHED not in each.meta]
    is_alone = is_running and len(computed) < 2
    if node.op == "call_module" and not is_alone:
        names = [f"{operation(node)}_" if name == INPUT else name for name, _ in _in_source(node, region)]
    else:
        names = [name for name, is_made in _in_source(node, region) if not (is_made and is_alone)]
    if node.op == "get_attr" or (node.op == "placeholder" and not PLACE.fullmatch(str(node.target))):
        names += _last_words(str(node.target))
    yield from names
    yield from (f"{name}_value" for name in names if name)  # of `cos`, which is a function


def _in_source(node: fx.Node, region: Region) -> Iterator[tuple[str, bool]]:
    """Yield the names by which statements read a value, and if they are those of a module that made it."""
    for part in region.parts:
        of, args = written_of(part.node), part.node.args
        named = (of.name(place) for place, each in enumerate(args) if each is node)
        yield from (each for each in named if each[0])


def _last_words(path: str) -> Iterator[str]:
    """Yield the last word of the path of an attribute, and the last two."""
    plain = re.sub(r"^l_(\w+)_$", r"\1", PREFIX.sub("", path.lower()))  # of an argument in TorchDynamo's
    words = [re.sub(r"\W+", "_", each).strip("_") for each in plain.split(".")]
    for name in (words[-1], "_".join(word for word in words[-2:] if word != "self")):
        yield re.sub(r"_\d+$", "", name)


def label_names(labels: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return a name for each number with a label: the last word of it."""
    used = {*taken, *OWN} - {"num_groups"}
    return {label: _free([*_last_words(label)], NUMBERS, used) for label in labels}


def _free(wishes: Iterable[str], others: Sequence[str], taken: set[str]) -> str:
    """Return a name that is not taken, which it then is."""
    plain = (re.sub(r"\W+", "_", each).strip("_").lower() for each in wishes)
    numbered = (f"{others[0]}_{number}" for number in itertools.count(2))
    for name in (*plain, *others, *itertools.islice(numbered, 64)):
        with suppress(FusegenError):
            check_variable(name, Span(""))
            if name not in taken:
                taken.add(name)
                return name
    raise AssertionError("a region has at most 8 tensors")
