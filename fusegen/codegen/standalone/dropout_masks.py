"""The function of a standalone file that has PyTorch draw the mask of a dropout."""

DRAWN = '''def drawn(p, training, *tensors):
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
    return mask, torch.ones(1, dtype=factor_dtype).div_(1 - p).item()  # rounded as PyTorch rounds it'''
