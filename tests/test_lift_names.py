"""Names of regions, of what they read and of their numbers: those of the model's source."""

import copy
import linecache
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from blocks import BLOCKS, GatedMlp, Policy, SqueezeExcite, Style
from budget import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import fusegen
from fusegen.language.parse import parse_spec
from fusegen.models.lift.found import found
from fusegen.models.lift.lifted_network import named_regions
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.reader.row_gains import GAINS, WRITTEN_OUT, Gain

D = 8


class RootNorm(nn.Module):
    """A norm that is written out, as those of language models are."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.gamma, self.epsilon = nn.Parameter(torch.ones(D)), eps

    def forward(self, hidden: Tensor) -> Any:
        """Return the norm."""
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + self.epsilon)
        return self.gamma * hidden


def rotated(q: Tensor, angle: Tensor) -> Tensor:
    """Return a part of a rotation."""
    return q * torch.cos(angle) + q.neg() * torch.sin(angle)


class DecoderLayer(nn.Module):
    """A layer with functions, norms of other numbers, a sum in front of one, and numbers of its own."""

    def __init__(self, slope: float = 0.3) -> None:
        super().__init__()
        self.first, self.second = RootNorm(1e-3), RootNorm(1e-2)
        self.up, self.down, self.slope = nn.Linear(D, D), nn.Linear(D, D), slope

    def forward(self, x: Tensor, angle: Tensor) -> Any:
        """Return the layer."""
        residual = x
        x = self.down(F.leaky_relu(self.up(rotated(self.first(x), angle)), self.slope) * self.slope)
        x = residual + x
        return self.up(self.second(x)) + torch.sigmoid(self.up(x)) * self.down(x)


NAMES: dict[type[nn.Module], dict[str, str]] = {  # what a spec reads, and what it computes
    GatedMlp: {
        "gated_mlp_residual_rms_norm":
            "out_value, residual, weight; eps: normed: hidden * rsqrt(mean(hidden ** 2) + eps) * weight, "
            "hidden: out_value + residual",
        "gated_mlp_silu_mul": "gate, up: silu(gate) * up",
        "gated_mlp_add": "down, hidden: down + hidden",
    },
    SqueezeExcite: {
        "squeeze_excite_batch_norm_hardswish_eval":
            "x, norm_mean, norm_var, norm_weight, norm_bias: "
            "hardswish((x - norm_mean) * rsqrt(norm_var + 1e-05) * norm_weight + norm_bias)",
        "squeeze_excite_adaptive_avg_pool2d": "y: mean(y)",
        "squeeze_excite_relu": "x: relu",
        "squeeze_excite_hardsigmoid_mul": "y, z: where: {scale: hardsigmoid(z)}, scale * y",
    },
    Style: {
        "style_mul": "x, affine: x * affine",
        "style_leaky_relu_clamp":
            'y, noise, strength, bias: y + noise * strength + bias, '
            '"leaky_relu(y, negative_slope=0.2) * 1.4142135623730951", '
            '"clamp(y, -256, 256)"',
    },
    Policy: {
        "policy_tanh_exp_tanh":
            "mean, spread, draw: tanh(mean + exp(-5 + 3.5 * (tanh(spread) + 1)) * draw)",
    },
    DecoderLayer: {
        "decoder_layer_root_norm_cos_sin":
            "hidden, gamma, angle; epsilon: where: {variance: mean(hidden ** 2), "
            "value: gamma * (hidden * rsqrt(variance + epsilon))}, "
            "value * cos(angle) + -value * sin(angle)",
        "decoder_layer_leaky_relu_mul": "x: leaky_relu(x, negative_slope=0.3) * 0.3",
        "root_norm_residual":
            "residual, x, gamma; epsilon: where: {variance: mean(x_residual ** 2), "
            "hidden: x_residual * rsqrt(variance + epsilon)}, "
            "last: gamma * hidden, x_residual: residual + x",
        "decoder_layer_sigmoid_mul_add": "up, up_value, down: up + sigmoid(up_value) * down",
    },
}  # fmt: skip


def described(of: RegionSpec) -> str:
    """Return the names that a region reads, and its formula."""
    params = f"; {', '.join(of.params.values())}" if of.params else ""
    return f"{', '.join(of.inputs)}{params}: {of.body}"


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_names_are_those_of_the_source(kind: type[nn.Module], tmp_path: Path) -> None:
    shapes = {**BLOCKS, DecoderLayer: ((2, 3, D), (2, 3, D))}[kind]
    of = found(kind().eval(), [torch.randn(shape) for shape in shapes], least_passes=1, device="cpu")
    names = named_regions(of, tmp_path).names
    last = [each for each in of.chosen if each.region.result.graph is of.modes.graphs[-1]]
    assert {names[each.key]: described(each) for each in last} == NAMES[kind]


class ScaledNorm(nn.Module):
    """A number in front of a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.scale = nn.Conv2d(3, D, 3, bias=False), nn.BatchNorm2d(D), 0.7

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        return torch.relu(self.norm(self.conv(x) * self.scale))


def test_a_number_in_front_of_a_batch_norm_that_trains_is_in_its_kernel() -> None:
    of = found(ScaledNorm().train(), [torch.randn(4, 3, 32, 32)], least_passes=1, device="cpu")
    [region] = [each for each in of.chosen if each.region.result.graph is of.modes.graphs[0]]
    assert (region.title, region.numbers) == ("scaled_norm_mul_batch_norm_relu", ())
    assert re.fullmatch(r"x \* 0\.7, .*, relu", region.body)


class Norms(nn.Module):
    """Norms that differ in a number, and in nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.middle = RootNorm(1e-3), RootNorm(0.5), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Any:
        """Return the second of the first."""
        return self.second(self.middle(self.first(x)))


@pytest.mark.full
@pytest.mark.usefixtures("extensions")
def test_regions_with_other_numbers_are_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (False, True):
        monkeypatch.setitem(GAINS, ("cpu", "rms_norm", WRITTEN_OUT, 4, mode), Gain(1, 2**20))
    torch.manual_seed(0)
    model, x = Norms(), 0.3 * torch.randn(5, D)
    network = fusegen.lift(model, x, folder=tmp_path)
    assert [path.stem for path in tmp_path.glob("*.yaml")] == ["root_norm"]
    assert "params: {epsilon: 0.001}\n" in (tmp_path / "root_norm.yaml").read_text()
    exact = copy.deepcopy(model).double()
    for each in (network, pickle.loads(pickle.dumps(network))):
        torch.testing.assert_close(each(x).double(), exact(x.double()), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(each.double()(x.double()), exact(x.double()))  # and PyTorch's operations
        each.float()


WORDS = [  # that Python may name a variable, and a spec may not or has itself
    *("template", "int", "out", "nn", "cos", "mean", "bn", "conv", "pi", "e", "inf", "X"),
    *("num_groups", "input", "value", "before", "last", "x_2", "_", "Q_", "über", "eps", "y"),
    *("a" * 70, "match", "where", "self_", "errno", "results", "assert_", "signed", "z"),
]
SOURCE = """
import torch
from torch.nn import Module, Parameter


class {kind}(Module):
    def __init__(self):
        super().__init__()
        self.{d}, self.{e} = Parameter(torch.ones(4)), 0.3

    def forward(self, {a}, {b}):
        {c} = torch.tanh({a} * self.{e}) + self.{d}
        {a} = {c} * {b}
        return torch.where({a} > 0, {a}, {c}) * self.{d}
"""


@pytest.mark.full
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=5, max_size=5, unique=True), st.sampled_from(WORDS))
def test_names_are_legal_and_distinct(words: list[str], kind: str) -> None:
    text = SOURCE.format(kind=kind, **dict(zip("abcde", words, strict=True)))
    file = f"/{hash(text)}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {}
    exec(compile(text, file, "exec"), names)
    of = found(names[kind]().eval(), [torch.randn(3, 4), torch.randn(3, 4)], least_passes=1)
    [region] = of.chosen
    title = next(each for each in region.titles if not region.has_name(each))
    spec = parse_spec(region.text(title, "a test"), f"{title}.yaml")  # which refuses other names
    every = [*region.inputs, *region.params.values()]
    assert len({*every, *(step.name for step in spec.where)}) == len(every) + len(spec.where)
