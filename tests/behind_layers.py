"""Problems of KernelBench with layers in front of rows, channels and windows, by PyTorch's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

F = nn.functional
# the arguments of the constructor, the shapes of the inputs, and the operations of a model of ours
BEHIND_LAYERS: dict[str, tuple[tuple[Any, ...], tuple[tuple[int, ...], ...], Callable[..., Tensor]]] = {
    "linear_gelu_softmax": ((5, 6), ((7, 5),), lambda m, x: F.gelu(m.linear(x)).softmax(1)),
    "conv_transpose2d_gelu_group_norm": (
        (3, 8, 3, 1, 1, 4),
        ((2, 3, 5, 6),),
        lambda m, x: m.group_norm(F.gelu(m.conv_transpose(x))),
    ),
    "linear_group_norm_silu_scale_silu": (
        (5, 8, 4, (8,)),
        ((7, 5),),
        lambda m, x: F.silu(F.silu(m.group_norm(m.gemm(x))) * m.multiply_weight),
    ),
    "conv2d_instance_norm_divide": (
        (3, 4, 3, 0.5),
        ((2, 3, 6, 7),),
        lambda m, x: F.instance_norm(m.conv(x)) / 0.5,
    ),
    "conv_transpose3d_layer_norm_gelu_scale": (
        (3, 6, 4, 2, 1),
        ((1, 3, 2, 2, 3),),
        lambda m, x: F.gelu(m.layer_norm(m.conv_transpose(x))),
    ),
    "conv_transpose2d_max_pool_hardtanh_mean_tanh": (
        (3, 4, 3, 1, 1, 2, 2, -0.5, 0.5),
        ((2, 3, 6, 7),),
        lambda m, x: m.maxpool(m.conv_transpose(x)).clamp(-0.5, 0.5).mean((2, 3), keepdim=True).tanh(),
    ),
    "conv2d_min_tanh_tanh": (
        (3, 4, 3),
        ((2, 3, 6, 7),),
        lambda m, x: m.conv(x).amin(1, keepdim=True).tanh().tanh(),
    ),
    "conv2d_tanh_scale_shift_max_pool": (
        (3, 4, 3, 2.0, (4, 1, 1), 4),
        ((2, 3, 10, 11),),
        lambda m, x: F.max_pool2d(m.conv(x).tanh() * 2 + m.bias, 4),
    ),
    "conv2d_mish_batch_norm": ((3, 4, 3), ((2, 3, 6, 7),), lambda m, x: m.bn(F.mish(m.conv(x)))),
    "linear_batch_norm_shift_divide_silu": (
        (5, 6, 1e-5, 0.1, (1,), 2.0),
        ((7, 5),),
        lambda m, x: F.silu((m.bn(m.matmul(x)) + m.bias) / 2),
    ),
}
