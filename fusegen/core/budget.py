"""The error budget: every bound on an error that the compiler compares an estimate with, in one place.

Figures are in ulp of a float32 result unless they say otherwise. `certify/contract.py` has the promise
itself, which certificates are checked against; these bounds decide what is computed so that it holds.
"""

from collections.abc import Mapping

from fusegen.core.targets import Device

RESULT_ULP = 4.0  # of every result, or eager's largest error in the cell of its input
# estimates that stand for errors of at most RESULT_ULP, since largest errors do not meet; on CUDA, where
# functions are single-word, there are more of them
FLOAT_ENOUGH = {Device.CPU: 4.75, Device.CUDA: 7.0}
# eager's estimated error from which on a function of one tensor keeps RESULT_ULP nonetheless: the contract
# says so of a median of 128 ulp, and an estimate adds up the largest errors
NO_YARDSTICK = 2.0**9
# the largest error in float of a function of one tensor where eager's is as large: beyond it two bits of a
# result are right, and double costs as much as eager at least. On the CPU double takes little longer than
# float, but where a function is the math library's, which takes an element at a time
ALL_LOST = 2.0**22
IN_LIBRARY = frozenset(("sin", "cos", "pow"))
OF_A_BOX = 2.0  # of eager's largest error in a box, what the contract allows a function of several tensors
FLOAT_ENOUGH_IN_16_BITS = 2.0**8  # on CUDA; an ulp of a float16 is 2^13 of them
LOST_IN_16_BITS = 2.0**12  # half an ulp of a float16: from here on a result may not be the neighbour
# errors in float up to which single-word double is enough; its functions have 20 or 15 bits more
PLAIN_DOUBLE_ENOUGH, BITS_39_ENOUGH = 2.0**20, 2.0**10
IN_DOUBLE = 2.0**-29  # of a kernel's error with float's digits, its error with double's

FUNCTION_ULP, ROUNDING_ULP = 1.4, 0.5  # the usual error of a function, and of another operation
_ARITHMETIC = {
    "cube": 1.0,
    "scaled_hypot": 1.25,
    "scaled_hypot_slope": 1.75,
    "soft_sign": 1.45,
    "rsqrt": 1.0,
    "tanh_shrink": 3.65,
}
# other usual errors; on the CPU the largest ones found for 2^21 arguments each in [-4, 4], [0.01, 8] and
# [-16, -0.001]
FUNCTION_ULPS: Mapping[Device, Mapping[str, float]] = {
    Device.CUDA: {"tanh": 0.8, "erf": 0.8, **_ARITHMETIC},
    Device.CPU: {
        "tanh": 0.75, "erf": 1.0, "exp": 1.0, "expm1": 1.0, "gauss": 1.0,
        "log": 0.5, "log1p": 0.5, "log2": 0.5, "exp2": 0.5, "sin": 0.5, "cos": 0.5,
        "sinpi": 0.5, "cospi": 0.5,
        "sigmoid": 1.0, "x_sigmoid": 1.05, "times_tanh_softplus": 1.1, "softplus": 1.6, "times_ndtr": 1.85,
        **_ARITHMETIC,
    },
}  # fmt: skip
# those of functions with the body SINGLE_RESULT, the largest found at the same arguments
SINGLE_RESULT_ULP: Mapping[str, float] = {
    "exp": 1.0, "expm1": 1.5, "log1p": 0.8, "gauss": 1.0, "softplus": 2.0, "normal": 2.1,
    "x_sigmoid": 2.5, "sigmoid": 2.4, "sigmoid_slope": 2.4, "tanh_slope": 2.4, "tanh_softplus": 3.2,
    "times_tanh_softplus": 4.0, "ndtr": 3.2, "times_ndtr": 3.7, "times_sigmoid": 1.2,
}  # fmt: skip

# relative errors
DOUBLE_WORD = 2.0**-49  # of an operation of double-word arithmetic
POLYNOMIAL = 2.0**-27  # of the polynomials in double-word functions
