"""Models for `tests/test_lifted_models.py`: what users' constructors and forwards do, one thing each.

Each has the kind of its lift, `whole` or `partial`, and three settings of the constructor's arguments, the
first of which get_init_inputs returns.
"""

# ruff: noqa: E501  # models stand as they are

from dataclasses import dataclass, field

from test_lift import problem

WHOLE, PARTIAL = "whole", "partial"


@dataclass(frozen=True)
class Case:
    """A model."""

    kind: str  # of its lift
    # init, forward: of the class, as `problem` takes them
    init: str
    forward: str
    settings: tuple[str, str, str] = ("8", "8", "8")  # of the constructor's arguments, as Python
    inputs: str = "torch.randn(4, 8)"  # what get_inputs returns
    more: str = ""  # text behind the class
    siblings: dict[str, str] = field(default_factory=dict)  # files beside the model's

    @property
    def text(self) -> str:
        """The text of the file."""
        imports = "".join(f"from {name} import *\n" for name in self.siblings)
        text = problem(self.init, self.forward, self.inputs, self.settings[0])
        return text.replace("import torch\n", f"import torch\n{imports}", 1) + self.more


BLOCK = """

class Block(nn.Module):
    def __init__(self, n, slope):
        super().__init__()
        self.fc, self.slope = nn.Linear(n, n), slope

    def forward(self, x):
        return F.leaky_relu(self.fc(x), self.slope) * (1 - self.slope) + x
"""

CASES = {
    # arithmetic of the constructor
    "sums and differences": Case(
        WHOLE, "a, b|self.p = a + b; self.q = a - b; self.r = 3 - a", "return torch.tanh(x) * self.p - self.q * x + self.r",
        ("0.5, 2.0", "0.25, -1.0", "1.5, 0.125"),
    ),
    "products and quotients": Case(
        WHOLE, "a, b|self.p = a * b; self.q = a / b; self.r = 1 / a", "return torch.sigmoid(x * self.p) / self.q + self.r",
        ("0.5, 2.0", "3.0, 0.5", "-1.0, 4.0"),
    ),
    "powers and signs": Case(
        WHOLE, "a, n|self.p = a ** 2; self.q = 2 ** n; self.r = -a; self.s = abs(a)", "return torch.relu(x + self.r) * self.p / self.q + self.s",
        ("0.5, 3", "-2.0, 2", "1.25, 1"),
    ),
    "arithmetic in forward": Case(
        WHOLE, "a|self.a = a", "y = x.clamp(-self.a, self.a * 2); return y * (1 - self.a) + self.a / 4 + 3 ** self.a",
        ("0.5", "1.5", "2.0"),
    ),
    "a property": Case(
        WHOLE, "a|self.a = a", "return torch.tanh(x * (self.a * 2)) / (self.a + 1) - self.a ** 2",
        ("0.5", "1.5", "2.0"),
    ),
    "whole quotients and remainders": Case(
        PARTIAL, "n, k|self.fc = nn.Linear(n, n); self.n, self.k = n, k", "x = self.fc(x).view(x.size(0), self.k, self.n // self.k); return torch.tanh(x) * (self.n % self.k + 1) - self.n // self.k",
        ("8, 2", "8, 4", "8, 1"),
    ),
    "layers of terms": Case(
        PARTIAL, "n, a|self.fc = nn.Linear(n * 2, n + 1); self.a = a", "return torch.tanh(self.fc(x)) * self.a - (1 - self.a)",
        ("4, 0.5", "4, 0.75", "4, 2.0"),
    ),
    "items of an argument": Case(
        PARTIAL, "scales|self.s = scales", "return torch.tanh(x) * self.s[0] + x * self.s[1]",
        ("[0.5, 2.0]", "[1.5, 3.0]", "[-1.0, 0.25]"),
    ),
    # names
    "arguments called as functions": Case(
        WHOLE, "clamp, exp, min=0.5, abs=2.0|self.c, self.e, self.m, self.a = clamp, exp, min, abs",
        "return torch.exp(x.clamp(-self.c, self.c) / self.e) + torch.minimum(x, torch.tensor(self.m)) * abs(self.a)",
        ("0.5, 2.0", "1.5, 3.0, -0.5", "0.25, 4.0, 0.0, -1.0"),
    ),
    "arguments called as keys of a spec": Case(
        WHOLE, "name, formula, init, layers, inputs|self.a, self.b, self.c, self.d, self.e = name, formula, init, layers, inputs",
        "return (torch.tanh(x * self.a) + self.b) * self.c - self.d / self.e",
        ("0.5, 1.0, 2.0, 3.0, 4.0", "1.0, 0.5, 0.25, -3.0, 2.0", "2.0, -1.0, 1.0, 0.0, 1.0"),
    ),
    "arguments called as words of YAML, of C++ and of modules": Case(
        WHOLE, "y, on, null, default, dim, grad, half|self.q = y + on; self.r = null * default; self.s = dim - grad; self.t = half",
        "return torch.sigmoid(x * self.q) * self.r + self.s - self.t",
        ("0.5, 1.0, 2.0, 3.0, 4.0, 1.0, 0.5", "1.0, 0.5, 0.25, -3.0, 2.0, 0.0, 1.0", "2.0, -1.0, 1.0, 0.5, 1.0, 2.0, 2.0"),
    ),
    "arguments in capitals": Case(
        WHOLE, "N, Alpha, alpha|self.fc = nn.Linear(N, N); self.A, self.a = Alpha, alpha", "return torch.tanh(self.fc(x)) * self.A + self.a",
        ("8, 0.5, 2.0", "8, 1.5, 0.25", "8, -1.0, 3.0"),
    ),
    "an argument called as an attribute, an input and the spec": Case(
        WHOLE, "n, scale, x, model|self.scale = nn.Parameter(torch.ones(n)); self.a, self.b, self.c = scale, x, model",
        "return x * self.scale * self.a + torch.relu(x - self.b) / self.c",
        ("8, 0.5, 1.0, 2.0", "8, 2.0, 0.5, 4.0", "8, -1.0, -0.5, 0.5"),
    ),
    "inputs called as functions and in capitals": Case(
        WHOLE, "a|self.a = a", "exp, X, x|return torch.tanh(exp * self.a) + X * x",
        ("0.5", "2.0", "-1.0"), "torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)",
    ),
    # files
    "a function of a sibling": Case(
        WHOLE, "a|self.a = a", "return act_of_a_sibling(x, self.a)", ("0.5", "2.0", "-1.0"),
        siblings={"function_beside": "import torch\n\n\ndef act_of_a_sibling(x, a):\n    return torch.tanh(x * a) - a\n"},
    ),
    "a module of a sibling": Case(
        PARTIAL, "n, slope|self.block = BlockOfASibling(n, slope)", "return torch.softmax(self.block(x) * 2, 1)",
        ("8, 0.5", "8, 0.25", "8, 0.75"),
        siblings={"module_beside": "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n" + BLOCK.replace("Block", "BlockOfASibling")},
    ),
    "lambdas": Case(
        WHOLE, "a|self.a = a; self.act = lambda x: x * torch.sigmoid(x * self.a)", "return self.act(x) + (lambda y: y * 2)(x)",
        ("0.5", "2.0", "-1.0"),
    ),
    "a lambda over the model's layer": Case(
        PARTIAL, "n, a|self.fc = nn.Linear(n, n); self.a = a; self.act = lambda x: torch.tanh(self.fc(x)) * self.a + x", "return torch.softmax(self.act(x), 1)",
        ("8, 0.5", "8, 2.0", "8, -1.0"),
    ),
    # modules
    "a depth above eight": Case(
        PARTIAL, "n, depth, a|self.layers = nn.ModuleList([nn.Linear(n, n) for _ in range(depth)]); self.a = a",
        "for layer in self.layers: x = torch.tanh(layer(x)) * self.a + x;return x", ("8, 9, 0.5", "8, 9, 0.25", "8, 9, -1.0"),
    ),
    "a sequence": Case(
        PARTIAL, "n, slope|self.net = nn.Sequential(nn.Linear(n, n), nn.LeakyReLU(slope), nn.Linear(n, n)); self.s = slope", "return torch.tanh(self.net(x)) * self.s + x",
        ("8, 0.5", "8, 0.25", "8, 0.125"),
    ),
    "a shared layer": Case(
        PARTIAL, "n, a|self.fc = nn.Linear(n, n); self.again = self.fc; self.a = a", "y = torch.relu(self.fc(x)) * self.a; return torch.relu(self.again(y)) * self.a",
        ("8, 0.5", "8, 2.0", "8, -1.0"),
    ),
    "a shared activation": Case(
        WHOLE, "slope|self.act = nn.LeakyReLU(slope); self.also = self.act", "return self.act(x) * 2 + self.also(x - 1)",
        ("0.5", "0.25", "0.125"),
    ),
    "nested modules": Case(
        PARTIAL, "n, slope|self.blocks = nn.Sequential(Block(n, slope), Block(n, slope / 2))", "return self.blocks(x).sum(1)",
        ("8, 0.5", "8, 0.25", "8, 0.75"), more=BLOCK,
    ),
    "a model of a base": Case(
        WHOLE, "n, a|self.fc = nn.Linear(n, n); self.a = a; self.register()", "return torch.tanh(self.fc(x)) * self.low + self.a",
        ("8, 0.5", "8, 2.0", "8, -1.0"),
        more="\n\ndef register(self):\n    self.register_buffer('low', torch.full((8,), -0.5))\n\n\nModel.register = register\n",
    ),
    # arguments and state
    "arguments that nothing reads": Case(
        WHOLE, "a, verbose=False, mode='fast', other=None, size=(3, 4)|self.a = a; self.size = size", "return torch.relu(x) * self.a + 1",
        ("0.5", "2.0, True", "-1.0, False, 'slow'"),
    ),
    "a truth of a layer": Case(
        WHOLE, "n, bias, a=0.5|self.fc = nn.Linear(n, n, bias=bias); self.a = a", "return torch.tanh(self.fc(x)) * self.a",
        ("8, True", "8, False, 2.0", "8, True, -1.0"),
    ),
    "buffers and parameters": Case(
        WHOLE, "n, a, shape|self.register_buffer('mean', torch.zeros(n)); self.w = nn.Parameter(torch.rand(shape) * 0.5); self.unread = nn.Parameter(torch.ones(n)); self.register_buffer('std', torch.full((n,), 2.0)); self.a = a",
        "return torch.tanh((x - self.mean) / self.std) * self.w + self.a", ("8, 0.5, (8,)", "8, 2.0, (4, 1)", "8, -1.0, (1, 8)"),
    ),
    "a buffer that is not saved": Case(
        PARTIAL, "n, a|self.register_buffer('steps', torch.arange(n).float(), persistent=False); self.a = a", "return torch.tanh(x * self.steps) * self.a + self.steps",
        ("8, 0.5", "8, 2.0", "8, -1.0"),
    ),
    "results and reductions": Case(
        PARTIAL, "n, eps|self.fc = nn.Linear(n, n); self.eps = eps", "y = self.fc(x); m = y.mean(1, keepdim=True); y = (y - m) * torch.rsqrt(y.var(1, keepdim=True) + self.eps); return torch.tanh(y) * 2, {'mean': m}",
        ("8, 0.5", "8, 0.125", "8, 2.0"),
    ),
    "a mask and a number": Case(
        WHOLE, "a|self.a = a", "x, m, s|return torch.where(m, torch.tanh(x) * s, x.masked_fill(m, self.a)) - 1",
        ("0.5", "2.0", "-1.0"), "torch.randn(4, 8), torch.randn(4, 1) > 0, 2.5",
    ),
    "a convolution in front": Case(
        PARTIAL, "n, a|self.conv = nn.Conv1d(n, n, 3, padding=1); self.norm = nn.BatchNorm1d(n); self.a = a", "x = torch.relu(self.conv(x)) * self.a; return torch.tanh(self.norm(x)) + x",
        ("4, 0.5", "4, 2.0", "4, -1.0"), "torch.randn(2, 4, 6)",
    ),
    "other operations in training": Case(
        PARTIAL, "n, a|self.fc = nn.Linear(n, n); self.a = a", "x = self.fc(x); y = torch.tanh(x) * self.a if self.training else torch.sigmoid(x) * (1 - self.a); return y.sum(1)",
        ("8, 0.5", "8, 2.0", "8, -1.0"),
    ),
}  # fmt: skip
