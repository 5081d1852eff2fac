"""Kernels that NVRTC compiled, on a GPU: the bits of nvcc's, in every layout, and calls of every kind."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from budget import HANG
from kernels import ROOT
from processes import environment

from benchmarks import first_call

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
NAMES = ("hardsigmoid", "gelu", "celu", "leaky_relu", "swiglu", "mish_mish", "softplus")
CALLS = """
import copy, torch
from generated.{name} import ModelNew, {name} as function
x = torch.randn(1 << 22, device="cuda", requires_grad=True)
reference = torch.nn.functional.{name}
y = function(x)
assert y.grad_fn is not None
torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(reference(x).sum(), x))
over = x.clone()
torch.testing.assert_close(
    torch.autograd.grad(function(over, inplace=True).sum(), x), torch.autograd.grad(reference(x).sum(), x)
)
with torch.no_grad():
    out = torch.empty_like(x)
    torch.testing.assert_close(function(x, out=out), reference(x))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.equal(function(x), out)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    half = x.half()
    with torch.cuda.graph(graph):  # which loads the kernel of another dtype
        captured = function(half)
    graph.replay()
    torch.testing.assert_close(captured, reference(half))
    compiled = torch.compile(ModelNew())
    torch.testing.assert_close(compiled(x), reference(x))
print("done")
"""


@pytest.mark.parametrize("name", NAMES)
def test_results_have_the_bits_of_nvcc(name: str, tmp_path: Path) -> None:
    for compiler in first_call.COMPILERS:
        first_call.measured(name, compiler, tmp_path)
    assert first_call.differing(tmp_path) == []


@pytest.mark.parametrize("name", ["hardsigmoid", "gelu"])
def test_calls_of_every_kind(name: str, tmp_path: Path) -> None:
    """Gradients, in place, into a tensor, on a side stream, in a graph, and under torch.compile."""
    variables = environment(tmp_path) | {"FUSEGEN_CUDA_COMPILER": "nvrtc", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CALLS.format(name=name)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=HANG)
    assert done.stdout.endswith("done\n"), done.stderr
    assert list((tmp_path / "fusegen").glob("*.cubin"))
    assert not list((tmp_path / "fusegen").glob("*cuda*.so"))
