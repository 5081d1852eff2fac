"""A thin convolution under compilers: the operator that they record, the policy, batches, fake tensors.

Tensors on the CPU stand for those on a GPU, whose library is emulated.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from emulated import defined as defined
from thin_modules import CHAIN, Module, as_on_a_gpu, by_pytorch, emulated, model_and_input, own
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch._inductor import config
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, export

pytestmark = pytest.mark.filterwarnings("ignore")  # inductor's own
NAME = "thin_compiled"
WHOLE, BEHIND = f"{NAME}_convolution_forward", f"{NAME}_forward"


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> Module:
    """A module whose library with a convolution is emulated."""
    return emulated(tmp_path_factory.mktemp("thin"), NAME, CHAIN)


@pytest.fixture(autouse=True)
def again(module: Module, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that was compiled before; tensors are as on a GPU, where one kernel is faster."""
    torch._dynamo.reset()
    as_on_a_gpu(module, monkeypatch)
    monkeypatch.setattr(the_rewrite(module), "losses", lambda x, weight, shape: ())
    with fresh_cache(), config.patch(joint_custom_pre_pass=None):
        yield
    module.KERNELS.compile_policy = None


def the_rewrite(module: Module) -> Any:
    """The module's part of the rewrite of graphs."""
    return importlib.import_module(own(module).__name__.replace("thin_operator", "thin_rewrite"))


def graphs_of(module: Module, call: Callable[..., Any], *given: Tensor) -> list[fx.Graph]:
    """The graphs of a call as the rewrite leaves them, which run in place of it."""
    graphs: list[fx.Graph] = []

    def rewritten(made: fx.GraphModule) -> fx.GraphModule:
        own(module, "fusion").decompose(made.graph)
        made.recompile()
        graphs.append(made.graph)
        return made

    def partition(made: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        return default_partition(rewritten(made), inputs, **options)

    backend = aot_autograd(
        fw_compiler=lambda made, inputs: made,
        inference_compiler=lambda made, inputs: rewritten(made),
        partition_fn=partition,
    )
    y = torch.compile(call, backend=backend, fullgraph=True)(*given)
    torch.testing.assert_close(y, call(*given))
    return graphs


def called(graph: fx.Graph) -> list[str]:
    """The names of what a graph calls."""
    return [str(node.target).partition(".")[2] for node in graph.nodes if node.op == "call_function"]


def last(x: Tensor) -> Tensor:
    """A tensor in channels_last."""
    return x.to(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Case:
    """A call under a policy."""

    policy: str  # of the module
    call: Callable[[Any, Tensor], Tensor]  # of a model and its input
    operators: tuple[str, ...]  # those that Inductor's code of the forward pass calls
    slower: bool = False  # whether the rewrite knows sizes that make one kernel slower


def alone(model: Any, x: Tensor) -> Tensor:
    """The model."""
    y: Tensor = model(x)
    return y


def between_convolutions(model: Any, x: Tensor) -> Tensor:
    """The model between convolutions, with operations on its input."""
    y = model(nn.functional.conv2d(x, torch.ones(3, 3, 1, 1)) * 2)
    return nn.functional.conv2d(y, torch.ones(1, 5, 1, 1))


CASES = {
    "auto": Case("auto", alone, (WHOLE,)),
    "between": Case("auto", between_convolutions, (WHOLE,)),
    "slower": Case("auto", alone, (BEHIND,), slower=True),
    "channels_last": Case("auto", lambda model, x: alone(model, last(x)), (BEHIND,)),
    "read by a sum": Case("auto", lambda model, x: model(x) + 1, ()),
    "kernel": Case("kernel", lambda model, x: model(x) + 1, (WHOLE,), slower=True),
    "decompose": Case("decompose", alone, ()),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_the_policy_decides(module: Module, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case = CASES[name]
    module.KERNELS.compile_policy = case.policy
    monkeypatch.setattr(the_rewrite(module), "losses", lambda x, weight, shape: (case.slower,))
    model, x = model_and_input(module)
    with torch.no_grad():
        [graph] = graphs_of(module, lambda given: case.call(model, given), x)
    names = called(graph)
    assert tuple(each for each in (WHOLE, BEHIND) if f"{each}.default" in names) == case.operators


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", ["auto", "kernel"])
def test_a_gradient_computes_the_convolution_once(module: Module, policy: str) -> None:
    """It reads that of the forward pass, where PyTorch runs it there."""
    module.KERNELS.compile_policy = policy
    model, x = model_and_input(module)
    [graph] = graphs_of(module, model, x)
    names = called(graph)
    assert names.count("convolution.default") == 1
    assert names.count(f"{WHOLE}.default") == (policy == "kernel")


@pytest.mark.full
def test_inductor_runs_the_operator(module: Module) -> None:
    module.KERNELS.compile_policy = "kernel"
    model, x = model_and_input(module)
    wanted = [*model.parameters()]

    def run() -> list[Tensor]:
        call: Any = torch.compile(model, fullgraph=True)
        y = call(x)
        return [y, *torch.autograd.grad(y.sum(), wanted)]

    found, codes = run_and_get_code(run)
    y = by_pytorch(model, x)
    torch.testing.assert_close(found, [y, *torch.autograd.grad(y.sum(), wanted)], rtol=1e-4, atol=1e-4)
    assert f"{WHOLE}.default(" in codes[0]


def test_autocast_is_pytorchs(module: Module) -> None:
    model, x = model_and_input(module)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.set_autocast_enabled("cuda", True)
        try:
            made: Any = export(model, (x,))
        finally:
            torch.set_autocast_enabled("cuda", False)
    assert WHOLE.removesuffix("_forward") not in str(made.graph)


@pytest.mark.full
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_the_operator_and_takes_any_batch(module: Module, strict: bool) -> None:
    model, x = model_and_input(module)
    batch = Dim("batch", min=2)
    program: Any = export(model, (x,), dynamic_shapes=({0: batch},), strict=strict)
    names = called(program.graph)
    assert names.count(f"{NAME}_convolution.default") == 1
    assert "conv2d.default" not in names
    several = torch.randn(7, *x.shape[1:])
    decomposed = program.run_decompositions()
    for given in (x, several, last(x)):
        torch.testing.assert_close(program.module()(given), by_pytorch(model, given))
        torch.testing.assert_close(decomposed.module()(given), by_pytorch(model, given))
    doubles = program.module().double()
    torch.testing.assert_close(doubles(x.double()), by_pytorch(model.double(), x.double()))


@pytest.mark.full
def test_a_package_of_aot_inductor_needs_no_operator_of_python(module: Module, tmp_path: Path) -> None:
    model, x = model_and_input(module)
    program: Any = export(model, (x,), dynamic_shapes=({0: Dim("batch", min=2)},))
    package = tmp_path / "thin.pt2"
    made, codes = run_and_get_code(
        lambda: torch._inductor.aoti_compile_and_package(program, package_path=str(package))
    )
    assert WHOLE not in "".join(codes)
    loaded = torch._inductor.aoti_load_package(made)
    for given in (x, torch.randn(7, *x.shape[1:])):
        torch.testing.assert_close(loaded(given), by_pytorch(model, given))


@pytest.mark.full
def test_any_size_is_compiled_once(module: Module) -> None:
    model, x = model_and_input(module)
    call: Any = torch.compile(model, backend="aot_eager", dynamic=True, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(call(x), by_pytorch(model, x))
        with torch.compiler.set_stance("fail_on_recompile"):
            for given in (torch.randn(7, *x.shape[1:]), torch.randn(3, 3, 11, 16)):
                torch.testing.assert_close(call(given), by_pytorch(model, given))


def arguments(module: Module) -> tuple[Any, tuple[Any, ...]]:
    """A model, and the arguments of its operators."""
    model, x = model_and_input(module)
    bias = model.conv.bias.view(-1, 1, 1)
    return model, (x, model.conv.weight, bias, model.multiplier, 2.0, 2, 1, 1, 1)


def test_fake_tensors_are_laid_as_real_ones(module: Module) -> None:
    _, given = arguments(module)
    for x in (given[0], last(given[0])):
        real = module.KERNELS.convolution(x, *given[1:])
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = module.KERNELS.convolution(mode.from_tensor(x), *given[1:])
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.full
@pytest.mark.parametrize("which", ["convolution", "convolution_forward"])
def test_the_operator_is_as_pytorch_asks(module: Module, which: str) -> None:
    _, given = arguments(module)
    operator = getattr(module.KERNELS.operators, f"{NAME}_{which}").default
    graded = which == "convolution"
    plain = (t.detach().requires_grad_(graded) if isinstance(t, Tensor) else t for t in given)
    torch.library.opcheck(operator, tuple(plain))


@pytest.mark.few(1)
@pytest.mark.parametrize("which", ["convolution", "convolution_forward"])
def test_a_batch_of_calls_is_that_of_the_steps(module: Module, which: str) -> None:
    model, (x, *others) = arguments(module)
    operator = getattr(module.KERNELS.operators, f"{NAME}_{which}").default
    several = torch.stack([x, x.flip(0), x * 2])
    with torch.no_grad():
        made = torch.vmap(lambda t: operator(t, *others))(several)
        torch.testing.assert_close(made, torch.stack([by_pytorch(model, t) for t in several]))


def test_transforms_of_the_operator_are_those_of_the_steps(module: Module) -> None:
    model, (x, weight, *others) = arguments(module)

    def call(t: Tensor, w: Tensor) -> Tensor:
        y: Tensor = module.KERNELS.convolution(t, w, *others)
        return y.square().sum()

    def steps(t: Tensor, w: Tensor) -> Tensor:
        y = nn.functional.conv2d(t, w, model.conv.bias, (2, 1), (1, 1)) * model.multiplier
        return (nn.functional.leaky_relu(y, 0.1) / 2).square().sum()

    tangents = torch.randn_like(x), torch.randn_like(weight)
    for transform in (
        lambda of: torch.func.grad(of, argnums=(0, 1))(x, weight),
        lambda of: torch.func.jvp(of, (x, weight.detach()), tangents),
    ):
        torch.testing.assert_close(transform(call), transform(steps), rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_a_gradient_of_a_compiled_batch_is_that_of_the_steps(module: Module) -> None:
    model, x = model_and_input(module)

    def of(call: Callable[[Any, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return torch.func.grad(lambda t: call(model, t).square().sum())

    made = torch.compile(of(alone), backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(made, of(by_pytorch)(x), rtol=1e-4, atol=1e-4)
