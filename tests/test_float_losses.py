"""Losses of logits that are cast to float32: networks and the backend read the 16 bits as they are."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._dynamo.backends.debugging import aot_eager

from fusegen.models import backend
from fusegen.models.lift.captured_modes import captured_in_each_mode
from fusegen.models.lift.float_losses import is_loss, put_losses_in
from fusegen.models.lift.found import found
from fusegen.models.lift.lifted_network import network
from fusegen.models.reader.row_gains import GAINS, WRITTEN_OUT, Gain

Loss = Callable[[Tensor, Tensor], Tensor]
TAKEN: dict[str, Loss] = {
    "a method": lambda x, t: F.cross_entropy(x.float(), t),
    "a dtype": lambda x, t: F.cross_entropy(x.to(torch.float32), t, reduction="sum", ignore_index=3),
    "views behind the cast": lambda x, t: F.cross_entropy(
        x.float()[:-1].contiguous().view(-1, x.shape[-1]), t[1:]
    ),
    "log-probabilities": lambda x, t: F.nll_loss(x.float(), t, reduction="none").mean(),
}
DENSE: dict[str, Loss] = {  # views of the cast that the logits do not have
    "parts of the rows": lambda x, t: F.cross_entropy(x.view(2, 4, 12)[:, :-1].float().view(-1, 12), t[2:]),
    "repeated rows": lambda x, t: F.cross_entropy(x[:4].expand(2, 4, 12).float().view(-1, 12), t),
}


def written(x: Tensor, t: Tensor) -> Tensor:
    """Return a loss of a copy of logits that are written to before it is computed."""
    y = x * 1
    copied = y.float()
    return y.div_(4).sum() + F.cross_entropy(copied, t)


def written_behind(x: Tensor, t: Tensor) -> Tensor:
    """Return a loss of logits that are written to before its gradient is computed."""
    y = x * 1
    return F.cross_entropy(y.float(), t) + y.zero_().sum()


LEFT: dict[str, Loss] = {
    "no cast": lambda x, t: F.cross_entropy(x, t),
    "a cast to double": lambda x, t: F.cross_entropy(x.double(), t),
    "a cast that is read twice": lambda x, t: (lambda y: F.cross_entropy(y, t) + y.sum())(x.float()),
    "smoothing": lambda x, t: F.cross_entropy(x.float(), t, label_smoothing=0.1),
    "weights": lambda x, t: F.cross_entropy(x.float(), t, torch.ones(12)),
    "probabilities": lambda x, t: F.cross_entropy(x.float(), torch.softmax(x.float(), 1)),
    "an operation behind the cast": lambda x, t: F.cross_entropy(x.float() * 2, t),
    "logits that are written to in front of it": written,
    "logits that are written to behind it": written_behind,
    "pixels": lambda x, t: F.cross_entropy(x.float()[None].transpose(1, 2), t[None]),
}


class Model(nn.Module):
    """A model that returns a loss."""

    def __init__(self, loss: Loss) -> None:
        """Keep the loss."""
        super().__init__()
        self.loss = loss

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return self.loss(x, target)


def drawn(dtype: torch.dtype, rows: int = 8) -> tuple[Tensor, Tensor]:
    """Return logits, some of them large, and classes."""
    torch.manual_seed(0)
    x = torch.randn(rows, 12) * torch.tensor([1.0, 30.0]).repeat(6)
    return x.to(dtype).requires_grad_(), torch.randint(0, 12, (rows,))


def taken(loss: Loss, dtype: torch.dtype, least_passes: int = 1) -> int:
    [graph, *_] = captured_in_each_mode(Model(loss), drawn(dtype), {}).graphs
    losses = put_losses_in(graph, least_passes)
    graph.lint()
    assert [node for node in graph.nodes if is_loss(node)] == [*losses]
    return len(losses)


@pytest.mark.parametrize("case", [*TAKEN, *LEFT])
def test_a_loss_is_taken_where_it_alone_reads_the_cast(case: str) -> None:
    loss = {**TAKEN, **LEFT}[case]
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        is_taken = case in TAKEN and dtype != torch.float32
        assert taken(loss, dtype) == is_taken


def test_a_loss_is_taken_where_it_is_known_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = TAKEN["a method"]
    for recorded in (False, True):
        assert taken(loss, torch.bfloat16, 2) == 0
        monkeypatch.setitem(GAINS, ("cpu", "cross_entropy", WRITTEN_OUT, 2, recorded), Gain(8, 64, 96))
    assert taken(loss, torch.bfloat16, 2) == 1


def exact(loss: Loss, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return a loss and its gradient in double."""
    whole = x.detach().double().requires_grad_()
    value = loss(whole, target)
    [gradient] = torch.autograd.grad(value, whole)
    return value.detach(), gradient


EXACT: dict[str, Loss] = {
    "a method": F.cross_entropy,
    "a dtype": lambda x, t: F.cross_entropy(x, t, reduction="sum", ignore_index=3),
    "views behind the cast": lambda x, t: F.cross_entropy(x[:-1], t[1:]),
    "log-probabilities": F.nll_loss,
    "parts of the rows": lambda x, t: F.cross_entropy(x.view(2, 4, 12)[:, :-1].reshape(-1, 12), t[2:]),
    "repeated rows": lambda x, t: F.cross_entropy(x[:4].repeat(2, 1), t),
}


@pytest.mark.parametrize("case", [*TAKEN, *DENSE])
def test_the_backend_gives_the_loss_and_its_gradient(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "put_losses_in", lambda graph, _: put_losses_in(graph, 1))
    counts: list[int] = []

    def compiler(graph: fx.GraphModule, inputs: Any) -> Any:
        counts.append(backend.put_kernels_in(graph, tmp_path))
        return aot_eager(graph, inputs)

    torch._dynamo.reset()
    for dtype in (torch.bfloat16, torch.float16):
        x, target = drawn(dtype)
        compiled: Any = torch.compile({**TAKEN, **DENSE}[case], backend=compiler)
        value = compiled(x, target)
        value.backward()
        right, gradient = exact(EXACT[case], x, target)
        assert (value.dtype, x.grad is not None and x.grad.dtype) == (torch.float32, dtype)
        torch.testing.assert_close(value.detach().double(), right, rtol=1e-6, atol=0)
        assert x.grad is not None
        torch.testing.assert_close(x.grad, gradient.to(dtype), rtol=0, atol=1e-7)
    assert counts == [1, 1]


class Language(nn.Module):
    """A language model of one layer, whose logits are cast as those of transformers are."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding, self.head = nn.Embedding(40, 16), nn.Linear(16, 40)

    def forward(self, words: Tensor) -> Tensor:
        """Return the loss of the next words."""
        x = self.embedding(words)
        logits = self.head(torch.tanh(x * 2) * torch.sigmoid(x)).float()
        return F.cross_entropy(logits[..., :-1, :].contiguous().view(-1, 40), words[..., 1:].reshape(-1))


def test_a_network_gives_the_loss_and_its_gradients(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, words = Language().bfloat16(), torch.randint(0, 40, (3, 9))
    lifted = network(found(model, (words,), least_passes=1), tmp_path, tmp_path)
    assert "the library's kernel runs: 1 cross_entropy_in_float32 (test_float_losses.py:" in lifted.report
    others = torch.randint(0, 40, (2, 5))
    made = []
    runs: tuple[Any, ...] = (lifted, model, copy.deepcopy(model).double())
    for each in runs:
        each.zero_grad()
        value = each(others)
        value.backward()
        made.append((value.detach().double(), each.head.weight.grad.clone().double()))
    own, usual, right = made
    for one, other, of in zip(own, usual, right, strict=True):
        assert (one - of).abs().max() <= 2 * (other - of).abs().max() + 1e-6
    again = pickle.loads(pickle.dumps(copy.deepcopy(lifted)))
    assert torch.equal(again(others), lifted(others))
