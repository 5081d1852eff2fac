"""Functions on the CPU next to a zero at 0, where second words are too small for a float."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from kernels import compiled, units
from test_lower import parsed
from test_words import shown

from fusegen.core.ir import Math
from fusegen.core.targets import Device
from fusegen.core.term import Let, Name, Program
from fusegen.lower import lower
from fusegen.lower.tangent import LOST, tangent

F = Fraction
# formulas of x, and their slopes at 0 if they are such functions
SLOPES: dict[str, Fraction | None] = {
    "tanh(0.7 * x)": F(7, 10),
    "tanh(x / 3)": F(1, 3),
    "1.3 * tanh(0.7 * x)": F(91, 100),
    "expm1(0.7 * tanh(x)) / 3": F(7, 30),
    "tanh(0.7 * expm1(-3 * x))": F(-21, 10),
    "0.7 * x": None,  # rounds once
    "1.3 * tanh(x)": None,
    "tanh(0.5 * x)": None,  # the product is exact
    "tanh(0.7 * x) + 1": None,
    "tanh(x + 0.7)": None,
    "sigmoid(0.7 * x)": None,
    "erf(0.7 * x)": None,  # its slope is no fraction
    "tanh(0.7 * x * x)": None,
    "tanh(0.0007 * x)": None,  # LOST is of ordinary slopes
    "tanh(3000 * x)": None,
    "tanh(0 * x)": None,
}


@pytest.mark.together
@pytest.mark.parametrize(("formula", "slope"), SLOPES.items())
def test_a_function_has_a_tangent(formula: str, slope: Fraction | None) -> None:
    expected = None if slope is None else (Name("x"), slope)
    assert tangent(parsed(formula, "x"), {}) == expected
    steps = {"u": parsed("0.7 * x", "x"), "v": parsed(re.sub(r"\bx\b", "u", formula), "u")}
    assert slope is None or tangent(Name("v"), steps) == (Name("x"), slope * F(7, 10))


def form(device: Device, math: Math, x: str = "x", y: str = "y") -> str:
    """The lowered form of tanh(1.1 * (0.75 * x))."""
    program = Program((x, y), (), (Let("v", parsed(f"0.75 * {x}", x)),), (parsed("tanh(1.1 * v)", "v"),))
    made = lower("f", program, device, math, True)
    steps = [f"{let.name} = {shown(let.value)}" for let in made.lets]
    return "; ".join((*steps, *map(shown, made.results)))


def test_the_tangent_is_chosen_by_the_input() -> None:
    found = form(Device.CPU, Math.FLOAT)
    assert "; otherwise = narrow(tanh(" in found
    small = f"lt(abs(x), {LOST[Math.FLOAT]!r})"
    hi, lo = 0.8249999284744263, 7.152557657263969e-08
    assert found.endswith(f"; where({small}, scaled(x, {hi!r}, {lo!r}), otherwise)")
    assert repr(LOST[Math.DOUBLE]) in form(Device.CPU, Math.DOUBLE)


@pytest.mark.parametrize("math", Math)
def test_cuda_has_none(math: Math) -> None:
    assert "lt(" not in form(Device.CUDA, math)


def test_a_step_has_a_name_of_its_own() -> None:
    found = form(Device.CPU, Math.FLOAT, "otherwise", "otherwise1")
    assert "; otherwise2 = " in found
    assert found.endswith(", otherwise2)")


def test_steps_of_several_results_have_names_of_their_own() -> None:
    results = tuple(parsed(f"where({x} > 0, y, sigmoid({x}))", "x y") for x in "xy")
    made = lower("f", Program(("x", "y"), (), (), results), Device.CPU, Math.FLOAT, True)
    assert [let.name for let in made.lets] == ["otherwise", "otherwise1"]
    assert [shown(result).rpartition(", ")[2] for result in made.results] == ["otherwise)", "otherwise1)"]


@pytest.fixture(scope="module")
def sizes() -> torch.Tensor:
    """Floats around those from which second words are lost, and subnormal ones."""
    border = torch.tensor(LOST[Math.FLOAT], dtype=torch.float32).view(torch.int32).item()
    ranges = ((1, 2**16), (2**23 - 2**16, 2**23 + 2**20), (2**24, 2**24 + 2**20))
    bits = [torch.arange(low, high, dtype=torch.int32) for low, high in ranges]
    bits.append(torch.arange(border - 2**16, border + 2**16, dtype=torch.int32))
    x = torch.cat(bits).view(torch.float32)
    return torch.cat([x, -x])


@pytest.mark.full
@pytest.mark.parametrize("formula", ["1.3 * tanh(0.7 * x)", "30 * tanh(x / 30)", "0.3 * expm1(x / 0.3)"])
def test_the_least_of_floats_keep_their_digits(
    formula: str, sizes: torch.Tensor, tmp_path: Path, extensions: Path
) -> None:
    forward = compiled(tmp_path, "soft", f"formula: {formula}\n").KERNELS.forward
    assert units(forward(sizes), forward(sizes.double())).max() < 1.1
    assert forward(torch.zeros(1)).item() == 0
