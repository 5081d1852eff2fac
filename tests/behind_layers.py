"""Problems of KernelBench with layers in front of rows, channels and windows, by PyTorch's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

F = nn.functional


def shifted_gate(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x + 3) / 6


def with_residual(model: Any, x: Tensor) -> Tensor:
    return x + F.hardswish(model.group_norm(x).tanh())


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
    "conv_transpose3d_layer_norm_avg_pool_gelu": (
        (3, 4, 3, 2, 1, 1, 1.0, (6,), 2),
        ((1, 3, 2, 2, 3),),
        lambda m, x: F.gelu(F.avg_pool3d(m.norm(m.conv_transpose(x) + m.sum_weight), 2)),
    ),
    "conv3d_softmax_max_pools": (
        (3, 4, 3, 2),
        ((2, 3, 7, 8, 9),),
        lambda m, x: F.max_pool3d(F.max_pool3d(m.conv(x).softmax(1), 2), 2),
    ),
    "conv3d_max_pool_mean_shift_sum": (
        (3, 4, 3, 2.0, 2, (4, 1, 1, 1), 1),
        ((2, 3, 6, 6, 7),),
        lambda m, x: (F.max_pool3d(m.conv(x) / 2, 2).mean((2, 3, 4), keepdim=True) + m.bias).sum(1),
    ),
    "conv_transpose2d_batch_norm_tanh_max_pool_group_norm": (
        (3, 8, 5, 1, 1, 8, 4),
        ((2, 3, 4, 5),),
        lambda m, x: m.group_norm(F.max_pool2d(m.batch_norm(m.conv_transpose(x)).tanh(), 2)),
    ),
    "conv_transpose3d_mean_shift_softmax_tanh_scale": (
        (3, 4, 3, 1, 1, 2.0),
        ((2, 3, 3, 4, 5),),
        lambda m, x: (m.conv_transpose(x).mean(2, keepdim=True) + m.bias).softmax(1).tanh() * 2,
    ),
    "conv3d_min_softmax": ((3, 4, 3, 2), ((2, 3, 5, 4, 6),), lambda m, x: m.conv(x).amin(2).softmax(1)),
    "conv3d_hardswish_group_norm_mean": (
        (3, 8, 3, 2),
        ((2, 3, 4, 5, 6),),
        lambda m, x: m.group_norm(F.hardswish(m.conv(x))).mean((2, 3, 4)),
    ),
    "conv_transpose2d_min_sum_gelu_shift": (
        (3, 4, 3, 2, 1, 1, (1, 1, 1)),
        ((2, 3, 4, 5),),
        lambda m, x: F.gelu(m.conv_transpose(x).amin(1, keepdim=True).sum(2, keepdim=True)) + m.bias,
    ),
    "conv_transpose2d_mean_shift_logsumexp_scale": (
        (3, 4, 3, (4, 1, 1)),
        ((2, 3, 4, 5),),
        lambda m, x: (m.conv_transpose(x).mean((2, 3)) + m.bias[:, 0, 0]).logsumexp(1, keepdim=True) * 10,
    ),
    "linears_sigmoid_logsumexp": (
        (5, 6, 7),
        ((4, 5),),
        lambda m, x: m.linear2(m.linear1(x).sigmoid()).logsumexp(1),
    ),
    "conv_transpose3d_logsumexp_silu_shift_clamp": (
        (3, 4, 3, 2, 1),
        ((2, 3, 2, 3, 4),),
        lambda m, x: (shifted_gate(m.conv_transpose(x).logsumexp(1, keepdim=True)) - m.bias).clamp(-1, 1),
    ),
    "linear_group_norm_min_shift": (
        (5, 8, 2, (1, 8, 1, 1)),
        ((7, 5),),
        lambda m, x: m.group_norm(m.gemm(x)).amin(1, keepdim=True) + m.bias,
    ),
    "conv_transpose3d_scale_batch_norm_mean": (
        (3, 4, 3, 2.0),
        ((2, 3, 2, 3, 4),),
        lambda m, x: m.batch_norm(m.conv_transpose(x) * 2).mean((2, 3, 4), keepdim=True),
    ),
    "conv3d_scale_instance_norm_clamp_scale_max": (
        (3, 4, 3, (4, 1, 1, 1), -0.5, 0.5),
        ((2, 3, 4, 5, 6),),
        lambda m, x: (F.instance_norm(m.conv(x) * m.multiplier).clamp(-0.5, 0.5) * m.multiplier).amax(1),
    ),
    "conv2d_group_norm_tanh_hardswish_residual_logsumexp": (
        (3, 8, 3, 4),
        ((2, 3, 5, 6),),
        lambda m, x: with_residual(m, m.conv(x)).logsumexp(1, keepdim=True),
    ),
}
