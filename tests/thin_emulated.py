"""A convolution of few input channels with the kernel behind it: CUDA's text run on the CPU."""

import re

from emulated import LAUNCH, SHARED

HEAD = '#include "cuda_emulation.h"\n#include "warpgroups.h"\n'
BODIES = {  # by the head of a function, which has instructions of the chip, its body on the CPU
    "void multiply_add(": "multiply_together(sum, a, b);",
    "void multiply_group(": "multiply_by_group<ONTO == Onto::ZERO>(sums, rows, columns);",
    "void wait_at(": "wait_among(barrier, 2 * WARPGROUP);",
    "void arrive_at(": "arrive_among(barrier, 2 * WARPGROUP);",
    "void write_if(bool holds, float* to, float a)": "if (holds) *to = a;",
    "void write_if(bool holds, float* to, float a, float b)": "if (holds) to[0] = a, to[1] = b;",
}


def on_cpu(text: str) -> str:
    """A text with its headers, whose launches, shared memory, products and barriers run on the CPU."""
    for head, body in BODIES.items():
        function = re.compile(rf"({re.escape(head)}[^{{]*\{{\n).*?\n\}}\n", re.DOTALL)
        defined = text.count(head)  # unless the chip's products are others
        text, count = function.subn(rf"\1  {body}\n}}\n", text)
        assert count == defined <= 1, head
    text = SHARED.sub(r"\1* const \2 = shared<\1>();", text)
    return HEAD + LAUNCH.sub(r"emulate(\1, \2, ", text)
