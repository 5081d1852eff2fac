"""Calls of what is no plain tensor of the kernels: subclasses, Proxies, dtypes, layouts and devices."""

from typing import Any, Callable, Tuple

import torch

from . import checks, sharding
from .calls import DERIVATIVES, DEVICES, FUNCTIONALIZE, dtype_of, have_kernel, is_symbolic, warn_of
from .common import widened
from .flavour import is_traceable_wrapper_subclass, transforms
from .jagged import is_jagged, on_values


class Fallback:
    """The part of a module's kernels that finds out what runs where the common call does not."""

    name: str  # of the module
    inputs: int
    alike: int
    autocasts: bool
    # the arguments of the kernels; `inputs` is the number of tensors, `alike` of those that have one dtype
    signature: Any
    dtypes: "Tuple[torch.dtype, ...]"  # that the kernels take
    eager: "Callable[..., Any]"  # the function in PyTorch's own operations
    differentiated: "Callable[..., Any]"  # the kernel with its gradient
    operator: "Callable[..., Any]"  # what tracers record of a call; `overload` is the operator itself
    overload: Any
    without_history: "Callable[..., Any]"

    def composed(self, *arguments: Any) -> Any:
        """Return the call that the operator makes, of whatever tensors a recorded program is given."""
        arguments = self.without_history(arguments)
        tensors = arguments[: self.inputs]
        if sharding.is_sharded(*tensors):
            sharding.register(self)
        if DERIVATIVES & transforms():  # which take no autograd.Function inside of an operator
            return self.eager(*arguments)
        [dtype, *others] = {t.dtype for t in tensors[: self.alike]}
        usual = not others and dtype in self.dtypes and have_kernel(*tensors)
        return self.differentiated(*arguments) if usual else self.without_kernel(*arguments)

    def transforming(self, *arguments: Any) -> Any:
        """Return the function under torch.func; some of its transforms take no autograd.Function."""
        if not have_kernel(*arguments[: self.inputs]):
            return self.by_pytorch(*arguments)
        kinds = transforms()
        if FUNCTIONALIZE not in kinds:
            return self.differentiated(*arguments)
        return self.operator(*arguments) if kinds == {FUNCTIONALIZE} else self.eager(*arguments)

    def without_kernel(self, *arguments: Any) -> Any:
        """Return the function of a tensor subclass, of other dtypes, and of tensors that are not alike."""
        tensors, params = arguments[: self.inputs], arguments[self.inputs :]
        checks.check_given(self.name, self.signature.tensors, tensors)
        if is_symbolic(*arguments):
            return self.overload(*arguments)
        if not all(isinstance(t, torch.Tensor) for t in tensors):
            return self.eager(*arguments)
        if any(map(is_jagged, tensors)):
            return on_values(self, *arguments)
        subclass = any(map(is_traceable_wrapper_subclass, tensors)) and not sharding.is_sharded(*tensors)
        if subclass or any(isinstance(p, torch.Tensor) for p in params):
            return self.eager(*arguments)
        dtype = dtype_of(*tensors[: self.alike])
        if dtype not in self.dtypes or any(p != p for p in params):
            return self.eager(*arguments)
        return self._alike(dtype, tensors, params)

    def _alike(self, dtype: Any, tensors: "Tuple[Any, ...]", params: "Tuple[Any, ...]") -> Any:
        """The function of tensors that are converted to one dtype and device as PyTorch converts them."""
        device = next((t for t in tensors if t.dim()), tensors[0]).device
        if len(tensors) > 1:
            others, indices = tensors[: self.alike], tensors[self.alike :]
            others = tuple(t.to(dtype) if t.dim() else t.to(device, dtype) for t in others)
            tensors = (*others, *indices)
        if self.autocasts and device.type == "cuda":
            tensors = tuple(map(widened, tensors))
        arguments = (*tensors, *params)
        return self.operator(*arguments) if have_kernel(*tensors) else self.by_pytorch(*arguments)

    def by_pytorch(self, *arguments: Any) -> Any:
        """PyTorch's own operations, for tensors of a layout or on a device that has no kernel."""
        for tensor in arguments[: self.inputs]:
            if tensor.device.type not in DEVICES:
                warn_of(self.name, tensor.device.type)
        return self.eager(*arguments)
