"""A table of forms: a committed module of each form is given the same calls, and compared with PyTorch.

A further form needs a row. What a form does on a GPU, `test_mask.py`, `test_thin.py` and
`test_multiplied.py` emulate; here its modules run on the CPU, whatever the layout, the
dtype or the compiler.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import library_spec
from kernels import DTYPES, LAYOUTS, arranged, function, generated, meaningful_strides
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.export import Dim, export, load, save
from torch.fx.experimental.proxy_tensor import make_fx

from fusegen.schedule.forms import (
    BITMASK,
    BROADCAST,
    ELEMENTWISE,
    FORMS,
    LINEAR,
    THIN_CONVOLUTION,
)

Call = Callable[..., Tensor]
POLICIES, BATCHES = ("auto", "kernel", "decompose"), (3, 5, 8)
BEYOND = 2**31  # elements, which no 32-bit index reaches
CHANNELS = 4
ERRORS = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
pytestmark = [pytest.mark.usefixtures("extensions"), pytest.mark.filterwarnings("ignore")]  # of torch's own


@dataclass(frozen=True)
class Row:
    """A module whose kernels have a form."""

    name: str  # of the module
    eager: Call  # the same in PyTorch's operations
    operands: Callable[[Tensor], list[Tensor]] = lambda _: []  # the further tensors, for a first one

    @property
    def operator(self) -> str:
        """The name of its operator."""
        return self.name.rpartition("/")[2]

    def given(self, x: Tensor) -> list[Tensor]:
        """All tensors of a call, which require gradients."""
        return [t.detach().requires_grad_() for t in (x, *self.operands(x))]


def of_the_last(x: Tensor) -> list[Tensor]:
    """A tensor of the last dimension."""
    return [torch.linspace(-2, 3, (x.shape or (1,))[-1], dtype=x.dtype).view(x.shape[-1:])]


def of_channels(x: Tensor) -> list[Tensor]:
    """A bias of the channels, where there are any."""
    sizes = (x.shape[-3], 1, 1) if x.dim() > 2 else ()
    return [torch.linspace(-1, 1, max(1, sizes[0]) if sizes else 1, dtype=x.dtype).view(sizes)]


def hard(x: Tensor, bias: Tensor) -> Tensor:
    """The function of conv_relu_hardswish behind the convolution."""
    y = F.relu(x + bias)
    return y * torch.clamp((y + 3) / 6, 0, 1)


CONVOLUTION = Row("conv_relu_hardswish", hard, of_channels)
ROWS = {
    ELEMENTWISE.name: Row("gelu", F.gelu),
    BROADCAST.name: Row("geglu", lambda gate, up: F.gelu(gate) * up, of_the_last),
    BITMASK.name: Row("relu", F.relu),
    THIN_CONVOLUTION.name: CONVOLUTION,
    LINEAR.name: Row("kernelbench/linear_scale_leaky_relu", lambda x: F.leaky_relu(x * 2, 0.1)),
}
by_form = pytest.mark.parametrize("form", ROWS)
by_row = pytest.mark.parametrize("row", dict.fromkeys(ROWS.values()), ids=lambda row: row.name)


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest, row: Row) -> Any:
    """A policy under torch.compile, for a module that nothing was compiled of."""
    torch._dynamo.reset()
    kernels = generated(row.name).KERNELS
    kernels.compile_policy = request.param
    yield request.param
    kernels.compile_policy = None


def assert_close(call: Call, row: Row, given: list[Tensor]) -> Tensor:
    """The values and the gradients are those of eager in float64, but for a few ulp; the values."""
    dtype = given[0].dtype
    exact = [t.detach().double().requires_grad_() for t in given]
    value, expected = call(*given), row.eager(*exact)
    incoming = torch.ones_like(expected) * 0.75
    found = torch.autograd.grad(value, given, incoming.to(dtype))
    slopes = torch.autograd.grad(expected, exact, incoming)
    assert [(t.dtype, t.shape) for t in (value, *found)] == [(dtype, t.shape) for t in (expected, *slopes)]
    for one, other in zip((value, *found), (expected, *slopes), strict=True):
        scale = other.abs().amax().clamp(min=1) if other.numel() else 1.0  # a sum has errors of its terms
        bound = ERRORS[dtype]
        torch.testing.assert_close(one.double() / scale, other / scale, rtol=bound, atol=bound)
    return value


@by_form
def test_each_form_has_a_module(form: str) -> None:
    assert ROWS.keys() == {each.name for each in FORMS}
    assert form in {each.name for each in library_spec(ROWS[form].name).forms}


@pytest.mark.few
@by_row
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.together
def test_a_layout_gives_eagers_values_strides_and_gradients(
    row: Row, layout: str, dtype: torch.dtype
) -> None:
    given = row.given(arranged(layout, dtype))
    value = assert_close(function(row.name), row, given)
    assert meaningful_strides(value) == meaningful_strides(row.eager(*given))


@by_row
def test_elements_may_lie_beyond_32_bits(row: Row) -> None:
    memory = torch.empty(BEYOND + 64, dtype=torch.float16)  # of which the system gives two pages only
    x = memory.as_strided((2, CHANNELS, 1, 3), (BEYOND, 5, 1, 1))
    x.copy_(torch.linspace(-4, 4, x.numel()).view(x.shape))
    assert_close(function(row.name), row, row.given(x))


@by_row
@pytest.mark.few(1)
def test_one_compilation_takes_every_batch(row: Row, policy: str) -> None:
    """Forward and backward, with no new graph for another batch, and for none."""
    counter = CompileCounterWithBackend("aot_eager")
    call = torch.compile(function(row.name), backend=counter, fullgraph=True, dynamic=True)
    frames = []
    for batch in BATCHES:
        assert_close(call, row, row.given(torch.randn(batch, CHANNELS, 6, 7)))
        frames.append(counter.frame_count)
    assert frames == [frames[0]] * len(BATCHES)
    assert_close(call, row, row.given(torch.randn(0, CHANNELS, 6, 7)))


@pytest.mark.few(2)
@by_row
def test_inductor_takes_it(row: Row) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)  # the sine of a large sum loses digits
    own = function(row.name)
    call = torch.compile(lambda *t: own(*(v + 1 for v in t)).sin(), fullgraph=True)
    steps = Row(row.name, lambda *t: row.eager(*(v + 1 for v in t)).sin(), row.operands)
    assert_close(call, steps, steps.given(torch.randn(3, CHANNELS, 5, 2)))


@pytest.mark.full
@by_row
@pytest.mark.few(1)
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_keeps_a_symbolic_batch(row: Row, policy: str, strict: bool) -> None:
    """It keeps the operator, too, unless the policy decomposes it; it is saved and loaded."""
    call = function(row.name)

    class Network(nn.Module):
        def forward(self, *given: Tensor) -> Tensor:
            return call(*given) * given[0].shape[0]

    given = tuple(t.detach() for t in row.given(torch.randn(3, CHANNELS, 6, 7)))
    shapes = ({0: Dim("batch")}, *({} for _ in given[1:]))
    program = export(Network(), given, dynamic_shapes=(shapes,), strict=strict)
    stored = io.BytesIO()
    save(program, stored)
    stored.seek(0)
    loaded = load(stored)
    called = [str(node.target) for node in loaded.graph.nodes if f"{row.operator}_" in str(node.target)]
    assert bool(called) == (policy != "decompose")
    for each in (loaded, loaded.run_decompositions()):
        for batch in BATCHES:
            own = [t.detach() for t in row.given(torch.randn(batch, CHANNELS, 6, 7))]
            expected = row.eager(*own) * batch
            torch.testing.assert_close(each.module()(*own), expected, rtol=1e-4, atol=5e-5)


@by_row
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_traces_the_operator(row: Row, mode: Any) -> None:
    given = [t.detach() for t in row.given(torch.randn(3, CHANNELS, 6, 7))]
    graph = make_fx(lambda *t: function(row.name)(*t), tracing_mode=mode)(*given)
    assert row.operator in graph.code
    torch.testing.assert_close(graph(*given), function(row.name)(*given), rtol=0, atol=0)
