"""Operators that reduce the last dimension, and casts between floats, as formulas.

A kernel of rows computes them between operations of elements: sums in double, and no rounding at a cast.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fusegen.models.reader.aten_table import Form, Rows, form
from fusegen.models.reader.operator_call import Call
from fusegen.models.reader.run_calls import CASTS

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WHERE = frozenset(("dim", "dtype", "normalized_shape", "cudnn_enable"))  # that `reduces_rows` looks at
LAYER_NORM = "(input - mean(input)) * rsqrt(mean((input - mean(input)) ** 2) + eps)"
RMS_NORM = "input * rsqrt(mean(input ** 2) + eps)"
EXPONENTIALS = frozenset(("softmax", "log_softmax", "logsumexp"))
NORMS = frozenset(("layer_norm", "rms_norm"))
FUSED = frozenset(("softmax", "log_softmax")) | NORMS  # of which PyTorch has a kernel


def _row(text: str, **given: Any) -> Form:
    return replace(form(text, **given), free=WHERE)


FOLDS: Rows = {  # whose value is one of the row
    **{name: (_row(f"{name}(self)", keepdim=True),) for name in ("mean", "sum", "amax", "amin")},
    "var": (
        _row("var(self, 0)", unbiased=False, keepdim=True),
        _row("var(self, 1)", unbiased=True, keepdim=True),
        _row("var(self, correction)", keepdim=True),
    ),
    "linalg_vector_norm": (_row("norm(self)", ord=2, keepdim=True),),
}
OF_ROWS: Rows = {
    **FOLDS,
    **{name: (_row(f"{name}(self)"),) for name in ("softmax", "log_softmax")},
    "layer_norm": tuple(_row(f"{LAYER_NORM}{own}") for own in (" * weight + bias", " * weight", "")),
    "rms_norm": tuple(_row(f"{RMS_NORM}{own}") for own in (" * weight", "")),
}
CAST_ROWS: Rows = {
    name: (
        Form(
            ast.Name("self"),
            free=frozenset("dtype device non_blocking copy memory_format layout pin_memory other".split()),
        ),
    )
    for name in CASTS
}


def reduces_rows(call: Call, dims: int) -> bool:
    """Tell if a call reduces the last of so many dimensions alone, of floats.

    Args:
        call: of an operator of `OF_ROWS`.
        dims: of its first argument.
    """
    if call.name in NORMS:
        return dims > 1 and len(call.arguments["normalized_shape"]) == 1
    given: Any = call.arguments.get("dim")
    if given is None or call.arguments.get("dtype") not in (None, *FLOATS):
        return False
    of = given if isinstance(given, Sequence) else [given]
    return dims > 1 and [each % dims for each in of if isinstance(each, int)] == [dims - 1]
