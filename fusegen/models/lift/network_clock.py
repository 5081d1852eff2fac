"""The time of a whole network beside its model's, on both clocks of a GPU."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fusegen.models.lift.clocks import FORWARD, ROUNDS, STEP, WARM, Clock, Times, Timing, enqueued
from fusegen.models.lift.found import Inputs

WORDS = ("lifted", "left to PyTorch")


def of_network(run: Callable[[], Any]) -> Times:
    """Return the times of a call on the current GPU that may launch more than a stream's queue holds."""
    for _ in range(WARM):
        run()
    cuda: Any = torch.cuda
    enqueue = device = float("inf")
    for _ in range(ROUNDS):
        cuda.synchronize()
        start = perf_counter()
        run()
        enqueue = min(enqueue, perf_counter() - start)
        cuda.synchronize()
        device = min(device, enqueued(cuda, run, 1, enqueue)[2])
    return Times(enqueue, device)


def network_timing(model: nn.Module, lifted: nn.Module, inputs: Inputs, clock: Clock) -> Timing | None:
    """Return the times of a model and its network, in the model's mode; None where memory is too short.

    In training a call is forward and the gradients of all parameters; buffers and random states are as
    before, and no gradient is added to a parameter's.

    Args:
        model: it.
        lifted: its network.
        inputs: of both.
        clock: of the device.
    """
    is_step = model.training and any(each.requires_grad for each in model.parameters())
    run = step if is_step else forward
    with kept(model):
        try:
            eager, own = (clock(run(each, inputs)) for each in (model, lifted))
        except torch.cuda.OutOfMemoryError:
            return None
    return Timing(type(model).__name__, STEP if is_step else FORWARD, eager, own, WORDS)


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Put buffers and random states back behind calls of a model."""
    before = [(each, each.clone()) for each in model.buffers()]
    try:
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _called(network: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Return the tensors of a result."""
    made = network(**inputs) if isinstance(inputs, Mapping) else network(*inputs)
    return [each for each in tree_leaves(made) if isinstance(each, Tensor)]


def forward(network: nn.Module, inputs: Inputs) -> Callable[[], Any]:
    """Return a call of forward, without gradients."""
    return torch.no_grad()(lambda: _called(network, inputs))


def step(network: nn.Module, inputs: Inputs) -> Callable[[], Any]:
    """Return a call of forward and of the gradients of all parameters."""
    parameters = [each for each in network.parameters() if each.requires_grad]

    def run() -> Any:
        results = [each for each in _called(network, inputs) if each.requires_grad]
        grads = [*map(torch.ones_like, results)]
        return torch.autograd.grad(results, parameters, grads, allow_unused=True) if results else None

    return torch.enable_grad()(run)
