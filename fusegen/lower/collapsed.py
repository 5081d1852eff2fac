"""Kernels as types without a low word compute them: `FastFloat` and `PlainDouble` on CUDA."""

from dataclasses import replace

from fusegen.core.ir import Body, Call, Expr, Kernel, Let, Ref, Word


def collapsed(kernel: Kernel) -> Kernel:
    """Return a kernel with single words in place of double-word values, as `fast_float.cuh` takes them."""
    lets = tuple(Let(let.name, _single(let.value)) for let in kernel.lets)
    return replace(kernel, lets=lets, results=tuple(map(_single, kernel.results)))


def _single(expr: Expr) -> Expr:
    """Return an expression without low words."""
    match expr:
        case Ref(name):
            return Ref(name)
        case Call("words" | "narrow", (high, *_)):
            return _single(high)
        case Call(op, args, _, body):
            own = None if body is Body.DOUBLE_WORD else body
            return Call(op, tuple(map(_single, args)), Word.SINGLE, own)
    return expr
