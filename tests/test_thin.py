"""Thin convolutions in modules: which layers they are, the binding, the gradient, what PyTorch keeps."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from dispatching import after_each
from emulated import defined as defined
from thin_modules import (
    CHAIN,
    Module,
    as_on_a_gpu,
    by_pytorch,
    calls_on_a_gpu,
    emulated,
    model_and_input,
    own,
)
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import prune

from fusegen.algebra.compose import compose
from fusegen.evidence.explain.attributes import in_front
from fusegen.language.parse import parse_spec
from fusegen.runtime import thin as runtime
from fusegen.runtime import thin_operator
from fusegen.schedule import thin_convolution
from fusegen.schedule.forms import THIN_CONVOLUTION
from fusegen.tools import compile_ahead


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> Module:
    """A module whose library with a convolution is emulated."""
    return emulated(tmp_path_factory.mktemp("thin"), "thin_chain", CHAIN)


@pytest.fixture
def ran(module: Module, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The calls of `convolved` as if on a GPU: whether each was one kernel."""
    return calls_on_a_gpu(module, monkeypatch)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("divisor", [2.0, -3])
def test_a_model_runs_one_kernel(
    module: Module, ran: list[bool], dtype: torch.dtype, divisor: float
) -> None:
    model, x = model_and_input(module, dtype)
    model.divisor = divisor
    with torch.no_grad():
        y, expected = model(x), by_pytorch(copy.deepcopy(model).double(), x.double())
    assert ran == [True]
    assert (y.dtype, y.stride()) == (dtype, torch.empty(expected.shape).stride())
    allowed = 1e-6 + expected.abs() * torch.finfo(dtype).eps
    assert bool(((y.double() - expected).abs() <= allowed).all())


def gradients(model: Any, x: Tensor, call: Callable[[Any, Tensor], Tensor]) -> list[Tensor]:
    """The gradients of the input and of the parameters."""
    given = [x.clone().requires_grad_(), *model.parameters()]
    y = call(model, given[0])
    return [*torch.autograd.grad((y * torch.arange(y.numel()).view_as(y).cos()).sum(), given)]


def test_gradients_are_those_of_the_steps(module: Module, ran: list[bool]) -> None:
    model, x = model_and_input(module)
    found = gradients(model, x, lambda of, given: of(given))
    assert ran == [True]
    exact = gradients(copy.deepcopy(model).double(), x.double(), by_pytorch)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


# what asks for its gradient; and which two gradients, of the input and the weight, a convolution computes
GRADED: dict[str, tuple[set[str], list[tuple[bool, bool]]]] = {
    "a first layer": ({"weight", "bias"}, [(False, True)]),
    "the input": ({"x"}, [(True, False)]),
    "the weight": ({"weight"}, [(False, True)]),
    "the bias": ({"bias"}, []),
    "what comes behind": ({"multiplier"}, []),
}


@pytest.mark.parametrize("name", GRADED)
def test_only_what_is_asked_for_is_computed(module: Module, ran: list[bool], name: str) -> None:
    asked, masks = GRADED[name]
    model, x = model_and_input(module)
    of = {"x": x, "multiplier": model.multiplier, "weight": model.conv.weight, "bias": model.conv.bias}
    for each, tensor in of.items():
        tensor.requires_grad_(each in asked)
    y, wanted = model(x), [of[each] for each in sorted(asked)]
    assert ran == [True]
    found: list[tuple[bool, bool]] = []

    def note(operator: Any, given: tuple[Any, ...], _: Any) -> None:
        if operator is torch.ops.aten.convolution_backward.default:
            found.append((given[-1][0], given[-1][1]))

    with after_each(note):
        y.sum().backward()
    assert found == masks
    expected = torch.autograd.grad(by_pytorch(model, x).sum(), wanted)
    torch.testing.assert_close([t.grad for t in wanted], [*expected], rtol=1e-5, atol=1e-5)
    assert all(t.grad is None for each, t in of.items() if each not in asked)


def test_what_the_convolution_was_given_is_saved_and_nothing_else(module: Module, ran: list[bool]) -> None:
    model, x = model_and_input(module)
    saved: list[tuple[int, ...]] = []

    def save(t: Tensor) -> Tensor:
        saved.append(t.shape)
        return t

    with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
        model(x)
    assert sorted(saved) == sorted([x.shape, model.conv.weight.shape, (5, 1, 1), (5, 1, 1)])


def test_there_are_second_derivatives(module: Module, ran: list[bool]) -> None:
    model, x = model_and_input(module)

    def twice(of: Any, given: Tensor, call: Callable[[Any, Tensor], Tensor]) -> Tensor:
        given = given.clone().requires_grad_()
        [first] = torch.autograd.grad(call(of, given).square().sum(), given, create_graph=True)
        [second] = torch.autograd.grad(first.square().sum(), [of.conv.weight])
        return second

    found = twice(model, x, lambda of, given: of(given))
    assert ran == [True]
    exact = twice(copy.deepcopy(model).double(), x.double(), by_pytorch)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)


def test_second_derivatives_are_right_where_operands_depend_on_the_input(
    module: Module, ran: list[bool]
) -> None:
    model, x = model_and_input(module)
    del model.multiplier

    def first(of: Any, given: Tensor, call: Callable[[Any, Tensor], Tensor]) -> Tensor:
        given = given.clone().requires_grad_()
        of.multiplier = given.mean() + torch.ones(5, 1, 1).to(given.dtype)
        [found] = torch.autograd.grad(call(of, given).square().sum(), given, create_graph=True)
        return found

    found = first(model, x, lambda of, given: of(given))
    assert ran == [True]
    double = copy.copy(model)
    double._modules = {"conv": copy.deepcopy(model.conv).double()}
    exact = first(double, x.double(), by_pytorch)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)


def test_a_result_may_be_written_over(module: Module, ran: list[bool]) -> None:
    model, x = model_and_input(module)
    found = gradients(model, x, lambda of, given: of(given).mul_(2).relu_())
    assert ran == [True]
    expected = gradients(model, x, lambda of, given: (by_pytorch(of, given) * 2).relu())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("twice", [False, True])
def test_a_gradient_under_autocast_is_that_of_the_call(
    module: Module, ran: list[bool], twice: bool
) -> None:
    model, x = model_and_input(module)
    given = [x.requires_grad_(), *model.parameters()]
    y = model(x)
    assert ran == [True]
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(y.sum(), given, create_graph=twice)
    expected = torch.autograd.grad(by_pytorch(model, x).sum(), given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_batch_of_gradients_is_that_of_the_steps(module: Module, ran: list[bool]) -> None:
    model, x = model_and_input(module)
    y, given = model(x.requires_grad_()), [x, *model.parameters()]
    assert ran == [True]
    several = torch.randn(3, *y.shape)
    found = torch.autograd.grad(y, given, several, is_grads_batched=True)
    expected = torch.autograd.grad(by_pytorch(model, x), given, several, is_grads_batched=True)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_sizes_are_those_of_the_weight(module: Module, ran: list[bool]) -> None:
    """As after pruning, which leaves the numbers of channels that the layer was made with."""
    model, x = model_and_input(module)
    model.conv.weight = nn.Parameter(model.conv.weight[:4, :2].clone())
    model.conv.bias, model.multiplier = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4, 1, 1))
    with torch.no_grad():
        torch.testing.assert_close(model(x[:, :2].clone()), by_pytorch(model, x[:, :2]))
    assert ran == [True]


def deterministic(model: Any, x: Tensor) -> Tensor:
    """A call where only deterministic algorithms may run."""
    torch.use_deterministic_algorithms(True)
    y: Tensor = model(x)
    torch.use_deterministic_algorithms(False)
    return y


def functional(model: Any, x: Tensor) -> Tensor:
    """A call with other parameters."""
    others = {name: t.detach() for name, t in model.named_parameters()}
    y: Tensor = torch.func.functional_call(model, others, x)
    return y


def in_inference(model: Any, x: Tensor) -> Tensor:
    """A call in inference mode."""
    with torch.inference_mode():
        y: Tensor = model(x)
    return y


def without_cudnn(model: Any, x: Tensor) -> Tensor:
    """A call where cuDNN is switched off, and TF32 is not allowed."""
    with torch.backends.cudnn.flags(enabled=False, allow_tf32=False):
        y: Tensor = model(x)
    return y


def with_tf32(model: Any, x: Tensor) -> Tensor:
    """A call where TF32 is allowed."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        y: Tensor = model(x)
    return y


def at_an_odd_place(model: Any, x: Tensor) -> Tensor:
    """A call with a view whose elements begin at no multiple of 16 bytes."""
    view = torch.cat([torch.zeros(1), x.flatten()])[1:].view_as(x)
    y: Tensor = model(view)
    return y


def after_pruning(model: Any, x: Tensor) -> Tensor:
    """A call with a mask in the weight."""
    pruned_for_good(model)
    y: Tensor = model(x)
    return y


WHOLE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "other parameters": functional,
    "inference mode": in_inference,
    "no cuDNN": without_cudnn,
    "deterministic": deterministic,
    "TF32": with_tf32,
    "an odd place": at_an_odd_place,
    "after pruning": after_pruning,
}


@pytest.mark.parametrize("name", WHOLE)
def test_such_calls_are_one_kernel_of_the_accuracy_of_float32(
    module: Module, ran: list[bool], name: str
) -> None:
    model, x = model_and_input(module)
    y = WHOLE[name](model, x)
    exact = by_pytorch(copy.deepcopy(model).double(), x.double())
    assert ran == [True]
    torch.testing.assert_close(y.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize("layer", [nn.Identity(), nn.Sequential(nn.Conv2d(3, 5, 3))])
def test_another_layer_may_take_the_place(module: Module, ran: list[bool], layer: Any) -> None:
    model, _ = model_and_input(module)
    model.conv, x = layer, torch.randn(2, 5 if isinstance(layer, nn.Identity) else 3, 9, 12)
    with torch.no_grad():
        torch.testing.assert_close(model(x), by_pytorch(model, x))
    assert ran == [False]


def test_one_channel_in_channels_last_is_pytorchs() -> None:
    """It is contiguous, too, and what PyTorch makes of it is channels_last."""
    plain, last = nn.Conv2d(1, 5, 3), nn.Conv2d(1, 5, 3)
    last.weight.data = last.weight.data.to(memory_format=torch.channels_last)
    x = torch.randn(2, 1, 9, 12)
    other = x.to(memory_format=torch.channels_last)
    assert other.is_contiguous()
    assert last.weight.is_contiguous()
    taken = [
        thin_operator.is_dense(t) and thin_operator.is_dense(of.weight)
        for of, t in ((plain, x), (plain, other), (last, x))
    ]
    assert taken == [True, False, False]


def changed(**of: Any) -> Callable[[Any], None]:
    """Sets attributes of a model's convolution."""

    def change(model: Any) -> None:
        vars(model.conv).update(of)

    return change


def watched(model: Any) -> None:
    """Somebody looks at the output of the convolution."""
    model.conv.register_forward_hook(lambda *_: None)


def watched_before(model: Any) -> None:
    """Somebody looks at the input of the convolution."""
    model.conv.register_forward_pre_hook(lambda *_: None)


def watched_back(model: Any) -> None:
    """Somebody looks at the gradients of the convolution."""
    model.conv.register_full_backward_hook(lambda *_: None)


def normed(model: Any) -> None:
    """The weight is computed in each call, by a parametrization."""
    nn.utils.parametrizations.weight_norm(model.conv)


def normed_by_a_hook(model: Any) -> None:
    """The same by a hook, as PyTorch did before."""
    nn.utils.weight_norm(model.conv)


def pruned(model: Any) -> None:
    """The weight is masked in each call."""
    mask: Any = prune.l1_unstructured
    mask(model.conv, "weight", 0.5)


def pruned_for_good(model: Any) -> None:
    """The mask is in the weight."""
    pruned(model)
    remove: Any = prune.remove
    remove(model.conv, "weight")


def in_channels_last(model: Any) -> None:
    """The weight lies in another memory format."""
    model.conv.to(memory_format=torch.channels_last)


def not_a_number(model: Any) -> None:
    """A scalar is NaN."""
    model.divisor = torch.nan


LAYERS: dict[str, Callable[[Any], None]] = {
    "another padding": changed(padding_mode="reflect", _reversed_padding_repeated_twice=[1, 1, 1, 1]),
    "a word": changed(padding="valid", stride=(1, 1)),
    "a dilation": changed(dilation=(1, 2)),
    "a stride of 3": changed(stride=(3, 1)),
    "a hook": watched,
    "a hook before": watched_before,
    "a hook of gradients": watched_back,
    "a parametrization": normed,
    "a norm by a hook": normed_by_a_hook,
    "a mask": pruned,
    "no bias": lambda model: setattr(model.conv, "bias", None),
    "another class": lambda model: setattr(model.conv, "__class__", type("Conv2d", (nn.Conv2d,), {})),
    "a weight in channels_last": in_channels_last,
    "no number": not_a_number,
    "a larger operand": lambda model: setattr(model, "multiplier", nn.Parameter(torch.ones(3, 1, 5, 1, 1))),
}


@pytest.mark.few(4)
@pytest.mark.together
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_other_layers_are_pytorchs(module: Module, ran: list[bool], name: str) -> None:
    model, x = model_and_input(module)
    LAYERS[name](model)
    with torch.no_grad():
        torch.testing.assert_close(model(x), by_pytorch(model, x), equal_nan=True, check_stride=True)
    assert ran == [False]


def not_from(call: Callable[[Any, Tensor], Tensor], model: Any, x: Tensor) -> str:
    """The sentence by which a call is refused."""
    with pytest.raises(RuntimeError) as caught:
        call(model, x)
    return str(caught.value)


def padded_by_less(model: Any, x: Tensor) -> Tensor:
    """The padding is negative."""
    model.conv.padding = (-1, 1)
    return x


def with_one_bias(model: Any, x: Tensor) -> Tensor:
    """The bias has one element for all channels."""
    model.conv.bias = nn.Parameter(torch.ones(1))
    return x


def in_bfloat16(model: Any, x: Tensor) -> Tensor:
    """The convolution alone is in another dtype."""
    model.conv.to(torch.bfloat16)
    return x


REFUSED: dict[str, Callable[[Any, Tensor], Tensor]] = {  # the input, and perhaps another layer
    "another dtype": lambda model, x: x.half(),
    "a channel less": lambda model, x: x[:, 1:].clone(),
    "no rows": lambda model, x: x[:, :, :0],
    "two dimensions": lambda model, x: x[0, 0],
    "a negative padding": padded_by_less,
    "a bias of one element": with_one_bias,
    "a convolution of another dtype": in_bfloat16,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_is_refused_in_its_words(module: Module, ran: list[bool], name: str) -> None:
    model, x = model_and_input(module)
    x = REFUSED[name](model, x)
    refusals = [not_from(call, model, x) for call in (lambda of, given: of(given), by_pytorch)]
    assert refusals[0] == refusals[1]
    assert ran == [False]


class Own(Tensor):
    """A subclass of tensors."""


INPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "no batch": lambda x: x[0],
    "not dense": lambda x: torch.cat([x, x], 3)[..., :12],
    "empty": lambda x: x[:0],
    "a lazy negation": lambda x: torch.complex(x, x).conj().imag,
    "a subclass": lambda x: x.as_subclass(Own),
}


@pytest.mark.parametrize("name", INPUTS)
def test_other_inputs_are_pytorchs(module: Module, ran: list[bool], name: str) -> None:
    model, x = model_and_input(module)
    with torch.no_grad():
        y, expected = model(INPUTS[name](x)), by_pytorch(model, INPUTS[name](x))
    assert (type(y), y.stride()) == (type(expected), expected.stride())
    torch.testing.assert_close(y.as_subclass(Tensor), expected.as_subclass(Tensor))
    assert ran == [False]


def with_autocast(model: Any, x: Tensor) -> Tensor:
    """A call under CUDA's autocast, which casts nothing on the CPU."""
    torch.set_autocast_enabled("cuda", True)
    y: Tensor = model(x)
    torch.set_autocast_enabled("cuda", False)
    return y


def traced(model: Any, x: Tensor) -> Tensor:
    """A call of what torch.jit.trace recorded."""
    trace: Any = torch.jit.trace
    y: Tensor = trace(model, x, check_trace=False)(x)
    return y


def recorded_operations(model: Any, x: Tensor) -> Tensor:
    """A call whose operations are recorded."""
    made = make_fx(model)(x)
    assert any(node.target == torch.ops.aten.convolution.default for node in made.graph.nodes)
    y: Tensor = made(x)
    return y


CALLS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "autocast": with_autocast,
    "vmap": lambda model, x: torch.vmap(model)(x[None])[0],
    "recorded operations": recorded_operations,
    "traced": traced,
    "symbolic": lambda model, x: torch.fx.symbolic_trace(model)(x),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_other_calls_are_pytorchs(module: Module, ran: list[bool], name: str) -> None:
    model, x = model_and_input(module)
    with torch.no_grad():
        torch.testing.assert_close(CALLS[name](model, x), by_pytorch(model, x))
    assert not any(ran)


def test_on_the_cpu_nothing_is_one_kernel(module: Module) -> None:
    model, x = model_and_input(module)
    assert module.KERNELS.convolved(model.conv, x, None, model.multiplier, 2.0) is None


# dtype, input channels and columns, kernel, output; whether one kernel is faster
SPEEDS: dict[str, tuple[torch.dtype, tuple[int, int], int, tuple[int, int, int, int], bool]] = {
    "as declared": (torch.float32, (8, 128), 3, (128, 64, 126, 126), True),
    "the most channels": (torch.float32, (16, 128), 3, (128, 64, 126, 126), True),
    "more channels": (torch.float32, (17, 128), 2, (128, 64, 127, 128), False),
    "a colour image": (torch.float32, (3, 224), 7, (64, 64, 112, 112), True),
    "the most terms": (torch.float32, (8, 128), 5, (128, 64, 124, 124), True),
    "more terms": (torch.float32, (8, 128), 6, (128, 64, 123, 123), False),
    "narrow": (torch.float32, (3, 33), 3, (64, 64, 31, 31), False),
    "small": (torch.float32, (3, 34), 3, (4, 32, 1023, 32), False),
    "16 bits": (torch.bfloat16, (3, 40), 3, (64, 64, 38, 38), True),
    "16 bits, the most channels": (torch.float16, (12, 40), 3, (64, 64, 38, 38), True),
    "16 bits, more channels": (torch.float16, (13, 40), 3, (64, 64, 38, 38), False),
    "16 bits without vectors": (torch.float16, (3, 44), 3, (64, 64, 42, 42), False),
    "16 bits, rows in parts": (torch.bfloat16, (8, 256), 3, (128, 64, 254, 254), False),
    "16 bits, an odd image": (torch.bfloat16, (8, 128), 2, (128, 64, 127, 127), False),
    "many terms, rows in parts": (torch.float32, (8, 256), 3, (128, 64, 254, 254), True),
    "few terms, rows in parts": (torch.float32, (8, 254), 1, (128, 64, 254, 254), False),
    "few terms, whole rows": (torch.float32, (8, 126), 1, (128, 64, 126, 126), True),
}


# batch and output channels; whether results can be counted in an int
SIZES = {"the most": ((1023, 512), True), "as many results": ((1024, 512), False)}


@pytest.mark.parametrize("name", SIZES)
def test_results_are_fewer_than_two_to_the_31(name: str) -> None:
    (batch, channels), expected = SIZES[name]
    x = torch.empty(batch, 3, 66, 66, device="meta")
    tensors = x, torch.empty(channels, 3, 3, 3, device="meta")
    assert (thin_operator.shape_of(tensors, (1, 1, 0, 0)) is not None) == expected


@pytest.mark.parametrize("weight", [(64, 0, 3, 3), (64, 3, 0, 3), (64, 3, 3, 0)])
def test_sums_without_terms_are_pytorchs(
    weight: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which refuses the kernel, or gives no channels."""
    monkeypatch.setattr(thin_operator, "losses", lambda x, weight, shape: ())
    x = torch.empty(64, weight[1], 66, 66, device="meta")
    assert thin_operator.shape_of((x, torch.empty(weight, device="meta")), (1, 1, 0, 0)) is None


@pytest.mark.together
@pytest.mark.parametrize("name", SPEEDS)
def test_one_kernel_runs_where_it_was_faster(name: str) -> None:
    dtype, (channels, columns), kernel, shape, expected = SPEEDS[name]
    layer = nn.Conv2d(channels, shape[1], kernel, device="meta")
    x = torch.empty(shape[0], channels, 4, columns, dtype=dtype, device="meta")
    assert any(thin_operator.losses(x, layer.weight, shape)) != expected


# what is given to the operator in place of a tensor or a size, by its place; and what it says
BAD: dict[str, tuple[int, Any, str]] = {
    "channels": (1, torch.zeros(5, 4, 3, 3), "the sizes of the convolution do not fit together"),
    "a stride of 0": (5, 0, "the sizes of the convolution do not fit together"),
    "a stride of 2 in its last 32 bits": (5, 2 - 2**32, "the sizes of the convolution do not fit together"),
    "a huge padding": (7, 2**40, "the sizes of the convolution do not fit together"),
    "an output": (9, torch.zeros(2, 5, 4, 12), "the sizes of the convolution do not fit together"),
    "a layout": (9, torch.zeros(2, 5, 12, 5).mT, "expected dense tensors in the order of their dimensions"),
    "dimensions": (0, torch.zeros(3, 9, 12), "expected tensors of four dimensions"),
    "an operand": (2, torch.zeros(1, 5, 1, 1), "expected operands of the shape of the output"),
    "a dtype": (
        1,
        torch.zeros(5, 3, 3, 3).double(),
        "expected float32, float16, bfloat16 or float64 tensors",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_the_operator_refuses_what_does_not_fit(module: Module, name: str) -> None:
    place, value, message = BAD[name]
    out = torch.zeros(2, 5, 5, 12)
    operands = (torch.zeros(5, 1, 1).expand_as(out), torch.zeros(5, 1, 1).expand_as(out))
    given: list[Any] = [torch.zeros(2, 3, 9, 12), torch.zeros(5, 3, 3, 3), *operands, 2.0, 2, 1, 1, 1, out]
    operator = module.KERNELS.operators.thin_chain_convolved
    assert operator(*given) is True
    given[place] = value
    with pytest.raises(RuntimeError, match=message):
        operator(*given)


@pytest.mark.parametrize(("width", "fits"), [(32768, True), (65536, False)])
def test_an_image_may_have_as_many_elements_as_a_tensor(module: Module, width: int, fits: bool) -> None:
    """Here of no images, which take no memory: 1.6e9 elements, and 3.2e9."""
    x, weight, out = (
        torch.zeros(0, 3, 16384, width),
        torch.zeros(1, 3, 3, 3),
        torch.zeros(0, 1, 16382, width - 2),
    )
    operand = torch.zeros(1, 1, 1).expand_as(out)
    given = x, weight, operand, operand, 2.0, 1, 1, 0, 0, out
    operator = module.KERNELS.operators.thin_chain_convolved
    if fits:
        assert operator(*given) is True
    else:
        with pytest.raises(RuntimeError, match="the sizes of the convolution do not fit together"):
            operator(*given)


@pytest.mark.parametrize("compiler", ["nvcc", "nvrtc"])
def test_without_nvcc_only_a_library_that_is_there_is_loaded(
    module: Module, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    build = own(module, "build")
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(build.tools, "cuda_compiler", lambda name: compiler)
    monkeypatch.setattr(build.tools, "has_nvcc", lambda: compiler == "nvrtc")

    def load(name: str, of: tuple[str, ...], *_: str) -> bool:
        asked.append(of)
        return False

    monkeypatch.setattr(build.prebuilt, "load", load)
    build.can_load.cache_clear()
    operators = module.KERNELS.operators
    assert not build.can_load(module.KERNELS, operators, "convolved")
    assert not build.can_load(module.KERNELS, operators, "convolved")
    build.can_load.cache_clear()
    assert asked == [(operators.name, "convolved", "cuda")]


def test_libraries_ahead_of_time_have_the_convolution(module: Module, tmp_path: Path) -> None:
    found = [each.kernel for each in compile_ahead.libraries(module.KERNELS, "cuda", ("90",), tmp_path)]
    assert found == ["forward", "backward", "convolved"]


def test_a_small_convolution_is_pytorchs(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(module, monkeypatch)
    monkeypatch.setattr(own(module), "losses", thin_operator.losses)
    model, x = model_and_input(module)
    assert module.KERNELS.convolved(model.conv, x, None, model.multiplier, 2.0) is None


def test_a_model_is_one_graph(module: Module, ran: list[bool]) -> None:
    model, x = model_and_input(module)
    torch._dynamo.reset()
    whole: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(whole(x), by_pytorch(model, x))


def test_other_modules_have_no_such_operator() -> None:
    from kernels import generated

    kernels = generated("swiglu").KERNELS
    assert kernels.texts().joined == ""
    assert "convolved" not in kernels.texts().binding


HEAD = "name: gate\nsummary: A test.\n"
GIVEN = "in_channels=3, out_channels=4, kernel_size=3"
OBSTACLES = {
    "conv: 'Linear(3, 4)'": "there is no Conv2d right in front of the kernel",
    f"conv: 'Conv2d({GIVEN}, bias=False)'": "",
    "conv: 'Conv2d(17, 4, 3)'": "it has more than 16 input channels",
    "conv: 'Conv2d(3, 4, (3, 8))'": "its kernel is larger than 7",
    f"conv: 'Conv2d({GIVEN}, stride=(1, 3))'": "its stride is neither 1 nor 2",
    f"conv: 'Conv2d({GIVEN}, padding=\"same\")'": "its padding is a word",
    f"conv: 'Conv2d({GIVEN}, padding_mode=\"circular\")'": "it pads with other values than zeros",
    f"conv: 'Conv2d({GIVEN}, dilation=2)'": "it has a dilation",
    "conv: 'Conv2d(4, 4, 3, groups=2)'": "it has groups",
    "conv: 'Conv2d(16, 4, 7)'": "its weights do not fit shared memory",
    f"conv: 'Conv2d({GIVEN}, stride=2, padding=(1, 0))'": "",
    "conv: 'Conv2d(16, 128, 3)'": "",
}


@pytest.mark.together
@pytest.mark.parametrize("layer", OBSTACLES)
def test_a_spec_says_why_its_layer_is_pytorchs(layer: str) -> None:
    spec = parse_spec(f"{HEAD}layers: [{layer}]\nchain: [relu]\n", "gate.yaml")
    assert compose(spec, lambda name: None)
    assert thin_convolution.obstacle(spec) == OBSTACLES[layer]
    assert (thin_convolution.thin(spec) is None) == bool(OBSTACLES[layer])


def test_sizes_are_those_that_a_call_knows() -> None:
    assert (thin_convolution.MOST_CHANNELS, thin_convolution.MOST_KERNEL) == (
        runtime.MOST_CHANNELS,
        runtime.MOST_KERNEL,
    )
    assert thin_convolution.STRIDES == runtime.STRIDES
    worth = thin_operator.MOST_WORTH, thin_operator.LEAST_WORTH
    assert worth == (thin_convolution.MOST_WORTH, thin_convolution.LEAST_WORTH)


def test_limits_are_of_the_declared_input() -> None:
    """Of 3 products for each of 72 terms, and of what is read and written, on an H200."""
    of = thin_convolution.Thin(8, 64, (3, 3), (1, 1), (0, 0), (128, 128, 128))
    assert of.size == (126, 126)
    products, memory = of.limits(90) or (0, 0)
    assert products == pytest.approx(2 * 3 * 72 * 128 * 64 * 126**2 / 495e12 * 1e3)
    assert memory == pytest.approx(4 * (128 * 64 * 126**2 + 128 * 8 * 128**2) / 4.23e12 * 1e3)
    assert thin_convolution.Thin(8, 64, (3, 3), (1, 1), (0, 0)).limits(90) is None


# what is said of a layer besides its form
EXPLAINED: dict[str, list[str]] = {
    "Conv2d(8, 64, 3)": [
        "A call takes it from 32 columns and 4,194,304 elements of the output on; else PyTorch's runs.",
        "On sm_90 float32 runs by warpgroups (wgmma), all else by warps (mma.sync).",
        "sm_80: float32 takes at least 0.360 ms of the tensor cores and 0.328 ms of the memory.",
        "sm_90: float32 takes at least 0.114 ms of the tensor cores and 0.139 ms of the memory.",
        "sm_90: it was measured at 0.273 ms, which is 51% of the speed of the memory.",
    ],
    "Conv2d(8, 32, 3, stride=2)": [
        "A call takes it from 32 columns and 4,194,304 elements of the output on; else PyTorch's runs.",
        "Each chip and dtype runs by warps (mma.sync).",
        "sm_80: float32 takes at least 0.045 ms of the tensor cores and 0.074 ms of the memory.",
        "sm_90: float32 takes at least 0.014 ms of the tensor cores and 0.031 ms of the memory.",
    ],
    "Conv2d(8, 64, 6, stride=2)": [
        "No call takes it: with more than 16 input channels or 200 products PyTorch's was faster.",
        "sm_80: float32 takes at least 0.349 ms of the tensor cores and 0.108 ms of the memory.",
        "sm_90: float32 takes at least 0.110 ms of the tensor cores and 0.046 ms of the memory.",
    ],
    "Conv2d(8, 64, 3, groups=2)": ["conv is PyTorch's convolution: it has groups."],
    "Linear(128, 64)": [
        "conv and the kernel are two: "
        "it takes halves, masks or views, or no formula computes it in float32."
    ],
}


@pytest.mark.parametrize("layer", EXPLAINED)
def test_explain_says_what_a_layer_is(layer: str) -> None:
    shape = "inputs: {x: {shape: [128, 8, 128, 128]}}"
    spec = parse_spec(f"{HEAD}{shape}\nlayers: [conv: '{layer}']\nchain: [relu]\n", "gate.yaml")
    found = thin_convolution.thin(spec)
    form = [THIN_CONVOLUTION.sentence(spec)] if found else []
    assert [*in_front(spec, (THIN_CONVOLUTION,) if found else ())] == [*form, *EXPLAINED[layer]]


def test_a_module_says_that_both_are_one(module: ModuleType) -> None:
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert "// A 3 x 3 convolution of 3 input channels and the forward kernel as one, on the tensor" in text
