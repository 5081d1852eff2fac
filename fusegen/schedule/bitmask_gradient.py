"""Gradients that are one of two multiples of what comes in: a bit of each element says which.

Such a kernel falls in two. One computes the bit of what is saved, which the forward pass has at hand; the
other computes the gradient of what comes in and the bit, which takes less to read than the element.
`torch.compile` saves such bits, too, in a byte each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fusegen.core.ir import Call, Const, Expr, Kernel, Ref, reads, used

MASK = "mask"
LARGE = 2**22  # elements from which a mask gains more than it takes to allocate, on an H200
ONE, ZERO = Const(1.0), Const(0.0)

Steps = Mapping[str, Expr]


def masked(
    kernel: Kernel,  # of the gradient of a function of one tensor: it reads what comes in and what is saved
) -> tuple[Kernel, Kernel] | None:
    """The kernel of the bit, whose result is 1 or 0, and that of the gradient; None if it takes more."""
    if (len(kernel.inputs), len(kernel.results)) != (2, 1):
        return None
    (incoming, saved), [gradient] = kernel.inputs, kernel.results
    steps = {let.name: let.value for let in kernel.lets}
    if MASK in {incoming, *kernel.params, *steps}:
        return None
    multiples = dict.fromkeys(_multiples(gradient, steps))
    if len(multiples) != 2:
        return None
    one, other = sorted(multiples, key=lambda multiple: multiple == ZERO)
    chosen = Call("where", (Call("gt", (Ref(MASK), ZERO)), one, other))
    bit = _of(kernel, f"{kernel.name.removesuffix('_backward')}_mask", (saved,), _bit(gradient, steps, one))
    taken = _of(kernel, f"{kernel.name}_masked", (incoming, MASK), chosen)
    return None if bit is None or taken is None else (bit, taken)


def _selection(expr: Expr, steps: Steps) -> tuple[Expr, ...] | None:
    """Condition, value and other value of what is a selection, if only by name."""
    while isinstance(expr, Ref) and expr.name in steps:
        expr = steps[expr.name]
    return expr.args if isinstance(expr, Call) and expr.op == "where" else None


def _multiples(expr: Expr, steps: Steps) -> Iterator[Expr]:
    """Yield all that selections may choose."""
    found = _selection(expr, steps)
    if found is None:
        yield expr
    else:
        for value in found[1:]:
            yield from _multiples(value, steps)


def _bit(expr: Expr, steps: Steps, one: Expr) -> Expr:
    """1 where selections choose `one`, and 0 elsewhere."""
    found = _selection(expr, steps)
    if found is None:
        return ONE if expr == one else ZERO
    condition, value, other = found
    return Call("where", (condition, _bit(value, steps, one), _bit(other, steps, one)))


def _of(kernel: Kernel, name: str, inputs: tuple[str, ...], result: Expr) -> Kernel | None:
    """Return a kernel with fewer steps and other inputs; None where these do not give its result."""
    steps = used(kernel.lets, (result,))
    read = reads(result).union(*(reads(let.value) for let in steps))
    if not read <= {*inputs, *kernel.params, *(let.name for let in steps)}:
        return None
    params = tuple(param for param in kernel.params if param in read)
    return replace(kernel, name=name, inputs=inputs, params=params, lets=steps, results=(result,))
