"""The lowering: a `Program` over the reals becomes a `Kernel` of floats, for one device and math type.

Numbers are rounded twice, to float64 and then to the math type, because that is how PyTorch receives a
Python number. Division by a number or a scalar follows PyTorch too: on CUDA ``x / 6`` is x times the
rounded 1 / 6 (ATen's div_true_kernel_cuda), on the CPU it is a true division.
"""

from fusegen.core.ir import Kernel, Let, Math, used
from fusegen.core.ops import on_host
from fusegen.core.targets import Device
from fusegen.core.term import Apply, Number, Program, names, walk
from fusegen.lower.lowering import Lowering
from fusegen.lower.scalar_powers import with_roots
from fusegen.lower.tails import rescale_underflowing_products
from fusegen.lower.words import DoubleWordLowering, Form

__all__ = ["Form", "lower", "notes", "uniforms"]


def lower(
    name: str,  # the name of the function
    program: Program,  # simplified, so that every part without names is one number
    device: Device,  # what it runs on
    math: Math,  # the type of its values
    precise: bool = False,  # whether transcendental functions are computed in double-word arithmetic
    incoming: str | None = None,  # the input that is the incoming gradient, if there is one
    form: Form = Form.ROUNDED,  # the use of double-word values in float on the CPU
) -> Kernel:
    """Return the kernel that computes a program on a device in a math type."""
    program = rescale_underflowing_products(program, incoming) if precise else program
    uniform = {let.name for let in uniforms(program)}
    scalars = (*program.params, *(let.name for let in program.lets if let.name in uniform))
    program = with_roots(program, scalars)
    own = [let for let in program.lets if let.name not in uniform]
    lowering = Lowering(scalars, device, math)
    if precise:
        # without the incoming gradient, as `two_quotient` drops a low word below 2^-40: a quotient of a
        # small gradient would be rounded otherwise than that of 1
        inputs = tuple(name for name in program.inputs if name != incoming)
        moving = Program(inputs, scalars, tuple(own), program.results)
        lowering = DoubleWordLowering(moving, device, math, form)
    lets = [lowering.let(let) for let in own]
    found = [lowering.result(result) for result in program.results]
    lets += [let for several, _ in found for let in several]
    results = tuple(result for _, result in found)
    read = {name for term in (*(let.term for let in own), *program.results) for name in names(term)}
    params = tuple(scalar for scalar in scalars if scalar in read)
    return Kernel(name, device, math, program.inputs, params, used(lets, results), results)


def uniforms(program: Program) -> tuple[Let, ...]:
    """The lets that read parameters only: computed once a call, in double, as PyTorch computes scalars."""
    scalars = set(program.params)
    found: list[Let] = []
    lowering = Lowering(program.params, Device.CPU, Math.DOUBLE)
    for let in program.lets:
        if set(names(let.term)) <= scalars and on_host(let.term):
            scalars.add(let.name)
            found.append(Let(let.name, lowering.expr(let.term)))
    return tuple(found)


def notes(program: Program, device: Device) -> tuple[str, ...]:
    """Return the changes of lowering on a device that a reader of its kernel should know."""
    once = {let.name for let in uniforms(program)}
    terms = [*(let.term for let in program.lets if let.name not in once), *program.results]
    divides = any(
        isinstance(part, Apply) and part.op == "div" and isinstance(part.args[1], Number)
        for term in terms
        for part in walk(term)
    )
    if device.reciprocals and divides:
        return ("Division by a number is multiplication by its reciprocal, as in PyTorch on CUDA.",)
    return ()
