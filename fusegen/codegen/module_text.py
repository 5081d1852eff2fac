"""From a compiled spec to the text of its module: the kernels that the plan takes, printed and rendered."""

from fusegen.algebra.hoist import bounds
from fusegen.codegen.emit.counts import counts
from fusegen.codegen.emit.digests import digests
from fusegen.codegen.emit.includes import INCLUDE
from fusegen.codegen.emit.kernel_text import Emission, called
from fusegen.codegen.emit.needed_kernels import emitted
from fusegen.codegen.printed import Binding, Sources
from fusegen.codegen.render import JOINT, NAMESPACE, fill, long_lines, module_class, python
from fusegen.codegen.render.registration import eager, registration
from fusegen.compiler.pipeline import Compiled
from fusegen.core.ir import operations
from fusegen.core.launch import Table
from fusegen.core.manifest import Kernels
from fusegen.core.method import Pass
from fusegen.core.ops import ROUNDED
from fusegen.core.targets import Device
from fusegen.core.term import Apply, Program, SpecCall, walk

FLOAT32 = {  # what CUDA's autocast computes in float32, by our names
    "exp", "expm1", "log", "log1p", "log2", "pow", "cube", "square", "reciprocal", "rsqrt", "softplus",
    "torch.nn.functional.softplus",
}  # fmt: skip


def autocasts(program: Program) -> bool:
    """Return True if CUDA's autocast computes a part of eager's operations in float32, and so gives it."""
    parts = [part for term in program.terms for part in walk(term)]
    used = {part.op for part in parts if isinstance(part, Apply)}
    return bool(FLOAT32 & (used | {part.spec for part in parts if isinstance(part, SpecCall)}))


def cpp(of: Compiled, launches: Table) -> dict[str, str]:
    """Return the C++ of a module, by device: the headers that it includes, and its kernels."""
    parts = _parts(Emission(of, Binding.STABLE, launches).sources())
    both = parts["shared_source"]
    return {
        device.name: "".join([parts[f"{device.name}_headers"], both, parts[f"{device.name}_source"]])
        for device in Device
    }


def _parts(of: Sources) -> dict[str, str]:
    """Return the C++ of a module in parts: what both devices share, and the headers and kernels of each."""
    both = {"scalars": of.scalars, "given": of.given, "uniforms": of.uniforms, "kernels": of.shared}
    shared = long_lines.cpp(fill("functions.j2", both)) if of.scalars or of.shared else ""
    parts = {"shared_source": shared, "joint": JOINT if shared else ""}
    for device, found in of.devices.items():
        parts[f"{device.name}_headers"] = "".join(map(INCLUDE.format, found.headers)) + f"{NAMESPACE}\n"
        context = {"tables": found.tables, "kernels": found.kernels, "launchers": found.launchers}
        parts[f"{device.name}_source"] = long_lines.cpp(fill("kernels.j2", context))
    return parts | {"convolution": of.devices[Device.CUDA].library}


def rendered(of: Compiled, binding: Binding, launches: Table) -> tuple[python.Context, Kernels]:
    """Return what the templates of a module take, with a launch table, and the digests of its kernels."""
    emission = Emission(of, binding, launches)
    spec, sources = of.spec, emission.sources()
    rounds = any(ROUNDED in operations(kernel) for kernel in called(of, Device.CUDA))
    lines = eager(of)
    gradient = ["eager_gradient=eager_gradient"] * bool(lines["eager_gradient_lines"])
    context = {
        **module_class.head(of),
        "counts": counts({which: emitted(of, which, Device.CUDA) for which in Pass}),
        "autocasts": autocasts(of.declared.eager),
        **python.tensors_and_scalars(spec, bounds(of.declared.composed)),
        **module_class.model(spec, emission.forms),
        **python.function(spec, "rounded after every operation" if rounds else "rounded once"),
        **lines,
        "registration": registration(of, emission.forms, gradient),
        "runtime_class": "Dropouts" if spec.dropouts else "Activation",
        **_parts(sources),
    }
    return context, digests(sources)
