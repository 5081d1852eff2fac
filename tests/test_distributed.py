"""DTensor, tensor parallelism and FSDP2 on two processes of CPUs or GPUs, against one process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from budget import HANG
from kernels import ROOT, generated
from processes import SERVER
from ranks import CHECKS, COMPILED, run
from torch.multiprocessing.spawn import start_processes as _start_processes

RANKS = 2
start_processes: Any = _start_processes  # which declares no types
NAMES = list(CHECKS)
FEW = (  # of tensors, networks and their layers; the others run with `make test-full`
    *("rows", "in place", "a row", "halves of columns", "a thin convolution", "a parameter"),
    *("calls_the_kernel", "partial_sums", "without_a_gradient", "tensor_parallel", "fsdp"),
)


def failures(device: str, names: list[str], store: Path) -> dict[tuple[int, str], str]:
    """The failures on a device type, by rank and check: all run in one pair of processes."""
    for name in ("gelu", "elu", "relu", "swiglu", "prelu", "conv_relu_hardswish"):
        for kernel in ("forward", "backward"):
            generated(name).KERNELS.load(kernel, device)  # built once, before two ranks ask for it
    queue: Any = SERVER.SimpleQueue()
    given = (dict(os.environ), device, str(store), names, queue)
    context = start_processes(run, given, RANKS, join=False, start_method="forkserver")
    told = [queue.get() for _ in range(RANKS * len(names))]
    while not context.join(HANG):
        pass
    return {(rank, name): failure for rank, name, failure in told}


@pytest.fixture(scope="module")
def failures_of_cpus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, extensions: Path
) -> dict[tuple[int, str], str]:
    """The failures of the checks that are asked for, on the CPU."""
    asked = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "failures_of_cpus" in item.fixturenames
    }
    return failures(
        "cpu", [name for name in NAMES if name in asked], tmp_path_factory.mktemp("ranks") / "store"
    )


@pytest.fixture(scope="module")
def failures_of_gpus(
    tmp_path_factory: pytest.TempPathFactory, extensions: Path
) -> dict[tuple[int, str], str]:
    """The failures of all checks, on two GPUs."""
    return failures("cuda", NAMES, tmp_path_factory.mktemp("gpus") / "store")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.full) for name in NAMES]
)
def test_a_sharded_call_is_that_of_one_process(
    name: str, failures_of_cpus: dict[tuple[int, str], str]
) -> None:
    assert [failures_of_cpus[rank, name] for rank in range(RANKS)] == ["", ""]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < RANKS, reason="needs two NVIDIA GPUs")
@pytest.mark.parametrize("name", NAMES)
def test_a_sharded_call_is_that_of_one_gpu(name: str, failures_of_gpus: dict[tuple[int, str], str]) -> None:
    """The ranks communicate by NCCL."""
    assert [failures_of_gpus[rank, name] for rank in range(RANKS)] == ["", ""]


def test_some_checks_are_compiled() -> None:
    assert {f"{name}, compiled" for name in COMPILED} < set(NAMES)


@pytest.mark.full
def test_a_program_without_dtensors_does_not_import_them() -> None:
    code = (
        "import sys, torch; from generated.swiglu import swiglu; a = torch.ones(2, requires_grad=True)\n"
        "swiglu(a, a).sum().backward(); assert 'torch.distributed.tensor' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
