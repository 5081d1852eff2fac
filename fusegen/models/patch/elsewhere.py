"""The activations of transformers and timm, by the names of their modules and classes.

Neither package is imported: a class is known if its module is loaded and has it under this name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from torch import nn

from fusegen.models.patch.class_row import IN_PLACE, Row

TRANSFORMERS, TIMM, TIMM_SAVING = (
    "transformers.activations",
    "timm.layers.activations",
    "timm.layers.activations_me",
)
ROWS: Mapping[str, Mapping[str, Row]] = {
    TRANSFORMERS: {
        "AccurateGELUActivation": Row("gelu_tanh"),
        "FastGELUActivation": Row("gelu_tanh"),  # which rounds sqrt(2 / pi) to ten digits
        "GELUActivation": Row("gelu"),
        "GELUTanh": Row("gelu_tanh"),
        "MishActivation": Row("mish"),
        "NewGELUActivation": Row("gelu_tanh"),
        "PytorchGELUTanh": Row("gelu_tanh"),
        "QuickGELUActivation": Row("quick_gelu"),
        "ReLUSquaredActivation": Row("squared_relu"),
        "SiLUActivation": Row("silu"),
    },
    TIMM: {
        "GELU": Row("gelu"),
        "GELUTanh": Row("gelu_tanh"),
        "HardSigmoid": Row("hardsigmoid", IN_PLACE),
        "HardSwish": Row("hardswish", IN_PLACE),
        "Mish": Row("mish"),
        "PReLU": Row("prelu", ("num_parameters",), state=("weight",)),
        "QuickGELU": Row("quick_gelu"),
        "Sigmoid": Row("sigmoid", IN_PLACE),
        "Swish": Row("silu", IN_PLACE),
        "Tanh": Row("tanh", IN_PLACE),
    },
    TIMM_SAVING: {
        "HardSigmoidMe": Row("hardsigmoid"),
        "HardSwishMe": Row("hardswish"),
        "MishMe": Row("mish"),
        "SwishMe": Row("silu"),
    },
}
REASONS: Mapping[str, Mapping[str, str]] = {
    TRANSFORMERS: {
        "ClippedGELUActivation": "the library has no GELU with bounds",
        "LaplaceActivation": "the library has no Laplace activation",
        "LinearActivation": "it returns its input",
        "SqrtSoftplusActivation": "the library has no square root of softplus",
        "XIELUActivation": "the library has no xIELU",
    },
    TIMM: {"HardMish": "the library has no hard Mish"},
    TIMM_SAVING: {"HardMishMe": "the library has no hard Mish"},
}


def row(layer: nn.Module) -> Row | None:
    """Return the row of an activation of transformers or timm; None for every other layer."""
    return ROWS.get(_module(layer), {}).get(type(layer).__qualname__)


def reason(layer: nn.Module) -> str | None:
    """The reason why an activation of transformers or timm stays, a clause; None for every other layer."""
    return REASONS.get(_module(layer), {}).get(type(layer).__qualname__)


def _module(layer: nn.Module) -> str:
    """Return the module of a layer's class; nothing where the class only says that it is from there."""
    kind = type(layer)
    found = sys.modules.get(kind.__module__)
    return kind.__module__ if vars(found or object).get(kind.__qualname__) is kind else ""
