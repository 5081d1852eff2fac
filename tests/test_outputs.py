"""The folder of the modules: what it owns, what --prune removes, and what `check` says."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Workshop

from fusegen.codegen import runtime_text
from fusegen.core import manifest
from fusegen.core.manifest import Entry, Manifest
from fusegen.project import runtime_folder

MANIFEST = "generated/MANIFEST.toml"
HEAD = (
    "# The modules that 'fusegen build' wrote into this folder, and may remove with --prune. DO NOT EDIT.\n"
    "format = 1\n"
    'binding = "stable"\n'
    "\n"
    "[modules]\n"
)


OF_KERNELS = (
    "\n# Digests of the C++ of the forward pass and of the gradient; comments do not count.\n[kernels]\n"
)


OF_RUNTIME = "\n# Digests of the files in _runtime.\n[runtime]\n"


def of_runtime(folder: Path) -> str:
    """The manifest's lines of the files that a runtime has."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}
    digests = {name: hashlib.sha256(paths[name].read_bytes()).hexdigest() for name in sorted(paths)}
    return "".join(f'"{name}" = "{digest}"\n' for name, digest in digests.items())


def line(workshop: Workshop, name: str, spec: str) -> str:
    """A module's line in the manifest."""
    digest = hashlib.sha256((workshop.folder / f"generated/{name}.py").read_bytes()).hexdigest()
    return f'{name} = {{ spec = "{spec}", sha256 = "{digest}" }}\n'


def assert_lists(workshop: Workshop, specs: dict[str, str]) -> None:
    """The manifest has these modules, and the digests of their kernels."""
    whole, _, runtime = Path(MANIFEST).read_text(encoding="utf-8").partition(OF_RUNTIME)
    modules, _, kernels = whole.partition(OF_KERNELS)
    assert runtime == of_runtime(workshop.folder / "generated/_runtime")
    assert modules == HEAD + "".join(line(workshop, name, spec) for name, spec in specs.items())
    pair = r'\["[0-9a-f]{16}", "[0-9a-f]{16}"\]'
    row = rf"(\w+) = \{{ cuda = {pair}, cpu = {pair} \}}"
    found = [re.fullmatch(row, each) for each in kernels.splitlines()]
    assert [each and each.group(1) for each in found] == [*specs]


# The runtime


@pytest.mark.parametrize("binding", ["stable", "pybind"])
def test_a_runtime_is_written_without_a_manifest(tmp_path: Path, binding: str) -> None:
    runtime_folder.write(tmp_path / "new", binding)
    found = {p.relative_to(tmp_path / "new/_runtime").as_posix(): p for p in tmp_path.rglob("*.*")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in found.items() if path.is_file()}
    assert texts == runtime_text.files(binding)


# The manifest


def test_the_manifest_lists_what_build_wrote(built: Workshop) -> None:
    assert_lists(built, {"gate": "../specs/gate.yaml", "twice": "../specs/twice.yaml"})


def test_a_build_of_one_spec_adds_to_the_manifest(built: Workshop) -> None:
    built.file("elsewhere/more.yaml", "name: more\nsummary: A test.\nformula: x + 1\n")
    assert built.run("build", "hardswish", "elsewhere/more.yaml").exit_code == 0
    rows = {
        "gate": "../specs/gate.yaml",
        "hardswish": "fusegen:hardswish",
        "more": "../elsewhere/more.yaml",
        "twice": "../specs/twice.yaml",
    }
    assert_lists(built, rows)


@pytest.mark.full
def test_a_module_that_was_deleted_leaves_the_manifest(built: Workshop) -> None:
    assert built.run("build", "hardswish").exit_code == 0
    Path("generated/hardswish.py").unlink()
    result = built.run("check")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"--- {MANIFEST}\n+++ {MANIFEST} (regenerated)\n")
    assert built.run("build").exit_code == 0
    assert built.run("check").exit_code == 0
    assert list(manifest.read(Path("generated")).modules) == ["gate", "twice"]


def test_a_path_in_the_manifest_is_read_as_it_was(tmp_path: Path) -> None:
    kernels = {"cuda": ("0" * 16, "1" * 16), "cpu": ("2" * 16, "f" * 16)}
    entry = Entry('../a "b"\\\n\x7f/é😀/gate.yaml', "0" * 64, kernels)
    found = Manifest(
        {"gate": entry, "own/older": Entry("older.yaml", "1" * 64)}, "pybind", {"build.py": "1" * 64}
    )
    (tmp_path / manifest.NAME).write_text(manifest.text(found), encoding="utf-8")
    assert manifest.read(tmp_path) == found


ROW = f'{{ spec = "s.yaml", sha256 = "{"0" * 64}" }}\n'
FOREIGN: dict[str, tuple[bytes, str]] = {  # manifests with where they are refused, and why
    "of another tool": (
        b'[[deps.Base64]]\nuuid = "2a0f44e3"\n',
        ": this is not a manifest of fusegen: it has no 'format = 1' and no table 'modules'",
    ),
    "of another format": (
        HEAD.replace("format = 1", "format = 2").encode(),
        ": this is not a manifest of fusegen: it has no 'format = 1' and no table 'modules'",
    ),
    "merged with conflicts": (
        (HEAD + "<<<<<<< HEAD\n").encode(),
        ":6:1: this is not a manifest of fusegen: Invalid statement",
    ),
    "a way out": (
        (HEAD + '"../gate" = ' + ROW).encode(),
        ": this is not a manifest of fusegen: '../gate' is not the name of a module",
    ),
    "no digest": (
        (HEAD + 'gate = { spec = "s.yaml" }\n').encode(),
        ": this is not a manifest of fusegen: gate needs a spec and a sha256",
    ),
    "a digest that is none": (
        (HEAD + "gate = " + ROW.replace("0" * 64, "0" * 63)).encode(),
        ": this is not a manifest of fusegen: gate needs a spec and a sha256",
    ),
    "digests of kernels that are none": (
        (HEAD + "gate = " + ROW + '[kernels]\ngate = { cuda = ["0", "1"], cpu = ["2", "3"] }\n').encode(),
        ": this is not a manifest of fusegen: the digests of its kernels are none",
    ),
    "a runtime that is none": (
        HEAD.replace("[modules]", 'runtime = "0"\n[modules]').encode(),
        ": this is not a manifest of fusegen: its binding or its runtime is none",
    ),
    "a digest of the runtime that is none": (
        (HEAD + '[runtime]\n"build.py" = "0"\n').encode(),
        ": this is not a manifest of fusegen: its binding or its runtime is none",
    ),
    "kernels of no module": (
        (HEAD + "[kernels]\ngate = {}\n").encode(),
        ": this is not a manifest of fusegen: its kernels are not those of its modules",
    ),
    "deep": (
        (HEAD + "gate = " + "[" * 100_000).encode(),
        ": this is not a manifest of fusegen: it is nested too deeply",
    ),
    "large": (
        b"#" * (manifest.MOST_BYTES + 1),
        ": this is not a manifest of fusegen: it is larger than 4,194,304 bytes",
    ),
}


@pytest.mark.few
@pytest.mark.parametrize("verb", ["build", "check"])
@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_manifest_is_a_sentence_and_stays(built: Workshop, case: str, verb: str) -> None:
    data, sentence = FOREIGN[case]
    built.file(MANIFEST, data)
    before = built.files()
    result = built.run(verb, "--output", "generated")
    hint = "choose another --output; or delete the file, and 'python -m fusegen build' writes it again"
    assert (result.exit_code, result.output) == (2, f"{MANIFEST}{sentence}\n  hint: {hint}\n")
    assert built.files() == before


# What is removed


def test_build_without_names_removes_nothing_and_tells_what_prune_would(built: Workshop) -> None:
    Path("specs/twice.yaml").unlink()
    before = built.files()
    result = built.run("build")
    assert result.stdout == "unchanged: 1 module\n"
    remedy = "no spec makes this module; 'python -m fusegen build --prune' removes it"
    assert result.stderr == f"generated/twice.py: {remedy}\n"
    assert built.files() == before


@pytest.mark.parametrize("names", [(), ("gate",)])
def test_prune_removes_what_the_folder_owns_and_no_spec_makes(
    built: Workshop, names: tuple[str, ...]
) -> None:
    Path("specs/twice.yaml").unlink()
    before = built.files()
    result = built.run("build", *names, "--prune")
    assert result.output == "unchanged: 1 module\nremoved  generated/twice.py\n"
    assert before.keys() - built.files().keys() == {"generated/twice.py"}
    assert list(manifest.read(Path("generated")).modules) == ["gate"]
    assert built.run("build", "--prune").output == "unchanged: 1 module\n"


def shipped(workshop: Workshop) -> None:
    assert workshop.run("build", "hardswish").exit_code == 0


def from_elsewhere(workshop: Workshop) -> None:
    workshop.file("elsewhere/more.yaml", "name: more\nsummary: A test.\nformula: x + 1\n")
    assert workshop.run("build", "elsewhere/more.yaml").exit_code == 0


def another_package(workshop: Workshop) -> None:
    assert workshop.run("build", "hardswish", "--output", "generated/package").exit_code == 0


def a_copy(workshop: Workshop) -> None:
    workshop.file("generated/copied.py", Path("generated/gate.py").read_bytes())


def an_own_file(workshop: Workshop) -> None:
    workshop.file("generated/mine.py", "print('mine')\n")
    workshop.file("generated/__init__.py", "")


KEPT: dict[str, Callable[[Workshop], None]] = {
    "a shipped spec built by name": shipped,
    "a spec of another folder": from_elsewhere,
    "another package below the folder": another_package,
    "a hand-made copy": a_copy,
    "files of one's own": an_own_file,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", KEPT)
def test_prune_keeps_what_is_not_the_folders_and_what_a_spec_makes(built: Workshop, case: str) -> None:
    KEPT[case](built)
    before = built.files()
    assert built.run("build", "--prune").output == "unchanged: 2 modules\n"
    assert built.files() == before
    assert (
        built.run("check").output == "2 modules are what their specs say, 2 of them without a certificate\n"
    )


def test_prune_removes_a_module_whose_recorded_spec_is_gone(built: Workshop) -> None:
    from_elsewhere(built)
    Path("elsewhere/more.yaml").unlink()
    assert built.run("build", "--prune").output == "unchanged: 2 modules\nremoved  generated/more.py\n"


@pytest.mark.full
def test_a_spec_of_fusegens_name_that_is_gone_is_not_fusegens(built: Workshop) -> None:
    path = built.build("gelu", "formula: x + 5")
    path.unlink()
    assert built.run("build", "--prune").output == "unchanged: 2 modules\nremoved  generated/gelu.py\n"


def test_prune_without_a_manifest_removes_nothing(built: Workshop) -> None:
    Path("specs/twice.yaml").unlink()
    Path(MANIFEST).unlink()
    assert built.run("build", "--prune").output == "unchanged: 1 module\n"
    assert Path("generated/twice.py").exists()
    assert list(manifest.read(Path("generated")).modules) == ["gate"]


def test_prune_from_another_project_keeps_the_modules_of_this_one(
    built: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.file("other/specs/own.yaml", "name: own\nsummary: A test.\nformula: x + 1\n")
    monkeypatch.chdir(built.folder / "other")
    result = built.run("build", "--prune", "--output", "../generated")
    assert result.output == "new      ../generated/own.py\n"
    assert {"generated/gate.py", "generated/twice.py"} <= built.files().keys()


def test_prune_keeps_a_module_that_was_changed_by_hand(built: Workshop) -> None:
    Path("specs/twice.yaml").unlink()
    text = Path("generated/twice.py").read_text(encoding="utf-8")
    Path("generated/twice.py").write_text(text + "# mine\n", encoding="utf-8")
    for verb, status in (("build", 0), ("check", 1)):
        result = built.run(verb, *(["--prune"] if verb == "build" else []))
        assert result.exit_code == status
        assert result.stderr == (
            "generated/twice.py: no spec makes this module, and it was changed after it was written; "
            "delete it\n"
        )
    assert Path("generated/twice.py").exists()


# What check says


def test_check_names_an_owned_module_that_no_spec_makes(built: Workshop) -> None:
    Path("specs/twice.yaml").unlink()
    before = built.files()
    result = built.run("check")
    remedy = "no spec makes this module; 'python -m fusegen build --prune' removes it"
    assert (result.exit_code, result.output) == (1, f"generated/twice.py: {remedy}\n")
    assert built.files() == before
    assert built.run("build", "--prune").exit_code == 0
    assert built.run("check").exit_code == 0


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("make", "module", "spec"),
    [(shipped, "hardswish", "hardswish"), (from_elsewhere, "more", "elsewhere/more.yaml")],
)
def test_check_names_an_owned_module_that_was_changed_by_hand(
    built: Workshop, make: Callable[[Workshop], None], module: str, spec: str
) -> None:
    make(built)
    built.file(f"generated/{module}.py", "changed\n")
    result = built.run("check")
    remedy = f"it was changed after it was written; run 'python -m fusegen build {spec}'"
    assert (result.exit_code, result.output) == (1, f"generated/{module}.py: {remedy}\n")
    assert built.run("build", spec).exit_code == 0
    assert built.run("check").exit_code == 0


def test_check_is_not_red_for_a_certificate_left_behind(built: Workshop) -> None:
    built.file("generated/gone.certificate.txt", "{}\n")
    result = built.run("check")
    assert result.exit_code == 0
    sentence = "generated/gone.certificate.txt: there is no module of this certificate; delete it\n"
    assert result.stderr.endswith(sentence)
    assert result.stderr.count("gone") == 1


@pytest.mark.full
def test_check_finds_a_manifest_that_lacks_a_module(built: Workshop) -> None:
    Path(MANIFEST).unlink()
    result = built.run("check")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"--- /dev/null\n+++ {MANIFEST} (regenerated)\n")
    assert built.run("build").output == "unchanged: 2 modules\n"
    assert built.run("check").exit_code == 0


def test_a_file_that_fusegen_did_not_write_is_not_replaced(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    workshop.spec("other", "formula: x + 2")
    workshop.file("generated/gate.py", "mine = 1\n")
    before = workshop.files()
    assert workshop.refused("build") == (
        "generated/gate.py: fusegen did not write this file, and the module of a spec would replace it\n"
        "  hint: move it, give the spec another name, or choose another --output\n"
    )
    assert workshop.files() == before


def test_a_generated_module_without_a_manifest_is_written_anew(workshop: Workshop) -> None:
    workshop.build("gate", "formula: x + 1")
    Path(MANIFEST).unlink()
    workshop.spec("gate", "formula: x + 2")
    assert workshop.run("build").output == "changed  generated/gate.py\n"
