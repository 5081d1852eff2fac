"""The C++ of results of two shapes: phases of their own store values of rows, and load their gradients.

Kernels take the tensors that are written as inputs of which a row has one value; see row_results.h. Where
values of rows have another dtype than elements, the type of a pass says so; see row_wide_values.h.
"""

from fusegen.codegen.printed import FUNCTORS
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.method import Pass

PHASE = f"{FUNCTORS[Pass.FORWARD]}Results"
KINDS = ("WithRowValues", "WithWideValues")  # in the dtype of elements, or in another one


def stored(of: CompiledRows, which: Pass) -> int:
    """Return how many tensors a kernel has behind its inputs that values of rows are written to."""
    return len(of.row_results) if of.is_mixed and which is Pass.FORWARD else 0


def phase(of: CompiledRows, which: Pass) -> list[str]:
    """Return the phase that stores them, if a pass has one."""
    if not stored(of, which):
        return []
    made = of.schedules[which].sums
    lines = "; ".join(f"out[{k}] = p.{name}" for k, name in enumerate(made))
    base = f"StoresRow<{FUNCTORS[which]}Values>"
    return [f"struct {PHASE} : {base} {{", f"  FUSEGEN_ROW_RESULTS({lines})", "};"]


def of_row(of: CompiledRows, which: Pass) -> int:
    """Return the inputs of a kernel, as bits, of which a row has one value."""
    count = len(of.row_results)
    if which is Pass.BACKWARD:
        return (1 << count) - 1
    return (1 << stored(of, which)) - 1 << len(of.tensors(which))


def named(of: CompiledRows, which: Pass) -> tuple[str, list[str]]:
    """Return the name of a kernel's type, and the line behind it that makes it a pass, if it needs one."""
    functor, made = FUNCTORS[which], of.schedules[which]
    if made.is_placed:
        return f"{functor}Rows", [f"using {functor} = Placed<{functor}Rows>;"]
    count = stored(of, which)
    if count or made.loads or of.is_wide:
        return f"{functor}Rows", [f"using {functor} = {KINDS[of.is_wide]}<{functor}Rows, {count}>;"]
    return functor, []
