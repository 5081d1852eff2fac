"""Files, functions and signatures are small; the lists of larger ones may only shrink."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from conftest import ROOT

PACKAGE, TEMPLATES = ROOT / "fusegen", ROOT / "templates"
MOST_LINES, MOST_OF_A_FUNCTION, MOST_PARAMETERS = 250, 40, 6
FILES: dict[str, int] = {}
FUNCTIONS: dict[str, int] = {}
TEXTS: dict[str, int] = {}
MOST_OF_A_MODULE = {"hardsigmoid.py": 150, "gelu.py": 160}
MOST_OF_OTHER_MODULES = 200
LONG_MODULES = {
    "batches/batch_norm_gelu.py": 205,
    "batches/batch_norm_hardswish.py": 278,
    "batches/batch_norm_silu.py": 205,
    "dropouts/bias_gelu_dropout.py": 202,
    "kernelbench/conv2d_batch_norm_scale.py": 207,
    "kernelbench/conv2d_group_norm_tanh_hardswish_residual_logsumexp.py": 480,
    "kernelbench/conv2d_instance_norm_divide.py": 231,
    "kernelbench/conv2d_mish_batch_norm.py": 222,
    "kernelbench/conv2d_scale_leaky_relu_gelu.py": 262,
    "kernelbench/conv2d_shift_scale_sigmoid_group_norm.py": 277,
    "kernelbench/conv3d_four_activations_shift.py": 246,
    "kernelbench/conv3d_group_norm_min_clamp_dropout.py": 430,
    "kernelbench/conv3d_hardswish_group_norm_mean.py": 459,
    "kernelbench/conv3d_leaky_relu_shift_clamp_gelu.py": 234,
    "kernelbench/conv3d_max_pool_mean_shift_sum.py": 345,
    "kernelbench/conv3d_min_softmax.py": 313,
    "kernelbench/conv3d_mish_tanh.py": 223,
    "kernelbench/conv3d_scale_instance_norm_clamp_scale_max.py": 379,
    "kernelbench/conv3d_scale_tanh_scale_sigmoid.py": 237,
    "kernelbench/conv3d_softmax_max_pools.py": 358,
    "kernelbench/conv_transpose2d_add_min_gelu_scale.py": 211,
    "kernelbench/conv_transpose2d_batch_norm_tanh_max_pool_group_norm.py": 470,
    "kernelbench/conv_transpose2d_gelu_group_norm.py": 267,
    "kernelbench/conv_transpose2d_mean_shift_logsumexp_scale.py": 412,
    "kernelbench/conv_transpose2d_min_sum_gelu_shift.py": 383,
    "kernelbench/conv_transpose2d_softmax_shift_scale_sigmoid.py": 233,
    "kernelbench/conv_transpose3d_clamp_softmax_scale.py": 233,
    "kernelbench/conv_transpose3d_layer_norm_avg_pool_gelu.py": 358,
    "kernelbench/conv_transpose3d_layer_norm_gelu_scale.py": 267,
    "kernelbench/conv_transpose3d_logsumexp_silu_shift_clamp.py": 357,
    "kernelbench/conv_transpose3d_max_pool_softmax_shift_silu_max.py": 256,
    "kernelbench/conv_transpose3d_mean_shift_softmax_tanh_scale.py": 335,
    "kernelbench/conv_transpose3d_relu_group_norm.py": 250,
    "kernelbench/conv_transpose3d_scale_batch_norm_mean.py": 392,
    "kernelbench/conv_transpose3d_silu_group_norm_hardswish.py": 381,
    "kernelbench/conv_transpose3d_softmax_sigmoid.py": 220,
    "kernelbench/images_group_norm.py": 232,
    "kernelbench/images_layer_norm.py": 221,
    "kernelbench/linear_batch_norm_gelu_relu.py": 215,
    "kernelbench/linear_batch_norm_scale_softmax.py": 212,
    "kernelbench/linear_batch_norm_shift_divide_silu.py": 225,
    "kernelbench/linear_gelu_softmax.py": 202,
    "kernelbench/linear_group_norm_hardtanh.py": 256,
    "kernelbench/linear_group_norm_leaky_relu_twice.py": 257,
    "kernelbench/linear_group_norm_min_shift.py": 429,
    "kernelbench/linear_group_norm_silu_scale_silu.py": 270,
    "kernelbench/linear_instance_norm_residual_scale.py": 218,
    "kernelbench/linear_logsumexp_leaky_relu_gelu.py": 220,
    "kernelbench/linear_scale_batch_norm.py": 211,
    "kernelbench/linear_scale_batch_norm_of_4096.py": 211,
    "kernelbench/linear_scale_clamp_logsumexp_mish.py": 247,
    "kernelbench/linear_shift_hardtanh_mish_group_norm.py": 278,
    "kernelbench/linear_shift_silu_tanh_gelu_hardtanh.py": 247,
    "kernelbench/linear_silu_shift_group_norm.py": 260,
    "kernelbench/linears_sigmoid_logsumexp.py": 269,
    "kernelbench/matrix_cross_entropy.py": 214,
    "losses/cosine_embedding_loss.py": 212,
    "losses/weighted_cross_entropy.py": 281,
    "rows/add_layer_norm.py": 241,
    "rows/cross_entropy.py": 213,
    "rows/group_norm.py": 235,
    "rows/group_norm_silu.py": 252,
    "rows/instance_norm.py": 230,
    "rows/layer_norm.py": 224,
    "rows/layer_norm_gelu.py": 238,
    "rows/layer_norm_of_channels.py": 228,
    "rows/layer_norm_statistics.py": 245,
    "rows/rms_norm_silu.py": 201,
    "rows/scaled_masked_softmax.py": 206,
    "rows/softcap_softmax.py": 205,
}
PARAMETERS = {
    "lower/__init__.py lower": 7,
}


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """The functions in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> int:
    """The number of parameters that a caller gives."""
    of = function.args
    named = [arg.arg for arg in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")])


def every_function() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of the package, by the file and the name."""
    for path in PACKAGE.rglob("*.py"):
        for function in functions(path):
            yield f"{path.relative_to(PACKAGE).as_posix()} {function.name}", function


def too_large(sizes: Iterator[tuple[str, int]], most: int) -> dict[str, int]:
    """The entries that are larger than they should be."""
    return {name: size for name, size in sizes if size > most}


def assert_within(found: dict[str, int], listed: dict[str, int]) -> None:
    """Everything too large is listed, no larger than there, and nothing is listed that is not."""
    assert {name: size for name, size in found.items() if size > listed.get(name, 0)} == {}
    assert found.keys() == listed.keys(), "take what has become small enough off the list"


def line_counts(paths: Iterable[Path], folder: Path) -> Iterator[tuple[str, int]]:
    """The number of lines of some files, by their path in a folder."""
    for path in paths:
        yield path.relative_to(folder).as_posix(), len(path.read_text(encoding="utf-8").splitlines())


def texts() -> list[Path]:
    """The templates, and the headers of kernels and of the filter."""
    beside = [folder for folder in PACKAGE.rglob("include") if folder.is_dir()]
    return [path for folder in (TEMPLATES, *beside) for path in folder.rglob("*") if path.is_file()]


def test_files_are_small() -> None:
    assert_within(too_large(line_counts(PACKAGE.rglob("*.py"), PACKAGE), MOST_LINES), FILES)


def test_templates_and_headers_are_small() -> None:
    assert_within(too_large(line_counts(texts(), ROOT), MOST_LINES), TEXTS)


def test_there_are_templates_and_headers_to_look_at() -> None:
    assert {path.parent.relative_to(ROOT).as_posix() for path in texts()} >= {
        "templates",
        "fusegen/evidence/certify/include",
        "fusegen/runtime/include",
        "fusegen/runtime/include/cpu",
        "fusegen/runtime/include/cuda",
    }


def test_generated_modules_are_short() -> None:
    paths = [path for path in (ROOT / "generated").rglob("*.py") if path.parent.name != "_runtime"]
    counts = dict(line_counts(paths, ROOT / "generated"))
    assert counts.keys() >= MOST_OF_A_MODULE.keys()
    long = {name: n for name, n in counts.items() if n > MOST_OF_A_MODULE.get(name, MOST_OF_OTHER_MODULES)}
    assert_within(long, LONG_MODULES)


def test_functions_are_short() -> None:
    sizes = ((name, (of.end_lineno or of.lineno) - of.lineno + 1) for name, of in every_function())
    assert_within(too_large(sizes, MOST_OF_A_FUNCTION), FUNCTIONS)


def test_functions_take_few_parameters() -> None:
    counts = ((name, parameters(function)) for name, function in every_function())
    assert_within(too_large(counts, MOST_PARAMETERS), PARAMETERS)
