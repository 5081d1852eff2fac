"""The layers of a model whose forward is Python that can be read."""

from collections.abc import Iterator

from torch import jit, nn


def layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a model, each with its path, but for what TorchScript has compiled."""
    for path, layer in model.named_modules():
        if not isinstance(layer, jit.ScriptModule):
            yield path, layer
