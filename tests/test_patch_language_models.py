"""Rotary embeddings and losses of language models, patched to run kernels."""

from __future__ import annotations

import copy
import functools
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatching import after_each
from torch import Tensor, nn

import fusegen
from fusegen.models.patch import causal_losses, rotary
from fusegen.models.reader import row_gains
from fusegen.models.reader.row_gains import GAINS, WRITTEN_OUT, Gain

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
GPU = pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])
HEADS, SIZE, LENGTH, CLASSES = 3, 8, 5, 11
Ran = list[str]


def rotate_half(x: Tensor) -> Tensor:
    """Return the second half with another sign, and the first."""
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def apply_rotary_pos_emb(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the embedding as transformers has it."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)


def turned_back(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return another function of such arguments."""
    return apply_rotary_pos_emb(q, k, cos, -sin)


def swapped(q: Tensor, k: Tensor, sin: Tensor, cos: Tensor) -> tuple[Tensor, Tensor]:
    """Return one whose arguments are in another order."""
    return apply_rotary_pos_emb(q, k, cos, sin)


class Attention(nn.Module):
    """The part of an attention in front of its products."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, HEADS * SIZE)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries, and the keys of one head."""
        q = self.mix(x).unflatten(-1, (HEADS, SIZE)).transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, q[:, :1].contiguous(), cos, sin)
        return q, k


class Named(Attention):
    """One that says where heads are."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries and the keys."""
        q = self.mix(x).unflatten(-1, (HEADS, SIZE))
        return apply_rotary_pos_emb(q, q, cos, sin, unsqueeze_dim=2)


class Other(Attention):
    """One that turns the other way."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries and the keys."""
        q = self.mix(x).unflatten(-1, (HEADS, SIZE)).transpose(1, 2)
        return turned_back(*swapped(q, q, sin, cos), cos, sin)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Have all kernels be faster; the list has the functions whose kernels ran."""
    ran = Ran()

    def always(name: str, *_: Any, is_recorded: bool) -> bool:
        ran.append(name)
        return True

    for name in (rotary.NAME, causal_losses.NAME):
        for size in (2, 4):
            for mode in (False, True):
                monkeypatch.setitem(GAINS, ("cpu", name, WRITTEN_OUT, size, mode), Gain(1, 2**20))
    monkeypatch.setattr(row_gains, "is_gain", always)
    return ran


def given(dtype: torch.dtype, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return an input, and cosines and sines whose halves differ."""
    draw = torch.Generator().manual_seed(3)
    x, cos, sin = (
        torch.randn(each, LENGTH, width, generator=draw)
        for each, width in ((2, 4), (batch, SIZE), (batch, SIZE))
    )
    return x.to(dtype), cos.to(dtype), sin.to(dtype)


def results(layer: nn.Module, x: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
    """Return values and gradients."""
    leaf = x.clone().requires_grad_()
    made = layer(leaf, cos, sin)
    weights = [torch.linspace(-2, 3, each.numel(), dtype=each.dtype).view_as(each) for each in made]
    return [*made, *torch.autograd.grad(made, [leaf, *layer.parameters()], weights)]


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", rotary.DTYPES, ids=str)
@pytest.mark.parametrize("batch", [1, 2])
def test_rotary_embeddings_are_one_kernel(dtype: torch.dtype, batch: int, runs: Ran) -> None:
    torch.manual_seed(0)
    layer = Attention().to(dtype)
    ours, exact = copy.deepcopy(layer), copy.deepcopy(layer).double()
    assert str(fusegen.patch(ours)) == (
        "replaced 1 layer, kept 0\n"
        "  the model: Attention, apply_rotary_pos_emb(q, q[:, :1].contiguous(), cos, sin) -> results.rotary"
    )
    for scale in (1e-3, 1.0, 100.0):
        x, cos, sin = given(dtype, batch)
        tensors = scale * x, cos, sin
        mine, theirs = results(ours, *tensors), results(layer, *tensors)
        truth = results(exact, *(each.double() for each in tensors))
        for one, other, true in zip(mine, theirs, truth, strict=True):
            assert (one.dtype, one.stride()) == (dtype, other.stride())
            errors = [(each.double() - true).abs().max() for each in (one, other)]
            assert errors[0] <= 1.5 * errors[1] + torch.finfo(dtype).eps * true.abs().max()
        with torch.no_grad():
            assert all(map(torch.equal, ours(*tensors), mine))
    assert runs.count("rotary") == 6


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_rotary_embedding_is_rounded_once(device: str, runs: Ran) -> None:
    q, cos, sin = (
        each.to(device) for each in (torch.randn(2, HEADS, LENGTH, SIZE), *given(torch.float32)[1:])
    )
    call = rotary.Rotated("f", apply_rotary_pos_emb).call()
    for dtype in rotary.DTYPES:
        whole = [each.to(dtype) for each in (q, cos, sin)]
        made, _ = call(apply_rotary_pos_emb, whole[0], whole[0], *whole[1:])
        wide, wide_cos, wide_sin = (each.double() for each in whole)
        right, _ = apply_rotary_pos_emb(wide, wide, wide_cos, wide_sin)
        assert torch.equal(made, right.to(dtype))
    for value in (float("nan"), float("inf")):
        q[0, 0, 0, 1] = value
        right, _ = apply_rotary_pos_emb(q, q, cos, sin)
        made, _ = call(apply_rotary_pos_emb, q, q, cos, sin)
        assert torch.equal(made.isnan(), right.isnan())
        torch.testing.assert_close(made, right, equal_nan=True)


CALLS: dict[str, Callable[[Any, Tensor, Tensor, Tensor], Any]] = {  # that run the function
    "angles of another dtype": lambda layer, x, cos, sin: layer(x, cos.double(), sin.double()),
    "gradients of angles": lambda layer, x, cos, sin: layer(x, cos.clone().requires_grad_(), sin),
    "no elements": lambda layer, x, cos, sin: layer(x[:, :0], cos[:, :0], sin[:, :0]),
    "along a tangent": lambda layer, x, cos, sin: torch.func.jvp(lambda x: layer(x, cos, sin), (x,), (x,)),
}


@pytest.mark.parametrize("call", CALLS)
def test_tensors_that_the_kernel_does_not_take(call: str, runs: Ran) -> None:
    layer, tensors = Attention(), given(torch.float32)
    right = CALLS[call](layer, *tensors)
    fusegen.patch(layer)
    torch.testing.assert_close(CALLS[call](layer, *tensors), right, rtol=0, atol=0)
    assert runs == []


@pytest.mark.parametrize("kind", [Named, Other])
def test_other_calls_stay(kind: Any, runs: Ran) -> None:
    assert str(fusegen.patch(kind())) == "the model has no layer that the library computes"


@pytest.mark.parametrize(("least", "count"), [(8 * HEADS, 2), (8 * HEADS + 1, 0)])
def test_keys_of_fewer_heads_follow_the_queries(
    least: int, count: int, runs: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(name: str, written: str, x: Tensor, columns: int, *, is_recorded: bool) -> bool:
        return (columns, x.numel() >= 2 * LENGTH * least) == (SIZE, True)

    ran = list[Tensor]()
    monkeypatch.setattr(row_gains, "is_gain", large)
    monkeypatch.setattr(rotary, "_run", lambda x, cos, sin: ran.append(x))
    layer = Attention()
    fusegen.patch(layer)
    layer(*given(torch.float32))
    assert [each.shape[1] for each in ran] == [HEADS, 1][:count]


def test_a_function_that_was_replaced_runs(runs: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, other, tensors = Attention(), Attention(), given(torch.float32)
    fusegen.patch(layer)
    monkeypatch.setattr(sys.modules[__name__], "apply_rotary_pos_emb", lambda q, k, cos, sin: (cos, sin))
    assert layer(*tensors) == tensors[1:]
    assert other(*tensors) == tensors[1:]


def test_second_derivatives_batches_and_compilers(runs: Ran) -> None:
    layer, (x, cos, sin) = Attention().double(), given(torch.float32)
    ours = copy.deepcopy(layer.float())
    fusegen.patch(ours)

    def slopes(of: nn.Module) -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        [made] = torch.autograd.grad(of(leaf, cos, sin)[0].pow(3).sum(), leaf, create_graph=True)
        many = torch.eye(made.numel()).view(-1, *made.shape)
        [again] = torch.autograd.grad(made, leaf, many, is_grads_batched=True)
        return [made.detach(), again]

    for one, other in zip(slopes(ours), slopes(layer), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert "rotary" in runs
    runs.clear()
    compiled: Any = torch.compile(ours, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, cos, sin)[0], layer(x, cos, sin)[0])
    assert runs == []


def loss_in_float(  # as transformers has it
    logits: Any,
    labels: Any,
    vocab_size: int,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: Any = None,
    **kwargs: Any,
) -> Tensor:
    """Return the loss of logits in float32, or in float64 of such."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:].contiguous()
    reduction = "mean" if num_items_in_batch is None else "sum"
    target = shift_labels.view(-1)
    loss = F.cross_entropy(
        logits.view(-1, vocab_size), target, ignore_index=ignore_index, reduction=reduction
    )
    return loss if num_items_in_batch is None else loss / num_items_in_batch


@functools.wraps(loss_in_float)
def twice_the_loss(*given: Any, **named: Any) -> Tensor:
    """Return twice the loss."""
    return 2 * loss_in_float(*given, **named)


class Language(nn.Module):
    """A model of transformers, with the property that these have."""

    function: Any = staticmethod(loss_in_float)

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, CLASSES, bias=False)

    @property
    def loss_function(self) -> Any:
        """The loss."""
        return vars(self).get("_loss_function", self.function)

    def forward(self, x: Tensor, labels: Tensor, **others: Any) -> Tensor:
        """Return the loss."""
        loss: Tensor = self.loss_function(logits=self.head(x), labels=labels, vocab_size=CLASSES, **others)
        return loss


LABELS = torch.tensor([[1, 2, -100, 3, 10], [0, 0, 4, -100, 9]])
OPTIONS: dict[str, dict[str, Any]] = {
    "a mean": {},
    "a sum over a number": {"num_items_in_batch": 7},
    "a sum over a tensor": {"num_items_in_batch": torch.tensor(3)},
    "shifted": {"shift_labels": LABELS.roll(1)},
    "all ignored": {"shift_labels": torch.full_like(LABELS, -100)},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", causal_losses.DTYPES, ids=str)
def test_a_loss_of_16_bits_makes_no_copy(dtype: torch.dtype, options: str, runs: Ran) -> None:
    ours = causal_losses.CausalLoss(loss_in_float, False)
    torch.manual_seed(1)
    for scale in (1e-2, 1.0, 40.0):
        logits = (scale * torch.randn(2, LENGTH, CLASSES)).to(dtype).requires_grad_()
        exact = logits.detach().double().requires_grad_()
        found = ours(logits, LABELS, CLASSES, **OPTIONS[options])
        right = loss_in_float(exact, LABELS, CLASSES, **OPTIONS[options])
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), right, rtol=1e-6, atol=1e-7, equal_nan=True)
        [slope], [true] = (
            torch.autograd.grad(value, of) for value, of in ((found, logits), (right, exact))
        )
        assert slope.dtype == dtype
        torch.testing.assert_close(
            slope.double(), true, rtol=0.51 * torch.finfo(dtype).eps, atol=1e-7, equal_nan=True
        )
    assert len(runs) == 3


def test_second_derivatives_and_wrong_labels_of_a_loss(runs: Ran) -> None:
    ours, found = causal_losses.CausalLoss(loss_in_float, False), list[Tensor]()
    logits = torch.randn(2, LENGTH, CLASSES).to(torch.bfloat16).requires_grad_()
    for function in (ours, loss_in_float):
        value = function(logits, LABELS, CLASSES)
        [slope] = torch.autograd.grad(value, logits, create_graph=True)
        found += torch.autograd.grad(slope.float().square().sum(), logits)
    torch.testing.assert_close(*found, rtol=2e-2, atol=1e-4)
    with pytest.raises(IndexError, match="target 11 is out of range for 11 elements"):
        ours(logits, LABELS + (LABELS == 10), CLASSES)


def test_a_language_model_is_patched_and_undone(runs: Ran) -> None:
    model = Language().to(torch.bfloat16)
    x, before = torch.randn(2, LENGTH, 4).to(torch.bfloat16), vars(model).copy()
    eager = model(x, LABELS)
    report = fusegen.patch(model)
    assert str(report) == (
        "replaced 1 layer, kept 0\n  the model: Language, loss_in_float -> rows.cross_entropy_in_float32"
    )
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert str(fusegen.patch(again)) == "the model is patched already: it has 1 generated module"
    torch.testing.assert_close(again(x, LABELS), eager, rtol=1e-6, atol=0)
    assert runs == ["cross_entropy"]
    compiled: Any = torch.compile(again, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, LABELS), eager)
    assert runs == ["cross_entropy"]
    assert (report.undo(), fusegen.unpatch(again)) == (1, 1)
    assert vars(model) == before
    assert torch.equal(again(x, LABELS), eager)


def test_a_model_in_float32_makes_no_copy_under_autocast(runs: Ran) -> None:
    model = Language()
    x = torch.randn(2, LENGTH, 4)
    report = fusegen.patch(model)
    shown = "the model: Language, loss_in_float -> rows.cross_entropy_in_float32, under autocast"
    assert str(report) == f"replaced 1 layer, kept 0\n  {shown}"
    assert torch.equal(model(x, LABELS), Language.function(model.head(x), LABELS, CLASSES))
    assert runs == []
    copies = list[Tensor]()

    def note(_: Any, __: Any, made: Any) -> None:
        copies.extend([made] * (isinstance(made, Tensor) and made.numel() == 2 * LENGTH * CLASSES))

    with torch.autocast("cpu", torch.bfloat16), after_each(note):
        found = model(x, LABELS)
    assert {t.dtype for t in copies} == {torch.bfloat16}
    assert (runs, found.dtype) == (["cross_entropy"], torch.float32)
    logits = copies[0].detach().view(2, LENGTH, CLASSES)
    torch.testing.assert_close(found, loss_in_float(logits, LABELS, CLASSES), rtol=1e-6, atol=0)


def test_further_arguments_of_a_loss_of_ones_own_are_read(runs: Ran) -> None:
    def smoothed(*given: Any, label_smoothing: float = 0.0, **named: Any) -> Tensor:
        return loss_in_float(*given, **named) + label_smoothing

    logits = torch.randn(2, LENGTH, CLASSES).to(torch.bfloat16)
    ours = causal_losses.CausalLoss(smoothed, False)
    right = ours(logits, LABELS, CLASSES) + 1
    torch.testing.assert_close(ours(logits, LABELS, CLASSES, label_smoothing=1.0), right)
    assert runs == ["cross_entropy"]


def test_losses_that_stay(runs: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    none = "the model has no layer that the library computes"
    monkeypatch.setattr(Language, "function", staticmethod(twice_the_loss))
    assert str(fusegen.patch(Language().half())) == none
    monkeypatch.undo()
    shown = "Language, loss_function stays, since no kernel is known to be faster in float16 on cpu"
    assert str(fusegen.patch(Language().half())) == f"replaced 0 layers, kept 1\n  the model: {shown}"


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_llama(dtype: torch.dtype, runs: Ran) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 64, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(dtype)
    ours, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    report = fusegen.patch(ours)
    modules = [each.module for each in report.replaced]
    assert modules.count("results.rotary") == 2
    assert modules.count("rows.cross_entropy_in_float32") == 1
    ids = torch.randint(0, 64, (2, 9))
    for train in (True, False):
        runs.clear()
        mine, theirs, truth = ([each.train(train)(ids, labels=ids).loss] for each in (ours, model, exact))
        for found, of in ((mine, ours), (theirs, model), (truth, exact)):
            found += torch.autograd.grad(found[0], [*of.parameters()])
        assert runs.count("rotary") == 2
        assert runs.count("cross_entropy") == (dtype == torch.bfloat16)
        for one, other, true in zip(mine, theirs, truth, strict=True):
            assert one.dtype == other.dtype
            errors = [(each.double() - true).abs().max() for each in (one, other)]
            assert errors[0] <= 2 * errors[1] + 4 * torch.finfo(dtype).eps * true.abs().max()
    before = model.state_dict()
    assert all(torch.equal(each, before[name]) for name, each in ours.state_dict().items())
    report.undo()
    assert torch.equal(ours(ids, labels=ids).logits, model(ids, labels=ids).logits)
