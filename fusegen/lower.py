"""The border: a `Program` over the reals becomes a `Kernel` of floats, for one device and math type.

Numbers are rounded twice, to float64 and then to the math type, because that is how PyTorch receives a
Python number. Division by a number follows PyTorch too: on CUDA ``x / 6`` is x times the rounded 1 / 6
(ATen's div_true_kernel_cuda), on the CPU it is a true division.
"""

from __future__ import annotations

from fusegen.ir import Call, Const, Device, Expr, Kernel, Let, Math, Ref, held
from fusegen.ops import on_host
from fusegen.term import Apply, Name, Number, Program, Term, names, walk


def lower(name: str, program: Program, device: Device, math: Math) -> Kernel:
    """The kernel that computes a program on a device in a math type.

    Args:
        name: the name of the function.
        program: simplified, so that every part without names is one number.
        device: what it runs on.
        math: the type of its values.
    """
    uniform = {let.name for let in uniforms(program)}
    scalars = (*program.params, *(let.name for let in program.lets if let.name in uniform))
    border = _Border(scalars, device, math)
    own = [let for let in program.lets if let.name not in uniform]
    lets = tuple(Let(let.name, border.expr(let.term)) for let in own)
    results = tuple(border.expr(result) for result in program.results)
    read = {name for term in (*(let.term for let in own), *program.results) for name in names(term)}
    params = tuple(scalar for scalar in scalars if scalar in read)
    return Kernel(name, device, math, program.inputs, params, lets, results)


def uniforms(program: Program) -> tuple[Let, ...]:
    """The lets that read parameters only: computed once a call, in double, as PyTorch computes scalars."""
    scalars = set(program.params)
    found: list[Let] = []
    border = _Border(program.params, Device.CPU, Math.DOUBLE)
    for let in program.lets:
        if set(names(let.term)) <= scalars and on_host(let.term):
            scalars.add(let.name)
            found.append(Let(let.name, border.expr(let.term)))
    return tuple(found)


def notes(program: Program, device: Device) -> tuple[str, ...]:
    """What lowering changes on a device that a reader of its kernel should know."""
    once = {let.name for let in uniforms(program)}
    terms = [*(let.term for let in program.lets if let.name not in once), *program.results]
    divides = any(_divides_by_number(part) for term in terms for part in walk(term))
    if device is Device.CUDA and divides:
        return ("Division by a number is multiplication by its reciprocal, as in PyTorch on CUDA.",)
    return ()


def _divides_by_number(term: Term) -> bool:
    return isinstance(term, Apply) and term.op == "div" and isinstance(term.args[1], Number)


class _Border:
    def __init__(self, params: tuple[str, ...], device: Device, math: Math) -> None:
        self.params, self.device, self.math = params, device, math

    def expr(self, term: Term) -> Expr:
        match term:
            case Number(value):
                return Const(held(float(value), self.math))
            case Name(name):
                return Ref(name)
            case Apply("by_width", (_, wide)) if self.device is Device.CPU:
                return self.expr(wide)
            case Apply("rounded", (Apply() as step,)):
                return Call("rounded", (self.eager_step(step),))
            case Apply("div", (left, Number(value))) if self.device is Device.CUDA:
                return Call("mul", (self.expr(left), Const(held(1.0 / float(value), self.math))))
            case Apply(op, args):
                return Call(op, tuple(self.expr(arg) for arg in args))
            case _:
                raise AssertionError("compose has replaced every call of a spec")

    def eager_step(self, step: Apply) -> Expr:
        """One operation as eager runs it, where that is not what the operation says.

        A number over a tensor is the tensor's reciprocal, rounded, times the number (Tensor.__rtruediv__);
        on the CPU, a number added to a 16-bit tensor is first rounded to that type (ATen's add_kernel).
        """
        match step:
            case Apply("cube", (base,)) if (
                self.device is Device.CUDA
            ):  # pow_scalar_tensor_impl rounds b * b
                return Call(
                    "mul", (Call("rounded", (Call("square", (self.expr(base),)),)), self.expr(base))
                )
            case Apply("reciprocal", (Apply("square") as square,)) if self.device is Device.CUDA:
                return Call("reciprocal", (Call("rounded", (self.expr(square),)),))
            case Apply("div", (left, right)) if self.is_scalar(left) and not self.is_scalar(right):
                reciprocal = Call("rounded", (Call("reciprocal", (self.expr(right),)),))
                return Call("mul", (reciprocal, self.expr(left)))
            case Apply("add" | "sub" as op, args) if self.device is Device.CPU:
                return Call(op, tuple(self.stored(arg) for arg in args))
            case _:
                return self.expr(step)

    def stored(self, term: Term) -> Expr:
        value = self.expr(term)
        return Call("rounded", (value,)) if self.is_scalar(term) else value

    def is_scalar(self, term: Term) -> bool:
        return isinstance(term, Number) or (isinstance(term, Name) and term.name in self.params)
