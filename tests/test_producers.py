"""The layers before a chain: their signatures, and what they take, are PyTorch's."""

import ast
import inspect

import pytest
import torch

from fusegen.core.constructor import Layer, Value
from fusegen.core.layer_arguments import OF_FAMILIES, TYPES, dimensions, refused, type_of
from fusegen.core.layers import PRODUCERS
from fusegen.language.parse import parse_spec

KINDS = inspect.Parameter


@pytest.mark.together
@pytest.mark.parametrize("layer", PRODUCERS)
def test_a_signature_is_that_of_torch(layer: str) -> None:
    arguments = inspect.signature(getattr(torch.nn, layer)).parameters.values()
    signature = PRODUCERS[layer]
    if signature is None:
        assert {a.kind for a in arguments} == {KINDS.VAR_POSITIONAL, KINDS.VAR_KEYWORD}
        return
    by_place = [a for a in arguments if a.kind is KINDS.POSITIONAL_OR_KEYWORD]
    assert signature.positional == tuple(a.name for a in by_place)
    assert signature.required == {a.name for a in by_place if a.default is KINDS.empty}
    by_name = {a.name for a in arguments if a.kind is KINDS.KEYWORD_ONLY}
    assert by_name <= set(signature.named)  # earlier versions of PyTorch have none


CALLS = {
    "Linear(8, 8)": ("8", "8"),
    "Linear(out_features=8, in_features=4, bias=False)": ("out_features=8", "in_features=4", "bias=False"),
    "Conv2d(n, 8, (3, 3), padding='same')": ("n", "8", "(3, 3)", "padding='same'"),
    "BatchNorm2d(8, bias=False)": ("8", "bias=False"),
    "Dropout()": (),
    "Identity(1, a=2)": ("1", "a=2"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fits_its_signature_is_kept(call: str) -> None:
    text = f'name: gate\nsummary: A test.\ninit: {{n: 3}}\nlayers: [conv: "{call}"]\nchain: [relu]\n'
    [layer] = parse_spec(text, "specs/gate.yaml").layers
    assert isinstance(layer, Layer)
    assert layer.args == CALLS[call]


SAMPLES: dict[str, tuple[str, tuple[int, ...]]] = {  # layers, each with an input
    "Linear": ("in_features=4, out_features=8", (2, 4)),
    "Conv1d": ("in_channels=4, out_channels=8, kernel_size=3", (2, 4, 9)),
    "Conv2d": ("in_channels=4, out_channels=8, kernel_size=3", (2, 4, 9, 9)),
    "Conv3d": ("in_channels=4, out_channels=8, kernel_size=3", (2, 4, 9, 9, 9)),
    "ConvTranspose1d": ("in_channels=4, out_channels=8, kernel_size=3", (2, 4, 9)),
    "ConvTranspose2d": ("in_channels=4, out_channels=8, kernel_size=3", (2, 4, 9, 9)),
    "ConvTranspose3d": ("in_channels=4, out_channels=8, kernel_size=3", (2, 4, 9, 9, 9)),
}
VALUES: dict[str, tuple[Value, ...]] = {  # of each argument: some that are taken, and some that are not
    "in_channels": (4, -1, 4.0, "four", None),
    "out_channels": (8, -1, 8.0, "eight", None),
    "in_features": (4, -1, 4.0, "four", None),
    "out_features": (8, -1, 8.0, "eight", None),
    "kernel_size": (1, 3, 0, -3, 3.0, "three", None, (3, 3, 3, 3)),
    "stride": (1, 2, 0, -1, 1.5, "two", (2,), (2, 2, 2, 2)),
    "padding": (0, 1, -1, 0.5, "full", (1,), (1, 1, 1, 1), "same", "valid"),
    "output_padding": (0, -1, 0.5, "one", (0, 0, 0, 0), 1),
    "dilation": (1, 2, 0, -1, 1.5, "two"),
    "groups": (1, 2, 4, 0, -1, 3, 2.0),
    "padding_mode": ("zeros", "reflect", "replicate", "circular", "mirror", 0),
    "dtype": (None, "float32"),
}
NOT_PYTORCHS = {  # refused though PyTorch takes them: it reads any padding word of these as none
    ("ConvTranspose1d", "padding"), ("ConvTranspose2d", "padding"), ("ConvTranspose3d", "padding"),
}  # fmt: skip


def takes(layer: str, arguments: dict[str, Value], shape: tuple[int, ...]) -> bool:
    """True if PyTorch makes a layer and runs it."""
    try:
        getattr(torch.nn, layer)(**arguments)(torch.ones(shape))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
        return False
    return True


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("layer", SAMPLES)
def test_what_is_refused_is_what_pytorch_refuses(layer: str) -> None:
    text, shape = SAMPLES[layer]
    usual: dict[str, Value] = dict(eval(f"dict({text})"))
    signature = PRODUCERS[layer]
    assert signature is not None
    assert not list(refused(layer, usual))
    for argument in (*signature.positional, *signature.named):
        for value in VALUES.get(argument, ()):
            told = list(refused(layer, {**usual, argument: value}))
            if (layer, argument) in NOT_PYTORCHS and isinstance(value, str):
                assert told
            else:
                assert bool(told) != takes(layer, {**usual, argument: value}, shape), (argument, value)


LAWFUL = {  # and what each of them breaks when one argument is another
    "Conv2d(4, 8, 3, groups=4)": {"in_channels": 6, "out_channels": 6},
    "Conv2d(4, 8, 3, padding='same')": {"stride": 2},
    "GroupNorm(2, 8)": {"num_channels": 7},
    "ConvTranspose2d(4, 8, 3, stride=2, output_padding=1)": {"output_padding": 2},
}


@pytest.mark.parametrize("call", LAWFUL)
def test_a_law_between_arguments_is_pytorchs(call: str) -> None:
    text = f'name: gate\nsummary: A test.\nlayers: [first: "{call}"]\nchain: [relu]\n'
    [layer] = parse_spec(text, "specs/gate.yaml").layers
    assert isinstance(layer, Layer)
    given = dict(layer.given)
    assert not list(refused(layer.kind, given))
    for argument, value in LAWFUL[call].items():
        [told] = refused(layer.kind, {**given, argument: value})
        assert told.argument == argument
        assert not takes(layer.kind, {**given, argument: value}, (2, 4, 9, 9))


ARGUMENTS = dict.fromkeys(argument for own in (TYPES, *OF_FAMILIES.values()) for argument in own)


@pytest.mark.together
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_an_example_is_taken(argument: str) -> None:
    for layer in PRODUCERS:
        found = type_of(layer, argument)
        if found is not None:
            assert found.admits(ast.literal_eval(found.example), dimensions(layer))


@pytest.mark.together
@pytest.mark.parametrize("layer", PRODUCERS)
def test_pytorchs_defaults_are_taken(layer: str) -> None:
    arguments = inspect.signature(getattr(torch.nn, layer)).parameters.values()
    for argument in arguments:
        found = type_of(layer, argument.name)
        if argument.default is not KINDS.empty and found is not None:
            assert found.admits(argument.default, dimensions(layer)), argument.name
