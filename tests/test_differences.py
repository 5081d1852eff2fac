"""`check` of some specs, in short, and for GitHub: lines, kernels, certificates, annotations, a summary."""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workshop

from fusegen.cli import github, stat
from fusegen.codegen.emit.digests import digests
from fusegen.codegen.emit.kernel_text import Emission
from fusegen.codegen.printed import Binding, Sources
from fusegen.core import manifest
from fusegen.core.targets import Device
from fusegen.core.write import Change
from fusegen.errors import Span
from fusegen.evidence.certify import certificate_state
from fusegen.project import build, outputs

GELU = (ROOT / "generated/gelu.py").read_text(encoding="utf-8")
BOTH = ["forward", "backward"]
OLD = {"cuda": ("a", "b"), "cpu": ("c", "d")}  # digests of kernels


def replaced(old: str, new: str) -> Change:
    assert old in GELU
    return Change(Path("generated/gelu.py"), GELU, GELU.replace(old, new))


OTHER = replaced("return times_ndtr(finite_x)", "return finite_x")


@pytest.mark.parametrize(
    ("change", "before", "after", "kernels"),
    [
        (replaced("// From grad", "// Of grad"), OLD, OLD, {}),
        (replaced('"""The same in', '"""Just the same in'), OLD, OLD, {}),
        (OTHER, OLD, {"cuda": ("x", "b"), "cpu": ("x", "d")}, {"cuda": ["forward"], "cpu": ["forward"]}),
        (OTHER, OLD, {"cuda": ("a", "x"), "cpu": ("x", "x")}, {"cuda": ["backward"], "cpu": BOTH}),
        (
            replaced("*BITS16 = TABLE,", "*BITS16 = HEAVY,"),
            OLD,
            OLD | {"cuda": ("x", "b")},
            {"cuda": ["forward"]},
        ),
        (
            replaced("KERNELS.first(x, input)", "KERNELS.first(input, x)"),
            OLD,
            OLD,
            {"cuda": ["host"], "cpu": ["host"]},
        ),
        (OTHER, {}, OLD, {"cuda": BOTH, "cpu": BOTH}),
        (Change(Path("generated/gelu.py"), None, GELU), {}, OLD, {"cuda": BOTH, "cpu": BOTH}),
        (Change(Path("generated/gelu.py"), "no Python (", GELU), {}, OLD, {"cuda": BOTH, "cpu": BOTH}),
    ],
)
def test_the_kernels_that_a_change_touches(
    change: Change, before: manifest.Kernels, after: manifest.Kernels, kernels: dict[str, list[str]]
) -> None:
    assert stat.kernels(change, before, after) == kernels


@functools.cache
def printed(name: str) -> Sources:
    compiled = build.compiled_file(ROOT / f"specs/{name}.yaml")
    return Emission(compiled, Binding.STABLE, build.launches(compiled)).sources()


def changed_type(of: Sources, functor: str, device: Device | None = None, **changes: Any) -> Sources:
    devices = {
        each: replace(
            found,
            kernels=[
                replace(kernel, **changes)
                if kernel.functor == functor and device in (None, each)
                else kernel
                for kernel in found.kernels
            ],
        )
        for each, found in of.devices.items()
    }
    return replace(of, devices=devices)


def shared(of: Sources, functor: str, **changes: Any) -> Sources:
    found = [replace(each, **changes) if each.functor == functor else each for each in of.shared]
    return replace(of, shared=found)


def on(of: Sources, device: Device, **changes: Any) -> Sources:
    return replace(of, devices={**of.devices} | {device: replace(of.devices[device], **changes)})


CHANGES: dict[str, tuple[str, Callable[[Sources], Sources], dict[str, list[str]]]] = {
    "a comment": ("gelu", lambda of: shared(of, "Forward", notes=("x",)), {}),
    "a remark": ("gelu", lambda of: changed_type(of, "Forward", remarks=("x",)), {}),
    "a function of both devices": (
        "gelu",
        lambda of: shared(of, "Forward", definitions=("x",)),
        {"cuda": ["forward"], "cpu": ["forward"]},
    ),
    "a function of one": (
        "gelu",
        lambda of: changed_type(of, "Forward", Device.CPU, definitions=("x",)),
        {"cpu": ["forward"]},
    ),
    "a method": (
        "gelu",
        lambda of: changed_type(of, "Forward", Device.CUDA, struct="x"),
        {"cuda": ["forward"]},
    ),
    "the gradient": (
        "gelu",
        lambda of: shared(of, "Backward", definitions=("x",)),
        {"cuda": ["backward"], "cpu": ["backward"]},
    ),
    "a launch table": ("gelu", lambda of: on(of, Device.CUDA, tables=["x"]), {"cuda": BOTH}),
    "a bitmask": ("relu", lambda of: changed_type(of, "FromBit", struct="x"), {"cuda": BOTH}),
    "a library": (
        "conv_relu_hardswish",
        lambda of: on(of, Device.CUDA, library="x"),
        {"cuda": ["forward"]},
    ),
    "a header": ("gelu", lambda of: on(of, Device.CPU, headers=[]), {"cpu": BOTH}),
    "a scalar": ("elu", lambda of: replace(of, uniforms=("x",)), {"cuda": BOTH, "cpu": BOTH}),
    "the comment of a curve": ("swish", lambda of: changed_type(of, "Curve0", notes=("x",)), {}),
    "a curve": ("swish", lambda of: changed_type(of, "Curve0", struct="x"), {"cuda": BOTH}),
}


@pytest.mark.few(4)
@pytest.mark.together
@pytest.mark.parametrize("case", CHANGES)
def test_the_digests_of_kernels_are_of_what_each_pass_compiles(case: str) -> None:
    name, change, kernels = CHANGES[case]
    before, after = digests(printed(name)), digests(change(printed(name)))
    passes = {
        device: [which for which, one, other in zip(BOTH, old, after[device], strict=True) if one != other]
        for device, old in before.items()
    }
    assert {device: several for device, several in passes.items() if several} == kernels


@pytest.mark.parametrize("edited", [False, True])
def test_the_digests_of_a_module_are_known_until_somebody_changes_it(built: Workshop, edited: bool) -> None:
    path = Path("generated/gate.py")
    path.write_text(path.read_text(encoding="utf-8") + "\n" * edited, encoding="utf-8")
    folder = outputs.opened(Path("generated"), Path("specs"))
    assert folder.kernels(path) == ({} if edited else folder.owned["gate"].kernels)
    assert folder.kernels(Path("generated/absent.py")) == {}
    assert [*folder.owned["gate"].kernels] == ["cuda", "cpu"]


@pytest.mark.parametrize(
    ("before", "after", "added", "removed"),
    [("a\nb\n", "a\nc\nd\n", 2, 1), (None, "a\nb\n", 2, 0), ("a\n", None, 0, 1), ("a", "a\n", 0, 0)],
)
def test_the_lines_of_a_change(before: str | None, after: str | None, added: int, removed: int) -> None:
    assert stat.lines(Change(Path("a"), before, after)) == {"added": added, "removed": removed}


@pytest.fixture
def changed(built: Workshop) -> Workshop:
    """A workshop whose spec `gate` has another formula than its module; `twice` is a chain of it."""
    built.spec("gate", "formula: x * clamp(x + 2, 0, 6) / 6")
    built.spec("free", "formula: x * 2")
    assert built.run("build", "free").exit_code == 0
    return built


def test_stat_is_a_line_for_each_difference(changed: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        certificate_state, "of_spec", lambda path, _: {"cuda": "ok"} if path.stem == "gate" else {}
    )
    result = changed.run("check", "--stat")
    assert result.exit_code == 1
    gate, twice, listed, total = result.stdout.splitlines()
    kernels = "cuda forward and backward, cpu forward and backward"
    first, _, rest = gate.partition("  ")
    assert (first, rest.partition("  ")[2]) == ("generated/gate.py", f"{kernels}, certificate cuda stale")
    assert twice.endswith(f"  {kernels}")
    assert listed == "generated/MANIFEST.toml  +4 -4"
    added, removed = (sum(int(line.split()[k][1:]) for line in (gate, twice, listed)) for k in (1, 2))
    assert total == f"3 files, {added} lines added, {removed} lines removed"
    assert result.stderr.startswith("3 files differ; run 'python -m fusegen build'")


def test_a_certificate_of_the_other_device_keeps_its_state() -> None:
    states = {"cuda": "ok", "cpu": "float32 C1 in 2 cells"}
    assert stat.certificates(states, {"cuda": ["host"]}) == {
        "cuda": "stale",
        "cpu": "float32 C1 in 2 cells",
    }


def test_check_of_some_specs_compares_their_modules_only(changed: Workshop) -> None:
    result = changed.run("check", "free")
    assert (result.exit_code, result.stdout) == (
        0,
        "1 module is what its spec says, without a certificate\n",
    )
    assert "generated/twice.py" not in changed.run("check", "gate", "--stat").stdout
    changed.file("generated/gone.certificate.txt", "{}")
    Path("specs/twice.yaml").unlink()  # no spec makes its module now
    assert changed.run("check", "free").output == result.output
    Path("generated/_runtime/flags.py").unlink()
    assert changed.run("check", "free", "--stat").stdout.startswith("generated/_runtime/flags.py  +")
    assert changed.run("check", "absent").exit_code == 2


@pytest.mark.parametrize(
    "words", [("--json", "--stat"), ("--stat", "--format", "github"), ("--json", "--format", "github")]
)
def test_the_forms_exclude_each_other(built: Workshop, words: tuple[str, ...]) -> None:
    result = built.run("check", *words)
    assert result.stderr.splitlines()[-1] == "Error: --json, --stat and --format github exclude each other"
    assert result.exit_code == 2


# --- GitHub ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("span", "message", "line"),
    [
        (Span("specs/a.yaml", 4, 14), "wrong", "::error file=specs/a.yaml,line=4,col=14::wrong"),
        (Span("specs/a.yaml", 3), "wrong", "::error file=specs/a.yaml,line=3::wrong"),
        (Span("specs/a.yaml"), "100 %\nhint: x", "::error file=specs/a.yaml::100 %25%0Ahint: x"),
        (Span("a,b:c%d\n"), "a,b:c\r", "::error file=a%2Cb%3Ac%25d%0A::a,b:c%0D"),
        (Span(""), "wrong", "::error::wrong"),
    ],
)
def test_an_annotation_is_one_line_at_its_place(span: Span, message: str, line: str) -> None:
    assert github.annotation("error", message, span) == line


def test_github_gets_an_annotation_for_each_difference_and_a_table(
    changed: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(github.VARIABLE, "summary.md")
    changed.file("summary.md", "before\n")
    result = changed.run("check", "--format", "github")
    assert result.exit_code == 1
    gate, twice, listed = result.stdout.splitlines()
    assert gate.startswith(
        "::error file=specs/gate.yaml,line=3::generated/gate.py is not what 'fusegen build' "
    )
    assert twice.startswith("::error file=specs/twice.yaml,line=3::generated/twice.py ")
    assert listed.startswith("::error file=generated/MANIFEST.toml::")
    text = Path("summary.md").read_text(encoding="utf-8")
    assert text.startswith(
        "before\n## fusegen check\n\n| file | lines | changed kernels | certificate |\n|---|"
    )
    kernels = "cuda forward, backward; cpu forward, backward"
    assert f" | {kernels} |  |\n" in text
    assert text.endswith("\n\n3 modules, 3 differences, 3 modules without a certificate\n")


def test_github_gets_mistakes_at_their_line_and_column(
    built: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(github.VARIABLE, "summary.md")
    built.spec("gate", "formula: x * clmp(x, 0, 6)")
    built.spec("twice", "formula: <b>|`\nnumerics: odd")
    result = built.run("check", "--format", "github")
    assert (result.exit_code, result.stderr) == (2, "")
    found = [line.split("::")[1] for line in result.stdout.splitlines()]
    assert found[0] == "error file=specs/gate.yaml,line=3,col=14"
    assert all(each.startswith("error file=specs/") for each in found)
    assert len(found) >= 3
    text = Path("summary.md").read_text(encoding="utf-8")
    assert "<pre>specs/gate.yaml:3:14: " in text
    assert "<b>" not in text


def test_github_gets_warnings_of_certificates(built: Workshop) -> None:
    built.file("generated/gone.certificate.txt", "{}")
    result = built.run("check", "--format", "github")
    first, last = result.stdout.splitlines()
    path = "generated/gone.certificate.txt"
    told = f"{path}: there is no module of this certificate; delete it"
    assert (result.exit_code, first) == (0, f"::warning file={path}::{told}")
    assert last == "2 modules are what their specs say, 2 of them without a certificate"


def test_a_cell_of_the_summary_ends_no_row_and_begins_no_html() -> None:
    assert github.summary([{"kind": "complaint", "text": "a | b\n<i>"}]) == (
        "## fusegen check\n\n- a \\| b &lt;i&gt;\n"
    )


def test_a_long_table_is_cut() -> None:
    row = {"kind": "difference", "file": "a", "added": 1, "removed": 0, "kernels": {}, "certificate": {}}
    lines = github.summary([row] * (github.MOST_ROWS + 2)).splitlines()
    assert lines[-1] == "| and 2 more | | | |"
    assert len(lines) == 2 + 2 + github.MOST_ROWS + 1


@pytest.mark.full
def test_the_records_have_the_place_of_the_formula(changed: Workshop) -> None:
    first = json.loads(changed.run("check", "--json").stdout.splitlines()[0])
    assert (first["spec"], first["line"], first["certificate"]) == ("specs/gate.yaml", 3, {})
    assert first["kernels"] == {"cuda": BOTH, "cpu": BOTH}
