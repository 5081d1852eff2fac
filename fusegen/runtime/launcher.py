"""The launches of kernels that NVRTC compiled, whose tensors Python lays out.

Results have the bits that a build with nvcc gives, but for the gradients of operands that are broadcast:
these are computed whole, and PyTorch adds them up in double. A copy of the tensor replaces a bitmask.
"""

import functools
import logging
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from . import driver, prepared, program
from .checks import check
from .layouts import in_vectors, layout_of, packed, parts
from .sources import expected
from .turns import taken

TABLES = '#include "cuda/table.cuh"'  # of sources: some method of 16 bits looks results up


class Launcher:
    """A kernel of a module, for all dtypes and layouts.

    Attributes:
        kernels: of the module.
        kernel: ``forward`` or ``backward``.
        inputs, outputs: the numbers of tensors.
        library: loads the kernel's library for tensors that are not dense and returns its operator, of a
            suffix; None where there is none.
        plans: of dense tensors, by dtype and GPU.
    """

    library: "Optional[Callable[[str], Any]]" = None

    def __init__(self, kernels: Any, kernel: str) -> None:
        counts = {name: (inputs, outputs) for name, _, inputs, outputs in kernels.signature.kernels}
        self.kernels, self.kernel = kernels, kernel
        self.inputs, self.outputs = counts[kernel]
        self.loaded: "Dict[program.KernelKey, program.Compute]" = {}
        self.plans: "Dict[Any, prepared.Plan]" = {}

    def new(self, *arguments: Any) -> Any:
        """Return the results for some tensors and scalars, in new tensors."""
        first, tensors, params = arguments[0], arguments[: self.inputs], arguments[self.inputs :]
        plan = self.plans.get((first.dtype, first.get_device()))
        found = prepared.addresses(first, tensors, self.inputs) if plan else None
        if plan is not None and found is not None and first.numel() > 0:
            made = [torch.empty_like(first) for _ in range(self.outputs)]
            plan.launch((*found, *(t.data_ptr() for t in made)), first.numel(), params)
            return tuple(made) if self.outputs > 1 else made[0]
        shape = self._checked(tensors)
        if self.library is not None and not self._is_dense(tensors, shape):
            return self.library("")(*arguments)
        made = self._made(tensors, shape)
        self._compute(tensors, made, params, shape)
        return tuple(made) if self.outputs > 1 else made[0]

    def into(self, *arguments: Any) -> None:
        """Write the results into given tensors, which come last."""
        end = len(arguments) - self.outputs
        tensors, params, given = arguments[: self.inputs], arguments[self.inputs : end], arguments[end:]
        first = tensors[0]
        plan = self.plans.get((first.dtype, first.get_device()))
        found = prepared.addresses(first, (*tensors, *given), self.inputs) if plan else None
        if plan is not None and found is not None and first.numel() > 0:
            plan.launch(found, first.numel(), params)
            return
        shape = self._checked((*tensors, *given))
        self._check_given(tensors, given, shape)
        if self.library is not None and not self._is_dense((*tensors, *given), shape):
            self.library("_out")(*arguments)
            return
        apart = [_is_apart(out, tensors) for out in given]
        made = [out if alone else torch.empty_like(out) for out, alone in zip(given, apart)]
        self._compute(tensors, made, params, shape)
        for out, result in zip(given, made):
            if out is not result:
                out.copy_(result)

    def _is_dense(self, tensors: "Sequence[torch.Tensor]", shape: "torch.Size") -> bool:
        """Return True if NVRTC's kernel is as fast as nvcc's: tables are in shared memory by nvcc alone."""
        if tensors[0].element_size() == 2 and TABLES in self.kernels.sources.cuda:
            return False
        return all(t.shape == shape for t in tensors) and layout_of(self.kernels.name, tensors, shape).dense

    def _checked(self, tensors: "Sequence[torch.Tensor]") -> "torch.Size":
        """Return the shape of all, of tensors that the kernel takes."""
        name, first = self.kernels.name, tensors[0]
        one = all(t.device == first.device for t in tensors)
        check(one, name, "expected every tensor on one device, the CPU or a CUDA GPU")
        usual = first.dtype in self.kernels.dtypes and all(t.dtype == first.dtype for t in tensors)
        check(usual, name, expected(self.kernels.dtypes))
        shapes = [t.shape for t in tensors[: self.inputs]]
        if all(shape == shapes[0] for shape in shapes):
            return shapes[0]
        return torch.broadcast_shapes(*shapes)

    def _check_given(
        self, tensors: "Sequence[torch.Tensor]", given: "Sequence[torch.Tensor]", shape: "torch.Size"
    ) -> None:
        for out, own in zip(given, self._shapes(tensors, shape)):
            check(out.shape == own, self.kernels.name, "out has another shape than the result")
            still = any(size > 1 and step == 0 for size, step in zip(out.shape, out.stride()))
            shared = "several elements of the written-to tensor share their memory; clone() it first"
            check(not still, self.kernels.name, shared)

    def _shapes(self, tensors: "Sequence[torch.Tensor]", shape: "torch.Size") -> "List[torch.Size]":
        """Return the shape of each output."""
        shapes = [t.shape for t in tensors[: self.inputs]]
        return [shapes[k] for k in self.kernels.signature.owners(self.kernel, shapes)] or [shape]

    def _made(self, tensors: "Sequence[torch.Tensor]", shape: "torch.Size") -> "List[torch.Tensor]":
        """New outputs, laid in memory as PyTorch's own operations would lay them."""
        first, strides = tensors[0], _strides(tensors, shape)
        return [
            first.new_empty_strided(own, strides) if own == shape else first.new_empty(own)
            for own in self._shapes(tensors, shape)
        ]

    def _compute(
        self,
        tensors: "Sequence[torch.Tensor]",
        outputs: "List[torch.Tensor]",
        params: "Sequence[float]",
        shape: "torch.Size",
    ) -> None:
        """Compute the outputs, those of a smaller shape as sums."""
        sums = [k for k, out in enumerate(outputs) if out.shape != shape]
        whole = [tensors[0].new_empty(shape) if k in sums else out for k, out in enumerate(outputs)]
        calls = [(tensors, whole)]
        if sums and tensors[0].element_size() == 2:  # whose terms are not rounded to 16 bits
            calls.append(([t.float() for t in tensors], [t.float() for t in whole]))
        for inputs, written in calls if shape.numel() > 0 else ():
            self._launch((*inputs, *written), params, shape)
        whole = calls[-1][1]
        if sums:
            _tell_of_sums(self.kernels.name)
        for k in sums:
            outputs[k].copy_(whole[k].double().sum_to_size(outputs[k].shape))

    def _launch(
        self, tensors: "Sequence[torch.Tensor]", params: "Sequence[float]", shape: "torch.Size"
    ) -> None:
        """Launch the kernel on tensors that are broadcast to a shape, the inputs first."""
        first, name = tensors[0], self.kernels.name
        layout, index, size = layout_of(name, tensors, shape), first.device.index, first.element_size()
        of = program.KernelKey(self.kernel, first.dtype, layout.dense, index)
        compute = self.loaded.get(of) or self._load(of)
        stream = torch._C._cuda_getCurrentRawStream(index)
        with driver.OnDevice(name, index):
            for part in [layout] if layout.dense else parts(layout, size):
                vectors = layout.dense or in_vectors(part, 16 // size)
                argument = packed(part, first.dtype, vectors, params)
                block = compute.threads * compute.vectors * 16 // size
                grid = ((part.numel + block - 1) // block, compute.threads)
                driver.launch(name, compute.handle, grid, stream, argument)
        if layout.dense:
            counts = len(tensors), len(params)
            self.plans[first.dtype, first.get_device()] = prepared.Plan(
                name, compute, (first.dtype, index, *counts)
            )

    def _load(self, of: program.KernelKey) -> program.Compute:
        """Return a kernel of a dtype and a layout on its first use; one thread at a time loads it."""
        with taken(self.kernels.operators):
            if of not in self.loaded:
                self.loaded[of] = program.compute(self.kernels, of)
        return self.loaded[of]


@functools.lru_cache(maxsize=None)
def _tell_of_sums(module: str) -> None:
    """Say once that sums are PyTorch's."""
    logging.getLogger("fusegen").warning(
        "%s: there is no nvcc, so that PyTorch adds up the gradients of operands that are broadcast", module
    )


def _strides(tensors: "Sequence[torch.Tensor]", shape: "torch.Size") -> "Tuple[int, ...]":
    """Return the strides of a result of a shape, as of PyTorch's own operations."""
    if all(t.is_contiguous() and t.shape == shape for t in tensors):
        return tensors[0].stride()
    return _strides_of(tuple((t.shape, t.stride()) for t in tensors))


@functools.lru_cache(maxsize=1024)
def _strides_of(each: "Tuple[Any, ...]") -> "Tuple[int, ...]":
    """Return the strides of a result of tensors of some shapes and strides."""
    like = [torch.empty_strided(shape, strides, device="meta") for shape, strides in each]
    result = functools.reduce(torch.add, like) if len(like) > 1 else torch.neg(*like)
    return result.stride()


def _is_apart(out: torch.Tensor, tensors: "Sequence[torch.Tensor]") -> bool:
    """Return True if each input is the output itself, or lies elsewhere in memory."""
    for tensor in tensors:
        same = tensor.data_ptr() == out.data_ptr() and tensor.shape == out.shape
        if same and tensor.stride() == out.stride():
            continue
        (begin, end), (other, last) = _range(out), _range(tensor)
        if begin < last and other < end:
            return False
    return True


def _range(tensor: torch.Tensor) -> "Tuple[int, int]":
    """Return the addresses of the first byte of a tensor, and of that behind its last one."""
    if tensor.numel() == 0:
        return 0, 0
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (steps + 1) * tensor.element_size()
