"""Modules under PyTorch's machinery: compilers, transforms, modes, copies, other processes."""

import copy
import functools
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from budget import HANG
from kernels import (
    CLASSES,
    DEVICES,
    DTYPES,
    LAYOUTS,
    LIBRARY,
    ROOT,
    arranged,
    assert_same,
    by_module,
    function,
    generated,
    meaningful_strides,
    scalars,
    smooth,
)
from processes import told
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fusegen.project import standalone

Call = Callable[..., Tensor]

SOME = ("hardswish", "tanh", "relu6", "elu", "swiglu", "relu_hardswish")  # inputs saved, output saved,
# with a parameter, gated, a chain
ONE = [name for name in SOME if LIBRARY[name].inputs == 1]
JVP = "ignore:.torch.jit.script. is deprecated:DeprecationWarning"  # in torch's own files, as the others
BATCHED = "ignore:There is a performance drop because we have not yet implemented the batching rule"
EXPORT = "ignore:.isinstance.treespec, LeafSpec.. is deprecated"


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Nothing that was compiled before decides what a test compiles."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def given(name: str, *shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return smooth(name, *shape, device=device, dtype=dtype)


def backward(value: Tensor) -> None:
    torch.autograd.backward(value.sum())


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["hardswish", "hardtanh"])
def test_a_compiled_module_may_write_in_place(name: str) -> None:
    model = generated(name).ModelNew(inplace=True)
    compiled = torch.compile(lambda x: model(x * 2) + 1, backend="aot_eager", fullgraph=True)
    x = torch.randn(5, 7, requires_grad=True)
    close(compiled(x), LIBRARY[name].eager(x * 2) + 1)
    close(*(torch.autograd.grad(v.sum(), x)[0] for v in (compiled(x), LIBRARY[name].eager(x * 2))))
    y = torch.randn(5)
    changed = y.clone()
    torch.compile(lambda t: model(t), backend="aot_eager", fullgraph=True)(changed)
    assert_same(changed, function(name)(y))


# torch.func


@pytest.mark.few(4)
@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CLASSES)
def test_vmap_over_any_dimension(name: str, device: str) -> None:
    """Of one input, of all, and of none within another vmap; the results where they are asked for."""
    tensors = given(name, 3, 4, 5, device=device)
    call = function(name)
    for dim in (0, 1, 2, -1):
        whole = call(*tensors)
        for out in (0, 1, -1):
            actual = vmap(call, in_dims=dim, out_dims=out)(*tensors)
            assert_same(actual, whole.movedim(dim, out))
    if len(tensors) == 2:
        first, second = tensors[0], tensors[1][:, 0]
        for dims in ((0, None), (None, 0), (0, 1), (1, 0)):
            rows = [v if d is None else v.movedim(d, 0) for v, d in zip((first, first), dims, strict=True)]
            expected = torch.stack([
                call(*(r if d is None else r[k] for r, d in zip(rows, dims, strict=True)))
                for k in range(min(r.shape[0] for r, d in zip(rows, dims, strict=True) if d is not None))
            ]) if None in dims else None  # fmt: skip
            if expected is not None:
                assert_same(vmap(call, in_dims=dims)(first, first), expected)
        ranks = vmap(call, in_dims=(0, 0))(first, second)  # (4, 5) and (5,) within
        assert_same(ranks, torch.stack([call(a, b) for a, b in zip(first, second, strict=True)]))
    nested = vmap(vmap(call))(*tensors)
    assert_same(nested, call(*tensors))


@pytest.mark.few(5)
@pytest.mark.together
@pytest.mark.filterwarnings(JVP)
@pytest.mark.filterwarnings(BATCHED)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(LIBRARY))
def test_functional_transforms_agree_with_eager(name: str, device: str) -> None:
    tensors = given(name, 4, device=device, dtype=torch.float64)
    every = tuple(range(len(tensors)))
    ours, theirs = function(name), LIBRARY[name].eager
    if name == "rrelu":  # eager's own knows no vmap
        slope = sum(scalars("rrelu")[0]) / 2
        theirs = functools.partial(F.leaky_relu, negative_slope=slope)
    tangents = tuple(torch.linspace(-1, 2, 4, dtype=torch.float64, device=device) for _ in tensors)

    def both(transform: Callable[[Call], Any]) -> None:
        room = 1e-7 if "hards" in name else 1e-9  # eager's 1/6 has a float's digits
        torch.testing.assert_close(transform(ours), transform(theirs), rtol=room, atol=room)

    both(lambda f: grad(lambda *t: f(*t).sum(), argnums=every)(*tensors))
    both(lambda f: jvp(f, tuple(tensors), tangents))
    both(lambda f: vjp(f, *tensors)[1](tangents[0]))
    both(lambda f: jacrev(f, argnums=every)(*tensors))
    both(lambda f: jacfwd(f, argnums=every)(*tensors))
    both(lambda f: vmap(grad(lambda *t: f(*t).sum()))(*tensors))
    if name != "hardsigmoid":  # of which eager has no second derivative
        both(lambda f: hessian(lambda *t: f(*t).square().sum(), argnums=every)(*tensors))
        both(lambda f: grad(lambda x: grad(lambda *t: f(*t).sum())(x, *tensors[1:]).sum())(tensors[0]))


@pytest.mark.parametrize("name", ["hardswish", "elu"])
def test_gradients_per_sample(name: str) -> None:
    """As in torch.func's tutorial: a model's gradients for every sample by itself."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), generated(name).ModelNew(), nn.Linear(4, 1))
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    samples = torch.randn(6, 3)

    def loss(values: dict[str, Tensor], x: Tensor) -> Tensor:
        result: Tensor = functional_call(model, values, (x,))
        return result.square().sum()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, samples)
    for k, x in enumerate(samples):
        model.zero_grad()
        backward(model(x).square())
        for key, value in model.named_parameters():
            close(each[key][k], value.grad)


# Modes and subclasses


class Tagged(Tensor):
    """A tensor with a type of its own."""


def logged() -> Any:
    """A mode that writes down what reaches the dispatcher, in `names`."""
    names: list[str] = []

    def dispatch(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        names.append(str(func))
        return func(*args, **(kwargs or {}))

    mode: Any = type("Logged", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})()
    mode.names = names
    return mode


@pytest.mark.parametrize("name", by_module(SOME))
def test_a_subclass_keeps_its_type(name: str) -> None:
    tensors = given(name, 3, 4)
    tagged = [t.as_subclass(Tagged) for t in tensors]
    actual = function(name)(*tagged)
    assert type(actual) is Tagged
    assert_same(actual.as_subclass(Tensor), function(name)(*tensors))
    leaf = tagged[0].clone().requires_grad_()
    result = function(name)(leaf, *tagged[1:])
    assert type(result) is Tagged
    backward(result)
    assert leaf.grad is not None
    parameter = nn.Parameter(tensors[0])
    assert type(function(name)(parameter, *tensors[1:])) is Tensor


def test_a_torch_function_is_asked() -> None:
    """A class that is not a tensor at all, as in tracing by symbols."""

    class Asked:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
            return str(func.__name__)

    for name in ("hardswish", "relu6", "elu", "tanh"):
        assert "torch" in type(function(name)).__module__ or function(name)(Asked())


@pytest.mark.parametrize("name", by_module(SOME))
def test_a_dispatch_mode_sees_the_operators(name: str) -> None:
    tensors = [t.requires_grad_() for t in given(name, 3, 4)]
    with logged() as mode:
        backward(function(name)(*tensors))
    seen = " ".join(mode.names)
    assert f".{name}_forward.default" in seen
    assert f".{name}_backward.default" in seen


def test_a_mode_that_counts_flops_counts_around_it() -> None:
    layer = nn.Linear(8, 16)
    x = torch.randn(4, 8)
    with FlopCounterMode(display=False) as counter:
        backward(generated("hardswish").ModelNew()(layer(x)))
    assert counter.get_total_flops() == 2 * 2 * 4 * 8 * 16  # forward and the weight's gradient


@pytest.mark.few(4)
@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", by_module(SOME))
def test_fake_and_meta_tensors_have_the_real_shape_and_strides(name: str, dtype: torch.dtype) -> None:
    """Of every layout; what eager's would be, too, which is what a compiler plans with."""
    for layout in LAYOUTS:
        x = arranged(layout, dtype)
        tensors = [x] * LIBRARY[name].inputs
        real = function(name)(*tensors)
        eager = LIBRARY[name].eager(*tensors)
        assert meaningful_strides(real) == meaningful_strides(eager)
        meta = function(name)(*(t.to("meta") if layout != "expanded" else _meta(t) for t in tensors))
        with FakeTensorMode() as mode:
            fake = function(name)(*(mode.from_tensor(t) for t in tensors))
        assert isinstance(fake, FakeTensor)
        for other in (meta, fake):
            assert (other.shape, other.dtype) == (real.shape, real.dtype)
            assert other.stride() == real.stride(), (layout, other.stride(), real.stride())
        leaf = x.detach().requires_grad_()
        backward(function(name)(*([leaf] * len(tensors))))
        assert leaf.grad is not None
        assert leaf.grad.shape == x.shape


def _meta(t: Tensor) -> Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


def test_a_pair_of_layouts_is_laid_as_eager_lays_it() -> None:
    x = torch.randn(4, 5, 6)
    for first in (x, x.permute(2, 1, 0).contiguous().permute(2, 1, 0), x.transpose(0, 1)[:4, :4], x[:, :1]):
        for second in (x, x.mT.contiguous().mT, x[0], x[:1].expand_as(x), x[..., :1]):
            if first.shape[0] != 4 or (first.shape != x.shape and first.shape[1] != 1):
                continue
            pair = (first, second)
            real, eager = function("swiglu")(*pair), F.silu(first) * second
            assert meaningful_strides(real) == meaningful_strides(eager)
            with FakeTensorMode() as mode:
                fake = function("swiglu")(*(mode.from_tensor(t) for t in pair))
            assert fake.stride() == real.stride()


@pytest.mark.parametrize("name", by_module(SOME))
def test_inference_mode(name: str) -> None:
    tensors = given(name, 3, 4)
    expected = function(name)(*tensors)
    with torch.inference_mode():
        actual = function(name)(*tensors)
        assert actual.is_inference()
        within = function(name)(*(t + 0 for t in tensors))
        if LIBRARY[name].inputs == 1:
            out = torch.empty_like(expected)
            assert function(name)(tensors[0] + 0, out=out) is out
            written = function(name)(tensors[0] + 0, inplace=True)
            assert_same(written, expected)
    for result in (actual, within):
        assert_same(result, expected)
    leaf = [t.requires_grad_() for t in tensors]
    with torch.no_grad():
        assert not function(name)(*leaf).requires_grad
    with torch.inference_mode():
        assert not function(name)(*leaf).requires_grad


@pytest.mark.few(3)
@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["hardswish", "gelu", "softplus", "tanh", "swiglu", "relu"])
def test_autocast_is_eagers(name: str, device: str) -> None:
    """The dtype that eager gives, of float32 and of 16-bit inputs."""
    for dtype in (torch.bfloat16, torch.float16):
        for own in DTYPES:
            tensors = given(name, 3, 4, device=device, dtype=own)
            with torch.autocast(device, dtype=dtype):
                actual, expected = function(name)(*tensors), LIBRARY[name].eager(*tensors)
                layer = nn.Linear(4, 4).to(device)
                mixed = [layer(t.float()) for t in tensors]
                after = function(name)(*mixed), LIBRARY[name].eager(*mixed)
            assert actual.dtype == expected.dtype
            torch.testing.assert_close(actual, expected)
            assert after[0].dtype == after[1].dtype
            backward(after[0])


@pytest.mark.parametrize("name", by_module(SOME))
def test_checkpointing_computes_it_twice(name: str) -> None:
    from torch.utils.checkpoint import checkpoint

    ours = [t.requires_grad_() for t in given(name, 3, 4)]
    for reentrant in (True, False):
        y = checkpoint(lambda *t: function(name)(*t), *ours, use_reentrant=reentrant)
        plain = torch.autograd.grad(function(name)(*ours).sum(), ours)
        for leaf in ours:
            leaf.grad = None
        backward(y)
        for leaf, wanted in zip(ours, plain, strict=True):
            assert leaf.grad is not None
            assert_same(leaf.grad, wanted)


@pytest.mark.parametrize("name", by_module(SOME))
def test_saved_tensors_go_through_hooks(name: str) -> None:
    """As offloading and compressing do; what is saved is as few tensors as the gradient needs."""
    packed: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        packed.append(t)
        return t.double()

    ours = [t.requires_grad_() for t in given(name, 3, 4)]
    plain = torch.autograd.grad(function(name)(*ours).sum(), ours)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float()):
        y = function(name)(*ours)
    assert len(packed) == LIBRARY[name].inputs
    for actual, wanted in zip(torch.autograd.grad(y.sum(), ours), plain, strict=True):
        assert_same(actual, wanted)


# Copies and other processes


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["hardtanh", "softplus", "swiglu", "relu", "rrelu", "conv_relu_hardswish"])
def test_a_model_is_copied_pickled_saved_and_scripted_by_hand(name: str) -> None:
    module = generated(name)
    model = module.ModelNew(*module.get_init_inputs())
    tensors = [torch.randn(2, 8, 6, 6) for _ in range(LIBRARY[name].inputs if name in LIBRARY else 1)]
    expected = model(*tensors)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    saved = torch.load(stream, weights_only=False)
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model)), saved):
        assert_same(other(*tensors).detach(), expected.detach())
        assert other.__dict__.keys() == model.__dict__.keys()
        assert list(other.state_dict()) == list(model.state_dict())
    other = module.ModelNew(*module.get_init_inputs())
    other.load_state_dict(model.state_dict())
    assert_same(other(*tensors).detach(), expected.detach())


WORKERS = """
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset
from generated.hardswish import hardswish, ModelNew
class Data(Dataset):
    def __init__(self): self.model = ModelNew()
    def __len__(self): return 8
    def __getitem__(self, k):
        assert os.getpid() != PARENT or not PARENT
        return self.model(torch.arange(5.0) - k)
PARENT = 0
if __name__ == "__main__":
    hardswish(torch.ones(100000))  # the parent's threads run before it forks
    for context in ("fork", "spawn"):
        loader = DataLoader(Data(), batch_size=2, num_workers=2, multiprocessing_context=context)
        rows = torch.cat(list(loader))
        expected = torch.stack([torch.nn.functional.hardswish(torch.arange(5.0) - k) for k in range(8)])
        print(context, torch.equal(rows, expected))
"""


@pytest.mark.full
def test_loaders_in_other_processes(tmp_path: Path) -> None:
    """Forked after the first use, and started again."""
    script = tmp_path / "workers.py"
    script.write_text(WORKERS, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], env=env, capture_output=True, text=True, timeout=HANG
    )
    assert done.stdout == "fork True\nspawn True\n", done.stderr


TWO_TEXTS = """
import torch, generated.hardsigmoid as first
text, x = open(PATH).read(), torch.tensor([0.0])
assert "/ M(6)" in text
changed, again = {}, {}
exec(text.replace("/ M(6)", "/ M(5)"), changed)
exec(text, again)
modules = vars(first), changed, again
print([round(module["hardsigmoid"](x).item(), 3) for module in modules])
"""


@pytest.mark.full
def test_two_texts_of_one_name_are_two_libraries(tmp_path: Path, extensions: Path) -> None:
    """A changed copy of a standalone file in the same process does not run the other's kernel."""
    path = tmp_path / "hardsigmoid.py"
    module = (ROOT / "generated" / "hardsigmoid.py").read_text(encoding="utf-8")
    path.write_text(standalone.text(module, "stable"), encoding="utf-8")
    printed = told(TWO_TEXTS.replace("PATH", repr(str(path))), extensions)
    assert printed == "[0.5, 0.6, 0.5]\n"
