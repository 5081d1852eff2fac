"""Libraries of kernels that modules share, compiled ahead of time: which there are, and who loads them."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import Workshop

from fusegen.project import library_folder, outputs, stale, toolkit
from fusegen.runtime import build, drawn, layout_copy, linear_operator, prebuilt, recipe, targets, tools
from fusegen.tools import compile_ahead
from fusegen.tools.compile_ahead.shared_library import Library

SPEC = "inputs: {x: {shape: [4, 8]}}\nlayers: [linear: 'Linear(8, 4)']\ndtypes: [float32]\nchain: [relu]\n"
DROPPED = "inputs: {x: {}}\nparams: {p: 0.1}\nformula: dropout(x, p) * 2\n"
DEVICE = torch.device("cuda", 0)
CONTENTS = {  # by the kernel of a layer
    kernel: prebuilt.file_name(
        (linear_operator.SPACE, kernel, "cuda"),
        ("90",),
        recipe.content_of(recipe.recipe_of(linear_operator.texts_of_kernels(), kernel, "cuda")),
    )
    for kernel in linear_operator.KERNELS
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("listed", "layers"),
    [
        ("9.0", True),
        ("8.0,9.0", True),
        ("9.0+PTX", True),
        ("8.0", True),
        ("8.6", False),
        ("10.0+PTX", False),
    ],
)
def test_layers_have_libraries_for_the_chips_that_run_them(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, listed: str, layers: bool
) -> None:
    """A module without a layer in front has none."""
    workshop.spec("plain", "formula: x * 2\n")
    workshop.spec("pixels", "layers: [conv: 'Conv2d(32, 8, 1)']\nchain: [relu]\n")
    workshop.spec("dropped", DROPPED)
    workshop.build("layered", SPEC)
    made: list[str] = []

    def compiled(wanted: Iterator[Library], kept: object) -> Iterator[tuple[str, Path]]:
        made.extend(sorted(each.kernel for each in wanted))
        return iter(())

    monkeypatch.setattr(compile_ahead, "compile_all", compiled)
    both = ["apart", "together"] * layers
    shared = {*linear_operator.KERNELS, *drawn.KERNELS, *layout_copy.KERNELS}
    own_of = {"layered": both, "pixels": [*both, "transposed_out"], "plain": [], "dropped": ["drawn_out"]}
    for name, own in own_of.items():
        made.clear()
        workshop.done("compile", name, "--device", "cuda", "--arch", listed)
        assert [each for each in made if each in shared] == own


@pytest.mark.full
@pytest.mark.skipif(toolkit.home() is None, reason="needs nvcc")
def test_nvcc_compiles_what_the_runtime_asks_for(workshop: Workshop) -> None:
    workshop.spec("dropped", DROPPED)
    workshop.build("layered", SPEC)
    printed = workshop.done("compile", "--device", "cuda", "--arch", "9.0", "--wheel", "my-kernels==1.0")
    names = {Path(line.split()[1]).name for line in printed.splitlines()}
    assert {*CONTENTS.values()} <= names
    [wheel] = (workshop.folder / "dist").iterdir()
    held = {f"my_kernels/_libraries/{name}" for name in CONTENTS.values()}
    needed = ("linear.h", "cuda/product_launch.cuh", "cuda/drawn_mask.cuh")
    headers = {f"my_kernels/_runtime/include/{each}" for each in needed}
    assert any("_mask_drawn_out_cuda_90_" in each for each in names)
    assert held | headers <= {*zipfile.ZipFile(wheel).namelist()}


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of libraries on a machine with a chip of the kernels, and without nvcc."""
    monkeypatch.setenv(prebuilt.VARIABLE, str(tmp_path))
    monkeypatch.setattr(targets, "here", lambda device: ("90",))
    monkeypatch.setattr(tools, "cuda_compiler", lambda name: "nvrtc")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(prebuilt, "load_whole", lambda path, *_: path.stat().st_size > 0)
    cached = build.can_load, linear_operator.has_chip
    for each in cached:
        each.cache_clear()
    yield tmp_path
    for each in cached:
        each.cache_clear()


def test_shipped_libraries_need_no_compiler(shipped: Path) -> None:
    for name in CONTENTS.values():
        (shipped / name).write_bytes(b"whole")
    assert linear_operator.has_chip(DEVICE)


OTHER = "0123456789abcdef"
SPOILED = {  # what is in the place of the library of `together`, and why it is not used
    "nothing": ("", ""),
    "another content": (
        f"{CONTENTS['together'].rpartition('_')[0]}_{OTHER}.so",
        "it was compiled from another version of the module",
    ),
    "another chip": (
        CONTENTS["together"].replace("_90_", "_80_"),
        "it was compiled for sm_80, and this is sm_90",
    ),
}


@pytest.mark.parametrize("what", SPOILED)
def test_without_one_of_them_pytorchs_layer_runs(shipped: Path, warned: list[str], what: str) -> None:
    name, reason = SPOILED[what]
    for each in filter(None, (CONTENTS["apart"], name)):
        (shipped / each).write_bytes(b"whole")
    assert not linear_operator.has_chip(DEVICE)
    instead = "PyTorch runs in its place, since there is no nvcc"
    said = [f"linear: {shipped / name} is not used: {reason}; {instead}"] if reason else []
    assert warned == said


def test_clean_knows_the_libraries_of_layers(workshop: Workshop) -> None:
    workshop.spec("dropped", DROPPED)
    workshop.build("layered", SPEC)
    ahead = stale.loaded(outputs.opened(Path("generated"), Path("specs"))).ahead
    for name in CONTENTS.values():
        found = library_folder.AHEAD.fullmatch(Path(name).stem)
        assert found is not None
        assert ahead[found["of"]] == {found["content"]}
    masks = f"{drawn.SPACE}_drawn_out_cuda"
    [content] = ahead[masks]
    assert library_folder.AHEAD.fullmatch(f"{masks}_90_{content}")
