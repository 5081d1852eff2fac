"""Rows that are groups of channels, or the pixels of one, with weights by channel."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Workshop
from test_cuda_text import NVCC, nvcc
from test_rows import BOUNDS, GPU, ulps
from torch import Tensor, nn

from fusegen.core.row_dimensions import Over
from fusegen.errors import SpecErrors
from fusegen.language.library import load as load_spec
from fusegen.runtime.flags import CUDA_FLAGS

F = nn.functional
# the number of groups last: of one pixel each, of three dimensions, of one image, of one channel each
SHAPES = (
    (3, 8, 5, 7, 4),
    (2, 8, 64, 1),
    (1, 6, 9, 3),
    (4, 6, 2),
    (2, 6, 4, 4, 4, 6),
    (1, 4, 2),
    (70, 32, 3, 3, 8),
    (2, 4, 5000, 2),
)


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, groups, weight, bias, 1e-5)


def instance_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, x.shape[1], weight, bias, 1e-5)


CASES: dict[str, Callable[..., Tensor]] = {
    "group_norm": group_norm,
    "group_norm_silu": lambda *arguments: F.silu(group_norm(*arguments)),
    "instance_norm": instance_norm,
}
RUNS = [(name, sizes) for name in CASES for sizes in SHAPES if name != "instance_norm" or len(sizes) > 3]


def module(name: str) -> Any:
    return importlib.import_module(f"generated.rows.{name}")


def called(name: str, x: Tensor, groups: int, weight: Tensor, bias: Tensor) -> Tensor:
    """Return our function of the same arguments."""
    numbers = {} if name == "instance_norm" else {"num_groups": groups}
    result: Tensor = getattr(module(name), name)(x, weight, bias, **numbers)
    return result


def drawn(shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """Return images, a weight and a bias, which have gradients, and an incoming gradient."""
    generator = torch.Generator().manual_seed(1)
    sizes = (shape, shape[1:2], shape[1:2], shape)
    found = [torch.randn(size, generator=generator).to(dtype).to(device) for size in sizes]
    return [t.requires_grad_() for t in found[:3]] + found[3:]


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(("name", "sizes"), RUNS)
def test_values_and_gradients(name: str, sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    *shape, groups = sizes
    x, weight, bias, grad = drawn(tuple(shape), dtype, device)
    own = called(name, x, groups, weight, bias)
    made = torch.autograd.grad(own, (x, weight, bias), grad)
    wide = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    exact = CASES[name](wide[0], groups, *wide[1:])
    assert own.shape == exact.shape
    assert ulps(own.detach(), exact.detach()) <= BOUNDS[dtype]
    for got, real in zip(made, torch.autograd.grad(exact, wide, grad.double()), strict=True):
        assert got.shape == real.shape
        assert (got.double() - real).abs().max() <= 1.01 * torch.finfo(dtype).eps * real.abs().max()


@pytest.mark.few(1)
@pytest.mark.parametrize("one", ["weight", "bias"])
@pytest.mark.parametrize("name", ["group_norm", "instance_norm"])
def test_one_number_for_all_channels(name: str, one: str) -> None:
    """Kernels read all tensors by channels at one place: one for all has a copy for each."""
    x, weight, bias, grad = drawn((2, 6, 3, 5), torch.float64)
    weight, bias = (t.detach()[:1] if of == one else t for of, t in (("weight", weight), ("bias", bias)))
    tensors = [t.detach().requires_grad_() for t in (x, weight, bias)]
    own, exact = (
        called(name, tensors[0], 2, *tensors[1:]),
        CASES[name](tensors[0], 2, *(t.expand(6) for t in tensors[1:])),
    )
    torch.testing.assert_close(own, exact)
    found, real = (torch.autograd.grad(y, tensors, grad.double()) for y in (own, exact))
    for a, b in zip(found, real, strict=True):
        torch.testing.assert_close(a, b)


def test_tensors_by_channels_come_with_one_shape() -> None:
    kernels = module("group_norm").KERNELS
    row_operands: Any = importlib.import_module("generated._runtime.row_operands")
    x, of_channels, value = torch.zeros(2, 2, 3, 8), torch.ones(2, 3, 1), torch.ones(1, 1, 1)
    for features in ((of_channels, value), (value, of_channels)):
        _, weight, bias = row_operands.expanded_all(kernels, (x, *features))
        assert weight.shape == bias.shape == (2, 3, 1)
        assert weight.is_contiguous()
        assert bias.is_contiguous()


@pytest.mark.few(1)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiler_records_groups(dynamic: bool) -> None:
    torch.compiler.reset()
    layer: Any = module("group_norm").GroupNorm(2, 6)
    compiled: Any = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for size in (3, 4):
        x = torch.randn(2, 6, size)
        torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_double_precision_and_second_derivatives(name: str) -> None:
    x, weight, bias, _ = drawn((2, 4, 3), torch.float64)

    def function(*tensors: Tensor) -> Tensor:
        return called(name, tensors[0], 2, *tensors[1:])

    assert torch.autograd.gradcheck(function, (x, weight, bias))
    assert torch.autograd.gradgradcheck(function, (x, weight, bias))


def test_a_row_has_its_bits_alone_and_in_any_run() -> None:
    x, weight, bias, grad = drawn((5, 6, 7, 3), torch.float32)
    whole, again = (called("group_norm", x, 2, weight, bias) for _ in range(2))
    assert torch.equal(whole, again)
    assert torch.equal(whole[3:4], called("group_norm", x[3:4], 2, weight, bias))
    part = called("group_norm", x[:, 3:], 1, weight[3:], bias[3:])
    assert torch.equal(whole[:, 3:], part)
    grads = [torch.autograd.grad(y, weight, grad)[0] for y in (whole, again)]
    assert torch.equal(*grads)


def test_modules_have_the_constructor_and_the_state_of_torch() -> None:
    ours, theirs = module("group_norm").GroupNorm(2, 6, 1e-3), nn.GroupNorm(2, 6, 1e-3)
    nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 6, 4, 5)
    torch.testing.assert_close(ours(x), theirs(x))
    laid = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(ours(laid), theirs(laid))
    compiled: Any = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), theirs(x))
    torch.testing.assert_close(torch.export.export(ours, (x,)).module()(x), theirs(x))
    recorded: Any = torch.fx.symbolic_trace(ours)
    torch.testing.assert_close(recorded(x), theirs(x))
    instance: Any = nn.InstanceNorm2d(6)  # whose class has no types
    torch.testing.assert_close(module("instance_norm").InstanceNorm(6)(x), instance(x))


def test_vmap_and_out() -> None:
    x, weight, bias, _ = [t.detach() for t in drawn((2, 6, 5), torch.float32)]
    several = torch.stack([x, 2 * x])
    found = torch.func.vmap(lambda t: called("group_norm", t, 3, weight, bias))(several)
    torch.testing.assert_close(found[1], group_norm(2 * x, 3, weight, bias))
    out = torch.empty_like(x)
    assert module("group_norm").group_norm(x, weight, bias, num_groups=3, out=out) is out
    assert torch.equal(out, called("group_norm", x, 3, weight, bias))


@pytest.mark.parametrize("shape", [(0, 6, 5), (2, 6, 0)])
def test_tensors_without_elements_have_gradients(shape: tuple[int, ...]) -> None:
    x, weight, bias, grad = drawn(shape, torch.float32)
    made = torch.autograd.grad(called("group_norm", x, 3, weight, bias), (x, weight), grad)
    assert made[0].shape == shape
    assert torch.equal(made[1], torch.zeros(6))


@pytest.mark.parametrize(
    ("shape", "groups", "sentence"),
    [
        ((2, 6, 3), 4, "group_norm: 4 groups do not divide the 6 of dimension 1"),
        ((2, 6, 3), 0, "group_norm: 0 groups do not divide the 6 of dimension 1"),
        ((2, 6, 3), -2, "group_norm: -2 groups do not divide the 6 of dimension 1"),
        ((2, 5, 3), 1, "weight has 6 numbers for 5 places along dimension 1"),
    ],
)
def test_groups_that_do_not_divide(shape: tuple[int, ...], groups: int, sentence: str) -> None:
    x, _, _, _ = drawn(shape, torch.float32)
    with pytest.raises(RuntimeError, match=sentence):
        called("group_norm", x, groups, torch.ones(6), torch.ones(6))


SPEC = "inputs: {{x: {{shape: [2, 6, 5]}}}}\n{}formula: x - mean(x)\n"
OVER = 'over: ["1 / groups", ...]\n'


def test_groups_are_declared(workshop: Workshop) -> None:
    path = workshop.spec("a", SPEC.format(f"init: {{groups: 3}}\n{OVER}"))
    found = load_spec(path)
    assert found.over == Over(1, groups="groups")
    assert str(found.over) == 'over: ["1 / groups", ...]'


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (f"init: {{groups: 4}}\n{OVER}", "4 groups do not divide 6"),
        (f"init: {{groups: 0}}\n{OVER}", "groups is no positive whole number of `init`"),
        (f"init: {{groups: 2.5}}\n{OVER}", "groups is no positive whole number of `init`"),
        (OVER, "groups is no positive whole number of `init`"),
        ('init: {groups: 3}\nover: ["1 / groups"]\n', "are no row"),
        ('init: {groups: 3}\nover: ["3 / groups", ...]\n', "are no row"),
    ],
)
def test_mistakes_of_groups(workshop: Workshop, fields: str, sentence: str) -> None:
    path = workshop.spec("a", SPEC.format(fields))
    with pytest.raises(SpecErrors, match=sentence):
        load_spec(path)


@pytest.mark.full
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_cuda_text_compiles_without_a_warning(tmp_path: Path) -> None:
    text = module("group_norm").KERNELS.texts().cuda
    nvcc(tmp_path, "group_norm", text, *CUDA_FLAGS, "-ptx", "-arch=compute_90")
