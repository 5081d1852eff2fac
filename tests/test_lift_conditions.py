"""Conditions of a forward on ranks, dtypes, devices and settings: refused, or required by the file."""

# ruff: noqa: E501  # models stand as they are

from pathlib import Path
from typing import Any

import pytest
import torch
from test_lift import lift, problem
from test_partial import body, with_formulas
from test_partial import lift as lift_partial
from torch import Tensor, nn

from fusegen.errors import FusegenError
from fusegen.models.lift.captured_modes import captured_in_each_mode
from fusegen.models.lift.noted_reads import NotedDevice, NotedShape
from fusegen.project.loader import imported

INIT = "n|self.w = nn.Parameter(torch.ones(n))"
BRANCH = "y = torch.relu(x) * 2 if {} else torch.tanh(x) * 3; return y * self.w"
RANKS = {  # reads of how many dimensions x has
    "the length of a shape": BRANCH.format("len(x.shape) == 2"),
    "the length of sizes": BRANCH.format("len(x.size()) == 2"),
    "the rank of a value": "h = x * 2; y = torch.relu(h) if h.ndim == 2 else torch.tanh(h); return y * self.w",
    "a loop over sizes": "y = [torch.relu(x) for _ in x.shape][-1]; return torch.relu(y * self.w)",
    "sizes that are unpacked": "rows, columns = x.shape; return torch.relu(x) * 2 * self.w",
    "a size from the end": "y = torch.relu(x) * 2; return y * self.w / x.shape[-1]",
    "a size from the end by a call": "y = torch.relu(x) * 2; return y * self.w / x.size(-1)",
    "a part of the sizes": "y = torch.relu(x) * 2; return (y * self.w).view(*x.shape[:1], 8)",
    "all sizes as an argument": "y = torch.relu(x) * 2; return y * self.w + torch.zeros(x.shape)",
    "sizes behind another": BRANCH.format("len((1,) + x.shape) == 3"),
    "an index with an ellipsis": "return (torch.relu(x) * 2 * self.w)[..., -1]",
    "the product of the sizes": "y = torch.relu(x) * 2; return y * self.w / x.shape.numel()",
}
KINDS = {  # the tensor whose kind is required, what it is, and the other branch's condition
    "x.dtype != torch.float32": BRANCH.format("torch.is_floating_point(x)"),
    "self.w.dtype != torch.float32": BRANCH.format("self.w.dtype == torch.float32"),
    "self.w.dim() != 1": BRANCH.format("len(self.w.shape) == 1"),
    "{each.dtype for each in (*self.parameters(), *self.buffers())} != {torch.float32}": BRANCH.format(
        "(x * 2).dtype == torch.float32"
    ),
}
LOST = {  # what no file knows
    "x.device.type == 'cpu'": "it reads the device of a tensor, which its graph does not keep",
    "x.device == torch.device('cpu')": "it reads the device of a tensor, which its graph does not keep",
    "'cuda' in str(self.w.device)": "it reads the device of a tensor, which its graph does not keep",
    "f'{x.device}' == 'cpu'": "it reads the device of a tensor, which its graph does not keep",
    "x.is_mps": "it reads is_mps of a tensor, which its graph does not keep",
    "x.type() == 'torch.FloatTensor'": "it reads type of a tensor, which its graph does not keep",
    "x.stride(-1) == 1": "it reads stride of a tensor, which its graph does not keep",
    "torch.is_autocast_enabled()": "it asks by torch.is_autocast_enabled what its graph does not keep",
    "torch.get_default_dtype() == torch.float32": "it asks by torch.get_default_dtype what its graph does not keep",
    "torch.cuda.is_available()": "it asks by torch.cuda.is_available what its graph does not keep",
    "torch.is_autocast_cpu_enabled()": "it asks by torch.is_autocast_cpu_enabled what its graph does not keep",
    "torch.get_autocast_dtype('cpu').is_complex": "it asks by torch.get_autocast_dtype what its graph does not keep",
    "torch.get_default_device().type == 'cpu'": "it asks by torch.get_default_device what its graph does not keep",
    "torch.is_inference_mode_enabled()": "it asks by torch.is_inference_mode_enabled what its graph does not keep",
    "torch.cuda.device_count()": "it asks by torch.cuda.device_count what its graph does not keep",
    "torch.backends.mps.is_available()": "it asks by torch.backends.mps.is_available what its graph does not keep",
    "torch.broadcast_shapes(x.shape, self.w.shape)": "it asks by torch.broadcast_shapes what its graph does not keep",
    "x.shape == (4, 8)": "a condition in it depends on its inputs",
    "self.w.shape == (8,)": "a condition in it depends on its inputs",
    "4 in x.shape": "a condition in it depends on its inputs",
    "x.is_same_size(self.w)": "a condition in it depends on its inputs",
    "x.is_sparse": "it reads is_sparse of a tensor, which its graph does not keep",
    "self.w.nbytes > 8": "it reads nbytes of a tensor, which its graph does not keep",
    "self.w.size(0) & 12": "it counts by a size or a value of its inputs",
    "x._version == 0": "it reads _version of a tensor, which its graph does not keep",
    "isinstance(x, torch.FloatTensor)": "it asks if a tensor is a FloatTensor, which its graph does not keep",
    "isinstance(x, (torch.Size, torch.cuda.HalfTensor))": "it asks if a tensor is a HalfTensor, which its graph does not keep",
    "torch.are_deterministic_algorithms_enabled()": "it asks by torch.are_deterministic_algorithms_enabled what its graph does not keep",
}  # fmt: skip


def refused(folder: Path, forward: str, *, whole: bool) -> list[str]:
    """The lines of the error of a lift."""
    text = problem(INIT, forward, arguments="8")
    with pytest.raises(FusegenError) as error:
        lift(folder, text) if whole else lift_partial(folder, text, 1)
    return str(error.value).replace(str(folder / "3_Some_Block.py"), "FILE").splitlines()


@pytest.mark.parametrize("case", RANKS)
def test_a_spec_refuses_what_depends_on_the_rank(case: str, tmp_path: Path) -> None:
    first, *_, hint = refused(tmp_path, RANKS[case], whole=True)
    why = "a spec holds for any dtype and any number of dimensions"
    assert first == f"FILE:11:5: dim of x has no place in a spec: {why}"
    assert hint == "  hint: lift with --partial"


@pytest.mark.parametrize("case", RANKS)
def test_a_file_requires_the_rank_that_forward_depends_on(case: str, tmp_path: Path) -> None:
    found = lift_partial(tmp_path, problem(INIT, RANKS[case], arguments="8"), 1)
    assert body(found)[:2] == [
        "if x.dim() != 2:",
        '    raise ValueError("forward was traced with x.dim()=2")',
    ]


def test_a_file_refuses_another_rank_and_computes_its_own(tmp_path: Path) -> None:
    found = lift_partial(tmp_path, problem(INIT, RANKS["the length of a shape"], arguments="8"), 1)
    with_formulas(found, tmp_path / "generated")
    model = imported(tmp_path / "generated" / f"{found.name}.py").ModelNew(8)
    x = torch.randn(4, 8)
    assert torch.equal(model(x), torch.relu(x) * 2)
    with pytest.raises(ValueError, match=r"^forward was traced with x\.dim\(\)=2$"):
        model(x[None])  # of which the model takes the hyperbolic tangent


@pytest.mark.parametrize("condition", KINDS)
def test_a_file_requires_the_kinds_of_what_forward_reads(condition: str, tmp_path: Path) -> None:
    found = lift_partial(tmp_path, problem(INIT, KINDS[condition], arguments="8"), 1)
    lines = [line for line in body(found) if line.startswith("if ")]
    of_input = ["if x.dtype != torch.float32:"] if "each" in condition else []
    assert lines == [*of_input, f"if {condition}:"]
    with_formulas(found, tmp_path / "generated")
    model = imported(tmp_path / "generated" / f"{found.name}.py").ModelNew(8)
    model(torch.ones(4, 8))
    if "dtype" in condition:
        with pytest.raises(ValueError, match=r"forward was traced with .*torch\.float32"):
            model.double()(torch.ones(4, 8, dtype=torch.double if condition[0] == "x" else None))


def test_a_file_requires_the_dtypes_of_all_that_decide_a_type(tmp_path: Path) -> None:
    forward = BRANCH.format("torch.result_type(x, self.w) == torch.float32")
    found = lift_partial(tmp_path, problem(INIT, forward, arguments="8"), 1)
    lines = [line for line in body(found) if line.startswith("if ")]
    assert lines == ["if x.dtype != torch.float32:", "if self.w.dtype != torch.float32:"]
    casts = captured_in_each_mode(OfResult(), (torch.ones(4, 8),), {}).signature
    assert casts is not None
    assert casts.inputs.leaves[0].dtype == torch.float32


class OfResult(nn.Module):
    """A model that runs other operations for other dtypes."""

    def forward(self, x: Tensor) -> Tensor:
        """Return one of two activations."""
        return torch.relu(x) * 2 if torch.result_type(x, 1) == torch.float32 else torch.tanh(x) * 3


@pytest.mark.parametrize("condition", LOST)
def test_what_no_file_knows_is_refused(condition: str, tmp_path: Path) -> None:
    for whole in (True, False):
        first = refused(tmp_path, BRANCH.format(condition), whole=whole)[0]
        assert first == (
            "FILE:12:9: this is no model to lift: forward cannot be traced, as " + LOST[condition]
        )


class OfType(nn.Module):
    """A model that runs other operations for tensors of other types."""

    def forward(self, x: Tensor) -> Tensor:
        """Return one of two activations."""
        kinds: Any = torch  # whose types mypy does not know
        is_float = isinstance(x, kinds.FloatTensor) and not isinstance(x, kinds.cuda.FloatTensor)
        return torch.relu(x.type(kinds.DoubleTensor)) if is_float else torch.tanh(x) * 3


def test_a_network_knows_the_types_of_its_example() -> None:
    before = vars(torch)["FloatTensor"]
    modes = captured_in_each_mode(OfType(), (torch.ones(4, 8),), {})
    assert vars(torch)["FloatTensor"] is before
    assert [node.name for node in modes.graphs[0].nodes] == ["x", "to", "relu", "output"]
    assert modes.signature is not None
    assert modes.signature.inputs.leaves[0].dtype == torch.float32


def test_a_type_that_a_file_imports_is_refused(tmp_path: Path) -> None:
    text = problem(INIT, BRANCH.format("isinstance(x, Double)"), arguments="8")
    with pytest.raises(FusegenError, match="as it asks if a tensor is a DoubleTensor, which its graph"):
        lift_partial(
            tmp_path,
            text.replace("import torch\n", "import torch\nfrom torch import DoubleTensor as Double\n", 1),
            1,
        )


def test_a_read_in_one_mode_alone_is_required(tmp_path: Path) -> None:
    forward = "y = torch.relu(x) if self.training or x.dim() == 2 else torch.tanh(x); return y * self.w"
    assert "x.dim()=2" in lift_partial(tmp_path, problem(INIT, forward, arguments="8"), 1).text


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize(
    ("reduction", "is_fixed"),
    {
        "torch.softmax(x * 2, -1)": False,
        "torch.softmax(x * 2, 1)": True,
        "F.softmax(x * 2)": True,  # whose dimension is another one where there are three
        "x - (x * 2).mean(-1, keepdim=True)": False,
        "x - (x * 2).mean(1, keepdim=True)": True,
        "F.layer_norm(x, (8,)) * x": False,
    }.items(),
)
def test_a_file_requires_the_rank_where_rows_are_counted_otherwise(
    reduction: str, is_fixed: bool, tmp_path: Path
) -> None:
    text = problem(INIT, f"return ({reduction}) * self.w", arguments="8")
    found = lift_partial(
        tmp_path, text.replace("import torch\n", "import torch\nimport torch.nn.functional as F\n", 1), 1
    )
    assert "over: [-1]" in next(iter(found.specs.texts.values()))
    assert ("x.dim()" in found.text) is is_fixed


class OnDevice(nn.Module):
    """A model that runs other operations on other devices."""

    def forward(self, x: Tensor) -> Tensor:
        """Return one of two activations."""
        return torch.relu(x) * 2 if x.device.type == "cpu" else torch.tanh(x) * 3


def test_the_device_that_a_network_asks_for_is_that_of_its_inputs() -> None:
    signature = captured_in_each_mode(OnDevice(), (torch.ones(4, 8),), {}).signature
    assert signature is not None
    [leaf] = signature.inputs.leaves
    assert leaf.device == torch.device("cpu")


def test_devices_and_sizes_that_are_handed_on_stay_what_they_are(tmp_path: Path) -> None:
    forward = "y = torch.relu(x) * self.w * torch.arange(x.shape[1], device=x.device); return y if isinstance(x.shape, torch.Size) and isinstance(x.device, torch.device) else x"
    found = lift_partial(tmp_path, problem(INIT, forward, arguments="8"), 1)
    made = [line for line in body(found) if "arange" in line or "raise" in line]
    assert made == ["return y * torch.arange(size, device=x.device)"]
    assert (NotedShape((2, 3)).plain(), NotedDevice("cpu").plain()) == (
        torch.Size((2, 3)),
        torch.device("cpu"),
    )


# Sizes that are known


SIZES = {  # what forward divides by, and the same in the file
    "self.w.size(0) * 2 + 1": "(self.w.size(0) * 2) + 1",
    "3 - self.w.shape[0] // 2": "3 - (self.w.size(0) // 2)",
    "math.sqrt(self.w.shape[0] + self.size_of_0)": "math.sqrt(self.w.size(0) + self.size_of_0)",
    "abs(-self.w.shape[0])": "abs(-self.w.size(0))",
    "self.w.data.shape[0] * 3": "self.w.size(0) * 3",
    "self.w.numel() * self.size_of_0": "self.w.size(0) * self.size_of_0",
    "torch.tensor(self.w.size(0)).sqrt()": "torch.tensor(self.w.size(0)).sqrt()",
    "y[:, : self.w.size(0) // 2].sum()": "slice.Tensor(y, 1, 0, self.w.size(0) // 2)",
    "torch.tensor([2, self.w.size(0) * 2]).sum()": "torch.tensor([2, self.w.size(0) * 2]).sum()",
    "torch.tensor(x.shape[0] / 2)": "torch.tensor(x.size(0) / 2)",
    "self.size_of_0 * 2": "self.size_of_0 * 2",  # which is called as the reader calls a size
}


@pytest.mark.parametrize("written", SIZES)
def test_arithmetic_on_known_sizes_is_that_of_the_model(written: str, tmp_path: Path) -> None:
    init = "n|self.w = nn.Parameter(torch.ones(n)); self.size_of_0 = 7 * n"
    forward = f"y = torch.tanh(x) * 2; return torch.cumsum(y, 1) / ({written})"
    found = lift_partial(tmp_path, "import math\n" + problem(init, forward, arguments="8"), 1)
    with_formulas(found, tmp_path / "generated")
    paths = (tmp_path / "generated" / f"{found.name}.py", tmp_path / "3_Some_Block.py")
    own, theirs = map(imported, paths)
    assert SIZES[written] in "\n".join(body(found))
    x = torch.randn(4, 6)
    for n in (6, 1):
        assert torch.equal(own.ModelNew(n)(x), theirs.Model(n)(x))


def test_the_length_of_a_parameter_is_no_number_of_the_file(tmp_path: Path) -> None:
    first = refused(tmp_path, "return torch.tanh(x) * 2 / len(self.w)", whole=False)[0]
    why = "it counts by a size or a value of its inputs"
    assert first == f"FILE:12:9: this is no model to lift: forward cannot be traced, as {why}"


def test_equal_regions_name_their_parameters_as_the_first_does(tmp_path: Path) -> None:
    init = "a|self.p = Block(a); self.q = Block(a / 2)"
    block = "\n\nclass Block(nn.Module):\n    def __init__(self, slope):\n        super().__init__()\n        self.slope = slope\n"
    block += "\n    def forward(self, x):\n        return torch.tanh(x * self.slope) * (1 - self.slope)\n"
    text = problem(init, "return self.q(torch.cumsum(self.p(x), 1))", arguments="0.5") + block
    found = lift_partial(tmp_path, text, 1)
    assert len(found.specs.texts) == 1
    with_formulas(found, tmp_path / "generated")
    paths = (tmp_path / "generated" / f"{found.name}.py", tmp_path / "3_Some_Block.py")
    own, theirs = map(imported, paths)
    x = torch.randn(4, 8)
    assert torch.equal(own.ModelNew(0.75)(x), theirs.Model(0.75)(x))
