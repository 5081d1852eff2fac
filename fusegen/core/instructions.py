"""The instructions of each operation on CUDA, which `cost` adds up.

The counts are those of nvcc 13 for sm_90, rounded; benchmarks/instructions.py counts those of whole kernels
beside what these tables make of them. Of sin and cos only the path of ordinary arguments counts.
"""

from fusegen.core.ops.double_word import CURVE

# instructions in float, and where 16 bits are kept of a result by the cheaper functions; 1 unless listed
INSTRUCTIONS: dict[str, tuple[int, int]] = {
    "relu": (2, 2), "relu6": (3, 3), "clamp": (4, 4), "saturate": (4, 4), "clamp_min": (2, 2),
    "clamp_max": (2, 2), "minimum": (4, 4), "maximum": (4, 4), "sign": (4, 4), "cube": (2, 2),
    "div": (12, 3), "reciprocal": (10, 3), "quotient": (14, 3), "soft_sign": (12, 5),
    "sqrt": (10, 10), "rsqrt": (20, 12), "scaled_hypot": (24, 24),
    "scaled_hypot_slope": (34, 24), "pow": (150, 150),
    "exp": (24, 3), "exp2": (10, 6), "expm1": (32, 14),
    "log": (24, 24), "log2": (24, 24), "log1p": (40, 40),
    "sin": (22, 22), "cos": (22, 22), "sinpi": (18, 18), "cospi": (18, 18), "tanh": (20, 15),
    "erf": (21, 19), "erfc": (60, 17), "ndtr": (46, 15),
    "ndtr_tail": (44, 14),
    "sigmoid": (26, 7), "sigmoid_slope": (28, 7), "softplus": (32, 14), "tanh_slope": (29, 8),
    "tanh_softplus": (30, 14), "tanh_softplus_slope": (32, 23), "gauss": (24, 4), "normal": (28, 4),
    "tanh_of_exp": (36, 16), "tanh_of_exp_slope": (42, 14), "tanh_shrink": (34, 34),
    "times_tanh_softplus": (31, 14), "times_tanh_softplus_slope": (33, 23),
    "times_ndtr": (46, 16), "times_ndtr_slope": (43, 20), "x_sigmoid": (26, 7), "x_sigmoid_slope": (38, 9),
    "times_sigmoid": (32, 7),
    "clamp_to_lowest": (2, 2), "clamp_to_highest": (2, 2), "round_to_storage": (3, 3),
    "select_by_width": (0, 0), "detach": (0, 0),
    "words": (2, 0), "narrow": (1, 0), "scaled": (2, 1),
    "product_plus": (5, 1), "linear": (8, 1),
    "prescaled": (2, 0), "unscale": (3, 0), CURVE: (14, 14),
}  # fmt: skip

# the same in float of what gives a double-word value (`typed.widened`)
WIDENED = {
    "erf": 30, "tanh": 60, "square": 6, "cube": 7, "x_sigmoid": 44, "sigmoid": 36, "sigmoid_slope": 40,
    "tanh_slope": 42, "times_ndtr": 62, "times_tanh_softplus": 45, "times_tanh_softplus_slope": 56,
}  # fmt: skip
EXACT = {"add": 6, "mul": 2}  # of single words, as a double-word value
SECOND_WORD = 2  # more, of a product that takes a double-word argument and gives a single word

# how many of them are special functions (MUFU), in the cheaper form
SPECIAL: dict[str, int] = {
    "div": 1, "reciprocal": 1, "quotient": 1, "soft_sign": 1, "sqrt": 1, "scaled_hypot": 1,
    "scaled_hypot_slope": 2, "rsqrt": 1, "pow": 2,
    "exp": 1, "exp2": 1, "expm1": 1, "erf": 1,
    "tanh": 2, "tanh_shrink": 2, "tanh_of_exp": 3, "tanh_of_exp_slope": 3,
    "tanh_slope": 2, "sigmoid": 2, "sigmoid_slope": 2, "x_sigmoid": 2, "x_sigmoid_slope": 2, "softplus": 1,
    "times_sigmoid": 2, "gauss": 1, "normal": 1, "erfc": 2, "ndtr": 2, "ndtr_tail": 2, "times_ndtr": 2,
    "times_ndtr_slope": 3, "tanh_softplus": 2, "tanh_softplus_slope": 2,
    "times_tanh_softplus": 2, "times_tanh_softplus_slope": 2,
}  # fmt: skip
ERFS = {name for name in INSTRUCTIONS if name.startswith(("erf", "ndtr", "times_ndtr"))}
WAIT = 3  # instructions that could be issued in the time that one of these takes beyond its own
# In single-word double: what functions of one argument share, and what each takes beside that. An operation
# of double takes the time of two instructions, and so does a conversion.
SHARED = {"exp": 34, "logistic": 40, "tanh": 44, "tail": 90, "softplus": 88, "turn": 100}
IN_PLAIN_DOUBLE = {
    "exp": ("exp", 0), "expm1": ("exp", 4),
    "sigmoid": ("logistic", 0), "sigmoid_slope": ("logistic", 4), "x_sigmoid": ("logistic", 2),
    "tanh": ("tanh", 8), "tanh_slope": ("tanh", 6), "ndtr_tail": ("tail", 0), "erfc": ("tail", 8),
    "times_ndtr": ("tail", 8), "times_ndtr_slope": ("tail", 14), "softplus": ("softplus", 0),
    "sin": ("turn", 0), "cos": ("turn", 0), "sinpi": ("turn", 0), "cospi": ("turn", 0),
}  # fmt: skip
OF_DOUBLE = 2
ONE_AS_TWO = ("prescaled", "unscale", "narrow")  # what changes nothing there
