"""Relations between calls of one function: each is broken by a fault of its kind, and by nothing else."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import ROOT
from mutants.faults import GRADIENT, TANGENT, VALUE, Fault, planted
from torch import Tensor

from fusegen.core import launch
from fusegen.core.term import Name, Program
from fusegen.evidence.certify.findings import Relations, Subject
from fusegen.evidence.certify.relations import RELATIONS, judged_relations, sizes
from fusegen.evidence.certify.relations.trial import trial

X, Y = Name("x"), Name("y")
LINEAR, INCOMING, MODES, LAYOUTS, DIFFER, BROADCAST, SIZES, NAN = RELATIONS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "LARGE", 2**14)


def product(x: Tensor, y: Tensor, **keywords: Any) -> Tensor:
    """A product, which PyTorch rounds once wherever an element lies."""
    if keywords.get("inplace"):
        return x.mul_(y)
    return torch.mul(x, y, out=keywords.get("out"))


def subject(given: Callable[..., Tensor] = product, **more: Any) -> Subject:
    program = Program(("x", "y"), (), (), (X * Y,))
    return Subject(
        "product", program, program, **{"params": {}, "given": given, "eager": torch.mul, **more}
    )


def judged(one: Subject, dtype: torch.dtype = torch.float32) -> Relations:
    return judged_relations(one, "cpu", dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_function_without_a_fault_keeps_every_relation(dtype: torch.dtype) -> None:
    found = judged(subject(keywords=frozenset({"out", "inplace"})), dtype)
    assert found.broken == ()
    assert found.kept == 84


def of_first(condition: Callable[[Tensor], Any]) -> Callable[..., Any]:
    return lambda tensors, keywords: condition(tensors[0])


@cache
def kept() -> int:
    """Return the number of relations that the function without a fault keeps."""
    return judged(subject()).kept


HALF = 1.5
FAULTS: dict[str, tuple[str, str, Callable[..., Tensor], Callable[..., Any], str]] = {
    # the relation, the part, the change, where, what the sentence says
    "squares": (LINEAR, GRADIENT, lambda g: g * g, of_first(lambda x: True), "powers of two up to 64"),
    "thresholds": (LINEAR, GRADIENT, lambda g: g.clamp(-100, 100), of_first(lambda x: True), "up to 16384"),
    "0 and strides": (INCOMING, GRADIENT, lambda g: g if g.is_contiguous() else g + g, of_first(
        lambda x: x.dim() == 2), "transposed"),
    "no_grad": (MODES, VALUE, lambda y: y * HALF, of_first(
        lambda x: not torch.is_grad_enabled() and x.numel() == 4096 and x.dim() == 1), "no_grad"),
    "jvp": (MODES, TANGENT, lambda t: t * HALF, of_first(lambda x: True), "jvp along x"),
    "vmap": (MODES, VALUE, lambda y: y * HALF, of_first(
        lambda x: torch._C._functorch.is_batchedtensor(x)), "vmap over rows"),
    "five dimensions": (LAYOUTS, GRADIENT, lambda g: g * HALF, of_first(
        lambda x: x.dim() == 5), "channels_last_3d"),
    "one length": (LAYOUTS, VALUE, lambda y: y * HALF, of_first(
        lambda x: x.shape == (43,)), "every length"),
    "strides differ": (DIFFER, VALUE, lambda y: y * HALF, lambda tensors, _: (
        tensors[0].shape == tensors[1].shape and tensors[0].stride() != tensors[1].stride()), "transposed"),
    "a number": (BROADCAST, VALUE, lambda y: y * HALF, lambda tensors, _: (
        tensors[1].dim() == 0 and tensors[0].dim() > 0), "y is a number"),
    "a sum": (BROADCAST, GRADIENT, lambda g: g * (1 + 2**-10), lambda tensors, _: (
        tensors[1].shape[-1:] == (1,) and tensors[0].numel() > 1), "y is a column"),
    "a shared row": (BROADCAST, GRADIENT, lambda g: g * HALF, of_first(
        lambda x: x.shape == (64,) and torch._C._functorch.is_gradtrackingtensor(x)),
        "x is shared by vmap"),
    "a large tensor": (SIZES, GRADIENT, lambda g: g * HALF, of_first(
        lambda x: x.numel() > 2**14), "16,391"),
    "a lost NaN": (NAN, VALUE, torch.nan_to_num, lambda tensors, _: (
        tensors[0].isnan() & tensors[1].isinf()), "x = nan, y = inf"),
    "a NaN of its own": (NAN, VALUE, lambda y: y * torch.nan, lambda tensors, _: (
        (tensors[0] == -2.5) & tensors[1].isinf()), "no NaN in any input"),
    "a NaN of a gradient": (NAN, GRADIENT, lambda g: g * torch.nan, lambda tensors, _: (
        (tensors[0] == -2.5) & tensors[1].isinf()), "no NaN in any input"),
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_relation(name: str) -> None:
    relation, part, change, where, said = FAULTS[name]
    found = judged(planted(subject(), Fault(name, part, change, relation, where)))
    [sentence] = [sentence for sentence in found.broken if sentence.startswith(f"{relation}: with ")]
    assert said in sentence
    assert found.kept < kept()


def test_a_sentence_says_how_many_results_differ_and_where() -> None:
    wrong = Fault("", VALUE, lambda y: y * 2, "", lambda tensors, _: tensors[0].dim() == 2)
    [layouts, *_] = [s for s in judged(planted(subject(), wrong)).broken if s.startswith(LAYOUTS)]
    words = layouts.removeprefix(f"{LAYOUTS}: with two dimensions, ")
    assert words.startswith("4,0") or words.startswith("4,1") or words.startswith("3,")  # 2 * 0 is 0
    assert " of 4,096 results of value differ, as at x = " in words
    assert words.endswith(" more cases")


def fails(x: Tensor, y: Tensor, **keywords: Any) -> Tensor:
    if x.dim() == 3:
        raise RuntimeError("no such thing")
    if x.dim() == 4:
        raise RuntimeError("of four dimensions\nnot implemented")
    return product(x, y, **keywords)


def eager_fails(x: Tensor, y: Tensor) -> Tensor:
    return fails(x, y) if x.dim() == 3 else product(x, y)


def test_a_call_that_fails_is_broken_unless_eager_refuses_it() -> None:
    found = judged(subject(fails, eager=eager_fails))
    assert found.broken == (f"{LAYOUTS}: with channels_last, the call fails, of four dimensions",)
    whole = judged(subject())
    assert found.kept == whole.kept - 1
    alone = judged(subject(fails, eager=None))
    assert (alone.broken, alone.kept) == ((), whole.kept - 3)  # nor does eager tell of NaN


def overwrites(x: Tensor, y: Tensor) -> Tensor:
    result = product(x, y)
    x.data += 1
    return result


def test_a_function_that_overwrites_its_input_is_refused() -> None:
    with pytest.raises(ValueError, match="changes its input"):
        judged(subject(overwrites))


def test_a_range_without_a_number_of_the_type_has_no_relations() -> None:
    assert judged(subject(assume={"x": (1e6, 1e7)}), torch.float16) == Relations()


def test_the_sizes_on_cuda_lie_around_each_row_of_the_launch_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_memory(gib: int) -> list[int]:
        memory = SimpleNamespace(total_memory=gib * 2**30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
        there: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)
        return sizes._launched(there)

    large, small = with_memory(80), with_memory(4)
    kib = {row.kib for rows in launch.shipped().rows.values() for row in rows if row.kib}
    assert {size * 4 // 2**10 for size in large[1::3]} - {2**14} <= kib
    assert {2**20 - 1, 2**20, 2**20 + 1, sizes.BITMASK} <= set(large)  # 4096 KiB
    assert small == large[: len(small)]
    assert small[-2] * 4 * sizes.LEAST_MEMORY <= 2**32 < large[len(small)] * 4 * sizes.LEAST_MEMORY


@pytest.mark.parametrize("wrong", [1.0, 2.0])
def test_calls_on_cuda_are_as_on_any_device(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    monkeypatch.setattr(sizes, "BITMASK", 2**14)

    def function(x: Tensor, inplace: bool = False) -> Tensor:
        large = x.numel() >= 2**14 and (inplace or x.dim() == 4)
        result = x * 3 * (wrong if large else 1)
        return x.copy_(result) if inplace else result

    program = Program(("x",), (), (), (X * 3,))
    tried = trial(Subject("three", program, program, {}, function), "cpu", torch.float32)
    assert tried is not None
    calls = [*sizes._repeated((4, 8, 8, 64), tried), *sizes._large_in_place(tried)]
    assert [bool(compared.differ.any()) for compared in calls] == [wrong != 1] * 5


def test_the_documentation_has_a_row_for_each_relation() -> None:
    text = (ROOT / "docs/certificates.md").read_text(encoding="utf-8")
    rows = text.partition("## Relations")[2].partition("\n## ")[0].splitlines()
    head, *named = (row.split(" | ")[0].removeprefix("| ") for row in rows if row.startswith("| "))
    assert (head, named) == ("relation", [*RELATIONS])
