"""Sizes that a forward reads: the file reads them again, requires them, or the lift is refused."""

# ruff: noqa: E501  # models stand as they are

from pathlib import Path

import pytest
import torch
from test_lift import lift as lift_whole
from test_lift import problem
from test_partial import body, with_formulas
from test_partial import lift as lift_partial
from torch import Tensor, nn

from fusegen.errors import FusegenError
from fusegen.models.lift.partial.partial_model import Partial
from fusegen.project.loader import imported

INIT = "n|self.w = nn.Parameter(torch.ones(n)); self.n = n"


def written(folder: Path, init: str, forward: str, inputs: str = "torch.rand(4, 8)") -> Partial:
    """Return the partial model of a forward, with its file and PyTorch's formulas for its kernels."""
    text = problem(init, forward, inputs, "8").replace("import torch\n", "import math\nimport torch\n", 1)
    found = lift_partial(folder, text, 1)
    with_formulas(found, folder / "generated")
    return found


def both(folder: Path, found: Partial, number: int = 8) -> tuple[nn.Module, nn.Module]:
    """Return the model of a file and the user's, of double precision, with equal parameters."""
    paths = (folder / "generated" / f"{found.name}.py", folder / "3_Some_Block.py")
    own, theirs = (imported(path) for path in paths)
    model, user = own.ModelNew(number).double(), theirs.Model(number).double()
    model.load_state_dict(user.state_dict())
    return model, user


def signed(*sizes: int) -> Tensor:
    """Return distinct numbers of both signs."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(1), dtype=torch.double)


# Sizes that the example has to have


FIXED = {  # what the file has in the place of a size which a parameter of 8 decides
    "return torch.relu(x) * self.w / x.size(1)": "mul / x.size(1)",
    "return torch.relu(x) * self.w / x.shape[1]": "mul / x.size(1)",
    "n = x.size(1); return torch.relu(x) * self.w / n": "/ size",
    "y = torch.relu(x) * self.w; return y * torch.arange(x.size(1))": "torch.arange(x.size(1))",
    "y = torch.relu(x) * self.w; return y + torch.ones(4, x.size(1) // 2 * 2 + 1)[:, :1]": "(x.size(1) // 2) * 2",
    "y = torch.relu(x).view(x.size(0), self.n); return y / x.size(1)": "/ x.size(1)",
}


@pytest.mark.parametrize("forward", FIXED)
def test_a_size_that_broadcasting_decides_is_read_again(forward: str, tmp_path: Path) -> None:
    found = written(tmp_path, INIT, forward)
    assert FIXED[forward] in "\n".join(body(found))
    for number, sizes in ((8, (4, 8)), (8, (4, 1)), (1, (4, 6)), (1, (4, 1))):
        if "view" not in forward or number == sizes[1]:
            own, theirs = both(tmp_path, found, number)
            torch.testing.assert_close(own(signed(*sizes)), theirs(signed(*sizes)), rtol=0, atol=0)


def test_a_spec_refuses_a_size_that_broadcasting_decides(tmp_path: Path) -> None:
    with pytest.raises(FusegenError, match="size has no place in a spec: the language has no such op"):
        lift_whole(tmp_path, problem(INIT, next(iter(FIXED)), arguments="8"))


def test_a_loop_over_a_size_is_refused(tmp_path: Path) -> None:
    forward = "return torch.tanh(sum([x for _ in range(x.size(0))])) * 2"
    with pytest.raises(FusegenError, match="as it counts by a size or a value of its inputs"):
        lift_partial(tmp_path, problem(INIT, forward, arguments="8"), 1)


@pytest.mark.parametrize("call", ["linspace(0, 1, x.size(1))", "logspace(0, 1, steps=x.size(0) * 2)"])
def test_steps_of_a_size_are_refused(call: str, tmp_path: Path) -> None:
    """Of which the graph has the example's number."""
    forward = f"return torch.tanh(x) * 2 * torch.{call}"
    with pytest.raises(FusegenError, match="as it counts by a size or a value of its inputs"):
        lift_partial(tmp_path, problem(INIT, forward, arguments="8"), 1)


def test_a_window_of_a_size_is_pytorchs(tmp_path: Path) -> None:
    forward = "y = torch.tanh(x) * 2; return nn.functional.avg_pool1d(y[None], self.w.size(0))"
    assert "avg_pool1d(unsqueeze, [self.w.size(0)])" in body(written(tmp_path, INIT, forward))[-1]


# Counts of tensors


COUNTED = {  # how many tensors a forward takes one apart into, and sizes of which there are others
    "return torch.stack([torch.relu(row) * self.w for row in x])": (4, (3, 8)),
    "return torch.relu(x.unbind(0)[-1]) * self.w": (4, (5, 8)),
    "a, b = x.chunk(2, 1); return torch.relu(a) * b": (2, (4, 1)),
    "a, b = x.split(4, 1); return torch.relu(a) * b": (2, (4, 4)),
    "y = torch.relu(x).split(x.size(1) // 2, 1)[-1]; return y * 2": (2, (4, 7)),
}


@pytest.mark.parametrize("forward", COUNTED)
def test_a_file_requires_how_many_parts_a_tensor_has(forward: str, tmp_path: Path) -> None:
    count, others = COUNTED[forward]
    own, theirs = both(tmp_path, written(tmp_path, INIT, forward))
    torch.testing.assert_close(own(signed(4, 8)), theirs(signed(4, 8)), rtol=0, atol=0)
    with pytest.raises(ValueError, match=rf"^forward was traced with len\(\w+\)={count}$"):
        own(signed(*others))


def test_a_file_requires_no_number_of_parts_that_it_writes(tmp_path: Path) -> None:
    found = written(tmp_path, INIT, "a, b = torch.split(x, [3, 5], 1); return torch.relu(a) * 2, b")
    assert not any("raise" in line for line in body(found))


# Rows that a kernel would broadcast


ROWS = {  # regions that reduce rows of x, and whether the number of its elements matters
    "torch.softmax(x * 2, -1) * y": True,
    "x - x.sum(-1, keepdim=True) + y": True,
    "torch.relu(x - y) * torch.rsqrt(x.var(-1, keepdim=True) + 1)": True,
    "x - x.mean(-1, keepdim=True) + y": False,
    "torch.relu(x) * x.amax(-1, keepdim=True) - y": False,
    "torch.softmax(x + y, -1) * x": False,  # which reduces what is broadcast
}


@pytest.mark.parametrize("forward", ROWS)
def test_a_file_requires_rows_that_a_kernel_would_broadcast(forward: str, tmp_path: Path) -> None:
    inputs = "torch.rand(4, 8), torch.rand(4, 8)"
    found = written(tmp_path, INIT, f"x, y|return {forward}", inputs)
    lines = body(found)[:2]
    wanted = [
        "if x.size(-1) == 1 != y.size(-1):",
        '    raise ValueError("forward was traced with x.size(-1)=y.size(-1)")',
    ]
    assert (lines == wanted) is ROWS[forward]


def test_rows_of_one_element_are_refused_beside_wider_ones(tmp_path: Path) -> None:
    inputs = "torch.rand(4, 8), torch.rand(4, 8)"
    found = written(tmp_path, INIT, f"x, y|return {next(iter(ROWS))}", inputs)
    own, theirs = both(tmp_path, found)
    for x, y in (((4, 8), (4, 8)), ((4, 8), (4, 1)), ((4, 1), (4, 1)), ((1, 8), (8,))):
        torch.testing.assert_close(own(signed(*x), signed(*y)), theirs(signed(*x), signed(*y)))
    with pytest.raises(ValueError, match=r"^forward was traced with x\.size\(-1\)=y\.size\(-1\)$"):
        own(signed(4, 1), signed(4, 8))


def test_the_bias_of_a_convolution_is_as_wide_as_its_output(tmp_path: Path) -> None:
    """On the CPU it has no dimensions, whose sizes the file would ask for."""
    init = "n|self.conv, self.w = nn.Conv1d(n, n, 1), nn.Parameter(torch.ones(n, 1))"
    found = written(tmp_path, init, "return torch.softmax(self.conv(x), 1) * self.w", "torch.rand(4, 8, 5)")
    line = next(line for line in body(found) if "== 1 !=" in line)
    assert "conv_bias" in found.text
    assert line == "if conv.size(-2) == 1 != self.w.size(-2):"
    own, theirs = both(tmp_path, found)
    torch.testing.assert_close(own(signed(4, 8, 5)), theirs(signed(4, 8, 5)))
