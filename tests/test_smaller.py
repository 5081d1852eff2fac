"""The sizes at which a lifted model is compared: small where it makes the same calls, else the file's."""

# ruff: noqa: E501  # messages and models stand as they are

import shutil
from pathlib import Path

import pytest
from conftest import Workshop
from test_lift import PROBLEMS, problem

from fusegen.errors import Differs
from fusegen.models.lift import pair, verify
from fusegen.models.lift.load import executed, read
from fusegen.models.lift.pair import differing
from fusegen.models.lift.smaller import smaller

STAGES = "n, depth|self.layers = nn.ModuleList([nn.Linear(n, n) for _ in range(depth)])"
WALK = "for layer in self.layers: x = torch.tanh(layer(x)) * 2;return x"
SIZES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "sizes alone": (
        problem("n|self.fc = nn.Linear(n, n)", "return torch.tanh(self.fc(x))", "torch.rand(100, 64)", "64"),
        [("[100, 64]", "[16, 12]"), ("[64]", "[12]")],
    ),
    "a depth stays": (
        problem(STAGES, WALK, "torch.rand(100, 64)", "64, 23"),
        [("[100, 64]", "[20, 16]"), ("[64, 23]", "[16, 23]")],
    ),
    "a number that the class has in its text": (
        problem("|self.fc = nn.Linear(64, 10)", "return torch.tanh(self.fc(x))", "torch.rand(100, 64)"),
        [("[100, 64]", "[16, 64]"), ("[]", "[]")],
    ),
    "a number of steps without a module": (
        problem("steps|self.steps = steps", "for _ in range(self.steps): x = torch.tanh(x);return x", "torch.rand(999)", "9"),
        [("[999]", "[27]"), ("[9]", "[9]")],
    ),
    "a path that a size chooses": (
        problem("", "x = torch.relu(x) if x.shape[0] < 50 else torch.tanh(x); return x * 2", "torch.rand(100, 64)"),
        [("[100, 64]", "[100, 12]"), ("[]", "[]")],
    ),
    "no values, no small sizes": (
        problem("", "return x * 2 if x.sum() > 0 else x", "torch.rand(100, 64)"),
        [],
    ),
}  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("case", SIZES)
def test_numbers_are_small_where_the_model_makes_the_same_calls(case: str, tmp_path: Path) -> None:
    text, expected = SIZES[case]
    path = tmp_path / "model.py"
    path.write_text(text)
    own = executed(*read(f"{path}:Model"))
    found = [trial.problem for trial in smaller(own)][:1]
    shapes = [(p, str(list(p.get_inputs()[0].shape))) for p in (own, *found)]
    if not expected:
        assert len(shapes) == 1
        return
    [own_sizes, small_sizes] = [(shape, str(p.get_init_inputs())) for p, shape in shapes]
    assert [*zip(own_sizes, small_sizes, strict=True)] == expected


@pytest.mark.full
def test_a_depth_above_eight_is_compared(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its layers were those of another depth, and the file ended in an IndexError."""
    monkeypatch.setattr(pair, "MOST", 2**10)
    text = problem(STAGES, WALK, "torch.rand(100, 64)", "64, 9")
    workshop.file("deep.py", text)
    printed = workshop.done("lift", "deep.py:Model", "--partial")
    assert "(at small sizes, as the file's take 43,840 elements)\n" in printed
    assert "outputs on get_inputs() of [16, 12]: largest error" in printed


def test_what_cannot_be_compared_ends_with_status_1(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "MOST", 8)
    monkeypatch.setattr(pair, "LARGEST", 8)
    monkeypatch.setattr(verify, "LARGEST", 8)
    shutil.copy(PROBLEMS / "1_HardSigmoid.py", workshop.folder)
    result = workshop.run("lift", "1_HardSigmoid.py:Model")
    assert result.exit_code == 1
    assert result.output.endswith(
        "fused: hardsigmoid (line 17): 1 operation in 1 kernel\n"
        "generated/hardsigmoid_model.py: the file is written, and nothing was compared: it takes more than 8 "
        "elements, also at the smallest sizes at which the model makes the same calls\n"
        "  hint: call it and the model on inputs of your own, or give get_inputs and get_init_inputs smaller "
        "sizes\n"
    )
    assert (workshop.folder / "generated/hardsigmoid_model.py").exists()


def test_an_exception_of_the_module_is_a_difference(tmp_path: Path) -> None:
    with pytest.raises(Differs) as told, differing(tmp_path / "m.py", "its constructor"):
        [].pop()
    assert str(told.value) == (
        f"{tmp_path}/m.py: the module is not the model: its constructor raises IndexError: pop from empty list\n"
        "  hint: this is an error in fusegen; please report it with the model, and do not use the module"
    )
