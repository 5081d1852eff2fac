"""16-bit results on the CPU: rounded as those of double are, wherever the tensor lies."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import Workshop
from kernels import by_module, compiled, generated, nearest
from torch import Tensor

from fusegen.project import build

HALVES = (torch.float16, torch.bfloat16)
# float rounds results of each of these wrong that are rounded again
NAMES = "silu gelu sigmoid tanh mish hardtanh_mish mish_mish gelu_gelu silu_half_clamp_tanh_clamp".split()


def every(dtype: torch.dtype) -> Tensor:
    """All numbers of a 16-bit type."""
    found = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    return found[found.isfinite()]


def wrong(given: Tensor, exact: Tensor) -> int:
    """The number of results that are not nearest to double's, from 2^-126 on: half an input is a tie."""
    expected = nearest(exact, given.dtype)
    usual = exact.abs() > torch.finfo(torch.bfloat16).tiny
    return int(((given != expected) & usual).sum())


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", by_module(NAMES))
def test_every_value_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    forward, x = generated(name).KERNELS.forward, every(dtype)
    assert wrong(forward(x), forward(x.double())) == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", by_module([*NAMES, "softplus"]))
def test_every_gradient_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    backward, x = generated(name).BACKWARD, every(dtype)
    params = (1.0, 20.0) if name == "softplus" else ()
    grad = torch.full_like(x, 0.75)
    exact = backward(grad.double(), x.double(), *params)
    assert wrong(backward(grad, x, *params), exact) <= 1  # where terms cancel, float may err by more


def test_a_result_of_several_tensors_is_rounded_once() -> None:
    module, generator = generated("swiglu"), torch.Generator().manual_seed(7)
    gate, up, grad = (torch.randn(2**18, generator=generator).half() * 3 for _ in range(3))
    assert wrong(module.KERNELS.forward(gate, up), module.KERNELS.forward(gate.double(), up.double())) == 0
    given = module.KERNELS.backward(grad, gate, up)
    exact = module.KERNELS.backward(grad.double(), gate.double(), up.double())
    assert sum(map(wrong, given, exact)) <= 2


def laid_out(module: ModuleType, x: Tensor) -> dict[str, Tensor]:
    """The same function of the same numbers, in several layouts."""
    forward, function = module.KERNELS.forward, getattr(module, module.__name__.rsplit(".", 1)[-1])
    apart = torch.zeros(x.numel(), 3, dtype=x.dtype)
    apart[:, 1] = x
    column, written = apart[:, 1], torch.zeros_like(apart)
    function(x, out=written[:, 2])
    inplace = apart.clone()
    function(inplace[:, 1], inplace=True)
    dense = x.clone()
    function(dense, inplace=True)
    return {
        "apart": forward(column),
        "backwards": forward(x.flip(0)).flip(0),
        "into a column": written[:, 2],
        "a column in place": inplace[:, 1],
        "in place": dense,
        "columns": forward(x.view(-1, 4).t()).t().reshape(-1),
    }


@pytest.mark.parametrize("dtype", HALVES)
def test_results_do_not_depend_on_where_the_tensor_lies(dtype: torch.dtype) -> None:
    """silu, of whose float16 results double decides one of a thousand."""
    module = generated("silu")
    x = every(dtype)
    x = x[: x.numel() // 4 * 4]
    expected = module.KERNELS.forward(x)
    for layout, found in laid_out(module, x).items():
        assert torch.equal(found, expected), layout


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("fields", "settles"),
    [
        ("formula: sigmoid(x)", True),
        ("formula: relu(x) / 6", False),  # rounds as PyTorch does
        ("formula: sigmoid(x)\nnumerics: eager", False),
        ("formula: sigmoid(x)\ndtypes: [float32, float64]", False),  # has no 16 bits
        ("formula: sigmoid(x)\ndtypes: [float16]", True),
    ],
)
def test_double_settles_where_there_is_something_to_settle(
    fields: str, settles: bool, workshop: Workshop
) -> None:
    text = build.sources(build.compiled_file(workshop.spec("some", f"{fields}\n")))["cpu"]
    assert ("Verified<float, double>" in text) is settles
    assert ('#include "cpu/verified.h"' in text) is settles


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("formula", "single_word"),
    [
        ("silu(x)", True),
        ("gelu(x)", True),
        ("tanh(x)", True),
        ("0.5 * silu(x)", False),  # is lifted as a whole
        ("sigmoid(x)", False),  # has no single_word form of any argument
        ("sigmoid(relu(x))", True),
        ("silu(x) * y", False),
        ("silu(silu(x))", False),  # is as single_word in float
    ],
)
def test_verified_results_use_single_words(formula: str, single_word: bool, workshop: Workshop) -> None:
    inputs = f"inputs: {{{'x: {}, y: {}' if 'y' in formula else 'x: {}'}}}"
    compiled = build.compiled_file(workshop.spec("some", f"{inputs}\nformula: {formula}\n"))
    found = build.sources(compiled)["cpu"]
    assert found.count("out[0] = some_forward_single_word(in[0]);") == single_word
    assert found.count("HOST_DEVICE float some_forward_single_word(float x)") == single_word


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", HALVES)
def test_scalars_reach_double_as_doubles(dtype: torch.dtype, tmp_path: Path, extensions: Path) -> None:
    """0.1 as a float would move results that are next to a tie."""
    forward = compiled(tmp_path, "scaled", "params: {a: 0.1}\nformula: tanh(a * x)\n").KERNELS.forward
    x = every(dtype)
    assert wrong(forward(x, 0.1), forward(x.double(), 0.1)) == 0


@pytest.mark.full
def test_double_decides_where_float_overflows_on_the_way(tmp_path: Path, extensions: Path) -> None:
    """exp(93) is infinite in float; 0.0122 times it is a bfloat16. Times a gradient of 0 float has NaN."""
    module = compiled(tmp_path, "large", "inputs: {x: {}, y: {}}\nformula: exp(-x * y)\n")
    x, y = (torch.tensor([number], dtype=torch.bfloat16) for number in (-0.01220703125, 7616.0))
    for incoming in (1.0, 0.0):
        grad = torch.full_like(x, incoming)
        given = module.KERNELS.backward(grad, x, y)[1]
        exact = module.KERNELS.backward(grad.double(), x.double(), y.double())[1]
        assert torch.equal(given, exact.to(torch.bfloat16))
        assert given.isfinite().all()
