"""Infinities as constants of formulas: in selections, bounds and comparisons."""

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import Workshop
from kernels import Modules, compiled
from parsed import parsed
from torch import Tensor, inf

from fusegen.algebra.simplify.constants import folded
from fusegen.algebra.simplify.infinities import unbounded
from fusegen.codegen.printers import latex, notation
from fusegen.core.term import INFINITY, Apply, Number, Term, rebuild
from fusegen.errors import FusegenError

pytestmark = pytest.mark.usefixtures("optimised")

BODIES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "masked": (
        "formula: exp(where(x > 3, -inf, x)) + tanh(where(x < -3, inf, x) * 1.7)",
        lambda x: torch.exp(torch.where(x > 3, -inf, x)) + torch.tanh(torch.where(x < -3, inf, x) * 1.7),
    ),
    "finite_part": ("formula: where(abs(x) < inf, x, 0)", lambda x: torch.where(x.abs() < inf, x, 0.0)),
    "told_apart": (
        "formula: where(x == -inf, x * 0.5, where(x >= inf, x, sigmoid(x)))",
        lambda x: torch.where(x == -inf, x * 0.5, torch.where(x >= inf, x, torch.sigmoid(x))),
    ),
    "bounds": (
        "formula: maximum(clamp(x, -inf, 2), clamp(minimum(x, inf), -1, inf) - 3)",
        lambda x: torch.maximum(
            x.clamp(-inf, 2), torch.minimum(x, torch.full_like(x, inf)).clamp(-1, inf) - 3
        ),
    ),
    "selected": (
        "formula: where(x > 1, inf, where(x < -1, -inf, x))",
        lambda x: torch.where(x > 1, inf, torch.where(x < -1, -inf, x)),
    ),
}  # fmt: skip
POINTS = [0.0, -0.0, 1.0, -1.0, 2.0, 2.5, -2.5, 3.5, -3.5, 10.0, -10.0, 1e30, -1e30, inf, -inf, math.nan]
NEAR = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    folder = tmp_path_factory.mktemp("infinities")
    return Modules(folder, {name: body for name, (body, _) in BODIES.items()})


@pytest.mark.few(1)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("dtype", NEAR, ids=str)
def test_value_and_gradient_are_pytorchs(
    name: str, dtype: torch.dtype, modules: dict[str, ModuleType]
) -> None:
    expected, ours = BODIES[name][1], getattr(modules[name], name)
    x, own = (torch.tensor(POINTS, dtype=dtype).requires_grad_() for _ in range(2))
    y, z = expected(x), ours(own)
    torch.testing.assert_close(z, y, rtol=NEAR[dtype], atol=0, equal_nan=True)
    assert (z.signbit() == y.signbit())[~y.isnan()].all()
    usual = x.isfinite()  # at infinities and NaN an accurate gradient has the limit where eager has NaN
    [exact], [found] = (torch.autograd.grad(v.sum(), leaf) for v, leaf in ((y, x), (z, own)))
    torch.testing.assert_close(found[usual], exact[usual], rtol=4 * NEAR[dtype], atol=NEAR[dtype])


def constant(text: str) -> Term:
    def fold(term: Term) -> Term:
        return folded(rebuild(term, fold))

    return fold(parsed(text))


FOLDED: dict[str, Fraction | int] = {
    "inf": INFINITY, "-inf": -INFINITY, "-(inf)": -INFINITY, "inf + 1": INFINITY, "-inf - 1": -INFINITY,
    "1 / inf": 0, "2 * inf": INFINITY, "inf * -3": -INFINITY, "exp(-inf)": 0, "exp(inf)": INFINITY,
    "tanh(-inf)": -1, "sigmoid(inf)": 1, "relu(-inf)": 0, "maximum(3, -inf)": 3, "minimum(inf, 2)": 2,
    "clamp(7, -inf, inf)": 7, "expm1(-inf)": -1, "log(inf)": INFINITY, "erf(inf)": 1, "abs(-inf)": INFINITY,
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("text", FOLDED)
def test_a_part_that_reads_infinities_only_is_what_ieee_arithmetic_has(text: str) -> None:
    assert constant(text) == Number(Fraction(FOLDED[text]))


@pytest.mark.parametrize("text", ["inf - inf", "inf / inf", "0 * inf", "sin(inf)", "log(-inf)"])
def test_a_part_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(FusegenError, match="has no real value"):
        constant(text)


BOUNDS: dict[str, str | None] = {
    "clamp(x, -inf, inf)": "x", "clamp(x, -inf, y)": "clamp(x, max=y)",
    "clamp(x, y, inf)": "clamp(x, min=y)",
    "clamp(x, max=inf)": "x", "clamp(x, min=-inf)": "x", "minimum(x, inf)": "x", "minimum(inf, x)": "x",
    "maximum(x, -inf)": "x", "maximum(-inf, x)": "x", "saturate(x, -inf, 2)": "clamp(x, max=2)",
    "clamp(x, max=-inf)": None, "clamp(x, min=inf)": None, "minimum(x, -inf)": None,
    "maximum(x, inf)": None,
    "clamp(x, inf, -inf)": None, "clamp(x, 0, 1)": None, "where(x > y, inf, x)": None,
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("text", BOUNDS)
def test_a_bound_beyond_every_number_goes(text: str) -> None:
    wanted = BOUNDS[text]
    assert unbounded(parsed(text)) == (parsed(wanted) if wanted else None)


def test_they_are_written_as_readers_expect() -> None:
    term = parsed("where(x > inf, -inf, x)")
    assert notation.term(term) == "-inf if x > inf else x"
    assert r"-\infty" in latex.term(term)
    assert r"> \infty" in latex.term(term)
    assert isinstance(term, Apply)


def test_a_module_says_what_became_of_them(workshop: Workshop) -> None:
    workshop.spec("gate", "formula: clamp(x, -inf, 6) * where(x == inf, 0, 2)")
    text = workshop.run("show", "gate", "--stage", "module").output
    assert "// Bound at infinity: min(max(x, -inf), 6) is min(x, 6)." in text
    assert "torch.clamp(x, -torch.inf, 6)" in text
    assert "torch.where(x == torch.inf" in text
    assert "x == M(INFINITY)" in text


def test_eager_numerics_have_them_too(workshop: Workshop, tmp_path: Path) -> None:
    module = compiled(tmp_path, "eager_one", "numerics: eager\nformula: where(x > 2, -inf, x * x)\n")
    x = torch.tensor(POINTS)
    torch.testing.assert_close(
        module.eager_one(x), torch.where(x > 2, -inf, x * x), rtol=0, atol=0, equal_nan=True
    )
