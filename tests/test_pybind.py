"""Modules for older PyTorch: the same kernels behind pybind11, and nothing that PyTorch 2.0 lacks.

What is compiled here is compiled with the PyTorch at hand.
"""

import ast
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Workshop, library_spec
from kernels import (
    DTYPES,
    LAYOUTS,
    NAMES,
    arranged,
    assert_same,
    by_class,
    generated,
    load,
    patterns,
    with_runtime,
)
from processes import told
from torch import Tensor, nn

from fusegen.codegen import runtime_text
from fusegen.codegen.printed import Binding
from fusegen.project import build, standalone
from fusegen.runtime import flavour, flavour_pybind

COMPILED = ("hardtanh", "swiglu")
RUNTIME = runtime_text.files("pybind")
PYTHON = [file for file in RUNTIME if file.endswith(".py")]
KINKS = (-1.0, 1.0, -0.5, 0.25)
GUARDED = re.compile(r"^#if __has_include\(<\S+>\)\n(#include <\S+>\n)+(?=#else\n)", re.MULTILINE)


@functools.cache
def text(name: str) -> str:
    """The module of one of the specs."""
    return build.module(library_spec(name), Binding.PYBIND)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> dict[str, Path]:
    """The files of the modules, each built by its first call."""
    folder = tmp_path_factory.mktemp("pybind")
    files = {name: folder / f"{name}.py" for name in COMPILED}
    for name, path in files.items():
        path.write_text(text(name), encoding="utf-8")
    with_runtime(folder, "pybind")
    return files


@pytest.fixture(scope="module")
def hardtanh(paths: dict[str, Path]) -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = load(paths["hardtanh"]).hardtanh
    return function


@pytest.fixture(scope="module")
def swiglu(paths: dict[str, Path]) -> Callable[..., Tensor]:
    function: Callable[..., Tensor] = load(paths["swiglu"]).swiglu
    return function


@pytest.mark.few(2)
@pytest.mark.parametrize("name", by_class(NAMES))
def test_python_3_8_can_read_it(name: str) -> None:
    whole = standalone.text(text(name), "pybind")
    ast.parse(whole, feature_version=(3, 8))
    assert not re.search(r"\b(try\s*:|except\b|pass\b)", whole)  # which benchmark harnesses refuse


@pytest.mark.together
@pytest.mark.parametrize("file", PYTHON)
def test_python_3_8_can_read_the_runtime(file: str) -> None:
    ast.parse(RUNTIME[file], feature_version=(3, 8))


@pytest.mark.parametrize(
    "word", ["headeronly", "stable/c", "aoti", "library.register_fake", "backends.cpu", "FRAGMENT"]
)
def test_it_has_nothing_of_newer_versions(word: str) -> None:
    stable = "".join(runtime_text.files("stable").values())
    assert word in stable or word == "FRAGMENT"
    assert word not in GUARDED.sub("", standalone.text(text("swiglu"), "pybind"))
    assert word not in "".join(RUNTIME[file] for file in PYTHON)


@pytest.mark.parametrize("name", COMPILED)
def test_the_kernels_are_those_of_the_stable_module(name: str, paths: dict[str, Path]) -> None:
    classic, stable = load(paths[name]), generated(name)
    for part in ("CUDA_SOURCE", "CPU_SOURCE"):
        if "bitmask" not in vars(stable)[part]:  # which the stable binding alone has
            assert getattr(classic, part) == getattr(stable, part)
    assert set(flavour_pybind.CPU_FLAGS) - set(flavour.CPU_FLAGS) == {"-fopenmp"}


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("of", ["value", pytest.param("gradient", marks=pytest.mark.full)])
def test_every_bit_is_pytorchs(hardtanh: Callable[..., Tensor], of: str, dtype: torch.dtype) -> None:
    """A library for each of the two, whose headers take longer than all else."""
    x = patterns(dtype, 2**18, KINKS).requires_grad_(of == "gradient")
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for bounds in ((-1.0, 1.0), (-0.5, 0.25)):
        actual, expected = hardtanh(x, *bounds), nn.functional.hardtanh(x, *bounds)
        assert_same(actual.detach(), expected.detach(), x.detach())
        if of == "gradient":
            pair = (torch.autograd.grad(y, x, grad)[0] for y in (actual, expected))
            assert_same(*(g.masked_fill(x.isnan(), 0) for g in pair))  # of which PyTorch's loops differ


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_is_the_stable_modules(swiglu: Callable[..., Tensor], dtype: torch.dtype) -> None:
    a = patterns(dtype, 2**16).requires_grad_()
    b = a.detach().flip(0).requires_grad_()
    grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    results = []
    for function in (swiglu, generated("swiglu").swiglu):
        y = function(a, b)
        results.append((y.detach(), *torch.autograd.grad(y, (a, b), grad)))
    for actual, expected in zip(*results, strict=True):
        assert_same(actual, expected, a.detach(), b.detach())


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(hardtanh: Callable[..., Tensor], layout: str) -> None:
    x = arranged(layout, torch.float32)
    y, expected = hardtanh(x), generated("hardtanh").hardtanh(x)
    assert_same(y, expected, x)
    assert y.stride() == expected.stride()


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_two_tensors(swiglu: Callable[..., Tensor], layout: str) -> None:
    x = arranged(layout, torch.float32)
    if x.dim():
        other = x[:1].expand_as(x) if x.numel() else x
        assert_same(swiglu(x, other), generated("swiglu").swiglu(x, other), x)


@pytest.mark.full
def test_broadcasting_and_halves(swiglu: Callable[..., Tensor]) -> None:
    stable = generated("swiglu").swiglu
    a, b = torch.randn(5, 1, 8, requires_grad=True), torch.randn(4, 1, requires_grad=True)
    whole = torch.randn(4, 16, requires_grad=True)
    for inputs in ((a, b), (whole,)):
        y, expected = swiglu(*inputs), stable(*inputs)
        assert_same(y.detach(), expected.detach())
        grads = zip(
            torch.autograd.grad(y.sum(), inputs), torch.autograd.grad(expected.sum(), inputs), strict=True
        )
        for pair in grads:
            assert_same(*pair)


def test_in_place_and_out(hardtanh: Callable[..., Tensor]) -> None:
    x = torch.randn(3, 1000) * 3
    expected, out = nn.functional.hardtanh(x), torch.empty(1000, 3).t()
    assert hardtanh(x, out=out) is out
    assert_same(out, expected)
    assert hardtanh(x, inplace=True) is x
    assert_same(x, expected)
    assert (x._version, out._version) == (1, 1)


@pytest.mark.full
def test_a_gradient_in_place(hardtanh: Callable[..., Tensor]) -> None:
    leaf = torch.randn(100, requires_grad=True)
    [grad] = torch.autograd.grad(hardtanh(leaf * 2, inplace=True).sum(), leaf)
    assert_same(grad, torch.autograd.grad(nn.functional.hardtanh(leaf * 2).sum(), leaf)[0])


def test_what_is_refused(hardtanh: Callable[..., Tensor]) -> None:
    with pytest.raises(RuntimeError, match="hardtanh: out has another shape"):
        hardtanh(torch.ones(3), out=torch.empty(4))
    with pytest.raises(RuntimeError, match="hardtanh: several elements of the written-to tensor"):
        hardtanh(torch.ones(1).expand(3), inplace=True)


@pytest.mark.full
def test_shapes_that_do_not_broadcast_are_refused(swiglu: Callable[..., Tensor]) -> None:
    with pytest.raises(RuntimeError, match=r"swiglu: the shapes .* do not broadcast"):
        swiglu(torch.ones(3), torch.ones(4))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # within PyTorch
def test_derivatives_of_every_kind(swiglu: Callable[..., Tensor]) -> None:
    a, b = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(swiglu, (a, b))
    assert torch.autograd.gradcheck(swiglu, (a, b), check_forward_ad=True, check_batched_grad=True)
    rows, row = torch.randn(6, 5), torch.randn(5)
    assert_same(torch.func.vmap(swiglu, in_dims=(0, None))(rows, row), swiglu(rows, row))


def test_shapes_without_elements(hardtanh: Callable[..., Tensor]) -> None:
    y = hardtanh(torch.empty(3, 4, device="meta").t())
    assert (y.shape, y.stride(), y.device.type) == ((4, 3), (1, 4), "meta")


@pytest.mark.full
def test_under_torch_compile(paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(paths["hardtanh"])
    monkeypatch.setitem(sys.modules, "hardtanh", module)
    compiled = torch.compile(
        lambda x: module.hardtanh(x * 2, -0.5, 0.5) + 1, backend="aot_eager", fullgraph=True
    )
    x = torch.randn(64, 65, requires_grad=True)
    expected = nn.functional.hardtanh(x * 2, -0.5, 0.5) + 1
    assert_same(compiled(x).detach(), expected.detach())
    assert_same(torch.autograd.grad(compiled(x).sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])


@pytest.mark.filterwarnings("ignore:.*is_compiling. is deprecated")
def test_where_pytorch_lacks_what_came_after_2_2(
    paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.delattr(torch.compiler, "is_dynamo_compiling")
        older.delattr(torch.library, "register_vmap")
        folder = with_runtime(paths["hardtanh"].parent / "older", "pybind")
        (folder / "hardtanh.py").write_text(text("hardtanh"), encoding="utf-8")
        module = load(folder / "hardtanh.py")
    own = sys.modules[f"{module.__package__}._runtime.flavour"]
    assert vars(own)["register_vmap"] is not getattr(torch.library, "register_vmap")  # noqa: B009
    x = torch.randn(10)
    expected = nn.functional.hardtanh(x)
    assert_same(module.hardtanh(x), expected)
    assert_same(module.hardtanh(x, inplace=True), expected)
    assert x._version == 1


@pytest.mark.full
def test_another_process_finds_what_is_built(paths: dict[str, Path], extensions: Path) -> None:
    folder = paths["hardtanh"].parent
    code = f"import torch; from {folder.name}.hardtanh import hardtanh\n"
    code += "print(hardtanh(torch.arange(-2., 3.)).tolist())"
    for compiler in ({}, {"CXX": "false"}):
        printed = told(code, extensions, PYTHONPATH=str(folder.parent), **compiler)
        assert printed == "[-1.0, -1.0, 0.0, 1.0, 1.0]\n"


def test_the_header_says_how_to_remake_it(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    assert workshop.run("build", "--binding", "pybind").output == (
        "new      generated/gate.py\nnew      generated/_runtime\n"
    )
    written = Path("generated/gate.py").read_text(encoding="utf-8")
    assert "Remake it with: python -m fusegen build specs/gate.yaml\n" in written
    assert workshop.run("build", "specs/gate.yaml").output == "unchanged: 1 module\n"
    assert workshop.run("build", "--binding", "pybind", "specs/gate.yaml").output == "unchanged: 1 module\n"


def test_a_folder_has_one_binding(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: relu(x) + 1")
    workshop.build("twice", "formula: 2 * x")
    before = workshop.files()
    refused = workshop.run("build", "--binding", "pybind", "gate")
    sentence = "the folder has modules of the binding 'stable', such as twice, that this would not remake"
    hint = "name no spec, so that all are made with --binding pybind; or choose another --output"
    assert (refused.exit_code, refused.output) == (2, f"generated: {sentence}\n  hint: {hint}\n")
    assert workshop.files() == before
    assert workshop.run("build", "--binding", "pybind").exit_code == 0
    assert 'binding = "pybind"' in Path("generated/MANIFEST.toml").read_text(encoding="utf-8")
    assert workshop.run("check").exit_code == 0
    assert workshop.run("list").output.count("\tcurrent\t") == 2
    workshop.spec("gate", "formula: relu(x) + 2")
    assert workshop.run("check").exit_code == 1
    assert "\tout of date\t" in workshop.run("list").output
    assert workshop.run("build", "gate").output == "changed  generated/gate.py\n"
    assert "bitmask" not in Path("generated/gate.py").read_text(encoding="utf-8")
    flavour = Path("generated/_runtime/flavour.py")
    assert flavour.read_text(encoding="utf-8") == RUNTIME["flavour.py"]
    assert workshop.run("build", "--binding", "stable").exit_code == 0
    assert "bitmask" in Path("generated/gate.py").read_text(encoding="utf-8")
    assert flavour.read_text(encoding="utf-8") == runtime_text.files("stable")["flavour.py"]
    assert 'binding = "stable"' in Path("generated/MANIFEST.toml").read_text(encoding="utf-8")


def test_a_binding_that_is_none_is_refused(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x + 1")
    assert "'ctypes' is not one of 'stable', 'pybind'" in workshop.refused("build", "--binding", "ctypes")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "hardtanh.py"
    path.write_text(text("hardtanh"), encoding="utf-8")
    with_runtime(tmp_path, "pybind")
    hardtanh = load(path).hardtanh
    for dtype in DTYPES:
        x = patterns(dtype, 2**20, KINKS, "cuda").requires_grad_()
        actual, expected = hardtanh(x), nn.functional.hardtanh(x)
        assert_same(actual.detach(), expected.detach(), x.detach())
        grads = (torch.autograd.grad(y, x, torch.ones_like(y))[0] for y in (actual, expected))
        assert_same(*grads)
    cuda: Any = torch.cuda  # which declares no types for streams
    stream = cuda.Stream()
    with cuda.stream(stream):
        y = hardtanh(torch.full((2**20,), 3.0, device="cuda")[::2])
    stream.synchronize()
    assert (y == 1).all()
