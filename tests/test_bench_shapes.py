"""Shapes of benchmarks: of the first input as `--shape` says, of the others as the spec declares them."""

import pytest
from conftest import Workshop

from fusegen.evidence.bench.case import input_shapes
from fusegen.language.parse import parse_spec

QUICK = ("--device", "cpu", "--no-compile", "--seconds", "0")
HEAD = "name: gate\nsummary: A test.\n"
OPERANDS = {  # specs of several tensors
    "equal": "inputs: {x: {}, g: {}}\nformula: x * sigmoid(g)",
    "row": "inputs: {x: {shape: [4, 8]}, g: {shape: [8]}}\nformula: x * sigmoid(g)",
    "column": "inputs: {x: {shape: [4, 8]}, g: {shape: [4, 1]}}\nformula: x * sigmoid(g)",
    "larger": "inputs: {x: {shape: [8]}, g: {shape: [4, 8]}}\nformula: x * sigmoid(g)",
    "view": "inputs: {x: {shape: [4, 8]}, g: {shape: [4]}}\nformula: x * unsqueeze(g, 1)",
    "view of the first": "inputs: {x: {shape: [4]}, g: {shape: [4, 8]}}\nformula: unsqueeze(x, -1) * g",
    "identity": (
        "layers: [same: Identity()]\ninputs: {x: {shape: [4, 8]}, g: {shape: [4, 8]}}\nformula: x * g"
    ),
    "convolution": (
        "init: {n: 3}\nlayers: [conv: 'Conv1d(2, n, 3)']\n"
        "inputs: {x: {shape: [4, 2, 9]}, r: {shape: [4, 3, 7]}}\nformula: relu(x) * r"
    ),
    "pool": (
        "layers: [pool: 'MaxPool1d(2)']\n"
        "inputs: {x: {shape: [4, 2, 8]}, r: {shape: [4, 2, 4]}}\nformula: relu(x) * r"
    ),
    "parameter": (
        "layers: [w: 'Parameter(ones(8))']\n"
        "inputs: {x: {shape: [4, 8]}, g: {shape: [4, 8]}}\nformula: x * g * w"
    ),
    "mask and number": "inputs: {x: {}, m: {dtype: bool}, k: 2.0}\nformula: where(m, x, k)",
}
FOLLOWED = [  # a spec, the shape of the first input, and the shapes that formulas read
    ("equal", (64,), ((64,), (64,))),
    ("equal", (16, 32), ((16, 32), (16, 32))),
    ("row", (16, 32), ((16, 32), (32,))),
    ("row", (2, 16, 32), ((2, 16, 32), (32,))),
    ("column", (16, 32), ((16, 32), (16, 1))),
    ("column", (64,), ((64,), (1,))),
    ("larger", (32,), ((32,), (4, 32))),
    ("view", (4, 8), ((4, 8), (4, 1))),
    ("view", (16, 32), ((16, 32), (16, 1))),
    ("view of the first", (16,), ((16, 1), (16, 8))),
    ("identity", (16, 32), ((16, 32), (16, 32))),
    ("convolution", (4, 2, 9), ((4, 2, 9), (4, 3, 7))),
    ("convolution", (16, 2, 34), ((16, 2, 34), (16, 3, 32))),
    ("convolution", (16, 34), ((16, 34), (4, 3, 7))),
    ("pool", (4, 2, 16), ((4, 2, 16), (4, 2, 8))),
    ("mask and number", (16, 32), ((16, 32), (16, 32))),
]
REFUSED = {  # a spec and a shape, with what PyTorch says of it and the shape that the spec declares
    ("convolution", "16x34"): (
        "Given groups=1, weight of size [3, 2, 3], expected input[1, 16, 34] to",
        "4x2x9",
    ),
    ("parameter", "16x32"): ("The size of tensor a (32) must match the size of tensor b (8)", "4x8"),
}


@pytest.mark.together
@pytest.mark.parametrize(("spec", "first", "shapes"), FOLLOWED)
def test_the_shapes_of_operands_follow_the_first(
    spec: str, first: tuple[int, ...], shapes: tuple[tuple[int, ...], ...]
) -> None:
    assert input_shapes(parse_spec(f"{HEAD}{OPERANDS[spec]}\n", "gate.yaml"), first) == shapes


@pytest.mark.full
@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("row", "16x32"), ("equal", "16x32"), ("view", "16x32"), ("convolution", "16x2x34"),
        ("mask and number", "64"), ("view of the first", "16"),
    ],
)  # fmt: skip
def test_operands_are_measured_at_any_shape_that_fits(workshop: Workshop, spec: str, shape: str) -> None:
    workshop.build("gate", OPERANDS[spec])
    assert shape in workshop.done("bench", "gate", *QUICK, "--training", "--shape", shape)


@pytest.mark.few(1)
@pytest.mark.parametrize(("spec", "shape"), REFUSED)
def test_a_shape_that_the_model_refuses_is_told(workshop: Workshop, spec: str, shape: str) -> None:
    workshop.build("gate", OPERANDS[spec])
    done = workshop.run("bench", "gate", *QUICK, "--shape", shape)
    why, own = REFUSED[spec, shape]
    assert done.exit_code == 2
    told, hint = done.stderr.splitlines()
    assert told.startswith(f"--shape {shape}: gate does not take an input of this shape: {why}")
    assert hint == (
        f"  hint: it declares {own}; leave --shape out, or give one that its layers and other inputs fit"
    )
