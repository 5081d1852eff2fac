"""Chains that float would lose on CUDA: their text, run on the CPU (`emulated`)."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from emulated import CHIPS, Emulated, fill_table, looked_up_by, retold
from emulated import defined as defined
from emulated import emulated as compiled_at
from kernels import (
    assert_same,
    assert_same_in_any_layout,
    compiled,
    differences,
    generated,
    in_a_graph,
    methods,
    nearest,
    patterns,
    ulps,
    units,
)
from test_cubics import CHAIN, PRODUCT, SCALED, SHRINKS, agree, some
from torch import Tensor

from fusegen.core.cubic import UNIFORM, fits
from fusegen.evidence.certify.random_chains import drawn
from fusegen.project import build as compiler

CROSSES = "chain: [mish, x * 1.3 - 0.4, exp(-x * x), silu, x - 0.5]\n"  # 0, and so does its slope
BENDS = "chain: [x * 1.3 - 0.4, softsign, silu, mish, quick_gelu]\n"  # where it is 0, its slope has a kink
BODIES = {"chained": CHAIN, "shrinks": SHRINKS, "crosses": CROSSES, "bends": BENDS}
BUILT = [name if name == "chained" else pytest.param(name, marks=pytest.mark.full) for name in BODIES]
HALVES = (torch.float16, torch.bfloat16)
GRAD = torch.tensor([1.0, -0.75, 1000.0])
emulated = partial(compiled_at, level="-O1")
COMPUTES = "    double x[INPUTS], y[1];\n"  # begins what double does with what no polynomial gives
NOT_COMPUTED = (COMPUTES, f"    out[0] = NAN;\n    return;\n{COMPUTES}")

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.usefixtures("exact_eager"),
]


def methods_of_32(module: Any) -> list[str]:
    """The methods of float32 on CUDA, forward and backward."""
    return [method for _, method, _ in methods(module.CUDA_SOURCE)]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> Callable[..., Emulated]:
    """The kernels of one of `BODIES`, if wanted with pieces of the text replaced."""

    def made(name: str, *pieces: tuple[str, str]) -> Emulated:
        folder = tmp_path_factory.mktemp(name)
        module = retold(compiled(folder, name, BODIES[name]), *pieces)
        assert methods_of_32(module) == ["PiecewiseOctaves"] * 2
        return emulated(module, name, folder)

    return cache(made)


def both(kernels: Emulated, x: Tensor, **how: Any) -> list[tuple[Tensor, Tensor]]:
    """The results of forward and backward of floats, and of these as doubles."""
    grad = GRAD[torch.arange(x.numel()) % 3].view(x.shape)
    found = []
    for kernel, inputs in ((kernels.forward, (x,)), (kernels.backward, (grad, x))):
        [given] = looked_up_by(kernel, *inputs, **how)
        [exact] = looked_up_by(kernel, *(value.double() for value in inputs), **how)
        found.append((given, exact))
    return found


@pytest.mark.parametrize("name", BUILT)
def test_results_are_doubles_but_for_three_units(name: str, build: Callable[..., Emulated]) -> None:
    for given, exact in both(build(name), some()):
        ordinary = (exact.abs() > 1e-30) | (exact == 0)  # elsewhere the slope's last place may be all of it
        agree(given[ordinary], exact[ordinary], 3)


@pytest.mark.full
def test_no_float_is_computed_as_the_formula_says(tmp_path: Path, extensions: Path) -> None:
    source = compiled(tmp_path, "chained", CHAIN).CUDA_SOURCE
    assert set(re.findall(r"^HOST_DEVICE (\w+) chained_(?:for|back)ward\(\w+ ", source, re.MULTILINE)) == {
        "double"
    }


@pytest.mark.full
def test_they_are_launched_as_a_class_of_their_own(tmp_path: Path, extensions: Path) -> None:
    compiled(tmp_path, "chained", CHAIN)
    forward, backward = compiler.launch_plans(compiler.compiled_file(tmp_path / "chained.yaml"))
    plans = (*forward, *backward)
    assert [plan.cost for plan in plans if plan.bits == 32] == ["fine_cubic", "fine_cubic_slope"]


STEEP = "chain: [tanhshrink, elu, x * 1.3 + 0.1, exp(-x * x)]\n"  # too steep for 128 pieces an octave


@pytest.mark.full
def test_nearly_all_results_take_one_look(tmp_path: Path, extensions: Path) -> None:
    """Octaves have more pieces where these are steep, so that few results are of parts."""
    in_parts = ("if (piece.c[0] == piece.c[0]) return NAN;", "return NAN;")
    module = retold(compiled(tmp_path, "steep", STEEP), in_parts, NOT_COMPUTED)
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(4)) * 4
    [y] = looked_up_by(emulated(module, "steep", tmp_path).forward, x)
    assert y.isnan().float().mean() < 0.005


@pytest.mark.full
@pytest.mark.parametrize("name", BODIES)
def test_nearly_all_results_are_polynomials(name: str, build: Callable[..., Emulated]) -> None:
    """Around zeros, too, and next to kinks: double takes many times as long."""
    kernels = build(name, NOT_COMPUTED)
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(3)) * 4
    for given, _ in both(kernels, x):
        assert given.isnan().float().mean() < 0.0002


@pytest.mark.full
def test_what_a_part_gives_is_found_where_it_is(build: Callable[..., Emulated]) -> None:
    """It is not read again, as what double computes is."""
    kernels = build("crosses", ("if (left != 0) second_phase<F, T, VECTORS, M>(call, left, p);", ""))
    x = torch.linspace(-1 / 512, 1 / 512, 4 * 4096)  # whole blocks
    ones = torch.ones_like(x)
    for kernel, inputs in ((kernels.forward, (x - 0.2179,)), (kernels.backward, (ones, x - 1.1924))):
        [y] = looked_up_by(kernel, *inputs)
        [exact] = looked_up_by(kernel, *(value.double() for value in inputs))
        assert exact.min() < 0 < exact.max()
        assert units(y, exact).max() < 3


@pytest.mark.parametrize("name", BUILT)
def test_double_computes_what_no_polynomial_gives(name: str, build: Callable[..., Emulated]) -> None:
    """Infinities and NaN, of a number or of its gradient, and the neighbourhood of a kink."""
    kinks = torch.tensor([-3.0, 3.0])[:, None] + torch.linspace(-1e-5, 1e-5, 101)
    x = torch.cat([torch.tensor([torch.inf, -torch.inf, torch.nan]), kinks.flatten()])
    kernels = build(name)
    for given, exact in both(kernels, x):
        agree(given, exact, 2)
    grads = torch.tensor([torch.inf, -torch.inf, torch.nan])
    [given] = looked_up_by(kernels.backward, grads, torch.ones(3))
    [exact] = looked_up_by(kernels.backward, grads.double(), torch.ones(3).double())
    assert not differences(given, exact.float()).any()


@pytest.mark.full
def test_where_there_is_no_room_for_parts_double_computes(tmp_path: Path, extensions: Path) -> None:
    module = compiled(tmp_path, "waves", "chain: [mish, sin(3000 * x), silu]\n")
    assert methods_of_32(module) == ["PiecewiseOctaves"] * 2
    x = torch.linspace(-40, 40, 4001)
    for given, exact in both(emulated(module, "waves", tmp_path), x):
        agree(given, exact, 3)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [1, 127, 4099])
def test_results_do_not_depend_on_where_a_tensor_lies(
    chip: int, size: int, build: Callable[..., Emulated]
) -> None:
    kernels = build("chained")
    x = some()[: 2 * size : 2] if size > 127 else some()[-size:]
    expected = [given for given, _ in both(kernels, x)]
    for kernel in (kernels.forward, kernels.backward):
        kernel.state.chip = chip
    apart = torch.stack([x, x * 0], 1)[:, 0]
    for how in ({}, {"shift": 1}):
        assert not any(
            differences(y, e).any() for (y, _), e in zip(both(kernels, x, **how), expected, strict=True)
        )
    assert not any(
        differences(y, e).any()
        for (y, _), e in zip(both(kernels, apart, dense=False), expected, strict=True)
    )


@pytest.mark.full
def test_pieces_are_fitted_once_a_device(tmp_path: Path, extensions: Path) -> None:
    kernels = emulated(compiled(tmp_path, "once", CHAIN), "once", tmp_path)
    for kernel in (kernels.forward, kernels.backward):
        launches = [fill_table(kernel, torch.float32, device) for device in (0, 1, 0, 1)]
        assert launches == [5, 5, 1, 1]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", BUILT)
def test_16_bit_results_are_looked_up(
    name: str, dtype: torch.dtype, build: Callable[..., Emulated]
) -> None:
    kernels = build(name)
    x = patterns(dtype, 1)
    [given] = looked_up_by(kernels.forward, x)
    [exact] = looked_up_by(kernels.forward, x.double())
    assert not differences(given, nearest(exact, dtype)).any()


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "scalars"),
    [(SCALED, (0.3,)), pytest.param(PRODUCT, (), marks=pytest.mark.full)],
    ids=["a parameter", "two tensors"],
)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_what_is_no_function_of_one_element_double_computes(
    body: str, scalars: tuple[float, ...], dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    """In 16 bits float does, of two tensors: `test_plain_double` holds what it gives."""
    name = "scaled" if scalars else "product"
    module = compiled(tmp_path, name, body)
    exact_method = "Widened<PlainDouble>"
    how = f"AtDefaults<PiecewiseOctaves, {exact_method}>" if scalars else exact_method
    assert methods_of_32(module) == [how, how]
    kernels = emulated(module, name, tmp_path, len(scalars))
    x = patterns(torch.float32, 4000, (3.0,)).to(dtype)
    x = x[x.isfinite()]
    inputs = (x,) if scalars else (x, x.flip(0))
    [given] = looked_up_by(kernels.forward, *inputs, params=scalars)
    [exact] = looked_up_by(kernels.forward, *(value.double() for value in inputs), params=scalars)
    grads = (x.roll(7), *inputs)
    results = [
        (given, exact),
        *zip(
            looked_up_by(kernels.backward, *grads, params=scalars),
            looked_up_by(kernels.backward, *(value.double() for value in grads), params=scalars),
            strict=True,
        ),
    ]
    for found, real in results:
        if dtype == torch.float32:
            assert ulps(found, real.float()) == 0
        elif scalars:
            size = real.abs()  # next to 0, half of an input is a tie
            if found is not given:  # hardswish's slope is 0 at -1.5, of which double leaves 1e-38
                size = torch.where(x == -1.5, 0.0, size)
            usual = (size > torch.finfo(torch.bfloat16).tiny) & (size < torch.finfo(dtype).max)
            assert not differences(found, nearest(real, dtype))[usual].any()


@pytest.mark.full
def test_with_the_scalars_of_the_spec_they_are_polynomials(tmp_path: Path, extensions: Path) -> None:
    module = retold(compiled(tmp_path, "scaled", SCALED), NOT_COMPUTED)
    kernels = emulated(module, "scaled", tmp_path, 1)
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(5)) * 4
    for kernel, inputs in ((kernels.forward, (x,)), (kernels.backward, (torch.ones_like(x), x))):
        [given] = looked_up_by(kernel, *inputs, params=(0.7,))
        [exact] = looked_up_by(kernel, *(value.double() for value in inputs), params=(0.7,))
        assert given.isnan().float().mean() < 0.0002
        assert units(given, exact)[~given.isnan()].max() < 3


@pytest.mark.full
def test_with_the_scalars_of_the_spec_they_are_looked_up(tmp_path: Path, extensions: Path) -> None:
    kernels = emulated(compiled(tmp_path, "declared", SCALED), "declared", tmp_path, 1)
    counts = [fill_table(kernels.forward, torch.float16, 0, (a,)) for a in (0.3, 0.7, 0.7)]
    assert counts == [1, 2, 1]


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_a_slope_that_reads_no_scalar_does_not_depend_on_it(
    dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    """In 16 bits double computes it when the scalar is not the spec's."""
    module = compiled(tmp_path, "shifted", f"params: {{a: 0.7}}\n{CHAIN[:-2]}, x + a]\n")
    assert methods_of_32(module)[1] == "PiecewiseOctaves"
    kernel = emulated(module, "shifted", tmp_path, 1).backward
    x = patterns(dtype, 2000, (3.0,))
    grad = torch.ones_like(x)
    [exact] = looked_up_by(kernel, grad.double(), x.double(), params=(0.3,))
    ordinary = (exact.abs() > 1e-30) | (exact == 0)
    for a in (0.3, 0.7):
        [given] = looked_up_by(kernel, grad, x, params=(a,))
        if dtype == torch.float32:
            agree(given[ordinary], exact[ordinary], 3)
        else:
            assert not differences(given, nearest(exact, dtype))[ordinary].any()


@pytest.mark.full
@pytest.mark.parametrize("dtypes", ["float32", "float32, float16", "bfloat16"])
def test_double_serves_also_where_no_tensor_is_of_doubles(
    dtypes: str, build: Callable[..., Emulated], tmp_path: Path, extensions: Path
) -> None:
    module = compiled(tmp_path, "fewer", f"dtypes: [{dtypes}]\n{CHAIN}")
    x = some()[:5000].to(getattr(torch, dtypes.split(",")[0]))
    [given] = looked_up_by(emulated(module, "fewer", tmp_path).forward, x)
    [expected] = looked_up_by(build("chained").forward, x)
    assert not differences(given, expected).any()


# chains drawn by lot that erred by 94 units to all digits in float, overflowed or gave NaN
LOST = (4, 6, 9, 13, 17, 19, 21, 23)


@pytest.mark.full
@pytest.mark.parametrize("seed", LOST)
def test_a_chain_that_nobody_chose_errs_by_three_units_at_most(
    seed: int, tmp_path: Path, extensions: Path
) -> None:
    chain = drawn(seed)
    module = compiled(tmp_path, f"chain{seed}", f"chain: {json.dumps(chain)}\n")
    x = some()
    for given, exact in both(emulated(module, f"chain{seed}", tmp_path), x[x.isfinite()]):
        ordinary = (exact.abs() > 1e-30) | (exact == 0)
        agree(given[ordinary], exact[ordinary], 3)


GIVEN = {"gelu_gelu": "forward", "serf": "backward", "subtract_mish": "forward"}


@pytest.mark.full
@pytest.mark.parametrize("name", GIVEN)
def test_where_a_piece_fits_is_known_before(name: str, tmp_path: Path) -> None:
    """Of the library's: estimates leave out what they give."""
    otherwise = "if (!try_around_zero(in, out)) F::template element<T>(in, out, p);"
    module = retold(generated(name), (otherwise, "out[0] = NAN;"))
    kernel = getattr(emulated(module, name, tmp_path), GIVEN[name])
    x = torch.cat([torch.linspace(-63.9, 63.9, 800), torch.linspace(-2.0, 2.0, 400)])
    double = getattr(module, GIVEN[name].upper())

    def function(numbers: Sequence[float]) -> list[float]:
        at = torch.tensor(numbers, dtype=torch.float64)
        found: list[float] = double(*[torch.ones_like(at)] * (kernel.inputs - 1), at).tolist()
        return found

    [y] = looked_up_by(kernel, *[torch.ones_like(x)] * (kernel.inputs - 1), x)
    of = getattr(compiler.compiled_file(ROOT / "specs" / f"{name}.yaml").facts, GIVEN[name]).grid
    assert of is not None
    known = torch.tensor(list(map(fits(of, function, UNIFORM), x.tolist())))
    assert known.float().mean() > 0.4
    assert (known & y.isnan()).float().mean() < 0.005
    assert (known != ~y.isnan()).float().mean() < 0.02
    assert known[x > 32].all()  # where there is a line


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("name", BODIES)
def test_results_are_doubles_but_for_three_units_on_a_gpu(
    name: str, tmp_path: Path, extensions: Path
) -> None:
    module, x = compiled(tmp_path, name, BODIES[name]), some().cuda()
    grad = GRAD.cuda()[torch.arange(x.numel()) % 3]
    for given, exact in (
        (module.KERNELS.forward(x), module.KERNELS.forward(x.double())),
        (module.KERNELS.backward(grad, x), module.KERNELS.backward(grad.double(), x.double())),
    ):
        ordinary = (exact.abs() > 1e-30) | (exact == 0)
        agree(given[ordinary].cpu(), exact[ordinary].cpu(), 3)


@pytest.mark.gpu
@GPU
def test_results_do_not_depend_on_where_a_tensor_lies_on_a_gpu(tmp_path: Path, extensions: Path) -> None:
    module = compiled(tmp_path, "chained", CHAIN)
    assert_same_in_any_layout(module, "chained", torch.randn(1001, 997, device="cuda").mul_(4))


@pytest.mark.gpu
@GPU
def test_what_is_first_used_in_a_graph_is_fitted_there_on_a_gpu(tmp_path: Path, extensions: Path) -> None:
    module = compiled(tmp_path, "in_a_graph", CHAIN)
    x = torch.randn(100_003, device="cuda") * 4
    _, y = in_a_graph(module, x)
    agree(y.cpu(), module.KERNELS.forward(x.double()).cpu(), 3)


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("body", [SCALED, PRODUCT], ids=["a parameter", "two tensors"])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_what_is_no_function_of_one_element_double_computes_on_a_gpu(
    body: str, dtype: torch.dtype, tmp_path: Path, extensions: Path
) -> None:
    name = "scaled" if body == SCALED else "product"
    module = compiled(tmp_path, name, body)
    x = torch.randn(100_003, device="cuda").mul_(4).to(dtype)
    given = (x, 0.3) if body == SCALED else (x, x.flip(0))
    exact = module.KERNELS.forward(*(v.double() if isinstance(v, Tensor) else v for v in given))
    usual = exact.abs() > torch.finfo(torch.bfloat16).tiny
    found, real = module.KERNELS.forward(*given)[usual], nearest(exact, dtype)[usual]
    if dtype == torch.float32:  # of 39 bits and more
        assert ulps(found, real) <= 1
        assert differences(found, real).float().mean() < 2e-4
    elif body == SCALED:
        assert_same(found, real, x[usual])
    else:  # in float: see test_plain_double
        assert differences(found, real).float().mean() < 2e-3


@pytest.mark.gpu
@GPU
def test_with_the_scalars_of_the_spec_they_are_polynomials_on_a_gpu(
    tmp_path: Path, extensions: Path
) -> None:
    module = compiled(tmp_path, "scaled", SCALED)
    x = torch.randn(100_003, device="cuda") * 4
    agree(module.KERNELS.forward(x, 0.7).cpu(), module.KERNELS.forward(x.double(), 0.7).cpu(), 3)
    slope = module.KERNELS.backward(torch.ones_like(x), x, 0.7)
    agree(slope.cpu(), module.KERNELS.backward(torch.ones_like(x).double(), x.double(), 0.7).cpu(), 3)
