"""Certificates of modules of several kernels: one for each kernel, which belongs to its text."""

from pathlib import Path

import pytest
import torch
from conftest import Workshop

from fusegen.evidence.certify import certificate_state, module_kernels
from fusegen.evidence.certify.certificate import path_of
from fusegen.evidence.certify.digest import kernel_digest, sources
from fusegen.language.library import load
from fusegen.project import build, loader

SPEC = "dtypes: [float16]\nlayers:\n  - shares: {over: [-1], formula: FRONT}\nformula: LAST\n"


def module_of(workshop: Workshop, front: str = "softmax(x)", last: str = "tanh(x) + x") -> Path:
    workshop.build("gate", SPEC.replace("FRONT", front).replace("LAST", last))
    return Path("generated/gate.py")


def texts(module: Path) -> dict[str, str]:
    spec, whole = load(Path("specs/gate.yaml")), module.read_text(encoding="utf-8")
    return {title: module_kernels.text_of(whole, spec, title) for title in module_kernels.titles(spec)}


def test_a_kernel_has_the_text_of_a_module_of_one(workshop: Workshop) -> None:
    parts = texts(module_of(workshop))
    assert [*parts] == ["shares", ""]
    for title, part in parts.items():
        assert [*sources(part)] == ["SHARED_SOURCE", "CUDA_SOURCE", "CPU_SOURCE"]
        assert f"gate{'_' * bool(title)}{title}_forward" in sources(part)["CPU_SOURCE"]
        assert ("KERNELS = Rows(" in part) is bool(title)  # by which a digest finds the binding's header
        assert part.count("\nKERNELS = ") == 1
    assert "class Gate" not in parts["shares"]
    assert "shares" not in sources(parts[""])["CPU_SOURCE"]
    assert "gate_shares(" in parts[""]  # which its class calls


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("front", "last", "changed"),
    [("softmax(2 * x)", "tanh(x) + x", ["shares"]), ("softmax(x)", "tanh(x) - x", [""])],
)
def test_the_text_of_a_kernel_depends_on_it_alone(
    workshop: Workshop, front: str, last: str, changed: list[str]
) -> None:
    before, after = texts(module_of(workshop)), texts(module_of(workshop, front, last))
    digests = [
        {title: kernel_digest(text, "cpu") for title, text in each.items()} for each in (before, after)
    ]
    assert [title for title in before if digests[0][title] != digests[1][title]] == changed


@pytest.mark.full
def test_each_kernel_has_a_certificate(workshop: Workshop) -> None:
    module = module_of(workshop)
    spec = load(Path("specs/gate.yaml"))
    assert certificate_state.of_spec(module, spec) == {}
    printed = workshop.done("certify", "gate", "--device", "cpu")
    assert [line.split()[0] for line in printed.splitlines()] == ["gate.shares"] * 2 + ["gate"] * 2
    assert certificate_state.of_spec(module, spec) == {"cpu": "ok"}
    assert "without a certificate" not in workshop.run("check").output
    assert "Largest errors found" in workshop.run("explain", "gate").output
    front = path_of(module, "shares")
    assert front.read_text(encoding="utf-8").startswith("# gate_shares: y = ")
    assert workshop.run("build", "--prune").exit_code == 0
    assert front.exists()
    module_of(workshop, "softmax(2 * x)")
    assert certificate_state.of_spec(module, load(Path("specs/gate.yaml"))) == {"cpu": "stale"}
    front.unlink()
    assert certificate_state.of_spec(module, spec) == {}


def test_a_view_of_a_module_has_the_kernels_of_one(workshop: Workshop) -> None:
    module_of(workshop)
    whole = loader.built(build.compiled_either(Path("specs/gate.yaml")), Path("generated"))
    views = {title: module_kernels.seen(whole, title) for title in ("shares", "")}
    x = torch.randn(3, 5)
    torch.testing.assert_close(views["shares"].eager(x), x.softmax(-1))
    torch.testing.assert_close(views[""].eager(x), x.tanh() + x)
    assert views["shares"].KERNELS is whole.SHARES_KERNELS
    assert views[""].KERNELS is whole.KERNELS
