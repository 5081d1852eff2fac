"""Layers with the statistics of batches, and how these move."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


class BatchStatistics(_BatchNorm):
    """A layer with torch.nn's constructor, buffers and state_dict, for tensors of any rank."""


# for classes of layers a bit for each number of dimensions that they take, or 0 for all
LAYERS = (
    (BatchStatistics, 0),
    (nn.BatchNorm1d, 0b1100),
    (nn.BatchNorm2d, 0b10000),
    (nn.BatchNorm3d, 0b100000),
)


def update(module: Any, moments: Any, length: int) -> None:
    """Move the running statistics of a module towards those of a batch, as PyTorch does."""
    module.num_batches_tracked.add_(1)
    share = module.momentum
    if share is None:  # the average of all batches so far
        share = 1.0 / module.num_batches_tracked.double()
    mean, var = moments.unbind(1)
    for buffer, value in ((module.running_mean, mean), (module.running_var, var * (length / (length - 1)))):
        buffer.copy_(torch.lerp(buffer.double(), value, share))
