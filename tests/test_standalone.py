"""Standalone files: how long they are, that they give a module's bits, and what they are executed in."""

import ast
import ctypes
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import compiler
import pytest
import torch
from conftest import Workshop
from emulated import FLAGS, LAUNCH, SCALAR_TYPES, emulated, flushing, looked_up_by, same_bits, sanitizing
from kernels import DTYPES, GENERATED, generated
from standalone_files import HARNESS, nvcc, strings
from torch import Tensor, nn

from fusegen.codegen.standalone.compact import compact
from fusegen.codegen.standalone.items import items
from fusegen.project import standalone

LINES = {  # of a file, for all dtypes or for one
    ("hardsigmoid", ""): 220,
    ("relu_hardswish", ""): 235,
    ("gelu", ""): 750,
    ("gelu", "float32"): 420,
    ("swiglu", "float32"): 450,
    ("kernelbench/linear_silu_scale", "float32"): 435,
}
SAME = (  # one tensor, the output saved, scalars, tables, verified results, polynomials, operands, layers
    *(
        "hardsigmoid",
        "relu",
        "hardtanh",
        "gelu",
        "tanh",
        "silu",
        "pade_tanh",
        "swiglu",
        "prelu",
        "mish_mish",
    ),
    *("snake_per_channel", "kernelbench/linear_silu_scale", "kernelbench/conv2d_relu_shift"),
)


def file_of(name: str, dtype: str = "") -> str:
    module = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    return standalone.text(module, "stable", [dtype]) if dtype else standalone.text(module, "stable")


def executed(name: str, dtype: str = "") -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(file_of(name, dtype), "<string>", "exec"), space)
    assert "__file__" not in space
    return space


def module_of(name: str) -> ModuleType:
    if "/" in name:
        return importlib.import_module(f"generated.{name.replace('/', '.')}")
    return generated(name)


def tensors(name: str, dtype: torch.dtype) -> list[Tensor]:
    """Inputs of a module's kernels, of many sizes."""
    module = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    [signature] = re.findall(r'forward="([^"]*)"', module)
    generator = torch.Generator().manual_seed(1)
    size = torch.exp2(torch.randint(-20, 30, (4099,), generator=generator).double())
    one = (torch.randn(4099, generator=generator, dtype=torch.float64) * size).to(dtype)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.0, -3.0], dtype=dtype)
    every = torch.cat([special, one])
    if dtype.itemsize == 2:
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    count = signature.count("Tensor ")
    return [every, *(every.flip(0).roll(k) for k in range(1, count))]


def results(function: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in given]
    y = function(*leaves)
    incoming = torch.linspace(-2, 3, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, incoming)]


def function_of(name: str, space: dict[str, Any]) -> Callable[..., Tensor]:
    stem = name.rpartition("/")[2]
    function: Callable[..., Tensor] = space.get(f"_{stem}") or space[stem]
    return function


# The text


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "dtype"), LINES)
def test_a_file_can_be_read(name: str, dtype: str) -> None:
    lines = file_of(name, dtype).splitlines()
    assert len(lines) <= LINES[name, dtype]
    assert max(map(len, lines)) <= 120
    assert any(line.startswith("# Given up: ") for line in lines[6:8])


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["hardsigmoid", "swiglu", "kernelbench/conv2d_relu_shift"])
def test_harnesses_take_a_file(name: str) -> None:
    whole = file_of(name)
    assert not HARNESS.search(whole)
    assert "__global__" in re.sub(r"#.*|//.*", "", whole)
    assert "load_inline" in whole
    nodes = [node for node in ast.walk(ast.parse(whole)) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {getattr(node, "module", None) or alias.name for node in nodes for alias in node.names}
    assert {part.partition(".")[0] for part in named} <= {"torch", *sys.stdlib_module_names}


@pytest.mark.parametrize("name", ["rows/layer_norm", "rows/group_norm", "rows/softmax"])
def test_phases_that_are_one_loop_are_apart(name: str) -> None:
    """A file has the phases that the runtime's kernels join, and their values as they are."""
    cuda = strings(file_of(name))["CUDA"]
    [forward] = re.findall(r"struct Forward : Rows<[\d, ]*(.*?)> \{", cuda, re.DOTALL)
    assert re.fullmatch(r"ForwardValues(,\s+Forward\d)+", forward)


def test_names_of_tensors_that_a_file_has_itself() -> None:
    module = (GENERATED / "swiglu.py").read_text(encoding="utf-8")
    assert "Tensor up" in module
    assert "\nRUNTIME = {" not in standalone.text(module, "stable")
    for name in ("kernels", "transformed"):
        assert "\nRUNTIME = {" in standalone.text(module.replace("Tensor up", f"Tensor {name}"), "stable")


def test_a_file_has_what_is_called_and_no_more() -> None:
    cpp = strings(file_of("gelu", "float32"))["CPU"]
    assert "times_ndtr(" in cpp
    assert not re.search(r"\b(tanh|relu|softplus|erfc|ndtr_tail_in_double|round_to_odd)\(", cpp)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", ["rows/group_norm", "windows/max_pool2d", "batches/batch_norm_relu", "scans/cumsum"]
)
def test_files_that_compute_in_double_have_no_double_words(name: str) -> None:
    """Neither a sum of a pointer and an integer nor a variable's name calls a function of double words."""
    module = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    assert "DoubleWord" not in standalone.text(module, "stable")


def test_items_are_what_a_header_defines() -> None:
    header = """
namespace fusegen {
namespace {
// A number.
constexpr int A = 1, B = 2;
template <typename M>
struct Pair {
  M a, b;
};
namespace inner {
HOST_DEVICE float f(float x) { return x; }
}  // namespace inner
template <typename M>
HOST_DEVICE Pair<M> operator+(Pair<M> a, M b) {
  return {a.a, b};
}
}  // namespace
}  // namespace fusegen
"""
    found = [(item.scope, item.names) for item in items(header)]
    assert found == [("", ("A", "B")), ("", ("Pair",)), ("inner", ("f",)), ("", ("operator+",))]


def test_conditions_are_decided() -> None:
    function = """template <typename M>
HOST_DEVICE M f(M x) {
  if constexpr (sizeof(M) == 8) return g(x);
  return h(x);
}"""
    head = "template <typename M> HOST_DEVICE M f(M x) "
    assert compact(function, lambda _: True) == f"{head}{{ return g(x); }}"
    assert compact(function, lambda _: False) == f"{head}{{ return h(x); }}"
    assert compact(function, lambda _: None).count("return") == 2
    of_device = function.replace("  if", "#ifdef __CUDACC__\n  if").replace(
        "  return h", "#endif\n  return h"
    )
    assert compact(of_device, lambda _: False) == f"{head}{{ return h(x); }}"


# Results


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SAME)
def test_a_file_gives_the_bits_of_its_module(name: str) -> None:
    space, module = executed(name), module_of(name)
    for dtype in DTYPES:
        given = tensors(name, dtype)
        found = results(function_of(name, space), given)
        expected = results(function_of(name, vars(module)), given)
        for a, b in zip(found, expected, strict=True):
            assert same_bits(torch.where(a.isnan(), 0, a), torch.where(b.isnan(), 0, b)), (name, dtype)


@pytest.mark.full
def test_a_file_of_one_dtype_gives_the_same_bits() -> None:
    space, module = executed("gelu", "float32"), generated("gelu")
    given = tensors("gelu", torch.float32)
    for a, b in zip(results(space["gelu"], given), results(module.gelu, given), strict=True):
        assert same_bits(torch.where(a.isnan(), 0, a), torch.where(b.isnan(), 0, b))
    half = torch.randn(9).half()
    assert torch.equal(space["gelu"](half), nn.functional.gelu(half))


@pytest.mark.full
@pytest.mark.parametrize("shape", [(1, 5, 1), (5, 1), (3,), (2, 5, 3), ()])
def test_operands_broadcast(shape: tuple[int, ...]) -> None:
    space, module = executed("swiglu"), generated("swiglu")
    for x in (torch.randn(2, 5, 3), torch.randn(2, 3, 5).mT, torch.randn(4, 5, 3)[::2]):
        given = [x, torch.randn(shape)]
        (y, *slopes), (other, *others) = results(space["swiglu"], given), results(module.swiglu, given)
        assert torch.equal(y, other)
        for a, b in zip(slopes, others, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.full
def test_a_model_is_the_modules() -> None:
    name = "kernelbench/conv2d_relu_shift"
    space, module = executed(name), module_of(name)
    torch.manual_seed(3)
    model = space["ModelNew"](3, 4, 3, (4, 1, 1))
    torch.manual_seed(3)
    other = module.ModelNew(3, 4, 3, (4, 1, 1))
    x = torch.randn(2, 3, 8, 8)
    assert [*model.state_dict()] == [*other.state_dict()]
    assert torch.equal(model(x), other(x))
    model(x).sum().backward()
    other(x).sum().backward()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_a_file_runs_twice_in_a_bare_namespace() -> None:
    first, second = executed("hardsigmoid"), executed("hardsigmoid")
    x = torch.tensor([-9.0, 0.0, 9.0])
    for space in (first, second):
        assert space["ModelNew"](*space["get_init_inputs"]())(x).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile does
def test_second_derivatives_other_dtypes_and_compilers() -> None:
    space = executed("gelu")
    gelu, x = space["gelu"], torch.randn(64, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gelu, x)
    assert torch.autograd.gradgradcheck(gelu, x)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        gelu(torch.ones(3, dtype=torch.long))
    compiled: Callable[..., Tensor] = torch.compile(gelu, fullgraph=True, backend="aot_eager")
    [slope] = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.equal(compiled(x), gelu(x))
    assert torch.equal(slope, torch.autograd.grad(gelu(x).sum(), x)[0])
    torch.library.opcheck(space["operator"], (False, 1, [torch.randn(5)], []))


# CUDA


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["hardsigmoid", "gelu", "silu", "celu", "swiglu", "mish_mish", "hardtanh"])
def test_the_kernels_of_cuda_give_the_bits_of_their_module(name: str, tmp_path: Path) -> None:
    """Emulated by g++, for tensors of one layout."""
    file = file_of(name)
    space = strings(file)
    cuda = flushing(f'#include "cuda_emulation.h"\n{space["CUDA"]}')
    source, launches = LAUNCH.subn(r"emulate(\1, \2, ", cuda)
    assert launches >= 1
    library = ctypes.CDLL(str(compiler.library(source, ["-O0", *FLAGS, *sanitizing(name)])))
    module = emulated(module_of(name), name, tmp_path, len(scalars_of(name)))
    for dtype in DTYPES:
        given = [t[: 1 + 8 * 256] for t in tensors(name, dtype)]
        given = [torch.where(t.abs() < 2.0**100, t, 1) for t in given]
        for kernel, own, backward in (
            (module.forward, given, False),
            (module.backward, [given[0], *given], True),
        ):
            expected = looked_up_by(kernel, *own, params=scalars_of(name))
            made = [torch.empty_like(own[0]) for _ in expected]
            launch(library, file, [*own, *made], scalars_of(name), backward)
            for a, b in zip(made, expected, strict=True):
                assert same_bits(torch.where(a.isnan(), 0, a), torch.where(b.isnan(), 0, b)), (name, dtype)


def scalars_of(name: str) -> tuple[float, ...]:
    defaults = {"celu": (1.0,), "hardtanh": (-1.0, 1.0)}
    return defaults.get(name, ())


def launch(
    library: ctypes.CDLL, file: str, data: list[Tensor], scalars: tuple[float, ...], backward: bool
) -> None:
    """Run a kernel on tensors of one layout, with the argument that the file declares."""
    [node] = [n for n in ast.parse(file).body if isinstance(n, ast.ClassDef) and n.name == "Call"]
    space: dict[str, Any] = {"ctypes": ctypes}
    exec(compile(ast.Module([node], []), "<string>", "exec"), space)
    call = space["Call"]()
    for k, tensor in enumerate(data):
        call.data[k] = tensor.data_ptr()
    for k, scalar in enumerate(scalars):
        call.param[k] = scalar
    call.numel, call.dtype = data[0].numel(), SCALAR_TYPES[data[0].dtype]
    call.aligned = not any(tensor.data_ptr() % 16 for tensor in data)
    assert library.on_cuda(ctypes.byref(call), backward) == 0


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    ["hardsigmoid", "gelu", "swiglu", "mish_mish", "pade_tanh", "kernelbench/conv2d_mish_mish", "snake"],
)
def test_nvcc_compiles_the_kernels(name: str, tmp_path: Path) -> None:
    nvcc(strings(file_of(name))["CUDA"], "sm_90", tmp_path)


# The command


def test_build_writes_a_file_for_one_dtype(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: x * clamp(x + 3, 0, 6) / 6")
    told = workshop.run("build", "--standalone", "single", "--dtype", "bfloat16", "gate")
    assert told.output == "new      single/gate.py\n"
    whole = Path("single/gate.py").read_text(encoding="utf-8")
    assert "build --standalone . --dtype bfloat16 specs/gate.yaml\n" in whole
    assert "TYPES = {torch.bfloat16: 15}" in whole
    told = workshop.run("build", "--dtype", "bfloat16", "gate")
    assert (told.exit_code, told.output.splitlines()[-1]) == (2, "Error: --dtype is for --standalone")
