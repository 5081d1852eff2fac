"""Rows of which an index picks an element: losses of classes, beside PyTorch's in float64."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
import torch
from test_rows import BOUNDS, DTYPES, GPU, made, ulps
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from fusegen.errors import SpecErrors

F = nn.functional
INPUTS = "inputs: {x: {shape: [64, 30]}, target: {shape: [64], index: x}}\n"
LOSS = (
    f"{INPUTS}over: [-1]\nwhere: {{largest: detach(amax(x)), count: 'sum(where(target, 1, 0))'}}\n"
    "formula: where(count > 0, log(sum(exp(x - largest))) + (largest - x[target]), 0)\n"
)


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Cross-entropy without a reduction."""
    return made(tmp_path_factory.mktemp("indices"), "losses", LOSS)


@pytest.fixture(scope="module")
def mean(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Its mean."""
    return made(tmp_path_factory.mktemp("indices"), "mean_loss", f"{LOSS}reduction: mean\n")


def drawn(shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return logits that ask for a gradient, and classes, of which the first is ignored."""
    torch.manual_seed(5)
    x = (torch.randn(shape, device=device) * 3).to(dtype).requires_grad_()
    target = torch.randint(shape[-1], shape[:-1], device=device)
    target.view(-1)[0] = -100
    return x, target


def exact(x: Tensor, target: Tensor) -> Tensor:
    """Return PyTorch's loss of each row."""
    return F.cross_entropy(x.flatten(0, -2), target.flatten(), reduction="none").view(target.shape)


@pytest.mark.few(4)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 33), (3, 4, 128), (5, 4100), (300, 16), (2, 1)])
def test_values_and_gradients(losses: Any, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    x, target = drawn(shape, dtype, device)
    wide = x.detach().double().requires_grad_()
    own, wanted = losses.losses(x, target), exact(wide, target)
    grad = torch.randn_like(own)
    (of_x,), (exact_x,) = (
        torch.autograd.grad(own, x, grad),
        torch.autograd.grad(wanted, wide, grad.double()),
    )
    assert not own.view(-1)[0]
    assert not of_x.view(-1, shape[-1])[0].any()
    for mine, right in ((own, wanted), (of_x, exact_x)):
        if dtype is torch.float64:
            torch.testing.assert_close(mine, right, rtol=1e-12, atol=1e-13)
        else:
            assert ulps(mine.detach(), right.detach()) <= BOUNDS[dtype]


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_the_mean_leaves_out_what_is_ignored(mean: Any, device: str) -> None:
    x, target = drawn((50, 300), torch.float32, device)
    wide = x.detach().double().requires_grad_()
    own, wanted = mean.mean_loss(x, target), F.cross_entropy(wide, target)
    torch.testing.assert_close(own.double(), wanted, rtol=1.2e-7, atol=0)
    torch.testing.assert_close(mean.ModelNew()(x, target), own, rtol=0, atol=0)
    (of_x,), (exact_x,) = torch.autograd.grad(own, x), torch.autograd.grad(wanted, wide)
    torch.testing.assert_close(of_x.double(), exact_x, rtol=2e-7, atol=1e-12)
    assert torch.equal(of_x, torch.autograd.grad(mean.mean_loss(x, target), x)[0])
    assert mean.mean_loss(x.detach(), torch.full_like(target, -100)).isnan()


def test_at_home_in_pytorch(mean: Any) -> None:
    function, (x, target) = mean.mean_loss, drawn((4, 6), torch.float64)
    assert torch.autograd.gradcheck(lambda x: function(x, target), x)
    assert torch.autograd.gradgradcheck(lambda x: function(x, target), x)
    plain = x.detach()
    batch, several = torch.randn(3, 4, 6, dtype=torch.float64), torch.randint(6, (3, 4))
    for own, wanted in (
        (torch.func.jacfwd(function), torch.func.jacfwd(F.cross_entropy)),
        (torch.func.jacrev(function), torch.func.jacrev(F.cross_entropy)),
    ):
        torch.testing.assert_close(own(plain, target), wanted(plain, target))
    for rule in (lambda f: f, torch.func.grad):
        for dims, of in (((0, 0), several), ((0, None), target)):
            own = torch.vmap(rule(function), dims)(batch, of)
            torch.testing.assert_close(own, torch.vmap(rule(F.cross_entropy), dims)(batch, of))
    compiled: Any = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, target), function(x, target))
    ours, theirs = (torch.autograd.grad(f(x, target), x)[0] for f in (compiled, function))
    assert torch.equal(ours, theirs)
    trace: Any = torch.fx.symbolic_trace
    assert trace(mean.ModelNew())(x, target) == function(x, target)
    assert function(x.to("meta"), target.to("meta")).shape == ()
    out = torch.empty(0, dtype=torch.float64)
    assert torch.equal(function(plain, target, out=out), function(plain, target))
    assert out == function(plain, target)


@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
def test_programs_that_are_recorded_of_fake_tensors(mean: Any, reduction: str) -> None:
    """Nothing asks a fake index for its integers, and the number of rows stays free."""
    x, target = drawn((6, 5), torch.float32)
    rows = torch.export.Dim("rows")
    module = mean.ModelNew(reduction)
    sizes = ({0: rows}, {0: rows})
    program = torch.export.export(module, (x.detach(), target), dynamic_shapes=sizes, strict=False)
    torch.testing.assert_close(program.module()(x[:4], target[:4]), module(x[:4], target[:4]))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_recorded_gradients(mean: Any, mode: Literal["real", "fake", "symbolic"]) -> None:
    """A graph that make_fx records runs on tensors that require gradients."""

    def gradient(x: Tensor, target: Tensor) -> Tensor:
        return torch.autograd.grad(mean.mean_loss(x, target), x)[0]

    given = drawn((6, 5), torch.float32)
    graph = make_fx(gradient, tracing_mode=mode)(*given)
    torch.testing.assert_close(graph(*given), gradient(*given))


@pytest.mark.full
def test_an_expression_is_picked_from_rows_of_several_dimensions(tmp_path: Path) -> None:
    body = (
        "inputs: {x: {shape: [8, 4, 5]}, r: {shape: [8, 4, 5]}, at: {shape: [8], index: x}}\n"
        "over: [1, ...]\nformula: x * sin(x + r)[at]\n"
    )
    function = made(tmp_path, "scaled", body).scaled
    x, r = (torch.randn(6, 3, 7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    at = torch.randint(21, (6,))
    wanted = x * torch.sin(x + r).flatten(1).gather(1, at[:, None])[..., None]
    own = function(x, r, at)
    torch.testing.assert_close(own, wanted)
    grad = torch.randn_like(own)
    torch.testing.assert_close(
        torch.autograd.grad(own, (x, r), grad), torch.autograd.grad(wanted, (x, r), grad)
    )
    torch.testing.assert_close(torch.vmap(function)(x[None], r[None], at[None])[0], wanted)


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("over", ["[1]", "[-3]"])
def test_classes_along_channels(tmp_path: Path, over: str, device: str) -> None:
    """As of images whose pixels have classes: rows whose elements lie apart."""
    body = LOSS.replace("[64, 30]", "[2, 5, 4, 4]").replace("[64]", "[2, 4, 4]").replace("[-1]", over)
    function = made(tmp_path, "pixels", f"{body}reduction: mean\n").pixels
    x = torch.randn(3, 7, 5, 6, dtype=torch.float64, device=device, requires_grad=True)
    target = torch.randint(7, (3, 5, 6), device=device)
    target[0, 1] = -100
    own, wanted = function(x, target), F.cross_entropy(x, target)
    torch.testing.assert_close(own, wanted)
    torch.testing.assert_close(torch.autograd.grad(own, x), torch.autograd.grad(wanted, x))
    batch, several = x.detach()[None].expand(2, *x.shape), target[None].expand(2, *target.shape)
    torch.testing.assert_close(torch.vmap(function)(batch, several), wanted.detach().expand(2))
    last = x.detach().to(memory_format=torch.channels_last)
    torch.testing.assert_close(function(last, target), wanted.detach())


def test_what_is_no_index_is_refused(losses: Any) -> None:
    x, target = drawn((4, 6), torch.float32)
    for wrong, error, sentence in (
        (target.int(), RuntimeError, "target must be a tensor of int64, not of torch.int32"),
        (target[:3], RuntimeError, r"target has the shape \(3,\), and the rows have \(4,\)"),
        (target.clone().fill_(6), IndexError, "target 6 is out of range for 6 elements"),
        (3, TypeError, "target must be a tensor of integers"),
    ):
        with pytest.raises(error, match=f"losses: {sentence}"):
            losses.losses(x, wrong)
    several = torch.tensor([[-100, -1, -7, 5]])  # which a GPU asserts to be no less than -1
    own = torch.vmap(lambda each: losses.KERNELS.index("target", each, x))(several)
    assert own.flatten().tolist() == [-100, -1, -7, 5]
    own = torch.vmap(lambda each: losses.KERNELS.index("target", each, x, -1))(several)
    assert own.flatten().tolist() == [-2, -100, -7, 5]
    with pytest.raises(RuntimeError, match="expected an index in int64"):
        losses.KERNELS.forward(x, target[:, None].double())


@pytest.mark.parametrize("wrong", [6, -1, 2**40])
def test_kernels_refuse_what_a_traced_call_does_not_check(mean: Any, wrong: int) -> None:
    x, target = drawn((4, 6), torch.float32)
    traced: Any = torch.compile(mean.mean_loss, fullgraph=True, backend="aot_eager")
    batched = torch.vmap(mean.mean_loss)
    assert torch.equal(traced(x, target), batched(x[None], target[None])[0])
    several = target[:, None].repeat(1, 2)
    several[2] = wrong
    for call in (traced, lambda x, target: batched(x[None], target[None])):
        with pytest.raises(RuntimeError, match=r"an index is out of the range of a row's elements"):
            call(x, several[:, 1])


NO_INDEX = "inputs: {x: {shape: [64, 30]}, t: {shape: [64]}}\nover: [-1]\nformula: x[t]"
WRONG = {
    f"{INPUTS}formula: x[target]": "'target' picks elements of rows, and this spec has no rows",
    NO_INDEX: "'t' is no index",
    f"{INPUTS}over: [-1]\nformula: x * target": "the mask 'target' stands where a number is expected",
    f"{INPUTS.replace('index: x', 'index: y')}over: [-1]\nformula: x[target]": (
        "'target' is an index of 'y'"
    ),
    f"{INPUTS.replace('[64]', '[30]')}over: [-1]\nformula: x[target]": (
        "the shape of 'target' is not that of the rows"
    ),
    f"{INPUTS.replace('index', 'dtype: bool, index')}over: [-1]\nformula: x[target]": (
        "'target' is an index and a mask"
    ),
    f"{INPUTS}layers: [w: Parameter(ones(30))]\nover: [-1]\nformula: w * x[target]": (
        "'target' is not the last tensor"
    ),
    "over: [-1]\nformula: softmax(x)\nreduction: mean": (
        "reduction: mean is of values of rows, and the formula has a value for each element"
    ),
    "over: [-1]\nformula: sum(x)\nreduction: most": "'most' is not a valid reduction",
}


@pytest.mark.parametrize(("body", "message"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_no_spec_with_an_index(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        made(tmp_path, "wrong", f"{body}\n")
    assert message in [error.message for error in caught.value.errors], caught.value.errors
