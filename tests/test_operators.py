"""The operators of the dispatcher: their tags, and what they take in a program that was recorded."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels import ROOT, assert_same, generated
from processes import told

pytestmark = pytest.mark.usefixtures("extensions")


def operators(name: str) -> dict[str, Any]:
    """All operators of a module, by name."""
    kernels = generated(name).KERNELS
    space = kernels.operators
    return {each: getattr(space, each).default for each in dir(space) if each.startswith(kernels.name)}


@pytest.mark.parametrize("name", ["relu", "swiglu", "conv_relu_hardswish"])
def test_operators_have_tags(name: str) -> None:
    found = operators(name)
    assert {f"{name}_forward", f"{name}_backward", f"{name}_forward_out", name} <= found.keys()
    assert all(torch.Tag.pt2_compliant_tag in operator.tags for operator in found.values())
    # Inductor takes the bias out of a matrix product in front of what is pointwise, to fuse the two; a
    # kernel it cannot fuse. The whole operator has become its parts by then.
    assert [each for each, operator in found.items() if torch.Tag.pointwise in operator.tags] == [name]


def test_an_operator_takes_what_its_function_takes() -> None:
    relu, swiglu = (generated(name).KERNELS.overload for name in ("relu", "swiglu"))
    assert relu(torch.arange(-2, 3)).tolist() == [0, 0, 0, 1, 2]
    assert relu(torch.eye(2).to_sparse()).layout == torch.sparse_coo
    x, up = torch.randn(3), torch.randn(3, dtype=torch.bfloat16)
    assert_same(swiglu(x, up), generated("swiglu").swiglu(x, up))
    assert swiglu(x, up.double()).dtype == torch.float64


def test_an_exported_program_takes_another_dtype() -> None:
    exported = torch.export.export(generated("relu").ModelNew(), (torch.randn(3),)).module(
        check_guards=False
    )
    assert_same(exported(torch.arange(-1.0, 2.0, dtype=torch.float64)), torch.tensor([0.0, 0, 1]).double())


ON_ANOTHER_DEVICE = """
    import warnings

    import torch
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    from generated.swiglu import KERNELS, swiglu

    _setup_privateuseone_for_python_backend("other")
    new = lambda: torch._C._acc.create_empty_tensor([3], torch.float32)
    done, library = [], torch.library.Library("aten", "IMPL")
    library.impl("silu", lambda x: done.append("silu") or new(), "PrivateUse1")
    library.impl("mul.Tensor", lambda x, y: done.append("mul") or new(), "PrivateUse1")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert swiglu(new(), new()).device.type == "other"
        assert KERNELS.overload(new(), new()).device.type == "other"
        assert torch.func.vjp(swiglu, new(), new())[0].device.type == "other"
        assert swiglu(torch.ones(3, device="meta"), torch.ones(3, device="meta")).shape == (3,)
    print(done, [str(warning.message) for warning in told])
"""


def test_a_gate_on_a_device_without_a_kernel_warns_once(extensions: Path) -> None:
    said = told(textwrap.dedent(ON_ANOTHER_DEVICE), extensions)
    sentence = "swiglu: no kernel for other; PyTorch's own operations run there instead"
    calls = ["silu", "mul"] * 3
    assert said == f"{calls} {[sentence]}\n"


def test_every_feature_on_the_page_has_a_test() -> None:
    page = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    table = page.partition("## Features of PyTorch\n")[2].partition("\n\n**")[0]
    named = re.findall(r"`(test_\w+\.py) (test_\w+)` \|$", table, re.MULTILINE)
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(named) == len(rows) > 10
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (
            f"{file} has no {test}"
        )
