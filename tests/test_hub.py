"""Repositories for the package `kernels`: their files, and models of transformers that run them."""

import ast
import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import ROOT, Workshop
from torch import nn

from fusegen.core import write
from fusegen.evidence.certify import certificate_state, certificate_text
from fusegen.evidence.certify.certificate import DTYPES, Certificate, Kernel, Machine
from fusegen.evidence.certify.digest import kernel_digest
from fusegen.evidence.certify.findings import Accuracy, Evidence, Output, Worst
from fusegen.project import build
from fusegen.tools.hub import Repository, planned

NAMES = ("gelu", "gelu_tanh", "silu", "swiglu", "leaky_relu", "prelu")
CPU = "build/torch-cpu"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = Workshop(folder).run("hub", "acts", *NAMES, "--output", str(ROOT / "generated"))
    assert (result.exit_code, result.output) == (0, f"new      acts: {', '.join(NAMES)}\n")
    return folder


@pytest.fixture
def hub(repository: Path, workshop: Workshop) -> Workshop:
    shutil.copytree(repository, workshop.folder, dirs_exist_ok=True)
    return workshop


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def digest(text: bytes) -> str:
    return base64.b64encode(hashlib.sha256(text).digest()).decode()


def imported(folder: Path, name: str) -> ModuleType:
    """A variant, as `kernels` imports it."""
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_metadata_has_the_digest_of_every_file(hub: Workshop) -> None:
    for backend in ("cpu", "cuda"):
        found = files(Path(f"acts/build/torch-{backend}"))
        metadata = json.loads(found.pop("metadata.json"))
        digests = {name: digest(text) for name, text in found.items()}
        assert metadata.pop("digest") == {"algorithm": "sha256", "files": digests}
        assert re.fullmatch(f"_acts_{backend}_[0-9a-f]{{10}}", metadata.pop("id"))
        assert metadata == {
            "name": "acts",
            "version": 1,
            "license": "MIT-0",
            "python-depends": [],
            "backend": {"type": backend},
        }


def test_a_package_imports_only_torch_and_the_standard_library(hub: Workshop) -> None:
    for path in Path("acts/build").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                named.append(str(node.module))
            roots = {name.split(".")[0] for name in named}
            assert roots <= {"torch", *sys.stdlib_module_names}, path


CALLS: dict[str, tuple[nn.Module, int]] = {  # what adopts a layer, and how many tensors it reads
    "Gelu": (nn.GELU(), 1),
    "LeakyRelu": (nn.LeakyReLU(0.3), 1),
    "Prelu": (nn.PReLU(8), 1),
    "SwigluHalves": (nn.Identity(), 1),
    "Swiglu": (nn.Identity(), 2),
}
SWIGLU: dict[str, Callable[..., torch.Tensor]] = {
    "SwigluHalves": lambda x: nn.functional.silu(x[..., :4]) * x[..., 4:],
    "Swiglu": lambda gate, up: nn.functional.silu(gate) * up,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_layer_computes_with_the_attributes_of_what_adopts_it(name: str, hub: Workshop) -> None:
    layer = getattr(
        imported(Path(CPU).absolute().parents[1] / "acts" / CPU, f"_acts_of_{name}").layers, name
    )
    assert layer.__init__ is nn.Module.__init__
    assert set(dir(layer)) - set(dir(nn.Module)) == {"has_backward", "can_torch_compile"}
    assert layer.has_backward
    assert layer.can_torch_compile
    model, count = CALLS[name]
    given = [torch.linspace(-3, 3, 40).reshape(5, 8) * (1 + k) for k in range(count)]
    expected = SWIGLU.get(name, model)(*given)
    torch.testing.assert_close(layer.forward(model, *given), expected, rtol=1e-5, atol=1e-6)


def test_older_versions_import_the_package_of_the_same_name(hub: Workshop) -> None:
    folder = Path("acts").absolute() / CPU
    older = imported(folder / "acts", "acts_of_older")
    assert older.__all__ == sorted(["layers", *NAMES])
    assert {name for name in older.__all__ if not hasattr(older, name)} == set()


def certified(workshop: Workshop, digest: str = "") -> str:
    """The row of the card of silu in bfloat16, with a certificate of its module, or of another digest."""
    module = (ROOT / "generated/silu.py").read_text(encoding="utf-8")
    workshop.file("generated/silu.py", module)
    whole = Certificate()
    for device, ulp in (("cpu", 0.75), ("cuda", 0.5)):
        outputs = [
            Output(name, Accuracy((Worst(("0x1p+0",), ulp * by, "", ""),)), Accuracy())
            for name, by in (("value", 1), ("gradient of x", 2.5))
        ]
        kernel = Kernel(device, digest or kernel_digest(module, device), Machine("a chip", "2.13.0", "c++"))
        for dtype in DTYPES:
            found = Evidence(dtype, 4, False, 0, tuple(outputs))
            claim = certificate_state.claim(build.compiled_file(ROOT / "specs/silu.yaml").spec)
            whole = whole.with_evidence(claim, kernel, found)
    workshop.file("generated/silu.certificate.txt", certificate_text.text(whole))
    assert workshop.run("hub", "acts", "silu").exit_code == 0
    card = Path("acts/README.md").read_text(encoding="utf-8")
    [row] = re.findall(r"^\| silu \| bfloat16 \| (.+) \|$", card, re.MULTILINE)
    return str(row)


@pytest.mark.full
def test_the_card_has_the_errors_of_the_certificates(hub: Workshop) -> None:
    text = Path("acts/README.md").read_text(encoding="utf-8")
    assert text.startswith("---\nlibrary_name: kernels\nlicense: other\nlicense_name: mit-0\n")
    assert "| `prelu(x, weight)` | y = x if x > 0 else along(weight, 1) · x | `Prelu` | `weight` |" in text
    shutil.rmtree("acts")
    assert certified(hub) == "0.75 | 1.875 | 0.5 | 1.25"


@pytest.mark.full
def test_a_certificate_of_another_kernel_is_left_out(workshop: Workshop) -> None:
    assert certified(workshop, "00") == "- | - | - | -"


@pytest.mark.full
def test_the_same_bytes_again_and_nothing_to_do(hub: Workshop) -> None:
    before = files(Path("acts"))
    again = hub.run("hub", "acts", *NAMES, "--output", str(ROOT / "generated"))
    assert again.output == "unchanged: acts\n"
    hub.run("hub", "elsewhere/acts", *NAMES, "--output", str(ROOT / "generated"))
    assert files(Path("elsewhere/acts")) == before


def test_a_name_that_is_left_out_is_removed_and_other_files_stay(hub: Workshop) -> None:
    hub.file("acts/.gitattributes", "* text")
    hub.file(f"acts/{CPU}/_kernels/silu.py", "# by hand")
    result = hub.run("hub", "acts", "gelu", "--version", "2")
    assert f"removed  acts/{CPU}/_kernels/prelu.py" in result.output
    assert result.output.endswith("\nchanged  acts: gelu\n")
    left = files(Path("acts"))
    assert (f"{CPU}/_kernels/prelu.py" in left, left[f"{CPU}/_kernels/silu.py"]) == (False, b"# by hand")
    assert left[".gitattributes"] == b"* text"
    assert json.loads(left[f"{CPU}/metadata.json"])["version"] == 2


REFUSED: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {  # files, call, message
    "somebody's folder": (
        {"acts/mine.py": "x = 1"},
        ("acts", "gelu"),
        "acts: 'fusegen hub' did not write this, and nothing in the folder was changed\n"
        "  hint: choose another folder, or move the file\n",
    ),
    "a name that kernels refuses": (
        {},
        ("Acts", "gelu"),
        "Acts: 'Acts' is no name of a repository of kernels\n"
        "  hint: name the folder with 2 to 64 of a-z, 0-9 and hyphens, first a letter; 'layers' is taken\n",
    ),
    "the module of the layers": (
        {},
        ("layers", "gelu"),
        "layers: 'layers' is no name of a repository of kernels\n"
        "  hint: name the folder with 2 to 64 of a-z, 0-9 and hyphens, first a letter; 'layers' is taken\n",
    ),
    "a convolution": (
        {},
        ("acts", "conv_relu_hardswish"),
        "SPEC: conv_relu_hardswish has a layer of torch.nn, conv, which a layer without state cannot have\n"
        "  hint: name specs of pointwise functions; 'fusegen list' shows them\n",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_sentence_and_changes_nothing(case: str, workshop: Workshop) -> None:
    there, call, message = REFUSED[case]
    for path, text in there.items():
        workshop.file(path, text)
    before = workshop.files()
    result = workshop.run("hub", *call)
    assert (result.exit_code, workshop.files()) == (2, before)
    assert re.sub(r"^\S+\.yaml", "SPEC", result.output) == message


def test_a_file_in_the_way_is_not_overwritten(hub: Workshop) -> None:
    hub.file(f"acts/{CPU}/_kernels/tanh.py", "# by hand")
    before = hub.files()
    result = hub.run("hub", "acts", "tanh")
    assert (result.exit_code, hub.files()) == (2, before)
    assert result.output.startswith(f"acts/{CPU}/_kernels/tanh.py: 'fusegen hub' did not write this")


@pytest.mark.full
def test_a_file_that_was_changed_is_not_overwritten(hub: Workshop) -> None:
    hub.file("acts/README.md", "# by hand")
    before = hub.files()
    result = hub.run("hub", "acts", "gelu")
    assert (result.exit_code, hub.files()) == (2, before)
    assert result.output == (
        "acts/README.md: this file was changed after 'fusegen hub' wrote it, and nothing in the folder was "
        "changed\n  hint: move or delete it; 'fusegen hub' then writes it again\n"
    )
    Path("acts/README.md").unlink()
    assert hub.run("hub", "acts", "gelu").exit_code == 0


@pytest.mark.parametrize("name", ["gelu", "tanh"])  # its module is there, or would be new
def test_a_link_in_place_of_a_folder_is_refused(hub: Workshop, name: str) -> None:
    place = Path(f"acts/{CPU}/_kernels")
    place.rename("outside")
    place.symlink_to(Path("outside").absolute())
    before = hub.files()
    result = hub.run("hub", "acts", name, "--output", str(ROOT / "generated"))
    assert (result.exit_code, hub.files()) == (2, before)
    assert result.output.startswith(f"acts/{CPU}/_kernels: 'fusegen hub' did not write this")


@pytest.mark.full
@pytest.mark.parametrize("done", [1, 19])
def test_an_interrupted_command_can_be_run_again(hub: Workshop, done: int) -> None:
    for _ in range(2):  # of a folder with another version, and of a new one
        call = ("hub", "acts", "gelu", "--version", "2")
        every = [build.compiled_file(ROOT / "specs/gelu.yaml")]
        changes = planned(Repository(Path("acts"), 2, every, Path("generated")))
        assert len(changes) > done
        for change in changes[:done]:
            write.apply(change)
        assert hub.run(*call).exit_code == 0
        shutil.rmtree("acts")


def test_layers_of_one_name_are_refused(workshop: Workshop) -> None:
    workshop.spec("swiglu_halves", "formula: x + 1\n")
    result = workshop.run("hub", "acts", "swiglu", "swiglu_halves")
    assert (result.exit_code, Path("acts").exists()) == (2, False)
    assert result.output.splitlines()[0] == (
        "acts: the specs swiglu and swiglu_halves both export SwigluHalves"
    )


def test_a_path_out_of_the_folder_is_not_removed(hub: Workshop) -> None:
    victim = hub.file("victim.txt", "text")
    digest = hashlib.sha256(b"text").hexdigest()
    listed = Path("acts/FILES.txt")
    text = listed.read_text(encoding="utf-8")
    listed.write_text(f"{text}{digest}  ../victim.txt\n{digest}  {victim.absolute()}\n", encoding="utf-8")
    assert hub.run("hub", "acts", "gelu").exit_code == 0
    assert victim.exists()


RUNS = {"GPT2": "gelu_tanh_forward", "Llama": "silu_forward", "Bert": "gelu_forward"}


@pytest.mark.full
def test_models_of_transformers_run_the_layers(hub: Workshop) -> None:
    for package in ("kernels", "transformers"):
        if not any(importlib.metadata.distributions(name=package)):
            pytest.skip(f"{package} is not installed")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(ROOT / "tests/hub/kernelized.py"), str(Path("acts").absolute())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["all"] == sorted(["layers", *NAMES])
    assert found["silu"] < 1e-6
    assert {name: each["called"] for name, each in found["models"].items()} == {
        name: [function] * 2 for name, function in RUNS.items()
    }
    for each in found["models"].values():
        assert max(each["eager"], each["compiled"]) < 2e-6
        ours, eager = each["gradients"]
        assert ours < 2 * eager + 1e-7
