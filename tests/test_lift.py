"""`fusegen lift`: from a model as its user wrote it to its spec, its module, and what is refused."""

# ruff: noqa: E501  # messages and specs stand as they are

import re
import shutil
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Workshop

from fusegen.errors import Differs, FusegenError, NotAModel
from fusegen.language.parse import parse_spec
from fusegen.models.lift import places
from fusegen.models.lift.found import found
from fusegen.models.lift.lifted import Lifted, lifted
from fusegen.models.lift.target import model_of
from fusegen.models.lift.verify import verified
from fusegen.project.loader import imported

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
PROBLEMS = ROOT / "tests/problems"


def problem(init: str, forward: str, inputs: str = "torch.rand(4, 8)", arguments: str = "") -> str:
    """The text of a file. `init` is the signature's rest and lines, `forward` likewise."""
    signature, _, lines = init.partition("|")
    makes = "".join(f"        {line.strip()}\n" for line in lines.split(";") if line.strip())
    taken, _, body = forward.rpartition("|")
    does = "".join(f"        {line.strip()}\n" for line in body.split(";"))
    return (
        f"{HEAD}    def __init__(self{signature and ', '}{signature}):\n        super().__init__()\n"
        f"{makes}\n"
        f"    def forward(self, {taken or 'x'}):\n{does}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return [{arguments}]\n"
    )


def lift(folder: Path, text: str) -> Lifted:
    path = folder / "3_Some_Block.py"
    path.write_text(text)
    return lifted(f"{path}:Model")


def body(found: Lifted) -> str:
    """The text of a spec below its head."""
    return found.text.split('lifted from 3_Some_Block.py:Model"\n')[1]


LIFTED = {
    "a statement is a step": (
        problem("", "y = F.relu(x) * 2; return torch.tanh(y)"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\nchain: [relu(x) * 2, tanh]\n",
    ),
    "arguments have their names": (
        problem("n, scale, slope=0.2|self.fc = nn.Linear(n, 5, bias=False); self.scale = scale; "
                "self.act = nn.LeakyReLU(slope)", "return self.act(self.fc(x) * self.scale)",
                arguments="8, 3"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\ninit: {n: 8, scale: 3, slope: 0.2}\nlayers:\n"
        "  - fc: Linear(n, 5, bias=False)\nformula: leaky_relu(x * scale, negative_slope=slope)\n",
    ),
    "a truth that a layer takes is found by changing it": (
        problem("n, bias=True, other=True|self.fc = nn.Linear(n, n, bias)", "return F.silu(self.fc(x))",
                arguments="8"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\ninit: {n: 8, bias: true, other: true}\nlayers:\n"
        "  - fc: Linear(n, n, bias)\nchain: [silu]\n",
    ),
    "layers and tensors in the order in which they were made": (
        problem("n, shape|self.a = nn.Parameter(torch.randn(shape)); self.fc = nn.Linear(n, n); "
                "self.b = nn.Parameter(torch.rand(n) * 0.5); self.register_buffer('c', torch.ones(n))",
                "return self.fc(x) * self.b + self.c", arguments="8, (8,)"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\ninit: {n: 8, shape: [8]}\nlayers:\n"
        '  - a: {unread: "Parameter(randn(shape))"}\n  - fc: Linear(n, n)\n'
        "  - b: Parameter(rand(n) * 0.5)\n  - c: Buffer(ones(n))\nformula: x * b + c\n",
    ),
    "a residual is a named step": (
        problem("", "old = x; x = torch.sigmoid(x); x = x * 3; return x + old"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\nchain: [before: x, sigmoid, x * 3, x + before]\n",
    ),
    "a value that is read later has the model's name": (
        problem("", "x = x + 1; kept = torch.tanh(x); x = kept * 2; x = F.gelu(x); return x - kept"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\n"
        "where: {kept: tanh(x + 1)}\n"
        "formula: gelu(kept * 2) - kept\n",
    ),
    "a value beside the chain is a line of where": (
        problem("", "kept = x.clone().detach(); x = x + kept; x = torch.relu(x); return x * kept"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\nwhere: {kept: detach(x)}\n"
        "chain: [x + kept, relu, x * kept]\n",
    ),
    "two branches that meet twice are a formula": (
        problem("", "a = torch.tanh(x); b = torch.exp(a); c = torch.sigmoid(a); d = b * c; return d + c"),
        'inputs: {x: {shape: [4, 8], fill: rand}}\nwhere: {a: tanh(x), b: exp(a), c: sigmoid(a), d: b * c}\n'
        "formula: d + c\n",
    ),
    "a mask": (
        problem("", "x, m|return torch.where(m, x * torch.sigmoid(x), x).masked_fill(m, 2.0)", inputs="torch.rand(4, 8), torch.rand(4, 1) > 0.5"),
        "inputs: {x: {shape: [4, 8], fill: rand}, m: {shape: [4, 1], dtype: bool}}\n"
        "formula: where(m, 2.0, where(m, x * sigmoid(x), x))\n",
    ),
    "a number of forward, and an input in lower case": (
        problem("", "A, s|return A * s", inputs="torch.randn(4, 8), 2.5"),
        "inputs: {a: {shape: [4, 8], fill: randn}, s: 2.5}\nformula: a * s\n",
    ),
    "a view of an input": (
        problem("", "a, b|return a.unsqueeze(1) * b", inputs="torch.rand(4), torch.rand(4, 8)"),
        "inputs: {a: {shape: [4], fill: rand}, b: {shape: [4, 8], fill: rand}}\n"
        "formula: unsqueeze(a, 1) * b\n",
    ),
    "constants of forward": (
        problem("low|self.low = low", "return torch.max(x, torch.tensor(self.low, device=x.device)) - 1e-3",
                arguments="-0.5"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\ninit: {low: -0.5}\nformula: maximum(x, low) - 0.001\n",
    ),
    "arithmetic on arguments is a term": (
        problem("a, n|self.a = a; self.half = n / 2", "x = torch.tanh(x) * (1 - self.a) + 2 ** self.half; "
                "return x.clamp(-self.a, self.a)", arguments="0.5, 3"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\ninit: {a: 0.5, n: 3}\n"
        'chain: [tanh(x) * (1 - a) + 2 ** (n / 2), "clamp(x, -a, a)"]\n',
    ),
    "arguments that are called as functions, attributes, inputs and the spec": (
        problem("clamp, N, exp, some_block, x=2.0, dim=8, grad=1|self.a = clamp; self.b = exp - clamp; self.s = some_block; "
                "self.n = nn.Parameter(torch.ones(dim)); self.m = N; self.y = x",
                "x = torch.exp(x.clamp(-self.a, self.a) / self.b) * self.n; return x * self.s + self.m - abs(self.y)", arguments="0.5, 3, 2.0, 4.0"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\n"
        "init: {clamp: {default: 0.5, symbol: clamp_value}, N: {default: 3, symbol: n_value}, exp: {default: 2.0, symbol: exp_value}, "
        "some_block: {default: 4.0, symbol: some_block_value}, x: {default: 2.0, symbol: x_value}, dim: 8, grad: 1}\n"
        "layers:\n  - n: Parameter(ones(dim))\n"
        'chain:\n  - "exp(clamp(x, -clamp_value, clamp_value) / (exp_value - clamp_value)) * n"\n'
        "  - x * some_block_value + n_value - abs(x_value)\n",
    ),
    "arguments of forward that are called as functions and attributes": (
        problem("|self.w = nn.Parameter(torch.ones(8))", "exp, W, w|return exp * W * w * self.w", inputs="torch.rand(8), torch.rand(8), torch.rand(8)"),
        "inputs: {exp_input: {shape: [8], fill: rand}, w_input: {shape: [8], fill: rand}, w_input_2: {shape: [8], fill: rand}}\n"
        "layers:\n  - w: Parameter(ones(8))\nformula: exp_input * w_input * w_input_2 * w\n",
    ),
    "negative bases and infinities": (
        problem("", "y = torch.where(x > 0, float('-inf'), x); return torch.clamp((-2.0) ** y, max=1.5)"),
        'inputs: {x: {shape: [4, 8], fill: rand}}\nchain: ["where(x > 0, -inf, x)", "clamp_max((-2.0) ** x, 1.5)"]\n',
    ),
    "softplus with PyTorch's threshold": (
        problem("", "x = F.softplus(x) * 2; return F.softplus(x, beta=2.0)"),
        'inputs: {x: {shape: [4, 8], fill: rand}}\nchain: ["softplus(x, beta=1, threshold=20) * 2", '
        'softplus(beta=2.0)]\n',
    ),
    "in place on a new value": (
        problem("n|self.fc = nn.Linear(n, n); self.act = nn.ReLU(inplace=True)",
                "x = self.act(self.fc(x)); x += 1; return x.mul_(2)", arguments="8"),
        "inputs: {x: {shape: [4, 8], fill: rand}}\ninit: {n: 8}\nlayers:\n  - fc: Linear(n, n)\n"
        "chain: [relu, x + 1, x * 2]\n",
    ),
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("case", LIFTED)
def test_a_model_is_the_spec(case: str, tmp_path: Path) -> None:
    text, expected = LIFTED[case]
    found = lift(tmp_path, text)
    assert body(found) == expected
    assert found.name == "some_block"
    assert parse_spec(found.text, "specs/some_block.yaml").source == "lifted from 3_Some_Block.py:Model"


KEEP = "\n  hint: leave it to PyTorch: lift with --partial, or call it before or after the module"
REFUSED = {
    "an operation": (
        problem("", "x = torch.relu(x); return torch.softmax(x, -1)"),
        "FILE:12:9: softmax has no place in a spec: the language has no such operation\n"
        f"    return torch.softmax(x, -1)\n    ^{KEEP}",
    ),
    "a dtype that decides": (
        problem("", "return torch.relu(x) * torch.finfo(x.dtype).eps"),
        "FILE:10:5: dtype of x has no place in a spec: a spec holds for any dtype and any number of dimensions\n"
        "    def forward(self, x):\n    ^\n  hint: lift with --partial",
    ),
    "a number of dimensions that decides": (
        problem("", "return torch.relu(x) * 2 if x.dim() == 2 else x"),
        "FILE:10:5: dim of x has no place in a spec: a spec holds for any dtype and any number of dimensions\n"
        "    def forward(self, x):\n    ^\n  hint: lift with --partial",
    ),
    "a reduction by the name of a binary function": (
        problem("", "return torch.max(x, dim=1)[0]"),
        "FILE:11:9: max has no place in a spec: along a dimension it is a reduction\n"
        f"    return torch.max(x, dim=1)[0]\n    ^{KEEP}",
    ),
    "a layer whose weights are set": (
        problem(
            "n|self.fc = nn.Linear(n, n); nn.init.zeros_(self.fc.weight)",
            "return torch.relu(self.fc(x))",
            arguments="8",
        ),
        "FILE:6:1: this is no model to lift: fc.weight is written to by zero after its layer made it\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: leave it as the layer makes it",
    ),
    "a parameter that is written to": (
        problem(
            "n|self.b = nn.Parameter(torch.ones(n)); nn.init.constant_(self.b, 2.0)",
            "return x * self.b",
            arguments="8",
        ),
        "FILE:6:1: this is no model to lift: the parameter b is made by constant, which a spec has no words for\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: make it by randn, rand, zeros, ones, full or tensor, perhaps times a number",
    ),
    "a buffer that is written to": (
        problem(
            "n|self.register_buffer('b', torch.ones(n)); self.b[0] = 2", "return x * self.b", arguments="8"
        ),
        "FILE:6:1: this is no model to lift: the buffer b is made by setitem, which a spec has no words for\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: make it by randn, rand, zeros, ones, full or tensor, perhaps times a number",
    ),
    "a layer behind an operation": (
        problem(
            "n|self.a = nn.Linear(n, n); self.b = nn.Linear(n, n)",
            "return torch.relu(self.b(torch.tanh(self.a(x))))",
            arguments="8",
        ),
        "FILE:13:9: b (Linear) has no place in a spec: it is behind tanh, and layers run first\n"
        "    return torch.relu(self.b(torch.tanh(self.a(x))))\n"
        f"    ^{KEEP}",
    ),
    "a layer in another module": (
        problem(
            "n|self.net = nn.Sequential(nn.Linear(n, n), nn.ReLU())", "return self.net(x)", arguments="8"
        ),
        "FILE:12:9: net.0 (Linear) has no place in a spec: it lies in another module of the model\n"
        "    return self.net(x)\n"
        f"    ^{KEEP}",
    ),
    "a layer that is called twice": (
        problem(
            "n|self.fc = nn.Linear(n, n)", "x = self.fc(x); return torch.relu(self.fc(x))", arguments="8"
        ),
        "FILE:13:9: fc (Linear) has no place in a spec: it is called twice\n"
        "    return torch.relu(self.fc(x))\n"
        f"    ^{KEEP}",
    ),
    "a layer that is not called": (
        problem("n|self.fc = nn.Linear(n, n)", "return torch.relu(x)", arguments="8"),
        "FILE:6:1: this is no model to lift: forward never calls the layer fc\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: remove it",
    ),
    "an input that is read before and behind a layer": (
        problem("n|self.fc = nn.Linear(n, n)", "y = self.fc(x); return y + x", arguments="8"),
        "FILE:13:9: add has no place in a spec: it reads x, to which a layer is applied, too\n"
        "    return y + x\n"
        f"    ^{KEEP}",
    ),
    "no pointwise operation": (
        problem("n|self.fc = nn.Linear(n, n)", "return self.fc(x)", arguments="8"),
        "FILE:12:9: the result has no place in a spec: fc makes it, and no pointwise operation is there to fuse\n"
        "    return self.fc(x)\n"
        f"    ^{KEEP}",
    ),
    "several results": (
        problem("", "return torch.relu(x), x"),
        "FILE:10:5: the result has no place in a spec: it is a tuple, and a spec has one tensor\n"
        "    def forward(self, x):\n"
        f"    ^{KEEP}",
    ),
    "arithmetic that no formula has": (
        problem("n|self.n = n", "return x * (self.n // 2)", arguments="7"),
        "FILE:12:9: mul has no place in a spec: it reads n // 2, and a formula has no // and no %\n"
        f"    return x * (self.n // 2)\n    ^{KEEP}",
    ),
    "in place on an input": (
        problem("", "return x.mul_(2)"),
        "FILE:11:9: mul in place has no place in a spec: it writes to an input or a parameter\n"
        "    return x.mul_(2)\n"
        "    ^\n"
        "  hint: use the form that makes a new tensor",
    ),
    "in place on what a view reads": (
        problem("", "y = x * 2; v = y.detach(); z = y.add_(1); return z * v"),
        "FILE:13:9: add in place has no place in a spec: what it writes to is read elsewhere\n"
        "    z = y.add_(1)\n"
        "    ^\n"
        "  hint: use the form that makes a new tensor",
    ),
    "a random operation": (
        problem("", "return x + torch.randn(8)"),
        "FILE:11:9: randn has no place in a spec: the language has no such operation\n"
        "    return x + torch.randn(8)\n"
        "    ^\n"
        "  hint: leave it to PyTorch: lift with --partial, or call it before or after the module",
    ),
    "dropout": (
        problem("", "return F.dropout(torch.relu(x), 0.1)"),
        "FILE:11:9: dropout has no place in a spec: the language has no such operation\n"
        "    return F.dropout(torch.relu(x), 0.1)\n"
        f"    ^{KEEP}",
    ),
    "an argument without a place": (
        problem("", "return torch.div(x, 2, rounding_mode='floor')"),
        "FILE:11:9: div has no place in a spec: the argument rounding_mode='floor' is not known\n"
        "    return torch.div(x, 2, rounding_mode='floor')\n"
        f"    ^{KEEP}",
    ),
    "an initialiser": (
        problem(
            "n|self.b = nn.Parameter(torch.empty(n)); nn.init.normal_(self.b)",
            "return x * self.b",
            arguments="8",
        ),
        "FILE:6:1: this is no model to lift: the parameter b is made by normal, which a spec has no words for\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: make it by randn, rand, zeros, ones, full or tensor, perhaps times a number",
    ),
    "tied parameters": (
        problem(
            "n|self.a = nn.Parameter(torch.ones(n)); self.b = self.a",
            "return x * self.a + self.b",
            arguments="8",
        ),
        "FILE:6:1: this is no model to lift: a and b share their memory\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: give each a tensor of its own",
    ),
    "hooks": (
        problem(
            "n|self.fc = nn.Linear(n, n); self.fc.register_forward_hook(print)",
            "return torch.relu(self.fc(x))",
            arguments="8",
        ),
        "FILE:6:1: this is no model to lift: fc has hooks, which a spec cannot keep\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: remove them",
    ),
    "a buffer out of the state": (
        problem("|self.register_buffer('b', torch.ones(8), persistent=False)", "return x * self.b"),
        "FILE:6:1: this is no model to lift: the buffer b is not in the state_dict\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: register it as persistent",
    ),
    "integers": (
        problem("", "return x * 2", inputs="torch.ones(4, dtype=torch.int64)"),
        "FILE:6:1: this is no model to lift: the input x is of int64, and a spec has floats and masks\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: convert it before",
    ),
    "complex numbers": (
        problem("", "return x * 2", inputs="torch.ones(4, dtype=torch.complex64)"),
        "FILE:6:1: this is no model to lift: the input x is of complex64, and a spec has floats and masks\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: convert it before",
    ),
    "no tensor": (
        problem("", "return x * 2", inputs="3.0"),
        "FILE:6:1: this is no model to lift: get_inputs returns no tensor of floats\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: return one at least",
    ),
    "too few inputs": (
        problem("", "x, y|return x * y"),
        "FILE:6:1: this is no model to lift: forward takes 2 arguments, and get_inputs returns 1\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: return a value for each",
    ),
    "any number of inputs": (
        problem("", "*xs|return xs[0] * 2"),
        "FILE:6:1: this is no model to lift: forward takes *xs, and a spec names its arguments\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: name the arguments",
    ),
    "any number of arguments": (
        problem("*sizes", "return torch.relu(x)", arguments="3"),
        "FILE:6:1: this is no model to lift: the constructor takes *sizes, and a spec names its arguments\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: name the arguments",
    ),
    "other arguments": (
        problem("n", "return torch.relu(x)"),
        "FILE:6:1: this is no model to lift: the constructor does not take what get_init_inputs returns: missing a required argument: 'n'\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: give FILE.py:Model, a class of torch.nn.Module in a file that has get_inputs and get_init_inputs",
    ),
    "a constructor that raises": (
        problem("n|self.fc = nn.Linear(n, -1)", "return torch.relu(self.fc(x))", arguments="8"),
        "FILE:9:9: this is no model to lift: the constructor raises RuntimeError: Trying to create tensor with negative dimension -1: [-1, 8]\n"
        "    self.fc = nn.Linear(n, -1)\n"
        "    ^\n"
        "  hint: make it run by itself first",
    ),
    "a forward that raises": (
        problem("", "return torch.relu(x.missing()[0].gone) + undefined"),
        "FILE:11:9: this is no model to lift: forward cannot run on the example inputs, as it raises AttributeError: 'Tensor' object has no attribute 'missing'\n"
        "    return torch.relu(x.missing()[0].gone) + undefined\n"
        "    ^\n"
        "  hint: make it run by itself first",
    ),
    "control flow": (
        problem("", "y = x * 2; return y if x.sum() > 0 else x"),
        "FILE:12:9: this is no model to lift: forward cannot be traced, as a condition in it depends on its inputs\n"
        "    return y if x.sum() > 0 else x\n"
        "    ^\n"
        '  hint: forward is traced without values; torch.compile(model, backend="fusegen") runs what depends on them',
    ),
    "a layer that is made with a term": (
        problem("n|self.fc = nn.Linear(abs(n), n)", "return torch.tanh(self.fc(x))", arguments="8"),
        "FILE:6:1: this is no model to lift: fc is made with abs(n), where a spec has arguments and literals\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: lift with --partial, which keeps the constructor",
    ),
    "a parameter that is made with an item": (
        problem(
            "shape|self.w = nn.Parameter(2 * torch.ones(shape[0], 8))",
            "return x * self.w",
            arguments="(4, 1)",
        ),
        "FILE:6:1: this is no model to lift: w is made with shape[0], where a spec has arguments and literals\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: lift with --partial, which keeps the constructor",
    ),
    "an item of an argument": (
        problem("scales|self.s = scales", "return torch.tanh(x) * self.s[1]", arguments="[0.5, 2.0]"),
        f"FILE:12:9: mul has no place in a spec: it reads scales[1], and a formula has no items of an argument\n"
        f"    return torch.tanh(x) * self.s[1]\n    ^{KEEP}",
    ),
    "a parameter that is called as a function": (
        problem(
            "n|self.exp = nn.Parameter(torch.ones(n))",
            "y = torch.exp(x); return y * self.exp",
            arguments="8",
        ),
        "FILE:13:9: exp, which mul reads, has no place in a spec: 'exp' is already a function\n"
        "    return y * self.exp\n"
        "    ^\n"
        "  hint: rename it",
    ),
    "a name that is taken": (
        problem("inplace", "return x * 2", arguments="8"),
        "FILE:6:1: this is no model to lift: the argument 'inplace' of the constructor cannot be kept: 'inplace' cannot be a name: the generated module uses it\n"
        "    class Model(nn.Module):\n"
        "    ^\n"
        "  hint: rename it",
    ),
    "a view of a value": (
        problem("", "y = torch.relu(x); return y * y.unsqueeze(0)"),
        "FILE:12:9: unsqueeze has no place in a spec: only an input of the model is aligned so\n"
        "    return y * y.unsqueeze(0)\n"
        f"    ^{KEEP}",
    ),
    "a comparison as the result": (
        problem("", "return x > 0"),
        "FILE:10:5: the model Model has no place in a spec: a comparison stands where a number is expected\n"
        "    def forward(self, x):\n"
        "    ^\n"
        "  hint: change the model, or write the spec by hand",
    ),
    "a file that raises": (
        HEAD + "    pass\n\n\nraise OSError('no weights')\n",
        "FILE:10:1: this is no model to lift: importing the file raises OSError: no weights\n"
        "    raise OSError('no weights')\n"
        "    ^\n"
        "  hint: make it run by itself first",
    ),
    "a file that ends the program": (
        "import sys\n\nsys.exit(3)\n",
        "FILE:3:1: this is no model to lift: importing the file raises SystemExit: 3\n"
        "    sys.exit(3)\n"
        "    ^\n"
        "  hint: make it run by itself first",
    ),
    "no Python": (
        "class Model(:\n",
        "FILE:1:1: this is no model to lift: the file is not Python: invalid syntax\n"
        "    class Model(:\n"
        "    ^\n"
        "  hint: correct it",
    ),
    "no such class": (
        "class Modell:\n    pass\n",
        "FILE: this is no model to lift: the file defines no Model\n  hint: did you mean 'Modell'?",
    ),
    "no module": (
        "def get_inputs():\n    return []\n\n\nget_init_inputs = get_inputs\nModel = 3\n",
        "FILE: this is no model to lift: Model is no class of torch.nn.Module\n"
        "  hint: give FILE.py:Model, a class of torch.nn.Module in a file that has get_inputs and get_init_inputs",
    ),
    "no get_inputs": (
        HEAD + "    pass\n",
        "FILE: this is no model to lift: the file defines no get_inputs\n"
        "  hint: give FILE.py:Model, a class of torch.nn.Module in a file that has get_inputs and get_init_inputs",
    ),
    "get_inputs that raises": (
        problem("", "return x * 2", inputs="1 / 0"),
        "FILE:15:5: this is no model to lift: get_inputs() raises ZeroDivisionError: division by zero\n"
        "    return [1 / 0]\n"
        "    ^\n"
        "  hint: make it run by itself first",
    ),
}


@pytest.mark.together
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_spec_holds_is_refused_at_its_line(case: str, tmp_path: Path) -> None:
    text, expected = REFUSED[case]
    with pytest.raises(FusegenError) as told:
        lift(tmp_path, text)
    assert str(told.value).replace(str(tmp_path / "3_Some_Block.py"), "FILE") == expected


# --- the command ----------------------------------------------------------------------------------------


def copied(workshop: Workshop, name: str) -> str:
    shutil.copy(PROBLEMS / name, workshop.folder / name)
    return f"{name}:Model"


END_TO_END = {
    "1_HardSigmoid.py": """\
this runs 1_HardSigmoid.py
new      specs/hardsigmoid_model.yaml
new      generated/hardsigmoid_model.py
new      generated/_runtime
fused: hardsigmoid (line 17): 1 operation in 1 kernel
the state_dict of both is empty
outputs on get_inputs() of [12, 16]: largest error E, the model's E, against float64
outputs on signed inputs of [12, 16]: largest error E, the model's E, against float64
outputs and gradients in eval; in train: largest error E, the model's E
""",
    "4_ConvTranspose2d_Residual.py": """\
this runs 4_ConvTranspose2d_Residual.py
new      specs/convtranspose2d_residual.yaml
new      generated/convtranspose2d_residual.py
new      generated/_runtime
fused: detach (line 21), tanh (line 22), add (line 22): 3 operations in 1 kernel, which adds the bias of conv, too
PyTorch's: conv (line 20): ConvTranspose2d is a layer, and runs before the kernel
after seed 0 the state_dict has the model's names, shapes and bits: conv.weight, conv.bias (at the sizes of the file)
outputs on get_inputs() of [16, 32, 64, 64]: largest error E, the model's E, against float64
outputs on signed inputs of [16, 32, 64, 64]: largest error E, the model's E, against float64
outputs and gradients in eval; in train: largest error E, the model's E
""",
}


@pytest.mark.parametrize(
    "name",
    [
        name if name == "1_HardSigmoid.py" else pytest.param(name, marks=pytest.mark.full)
        for name in END_TO_END
    ],
)
def test_a_file_becomes_a_spec_and_a_module_that_is_the_model(workshop: Workshop, name: str) -> None:
    target = copied(workshop, name)
    before = (workshop.folder / name).read_bytes()
    result = workshop.run("lift", target)
    assert (
        re.sub(r"error [-+.\de]+, the model's [-+.\de]+", "error E, the model's E", result.output)
        == (END_TO_END[name])
    )
    assert result.exit_code == 0
    assert (workshop.folder / name).read_bytes() == before
    assert workshop.run("check").exit_code == 0
    files = workshop.files()
    again = workshop.run("lift", target)
    assert (again.exit_code, workshop.files()) == (0, files)
    assert "unchanged: 1 module" in again.output


def test_a_spec_of_something_else_is_kept(workshop: Workshop) -> None:
    target = copied(workshop, "1_HardSigmoid.py")
    path = workshop.spec("gate", "formula: x * 2")
    before = path.read_bytes()
    result = workshop.run("lift", target, "--name", "gate")
    assert result.exit_code == 2
    assert result.output == (
        "this runs 1_HardSigmoid.py\n"
        "specs/gate.yaml: the spec exists and was not lifted from 1_HardSigmoid.py:Model\n"
        "  hint: choose another --name, or move the file\n"
    )
    assert path.read_bytes() == before


def test_an_edited_spec_is_kept(workshop: Workshop) -> None:
    target = copied(workshop, "1_HardSigmoid.py")
    assert workshop.run("lift", target).exit_code == 0
    path = workshop.folder / "specs/hardsigmoid_model.yaml"
    edited = path.read_text() + "# mine\n"
    path.write_text(edited)
    result = workshop.run("lift", target)
    assert result.exit_code == 2
    assert result.output == (
        "this runs 1_HardSigmoid.py\n"
        "specs/hardsigmoid_model.yaml: the spec was edited since it was lifted, and lift would overwrite it\n"
        "  hint: choose another --name, or move the file\n"
    )
    assert path.read_text() == edited


def test_nothing_is_written_of_what_is_refused(workshop: Workshop) -> None:
    target = copied(workshop, "6_Softmax.py")
    files = workshop.files()
    result = workshop.run("lift", target)
    assert (result.exit_code, workshop.files()) == (2, files)
    assert "6_Softmax.py:16:9: softmax has no place in a spec" in result.output


MISTAKES = {
    "gate.py": "gate.py: this is no model to lift: it names no file and class",
    "gate.py:Model": "gate.py: this is no model to lift: there is no such file",
}


@pytest.mark.parametrize("target", MISTAKES)
def test_a_target_that_is_none_is_told(workshop: Workshop, target: str) -> None:
    result = workshop.run("lift", target)
    assert result.exit_code == 2
    assert MISTAKES[target] in result.output.splitlines()


@pytest.mark.full
def test_another_name_of_the_class_and_of_the_spec(workshop: Workshop) -> None:
    text = problem("", "return torch.tanh(x) * 2").replace("class Model", "class Twice")
    workshop.file("models.py", text)
    assert workshop.run("lift", "models.py:Twice", "--name", "twice_tanh").exit_code == 0
    assert 'source: "lifted from models.py:Twice"' in Path("specs/twice_tanh.yaml").read_text()


# --- the comparison -------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("forward", "other"), [
    ("return x * 2.0", "return x * 2.001"), ("return torch.relu(x)", "return torch.abs(x)"),
])  # fmt: skip
def test_a_module_that_is_not_the_model_is_told(forward: str, other: str, workshop: Workshop) -> None:
    path = workshop.file("block.py", problem("", forward))
    assert workshop.run("lift", "block.py:Model").exit_code == 0
    path.write_text(problem("", other))
    changed = lifted("block.py:Model")
    with pytest.raises(Differs) as told:
        list(verified(changed, Path("generated/block.py")))
    assert "its error is" in str(told.value)


@pytest.mark.full
def test_another_state_is_told(workshop: Workshop) -> None:
    path = workshop.file("block.py", problem("|self.b = nn.Parameter(torch.ones(8))", "return x * self.b"))
    assert workshop.run("lift", "block.py:Model").exit_code == 0
    path.write_text(problem("|self.b = nn.Parameter(torch.zeros(8))", "return x * self.b"))
    with pytest.raises(Differs) as told:
        list(verified(lifted("block.py:Model"), Path("generated/block.py")))
    assert told.value.message == "the module is not the model: after the same seed b has other numbers"


@pytest.mark.full
def test_a_number_of_the_constructor_is_compared_at_three_settings(workshop: Workshop) -> None:
    text = problem("a|self.a = a", "return torch.tanh(x) * (1 - self.a)", arguments="0.5")
    workshop.file("block.py", text)
    result = workshop.run("lift", "block.py:Model")
    at = [
        f"{mode}{setting}"
        for setting in (", a=0.5", ", a=0.375", ", a=0.625")
        for mode in ("in eval", "in train")
    ]
    said = result.output.splitlines()[-1].partition(": ")[0]
    assert (result.exit_code, said) == (0, f"outputs and gradients {'; '.join(at)}")


def test_a_number_that_the_constructor_hides_is_told(workshop: Workshop) -> None:
    """The function float gives a plain number, which is right for that of get_init_inputs only."""
    text = problem("a|self.a = a; self.b = float(a)", "return x * self.a + self.b", arguments="0.5")
    workshop.file("block.py", text)
    result = workshop.run("lift", "block.py:Model")
    assert result.exit_code == 2
    told = (
        ": a = 0.5 has no place in a spec: the constructor reads it otherwise than by arithmetic, so that the "
        "spec would hold for this value alone"
    )
    assert any(line.endswith(told) for line in result.output.splitlines())


@pytest.mark.full
def test_gradients_are_compared(workshop: Workshop) -> None:
    path = workshop.file("block.py", problem("", "return torch.tanh(x)"))
    assert workshop.run("lift", "block.py:Model").exit_code == 0
    path.write_text(problem("", "y = torch.tanh(x); return y.detach() + 0 * y"))
    with pytest.raises(Differs) as told:
        list(verified(lifted("block.py:Model"), Path("generated/block.py")))
    assert told.value.message.startswith("the module is not the model: in eval its error is ")


@pytest.mark.full
def test_a_module_takes_the_arguments_of_its_model(workshop: Workshop) -> None:
    """Formulas read them by other names."""
    workshop.file(
        "block.py",
        problem(
            "clamp, exp=3.0|self.low, self.e = clamp, exp",
            "return torch.exp(x.clamp(-self.low, self.low) / self.e)",
            arguments="0.5",
        ),
    )
    result = workshop.run("lift", "block.py:Model")
    assert result.exit_code == 0
    said = "formulas read the argument clamp as clamp_value, since clamp cannot be a name there\n"
    assert f"{said}{said.replace('clamp', 'exp')}" in result.output
    own = imported(workshop.folder / "generated/block.py").ModelNew(exp=2.0, clamp=0.25)
    x = torch.linspace(-1, 1, 9)
    torch.testing.assert_close(own(x), torch.exp(x.clamp(-0.25, 0.25) / 2))
    assert repr(own) == "Block(clamp=0.25, exp=2.0)"


PACKAGED = {  # a function of an installed package, and what the refusal says
    "chooses": (
        "torch.relu(x) if x.sum() > 0 else x",
        "forward cannot be traced, as a condition in it depends on its inputs\n",
    ),
    "fails": (
        "F.layer_norm(x, (5,))",
        "forward cannot run on the example inputs, as it raises RuntimeError: Given normalized_shape=[5], ",
    ),
}


@pytest.mark.parametrize("case", PACKAGED)
def test_a_refusal_names_the_line_of_a_model_in_a_package(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages are installed below the folders of libraries, and so is PyTorch, which raises."""
    does, why = PACKAGED[case]
    place = tmp_path / f"lib/python3.12/site-packages/package_that_{case}"
    place.mkdir(parents=True)
    (place / "scores.py").write_text(
        f"import torch\nimport torch.nn.functional as F\n\n\ndef scores(x):\n    return {does}\n"
    )
    (place / "__init__.py").write_text(
        "from torch import nn\n\nfrom .scores import scores\n\n\nclass Net(nn.Module):\n"
        "    def forward(self, x):\n        return scores(x) * 2\n"
    )
    monkeypatch.syspath_prepend(str(place.parent))
    monkeypatch.setattr(places, "STANDARD", (str(tmp_path / "lib/python3.12"),))
    with pytest.raises(NotAModel) as told:
        found(model_of(f"package_that_{case}:Net"), (torch.rand(4, 8),))
    assert str(told.value).startswith(f"{place}/scores.py:6:5: this is no model to lift: {why}")
    assert f"    return {does}\n    ^\n" in str(told.value)


def test_a_file_imports_its_siblings(tmp_path: Path) -> None:
    (tmp_path / "sibling_of_a_lift.py").write_text(
        "import torch\n\n\ndef act(x):\n    return torch.tanh(x) * 2\n"
    )
    text = problem("", "return act(x)").replace(
        "import torch\n", "import torch\nfrom sibling_of_a_lift import act\n", 1
    )
    assert body(lift(tmp_path, text)).endswith("formula: tanh(x) * 2\n")
