"""Dropout in formulas: PyTorch's own masks, of which the kernel is one pass, and what else a call does."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import Workshop
from emulated import emulated, run, run_sums, same_bits
from kernels import Modules, load
from masks_emulated import SEED, Drawing, bound, filled_by_kernel, four_numbers, mask_of
from parsed import spec
from test_cuda_text import NVCC, nvcc
from test_rows import GPU
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, relu

from fusegen.codegen.printers.notation import notation
from fusegen.errors import FusegenError
from fusegen.evidence.bench.case import Case
from fusegen.evidence.bench.competitors import Competitors
from fusegen.evidence.certify.interval_filter import CUDA_FLAGS
from fusegen.project import build, standalone
from fusegen.runtime import build as builds
from fusegen.runtime import drawn as masks
from fusegen.runtime import philox

ADDED = (
    "inputs: {x: {shape: [8, 16]}, bias: {shape: [16]}, residual: {shape: [8, 16]}}\n"
    "params: {p: 0.1}\nformula: dropout(x + bias, p) + residual\n"
)
BODIES = {
    "alone": "params: {p: 0.5}\nformula: dropout(x, p)\n",
    "added": ADDED,
    "activated": "params: {p: 0.5}\nchain: [gelu, dropout(p=p)]\n",
    "several": (
        "inputs: {x: {shape: [8, 16]}, y: {shape: [16]}}\n"
        "init: {p: 0.25}\nparams: {alpha: 2.0, rate: 0.5}\n"
        "layers: [weight: 'Parameter(ones(16))']\n"
        "where: {h: 'dropout(relu(x * weight), p)'}\n"
        "formula: h * alpha + dropout(dropout(y, 0.5) - weight, rate) * rate\n"
    ),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
RATES = (0.0, 0.1, 0.5, 0.9, 1.0)
LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: torch.randn(37, 19),
    "transposed": lambda: torch.randn(19, 37).t(),
    "sliced": lambda: torch.randn(37, 38)[:, ::2],
    "channels_last": lambda: torch.randn(2, 3, 5, 4).to(memory_format=torch.channels_last),
    "row": lambda: torch.randn(1, 19).expand(37, 19),
    "0-d": lambda: torch.randn(()),
    "empty": lambda: torch.randn(0, 3),
}
WITH_GAPS = ("sliced", "row")  # which CUDA's generator fills in another order, see docs/dropout.md


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    return Modules(tmp_path_factory.mktemp("dropouts"), BODIES)


def drawn(layout: str, device: str) -> Tensor:
    """A tensor of a layout on a device."""
    with torch.device(device):
        return LAYOUTS[layout]()


def seeded(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[Any, Tensor]:
    """The result from a seed, and the state in which the generator is left."""
    torch.manual_seed(7)
    result = function(*arguments, **keywords)
    is_cuda = any(isinstance(t, Tensor) and t.is_cuda for t in arguments)
    return result, torch.cuda.get_rng_state() if is_cuda else torch.get_rng_state()


def graded(function: Callable[..., Tensor], tensors: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The value and the gradients from a seed, and the state of the generator."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    y, state = seeded(function, *leaves)
    incoming = torch.linspace(-2, 3, y.numel(), dtype=torch.float64).reshape(y.shape).to(y)
    return [y.detach(), *torch.autograd.grad(y, leaves, incoming)], state


@pytest.mark.full
@pytest.mark.together
@pytest.mark.parametrize(("dtype", "p"), [*itertools.product(DTYPES, RATES)])
@pytest.mark.parametrize(
    ("device", "layout"),
    [*(("cpu", layout) for layout in LAYOUTS)]
    # CUDA's generator fills a tensor with gaps in another order, see docs/dropout.md
    + [
        pytest.param("cuda", layout, marks=GPU.marks)
        for layout in LAYOUTS
        if layout not in ("sliced", "row")
    ],
)
def test_dropout_alone_has_the_bits_of_pytorch(
    device: str, layout: str, dtype: torch.dtype, p: float, modules: dict[str, ModuleType]
) -> None:
    x = drawn(layout, device).to(dtype)
    if x.is_contiguous() and x.dim() == 2 and x.numel():
        x[0, :5] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 1e30]).to(dtype)
    found, state = graded(lambda t: modules["alone"].alone(t, p), [x])
    exact, theirs = graded(lambda t: dropout(t, p), [x])
    assert torch.equal(state, theirs)
    assert p == 0 or found[0].stride() == exact[0].stride()
    for ours, one in zip(found, exact, strict=True):
        assert same_bits(torch.where(ours.isnan(), 0, ours), torch.where(one.isnan(), 0, one))
        assert torch.equal(ours.isnan(), one.isnan())


@pytest.mark.few(4)
@pytest.mark.parametrize("p", RATES)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_arithmetic_around_it_has_the_bits_of_pytorch(
    device: str, dtype: torch.dtype, layout: str, p: float, modules: dict[str, ModuleType]
) -> None:
    x = drawn(layout, device).to(dtype)
    given = [x, torch.randn(19).to(x), torch.randn(37, 19).to(x)]
    found, state = graded(lambda *t: modules["added"].added(*t, p), given)
    exact, theirs = graded(lambda x, bias, residual: dropout(x + bias, p) + residual, given)
    assert torch.equal(state, theirs)
    value, of_x, of_bias, of_residual = found
    assert torch.equal(value, exact[0])
    assert torch.equal(of_x, exact[1])
    assert torch.equal(of_residual, exact[3])
    torch.testing.assert_close(of_bias, exact[2])


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_an_activation_keeps_its_promise_behind_the_mask(
    device: str, p: float, dtype: torch.dtype, modules: dict[str, ModuleType]
) -> None:
    x = torch.randn(64, 65).to(device, dtype)
    [y, slope], state = graded(lambda t: modules["activated"].activated(t, p), [x])
    kept, after = seeded(dropout, torch.ones_like(x), p)
    [like, theirs], _ = graded(lambda t: gelu(t) * (kept != 0).double() / max(1 - p, 1e-9), [x.double()])
    assert torch.equal(state, after)
    assert torch.equal(y == 0, like == 0)
    near = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(y, like.to(dtype), rtol=near, atol=near)
    torch.testing.assert_close(slope, theirs.to(dtype), rtol=near, atol=near)


@pytest.mark.parametrize(
    ("key", "counter", "numbers"),  # of Random123's kat_vectors
    [
        (0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**64 - 1, 2**128 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            0x0370734413198A2E85A308D3243F6A88,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_random_numbers_are_those_of_philox(key: int, counter: int, numbers: tuple[int, ...]) -> None:
    assert four_numbers(key, counter) == numbers


@pytest.mark.parametrize("p", [1e-12, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-7])
def test_elements_are_kept_below_the_threshold_of_pytorch(p: float) -> None:
    below = philox.threshold(p)
    near = torch.tensor([below - 1, below]).clamp(min=0)
    uniform = near.float() * 2.0**-32 + 2.0**-33  # as curand_uniform, in float
    assert (uniform < torch.tensor(1 - p, dtype=torch.float64).float()).tolist() == [below > 0, False]


@pytest.mark.parametrize("dtype", masks.DTYPES)
@pytest.mark.parametrize("shape", [(12,), (8, 20), (1031, 4116), (2, 3, 520, 1288)])
@pytest.mark.parametrize("device", [GPU])
def test_the_kernel_draws_the_masks_of_pytorch(
    device: str, shape: tuple[int, ...], dtype: torch.dtype, modules: dict[str, ModuleType]
) -> None:
    added, kernels = modules["added"].added, modules["added"].KERNELS
    x, bias, residual = (torch.randn(of, device=device).to(dtype) for of in (shape, shape[-1:], shape))
    (kept, scale), _ = seeded(lambda t: kernels.dropout(0.3, True, t, bias), x)
    assert hasattr(kept, "fusegen_draw")
    assert torch.equal(kept.fusegen_draw.mask(), kept)
    assert torch.equal(kept, seeded(torch.native_dropout, x + bias, 0.3, True)[0][1].to(dtype))
    found, state = graded(lambda *t: added(*t, 0.3), [x, bias, residual])
    _, theirs = seeded(dropout, x, 0.3)
    assert torch.equal(state, theirs)
    given = [t.double() for t in (x, bias, residual)]
    exact, _ = graded(lambda x, bias, residual: (x + bias) * (kept.double() * scale) + residual, given)
    terms = (given[0] + given[1]).abs() * scale + given[2].abs()  # of which each may be rounded
    eps = torch.finfo(dtype).eps
    for ours, one, sizes in zip(found, exact, (terms, 1, 8, 1), strict=True):
        assert bool(((ours.double() - one).abs() <= eps * (one.abs() + sizes)).all())
    once, again = (seeded(added, x, bias, residual, 0.3)[0] for _ in range(2))
    assert same_bits(once, again)
    assert same_bits(once, found[0])


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_mask_is_drawn_again_for_gradients(
    device: str, modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    added, kernels = modules["added"].added, modules["added"].KERNELS
    drawing = Drawing(kernels, monkeypatch) if device == "cpu" else None
    x, bias, residual = (torch.randn(of, device=device) for of in ((64, 32), (32,), (64, 32)))
    x.requires_grad_()
    y = added(x, bias, residual, 0.5)
    assert [t.shape for t in y.grad_fn.saved_tensors if t is not None] == []  # no mask, and no input
    assert drawing is None or drawing.living() == 0
    kept = (y.detach() != residual).float()
    assert 0.4 < float(kept.mean()) < 0.6
    [plain] = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
    assert torch.equal(plain, kept * 2)
    rows = torch.randn(3, 64, 32, device=device)
    [several] = torch.autograd.grad(y, x, rows, retain_graph=True, is_grads_batched=True)
    torch.testing.assert_close(several, rows * kept * 2)
    incoming = torch.randn_like(y).requires_grad_()
    [first] = torch.autograd.grad(y, x, incoming, create_graph=True)
    torch.testing.assert_close(first, incoming * kept * 2)
    [second] = torch.autograd.grad(first.sum(), incoming)
    torch.testing.assert_close(second, kept * 2)
    assert drawing is None or drawing.fills == 4


@pytest.mark.full
def test_several_masks_are_drawn_again(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    function, kernels = modules["several"].several, modules["several"].KERNELS
    x, y, weight = (torch.randn(of) for of in ((8, 16), (16,), (16,)))
    drawing = Drawing(kernels, monkeypatch)
    found, _ = graded(lambda *t: function(*t, p=0.25, rate=0.5), [x, y, weight])
    of_h, of_y, of_difference = (
        mask_of(place, t, p)
        for place, t, p in zip(drawing.places[:3], (x, y, y), (0.25, 0.5, 0.5), strict=True)
    )

    def expected(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        h = relu(x * weight) * of_h / 0.75
        return h * 2 + (y * of_y * 2 - weight) * of_difference * 2 * 0.5

    exact, _ = graded(expected, [x.double(), y.double(), weight.double()])
    for ours, one in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.double(), one, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("device", [GPU])
def test_each_replay_of_a_graph_draws_another_mask(device: str, modules: dict[str, ModuleType]) -> None:
    x, bias, residual = (torch.randn(of, device=device) for of in ((64, 32), (32,), (64, 32)))
    modules["added"].added(x, bias, residual, 0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = modules["added"].added(x, bias, residual, 0.5)
    graph.replay()
    once = captured.clone()
    graph.replay()
    assert not torch.equal(captured, once)


@pytest.mark.parametrize("dtype", masks.DTYPES)
def test_a_kernel_of_masks_writes_the_numbers_of_philox(dtype: torch.dtype) -> None:
    for width, offset in itertools.product((4, 8)[: 4 // dtype.itemsize], (0, 2**34 - 8, 2**35 + 8)):
        for numel in (4, 12, 24, 1000, 4100):
            if numel % width == 0:
                place = philox.Place(SEED, offset, 6, width)  # few threads, which take many turns
                like = torch.empty(numel, dtype=dtype)
                mask = filled_by_kernel(like, place, 0.4)
                assert same_bits(mask, mask_of(place, like, 0.4).to(dtype))


@pytest.mark.full
def test_an_operator_writes_masks_in_the_order_of_their_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "load", lambda *kernel: bound(tmp_path))  # by the first use
    of, place = masks.kernels(), philox.Place(SEED, 40, 256, 4)
    operator = of.drawn
    for like in (torch.empty(4, 6), torch.empty(6, 4).t(), drawn("channels_last", "cpu")):
        mask = torch.empty_like(like)
        operator(mask, *masks.scalars_of(place, 0.4), mask)
        expected = mask_of(place, torch.empty(like.numel()), 0.4).float()
        assert torch.equal(mask.as_strided((like.numel(),), (1,)), expected)
    with pytest.raises(RuntimeError, match="mask: expected a mask in float32, float16 or bfloat16"):
        operator(mask.double(), *masks.scalars_of(place, 0.4), mask.double())
    assert builds.is_loaded(of, of.operators, *masks.KERNELS, "cpu")


def test_a_kernel_refuses_other_masks() -> None:
    place = philox.Place(SEED, 0, 256, 4)
    for numel, shift in ((6, 0), (8, 1)):
        with pytest.raises(AssertionError, match="a mask has gaps, or another number of elements"):
            filled_by_kernel(torch.empty(numel), place, 0.4, shift)


@pytest.mark.parametrize(
    ("dtype", "theirs", "found"),  # how many neighbours a thread of PyTorch's takes
    [
        (torch.half, 8, 8),
        (torch.half, 4, 4),
        (torch.half, 2, 0),
        (torch.float32, 4, 4),
        (torch.float32, 8, 0),
    ],
)
def test_masks_are_compared_before_the_first(
    dtype: torch.dtype, theirs: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = Drawing(None, monkeypatch, theirs)
    before = drawing.generator.get_state()
    masks.widest.cache_clear()
    assert masks.widest(torch.device("cpu"), dtype) == found
    assert drawing.generator.get_state() == before
    masks.widest.cache_clear()
    monkeypatch.setattr(masks, "fill", lambda *of: drawing.refuse())
    assert masks.widest(torch.device("cpu"), dtype) == 0  # PyTorch draws where the kernel cannot be built
    assert drawing.generator.get_state() == before
    masks.widest.cache_clear()


def several(x: Tensor, y: Tensor, weight: Tensor, p: float, rate: float) -> Tensor:
    h = dropout(relu(x * weight), p)
    return h * 2.0 + dropout(dropout(y, 0.5) - weight, rate) * rate


def test_several_dropouts_draw_in_the_order_of_pytorch(modules: dict[str, ModuleType]) -> None:
    x, y, weight = torch.randn(8, 16).double(), torch.randn(16).double(), torch.randn(16).double()
    function = modules["several"].several
    for p, rate in itertools.product((0.0, 0.25, 1.0), (0.0, 0.5, 1.0)):
        found, state = graded(partial(function, p=p, rate=rate), [x, y, weight])
        exact, theirs = graded(partial(several, p=p, rate=rate), [x, y, weight])
        assert torch.equal(state, theirs)
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)


def test_the_layer_trains_and_evaluates(modules: dict[str, ModuleType]) -> None:
    model = modules["several"].ModelNew(0.75).double()
    assert repr(model) == "Several(p=0.75, alpha=2.0, rate=0.5)"
    x, y = torch.randn(8, 16).double(), torch.randn(16).double()
    weight = model.weight.detach()
    found, state = seeded(model, x, y)
    exact, theirs = seeded(several, x, y, weight, 0.75, 0.5)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)
    assert torch.equal(state, theirs)
    before = torch.get_rng_state()
    torch.testing.assert_close(model.eval()(x, y), relu(x * weight) * 2 + (y - weight) * 0.5)
    assert torch.equal(torch.get_rng_state(), before)
    added = modules["added"].added
    given = torch.randn(8, 16), torch.randn(16), torch.randn(8, 16)
    assert torch.equal(added(*given, training=False), given[0] + given[1] + given[2])
    assert repr(modules["added"].ModelNew()) == "Added(p=0.1)"


def dropped(t: Tensor) -> Tensor:
    return dropout(gelu(t), 0.3)


@pytest.mark.full
def test_transforms_have_the_randomness_of_pytorch(modules: dict[str, ModuleType]) -> None:
    activated, x = modules["activated"].activated, torch.randn(5, 8, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.vmap(activated)(x)
    for way in ("same", "different"):
        found, state = seeded(torch.vmap(partial(activated, p=0.3), randomness=way), x)
        exact, theirs = seeded(torch.vmap(dropped, randomness=way), x)
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-14)
        assert torch.equal(state, theirs)
    torch.testing.assert_close(torch.vmap(lambda t: activated(t, training=False))(x), gelu(x))

    def ours(t: Tensor) -> Any:
        return seeded(activated, t, 0.3)[0]

    def expected(t: Tensor) -> Any:
        return seeded(dropped, t)[0]

    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(ours, leaf, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(ours, leaf, check_fwd_over_rev=True)
    torch.testing.assert_close(torch.func.jvp(ours, (x,), (x,)), torch.func.jvp(expected, (x,), (x,)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compilers_draw_as_they_do_for_pytorch(backend: str, modules: dict[str, ModuleType]) -> None:
    torch.compiler.reset()
    x = torch.randn(16, 33)
    model = torch.compile(modules["activated"].ModelNew(0.3), fullgraph=True, backend=backend)
    theirs = torch.compile(dropped, fullgraph=True, backend=backend)
    (found, state), (exact, after) = graded(model, [x]), graded(theirs, [x])
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)
    assert torch.equal(found[0] == 0, exact[0] == 0)
    assert torch.equal(state, after)


def test_each_run_of_a_recorded_program_draws_another_mask(modules: dict[str, ModuleType]) -> None:
    model, x = modules["activated"].ModelNew(0.5), torch.randn(64, 64)
    exported = torch.export.export(model, (x,)).module()
    for recorded in (exported, torch.fx.symbolic_trace(model)):
        one, other = recorded(x), recorded(x)
        assert 0.4 < float((one == 0).double().mean()) < 0.6
        assert not torch.equal(one, other)
        assert torch.equal(seeded(recorded, x)[0], seeded(recorded, x)[0])


def test_other_tensors_are_dropped_too(modules: dict[str, ModuleType]) -> None:
    added, activated = modules["added"].added, modules["activated"].activated
    x, bias = torch.randn(8, 16).half(), torch.randn(16).half()
    residual = torch.randn(8, 16)
    found, state = seeded(added, x, bias, residual, 0.5)
    exact, theirs = seeded(lambda: dropout(x + bias, 0.5) + residual)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=1e-2, atol=1e-2)
    assert torch.equal(state, theirs)
    ragged = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(2, 4)], layout=torch.jagged)
    assert activated(ragged, 0.5).shape == ragged.shape
    assert activated(torch.randn(3, 4, device="meta"), 0.5).shape == (3, 4)
    out = torch.empty(8, 16)
    given = torch.randn(8, 16)
    assert seeded(activated, given, 0.5, out=out)[0] is out
    assert torch.equal(out, seeded(activated, given, 0.5)[0])
    with torch.inference_mode():
        activated(given.double(), training=False)
    leaf = given.double().requires_grad_()
    activated(leaf, training=False).sum().backward()  # saves the mask that evaluation has


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ((torch.ones(3), 1.5), ValueError, "dropout probability has to be between 0 and 1, but got 1.5"),
        ((torch.ones(3), -0.1), ValueError, "dropout probability has to be between 0 and 1, but got -0.1"),
        ((torch.ones(3), torch.nan), ValueError, "dropout probability has to be between 0 and 1"),
        ((torch.ones(3), "a"), TypeError, "p must be a number, not str"),
        ((None,), TypeError, "a tensor is missing"),
    ],
)
def test_what_pytorch_refuses_is_refused(
    given: tuple[Any, ...], error: type[Exception], says: str, modules: dict[str, ModuleType]
) -> None:
    with pytest.raises(error) as told:
        modules["activated"].activated(*given)
    assert str(told.value).startswith(f"activated: {says}")


def test_a_gradient_is_written_for_no_mask(modules: dict[str, ModuleType]) -> None:
    kernels = modules["added"].KERNELS
    assert kernels.signature.indices == 1
    assert "kept" in kernels.signature.saved
    x = torch.ones(4, 16, requires_grad=True)
    y = modules["added"].added(x, torch.ones(16), torch.ones(4, 16), 0.5)
    [saved] = [t for t in y.grad_fn.saved_tensors if t is not None]
    assert saved.unique().tolist() in ([0.0, 1.0], [0.0], [1.0])  # the mask alone: no input is kept


@pytest.mark.full
def test_the_kernels_of_cuda_read_the_mask(tmp_path: Path, modules: dict[str, ModuleType]) -> None:
    kernels = emulated(modules["added"], "added", tmp_path, params=1)
    x, bias, residual = torch.randn(8, 16), torch.randn(1, 16).expand(8, 16), torch.randn(8, 16)
    kept = (torch.rand(8, 16) < 0.5).float()
    [y] = run(kernels.forward, x, bias, residual, kept, params=(2.0,))
    assert torch.equal(y, (x + bias) * (kept * 2) + residual)
    grad, value = torch.randint(-4, 5, (8, 16)).float(), torch.tensor(0.0)
    own = (torch.zeros(8, 16), torch.zeros(16), value)
    sums = run_sums(kernels, grad, *own, kept, of=(0, 1, 2), params=(2.0,))
    dropped = grad * kept * 2
    assert [torch.equal(*pair) for pair in zip(sums, (dropped, dropped.sum(0), grad.sum()), strict=True)]
    [_, of_bias, _] = modules["added"].KERNELS.backward(grad, *own, kept, 2.0)
    assert torch.equal(of_bias, dropped.sum(0))


@pytest.mark.full
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_nvcc_compiles_it(tmp_path: Path, modules: dict[str, ModuleType]) -> None:
    for name, text in (("added", modules["added"].CUDA_TEXT), ("mask", masks.texts_of_kernels().cuda)):
        nvcc(tmp_path, name, text, *CUDA_FLAGS, "-ptx", "-arch=compute_90")


@pytest.mark.full
def test_one_file_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "added.yaml"
    path.write_text(f"name: added\nsummary: A test.\n{ADDED}", encoding="utf-8")
    single = tmp_path / "single.py"
    single.write_text(standalone.text(build.module(build.compiled_file(path)), "stable"), encoding="utf-8")
    x, bias, residual = torch.randn(8, 16), torch.randn(16), torch.randn(8, 16)
    found = seeded(load(single).added, x, bias, residual, 0.5)[0]
    assert torch.equal(found, seeded(lambda: dropout(x + bias, 0.5) + residual)[0])


def test_commands_that_compare_results_refuse_it(workshop: Workshop) -> None:
    workshop.spec("added", ADDED)
    workshop.spec("outer", "formula: added(x, x, x)\n")
    assert "'added' has dropout, so it cannot be used inside" in workshop.run("build", "outer").output
    with pytest.raises(FusegenError, match="has dropout, and bench compares the results"):
        Competitors(spec(ADDED), ModuleType("added"), Case("added", "forward", "float32", (8,), "cpu"))


def test_formulas_are_written_as_declared() -> None:
    assert notation(spec(BODIES["added"])) == "y = dropout(x + bias, p) + residual"
    assert notation(spec(BODIES["activated"])) == "x = gelu(x),  y = dropout(x, p)"
    several_ = spec(BODIES["several"])
    assert [each.rate for each in several_.dropouts] == ["p", "0.5", "rate"]
    assert [each.name for each in several_.rates] == ["p"]
    assert [each.reads for each in several_.dropouts] == [("x", "weight"), ("y",), ("y", "weight")]


class Block(nn.Module):
    """A product, an activation and dropout, which a spec of layers replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 32)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Any:
        """Return the dropped activation of a product."""
        return self.drop(relu(self.linear(x)))


@pytest.mark.full
def test_dropout_stands_behind_layers(tmp_path: Path) -> None:
    body = (
        "inputs: {x: {shape: [8, 16]}}\ninit: {p: 0.25}\nlayers: [linear: 'Linear(16, 32)']\n"
        "chain: [relu, dropout(p=p)]\n"
    )
    module = Modules(tmp_path, {"behind": body})["behind"]
    torch.manual_seed(0)
    theirs = Block()
    torch.manual_seed(0)
    ours = module.ModelNew()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    x = torch.randn(8, 16)
    (found, state), (exact, after) = seeded(ours, x), seeded(theirs, x)
    torch.testing.assert_close(found, exact)
    assert torch.equal(found == 0, exact == 0)
    assert torch.equal(state, after)
