"""A convolution of few input channels with the kernel behind it: CUDA's text run on the CPU."""

from __future__ import annotations

import re

from emulated import LAUNCH, SHARED

MULTIPLY = re.compile(r"(void multiply_add\([^{]*\{\n).*?\n\}\n", re.DOTALL)
MULTIPLIED = r"\1  multiply_together(sum, a, b);\n}\n"
HEAD = '#include "cuda_emulation.h"\n#include "warps.h"\n'


def on_cpu(text: str) -> str:
    """A text with its headers, whose launches, shared memory and products run on the CPU."""
    text, multiplied = MULTIPLY.subn(MULTIPLIED, text)
    assert multiplied == 1
    text = SHARED.sub(r"\1* const \2 = shared<\1>();", text)
    return HEAD + LAUNCH.sub(r"emulate(\1, \2, ", text)
