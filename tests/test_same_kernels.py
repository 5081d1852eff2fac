"""The tool that tells a change of text from a change of kernels, and renews certificates of the former."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import Workshop

from benchmarks.same_kernels.__main__ import main
from benchmarks.same_kernels.ptx import nvcc
from benchmarks.same_kernels.versions import files_of
from fusegen.codegen import runtime_text
from fusegen.evidence.certify import certificate_text
from fusegen.evidence.certify.certificate import Certificate, Claim, Kernel, Machine
from fusegen.evidence.certify.digest import kernel_digest
from fusegen.evidence.certify.findings import Accuracy, Evidence, Output, Worst
from fusegen.evidence.certify.host import machine

pytestmark = [pytest.mark.full, pytest.mark.skipif(nvcc() is None, reason="needs nvcc")]

BODY = "formula: 2 * x\ndtypes: [float16]"
BODIES = {"wrapper": "params: {a: 2.0}\nformula: a * x\ndtypes: [float16]"}
Edits = tuple[tuple[str, str], ...]
EDITS: dict[str, Edits] = {
    "helper": (  # the Python does the same otherwise
        ("    return KERNELS.run(x)\n", "    found = KERNELS.run  # new\n    return found(x)\n"),
    ),
    "comment": (("// y = 2 · x\n", "// Twice the input.\n"),),
    "written": (("    return KERNELS.run(x)\n", "    return (KERNELS.run(x))\n"),),
    "stale": (("    return KERNELS.run(x)\n", "    return (KERNELS.run(x))\n"),),
    "constant": (("return 2.0f * x;", "return 2.0009765625f * x;"),),
    "wrapper": (("    return KERNELS.run(x, a)\n", "    return KERNELS.run(x, max(a, -0.5))\n"),),
    "launches": (("{80, ANY, 128, 1}", "{80, ANY, 256, 1}"),),
    "renamed": (
        ("float renamed_forward(float x)", "float twice(float x)"),
        ("renamed_forward(in[0])", "twice(in[0])"),
    ),
}
LAYOUT = "generated/_runtime/include/layout.h"  # which only the host reaches
CHIPS = {"laid_out": {"cpu": "x86_64 other"}, "launches": {"cuda": "NVIDIA A100"}}
TOKENS = "text but for what no code is made of"
RESULTS = "results over 2,490,368 inputs on cpu"
MOVED = "changed: host text of CUDA moved"
VERDICTS = {
    ("comment", "cpu"): "unchanged (text)",
    ("comment", "cuda"): "unchanged (text)",
    ("helper", "cpu"): f"unchanged ({RESULTS}); renewed",
    ("helper", "cuda"): f"unchanged (text; {RESULTS}); renewed",
    ("launches", "cpu"): "unchanged (text)",
    ("launches", "cuda"): f"{MOVED}: launch code; kernels unchanged (PTX of 6 kernels)",
    ("renamed", "cpu"): f"unchanged ({RESULTS}); renewed",
    ("renamed", "cuda"): "unchanged (PTX of 6 kernels); renewed",
    ("stale", "cpu"): f"unchanged ({TOKENS}); its certificate was stale in {{ref}}",
    ("stale", "cuda"): f"unchanged ({TOKENS}); renewed",
    ("written", "cpu"): f"unchanged ({TOKENS}); renewed",
    ("written", "cuda"): f"unchanged ({TOKENS}); renewed",
}
LAID_OUT = {
    ("laid_out", "cpu"): (
        f"unchanged ({RESULTS}); its certificate is of x86_64 other, which this does not show"
    ),
    ("laid_out", "cuda"): f"{MOVED}: binding; kernels unchanged (PTX of 6 kernels)",
}
WRONG = {  # how they begin
    ("constant", "cpu"): "changed: 6 of 48 outputs on cpu, first float16 dense value alone: ",
    ("constant", "cuda"): "changed: PTX of 3 of 6 kernels",
    ("wrapper", "cpu"): "changed: 144 of 496 outputs on cpu, first float32 dense a=-3.0 value alone: ",
    ("wrapper", "cuda"): "changed: 144 of 496 outputs on cpu, first float32 dense a=-3.0 value alone: ",
}


@dataclass(frozen=True)
class Run:
    """A run with ``--renew`` in a repository whose modules were edited."""

    shop: Workshop
    before: dict[str, str]  # the certificates
    verdicts: dict[tuple[str, str], str]
    summary: str
    status: int
    after: dict[str, str]


def git(*arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    done = subprocess.run(["git", *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit() -> str:
    return git("rev-parse", "--short=12", "HEAD")


def edited(module: str, edits: Edits) -> str:
    for old, new in edits:
        assert old in module
        module = module.replace(old, new)
    return module


def certified(name: str, module: str) -> str:
    """A certificate of both devices; what it has found does not matter."""
    chips = {"cpu": machine("cpu").chip, "cuda": "NVIDIA H100 80GB HBM3"} | CHIPS.get(name, {})
    value = Output("value", Accuracy((Worst(("0x1p+0",), 0.5, "", ""),)), Accuracy())
    whole = Certificate()
    for device, chip in chips.items():
        digest = "0" * 16 if (name, device) == ("stale", "cpu") else kernel_digest(module, device)
        kernel = Kernel(device, digest, Machine(chip, "2.11.0", "c++ 1.0"))
        evidence = Evidence("float16", 2**16, True, 0, (value,))
        whole = whole.with_evidence(Claim(name, "y = 2 · x", ("float16",)), kernel, evidence)
    return certificate_text.text(whole)


def module(name: str) -> str:
    return Path("generated", f"{name}.py").read_text(encoding="utf-8")


def certificates() -> dict[str, str]:
    paths = Path("generated").glob("*.certificate.txt")
    return {path.name.partition(".")[0]: path.read_text(encoding="utf-8") for path in paths}


def told(*arguments: str) -> tuple[dict[tuple[str, str], str], str, int]:
    """The verdicts by module and device, the summary, and the exit status."""
    result = CliRunner().invoke(main, ["HEAD", *arguments], catch_exceptions=False)
    *lines, last = result.stdout.splitlines()
    rows = [line.split(maxsplit=2) for line in lines]
    return {(name, device): verdict for name, device, verdict in rows}, last, result.exit_code


@contextmanager
def repository(folder: Path, names: Iterable[str], edits: Mapping[str, Edits]) -> Iterator[Run]:
    """Modules are committed with their certificates; some files are edited, and all are compared."""
    with pytest.MonkeyPatch.context() as patch:
        shop = Workshop(folder)
        patch.chdir(shop.folder)
        for name in names:
            shop.spec(name, BODIES.get(name, BODY))
        assert shop.run("build").exit_code == 0
        for name in names:
            shop.file(f"generated/{name}.certificate.txt", certified(name, module(name)))
        git("init", "-q")
        git("add", ".")
        git("commit", "-qm", "all")
        for path, of in edits.items():
            shop.file(path, edited(Path(path).read_text(encoding="utf-8"), of))
        before = certificates()
        both = ("--device", "cuda", "--device", "cpu")  # kernels of the CPU are loaded for CUDA's Python
        yield Run(shop, before, *told("--renew", *both), certificates())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    edits = {f"generated/{name}.py": of for name, of in EDITS.items()}
    with repository(tmp_path_factory.mktemp("repository"), EDITS, edits) as found:
        yield found


def now(certificate: str, name: str, *devices: str) -> str:
    whole = certificate_text.read(certificate)
    for device in devices:
        runtime = files_of(Path("generated", runtime_text.FOLDER))
        whole = whole.with_digest(device, kernel_digest(module(name), device, runtime))
    return certificate_text.text(whole)


@pytest.mark.parametrize("of", VERDICTS, ids="-".join)
def test_what_is_shown_to_be_the_same_is_told(of: tuple[str, str], run: Run) -> None:
    assert run.verdicts[of] == VERDICTS[of].format(ref=commit())


@pytest.mark.parametrize("of", WRONG, ids="-".join)
def test_other_results_are_told(of: tuple[str, str], run: Run) -> None:
    assert run.verdicts[of].startswith(WRONG[of])
    assert "renewed" not in run.verdicts[of]


def test_where_results_differ_first_is_told(run: Run) -> None:
    told = run.verdicts["constant", "cpu"]
    assert " of 131,072 differ, first at " in told
    first = float.fromhex(told.rpartition(" ")[2])
    assert first != 2 * first  # neither zero nor infinity, of which any multiple is the same
    assert "4,080 of 4,096 differ, first at " in run.verdicts["wrapper", "cpu"]


def test_the_summary_counts_all(run: Run) -> None:
    assert run.verdicts.keys() == VERDICTS.keys() | WRONG.keys()
    assert (run.summary, run.status) == ("11 unchanged, 5 changed, 7 renewed", 1)


@pytest.mark.parametrize("name", EDITS)
def test_certificates_of_the_same_kernels_are_renewed_and_no_others(name: str, run: Run) -> None:
    devices = [device for device in ("cpu", "cuda") if run.verdicts[name, device].endswith("; renewed")]
    assert run.after[name] == now(run.before[name], name, *devices)


def test_what_the_host_decides_has_to_be_read(run: Run) -> None:
    """And certificates of other chips, and those that are others since, are left alone."""
    other = run.before["renamed"].replace("0.5", "0.25")
    run.shop.file("generated/renamed.certificate.txt", other)
    files = run.shop.files()
    arguments = ("launches", "renamed", "written", "--device", "cuda", "--host-text-reviewed")
    proofs = {
        "launches": (
            "PTX of 6 kernels; host text reviewed: launch code",
            "its certificate is of NVIDIA A100, which this does not show",
        ),
        "renamed": ("PTX of 6 kernels", f"its certificate is not that of {commit()}"),
        "written": (TOKENS, "its certificate is of this module"),
    }
    found = {(name, "cuda"): f"unchanged ({proof})" for name, (proof, _) in proofs.items()}
    assert told(*arguments) == (found, "3 unchanged, 0 changed, 0 renewed", 0)
    assert run.shop.files() == files
    found = {(name, "cuda"): f"unchanged ({proof}); {done}" for name, (proof, done) in proofs.items()}
    assert told(*arguments, "--renew") == (found, "3 unchanged, 0 changed, 0 renewed", 0)
    assert run.shop.files() == files


def test_a_header_of_the_host_has_to_be_read(tmp_path: Path) -> None:
    """And a certificate is renewed once somebody says so."""
    edits = {LAYOUT: (("namespace fusegen {\n", 'namespace fusegen {\nstatic_assert(true, "");\n'),)}
    with repository(tmp_path, ["laid_out"], edits) as found:
        assert found.verdicts == LAID_OUT
        assert (found.summary, found.status) == ("1 unchanged, 1 changed, 0 renewed", 1)
        assert found.after == found.before
        proof = "unchanged (PTX of 6 kernels; host text reviewed: binding); renewed"
        answer = ({("laid_out", "cuda"): proof}, "1 unchanged, 0 changed, 1 renewed", 0)
        assert told("--device", "cuda", "--host-text-reviewed", "--renew") == answer
        assert certificates() == {"laid_out": now(found.before["laid_out"], "laid_out", "cuda")}


@pytest.mark.parametrize("arguments", [["no-such-revision"], ["HEAD", "absent"]])
def test_what_git_or_the_folder_lacks_is_refused(arguments: list[str], run: Run) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert arguments[-1] in result.stderr


def test_a_module_that_the_revision_lacks_is_changed(run: Run) -> None:
    run.shop.file("generated/added.py", module("renamed"))
    found, _, status = told("added", "--renew")
    assert set(found.values()) == {f"changed: {commit()} has no such module"}
    assert status == 1
