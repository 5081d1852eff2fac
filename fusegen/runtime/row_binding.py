"""The lines of C++ that bind kernels of rows to PyTorch."""

import re
from typing import Any, List

# What registers a kernel that saves numbers of rows, or reads them, in place of another one, by kernel.
SAVING = {
    "forward": {
        "ROWS": "SAVING",
        "REDUCED": "REDUCED_SAVING",
        "WIDE_VALUES": "WIDE_SAVING",
        "WIDE_REDUCED": "WIDE_REDUCED_SAVING",
    },
    "backward": {"ROWS": "READING", "WIDE_GRADIENTS": "WIDE_READING"},
}
REGISTERED = re.compile("(?<=FUSEGEN_REGISTER_)(ROWS|REDUCED|WIDE_(VALUES|REDUCED|GRADIENTS))")


def includes(kernels: Any) -> "List[str]":
    """Return those that say what a row is, and include the binding."""
    own = [f"#define FUSEGEN_OVER {kernels.over}", f"#define FUSEGEN_INDICES {kernels.indices}"]
    own += ["#define FUSEGEN_APART"] if kernels.views else []
    own += ["#define FUSEGEN_FINDS"] if kernels.finds else []
    of_rows = kernels.row_results if kernels.is_mixed else range(kernels.results)
    own += [f"#define FUSEGEN_RESULTS {len(of_rows)}"] if kernels.results > 1 else []
    if kernels.by_channel:
        own += [f"#define FUSEGEN_BY_CHANNEL {kernels.feature_bits}"]
        own += [f"#define FUSEGEN_TENSORS {kernels.inputs}"]
    if kernels.is_mixed:
        order = [*of_rows, *(k for k in range(kernels.results) if k not in of_rows)]
        own += [f"#define FUSEGEN_ORDER {{{', '.join(map(str, order))}}}"]
    own += [f"#define FUSEGEN_DIVISOR {kernels.divisor}"] if kernels.reduces_index else []
    own += ['#include "stable_abi_indices.h"'] if kernels.indices else []
    header = f'#include "cuda/stable_abi_{"wide_" * bool(kernels.row_dtype)}saved.h"'
    saved = ["#ifdef ON_CUDA", f"#define FUSEGEN_SAVES {kernels.saves}", header, "#endif"]
    return [*own, f'#include "{_header(kernels)}"', *(saved if kernels.saves else [])]


def _header(kernels: Any) -> str:
    if kernels.row_dtype:
        return f"stable_abi_wide_{'losses' if kernels.reduces_index else 'values'}.h"
    return "stable_abi_row_results.h" if kernels.is_mixed else "stable_abi_rows.h"


def registration(kernels: Any, line: str, kernel: str) -> str:
    """Return the line that registers a kernel, out of that of another one."""
    begin = "FUSEGEN_REGISTER"
    if kernels.row_dtype:
        what = {"forward": "VALUES", "backward": "GRADIENTS"}[kernel]
        of_rows, reduced = line.replace(begin, f"{begin}_WIDE_{what}", 1), f"{begin}_WIDE_REDUCED"
    elif kernels.is_mixed:
        what = {"forward": "RESULTS", "backward": "GRADIENTS"}[kernel]
        return line.replace(begin, f"{begin}_ROW_{what}", 1)
    else:
        stored = {"forward": "OUTPUT", "backward": "INPUT"}[kernel] if kernels.once_a_row else "NONE"
        of_rows = f"{line.replace(begin, f'{begin}_ROWS', 1)[:-1]}, {stored})"
        reduced = f"{begin}_REDUCED"
    several = [of_rows]
    if kernel == "forward" and kernels.reduces_index:
        several.append(line.replace(begin, reduced, 1))
    return "\n".join(several if not kernels.saves else _on_cuda(several, kernel))


def _on_cuda(lines: "List[str]", kernel: str) -> "List[str]":
    """Return the lines that register a kernel that saves numbers of rows on CUDA, or reads them."""
    own = [REGISTERED.sub(lambda found: SAVING[kernel][found[0]], line, count=1) for line in lines]
    if kernel == "forward":
        return [*lines, "#ifdef ON_CUDA", *own, "#endif"]
    return ["#ifdef ON_CUDA", *own, "#else", *lines, "#endif"]
