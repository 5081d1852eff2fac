"""The accuracy checks of benchmarks/kernelbench: two results, labels, and batches of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
import torch
from torch import Tensor, nn

from benchmarks import operands
from benchmarks.kernelbench import trials
from benchmarks.kernelbench.accuracy import NANS, VALUES, Accuracy, accuracy
from benchmarks.kernelbench.errors import Errors, Size, errors
from benchmarks.kernelbench.trials import Models, Place

CPU = Place("cpu", torch.float32)
EXACT = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)


def of_two(eager: list[float], ours: list[float]) -> tuple[Errors, Errors]:
    """The errors of two results that are off by so much, at a tolerance of 0.01."""
    given = [(EXACT + torch.tensor(each, dtype=torch.float64)).to(torch.float64) for each in (eager, ours)]
    return errors(given[0], given[1], EXACT, Size(1.0, 0.0), 0.01)


def test_typical_errors_are_of_what_both_have_within_the_tolerance() -> None:
    eager, ours = of_two([1e-3, 1.0, 0.0, 0.0], [1e-3, 9e-3, 0.0, 0.0])
    assert (eager.off, ours.off) == (0.25, 0.0)
    assert eager.largest == 1.0
    assert ours.largest == pytest.approx(9e-3)
    assert eager.typical == ours.typical == pytest.approx((1e-6 / 3) ** 0.5)


def test_a_result_within_the_tolerance_is_no_less_accurate_than_one_beyond_it() -> None:
    eager, ours = of_two([0.5] * 4, [1e-3] * 4)
    assert (eager.typical, ours.typical) == (0.0, 0.0)
    assert VALUES.broken(eager, ours, 1e-7) == ""
    assert VALUES.broken(ours, eager, 1e-7) == (
        "it is wrong: 100.00% of the elements are beyond the tolerance, 0.00% of eager's; "
        "largest error 0.5, eager's 0.001"
    )


def test_typical_errors_beyond_eagers_are_found() -> None:
    assert VALUES.broken(*of_two([2e-4, 1e-4, 1e-4, 1e-4], [2e-4] * 4), 0.0) == (
        "it is less accurate than eager: typical error 0.0002, eager's 0.000132"
    )


class Loss(nn.Module):
    """The cross-entropy of logits and labels."""

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        """The loss."""
        return nn.functional.cross_entropy(x, labels)


class Hinge(nn.Module):
    """A loss of a matrix and a number of each of its columns."""

    def forward(self, x: Tensor, of_columns: Tensor) -> Any:
        """The loss."""
        return (1 - x * of_columns).clamp(min=0).mean()


class Places(nn.Module):
    """The places of the largest elements."""

    def forward(self, x: Tensor) -> Any:
        """The places."""
        return x.argmax(1)


class Wrong(Places):
    """The same, one further."""

    def forward(self, x: Tensor) -> Any:
        """Other places."""
        return super().forward(x) + 1


class Narrow(Places):
    """The same in 32 bits."""

    def forward(self, x: Tensor) -> Any:
        """The places."""
        return super().forward(x).int()


def measured(reference: nn.Module, candidate: nn.Module, draw: Callable[[], list[Any]]) -> Accuracy:
    """The measurements of a pair on the CPU."""
    return accuracy(Models(reference, candidate, lambda seed: draw()), CPU)


def labelled() -> list[Any]:
    return [torch.randn(6, 5), torch.tensor([0, 4, 2, 1, 1, 3])]


def test_labels_keep_their_dtype_and_have_no_gradient() -> None:
    found = measured(Loss(), Loss(), labelled)
    assert found.findings == ()
    assert [one.check for one in found.measured if "gradient" in one.check] == ["gradient of input 0"]
    drawn = trials._placed(labelled()[1], Place("cpu", torch.bfloat16))
    assert drawn.dtype == torch.int64
    assert trials._placed(labelled()[0], Place("cpu", torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize(("candidate", "finds"), [(Places(), False), (Wrong(), True), (Narrow(), True)])
def test_places_are_compared_as_they_are(candidate: nn.Module, finds: bool) -> None:
    found = measured(Places(), candidate, lambda: [torch.randn(6, 5)])
    assert bool(found.findings) is finds


def test_large_places_are_compared_as_they_are() -> None:
    given = torch.tensor([3, 200_000])
    assert trials.wrong(given, given, 1e-2) == ""
    assert trials.wrong(given + 1, given, 1e-2) == "it gives 4 for 3 at element 0"
    assert (
        trials.wrong(given.add(torch.tensor([0, 1])), given, 1e-2)
        == "it gives 200001 for 200000 at element 1"
    )


class Far(Places):
    """The same, one further where rows have NaN in the last of their many elements."""

    def forward(self, x: Tensor) -> Any:
        """Other places."""
        return super().forward(x) + x.isnan().any()


def test_places_beside_nan_are_compared_as_they_are() -> None:
    found = measured(Places(), Far(), lambda: [torch.randn(2, 20_000)])
    assert [one.check for one in found.findings] == [NANS]


def test_chains_with_operands_are_compared_with_eager() -> None:
    chain = operands.CHAINS["bias_relu_scale_residual"]
    given = operands.tensors(chain, (2, 3, 4, 5), "NCHW", torch.zeros(()))
    operands.check("bias_relu_scale_residual", chain.eager, given)
    with pytest.raises(click.ClickException, match=r"off by .* of the largest value"):
        operands.check("bias_relu_scale_residual", lambda *t: chain.eager(*t) * 1.01, given)


def test_a_first_dimension_that_is_no_batch_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = 2**3, 2**13
    monkeypatch.setattr("benchmarks.kernelbench.accuracy.MOST", rows * columns)

    def draw() -> list[Any]:
        return [torch.zeros(rows * 2, columns), torch.ones(columns)]

    shapes: list[tuple[int, ...]] = []

    class Watched(Hinge):
        def forward(self, x: Tensor, of_columns: Tensor) -> Any:
            """The loss of a part."""
            shapes.append((*x.shape, *of_columns.shape))
            return super().forward(x[:, :4], of_columns[:4])

    of = Models(Hinge(), Watched(), lambda seed: draw())
    assert accuracy(of, CPU).measured
    assert set(shapes) == {(rows, columns, columns)}
