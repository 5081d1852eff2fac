"""A name that a spec declares never meets one of the generated module's own."""

import ast
import builtins
import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Workshop
from elements import SERIAL
from torch.utils.cpp_extension import include_paths

from fusegen.codegen import runtime_text
from fusegen.codegen.printed import Binding
from fusegen.compiler.pipeline import Compiled, compiled
from fusegen.core.ops import OPS
from fusegen.errors import FusegenError, Span
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec
from fusegen.language.parse.names import check_module, check_variable
from fusegen.project import build
from fusegen.runtime import turns

BODIES = {  # one for each shape that a module has
    "one": "formula: sin(aaa) * aaa\ninputs: {aaa: {}}",
    "mask": "inputs: {aaa: {}}\nparams: {bbb: 0.5}\nformula: where(aaa > 0, aaa, bbb * aaa)",
    "output": "inputs: {aaa: {}}\nformula: exp(aaa)",
    "word": "inputs: {aaa: {}}\nreference: torch.nn.functional.gelu\nformula: aaa * ndtr(aaa)",
    "own": "inputs: {aaa: {}}\nreference: torch.nn.functional.relu\nformula: relu(aaa)",
    "scalars": "inputs: {aaa: {}}\nparams: {bbb: 0.5, ccc: 2}\nwhere: {ddd: aaa * exp(bbb)}\n"
    "formula: tanh(ddd) * ddd + ccc",
    "split": "inputs: {aaa: {}, bbb: {split: -1}}\nparams: {ccc: 0.5}\nformula: aaa * sigmoid(bbb * ccc)",
    "several": "inputs: {aaa: {}, bbb: {}, ccc: {}}\nformula: where(aaa > 0, bbb, ccc)",
    "layers": "init: {width: 8}\nlayers: [bbb: 'Conv2d(width, 8, 3)']\ninputs: {aaa: {}}\n"
    "formula: relu(aaa)",
    "state": "init: {bbb: 0.5, ddd1: 8}\nlayers: [ccc: Parameter(ones(ddd1)), ddd: Buffer(tensor(bbb))]\n"
    "inputs: {aaa: {shape: [8]}}\nformula: aaa * sigmoid(bbb * ccc) * ddd",
}
# the latter ones are bound by the compiler, or belong to a layer, and no other name may be the same
OWN = re.compile(r"(aaa|bbb|ccc|ddd)\d?|\w+_x|aaa_with_bias|bbb_bias")
GIVE_WAY = {"input", "approximate"}  # arguments of a function whose spec declares no such name
NAMED = Span("names.yaml", 1, 1)


@functools.cache
def named(body: str) -> Compiled:
    """A compiled spec named `zzz`."""
    spec = parse_spec(f"name: zzz\nsummary: A test.\n{body}\n", "zzz.yaml")
    return compiled(spec, Library(ROOT / "specs"))


def module(body: str, binding: Binding = Binding.STABLE) -> str:
    """The module of a spec named `zzz`."""
    return build.module(named(body), binding)


@functools.cache
def texts() -> list[str]:
    """The modules of all shapes, with either binding."""
    return [module(body, binding) for body in BODIES.values() for binding in Binding]


def own_scopes(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """The functions of a module in whose scope a spec's name stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(map(OWN.fullmatch, words(node))):
            yield node


def words(node: ast.AST) -> set[str]:
    """The variables that a piece of Python reads, writes or takes."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}


def refused(name: str, check: Callable[[str, Span], None] = check_variable) -> bool:
    """Tells whether a name may not be declared."""
    try:
        check(name, NAMED)
    except FusegenError:
        return True
    return False


def lower(names: set[str]) -> set[str]:
    """Those that a spec could declare, without the ones of the tests."""
    return {name for name in names if name.islower() and not OWN.fullmatch(name) and "zzz" not in name}


@pytest.mark.full
def test_no_variable_is_one_of_the_modules_functions() -> None:
    used = {name for text in texts() for scope in own_scopes(ast.parse(text)) for name in words(scope)}
    assert {name for name in lower(used) if not refused(name)} == GIVE_WAY


@pytest.mark.full
def test_no_spec_is_called_as_what_its_module_reads() -> None:
    trees = [ast.parse(text) for text in texts()]
    defined = {
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    read = {name for tree in trees for name in words(tree)} & set(dir(builtins))
    met = lower(defined | imported | read)
    assert {name for name in met if not refused(name, check_module)} <= GIVE_WAY


def test_no_spec_is_called_as_what_stands_beside_its_operators() -> None:
    held = {*dir(torch.ops.fusegen), *vars(torch.ops.fusegen)}
    text = "".join(runtime_text.files("stable").values())
    held |= {turns.OF_MODULE, *re.findall(r"\boperators\.(\w+) = ", text)}
    assert {"_turn", "_library", "_texts", "name"} <= held
    assert {name for name in held if not refused(name, check_module)} == set()


GIVING_WAY = {  # what declares a name, in the place of NAME
    "first": "inputs: {NAME: {}, b: {}}\nformula: NAME - b",
    "second": "inputs: {b: {}, NAME: {}}\nformula: b - NAME",
    "only": "inputs: {NAME: {}}\nreference: torch.nn.functional.gelu\nformula: NAME * ndtr(NAME)",
    "scalar": "params: {NAME: 2}\nformula: x * NAME",
    "argument": "init: {NAME: 2}\nformula: x * NAME",
    "state": "layers: [NAME: Parameter(ones(1))]\nformula: x * NAME",
}


@pytest.mark.few(6)
@pytest.mark.together
@pytest.mark.parametrize("name", sorted(GIVE_WAY))
@pytest.mark.parametrize("place", GIVING_WAY)
@pytest.mark.parametrize("binding", Binding)
def test_arguments_of_pytorchs_give_way_to_those_of_a_spec(binding: Binding, place: str, name: str) -> None:
    body = GIVING_WAY[place].replace("NAME", name)
    [function] = [
        node
        for node in ast.parse(module(body, binding)).body
        if isinstance(node, ast.FunctionDef) and node.name == "zzz"
    ]
    taken = [arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)]
    assert taken.count(name) == 1


@pytest.mark.full
def test_a_variable_is_renamed_where_the_kernel_calls_a_function_of_its_name() -> None:
    body = "inputs: {x_sigmoid: {}, up: {}}\nformula: x_sigmoid * sigmoid(2 * x_sigmoid) + up"
    assert "zzz_forward(M x_sigmoid_V, M up) {" in build.sources(named(body))["cuda"]
    plain = build.sources(named("inputs: {gate: {}, up: {}}\nformula: gate * up + 1"))["cuda"]
    assert "zzz_forward(M gate, M up) {" in plain


@pytest.mark.few(1)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_reads_a_kernels_scalars_declares_nothing_that_a_spec_may(body: str) -> None:
    text = build.sources(named(body))["cuda"]
    for function in text.split("static Scalars from(")[1:]:
        declared = set(re.findall(r"(?<![:.\w])[a-z]\w*", function[: function.index("\n  }\n")]))
        assert {name for name in lower(declared) if not refused(name)} <= {
            "std",
            "scalar1",
            "t1",
        }  # unused names


NATURAL = (
    *(
        "x_sigmoid",
        "two_sum",
        "two_prod",
        "prescaled",
        "scaled",
        "narrow",
        "divide",
        "double_word",
        "exp_dw",
    ),
)


def natural(first: str, second: str, third: str) -> str:
    """A spec of an input, a parameter and a step of these names, whose kernels call nearly everything."""
    body = (
        f"inputs: {{{first}: {{}}, up: {{}}}}\nparams: {{{second}: 0.5}}\n"
        f"where: {{{third}: '{first} * sigmoid({second} * {first})'}}\n"
        f"formula: 'up * gelu({third}) + exp({second}) * {third} + mish({third}) + tanh({first} * {first})'"
    )
    return body


@pytest.mark.full
@pytest.mark.parametrize("k", range(3))
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_natural_names_compile(k: int, tmp_path: Path) -> None:
    text = SERIAL + build.text_of(named(natural(*NATURAL[3 * k : 3 * k + 3])), "cpu")
    path = tmp_path / "kernel.cpp"
    path.write_text(f"#include <cstdint>\n{text}", encoding="utf-8")
    flags = ["-std=c++17", "-fsyntax-only", "-mavx2", "-mfma", "-mf16c", "-w"]
    done = subprocess.run(
        ["g++", *flags, *(f"-I{folder}" for folder in include_paths()), str(path)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("inputs: {x: {}, output: {}}\nformula: x * output",
         "'output' cannot be a name: the generated module uses it"),
        ("params: {grad: 1}\nformula: x * grad", "'grad' cannot be a name: the generated module uses it"),
        ("params: {run: 1}\nformula: x * run",
         "'run' cannot be a name: the generated module uses it"),
        ("params: {call: 1}\nformula: x * call",
         "'call' cannot be a name: the generated module uses it"),
    ],
)  # fmt: skip
def test_a_name_of_the_module_is_refused_at_its_place(workshop: Workshop, body: str, message: str) -> None:
    workshop.spec("it", body)
    result = workshop.run("build", "it")
    assert result.exit_code == 2
    assert result.output.splitlines()[0].partition(": ")[2] == message
    assert not Path("generated").exists()


def test_no_function_of_the_language_is_a_variable() -> None:
    assert all(refused(name) for name in OPS)


def test_a_model_of_layers_without_arguments_has_a_constructor() -> None:
    text = module("layers: [lin: 'Linear(3, 4)']\nchain: [relu]")
    assert (
        "    def __init__(self) -> None:\n        super().__init__()\n        self.lin = nn.Linear(3, 4)\n"
        in text
    )


SHADOWING = {
    "inputs: {gelu: {}}\nchain: [gelu, tanh]":
        "it: the step 'gelu' is the input, not the gelu that comes with fusegen\n",
    "chain: [mish, x + 1]":
        "it: the step 'mish' is specs/mish.yaml, not the mish that comes with fusegen\n",
    "chain: [silu, x + 1]": "",  # the same text
    "chain: [gelu, x + 1]": "",
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("body", SHADOWING)
def test_a_step_that_shadows_a_shipped_spec_is_remarked(workshop: Workshop, body: str) -> None:
    workshop.spec("mish", "formula: x + 1")
    workshop.file("specs/silu.yaml", (ROOT / "specs" / "silu.yaml").read_bytes())
    workshop.spec("it", body)
    result = workshop.run("build", "it")
    assert (result.exit_code, result.stderr) == (0, SHADOWING[body])
