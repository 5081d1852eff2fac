"""The error budget: every bound on an error that the compiler compares an estimate with, in one place.

Figures are in ulp of a float32 result unless they say otherwise. `certify/contract.py` has the promise
itself, which certificates are checked against; these bounds decide what is computed so that it holds.
"""

from __future__ import annotations

from fusegen.ir import Device

PROMISED = 4.0  # of every result, or eager's own error if that is larger
# estimates that stand for errors of at most PROMISED, since the largest errors do not meet; on CUDA, where
# functions are single-word, there are more of them
FLOAT_ENOUGH = {Device.CPU: 4.75, Device.CUDA: 7.0}
FLOAT_ENOUGH_IN_16_BITS = 2.0**8  # on CUDA; an ulp of a float16 is 2^13 of them
# errors in float up to which single-word double is enough; its functions have 20 or 15 bits more
PLAIN_DOUBLE_ENOUGH, BRIEF_ENOUGH = 2.0**20, 2.0**10
IN_DOUBLE = 2.0**-29  # of a kernel's error with float's digits, its error with double's

FUNCTION, ROUNDING = 1.4, 0.5  # a function's usual error, and another operation's
FUNCTIONS = {"tanh": 0.8, "erf": 0.8, "cube": 1.0, "soft_sign": 1.0, "rsqrt": 1.0}  # other usual errors

# relative errors
DOUBLE_WORD = 2.0**-49  # of an operation of double-word arithmetic
POLYNOMIAL = 2.0**-27  # of the polynomials in double-word functions
