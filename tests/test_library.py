"""Every module of the library against PyTorch and against the real functions, forward and backward."""

import functools
import math
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import mpmath
import pytest
import torch
from kernels import (
    DEVICES,
    DTYPES,
    EXACT,
    INTEGERS,
    LIBRARY,
    NAMES,
    assert_same,
    by_class,
    by_module,
    differences,
    function,
    generated,
    meaningful_strides,
    patterns,
    scalars,
    smooth,
)
from torch import Tensor

Call = Callable[..., Tensor]

OLD_CUDA = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14)
SIGN_OF_ZERO_LOST = ("relu", "relu6", "hardtanh")  # by eager's clamping kernels on CUDA before 2.14
SIXTH_IN_FLOAT = ("hardsigmoid", "hardswish")  # eager's 1/6 has only a float's digits, see test_gpu.py

CHAINED_SIXTH = ("relu_hardswish", "hardswish_relu", "silu_hardswish")  # which these then have, too


def test_every_module_is_held_against_pytorch() -> None:
    held = {"conv_relu_hardswish", "prelu", "snake_per_channel", "swish"}  # whose layers have parameters
    assert [*sorted(LIBRARY)] == [name for name in NAMES if name not in held]


def operator(name: str, suffix: str = "") -> Any:
    """One of the operators of a module, as torch.ops has it."""
    return getattr(generated(name).OPERATORS, name + suffix).default


def split(name: str, suffix: str) -> tuple[int, int]:
    """The numbers of tensors and of scalars that an operator takes; its outputs are tensors, too."""
    kinds = [str(argument.type) for argument in operator(name, suffix)._schema.arguments]
    return kinds.count("Tensor"), kinds.count("float")


def leaves(tensors: list[Tensor]) -> list[Tensor]:
    """Copies that gradients are wanted of."""
    return [t.detach().clone().requires_grad_() for t in tensors]


def pulled(call: Call, tensors: list[Tensor], *grad: Tensor) -> list[Tensor]:
    """The value, and the gradients of the inputs; without a gradient of the value it is all ones."""
    ours = leaves(tensors)
    value = call(*ours)
    gradients = torch.autograd.grad(value, ours, grad or (torch.ones_like(value),))
    return [value.detach(), *gradients]


# As an operator of PyTorch


@pytest.mark.few(1)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_class(LIBRARY))
def test_an_operator_is_what_pytorch_asks_of_one(name: str, device: str) -> None:
    """Its schema, its registration for autograd, its fake tensors, and tracing with dynamic shapes."""
    given = scalars(name)[0]
    tensors = smooth(name, 3, 4, device=device)
    torch.library.opcheck(operator(name), (*tensors, *given))
    torch.library.opcheck(operator(name), (*leaves(tensors), *given))
    torch.library.opcheck(operator(name), (*(t.mT.requires_grad_() for t in tensors), *given))
    for suffix in ("_forward", "_backward"):
        inputs, _ = split(name, suffix)
        wanted = (tensors * 3)[:inputs]
        torch.library.opcheck(operator(name, suffix), (*wanted, *given))
        outputs = split(name, suffix + "_out")[0] - inputs
        outs = [torch.empty_like(tensors[0]) for _ in range(outputs)]
        torch.library.opcheck(operator(name, suffix + "_out"), (*wanted, *given, *outs))


GRADCHECK_OF_TORCH = "ignore:.torch.jit.script. is deprecated:DeprecationWarning"  # torch's own, by jvp


@pytest.mark.few(4)
@pytest.mark.filterwarnings(GRADCHECK_OF_TORCH)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_class(LIBRARY))
def test_the_gradient_is_the_derivative(name: str, device: str) -> None:
    """By finite differences: backward, forward-mode, and both under vmap."""
    for given in scalars(name):
        if name == "hardtanh" and given[0] >= given[1]:
            continue  # a constant, of which nothing can be learned
        tensors = leaves(smooth(name, 3, 4, device=device))
        call = functools.partial(lambda given, *t: function(name)(*t, *given), given)
        assert torch.autograd.gradcheck(
            call, tensors, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
        )


@pytest.mark.filterwarnings(GRADCHECK_OF_TORCH)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_class(LIBRARY))
def test_the_second_derivative_is_the_gradients_derivative(name: str, device: str) -> None:
    """Backward of backward, and forward-mode over it, under vmap, too; of the same tensor twice."""
    given = scalars(name)[0]
    tensors = leaves(smooth(name, 3, 4, device=device))

    def call(*t: Tensor) -> Tensor:
        return function(name)(*t, *given)

    assert torch.autograd.gradgradcheck(call, tensors, check_fwd_over_rev=True)
    assert torch.autograd.gradgradcheck(call, tensors, check_batched_grad=True)
    if len(tensors) > 1:  # forward-mode over reverse, where both come from one tensor
        assert torch.autograd.gradgradcheck(lambda x: call(x, x), tensors[:1], check_fwd_over_rev=True)
        assert torch.autograd.gradcheck(lambda x: call(x, x), tensors[:1], check_forward_ad=True)


@pytest.mark.few(1)
@pytest.mark.filterwarnings(GRADCHECK_OF_TORCH)
@pytest.mark.parametrize("name", by_module(name for name, row in LIBRARY.items() if row.inputs > 1))
def test_the_gradient_of_what_was_broadcast_is_summed(name: str) -> None:
    first, second = leaves(smooth(name, 3, 4))
    for pair in ((first, second[:1]), (first[:, :1], second), (first[0], second), (first, second[0, 0])):
        wanted = leaves(list(pair))
        assert torch.autograd.gradcheck(function(name), wanted, check_forward_ad=True)
        expected = pulled(LIBRARY[name].eager, wanted)
        for ours, theirs in zip(pulled(function(name), wanted), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


# Against eager, bit by bit


def assert_as_eager(name: str, actual: Tensor, expected: Tensor, x: Tensor, what: str) -> None:
    """Every bit, but for the departures of eager's own kernels that are listed here."""
    wrong = differences(actual, expected)
    zeros = (actual == 0) & (expected == 0)
    if x.is_cuda and OLD_CUDA and what == "value" and name in SIGN_OF_ZERO_LOST:
        wrong &= ~((x == 0) & zeros)
    if not x.is_cuda and name == "softshrink":
        wrong &= ~zeros  # +0.0 in eager's vectors, -0.0 in the elements that are left over
    if not x.is_cuda and what == "gradient":
        wrong &= ~x.isnan()  # where eager's vectors and CUDA kernels choose differently; ours as on CUDA
    if x.dtype == torch.float64 and name in SIXTH_IN_FLOAT:
        wrong &= ~torch.isclose(actual, expected, rtol=1e-7, atol=1e-300)
    if wrong.any():
        shown = [[t[tuple(i)].item() for t in (x, actual, expected)] for i in wrong.nonzero()[:5]]
        pytest.fail(f"{what}: {int(wrong.sum())} of {wrong.numel()} differ; x, ours, eager's: {shown}")


@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", by_module(EXACT))
def test_every_bit_is_eagers(name: str, dtype: torch.dtype, device: str) -> None:
    """Value and gradient on every 16-bit value or on random bits, for gradients 1, random and special."""
    for given in scalars(name):
        kinks = (*LIBRARY[name].kinks, *(v for v in given if math.isfinite(v)))
        x = patterns(dtype, 2**16, kinks, device)
        generator = torch.Generator().manual_seed(3)
        random = torch.randn(len(x), generator=generator).to(device, dtype)
        special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, -1.0, 1e-7], dtype=dtype)
        for grad in (torch.ones_like(x), random, special.to(device).repeat(len(x) // 7 + 1)[: len(x)]):
            ours = pulled(lambda t, p=given: function(name)(t, *p), [x], grad)
            theirs = pulled(lambda t, p=given: LIBRARY[name].eager(t, *p), [x], grad)
            assert_as_eager(name, ours[0], theirs[0], x, "value")
            assert_as_eager(name, ours[1], theirs[1], x, "gradient")


@pytest.mark.few(12)
@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", by_module(LIBRARY))
def test_the_gradient_at_a_kink_is_eagers(name: str, dtype: torch.dtype, device: str) -> None:
    """At every kink, at both zeros and infinities, and at the neighbours of all of them."""
    kinks = [0.0, *LIBRARY[name].kinks]
    at = torch.tensor([*kinks, *(-v for v in kinks)], dtype=dtype)
    near = [torch.nextafter(at, at.new_tensor(v)) for v in (-math.inf, math.inf)]
    ends = torch.tensor([math.inf, -math.inf], dtype=dtype)
    if name == "hardswish_relu" or (name == "hardsigmoid_keras" and dtype == torch.float64):
        near = []  # eager rounds before it compares
    x = torch.cat([at, *near, ends]).to(device)
    others = [torch.full_like(x, 1.25) for _ in range(LIBRARY[name].inputs - 1)]
    for grad in (torch.ones_like(x), torch.full_like(x, -2.5)):
        eager = LIBRARY[name].eager
        if name == "hardsigmoid_keras":  # whose steps round before they compare

            def eager(t: Tensor) -> Tensor:
                return LIBRARY["hardsigmoid_keras"].eager(t.double()).to(t.dtype)

        ours, theirs = (pulled(f, [x, *others], grad) for f in (function(name), eager))
        info = torch.finfo(dtype)
        for mine, eagers in zip(ours, theirs, strict=True):
            limit = x.isinf() & eagers.isnan()  # where ours may have one
            assert torch.equal(mine.isnan() & ~limit, eagers.isnan() & ~limit), (x, mine, eagers)
            mine, eagers = mine[~limit], eagers[~limit]
            room = 8 * info.eps if dtype.itemsize > 2 else 4 * info.eps
            if dtype == torch.float64 and name in (*SIXTH_IN_FLOAT, *CHAINED_SIXTH):
                room = 1e-7
            torch.testing.assert_close(
                mine, eagers, rtol=room, atol=room * 2.5 + info.smallest_normal, equal_nan=True
            )


# Against the real functions


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def _softplus(x: Any) -> Any:
    return mpmath.log1p(mpmath.exp(x))


def _normal(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _clamp(x: Any, low: float, high: float) -> Any:
    return max(min(x, mpmath.mpf(high)), mpmath.mpf(low))


def _quick(u: Any) -> Any:
    return u * (27 + u * u) / (27 + 9 * u * u)


UP = 1.25  # the second input of what takes two
REAL: dict[str, Callable[..., Any]] = {
    "celu": lambda x: x if x > 0 else mpmath.expm1(x),
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "geglu": lambda x, up: x * _normal(x) * up,
    "gelu": lambda x: x * _normal(x),
    "gelu_tanh": lambda x: x * _sigmoid(mpmath.sqrt(8 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)),
    "glu": lambda a, b: b * _sigmoid(a),  # by its gate first, as the others
    "hardsigmoid_keras": lambda x: _clamp(x / 5 + mpmath.mpf(0.5), 0, 1),
    "lecun_tanh": lambda x: mpmath.mpf("1.7159") * mpmath.tanh(2 * x / 3),
    "logsigmoid": lambda x: -_softplus(-x),
    "mish": lambda x: x * mpmath.tanh(_softplus(x)),
    "quick_gelu": lambda x: x * _sigmoid(mpmath.mpf("1.702") * x),
    "pade_tanh": lambda x: x * (27 + x * x) / (27 + 9 * x * x),
    "quick_tanh": lambda x: _quick(_clamp(x, -3, 3)),
    "reglu": lambda x, up: max(x, mpmath.mpf(0)) * up,
    "relu_hardswish": lambda x: max(x, mpmath.mpf(0)) * _clamp(x + 3, 0, 6) / 6,
    "selu": lambda x: mpmath.mpf("1.0507009873554804934193349852946")
    * (x if x > 0 else mpmath.mpf("1.6732632423543772848170429916717") * mpmath.expm1(x)),
    "serf": lambda x: x * mpmath.erf(_softplus(x)),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "snake": lambda x: x + mpmath.sin(x) ** 2,
    "softplus": lambda x: x if x > 20 else _softplus(x),
    "softsign": lambda x: x / (1 + abs(x)),
    "squared_relu": lambda x: max(x, mpmath.mpf(0)) ** 2,
    "star_relu": lambda x: mpmath.mpf("0.8944") * max(x, mpmath.mpf(0)) ** 2 - mpmath.mpf("0.4472"),
    "swiglu": lambda x, up: x * _sigmoid(x) * up,
    "tanh": mpmath.tanh,
    "tanh_exp": lambda x: x * mpmath.tanh(mpmath.exp(x)),
    "tanhshrink": lambda x: x - mpmath.tanh(x),
}  # fmt: skip
BOUND = 4.0  # units, see `errors`


@functools.cache
def points(narrow: bool) -> Tensor:
    """Points of both signs from 1e-6 to 90, most of them below 12; `narrow` fit into 16 bits, too."""
    generator = torch.Generator().manual_seed(0)
    near = torch.rand(100, generator=generator) * 24 - 12
    sizes = torch.exp(torch.rand(50, generator=generator) * 18 - 13.5)
    x = torch.cat([near, sizes * torch.sign(torch.randn(50, generator=generator))]).sort()[0]
    x = x[::2].bfloat16().float() if narrow else x
    return x[x.abs() > 1e-3] if narrow else x


def _of_one(real: Callable[..., Any], both: bool, x: Any) -> Any:
    return real(x, mpmath.mpf(UP)) if both else real(x)


@functools.cache
def truths(name: str, narrow: bool) -> list[list[tuple[Any, Any]]]:
    """For the value and for each gradient, at each point: what it is, and what a step of x changes."""
    real, both = REAL[name], LIBRARY[name].inputs == 2
    step = mpmath.mpf(10) ** -15
    rows: list[list[tuple[Any, Any]]] = [[], [], []]
    with mpmath.workdps(70):
        for x in map(mpmath.mpf, points(narrow).double().tolist()):
            first = functools.partial(_of_one, real, both)
            f, d, dd = (mpmath.diff(first, x, k, h=step) if k else first(x) for k in range(3))
            rows[0].append((f, abs(x * d)))
            rows[1].append((d, abs(x * dd)))
            if both:
                rows[2].append((f / mpmath.mpf(UP), abs(x * d / mpmath.mpf(UP))))
    return rows if both else rows[:2]


def errors(actual: Tensor, truth: list[tuple[Any, Any]]) -> list[float]:
    """The distance of each element from the truth, in ulp.

    A last place is that of the value, or of what one last place of x makes of it where that is more: at the
    zero of a slope, and where the last place of x decides about the value of an exponential.
    """
    info = torch.finfo(actual.dtype)
    found = []
    with mpmath.workdps(70):
        for value, (true, moved) in zip(actual.double().tolist(), truth, strict=True):
            unit = max(abs(true) + moved, mpmath.mpf(info.smallest_normal)) * mpmath.mpf(info.eps)
            distance = abs(mpmath.mpf(value) - true) / unit if math.isfinite(value) else mpmath.inf
            found.append(float(distance))
    return found


@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(REAL))
def test_it_is_near_the_real_function(name: str, device: str) -> None:
    """Value and gradients: within the bound, or as near as eager is about there."""
    for dtype in DTYPES:
        x = points(dtype.itemsize == 2)
        tensors = [x.to(device, dtype)]
        if LIBRARY[name].inputs == 2:
            tensors.append(torch.full_like(tensors[0], UP))
        if name == "glu":
            tensors.reverse()
        ours, eagers = (pulled(f, tensors) for f in (function(name), LIBRARY[name].eager))
        if name == "glu":
            ours, eagers = ([r[0], *reversed(r[1:])] for r in (ours, eagers))
        for what, mine, theirs, truth in zip(
            ("value", "gradient", "gradient of up"),
            ours,
            eagers,
            truths(name, dtype.itemsize == 2),
            strict=False,
        ):
            for k, found in enumerate(errors(mine, truth)):
                if not found <= BOUND:
                    near = slice(max(0, k - 3), k + 4)
                    about = max(errors(theirs[near], truth[near]))
                    assert found <= about, (dtype, what, x[k].item(), found, about)


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(LIBRARY))
def test_nothing_overflows_where_eagers_result_is_a_number(name: str, device: str) -> None:
    """No NaN and no infinity of our own, from the smallest to the largest finite values."""
    for dtype in (torch.float32, torch.bfloat16):
        x = patterns(dtype, 2**16, LIBRARY[name].kinks, device)
        x = x[x.isfinite()]
        others = [x.flip(0) for _ in range(LIBRARY[name].inputs - 1)]
        ours, theirs = (pulled(f, [x, *others]) for f in (function(name), LIBRARY[name].eager))
        for mine, eagers in zip(ours, theirs, strict=True):
            largest = torch.finfo(dtype).max / 8  # beyond it the steps decide
            wrong = ~mine.isfinite() & (eagers.abs() < largest)
            shown = [[t[i].item() for t in (x, *others, mine, eagers)] for i in wrong.nonzero()[:5, 0]]
            assert not shown, f"{dtype}, {int(wrong.sum())}: inputs, ours, eager's: {shown}"


@pytest.mark.few(1)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module("silu mish gelu gelu_tanh quick_gelu tanh_exp serf".split()))
def test_a_huge_incoming_gradient_takes_part_in_no_product_that_overflows(name: str, device: str) -> None:
    """Its slope is 1 far above and 0 far below; eager multiplies by x first, and inf * 0 is NaN."""
    x = torch.tensor([1e10, 3e38, -1e10, -3e38], device=device, requires_grad=True)
    incoming = torch.full_like(x, 1e38)
    [slope] = torch.autograd.grad(function(name)(x), x, incoming)
    assert slope.tolist() == [*incoming[:2].tolist(), 0.0, 0.0]


# Against PyTorch's own samples


@functools.cache
def samples() -> dict[str, Any]:
    """PyTorch's own descriptions of its operators, by name."""
    if "expecttest" not in sys.modules:  # torch's tests import it; nothing here calls it
        absent = ModuleType("expecttest")
        vars(absent)["TestCase"] = unittest.TestCase
        sys.modules.setdefault("expecttest", absent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.name.removeprefix("nn.functional."): op for op in op_db if not op.variant_test_name}


SAMPLED = {
    **{name: name for name in (*EXACT, "celu", "elu", "gelu", "glu", "logsigmoid", "mish", "selu")},
    **{name: name for name in ("sigmoid", "silu", "softplus", "softsign", "tanh", "tanhshrink")},
    "gelu_tanh": "gelu",
}


def sampled(name: str, dtype: torch.dtype, device: str) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    """Inputs and arguments that PyTorch tests the same function with, strided and extremal ones, too."""
    op = samples()[SAMPLED[name]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(op.reference_inputs(device, dtype))
    for sample in found:
        given = dict(sample.kwargs)
        if given.pop("training", False):
            continue  # random slopes: ours is the function of evaluation
        if (given.pop("approximate", "none") == "tanh") != (name == "gelu_tanh"):
            continue  # the other of the two specs
        if name == "glu":
            given["dim"] = sample.args[0] if sample.args else -1
        elif sample.args:
            given |= dict(zip(("threshold", "value"), sample.args, strict=False))
        x = sample.input.detach()
        for d in range(x.dim()):  # layouts matter, and the other tests have the many values
            x = x.narrow(d, 0, min(x.shape[d], 48))
        yield x, given


def halved(x: Tensor, dim: int = -1) -> Tensor:
    return torch.nn.functional.glu(x, dim)


@pytest.mark.together
@pytest.mark.few(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", by_module(SAMPLED))
def test_pytorchs_own_samples(name: str, dtype: torch.dtype, device: str) -> None:
    """Every bit for arithmetic; for the others as near to float64 as eager is, or four last places."""
    eager = halved if name == "glu" else LIBRARY[name].eager
    count = 0
    for x, given in sampled(name, dtype, device):
        count += 1
        ours = pulled(lambda t, p=given: function(name)(t, **p), [x])
        theirs = pulled(lambda t, p=given: eager(t, **p), [x])
        if name != "logsigmoid":  # eager's is contiguous, ours laid out as its input is
            assert meaningful_strides(ours[0]) == meaningful_strides(theirs[0])
        assert ours[1].shape == x.shape
        if name in EXACT:
            assert_as_eager(name, ours[0], theirs[0], x, "value")
            assert_as_eager(name, ours[1], theirs[1], x, "gradient")
            continue
        wide = pulled(lambda t, p=given: eager(t, **p), [x.double()])
        info = torch.finfo(dtype)
        for what, mine, eagers, true in zip(("value", "gradient"), ours, theirs, wide, strict=True):
            usual = x.isfinite() & true.isfinite() if mine.shape == x.shape else true.isfinite()
            assert torch.equal(mine.isnan()[usual], eagers.isnan()[usual]), (what, x)
            if what == "value" and mine.shape == x.shape:
                assert bool(mine[x.isnan()].isnan().all())
            error, allowed = (mine.double() - true).abs(), (eagers.double() - true).abs()
            last = 4 if dtype != torch.float64 else 16  # of which eager is not the truth
            room = last * info.eps * true.abs().clamp(min=1.0) + info.smallest_normal
            if name == "celu" and dtype == torch.float64:
                room = 1e-6 * true.abs() + room  # eager's slope takes alpha as a float
            far = usual & ~(error <= torch.maximum(allowed, room)) & ~(mine == eagers)
            assert not far.any(), (what, given, mine[far][:5], eagers[far][:5], true[far][:5])
    assert count


# Dtypes


OTHER_DTYPES = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
)


def outcome(call: Call, *arguments: Any) -> tuple[Any, ...]:
    """The result, or the type of the exception."""
    try:
        return ("gives", call(*arguments))
    except Exception as error:
        return ("raises", type(error))


@pytest.mark.together
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(LIBRARY))
def test_what_has_no_kernel_is_left_to_eager(name: str, device: str) -> None:
    """Integers, bool, complex and float8: the same dtype and values, or an exception of the same type."""
    for dtype in OTHER_DTYPES:
        tensors = [torch.tensor([0, 1, 2, 3, 7]).to(device, dtype) for _ in range(LIBRARY[name].inputs)]
        for given in scalars(name)[:1]:
            ours = outcome(function(name), *tensors, *given)
            theirs = outcome(LIBRARY[name].eager, *tensors, *given)
            assert ours[0] == theirs[0], (dtype, ours, theirs)
            if ours[0] == "raises":
                assert ours[1] is theirs[1], (dtype, ours, theirs)
            else:
                torch.testing.assert_close(ours[1], theirs[1])


GATED = [name for name, row in LIBRARY.items() if row.inputs > 1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(GATED))
def test_two_dtypes_are_promoted_as_eager_does(name: str, device: str) -> None:
    """Every pair, with a 0-dim tensor, from the CPU, too, on either side."""
    eager = (lambda a, b: a * torch.sigmoid(b)) if name == "glu" else LIBRARY[name].eager
    wide, alone = torch.tensor([0.5, 1.0, 2.0], device=device), torch.tensor(2.0)
    whole = (torch.int64, torch.bool) if name != "glu" else ()  # eager's glu takes one tensor of floats
    for first in (*DTYPES, *whole):
        for second in (*DTYPES, *whole):
            for x, y in (
                (wide.to(first), wide.to(second)),
                (wide.to(first), alone.to(second)),
                (alone.to(first), wide.to(second)),
                (wide.to(first), alone.to(device, second)),
                (alone.to(first), alone.to(second)),
            ):
                theirs = outcome(eager, x, y)
                if theirs[0] == "raises":
                    continue  # silu and gelu of integers, where ours may promote first
                ours = outcome(function(name), x, y)
                assert ours[0] == "gives", (x, y, ours)
                assert (ours[1].dtype, ours[1].device) == (theirs[1].dtype, theirs[1].device), (x, y)
                room = (
                    max(torch.finfo(d).eps for d in (first, second, ours[1].dtype) if d.is_floating_point)
                    if ours[1].is_floating_point()
                    else 0.0
                )
                torch.testing.assert_close(ours[1], theirs[1], rtol=4 * room, atol=room)


@pytest.mark.parametrize("name", by_module(GATED))
def test_a_gradient_comes_back_in_the_dtype_of_its_input(name: str) -> None:
    x = torch.tensor([0.5, 1.0, -2.0], dtype=torch.float16, requires_grad=True)
    y = torch.tensor([0.5, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    actual = torch.autograd.grad(function(name)(x, y).sum(), (x, y))
    assert (actual[0].dtype, actual[1].dtype) == (torch.float16, torch.float64)
    expected = pulled(LIBRARY[name].eager, [x.double(), y])
    torch.testing.assert_close(actual[0], expected[1].half())
    torch.testing.assert_close(actual[1], expected[2])


def test_integers_view_all_bits() -> None:
    """The helper that the comparisons stand on tells -0.0 from 0.0 and takes every NaN for one."""
    for dtype in DTYPES:
        zeros = torch.tensor([0.0, -0.0], dtype=dtype)
        assert differences(zeros, zeros.flip(0)).all()
        other = (torch.tensor([math.nan], dtype=dtype).view(INTEGERS[dtype]) + 1).view(dtype)
        assert not differences(other, torch.tensor([math.nan], dtype=dtype)).any()
        assert_same(zeros, zeros)
