"""`python -m benchmarks.lift_all`: what becomes of a problem file, in a word and a line."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import ROOT, Workshop

from benchmarks.lift_all import lifted, outcome

OUTCOMES: dict[str, tuple[tuple[str, int, BaseException | None], tuple[str, str]]] = {
    "one module": (("this runs a.py\nfused: relu\n", 0, None), ("whole", "1 kernel")),
    "kernels between calls": (
        ("this runs a.py\n2 regions in 1 kernel\nrelu_mul: ...\n", 0, None),
        ("partial", "2 regions in 1 kernel"),
    ),
    "no comparison": (
        ("this runs a.py\n1 region in 1 kernel\na.py: ... nothing was compared: ...\n", 1, SystemExit(1)),
        ("partial", "1 region in 1 kernel, nothing was compared"),
    ),
    "a refusal": (
        ("this runs a.py\na.py:3:1: Model has no place in a spec: it is none\n", 2, SystemExit(2)),
        ("refused", "a.py:3:1: Model has no place in a spec: it is none"),
    ),
    "another result": (
        ("this runs a.py\na.py: the module is not the model: on get_inputs()\n", 2, SystemExit(2)),
        ("differs", "a.py: the module is not the model: on get_inputs()"),
    ),
    "an exception": (("this runs a.py\n", 1, KeyError("x\ny")), ("failed", "KeyError: 'x\\ny'")),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_the_outcome_of_a_file(case: str) -> None:
    (output, status, error), expected = OUTCOMES[case]
    text = output.encode()
    result = Result(CliRunner(), text, b"", text, None, status, error)
    assert outcome(result) == expected


def test_a_file_is_lifted_where_the_command_runs(workshop: Workshop) -> None:
    path: Path = ROOT / "tests/problems/6_Softmax.py"
    kind, said = lifted(path, [])
    assert kind == "refused"
    assert said.startswith(f"{path}:")
    assert said.endswith("since softmax stays: no kernel that reduces is known to be faster")
