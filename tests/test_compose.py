"""Chains and calls become one program: in order, without a clash of names, rounded where eager rounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, Workshop

from fusegen.algebra.compose import compose, compose_eager, expanded, fused_call
from fusegen.codegen.printers.dump import program as written
from fusegen.core.term import Name, Program, SpecCall, Term
from fusegen.errors import SpecErrors
from fusegen.language.library import Library, find, find_all
from fusegen.language.parse import parse_spec


def composed(body: str, **others: str) -> Program:
    """The program of a spec `gate` with this body, beside others and those of the repository."""

    def spec(name: str, text: str) -> str:
        return f"name: {name}\nsummary: A test.\n{text}\n"

    shipped = Library(ROOT / "specs")
    specs = {name: parse_spec(spec(name, text), f"{name}.yaml") for name, text in others.items()}
    specs["gate"] = parse_spec(spec("gate", body), "gate.yaml")
    gate = specs["gate"]
    form = compose_eager if gate.numerics == "eager" else compose
    return form(gate, lambda name: specs.get(name) or shipped(name), shipped.names())


def lines(body: str, **others: str) -> list[str]:
    """The lines of a program behind what it is given."""
    return written(composed(body, **others)).splitlines()[1:]


@contextmanager
def refused(message: str) -> Iterator[None]:
    with pytest.raises(SpecErrors) as caught:
        yield
    assert message in str(caught.value)


def test_a_formula_is_the_program() -> None:
    assert written(composed("formula: x * 2 + 1")) == "given x\nreturn x · 2 + 1"


def test_inputs_then_parameters_are_given_in_their_order() -> None:
    text = "inputs: {b: {}, a: {}}\nparams: {z: 1, c: 2}\nformula: a * b + c * z"
    program = composed(text)
    assert (program.inputs, program.params) == (("b", "a"), ("z", "c"))


def test_the_steps_of_a_chain_follow_each_other_under_their_names() -> None:
    assert lines("chain: [relu, x * 2, tanh, hardtanh]") == [
        "after_relu = relu(x)",
        "step2 = after_relu · 2",
        "after_tanh = tanh(step2)",
        "return min(max(after_tanh, -1), 1)",
    ]


def test_a_step_may_be_used_twice() -> None:
    assert lines("chain: [relu, relu, relu]") == [
        "after_relu = relu(x)",
        "after_relu2 = relu(after_relu)",
        "return relu(after_relu2)",
    ]


def test_a_chain_of_one_step_has_no_names() -> None:
    assert lines("chain: [relu]") == ["return relu(x)"]


def test_a_step_may_be_a_call_with_parameters() -> None:
    assert lines("chain: [relu, 'hardtanh(max_val=0.5, min_val=-2)']") == [
        "after_relu = relu(x)",
        "return min(max(after_relu, -2), 0.5)",
    ]
    assert lines("params: {top: 2}\nchain: [hardtanh(max_val=top)]") == ["return min(max(x, -1), top)"]


def test_a_step_may_be_a_function_with_its_other_arguments() -> None:
    assert lines("chain: [clamp(min=0)]") == ["return max(x, 0)"]
    assert lines("chain: ['clamp(max=1, min=0)']") == ["return min(max(x, 0), 1)"]
    assert lines("chain: [pow(exponent=2)]") == ["return x²"]


def test_the_running_value_may_have_another_name_and_other_inputs_may_join() -> None:
    text = "inputs: {v: {}, w: {}}\nchain: [relu, v * w, maximum(v, w)]"
    text = text.replace("maximum(v, w)", "'maximum(v, w)'")
    assert lines(text) == ["after_relu = relu(v)", "step2 = after_relu · w", "return max(step2, w)"]


def test_named_steps_keep_their_names_and_unused_ones_are_left_out() -> None:
    assert lines("where: {u: x + 3, v: u / 6}\nformula: x * v") == [
        "u = x + 3",
        "v = u / 6",
        "return x · v",
    ]


def test_a_call_of_a_spec_puts_its_formula_in_place() -> None:
    assert lines("formula: hardsigmoid(x) * 2") == ["return relu6(x + 3) / 6 · 2"]


def test_an_argument_that_is_read_twice_is_computed_once() -> None:
    assert lines("formula: hardswish(tanh(x))") == [
        "hardswish_x = tanh(x)",
        "return hardswish_x · relu6(hardswish_x + 3) / 6",
    ]
    assert lines("formula: hardswish(x)") == ["return x · relu6(x + 3) / 6"]
    assert lines("formula: hardsigmoid(tanh(x))") == ["return relu6(tanh(x) + 3) / 6"]


def test_parameters_of_a_called_spec_take_their_defaults_or_the_given_values() -> None:
    leaky = "params: {slope: 0.01, shift: 0}\nformula: where(x > 0, x, slope * x) + shift"
    assert lines("formula: leaky(x)", leaky=leaky) == ["return (x if x > 0 else 0.01 · x) + 0"]
    assert lines("formula: leaky(x, 0.2)", leaky=leaky) == ["return (x if x > 0 else 0.2 · x) + 0"]
    assert lines("formula: leaky(x, shift=1)", leaky=leaky) == ["return (x if x > 0 else 0.01 · x) + 1"]
    assert lines("formula: leaky(shift=1, x=x)", leaky=leaky) == ["return (x if x > 0 else 0.01 · x) + 1"]


def test_names_of_a_called_spec_never_meet_those_of_the_caller() -> None:
    inner = "params: {alpha: 7}\nwhere: {u: x * alpha}\nformula: u * u"
    text = "params: {alpha: 3}\nwhere: {u: x + alpha}\nformula: inner(u) + inner(x) + u"
    assert lines(text, inner=inner) == [
        "u = x + alpha",
        "u2 = u · 7",
        "u3 = x · 7",
        "return u2 · u2 + u3 · u3 + u",
    ]


def test_a_named_step_of_a_called_spec_may_be_called_as_an_input_of_the_caller() -> None:
    inner = "inputs: {a: {}}\nwhere: {x: a + 1}\nformula: x * x"
    assert lines("formula: inner(x * 2)", inner=inner) == ["x2 = x · 2 + 1", "return x2 · x2"]


def test_inputs_may_be_swapped_in_a_call() -> None:
    inner = "inputs: {a: {}, b: {}}\nformula: a - b / a"
    assert lines("inputs: {a: {}, b: {}}\nformula: inner(b, a)", inner=inner) == ["return b - a / b"]


def test_a_spec_of_its_own_folder_comes_before_one_of_the_same_name_that_is_shipped(
    workshop: Workshop,
) -> None:
    workshop.spec("hardswish", "formula: x * 42")
    workshop.spec("gate", "chain: [relu, hardswish]")
    assert "return after_relu · 42\n" in workshop.run("show", "gate", "--stage", "compose").output


EAGER = "numerics: eager\n"


def test_eager_rounds_after_every_operation_that_is_a_kernel_of_its_own() -> None:
    assert lines(f"{EAGER}formula: x * clamp(x + 3, 0, 6) / 6") == [
        "return round_to_storage("
        "round_to_storage(x · round_to_storage(min(max(round_to_storage(x + 3), 0), 6))) / 6)"
    ]


def test_eager_rounds_neither_constants_nor_conditions() -> None:
    assert lines(f"{EAGER}formula: where(x > 1 / 3, x, exp(2))") == [
        "return round_to_storage(x if x > 1 / 3 else exp(2))"
    ]


def test_eager_rounds_no_number_that_python_computes() -> None:
    body = f"{EAGER}params: {{a: 0.1, b: 0.3}}\nchain: [x / (a**2 + b), square_of_a]"
    assert lines(body, square_of_a="params: {a: 0.1}\nformula: x * log(a * 2) * log(a * 2)") == [
        "step1 = round_to_storage(x / (a² + b))",
        "return round_to_storage(round_to_storage(step1 · log(0.1 · 2)) · log(0.1 · 2))",
    ]


def test_eager_divides_a_number_by_a_tensor_through_the_reciprocal() -> None:
    assert lines(f"{EAGER}params: {{a: 0.1}}\nformula: 2 / x + a**2 / x") == [
        "return round_to_storage(round_to_storage(round_to_storage(1 / x) · 2) + "
        "round_to_storage(round_to_storage(1 / x) · a²))"
    ]


def test_eager_takes_a_spec_with_a_reference_as_one_call_of_it_and_rounds_behind_it() -> None:
    assert lines(f"{EAGER}chain: [hardswish, x * x]") == [
        "after_hardswish = round_to_storage(torch.nn.functional.hardswish(x))",
        "return round_to_storage(after_hardswish · after_hardswish)",
    ]
    one_less = "return round_to_storage(1 - round_to_storage(torch.nn.functional.hardsigmoid(x)))"
    assert lines(f"{EAGER}formula: 1 - hardsigmoid(x)") == [one_less]
    reference = "reference: torch.nn.functional.hardsigmoid\n"
    called = ["return round_to_storage(torch.nn.functional.hardsigmoid(x))"]
    assert lines(f"{EAGER}{reference}formula: relu6(x + 3) / 6") == called


def test_eager_writes_a_spec_out_whose_reference_is_not_one_kernel() -> None:
    assert lines(f"{EAGER}formula: softsign(x)") == [
        "return round_to_storage(x / round_to_storage(round_to_storage(|x|) + 1))"
    ]
    unlike = "params: {other: 1}\nreference: torch.nn.functional.softplus\nformula: x * other"
    assert lines(EAGER + unlike) == ["return round_to_storage(x · other)"], (
        "it has no beta and no threshold"
    )


def test_eager_names_a_tensor_that_a_called_kernel_reads_and_passes_parameters_as_they_are() -> None:
    assert lines(f"{EAGER}params: {{top: 2}}\nformula: hardtanh(x * 2, max_val=top)") == [
        "hardtanh_x = round_to_storage(x · 2)",
        "return round_to_storage(torch.nn.functional.hardtanh(hardtanh_x, -1, top))",
    ]
    assert lines(f"{EAGER}inputs: {{a: {{}}, b: {{}}}}\nformula: glu(b, sin(a))") == [
        "glu_b = round_to_storage(sin(a))",
        "return round_to_storage(torch.nn.functional.glu(b, glu_b))",
    ]


def test_eager_runs_a_function_as_the_kernel_that_pytorch_has_for_it() -> None:
    assert lines(f"{EAGER}formula: tanh(x) + relu6(2 * x)") == [
        "relu6_x = round_to_storage(2 · x)",
        "return round_to_storage("
        "round_to_storage(torch.tanh(x)) + round_to_storage(torch.nn.functional.relu6(relu6_x)))",
    ]
    assert lines(f"{EAGER}formula: softplus(x * x) - sigmoid(1)") == [
        "softplus_x = round_to_storage(x · x)",
        "return round_to_storage("
        "round_to_storage(torch.nn.functional.softplus(softplus_x, 1, 20)) - sigmoid(1))",
    ]
    assert lines(f"{EAGER}params: {{a: 1}}\nchain: [x + a, relu]") == [
        "step1 = round_to_storage(x + a)",
        "return round_to_storage(torch.nn.functional.relu(step1))",
    ]


def test_a_program_is_expanded_by_what_pytorchs_kernels_compute() -> None:
    given = composed(f"{EAGER}formula: hardswish(tanh(x)) - hardtanh(x, max_val=2)")
    program = expanded(given)
    assert written(program).splitlines() == [
        "given x",
        "hardswish_x = round_to_storage(tanh(x))",
        "return round_to_storage("
        "round_to_storage(hardswish_x · relu6(hardswish_x + 3) / 6)"
        " - round_to_storage(min(max(x, -1), 2)))",
    ]
    assert (program.inputs, program.params) == (given.inputs, given.params)
    accurate = composed("chain: [hardswish, tanh]")
    assert expanded(accurate) == accurate


def test_a_call_of_a_kernel_is_made_only_of_a_spec_that_is_one() -> None:
    library = Library(ROOT / "specs")
    values: dict[str, Term] = {name: Name(f"its_{name}") for name in ("x", "a", "b", "beta", "threshold")}

    def call(name: str) -> SpecCall | None:
        spec = library(name)
        assert spec is not None
        return fused_call(spec, values)

    softplus = SpecCall(
        "torch.nn.functional.softplus", (Name("its_x"), Name("its_beta"), Name("its_threshold"))
    )
    assert call("softplus") == softplus
    assert call("glu") == SpecCall("torch.nn.functional.glu", (Name("its_a"), Name("its_b")))
    assert call("softsign") is None
    assert call("snake") is None


def test_eager_rounds_inside_a_spec_that_is_several_kernels() -> None:
    inner = "formula: x * x + 1"
    assert lines(f"{EAGER}formula: inner(x) * 2", inner=inner) == [
        "return round_to_storage(round_to_storage(round_to_storage(x · x) + 1) · 2)"
    ]


def test_accurate_rounds_nowhere() -> None:
    assert "round_to_storage" not in written(composed("chain: [relu, x * x + 1, tanh]"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("chain: [relu, gate]", "the spec refers to itself: gate -> gate"),
        ("chain: [hardwish]", "did you mean 'hardswish'?"),
        ("formula: hardtanh(x, low=1)", "it is hardtanh(x, min_val=-1, max_val=1)"),
        ("inputs: {x: {}, w: {}}\nchain: [w * 2]", "this step does not use the running value 'x'"),
        ("chain: [maximum]", "'maximum' takes 2 arguments"),
        ("chain: [conv_relu_hardswish]", "has layers of its own"),
        ("chain: [two]", "'two' takes 2 tensors"),
        ("formula: two(x)", "two takes 2 tensors, but 1 is given"),
    ],
)
def test_what_does_not_fit_is_refused(body: str, message: str) -> None:
    with refused(message):
        composed(body, two="inputs: {a: {}, b: {}}\nformula: a * b")


def test_the_library_finds_by_name_by_path_and_all(workshop: Workshop) -> None:
    one, two = workshop.spec("one", "formula: x + 1"), workshop.spec("two", "formula: x + 2")
    folder = Path("specs")
    assert find("one", folder) == Path("specs/one.yaml")
    assert find("specs/two.yaml", folder) == Path("specs/two.yaml")
    assert find("relu", folder) == ROOT / "specs/relu.yaml"
    assert [path.absolute() for path in find_all((), folder)] == [one, two]
    assert find_all(("one", "specs/one.yaml"), folder) == (Path("specs/one.yaml"),)
    library = Library(folder)
    assert library("one") is library("one")
    assert library("../specs/one") is None
    assert {"one", "two", "relu", "hardswish"} <= set(library.names())


def test_a_parameter_may_have_the_name_that_pytorch_gives_a_tensor() -> None:
    other = "params: {input: 2}\nformula: x * input"
    assert lines("chain: ['other(input=3)']", other=other) == lines("chain: ['other(x, 3)']", other=other)
