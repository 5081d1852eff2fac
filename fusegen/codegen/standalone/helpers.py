"""The Python functions of a standalone file that functions of modules call."""

HELPERS = {  # functions that those of a module call
    "along": '''def along(t, x, dim):
    """Return a tensor of one dimension, or of one number, aligned with a dimension of another."""
    return t.reshape((-1,) + (1,) * (x.dim() - dim - 1) if x.dim() > dim else (1,) * x.dim())''',
    "mask": '''def mask(m, *others):
    """Return a mask as the kernels take it: 1 or 0 in the dtype of the other tensors."""
    return m.to(next(t.dtype for t in others if isinstance(t, Tensor)))''',
    "without_bias": '''def without_bias(layer, x):
    """Return a convolution without its bias, and the bias, which the kernel adds on CUDA."""
    if not x.is_cuda or layer.bias is None:
        return layer(x), x.new_full((), -0.0)
    y = layer._conv_forward(x, layer.weight, None)
    return y, layer.bias.view(-1, *[1] * (y.dim() - 2))''',
    "without_bias transposed": '''def without_bias(layer, x):
    """Return a convolution without its bias, and the bias, which the kernel adds on CUDA."""
    if not x.is_cuda or layer.bias is None:
        return layer(x), x.new_full((), -0.0)
    function = getattr(nn.functional, f"conv_transpose{x.dim() - 2}d")
    options = layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
    return function(x, layer.weight, None, *options), layer.bias.view(-1, *[1] * (x.dim() - 2))''',
}


def helpers(functions: str) -> list[str]:
    """Return the functions that those of a module call."""
    bias = "without_bias transposed" if "nn.ConvTranspose" in functions else "without_bias"
    return [HELPERS[name] for name in ("along", "mask", bias) if f"{name.split()[0]}(" in functions]
