"""The backend of torch.compile: generated kernels for pointwise regions, Inductor for the rest."""

import ast
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import ROOT
from processes import told
from torch import Tensor, fx, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import config, metrics
from torch._inductor.utils import fresh_cache, run_and_get_code

from fusegen.models.backend import fusegen, put_kernels_in
from fusegen.models.lift.dynamo_graph import operators_of
from fusegen.models.lift.found import regions_of
from fusegen.models.lift.modes import Modes
from fusegen.models.lift.regions.pointwise import pointwise
from fusegen.models.lift.rule import Rule
from fusegen.models.reader.aten_table import GUARDED

Call = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore:(?!.*fusegen)")  # inductor's own


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of regions; nothing was compiled before."""
    torch._dynamo.reset()
    metrics.reset()
    monkeypatch.chdir(tmp_path)
    with fresh_cache(), config.patch(joint_custom_pre_pass=None):
        yield tmp_path / "fusegen_regions"


def compiled(call: Call, **options: Any) -> Any:
    return torch.compile(call, backend=fusegen, fullgraph=True, **options)


def chain(x: Tensor) -> Tensor:
    return (F.gelu(x + 1) * 2).relu()


def with_gradient(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the gradient of a sum of squares, which reads the value."""
    leaf = x.clone().requires_grad_()
    value = call(leaf)
    return value.detach(), torch.autograd.grad(value.square().sum(), leaf)[0]


def error(actual: Tensor, exact: Tensor) -> float:
    """The largest error in ulp of the exact value."""
    ulp = torch.ldexp(torch.ones_like(exact), torch.frexp(exact.abs().clamp(min=2.0**-126))[1] - 24)
    return float(((actual.double() - exact).abs() / ulp).max())


def test_a_chain_is_one_kernel_as_accurate_as_the_contract(folder: Path) -> None:
    """At most 4 ulp, where a gradient has those of a square, which doubles them, and of its factor."""
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 3
    exact = with_gradient(chain, x.double())
    (ours, slope), codes = run_and_get_code(with_gradient, compiled(chain), x)
    assert metrics.generated_kernel_count == 0
    calls = [line for line in codes[0].splitlines() if "= torch.ops.fusegen_add_gelu_mul_relu" in line]
    assert len(calls) == 1
    assert "_backward.default(" in codes[1]
    assert error(ours, exact[0]) <= 4
    assert error(slope, exact[1]) <= 16
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        *("MANIFEST.toml", "_runtime", "add_gelu_mul_relu.py", "add_gelu_mul_relu.yaml")
    ]


LAYERS: dict[str, nn.Module] = {
    "hardswish(x)": nn.Hardswish(),
    "hardsigmoid(x)": nn.Hardsigmoid(),
    "hardtanh(x)": nn.Hardtanh(),
    "hardtanh(x, min_val=-2.0, max_val=2.0)": nn.Hardtanh(-2.0, 2.0),
    "relu6(x)": nn.ReLU6(),
    "elu(x)": nn.ELU(),
    "leaky_relu(x)": nn.LeakyReLU(),
    "selu(x)": nn.SELU(),
    "celu(x)": nn.CELU(),
    "relu(x)": nn.ReLU(),
    "silu(x)": nn.SiLU(),
}


@pytest.mark.parametrize("formula", LAYERS)
def test_an_activation_is_known_as_dynamo_records_it(formula: str) -> None:
    """Arguments by their places, and the one that says whether the call writes in place."""
    found = []

    def read(graph: fx.GraphModule, inputs: object) -> Call:
        [node] = [node for node in operators_of(graph).graph.nodes if node.op == "call_function"]
        found.append(ast.unparse(pointwise(node).body).replace(f"%{node.args[0]}", "x"))
        return graph.forward

    torch.compile(LAYERS[formula], backend=read, fullgraph=True)(torch.randn(8))
    assert found == [formula]


def handed_on(x: Tensor, y: Tensor) -> Tensor:
    """Casts, copies, views and dropout that hand on what they read."""
    z = F.dropout(x.to(x.dtype).contiguous(), 0.5, training=False) * 1
    z = z.float().reshape(x.shape) * 2
    return torch.sigmoid(z.type_as(y).contiguous()) / 1 + y


def cast(x: Tensor, y: Tensor) -> Tensor:
    """A cast to another dtype, a copy of another layout, and dropout that drops."""
    z = ((x.t() * 2).contiguous() * 3).half().float().t() + y
    return F.dropout(torch.tanh(z * 2), 0.5, training=True)


def with_a_size(x: Tensor, y: Tensor) -> Tensor:
    """A size as a number, and a view."""
    return (torch.relu(x.view(x.size(0), -1) * 2) * x.size(1)).softmax(-1) @ y.mT


HANDED_ON = ["chain: [x * 2, sigmoid, x + y]"]
CAST = ["formula: x * 2", "formula: x * 3", "chain: [x + y, x * 2, tanh]"]
SIZED = ["chain: [x * 2, relu, x * 4]"]
FORMULAS: dict[str, tuple[Call, bool, list[str]]] = {  # whether sizes are symbols
    "what hands on its input": (handed_on, False, HANDED_ON),
    "what hands on its input, of any size": (handed_on, True, HANDED_ON),
    "what does not": (cast, False, CAST),
    "what does not, of any size": (cast, True, CAST),
    "a size": (with_a_size, False, SIZED),
    "a size that is a symbol": (with_a_size, True, ["chain: [x * 2, relu]"]),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("case", FORMULAS)
def test_the_formulas_of_a_graph_for_one_dtype_and_layout(case: str) -> None:
    function, dynamic, expected = FORMULAS[case]
    found: list[str] = []

    def read(graph: fx.GraphModule, _: object) -> Call:
        rule, made = Rule(1, rows=GUARDED), operators_of(graph)
        for region in regions_of(made, Modes((made.graph,)), rule).chosen:
            found.append(" ".join(line.strip() for line in region.formula))
        return graph.forward

    run = torch.compile(function, backend=read, fullgraph=True, dynamic=dynamic)
    run(torch.randn(8, 4), torch.randn(8, 4))
    assert found == expected


class Scaled(nn.Module):
    """Two equal regions, each with a parameter of its own name."""

    def __init__(self) -> None:
        """Make the parameters."""
        super().__init__()
        self.first, self.second = nn.Parameter(torch.rand(8)), nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the input's shape."""
        x = (torch.tanh(x) * self.first + x).softmax(-1)
        return torch.tanh(x) * self.second + x


def write_item(x: Tensor) -> Tensor:
    y = x * 2
    before = y.exp()
    y[0] = 5.0
    return before.tanh() * y.sin()


def write_out(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    before = y.exp()
    torch.mul(x, 2, out=y)
    return before.tanh() * y.sin()


def write_statistics(x: Tensor) -> Tensor:
    mean, variance = x.mean(0), x.var(0)
    before = mean.exp()
    return before.tanh() * F.batch_norm(x, mean, variance, training=True).square().mean(0)


@pytest.mark.parametrize("forward", [write_item, write_out, write_statistics])
def test_no_region_reads_behind_a_write_what_is_read_before(forward: Call, folder: Path) -> None:
    def put(graph: fx.GraphModule, _: Any) -> Call:
        assert put_kernels_in(graph, folder) == 0
        return graph

    x = torch.linspace(-1, 1, 32).view(4, 8)
    torch.testing.assert_close(torch.compile(forward, backend=put, fullgraph=True)(x), forward(x))


@pytest.mark.full
def test_equal_regions_run_one_kernel_whatever_the_names_of_their_inputs(folder: Path) -> None:
    model, x = Scaled(), torch.randn(4, 8)

    def put(graph: fx.GraphModule, _: Any) -> Call:
        assert put_kernels_in(graph, folder) == 2
        return graph

    results = []
    for each in (torch.compile(model, backend=put, fullgraph=True), model):
        value = each(x)
        results.append([value, *torch.autograd.grad(value.square().sum(), [*model.parameters()])])
    torch.testing.assert_close(*results)
    [spec] = folder.glob("*.yaml")
    assert "first: {shape: [8], fill: randn}" in spec.read_text()


class Block(nn.Module):
    """Pointwise operations between layers and a norm, the same twice, with a parameter."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.scale = nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        """Two layers, a norm, and a residual."""
        y = F.hardswish(F.gelu(self.first(x))) * self.scale
        z = F.hardswish(F.gelu(self.second(y))) * self.scale
        result: Tensor = self.norm(z) + y
        return result


@pytest.mark.full
def test_regions_between_layers_are_kernels_and_equal_ones_are_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(4, 8)
    run = compiled(model)
    actual, codes = run_and_get_code(lambda: run(x))
    names = [path.stem for path in folder.glob("*.yaml")]
    assert names == ["gelu_hardswish_mul"]
    assert codes[0].count(".gelu_hardswish_mul_forward.default(") >= 2
    torch.testing.assert_close(actual, model(x))
    ours, theirs = (
        torch.autograd.grad(call(x).square().sum(), [*model.parameters()]) for call in (run, model)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_a_mask_is_read_by_a_kernel(folder: Path) -> None:
    def masked(x: Tensor, mask: Tensor, y: Tensor) -> Tensor:
        return torch.where(mask, torch.sigmoid(x) * 2, y)

    given = (torch.randn(64), torch.rand(64) > 0.5, torch.randn(64))
    _, codes = run_and_get_code(compiled(masked), *given)
    torch.testing.assert_close(compiled(masked)(*given), masked(*given))
    assert "torch.ops.fusegen_" in codes[0]
    assert [*folder.glob("*.yaml")]


def in_place(x: Tensor) -> Tensor:
    x.add_(1)
    return F.gelu(x) * 2


def without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = torch.sigmoid(x) * 2
    return torch.tanh(y) * x


LEFT: dict[str, Call] = {  # graphs that have no region, or in which regions could change the meaning
    "one operation": lambda x: x.relu(),
    "a write to an input": in_place,
    "a part without gradients": without_gradient,
    "no pointwise operation": lambda x: x @ x.mT,
    "integers": lambda x: (x.long() + 1) * 2,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", LEFT)
def test_a_graph_without_regions_is_inductors(case: str, folder: Path) -> None:
    call = LEFT[case]
    one, two = torch.randn(3, 3), torch.randn(3, 3)
    two.copy_(one)
    torch.testing.assert_close(compiled(call)(one), call(two))
    assert torch.equal(one, two)
    assert not folder.exists()


@pytest.mark.full
def test_a_part_without_gradients_gets_none() -> None:
    x = torch.randn(8)
    for ours, theirs in zip(
        with_gradient(compiled(without_gradient), x), with_gradient(without_gradient, x), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


SCRIPT = """
import os, torch
import torch.nn.functional as F
from fusegen.models.backend import fusegen, put_kernels_in
call = torch.compile(lambda x: (F.gelu(x + 1) * 2).relu(), backend=fusegen, fullgraph=True)
print(round(call(torch.ones(4)).sum().item(), 3))
"""


@pytest.mark.full
def test_a_second_process_builds_nothing(folder: Path, tmp_path: Path) -> None:
    extensions = tmp_path / "extensions"

    def files() -> dict[Path, int]:
        places = (folder, extensions)
        return {
            path: path.stat().st_mtime_ns
            for place in places
            for path in place.rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }

    assert told(SCRIPT, extensions, FUSEGEN_REGIONS=str(folder), PYTHONPATH=str(ROOT)) == "15.636\n"
    before = files()
    assert told(SCRIPT, extensions, FUSEGEN_REGIONS=str(folder), PYTHONPATH=str(ROOT)) == "15.636\n"
    assert files() == before


@pytest.mark.full
def test_options_name_the_folder_and_inductors_options(folder: Path, tmp_path: Path) -> None:
    seen: list[Any] = []
    other = tmp_path / "other"
    options = {"regions": str(other), "joint_custom_post_pass": seen.append}
    call = compiled(lambda x: chain(x).sum(0), options=options)
    x = torch.randn(4, 5)
    torch.testing.assert_close(call(x), chain(x).sum(0))
    assert len(seen) == 1
    assert (other / "add_gelu_mul_relu.py").exists()
    assert not folder.exists()


@pytest.mark.full
def test_a_mode_is_inductors() -> None:
    seen: list[Any] = []

    def look(graph: Any) -> None:
        seen.append((config.max_autotune, config.coordinate_descent_tuning))

    with config.patch(joint_custom_post_pass=look):
        x = torch.randn(4, 5)
        call = compiled(lambda x: chain(x).sum(0), mode="max-autotune-no-cudagraphs")
        torch.testing.assert_close(call(x), chain(x).sum(0))
    assert seen == [(True, True)]


def test_a_folder_that_cannot_be_used_is_one_warning(folder: Path) -> None:
    folder.write_text("mine\n", encoding="utf-8")
    x = torch.randn(4)
    with warnings.catch_warnings(record=True) as told_of:
        warnings.simplefilter("always")
        torch.testing.assert_close(compiled(chain)(x), chain(x))
    sentences = [str(each.message) for each in told_of if "Inductor compiles" in str(each.message)]
    assert len(sentences) == 1
    assert sentences[0].startswith("fusegen_regions")
    assert folder.read_text(encoding="utf-8") == "mine\n"


@pytest.mark.full
def test_sizes_may_change(folder: Path) -> None:
    backend: Any = fusegen
    counter = CompileCounterWithBackend(backend)
    call = torch.compile(chain, backend=counter, fullgraph=True, dynamic=True)
    for size in (3, 5, 64):
        x = torch.randn(size, 7)
        torch.testing.assert_close(call(x), chain(x))
    assert counter.frame_count == 1
    assert len([*folder.glob("*.yaml")]) == 1
