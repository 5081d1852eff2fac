"""The arguments of a module's kernels, and the tensors whose gradients their outputs are."""

import functools
import operator
from dataclasses import dataclass
from typing import List, Sequence, Tuple

from .cache import digest
from .settings import NAMESPACE


@dataclass(frozen=True)
class Signature:
    """The arguments of a module's kernels, from the schemas of their operators."""

    name: str  # of the module
    # forward, backward: the schemas' arguments, as in ``Tensor grad, Tensor x, float alpha``
    forward: str
    backward: str
    unread: "Tuple[str, ...]" = ()  # the tensors of which the gradient reads the shape only
    # for each tensor, the output of the gradient's kernel that is its gradient, where several tensors have
    # one; empty where each has its own
    gradients: "Tuple[int, ...]" = ()
    results: int = 1  # of the function, each of which has an incoming gradient
    indices: int = 0  # how many of the tensors, the last ones, have no gradient
    kept: int = 0  # the results of the forward kernel beside the function's, which the gradient reads

    @property
    def tensors(self) -> "List[str]":
        """The tensors that the function takes."""
        return _tensors(self.forward)

    @property
    def saved(self) -> "List[str]":
        """The tensors that the gradient reads, besides those that come in."""
        return _tensors(self.backward)[self.results :]

    @property
    def namespace(self) -> str:
        """The namespace of the operators, unless another module of the process has it."""
        shared = [str(self.gradients)] if self.gradients else []
        shared += [str(self.results)] if self.results > 1 else []
        return f"{NAMESPACE}_{self.name}_{digest('; '.join([self.forward, self.backward, *shared]))[:6]}"

    @property
    def params(self) -> int:
        """The number of scalars behind the tensors."""
        return len(self.forward.split(", ")) - len(self.tensors)

    @property
    def kernels(self) -> "Tuple[Tuple[str, str, int, int], ...]":
        """The name, the arguments, and the numbers of inputs and outputs of each kernel."""
        forward = "forward", self.forward, len(self.tensors), self.results + self.kept
        inputs = self.results + len(self.saved)
        return forward, ("backward", self.backward, inputs, len({*self.outputs}))

    @property
    def outputs(self) -> "Tuple[int, ...]":
        """The output of the gradient's kernel that is the gradient of each tensor."""
        return self.gradients or tuple(range(len(self.tensors) - self.indices))

    def owners(self, kernel: str, shapes: "Sequence[Sequence[int]]") -> "List[int]":
        """The inputs that the outputs of a kernel have the shapes of; none where that is the shape of all.

        Of several tensors whose gradient an output is, the smallest, of the fewest dimensions.

        Args:
            kernel: ``forward`` or ``backward``.
            shapes: of its inputs.
        """
        if kernel == "forward" or len(self.tensors) == 1:
            return []
        count = len({*self.outputs})
        places = [*enumerate(self.outputs, self.results)]
        groups = [[k for k, at in places if at == place] for place in range(count)]
        return [min(each, key=lambda k: _size(shapes[k])) if each[1:] else each[0] for each in groups]


def _size(shape: "Sequence[int]") -> "Tuple[int, int]":
    """Return the elements of a tensor and its dimensions."""
    return functools.reduce(operator.mul, shape, 1), len(shape)


def _tensors(schema: str) -> "List[str]":
    arguments = (argument.split(" ") for argument in schema.split(", "))
    return [name for kind, name in arguments if kind == "Tensor"]
