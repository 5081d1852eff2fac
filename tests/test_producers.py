"""The layers before a chain: their signatures are PyTorch's."""

from __future__ import annotations

import inspect

import pytest
import torch

from fusegen.constructor import Layer
from fusegen.parse import parse_spec
from fusegen.producers import PRODUCERS

KINDS = inspect.Parameter


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
