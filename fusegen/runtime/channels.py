"""The kernels of a module whose rows are channels, and its layer with the statistics of batches."""

import functools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.autograd import forward_ad

from . import autograd, batch_layers, operators
from .activation import Activation
from .calls import PLAIN, differentiable, have_kernel, traced
from .checks import check
from .compiled_call import in_front_of_layer
from .flavour import are_transforms_active
from .rows import Rows

FEW = "expected a tensor of 2 dimensions or more, the second of which are channels"
SHAPES = "expected tensors of one shape, dtype and device"


class Channels(Rows):
    """The kernels of a module whose rows are channels, dimension 1.

    Operators and kernels take tensors of one shape, then tensors of float64 with a number for each
    channel, then the moments, mean and variance of each channel side by side: empty ones where they are
    those of the batch, which the last scalar says. The forward kernel returns these beside the result.

    Attributes:
        channels: how many tensors have a number for each channel.
        elements: how many have the shape of the result.
        layer: `by_python`, or a call in C++ in front of it.
    """

    kept, indices = 1, 1
    views, groups, once_a_row, reduction, features, by_channel = None, None, False, "none", (), False

    def __init__(self, name: str, *, channels: int, eager: "Callable[..., Any]", **own: Any) -> None:
        self.channels, self.formula = channels, eager
        Activation.__init__(self, name, autocasts=False, eager=lambda *a: self.pair(*a)[0], **own)
        self.elements = self.inputs - channels - 1
        self.Forward = _forward(self)
        self.differentiated = self.Forward.apply
        self.run = self.of_batch
        self.layer = in_front_of_layer(self, self.by_python, batch_layers.LAYERS)

    def includes(self) -> "List[str]":
        """Return the lines of C++ that include what binds kernels to PyTorch."""
        own = [f"#define FUSEGEN_CHANNELS {self.channels}", '#include "stable_abi_channels.h"']
        return [*own, *Activation.includes(self)]

    def registration(self, kernel: str, counts: str) -> str:
        """Return the line of C++ that registers a kernel."""
        line = Activation.registration(self, kernel, counts).replace("_WITH_SUMS(", "(", 1)
        line = line.replace("FUSEGEN_REGISTER", "FUSEGEN_REGISTER_CHANNELS", 1)
        return f"{line[:-1]}, {str(kernel == 'backward').lower()})"

    @property
    def rules(self) -> "Dict[str, Callable[..., Any]]":
        """Return how each kernel is called on a batch: by PyTorch's operations."""

        def rule(function: "Callable[..., Any]", _: Any, in_dims: Any, arguments: Any) -> Any:
            made = torch.func.vmap(function, in_dims)(*arguments)
            return made, (0,) * len(made)

        return {
            "forward": functools.partial(rule, self.pair),
            "backward": functools.partial(rule, self.eager_gradient),
        }

    def shapes(self, of: "Tuple[str, int, int, int]") -> "Callable[..., Any]":
        """Return a function that gives a kernel's results without the elements."""
        return functools.partial(_shaped, self, of)

    def channel_sum(self, u: Any, moments: Any, batch: float, which: int) -> Any:
        """Return the sum of a tensor along its channels; of given moments what has made them.

        Args:
            u: the tensor.
            moments: these, or a list that takes those of the batch, each once.
            batch: whether they are those of the batch.
            which: 0 for the mean, of `u`, and 1 for the variance.
        """
        length = u.numel() // u.shape[1]
        if not batch:
            return (moments[:, which] * length).to(u.dtype).reshape(-1, *(1,) * (u.dim() - 2))
        found = torch.sum(u, (0, *range(2, u.dim())), keepdim=True)
        if isinstance(moments, list) and len(moments) == which:
            moments.append((found / length).flatten().double())
        return found

    def pair(self, *arguments: Any) -> "Tuple[Any, Any]":
        """Return the result and the moments by PyTorch's operations."""
        x, *others = arguments[: self.elements]
        numbers = arguments[self.elements : self.inputs - 1]
        moments, (*scalars, batch) = arguments[self.inputs - 1], arguments[self.inputs :]
        aligned = [n.to(x.dtype).reshape(-1, *(1,) * (x.dim() - 2)) for n in numbers]
        found: "List[Any]" = []
        result = self.formula(x, *others, *aligned, found if batch else moments, *scalars, batch)
        made = torch.stack(found, 1).detach() if batch else moments.new_empty(0, 2)
        return result, made

    def where_they_are(self, *arguments: Any) -> Any:
        """Return the function with the statistics of the batch by PyTorch's operations."""
        own = self.inputs - 1
        return self.pair(*arguments[:own], None, *arguments[own:], 1.0)[0]

    def composed(self, *arguments: Any) -> Any:
        """Return the call that the operator makes, of whatever tensors a recorded program is given."""
        if not _alike(arguments[: self.elements], self.dtypes):
            return self.pair(*arguments)
        return self.differentiated(*arguments)

    def of_batch(self, *arguments: Any) -> Any:
        """Return the function of tensors and scalars with the statistics of the batch."""
        return self.normalised(arguments, None)[0]

    def normalised(self, arguments: "Sequence[Any]", moments: "Optional[Any]") -> "Tuple[Any, Any]":
        """Return the function of tensors and scalars, and the moments of the batch if none are given."""
        tensors = arguments[: self.inputs - 1]
        elements: "Sequence[Any]" = tensors[: self.elements]
        first = elements[0]
        check(first.dim() >= 2, self.name, FEW)
        if any(t.shape != first.shape for t in elements):
            elements = torch.broadcast_tensors(*elements)
        if any(t.dtype != first.dtype for t in elements):
            dtype = functools.reduce(torch.promote_types, (t.dtype for t in elements))
            elements = [t.to(dtype) for t in elements]
        count = elements[0].shape[1]
        numbers = [_of_channels(t, count) for t in tensors[self.elements :]]
        batch = float(moments is None)
        if moments is None:
            moments = first.new_empty((0, 2), dtype=torch.float64)
        return self._called(*elements, *numbers, moments, *arguments[self.inputs - 1 :], batch)

    def _called(self, *arguments: Any) -> Any:
        tensors = arguments[: self.elements]
        first = tensors[0]
        if traced():
            return self.overload(*arguments)
        plain = all(t.__class__ in PLAIN for t in tensors) and _alike(tensors, self.dtypes)
        if not plain or first.numel() == 0 or are_transforms_active() or forward_ad._current_level >= 0:
            return self.pair(*arguments)
        graded = differentiable(*arguments[: self.inputs - 1])
        return (self.Forward.apply if graded else self.forward)(*arguments)

    def by_python(self, module: Any, *arguments: Any) -> Any:
        """Return the result of a module with a weight, a bias and running statistics, as torch.nn's.

        Args:
            module: this.
            arguments: the tensors of the shape of the result, and the scalars, if eps is not the only one.
        """
        x, tensors = arguments[0], arguments[: self.elements]
        scalars = arguments[self.elements :] or (module.eps,)
        check(x.dim() >= 2, self.name, FEW, ValueError)
        count = module.num_features
        sizes = f"expected {count} channels, of num_features, and dimension 1 has {x.shape[1]}"
        check(x.shape[1] == count, self.name, sizes)
        if not isinstance(
            module, batch_layers.BatchStatistics
        ):  # one of torch.nn, which takes tensors of some ranks
            module._check_input_dim(x)
        numbers = [
            x.new_ones(count) if module.weight is None else module.weight,
            x.new_zeros(count) if module.bias is None else module.bias,
        ]
        arguments = (*tensors, *numbers, *scalars)
        if not module.training and module.running_mean is not None:
            given = torch.stack([module.running_mean, module.running_var], 1).double()
            return self.normalised(arguments, given)[0]
        length = x.numel() // max(x.shape[1], 1)
        few = f"expected more than one value for each channel in training, got an input of {tuple(x.shape)}"
        check(length != 1, self.name, few, ValueError)
        result, moments = self.normalised(arguments, None)
        if module.training and module.track_running_stats and module.running_mean is not None and length:
            with torch.no_grad():
                batch_layers.update(module, moments, length)
        return result


def _of_channels(t: Any, count: int) -> Any:
    """Return a number of float64 for each channel, side by side."""
    is_plain = t.dim() == 1 and t.shape[0] == count and t.stride(0) == 1
    return t.double() if is_plain else t.flatten().double().expand(count).contiguous()


def _alike(tensors: "Sequence[Any]", dtypes: "Sequence[Any]") -> bool:
    """Return True if kernels take some tensors."""
    first = tensors[0]
    alike = all(t.dtype == first.dtype and t.device == first.device for t in tensors)
    return alike and first.dtype in dtypes and have_kernel(*tensors)


def _forward(kernels: Channels) -> Any:
    """Return the kernel with its gradient, which reads the moments of the batch."""
    count, nones = kernels.inputs, (None,) * (1 + kernels.signature.params)

    class Forward(torch.autograd.Function):
        forward = staticmethod(autograd.signed(kernels.forward))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            moments = output[1] if inputs[-1] else inputs[count - 1]
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(*inputs[: count - 1], moments)
            ctx.params = inputs[count:]

        @staticmethod
        def backward(ctx: Any, grad: Any, _: Any) -> Any:
            kernel = kernels.Backward.apply if torch.is_grad_enabled() else kernels.backward
            return (*kernel(grad, *ctx.saved_tensors, *ctx.params), *nones)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
            return kernels.rules["forward"](Forward.apply, in_dims, arguments)

    return Forward


def _shaped(kernels: Channels, of: "Tuple[str, int, int, int]", *arguments: Any) -> Any:
    """Return a kernel's results without the elements, laid in memory as the kernel would lay them."""
    kernel, _, outputs, _ = of
    back = kernel == "backward"
    tensors = arguments[: kernels.elements + back]
    first = tensors[0]
    alike = [(t.shape, t.dtype, t.device) == (first.shape, first.dtype, first.device) for t in tensors]
    check(all(alike), kernels.name, SHAPES)
    if not outputs:
        return None
    whole = functools.reduce(torch.add, tensors) if len(tensors) > 1 else torch.neg(*tensors)
    made = [operators.result_like(whole, whole.shape) for _ in range(kernels.elements if back else 1)]
    count = whole.shape[1] if back or arguments[-1] else 0
    numbers = [(count,)] * kernels.channels if back else [(count, 2)]
    return (*made, *(whole.new_empty(shape, dtype=torch.float64) for shape in numbers))
