"""Recurrent layers in networks: their shapes without values, and any number of steps."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fusegen.models.lift.captured_modes import captured_in_each_mode
from fusegen.models.lift.forwards import function_of
from fusegen.models.lift.found import found
from fusegen.models.reader.recurrent import recurrent

KINDS = (nn.LSTM, nn.GRU, nn.RNN)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"batch_first": True},
    {"batch_first": True, "bidirectional": True, "num_layers": 2},
    {"bias": False, "bidirectional": True},
)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_has_the_shapes_of_pytorchs(kind: type[nn.LSTM]) -> None:
    more: tuple[dict[str, Any], ...] = ({"proj_size": 3, "num_layers": 2},) if kind is nn.LSTM else ()
    for options, shape in itertools.product((*OPTIONS, *more), ((5, 2, 4), (5, 1, 4), (1, 2, 4), (5, 4))):
        layer, x = kind(4, 6, **options), torch.randn(shape)
        own, theirs = tree_leaves(recurrent(layer, (x,), {})), tree_leaves(layer(x))
        assert len(own) == len(theirs)
        for one, other in zip(own, theirs, strict=True):
            assert (one.shape, one.dtype, one.requires_grad) == (other.shape, other.dtype, True)
        if len(shape) == 3 and not options.get("bidirectional"):
            assert own[0].stride() == theirs[0].stride()


def test_other_layers_and_packed_sequences_run() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    assert recurrent(nn.LSTM(4, 6), (packed,), {}) is None
    assert recurrent(nn.Linear(4, 6), (torch.randn(3, 4),), {}) is None


class Tagger(nn.Module):
    """A recurrent layer behind an embedding, whose result is cut by its sizes."""

    def __init__(self, kind: type[nn.LSTM], *, batch_first: bool) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding, self.layer = nn.Embedding(50, 16), kind(16, 8, batch_first=batch_first)
        self.head = nn.Linear(8, 4)

    def forward(self, words: Tensor) -> Tensor:
        """Return a score of each tag for each word."""
        y, _ = self.layer(self.embedding(words))
        y = self.head(y.reshape(y.shape[0] * y.shape[1], -1))
        tags: Tensor = torch.tanh(y * 2) * torch.sigmoid(y) + 1 / y.shape[0]
        return tags


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_network_has_any_number_of_steps(kind: type[nn.LSTM], batch_first: bool) -> None:
    model = Tagger(kind, batch_first=batch_first).eval()
    words = torch.randint(0, 50, (4, 10))
    [region] = found(model, (words,), least_passes=1).chosen
    assert "tanh" in region.body
    modes = captured_in_each_mode(model, (words,), {})
    run = function_of(modes.graphs[-1])
    for shape in ((4, 10), (3, 7), (9, 2)):
        others = torch.randint(0, 50, shape)
        assert torch.equal(run(model, others)[0], model(others))
