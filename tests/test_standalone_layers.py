"""Standalone files: convolutions without their bias, on an emulated GPU, and lines that are broken."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fusegen.codegen.standalone import helpers
from fusegen.codegen.standalone.python import wrapped

LAYERS = {"nn.Conv2d": nn.Conv2d, "nn.ConvTranspose2d": nn.ConvTranspose2d}


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have layers take tensors as those of a GPU."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))


def divided_by(words: str) -> Any:
    """Return the function of a file that divides a convolution from its bias."""
    space: dict[str, Any] = {"torch": torch, "nn": nn}
    exec("\n".join(helpers.called(f"without_bias({words})")), space)
    return space["without_bias"]


class Doubled(nn.Conv2d):
    """A convolution of a model, which is not PyTorch's."""

    def forward(self, x: Tensor) -> Tensor:
        """Return twice the output."""
        return 2 * super().forward(x)


@pytest.mark.parametrize("words", LAYERS)
def test_a_bias_is_that_of_channels(on_gpu: None, words: str) -> None:
    layer, without_bias = LAYERS[words](3, 5, 3, padding=1), divided_by(words)
    for x in (torch.randn(2, 3, 5, 5), torch.randn(3, 5, 5)):  # one image has as many rows as channels
        y, bias = without_bias(layer, x)
        assert bias.shape == (5, 1, 1)
        torch.testing.assert_close(y + bias, layer(x))


@pytest.mark.parametrize("words", LAYERS)
def test_layers_that_are_watched_are_called(
    on_gpu: None, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    x, without_bias = torch.randn(2, 3, 5, 5), divided_by(words)
    seen: list[Any] = []
    hooked, replaced = LAYERS[words](3, 5, 3), LAYERS[words](3, 5, 3)
    handle = hooked.register_forward_hook(lambda _, __, y: seen.append(y))
    monkeypatch.setattr(replaced, "forward", lambda t: 3 * t)
    for layer in (hooked, replaced, Doubled(3, 5, 3), nn.Identity()):  # the last one has no bias
        y, bias = without_bias(layer, x)
        assert torch.equal(y, layer(x))
        assert torch.equal(bias.signbit(), torch.tensor(True))
    assert len(seen) == 2
    handle.remove()
    assert without_bias(hooked, x)[1].shape == (5, 1, 1)


# Long lines


@pytest.mark.parametrize(
    "call", ["(a + {}) / 2", "tuple({} + t for t in (a, a))", "max(a, {})", "({}, )[0]"]
)
def test_long_lines_that_are_broken_say_the_same(call: str) -> None:
    long = "a" + " + a" * 40
    lines = [*wrapped(f"y = {call.format(long)}")]
    space: dict[str, Any] = {"a": 1.0}
    exec("\n".join(lines), space)
    assert space["y"] == eval(call.format(long), {"a": 1.0})
    assert len(lines) >= 3
    assert "" not in map(str.strip, lines)
