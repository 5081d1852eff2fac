"""Operands of convolutions laid channels last: the copy, in emulation of CUDA's text, and the choice."""

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated import EMULATION, FLAGS, LAUNCH, SHARED, Guarded, call_type
from emulated import defined as defined
from kernels import generated
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fusegen.codegen import runtime_text
from fusegen.core.header_files import inlined
from fusegen.runtime import build, channels_last, layout_copy, recipe, shared_kernels
from fusegen.runtime.channels_last import Convolution
from fusegen.runtime.layout_copy import Laid

INCLUDE = Path(channels_last.__file__).parent / "include"
TEXT = '#include "cuda/elements.cuh"\n#include "cuda/channels_last.cuh"\nFUSEGEN_TRANSPOSED(t)\n'
SCALAR_TYPES = {torch.float32: 6, torch.float16: 5, torch.bfloat16: 15, torch.float64: 7}
INVALID = b"invalid argument"
SIZES = [(1, 64, 64), (2, 65, 63), (1, 3, 5), (2, 16, 130), (3, 24, 36), (1, 1, 70), (1, 130, 8)]


@pytest.fixture(scope="module")
def transposed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The function that the binding calls."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("transposed")
    text = inlined(TEXT, lambda name: (INCLUDE / name).read_text(encoding="utf-8"))
    text, launches = LAUNCH.subn(r"emulate(\1, \2, ", f'#include "cuda_emulation.h"\n{text}')
    text, staged = SHARED.subn(r"\1* const \2 = shared<\1>();", text)
    assert (launches, staged) == (1, 1)
    source, library = folder / "t.cpp", folder / "t.so"
    source.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["g++", *FLAGS, f"-I{EMULATION}", str(source), "-o", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    launch = ctypes.CDLL(str(library)).t_transposed_launch
    launch.restype, launch.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return launch


def call_of(x: Tensor, y: Tensor, rounds: bool = False) -> ctypes.Structure:
    """A call whose tensors are indexed alike, with as many dimensions."""
    call = call_type(2, 1)()
    call.param[0] = float(rounds)
    call.numel, call.rank, call.dtype = x.numel(), x.dim(), SCALAR_TYPES[x.dtype]
    call.size[: x.dim()] = x.shape
    for k, t in enumerate((x, y)):
        call.data[k], call.stride[k][: x.dim()] = t.data_ptr(), t.stride()
    return call


@pytest.mark.few
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_matrices_are_transposed(transposed: Any, size: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Of any size and from any address on; vectors of 16 bytes, of 8, and elements."""
    count, rows, columns = size
    for shift in (0, 1, 4):
        rooms = [Guarded(count * rows * columns, dtype, shift) for _ in range(2)]
        source = rooms[0].values.view(count, rows, columns)
        source.copy_(torch.arange(source.numel()).view_as(source) % 2039)
        x, y = source.mT, rooms[1].values.view(count, columns, rows)
        if count == 1:
            x, y = x[0], y[0]
        assert transposed(ctypes.byref(call_of(x, y))) is None
        assert torch.equal(x, y)
        rooms[0].check()
        rooms[1].check()


def test_rows_may_lie_apart(transposed: Any) -> None:
    x, room = torch.randn(2, 20, 50)[:, :17, :41].mT, Guarded(2 * 41 * 24, torch.float32)
    y = room.values.view(2, 41, 24)[..., :17]
    assert transposed(ctypes.byref(call_of(x, y))) is None
    assert torch.equal(x, y)
    room.check(y)


def test_a_row_is_copied_as_it_lies(transposed: Any) -> None:
    """Of a filter of one pixel, both layouts are the same, and the dimensions are one."""
    x, room = torch.randn(131), Guarded(131, torch.float32)
    assert transposed(ctypes.byref(call_of(x, room.values))) is None
    assert torch.equal(x, room.values)
    room.check()


def away(x: Tensor) -> Tensor:
    """Floats as TF32 has them, a tie rounded away from 0; by arithmetic in double, not on bits."""
    mantissa, exponent = torch.frexp(x.double())
    scaled = mantissa.abs() * 2**11
    rounded = torch.copysign(torch.floor(scaled + 0.5), mantissa)
    return torch.where(x.isfinite(), torch.ldexp(rounded / 2**11, exponent), x.double()).float()


def even(x: Tensor) -> Tensor:
    """The same with ties rounded to an even number."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp(torch.round(mantissa * 2**11) / 2**11, exponent).float()


def test_floats_are_rounded_to_tf32(transposed: Any) -> None:
    """Of all magnitudes and both signs, ties among them; infinities and NaN stay."""
    bits = torch.arange(0, 2**31, 2**31 // 6000 | 1, dtype=torch.int64)[:5994]
    tied = bits & ~0x1FFF | 0x1000
    given = torch.cat([bits, tied, bits | 2**31, tied | 2**31])
    x = given.where(given < 2**31, given - 2**32).to(torch.int32).view(torch.float32)
    normal = x.isfinite() & (x.abs() >= torch.finfo(x.dtype).tiny)
    x = torch.cat([x[normal][:19_000], torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0])])
    source = x[: x.numel() // 5 * 5].view(-1, 5)
    target = torch.empty(5, source.shape[0])
    assert transposed(ctypes.byref(call_of(source.mT, target, True))) is None
    torch.testing.assert_close(target, away(source).mT, rtol=0, atol=0, equal_nan=True)
    assert (away(source) != even(source)).sum() > 1000


def test_other_layouts_are_refused(transposed: Any) -> None:
    x = torch.randn(2, 3, 4, 5)
    for given in ((x, x.clone()), (x[0], x[0].clone())):
        assert transposed(ctypes.byref(call_of(*given))) == INVALID


GIVEN: dict[str, tuple[Tensor, bool]] = {  # as if on a GPU
    "an image": (torch.zeros(2, 16, 4, 4), True),
    "a volume": (torch.zeros(1, 16, 2, 4, 4), True),
    "few channels": (torch.zeros(2, 15, 8, 8), False),
    "few pixels": (torch.zeros(2, 64, 3, 5), False),
    "a gradient": (torch.zeros(2, 16, 4, 4, requires_grad=True), True),
    "channels last": (torch.zeros(2, 16, 4, 4).to(memory_format=torch.channels_last), False),
    "no batch": (torch.zeros(16, 4, 4), False),
    "empty": (torch.zeros(0, 16, 4, 4), False),
}


class OnGPU(Tensor):
    """A tensor that says that it lies on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("name", GIVEN)
def test_inputs_that_the_kernel_copies(name: str) -> None:
    x, expected = GIVEN[name]
    assert not layout_copy.transposes(x)
    assert layout_copy.transposes(x.as_subclass(OnGPU)) == expected


@pytest.mark.parametrize("built", [True, False])
def test_a_convolution_takes_its_input_channels_last(
    built: bool, monkeypatch: pytest.MonkeyPatch, extensions: None
) -> None:
    """Where there is no kernel, PyTorch copies."""
    kernels, layer = generated("conv_relu_hardswish").KERNELS, nn.Conv2d(16, 8, 3).bfloat16()
    own: Any = sys.modules[type(kernels).__module__.replace("activation", "layout_copy")]
    copied, seen = [], watched(kernels, monkeypatch)
    monkeypatch.setattr(own, "transposes", lambda x: True)
    monkeypatch.setattr(own, "has_kernel", lambda: built)

    def copy(x: Tensor, chosen: Any) -> Tensor:
        copied.append(chosen.name)
        return x.contiguous(memory_format=torch.channels_last)

    monkeypatch.setattr(own, "copied", copy)
    x = torch.randn(2, 16, 9, 7).bfloat16()
    with torch.no_grad():
        y, bias = kernels.without_bias(layer, x)
        torch.testing.assert_close(y + bias, layer(x), rtol=2e-2, atol=2e-2)
    assert copied == ["CHANNELS_LAST"] * built
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(seen[0], x)


def watched(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The inputs of convolutions that a module runs without their bias, as they come to be known."""
    own: Any = sys.modules[kernels.without_bias.__module__]
    seen: list[Tensor] = []
    convolved = own.convolved

    def noted(layer: Any, x: Tensor, weight: Tensor) -> Any:
        seen.append(x)
        return convolved(layer, x, weight)

    monkeypatch.setattr(own, "adds_bias_apart", lambda x: True)
    monkeypatch.setattr(own, "convolved", noted)
    return seen


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "conv_relu_hardswish": True,
        "rows/softmax_of_channels": True,
        "rows/softmax": False,
        "rows/group_norm": False,
        "rows/global_mean_of_silu": False,
        "batches/batch_norm": True,
        "windows/max_pool_of_relu": True,
        "windows/global_avg_pool_of_silu": False,
    }.items(),
)
def test_inputs_stay_where_kernels_would_copy_outputs(
    name: str, expected: bool, monkeypatch: pytest.MonkeyPatch, extensions: None
) -> None:
    kernels: Any = generated(name).KERNELS
    seen = watched(kernels, monkeypatch)
    with torch.no_grad():
        kernels.without_bias(nn.Conv2d(4, 8, 3).bfloat16(), torch.randn(2, 4, 9, 7).bfloat16())
    assert seen[0].is_contiguous(memory_format=torch.channels_last) is expected


def test_inputs_stay_in_front_of_gradients_of_windows(
    monkeypatch: pytest.MonkeyPatch, extensions: None
) -> None:
    """Which read NCHW faster; of an input, or of a parameter that the convolution has."""
    kernels: Any = generated("windows/max_pool_of_relu").KERNELS
    seen, x = watched(kernels, monkeypatch), torch.randn(2, 4, 9, 7).bfloat16()
    layer = nn.Conv2d(4, 8, 3).bfloat16().requires_grad_(False)
    layer.register_parameter("absent", None)
    for leaf in (None, x, layer.weight, layer.bias):
        if leaf is not None:
            leaf.requires_grad_()
        kernels.without_bias(layer, x)
        assert seen[-1].is_contiguous() is (leaf is not None)
        if leaf is not None:
            leaf.requires_grad_(False)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that PyTorch stands in for, and a trial of inputs of any size."""
    monkeypatch.setattr(channels_last, "has_kernel", lambda: True)
    monkeypatch.setattr(channels_last, "uses_tf32", lambda: True)
    monkeypatch.setattr(channels_last, "LEAST_TRIED", 0)
    monkeypatch.setattr(channels_last, "FOUND", {})
    monkeypatch.setattr(layout_copy, "copied", copied)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def copied(t: Tensor, chosen: Laid) -> Tensor:
    """A copy as the kernel makes it, by PyTorch."""
    rounded = away(t) if chosen is Laid.ROUNDED else t
    return rounded.contiguous(memory_format=layout_copy.LAYOUTS[t.dim()])


Rounding = Callable[[Tensor], Tensor]
TRUNCATED: Rounding = lambda t: (t.view(torch.int32) & ~0x1FFF).view(torch.float32)  # noqa: E731
EXACT: Rounding = lambda t: t  # noqa: E731


def cudnn(nchw: Rounding, last: Rounding) -> Convolution:
    """A convolution whose kernels round operands so in the two layouts, and sum in another order."""

    def run(x: Tensor, weight: Tensor) -> Tensor:
        is_last = x.is_contiguous(memory_format=torch.channels_last)
        rounding = last if is_last else nchw
        rounded = [rounding(t.contiguous()).double() for t in (x, weight)]
        made = torch.conv2d(rounded[0], rounded[1]).float()
        return made * (1 + 1e-6) if is_last else made

    return run


@pytest.mark.parametrize(
    ("nchw", "last", "expected"),
    [
        (even, even, Laid.CHANNELS_LAST),
        (away, away, Laid.CHANNELS_LAST),
        (away, even, Laid.ROUNDED),
        (EXACT, even, Laid.AS_IT_IS),  # NCHW in float32
        (even, away, Laid.AS_IT_IS),
        (TRUNCATED, even, Laid.AS_IT_IS),
    ],
)
def test_the_layout_that_rounds_as_nchw_is_chosen(
    nchw: Rounding, last: Rounding, expected: Laid, tried: None
) -> None:
    layer, x = nn.Conv2d(32, 8, 3), torch.randn(2, 32, 9, 7)
    run = cudnn(nchw, last)
    assert channels_last.choice(layer, x, run) is expected
    given = channels_last.operands(layer, x, run)
    scale = run(x, layer.weight).abs().max()
    assert (run(*given) - run(x, layer.weight)).abs().max() < 1e-5 * scale
    assert given[0].is_contiguous() is (expected is Laid.AS_IT_IS)


def test_a_shape_is_tried_once(tried: None) -> None:
    runs: list[Tensor] = []
    run = cudnn(away, even)

    def counted(x: Tensor, weight: Tensor) -> Tensor:
        runs.append(x)
        return run(x, weight)

    layer = nn.Conv2d(32, 8, 3)
    with torch.no_grad():
        for size, expected in ((9, 3), (9, 3), (10, 6), (9, 6)):
            channels_last.choice(layer, torch.zeros(2, 32, size, size), counted)
            assert len(runs) == expected
        channels_last.choice(nn.Conv2d(32, 8, 3, padding=1), torch.zeros(2, 32, 9, 9), counted)
    assert len(runs) == 9


def test_deterministic_algorithms_are_tried_apart(tried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since cuDNN then takes other kernels."""
    x = torch.randn(2, 32, 9, 7)
    with torch.no_grad():
        assert channels_last.choice(USUAL, x, cudnn(away, even)) is Laid.ROUNDED
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
        assert channels_last.choice(USUAL, x, cudnn(even, even)) is Laid.CHANNELS_LAST


@pytest.mark.parametrize("place", [0, 2])
def test_the_ends_of_a_batch_are_compared(place: int) -> None:
    """A kernel may take the last ones by another loop."""
    expected = torch.ones(3, 8, 5, 5)
    made = expected.clone()
    assert channels_last.are_alike(made, expected)
    made[place] *= 1 + 2**-11
    assert not channels_last.are_alike(made, expected)


def test_a_trial_that_fails_leaves_the_layout(tried: None) -> None:
    """Without memory, and where cuDNN has no kernel for the other layout."""
    x, usual = torch.randn(2, 32, 9, 7), cudnn(even, even)
    for number, error in enumerate(
        (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("no engine"))
    ):

        def failing(x: Tensor, weight: Tensor, error: Exception = error) -> Tensor:
            if x.is_contiguous():
                return usual(x, weight)
            raise error

        layer = nn.Conv2d(32, 8, 3, padding=number)
        assert channels_last.choice(layer, x, failing) is Laid.AS_IT_IS
        assert len(channels_last.FOUND) == number + 1


def test_sizes_may_be_lists(tried: None) -> None:
    layer: Any = nn.Conv2d(32, 8, 3)
    layer.stride, layer.padding = [1, 1], [0, 0]
    assert channels_last.choice(layer, torch.randn(2, 32, 9, 7), cudnn(even, even)) is Laid.CHANNELS_LAST


def test_a_layer_keeps_its_layout_under_vmap(tried: None) -> None:
    def run(x: Tensor) -> Tensor:
        return torch.conv2d(*channels_last.operands(USUAL, x, cudnn(even, even)))

    x = torch.randn(3, 2, 32, 9, 7)
    expected = torch.stack([torch.conv2d(each, USUAL.weight) for each in x])
    torch.testing.assert_close(torch.vmap(run)(x), expected)
    assert not channels_last.FOUND


def test_a_checkpoint_sees_no_tensors_of_a_trial(tried: None) -> None:
    """It compares how many are saved in the first run, which tries, and in the second one."""

    def run(x: Tensor) -> Tensor:
        given = channels_last.operands(USUAL, x, cudnn_of_torch)
        return torch.conv2d(*given).relu()

    def cudnn_of_torch(x: Tensor, weight: Tensor) -> Tensor:
        return torch.conv2d(x, weight)

    x = torch.randn(2, 32, 9, 7, requires_grad=True)
    made: Any = checkpoint(run, x, use_reentrant=False)
    [found] = torch.autograd.grad(made.sum(), [x])
    [expected] = torch.autograd.grad(torch.conv2d(x, USUAL.weight).relu().sum(), [x])
    torch.testing.assert_close(found, expected)
    assert len(channels_last.FOUND) == 2
    channels_last.FOUND.clear()
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks"):
        run(x)
    assert [*channels_last.FOUND.values()] == [Laid.CHANNELS_LAST, True]


def with_weight(weight: Tensor) -> nn.Conv2d:
    """A convolution of 32 channels with a weight that somebody has set."""
    layer = nn.Conv2d(32, 8, 3)
    layer.weight = nn.Parameter(weight)
    return layer


X = torch.zeros(2, 32, 9, 7)
USUAL = nn.Conv2d(32, 8, 3)
AS_THEY_ARE: dict[str, tuple[nn.Module, Tensor]] = {
    "few channels": (nn.Conv2d(31, 8, 3), X[:, :31].contiguous()),
    "few channels of a group": (nn.Conv2d(32, 8, 3, groups=2), X),
    "a filter of one pixel": (nn.Conv2d(32, 8, 1), X),
    "padding by another rule": (nn.Conv2d(32, 8, 3, padding=1, padding_mode="circular"), X),
    "no batch": (USUAL, X[0]),
    "channels last": (USUAL, X.to(memory_format=torch.channels_last)),
    "gaps": (USUAL, torch.zeros(2, 32, 9, 8)[..., :7]),
    "float64": (nn.Conv2d(32, 8, 3).double(), X.double()),
    "a lazy negation": (USUAL, torch._neg_view(X)),
    "a subclass": (USUAL, X.as_subclass(OnGPU)),
    "a weight that is channels last": (with_weight(torch.randn(8, 3, 3, 32).permute(0, 3, 1, 2)), X),
    "a weight that is transposed": (with_weight(torch.randn(32, 8, 3, 3).transpose(0, 1)), X),
    "a weight of another dtype": (with_weight(torch.randn(8, 32, 3, 3).double()), X),
}
SETTINGS: dict[str, tuple[Any, str, Any]] = {
    "float32 alone": (channels_last, "uses_tf32", lambda: False),
    "no kernel": (channels_last, "has_kernel", lambda: False),
    "a small image": (channels_last, "LEAST_TRIED", 2**20),
    "no cuDNN": (torch.backends.cudnn, "enabled", False),
    "autocast": (torch, "is_autocast_enabled", lambda: True),
    "a graph is captured": (torch.cuda, "is_current_stream_capturing", lambda: True),
}


@pytest.mark.parametrize("name", [*AS_THEY_ARE, *SETTINGS])
def test_operands_stay_as_they_are(name: str, tried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a trial, which another call may make."""
    layer, x = AS_THEY_ARE.get(name, (USUAL, X))
    if name in SETTINGS:
        monkeypatch.setattr(*SETTINGS[name])

    def never(x: Tensor, weight: Tensor) -> Tensor:
        raise AssertionError("a convolution ran")

    given = channels_last.operands(layer, x, never)
    assert given[0] is x
    assert given[1] is layer.weight
    assert not channels_last.FOUND


class Rounded(torch.autograd.Function):
    """A convolution whose operands are rounded to even, and in whose gradients all are rounded so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, gradient: Rounding) -> Tensor:
        """Return the convolution."""
        ctx.save_for_backward(x, weight)
        ctx.gradient = gradient
        return torch.conv2d(even(x.contiguous()).double(), even(weight.contiguous()).double()).float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Return the gradients."""
        x, weight, grad = (ctx.gradient(t.contiguous()).double() for t in (*ctx.saved_tensors, grads[0]))
        with torch.enable_grad():
            leaves = x.requires_grad_(), weight.requires_grad_()
            found = torch.autograd.grad(torch.conv2d(*leaves), leaves, grad)
        return *(each.float() for each in found), None


@pytest.mark.parametrize(
    ("nchw", "last", "kept"),
    [
        (even, even, True),
        (away, even, True),  # no less exact
        (EXACT, EXACT, True),
        (EXACT, even, False),
        (even, TRUNCATED, False),
        (TRUNCATED, even, False),
    ],
)
def test_gradients_are_as_exact(nchw: Rounding, last: Rounding, kept: bool, tried: None) -> None:
    """Or operands stay as they are where gradients are recorded, and are laid so without."""

    def run(x: Tensor, weight: Tensor) -> Tensor:
        is_last = x.is_contiguous(memory_format=torch.channels_last)
        apply: Callable[..., Tensor] = Rounded.apply
        return apply(x, weight, last if is_last else nchw)

    layer, x = nn.Conv2d(32, 8, 3), torch.randn(2, 32, 9, 7)
    assert channels_last.choice(layer, x, run) is (Laid.CHANNELS_LAST if kept else Laid.AS_IT_IS)
    with torch.no_grad():
        assert channels_last.choice(layer, x, run) is Laid.CHANNELS_LAST


def test_every_folder_has_the_text_of_the_kernel() -> None:
    """As of lifted networks, which give the convolution to `producers.without_bias`."""
    files = runtime_text.needed("stable", ("",))
    for text in (layout_copy.BINDING, layout_copy.CUDA):
        inlined(text, lambda name: files[f"include/{name}"])
    assert "include/cuda/channels_last.cuh" not in runtime_text.needed("pybind", ("",))


def test_pytorch_copies_without_the_text_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a standalone file whose module has no convolution."""

    def missing(name: str) -> str:
        raise KeyError(name)

    monkeypatch.setattr(build, "can_load", lambda *given: True)
    assert layout_copy.has_kernel.__wrapped__()
    shared_kernels.texts.cache_clear()
    monkeypatch.setattr(shared_kernels, "header", missing)
    assert not layout_copy.has_kernel.__wrapped__()


def test_the_kernel_has_a_recipe() -> None:
    made = recipe.recipe_of(layout_copy.texts_of_kernels(), *layout_copy.KERNELS, "cuda")
    assert "layout_transposed_launch" in "".join(made["cuda_sources"]).replace("NAME##", "layout")
    assert "FUSEGEN_REGISTER_INTO" in "".join(made["cpp_sources"])


def test_rounding_has_no_part_in_gradients(tried: None) -> None:
    """As in those of a convolution in TF32, of which operands are rounded, too."""
    torch.manual_seed(0)
    layer, x = nn.Conv2d(32, 8, 3), torch.randn(2, 32, 9, 7, requires_grad=True)
    given = channels_last.operands(layer, x, cudnn(away, even))
    assert not torch.equal(given[0], x)
    y = torch.conv2d(*given)
    grad = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, layer.weight), grad)
    rounded = away(x.detach()).requires_grad_(), away(layer.weight.detach()).requires_grad_()
    expected = torch.autograd.grad(torch.conv2d(*rounded), rounded, grad)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    torch.autograd.backward(torch.conv2d(*channels_last.operands(layer, x, cudnn(away, even))).sum())
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_contiguous()
