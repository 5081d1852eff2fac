"""README.md of a repository: its use, its functions and layers, and the errors that certificates record."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fusegen.codegen.printers.notation import notation
from fusegen.codegen.render.forward_arguments import kernel_scalars
from fusegen.compiler.pipeline import Compiled
from fusegen.core.spec import Param, Spec
from fusegen.evidence.certify import certificate_state
from fusegen.evidence.certify.certificate import DEVICES, path_of
from fusegen.evidence.certify.findings import Evidence
from fusegen.tools.hub import layer_classes, package

TEXT = """\
---
library_name: kernels
license: other
license_name: mit-0
license_link: LICENSE
tags:
- kernels
- fusegen
---

# {name}

Pointwise kernels for PyTorch on CPUs and NVIDIA GPUs, written by fusegen from formulas. Each function
has a gradient kernel of its own, takes any shape and strides, and runs under `torch.compile`. A kernel is
compiled on its first call, which needs PyTorch 2.10 or newer, a C++ compiler, and for CUDA nvcc and ninja,
or NVRTC.

## Use

`OWNER` is the account that the repository is in.

```python
import torch
from kernels import get_kernel

kernel = get_kernel("OWNER/{name}", version={version}, trust_remote_code=True)
{values}
y = kernel.{call}
```

A layer replaces the `forward` of a layer of a model, here of the name `NAME`:

```python
from kernels import LayerRepository, Mode, kernelize, use_kernel_mapping

layer = LayerRepository("OWNER/{name}", layer_name="{layer}", version={version}, trust_remote_code=True)
with use_kernel_mapping({{"NAME": {{"cpu": layer, "cuda": layer}}}}):
    model = kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE)
```

## Functions and layers

| function | formula | layers | attributes of the layer that is replaced |
|---|---|---|---|
{functions}

A layer does not write over its input, whatever `inplace` says.

## Accuracy

The largest errors in ulp, of values and of gradients, that the certificates of fusegen record. Of a
function of one tensor they cover all inputs in float32, float16 and bfloat16; else a sample.

| function | dtype | {heads} |
|---|---|{rules}
{errors}

A dash stands where there is no certificate of this kernel.
"""
PASSES = ("value", "gradient")
NO_ERROR = "-"
VOID = certificate_state.SENTENCES.keys() - {"incomplete"}  # of another kernel, or no evidence


def text(
    name: str,  # of the repository
    version: int,  # of its interface
    every: Sequence[Compiled],  # the specs after all stages
    modules: Path,  # the folder of the modules that have the certificates
) -> str:
    """Return the text of README.md."""
    first = every[0].spec
    heads = [f"{device}, {which}" for device in ("CPU", "CUDA") for which in PASSES]
    return TEXT.format(
        name=name,
        version=version,
        values="\n".join(_values(first)),
        call=package.called(first),
        layer=layer_classes.names(first)[0],
        functions="\n".join(_function(each.spec) for each in every),
        heads=" | ".join(heads),
        rules="---|" * len(heads),
        errors="\n".join(row for each in every for row in _errors(each, modules)),
    )


def _values(spec: Spec) -> Iterator[str]:
    for each in (*spec.arguments, *layer_classes.held(spec)):
        shape = "64" if each.name in spec.small else "8, 64"
        drawn = f"torch.rand({shape}) > 0.5" if each.name in spec.masks else f"torch.randn({shape})"
        yield f"{each.name} = {each.default if isinstance(each, Param) else drawn}"


def _function(spec: Spec) -> str:
    attributes = [each.name for each in layer_classes.held(spec)]
    attributes += [each.name for each in kernel_scalars(spec)]
    cells = (
        f"`{package.called(spec)}`",
        notation(spec).replace("|", "\\|"),
        ", ".join(f"`{name}`" for name in layer_classes.names(spec)),
        ", ".join(f"`{name}`" for name in attributes),
    )
    return f"| {' | '.join(cells)} |"


def _errors(of: Compiled, modules: Path) -> Iterator[str]:
    """Yield the rows of a spec in the table of errors, one a dtype."""
    path = of.module(modules)
    spec, certificate = of.spec, certificate_state.read(path_of(path))
    states = certificate_state.of_spec(path, spec)
    valid = [device for device in DEVICES if states.get(device, "unreadable") not in VOID]
    for dtype in spec.dtypes:
        found = (
            _error(certificate.evidence(device, dtype) if device in valid else None, which)
            for device in DEVICES
            for which in PASSES
        )
        yield f"| {spec.name} | {dtype} | {' | '.join(found)} |"


def _error(evidence: Evidence | None, which: str) -> str:
    """Return the largest error in ulp of a pass: the worst of several gradients."""
    outputs = evidence.outputs if evidence else ()
    errors = [output.given.ulp for output in outputs if output.name.partition(" ")[0] == which]
    return f"{max(errors):.4g}" if errors else NO_ERROR
