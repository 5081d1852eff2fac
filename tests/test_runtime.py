"""The runtime beside modules: versions, copies, standalone files, exported programs, refusals."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from conftest import Workshop
from kernels import GENERATED, NAMES, ROOT, generated, load, with_runtime
from processes import CAUGHT, told

from fusegen import runtime
from fusegen.codegen import runtime_text
from fusegen.codegen.render import registration
from fusegen.project import standalone
from fusegen.runtime import bitmask, flavour, flavour_pybind, sources
from fusegen.schedule import bitmask_gradient

EXPORT = "ignore:.isinstance.treespec, LeafSpec.. is deprecated"
CHANGED = ("/ M(6)", "/ M(5)")  # of hardsigmoid on the CPU


def text(name: str) -> str:
    """A committed module."""
    return (GENERATED / f"{name}.py").read_text(encoding="utf-8")


def changed(folder: Path) -> ModuleType:
    """A copy of hardsigmoid that computes something else, in a folder of its own."""
    path = with_runtime(folder) / "hardsigmoid.py"
    before = text("hardsigmoid")
    assert before.count(CHANGED[0]) == 1
    path.write_text(before.replace(*CHANGED), encoding="utf-8")
    return load(path)


# Versions


def test_the_compiler_and_the_runtime_agree() -> None:
    assert registration.INTERFACE == runtime.INTERFACE
    assert bitmask.LARGE == bitmask_gradient.LARGE
    assert set(flavour.__all__) <= vars(flavour_pybind).keys()


def test_a_module_for_another_interface_is_one_sentence(tmp_path: Path) -> None:
    path = with_runtime(tmp_path) / "hardsigmoid.py"
    path.write_text(text("hardsigmoid").replace("interface=3", "interface=2"), encoding="utf-8")
    sentence = "hardsigmoid.py was generated for interface 2, this runtime is 3; run fusegen build"
    with pytest.raises(ImportError, match=f"^{sentence}$"):
        load(path)


def test_a_name_that_the_runtime_lacks_is_one_sentence(tmp_path: Path) -> None:
    path = with_runtime(tmp_path) / "hardsigmoid.py"
    path.write_text(
        text("hardsigmoid").replace("import Activation, ", "import Activation, OTHER, "), encoding="utf-8"
    )
    with pytest.raises(ImportError, match=r"this runtime, of interface 3, has no OTHER; run fusegen build"):
        load(path)


def test_a_folder_without_a_runtime_names_it(tmp_path: Path) -> None:
    path = tmp_path / "hardsigmoid.py"
    path.write_text(text("hardsigmoid"), encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match=r"No module named '\w+\._runtime'"):
        load(path)


def test_two_folders_of_different_versions_live_in_one_process(tmp_path: Path) -> None:
    """Whichever comes first has the stable name; each runs its own kernels under its own runtime."""
    x = torch.zeros(1)
    first, other = generated("hardsigmoid"), changed(tmp_path)
    assert (first.hardsigmoid(x).item(), other.hardsigmoid(x).item()) == (0.5, pytest.approx(0.6))
    assert first.KERNELS.__class__ is not other.KERNELS.__class__
    names = [module.KERNELS.overload.name().partition("::")[0] for module in (first, other)]
    assert names[1].startswith(f"{names[0]}_")


SAVING = "torch.export.save(torch.export.export(m.ModelNew(), (torch.zeros(1),)), {path!r})"
LOADING = "print(torch.export.load({path!r}).module()(torch.zeros(1)).item())"


@pytest.mark.full
def test_an_exported_program_loads_after_a_rebuild(tmp_path: Path) -> None:
    """It calls the operator of the module as it is then."""
    changed(tmp_path / "after")
    path = str(tmp_path / "saved.pt2")
    quiet = "import torch, warnings; warnings.simplefilter('ignore')\n"
    builds = tmp_path / "builds"
    told(f"{quiet}import generated.hardsigmoid as m\n{SAVING.format(path=path)}", builds)
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    code = f"{quiet}import {{folder}}.hardsigmoid as m\n{LOADING.format(path=path)}"
    for folder, answer in (("generated", 0.5), ("after", 0.6)):
        said = told(code.format(folder=folder), builds, **environment)
        assert float(said) == pytest.approx(answer)


# Files


def test_check_tells_of_a_runtime_that_was_edited(built: Workshop) -> None:
    path = Path("generated/_runtime/flags.py")
    path.write_text(path.read_text(encoding="utf-8").replace("-O3", "-O2"), encoding="utf-8")
    result = built.run("check")
    assert result.exit_code == 1
    assert f"--- {path}\n+++ {path} (regenerated)\n" in result.stdout
    assert result.stderr.startswith("1 file differs; ")
    assert built.run("build").output == "changed  generated/_runtime\nunchanged: 2 modules\n"
    assert built.run("check").exit_code == 0


def test_check_tells_of_a_runtime_that_is_missing(built: Workshop) -> None:
    count = len(list(Path("generated/_runtime").rglob("*.*")))
    shutil.rmtree("generated/_runtime")
    result = built.run("check")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{count} files differ; ")


def of_folder(folder: Path) -> dict[str, str]:
    """The texts of a folder's runtime, by name."""
    paths = (path for pattern in ("*.py", "include/**/*.*") for path in folder.glob(f"_runtime/{pattern}"))
    return {p.relative_to(folder / "_runtime").as_posix(): p.read_text(encoding="utf-8") for p in paths}


def test_a_folder_has_the_headers_that_its_modules_use(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x * clamp(x + 3, 0, 6) / 6")
    assert workshop.run("build").output == "new      generated/gate.py\nnew      generated/_runtime\n"
    alone = of_folder(Path("generated"))
    own = workshop.spec("own", "formula: erf(x)")
    assert workshop.run("build").output.splitlines()[:2] == [
        "new      generated/own.py",
        "changed  generated/_runtime",
    ]
    both = of_folder(Path("generated"))
    assert "include/cpu/normal.h" in both.keys() - alone.keys()
    assert 2 * len(alone) < len(runtime_text.files("stable")) > len(both) > len(alone)
    assert workshop.run("check").exit_code == 0

    own.unlink()
    edited = Path("generated/_runtime/include/cpu/normal.h")
    edited.write_text(both["include/cpu/normal.h"] + "// mine\n", encoding="utf-8")
    assert workshop.run("build", "--prune").output.splitlines() == [
        "changed  generated/_runtime",
        "unchanged: 1 module",
        "removed  generated/own.py",
    ]
    assert of_folder(Path("generated")).keys() == {*alone, "include/cpu/normal.h"}
    assert workshop.run("check").exit_code == 0


@pytest.mark.parametrize("binding", ["stable", "pybind"])
@pytest.mark.parametrize("name", ["hardsigmoid", "gelu", "swiglu", "conv_relu_hardswish", "pade_tanh"])
def test_modules_find_every_header_among_the_files_that_they_use(
    name: str, binding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is built from a module, also by NVRTC and for a bitmask, a copy or a convolution."""
    files = runtime_text.needed(binding, (text(name),))
    assert files.keys() >= {name for name in runtime_text.files(binding) if name.endswith(".py")}
    monkeypatch.setattr(sources, "header", lambda header: files[f"include/{header}"])
    kernels = generated(name).KERNELS
    own = {"stable": flavour, "pybind": flavour_pybind}[binding]
    for names in (vars(sources), type(kernels).includes.__globals__):
        monkeypatch.setitem(names, "flavour", own)
    read = [*sources.texts(kernels), sources.program(kernels.sources.cuda)]
    assert not any('#include "' in each for each in read)


def test_a_file_that_the_runtime_no_longer_has_is_removed(built: Workshop) -> None:
    """One that is recorded; without a record, as in an older folder, one that begins as fusegen's do."""
    old = built.file("generated/_runtime/old.py", runtime_text.HEAD + "x = 1\n")
    own = built.file("generated/_runtime/own.py", "x = 1\n")
    assert built.run("build").output == "unchanged: 2 modules\n"
    manifest = Path("generated/MANIFEST.toml")
    told = manifest.read_text(encoding="utf-8").partition("\n# Digests of the files in _runtime.\n")[0]
    older = told.replace("\n[modules]", f'runtime = "{"0" * 64}"\n\n[modules]')
    manifest.write_text(older, encoding="utf-8")
    assert built.run("check").exit_code == 1
    assert built.run("build").output == "changed  generated/_runtime\nunchanged: 2 modules\n"
    assert not old.exists()
    assert own.exists()


def test_a_file_of_somebody_elses_is_not_written_over(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    workshop.file("generated/_runtime/calls.py", "mine = 1\n")
    before = workshop.files()
    result = workshop.run("build")
    sentence = "fusegen did not write this file, and the module of a spec would replace it"
    assert (result.exit_code, result.output.splitlines()[0]) == (
        2,
        f"generated/_runtime/calls.py: {sentence}",
    )
    assert workshop.files() == before


def test_the_runtime_is_what_the_committed_modules_use() -> None:
    modules = (path for path in GENERATED.rglob("*.py") if "_runtime" not in path.parts)
    needed = runtime_text.needed("stable", (path.read_text(encoding="utf-8") for path in modules))
    assert of_folder(GENERATED) == needed


def test_linters_are_quiet_with_their_defaults() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", str(GENERATED)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "All checks passed!\n")


# Standalone files


def test_build_writes_standalone_files_and_nothing_else(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x * clamp(x + 3, 0, 6) / 6")
    assert workshop.run("build", "--standalone", "single", "gate").output == "new      single/gate.py\n"
    assert set(workshop.files()) == {"specs/gate.yaml", "single/gate.py"}
    assert workshop.run("build", "--standalone", "single").output == ""
    assert workshop.run("build", "--standalone", "single", "--prune").exit_code == 2
    workshop.file("single/gate.py", "mine = 1\n")
    assert workshop.run("build", "--standalone", "single").exit_code == 2


@pytest.mark.parametrize("name", ["hardsigmoid", "leaky_relu", "swiglu"])
def test_a_standalone_file_for_pybind_holds_the_module_and_its_runtime(name: str) -> None:
    whole = standalone.text(text(name), "pybind")
    head, imports, rest = text(name).partition("from ._runtime import ")
    assert whole.splitlines()[2:12] == head.splitlines()[2:12]
    assert imports not in whole
    assert whole.endswith(rest.partition("\n")[2])
    files = runtime_text.files("pybind")
    assert all(files[f"{stem}.py"] in whole for stem in runtime_text.python(files))


def test_a_standalone_file_without_a_folder_to_build_in_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "single.py"
    path.write_text(standalone.text(text("hardsigmoid"), "pybind"), encoding="utf-8")
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    code = "import torch, single\n" + CAUGHT.partition("hardsigmoid\n")[2].replace("hard", "single.hard")
    said = told(code, tmp_path / "file", PYTHONPATH=str(tmp_path))
    hint = "set TORCH_EXTENSIONS_DIR to a folder that can be written"
    sentence = f"hardsigmoid: cannot build in {tmp_path / 'file' / 'fusegen'}: Not a directory; {hint}"
    assert said == f"RuntimeError {sentence} None True\n"


# Modules


@pytest.mark.together
@pytest.mark.parametrize("name", NAMES)
def test_a_model_shows_its_arguments(name: str) -> None:
    module = generated(name)
    model = module.ModelNew(*module.get_init_inputs())
    shown = model.extra_repr()
    for key, value in vars(model).items():
        if isinstance(value, float) or key == "dim":
            assert f"{key}={value}" in shown
    if hasattr(model, "inplace"):
        assert "inplace" not in shown
        assert module.ModelNew(inplace=True).extra_repr().endswith("inplace=True")


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_another_form_in_place_has_its_gradient(approximate: str, extensions: Path) -> None:
    x = torch.randn(5, requires_grad=True)
    y = generated("gelu").gelu(x * 1, inplace=True, approximate=approximate)
    expected = F.gelu(x, approximate=approximate)
    torch.testing.assert_close(y, expected)
    [ours], [theirs] = (torch.autograd.grad(value.sum(), x) for value in (y, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_in_place_has_its_gradient(extensions: Path) -> None:
    parts = [torch.randn(3), torch.randn(4)]
    leaf = torch.nested.nested_tensor(parts, requires_grad=True)
    y = generated("silu").silu(leaf * 1, inplace=True)
    torch.autograd.backward(torch.nested.to_padded_tensor(y, 0.0).sum())
    assert leaf.grad is not None
    for part, slope in zip(parts, leaf.grad.unbind(), strict=True):
        part.requires_grad_()
        [expected] = torch.autograd.grad(F.silu(part).sum(), part)
        torch.testing.assert_close(slope, expected)
