"""Renamed identifiers of C++: the same kernels by their text, and what is refused."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import Workshop
from test_same_kernels import certified, git, module

from benchmarks.same_kernels.__main__ import main
from benchmarks.same_kernels.renames import Renames, Unproved, same_but_for
from benchmarks.same_kernels.tokens import tokens
from benchmarks.same_kernels.versions import files_of
from fusegen.codegen import runtime_text
from fusegen.evidence.certify.digest import kernel_digest

OLD = """
#include <cmath>
#define LOST(x) (lost + x)
#define MAKE(NAME, TYPE) TYPE NAME##_made(TYPE near) { return twist(near); }
float twist(float near) { return near + 1.0f; }
float tilt(float near, float twist) { return std::fabs(near) - twist * twist; }
float plus_turned(float x) { return twist(tilt(x, x)); }
const char* text = "twist";
MAKE(first_one, float)
float last(float x) { const float a = x, bend = a + 1.0f; return bend * bend; }
float inner(float x) { if (x > 1.0f) { const float bow = x; x -= bow; } return x - bow(x); }
float by_macro(float x) { const float lost = x; return LOST(lost); }
"""
SAME = {  # renames, and what the text becomes
    "a function": (["tilt=rotate"], (("tilt", "rotate"),)),
    "a wrapped line": (
        ["plus_turned=applied"],
        (("float plus_turned(float x) {", "float applied(\n    float x) {"),),
    ),
    "a parameter": (
        ["tilt.twist=angle"],
        (("float twist)", "float angle)"), ("twist * twist", "angle * angle")),
    ),
    "a local variable": (["last.bend=arc"], (("bend", "arc"),)),
    "a local variable like a function": (["last.bend=twist"], (("bend", "twist"),)),
    "an absent variable": (["plus_turned.near=far"], ()),
    "two exchanged": (
        ["tilt=plus_turned", "plus_turned=tilt"],
        (("tilt(", "#("), ("plus_turned(", "tilt("), ("#(", "plus_turned(")),
    ),
    "one that is absent": (["tilt=rotate", "gone=come"], (("tilt", "rotate"),)),
}
OTHER = {  # the same names, and one more token that differs
    "a number": (["tilt=rotate"], (("tilt", "rotate"), ("1.0f", "1.5f"))),
    "an operator": (["tilt=rotate"], (("tilt", "rotate"), ("(near) - ", "(near) + "))),
    "a string": (["twist=wind"], (("twist", "wind"),)),
    "one place left": (["tilt=rotate"], (("float tilt", "float rotate"),)),
    "one more name": (["tilt=rotate"], (("tilt", "rotate"), ("plus_turned", "used"))),
    "an include": (["tilt=rotate"], (("tilt", "rotate"), ("<cmath>", "<ctime>"))),
    "a macro without parameters": (
        ["tilt=rotate"],
        (("tilt", "rotate"), ("MAKE(NAME, TYPE)", "MAKE (NAME, TYPE)")),
    ),
    "a directive that ends later": (
        ["tilt=rotate"],
        (("tilt", "rotate"), ("{ return twist(near); }\n", "{ return twist(near); }")),
    ),
}
REFUSED = {
    "a capture": (["tilt=near"], "the old text has near"),
    "two that become one": (["tilt=same", "plus_turned=same"], "the old text has same"),
    "a parameter's capture": (["tilt.twist=near"], "twist or near in tilt may be another's"),
    "a variable that becomes a function": (["tilt=arc", "last.bend=arc"], "the old text has arc"),
    "a variable that becomes a macro": (["last.bend=LOST"], "the old text has LOST"),
    "a name outside its block": (["inner.bow=arc"], "bow or arc in inner may be another's"),
    "a name in a macro": (["by_macro.lost=gone"], "lost or gone in by_macro may be another's"),
    "a name that is called": (
        ["plus_turned.tilt=rotate"],
        "tilt or rotate in plus_turned may be another's",
    ),
    "a pasted name": (["first_one=second"], "the preprocessor may write first_one into another text"),
    "a part that is pasted": (["tilt=tilt_made"], "the preprocessor may write tilt_made into another text"),
    "a name of the system": (["tilt=fmaf"], "a header of the system has fmaf"),
    "a variable that becomes a macro of the system": (
        ["last.bend=INFINITY"],
        "a header of the system has INFINITY",
    ),
    "a name that the system gives": (["fabs=size_of"], "a header of the system has fabs"),
}
WRITTEN = {
    "tilt": "'tilt' is not OLD=NEW or FUNCTION.OLD=NEW",
    "tilt=2": "'tilt=2' is not OLD=NEW or FUNCTION.OLD=NEW",
    "a.b.c=d": "'a.b.c=d' is not OLD=NEW or FUNCTION.OLD=NEW",
}


def edited(text: str, edits: tuple[tuple[str, str], ...]) -> str:
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("case", SAME)
def test_a_text_with_names_replaced_is_the_same(case: str) -> None:
    given, edits = SAME[case]
    assert same_but_for(Renames.of(given), OLD, edited(OLD, edits), "cpu")


@pytest.mark.parametrize("case", OTHER)
def test_one_more_token_is_another_text(case: str) -> None:
    given, edits = OTHER[case]
    assert not same_but_for(Renames.of(given), OLD, edited(OLD, edits), "cpu")


@pytest.mark.together
@pytest.mark.parametrize("case", REFUSED)
def test_a_name_that_may_be_captured_is_refused(case: str) -> None:
    given, message = REFUSED[case]
    new = OLD
    for rename in given:
        old, _, name = rename.rpartition(".")[2].partition("=")
        new = new.replace(old, name)
    with pytest.raises(Unproved) as caught:
        same_but_for(Renames.of(given), OLD, new, "cpu")
    assert str(caught.value) == message


@pytest.mark.parametrize("given", WRITTEN)
def test_a_rename_that_is_written_otherwise_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(WRITTEN[given])}$"):
        Renames.of([given])


def test_a_name_is_replaced_once() -> None:
    with pytest.raises(ValueError, match="a name is replaced twice"):
        Renames.of(["a=b", "a=c"])


def test_tokens_are_those_of_cpp() -> None:
    text = 'x+++y >>= 0x1p-3f, 1\'000, u8"a b", a->b\n  #  define F(x) \\\n  x ## _y\n#define G (x)\n'
    plain = ["x", "++", "+", "y", ">>=", "0x1p-3f", ",", "1'000", ",", 'u8"a b"', ",", "a", "->", "b"]
    f = ["\n", "#define ", "F", "(", "", "x", ")", "x", "##", "_y", "\n"]
    g = ["\n", "#define ", "G", " ", "(", "x", ")", "\n"]
    assert tokens(text) == [*plain, *f, *g]


HEADER = "generated/_runtime/include/functions/selections.h"


@pytest.mark.full
@pytest.mark.parametrize("more", ["", "static_assert(true);\n"], ids=["names", "a token"])
def test_certificates_of_renamed_kernels_are_renewed(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop(tmp_path)
    monkeypatch.chdir(shop.folder)
    shop.build("renamed", "formula: softsign(x)\ndtypes: [float16]")
    before = certified("renamed", module("renamed"))
    shop.file("generated/renamed.certificate.txt", before)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    for path in (HEADER, "generated/renamed.py"):
        text = Path(path).read_text(encoding="utf-8").replace("soft_sign(", "gentle_sign(")
        shop.file(path, text.replace("namespace fusegen {\n", f"namespace fusegen {{\n{more}", 1))
    result = CliRunner().invoke(main, ["HEAD", "--renew", "--renamed", "soft_sign=gentle_sign"])
    runtime = files_of(Path("generated", runtime_text.FOLDER))
    digests = [kernel_digest(module("renamed"), device, runtime) for device in ("cpu", "cuda")]
    after = Path("generated/renamed.certificate.txt").read_text(encoding="utf-8")
    told = "changed: more than these names" if more else "unchanged (text with names replaced); renewed"
    assert result.stdout.splitlines()[:2] == [
        f"{'renamed':24} {device:4} {told}" for device in ("cpu", "cuda")
    ]
    assert [digest in after for digest in digests] == [not more] * 2
    assert (after == before, result.exit_code) == (bool(more), int(bool(more)))


def test_a_rename_of_the_command_line_is_checked() -> None:
    result = CliRunner().invoke(main, ["HEAD", "--renamed", "tilt"])
    assert result.exit_code == 2
    assert WRITTEN["tilt"] in " ".join(result.stderr.split())
