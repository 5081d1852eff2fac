"""Lifted networks under torch.compile: graphs of the model's own operations, or of operators."""

import copy
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import networks
import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from fusegen.models.lift.lifted_network import lifted_network
from fusegen.models.lift.network import Network
from fusegen.models.lift.regions.region_module import Kernel

Graphs = list[list[str]]  # the targets of the nodes of each graph, in order


def lifted(model: nn.Module, folder: Path) -> Network:
    """A network as on CUDA, where regions add the biases of convolutions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fusegen.models.lift.found.adds_bias_apart", lambda _: True)
        patch.setattr(
            "fusegen.schedule.thin_convolution.LEAST_WORTH", (6, 64)
        )  # columns and elements of a thin convolution
        patch.setattr("fusegen.project.compile_cache._folder", lambda: None)
        return lifted_network(model, networks.images(), folder)


@pytest.fixture(scope="module")
def of_blocks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Network]:
    """The network of some blocks, lifted once."""
    return cache(lambda blocks: lifted(networks.Mobile(blocks=blocks), tmp_path_factory.mktemp("regions")))


@pytest.fixture
def network(of_blocks: Callable[[int], Network]) -> Network:
    """A network without blocks, whose regions have policies as others have."""
    return of_blocks(0)


def recorded(of: nn.Module, run: Callable[[Any], None]) -> Graphs:
    """The graphs of ATen operations that a compiler gets of a model."""
    found: Graphs = []

    def record(graph: Any, _: Any) -> Any:
        found.append([f"{node.op} {node.target}" for node in graph.graph.nodes])
        return make_boxed_func(graph.forward)

    torch.compiler.reset()
    backend: Any = aot_autograd(fw_compiler=record, bw_compiler=record, inference_compiler=record)
    run(torch.compile(of, backend=backend, fullgraph=True))
    return found


def inference(call: Any) -> None:
    """A call without gradients."""
    with torch.no_grad():
        call(networks.images()[0])


def training(call: Any) -> None:
    """A training step."""
    call(networks.images()[0]).sum().backward()


WAYS: dict[str, tuple[Callable[[nn.Module], nn.Module], Callable[[Any], None], int]] = {
    "inference": (nn.Module.eval, inference, 1),
    "training": (nn.Module.train, training, 2),
}


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_a_compiler_gets_the_graphs_of_the_model(way: str, tmp_path: Path) -> None:
    mode, run, count = WAYS[way]
    network = lifted(networks.mobile(), tmp_path)
    assert "without_bias" in network.code
    theirs, ours = (recorded(mode(each), run) for each in (networks.mobile(), copy.deepcopy(network)))
    assert len(theirs) == count
    assert sum(map(len, theirs)) > 50
    assert ours == theirs


@pytest.mark.full
@pytest.mark.parametrize(("blocks", "count"), [(0, 2), pytest.param(2, 10, marks=pytest.mark.full)])
def test_by_the_policy_kernel_it_gets_operators(
    of_blocks: Callable[[int], Network], blocks: int, count: int
) -> None:
    """A batch norm with its hard-swish is one of them, and one of each block."""
    kept = copy.deepcopy(of_blocks(blocks)).eval()
    kept.compile_policy = "kernel"
    [ours] = recorded(kept, inference)
    assert sum("fusegen" in each for each in ours) == count


def test_another_policy_compiles_again(network: Network) -> None:
    kept, seen = copy.deepcopy(network).eval(), []

    def count(graph: Any, _: Any) -> Any:
        seen.append(len(graph.graph.nodes))
        return graph

    call, x = torch.compile(kept, backend=count, fullgraph=True), networks.images()[0]
    for _ in range(2):
        call(x)
    assert len(seen) == 1
    kept.compile_policy = "kernel"
    torch.testing.assert_close(call(x), kept(x))
    assert len(seen) == 2


def test_a_copy_has_the_policy(network: Network) -> None:
    kept = copy.deepcopy(network)
    kept.compile_policy = "kernel"
    for each in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert each.compile_policy == "kernel"
        assert all(region.value.stays_kernel for region in each.children() if isinstance(region, Kernel))
    assert network.compile_policy is None


def test_another_policy_is_refused(network: Network) -> None:
    sentence = "compile_policy must be 'auto', 'kernel' or 'decompose', not 'never'"
    with pytest.raises(ValueError, match=f"^mobile_mul_tanh_mul: {sentence}$"):
        network.compile_policy = "never"
    assert network.compile_policy is None


def test_hooks_of_a_kernel_run(network: Network) -> None:
    hooked, seen, x = copy.deepcopy(network).eval(), [], networks.images()[0]
    before = hooked(x)
    region: Any = hooked.mobile_mul_tanh_mul
    region.register_forward_hook(lambda *given: seen.append(given[2]))
    region.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    assert torch.equal(hooked(x), before)
    assert len(seen) == 2
    assert torch.equal(seen[1], before)
