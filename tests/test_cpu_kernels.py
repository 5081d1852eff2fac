"""The compiled CPU kernels against PyTorch: every bit, every layout, every mistake at run time."""

import itertools
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import mpmath
import pytest
import torch
import torch.nn.functional as F
from budget import FULL, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    DTYPES,
    LIBRARY,
    assert_same,
    by_module,
    compiled,
    function,
    generated,
    loops,
    meaningful_strides,
    patterns,
    ulps,
)
from torch import Tensor, nn

from fusegen.core.ops import FUNCTIONS

KINKS = (-3.0, 3.0, 1.0, 6.0)
DTYPE_SENTENCE = "expected float32, float16, bfloat16 or float64 tensors, all of one dtype"

GATE = """\
inputs: {x: {shape: [8, 8]}, gate: {shape: [8, 8]}}
params: {alpha: 0.5}
formula: x * clamp(alpha * gate, 0, 1)
"""
EAGER_STEPS = """\
numerics: eager
params: {alpha: 0.3}
formula: relu6((x + 0.3) * alpha) / 7 - (0.1 - abs(x)) * 0.1 + 2 / x + x / (alpha**2 + 0.1)
"""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Two inputs that broadcast."""
    return compiled(tmp_path_factory.mktemp("gate"), "cpu_gate", GATE)


def gated(x: Tensor, gate: Tensor) -> Tensor:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (x.to(wide) * (0.5 * gate.to(wide)).clamp(0, 1)).to(x.dtype)


# Values


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_hardswish_is_within_two_ulp_of_its_steps(dtype: torch.dtype) -> None:
    """Where eager's x * 6 overflows, the chain keeps to what the function is: x."""
    x = patterns(dtype, 2**20, KINKS)
    actual, steps = generated("relu_hardswish").relu_hardswish(x), F.hardswish(F.relu(x))
    wide = F.hardswish(F.relu(x).double()).to(dtype)
    overflows = steps.isinf() & ~wide.isinf()
    bound = {torch.float32: 2, torch.float64: 2, torch.float16: 1, torch.bfloat16: 1}[dtype]
    assert ulps(actual[~overflows], steps[~overflows]) <= bound
    assert bool((actual[overflows].isinf() | (actual[overflows] == wide[overflows])).all())
    assert torch.equal(actual.isnan(), x.isnan())
    assert not torch.signbit(actual[x > 0]).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_hardsigmoid_keras_against_wider_arithmetic(dtype: torch.dtype) -> None:
    x = patterns(dtype, 2**18, (-2.5, 2.5))
    actual = generated("hardsigmoid_keras").hardsigmoid_keras(x)
    exact = (x.double() / 5 + 0.5).clamp(0, 1)
    if dtype.itemsize == 2:
        assert ulps(actual, exact.to(dtype)) <= 1
        wrong = (actual != exact.to(dtype)) & ~x.isnan()
        assert int(wrong.sum()) <= 8 * x.numel() // 2**16
    else:  # near -2.5 the terms cancel, and eager's do too: one last place of 0.5, and its own rounding
        error = (actual.double() - exact).abs()
        assert bool((error[~x.isnan()] <= torch.finfo(dtype).eps / 2 + 1e-16).all())
        assert_same(actual, (0.2 * x + 0.5).clamp(0, 1), x)
    assert torch.equal(actual.isnan(), x.isnan())


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("optimised")
def test_eager_numerics_are_eagers_steps(tmp_path: Path, dtype: torch.dtype) -> None:
    module = compiled(tmp_path, "cpu_eager", EAGER_STEPS)
    x, leaf = (patterns(dtype, 2**16, (-3.0, 17.0)).requires_grad_() for _ in range(2))
    actual, expected = module.cpu_eager(x), _eager_steps(leaf)
    assert_same(actual, expected, x)
    gradients = (torch.autograd.grad(y.sum(), of)[0] for y, of in ((actual, x), (expected, leaf)))
    assert_same(*gradients, x)


def _eager_steps(x: Tensor) -> Tensor:
    """The steps of `EAGER_STEPS` in PyTorch, where Python squares and adds numbers."""
    return F.relu6((x + 0.3) * 0.3) / 7 - (0.1 - x.abs()) * 0.1 + 2 / x + x / (0.3**2 + 0.1)


# Every function of the language


def _choose(names: list[str], first: int) -> str:
    """A formula that computes the function whose number is `which`, as a tree of choices."""
    if len(names) == 1:
        return CALLS[names[0]]
    half = len(names) // 2
    left, right = _choose(names[:half], first), _choose(names[half:], first + half)
    return f"where(which < {first + half}, {left}, {right})"


CALLS = {
    name: {
        "where": "where(x > other, x, other)",
        "saturate": "saturate(x, -0.5, other)",
        "clamp": "clamp(x, -0.5, other)",
        "clamp_min": "clamp_min(x, other)",
        "clamp_max": "clamp_max(x, other)",
        "minimum": "minimum(x, other)",
        "maximum": "maximum(x, other)",
        "pow": "pow(x, other)",
    }.get(name, f"{name}(x)")
    for name in FUNCTIONS
}
REFERENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda x, other: torch.where(x > other, x, other),
    "relu": lambda x, _: F.relu(x),
    "relu6": lambda x, _: F.relu6(x),
    "clamp": lambda x, other: torch.where(other.isnan(), torch.maximum(x, x.new_tensor(-0.5)),
                                          x.clamp(x.new_tensor(-0.5), other)),
    "saturate": lambda x, other: REFERENCES["clamp"](x, other),
    "clamp_min": lambda x, other: torch.where(other.isnan(), x, torch.maximum(x, other)),
    "clamp_max": lambda x, other: torch.where(other.isnan(), x, torch.minimum(x, other)),
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "cube": lambda x, _: x * x * x,
    "pow": torch.pow,
    "ndtr": lambda x, _: torch.erfc(x * -math.sqrt(0.5)) / 2,
    "softplus": lambda x, _: torch.logaddexp(x, torch.zeros_like(x)),
}  # fmt: skip
ULPS = {
    "rsqrt": 2,
    "sigmoid": 3,
    "softplus": 3,
    "tanh": 3,
    "erfc": 3,
    "ndtr": 8,
}  # where not one rounding, or libm's

REAL: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "log2": lambda x: mpmath.log(x, 2),
    "log1p": mpmath.log1p,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    **{name: getattr(mpmath, name) for name in ("exp", "log", "sin", "cos", "tanh", "erf", "erfc", "sqrt")},
}
# what runs by default: compiling all in one formula takes three times as long
TRIED = tuple(CALLS) if FULL else (*REAL, "clamp", "minimum", "ndtr", "pow", "where")


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Tensor, Tensor], Tensor]:
    """A function that applies a function of the language, given by its name."""
    names = list(TRIED)
    body = (
        "inputs: {x: {shape: [8]}, other: {shape: [8]}}\nparams: {which: 0}\n"
        f"dtypes: [float32, float64]\nformula: {_choose(names, 0)}\n"
    )
    module = compiled(tmp_path_factory.mktemp("functions"), "cpu_functions", body)

    def apply(name: str, x: Tensor, other: Tensor) -> Tensor:
        value = module.cpu_functions(x, other, which=float(names.index(name)))
        assert isinstance(value, Tensor)
        return value

    return apply


def reference(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The same function by PyTorch."""
    return REFERENCES.get(name) or (lambda x, _: getattr(torch, name)(x))


def arguments(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Ordinary points, kinks, zeros, subnormals, both infinities and NaN, each with each."""
    info = torch.finfo(dtype)
    special = [0.0, 1e-3, 0.25, 0.5, 1.0, 2.0, 3.0, 6.0, 7.5, 20.0, 88.0, 88.7, 700.0, info.smallest_normal]
    special += [info.smallest_normal / 8, info.eps, info.max, math.inf]
    ends = torch.tensor([*special, *(-v for v in special), math.nan], dtype=dtype)
    near = torch.cat([torch.nextafter(ends, ends.new_tensor(v)) for v in (-math.inf, math.inf)])
    generator = torch.Generator().manual_seed(5)
    random = torch.randn(2000, dtype=dtype, generator=generator) * 8
    x = torch.cat([ends, near, random])
    return x.repeat_interleave(len(ends)), ends.repeat(len(x))


@pytest.mark.together
@pytest.mark.parametrize("name", TRIED)
@pytest.mark.usefixtures("optimised")
def test_a_function_is_pytorchs_in_float(
    functions: Callable[[str, Tensor, Tensor], Tensor], name: str
) -> None:
    """Against the same function in double, rounded once."""
    x, other = arguments(torch.float32)
    expected = reference(name)(x.double(), other.double()).float()
    actual = functions(name, x, other)
    assert ulps(actual, expected) <= ULPS.get(name, 1)


POSITIVE = {"log", "log2", "log1p", "sqrt", "rsqrt"}


@pytest.mark.together
@pytest.mark.parametrize("name", REAL)
@pytest.mark.usefixtures("optimised")
def test_a_function_is_the_real_one_in_double(
    functions: Callable[[str, Tensor, Tensor], Tensor], name: str
) -> None:
    """Against 60 digits, where the value is a normal number."""
    low = 1e-3 if name in POSITIVE else -25.0
    x = torch.cat(
        [torch.linspace(low, 25, 257, dtype=torch.float64), torch.tensor([0.5, 1.5, 1e-9]).double()]
    )
    with mpmath.workdps(60):
        exact = [float(REAL[name](mpmath.mpf(v))) for v in x.tolist()]
    expected = torch.tensor(exact, dtype=torch.float64)
    assert ulps(functions(name, x, x), expected) <= ULPS.get(name, 1) + 1


# Layouts


@st.composite
def views(draw: st.DrawFn, most: int = 4) -> Tensor:
    """A view of some storage: offset, permuted, sliced with steps, expanded, with sizes of 0 and 1."""
    sizes = draw(st.lists(st.integers(0, 6), max_size=most))
    offset = draw(st.integers(0, 5))
    steps = [draw(st.integers(1, 3)) for _ in sizes]
    whole = torch.arange(offset + math.prod(s * t for s, t in zip(sizes, steps, strict=True)))
    values = whole.remainder(23).sub(11).div(2).float()[offset:]
    values = values.view([s * t for s, t in zip(sizes, steps, strict=True)])
    for d, step in enumerate(steps):
        values = values[(slice(None),) * d + (slice(draw(st.integers(0, step - 1)), None, step),)]
    values = values.permute(draw(st.permutations(range(values.dim()))))
    shape = [draw(st.integers(1, 4)) if s == 1 else s for s in values.shape]
    front = draw(st.lists(st.integers(1, 3), max_size=max(0, most - len(shape))))
    return values.expand([*front, *shape])


@settings(max_examples=examples(400))
@given(x=views())
def test_any_view_gives_eagers_values_and_strides(x: Tensor) -> None:
    actual, expected = generated("hardsigmoid").hardsigmoid(x), F.hardsigmoid(x)
    assert_same(actual, expected, x)
    assert meaningful_strides(actual) == meaningful_strides(expected)
    assert actual.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() or not x.numel()


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A view, and a tensor that broadcasts with it, laid out in an order of its own."""
    x = draw(views())
    shape = [draw(st.sampled_from((1, size) if size != 1 else (1, 2, 3))) for size in x.shape]
    shape = shape[draw(st.integers(0, len(shape))) :]
    order = draw(st.permutations(range(len(shape))))
    other = torch.arange(math.prod(shape)).remainder(13).sub(3).div(2).float()
    other = other.view([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    return (x, other) if draw(st.booleans()) else (other, x)


@pytest.mark.full
@settings(max_examples=examples(400))
@given(pair=pairs())
@pytest.mark.usefixtures("optimised")
def test_two_views_broadcast_as_eager_broadcasts_them(
    gate: ModuleType, pair: tuple[Tensor, Tensor]
) -> None:
    actual, expected = gate.cpu_gate(*pair), gated(*pair)
    assert_same(actual, expected, *pair)
    assert meaningful_strides(actual) == meaningful_strides(torch.add(*pair))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_length_and_every_offset(dtype: torch.dtype) -> None:
    """Every residue of a vector's width, at every distance from its alignment."""
    x = torch.randn(700, dtype=dtype) * 3
    expected = F.hardsigmoid(x)
    for offset in range(17):
        for n in (*range(0, 140), 255, 256, 257, 513):
            actual = generated("hardsigmoid").hardsigmoid(x[offset : offset + n])
            assert torch.equal(actual, expected[offset : offset + n]), (offset, n)


def test_threads_share_the_work() -> None:
    """Lengths around the grain at which PyTorch's threads split, of flat and of strided tensors."""
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            for n in (32767, 32768, 32769, 100_003):
                x = torch.randn(n, 3)
                for view in (x, x[:, 1], x.t()[1:]):
                    assert_same(generated("hardsigmoid").hardsigmoid(view), F.hardsigmoid(view), view)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.full
def test_dimensions_that_are_one_run_are_walked_as_one() -> None:
    """26 dimensions would be refused if they did not merge."""
    x = torch.full((1,), 2.0, dtype=torch.float16).expand([2] * 26)
    refused = ""
    try:
        y = generated("relu").relu(x)
    except RuntimeError as error:  # kept as text: a report would print the tensor, dimension by dimension
        refused = str(error)
    assert not refused
    assert (y.shape, y.stride()) == (x.shape, F.relu(x).stride())
    assert bool((y == 2).all())


@pytest.mark.parametrize(
    ("size", "stride"),
    [((2, 5), (1, 1)), ((5, 2), (1, 1)), ((3, 4, 2), (2, 2, 1)), ((4, 3, 2), (2, 2, 2)), ((3, 5), (1, 2))],
)
def test_a_view_that_overlaps_itself(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    x = torch.randn(50).as_strided(size, stride)
    actual, expected = generated("hardsigmoid").hardsigmoid(x), F.hardsigmoid(x)
    assert_same(actual, expected, x)
    assert actual.stride() == expected.stride()


def test_more_dimensions_than_a_call_holds_are_refused() -> None:
    x = torch.zeros(27).as_strided([2] * 26, [1] * 26)
    sentence = (
        "relu: a kernel walks through at most 25 dimensions that do not merge; .contiguous() merges them"
    )
    with pytest.raises(RuntimeError) as raised:
        generated("relu").relu(x)
    assert str(raised.value) == sentence


# Mistakes at run time


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn], ids=str
)
def test_an_operator_refuses_a_dtype_without_a_kernel(dtype: torch.dtype) -> None:
    """The function and its operator leave such a tensor to eager, which refuses it in words of its own."""
    x = torch.ones(3).to(dtype)
    module = generated("hardsigmoid")
    with pytest.raises(RuntimeError) as raised:
        module.KERNELS.forward(x)
    assert str(raised.value) == f"hardsigmoid: {DTYPE_SENTENCE}"
    for call in (module.KERNELS.overload, module.hardsigmoid, module.ModelNew(), F.hardsigmoid):
        with pytest.raises(NotImplementedError, match=r'^"hardsigmoid_cpu" not implemented for '):
            call(x)


@pytest.mark.usefixtures("optimised")
def test_tensors_that_do_not_go_together_are_refused(gate: ModuleType) -> None:
    ones = torch.ones
    for x, other, sentence in (
        (ones(3), ones(3, device="meta"), "expected tensors of one dtype and device"),
        (ones(3, 4), ones(4, 3), "the shapes [3, 4] and [4, 3] do not broadcast"),
        (ones(2), ones(0), "the shapes [2] and [0] do not broadcast"),
    ):
        with pytest.raises(RuntimeError) as raised:
            gate.cpu_gate(x, other)
        assert str(raised.value) == f"cpu_gate: {sentence}"
    with pytest.raises(RuntimeError) as raised:
        gate.FORWARD(ones(3), ones(3, dtype=torch.float64), 0.5)
    assert str(raised.value) == f"cpu_gate: {DTYPE_SENTENCE}"
    with pytest.raises(TypeError, match=r"^cpu_gate: alpha must be a number, not str$"):
        gate.cpu_gate(ones(3), ones(3), alpha="0.5")


def test_a_sparse_tensor_is_left_to_pytorch() -> None:
    """The forward operator returns nothing for it; that of the gradient, never called then, refuses it."""
    module = generated("hardsigmoid")
    for x in (torch.eye(3).to_sparse(), torch.eye(3).to_mkldnn()):
        with pytest.raises(RuntimeError) as theirs:
            F.hardsigmoid(x)
        with pytest.raises(RuntimeError) as ours:
            module.hardsigmoid(x)
        assert str(ours.value) == str(theirs.value)
        assert module.KERNELS.forward(x) is None
        with pytest.raises(RuntimeError) as raised:
            module.KERNELS.backward(x, x)
        assert str(raised.value) == "hardsigmoid: no kernel for such tensors on cpu"


def test_a_lazily_negated_view_is_read_as_negated() -> None:
    x = torch.randn(9, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    assert_same(generated("hardsigmoid").hardsigmoid(x), F.hardsigmoid(x), x)


def test_inputs_are_left_as_they_are() -> None:
    x = patterns(torch.float32, 1000)
    before = x.clone()
    generated("hardswish").hardswish(x)
    assert_same(x, before)


# A layer in front


class Model(nn.Module):
    """A convolution, ReLU and hard-swish, step by step."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        """The result of the steps."""
        x = torch.relu(self.conv(x))
        return x * torch.clamp((x + 3) / 6, 0, 1)


def test_a_layer_is_built_and_called_as_in_the_reference() -> None:
    module = generated("conv_relu_hardswish")
    arguments = module.get_init_inputs()
    assert arguments == [8, 64, 3]
    [x] = module.get_inputs()
    assert (x.shape, x.dtype) == ((128, 8, 128, 128), torch.float32)
    torch.manual_seed(3)
    expected = Model(*arguments)
    torch.manual_seed(3)
    actual = module.ModelNew(*arguments)
    assert list(actual.state_dict()) == list(expected.state_dict()) == ["conv.weight", "conv.bias"]
    for key, value in expected.state_dict().items():
        assert_same(actual.state_dict()[key], value)
    sample = torch.randn(2, 8, 20, 21)
    with torch.no_grad():
        for layout in (torch.contiguous_format, torch.channels_last):
            given = sample.contiguous(memory_format=layout)
            assert ulps(actual(given), expected(given)) <= 2
            assert actual(given).stride() == expected(given).stride()


def test_get_inputs_are_what_the_spec_says() -> None:
    for name in ("relu", "hardswish"):
        text = (Path(generated(name).__file__ or "")).read_text(encoding="utf-8")
        fill = {"relu": "rand", "hardswish": "randn"}[name]
        assert f"return [torch.{fill}(4096, 393216)]" in text
        assert generated(name).get_init_inputs() == []


@pytest.mark.full
def test_a_layer_has_gradients() -> None:
    module = generated("conv_relu_hardswish")
    torch.manual_seed(3)
    expected = Model(2, 5, 3).double()
    torch.manual_seed(3)
    actual = module.ModelNew(2, 5, 3).double()
    sample = torch.randn(2, 2, 9, 10, dtype=torch.float64)
    for model in (actual, expected):
        model(sample).square().sum().backward()
    for ours, theirs in zip(actual.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    with torch.no_grad():
        assert not actual(sample).requires_grad


@pytest.mark.few(1)
@pytest.mark.parametrize("name", by_module(["gelu", "silu", "swiglu", "serf", "tanh_exp"]))
def test_the_loops_hold_the_formula_itself(name: str, extensions: Path) -> None:
    x = [torch.randn(64, requires_grad=True) for _ in range(LIBRARY[name].inputs)]
    torch.autograd.grad(function(name)(*x).sum(), x)
    for kernel in ("forward", "backward"):
        for library in extensions.glob(f"fusegen/{name}_*_{kernel}_cpu_*.so"):
            listed = subprocess.run(
                ["nm", "-C", library], capture_output=True, text=True, check=True
            ).stdout
            assert "_launch" in listed
            assert f"{name}_{kernel}(" not in listed  # a call would keep the loop from being vectorised


ROWS = (
    "gelu silu mish tanh sigmoid elu selu celu quick_gelu mish_mish silu_scale_silu gelu_gelu mish_tanh "
    "relu_leaky_relu_gelu_sigmoid silu_half_clamp_tanh_clamp serf add_min_gelu_scale relu_hardswish"
).split()


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, whose report it reads")
@pytest.mark.parametrize("kernel", ["forward", "backward"])
@pytest.mark.parametrize("name", by_module(ROWS))
def test_the_loop_over_a_row_becomes_vector_instructions(name: str, kernel: str, tmp_path: Path) -> None:
    # the second such loop, in float; in double, tests/test_doubles.py
    _, row = loops(generated(name), kernel, tmp_path)
    assert row


LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def in_large_pages(tensor: Tensor) -> bool:
    """True if Linux has been asked for large pages in the middle of a tensor."""
    at = tensor.data_ptr() + tensor.nbytes // 2
    maps = Path("/proc/self/smaps").read_text().split("VmFlags:")
    for above, flags in itertools.pairwise(maps):
        [(begin, end)] = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ", above, re.MULTILINE)
        if int(begin, 16) <= at < int(end, 16):
            return "hg" in flags.splitlines()[0].split()
    raise AssertionError("the tensor lies nowhere")


def large_pages_of(dtype: torch.dtype) -> tuple[bool, bool, bool]:
    """True for a large new output in large pages, for a large given one, and for a small new one."""
    numel = (64 << 20) // dtype.itemsize
    x, relu = torch.randn(numel).to(dtype), function("relu")
    new, out, small = relu(x), torch.empty_like(x), relu(x[: numel // 4])
    assert_same(new, F.relu(x))
    assert_same(relu(x, out=out), new)
    return in_large_pages(new), in_large_pages(out), in_large_pages(small)


@pytest.mark.full
@pytest.mark.skipif(
    not LARGE_PAGES.exists() or "[madvise]" not in LARGE_PAGES.read_text(),
    reason="needs a system that gives large pages on request",
)
def test_a_large_new_output_lies_in_large_pages() -> None:
    """In a process of its own: where much has been freed, malloc may take a large output from there."""
    code = "from test_cpu_kernels import *; print(*map(large_pages_of, DTYPES))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == " ".join(["(True, False, False)"] * len(DTYPES))
