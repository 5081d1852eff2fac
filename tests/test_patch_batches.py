"""Batch norms patched to be one kernel with the activation and the residual behind them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from blocks import trained
from torch import Tensor, nn

import fusegen
from fusegen.models.patch import batches
from fusegen.models.reader import row_gains
from fusegen.models.reader.row_gains import EVALUATION, GAINS, TRAINING, Gain, modes_of

C, SHAPE = 4, (3, 4, 5, 6)
Ran = list[str]


class Layers(nn.Module):
    """Two convolutions, each with a norm, and a shortcut."""

    def __init__(self, act: Callable[[], nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(C, C, 3, padding=1, bias=False), nn.BatchNorm2d(C)
        self.conv2, self.bn2 = nn.Conv2d(C, C, 1, bias=False), nn.BatchNorm2d(C, momentum=None)
        self.shortcut: Any = nn.Sequential(nn.Conv2d(C, C, 1), nn.BatchNorm2d(C))
        self.act = act()


class Resnet(Layers):
    """A block as torchvision writes it."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        identity = x

        out = self.conv1(x)
        out = self.bn1(out)
        out = self.act(out)

        out = self.conv2(out)
        out = self.bn2(out)

        if self.shortcut is not None:
            identity = self.shortcut(x)

        out += identity
        out = self.act(out)

        return out


class Functions(Layers):
    """A block with functions, and a shortcut that is added in place."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return torch.relu(out)


class Sums(Layers):
    """A block that adds where it calls the activation."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.act(self.bn1(self.conv1(x)))
        z = self.bn2(self.conv2(y))
        return self.act(y + z)


class Again(Layers):
    """A block that gives the sum the name of the norm."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        out = self.act(self.bn1(self.conv1(x)))
        out = self.bn2(out)
        out = x + out
        return self.act(out)


class Inside(Layers):
    """One with a norm inside of the sum."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.act(self.bn1(self.conv1(x)) + x)
        return self.act(x + self.bn2(y))


BLOCKS: dict[Any, list[str]] = {  # and what the report says
    Resnet: [
        "act(bn1(out)) -> batches.batch_norm_relu",
        "act(bn2(out) + identity) -> batches.batch_norm_add_relu",
    ],
    Functions: [
        "F.relu(bn1(conv1(x))) -> batches.batch_norm_relu",
        "torch.relu(bn2(out) + shortcut(x)) -> batches.batch_norm_add_relu",
    ],
    Sums: [
        "act(bn1(conv1(x))) -> batches.batch_norm_relu",
        "act(bn2(z) + y) -> batches.batch_norm_add_relu",
    ],
    Again: [
        "act(bn1(conv1(x))) -> batches.batch_norm_relu",
        "act(bn2(out) + x) -> batches.batch_norm_add_relu",
    ],
    Inside: [
        "act(bn1(conv1(x)) + x) -> batches.batch_norm_add_relu",
        "act(bn2(y) + x) -> batches.batch_norm_add_relu",
    ],
}
ACTS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "silu": lambda: nn.SiLU(inplace=True),
    "hardswish": nn.Hardswish,
    "gelu": nn.GELU,
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Have all kernels be faster; the list has the modes in which they ran."""
    ran = Ran()

    def always(name: str, written: str, *_: Any, is_recorded: bool) -> bool:
        ran.append(written)
        return True

    for written in (TRAINING, EVALUATION):
        for size in (2, 4, 8):
            for mode in (False, True):
                monkeypatch.setitem(GAINS, ("cpu", "batch_norm", written, size, mode), Gain(1, 2**31))
    monkeypatch.setattr(row_gains, "is_gain", always)
    return ran


def made(kind: Any, *given: Any) -> Any:
    """Return a block with random parameters and statistics."""
    torch.manual_seed(0)
    block = kind(*given)
    for each in (*block.parameters(), *block.buffers()):
        if each.is_floating_point():
            each.data.add_(0.3 * torch.rand_like(each))
    return block


def row(act: str) -> nn.Sequential:
    """Return layers in a row."""
    return nn.Sequential(nn.Conv2d(C, C, 3, bias=False), nn.BatchNorm2d(C), ACTS[act](), nn.Conv2d(C, C, 1))


def results(block: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the value, the gradients and the buffers behind it."""
    leaf = x.clone().requires_grad_()
    value = block(leaf)
    used = torch.autograd.grad(value.square().sum(), [leaf, *block.parameters()], allow_unused=True)
    grads = [each for each in used if each is not None]
    return [value.detach(), *grads, *(each for each in block.buffers() if each.is_floating_point())]


def check(block: nn.Module, kernels: int, runs: Ran, dtype: torch.dtype) -> None:
    """Compare a block with its patched copy, in both modes and for inputs of several sizes."""
    block = block.to(dtype)
    exact, ours = copy.deepcopy(block).double(), copy.deepcopy(block)
    fusegen.patch(ours)
    for mode, scale in ((True, 1.0), (False, 1.0), (True, 30.0), (False, 1e-2)):
        x = scale * torch.randn(SHAPE).to(dtype)
        runs.clear()
        every = [results(each.train(mode), x) for each in (ours, block)]
        assert runs == [TRAINING if mode else EVALUATION] * kernels
        truth = results(exact.train(mode), x.double())
        for mine, other, true in zip(*every, truth, strict=True):
            assert mine.dtype == dtype
            error, theirs = (mine.double() - true).abs().max(), (other.double() - true).abs().max()
            assert error <= 2 * theirs + 64 * torch.finfo(dtype).eps * true.abs().max()
        for one, other, true in zip(ours.buffers(), block.buffers(), exact.buffers(), strict=True):
            one.copy_(true)
            other.copy_(true)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_a_norm_with_what_is_behind_it_is_one_kernel(kind: Any, dtype: Any, runs: Ran) -> None:
    report = fusegen.patch(made(kind))
    assert [str(each) for each in report.replaced[:2]] == [
        f"the model: {kind.__name__}, {text}" for text in BLOCKS[kind]
    ]
    check(made(kind), 2, runs, dtype)


def test_a_block_without_a_shortcut(runs: Ran) -> None:
    block = made(Resnet)
    block.shortcut = None
    check(block, 2, runs, torch.float32)


@pytest.mark.few(1)
@pytest.mark.parametrize("act", ACTS)
def test_layers_in_a_row(act: str, runs: Ran) -> None:
    report = fusegen.patch(row(act))
    assert str(report.replaced[0]) == f"the model: Sequential, 1 and 2 -> batches.batch_norm_{act}"
    check(row(act), 1, runs, torch.float32)


class Row(nn.Sequential):
    """A class of its own, as torchvision's of convolutions with norms."""


def test_undo_copies_and_pickles(runs: Ran) -> None:
    model = nn.Sequential(Row(*row("silu")), made(Resnet), row("relu")).eval()
    before, names = copy.deepcopy(model), [*model.state_dict()]
    report = fusegen.patch(model)
    assert [*model.state_dict()] == names
    assert repr(model) == repr(before)
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    x = torch.randn(SHAPE)
    torch.testing.assert_close(again(x), before(x))
    assert runs == [EVALUATION] * 4
    assert str(fusegen.patch(again)).startswith("the model is patched already")
    fusegen.unpatch(again)
    report.undo()
    for each in (again, model):
        assert [type(layer) for layer in each.modules()] == [type(layer) for layer in before.modules()]
        assert torch.equal(each(x), before(x))


@pytest.mark.full
def test_training_follows_eager(runs: Ran) -> None:
    model = nn.Sequential(row("hardswish"), made(Functions), made(Resnet))
    patched = copy.deepcopy(model)
    fusegen.patch(patched)
    losses = [trained(each, *SHAPE) for each in (model, patched)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    assert runs == [TRAINING] * 25
    for one, other in zip(model.buffers(), patched.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "hooks": lambda block: block.bn2.register_forward_hook(lambda *given: given[2] + 1),
    "hooks of the activation": lambda block: block.act.register_forward_hook(lambda *given: given[2] + 1),
    "a forward": lambda block: setattr(block.bn2, "forward", lambda x: x + 1),
    "another norm": lambda block: setattr(block, "bn2", nn.InstanceNorm2d(C)),
    "another activation": lambda block: setattr(block, "act", nn.Sigmoid()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_runs_as_it_is(change: str, runs: Ran) -> None:
    block, other = made(Resnet).eval(), made(Resnet).eval()
    fusegen.patch(block)
    for each in (block, other):
        CHANGES[change](each)
    x = torch.randn(SHAPE)
    torch.testing.assert_close(block(x), other(x))
    assert runs == [] if "activation" in change else [EVALUATION]


def test_norms_without_weights_and_without_statistics(runs: Ran) -> None:
    block = made(Sums)
    block.bn1 = nn.BatchNorm2d(C, affine=False)
    check(block, 2, runs, torch.float32)
    block.bn1 = nn.BatchNorm2d(C, track_running_stats=False)
    other, x = copy.deepcopy(block).eval(), torch.randn(SHAPE)
    runs.clear()
    fusegen.patch(block.eval())
    torch.testing.assert_close(block(x), other(x))
    assert runs == [TRAINING, EVALUATION]


def test_what_pytorch_refuses(runs: Ran) -> None:
    layers = row("relu")
    fusegen.patch(layers)
    layers[0] = nn.Identity()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layers(torch.randn(1, C, 1, 1))
    with pytest.raises(ValueError, match="expected 4D input"):
        layers(torch.randn(3, C))


def test_compilers_see_the_own_operations(runs: Ran) -> None:
    for block in (made(Resnet).eval(), row("relu").eval()):
        x = torch.randn(SHAPE)
        value = block(x)
        fusegen.patch(block)
        compiled: Any = torch.compile(block, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), value)
        exported: Any = torch.export.export(block, (x,)).module()
        torch.testing.assert_close(exported(x), value)
        assert runs == []


class Read(Layers):
    """A block that reads the norm again."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.bn1(x)
        z = self.act(y)
        return y + z


class Written(Layers):
    """A block that reads what the norm reads between the two."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.bn1(x)
        x = self.conv2(x)
        y = self.act(y)
        return x + y


class Perhaps(Layers):
    """A block that calls the activation perhaps."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.bn1(x)
        return self.act(y) if self.training else y


class Returned(Layers):
    """A block that returns the norm, too."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.bn1(x)
        return self.act(y) + y


class Scaled(Layers):
    """A block that scales a sum by its activation, under the name of the sum."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.bn1(self.conv1(x))
        y += x
        y = self.act(y) * y
        return y


class Looped(Layers):
    """A block that reads the norm the next time around."""

    def forward(self, y: Tensor) -> Any:
        """Return the block."""
        for _ in range(2):
            y = self.bn1(y)
            z = self.act(y)
        return z


class Aliased(Layers):
    """A block that writes over what the norm has read, by another name."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = self.conv1(x)
        other = x
        y = self.bn1(x)
        other = self.shortcut(other)
        y = y + other
        return self.act(y)


class Overwritten(Layers):
    """The same in one expression."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = self.conv1(x)
        return self.act(self.bn1(x) + self.shortcut(x))


class Late(Layers):
    """The same with a sum in place."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = self.conv1(x)
        y = self.bn1(x)
        y += self.shortcut(x)
        return self.act(y)


OTHERS = [Read, Written, Perhaps, Returned, Scaled, Looped, Aliased, Overwritten, Late]


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.__name__)
def test_other_orders_stay(kind: Any, runs: Ran) -> None:
    block, other = made(kind).eval(), made(kind).eval()
    block.shortcut, other.shortcut = nn.Hardtanh(inplace=True), nn.Hardtanh(inplace=True)
    report = fusegen.patch(block)
    assert not any("batches" in each.module for each in report.replaced)
    with torch.no_grad():
        x = torch.randn(SHAPE)
        torch.testing.assert_close(block(x), other(x))


def test_kernels_are_known_to_be_faster_in_training_on_cuda() -> None:
    modes = {
        (of, device): modes_of("batch_norm", of, device, torch.float32, None)
        for of in (TRAINING, EVALUATION)
        for device in ("cpu", "cuda")
    }
    assert {key for key, found in modes.items() if found} == {(TRAINING, "cuda")}
    assert modes[TRAINING, "cuda"] == {True}
    assert not any("batches" in each.module for each in fusegen.patch(made(Resnet)).replaced)


TAKEN: dict[str, tuple[tuple[int, ...], torch.dtype, bool]] = {
    "as many as were timed": ((64, 64, 56, 56), torch.float32, True),
    "16 bits": ((64, 64, 56, 56), torch.bfloat16, True),
    "64 bits": ((64, 64, 56, 56), torch.float64, False),
    "fewer elements": ((63, 64, 56, 56), torch.float32, False),
    "short rows": ((128, 64, 55, 56), torch.float32, False),
    "columns": ((8192, 1024), torch.float32, False),
}


@pytest.mark.parametrize("case", TAKEN)
@pytest.mark.parametrize("mode", [nn.Module.train, nn.Module.eval])
def test_the_tensors_that_a_norm_takes_on_cuda(
    case: str, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in [key for key in GAINS if key[:2] == ("cuda", "batch_norm")]:
        monkeypatch.setitem(GAINS, ("cpu", *key[1:]), GAINS[key])
    shape, dtype, is_taken = TAKEN[case]
    norm: nn.Module = mode((nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(shape[1]))
    found, x = batches.batched(nn.Sequential(norm, nn.ReLU()), "0", "1"), torch.empty(shape, dtype=dtype)
    assert found is not None
    act = nn.ReLU()
    assert found.takes(norm, act, x, ()) is (is_taken and norm.training)
    if len(shape) == 4:
        assert not found.takes(norm, act, x.to(memory_format=torch.channels_last), ())
