"""The text of a standalone file of rows, from that of a module whose rows are last dimensions."""

import ast
import re
from collections.abc import Collection
from textwrap import wrap
from typing import Any

from fusegen.codegen.standalone import file_parts, helpers, known, text
from fusegen.codegen.standalone.functions import parts
from fusegen.codegen.standalone.instances import STORED
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.phase_items import Loops, Statements, Types
from fusegen.codegen.standalone.reading import Module
from fusegen.codegen.standalone.row_dims import row_dims

KNOWN = known.Known(
    "Rows",
    keywords="over reduction features indices results keeps channels groups row_dtype divisor elementwise",
    methods="index along linear without_bias",
    own="functools made tensors divided are_sums shapes_of empty layout indexed reduced values reduction "
    "alike groups of_groups of_wide",
)
TYPES = {"Reduces", "Picks", "Stores", "Rows", "LoadsRow"}  # what structs are derived from
STRUCT = re.compile(r"^struct \w+ : (\w+)<", re.MULTILINE)
HEAD = re.compile(r"^struct \w+ : [^{;]*\n[^{;]*\{$", re.MULTILINE)  # on several lines
JOINED = {  # phases that the runtime's kernels run as one loop, and their values
    r"LargestAndSum<(\w+), (\w+), &[\w:]+>": r"\1, \2",
    r"CentredSums<(\w+),\s+(\w+),\s+&[\w:]+(?:,\s+\d+)+>": r"\1, \2",
    r"Shifted<(\w+)>": r"\1",
    r"PickedApart<(\w+)>": r"\1",
    r"WithSaved<(\w+),\s+\d+>": r"\1",
    r"\bSaved<(\w+)(?:,\s+-?\d+)+>": r"\1",
    r"OneLoop<([\w,\s]+)>": r"\1",
    r"FUSEGEN_SAVING_": "FUSEGEN_",
    r",[\s#]+\w+[\s#]+on[\s#]+CUDA[\s#]+by[\s#]+saved[\s#]+sums": "",
}
DECISIONS = re.compile(
    r"  static constexpr \w+ "
    r"(?:RECOMPUTES|OF_FEATURES|BY_CHANNEL|EXACT|BOUNDED|CANCELS|WATCHES|APART) = \w+;\n"
    r"|  using Math16 = \w+;\n|FUSEGEN_(?:INDEX|TOTAL)\(\w+\)\n"
    r'|#include "(?:row_index\.h|cuda/(?:watched_conditions|long_rows|picked_apart)\.cuh)"\n'
    r"|  FUSEGEN_(?:MADE|SAVED)\((?:[^()]|\([^()]*\))*\)\n"
)  # of the runtime's kernels: how they hold and round elements, and read an index
WIDE = {  # values of rows in float32 beside elements of 16 bits
    r"\bstruct (\w+)Rows :": r"struct \1 :",
    r"using \w+ = WithWideValues<.*>;\n": "",
}
WITH_WIDE = "row_dtype=torch.float32"
OF_ROW = re.compile(r"  static constexpr unsigned OF_ROW = \d+;\n")
SUMS = re.compile(r"  static constexpr unsigned FEATURES = \d+;\n")
MATH = re.compile(r"using Math = (\w+);")
STATEMENTS = re.compile(r"^  FUSEGEN_ROW\((?:[^()]|\([^()]*\))*\)$", re.MULTILINE)
ONCE = ("array<double>", "double", "double")  # what is computed once a row
VALUES = re.compile(r"struct BackwardValues \{ double ([^;]*);")
BITS = re.compile(r"unsigned FEATURES = (\d+);")
CHUNKS_OF_SUMS, CHUNKS = 64, 1024  # parts of the rows, of which a thread takes several
GIVEN_UP = (
    "Given up: the order of sums, rows in registers, floats for 16 bits, in place, out=, "
    "autocast, kernels in torch.func and forward mode."
)


def is_light(module: str) -> bool:
    """Return True if a module of rows has a file of its own kernels, not of the runtime."""
    read = KNOWN.read(prepared(module))
    if read is None or not {*STRUCT.findall(read.text)} <= TYPES or "struct Backward " not in read.text:
        return False
    tensors, indices = _tensors(read, "backward")[_number(read, "results", 1) :], "indices" in read.given
    has_all = (
        tensors == _tensors(read, "forward") and read.counts()["Backward"][1] == len(tensors) - indices
    )
    dims = row_dims(read)
    others = {"indices"} if dims.groups is None else {"indices", "reduction", "results"}
    return has_all and (not dims.is_split or others.isdisjoint(read.given))


def context(module_text: str, dtypes: list[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    text_of_rows = prepared(module_text)
    read = Module(text_of_rows)
    has_no_sums = row_dims(read).is_split or "indices" in read.given
    module = Module(SUMS.sub("", text_of_rows)) if has_no_sums else read
    own = facts(module) | {"types": text.types_of(module, dtypes), "templates": ("rows/kernels",)}
    loops = Loops("rows", statements(own["types"]), GIVEN_UP)
    made = loops.file(module, own, (own["names"], own["scalar_names"]), dtypes)
    for flag in ("groups", "wide"):
        if own[flag]:
            made["eager"] = made["eager"].replace("def eager(", f"def of_{flag}(", 1)
    reduced = "reduced(divisor)" if own["divisor"] else "reduced()"
    return made | {"helpers": helpers.called(made["functions"] + reduced * own["is_loss"])}


def prepared(module: str) -> str:
    """Return a module's text whose kernels are what a file's own loops run."""
    module = known.with_headers_of_files(module)
    is_wide = WITH_WIDE in module
    for pattern, apart in (JOINED | WIDE if is_wide else JOINED).items():
        module = re.sub(pattern, apart, module)
    module = HEAD.sub(_head, module)
    without = DECISIONS.sub("", module if is_wide else OF_ROW.sub("", module))
    return STATEMENTS.sub(_filled, without.replace("using Math32 = ", "using Math = "))


def _head(found: re.Match[str]) -> str:
    """Return the head of a type on as few lines as there may be."""
    return "\n".join(wrap(" ".join(found[0].split()), file_parts.WIDTH, subsequent_indent="    "))


def _filled(found: re.Match[str]) -> str:
    """Return the statements of a macro on as few lines as there may be."""
    statements = " ".join(found[0].split())
    return "\n".join(wrap(statements, file_parts.WIDTH, initial_indent="  ", subsequent_indent=" " * 6))


def _number(module: Module, key: str, otherwise: int) -> int:
    return int(ast.literal_eval(module.given[key])) if key in module.given else otherwise


def _tensors(module: Module, kernel: str) -> list[str]:
    return [name for name, kind in module.signature(kernel).items() if kind == "Tensor"]


def facts(module: Module) -> dict[str, Any]:
    """Return what templates name of a module's kernels."""
    forward = module.signature("forward")
    names = [name for name, kind in forward.items() if kind == "Tensor"]
    scalars = [name for name, kind in forward.items() if kind == "float"]
    indices, dims = int("indices" in module.given), row_dims(module)
    of_scalars = "".join(f", {name}" for name in scalars)
    scalars += ["groups"] * (dims.groups is not None)
    keeps, once = "keeps" in module.given, "reduction" in module.given
    result = "rows + (1,) * len(row)" if keeps else "rows" if once else "rows + row"
    return {
        "name": module.name,
        "names": names,
        "scalar_names": scalars,
        "scalars": len(scalars),
        "tensors": max(sum(pair) for pair in module.counts().values()),
        "gradients": len(names) - indices,
        **dims.context(),
        **dict.fromkeys(("batch", "scans", "two_scans", "finds"), False),
        "wide": once and "row_dtype" in module.given,
        "divisor": names[_number(module, "divisor", 0)] if "divisor" in module.given else "",
        "of_scalars": of_scalars,
        "shapes": _shapes(result, _number(module, "results", 1), len(names) - indices),
        "once": once,
        "keeps": keeps,
        "drops": once and not keeps,
        "picks": bool(indices),
        "runs_once": once or bool(indices),
        "others": indices + len(scalars),
        "is_loss": once and ast.literal_eval(module.given["reduction"]) != "none",
        "index": names[-1] if indices else "",
        "alike": ", ".join(names[: len(names) - indices]),
        **_of_gradient(module, ", *ctx.scalars" if scalars else ""),
    }


def _shapes(result: str, results: int, gradients: int) -> str:
    """Return the expression of the shapes of the outputs: of each gradient that of the elements."""
    forward, backward = f"[{result}] * {results}", f"[rows + row] * {gradients}"
    return forward if forward == backward else f"{backward} if backward else {forward}"


def _of_gradient(module: Module, scalars: str) -> dict[str, Any]:
    """Return what they name of the gradient; `scalars` are the arguments that follow the tensors."""
    outputs = _number(module, "results", 1)
    values, bits = VALUES.search(module.text), BITS.search(module.text)
    sums = [k for k in range(int(bits[1]).bit_length()) if int(bits[1]) >> k & 1] if bits else []
    function = f"lambda *tensors: eager(*tensors{scalars})"
    return {
        "outputs": outputs,
        "sums": len(sums),
        "of_features": tuple(k + outputs for k in sums),
        "chunks": CHUNKS_OF_SUMS if sums else CHUNKS,
        "values": len(parts(values[1])) if values else 0,
        "gradient": f"torch.func.vjp({function}, *saved)[1]({'tuple(grads)' if outputs > 1 else '*grads'})",
    }


def statements(types: list[dict[str, Any]]) -> Statements:
    """Return a function that gives the types of names in phases, for the types of elements."""

    def of(own: Collection[Item]) -> dict[str, list[Types]]:
        math = next((m[1] for one in own if (m := MATH.search(one.text))), "double")
        kinds = {(STORED[type["bits"]], "double" if type["bits"] == 64 else math) for type in types}
        if any("Picks<" in one.text or "ONCE_A_ROW" in one.text for one in own):
            kinds |= {ONCE[1:]}
        element = [(f"array<{kind}>", stored, kind) for stored, kind in sorted(kinds)]
        named = {"ELEMENT": element, "ROW": [ONCE], "VALUES": [ONCE]}
        return {macro: [_types(*kind) for kind in several] for macro, several in named.items()}

    return of


def _types(array: str, stored: str, kind: str) -> Types:
    names = {"in ": array, "out ": array, "r ": array, "p ": "params<double>"}
    return names | {"length ": "double", "T": stored, "M": kind}
