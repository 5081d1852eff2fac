"""Specs with rows: their language, their phases, and their kernels beside float64."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from kernels import load, with_runtime
from parsed import spec_file
from test_cuda_text import NVCC, nvcc
from torch import Tensor, nn

from fusegen.algebra.rows.phases import Schedule, schedule
from fusegen.algebra.rows.row_gradient import derive_rows
from fusegen.codegen.printers.notation import term
from fusegen.codegen.render import Binding
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.compiler.stages import real
from fusegen.core.row_dimensions import Over
from fusegen.errors import SpecErrors
from fusegen.language.library import Library
from fusegen.language.library import load as load_spec
from fusegen.project import build
from fusegen.runtime.flags import CUDA_FLAGS

F = nn.functional
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
GPU = pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])
BATCH_NORM = "layers: [bn: 'BatchNorm1d(1024, affine=False)']\nover: [-1]\n"
NORM = (
    "init: {features: 1024}\n"
    "layers: [weight: Parameter(ones(features)), bias: Parameter(zeros(features))]\n"
)


@dataclass(frozen=True)
class Case:
    """A spec with rows, what it computes by PyTorch, and the numbers of its tensors."""

    body: str  # of the spec
    reference: Callable[..., Tensor]  # of the same tensors
    features: int = 0  # of one row for all
    others: int = 0  # of the shape of the first one, besides it


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


CASES = {
    "softmax": Case(
        "over: [-1]\nwhere: {w: exp(x - detach(amax(x)))}\nformula: w / sum(w)\n",
        lambda x: torch.softmax(x, -1),
    ),
    "log_softmax": Case(
        "over: [-1]\nformula: log_softmax(x)\n", lambda x: torch.log_softmax(x, -1)
    ),
    "softmax_of_a_chain": Case(
        "over: [-1]\nparams: {scale: 4}\nformula: softmax(scale * tanh(x))\n",
        lambda x: torch.softmax(4 * torch.tanh(x), -1),
    ),
    "layer_norm": Case(
        f"{NORM}params: {{eps: 1.0e-5}}\nover: [-1]\nwhere: {{d: x - mean(x)}}\n"
        "formula: d * rsqrt(mean(d * d) + eps) * weight + bias\n",
        layer_norm,
        features=2,
    ),
    "logsumexp": Case("over: [-1]\nformula: logsumexp(x)\n", lambda x: torch.logsumexp(x, -1)),
    "mean_of_silu": Case(
        "inputs: {x: {shape: [8, 4, 5, 6]}}\nover: [-2, -1]\nchain: [silu, mean]\n",
        lambda x: F.silu(x).mean((-2, -1)),
    ),
    "spread": Case(
        "inputs: {x: {shape: [8, 30]}, r: {shape: [8, 30]}}\nover: [1, ...]\n"
        "formula: (x + r) / (amax(x + r) - amin(x + r)) * std(x, correction=1)\n",
        lambda x, r: (x + r)
        / ((x + r).flatten(1).amax(1) - (x + r).flatten(1).amin(1)).reshape(-1, *[1] * (x.dim() - 1))
        * x.flatten(1).std(1).reshape(-1, *[1] * (x.dim() - 1)),
        others=1,
    ),
}  # fmt: skip
SHAPES = ((7, 33), (3, 4, 128), (2, 3, 40, 24), (5, 4100), (300, 16), (2, 1))
BOUNDS = {torch.float32: 0.51, torch.bfloat16: 1.0, torch.float16: 1.0}  # in ulp
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def made(folder: Path, name: str, body: str) -> ModuleType:
    """Return the module of a spec with rows."""
    spec = spec_file(folder, name, body)
    [(_, found)] = build.built({spec: Binding.STABLE}, folder).items()
    module = with_runtime(folder) / f"{name}.py"
    module.write_text(found.text, encoding="utf-8")
    return load(module)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    folder = tmp_path_factory.mktemp("rows")
    return functools.cache(lambda name: made(folder, name, CASES[name].body))


def tensors(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """Return tensors of both signs for a case, which ask for gradients."""
    case = CASES[name]
    torch.manual_seed(3)
    shapes = [shape, *[shape] * case.others, *[shape[-1:]] * case.features]
    return [(torch.randn(each, device=device) * 2 + 1).to(dtype).requires_grad_() for each in shapes]


def fits(name: str, shape: tuple[int, ...]) -> bool:
    """Return True if a case takes tensors of a shape."""
    return (len(shape) > 2 or name != "mean_of_silu") and (
        shape[-1] > 1 or name not in ("spread", "layer_norm")
    )


def ulps(actual: Tensor, exact: Tensor) -> float:
    """Return the largest error in units of the last place of the exact values."""
    info = torch.finfo(actual.dtype)
    unit = torch.exp2(torch.floor(torch.log2(exact.abs().clamp_min(info.tiny)))) * info.eps
    return float(((actual.double() - exact).abs() / unit).max())


def assert_near_float64(function: Callable[..., Tensor], case: Case, given: list[Tensor]) -> Tensor:
    """The value of a case, which is near PyTorch's in float64, as the gradients are."""
    dtype, exact = given[0].dtype, [t.detach().double().requires_grad_() for t in given]
    value, expected = function(*given), case.reference(*exact)
    assert (value.shape, value.dtype) == (expected.shape, dtype)
    where = given[0].shape, dtype
    if dtype is torch.float64:  # in which PyTorch is no more exact
        torch.testing.assert_close(value, expected, rtol=1e-13, atol=1e-13)
    else:
        assert ulps(value.detach(), expected.detach()) <= BOUNDS[dtype], where
    grad = torch.randn(value.shape, device=value.device).to(dtype)
    own = torch.autograd.grad(value, given, grad)
    wanted = torch.autograd.grad(expected, exact, grad.double())
    most = 1.01 * torch.finfo(dtype).eps * (16 if dtype is torch.float64 else 1)
    for mine, right in zip(own, wanted, strict=True):
        error = (mine.double() - right).abs().max() / right.abs().max().clamp_min(1e-30)
        assert error <= most, where
    return value


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_beside_float64(modules: Any, name: str, device: str) -> None:
    for shape in filter(functools.partial(fits, name), SHAPES):
        for dtype in DTYPES:
            given = tensors(name, shape, dtype, device)
            assert_near_float64(getattr(modules(name), name), CASES[name], given)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_a_row_has_the_same_bits_in_any_call(modules: Any, name: str, device: str) -> None:
    function = getattr(modules(name), name)
    for columns in (96, 97, 4096):
        first, *others = (t.detach() for t in tensors(name, (40, columns), torch.float32, device))
        whole = function(first, *others)
        assert torch.equal(function(first[17:18], *others), whole[17:18])
        apart = torch.zeros(40, columns + 5, device=device)[:, 1 : columns + 1].copy_(first)
        assert torch.equal(function(apart, *others), whole)
        turned = first.t().contiguous().t()
        assert torch.equal(function(turned, *others), whole)
        assert torch.equal(function(first.reshape(5, 8, columns), *others).reshape(40, columns), whole)


# Lengths that lanes, blocks, clusters and none of them hold, of whole vectors and not.
LENGTHS = (8, 120, 130, 512, 700, 1023, 2056, 3000, 8192, 8200, 16392, 33333, 70000, 150016, 500000)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.full), GPU])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_of_any_length(modules: Any, name: str, device: str) -> None:
    function = getattr(modules(name), name)
    for length in LENGTHS:
        for dtype in (torch.float32, torch.bfloat16):
            given = tensors(name, (3, length), dtype, device)
            value = assert_near_float64(function, CASES[name], given)
            with torch.no_grad():
                assert torch.equal(function(given[0][1:2], *given[1:]), value[1:2]), (length, dtype)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_16_bit_terms_that_cancel(modules: Any, device: str) -> None:
    """Layer norm whose bias takes away all but some last digits of its product."""
    function = modules("layer_norm").layer_norm
    torch.manual_seed(4)
    for dtype, bits in ((torch.bfloat16, 8), (torch.float16, 11)):
        x = torch.randn(64, 256, device=device).to(dtype)
        ones = torch.ones(256, device=device, dtype=dtype)
        normed = layer_norm(x.double(), ones.double(), torch.zeros_like(ones).double())
        for row in range(4):
            bias = -normed[row].to(dtype)
            exact = layer_norm(x.double(), ones.double(), bias.double())[row]
            assert (exact.abs() <= 2.0**-bits * normed[row].abs()).all()
            assert ulps(function(x, ones, bias)[row], exact) <= 1


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_gradients_of_one_row_for_all_are_sums_over_the_rows(modules: Any, device: str) -> None:
    module = modules("layer_norm")
    for rows, columns in ((1, 64), (3, 20), (700, 260), (2, 5000)):
        x, weight, bias = tensors("layer_norm", (rows, columns), torch.float32, device)
        grad = torch.randn(rows, columns, device=device)
        own = torch.autograd.grad(module.layer_norm(x, weight, bias), (weight, bias), grad)
        again = torch.autograd.grad(module.layer_norm(x, weight, bias), (weight, bias), grad)
        whole = torch.autograd.grad(
            module.layer_norm(x, weight.expand_as(x), bias.expand_as(x)), (weight, bias), grad
        )
        for mine, twice, other in zip(own, again, whole, strict=True):
            assert mine.shape == (columns,)
            assert torch.equal(mine, twice)
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


OPERANDS = {"spread": ((20,), (6, 1), (1,), ()), "layer_norm": ((6, 20), (1, 20), (6, 1), ())}


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", [pytest.param("spread", marks=pytest.mark.full), "layer_norm"])
def test_operands_of_other_shapes_than_declared(modules: Any, name: str, device: str) -> None:
    """An operand that is declared whole may have one row for all, and the other way round."""
    function, eager = getattr(modules(name), name), modules(name).KERNELS.eager
    more = (1e-5,) if name == "layer_norm" else ()
    for shape in OPERANDS[name]:
        shapes = [(6, 20), shape, *[(20,)] * (CASES[name].features - 1)]
        given = [(torch.randn(s, device=device) * 2 + 1).requires_grad_() for s in shapes]
        exact = [t.detach().double().requires_grad_() for t in given]
        value, expected = function(*given), eager(*exact, *more)
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)
        own = torch.autograd.grad(value.square().sum(), given)
        wanted = torch.autograd.grad(expected.square().sum(), exact)
        for mine, right in zip(own, wanted, strict=True):
            torch.testing.assert_close(mine.double(), right, rtol=1e-5, atol=1e-4)


def test_a_sum_that_no_kernel_has_is_refused(modules: Any) -> None:
    kernels = modules("layer_norm").KERNELS
    x, row = torch.randn(6, 20), torch.randn(20)
    sentence = "layer_norm: a gradient is a sum over the rows, and another one is not; expand the tensor"
    with pytest.raises(RuntimeError, match=sentence):
        kernels.backward(x, x, x, row, 1e-5)
    with pytest.raises(RuntimeError, match="layer_norm: a gradient is a sum over some of the rows; expand"):
        kernels.backward(x.expand(3, 6, 20), x.expand(3, 6, 20), x[:3, None], row, 1e-5)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_special_rows(modules: Any, device: str) -> None:
    softmax, logsumexp = modules("softmax").softmax, modules("logsumexp").logsumexp
    inf, nan = torch.inf, torch.nan
    rows = torch.tensor(
        [[nan, 1, 2], [inf, 1, 2], [-inf, 1, 2], [-inf] * 3, [3e38, -3e38, 0], [1e30] * 3], device=device
    )
    torch.testing.assert_close(softmax(rows), torch.softmax(rows, -1), equal_nan=True)
    torch.testing.assert_close(logsumexp(rows), torch.logsumexp(rows, -1), equal_nan=True)
    constant = torch.full((2, 37), 0.1, device=device, dtype=torch.bfloat16)
    ones = torch.ones(37, device=device, dtype=torch.bfloat16)
    assert not modules("layer_norm").layer_norm(constant, ones, torch.zeros_like(ones)).any()
    huge = torch.randn(2, 64, device=device) * 1e30
    weights = torch.ones(64, device=device), torch.zeros(64, device=device)
    exact = layer_norm(huge.double(), *(w.double() for w in weights)).float()
    torch.testing.assert_close(modules("layer_norm").layer_norm(huge, *weights), exact)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_rows_whose_squares_leave_floats_range(modules: Any, device: str) -> None:
    """Of bfloat16, whose elements are computed in float."""
    function = modules("layer_norm").layer_norm
    x, *weights = tensors("layer_norm", (5, 300), torch.float64)
    with torch.no_grad():
        x *= torch.tensor([1e30, 1, 1e25, 1e-25, 1e19])[:, None]
    given = [t.detach().to(device, torch.bfloat16).requires_grad_() for t in (x, *weights)]
    exact = [t.detach().double().requires_grad_() for t in given]
    y, expected = function(*given), layer_norm(*exact)
    grad = torch.randn_like(y)
    (of_x, *_), (exact_x, *_) = (
        torch.autograd.grad(made, to, grad.to(made.dtype)) for made, to in ((y, given), (expected, exact))
    )
    for own, wanted in ((y, expected), (of_x, exact_x)):
        torch.testing.assert_close(own, wanted.to(torch.bfloat16), rtol=2**-8, atol=1e-38)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_empty_tensors(modules: Any, device: str) -> None:
    assert modules("softmax").softmax(torch.empty(0, 5, device=device)).shape == (0, 5)
    assert modules("softmax").softmax(torch.empty(3, 0, device=device)).shape == (3, 0)
    assert modules("logsumexp").logsumexp(torch.empty(0, 5, device=device)).shape == (0,)
    x, weight, bias = (torch.empty(s, device=device).requires_grad_() for s in ((0, 5), (5,), (5,)))
    modules("layer_norm").layer_norm(x, weight, bias).sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "logsumexp"])
def test_at_home_in_pytorch(modules: Any, name: str) -> None:
    module, reference = modules(name), CASES[name].reference
    function = getattr(module, name)
    given = tensors(name, (4, 6), torch.float64)
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)
    plain = [t.detach() for t in given]
    torch.testing.assert_close(torch.func.jacrev(function)(*plain), torch.func.jacrev(reference)(*plain))
    torch.testing.assert_close(torch.func.jacfwd(function)(*plain), torch.func.jacfwd(reference)(*plain))
    batch = torch.randn(3, 4, 6, dtype=torch.float64)
    over = (0, *[None] * (len(plain) - 1))
    torch.testing.assert_close(torch.vmap(function, over)(batch, *plain[1:]), reference(batch, *plain[1:]))
    gradient = torch.func.grad(lambda *t: function(*t).square().sum(), tuple(range(len(plain))))
    wanted = torch.func.grad(lambda *t: reference(*t).square().sum(), tuple(range(len(plain))))
    torch.testing.assert_close(
        torch.vmap(gradient, over)(batch, *plain[1:]), torch.vmap(wanted, over)(batch, *plain[1:])
    )
    out = torch.empty(0, dtype=torch.float64)
    assert torch.equal(function(*plain, out=out), function(*plain))
    assert out.shape == reference(*plain).shape


@pytest.mark.full
@pytest.mark.parametrize("formula", ["x / sum(x * x)", "sum(x * x)"])
def test_a_batch_of_what_has_rows_from_a_dimension_on(tmp_path: Path, formula: str) -> None:
    """A further dimension in front moves the row, so that PyTorch's operations run."""
    body = f"inputs: {{x: {{shape: [8, 30]}}}}\nover: [1, ...]\nformula: {formula}\n"
    function = made(tmp_path, "counted", body).counted
    batch = torch.randn(3, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(function)(batch), torch.stack([function(x) for x in batch]))
    gradient = torch.func.grad(lambda x: function(x).sum())
    torch.testing.assert_close(torch.vmap(gradient)(batch), torch.stack([gradient(x) for x in batch]))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "logsumexp"])
def test_under_torch_compile(modules: Any, name: str) -> None:
    function = getattr(modules(name), name)
    compiled = torch.compile(lambda *t: function(*t) * 2, fullgraph=True, backend="aot_eager")
    given = tensors(name, (4, 6), torch.float32)
    turned = [given[0].detach().t().contiguous().t().requires_grad_(), *given[1:]]
    for each in (given, turned):
        own, wanted = compiled(*each), function(*each) * 2
        assert torch.equal(own, wanted)
        assert own.stride() == wanted.stride()
        grads = torch.autograd.grad(own.sum(), each), torch.autograd.grad(wanted.sum(), each)
        torch.testing.assert_close(*grads)


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["softmax", pytest.param("layer_norm", marks=pytest.mark.full)])
def test_cuda_text_compiles_without_a_warning(tmp_path: Path, name: str) -> None:
    module = made(tmp_path, name, f"dtypes: [float32, bfloat16]\n{CASES[name].body}")
    nvcc(tmp_path, name, module.KERNELS.texts().cuda, *CUDA_FLAGS, "-ptx", "-arch=compute_90")


def test_what_is_no_plain_tensor_runs_by_pytorch(modules: Any) -> None:
    softmax = modules("softmax").softmax
    x = torch.randn(3, 5)
    torch.testing.assert_close(softmax(x.to(torch.complex64).real.double()), torch.softmax(x.double(), -1))
    assert softmax(x.to("meta")).shape == (3, 5)
    torch.testing.assert_close(modules("layer_norm").layer_norm(x, x[0].double(), x[1]).shape, x.shape)


def phases(of: Schedule) -> list[str]:
    """Return the loops of a schedule, in words."""
    return [
        f"{fold.name} {term(result)}"
        for phase in of.phases
        for fold, result in zip(phase.folds, phase.elements.results, strict=False)
    ]


LOOPS = {
    "softmax": (["amax x", "sum w"], ["amax x", "sum w", "sum grad · w"]),
    "layer_norm": (
        ["sum x", "sum mean_input"],
        ["sum x", "sum grad_t3", "sum mean_input", "sum grad_t3 · d"],
    ),
    "logsumexp": (["amax x", "sum exp(x - of_row)"], ["amax x", "sum t4"]),
    "mean_of_silu": (["sum after_silu"], []),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_fold_runs_as_soon_as_what_it_reads_is_there(tmp_path: Path, name: str) -> None:
    path = spec_file(tmp_path, name, CASES[name].body)
    spec = load_spec(path)
    program = real(spec, Library(tmp_path))
    forward = schedule(program)
    assert (phases(forward), phases(schedule(derive_rows(program, [forward.stored])))) == LOOPS[name]


ALIKE = "what sum reduces is the same for all elements of a row"
NO_ROW = "are no row: neighbouring dimensions of the first input, in their order"
KEPT = "keepdim is of values of rows"
NORM = (
    "layers: [conv: 'Conv2d(3, 4, 3)', norm: 'GroupNorm(2, 4)']\n"
    "inputs: {x: {shape: [2, 3, 8, 8]}}\nover: [2, ...]\n"
)
WRONG = {
    "over: []\nformula: sum(x)": "over is empty",
    "over: [1, 0]\nformula: sum(x)": f"[1, 0] {NO_ROW}",
    "over: [-1, -2]\nformula: sum(x)": f"[-1, -2] {NO_ROW}",
    "over: [0, 2]\nformula: sum(x)": f"[0, 2] {NO_ROW}",
    "over: [-1, 0]\nformula: sum(x)": f"[-1, 0] {NO_ROW}",
    "over: [2]\nformula: sum(x)": f"2 of the shape [1024, 1024] {NO_ROW}",
    "over: [-3]\nformula: sum(x)": f"-3 of the shape [1024, 1024] {NO_ROW}",
    "over: [one]\nformula: sum(x)": "a dimension of over should be a whole number",
    "over: [5, ...]\nformula: x / sum(x)": f"5 and those behind it of the shape [1024, 1024] {NO_ROW}",
    "formula: x / sum(x)": "sum reduces the elements of a row, and this spec has no rows",
    "over: [-1]\nparams: {a: 2}\nformula: x * sum(a)": ALIKE,
    "over: [-1]\nformula: x - mean(amax(x))": ALIKE,
    "over: [-1]\nformula: x / var(x)": "var takes 2 arguments, but 1 is given",
    "over: [-1]\nformula: x / sum(x, y=2)": "sum has no argument 'y'",
    "keepdim: true\nformula: x + 1": f"{KEPT}: this spec has no rows",
    "over: [-1]\nkeepdim: true\nformula: softmax(x)": f"{KEPT}: the formula has a value for each element",
    f"{NORM}formula: x * along(norm.weight, 1)": "formulas read 'norm' without its bias",
    f"{BATCH_NORM}formula: mean(x) * bn.eps": "'bn', a BatchNorm1d, has statistics of a batch",
    "over: [-1]\nnumerics: eager\nformula: x / sum(x)": "numerics: eager is not taken by a spec with rows",
}


@pytest.mark.parametrize(("body", "message"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_no_spec_with_rows(tmp_path: Path, body: str, message: str) -> None:
    path = spec_file(tmp_path, "wrong", body)
    with pytest.raises(SpecErrors) as caught:
        build.built({path: Binding.STABLE}, tmp_path)
    assert [error.message for error in caught.value.errors] == [message]


def test_specs_with_rows_name_each_other(tmp_path: Path) -> None:
    body = "inputs: {x: {shape: [8, 30]}}\nover: [-1]\nformula: x - mean(x)\n"
    spec_file(tmp_path, "centred", body)
    module = made(tmp_path, "twice", "inputs: {x: {shape: [8, 30]}}\nover: [-1]\nformula: centred(x) * 2\n")
    x = torch.randn(3, 5)
    torch.testing.assert_close(module.twice(x), 2 * (x - x.mean(-1, keepdim=True)))
    with pytest.raises(SpecErrors) as caught:
        made(
            tmp_path,
            "other",
            "inputs: {x: {shape: [8, 30]}}\nover: [0, ...]\nformula: centred(x) * sum(x)\n",
        )
    assert caught.value.errors[0].message == "'centred' reduces other dimensions than this spec"


@pytest.mark.parametrize(
    ("over", "text"),
    [
        (Over(-1), "over: [-1]"),
        (Over(-2), "over: [-2, -1]"),
        (Over(1), "over: [1, ...]"),
        (Over(0), "over: [...]"),
        (Over(1, 1), "over: [1]"),
        (Over(0, 2), "over: [0, 1]"),
        (Over(-3, 2), "over: [-3, -2]"),
    ],
)
def test_dimensions_as_a_spec_declares_them(tmp_path: Path, over: Over, text: str) -> None:
    path = tmp_path / "sums.yaml"
    body = f"inputs: {{x: {{shape: [2, 3, 4]}}}}\n{text}\nformula: sum(x)\n"
    path.write_text(f"name: sums\nsummary: A test.\n{body}", encoding="utf-8")
    spec = load_spec(path)
    assert (spec.over, str(spec.over)) == (over, text)


EXPLAINED = """\
centred: A test.

Forward

Loop 1 over the elements of a row

    row_sum = sum(x)

Behind it, once a row

    m = row_sum · row_share

Loop 2 over the elements of a row

    y = (x - m) · w

Gradient

Loop 1 over the elements of a row

    grad_t = grad · w
    row_sum = sum(x)
    row_sum1 = sum(grad_t)

Behind it, once a row

    m = row_sum · row_share
    of_row = -(row_sum1 · row_share)

Loop 2 over the elements of a row

    grad_t = grad · w
    gradient of x = grad_t + of_row
    gradient of w = grad · (x - m)

row_length is the number of elements of a row, and row_share its inverse.
Sums are added in an order that the length of a row decides: it has the same bits in any batch.
"""


def test_explain_shows_the_loops_of_a_spec_with_rows(workshop: Workshop) -> None:
    workshop.spec(
        "centred", "over: [-1]\ninputs: {x: {}, w: {}}\nwhere: {m: mean(x)}\nformula: (x - m) * w"
    )
    assert workshop.run("explain", "centred").output == EXPLAINED
    loops = [json.loads(line) for line in workshop.run("explain", "centred", "--json").output.splitlines()]
    assert [(each["part"], each["number"]) for each in loops[1:]] == [
        ("Forward", 1), ("Forward", 2), ("Gradient", 1), ("Gradient", 2),
    ]  # fmt: skip
    assert loops[1]["steps"] == {"row_sum": "sum(x)"}
    picture = workshop.run("explain", "centred", "--plot", "errors.svg")
    assert "'centred' reduces rows, and this takes formulas of elements" in picture.output


@pytest.mark.parametrize("name", CASES)
def test_every_spec_with_rows_is_explained(name: str, workshop: Workshop) -> None:
    """The last loop of the gradient stores one for each tensor, layers' parameters included."""
    workshop.spec("it", CASES[name].body)
    explained = workshop.run("explain", "it", "--json").output.splitlines()
    loops = [loop for loop in map(json.loads, explained) if loop["kind"] == "loop"]
    stored = {name for loop in loops for name in loop["stored"]}
    of = build.compiled_either(Path("specs/it.yaml"))
    assert isinstance(of, CompiledRows)
    tensors = of.schedules.forward.inputs
    assert stored == {"y", *(f"gradient of {tensor}" for tensor in tensors)}


@pytest.mark.full
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_bench_checks_and_times_rows(name: str, workshop: Workshop) -> None:
    workshop.build(name, CASES[name].body)
    few = ("--shape", "6x1024", "--no-compile", "--backward", "--seconds", "0.01")
    workshop.done("bench", name, *few, "--json", "times.jsonl")
    cases = [json.loads(line) for line in Path("times.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    said = {(each["case"]["what"], row["who"]): row["said"] for each in cases for row in each["rows"]}
    assert said == {
        (what, who): "" for what in ("forward", "backward") for who in ("copy", "eager", "fusegen")
    }


def test_the_commands_that_take_rows(workshop: Workshop) -> None:
    workshop.build("softmax", CASES["softmax"].body)
    assert workshop.run("check").output == "1 module is what its spec says, without a certificate\n"
    text = Path("generated/softmax.py").read_text(encoding="utf-8")
    assert workshop.run("show", "softmax").output == text
    assert "FUSEGEN_SAVING_KERNELS(softmax)" in workshop.run("show", "softmax", "--stage", "cuda").output
    told = workshop.refused("show", "softmax", "--stage", "plan")
    assert "'softmax' reduces rows, and this takes formulas of elements" in told
