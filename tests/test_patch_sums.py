"""Norms behind residuals, patched to be one kernel with the sum."""

from __future__ import annotations

import copy
import functools
import linecache
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from blocks import trained
from torch import Tensor, nn

import fusegen
from fusegen.models.patch import handed, library
from fusegen.models.patch.library import row_names
from fusegen.models.reader import row_gains
from fusegen.models.reader.row_gains import FUSED, GAINS, WRITTEN_OUT, Gain, modes_of

ROWS, LENGTH = (2, 5), 16


class Rms(nn.Module):
    """The norm of most language models."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(LENGTH)), 1e-6

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the norm."""
        wide = hidden.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        value: Tensor = self.weight * wide.to(hidden.dtype)
        return value


class Holder(nn.Module):
    """Two linear layers with a norm of a kind before each."""

    def __init__(self, kind: Callable[[], nn.Module] = lambda: nn.LayerNorm(LENGTH)) -> None:
        super().__init__()
        self.first, self.second = kind(), kind()
        self.mix, self.feed = nn.Linear(LENGTH, LENGTH), nn.Linear(LENGTH, LENGTH)


class Statements(Holder):
    """A block as transformers writes it."""

    def forward(self, hidden: Tensor) -> Any:
        """Return the block."""
        residual = hidden
        hidden = self.first(hidden)
        hidden = self.mix(hidden)
        hidden = residual + hidden

        residual = hidden
        hidden = self.second(hidden)
        hidden = self.feed(hidden)
        return residual + hidden


class Expressions(Holder):
    """A block as timm writes it."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.mix(self.first(x))
        x = x + self.feed(self.second(x))
        return x


class Inside(Holder):
    """Norms behind the sums, as BERT has them."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = self.first(self.mix(x) + x)
        return self.second(self.feed(x) + x)


class Crossed(Holder):
    """A block that has another one inside for some inputs, as GPT-2's."""

    def forward(self, hidden: Tensor, other: Tensor | None = None) -> Any:
        """Return the block."""
        mixed = self.mix(self.first(hidden))
        hidden = mixed + hidden
        if other is not None:
            hidden = hidden * other
        residual = hidden
        hidden = self.second(hidden)
        return self.feed(hidden) + residual


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a forward."""

    @functools.wraps(function)
    def run(*given: Any, **named: Any) -> Any:
        return 2 * function(*given, **named)

    return run


class Decorated(Holder):
    """One with a decorator, a closure and defaults."""

    @doubled
    def forward(self, x: Tensor, scale: float = 0.5, *, shift: float = 0.25) -> Any:
        """Return the block."""
        super().train(self.training)
        x = scale * x + self.mix(x)
        return self.feed(self.second(x)) + x * shift


BLOCKS: dict[Any, list[str]] = {  # and what the report says
    Statements: ["second(residual + hidden)"],
    Expressions: ["second(x + self.mix(self.first(x)))"],
    Inside: ["first(self.mix(x) + x)", "second(self.feed(x) + x)"],
    Crossed: ["second(mixed + hidden)"],
    Decorated: ["second(scale * x + self.mix(x))"],
}
KINDS: dict[str, Any] = {"layer_norm": lambda: nn.LayerNorm(LENGTH), "rms_norm": Rms}
Ran = list[str]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Have all kernels be faster; the list has the functions whose kernels ran."""
    ran = Ran()

    def always(name: str, *_: Any, is_recorded: bool) -> bool:
        ran.append(name)
        return True

    for name in row_names():
        for size in (2, 4, 8):
            for written in (FUSED, WRITTEN_OUT):
                for mode in (False, True):
                    monkeypatch.setitem(GAINS, ("cpu", name, written, size, mode), Gain(1, 2**20))
    monkeypatch.setattr(row_gains, "is_gain", always)
    monkeypatch.setattr(handed, "LEAST", 0)
    return ran


def made(kind: Any, norm: str = "layer_norm") -> Any:
    """Return a block with random parameters."""
    torch.manual_seed(0)
    block = kind(KINDS[norm])
    for each in block.parameters():
        each.data.add_(0.3 * torch.randn_like(each))
    return block


def results(block: nn.Module, x: Tensor, *others: Any) -> list[Tensor]:
    """Return the value and the gradients."""
    leaf = x.clone().requires_grad_()
    value = block(leaf, *others)
    weights = [each for each in block.parameters()]
    found = torch.autograd.grad(value.square().sum(), [leaf, *weights], allow_unused=True)
    return [value.detach(), *(each for each in found if each is not None)]


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm", KINDS)
@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_a_norm_behind_a_residual_is_one_kernel(kind: Any, norm: str, dtype: Any, runs: Ran) -> None:
    block = made(kind, norm).to(dtype)
    exact, ours = copy.deepcopy(block).double(), copy.deepcopy(block)
    report = fusegen.patch(ours)
    assert [each.before for each in report.replaced if "add" in each.module] == [
        f"{kind.__name__}, {text}" for text in BLOCKS[kind]
    ]
    for scale in (1e-3, 1.0, 30.0):
        x = scale * torch.randn(*ROWS, LENGTH).to(dtype)
        runs.clear()
        mine = results(ours, x)
        assert runs.count(f"add_{norm}") == len(BLOCKS[kind])
        truth = results(exact, x.double())
        for one, other, true in zip(mine, results(block, x), truth, strict=True):
            assert one.dtype == dtype
            error, theirs = (one.double() - true).abs().max(), (other.double() - true).abs().max()
            assert error <= 2 * theirs + (4 * torch.finfo(dtype).eps + 1e-6) * true.abs().max()


def test_another_branch_runs_the_norm_alone(runs: Ran) -> None:
    block, x = made(Crossed), torch.randn(*ROWS, LENGTH)
    other = torch.randn(LENGTH)
    value = block(x, other)
    fusegen.patch(block)
    torch.testing.assert_close(block(x, other), value)
    assert "add_layer_norm" not in runs
    torch.testing.assert_close(block(x), copy_of(block)(x))
    assert "add_layer_norm" in runs


def copy_of(block: Any) -> Any:
    """Return the block as it was before."""
    found = copy.deepcopy(block)
    fusegen.unpatch(found)
    return found


def test_undo_copies_and_pickles(runs: Ran) -> None:
    model = nn.Sequential(made(Statements), made(Decorated))
    before, names = copy.deepcopy(model), [*model.state_dict()]
    x = torch.randn(*ROWS, LENGTH)
    report = fusegen.patch(model)
    assert [*model.state_dict()] == names
    assert repr(model) == repr(before)
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    torch.testing.assert_close(again(x), before(x))
    assert runs.count("add_layer_norm") == 2
    assert str(fusegen.patch(again)).startswith("the model is patched already")
    fusegen.unpatch(again)
    report.undo()
    for each in (again, model):
        assert [type(layer) for layer in each.modules()] == [type(layer) for layer in before.modules()]
        assert torch.equal(each(x), before(x))


def test_training_follows_eager(runs: Ran) -> None:
    model = nn.Sequential(made(Statements, "rms_norm"), made(Inside))
    patched = copy.deepcopy(model)
    fusegen.patch(patched)
    losses = [trained(each, *ROWS, LENGTH) for each in (model, patched)]
    torch.testing.assert_close(*losses)
    assert runs.count("add_rms_norm") == 5


CHANGES: dict[str, Callable[[Any], Any]] = {
    "eps": lambda block: setattr(block.second, "eps", 0.5),
    "hooks": lambda block: block.second.register_forward_hook(lambda *given: given[2] + 1),
    "a forward": lambda block: setattr(block.second, "forward", lambda x: x + 1),
    "another layer": lambda block: setattr(block, "second", nn.Identity()),
    "a dtype": lambda block: block.double(),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_runs_as_it_is(change: str, runs: Ran) -> None:
    block, other = made(Statements), made(Statements)
    fusegen.patch(block)
    for each in (block, other):
        CHANGES[change](each)
    x = torch.randn(*ROWS, LENGTH, dtype=next(block.parameters()).dtype)
    torch.testing.assert_close(block(x), other(x))
    assert ("add_layer_norm" in runs) is (change == "a dtype")


def test_a_forward_that_is_replaced_in_the_class_runs(runs: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    block = made(Statements)
    fusegen.patch(block)
    monkeypatch.setattr(Statements, "forward", lambda self, x: x + 1)
    assert torch.equal(block(torch.zeros(1, LENGTH)), torch.ones(1, LENGTH))


def test_sums_that_the_kernel_does_not_take(runs: Ran) -> None:
    block, other = made(Inside), made(Inside)
    fusegen.patch(block)
    x = torch.randn(4, 5, LENGTH)
    for given in (x.transpose(0, 1), x[:, ::2], x[:0], x[0, 0]):
        torch.testing.assert_close(block(given), other(given))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(block(x), other(x))


class ChannelNorm(nn.LayerNorm):
    """A layer norm over channels, as ConvNeXt's."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def test_a_norm_over_channels_is_not_one_kernel_with_the_sum(runs: Ran) -> None:
    block, x = made(Inside), torch.randn(2, LENGTH, 3, LENGTH)
    block.first, block.second = ChannelNorm(LENGTH), ChannelNorm(LENGTH)
    for each in block.parameters():
        nn.init.normal_(each)
    value = block(x)
    fusegen.patch(block)
    torch.testing.assert_close(block(x), value)
    assert runs == ["layer_norm"] * 2


def test_compilers_see_the_own_operations(runs: Ran) -> None:
    block, x = made(Statements), torch.randn(*ROWS, LENGTH)
    value = block(x)
    fusegen.patch(block)
    compiled: Any = torch.compile(block, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), value)
    exported: Any = torch.export.export(block, (x,)).module()
    assert torch.equal(exported(x), value)
    assert runs == []
    traced: Any = torch.fx.symbolic_trace(block)
    torch.testing.assert_close(traced(x), value)  # in which norms are leaves
    assert "add_layer_norm" not in runs


class Written(Holder):
    """A block that writes to a sum before its norm."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.mix(x)
        x.mul_(2)
        return self.feed(self.second(x))


class Perhaps(Holder):
    """A block whose norm is perhaps not called."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.mix(x)
        return self.second(x) if self.training else x


class After(Holder):
    """A block that calls another layer before the norm."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.mix(x)
        return self.feed(x) + self.second(x)


class Walrus(Holder):
    """A block that writes the sum in the statement of its norm."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.mix(x)
        return (x := 2 * x) + self.second(x)


class Locals(Holder):
    """A block that reads the names of its variables."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.mix(x)
        return self.second(x) * len(locals())


@pytest.mark.parametrize("kind", [Written, Perhaps, After, Walrus, Locals], ids=lambda kind: kind.__name__)
def test_other_orders_stay(kind: Any, runs: Ran) -> None:
    block, other, x = made(kind), made(kind), torch.randn(*ROWS, LENGTH)
    report = fusegen.patch(block)
    torch.testing.assert_close(block(x), other(x))
    assert not any("add" in each.module for each in report.replaced)


class Twice(Holder):
    """A block that calls a norm of two sums, of one perhaps."""

    def forward(self, x: Tensor, other: Tensor | None = None) -> Any:
        """Return the block."""
        x = x + self.mix(x)
        if other is not None:
            x = x + other
            x = self.second(x)
        return self.second(x)


def test_a_norm_of_two_sums(runs: Ran) -> None:
    block, other = made(Twice), made(Twice)
    fusegen.patch(block)
    x, more = torch.randn(2, *ROWS, LENGTH)
    for given in ((x,), (x, more)):
        runs.clear()
        torch.testing.assert_close(block(*given), other(*given))
        assert runs.count("add_layer_norm") == 1


def test_the_report_has_the_code_of_norms_inside_of_others(runs: Ran) -> None:
    class Nested(Holder):
        def forward(self, x: Tensor) -> Any:
            return self.second(self.first(self.mix(x) + x) + x)

    texts = [each.before for each in fusegen.patch(made(Nested)).replaced if "add" in each.module]
    assert texts == ["Nested, first(self.mix(x) + x)", "Nested, second(self.first(self.mix(x) + x) + x)"]


CODE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return self.norm(x + self.mix(x))
"""
EDITS = ["", "class (\n", "x = '''\n", "# x\n", "\n", "def forward(\n", "def other(x): return x\n"]


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_that_was_edited_since(edit: str, runs: Ran, tmp_path: Path) -> None:
    file = tmp_path / "block.py"
    file.write_text(CODE)
    scope: dict[str, Any] = {"__name__": __name__}
    exec(compile(CODE, file, "exec"), scope)
    file.write_text(edit * 12)
    linecache.checkcache()
    report = fusegen.patch(scope["Block"]())
    assert not any("add" in each.module for each in report.replaced)


@pytest.mark.parametrize("name", ["add_layer_norm", "add_rms_norm"])
@pytest.mark.parametrize("written", [FUSED, WRITTEN_OUT])
def test_on_cuda_kernels_run_where_they_were_timed(name: str, written: str) -> None:
    is_fused = written == FUSED
    assert modes_of(name, written, "cuda", torch.float32, 4096) == ({False, True} if is_fused else {False})
    assert modes_of(name, written, "cuda", torch.float32, 2048) == {False}
    assert modes_of(name, written, "cuda", torch.bfloat16, 2048) == (set() if is_fused else {False})
    assert modes_of(name, written, "cpu", torch.float32, 4096) == set()


# Models of transformers: the modules that their layers get, how often, how often they run, and without
# gradients.
TRACED = {
    "LlamaConfig": ("rows.add_rms_norm", 4, 2, 4),
    "MistralConfig": ("rows.add_rms_norm", 4, 2, 4),
    "Qwen2Config": ("rows.add_rms_norm", 4, 2, 4),
    "GPT2Config": ("rows.add_layer_norm", 4, 2, 4),
    "PhiConfig": ("rows.add_layer_norm", 2, 0, 2),
    "BertConfig": ("rows.add_layer_norm", 5, 4, 4),  # positions are of one sequence
}
SIZES = {
    "vocab_size": 32, "hidden_size": LENGTH, "num_attention_heads": 2, "num_key_value_heads": 1,
    "num_hidden_layers": 2, "intermediate_size": 24, "n_inner": 24,
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("name", TRACED)
def test_layers_of_transformers(name: str, runs: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(getattr(transformers, name)(**SIZES)).eval()
    tokens = torch.randint(0, 32, (2, 7))
    every = model(tokens, output_hidden_states=True)
    before = every.last_hidden_state
    before.square().sum().backward()
    grads = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    module, places, recorded, count = TRACED[name]
    function = module.removeprefix("rows.")
    kernel = Mock(side_effect=getattr(library.module(module), function))
    monkeypatch.setattr(library.module(module), function, kernel)
    report = fusegen.patch(model)
    assert [each.module for each in report.replaced].count(module) == places
    with torch.no_grad():
        again = model(tokens, output_hidden_states=True)
    assert kernel.call_count == count
    torch.testing.assert_close(again.hidden_states, every.hidden_states, rtol=1e-4, atol=1e-4)
    after = model(tokens).last_hidden_state
    assert kernel.call_count == count + recorded
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    after.square().sum().backward()
    for name, each in model.named_parameters():
        if each.grad is not None:
            torch.testing.assert_close(each.grad, grads[name], rtol=1e-3, atol=1e-3)
    report.undo()
    torch.testing.assert_close(model(tokens).last_hidden_state, before)
