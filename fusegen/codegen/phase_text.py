"""The functions of phases of rows as C++: those of an element, and the statements that run once a row."""

import re
from collections.abc import Collection, Mapping

from fusegen.codegen import row_exponentials
from fusegen.codegen.row_arithmetic import cancels, watches
from fusegen.compiler.row_kernels import PhaseKernels
from fusegen.core.ir import Expr, Kernel


def of_row(
    text: str,  # of a function
    kernel: Kernel,  # whose it is
    tops: Mapping[str, Expr],  # of what values of a row are the largest, by name
    indices: Collection[str],  # the inputs that pick an element
) -> str:
    """Return the text of a function whose parameters that are values of a row have the type OfRow."""
    head, _, body = row_exponentials.named(text, kernel, tops).partition(") {")
    is_watched, every = cancels(kernel) and watches(kernel, indices), "|".join(kernel.params)
    for name in kernel.params:
        head = re.sub(rf"\bM {name}\b", f"OfRow<M> {name}", head)
        if "template" in head:  # M(name), its first word, where a function or another such value takes it
            places = rf"(?<=[a-z0-9_]\(){name}(?=[,)])|(?<=, ){name}(?=[,)])"
            places += rf"|(?<![*/] )\b{name}(?= \* (?:{every})\b)|\b{name}(?= [<>=!]=? )" * is_watched
            body = re.sub(places, f"M({name})", body)
    return f"{head}) {{{body}"


def statements(of: PhaseKernels, read: Collection[str]) -> str:
    """Return the statements that set the values of a row behind a phase, each on a line of its own.

    Of what a phase loads, some may not be read: the gradient of a detached result.
    """
    lines = [f"p.{name} = r[{k}]" for k, name in enumerate(of.phase.folded) if name in read]
    if of.row is not None:
        given = [f"p.{name}" for name in of.row.inputs]
        if len(of.phase.values) == 1:
            lines += [f"p.{of.phase.values[0]} = {of.row.name}({', '.join(given)})"]
        else:
            lines += [
                f"double made[{len(of.phase.values)}]",
                f"{of.row.name}({', '.join([*given, 'made'])})",
            ]
            lines += [f"p.{name} = made[{k}]" for k, name in enumerate(of.phase.values)]
    return f";\n{'':14}".join(lines)
