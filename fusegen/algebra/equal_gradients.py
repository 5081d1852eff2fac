"""The distinct gradients of a kernel: equal ones of operands that have the result's shape are one output.

The two gradients of relu(x + r) are one expression, which PyTorch's own addition hands to both operands.
The gradient of an operand that is broadcast is a sum of its own, and those of halves are written side by
side, so that these stay apart.
"""

from dataclasses import replace

from fusegen.core.spec import Input, Spec
from fusegen.core.term import Apply, Name, Program, Term, children, needed

Number = int  # of a value: equal expressions have the same one


def output_of(
    spec: Spec,  # whose tensors have shapes
    gradient: Program,  # the program of their gradients, a result for each
) -> tuple[int, ...]:
    """Return the output that is the gradient of each tensor, by their order; drawn masks have none."""
    whole, graded = _whole(spec), len(spec.tensors) - len(spec.dropouts)
    keys = [
        (number, None if each.name in whole else each.name)
        for number, each in zip(_numbers(gradient)[:graded], spec.tensors[:graded], strict=True)
    ]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return tuple(places[key] for key in keys)


def owners(outputs: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first tensor of each output, of those whose gradient it is."""
    return tuple(map(outputs.index, range(len({*outputs}))))


def distinct(gradient: Program, outputs: tuple[int, ...]) -> Program:
    """Return the program with a result for each output, where it had one for each tensor."""
    if len({*outputs}) == len(gradient.results):
        return gradient
    results = tuple(gradient.results[k] for k in owners(outputs))
    return replace(gradient, lets=needed(gradient.lets, results), results=results)


def _whole(spec: Spec) -> frozenset[str]:
    """The operands of the result's shape, as far as shapes are declared, unless two of them are halves.

    What a layer makes has as many dimensions as the layer's input, and is taken for as large as any.
    """
    first, *others = spec.inputs
    if others and others[-1].split is not None:
        return frozenset()
    if spec.producer:
        return frozenset([first.name, *(each.name for each in others if _is_as_large(each, first))])
    rank = max(len(each.shape) for each in spec.inputs)
    padded = {each.name: (*(1,) * (rank - len(each.shape)), *each.shape) for each in spec.inputs}
    result = tuple(map(max, zip(*padded.values(), strict=True)))
    return frozenset(name for name, shape in padded.items() if shape == result)


def _is_as_large(operand: Input, first: Input) -> bool:
    """True if an operand has as many dimensions as the first, and a length of 1 only where that has it."""
    pairs = zip(operand.shape, first.shape, strict=False)
    return len(operand.shape) == len(first.shape) and all(size != 1 or other == 1 for size, other in pairs)


def _numbers(program: Program) -> list[Number]:
    """Return the numbers of a program's results."""
    known: dict[object, Number] = {}
    lets: dict[str, Number] = {}

    def number(term: Term) -> Number:
        if isinstance(term, Name) and term.name in lets:
            return lets[term.name]
        head = (term.op,) if isinstance(term, Apply) else (term,)
        key = (*head, *map(number, children(term)))
        return known.setdefault(key, len(known))

    for let in program.lets:
        lets[let.name] = number(let.term)
    return list(map(number, program.results))
