"""Losses of whole tensors and of rows, and the classes of torch.nn on them, beside PyTorch's in float64."""

from __future__ import annotations

import functools
import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from rows_emulated import emulated
from test_cuda_text import NVCC, nvcc
from test_rows import GPU, made, ulps
from torch import Tensor, nn

from fusegen.errors import SpecErrors
from fusegen.models import losses
from fusegen.runtime import parts
from fusegen.runtime.flags import CUDA_FLAGS

F = nn.functional
REDUCTIONS = ("mean", "sum", "none")
Drawn = Callable[..., Tensor]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape) * 2


def signs(*shape: int) -> Tensor:
    return torch.randint(0, 2, shape).float() * 2 - 1


def logarithms(*shape: int) -> Tensor:
    return -9 * torch.rand(*shape)


def hinge(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    found = (1 - x * target).clamp(min=0)
    return found if reduction == "none" else found.mean() if reduction == "mean" else found.sum()


def weighted_logits(x: Tensor, target: Tensor, w: Tensor, of_ones: Tensor, reduction: str) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target, w, pos_weight=of_ones, reduction=reduction)


def of_logs(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    return F.kl_div(x, target, log_target=True, reduction=reduction)


UNIT = torch.rand
# for each module: PyTorch's function, how tensors are drawn, and how many of them have a gradient in both
WHOLE: dict[str, tuple[Callable[..., Tensor], tuple[Drawn, ...], int]] = {
    "mse_loss": (F.mse_loss, (normal, normal), 2),
    "l1_loss": (F.l1_loss, (normal, normal), 2),
    "smooth_l1_loss": (F.smooth_l1_loss, (normal, normal), 2),
    "huber_loss": (F.huber_loss, (normal, normal), 2),
    "bce_with_logits_loss": (F.binary_cross_entropy_with_logits, (normal, UNIT), 2),
    "weighted_bce_with_logits_loss": (weighted_logits, (normal, UNIT, UNIT, UNIT), 2),
    "kl_div": (F.kl_div, (logarithms, UNIT), 2),
    "kl_div_of_logs": (of_logs, (logarithms, logarithms), 2),
    "soft_margin_loss": (F.soft_margin_loss, (normal, signs), 1),
    "hinge_embedding_loss": (F.hinge_embedding_loss, (normal, signs), 1),
    "hinge_loss": (hinge, (normal, signs), 2),
    "margin_ranking_loss": (F.margin_ranking_loss, (normal, normal, signs), 3),
}
ROWS: dict[str, tuple[Callable[..., Tensor], tuple[Drawn, ...], int]] = {
    "triplet_margin_loss": (F.triplet_margin_loss, (UNIT, UNIT, UNIT), 3),
    "cosine_embedding_loss": (
        F.cosine_embedding_loss, (normal, normal, lambda *shape: signs(shape[0])), 2
    ),
}  # fmt: skip
SIGNED = ("kl_div", "kl_div_of_logs")  # terms of both signs may cancel


def function(name: str) -> Callable[..., Tensor]:
    """Return the function of a committed module."""
    found: Callable[..., Tensor] = getattr(importlib.import_module(f"generated.losses.{name}"), name)
    return found


def both(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, reduction: str, device: str
) -> tuple[list[Tensor], list[Tensor]]:
    """Return value and gradients of a module, and those of PyTorch in float64."""
    reference, drawn, count = {**WHOLE, **ROWS}[name]
    torch.manual_seed(2)
    tensors = [draw(*shape).clamp(-9, 0.99).to(dtype).to(device) for draw in drawn]
    found = []
    for function_of, to in ((function(name), dtype), (reference, torch.float64)):
        given = [t.detach().to(to).requires_grad_(k < count) for k, t in enumerate(tensors)]
        value = function_of(*given, reduction=reduction)
        found.append([value, *torch.autograd.grad(value.sum(), given[:count])])
    return found[0], found[1]


@pytest.mark.few(2)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", [*WHOLE, *ROWS])
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_values_and_gradients_beside_float64(name: str, reduction: str, device: str) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for shape in ((3, 5), (40, 300)) if name in ROWS else ((7,), (40, 300), (3, 5000)):
            own, exact = both(name, shape, dtype, reduction, device)
            eps = torch.finfo(dtype).eps
            for k, (mine, right) in enumerate(zip(own, exact, strict=True)):
                assert mine.shape == right.shape
                most = (3 if k else 1) * eps if dtype is not torch.float64 else 64 * eps
                gap = (mine.double() - right).abs().max()
                assert gap <= most * right.abs().max(), (shape, dtype, k)
            if dtype is not torch.float64 and name not in SIGNED and reduction != "none":
                assert ulps(own[0].detach(), exact[0].detach()) <= 1


def test_parts_depend_on_the_length_alone() -> None:
    assert [parts.length_of(n) for n in (0, 1, 4096, 2**26, 2**26 + 1, 2**30)] == [
        *[4096] * 4, 8192, 65536,
    ]  # fmt: skip
    assert all(n / parts.length_of(n) <= parts.MOST for n in (2**26 + 1, 2**30, 3 * 2**31))


def test_the_same_bits_at_any_layout_and_run() -> None:
    loss = function("mse_loss")
    x, y = normal(5, 7, 900), normal(5, 7, 900)
    turned = [t.transpose(0, 2).contiguous().transpose(0, 2) for t in (x, y)]
    whole = loss(x, y)
    assert torch.equal(whole, loss(*turned))
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    again = loss(x, y)
    torch.set_num_threads(threads)
    assert torch.equal(whole, again)


@pytest.mark.parametrize("lost", ["the last part", "the lengths of parts"])
def test_a_wrong_sum_of_parts_is_seen(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = parts._cut

    def wrong(flat: Any, size: int) -> Any:
        found = cut(flat, size)
        return found[:-1] if lost == "the last part" else [[t[:, :-1] for t in rows] for rows in found]

    monkeypatch.setattr(parts, "_cut", wrong)
    own = importlib.import_module("generated._runtime.parts")
    monkeypatch.setattr(own, "_cut", wrong)
    kernels = importlib.import_module("generated.losses.mse_loss").KERNELS
    monkeypatch.setattr(kernels, "run", functools.partial(own.of_whole, kernels))  # not the call in C++
    value, exact = (each[0] for each in both("mse_loss", (4099,), torch.float32, "sum", "cpu"))
    assert ulps(value.detach(), exact.detach()) > 1


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("graded", [False, True])
def test_values_of_parts_are_not_rounded(dtype: torch.dtype, graded: bool) -> None:
    """The mean of each part lies just above 1, to which it would be rounded; the sum is no power of 2."""
    x = torch.ones(3, parts.SHORTEST, dtype=dtype)
    x[:, : parts.SHORTEST * 49 // 100] += torch.finfo(dtype).eps
    own = function("l1_loss")(x.requires_grad_(graded), torch.zeros_like(x), "sum")
    assert own.item() == x.double().sum().to(dtype).item() > x.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_means_of_parts_are_in_double(dtype: torch.dtype) -> None:
    kernels: Any = importlib.import_module("generated.losses.l1_loss").KERNELS
    x, y = (torch.rand(6, 500).to(dtype) for _ in range(2))
    exact = (x.double() - y.double()).abs().mean(-1)
    for own in (kernels.means(x, y), kernels.forward(x, y), kernels.eager(x, y)):
        torch.testing.assert_close(own, exact, rtol=1e-6 if dtype is torch.bfloat16 else 1e-14, atol=0)
    out = torch.empty(6, dtype=torch.float64)
    kernels.forward_out(x, y, out)
    assert torch.equal(out, kernels.forward(x, y))
    assert kernels.forward(x.to("meta"), y.to("meta")).dtype is torch.float64
    assert kernels.of_rows(x, y).dtype is dtype


NUMBERS = (0.0, -0.0, 1.0, -3.5, 1e30, torch.inf, -torch.inf, torch.nan)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_nan_and_infinities_of_differences(name: str, dtype: torch.dtype) -> None:
    pairs = torch.cartesian_prod(*[torch.tensor(NUMBERS, dtype=dtype)] * 2).unbind(-1)
    found = []
    for loss in (function(name), WHOLE[name][0]):
        given = [t.clone().requires_grad_() for t in pairs]
        value = loss(*given, reduction="none")
        found.append([value, *torch.autograd.grad(value.sum(), given)])
    for own, right in zip(*found, strict=True):
        torch.testing.assert_close(own, right, equal_nan=True)


def test_logits_of_both_signs_keep_their_digits() -> None:
    """In float64, at targets of 0 and 1; the gradient of a target is exact."""
    x = torch.tensor([-30.0, 30.0, -1e-9, 1e-9], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.0, 1.0, 0.5, 0.5], dtype=torch.float64, requires_grad=True)
    value = function("bce_with_logits_loss")(x, target, "none")
    small = torch.tensor(-30.0, dtype=torch.float64).exp().log1p()
    torch.testing.assert_close(value[:2], small.expand(2), rtol=1e-15, atol=0)
    slopes = torch.autograd.grad(value.sum(), (x, target))
    torch.testing.assert_close(slopes[0], torch.sigmoid(x) - target, rtol=1e-6, atol=1e-16)
    assert torch.equal(slopes[1], -x)


def test_special_values() -> None:
    mse, kl = map(function, ("mse_loss", "kl_div"))
    empty = torch.empty(0, 3)
    assert mse(empty, empty).isnan()
    assert mse(empty, empty, reduction="sum") == 0
    x = normal(4, 500)
    x[1, 7] = torch.nan
    assert mse(x, normal(4, 500)).isnan()
    big = torch.full((5000,), 1e20)
    assert mse(big, -big) == torch.inf
    half = torch.full((5000,), 100.0, dtype=torch.float16)
    assert mse(half, -half) == 40000  # whose sum is beyond float16
    zeros = torch.tensor([0.0, 0.5, 1.0])
    assert kl(torch.full((3,), -torch.inf), zeros * 0) == 0
    assert torch.equal(kl(zeros - 1, zeros, "none"), F.kl_div(zeros - 1, zeros, reduction="none"))


@pytest.mark.full
def test_smaller_tensors_are_read_as_they_are() -> None:
    """Rows of the last dimension are parts then; narrow ones are copied."""
    loss = function("hinge_loss")
    for shape, other in (((6, 300), (300,)), ((6, 300), (6, 1)), ((40, 3), (3,)), ((2, 3, 300), (3, 1))):
        x, target = normal(*shape).requires_grad_(), signs(*other).requires_grad_()
        wide = [t.detach().double().requires_grad_() for t in (x, target)]
        for reduction in REDUCTIONS:
            own, exact = loss(x, target, reduction), hinge(wide[0], wide[1], reduction)
            torch.testing.assert_close(own.double(), exact, rtol=2e-7, atol=0)
            grads = torch.autograd.grad(own.sum(), (x, target)), torch.autograd.grad(exact.sum(), wide)
            for mine, right in zip(*grads, strict=True):
                torch.testing.assert_close(mine.double(), right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("way", ["called", "compiled"])
def test_means_of_integers_are_not_rounded_to_integers(way: str) -> None:
    compiled: Any = functools.partial(torch.compile, fullgraph=True, backend="aot_eager", dynamic=False)
    run = {"called": lambda call: call, "compiled": compiled}[way]
    x, y = torch.tensor([[2**25 + 1, 2, 4], [5, 6, 9]]), torch.tensor([[2**25, 3, 3], [5, 5, 5]])
    for name, scalars in (("mse_loss", ()), ("l1_loss", ()), ("margin_ranking_loss", (0.25,))):
        loss, tensors = run(function(name)), (x, y, torch.ones_like(x))[: 2 + len(scalars)]
        for reduction in REDUCTIONS:
            wanted = function(name)(*(t.double() for t in tensors), *scalars, reduction)
            torch.testing.assert_close(loss(*tensors, *scalars, reduction), wanted.float(), rtol=0, atol=0)
    index, logs = torch.tensor([0, 2]), -x
    nll = run(importlib.import_module("generated.rows.nll").nll)
    torch.testing.assert_close(nll(logs, index), F.nll_loss(logs.double(), index).float())


def test_the_loss_of_complex_numbers_is_real() -> None:
    x, y = torch.randn(2, 3, dtype=torch.complex64), torch.randn(2, 3)
    for reduction in ("none", "mean", "sum"):
        own, wanted = function("l1_loss")(x, y, reduction), F.l1_loss(x, y, reduction=reduction)
        torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize("other", [0.5, [1.0, 2.0], numpy.ones((2, 3), numpy.float32)], ids=str)
def test_what_is_no_tensor_is_refused(other: Any) -> None:
    """PyTorch's operations would broadcast the values of parts to an array."""
    refusal = f"mse_loss: target must be a tensor, not {type(other).__name__}"
    with pytest.raises(TypeError, match=f"^{refusal}$"):
        function("mse_loss")(torch.ones(2, 3), other)
    refusal = f"nll: target is of the rows of a tensor, not of {type(other).__name__}"
    with pytest.raises(TypeError, match=f"^{refusal}$"):
        importlib.import_module("generated.rows.nll").nll(other, torch.tensor([0, 1]))


def test_at_home_in_pytorch() -> None:
    loss, module = function("mse_loss"), importlib.import_module("generated.losses.mse_loss")
    x, y = (normal(3, 4).double().requires_grad_() for _ in range(2))
    for reduction in REDUCTIONS:
        own: Any = lambda a, b, r=reduction: loss(a, b, r)  # noqa: E731
        theirs: Any = lambda a, b, r=reduction: F.mse_loss(a, b, reduction=r)  # noqa: E731
        assert torch.autograd.gradcheck(own, (x, y))
        assert torch.autograd.gradgradcheck(own, (x, y))
        plain = [t.detach() for t in (x, y)]
        torch.testing.assert_close(torch.func.jacfwd(own)(*plain), torch.func.jacfwd(theirs)(*plain))
        torch.testing.assert_close(torch.vmap(own)(*plain), torch.vmap(theirs)(*plain))
        compiled: Any = torch.compile(own, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, y), own(x, y))
        trace: Any = torch.fx.symbolic_trace
        torch.testing.assert_close(trace(module.ModelNew(reduction))(x, y), own(x, y))
        assert own(*(t.to("meta") for t in plain)).shape == own(*plain).shape
    out = torch.empty((), dtype=torch.float64)
    assert loss(x.detach(), y.detach(), out=out) is out
    assert torch.equal(out, loss(x, y))
    torch.testing.assert_close(out, F.mse_loss(x, y).detach(), rtol=1e-15, atol=0)
    with pytest.raises(ValueError, match="mse_loss: most is not a valid value for reduction"):
        loss(x, y, "most")
    assert function("kl_div")(y, x * 0, "batchmean") == 0


DTYPES = {torch.float32: 3e-7, torch.bfloat16: 8e-3, torch.float64: 1e-13}
MEANS = {torch.float32: 1e-15, torch.bfloat16: 1e-6, torch.float64: 1e-15}  # 16 bits are computed in float


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(3, 8), (2, 300)])
def test_cuda_kernels_by_emulation(size: tuple[int, int], dtype: torch.dtype) -> None:
    kernels = emulated(importlib.import_module("generated.losses.mse_loss"))
    x, y = (normal(*size).to(dtype) for _ in range(2))
    wide = [t.double().requires_grad_() for t in (x, y)]
    exact = (wide[0] - wide[1]).square().mean(-1)
    near: Any = {"rtol": DTYPES[dtype], "atol": 1e-3 * DTYPES[dtype]}
    means = kernels.forward([x, y])[:, 0]
    torch.testing.assert_close(means, exact.detach(), rtol=MEANS[dtype], atol=0)
    grad = normal(size[0], 1).to(dtype)
    made_of = kernels.backward([grad, x, y])
    for own, right in zip(made_of, torch.autograd.grad(exact, wide, grad[:, 0].double()), strict=True):
        torch.testing.assert_close(own.double(), right, **near)


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.full  # test_rows.py compiles such a text
@pytest.mark.parametrize("name", ["weighted_cross_entropy", "bce_with_logits_loss", "triplet_margin_loss"])
def test_cuda_text_compiles_without_a_warning(tmp_path: Path, name: str) -> None:
    module: Any = importlib.import_module(f"generated.losses.{name}")
    nvcc(tmp_path, name, module.KERNELS.texts().cuda, *CUDA_FLAGS, "-ptx", "-arch=compute_90")


def classes() -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, classes and a weight of each class."""
    torch.manual_seed(4)
    target = torch.randint(33, (20,))
    target[3] = 5
    return normal(20, 33), target, torch.rand(33)


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "mse": ("MSELoss", {}),
    "l1": ("L1Loss", {}),
    "smooth": ("SmoothL1Loss", {"beta": 0.5}),
    "smooth of beta 0": ("SmoothL1Loss", {"beta": 0.0}),
    "huber": ("HuberLoss", {"delta": 2.0}),
    "logits": ("BCEWithLogitsLoss", {}),
    "logits, positive": ("BCEWithLogitsLoss", {"pos_weight": torch.rand(33)}),
    "soft margin": ("SoftMarginLoss", {}),
    "hinge": ("HingeEmbeddingLoss", {"margin": 2.0}),
    "classes": ("CrossEntropyLoss", {"ignore_index": 5}),
    "weights": ("CrossEntropyLoss", {"weight": torch.rand(33), "ignore_index": 5}),
    "smoothed": ("CrossEntropyLoss", {"label_smoothing": 0.1, "ignore_index": 5}),
    "both": ("CrossEntropyLoss", {"weight": torch.rand(33), "label_smoothing": 0.3}),
    "nll": ("NLLLoss", {"weight": torch.rand(33), "ignore_index": 5}),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", KINDS)
def test_classes_of_torch_nn(case: str, reduction: str) -> None:
    name, arguments = KINDS[case]
    own: nn.Module = getattr(losses, name)(**arguments, reduction=reduction)
    wide = {k: v.double() if isinstance(v, Tensor) else v for k, v in arguments.items()}
    reference = getattr(nn, name)(**wide, reduction=reduction)
    assert isinstance(own, getattr(nn, name))
    own.load_state_dict(reference.state_dict())
    own = pickle.loads(pickle.dumps(own))
    assert repr(own) == repr(reference)
    x, target, _ = classes()
    if name not in ("CrossEntropyLoss", "NLLLoss"):
        x, target = (
            torch.rand(20, 33),
            signs(20, 33) if "argin" in case or case == "hinge" else UNIT(20, 33),
        )
    x, exact_x = x.requires_grad_(), x.detach().double().requires_grad_()
    value = own(x, target)
    exact = reference(exact_x, target.double() if target.is_floating_point() else target)
    assert value.shape == exact.shape
    gaps = [(value.double() - exact).abs().max() / exact.abs().max()]
    of_x, right = (torch.autograd.grad(v.sum(), t)[0] for v, t in ((value, x), (exact, exact_x)))
    gaps.append((of_x.double() - right).abs().max() / right.abs().max())
    assert max(gaps) <= 3e-7


def test_what_has_no_kernel_runs_by_pytorch() -> None:
    x, target, weight = classes()
    every = torch.full_like(target, -100)
    kinds: Any = losses
    assert kinds.CrossEntropyLoss(weight=weight)(x, every).isnan()
    shares = torch.softmax(normal(20, 33), -1)
    torch.testing.assert_close(kinds.CrossEntropyLoss()(x, shares), F.cross_entropy(x, shares))
    images, pixels = normal(2, 33, 4, 5), torch.randint(33, (2, 4, 5))
    torch.testing.assert_close(kinds.NLLLoss()(images, pixels), F.nll_loss(images, pixels))
    swapped = kinds.TripletMarginLoss(swap=True)
    a, b, c = (torch.rand(4, 5) for _ in range(3))
    torch.testing.assert_close(swapped(a, b, c), F.triplet_margin_loss(a, b, c, swap=True))
    with pytest.warns(UserWarning, match="Using a target size"):
        kinds.MSELoss()(x, x[:1])
    with pytest.raises(IndexError, match="cross_entropy: target 33 is out of range for 33 elements"):
        kinds.CrossEntropyLoss()(x, target.clone().fill_(33))


@pytest.mark.full
def test_cosine_of_two_rows() -> None:
    own, x, y = function("cosine_similarity"), normal(6, 900), normal(6, 900)
    torch.testing.assert_close(
        own(x, y).double(), F.cosine_similarity(x.double(), y.double()), rtol=1e-6, atol=1e-8
    )
    assert not own(x * 0, y).any()


INDEXED = "inputs: {x: {shape: [8, 5]}, target: {shape: [8], index: x}}\nover: [-1]\nformula: -x[target]\n"
WRONG = {
    "formula: mean(x)\nreduction: mean": "mean reduces the elements of a row, and this spec has no rows",
    "chain: [relu, sum]\nreduction: sum": "sum reduces the elements of a row, and this spec has no rows",
    f"{INDEXED}reduction: {{mean: weight}}": (
        "'weight' is no tensor between the first one and an index"
    ),
    "formula: square(x)\nreduction: {mean: x}": "'x' is no tensor between the first one and an index",
    "formula: square(x)\nreduction: most": "'most' is not a valid reduction",
}  # fmt: skip


@pytest.mark.parametrize(("body", "message"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_no_loss(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        made(tmp_path, "wrong", f"{body}\n")
    assert message in [error.message for error in caught.value.errors], caught.value.errors


@pytest.mark.full
def test_a_chain_may_be_reduced(tmp_path: Path) -> None:
    own, x = made(tmp_path, "energy", "chain: [tanh, square]\nreduction: sum\n").energy, normal(3, 50)
    torch.testing.assert_close(own(x), torch.tanh(x).square().sum())
