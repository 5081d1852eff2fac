"""DTensor, tensor parallelism and FSDP2 on two processes of the CPU, against one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing as processes
from budget import HANG
from kernels import ROOT, generated
from ranks import CHECKS, COMPILED, run
from torch.multiprocessing.spawn import spawn as _spawn

RANKS = 2
spawn: Any = _spawn  # which declares no types
NAMES = list(CHECKS)
SLOW = {f"{name}, compiled" for name in ("in place", "halves of columns", "tensor_parallel")}


@pytest.fixture(scope="module")
def failures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, extensions: Path
) -> dict[tuple[int, str], str]:
    """The failures, by rank and check: all that are asked for run in one pair of processes."""
    asked = {
        item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")
    }
    names = [name for name in NAMES if name in asked]
    for name in ("gelu", "elu", "relu", "swiglu", "prelu"):
        for kernel in ("forward", "backward"):
            generated(name).KERNELS.load(kernel, "cpu")  # built once, before two ranks ask for it
    queue: Any = processes.get_context("spawn").SimpleQueue()
    store = tmp_path_factory.mktemp("ranks") / "store"
    context = spawn(run, (str(store), names, queue), nprocs=RANKS, join=False)
    told = [queue.get() for _ in range(RANKS * len(names))]
    while not context.join(HANG):
        pass
    return {(rank, name): failure for rank, name, failure in told}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in SLOW else name for name in NAMES]
)
def test_a_sharded_call_is_that_of_one_process(name: str, failures: dict[tuple[int, str], str]) -> None:
    assert [failures[rank, name] for rank in range(RANKS)] == ["", ""]


def test_some_checks_are_compiled() -> None:
    assert {f"{name}, compiled" for name in COMPILED} < set(NAMES)


def test_a_program_without_dtensors_does_not_import_them() -> None:
    code = (
        "import sys, torch; from generated.swiglu import swiglu; a = torch.ones(2, requires_grad=True)\n"
        "swiglu(a, a).sum().backward(); assert 'torch.distributed.tensor' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
