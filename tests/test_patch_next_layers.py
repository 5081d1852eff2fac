"""Sums that layers end with, patched to be one kernel with the norm that the next layer begins with."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_patch_sums import LENGTH, ROWS, Expressions, Holder, Statements
from test_patch_sums import runs as runs
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import fusegen
from fusegen.models.patch import handed
from fusegen.models.patch.slots import MISSES, Slot

LAYERS = 3


class Rms(nn.Module):
    """A root mean square norm in the dtype of its tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(LENGTH)), 1e-6

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the norm."""
        value: Tensor = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * value


class Tuples(Holder):
    """A block that returns more, as those of older models."""

    def forward(self, hidden: Tensor, others: bool = False) -> Any:
        """Return the block."""
        residual = hidden
        hidden = self.first(hidden)
        hidden = residual + self.mix(hidden)
        residual = hidden
        hidden = self.feed(self.second(hidden))
        hidden = residual + hidden
        outputs: Any = (hidden,)
        if others:
            outputs += (residual,)
        return outputs


class Returned(Holder):
    """A block that returns its sum, as torchvision's, of three numbers, as Phi's."""

    def forward(self, input: Tensor) -> Any:
        """Return the block."""
        x = self.mix(self.first(input))
        return self.feed(x) + x + input


class Stack(nn.Module):
    """Blocks in a list, and a norm behind them."""

    def __init__(self, kind: Any = Statements, norm: Callable[[], nn.Module] = Rms) -> None:
        super().__init__()
        self.layers: nn.ModuleList | nn.Sequential = nn.ModuleList(kind(norm) for _ in range(LAYERS))
        self.norm = norm()

    def forward(self, x: Tensor) -> Any:
        """Return the norm of the last block's value."""
        for layer in self.layers:
            found = layer(x)
            x = found[0] if isinstance(found, tuple) else found
        return self.norm(x)


class InSequence(Stack):
    """Blocks in a sequence inside of another module, as torchvision's and timm's."""

    def __init__(self, kind: Any = Expressions, norm: Callable[[], nn.Module] = Rms) -> None:
        super().__init__(kind, norm)
        self.layers = nn.Sequential(nn.Sequential(*self.layers))
        self.drop = nn.Dropout(0)

    def forward(self, x: Tensor) -> Any:
        """Return the norm of the last block's value."""
        return self.norm(self.layers(self.drop(x)))


class Features(InSequence):
    """A model whose forward calls another method, as timm's."""

    def forward_features(self, x: Tensor) -> Any:
        """Return the norm of the last block's value."""
        if self.training:
            run: Any = checkpoint_sequential
            x = run(self.layers, 1, x, use_reentrant=False)
        else:
            x = self.layers(x)
        return self.norm(x)

    def forward(self, x: Tensor) -> Any:
        """Return the features."""
        return self.drop(self.forward_features(x))


class Inner(Stack):
    """An encoder, whose norm is that of a model around it, as in older ones of transformers."""

    def forward(self, x: Tensor) -> Any:
        """Return the last block's value."""
        for _, layer in enumerate(self.layers):
            x = layer(x)
        return (x,)


class Outer(nn.Module):
    """The model around it."""

    def __init__(self, kind: Any, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.encoder, self.norm = Inner(kind, norm), norm()

    def forward(self, x: Tensor) -> Any:
        """Return the norm of the last block's value."""
        return self.norm(self.encoder(x)[0])


Taken = list[bool]


@pytest.fixture
def taken(runs: Any, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """List for each value that a norm was asked for if it took one; all kernels are faster."""
    found, take = Taken(), Slot.take

    def listed(slot: Slot, *given: Any) -> Tensor | None:
        value = take(slot, *given)
        found.append(value is not None)
        return value

    monkeypatch.setattr(Slot, "take", listed)
    return found


def made(stack: Any = Stack, *kinds: Any, dtype: torch.dtype = torch.float64) -> Any:
    """Return a stack with random parameters."""
    torch.manual_seed(0)
    model = stack(*kinds)
    for each in model.parameters():
        each.data.add_(0.3 * torch.randn_like(each))
    return model.to(dtype)


def values(model: Any, x: Tensor) -> list[Tensor]:
    """Return the value without a gradient, and with one the value and all gradients."""
    with torch.no_grad():
        alone = model(x)
    leaf = x.clone().requires_grad_()
    value = model(leaf)
    every = [leaf, *model.parameters()]
    grads = torch.autograd.grad(value.square().sum(), every, allow_unused=True)
    return [alone, value.detach(), *(each for each in grads if each is not None)]


def layer_norm() -> nn.Module:
    """Return PyTorch's norm."""
    return nn.LayerNorm(LENGTH)


STACKS: dict[str, tuple[Any, ...]] = {
    "statements": (Stack, Statements, Rms),
    "layer norms": (Stack, Statements, layer_norm),
    "tuples": (Stack, Tuples, Rms),
    "sums of three": (Stack, Returned, Rms),
    "in sequence": (InSequence, Expressions, layer_norm),
    "features": (Features, Expressions, layer_norm),
    "an encoder": (Outer, Statements, Rms),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("stack", STACKS)
def test_a_layer_computes_the_norm_of_the_next_one(stack: str, dtype: Any, taken: Taken) -> None:
    model = made(*STACKS[stack], dtype=dtype)
    exact, ours = copy.deepcopy(model).double(), copy.deepcopy(model)
    report = fusegen.patch(ours)
    assert sum("no_grad" in each.when for each in report.replaced) == LAYERS
    for scale in (1e-3, 1.0, 30.0):
        x = scale * torch.randn(*ROWS, LENGTH).to(dtype)
        taken.clear()
        mine = values(ours, x)
        assert taken.count(True) == LAYERS
        for one, other, true in zip(mine, values(model, x), values(exact, x.double()), strict=True):
            assert one.dtype == dtype
            error, theirs = (one.double() - true).abs().max(), (other.double() - true).abs().max()
            assert error <= 2 * theirs + true.abs().max() * (1e-14 + 4 * torch.finfo(dtype).eps)


def test_the_report_names_the_norm(taken: Taken) -> None:
    def lines(model: nn.Module) -> list[str]:
        report = str(fusegen.patch(model)).splitlines()
        return [each.strip() for each in report if "no_grad" in each]

    behind = "-> rows.add_rms_norm, under torch.no_grad"
    assert lines(made()) == [
        f"layers.0: Statements, layers.1.first(residual + hidden) {behind}",
        f"layers.1: Statements, layers.2.first(residual + hidden) {behind}",
        f"layers.2: Statements, norm(residual + hidden) {behind}",
    ]
    assert lines(made(InSequence))[1:] == [
        f"layers.0.1: Expressions, layers.0.2.first(x + self.feed(self.second(x))) {behind}",
        f"layers.0.2: Expressions, norm(x + self.feed(self.second(x))) {behind}",
    ]


class Clamped(Statements):
    """A block that clamps its sum."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.mix(self.first(x))
        return torch.clamp(x, -9, 9)


class Scaled(Statements):
    """A block that scales its sum, and its input."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x * 2
        x = x + self.mix(self.first(x))
        x = x / 2
        return x


class Changing(Statements):
    """A block whose norm is not that of its input."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x / 2
        x = x + self.mix(self.first(x))
        return x


class Late(Statements):
    """A block that calls another layer before its norm."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        return self.mix(x) + self.first(x)


class Behind(Statements):
    """A block with its norm behind the sum."""

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        return self.first(self.mix(x) + x)


OTHERS = {Clamped: 0, Scaled: 0, Changing: 1, Late: 1, Behind: 0}  # and how often the norm behind is known


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.__name__)
def test_sums_that_stay(kind: Any, taken: Taken) -> None:
    model = made(Stack, kind)
    ours, x = copy.deepcopy(model), torch.randn(*ROWS, LENGTH, dtype=torch.float64)
    report = fusegen.patch(ours)
    assert sum("no_grad" in each.when for each in report.replaced) == OTHERS[kind]
    with torch.no_grad():
        torch.testing.assert_close(ours(x), model(x))
    assert taken.count(True) == OTHERS[kind]


def states(model: Any, x: Tensor) -> list[Tensor]:
    """Return the input of each layer, and the last value."""
    found = [x]
    for layer in model.layers:
        found.append(layer(found[-1]))
    return [*found, model.norm(found[-1])]


def hooked(hook: Any) -> Callable[[Any, Tensor], Any]:
    """Return a call with a hook behind the second layer."""

    def call(model: Any, x: Tensor) -> Any:
        model.layers[1].register_forward_hook(hook)
        return model(x)

    return call


def ordered(*places: int) -> Callable[[Any, Tensor], Any]:
    """Return a call of layers in an order, and of the norm."""

    def call(model: Any, x: Tensor) -> Any:
        for place in places:
            x = model.layers[place](x)
        return model.norm(x)

    return call


def between(change: Callable[[Any, Tensor], Any]) -> Callable[[Any, Tensor], Any]:
    """Return a call that changes the second layer, or what it is given, before that runs."""

    def call(model: Any, x: Tensor) -> Any:
        x = model.layers[0](x)
        changed = change(model.layers[1], x)
        x = x if changed is None else changed
        return model.norm(model.layers[2](model.layers[1](x)))

    return call


def other_weight(layer: Any, x: Tensor) -> None:
    """Give the norm another parameter, with the same memory."""
    layer.first.weight = nn.Parameter(layer.first.weight.data)
    layer.first.weight.data.mul_(2)


def other_data(layer: Any, x: Tensor) -> None:
    """Give the norm's parameter other memory."""
    layer.first.weight.data = 2 * layer.first.weight.data


def repeated(layer: Any, x: Tensor) -> None:
    """Have the norm's parameter be its first number, again and again."""
    layer.first.weight.data = layer.first.weight.data[:1].expand(LENGTH)


def other_eps(layer: Any, x: Tensor) -> None:
    """Change a number of the norm."""
    layer.first.eps = 0.5


def own_data(layer: Any, x: Tensor) -> None:
    """Give the sum other memory, of which PyTorch counts no write."""
    x.data = 2 * x.data


def of_one_more(layer: Any, x: Tensor) -> Tensor:
    """Call the layer with another sum first."""
    layer(x + 1)
    return x


def watched(model: Any, x: Tensor) -> Any:
    """Have a hook double what the second layer's norm returns."""
    model.layers[1].first.register_forward_hook(lambda *given: 2 * given[2])
    return model(x)


def unshared(model: Any, x: Tensor) -> Any:
    """Have the second layer's norm be without memory until the layer runs, as FSDP does."""
    weight = model.layers[1].first.weight
    kept, size = weight.data.clone(), weight.untyped_storage().nbytes()
    weight.untyped_storage().resize_(0)

    def gather(*_: Any) -> None:
        weight.untyped_storage().resize_(size)
        weight.data.copy_(kept)

    model.layers[1].register_forward_pre_hook(gather)
    return model(x)


def of_inference(model: Any, x: Tensor) -> Any:
    """Run with weights that do not count the writes to them."""
    with torch.inference_mode():
        for each in model.modules():
            if isinstance(each, Rms):
                each.weight = nn.Parameter(each.weight.clone(), requires_grad=False)
    return model(x)


def other_parameters(model: Any, x: Tensor) -> Any:
    """Run with other parameters."""
    every = {name: each + 0.25 for name, each in model.named_parameters()}
    return torch.func.functional_call(model, every, (x,))


def in_inference_mode(model: Any, x: Tensor) -> Any:
    """Write to a sum where PyTorch does not count it."""
    with torch.inference_mode():
        x = model.layers[0](x)
        x.mul_(2)
        return model.norm(model.layers[2](model.layers[1](x))).clone()


def with_a_gradient_later(model: Any, x: Tensor) -> list[Tensor]:
    """Record gradients behind the first layer alone."""
    x = model.layers[0](x)
    with torch.enable_grad():
        value = model.norm(model.layers[2](model.layers[1](x)))
        return [*torch.autograd.grad(value.square().sum(), [*model.layers[1].parameters()])]


def of_a_sum_that_requires_one(model: Any, x: Tensor) -> list[Tensor]:
    """Return the gradient of the first layer's value."""
    for each in model.parameters():
        each.requires_grad_(False)
    with torch.enable_grad():
        first = model.layers[0](x).requires_grad_()
        value = model.norm(model.layers[2](model.layers[1](first)))
        return [*torch.autograd.grad(value.square().sum(), first)]


def of_states(model: Any, x: Tensor) -> list[Tensor]:
    """Return gradients of what the layers return."""
    with torch.enable_grad():
        found = states(model, x.requires_grad_())
        return [*torch.autograd.grad(found[-1].square().sum(), found[:-1])]


def checkpointed(*, reentrant: bool) -> Callable[[Any, Tensor], Any]:
    """Return a call that keeps no tensors of the layers."""

    def call(model: Any, x: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            leaf: Any = x.clone().requires_grad_()
            value: Any = leaf
            for layer in model.layers:
                value = checkpoint(layer, value, use_reentrant=reentrant)
            model.norm(value).square().sum().backward()
        return [leaf.grad, *(each.grad for each in model.parameters())]

    return call


def in_autocast(model: Any, x: Tensor) -> Any:
    """Run the second layer in 16 bits."""
    x = model.layers[0](x)
    with torch.autocast("cpu", torch.bfloat16):
        x = model.layers[1](x)
    return model.norm(model.layers[2](x))


def compiled(model: Any, x: Tensor) -> Any:
    """Run a layer compiled, and then all in one graph, and all exported, and traced."""
    second: Any = torch.compile(model.layers[1], backend="eager", fullgraph=True)
    one = model.norm(model.layers[2](second(model.layers[0](x))))
    every: Any = torch.compile(model, backend="eager", fullgraph=True)
    exported: Any = torch.export.export(model, (x,)).module()
    traced: Any = torch.fx.symbolic_trace(model)
    return [one, every(x), exported(x), traced(x)]


def mapped(model: Any, x: Tensor) -> Any:
    """Run for each of several inputs."""
    return torch.func.vmap(model)(torch.stack([x, 2 * x]))


CALLS: dict[str, tuple[Callable[[Any, Tensor], Any], int]] = {  # and how many values norms take
    "all states kept": (states, 3),
    "a hook that reads": (hooked(lambda *given: None), 3),
    "a hook that returns another value": (hooked(lambda *given: 2 * given[2]), 2),
    "a hook that writes": (hooked(lambda *given: given[2].mul_(2)), 2),
    "another order": (ordered(1, 0, 2), 1),
    "a layer twice": (ordered(0, 0, 1, 2), 3),
    "a dropped layer": (ordered(0, 2), 1),
    "an early exit": (lambda model, x: model.layers[0](x), 0),
    "an early exit to the norm": (ordered(0), 0),
    "another call first": (between(of_one_more), 2),
    "a copy": (between(lambda layer, x: x.clone()), 2),
    "a view": (between(lambda layer, x: x[:]), 2),
    "a sum with other memory": (between(own_data), 2),
    "a sum of another shape": (between(lambda _, x: setattr(x, "data", x.data.flatten(0, 1))), 2),
    "a weight of other strides": (between(repeated), 2),
    "a weight that is written to": (between(lambda layer, x: [layer.first.weight.mul_(2), x][1]), 2),
    "another weight": (between(other_weight), 2),
    "a weight with other memory": (between(other_data), 2),
    "a weight without memory": (unshared, 2),
    "weights of inference mode": (of_inference, 0),
    "another number": (between(other_eps), 2),
    "other parameters": (other_parameters, 3),
    "a hook of the norm in all calls": (watched, 2),
    "a hook of the norm": (between(lambda layer, x: [
        layer.first.register_forward_hook(lambda *given: 2 * given[2]), x][1]), 3),
    "another norm": (between(lambda layer, x: setattr(layer, "first", nn.Identity())), 2),
    "inference mode": (in_inference_mode, 0),
    "a gradient of weights later": (with_a_gradient_later, 0),
    "a gradient of a sum": (of_a_sum_that_requires_one, 0),
    "gradients of all sums": (of_states, 0),
    "checkpoints": (checkpointed(reentrant=False), 0),
    "reentrant checkpoints": (checkpointed(reentrant=True), 2),  # in their forwards
    "autocast": (in_autocast, 1),
    "compilers": (compiled, 1),
    "vmap": (mapped, 0),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("call", CALLS)
def test_calls_of_all_kinds_return_what_the_layers_do(call: str, taken: Taken) -> None:
    model = made()
    ours = copy.deepcopy(model)
    fusegen.patch(ours)
    x, (run, count) = torch.randn(*ROWS, LENGTH, dtype=torch.float64), CALLS[call]
    with torch.no_grad():
        found, right = (run(each, x.clone()) for each in (ours, model))
    torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)
    assert taken.count(True) == count


def test_threads_have_values_of_their_own(taken: Taken) -> None:
    model = made()
    ours = copy.deepcopy(model)
    fusegen.patch(ours)
    count, found = 4, dict[int, list[Tensor]]()
    together = threading.Barrier(count)

    def run(number: int) -> None:
        x = torch.full((*ROWS, LENGTH), float(number), dtype=torch.float64)
        with torch.no_grad():  # which is the thread's own
            found[number] = [x]
            for layer in (*ours.layers, ours.norm):
                together.wait()
                found[number].append(layer(found[number][-1]))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with torch.no_grad():
        for number in range(count):
            torch.testing.assert_close(found[number], states(model, found[number][0]))
    assert taken.count(True) == count * LAYERS


@pytest.fixture
def alive(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many of the values that were handed are alive."""
    values, put = list[weakref.ref[Tensor]](), Slot.put

    def counted(slot: Slot, total: Tensor, normed: Tensor, *others: Any) -> None:
        values.append(weakref.ref(normed))
        put(slot, total, normed, *others)

    monkeypatch.setattr(Slot, "put", counted)
    return lambda: sum(each() is not None for each in values)


def test_no_value_outlives_its_sum(alive: Callable[[], int]) -> None:
    model, x = made(), torch.randn(*ROWS, LENGTH, dtype=torch.float64)
    fusegen.patch(model)
    gc.disable()
    try:
        with torch.no_grad():
            model(x)
            assert alive() == 0
            every = states(model, x)  # whose values were taken
            assert alive() == 1  # the last one, which is the result
            every.pop()
            assert alive() == 0
            for _ in range(3):
                every.append(model.layers[0](x))
            assert alive() == 1  # of the last one
            model(x)
            assert alive() == 0
            every.append(model.layers[0](x))
            assert alive() == 1
            every.clear()
            assert alive() == 0
    finally:
        gc.enable()


def test_undo_copies_and_pickled_layers(taken: Taken) -> None:
    model, x = nn.Sequential(made()), torch.randn(*ROWS, LENGTH, dtype=torch.float64)
    before = copy.deepcopy(model)
    report = fusegen.patch(model)
    assert ([*model.state_dict()], repr(model)) == ([*before.state_dict()], repr(before))
    assert [*model.named_modules()][1:] == [
        (name, model.get_submodule(name)) for name, _ in [*before.named_modules()][1:]
    ]
    with torch.no_grad():
        first: Any = model[0]
        old: Any = before[0]
        kept = first.layers[0](x)  # a value that is not taken yet
        again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
        for each in again.parameters():
            each.mul_(2)
        taken.clear()
        torch.testing.assert_close(again(x), copy_of(again)(x))
        assert taken.count(True) == LAYERS
        torch.testing.assert_close(first.layers[1](kept), old.layers[1](kept))
        assert taken.count(True) == LAYERS + 1
        alone = [pickle.dumps(each.layers[0]) for each in (first, old)]
        assert len(alone[0]) < 2 * len(alone[1])  # and no other layers
        torch.testing.assert_close(pickle.loads(alone[0])(x), pickle.loads(alone[1])(x))
        report.undo()
        fusegen.unpatch(again)
        for one, other in zip(model.modules(), before.modules(), strict=True):
            assert (type(one), vars(one).keys()) == (type(other), vars(other).keys())
        assert torch.equal(model(x), before(x))


def copy_of(model: Any) -> Any:
    """Return the model as it was before."""
    found = copy.deepcopy(model)
    fusegen.unpatch(found)
    return found


def test_a_norm_that_takes_no_values_gets_none(alive: Callable[[], int], taken: Taken) -> None:
    model, x = made(), torch.randn(*ROWS, LENGTH, dtype=torch.float64)
    fusegen.patch(model)
    del model.layers[1]
    with torch.no_grad():
        right = copy_of(model)(x)
        counts = list[int]()
        for _ in range(MISSES):
            torch.testing.assert_close(model(x), right)
            first = model.layers[0](x)
            counts.append(alive())
            del first
        assert counts == [1] * (MISSES // 2) + [0] * (MISSES // 2)
        taken.clear()
        model(x)
        assert taken == [True]  # that of the last layer


def test_small_sums_and_those_with_gradients_stay_apart(
    taken: Taken, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = made(), torch.randn(*ROWS, LENGTH, dtype=torch.float64)
    fusegen.patch(model)
    model(x)
    assert runs.count("add_rms_norm") == LAYERS  # those inside of layers
    with torch.no_grad():
        for least, count in ((x.numel() + 1, 0), (x.numel(), LAYERS)):
            monkeypatch.setattr(handed, "LEAST", least)
            torch.testing.assert_close(model(x), copy_of(model)(x))
            assert len(taken) == count
