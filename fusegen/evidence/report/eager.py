"""The specs with `numerics: eager` beside PyTorch's own operations, bit by bit, in each dtype.

Inputs are all 65,536 values of a 16-bit type, else random bit patterns and normal numbers; gradients are
normal numbers. A NaN equals every other. A cell is "=", or the fraction of results that differ, with the
largest distance in ulp; zeros of another sign, and the gradient at a NaN, are told apart from that.
"""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.backends.cpu import get_cpu_capability

from fusegen.codegen.render.forward_arguments import function_name
from fusegen.compiler import pipeline
from fusegen.core.spec import Spec
from fusegen.core.write import Change, apply
from fusegen.errors import TwoOfOneName
from fusegen.evidence.certify import exact, tried_inputs
from fusegen.language import library
from fusegen.project import build, runtime_folder
from fusegen.project.loader import imported

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def page(
    names: tuple[str, ...],
    specs: Path,  # the folder of the specs
    device: str,  # ``cpu`` or ``cuda``
    count: int,  # random inputs of each kind
) -> Iterator[str]:
    """Yield the lines of the table in Markdown, of the named specs, or of all in the folder without layers.

    Raises:
        NoSuchSpec: there is no such spec.
        SpecErrors: every mistake in one of them.
        TwoOfOneName: two of them would have the same module.
    """
    paths = library.find_all(names, specs) if names else without_layers(specs)
    chip = torch.cuda.get_device_name() if device == "cuda" else get_cpu_capability()
    yield f"PyTorch {torch.__version__}, {chip}; {count} random inputs of each kind\n"
    heads = [f"{str(dtype)[6:]} {which}" for dtype in DTYPES for which in ("forward", "backward")]
    yield "| | " + " | ".join(heads) + " |\n" + "|---" * (1 + len(heads)) + "|"
    with tempfile.TemporaryDirectory() as folder:
        modules = eager_modules(paths, Path(folder))
        with ThreadPoolExecutor() as pool:  # the compilers are processes of their own
            kernels = product(("forward", "backward"), modules)
            list(pool.map(lambda one: one[1][1].KERNELS.load(one[0], device), kernels))
        for spec, module in modules:
            with torch.backends.mkldnn.flags(enabled=False):  # oneDNN's gelu is another function
                cells = _row(spec, module, device, count)
            yield f"| {' | '.join(cells)} |"


def without_layers(specs: Path) -> tuple[Path, ...]:
    """Return the specs of a folder without layers, sorted."""
    return tuple(path for path in sorted(specs.glob("*.yaml")) if not library.load(path).layers)


def eager_modules(paths: tuple[Path, ...], folder: Path) -> list[tuple[Spec, ModuleType]]:
    """Return specs with `numerics: eager`, and their modules, which are written into the folder only.

    Raises:
        SpecErrors: every mistake in one of them.
        TwoOfOneName: two of them would have the same module.
    """
    runtime_folder.write(folder)
    modules: dict[Path, Path] = {}
    found = []
    for path in paths:
        spec = replace(library.load(path), numerics="eager")
        compiled = pipeline.compiled(spec, library.Library(path.parent))
        module = compiled.module(folder)
        if module in modules:
            first, place = modules[module].as_posix(), f"{compiled.place}.py"
            raise TwoOfOneName(spec.span, name=spec.name, first=first, module=place)
        modules[module] = path
        apply(Change(module, None, build.module(compiled)))
        found.append((spec, imported(module)))
    return found


def patterns(dtype: torch.dtype, count: int, device: str, seed: int) -> Tensor:
    """Return inputs of every kind: all there are in a 16-bit type."""
    generator = torch.Generator(device).manual_seed(seed)
    if dtype.itemsize == 2:
        every = tried_inputs.every(dtype).to(device)
        return every[torch.randperm(2**16, generator=generator, device=device)]
    words = torch.randint(
        -(2**31), 2**31, (count * dtype.itemsize // 4,), generator=generator, device=device
    )
    ordinary = torch.randn(count, generator=generator, dtype=dtype, device=device) * 4
    return torch.cat([words.to(torch.int32).view(dtype), ordinary])


def compared(ours: Tensor, theirs: Tensor, inputs: list[Tensor]) -> str:
    """Return a cell of the table."""
    wrong = exact.bits_differ(ours, theirs)
    excused = {
        "-0.0": (ours == 0) & (theirs == 0),
        "NaN in": torch.stack([x.isnan() for x in inputs]).any(0),
    }
    seen = [name for name, where in excused.items() if (wrong & where).any()]
    rest = wrong & ~torch.stack(list(excused.values())).any(0)
    if not rest.any():
        return f"= but for {', '.join(seen)}" if seen else "="
    both = rest & ours.isfinite() & theirs.isfinite()
    share = f"{int(rest.sum()) / rest.numel():.2g}"
    if not both.any():
        return f"{share}, not finite"
    return f"{share}, {(exact.in_order(ours[both]) - exact.in_order(theirs[both])).abs().max().item()} ulp"


def _row(spec: Spec, module: ModuleType, device: str, count: int) -> list[str]:
    """Forward and backward of one spec in each dtype; cells of a dtype that it lacks are empty."""
    cells = [spec.name]
    function = getattr(module, function_name(spec))
    params = [scalar.default for scalar in spec.scalars]
    for dtype in DTYPES:
        if str(dtype).removeprefix("torch.") not in spec.dtypes:
            cells += ["", ""]
            continue
        seeds = range(module.KERNELS.inputs)
        inputs = [patterns(dtype, count, device, seed).requires_grad_() for seed in seeds]
        ours, theirs = function(*inputs, *params), module.eager(*inputs, *params)
        generator = torch.Generator(device).manual_seed(9)
        grad = torch.randn(ours.shape, generator=generator, device=device).to(dtype)
        back = [torch.autograd.grad(y, inputs, grad) for y in (ours, theirs)]
        backs = {compared(a, b, inputs) for a, b in zip(*back, strict=True)}
        cells += [compared(ours.detach(), theirs.detach(), inputs), " / ".join(sorted(backs))]
    return cells
