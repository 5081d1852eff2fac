"""`fusegen lift FILE.py:MODEL --partial`: a file of PyTorch's calls between generated kernels."""

# ruff: noqa: E501  # messages and files stand as they are

import ast
import copy
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from budget import examples
from conftest import Workshop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_lift import HEAD, PROBLEMS, problem

from fusegen.errors import Differs, FusegenError, NotLifted
from fusegen.models.lift.constructor_numbers import operand
from fusegen.models.lift.load import executed, read
from fusegen.models.lift.partial.call_text import wrapped
from fusegen.models.lift.partial.module import NoForward, method_of, module_text, renamed
from fusegen.models.lift.partial.partial_model import Partial, checked, partial
from fusegen.models.lift.spec_text import with_digest
from fusegen.models.lift.tiny import by_divisors, shrunk
from fusegen.models.lift.verify import verified
from fusegen.project.loader import imported


def lift(folder: Path, text: str, least_passes: int = 2) -> Partial:
    path = folder / "3_Some_Block.py"
    path.write_text(text)
    return partial(executed(*read(f"{path}:Model")), None, folder / "specs", least_passes)


def body(found: Partial) -> list[str]:
    """The lines of forward."""
    lines = found.text.split("def forward(self, ")[1].split("\n\n\ndef get_inputs")[0].splitlines()[1:]
    return [line.removeprefix("        ") for line in lines]


def specs(found: Partial) -> dict[str, str]:
    """The formulas or chains of the specs."""
    return {path.stem: text.splitlines()[-1] for path, text in found.specs.texts.items()}


NORM = "n|self.a = nn.Linear(n, n); self.norm = nn.LayerNorm(n); self.b = nn.Linear(n, n)"
PARTIAL: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "a number of dimensions": (
        problem(NORM, "y = torch.tanh(self.a(x)) * 2; return y.sum(x.dim() - 1) if y.ndim == 2 else y", arguments="8"),
        [
            "if x.dim() != 2:",
            '    raise ValueError("forward was traced with x.dim()=2")',
            "y = tanh_mul(self.a(x))",
            "return y.sum(dim=1)",
        ],
        {"tanh_mul": "formula: tanh(x) * 2"},
    ),
    "other operations in training": (
        problem(NORM, "x = self.a(x); y = torch.rand(x.shape[0], 1) * x if self.training else x; return torch.relu(y * 2)", arguments="8"),
        [
            "if self.training:",
            "    x = self.a(x)",
            "    y = torch.rand(x.size(0), 1)",
            "    return mul_mul_relu(x, y)",
            "x = self.a(x)",
            "return mul_relu(x)",
        ],
        {"mul_relu": "formula: relu(y * 2)", "mul_mul_relu": "chain: [y * x, relu(x * 2)]"},
    ),
    "a module inside that runs other operations in training": (
        problem("n|self.a = nn.Linear(n, n); self.block = Block()", "return self.block(self.a(x)) * 2", arguments="8")
        + "\n\nclass Block(nn.Module):\n    def forward(self, x):\n        return torch.exp(x) if self.training else torch.tanh(x)\n",
        [
            "if self.training:",
            "    if self.block.training is not True:",
            '        raise RuntimeError("self.block.training is not True: call train() or eval() on the model")',
            "    return exp_mul(self.a(x))",
            "if self.block.training is not False:",
            '    raise RuntimeError("self.block.training is not False: call train() or eval() on the model")',
            "return tanh_mul(self.a(x))",
        ],
        {"exp_mul": "chain: [exp(x), x * 2]", "tanh_mul": "chain: [tanh, x * 2]"},
    ),
    "an infinite default": (
        problem("n|self.a = nn.Linear(n, n)", 'x, bound=float("inf")|y = torch.tanh(self.a(x)) * 2; return y.sum(1)', arguments="8"),
        [
            'if bound != float("inf"):',
            '    raise ValueError("forward was traced with bound=inf")',
            "y = tanh_mul(self.a(x))",
            "return y.sum(dim=1)",
        ],
        {"tanh_mul": "formula: tanh(x) * 2"},
    ),
    "arguments with defaults": (
        problem("n|self.a = nn.Linear(n, n)", "x, bias=0.5, mask=None|y = torch.tanh(self.a(x)) + bias; return y * 2 if mask is None else y * mask", arguments="8"),
        [
            "if bias != 0.5:",
            '    raise ValueError("forward was traced with bias=0.5")',
            "if mask is not None:",
            '    raise ValueError("forward was traced with mask=None")',
            "y = self.a(x)",
            "return tanh_add_mul(y)",
        ],
        {"tanh_add_mul": "chain: [tanh(x) + 0.5, x * 2]"},
    ),
    "functions of modules that the file imports": (
        "import math\n" + problem("n|self.a = nn.Linear(n, n)", "y = torch.tanh(self.a(x)) * 2; return y / math.sqrt(x.shape[1])", arguments="8"),
        ["y = tanh_mul(self.a(x))", "return y / math.sqrt(x.size(1))"],
        {"tanh_mul": "formula: tanh(x) * 2"},
    ),
    "layers anywhere": (
        problem(NORM, "x = torch.tanh(self.a(x)) * 2; x = self.norm(x); return torch.relu(self.b(x) + 1)", arguments="8"),
        ["x = tanh_mul(self.a(x))", "x = self.norm(x)", "return add_relu(self.b(x))"],
        {"tanh_mul": "formula: tanh(x) * 2", "add_relu": "formula: relu(x + 1)"},
    ),
    "a convolution in front gives its bias to the kernel": (
        problem("n|self.conv = nn.Conv1d(n, n, 1)", "return torch.softmax(torch.relu(self.conv(x)), 1)",
                inputs="torch.rand(2, 8, 5)", arguments="8"),
        ["conv, conv_bias = without_bias(self.conv, x)", "return torch.softmax(bias_relu(conv, conv_bias), dim=1)"],
        {"bias_relu": "formula: relu(x + conv_bias)"},
    ),
    "a view behind a convolution, whose output may be channels last, is a reshape": (
        problem("n|self.conv = nn.Conv2d(n, n, 1)", "y = torch.relu(self.conv(x)) * 2; return y.view(y.size(0), -1)",
                inputs="torch.rand(2, 8, 5, 4)", arguments="8"),
        ["y, conv_bias = without_bias(self.conv, x)", "y = bias_relu_mul(y, conv_bias)", "return y.reshape(y.size(0), -1)"],
        {"bias_relu_mul": "formula: relu(x + conv_bias) * 2"},
    ),
    "a convolution whose output is read elsewhere, too, keeps it": (
        problem("n|self.conv = nn.Conv1d(n, n, 1)", "y = self.conv(x); return torch.relu(y) * 2 + y.mean()",
                inputs="torch.rand(2, 8, 5)", arguments="8"),
        ["y = self.conv(x)", "return relu_mul_add(y, y.mean())"],
        {"relu_mul_add": "formula: relu(y) * 2 + z"},
    ),
    "numbers of the constructor are read from the model": (
        problem("scale, low, dim|self.scale = scale * 2; self.low = low; self.dim = dim; self.act = nn.ELU(low)",
                "x = torch.clamp(x, min=self.low) * self.scale; x = self.act(x) + 1; return x.sum(dim=self.dim)", arguments="2.0, -1.5, 1"),
        ["x = clamp_min_mul_elu_add(x, low=self.low, scale=self.scale, alpha=self.act.alpha)", "return x.sum(dim=self.dim)"],
        {"clamp_min_mul_elu_add": 'chain: ["clamp_min(x, low) * scale", "elu(x, alpha=alpha) + 1"]'},
    ),
    "arithmetic of the constructor's numbers is kept": (
        problem("n, k, low|self.fc = nn.Linear(n, n); self.n, self.k, self.low = n, k, low",
                "x = self.fc(x).view(x.size(0), self.k, self.n // self.k); return (torch.relu(x - (1 - self.low) / 2) * -self.low).sum(-1 - self.k + 2)",
                arguments="8, 2, 0.25"),
        ["x_2 = self.fc(x)", "x = x_2.view(x.size(0), self.k, self.n // self.k)",
         "sum_1 = sub_relu_mul(x, low=(1 - self.low) / 2, scale=-self.low).sum(dim=((-1) - self.k) + 2)", "return sum_1"],
        {"sub_relu_mul": "formula: relu(x - low) * scale"},
    ),
    "an older value keeps its name": (
        problem(NORM, "y = self.a(x); x = torch.exp(y) * x; x = self.norm(x); return x * y + 1", arguments="8"),
        ["y = self.a(x)", "x = exp_mul(y, x)", "x = self.norm(x)", "return mul_add(x, y)"],
        {"exp_mul": "formula: exp(y) * x", "mul_add": "formula: x * y + 1"},
    ),
    "a variable that is read later is not written over": (
        problem(NORM, "y = self.a(x) + self.b(x); x = torch.tanh(y) * x; z = self.norm(y) * 2 - x; return z.view(-1)", arguments="8"),
        ["add = self.a(x)", "add_2 = self.b(x)"],
        {},
    ),
    "indices, slices, methods and operators": (
        problem(NORM, "x = self.a(x)[:, 1:4, None]; x = -x.transpose(0, 1).reshape(x.size(1), -1) @ x.new_ones((3, 1)); return torch.relu(x) - 1",
                inputs="torch.rand(3, 8)", arguments="8"),
        [],
        {"relu_sub": "formula: relu(x) - 1"},
    ),
    "numbers as inputs": (
        problem(NORM, "x, k|y = self.a(x) * k; return torch.relu(y) * (2 * k) if k > 0 else y", inputs="torch.rand(4, 8), 0.5", arguments="8"),
        ["if k != 0.5:", '    raise ValueError("forward was traced with k=0.5")', "y = self.a(x)", "return mul_relu_mul(y, k=k, scale=2 * k)"],
        {"mul_relu_mul": "chain: [x * k, relu(x) * scale]"},
    ),
    "sizes that the constructor decides": (
        "import math\n" + problem(NORM, "y = torch.tanh(self.a(x)) * 2; b, n = y.shape; return y.view(b, n // 2, 2).sum(-1) / math.sqrt(n)", arguments="8"),
        [
            "if x.dim() != 2:",
            '    raise ValueError("forward was traced with x.dim()=2")',
            "y = tanh_mul(self.a(x))", "size = y.size(0)", "size_2 = y.size(1)",
            "sum_1 = y.view(size, size_2 // 2, 2).sum(dim=-1)", "return sum_1 / math.sqrt(size_2)"],
        {"tanh_mul": "formula: tanh(x) * 2"},
    ),
    "tensors that forward makes": (
        problem(NORM, "y = torch.tanh(self.a(x)) * 2; y = y.contiguous() @ torch.eye(8, dtype=y.dtype, device=x.device); return F.cross_entropy(y, torch.zeros(4, dtype=torch.int64))", arguments="8"),
        [],
        {"tanh_mul": "formula: tanh(x) * 2"},
    ),
    "several results and the mode": (
        problem(NORM, "x = F.dropout(self.a(x), 0.25, self.training); return torch.relu(x) * 2, {'x': [x.sum()]}", arguments="8"),
        ["x = F.dropout(self.a(x), p=0.25, training=self.training)", "mul = relu_mul(x)", "return mul, {'x': [x.sum()]}"],
        {"relu_mul": "formula: relu(x) * 2"},
    ),
    "equal regions share a spec": (
        problem(NORM, "x = torch.relu(self.a(x)) * 2; x = self.norm(x); return torch.relu(self.b(x)) * 2", arguments="8"),
        ["x = relu_mul(self.a(x))", "x = self.norm(x)", "return relu_mul(self.b(x))"],
        {"relu_mul": "formula: relu(x) * 2"},
    ),
    "integers as inputs": (
        problem(NORM, "x, k|x = torch.relu(self.a(x)) * 2; return torch.gather(x, dim=1, index=k)",
                inputs="torch.rand(4, 8), torch.zeros(4, 1, dtype=torch.int64)", arguments="8"),
        ["x = relu_mul(self.a(x))", "return torch.gather(x, dim=1, index=k)"],
        {"relu_mul": "formula: relu(x) * 2"},
    ),
}  # fmt: skip
EXACT = [name for name, (_, lines, _) in PARTIAL.items() if lines and not name.startswith("a variable")]


@pytest.mark.together
@pytest.mark.parametrize("case", EXACT)
def test_forward_is_written_as_by_hand(case: str, tmp_path: Path) -> None:
    text, lines, formulas = PARTIAL[case]
    found = lift(tmp_path, text)
    assert body(found) == lines
    assert specs(found) == formulas


@pytest.mark.few(8)
@pytest.mark.parametrize("case", PARTIAL)
def test_the_file_computes_what_the_model_does(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _, formulas = PARTIAL[case]
    found = lift(tmp_path, text)
    assert formulas.items() <= specs(found).items()
    folder = tmp_path / "generated"
    with_formulas(found, folder)
    said = list(verified(found, folder / f"{found.name}.py"))
    assert len(said) == 4
    assert all("largest error" in sentence for sentence in said[1:])


def with_formulas(found: Partial, folder: Path) -> None:
    """Write the file beside modules that compute the regions' formulas by PyTorch, which compiles nothing."""
    folder.mkdir()
    for each in found.found.chosen:
        name = found.specs.names[each.key]
        taken = ", ".join([*each.inputs, *each.params.values()])
        laid = LAID * (f"{name}_kernels." in found.text)
        (folder / f"{name}.py").write_text(
            f"{PRELUDE}{laid}\n\ndef {name}({taken}):\n{python(each.formula, each.inputs[0])}\n"
        )
    (folder / "_runtime").mkdir()
    (folder / "_runtime/__init__.py").write_text("")
    (folder / "_runtime/producers.py").write_text(
        "from torch import channels_last\n\n\n"
        "def without_bias(layer, x):\n    y = layer(x)\n"
        "    y = y.to(memory_format=channels_last) if y.dim() == 4 else y\n"
        "    return y, y.new_full((), -0.0)\n"
    )
    (folder / f"{found.name}.py").write_text(found.text)


PRELUDE = """\
import torch
from torch import tanh, relu, exp, sigmoid, clamp_min
from torch.nn.functional import elu, gelu, leaky_relu


def softmax(x):
    return torch.softmax(x, 1)
"""
LAID = """
from ._runtime.producers import without_bias


class KERNELS:
    without_bias = staticmethod(without_bias)
"""


def python(formula: tuple[str, ...], first: str = "x") -> str:
    """The lines of a spec's formula or chain, whose steps have the name of the first input, as Python."""
    import yaml

    found: dict[str, Any] = yaml.safe_load("\n".join(formula))
    lines = [f"    {name} = {value}" for name, value in found.get("where", {}).items()]
    for step in found.get("chain", []):
        name, text = next(iter(step.items())) if isinstance(step, dict) else ("", step)
        lines.append(
            f"    {first} = {f'{text}({first})' if text.isidentifier() and text != first else text}"
        )
        lines += [f"    {name} = {first}"] if name else []
    return "\n".join([*lines, f"    return {found.get('formula', first)}"])


# --- what is refused ---------------------------------------------------------------------------------------

HOOKED = """class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.register_forward_hook(print)

    def forward(self, x):
        return self.fc(x)


class Model"""
REFUSED = {
    "no region": (
        problem(NORM, "return torch.relu(self.a(x))", arguments="8"),
        "FILE:14:9: Model has no region that is worth a kernel, since relu stays: alone it is as fast in PyTorch as in a kernel\n"
        "    return torch.relu(self.a(x))\n"
        "    ^\n"
        "  hint: leave the model to PyTorch",
    ),
    "no pointwise operation": (
        problem(NORM, "return self.a(x)", arguments="8"),
        "FILE:14:9: Model has no region that is worth a kernel, since a stays: Linear is a layer\n"
        "    return self.a(x)\n"
        "    ^\n"
        "  hint: leave the model to PyTorch",
    ),
    "control flow": (
        problem("", "y = x * 2; return y + 1 if x.sum() > 0 else x"),
        "FILE:12:9: this is no model to lift: forward cannot be traced, as a condition in it depends on its inputs\n"
        "    return y + 1 if x.sum() > 0 else x\n"
        "    ^\n"
        "  hint: forward is traced without values; torch.compile(model, backend=\"fusegen\") runs what depends on them",
    ),
    "the device of a tensor": (
        problem("", "y = torch.relu(x) * 2; return y + 1 if x.is_cuda else y"),
        "FILE:12:9: this is no model to lift: forward cannot be traced, as it reads is_cuda of a tensor, which its graph does not keep\n"
        "    return y + 1 if x.is_cuda else y\n"
        "    ^\n"
        "  hint: forward is traced without values; torch.compile(model, backend=\"fusegen\") runs what depends on them",
    ),
    "in place on an input": (
        problem("", "x += 1; return torch.relu(x) * 2"),
        "FILE:11:9: this is no model to lift: add in place: it writes to an input or a parameter\n"
        "    x += 1\n"
        "    ^\n"
        "  hint: use the form that makes a new tensor",
    ),
    "hooks": (
        problem("n|self.fc = Block(n)", "return torch.relu(self.fc(x)) * 2", arguments="8").replace("class Model", HOOKED),
        "Model: this is no model to lift: fc has hooks, which its graph does not run\n"
        "  hint: remove them, and register them on the result",
    ),
    "a forward that is inherited": (
        problem("", "return torch.relu(x) * 2").replace("class Model(", "class Base(").replace("\n\ndef get_inputs", "\n\nclass Model(Base):\n    pass\n\n\ndef get_inputs"),
        "FILE: this is no model to lift: the class Model does not define forward itself\n"
        "  hint: write the class out in the file",
    ),
    "a forward in one line": (
        HEAD + "    def forward(self, x): return torch.relu(x) * 2\n\n\ndef get_inputs():\n    return [torch.rand(4)]\n\n\ndef get_init_inputs():\n    return []\n",
        "FILE: this is no model to lift: its forward stands in one line\n"
        "  hint: write the class out in the file",
    ),
    "a forward that fails": (
        problem(NORM, "y = torch.relu(self.a(x)); return y * 2 + x.new_zeros(5)", arguments="8"),
        "FILE:15:9: this is no model to lift: forward cannot run on the example inputs, as it raises RuntimeError: Attempting to broadcast a dimension of length 5 at -1! Mismatching argument at index 1 had torch.Size([5]); but expected shape should be broadcastable to [4, 8]\n"
        "    return y * 2 + x.new_zeros(5)\n"
        "    ^\n"
        "  hint: make it run by itself first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_a_sentence_with_its_line(case: str, tmp_path: Path) -> None:
    text, expected = REFUSED[case]
    with pytest.raises(FusegenError) as told:
        lift(tmp_path, text)
    assert str(told.value).replace(str(tmp_path / "3_Some_Block.py"), "FILE") == expected
    assert not (tmp_path / "specs").exists()


def test_every_gives_single_operations_a_kernel(tmp_path: Path) -> None:
    found = lift(
        tmp_path, problem(NORM, "return torch.tanh(self.a(x)).sum()", arguments="8"), least_passes=1
    )
    assert body(found) == ["return tanh_region(self.a(x)).sum()"]


def test_a_convolution_in_front_of_rows_is_laid_as_their_kernels_read_it(tmp_path: Path) -> None:
    """One in front of a group norm stays in NCHW, which its kernels would copy channels_last to."""
    layers = "n|self.a = nn.Conv2d(n, n, 3); self.b = nn.GroupNorm(2, n); self.c = nn.Conv2d(n, n, 3)"
    forward = "return torch.cumsum(torch.sigmoid(self.c(torch.tanh(self.b(self.a(x)) * 2))), 1)"
    text = problem(layers, forward, inputs="torch.rand(2, 8, 9, 7)", arguments="8")
    found = lift(tmp_path, text, least_passes=1)
    assert [line for line in body(found) if "without_bias" in line] == [
        "a, a_bias = bias_group_norm_mul_tanh_kernels.without_bias(self.a, x)",
        "c, c_bias = without_bias(self.c, tanh)",
    ]
    name = "bias_group_norm_mul_tanh"
    assert f"from .{name} import KERNELS as {name}_kernels\n" in found.text


# --- the command -------------------------------------------------------------------------------------------

GATE = "7_Conv2d_Norm_Gate_Softmax.py"
OUTPUT = """\
this runs 7_Conv2d_Norm_Gate_Softmax.py
new      specs/bias_gelu.yaml
new      specs/gate_add.yaml
new      specs/bias_sigmoid_mul_add.yaml
new      generated/bias_gelu.py
new      generated/gate_add.py
new      generated/bias_sigmoid_mul_add.py
new      generated/_runtime
new      generated/conv2d_norm_gate_softmax.py
the rule is that of the CPU (--for cpu), where a kernel has to save 1 B in a call
Model, float32: 3 kernels; 3 regions save 61.4 kB of 103 kB that pointwise operations and reductions move
  1x  bias_gelu             7_Conv2d_Norm_Gate_Softmax.py:36      2 read, 1 written  10.2 kB saved of 20.5 kB
  1x  gate_add              7_Conv2d_Norm_Gate_Softmax.py:18, 37  3 read, 1 written  20.5 kB saved of 35.9 kB
  1x  bias_sigmoid_mul_add  7_Conv2d_Norm_Gate_Softmax.py:39      3 read, 1 written  30.7 kB saved of 46.1 kB
stays PyTorch's: 2 Conv2d (7_Conv2d_Norm_Gate_Softmax.py:36, 39): a kernel adds the bias
stays PyTorch's: 1 GroupNorm: layers
stays PyTorch's: 1 dropout (7_Conv2d_Norm_Gate_Softmax.py:38): no kernel with a dropout is known to be faster
stays PyTorch's: 1 softmax, 1 amax (7_Conv2d_Norm_Gate_Softmax.py:40): no kernel that reduces is known to be faster
stays PyTorch's: 1 sub (7_Conv2d_Norm_Gate_Softmax.py:40): alone it is as fast in PyTorch as in a kernel
after seed 0 the state_dict has the model's names, shapes and bits: conv.weight, conv.bias, layers.0.weight, layers.0.bias, layers.1.scale, out.weight, out.bias (at the sizes of the file)
outputs on get_inputs() of [2, 3, 10, 12] and [2, 8, 8, 10]: largest error E, the model's E, against float64
outputs on signed inputs of [2, 3, 10, 12] and [2, 8, 8, 10]: largest error E, the model's E, against float64
outputs and gradients in eval, slope=0.2, factor=0.5; in train, slope=0.2, factor=0.5; in eval, slope=0.15000000000000002, factor=0.375; in train, slope=0.15000000000000002, factor=0.375; in eval, slope=0.25, factor=0.625; in train, slope=0.25, factor=0.625: largest error E, the model's E
"""
FORWARD = '''\
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores of each place."""
        x, conv_bias = without_bias(self.conv, x)
        x = bias_gelu(x, conv_bias)
        z = gate_add(
            self.layers[0](x), self.layers[1].scale, y, negative_slope=self.layers[1].act.negative_slope,
        )
        z = F.dropout(z, p=0.2, training=self.training)
        x_2, out_bias = without_bias(self.out, z)
        x = bias_sigmoid_mul_add(x_2, out_bias, x, factor=self.factor)
        softmax = torch.softmax(x, dim=self.dim)
        return softmax, x.amax(dim=[2, 3], keepdim=True) - 1


def get_inputs() -> list[torch.Tensor]:
'''


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> Workshop:
    """A folder in which the command ran."""
    folder = tmp_path_factory.mktemp("gate")
    shutil.copy(PROBLEMS / GATE, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = Workshop(folder)
        result = found.run("lift", f"{GATE}:Model", "--partial", "--for", "cpu")
    assert (
        re.sub(r"error [-+.\de]+, the model's [-+.\de]+", "error E, the model's E", result.output) == OUTPUT
    )
    assert result.exit_code == 0
    return found


def test_the_file_is_the_users_with_another_forward(gate: Workshop) -> None:
    text = (gate.folder / "generated/conv2d_norm_gate_softmax.py").read_text()
    assert FORWARD in text
    assert "class Gate(nn.Module)" in text
    assert "class ModelNew(nn.Module):" in text
    assert "__main__" not in text
    digest, _, text = text.partition("\n")
    assert re.fullmatch("# lifted text: [0-9a-f]{16}", digest)
    assert text.startswith(
        f"# Code generated by fusegen from {GATE}:Model. DO NOT EDIT.\n"
        f"# Remake it with: python -m fusegen lift {GATE}:Model --partial\n#\n"
    )
    assert "#   bias_gelu(x, conv_bias): gelu(x + conv_bias)\n" in text
    assert (gate.folder / GATE).read_bytes() == (PROBLEMS / GATE).read_bytes()


def test_it_trains_as_the_model_does(gate: Workshop) -> None:
    names: dict[str, Any] = {"__name__": "problem"}
    exec((PROBLEMS / GATE).read_text(), names)
    ours = imported(gate.folder / "generated/conv2d_norm_gate_softmax.py").ModelNew(8, 2, 0.1, factor=0.7)
    theirs = names["Model"](8, 2, 0.1, factor=0.7)
    ours.load_state_dict(theirs.state_dict())
    exact = copy.deepcopy(theirs).eval().double()
    inputs = names["get_inputs"]()
    results = []
    for each in (ours, theirs):
        torch.manual_seed(1)
        results.append(each(*inputs))
        sum(value.square().sum() for value in results[-1]).backward()
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    for (name, one), (_, two) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5, msg=name)
    right = exact(*(each.double() for each in inputs))
    for one, two in zip(ours.eval()(*inputs), right, strict=True):
        assert (one - two).abs().max() < 1e-5


@pytest.mark.full
def test_again_it_changes_nothing_and_check_agrees(gate: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(gate.folder)
    files = gate.files()
    result = gate.run("lift", f"{GATE}:Model", "--partial")
    assert (result.exit_code, gate.files()) == (0, files)
    assert "unchanged: 3 modules" in result.output
    assert gate.run("check").exit_code == 0


@pytest.mark.full
def test_every_says_that_no_rule_is_asked(workshop: Workshop, use_worth: None) -> None:
    workshop.file("block.py", problem("", "return torch.softmax(torch.tanh(x) * 2, 1)"))
    small = workshop.run("lift", "block.py:Model", "--partial", "--for", "cpu")
    assert small.exit_code == 2
    assert (
        "since tanh stays: it moves so few bytes that the call of a kernel takes longer\n" in small.output
    )
    result = workshop.run("lift", "block.py:Model", "--partial", "--every")
    assert (result.exit_code, result.output.count("every region has a kernel, as --every asks\n")) == (0, 1)


def test_a_file_of_somebody_else_is_kept(workshop: Workshop) -> None:
    shutil.copy(PROBLEMS / GATE, workshop.folder)
    workshop.file("generated/conv2d_norm_gate_softmax.py", "x = 1\n")
    files = workshop.files()
    result = workshop.run("lift", f"{GATE}:Model", "--partial")
    assert (result.exit_code, workshop.files()) == (2, files)
    assert "conv2d_norm_gate_softmax.py: fusegen did not write this file" in result.output


def test_a_model_that_a_spec_holds_is_lifted_whole(workshop: Workshop) -> None:
    shutil.copy(PROBLEMS / "1_HardSigmoid.py", workshop.folder)
    result = workshop.run("lift", "1_HardSigmoid.py:Model", "--partial")
    assert "fused: hardsigmoid (line 17): 1 operation in 1 kernel" in result.output
    assert (workshop.folder / "specs/hardsigmoid_model.yaml").exists()


def test_no_region_ends_with_status_2_and_writes_nothing(workshop: Workshop) -> None:
    shutil.copy(PROBLEMS / "6_Softmax.py", workshop.folder)
    files = workshop.files()
    result = workshop.run("lift", "6_Softmax.py:Model", "--partial")
    assert (result.exit_code, workshop.files()) == (2, files)
    assert (
        "Model has no region that is worth a kernel, since softmax stays: no kernel that reduces is known to be faster"
        in result.output
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--every",), "--every needs --partial, --input or --inputs"),
        (("--partial", "--input", "2"), "--partial takes no --input and no --inputs"),
    ],
)
def test_options_that_do_not_go_together(
    workshop: Workshop, options: tuple[str, ...], sentence: str
) -> None:
    result = workshop.run("lift", "model.py:Model", *options)
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_file_that_computes_otherwise_is_told(tmp_path: Path) -> None:
    found = lift(tmp_path, PARTIAL["equal regions share a spec"][0])
    folder = tmp_path / "generated"
    with_formulas(found, folder)
    path = folder / "relu_mul.py"
    path.write_text(path.read_text().replace("* 2", "* 2.001"))
    with pytest.raises(Differs, match=r"on get_inputs\(\) its error is"):
        list(verified(found, folder / f"{found.name}.py"))


# --- parts -------------------------------------------------------------------------------------------------


def test_a_name_is_replaced_as_a_word_only() -> None:
    text = 'class Model(Base):\n    """Model."""\n    x = Model, Models, "Model"  # Model\n'
    assert (
        renamed(text, "Model", "New")
        == 'class New(Base):\n    """Model."""\n    x = New, Models, "Model"  # Model\n'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "x"),
        ("x + y", "(x + y)"),
        ("f(x + y)", "f(x + y)"),
        ("-x", "(-x)"),
        ("x[1, 2]", "x[1, 2]"),
        ("2", "2"),
    ],
)
def test_operands_have_brackets_where_they_need_them(text: str, expected: str) -> None:
    assert operand(text) == expected


def test_long_calls_are_wrapped_and_others_are_not() -> None:
    call = f"x = f({', '.join(['argument'] * 12)})"
    first, middle, last = wrapped(call)
    assert (first, last) == ("x = f(", ")")
    assert ast.dump(ast.parse(call)) == ast.dump(ast.parse(f"{first}{middle}{last}"))
    total = f"x = f({'a' * 60}) + f({'b' * 60})"
    assert wrapped(total) == [total]


def test_a_file_without_the_class_is_refused() -> None:
    with pytest.raises(NoForward, match="the file has no class Model at its top level"):
        method_of(ast.parse("if True:\n    class Model:\n        pass\n"), "Model", "forward")


def test_imports_stand_behind_those_of_the_file() -> None:
    text = '"""Words."""\nfrom __future__ import annotations\nimport torch\n\nclass M:\n    def forward(self, x):\n        # why\n        return x\n'
    found = module_text(text, "M", "# head\n", ["", "from .f import f"], (["return f(x)"], []))
    assert found == (
        '# head\n"""Words."""\nfrom __future__ import annotations\nimport torch\n\nfrom .f import f\n\n'
        "class ModelNew:\n    def forward(self, x):\n        return f(x)\n"
    )


SIZES = {
    "equal sizes stay equal, others different": ("a, b, c = 512, 1024, 512", "a, b, c = (12, 24, 12)"),
    "small ones stay": ("a, kernel_size = 4, 31", "a, kernel_size = (4, 31)"),
    "channels stay a multiple of groups": ("channels = 128\ngroups = 8", "channels = 16\ngroups = 8"),
    "and of groups that are large": ("a, b = 8192, 512", "a, b = (24, 12)"),
    "remainders stay": ("a = 130", "a = 14"),
}


@pytest.mark.parametrize("case", SIZES)
def test_small_sizes(case: str) -> None:
    text, expected = SIZES[case]
    assert ast.unparse(shrunk(ast.parse(text), by_divisors)) == expected


def test_a_partial_file_that_is_there_is_written_over(tmp_path: Path) -> None:
    found = lift(tmp_path, PARTIAL["layers anywhere"][0])
    path = tmp_path / "block.py"
    path.write_text(with_digest(found.text.partition("\n")[2] + "# changed\n"))
    [change] = checked(path, found)
    assert change.after == found.text


# --- any forward: the file's variables hold what the model's do ---------------------------------------------

VARIABLES = ("x", "y", "z")
EXPRESSIONS = (  # {0}, {1}: variables; some end regions, some stand in the middle of a statement
    *("torch.tanh({0}) * {1}", "torch.relu({0}) - 0.5", "{0} + {1}", "torch.sigmoid({0} * {1}) + {0}"),
    *(
        "torch.softmax({0}, 1)",
        "torch.softmax(torch.tanh({0}) * 2, 1) + {1}",
        "{0}.mean(1, keepdim=True) + {1}",
    ),
    *(
        "self.fc({0})",
        "torch.relu(self.fc({0})) * self.scale",
        "{0}.flip(1)",
        "torch.cat(({0}, {1}), 1)[:, 2:6]",
    ),
)
HOLDER = problem(
    "n|self.fc = nn.Linear(n, n); self.scale = nn.Parameter(torch.rand(n))",
    "x, y|BODY",
    inputs="torch.randn(3, 4), torch.randn(3, 4)",
    arguments="4",
)


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Statements that assign to a few variables, over and over."""
    lines, known = [], ["x", "y"]
    for _ in range(draw(st.integers(2, 9))):
        one, other = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        name = draw(st.sampled_from(VARIABLES))
        lines.append(f"{name} = {draw(st.sampled_from(EXPRESSIONS)).format(one, other)}")
        known = [*known, name] if name not in known else known
    result = " + ".join(draw(st.permutations(known))[: draw(st.integers(1, len(known)))])
    return "\n        ".join([*lines, f"return torch.softmax({result}, 1)"])


@pytest.mark.full
@settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(bodies())
def test_variables_hold_what_the_models_do(tmp_path: Path, body: str) -> None:
    with suppress(NotLifted):  # no region is worth a kernel
        compare_with_model(lift(tmp_path, HOLDER.replace("BODY", body)))


def compare_with_model(found: Partial) -> None:
    """Run the text of a file with the regions' formulas in PyTorch, and the model."""
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    for each in found.found.chosen:
        taken = ", ".join([*each.inputs, *each.params.values()])
        exec(
            f"def {found.specs.names[each.key]}({taken}):\n{python(each.formula, each.inputs[0])}\n", names
        )
    own = [line for line in found.text.splitlines() if not line.startswith("from .")]
    exec("\n".join(own), names)
    torch.manual_seed(0)
    ours = names["ModelNew"](4).double()
    torch.manual_seed(0)
    theirs = found.problem.model(4).double()
    inputs = (torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64))
    torch.testing.assert_close(ours(*inputs), theirs(*inputs), rtol=1e-12, atol=1e-12)


def test_an_edited_file_is_kept(gate: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(gate.folder)
    path = gate.folder / "generated/conv2d_norm_gate_softmax.py"
    before = path.read_text()
    edited = before + "# mine\n"
    without_digest = before.partition("\n")[2]
    try:
        for text in (edited, without_digest):
            path.write_text(text)
            result = gate.run("lift", f"{GATE}:Model", "--partial")
            assert (result.exit_code, path.read_text()) == (2, text)
            assert result.output == (
                f"this runs {GATE}\n"
                "generated/conv2d_norm_gate_softmax.py: the file was edited since it was lifted, and lift would overwrite it\n"
                "  hint: choose another --name, or move the file\n"
            )
    finally:
        path.write_text(before)
