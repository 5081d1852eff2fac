"""Functions of PyTorch and NumPy that no formula can call, by family, and what to write instead.

Source: the indices of torch, torch.Tensor and torch.nn.functional.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fusegen.errors.base import meant

FUNCTIONS = "'fusegen list --functions' shows the functions of formulas"
CALLABLE = f"{FUNCTIONS}, 'fusegen list' the specs"


@dataclass(frozen=True, slots=True)
class Family:
    """Functions that the language lacks for one reason."""

    lack: str  # the reason, behind "fusegen formulas"
    names: frozenset[str]  # of the functions


def _family(lack: str, names: str) -> Family:
    return Family(lack, frozenset(names.split()))


FAMILIES = (
    _family(
        "reduce rows only, in specs that have 'over'",
        "sum mean prod max min amax amin aminmax argmax argmin all any median mode quantile nansum "
        "nanmean std var std_mean var_mean logsumexp softmax softmin log_softmax cumsum cumprod cummax "
        "cummin logcumsumexp norm vector_norm matrix_norm normalize layer_norm batch_norm group_norm "
        "instance_norm rms_norm local_response_norm renorm count_nonzero cosine_similarity "
        "pairwise_distance cross_entropy mse_loss l1_loss nll_loss kl_div trace logdet "
        "sort argsort topk unique histc bincount",
    ),
    _family(
        "are pointwise and have no rounding functions",
        "round floor ceil trunc fix frac fmod remainder floor_divide modf rint mod divmod",
    ),
    _family(
        "are pointwise and have no indexing and no change of shape",
        "gather scatter index_select index_add masked_select take take_along_dim nonzero "
        "narrow select slice roll flip fliplr flipud rot90 cat concat concatenate stack hstack vstack "
        "dstack chunk split unbind reshape view flatten unflatten permute transpose swapaxes movedim "
        "squeeze expand broadcast_to repeat repeat_interleave tile tril triu diag pad embedding one_hot "
        "pixel_shuffle interpolate unfold fold",
    ),
    _family(
        "have no random numbers but those of dropout",
        "rand randn randint randperm rand_like randn_like randint_like bernoulli normal multinomial "
        "poisson uniform dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout "
        "gumbel_softmax",
    ),
    _family(
        "are pointwise and have no matrix products and no convolutions",
        "matmul mm bmm mv dot vdot inner outer ger kron einsum tensordot addmm addmv addbmm baddbmm "
        "chain_matmul linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
        "conv_transpose3d inverse inv det pinverse cholesky qr svd eig solve lstsq cross "
        "scaled_dot_product_attention fft ifft",
    ),
    _family(
        "have no inverse trigonometric and no inverse hyperbolic functions",
        "asin acos atan atan2 asinh acosh atanh arcsin arccos arctan arctan2 arcsinh arccosh arctanh",
    ),
    _family(
        "have erf, erfc and ndtr, and no other special functions",
        "erfinv erfcx ndtri lgamma gammaln digamma polygamma mvlgamma gammainc gammaincc i0 i0e i1 i1e "
        "zeta sinc bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai entr log_ndtr",
    ),
    _family(
        "are of real numbers and have no operations on bits, integers and complex numbers",
        "bitwise_and bitwise_or bitwise_xor bitwise_not gcd lcm frexp ldexp nextafter copysign signbit "
        "real imag angle conj polar isnan isinf isfinite nan_to_num",
    ),
)
LACKS = {name: family.lack for family in FAMILIES for name in family.names}
INSTEAD = {  # by function, a formula of the same value
    "max": "the larger of two values is  maximum(a, b)",
    "min": "the smaller of two values is  minimum(a, b)",
    "linear": "a Linear before the kernel stands under `layers`",
    **{f"conv{n}d": f"a Conv{n}d before the kernel stands under `layers`" for n in (1, 2, 3)},
    "masked_fill": "write  where(mask, value, x)",
    "heaviside": "write  where(x > 0, 1, 0)",
    "tan": "write  sin(x) / cos(x)",
    "sinh": "write  (exp(x) - exp(-x)) / 2",
    "cosh": "write  (exp(x) + exp(-x)) / 2",
    "log10": "write  log(x) / log(10)",
    "logit": "write  log(x / (1 - x))",
    "xlogy": "write  x * log(y)",
    "hypot": "write  sqrt(x * x + y * y)",
    "lerp": "write  a + weight * (b - a)",
    "addcmul": "write  x + value * a * b",
    "addcdiv": "write  x + value * a / b",
    "logaddexp": "write  a + softplus(b - a)",
    "neg": "write  -x",
    "negative": "write  -x",
    "add": "write  a + b",
    "sub": "write  a - b",
    "subtract": "write  a - b",
    "rsub": "write  b - a",
    "mul": "write  a * b",
    "multiply": "write  a * b",
    "div": "write  a / b",
    "divide": "write  a / b",
    "true_divide": "write  a / b",
    **{name: "a condition is a comparison, as in  where(x > 0, a, b)" for name in (
        "eq", "ne", "lt", "le", "gt", "ge", "greater", "less", "equal", "not_equal", "greater_equal",
        "less_equal", "logical_and", "logical_or", "logical_not", "logical_xor",
    )},
}  # fmt: skip


def lack(name: str) -> str:
    """Return the clause behind an unknown function's name, of its family: empty for a name of none."""
    return f"; fusegen formulas {LACKS[name]}" if name in LACKS else ""


def remedy(name: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown function: a formula, a known close spelling, or where to look."""
    if name in INSTEAD:
        return INSTEAD[name]
    if name in LACKS:
        return FUNCTIONS
    close = meant(name, known)
    return f"did you mean '{close}'?" if close else CALLABLE
