"""The lines of C++ that bind kernels of rows to PyTorch."""

from typing import Any, List

SAVED = '#include "cuda/stable_abi_saved.h"'


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
    saved = ["#ifdef ON_CUDA", f"#define FUSEGEN_SAVES {kernels.saves}", SAVED, "#endif"]
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
    if kernel == "backward":
        own = [line.replace("REGISTER_ROWS", "REGISTER_READING", 1) for line in lines]
        return ["#ifdef ON_CUDA", *own, "#else", *lines, "#endif"]
    words = ("REGISTER_ROWS", "REGISTER_SAVING"), ("REGISTER_REDUCED", "REGISTER_REDUCED_SAVING")
    own = [line.replace(*pair, 1) for line, pair in zip(lines, words)]
    return [*lines, "#ifdef ON_CUDA", *own, "#endif"]
