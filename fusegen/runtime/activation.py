"""The kernels of a module, and the calls that are not the common one."""

from typing import Any, Callable, Optional, Tuple, TypeVar

import torch

from . import autograd, bitmask, build, checks, common, linear, operators, producers, thin, thin_operator
from .arguments import Arguments
from .calls import (
    PLAIN,
    alike,
    bump_version,
    copy_into,
    differentiable,
    have_kernel,
    is_symbolic,
    recorded,
    traced,
    transformed,
)
from .checks import check, check_writable
from .compiled_call import in_front_of_function
from .elementwise import Elementwise
from .fallback import Fallback
from .multiplied import for_kernels as multiplied
from .policy import UnderCompile
from .saved_rows import numbers_in
from .shared import of_outputs
from .signature import Signature
from .sources import Sources, Texts, texts

INTERFACE = 3  # of modules and this runtime; it changes when the text of modules has to
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
F = TypeVar("F", bound="Callable[..., Any]")


class Activation(Arguments, Fallback, UnderCompile, Elementwise):
    """The kernels of a module, with their gradient.

    Attributes:
        name: of the module.
        signature: the arguments of the kernels.
        alike: how many of the tensors have one dtype, the first ones; indices have another.
        unread: the tensors of which the gradient reads the shape only.
        detached: the tensors through which eager's operations record no gradient.
        gradients: for each tensor, the output of `backward` that is its gradient; empty where each has its
            own.
        dtypes: that the kernels take.
        saves: how many numbers of a row the forward kernel saves on CUDA.
        eager, eager_gradient: the same in PyTorch's own operations, the gradient as a tuple: for tensors
            without a kernel, and for second derivatives.
        eager_outputs: the gradient with a value for each output of `backward`.
        operators: the namespace of PyTorch's operators; `overload` is the function with its gradient, and
            `operator` what tracers record of a call.
        forward, backward: the kernels; `forward_out` and `backward_out` write into given tensors.
        autocasts: whether eager computes 16-bit tensors in float32 under CUDA's autocast.
        graded: chooses, for some tensors, the call whose gradient autograd records.
        run: the common call, of tensors and scalars that the module's function has read.
    """

    indices, masks = 0, 0  # the tensors, the last ones, without a gradient; how many dropouts draw
    results, kept = 1, 0  # of the function; beside these, read by the gradient
    lays = staticmethod(producers.lays)  # what lays the operands of a convolution in front
    widens, finds, reduces_index = False, False, False  # float64 results; places; losses of classes
    row_dtype: "Optional[torch.dtype]" = None  # of values of rows beside elements of 16 bits
    reused = staticmethod(producers.reused)
    forward: Any
    forward_out: Any
    backward: Any
    backward_out: Any

    def __init__(
        self,
        name: str,
        *,
        interface: int,
        unread: "Tuple[str, ...]" = (),
        detached: "Tuple[str, ...]" = (),
        gradients: "Tuple[int, ...]" = (),
        autocasts: bool = False,
        **own: Any,
    ) -> None:
        if interface != INTERFACE:
            other = f"{name}.py was generated for interface {interface}, this runtime is {INTERFACE}"
            raise ImportError(f"{other}; run fusegen build")
        self.name, self.autocasts = name, autocasts
        self.unread, self.detached, self.gradients = unread, detached, gradients
        self._keep(**own)
        self.announce()

    def _keep(
        self,
        forward: str,
        backward: str,
        sources: Sources,
        eager: "Callable[..., Any]",
        dtypes: "Tuple[torch.dtype, ...]" = DTYPES,
        eager_gradient: "Optional[Callable[..., Any]]" = None,
    ) -> None:
        counts = self.results, self.indices, self.kept
        self.signature = Signature(self.name, forward, backward, self.unread, self.gradients, *counts)
        self.inputs, self.alike = len(self.signature.tensors), len(self.signature.tensors) - self.indices
        self.dtypes, self.sources, self.eager = dtypes, sources, eager
        self.saves = numbers_in(sources.cuda)
        self.eager_gradient = eager_gradient or autograd.gradient_of(self, eager)
        self.eager_outputs = of_outputs(self.signature, self.eager_gradient)
        self.operators = operators.registered(self)
        self.overload = getattr(self.operators, self.name).default
        for kernel in ("forward", "forward_out", "backward", "backward_out"):
            setattr(self, kernel, self.kernel(kernel))
        self.Forward, self.Backward = autograd.functions(self)
        self.differentiated = self.Forward.apply
        self.in_place, self.on_halves = autograd.in_place(self), autograd.on_halves(self)
        if sources.bitmask:
            for kernel in ("forward_masked", "forward_masked_out", "backward_masked", "backward_by_mask"):
                setattr(self, kernel, self.kernel(kernel))
            self.with_bitmask, self.in_place_with_bitmask = bitmask.forward(self), bitmask.in_place(self)
        self.without_bias = producers.for_kernels(self)
        self.linear, self.linear_without_bias = linear.for_kernels(self)
        if sources.convolution:
            self.convolution = getattr(self.operators, f"{self.name}_convolution").default
            self.convolution_forward = self.kernel("convolution_forward")
            self.Convolved = thin_operator.function(self)
        self.convolved, self.multiplied = thin.for_kernels(self), multiplied(self)
        self.graded, self.run = common.begun(self, self._graded()), common.call_of(self)

    def _graded(self) -> "Callable[..., Any]":
        """Return a function of the tensors that chooses the call whose gradient autograd records."""
        inherited: Any = super(torch.autograd.Function, self.Forward)
        apply = inherited.apply  # for plain tensors, all that apply does

        def unary(x: Any) -> Any:
            return self.by_pytorch if x.is_nested else apply

        def with_bitmask(x: Any) -> Any:
            if x.is_cuda and x.numel() >= bitmask.LARGE and not x.is_nested:
                return self.with_bitmask.apply
            return self.by_pytorch if x.is_nested else apply

        def several(*tensors: Any) -> Any:
            return self.by_pytorch if any(t.is_nested for t in tensors) else apply

        def pair(a: Any, b: Any) -> Any:
            return self.by_pytorch if a.is_nested or b.is_nested else apply

        if self.inputs > 1:
            return pair if self.inputs == 2 else several
        return with_bitmask if self.sources.bitmask else unary

    def function(self, function: F) -> F:
        """Keep a module's function, under a name for each device that has a kernel."""
        for device in ("cuda", "cpu"):
            setattr(self, f"{self.name}_{device}", in_front_of_function(self.run, function))
        self.call = function
        return function

    def run_or(self, otherwise: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return the common call of tensors, with a function that runs where no kernel takes them."""
        return common.call_of(self, otherwise)

    def texts(self) -> Texts:
        """Return the sources with their headers in their places."""
        return texts(self)

    def load(self, kernel: str, device: str) -> None:
        """Loads a kernel, forward or backward, for a device, as its first use does."""
        build.load(self, self.operators, kernel, device)

    def other_form(self, function: "Callable[..., Any]", out: Any, x: Any, **word: Any) -> Any:
        """Return another form of the function, by PyTorch's own operation."""
        if out is None:
            return function(x, **word)
        over = out is x and differentiable(x)  # the gradient needs what was there
        return copy_into(self.name, out, function(x.clone() if over else x, **word))

    def with_options(
        self, x: Any, *others: Any, inplace: bool = False, out: Any = None, input: Any = None
    ) -> Any:
        """The function over its input if `inplace`, into `out` if there is one, of `input` if x is None."""
        if x is None or input is not None:
            x = self.first(x, input)
        if inplace:
            return self.overwrite(x, *others)
        return self.call(x, *others) if out is None else self.write(out, x, *others)

    def write(self, out: torch.Tensor, *arguments: Any) -> torch.Tensor:
        """Return the kernel that writes into a given tensor, or PyTorch's own operations and a copy."""
        arguments = self.without_history(arguments)
        tensors = arguments[: self.inputs]
        checks.check_given(self.name, self.signature.tensors, tensors)
        if is_symbolic(out, *tensors):
            return out.copy_(self.call(*arguments))
        graded = differentiable(out, *tensors)
        check(not graded, self.name, "a call with out= has no gradient; call it under no_grad()")
        if not recorded() and out.numel() == 0:
            out.resize_(torch.broadcast_shapes(*(t.shape for t in tensors)))
        usual = alike(out, *tensors) and self._usual((out, *tensors), arguments[self.inputs :])
        if not usual or recorded() or transformed():
            return copy_into(self.name, out, self.call(*arguments))
        check_writable(self.name, out)
        self.forward_out(*arguments, out)
        return bump_version(out)

    def overwrite(self, x: torch.Tensor, *params: float) -> torch.Tensor:
        """Return the kernel that writes over its input."""
        if is_symbolic(x):
            return x.copy_(self.call(x.clone(), *params))
        graded = differentiable(x)
        leaf = graded and (x if x._base is None else x._base).is_leaf
        check(
            not leaf, self.name, "a leaf that requires a gradient cannot be written over; clone() it first"
        )
        followed = traced() or transformed()
        if not self._usual((x,), params) or followed or x.is_neg():
            return copy_into(self.name, x, self.call(x.clone() if graded or followed else x, *params))
        check_writable(self.name, x)
        if not graded:
            self.forward_out(x, *params, x)
            return bump_version(x)
        if not have_kernel(x):
            return copy_into(self.name, x, self.by_pytorch(x.clone(), *params))
        large = self.sources.bitmask and x.is_cuda and x.numel() >= bitmask.LARGE
        if large and bitmask.in_vectors(x):
            return self.in_place_with_bitmask.apply(x, x[:0].clone(), *params)
        copied = self.signature.saved == self.signature.tensors and not self.unread
        saved = x.clone() if copied else None
        return self.in_place.apply(x, saved, *params)

    def halves(self, whole: Any, dim: int, *params: float) -> torch.Tensor:
        """Return the kernel on the two halves of a tensor along a dimension."""
        if is_symbolic(whole):
            parts = whole.chunk(2, dim)
            return self.call(parts[0], parts[1], *params)
        check(whole.dim() > 0, self.name, "a tensor without dimensions has no halves")
        if not recorded():  # which would record the size
            size = whole.size(dim)
            odd = f"only an even number of elements has halves, and dimension {dim} has {size}"
            check(size % 2 == 0, self.name, odd)
        usual = self._usual((whole,), ()) and not traced() and not transformed()
        usual = usual and len(self.unread) < self.inputs  # else the whole would be saved for nothing
        if usual and differentiable(whole) and have_kernel(whole):
            return self.on_halves.apply(whole, dim, *params)
        return self.call(*whole.chunk(2, dim), *params)

    def _usual(self, tensors: "Tuple[torch.Tensor, ...]", params: "Tuple[float, ...]") -> bool:
        """Return True if the kernels take such tensors and scalars."""
        for tensor in tensors:
            if tensor.__class__ not in PLAIN or tensor.dtype not in self.dtypes:
                return False
        return not params or all(not isinstance(p, torch.Tensor) and p == p for p in params)
