"""Checks of DTensor on two processes, of the CPU or of a GPU each, against the same of tensors on one.

A check returns pairs of equal tensors, or of equal values; `run` compares them on both ranks.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from kernels import generated
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._debug_mode import DebugMode

Call = Callable[..., Any]
Pairs = list[tuple[Any, Any]]
Check = Callable[[DeviceMesh], Pairs]
ALL, ROWS, COLUMNS = Replicate(), Shard(0), Shard(1)


def ours(name: str) -> Call:
    """The function of a generated module."""
    function: Call = getattr(generated(name), name)
    return function


elu, relu = ours("elu"), ours("relu")  # found before anything is compiled


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _halves(x: Tensor) -> Tensor:
    return _swiglu(*x.chunk(2, -1))


def _thin(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The operator of a convolution with a kernel behind it, as compilers record it.

    PyTorch's convolution of distributed tensors, which the gradient is made of, takes no 3 x 3 kernel at
    stride 1 without padding.
    """
    y: Tensor = generated("conv_relu_hardswish").KERNELS.convolution(x, weight, bias, 1, 1, 1, 1)
    return y


def _steps(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.hardswish((F.conv2d(x, weight, padding=1) + bias).relu())


def tensors(mesh: DeviceMesh, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Random tensors on a rank's device, the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [t.to(mesh.device_type) for t in made]


X, UP, ROW, COLUMN, ONE = (5, 6), (5, 6), (6,), (5, 1), (1, 1)  # 5 does not divide by 2
THIN = (4, 8, 5, 6), (7, 8, 3, 3), (7, 1, 1)
CASES: dict[str, tuple[Call, Call, Sequence[tuple[int, ...]], Sequence[Any], Any, Sequence[Any]]] = {
    # ours, PyTorch's, shapes, placements; placements of the result and of the gradients
    "rows": (ours("gelu"), F.gelu, [X], [ROWS], ROWS, [ROWS]),
    "columns": (ours("gelu"), F.gelu, [X], [COLUMNS], COLUMNS, [COLUMNS]),
    "replicated": (ours("gelu"), F.gelu, [X], [ALL], ALL, [ALL]),
    "a scalar": (lambda x: elu(x, 0.5), lambda x: F.elu(x, 0.5), [X], [ROWS], ROWS, [ROWS]),
    "saved output": (relu, F.relu, [X], [ROWS], ROWS, [ROWS]),
    "in place": (lambda x: relu(x * 1, inplace=True), F.relu, [X], [COLUMNS], COLUMNS, [COLUMNS]),
    "two": (ours("swiglu"), _swiglu, [X, UP], [ROWS, ROWS], ROWS, [ROWS, ROWS]),
    "two, one replicated": (ours("swiglu"), _swiglu, [X, UP], [ROWS, ALL], ROWS, [ROWS, ROWS]),
    "a row": (ours("swiglu"), _swiglu, [X, ROW], [ROWS, ALL], ROWS, [ROWS, Partial()]),
    "a sharded row": (ours("swiglu"), _swiglu, [X, ROW], [COLUMNS, ROWS], COLUMNS, [COLUMNS, ROWS]),
    "a column": (ours("swiglu"), _swiglu, [X, COLUMN], [COLUMNS, ALL], COLUMNS, [COLUMNS, Partial()]),
    "one number": (ours("swiglu"), _swiglu, [X, ONE], [ROWS, ALL], ROWS, [ROWS, Partial()]),
    "halves": (ours("swiglu"), _halves, [X], [ROWS], ROWS, [ROWS]),
    "halves of columns": (ours("swiglu"), _halves, [X], [COLUMNS], ALL, [ALL]),
    "a thin convolution": (_thin, _steps, THIN, [ROWS, ALL, ALL], ROWS, [ROWS, Partial(), Partial()]),
    "a parameter": (ours("prelu"), F.prelu, [X, ROW], [ROWS, ALL], ROWS, [ROWS, Partial()]),
}
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}  # by the device of the ranks
COMPILED = ("in place", "a row", "halves of columns")


def case(mesh: DeviceMesh, name: str, wrap: Call = lambda f: f) -> Pairs:
    """A function of DTensors, with its gradients, and the same of tensors."""
    function, eager, shapes, placements, result, gradients = CASES[name]
    plain = [t.requires_grad_() for t in tensors(mesh, *shapes)]
    sharded = [
        distribute_tensor(t.detach(), mesh, [p]).requires_grad_()
        for t, p in zip(plain, placements, strict=True)
    ]
    y, expected = wrap(function)(*sharded), eager(*plain)
    y.square().sum().backward()
    expected.square().sum().backward()
    grads: list[Any] = [t.grad for t in sharded]
    kinds = [
        (y.placements, (result,)),
        *((g.placements, (p,)) for g, p in zip(grads, gradients, strict=True)),
    ]
    full = [(g.full_tensor(), t.grad) for g, t in zip(grads, plain, strict=True)]
    return [(y.full_tensor(), expected), *kinds, *full]


def calls_the_kernel(mesh: DeviceMesh) -> Pairs:
    """The operator runs on the part of each rank, forward and backward, and nothing is moved."""
    x = distribute_tensor(tensors(mesh, X)[0], mesh, [ROWS]).requires_grad_()
    with DebugMode() as mode:
        y = ours("gelu")(x)
        y.backward(torch.ones_like(y))
    shown = mode.debug_string()
    return [
        ("gelu_forward" in shown, True),
        ("gelu_backward" in shown, True),
        ("redistribute" in shown, False),
    ]


def partial_sums(mesh: DeviceMesh) -> Pairs:
    """Partial sums are added up before the function, which is not linear."""
    [x] = tensors(mesh, X)
    return [(ours("gelu")(DTensor.from_local(x, mesh, [Partial()])).full_tensor(), F.gelu(2 * x))]


def without_a_gradient(mesh: DeviceMesh) -> Pairs:
    """In inference mode, in place and into a tensor of another sharding."""
    [x] = tensors(mesh, X)
    with torch.inference_mode():
        d = distribute_tensor(x, mesh, [ROWS])
        made = ours("gelu")(d).full_tensor()
    d, out = distribute_tensor(x, mesh, [ROWS]), distribute_tensor(torch.zeros_like(x), mesh, [COLUMNS])
    ours("gelu")(d, out=out)
    same = ours("gelu")(d, inplace=True) is d
    pairs = [(t.full_tensor(), F.gelu(x)) for t in (d, out)]
    return [(made, F.gelu(x)), *pairs, (same, True), (out.placements, (COLUMNS,))]


def promoted(mesh: DeviceMesh) -> Pairs:
    """Tensors of two dtypes, and of integers."""
    x, up = tensors(mesh, X, UP)
    first, second = (distribute_tensor(t, mesh, [ROWS]) for t in (x, up.float()))
    whole = distribute_tensor(torch.arange(5, device=mesh.device_type), mesh, [ROWS])
    return [
        (ours("swiglu")(first, second).full_tensor(), _swiglu(x, up.float().double())),
        (ours("relu")(whole).full_tensor().cpu(), torch.arange(5)),
    ]


def second_derivative(mesh: DeviceMesh) -> Pairs:
    """The gradient of a gradient."""

    def twice(function: Call, x: Tensor) -> Any:
        [slope] = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    [x] = tensors(mesh, X)
    sharded = distribute_tensor(x, mesh, [ROWS]).requires_grad_()
    return [(twice(ours("gelu"), sharded).full_tensor(), twice(F.gelu, x.requires_grad_()))]


class Gated(nn.Module):
    """A gated network, whose layers are split between the ranks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.gate, self.up, self.down = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 6)
        self.act = generated("swiglu").ModelNew()

    def forward(self, x: Tensor) -> Tensor:
        """The same of sharded layers and of whole ones."""
        result: Tensor = self.down(self.act(self.gate(x), self.up(x)))
        return result


def trained(network: nn.Module, reference: nn.Module, x: Tensor, wrap: Call = lambda f: f) -> Pairs:
    """The result of a network whose parameters are DTensors, and their gradients."""
    y, expected = wrap(network)(x), reference(x)
    y.square().sum().backward()
    expected.square().sum().backward()
    pairs: Pairs = [(y, expected)]
    for parameter, other in zip(network.parameters(), reference.parameters(), strict=True):
        gradient: Any = parameter.grad
        pairs.append((gradient.full_tensor(), other.grad))
    return pairs


def tensor_parallel(mesh: DeviceMesh, wrap: Call = lambda f: f) -> Pairs:
    """ColwiseParallel before a gate, whose inputs stay DTensors, and RowwiseParallel behind it."""
    network, reference = (Gated().to(mesh.device_type) for _ in range(2))
    column = ColwiseParallel(use_local_output=False)
    parallelize_module(network, mesh, {"gate": column, "up": column, "down": RowwiseParallel()})
    return trained(network, reference, torch.randn(5, 6).to(mesh.device_type), wrap)


def sequence_parallel(mesh: DeviceMesh) -> Pairs:
    """SequenceParallel of a module with a parameter: its gradient is added up over the ranks."""
    made = (nn.Sequential(generated("prelu").ModelNew(6)) for _ in range(2))
    network, reference = (each.to(mesh.device_type) for each in made)
    parallelize_module(network, mesh, {"0": SequenceParallel(sequence_dim=0)})
    x = torch.randn(4, 6).to(mesh.device_type)
    y, expected = network(distribute_tensor(x, mesh, [ROWS])), reference(x)
    y.sum().backward()
    expected.sum().backward()
    [weight], [other] = network.parameters(), reference.parameters()
    gradient: Any = weight.grad
    return [(y.full_tensor(), expected), (gradient.full_tensor(), other.grad)]


def fsdp(mesh: DeviceMesh, wrap: Call = lambda f: f) -> Pairs:
    """FSDP2 of layers, and of a module with a parameter, whose 7 numbers 2 ranks share unevenly."""

    def made() -> nn.Sequential:
        torch.manual_seed(2)
        act = generated("prelu").ModelNew(7)
        network = nn.Sequential(nn.Linear(6, 7), act, nn.Linear(7, 5), generated("gelu").ModelNew())
        return network.to(mesh.device_type)

    network = made()
    for layer in network:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return trained(network, made(), torch.randn(5, 6).to(mesh.device_type), wrap)


def compiled(function: Call) -> Call:
    """A compiled function, without dynamic shapes: Inductor fails on uneven ones of PyTorch's own, too."""
    torch._dynamo.reset()
    made: Call = torch.compile(function, dynamic=False)
    return made


WHOLE: tuple[Check, ...] = (calls_the_kernel, partial_sums, without_a_gradient, promoted, second_derivative)
NETWORKS: tuple[Check, ...] = (tensor_parallel, sequence_parallel, fsdp)
CHECKS: dict[str, Check] = {
    **{name: partial(case, name=name) for name in CASES},
    **{check.__name__: check for check in (*WHOLE, *NETWORKS)},
    **{f"{name}, compiled": partial(case, name=name, wrap=compiled) for name in COMPILED},
    "tensor_parallel, compiled": partial(tensor_parallel, wrap=compiled),
    "fsdp, compiled": partial(fsdp, wrap=compiled),
}


def run(
    rank: int, environment: Mapping[str, str], device: str, store: str, names: Sequence[str], told: Any
) -> None:
    """Runs some checks on one rank of a device type and reports, for each, what failed, or nothing."""
    os.environ.update(environment)  # the process that forks has that of the first test
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{store}.inductor{rank}"
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(BACKENDS[device], rank=rank, world_size=2, init_method=f"file://{store}")
    mesh = init_device_mesh(device, (2,))
    for name in names:
        torch.manual_seed(0)
        told.put((rank, name, _failure(partial(CHECKS[name], mesh))))
    dist.destroy_process_group()


def _failure(check: Callable[[], Pairs]) -> str:
    try:
        for actual, expected in check():
            if isinstance(expected, Tensor):
                torch.testing.assert_close(actual, expected)
            else:
                assert actual == expected, f"{actual} is not {expected}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
