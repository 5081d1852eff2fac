"""The text of a standalone file, from that of a module."""

import ast
import re
from typing import Any

from fusegen.codegen.render import fill
from fusegen.codegen.standalone import file_parts, helpers, instances, known, layout, python, thin_file
from fusegen.codegen.standalone.calls import Calls
from fusegen.codegen.standalone.items import Item, items
from fusegen.codegen.standalone.needed import Library, Uses
from fusegen.codegen.standalone.reading import Module
from fusegen.core.dtypes import ELEMENTS

PASSES = {"forward": "Forward", "backward": "Backward"}
TYPES = {  # how C++ names a type and converts it; PyTorch's flags switch off the conversions of half types
    "float32": ("float", "float", 6, "float", "v", "v"),
    "float16": ("__half", "c10::Half", 5, "float", "__half2float(v)", "__float2half_rn(v)"),
    "bfloat16": (
        "__nv_bfloat16",
        "c10::BFloat16",
        15,
        "float",
        "__bfloat162float(v)",
        "__float2bfloat16_rn(v)",
    ),
    "float64": ("double", "double", 7, "double", "v", "v"),
}
INCLUDES = {  # what the text of a device has in front of it, by what it names
    "": ["#include <cmath>", "#include <cstdint>"],
    "memcpy": ["#include <cstring>"],
    "std::conditional": ["#include <type_traits>"],
    "std::enable_if": ["#include <type_traits>"],
    "std::m": ["#include <algorithm>"],
    "std::atomic": ["#include <atomic>"],
    "numeric_limits": ["#include <limits>"],
    "std::tuple": ["#include <tuple>"],
}
HEADS = {  # the same of one device
    "cuda": {
        "__half": ["#include <cuda_fp16.h>"],
        "__nv_bfloat16": ["#include <cuda_bf16.h>"],
        "__pipeline": ["#include <cuda_pipeline_primitives.h>"],
        "": [
            "#define ON_CUDA",
            "#define HOST_DEVICE __device__ __forceinline__",
            '#define UNROLL _Pragma("unroll")',
        ],
        "HOST_DEVICE_NOINLINE": ["#define HOST_DEVICE_NOINLINE __device__ __noinline__"],
    },
    "cpu": {
        "_mm256": ["#include <immintrin.h>"],
        "c10::Half": ["#include <torch/headeronly/util/Half.h>"],
        "c10::BFloat16": ["#include <torch/headeronly/util/BFloat16.h>"],
        "": ["#define HOST_DEVICE inline"],
        "UNROLL": ['#define UNROLL _Pragma("GCC unroll 32")'],
        "HOST_DEVICE_NOINLINE": ["#define HOST_DEVICE_NOINLINE inline"],
        "ALWAYS_INLINE": ["#define ALWAYS_INLINE __attribute__((always_inline)) inline"],
        "INLINES_ALL": ["#define INLINES_ALL __attribute__((flatten)) inline"],
    },
}
ROOTS = ("run", "run_convolved")
TEMPLATES = {False: ("elements",), True: ("elements", "thin/kernels")}  # without a convolution, with one
FORMS = {"cuda": "cuda.cuh", "cpu": "cpu.h"}  # the templates of devices
OWN = (  # names of a file
    f"{known.OWN} y empty laid alike along as_numbers draw is_watched without_bias "
    "convolved_shape convolve convolved"
).split()
LEFT_OUT = re.compile(r"struct (?:Bit|FromBit) |_mask\(|_backward_masked\(")  # kernels of bitmasks
GIVEN_UP = (
    "Given up: in place, out=, autocast, kernels in torch.func and forward mode, prefetches, "
    "launches of other chips."
)
DRAWN_ONCE = "masks drawn again"


def is_light(module: str) -> bool:
    """Return True if a module of elements has a file of its own kernels, not of the runtime."""
    if known.REGISTERED.findall(module) not in (["Activation"], ["Dropouts"]):
        return False
    read = Module(module)
    return {read.name, *read.signature("forward")}.isdisjoint(OWN)


def context(module_text: str, dtypes: list[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    prepared = thin_file.prepared(module_text, [ELEMENTS[d].bits for d in dtypes])
    found = _context(Module(prepared), dtypes)
    return found | {"templates": TEMPLATES[bool(found["thin"])]}


def _context(module: Module, dtypes: list[str]) -> dict[str, Any]:
    counts, signature = module.counts(), module.signature("forward")
    types = types_of(module, dtypes)
    inputs = [name for name, kind in signature.items() if kind == "Tensor"]
    params = [name for name, kind in signature.items() if kind == "float"]
    context: dict[str, Any] = {
        "name": module.name,
        "types": types,
        "passes": PASSES.items(),
        "tensors": max(sum(pair) for pair in counts.values()),
        "scalars": len(params),
        "operands": len(inputs) > 1,
        "thin": (convolution := thin_file.facts(module, types)),
        "given_up": file_parts.given_up(
            *[DRAWN_ONCE] * ("drawn" in module.given), *[thin_file.GIVEN_UP] * bool(convolution), GIVEN_UP
        ),
        "plain": all(instances.is_plain(i, types) for device in FORMS for i in module.source(device).own),
    }
    found = {device: _needed(module, device, context) for device in FORMS}
    needed = {device: uses for device, (uses, _) in found.items()}

    def decide(item: Item, condition: str) -> bool | None:
        values = {value for _, calls in found.values() for value in calls.decided(item, condition)}
        return values.pop() if len(values) == 1 else None

    laid = layout.laid(**needed, decide=decide)
    heads = {f"{d}_head": head_lines(d, needed[d]) for d in FORMS}
    own = python_of(module, inputs, params) | file_parts.head(module, laid, dtypes)
    return context | laid | heads | own


def types_of(module: Module, dtypes: list[str]) -> list[dict[str, Any]]:
    """Return what templates name of the dtypes of a file."""
    own = module.words("dtypes")
    keys = ("cuda", "cpu", "number", "math", "load", "store")
    return [
        {"name": d, "bits": ELEMENTS[d].bits, **dict(zip(keys, TYPES[d], strict=True))}
        for d in dtypes
        if not own or d in own
    ]


def head_lines(device: str, items: Uses) -> list[str]:
    """Return the includes and macros of a device that some items name."""
    text = "\n".join(item.text for item in items)
    rows = (*INCLUDES.items(), *HEADS[device].items())
    return [*dict.fromkeys(line for part, lines in rows if part in text for line in lines)]


def _needed(module: Module, device: str, context: dict[str, Any]) -> tuple[Uses, Calls]:
    """Return the items that the C++ of a device needs, and the calls of their functions."""
    source = module.source(device)
    kept = [instances.of_one_chip(item) for item in source.own if not LEFT_OUT.search(item.text)]
    own = instances.of_one_type(kept, context["types"]) if len(context["types"]) == 1 else kept
    own = instances.of_formulas(own) if context["plain"] else own
    vectors = sorted({n for item in own for n in instances.vectors(item)})
    if launch := instances.launch(own):
        own, vectors = instances.of_one_launch(own), [launch[1]]
    cpu, found = "".join(item.text for item in own) * (device == "cpu"), {}
    for two_phases in (False, True):
        more = {
            "two_phases": two_phases,
            "launch": launch,
            "vectors": vectors,
            "prepares": "PiecewiseOctaves" in cpu,
            "tiles": context["operands"] or any(word in cpu for word in ("Verified", "PiecewiseOctaves")),
            "widened": any(
                "Formula<double>" in m for item in own for m in instances.methods(item.text)[:2]
            ),
        }
        shell = [
            item
            for name in (
                "both.h",
                FORMS[device],
                *["thin/cuda.cuh"] * (device == "cuda" and bool(context["thin"])),
            )
            for item in items(fill(f"standalone/{name}.j2", context | more))
        ]
        roots = [item for item in (*own, *shell) if {*ROOTS, *PASSES.values()} & {*item.names}]
        library = Library((*own, *shell), source.headers)
        calls = instances.called(own, library.items, device, context["types"])
        while calls.follow_all(found := library.needed(roots, calls.calls())):
            continue
        if not any("TWO_PHASES = " in item.text and item not in shell for item in found):
            break
    return found, calls


def python_of(module: Module, inputs: list[str], params: list[str]) -> dict[str, Any]:
    """Return what templates name of a module's Python."""
    saved = [name for name, kind in module.signature("backward").items() if kind == "Tensor"][1:]
    defs = {node.name: node for node in module.tree.body if isinstance(node, ast.FunctionDef)}
    eager = [ast.get_source_segment(module.text, defs[n]) for n in ("eager", "eager_gradient") if n in defs]
    scalars = ", *ctx.scalars" if params else ""
    own = f"eager_gradient(grad, *saved{scalars})"
    pulled = f"torch.func.vjp(lambda *tensors: eager(*tensors{scalars}), *saved)[1](grad)"
    from_output = saved != inputs
    masks = int(ast.literal_eval(module.given["drawn"])) if "drawn" in module.given else 0
    wanted = f"saved[:{-masks}]" if masks else "saved"  # masks have no gradient
    grads = f"[g.sum_to_size(t.shape) for g, t in zip(grads, {wanted})]" if len(saved) > 1 else "grads"
    nones = ["None"] * (masks + len(params))
    return {
        "eager": re.sub(r'^    """.*"""\n', "", "\n".join(filter(None, eager)), flags=re.MULTILINE),
        "arguments": ", ".join([*inputs, *params]),
        "inputs": ", ".join(inputs),
        "applied": ", ".join(
            [*(f"{n}.detach()" if n in module.words("detached") else n for n in inputs), *params]
        ),
        "params": ", ".join(params),
        "first": inputs[0],
        "saved": "y" if from_output else ", ".join(inputs),
        "gradient": own if "eager_gradient" in defs else pulled,
        "backward_outputs": module.counts().get("Backward", (0, 0))[1],
        "owners": ast.literal_eval(module.given["gradients"]) if "gradients" in module.given else (),
        "returned": f"({', '.join([f'*{grads}', *nones])},)" if nones else f"tuple({grads})",
        "functions": (functions := "\n\n".join(_functions(module))),
        "helpers": helpers.called(functions),
        "inputs_count": len(inputs),
        "example_inputs": _returned(defs["get_inputs"]),
        "example_init": _returned(defs["get_init_inputs"]),
    }


def _functions(module: Module) -> list[str]:
    texts = python.functions(module)
    models = [node.name for node in module.tree.body if isinstance(node, ast.ClassDef)]
    return [*texts, *(f"ModelNew = {model}" for model in models if model != "ModelNew")]


def _returned(function: ast.FunctionDef) -> str:
    [line] = function.body
    assert isinstance(line, ast.Return)
    assert line.value
    return ast.unparse(line.value)
