"""Values of rows in float32 beside elements of 16 bits: results, incoming gradients and losses."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from dispatching import after_each
from rows_emulated import emulated
from test_rows import GPU, made
from test_rows_emulated import SPECIAL
from torch import Tensor
from torch.nn import functional as F

HALVES = (torch.bfloat16, torch.float16)
TOLERANCES = {torch.float32: 6e-8, torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float64: 1e-14}
Results = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A spec with values of rows in float32, beside PyTorch's operations in float64."""

    body: str  # of the spec
    reference: Callable[..., Results]
    of_rows: tuple[int, ...]  # the results that are values of rows
    weights: tuple[int, ...] = ()  # the shape of a tensor of one row for all, or by channels


def group_norm(x: Tensor, weight: Tensor) -> Results:
    mean = x.mean((1, 2), keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean((1, 2), keepdim=True) + 1e-5)
    return (x - mean) * rstd * weight[:, None], mean.flatten()[:, None], rstd.flatten()[:, None]


CASES = {
    "moments": Case(
        "over: [-1]\nkeepdim: true\nwhere: {d: x - m}\nformula: {v: mean(d * d), m: mean(x)}\n",
        lambda x: (x.var(-1, correction=0, keepdim=True), x.mean(-1, keepdim=True)),
        (0, 1),
    ),
    "softmax_and_sum": Case(
        "over: [-1]\nformula: {lse: logsumexp(x), y: exp(x - lse)}\n",
        lambda x: (torch.logsumexp(x, -1), torch.softmax(x, -1)),
        (0,),
    ),
    "sum_of_exponentials": Case(
        "over: [-1]\nformula: logsumexp(x)\n", lambda x: (torch.logsumexp(x, -1),), (0,)
    ),
    "of_channels": Case(
        "inputs: {x: {shape: [4, 8, 6]}}\nover: [1]\nformula: {y: x - s, s: logsumexp(x)}\n",
        lambda x: (x - torch.logsumexp(x, 1, True), torch.logsumexp(x, 1)),
        (1,),
    ),
    "of_groups": Case(
        "inputs: {x: {shape: [4, 8, 6]}}\ninit: {groups: 1}\nlayers: [weight: Parameter(ones(8))]\n"
        "over: ['1 / groups', ...]\nwhere: {d: x - m}\n"
        "formula: {y: 'd * r * along(weight, 1)', m: mean(x), r: rsqrt(mean(d * d) + 1.0e-5)}\n",
        group_norm,
        (1, 2),
        (8,),
    ),
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    """The modules of the cases, each made once."""
    folder = tmp_path_factory.mktemp("row_dtype")
    return functools.cache(lambda name: made(folder, name, f"{CASES[name].body}row_dtype: float32\n"))


def drawn(name: str, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """Return tensors that ask for gradients: of rows, and a weight where there is one."""
    generator, shape = torch.Generator().manual_seed(3), (5, 8, 6) if "of_" in name else (2, 5, 300)
    tensors = [4 * torch.randn(shape, generator=generator) + 1]
    tensors += [torch.randn(CASES[name].weights, generator=generator)] * bool(CASES[name].weights)
    return [t.to(device, dtype).requires_grad_() for t in tensors]


def function(module: ModuleType, name: str) -> Callable[..., Results]:
    """Return a module's function, whose results are a tuple."""

    def call(*tensors: Tensor) -> Results:
        made = getattr(module, name)(*tensors, **{"groups": 1} if name == "of_groups" else {})
        return made if isinstance(made, tuple) else (made,)

    return call


def assert_near(own: Tensor, exact: Tensor, times: float = 1) -> None:
    """Assert that results are as near as their dtype has them."""
    tolerance = times * TOLERANCES[own.dtype]
    torch.testing.assert_close(own.double(), exact, rtol=tolerance, atol=tolerance)


def incoming_of(results: Results) -> list[Tensor]:
    """Return gradients whose digits 16 bits do not hold where a result has more."""
    return [torch.randn_like(y) for y in results]


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(
    modules: Callable[[str], ModuleType], name: str, dtype: torch.dtype, device: str
) -> None:
    given = drawn(name, dtype, device)
    exact_given = [t.detach().double().requires_grad_() for t in given]
    found, exact = function(modules(name), name)(*given), CASES[name].reference(*exact_given)
    for k, (own, right) in enumerate(zip(found, exact, strict=True)):
        is_wide = k in CASES[name].of_rows and dtype in HALVES
        assert (own.shape, own.dtype) == (right.shape, torch.float32 if is_wide else dtype)
        assert_near(own, right.detach(), 2)
    incoming = incoming_of(found)
    slopes = torch.autograd.grad(found, given, incoming)
    wanted = torch.autograd.grad(exact, exact_given, [g.double() for g in incoming])
    for own, right in zip(slopes, wanted, strict=True):
        assert own.dtype == dtype
        assert_near(own, right, 16)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["moments", "softmax_and_sum", "sum_of_exponentials"])
def test_cuda_kernels_emulated(modules: Callable[[str], ModuleType], name: str, dtype: torch.dtype) -> None:
    kernels, case = emulated(modules(name)), CASES[name]
    for columns in (8, 33, 300):
        x = drawn(name, dtype)[0].detach().flatten(0, 1)[:, :columns].contiguous()
        exact_x = x.double().requires_grad_()
        exact = case.reference(exact_x)
        found = kernels.values([x])
        for k, (own, right) in enumerate(zip(found, exact, strict=True)):
            assert (own.dtype is torch.float32) == (k in case.of_rows or dtype is torch.float32)
            assert_near(own.reshape(right.shape), right.detach(), 2)
        incoming = incoming_of(tuple(found))
        [slope] = kernels.backward([*incoming, x])
        grads = [g.double().reshape(y.shape) for g, y in zip(incoming, exact, strict=True)]
        assert slope.dtype == dtype
        assert_near(slope, torch.autograd.grad(exact, exact_x, grads)[0], 16)


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
def test_rows_that_lie_apart_have_their_bits_emulated(
    modules: Callable[[str], ModuleType], dtype: torch.dtype
) -> None:
    kernels = emulated(modules("of_channels"))
    apart = torch.randn(2, 16, 50).to(dtype).movedim(1, -1)
    values = [kernels.values([laid]) for laid in (apart, apart.contiguous())]
    slopes = [kernels.backward([*values[1], laid]) for laid in (apart, apart.contiguous())]
    assert values[0][1].dtype is torch.float32
    assert all(map(torch.equal, values[0] + slopes[0], values[1] + slopes[1]))


@pytest.mark.full
def test_a_detached_value_has_no_gradient(tmp_path: Path) -> None:
    """The kernel reads one of two incoming gradients."""
    body = "over: [-1]\nrow_dtype: float32\nformula: {m: detach(amax(x)), s: sum(x)}\n"
    x = torch.randn(3, 9).to(torch.bfloat16).requires_grad_()
    m, s = made(tmp_path, "detached", body).detached(x)
    assert torch.equal(m, x.amax(-1).float())
    grad = torch.tensor([1.0, -2.0, 3.0])
    [slope] = torch.autograd.grad((m, s), x, (100 * grad, grad))
    assert torch.equal(slope, grad[:, None].expand(3, 9).to(torch.bfloat16))


def loss_of(name: str) -> Any:
    """Return a module of the library."""
    return importlib.import_module(f"generated.{name}")


def loss_by_others(x: Tensor, picked: Tensor) -> Tensor:
    """Cross-entropy of finite rows, which keeps its digits near 0: PyTorch adds elements to a logarithm."""
    top, at = x.max(-1)
    others = torch.exp(x - top[:, None]).scatter(1, at[:, None], 0).sum(-1)
    return others.log1p() + (top - x.gather(1, picked[:, None])[:, 0])


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("n", [300, 8, 37, 4104])
def test_a_loss_of_rows_that_are_read_once_emulated(n: int, dtype: torch.dtype) -> None:
    x = torch.stack([made(n) for made in SPECIAL.values()] + [4 * torch.randn(n)]).to(dtype)
    target = x.nan_to_num(-torch.inf).argmax(-1)  # so that a loss is a logarithm of a sum near 1
    target[-1] = n // 3
    kernels = emulated(loss_of("rows.cross_entropy_in_float32"))
    for picked in (target, n - 1 - target):
        exact_x = x.double().requires_grad_()
        exact = F.cross_entropy(exact_x, picked, reduction="none")
        [own] = kernels.values([x, picked[:, None]])
        right = loss_by_others(x.double(), picked).where(exact.isfinite(), exact.detach())
        rounding = 2.0**-52  # of a sum near 1
        torch.testing.assert_close(own[:, 0].double(), right, rtol=3e-7, atol=rounding, equal_nan=True)
        [result, count] = kernels.total([x, picked[:, None]], own, -1.0)
        assert (result.dtype, count.item()) == (torch.float32, len(x))
        torch.testing.assert_close(result, own.double().mean().float(), equal_nan=True)
        grad = torch.randn(len(x), 1)
        [slope] = kernels.backward([grad, x, picked[:, None]])
        [wanted] = torch.autograd.grad(exact, exact_x, grad.double()[:, 0])
        torch.testing.assert_close(
            slope.double(), wanted, rtol=2 * TOLERANCES[dtype], atol=1e-6, equal_nan=True
        )


LOSSES: dict[str, Callable[..., Tensor]] = {
    "rows.cross_entropy_in_float32": F.cross_entropy,
    "rows.nll_in_float32": F.nll_loss,
    "losses.weighted_cross_entropy_in_float32": functools.partial(F.cross_entropy, label_smoothing=0.1),
    "losses.weighted_nll_in_float32": F.nll_loss,
}


@pytest.mark.few(4)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_classes(name: str, dtype: torch.dtype, device: str) -> None:
    module, stem = loss_of(name), name.rpartition(".")[2]
    smoothing = (0.1,) if "weighted_cross" in name else ()
    for scale, shape in ((1e-2, (7, 33)), (3.0, (40, 1000)), (1e4, (9, 300))):
        x = (scale * torch.randn(shape, device=device)).to(dtype).requires_grad_()
        target = torch.randint(shape[1], shape[:1], device=device)
        target[1::5] = 3
        weight = torch.rand(shape[1], device=device).to(dtype)
        tensors = (x, weight, target) if "weighted" in name else (x, target)
        words = {"weight": weight.double()} if "weighted" in name else {}
        for reduction in ("mean", "sum", "none"):
            exact_x = x.detach().double().requires_grad_()
            exact = LOSSES[name](exact_x, target, ignore_index=3, reduction=reduction, **words)
            found = getattr(module, stem)(*tensors, *smoothing, reduction, 3)
            assert found.dtype is torch.float32
            assert_near(found.detach(), exact.detach(), 4)
            grad = torch.randn_like(found)
            [slope], [wanted] = (
                torch.autograd.grad(value, of, g)
                for value, of, g in ((found, x, grad), (exact, exact_x, grad.double()))
            )
            assert slope.dtype is dtype
            torch.testing.assert_close(slope.double(), wanted, rtol=TOLERANCES[dtype], atol=1e-7)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_special_logits(value: float) -> None:
    loss = loss_of("rows.cross_entropy_in_float32").cross_entropy_in_float32
    x, target = torch.randn(4, 9).to(torch.bfloat16), torch.tensor([0, 1, 2, 8])
    x[:, 1] = value
    for tensor in (x, torch.full_like(x, value)):
        own, exact = tensor.clone().requires_grad_(), tensor.double().requires_grad_()
        values = loss(own, target, "none"), F.cross_entropy(exact, target, reduction="none")
        torch.testing.assert_close(values[0].double(), values[1], rtol=1e-7, atol=0, equal_nan=True)
        slopes = [torch.autograd.grad(v.sum(), of)[0] for v, of in zip(values, (own, exact), strict=True)]
        torch.testing.assert_close(slopes[0].double(), slopes[1], rtol=4e-3, atol=1e-7, equal_nan=True)


def widening(count: int, found: list[str]) -> Any:
    """Return a mode that notes operators which make as many float32 as there are logits."""

    def note(operator: Any, _: tuple[Any, ...], made: Any) -> None:
        for each in made if isinstance(made, tuple) else (made,):
            if isinstance(each, Tensor) and each.dtype is torch.float32 and each.numel() >= count:
                found.append(str(operator))

    return after_each(note)


def test_no_copy_of_the_logits() -> None:
    loss = loss_of("rows.cross_entropy_in_float32").cross_entropy_in_float32
    x, target = torch.randn(8, 50).to(torch.bfloat16).requires_grad_(), torch.randint(50, (8,))
    for function, copies in ((loss, False), (lambda x, target: F.cross_entropy(x.float(), target), True)):
        found = list[str]()
        with widening(x.numel(), found):
            function(x, target).backward()
        assert bool(found) == copies


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_under_autocast_the_result_is_in_float32(device: str) -> None:
    loss = loss_of("rows.cross_entropy_in_float32").cross_entropy_in_float32
    x = torch.randn(8, 50, device=device).to(torch.bfloat16).requires_grad_()
    target = torch.randint(50, (8,), device=device)
    copies = list[str]()
    with torch.autocast(device, torch.bfloat16), widening(x.numel(), copies):
        found = loss(x, target)
    assert (found.dtype, copies) == (torch.float32, [])
    assert torch.equal(found, loss(x, target))
    norm = loss_of("rows.layer_norm_statistics").LayerNormStatistics(50).to(device, torch.bfloat16)
    with torch.autocast(device, torch.bfloat16):  # CUDA's gives norms in float32
        dtypes = [t.dtype for t in norm(x)]
    assert dtypes == [torch.bfloat16 if device == "cpu" else torch.float32, torch.float32, torch.float32]


@pytest.mark.full
def test_programs_and_transforms_have_the_dtypes() -> None:
    loss = loss_of("rows.cross_entropy_in_float32").cross_entropy_in_float32
    module = loss_of("rows.layer_norm_statistics")
    norm = module.LayerNormStatistics(9).to(torch.bfloat16)
    x, target = torch.randn(5, 9).to(torch.bfloat16), torch.randint(9, (5,))

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, x: Tensor, target: Tensor) -> Results:
            return loss(x, target), loss(x, target, "none"), *self.norm(x)

    model = Both()
    expected = model(x, target)
    assert [t.dtype for t in expected] == [torch.float32] * 2 + [torch.bfloat16] + [torch.float32] * 2
    programs: Any = (
        torch.export.export(model, (x, target)).module(),
        torch.compile(model, fullgraph=True, backend="aot_eager"),
        torch.fx.symbolic_trace(model),
    )
    for program in programs:
        for own, right in zip(program(x, target), expected, strict=True):
            torch.testing.assert_close(own, right)
    for own, right in zip(torch.func.vmap(norm)(torch.stack([x, x])), expected[2:], strict=True):
        assert torch.equal(own[1], right)
    along = torch.func.jvp(lambda x: loss(x, target), (x,), (torch.ones_like(x),))[1]
    assert along.dtype is torch.float32
    slopes = torch.func.vmap(torch.func.grad(lambda x, t: loss(x[None], t[None])))(x, target)
    assert slopes.dtype is torch.bfloat16
    operators = (module.KERNELS.operators.layer_norm_statistics_forward, (x, x[0], x[1], 1e-5))
    for operator, given in (operators, of_loss(x, target), gradient_of_loss(x, target)):
        torch.library.opcheck(operator.default, given)


def of_loss(x: Tensor, target: Tensor) -> tuple[Any, tuple[Any, ...]]:
    """Return the operator of a reduced loss, and its arguments."""
    operators = loss_of("rows.cross_entropy_in_float32").KERNELS.operators
    return operators.cross_entropy_in_float32_forward_reduced, (x, target[:, None], -1.0)


def gradient_of_loss(x: Tensor, target: Tensor) -> tuple[Any, tuple[Any, ...]]:
    """Return the operator of the gradient of a loss, and its arguments."""
    operators = loss_of("rows.cross_entropy_in_float32").KERNELS.operators
    return operators.cross_entropy_in_float32_backward, (torch.randn(len(x)), x, target[:, None])


def test_second_derivatives() -> None:
    module = loss_of("rows.cross_entropy_in_float32")
    target = torch.randint(9, (5,))
    exact = torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    loss = functools.partial(module.cross_entropy_in_float32, target=target)
    assert torch.autograd.gradgradcheck(loss, exact)
    x = exact.detach().to(torch.bfloat16).requires_grad_()
    found = list[Tensor]()
    for function in (loss, lambda x: F.cross_entropy(x.float(), target)):
        [slope] = torch.autograd.grad(function(x), x, create_graph=True)
        found += torch.autograd.grad(slope.float().square().sum(), x)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_no_rows(reduction: str) -> None:
    x = torch.randn(0, 9).to(torch.bfloat16).requires_grad_()
    index = torch.zeros(0, dtype=torch.int64)
    found = loss_of("rows.cross_entropy_in_float32").cross_entropy_in_float32(x, index, reduction)
    right = F.cross_entropy(x.float(), index, reduction=reduction)
    torch.testing.assert_close(found, right, equal_nan=True)
    assert torch.autograd.grad(found.sum(), x)[0].shape == (0, 9)


def test_given_tensors_and_gradients_of_another_dtype_are_refused() -> None:
    module = loss_of("rows.layer_norm_statistics")
    x, weight = torch.randn(3, 8).to(torch.bfloat16), torch.ones(8).to(torch.bfloat16)
    given = x, weight, weight
    out = torch.empty_like(x), torch.empty(3, 1), torch.empty(3, 1)
    assert module.layer_norm_statistics(*given, out=out) is out
    assert all(map(torch.equal, out, module.layer_norm_statistics(*given)))
    narrow = out[0], out[1].to(torch.bfloat16), out[2]
    with pytest.raises(RuntimeError, match=r"out is torch\.bfloat16, the result torch\.float32"):
        module.layer_norm_statistics(*given, out=narrow)
    operator = module.KERNELS.operators.layer_norm_statistics_backward
    rows = torch.ones(3)
    operator(x, rows, rows, *given, 1e-5)
    with pytest.raises(RuntimeError, match="expected values of rows in float32 beside 16 bits"):
        operator(x, rows.to(torch.bfloat16), rows, *given, 1e-5)


MISTAKES = {
    "formula: x\nrow_dtype: float32\n": "row_dtype is of values of rows: this spec has no rows",
    "over: [-1]\nrow_dtype: float32\nformula: x - mean(x)\n": (
        "row_dtype is of values of rows: the formula has a value for each element"
    ),
    "over: [-1]\nrow_dtype: float32\nformula: argmax(x)\n": (
        "row_dtype is of values of rows: the place of an element is an int64"
    ),
    "over: [-1]\nrow_dtype: float32\nformula: max(x)\n": (
        "row_dtype is of values of rows: the gradient of max and min reads places of elements"
    ),
    "over: [0, 2, ...]\nrow_dtype: float32\nformula: x - mean(x)\n": (
        "row_dtype is of values of rows: batch statistics have none of their own"
    ),
    "over: [-1]\nrow_dtype: float16\nformula: mean(x)\n": "'float16' is not a valid row_dtype",
}


def test_explain_says_the_dtype(workshop: Workshop) -> None:
    sentence = "Values of rows, and their gradients, are in float32 where tensors have 16 bits."
    for key, is_said in (("row_dtype: float32\n", True), ("", False)):
        workshop.spec("wide", f"over: [-1]\n{key}formula: mean(x)\n")
        assert (sentence in workshop.done("explain", "wide")) == is_said


@pytest.mark.parametrize("body", MISTAKES)
def test_mistakes(workshop: Workshop, body: str) -> None:
    spec = workshop.spec("wide", body)
    [line] = [k for k, each in enumerate(spec.read_text().splitlines(), 1) if "row_dtype" in each]
    place, _, message = workshop.refused("build").splitlines()[0].partition(": ")
    assert message.startswith(MISTAKES[body])
    assert place.startswith(f"{spec.relative_to(workshop.folder)}:{line}:")


def test_a_docstring_says_the_dtype_of_values() -> None:
    module: Any = importlib.import_module("generated.rows.nll_in_float32")
    assert "values of rows float32 at least" in module.nll_in_float32.__doc__
