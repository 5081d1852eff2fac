"""Models that several threads lift at once."""

import threading
from pathlib import Path

import pytest
import torch
from budget import FULL
from torch import nn

import fusegen
from fusegen.models.lift.load import executed, read
from fusegen.models.lift.partial.partial_model import partial

THREADS, REPETITIONS = 4, 3 if FULL else 1
FILE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Linear(n, n)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.tanh(self.a(x)) * 2 + 1)

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return [8]
"""


class Inner(nn.Module):
    """A region that runs other operations in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return torch.exp(x) * 2 if self.training else torch.tanh(x) * 2


def test_threads_lift_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture replaces nn.Module.__call__ and has a mode, which those of two threads shared."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(FILE, encoding="utf-8")
    failed: list[BaseException] = []
    start = threading.Barrier(THREADS)
    call, init = nn.Module.__call__, nn.Linear.__init__

    def lift(k: int) -> None:
        start.wait()
        try:
            for _ in range(REPETITIONS):
                Inner()(torch.ones(2))  # a model of no trace
                model = nn.Sequential(nn.Linear(4, 4), Inner(), nn.Linear(4, 4), Inner())
                fusegen.models.lift.found.found(model, (torch.ones(2, 4),), "model", 0, "cpu")
                partial(executed(*read("model.py:Model")), None, tmp_path / f"specs{k}", 0)
        except BaseException as error:  # whatever it is
            failed.append(error)

    threads = [threading.Thread(target=lift, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert (nn.Module.__call__, nn.Linear.__init__) == (call, init)
