"""The competitors of a case: implementations of one function, each checked first.

The reference of the check is PyTorch's own operations in double. The row of one that is not timed says why.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.codegen.render.forward_arguments import chosen, function_name
from fusegen.core.held_layers import paths
from fusegen.core.spec import Spec
from fusegen.errors import NoSuchCompetitor, NotTimed, Span
from fusegen.evidence.bench.case import BACKWARD, FORWARD, TRAINING, Case, input_shapes
from fusegen.evidence.bench.clock import Run
from fusegen.evidence.bench.model_inputs import (
    first_off,
    in_double,
    is_elementwise,
    listed,
    of_tensors,
    read,
    refused,
    with_gradients,
)
from fusegen.project.loader import imported

Function = Callable[..., Tensor]
OURS, EAGER, COMPILED, COPY = "fusegen", "eager", "torch.compile", "copy"
# how far a result may be off, absolutely and of itself
TOLERANCE = {"float32": 1e-4, "float64": 1e-7, "float16": 1e-2, "bfloat16": 2e-2}
CHUNK = 2**22  # elements that are computed in double at a time
ASIDE = 37 * 2**20  # bytes that move tensors from place to place
SCALE = 4.0  # of the inputs, which are normal: on both sides of every kink


class Competitors:
    """A case with its inputs and competitors."""

    def __init__(self, spec: Spec, module: ModuleType, case: Case, outputs: tuple[int, ...] = ()) -> None:
        """Make the inputs; the same ones each time; `outputs` says which tensors have equal gradients.

        Raises:
            NotTimed: it has dropout.
        """
        for each in spec.dropouts:
            raise NotTimed(each.span, name=spec.name)
        self.spec, self.module, self.case, self.outputs = spec, module, case, outputs
        self.dtype: torch.dtype = getattr(torch, case.dtype)
        torch.manual_seed(0)
        self.model: nn.Module = module.ModelNew(*module.get_init_inputs()).to(case.device, self.dtype)
        self.inputs: tuple[Tensor, ...] = ()
        self.incoming = torch.empty(0)  # the gradient, for a backward pass
        self.allocate(0)

    def allocate(self, place: int) -> None:
        """Make the inputs and the incoming gradient, the same ones each time, at some place in memory."""
        self.inputs, self.incoming = (), torch.empty(0)
        if self.case.device == "cuda":
            torch.cuda.empty_cache()
        aside = torch.empty(place * ASIDE, dtype=torch.uint8, device=self.case.device)
        generator = torch.Generator(self.case.device).manual_seed(0)
        draw = partial(torch.randn, generator=generator, device=self.case.device)
        drawn = (draw(shape).mul_(SCALE) for shape in input_shapes(self.spec, self.case.shape))
        length = self.spec.over.parted(self.case.shape)[1] if self.spec.over else ()
        self.inputs = tuple(
            t.mul(2**10).long() % math.prod(length)
            if of.index is not None
            else t > 0
            if of.is_mask
            else t.to(self.dtype).requires_grad_(self.case.what != FORWARD)
            for of, t in zip(self.spec.inputs, drawn, strict=True)
        )
        generator.manual_seed(1)
        self.incoming = draw(self.of_results if self.case.what != FORWARD else 0).to(self.dtype)
        del aside

    def functions(self, against: tuple[str, ...], *, compiled: bool) -> dict[str, Function]:
        """Return the competitors under their names: eager, ours, perhaps torch.compile, and others.

        Args:
            against: others, each as ``FILE:CLASS``.
            compiled: whether torch.compile competes.

        Raises:
            NoSuchCompetitor: a file or a class is not there, or cannot be made.
        """
        found: dict[str, Function] = {EAGER: self.eager(self.model), OURS: self.ours()}
        if compiled:
            torch.compiler.reset()
            found[COMPILED] = torch.compile(self.eager(self.model))
        return found | {name: of_tensors(self.spec, self.other(name)) for name in against}

    def ours(self) -> Function:
        """Return the model; of a spec with views, whose tensors differ in shape, the function of these."""
        if all(each.unsqueeze is None for each in self.spec.inputs):
            return of_tensors(self.spec, self.model)
        function = getattr(self.module, function_name(self.spec))
        return lambda *tensors: function(*tensors, *(param.default for param in self.spec.scalars))

    def eager(self, model: nn.Module) -> Function:
        """The same in PyTorch's own operations, with the layers, parameters and buffers of a model."""
        scalars = [*(s.default for s in self.spec.scalars), *(getattr(model, g) for g in chosen(self.spec))]
        layers = [getattr(model, layer.attribute) for layer in self.spec.producers]
        bias, held = self.spec.bias, self.spec.tensors[len(self.spec.inputs) :]
        places = paths(self.spec)
        of_rows: Any = self.module.KERNELS if self.spec.over is not None else None
        plain = self.module.eager if of_rows is None else of_rows.by_operations

        def function(first: Tensor, *others: Tensor) -> Tensor:
            for layer in layers:
                first = layer(first)  # with its bias; -0.0 adds nothing
            nothing = first.new_full((), -0.0)
            state = [
                nothing if t == bias else read(self.module, model, t, first, places.get(t.name, t.name))
                for t in held
            ]
            given = zip(self.spec.inputs[1:], others, strict=True)
            read_as = [t if of.index is None else of_rows.index(of.name, t, first) for of, t in given]
            value: Tensor = plain(first, *read_as, *state, *scalars)
            return value

        return function

    def other(self, name: str) -> nn.Module:
        """Return a competitor of the user's, with our parameters where it has the same ones."""
        file, _, attribute = name.partition(":")
        try:
            found = vars(imported(Path(file)))
            if attribute not in found:
                raise NoSuchCompetitor(Span(name), why=f"the file has no {attribute!r}")
            made: nn.Module = found[attribute](*self.module.get_init_inputs())
            if made.state_dict().keys() == self.model.state_dict().keys():
                made.load_state_dict(self.model.state_dict())
            return made.to(self.case.device, self.dtype)
        except NoSuchCompetitor:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise NoSuchCompetitor(Span(name), why=why) from None

    def runs(self, functions: Mapping[str, Function], place: int) -> dict[str, Run]:
        """Return the copy and competitors, on tensors at some place in memory."""
        self.allocate(place)
        return {COPY: self.copy()} | {name: self.run(function) for name, function in functions.items()}

    def run(self, function: Function) -> Run:
        """Return the run of a function that is timed."""
        if self.case.what == FORWARD:
            return lambda: function(*self.inputs)
        leaves = with_gradients(self.inputs)
        if self.case.what == TRAINING:
            return lambda: torch.autograd.grad(function(*self.inputs), leaves, self.grads(self.incoming))
        y = function(*self.inputs)
        return lambda: torch.autograd.grad(y, leaves, self.grads(self.incoming), retain_graph=True)

    def whole(self, function: Function) -> Run:
        """Return the run with all that is done once before: a backward pass with its forward pass."""
        return (lambda: self.run(function)()) if self.case.what == BACKWARD else self.run(function)

    def copy(self) -> Run:
        """Return a copy that moves as many bytes; on the CPU it allocates, as the others do."""
        source = torch.empty(self.moved // 2, dtype=torch.uint8, device=self.case.device)
        if self.case.device == "cpu":
            return source.clone
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    @cached_property
    def moved(self) -> int:
        """The bytes that are read and written: tensors, equal gradients as one; parameters do not count."""
        forward = sum(t.nbytes for t in self.inputs) + math.prod(self.of_results) * self.dtype.itemsize
        gradients = zip(self.outputs or range(len(self.inputs)), self.inputs, strict=False)
        backward = forward + sum({k: t.nbytes for k, t in gradients if t.is_floating_point()}.values())
        return {FORWARD: forward, BACKWARD: backward, TRAINING: forward + backward}[self.case.what]

    @property
    def of_results(self) -> tuple[int, ...]:
        """The shape of the output; of several their number, and the shape of each."""
        return (*[len(self.spec.results)] * bool(self.spec.results), *self.shape)

    def grads(self, incoming: Tensor) -> tuple[Tensor, ...]:
        """Return the gradient of each result."""
        return incoming.unbind() if self.spec.results else (incoming,)

    @cached_property
    def shape(self) -> torch.Size:
        """Of each output.

        Raises:
            RefusedShape: PyTorch's own operations do not take such inputs.
        """
        if is_elementwise(self.spec, self.inputs):
            return self.inputs[0].shape
        try:
            with torch.no_grad():
                return listed(self.eager(self.model)(*self.inputs))[0].shape
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise refused(self.spec, self.case, error) from None

    def wrong(self, run: Run) -> str:
        """Return the fault in the results of a run; empty if they are right."""
        results, shapes = listed(run()), [self.shape] * (len(self.spec.results) or 1)
        if self.case.what != FORWARD:
            shapes = [t.shape for t in with_gradients(self.inputs)]
        if [t.shape for t in results] != shapes:
            return f"it gives {', '.join(str(tuple(t.shape)) for t in results)}"
        for start, exact in self.expected():
            for found, real in zip(results, exact, strict=True):
                part = found.detach().reshape(-1)[start : start + len(real)].double()
                at = first_off(part, real, TOLERANCE[self.case.dtype])
                if at is not None:
                    gave, should = float(part[at]), float(real[at])
                    return f"it is wrong: {gave:.6g} for {should:.6g} at element {start + at}"
        return ""

    def expected(self) -> Iterator[tuple[int, list[Tensor]]]:
        """Yield parts of the results in double, rounded to the dtype, each with where it begins."""
        if not is_elementwise(self.spec, self.inputs):
            wide = [in_double(t) for t in self.inputs]
            layered: Any = self.module.ModelNew(*self.module.get_init_inputs())
            layered.load_state_dict(self.model.state_dict())
            function = self.eager(layered.to(self.case.device, torch.float64))
            yield 0, self.exact(function, wide, self.incoming)
            return
        function = self.eager(self.model)
        for start in range(0, self.case.numel, CHUNK):
            parts = [in_double(t.reshape(-1)[start : start + CHUNK]) for t in self.inputs]
            yield start, self.exact(function, parts, self.incoming.reshape(-1)[start : start + CHUNK])

    def exact(self, function: Function, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
        """Return results of a function in double, flat."""
        backward = self.case.what != FORWARD
        leaves = [t.requires_grad_(backward) for t in with_gradients(inputs)]
        with torch.set_grad_enabled(backward):
            made: Any = function(*inputs)
            made = torch.autograd.grad(made, leaves, self.grads(grad.double())) if backward else made
        return [t.detach().reshape(-1).to(self.dtype).double() for t in listed(made)]
