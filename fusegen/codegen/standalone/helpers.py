"""Functions of a standalone file that those of a module call."""

HELPERS = {  # functions that those of a module, or of its file, call
    "draw": '''def draw(p, training, *tensors):
    """Return the mask of a dropout, as PyTorch draws it, and the factor of the elements that are kept."""
    p, value = float(p), None
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    for t in tensors:  # the shape, the layout and the dtype of the dropped value
        like = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        value = like if value is None else value + like
    if not training or p in (0, 1):
        return tensors[0].new_full((), float(p == 0 or not training), dtype=value.dtype), 1.0
    mask, factor_dtype = torch.empty_like(value, device=tensors[0].device), value.dtype
    if mask.is_cuda:
        factor_dtype = torch.float32 if value.itemsize == 2 else value.dtype
        mask = torch.native_dropout(mask, p, True)[1].to(value.dtype)
    else:
        mask.bernoulli_(1 - p)
    if torch.compiler.is_compiling():
        return mask, 1 / (1 - p)
    return mask, torch.ones(1, dtype=factor_dtype).div_(1 - p).item()  # rounded as PyTorch rounds it''',
    "along": '''def along(t, x, dim):
    """Return a tensor of one dimension, or of one number, aligned with a dimension of another."""
    return t.reshape((-1,) + (1,) * (x.dim() - dim - 1) if x.dim() > dim else (1,) * x.dim())''',
    "as_numbers": '''def as_numbers(m, *others):
    """Return a mask as the kernels take it: 1 or 0 in the dtype of the other tensors."""
    return m.to(next(t.dtype for t in others if isinstance(t, Tensor)))''',
    "indexed": '''def indexed(given, x, ignored=-100):
    """Return a number for each row of x, in float64: of the element that is picked, or -1 of none."""
    rows, row = divided([x])
    if (given.dtype, given.shape, given.device) != (torch.int64, rows, x.device):
        found = f"{given.dtype} of {tuple(given.shape)} on {given.device}"
        raise RuntimeError(f"expected integers of the shape {tuple(rows)} on {x.device}, not {found}")
    none = given == ignored
    is_fit = (none | (given >= 0) & (given < row.numel())).all()
    is_one = not torch._C._are_functorch_transforms_active()  # else each batch has a truth value
    if is_one and (x.is_cuda or torch.compiler.is_compiling()):
        torch._assert_async(is_fit, "an index is out of range")
    elif is_one and not is_fit:
        raise IndexError(f"an index is out of range for {row.numel()} elements")
    return given.masked_fill(none, -1).double()[(..., *(None,) * len(row))]''',
    "reduced": '''def reduced(values, reduction, index=None):
    """Return what a loss makes of the values of rows, which are added in float64."""
    if reduction not in ("none", "mean", "sum", "batchmean"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if reduction == "none":
        return values
    rows = values.numel() if index is None else (index >= 0).sum()
    count = {"mean": rows, "sum": 1, "batchmean": values.shape[:1].numel()}[reduction]
    return (values.sum(dtype=torch.float64) / count).to(values.dtype)''',
    "reduced divisor": '''def reduced(values, reduction, index, weight, x):
    """Return what a loss makes of the values of rows, of which a mean is divided by the picked weights."""
    if reduction not in ("none", "mean", "sum", "batchmean"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if reduction == "none":
        return values
    count = {"sum": 1, "batchmean": values.shape[:1].numel()}.get(reduction)
    if count is None:
        rows, row = divided([x])
        picked = index.reshape(*rows, 1).long()
        weights = weight.detach().expand(x.shape).reshape(*rows, row.numel())
        count = weights.gather(-1, picked.clamp(min=0)).masked_fill(picked < 0, 0).sum(dtype=torch.float64)
    return (values.sum(dtype=torch.float64) / count).to(values.dtype)''',
    "is_watched": '''def is_watched(layer):
    """Return True if a convolution has hooks, or runs something else than PyTorch's forward."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    changed = "forward" in layer.__dict__ or type(layer).forward.__module__ != "torch.nn.modules.conv"
    return changed or any((*hooks, nn.modules.module._has_any_global_hook()))''',
    "without_bias": '''def without_bias(layer, x):
    """Return a convolution without its bias, and the bias, which the kernel adds on CUDA."""
    if not x.is_cuda or is_watched(layer) or layer.bias is None:
        return (y := layer(x)), y.new_full((), -0.0)
    bias = layer.bias.view(-1, *[1] * len(layer.kernel_size))
    return layer._conv_forward(x, layer.weight, None), bias''',
    "without_bias transposed": '''def without_bias(layer, x):
    """Return a convolution without its bias, and the bias, which the kernel adds on CUDA."""
    if not x.is_cuda or is_watched(layer) or layer.bias is None:
        return (y := layer(x)), y.new_full((), -0.0)
    function = getattr(nn.functional, f"conv_transpose{len(layer.kernel_size)}d")
    options = layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
    return function(x, layer.weight, None, *options), layer.bias.view(-1, *[1] * len(layer.kernel_size))''',
}


def called(functions: str) -> list[str]:
    """Return the functions that those of a module call."""
    bias = "without_bias transposed" if "nn.ConvTranspose" in functions else "without_bias"
    reduced = "reduced divisor" if "reduced(divisor)" in functions else "reduced"
    own = "along", "as_numbers", "draw", "indexed", reduced, bias
    names = [name for name in own if f"{name.split()[0]}(" in functions]
    return [HELPERS[name] for name in (*["is_watched"] * (bias in names), *names)]
