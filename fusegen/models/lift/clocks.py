"""The two clocks of a region: the CPU enqueues its calls, and the GPU runs them.

A region saves calls on the first and bytes on the second. Calls that follow each other take what the later
clock says, so that a region runs where its later clock is earlier than that of the operations it replaces.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.models.lift.regions.norms import normed, normed_affine
from fusegen.models.lift.regions.original import original
from fusegen.models.lift.regions.own_formulas import OF_BATCH
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.reader.aten_calls import hint, layer_of, value_of

WARM, ROUNDS = 3, 3  # the least of the rounds counts: others beside ours make a clock later only
CALLS = 20  # fewer, where the launches of a region's operations overflow the queue of a stream
CYCLES = 4e9  # of a GPU in a second, or more: the device waits until all calls are enqueued
NO_GAIN = "on this device no kernel is faster than the operations that it replaces"
FORWARD, STEP = "forward", "a step"
KERNEL, LEFT = "a kernel", "left to PyTorch"


@dataclass(frozen=True)
class Times:
    """The seconds of a call."""

    enqueue: float  # until the CPU may go on
    device: float  # that the GPU works

    @property
    def later(self) -> float:
        """The seconds that each of many calls takes."""
        return max(self.enqueue, self.device)


Clock = Callable[[Callable[[], Any]], Times]


@dataclass(frozen=True)
class Timing:
    """The times of a region."""

    name: str  # of its kernel
    what: str  # that was timed
    eager: Times  # of the operations that it replaces
    kernel: Times
    words: tuple[str, str] = (KERNEL, LEFT)  # of a gain, and of none

    @property
    def is_gain(self) -> bool:
        """True if the kernel is not slower."""
        return self.kernel.later <= self.eager.later

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the times as a record, in seconds."""
        both = {"kernel": asdict(self.kernel), "eager": asdict(self.eager)}
        yield {"kind": "timing", "name": self.name, "what": self.what, **both, "gain": self.is_gain}

    def __str__(self) -> str:
        """The times beside each other, in microseconds."""
        pairs = (
            (word, getattr(self.kernel, word), getattr(self.eager, word)) for word in ("enqueue", "device")
        )
        shown = ", ".join(
            f"{word} {ours * 1e6:.1f} us for {theirs * 1e6:.1f}" for word, ours, theirs in pairs
        )
        verdict = self.words[0 if self.is_gain else 1]
        return f"{self.name}, {self.what}: {shown}: {verdict}"


def clock_of(regions: Sequence[RegionSpec]) -> Clock | None:
    """Return the clock of the device that regions run on; None for the CPU, which has one clock."""
    on_cuda = any(value_of(each.region.result).is_cuda for each in regions)
    return of_cuda if on_cuda and torch.cuda.is_available() else None


def of_cuda(run: Callable[[], Any]) -> Times:
    """Return the times of a call on the current GPU, which waits until all calls are enqueued."""
    for _ in range(WARM):
        run()
    torch.cuda.synchronize()
    cuda: Any = torch.cuda
    calls = CALLS
    _, longest, _ = enqueued(cuda, run, calls, 1e-3)  # which says how long the device has to wait
    is_held, enqueue, device = enqueued(cuda, run, calls, longest)
    while not is_held and calls > 1:  # the CPU waited for a full queue
        calls //= 2
        is_held, enqueue, device = enqueued(cuda, run, calls, longest)
    more = [enqueued(cuda, run, calls, enqueue) for _ in range(ROUNDS - 1)]
    return Times(min(enqueue, *(each[1] for each in more)), min(device, *(each[2] for each in more)))


def enqueued(cuda: Any, run: Callable[[], Any], calls: int, longest: float) -> tuple[bool, float, float]:
    """Return if the device waited until calls were enqueued, and the seconds that each took on both."""
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda._sleep(int(2 * CYCLES * calls * longest))
    begin.record()
    start = perf_counter()
    for _ in range(calls):
        run()
    took = (perf_counter() - start) / calls
    end.record()
    is_held = not begin.query()
    cuda.synchronize()
    return is_held, took, begin.elapsed_time(end) / 1e3 / calls


def timed(of: RegionSpec, kernel: nn.Module, clock: Clock, named: tuple[str, str]) -> Timing | None:
    """Return the times of a region on tensors like its example inputs; None where it is not timed.

    That is a region with a batch norm in evaluation, of which PyTorch has a kernel that the graph does not
    call, and one with a convolution in front.

    Args:
        of: the region.
        kernel: its module.
        clock: of the device.
        named: the name of the kernel, and what runs, forward or a step.
    """
    region = of.region
    if of.front is not None or any(node.target in (normed, normed_affine) for node in region.nodes):
        return None
    tensors = [_like(node) for node in region.inputs]
    runs = (
        _run(each, _given(region), [*tensors, *of.numbers], named[1])
        for each in (original(region, region.inputs, of.numbers), kernel)
    )
    eager, own = map(clock, runs)
    return Timing(*named, eager, own)


def _like(node: fx.Node) -> Tensor:
    """Return normal numbers, or a mask, laid in memory as a value, whose elements may be shared."""
    value = value_of(node)
    sizes, strides = ([*map(hint, each)] for each in (value.shape, value.stride()))
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    made = torch.empty(max(last + 1, 0), dtype=value.dtype, device=value.device)
    filled = made.bernoulli_() if value.dtype is torch.bool else made.normal_()
    return filled.as_strided(sizes, strides)


def _given(region: Region) -> list[Any]:
    """Return what a call has in front of tensors: a mode, or a layer apart from the model's."""
    layers = [layer_of(node) for node in region.nodes if OF_BATCH in node.meta]
    if region.drops:
        return [True]
    return [copy.deepcopy(each).train() for each in layers if each is not None]


def _run(
    function: Callable[..., Any], given: Sequence[Any], read: Sequence[Any], what: str
) -> Callable[[], Any]:
    """Return a call of forward, or of forward and the gradients of all tensors of floats."""
    if what == FORWARD:
        return torch.no_grad()(lambda: function(*given, *read))
    leaves = [_leaf(each) if isinstance(each, Tensor) else each for each in read]
    held = [each for layer in given if isinstance(layer, nn.Module) for each in layer.parameters()]
    graded = [each for each in (*leaves, *held) if isinstance(each, Tensor) and each.requires_grad]

    def run() -> Any:
        made = function(*given, *leaves)
        results = [
            each for each in (made if isinstance(made, tuple | list) else (made,)) if each.requires_grad
        ]
        if not results:  # as of a region that detaches
            return made
        return torch.autograd.grad(results, graded, [*map(torch.ones_like, results)], allow_unused=True)

    return torch.enable_grad()(run)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


def gaining(
    calls: Sequence[tuple[RegionSpec, str]],
    time: Callable[[RegionSpec, str, str], Timing | None],
    graphs: Sequence[fx.Graph],
) -> tuple[list[tuple[RegionSpec, str]], tuple[Timing, ...]]:
    """Return the calls of regions that gain, and the times.

    Args:
        calls: regions with the names of their kernels.
        time: returns the times of a region, by the name and by what runs; None where it is not timed.
        graphs: that of training and that of evaluation, or one of both, whose regions have to gain in both.
    """
    known: dict[object, Timing | None] = {}
    kept = []
    for of, name in calls:
        runs = (
            (STEP, FORWARD)
            if len(graphs) == 1
            else (STEP if of.region.result.graph is graphs[0] else FORWARD,)
        )
        values = [value_of(node) for node in of.region.inputs]
        laid = [f"{each.dtype} {each.shape} {each.stride()}" for each in values]
        keys = [(name, each, *laid) for each in runs]
        known |= {key: time(of, key[0], key[1]) for key in keys if key not in known}
        if all(timing is None or timing.is_gain for timing in map(known.__getitem__, keys)):
            kept.append((of, name))
    return kept, tuple(each for each in known.values() if each is not None)
