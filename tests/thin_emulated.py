"""A convolution of few input channels with the kernel behind it: CUDA's text run on the CPU."""

from __future__ import annotations

import re

from emulated import LAUNCH, SHARED

TF32 = re.compile(r'asm\("cvt\.rna.*?;\n')
MULTIPLY = re.compile(r"(void multiply_add\([^{]*\{\n).*?\n\}\n", re.DOTALL)
ROUNDED, MULTIPLIED = "y = nearest_tf32(x);\n", r"\1  multiply_together(sum, a, b);\n}\n"
HEAD = '#include "cuda_emulation.h"\n#include "warps.h"\n'


def on_cpu(text: str) -> str:
    """A text with its headers, whose launches, shared memory and products run on the CPU."""
    text, rounded = TF32.subn(ROUNDED, text)
    text, multiplied = MULTIPLY.subn(MULTIPLIED, text)
    assert (rounded, multiplied) == (1, 1)
    text = SHARED.sub(r"\1* const \2 = shared<\1>();", text)
    return HEAD + LAUNCH.sub(r"emulate(\1, \2, ", text)
