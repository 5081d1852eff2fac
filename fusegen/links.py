"""What a chain takes on the CPU in place of double-word arithmetic in float: single-word functions.

A function named `near` is of an argument from `FROM` on, where nothing is too small for a float and little
cancels; the `short` ones are of any, infinities included. Of one float in thirteen the largest errors were
1.5 to 2.2 ulp, and 2.6 and 3.1 of Φ's. All are in float throughout, so that loops over them become vector
instructions of full width. What is `capped` is a factor as well, as it is, so that NaN stays.
"""

from __future__ import annotations

from fractions import Fraction

from fusegen.ir import Device, Kernel, Math, operations
from fusegen.ops.kernels import LINKED

# the ones of any argument, by what they are functions of; tanh and erf are the math library's
SHORT = {"gate": "gate_short", "times_ndtr": "times_ndtr_short", "tanh": "tanh", "erf": "erf"}
UNBOUNDED = ("gate_short", "times_ndtr_short")  # keep an infinite argument finite themselves
# where the near ones begin, by what they are functions of
FROM = {
    "gate": Fraction(-12, 10),
    "sigmoid": Fraction(-12, 10),
    "times_tanh_softplus": Fraction(-12, 10),
    "times_ndtr": Fraction(-3, 10),
}


def linked(kernel: Kernel) -> bool:
    """Whether functions give and take one word in a chain, which they do in float on the CPU only."""
    on_cpu = (kernel.device, kernel.math) == (Device.CPU, Math.FLOAT)
    return on_cpu and not {*LINKED, *SHORT.values()}.isdisjoint(operations(kernel))
