"""Models of `lifted_models`, lifted by the command: right at three settings of their arguments."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Workshop
from lifted_models import CASES, PARTIAL, WHOLE
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fusegen.project.loader import imported

MODES = ("eval", "train")
ROUNDINGS = 32.0  # of the largest value of a result, in float32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all models, so that equal regions share their spec and its build."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def shared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """The folder as a workshop whose specs are of float32 alone."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("fusegen.language.parse.DTYPES", ("float32",))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return Workshop(folder)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_a_model_is_right_at_three_settings(name: str, shared: Workshop) -> None:
    case = CASES[name]
    stem = re.sub(r"\W+", "_", name.lower()) + "_model"
    for sibling, text in case.siblings.items():
        shared.file(f"{sibling}.py", text)
    shared.file(f"{stem}.py", case.text)
    result = shared.run("lift", f"{stem}.py:Model", "--partial")
    assert result.exit_code == 0, result.output
    assert (WHOLE if "\nfused: " in result.output else PARTIAL) == case.kind, result.output
    own: dict[str, Any] = {"__name__": stem}
    exec(case.text, own)
    path = shared.folder / f"generated/{stem}.py"
    for setting in case.settings:
        arguments = eval(f"[{setting}]", dict(own))
        for mode in MODES:
            compare(imported(path).ModelNew, own["Model"], arguments, own["get_inputs"], mode)


def compare(ours: Any, theirs: Any, arguments: list[Any], inputs: Any, mode: str) -> None:
    """Compare states, results and gradients with the model in float64."""
    models = []
    for kind in (ours, theirs):
        torch.manual_seed(0)
        models.append(kind(*arguments).train(mode == "train"))
    states = [model.state_dict() for model in models]
    assert [*states[0]] == [*states[1]]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    torch.manual_seed(1)
    given = inputs()
    models[1] = models[1].double()
    found = [with_gradients(model, given, dtype) for model, dtype in zip(models, DTYPES, strict=True)]
    for one, two in zip(*found, strict=True):
        allowed = ROUNDINGS * torch.finfo(torch.float32).eps * max(1.0, float(two.abs().max()))
        torch.testing.assert_close(one.double(), two, rtol=0, atol=allowed, msg=f"{arguments} in {mode}")


DTYPES = (torch.float32, torch.float64)


def with_gradients(model: nn.Module, inputs: list[Any], dtype: torch.dtype) -> list[Tensor]:
    """The results, and the gradients of their sum of squares by inputs and parameters."""
    taken = [
        x.to(dtype).requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x
        for x in inputs
    ]
    results = [each for each in tree_leaves(model(*taken)) if isinstance(each, Tensor)]
    wanted = [x for x in (*taken, *model.parameters()) if isinstance(x, Tensor) and x.requires_grad]
    loss = torch.stack([each.square().sum() for each in results]).sum()
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)]
    return [*(each.detach() for each in results), *grads]
