"""The policy under torch.compile: kernels that stay, and operators that Inductor fuses with neighbours."""

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import function, generated, with_runtime
from processes import environment, told
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import config, metrics
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

Call = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore")  # inductor's own
POLICIES = ("auto", "kernel", "decompose")


def runtime(part: str) -> Any:
    """A file of the runtime that the committed modules import."""
    return importlib.import_module(f"{generated('gelu').__package__}._runtime.{part}")


@pytest.fixture(autouse=True)
def again() -> Iterator[None]:
    """Nothing that was compiled before, and no policy or pass of another test."""
    torch._dynamo.reset()
    with fresh_cache(), config.patch(joint_custom_pre_pass=None):
        yield
    runtime("policy").set_compile_policy("auto")
    generated("gelu").KERNELS.compile_policy = None


def compiled(call: Call, *given: Tensor, graded: bool) -> tuple[int, str]:
    """The number of kernels that Inductor generates for a call, and its code; results are compared."""
    metrics.reset()
    torch._dynamo.reset()
    ours = [t.clone().requires_grad_(graded) for t in given]

    @torch.set_grad_enabled(graded)
    def run(*tensors: Tensor) -> Any:
        value = torch.compile(call, fullgraph=True)(*tensors)
        return (value, *torch.autograd.grad(value.square().sum(), tensors)) if graded else (value,)

    actual, codes = run_and_get_code(run, *ours)
    expected = call(*ours)
    slopes = torch.autograd.grad(expected.square().sum(), ours) if graded else ()
    for mine, other in zip(actual, (expected, *slopes), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    return metrics.generated_kernel_count, "\n".join(codes)


def is_called(code: str, name: str, kernel: str = "") -> bool:
    return any(f"torch.ops.fusegen_{name}_" in line and f"_{kernel}" in line for line in code.splitlines())


GELU, SILU, MISH, HARDSWISH, SWIGLU = map(function, ("gelu", "silu", "mish", "hardswish", "swiglu"))
CONV_RELU_HARDSWISH = function("conv_relu_hardswish")
X = torch.randn(64, 48)
CHAINS: dict[str, tuple[Call, Call, int]] = {  # with generated operators, with PyTorch's, and tensors
    "pointwise": (lambda x: (GELU(x + 1) * 2).relu(), lambda x: (F.gelu(x + 1) * 2).relu(), 1),
    "generated": (lambda x: GELU(SILU(x)).transpose(0, 1), lambda x: F.gelu(F.silu(x)).transpose(0, 1), 1),
    "reduction": (lambda x: MISH(x).sum(-1), lambda x: F.mish(x).sum(-1), 1),
    "norm": (lambda x: HARDSWISH(F.layer_norm(x, (48,))), lambda x: F.hardswish(F.layer_norm(x, (48,))), 1),
    "gate": (lambda a, b: SWIGLU(a, b) + a, lambda a, b: F.silu(a) * b + a, 2),
    "broadcast gate": (lambda a, b: SWIGLU(a + 1, b[:1] * 2), lambda a, b: F.silu(a + 1) * (b[:1] * 2), 2),
}
CORE = ("pointwise", "reduction", "gate")  # the others are marked `full`


@pytest.mark.full
@pytest.mark.parametrize("graded", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "which", [pytest.param(c, marks=() if c in CORE else pytest.mark.full) for c in CHAINS]
)
def test_a_chain_is_as_many_kernels_as_without_generated_operators(which: str, graded: bool) -> None:
    ours, theirs, count = CHAINS[which]
    given = [X, X.flip(0)][:count]
    number, code = compiled(ours, *given, graded=graded)
    assert "fusegen" not in code
    assert number == compiled(theirs, *given, graded=graded)[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("graded", [False, True], ids=["inference", "training"])
def test_kernel_keeps_the_operator(graded: bool) -> None:
    runtime("policy").set_compile_policy("kernel")
    _, code = compiled(CHAINS["pointwise"][0], X, graded=graded)
    assert is_called(code, "gelu", "forward")
    assert is_called(code, "gelu", "backward") == graded


class Block(nn.Module):
    """Convolutions around an activation; the second may be added to what the activation gives."""

    def __init__(self, act: Call, *, residual: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.act, self.residual = act, residual

    def forward(self, x: Tensor) -> Tensor:
        """The second convolution, or its sum with what it reads."""
        y = self.act(self.first(x))
        z: Tensor = self.second(y)
        return z + y if self.residual else z


ALONE: dict[str, tuple[Call, tuple[int, ...], str]] = {  # calls of an operator without a neighbour
    "inputs and outputs": (GELU, (8, 16), "gelu"),
    "convolutions": (Block(GELU), (2, 3, 8, 8), "gelu"),
    "a residual behind a convolution": (Block(GELU, residual=True), (2, 3, 8, 8), "gelu"),
    "in place": (Block(generated("silu").ModelNew(inplace=True)), (2, 3, 8, 8), "silu"),
    "a layer's bias": (
        lambda x: F.linear(CONV_RELU_HARDSWISH(x @ x, x[0]), x),
        (8, 8),
        "conv_relu_hardswish",
    ),
    "linear layers of three dimensions": (lambda x: GELU(x @ x[0].mT) @ x[0], (2, 4, 4), "gelu"),
}


ALL = [(which, graded) for which in ALONE for graded in (False, True)]
ALL.remove(("a residual behind a convolution", True))  # where gradients are added to it


@pytest.mark.few(1)
@pytest.mark.parametrize(("which", "graded"), ALL)
def test_auto_keeps_an_operator_that_stands_alone(which: str, graded: bool) -> None:
    call, shape, name = ALONE[which]
    _, code = compiled(call, torch.randn(shape), graded=graded)
    assert is_called(code, name, "forward")
    assert is_called(code, name, "backward") == graded


@pytest.mark.full
@pytest.mark.parametrize("graded", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ["gelu", "conv_relu_hardswish"])
def test_an_operator_takes_the_layout_that_inductor_gives_a_convolution(name: str, graded: bool) -> None:
    """Inductor lays images out channels last on CUDA: without a copy before the kernel and behind it."""
    bias = torch.randn(4, 1, 1)
    act = GELU if name == "gelu" else lambda y: CONV_RELU_HARDSWISH(y, bias)
    with config.patch(force_layout_optimization=True):
        _, code = compiled(Block(act), torch.randn(2, 3, 8, 8), graded=graded)
    assert is_called(code, name, "forward")
    assert is_called(code, name, "backward") == graded
    assert not re.search(rf"fused\w*_{name}_(for|back)ward", code)


SWISH = generated("silu").ModelNew()
DERIVATIVES: dict[str, Call] = {
    "gradient": lambda x: torch.func.grad(lambda t: GELU(t).square().sum())(x),
    "of a module": lambda x: torch.func.grad(lambda t: SWISH(t).sum())(x),
    "forward mode": lambda x: torch.func.jvp(lambda t: SWIGLU(t, t + 1), (x,), (x + 2,))[1],
    "per sample": lambda x: torch.func.vmap(torch.func.grad(lambda t: MISH(t).sum()))(x),
}


@pytest.mark.full
@pytest.mark.parametrize("which", DERIVATIVES)
def test_derivatives_of_torch_func_are_compiled(which: str) -> None:
    compiled(DERIVATIVES[which], X, graded=False)


BRIEF = {  # results on a device, and whether the call of an operator takes longer than its kernel
    "small, on CUDA": ((1 << 22) - 1, torch.float32, "cuda", True),
    "16 MiB, on CUDA": (1 << 22, torch.float32, "cuda", False),
    "half as many bytes": ((1 << 23) - 1, torch.bfloat16, "cuda", True),
    "small, on the CPU": (8, torch.float32, "cpu", False),
}


@pytest.mark.parametrize("which", BRIEF)
def test_auto_decomposes_what_is_shorter_than_its_call(which: str) -> None:
    numel, dtype, device, brief = BRIEF[which]
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    of = FakeTensor(FakeTensorMode(), torch.empty(numel, dtype=dtype, device="meta"), torch.device(device))
    for value in (of, (of, of)):
        node.meta["val"] = value
        assert runtime("neighbours").is_brief(node) is brief


@pytest.mark.full
def test_a_brief_operator_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime("neighbours"), "is_brief", lambda node: True)
    _, code = compiled(Block(GELU), torch.randn(2, 3, 8, 8), graded=False)
    assert not is_called(code, "gelu")


@pytest.mark.full
@pytest.mark.parametrize("graded", [False, True], ids=["inference", "training"])
def test_decompose_leaves_no_operator(graded: bool) -> None:
    runtime("policy").set_compile_policy("decompose")
    _, code = compiled(Block(GELU), torch.randn(2, 3, 8, 8), graded=graded)
    assert "fusegen" not in code


@pytest.mark.few(1)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_policy_of_a_module_comes_before_the_policy_of_all(backend: str) -> None:
    runtime("policy").set_compile_policy("decompose")
    generated("gelu").KERNELS.compile_policy = "kernel"
    call = torch.compile(lambda x: SILU(GELU(x)), backend=backend, fullgraph=True)
    _, codes = run_and_get_code(call, X)
    if backend == "inductor":
        assert is_called(codes[0], "gelu", "forward")
        assert not is_called(codes[0], "silu")
    torch.testing.assert_close(call(X), F.silu(F.gelu(X)))


@pytest.mark.full
def test_a_policy_that_changes_compiles_anew() -> None:
    """Without a reset, by the guards of dynamo; every change has the code of its own."""
    counter = CompileCounterWithBackend("inductor")
    call = torch.compile(CHAINS["pointwise"][0], backend=counter, fullgraph=True)
    seen = []
    for policy in (*POLICIES, "auto"):
        runtime("policy").set_compile_policy(policy)
        metrics.reset()
        call(X)
        seen.append((counter.frame_count, metrics.generated_kernel_count))
    assert [frames for frames, _ in seen] == [1, 2, 3, 3]
    assert [kernels for _, kernels in seen] == [1, 2, 1, 0]
    generated("gelu").KERNELS.compile_policy = "kernel"
    call(X)
    assert counter.frame_count == 4


SENTENCE = "must be 'auto', 'kernel' or 'decompose', not 'fused'"


def test_another_policy_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^the policy under torch.compile {SENTENCE}$"):
        runtime("policy").set_compile_policy("fused")
    with pytest.raises(ValueError, match=f"^gelu: compile_policy {SENTENCE}$"):
        generated("gelu").KERNELS.compile_policy = "fused"
    code = "try:\n  import generated.gelu\nexcept ValueError as error: print(error)"
    assert told(code, tmp_path, FUSEGEN_COMPILE="fused") == f"FUSEGEN_COMPILE {SENTENCE}\n"


def test_the_policy_before_is_returned() -> None:
    assert runtime("policy").set_compile_policy("kernel") == "auto"
    assert runtime("policy").set_compile_policy("auto") == "kernel"


# Passes of users


class Counting(CustomGraphPass):
    """A user's pass, which counts the generated operators that it sees."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Counts."""
        self.seen.append(sum("fusegen" in str(node.target) for node in graph.nodes))

    def uuid(self) -> str:
        """Its identity in keys of caches."""
        return "counting"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pass", "callable"])
def test_a_pass_of_the_user_runs_too(kind: str) -> None:
    counting = Counting()
    theirs: Any = counting if kind == "pass" else lambda graph: counting(graph)
    with config.patch(joint_custom_pre_pass=theirs):
        _, code = compiled(CHAINS["pointwise"][0], X, graded=False)
        assert config.joint_custom_pre_pass is not theirs
        assert isinstance(config.joint_custom_pre_pass, CustomGraphPass)
        identity = config.joint_custom_pre_pass.uuid()
        assert identity == (("counting", runtime("fusion").identity()) if kind == "pass" else None)
    assert counting.seen == [1]
    assert "fusegen" not in code


@pytest.mark.full
def test_a_pass_among_the_options_of_a_call_takes_the_place_of_ours() -> None:
    """Of AOTAutograd's cache the key knows this pass only, so that what ours did would be stale."""
    counting = Counting()
    call = torch.compile(CHAINS["pointwise"][0], options={"joint_custom_pre_pass": counting})
    _, codes = run_and_get_code(call, X)
    assert counting.seen == [1]
    assert is_called(codes[0], "gelu", "forward")


@pytest.mark.full
def test_a_pass_that_is_set_later_runs_before_ours() -> None:
    compiled(CHAINS["pointwise"][0], X, graded=False)
    config.joint_custom_pre_pass = counting = Counting()
    _, code = compiled(CHAINS["pointwise"][0], X, graded=False)
    assert counting.seen == [1]
    assert "fusegen" not in code


@pytest.mark.full
def test_the_pass_is_installed_once() -> None:
    for _ in range(2):
        compiled(CHAINS["pointwise"][0], X, graded=False)
    first = config.joint_custom_pre_pass
    config.joint_custom_pre_pass = later = type("Later", (Counting,), {"fusegen_before": [first]})()
    runtime("fusion").install()
    assert config.joint_custom_pre_pass is later


@pytest.mark.full
def test_the_pass_is_no_copy_where_the_configuration_is_copied() -> None:
    """Dynamo copies it, and a copy could not be told from another pass."""
    compiled(CHAINS["pointwise"][0], X, graded=False)
    assert config.get_config_copy()["joint_custom_pre_pass"] is config.joint_custom_pre_pass


class Two(nn.Module):
    """An operator between layers, and one with neighbours."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.layer, self.act = nn.Linear(8, 8), generated("gelu").ModelNew()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both."""
        return self.layer(self.act(self.layer(x))), (self.act(x + 1) * 2).relu()


@pytest.mark.full
def test_an_exported_program_follows_the_policy_in_aot_inductor(tmp_path: Path) -> None:
    """With a batch that may change, which neither an operator nor its decomposition fixes."""
    model, x = Two(), torch.randn(4, 8)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    called = [str(node.target).rpartition("::")[2] for node in program.graph.nodes]
    assert sum(name.startswith("fusegen_gelu_") for name in called) == 2
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "two.pt2"))
    loaded = torch._inductor.aoti_load_package(package)
    for given in (x, torch.randn(7, 8)):
        torch.testing.assert_close(loaded(given), model(given))


# Caches, in processes of their own

CACHED = """
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import metrics
from {package}.hardsigmoid import hardsigmoid
x = torch.tensor([1.0, -1.0], requires_grad=True)
y = torch.compile(lambda x: hardsigmoid(x + 1).relu(), fullgraph=True)(x)
[g] = torch.autograd.grad(y.sum(), x)
hits = counters["aot_autograd"]["autograd_cache_hit"], counters["inductor"]["fxgraph_cache_hit"]
print([round(v, 3) for v in y.tolist()], [round(v, 3) for v in g.tolist()], any(hits))
"""
RESULT = "[0.833, 0.5] [0.167, 0.167]"


def changed(folder: Path, *texts: tuple[str, str]) -> Path:
    """A copy of hardsigmoid in a package of its own, with some other texts."""
    module = with_runtime(folder) / "hardsigmoid.py"
    text = (Path(__file__).parent.parent / "generated" / "hardsigmoid.py").read_text(encoding="utf-8")
    for before, after in texts:
        assert before in text
        text = text.replace(before, after)
    module.write_text(text, encoding="utf-8")
    return folder


AGAIN = ("same", "auto", f"{RESULT} False"), ("same", "auto", f"{RESULT} True")
OF_ANOTHER = ("same", "kernel", f"{RESULT} False"), ("other", "auto", "[0.5, 0.0] [0.167, 0.0] False")
OF_KERNEL = ("same", "kernel", f"{RESULT} True"), ("other", "kernel", f"{RESULT} False")
OF_ALL = (*OF_ANOTHER, *OF_KERNEL, ("same", "decompose", f"{RESULT} False"))


@pytest.mark.full
@pytest.mark.parametrize(
    "later",
    [(), *(pytest.param(later, marks=pytest.mark.full) for later in (OF_ANOTHER, OF_ALL))],
    ids=["again", "two", "all"],
)
def test_caches_know_policies_and_formulas(
    later: tuple[tuple[str, str, str], ...], tmp_path: Path, extensions: Path
) -> None:
    """One folder of Inductor's caches: the same again is found, and nothing else is."""
    changed(tmp_path / "same")
    changed(tmp_path / "other", ("nn.functional.hardsigmoid(x)", "x * 0.25"))
    for package, policy, expected in (*AGAIN, *later):
        printed = told(
            CACHED.format(package=package),
            extensions,
            PYTHONPATH=f"{tmp_path}:{environment(extensions)['PYTHONPATH']}",
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
            FUSEGEN_COMPILE=policy,
        )
        assert printed == f"{expected}\n", (package, policy)
