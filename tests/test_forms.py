"""Calls in formulas and chains as PyTorch writes them: their first tensor, their scalars, their words."""

from __future__ import annotations

import pytest
from conftest import Workshop

TANH = "x · sigmoid(2 · √(2 / π) · (x + 0.044715 · x³))"
SAME = {  # in a formula: what it is, as the stage after the specs it names are put in writes it
    'gelu(x, approximate="tanh") + 1': f"{TANH} + 1",
    "gelu(x, approximate='none') + 1": "x Φ(x) + 1",
    'gelu(input=x, approximate="tanh") + 1': f"{TANH} + 1",
    "softplus(x, 1, 20) + 1": "(x if x > 20 else softplus(x · 1) / 1) + 1",
    "softplus(x, beta=2) + 1": "(x if x > 10 else softplus(x · 2) / 2) + 1",
    "softplus(x, 2, threshold=8) + 1": "(x if x > 4 else softplus(x · 2) / 2) + 1",
    "softplus(input=x, beta=2) + 1": "(x if x > 10 else softplus(x · 2) / 2) + 1",
    "softplus(input=x) + 1": "softplus(x) + 1",
    "relu(input=x) + 1": "relu(x) + 1",
    "silu(input=x) + 1": "x · sigmoid(x) + 1",
    "clamp(input=x, min=0) + 1": "max(x, 0) + 1",
    "minimum(input=x, other=0) + 1": "min(x, 0) + 1",
    "where(condition=x > 0, input=x, other=1) + 1": "(x if x > 0 else 1) + 1",
}
STEPS = {
    'gelu(approximate="tanh")': TANH,
    'gelu(approximate="none")': "x Φ(x)",
    "softplus(beta=2)": "x if x > 10 else softplus(x · 2) / 2",
    'gelu(x, approximate="tanh")': TANH,
}
MISTAKES = {
    'gelu(x, approximate="sin")': (
        20, "approximate of gelu is 'none' or 'tanh'", "for example  gelu(x, approximate='tanh')"),
    "gelu(x, approximate=tanh)": (
        20, "approximate of gelu is 'none' or 'tanh'", "for example  gelu(x, approximate='tanh')"),
    "gelu(x, approximate=1)": (
        20, "approximate of gelu is 'none' or 'tanh'", "for example  gelu(x, approximate='tanh')"),
    'gelu(x, approximate="tanh", approximate="none")': (
        28, "gelu is given the argument 'approximate' twice", "it is gelu(x, approximate='none')"),
    'silu(x, approximate="tanh")': (
        20, "this is not a formula: a text is not part of the language",
        "use numbers, names, + - * / **, comparisons inside where(...), and functions"),
    "softplus(x, 1, 20, 3)": (
        0, "softplus takes 1 tensor and 2 parameters, but 4 are given",
        "it is softplus(x, beta=1, threshold=20)"),
    "softplus(x, gamma=3)": (
        0, "softplus has no argument 'gamma'", "it is softplus(x, beta=1, threshold=20)"),
    "relu(x, input=x)": (8, "relu is given the argument 'x' twice", "it is relu(x)"),
    "silu(x, input=x)": (0, "silu is given the argument 'x' twice", "it is silu(x)"),
    "clamp(x, other=1)": (9, "clamp has no argument 'other'", "it is clamp(x, min, max)"),
    "silu(other=x)": (0, "silu has no argument 'other'", "it is silu(x)"),
}  # fmt: skip


def composed(workshop: Workshop, body: str) -> str:
    """What a spec returns once the specs that it names are put in."""
    path = workshop.spec("some", body)
    result = workshop.run("show", str(path), "--stage", "compose")
    assert result.exit_code == 0, result.output
    return result.output.splitlines()[-1].removeprefix("return ")


@pytest.mark.parametrize("formula", SAME)
def test_a_call_as_pytorch_writes_it(workshop: Workshop, formula: str) -> None:
    assert composed(workshop, f"formula: {formula}") == SAME[formula]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_as_pytorch_writes_it(workshop: Workshop, step: str) -> None:
    assert composed(workshop, f"chain:\n  - {step}") == STEPS[step]


@pytest.mark.parametrize("formula", MISTAKES)
def test_a_call_that_pytorch_refuses_too(workshop: Workshop, formula: str) -> None:
    offset, sentence, hint = MISTAKES[formula]
    workshop.spec("some", f"formula: {formula}")
    result = workshop.run("build", "specs/some.yaml")
    assert result.exit_code == 2
    line = f"    formula: {formula}\n    {' ' * (9 + offset)}^\n"
    assert result.output == f"specs/some.yaml:3:{10 + offset}: {sentence}\n{line}  hint: {hint}\n"
