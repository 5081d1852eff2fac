"""Numbers of the model in calls of PyTorch: those of the file are the same, not others of an equal value."""

# ruff: noqa: E501  # models stand as they are

from pathlib import Path

import pytest
import torch
from test_lift import problem
from test_lift_sizes import both, signed
from test_partial import body, with_formulas
from test_partial import lift as lift_partial

from fusegen.models.lift.partial.partial_model import Partial

INIT = "k|self.k = k; self.s = [0.5, 1.5, 2.5, 3.5]; self.of = {'a': [k, 2]}; self.fc = nn.Linear(6, k); self.conv = nn.Conv1d(6, 6, 3, k); self.up = nn.PixelShuffle(k)"
KEPT = {  # calls of a y of shape (4, 6, 6) with k = 2, and what the file has of k
    "y[:self.k, 2:]": "slice.Tensor(y, 0, 0, self.k), 1, 2",
    "y[2:, :self.k]": "slice.Tensor(y, 0, 2, 9223372036854775807), 1, 0, self.k",
    "y[:, self.k - 1]": "select(1, self.k - 1)",
    "y[self.k - 2 :, self.k - 2]": "slice.Tensor(y, 0, self.k - 2, 9223372036854775807)",
    "y[2, self.k]": "y.select(0, 2).select(0, self.k)",
    "y.roll(dims=2, shifts=self.k)": "shifts=self.k, dims=2",
    "y.narrow(length=self.k, dim=2, start=0)": "y.narrow(2, 0, self.k)",
    "torch.addmm(y[0], y[1], y[2], alpha=self.k - 1)": "alpha=self.k - 1",
    "nn.functional.pad(y, (2, self.k))": "[2, self.k]",
    "nn.functional.interpolate(y, size=2 * self.k)": "[2 * self.k]",
    "nn.functional.interpolate(y[None], scale_factor=self.k)": "[self.k, self.k]",
    "y.repeat(2, 2, self.k)": "y.repeat(2, 2, self.k)",
    "y[:, : self.of['a'][0]]": "0, self.of['a'][0])",
    "y[:, : self.fc.out_features]": "0, self.fc.out_features)",
    "y * self.conv.stride[0]": "self.conv.stride[0]",
    "y * self.up.upscale_factor": "self.up.upscale_factor",
    "y.view(4, self.k, y.size(1) // self.k, 6)": "y.view(4, self.k, y.size(1) // self.k, 6)",
    "y * (self.k - y.size(1) % (2 * self.k))": "self.k - (y.size(1) % (2 * self.k))",
    "y / (self.k ** (y.size(1) * self.fc.weight.size(0)))": "self.k ** (y.size(1) * self.fc.weight.size(0))",
}
REQUIRED = (  # calls in which no place is known to be that of k
    "nn.functional.lp_pool1d(y, 2, self.k)",
    "y / y.size(self.k)",
    "y * self.s[self.k]",
)


def written(folder: Path, call: str) -> Partial:
    """Return the partial model of a call, with PyTorch's formulas for its kernels."""
    forward = f"y = torch.tanh(x) * 2; return torch.cumsum({call}, 0)"
    found = lift_partial(folder, problem(INIT, forward, "torch.rand(4, 6, 6)", "2"), 1)
    with_formulas(found, folder / "generated")
    return found


@pytest.mark.few(4)
@pytest.mark.parametrize("call", KEPT)
def test_a_number_of_the_model_stays_where_it_is(call: str, tmp_path: Path) -> None:
    found = written(tmp_path, call)
    assert KEPT[call] in " ".join(map(str.strip, body(found)))
    assert not any("raise" in line for line in body(found))
    for number in (2, 1, 3):
        own, theirs = both(tmp_path, found, number)
        torch.testing.assert_close(own(signed(4, 6, 6)), theirs(signed(4, 6, 6)), rtol=0, atol=0)


@pytest.mark.parametrize("call", REQUIRED)
def test_a_number_whose_place_is_not_known_is_required(call: str, tmp_path: Path) -> None:
    own, _ = both(tmp_path, written(tmp_path, call), 1)
    with pytest.raises(ValueError, match=r"^forward was traced with self\.k=2$"):
        own(signed(4, 6, 6))


@pytest.mark.parametrize(
    "call", ["y * (y.size(1) // self.k)", "y[:, : y.size(1) * self.k]", "y * (y.size(1) % self.k + 1)"]
)
def test_a_one_beside_a_size_is_required(call: str, tmp_path: Path) -> None:
    """PyTorch computes nothing there, so that the size alone is left."""
    forward = f"y = torch.tanh(x) * 2; return torch.cumsum({call}, 0)"
    found = lift_partial(tmp_path, problem(INIT, forward, "torch.rand(4, 6, 6)", "1"), 1)
    assert "if self.k != 1:" in body(found)


def test_a_slice_of_all_of_a_layers_result_is_required(tmp_path: Path) -> None:
    init = "k|self.k, self.fc = k, nn.Linear(8, 8)"
    found = lift_partial(
        tmp_path, problem(init, "return torch.tanh(self.fc(x) * 2)[:, : self.k]", arguments="8"), 1
    )
    assert body(found)[0] == "if self.k != 8:"  # of which no operator is left
