"""Specs with several results: one kernel writes all of them, one adds up their incoming gradients."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import ROOT, Workshop
from rows_emulated import emulated
from test_cuda_text import NVCC, nvcc
from test_rows import GPU, made
from torch import Tensor

from fusegen.errors import SpecErrors
from fusegen.runtime.flags import CUDA_FLAGS

F = torch.nn.functional
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
TOLERANCES = {torch.float32: 6e-8, torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float64: 1e-14}
Results = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A module with several results, beside PyTorch's operations.

    Attributes:
        reference: the same by PyTorch.
        body: of its spec, where it is not one of fusegen's own.
        tensors: how many have the shape of the first.
        features: how many have one row for all.
        of_rows: the results that are values of rows.
        keeps: whether these keep the dimension of the row.
    """

    reference: Callable[..., Results]
    body: str = ""
    tensors: int = 2
    features: int = 0
    of_rows: tuple[int, ...] = ()
    keeps: bool = False


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Results:
    s = x + residual
    return F.rms_norm(s, s.shape[-1:], weight, 1e-6), s


def add_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Results:
    s = x + residual
    return F.layer_norm(s, s.shape[-1:], weight, bias, 1e-5), s


def native_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor
) -> Results:  # whose statistics have no gradient
    mean, centred = x.mean(-1, True), x - x.mean(-1, True)
    rstd = torch.rsqrt((centred * centred).mean(-1, True) + 1e-5)
    return centred * rstd * weight + bias, mean, rstd


def lstm_cell(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor) -> Results:
    cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def rotary(x1: Tensor, x2: Tensor, cos1: Tensor, sin1: Tensor, cos2: Tensor, sin2: Tensor) -> Results:
    return x1 * cos1 - x2 * sin1, x2 * cos2 + x1 * sin2


CASES = {
    "add_rms_norm": Case(add_rms_norm, features=1),
    "add_layer_norm": Case(add_layer_norm, features=2),
    "lstm_cell": Case(lstm_cell, tensors=5),
    "rotary": Case(rotary, tensors=6),
    "moments": Case(
        lambda x: (x.var(-1, correction=0), x.mean(-1)),
        "over: [-1]\nwhere: {d: x - m}\nformula: {v: mean(d * d), m: mean(x)}\n",
        tensors=1,
        of_rows=(0, 1),
    ),
    "of_channels": Case(
        lambda x, r: (torch.softmax(x + r, 1), x + r),
        "inputs: {x: {shape: [4, 8, 6]}, r: {shape: [4, 8, 6]}}\nover: [1]\n"
        "formula: {y: softmax(s), s: x + r}\n",
    ),
    "of_groups": Case(
        lambda x: (x - x.mean((1, 2), keepdim=True), x * x.amax((1, 2), keepdim=True)),
        "inputs: {x: {shape: [4, 8, 6]}}\ninit: {groups: 1}\nover: ['1 / groups', ...]\n"
        "formula: {y: x - mean(x), z: x * amax(x)}\n",
        tensors=1,
    ),
    "layer_norm_statistics": Case(
        native_layer_norm,
        tensors=1,
        features=2,
        of_rows=(1, 2),
        keeps=True,
    ),
    "softmax_logsumexp": Case(
        lambda x: (torch.logsumexp(x, -1), torch.softmax(x, -1)),
        "over: [-1]\nformula: {lse: logsumexp(x), y: exp(x - lse)}\n",
        tensors=1,
        of_rows=(0,),
    ),
    "shifted_of_channels": Case(
        lambda x, r: (x - r - (x - r).amax(1, True), (x - r).amax(1), (x - r).exp().sum(1)),
        "inputs: {x: {shape: [4, 8, 6]}, r: {shape: [4, 8, 6]}}\nover: [1]\nwhere: {d: x - r}\n"
        "formula: {y: d - m, m: amax(d), s: sum(exp(d))}\n",
        of_rows=(1, 2),
    ),
    "centred_of_groups": Case(
        lambda x: (x.mean((1, 2))[:, None], x - x.mean((1, 2), keepdim=True)),
        "inputs: {x: {shape: [4, 8, 6]}}\ninit: {groups: 1}\nover: ['1 / groups', ...]\n"
        "formula: {m: mean(x), y: x - m}\n",
        tensors=1,
        of_rows=(0,),
    ),
    "largest": Case(
        lambda x: (x * x.max(-1, True)[0], x.max(-1)[0]),
        "over: [-1]\nformula: {y: x * m, m: max(x)}\n",
        tensors=1,
        of_rows=(1,),
    ),
}  # fmt: skip


# the others have a row that takes the same path: two features, a map, rows that lie apart, and groups
TWICE = ("add_layer_norm", "rotary", "shifted_of_channels", "of_groups")
OF_EACH_PATH = [pytest.param(name, marks=pytest.mark.full) if name in TWICE else name for name in CASES]
EMULATED = [
    "add_rms_norm",
    "lstm_cell",
    "rotary",
    "moments",
    "layer_norm_statistics",
    "softmax_logsumexp",
    "largest",
]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    """The modules of the cases, each made once."""
    folder = tmp_path_factory.mktemp("results")

    @functools.cache
    def module(name: str) -> ModuleType:
        if CASES[name].body:
            return made(folder, name, CASES[name].body)
        return importlib.import_module(
            f"generated.{'results' if name in ('lstm_cell', 'rotary') else 'rows'}.{name}"
        )

    return module


def drawn(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """Return tensors that ask for gradients."""
    case, generator = CASES[name], torch.Generator().manual_seed(sum(shape))
    shapes = [shape] * case.tensors + [shape[-1:]] * case.features
    return [torch.randn(each, generator=generator).to(device, dtype).requires_grad_() for each in shapes]


def function(module: ModuleType, name: str) -> Any:
    """Return a module's function; of groups for one group."""
    return functools.partial(getattr(module, name), **{"groups": 1} if "of_groups" in name else {})


def assert_near(own: Tensor, exact: Tensor, times: float = 1) -> None:
    """Assert that results are as near as their dtype has them."""
    tolerance = times * TOLERANCES[own.dtype]
    torch.testing.assert_close(own.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.few(2)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 5, 9), (3, 4, 64)])
@pytest.mark.parametrize("name", CASES)
def test_values_and_the_gradient_of_all(
    modules: Callable[[str], ModuleType], name: str, shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> None:
    given = drawn(name, shape, dtype, device)
    wide = [t.detach().double().requires_grad_() for t in given]
    found, exact = function(modules(name), name)(*given), CASES[name].reference(*wide)
    incoming = [torch.randn_like(y) for y in found]
    for own, other in zip(found, exact, strict=True):
        assert own.shape == other.shape
        assert_near(own, other.detach(), 2)
    slopes = torch.autograd.grad(found, given, incoming)
    for own, other in zip(
        slopes, torch.autograd.grad(exact, wide, [g.double() for g in incoming]), strict=True
    ):
        assert_near(own, other, 32)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_a_result_that_nobody_uses_adds_nothing(modules: Callable[[str], ModuleType], name: str) -> None:
    given = drawn(name, (2, 3, 8), torch.float64)
    every = range(len(CASES[name].reference(*given)))
    for used in {*((k,) for k in every), *itertools.combinations(every, len(every) - 1)}:
        results = function(modules(name), name)(*given), CASES[name].reference(*given)
        own, other = (torch.stack([each[k].sin().sum() for k in used]).sum() for each in results)
        slopes = torch.autograd.grad(own, given)
        wanted = torch.autograd.grad(other, given, allow_unused=True)
        for got, right in zip(slopes, wanted, strict=True):
            torch.testing.assert_close(got, torch.zeros_like(got) if right is None else right)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", OF_EACH_PATH)
def test_derivatives_of_both_orders(modules: Callable[[str], ModuleType], name: str) -> None:
    given, called = drawn(name, (2, 2, 3), torch.float64), function(modules(name), name)
    assert torch.autograd.gradcheck(called, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(called, given)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", OF_EACH_PATH)
def test_transforms(modules: Callable[[str], ModuleType], name: str) -> None:
    case, called = CASES[name], function(modules(name), name)
    given = [t.detach() for t in drawn(name, (2, 3, 8), torch.float64)]
    stacked = [torch.stack([t, 2 * t]) for t in given]
    wanted = [
        torch.stack(pair) for pair in zip(called(*given), called(*(2 * t for t in given)), strict=True)
    ]
    for got, right in zip(torch.func.vmap(called)(*stacked), wanted, strict=True):
        assert torch.equal(got, right)
    along = torch.func.jvp(called, tuple(given), tuple(given))
    for got, right in zip(
        along[1], torch.func.jvp(case.reference, tuple(given), tuple(given))[1], strict=True
    ):
        torch.testing.assert_close(got, right)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["add_rms_norm", "lstm_cell", "layer_norm_statistics"])
def test_recorded_programs(modules: Callable[[str], ModuleType], name: str) -> None:
    module = modules(name)
    model = (module.ModelNew(8) if CASES[name].features else module.ModelNew()).double()
    given = tuple(t.detach() for t in drawn(name, (2, 3, 8), torch.float64))[: CASES[name].tensors]
    expected = model(*given)
    exported = torch.export.export(model, given).module()
    traced = torch.fx.symbolic_trace(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    programs: Any = (exported, traced, compiled)
    for program in programs:
        assert all(map(torch.equal, program(*given), expected))
    operators = module.KERNELS.operators
    tensors = [*given, *(p.detach() for p in model.parameters())]
    scalars = [1e-5] * module.KERNELS.signature.params
    for operator in (module.KERNELS.overload, getattr(operators, f"{name}_forward").default):
        torch.library.opcheck(operator, (*tensors, *scalars))


def test_given_tensors_are_a_tuple(modules: Callable[[str], ModuleType]) -> None:
    called = modules("add_rms_norm").add_rms_norm
    with torch.no_grad():
        given = drawn("add_rms_norm", (3, 8), torch.float32)
        out = torch.empty(0), torch.empty(3, 8)
        assert called(*given, out=out) is out
        assert all(map(torch.equal, out, called(*given)))
        with pytest.raises(TypeError, match="out is a tuple of 2 tensors, and 1 is given"):
            called(*given, out=out[0])
        with pytest.raises(RuntimeError, match="out has the shape"):
            called(*given, out=(out[0], torch.empty(2, 8)))


@pytest.mark.full
def test_what_no_kernel_takes(modules: Callable[[str], ModuleType]) -> None:
    norm, cell = modules("add_rms_norm").add_rms_norm, modules("lstm_cell").lstm_cell
    x = torch.randn(3, 8)
    for tensor in (x.to(torch.complex64), x.to("meta"), x[:0]):
        y, s = norm(tensor, tensor, tensor[0] if len(tensor) else x[0])
        assert (y.shape, s.shape, s.dtype) == (tensor.shape, tensor.shape, tensor.dtype)
    scalars = [torch.randn((), requires_grad=True) for _ in range(5)]
    for got, right in zip(cell(*scalars), lstm_cell(*scalars), strict=True):
        torch.testing.assert_close(got, right)
    shapes = ((4, 3), (3,), (4, 1), (1,), ())
    spread = [torch.randn(shape) for shape in shapes]
    for got, right in zip(cell(*spread), lstm_cell(*spread), strict=True):
        torch.testing.assert_close(got, right)
    mixed = norm(x.half(), x, x[0])
    assert [t.dtype for t in mixed] == [torch.float32] * 2


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(3, 8), (4, 33), (2, 300)])
@pytest.mark.parametrize("name", EMULATED)
def test_cuda_kernels_emulated(
    modules: Callable[[str], ModuleType], name: str, size: tuple[int, int], dtype: torch.dtype
) -> None:
    kernels, case = emulated(modules(name)), CASES[name]
    given = [t.detach() for t in drawn(name, size, dtype)]
    wide = [t.double().requires_grad_() for t in given]
    exact = case.reference(*wide)
    params = (1e-5 if "layer" in name else 1e-6,) * kernels.params
    for own, other in zip(kernels.values(given, params), exact, strict=True):
        assert_near(own.reshape(other.shape), other.detach(), 4)
    incoming = [torch.randn_like(y).to(dtype) for y in exact]
    grads = [g.reshape(len(g), -1) for g in incoming]
    run = kernels.summed if case.features else kernels.backward
    slopes = run([*grads, *(t[None] if t.dim() == 1 else t for t in given)], params)
    for own, other in zip(
        slopes, torch.autograd.grad(exact, wide, [g.double() for g in incoming]), strict=True
    ):
        assert_near(own.reshape(other.shape), other, 32)


@pytest.mark.full  # test_rows_emulated.py has those of one result
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_lie_apart_have_their_bits_emulated(
    modules: Callable[[str], ModuleType], dtype: torch.dtype
) -> None:
    kernels = emulated(modules("shifted_of_channels"))
    apart = [t.detach().movedim(1, -1) for t in drawn("shifted_of_channels", (2, 16, 50), dtype)]
    together = [t.contiguous() for t in apart]
    values = [kernels.values(laid) for laid in (apart, together)]
    slopes = [kernels.backward([*values[1], *laid]) for laid in (apart, together)]
    assert all(map(torch.equal, values[0] + slopes[0], values[1] + slopes[1]))


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.full  # test_rows.py compiles such a text
@pytest.mark.parametrize("name", ["add_rms_norm", "moments", "layer_norm_statistics"])
def test_cuda_text_compiles_without_a_warning(
    tmp_path: Path, modules: Callable[[str], ModuleType], name: str
) -> None:
    nvcc(tmp_path, name, modules(name).KERNELS.texts().cuda, *CUDA_FLAGS, "-ptx", "-arch=compute_90")


def test_a_map_of_one_result_is_a_formula(tmp_path: Path) -> None:
    module = made(
        tmp_path, "one", "where: {u: y * 2, w: 3}\nformula: {y: x + w}\n".replace("u: y * 2, ", "")
    )
    x = torch.randn(5)
    assert torch.equal(module.one(x), x + 3)


REFUSED = {
    "empty": ("formula: {}", "formula is empty"),
    "cycle": ("formula: {y: x + z, z: y + 1}", "'y' reads itself: y -> z -> y"),
    "through_a_step": ("where: {u: z}\nformula: {y: x, z: u}", "reads itself"),
    "a_number": ("formula: {y: x, z: 3}", "the result 'z' is one number, of no tensor"),
    "an_input": ("formula: {y: x, x: 2}", "'x' is already an input or a parameter"),
    "a_step": ("where: {u: x}\nformula: {y: u, u: 2 * x}", "'u' is already a named step"),
    "twice": ("formula: {y: x, y: x}", "the key 'y' is given twice"),
    "unknown": ("formula: {y: x, z: q}", "'q' is neither an input"),
    "a_condition": ("formula: {y: x, z: x > 1}", "a comparison stands where a number is expected"),
    "a_keyword": ("formula: {y: x, class: x}", "it is a keyword of Python"),
    "a_list": ("formula: {y: x, z: [x]}", "z should be a formula"),
    "reduced": ("formula: {y: mean(x), z: x}", "mean reduces the elements of a row"),
    "eager": ("formula: {y: x, z: exp(x)}\nnumerics: eager", "numerics: eager is not taken"),
    "reference": ("formula: {y: x, z: exp(x)}\nreference: torch.exp", "a reference is not taken"),
    "a_place": ("over: [-1]\nformula: {y: argmax(x), z: y}", "argmax is not taken by a spec with several"),
    "too_many": (
        "formula: {" + ", ".join(f"r{k}: x * {k}" for k in range(31)) + "}",
        "wrong has more than 31 tensors and results",
    ),
    "channels": (
        "over: [0, 2, ...]\nformula: {y: mean(x), z: x}",
        "over: [0, 2, ...] is not taken by a spec",
    ),
    "a_pooling": (
        "formula: {y: 'max_pool1d(x, 2)', z: x}",
        "a pooling is not taken by a spec with several",
    ),
    "reduction": ("over: [-1]\nreduction: sum\nformula: {y: sum(x), z: mean(x)}", "reduction: sum is not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_sentence_for_each_mistake(tmp_path: Path, name: str) -> None:
    body, sentence = REFUSED[name]
    with pytest.raises(SpecErrors) as error:
        made(tmp_path, "wrong", f"{body}\n")
    assert sentence in str(error.value)
    assert len(error.value.errors) == 1


def test_another_spec_cannot_call_one(tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(
        "name: pair\nsummary: A test.\nformula: {y: x, z: exp(x)}\n", encoding="utf-8"
    )
    with pytest.raises(SpecErrors, match="'pair' has several results"):
        made(tmp_path, "calling", "formula: 2 * pair(x)\n")


def test_commands_name_the_results(workshop: Workshop) -> None:
    workshop.file("specs/lstm_cell.yaml", (ROOT / "specs/results/lstm_cell.yaml").read_bytes())
    for words in (("explain", "lstm_cell"), ("list",)):
        text = workshop.run(*words).output
        assert "hidden" in text
        assert "cell" in text


def test_explain_names_what_is_stored_once_a_row(workshop: Workshop) -> None:
    path = "specs/rows/layer_norm_statistics.yaml"
    workshop.file("specs/layer_norm_statistics.yaml", (ROOT / path).read_bytes())
    forward, gradient = workshop.run("explain", "layer_norm_statistics").output.split("Gradient\n")
    assert "Stored once a row: mean, rstd" in forward
    assert "Loop 3" in gradient
    assert "Loop 4" not in gradient
