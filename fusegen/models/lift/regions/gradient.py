"""The memory traffic of a region's gradient, in eager and in a kernel.

Eager runs the gradient of each operation, and adds up the gradients of a value that several operations
read. A kernel reads the gradient of the result and the inputs that its formula holds, and writes each
gradient once: equal ones are one tensor. The gradient of an input that is broadcast is a sum.
"""

from collections import Counter

from torch import Tensor, fx

from fusegen.algebra.derive import derive
from fusegen.compiler.stages import real
from fusegen.core.term import Program, names, needed
from fusegen.language.library import Library, shipped
from fusegen.models.lift.fx_graph import NO_GRAD, name_of
from fusegen.models.lift.regions.pointwise import constant_of, is_mask, operation_of
from fusegen.models.lift.regions.region_spec import RegionSpec, parsed
from fusegen.models.lift.regions.worth import Traffic, size
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.eager_traffic import moved_by

ADDED = 3  # two gradients of a value are read, and their sum is written
PRODUCTS = frozenset("mul multiply div divide true_divide truediv".split())  # read the other operand


def gradient_traffic(of: RegionSpec) -> Traffic:
    """Return the traffic of the gradient of a region, without a convolution, on the example inputs."""
    return Traffic(0, _of_eager(of), _of_kernel(of))


def _of_kernel(of: RegionSpec) -> int:
    """Return the bytes that the kernel of the gradient reads and writes."""
    program = derive(real(parsed(of), Library(shipped())))
    whole = size(of.region.result)
    own = [whole if is_mask(node) else size(node) for node in of.region.inputs]  # converted masks
    sizes = dict(zip(of.inputs, own, strict=True))
    read = sum(sizes.get(name, whole) for name in _read(program))
    distinct = {result for result, each in zip(program.results, own, strict=True) if each == whole}
    return read + len(distinct) * whole + sum(each for each in own if each < whole)


def _read(program: Program) -> list[str]:
    """Return the inputs that a program reads."""
    terms = [*(let.term for let in needed(program.lets, program.results)), *program.results]
    used = {name for term in terms for name in names(term)}
    return [name for name in program.inputs if name in used]


def _of_eager(of: RegionSpec) -> int:
    """Return the bytes that eager's kernels of the gradient read and write."""
    moved, readers = 0, Counter({of.region.result: 1})
    for node in (part.node for part in reversed(of.region.parts)):
        whole, operands = size(node), _operands(node) if readers[node] else []
        for place, each in enumerate(operands):
            if each is not None and _has_gradient(each):
                others = [other for k, other in enumerate(operands) if k != place and other is not None]
                moved += _tensors(node, place, others) * whole
                moved += (whole + size(each)) * (size(each) < whole)  # which is a sum
                readers[each] += 1
    return moved + sum(ADDED * size(each) * (count - 1) for each, count in readers.items())


def _tensors(node: fx.Node, place: int, others: list[fx.Node]) -> int:
    """Return the tensors of a node's size that eager moves for the gradient of its operand at a place."""
    name = operation_of(node)
    row = moved_by(name).gradient
    is_scaled = name in PRODUCTS and all(size(each) < size(node) for each in others)
    return row[min(place, len(row) - 1)] - is_scaled


def _operands(node: fx.Node) -> list[fx.Node | None]:
    """Return the arguments of a call that may be tensors of floats, by their places; None for others."""
    given = [*node.args, *node.kwargs.values()]
    found = [each if isinstance(each, fx.Node) and constant_of(each) is None else None for each in given]
    return [each for each in found if each is None or not is_mask(each)]


def _has_gradient(node: fx.Node) -> bool:
    """Return True if autograd may ask for the gradient of a value: one of floats that is not detached."""
    value = value_of(node)
    if not isinstance(value, Tensor) or NO_GRAD in node.meta or constant_of(node) is not None:
        return False
    is_fixed = node.op == "get_attr" and not value.requires_grad
    return value.is_floating_point() and name_of(node) != "detach" and not is_fixed
