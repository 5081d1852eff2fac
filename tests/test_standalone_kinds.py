"""Standalone files of each kind of kernel: they can be read, and nvcc compiles them."""

from pathlib import Path

import pytest
from kernels import GENERATED
from standalone_files import assert_readable, file_of, nvcc, strings

from fusegen.codegen.standalone.known import with_headers_of_files

LINES = {  # at most, of a file for float32
    # losses of classes
    **{"losses/weighted_nll_in_float32": 510, "losses/weighted_nll": 480, "rows/nll_in_float32": 495},
    **{"rows/cross_entropy_in_float32": 685, "losses/weighted_cross_entropy_in_float32": 785},
    # losses of whole tensors
    **{"losses/huber_loss": 400, "kernelbench/matrix_hinge_loss": 390, "losses/kl_div": 445},
    **{"losses/margin_ranking_loss": 400, "losses/bce_with_logits_loss": 655},
    # batch norms
    **{"batches/batch_norm_relu": 620, "batches/batch_norm_add_relu": 620, "batches/batch_norm_gelu": 940},
    # dropouts
    **{"dropouts/bias_dropout_add": 320, "dropouts/bias_gelu_dropout": 520},
    # rows
    **{"rows/softmax": 520, "rows/layer_norm": 540, "rows/add_rms_norm": 520, "rows/cross_entropy": 655},
    **{"rows/log_softmax": 650, "rows/logsumexp": 650, "rows/rms_norm": 650},
    **{"rows/scaled_masked_softmax": 650},
    # rows along other dimensions, and of groups
    **{"rows/softmax_of_channels": 540, "rows/layer_norm_of_channels": 485, "rows/group_norm": 490},
    **{"rows/instance_norm": 475, "kernelbench/columns_max": 445, "kernelbench/columns_mean": 430},
    **{"kernelbench/linear_gelu_softmax": 805},
    # scans
    **{"scans/cumsum": 410, "scans/cumprod": 460, "kernelbench/matrix_cumsum_exclusive": 415},
    **{"kernelbench/matrix_cumsum_reverse": 415, "scans/silu_of_sums_to_come": 570, "scans/argmax": 410},
    # poolings
    **{"windows/max_pool2d": 720, "windows/avg_pool2d": 720, "windows/avg_pool3d": 720},
    **{"windows/adaptive_avg_pool2d": 720, "windows/adaptive_max_pool1d": 720, "windows/min_pool": 720},
    **{"windows/max_pool_of_shifted_tanh": 720},
    **{"kernelbench/conv2d_shift_hardswish_max_pool_mish": 720},
    **{"kernelbench/conv_transpose3d_scale_avg_pool_shift_scale": 720},
}
MORE = 45  # lines of the other dtypes


@pytest.mark.few(22)
@pytest.mark.parametrize("name", LINES)
def test_a_file_can_be_read(name: str) -> None:
    assert_readable(file_of(name, "float32"), LINES[name])
    assert "mask(" not in file_of(name, "float32") or not name.startswith("dropouts/")


@pytest.mark.parametrize("name", ["windows/max_pool2d", "windows/adaptive_avg_pool2d"])
def test_a_file_reads_no_loops_of_the_runtime(name: str) -> None:
    """Whose names it has itself."""
    module = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    assert '#include "cuda/window' in module
    assert '#include "cuda/window' not in with_headers_of_files(module)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [name for name in LINES if name.startswith("rows/")])
def test_a_file_of_all_dtypes_can_be_read(name: str) -> None:
    assert_readable(file_of(name), LINES[name] + MORE)


@pytest.mark.few(1)
@pytest.mark.parametrize("chip", ["sm_90", "sm_80"])
@pytest.mark.parametrize("name", LINES)
def test_nvcc_compiles_its_kernels(name: str, chip: str, tmp_path: Path) -> None:
    nvcc(strings(file_of(name))["CUDA"], chip, tmp_path)
