"""A user's first day, with the wheel only: an empty project, a package of kernels, a training run."""

import sys
from pathlib import Path

import pytest
from test_packaging import installed as installed
from test_packaging import run
from test_packaging import wheel as wheel

PYPROJECT = """
[project]
name = "pkg"
version = "0.1"

[tool.fusegen]
specs = "src/pkg/kernels/specs"
output = "src/pkg/kernels"
namespace = "pkg"
"""
SPEC = """
name: soft_gate
summary: A gate of two tensors, as this project has it.
inputs: {x: {shape: [4, 8]}, bias: {shape: [8]}}
formula: x + 0.5 * relu(x + bias)
"""
USE = """
import torch
from pkg.kernels import SoftGate, relu, soft_gate

torch.manual_seed(0)
assert soft_gate.__module__ == "pkg.kernels.soft_gate"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.gate = torch.nn.Linear(8, 8), SoftGate()
        self.bias = torch.nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return relu(self.gate(self.layer(x), self.bias))


net, x, y = Net(), torch.randn(64, 8), torch.rand(64, 8)
optimizer = torch.optim.SGD(net.parameters(), 0.5)
losses = []
for _ in range(20):
    loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.9 * losses[0], losses
h = net.layer(x)
expected = torch.relu(h + 0.5 * torch.relu(h + net.bias))
torch.testing.assert_close(net(x), expected)

program = torch.export.export(net.eval(), (x,))
torch.export.save(program, "net.pt2")
torch.testing.assert_close(torch.export.load("net.pt2").module()(x), expected)
print("trained and exported")
"""


@pytest.mark.full
def test_a_project_with_the_wheel_only(installed: Path, tmp_path: Path) -> None:
    """New, build, check, certify, compile, import, train and export, all green, from a subfolder."""
    (tmp_path / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    below = tmp_path / "src" / "pkg"
    below.mkdir(parents=True)
    (below / "__init__.py").touch()
    more = {
        "PYTHONPATH": f"{installed}:{tmp_path / 'src'}",
        "PYTHONSAFEPATH": "1",
        "TORCH_EXTENSIONS_DIR": str(tmp_path / "builds"),
    }

    def fusegen(*words: str) -> list[str]:
        return run(sys.executable, "-m", "fusegen", *words, folder=below, **more).splitlines()

    new = ("kernels/specs/soft_gate.yaml", "kernels/specs/schema.json")
    assert fusegen("new", "soft_gate") == [f"new      {path}" for path in new]
    (below / "kernels/specs/soft_gate.yaml").write_text(SPEC.lstrip(), encoding="utf-8")
    made = fusegen("build", "soft_gate", "relu", "--package")
    assert made[0] == "new      kernels/soft_gate.py"
    assert made[-1] == "new      kernels/__init__.py"
    assert fusegen("check") == ["1 module is what its spec says, without a certificate"]
    fusegen("certify", "soft_gate", "--device", "cpu", "--dtype", "float32", "--sample", "4096")
    compiled = [line.split()[0] for line in fusegen("compile", "soft_gate", "relu", "--device", "cpu")]
    assert compiled == ["new"] * 6
    more |= {"CXX": "/nonexistent", "TORCH_EXTENSIONS_DIR": str(tmp_path / "none")}  # no compiler
    told = run(sys.executable, "-c", USE, folder=tmp_path, **more)
    assert told == "trained and exported\n"
    assert not (tmp_path / "none").exists()
