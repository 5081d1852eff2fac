"""Specs with a scan, or the place of an element: their language, and their kernels beside float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from rows_emulated import emulated
from test_cuda_text import NVCC, nvcc
from test_rows import GPU, made
from test_windows import assert_near, assert_taken_by_torch, exact_of
from torch import Tensor, nn

from fusegen.errors import FusegenError, SpecErrors
from fusegen.project import build
from fusegen.runtime.flags import CUDA_FLAGS

F = nn.functional
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Case:
    """A spec with a scan, what it computes by PyTorch, and the shapes of its tensors."""

    body: str  # of the spec
    reference: Callable[..., Tensor]  # of the same tensors
    others: int = 0  # of the shape of the first one, besides it
    dim: int = -1  # of the rows


def before(x: Tensor, dim: int, none: float) -> Tensor:
    """The elements of rows, each in the place of the next one."""
    first = torch.full_like(x.narrow(dim, 0, min(1, x.shape[dim])), none)
    return torch.cat([first, x.narrow(dim, 0, max(x.shape[dim] - 1, 0))], dim)


def reversed_(function: Callable[[Tensor], Tensor], x: Tensor, dim: int = -1) -> Tensor:
    return function(x.flip(dim)).flip(dim)


TWO = "inputs: {x: {shape: [4, 30]}, w: {shape: [4, 30]}}\n"
CASES = {
    "cumsum": Case("over: [-1]\nformula: cumsum(x)\n", lambda x: x.cumsum(-1)),
    "cumsum_back": Case(
        "over: [-1]\nchain: ['cumsum(reverse=True)']\n", lambda x: reversed_(lambda u: u.cumsum(-1), x)
    ),
    "cumsum_before": Case(
        "over: [-1]\nformula: cumsum(x, exclusive=True)\n", lambda x: before(x, -1, 0).cumsum(-1)
    ),
    "cumprod": Case("over: [-1]\nformula: cumprod(x)\n", lambda x: x.cumprod(-1)),
    "cumprod_behind": Case(
        "over: [-1]\nformula: cumprod(x, reverse=True, exclusive=True)\n",
        lambda x: reversed_(lambda u: before(u, -1, 1).cumprod(-1), x),
    ),
    "chain": Case(
        f"{TWO}over: [-1]\nparams: {{scale: 2}}\nformula: gelu(cumsum(scale * tanh(x)) - w) * x\n",
        lambda x, w: F.gelu((2 * torch.tanh(x)).cumsum(-1) - w) * x,
        others=1,
    ),
    "product_of_a_chain": Case(
        f"{TWO}over: [-1]\nformula: tanh(cumprod(1 + x * w / 8))\n",
        lambda x, w: torch.tanh((1 + x * w / 8).cumprod(-1)),
        others=1,
    ),
    "masked": Case(
        "inputs: {x: {shape: [4, 30]}, m: {shape: [4, 30], dtype: bool}}\nover: [-1]\n"
        "formula: cumsum(where(m, x, 0))\n",
        lambda x, m: (x * m).cumsum(-1),
        others=1,
    ),
    "columns": Case(
        "inputs: {x: {shape: [4, 30, 5]}}\nover: [1]\nchain: [sigmoid, cumsum]\n",
        lambda x: torch.sigmoid(x).cumsum(1),
        dim=1,
    ),
    "columns_before": Case(
        "inputs: {x: {shape: [4, 30, 5]}}\nover: [1]\nformula: exp(-cumprod(x, exclusive=True))\n",
        lambda x: torch.exp(-before(x, 1, 1).cumprod(1)),
        dim=1,
    ),
}  # fmt: skip
PLACES = {
    "largest": Case("over: [-1]\nformula: argmax(x)\n", lambda x: x.argmax(-1)),
    "smallest_size": Case("over: [-1]\nchain: [abs, argmin]\n", lambda x: x.abs().argmin(-1)),
    "largest_of_columns": Case(
        "inputs: {x: {shape: [4, 30, 5]}}\nover: [1]\nformula: argmax(x)\n", lambda x: x.argmax(1), dim=1
    ),
}
BOUNDS = {torch.float32: 0.51, torch.bfloat16: 0.51, torch.float16: 0.51, torch.float64: 4096.0}  # in ulp
LENGTHS = (1, 2, 7, 30, 130, 1000, 4100)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    """The modules of the cases, each made once."""
    folder = tmp_path_factory.mktemp("scans")
    return functools.cache(lambda name: made(folder, name, {**CASES, **PLACES}[name].body))


def shape_of(case: Case, length: int) -> tuple[int, ...]:
    return (3, length, 4) if case.dim == 1 else (2, 5, length)


def drawn(name: str, length: int, dtype: torch.dtype) -> list[Tensor]:
    """Numbers about 1 in size, some of which are equal and few 0; masks where a case has one."""
    case = {**CASES, **PLACES}[name]
    generator = torch.Generator().manual_seed(length)
    shapes = [shape_of(case, length)] * (1 + case.others)
    first, *others = (torch.randn(s, generator=generator).mul(8).round().add(0.25).div(8) for s in shapes)
    return [first.to(dtype), *(t > 0 if name == "masked" else t.to(dtype) for t in others)]


def differentiated(function: Callable[..., Tensor], tensors: list[Tensor], grad: Tensor) -> list[Tensor]:
    """A value and the gradients."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    value = function(*leaves)
    return [value.detach(), *torch.autograd.grad(value, [t for t in leaves if t.requires_grad], grad)]


@pytest.mark.few(2)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_those_of_pytorch(
    modules: Any, name: str, dtype: torch.dtype, device: str
) -> None:
    module, case = modules(name), CASES[name]
    for length in LENGTHS:
        tensors = [t.to(device) for t in drawn(name, length, dtype)]
        exact, grad, slopes = exact_of(case, tensors)
        found = differentiated(getattr(module, name), tensors, grad)
        assert found[0].dtype == dtype
        for own, other in zip(found, (exact, *slopes), strict=True):
            assert_near(own, other, BOUNDS[dtype])


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", PLACES)
def test_places_are_those_of_pytorch(modules: Any, name: str, device: str) -> None:
    """The first of equal elements, and the first NaN before all others."""
    module, case = modules(name), PLACES[name]
    for dtype in DTYPES:
        for length in LENGTHS:
            x = drawn(name, length, dtype)[0].to(device)
            nan = x.clone()
            nan.view(-1)[3::7] = torch.nan
            for given in (x, nan, torch.full_like(x, -torch.inf), torch.zeros_like(x)):
                made = getattr(module, name)(given)
                assert made.dtype == torch.int64
                assert torch.equal(made, case.reference(given))


def whole(case: Case, tensors: list[Tensor]) -> list[Tensor]:
    """Tensors as kernels take them: rows last, masks as numbers."""
    return [t.to(tensors[0].dtype).movedim(case.dim, -1) for t in tensors]


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_cuda_text_computes_the_same(modules: Any, name: str, dtype: torch.dtype) -> None:
    """Rows of a warp, of a block, of several tiles; vectors, single elements, and elements apart."""
    case, kernels = CASES[name], emulated(modules(name))
    params = (2.0,) * modules(name).KERNELS.signature.params
    for length in (1, 7, 40, 500, 1000, 2500):
        tensors = [t[:1] for t in drawn(name, length, dtype)]
        exact, grad, slopes = exact_of(case, tensors)
        given = whole(case, tensors)
        assert_near(kernels.forward(given, params), exact.movedim(case.dim, -1), BOUNDS[dtype])
        made = kernels.backward([grad.movedim(case.dim, -1), *given], params)
        for own, other in zip(made, slopes, strict=False):
            assert_near(own, other.movedim(case.dim, -1), BOUNDS[dtype])


@pytest.mark.full
@pytest.mark.parametrize("name", PLACES)
def test_cuda_text_finds_the_same_places(modules: Any, name: str) -> None:
    case, kernels = PLACES[name], emulated(modules(name))
    for dtype in (torch.float32, torch.float16):
        for length in (1, 7, 40, 1000, 2500):
            (x,) = drawn(name, length, dtype)
            nan = x.clone()
            nan.view(-1)[3::7] = torch.nan
            for given in (x, nan, torch.full_like(x, torch.inf)):
                made = kernels.forward(whole(case, [given])).squeeze(-1)
                assert torch.equal(made, case.reference(given))


@pytest.mark.full
@pytest.mark.parametrize("name", ["product_of_a_chain", "chain"])
def test_rows_of_more_tiles_than_are_kept(modules: Any, name: str) -> None:
    """The first scan begins again for each lot of tiles."""
    kernels = emulated(modules(name), ("KEPT = 1024", "KEPT = 2"))
    params = (2.0,) * modules(name).KERNELS.signature.params
    tensors = [t[:1, :1] for t in drawn(name, 2048 * 4 + 100, torch.float32)]
    _, grad, slopes = exact_of(CASES[name], tensors)
    for own, other in zip(kernels.backward([grad, *tensors], params), slopes, strict=True):
        assert_near(own, other, 0.51)


@pytest.mark.full
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["product_of_a_chain", "largest_of_columns"])
def test_cuda_text_compiles_without_a_warning(modules: Any, name: str, tmp_path: Path) -> None:
    nvcc(tmp_path, name, modules(name).KERNELS.texts().cuda, *CUDA_FLAGS, "-ptx", "-arch=compute_90")


@pytest.mark.full
def test_zeros_and_special_values_have_gradients_of_pytorch(modules: Any) -> None:
    """No element is divided by: of no zero, one or more, NaN, and infinities of both signs."""
    rows = [
        [0.5, 2.0, -3.0, 4.0], [0.5, 0.0, -3.0, 4.0], [0.0, 2.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0],
        [torch.nan, 2.0, 3.0, 1.0], [1.0, 0.0, torch.nan, 2.0], [1.0, torch.inf, 3.0, 2.0],
        [0.0, torch.inf, 1.0, 2.0], [1.0, 2.0, -torch.inf, 0.0], [-0.0, 1.0, 2.0, 3.0],
    ]  # fmt: skip
    for name in ("cumprod", "cumprod_behind"):
        x = torch.tensor(rows)
        x = x[x.isfinite().all(-1)] if name == "cumprod_behind" else x
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        made, eager = getattr(modules(name), name)(ours), CASES[name].reference(theirs)
        torch.testing.assert_close(made, eager, equal_nan=True)
        grad = torch.tensor([1.5, -2.0, 0.5, 1.0]).expand_as(x)
        own, other = (torch.autograd.grad(y, t, grad)[0] for y, t in ((made, ours), (eager, theirs)))
        torch.testing.assert_close(own, other, equal_nan=True)


def test_a_long_product_leaves_no_range_of_float(modules: Any) -> None:
    """Of factors that overflow float on the way, and of many that double has."""
    x = torch.tensor([[1e30, 1e30, 1e-30, 1e-30, 1e-30]]).requires_grad_()
    value = modules("cumprod").cumprod(x)
    assert value.tolist() == [[x[0, 0].item(), torch.inf, x[0, 0].item(), 1.0, pytest.approx(1e-30)]]
    exact = torch.autograd.grad(x.double().cumprod(-1).sum(), x)[0]
    torch.testing.assert_close(torch.autograd.grad(value.sum(), x)[0], exact, equal_nan=True)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "sliced": lambda x: torch.cat([x, x], -1)[..., 1 : 1 + x.shape[-1]],
    "every second": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "one row for all": lambda x: x[:1].expand_as(x),
    "one row": lambda x: x[0, 0] if x.dim() > 2 else x[0],
    "no row": lambda x: x[:0],
    "no element": lambda x: x[..., :0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["cumsum_before", "cumprod"])
def test_layouts_and_batches_give_the_same_bits(modules: Any, name: str, layout: str) -> None:
    function = getattr(modules(name), name)
    for length in (7, 1000):
        x = LAYOUTS[layout](drawn(name, length, torch.float32)[0])
        grad = torch.randn(x.shape)
        made = []
        for given in (x, x.contiguous()):
            leaf = given.detach().requires_grad_()
            value = function(leaf)
            made.append((value.detach(), torch.autograd.grad(value, leaf, grad)[0]))
        for own, other in zip(*made, strict=True):
            assert torch.equal(own, other)
        if x.dim() > 1 and len(x) > 1:
            assert torch.equal(function(x[1:]), made[0][0][1:])


@pytest.mark.full
def test_a_tensor_of_one_row_has_the_sum_as_its_gradient(modules: Any) -> None:
    module, case = modules("chain"), CASES["chain"]
    x, w = drawn("chain", 30, torch.float32)
    tensors = [x, w[0, 0]]
    exact, grad, slopes = exact_of(case, tensors)
    value, *gradients = differentiated(module.chain, tensors, grad)
    assert_near(value, exact, 0.51)
    for own, other in zip(gradients, slopes, strict=True):
        torch.testing.assert_close(own.double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["chain", "columns_before"])
def test_calls_of_torch(modules: Any, name: str) -> None:
    module, tensors = modules(name), drawn(name, 30, torch.float32)
    function = getattr(module, name)
    assert_taken_by_torch(module, name, CASES[name].reference, tensors)
    wide = [t.double()[..., :4, :3].contiguous() for t in tensors]
    assert torch.autograd.gradgradcheck(lambda x: function(x, *wide[1:]), wide[0].requires_grad_())


def test_a_place_is_an_integer_in_every_call(modules: Any) -> None:
    """torch.compile, torch.export, vmap and meta tensors; no gradient passes."""
    module, case = modules("smallest_size"), PLACES["smallest_size"]
    x = drawn("smallest_size", 30, torch.float32)[0].requires_grad_()
    expected = case.reference(x)
    made = module.smallest_size(x)
    assert torch.equal(made, expected)
    assert not made.requires_grad
    compiled: Any = torch.compile(module.smallest_size, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), expected)
    program = torch.export.export(module.ModelNew(), (x.detach(),))
    assert torch.equal(program.module()(x), expected)
    assert torch.equal(torch.vmap(module.smallest_size)(x.detach()), expected)
    assert module.smallest_size(x.to("meta")).dtype == torch.int64
    with pytest.raises(RuntimeError, match="smallest_size: a row has no elements"):
        module.smallest_size(torch.empty(3, 0))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("over: [-3]\nformula: cumsum(x)", "no row"),
        ("over: [0, 1]\nformula: cumsum(x)", "cumsum takes the elements of a row in order"),
        ("formula: cumprod(x)", "cumprod reduces the elements of a row, and this spec has no rows"),
        ("over: [-1]\nformula: cumsum(sum(x))", "the same for all elements of a row"),
        ("over: [-1]\nparams: {a: 2}\nformula: cumprod(a) * x", "the same for all elements of a row"),
        ("over: [-1]\nformula: cumsum(x) + cumprod(x)", "cumprod stands beside cumsum"),
        ("over: [-1]\nformula: x / sum(cumsum(x))", "sum stands beside cumsum"),
        ("over: [-1]\nformula: argmax(x) + 1", "the formula goes on behind argmax"),
        ("over: [-1]\nformula: argmax(cumsum(x))", "argmax stands beside cumsum"),
        ("over: [-1]\nformula: x * argmin(x)", "the formula goes on behind argmin"),
        ("over: [-1]\nformula: cumsum(x, reverse=1)", "reverse"),
        ("over: [-1]\nformula: cumsum(x, dim=1)", "dim"),
        ("over: [-1]\nformula: argmax(x)\nreduction: mean", "a reduction of argmax is not taken"),
        ("over: [-1]\nformula: cumsum(x, reverse=True, reverse=False)", "the argument 'reverse' twice"),
        ("over: [0, 2, ...]\nformula: cumsum(x)", "cumsum takes the elements of a row in order"),
    ],
)
def test_mistakes_are_named_in_a_sentence(workshop: Workshop, body: str, said: str) -> None:
    path = workshop.spec("wrong", f"inputs: {{x: {{shape: [4, 30]}}}}\n{body}\n")
    with pytest.raises((FusegenError, SpecErrors)) as caught:
        build.compiled_either(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "formula", ["cumsum(where(t, x, 0))", "argmax(where(t, x, 0))", "cumsum(x) - x[t]"]
)
def test_an_index_beside_a_scan_is_refused(workshop: Workshop, formula: str) -> None:
    inputs = "inputs: {x: {shape: [8, 16]}, t: {shape: [8], index: x}}"
    path = workshop.spec("wrong", f"{inputs}\nover: [-1]\nformula: {formula}\n")
    with pytest.raises(
        (FusegenError, SpecErrors), match=r"wrong.yaml:\d+:\d+: an index beside \w+ is not taken"
    ):
        build.compiled_either(path)


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_rows_that_may_lie_apart_begin_anywhere(modules: Any, device: str) -> None:
    """Behind an incoming gradient that is one number for all, rows lie side by side at odd places."""
    module, case = modules("columns"), CASES["columns"]
    for x in (torch.randn(3, 9, 1)[:, :8], torch.randn(25)[1:].view(3, 8, 1)):
        leaf, wide = x.to(device).detach().requires_grad_(), x.to(device).double().requires_grad_()
        [own] = torch.autograd.grad(module.columns(leaf).sum(), leaf)
        [exact] = torch.autograd.grad(case.reference(wide).sum(), wide)
        assert_near(own, exact, 0.51)
