"""Shared parts of the tests of kernels: modules to load, inputs that miss nothing, bitwise comparison.

It needs torch and nothing of fusegen, but where a test compiles a spec of its own.
"""

import functools
import hashlib
import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.cpp_extension import include_paths

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "generated"
NAMES = sorted(path.stem for path in GENERATED.glob("*.py"))
POINTWISE = [name for name in NAMES if name != "conv_relu_hardswish"]
DEFAULT_METHODS = "Formula<float>, Formula<float>, Formula<double>"  # of a type that names none
CLASSES = (  # a module of each class that the runtime tells apart
    *("gelu", "celu", "swiglu", "geglu"),  # of one tensor, with a parameter, of two tensors or halves
    *("relu", "leaky_relu", "relu_hardswish"),  # saving the output, with a bitmask and a parameter, a chain
)
CORE = (  # the modules that `make test` runs; `make test-full` runs the others, too
    *CLASSES,
    *("conv_relu_hardswish", "rrelu"),  # a layer; scalars of which the host computes another
    *("hardsigmoid", "hardswish"),  # eager's bits where it divides
    *("hardtanh", "softshrink"),  # and with two parameters, and zeros of either sign
    *("silu", "tanh"),  # verified in 16 bits, and by the formula in fast float
    *("softplus", "elu", "snake"),  # tables for default parameters only, else verified or by the formula
    *("mish_mish", "silu_hardswish"),  # piecewise polynomials: of both passes, and of the gradient
)  # fmt: skip
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = {
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float64: torch.int64,
}
LAYOUTS = ("contiguous", "transposed", "sliced", "expanded", "channels_last", "0-d", "empty", "ones")


def by_module(names: Iterable[str]) -> list[object]:
    """The parameters of a test of each of these modules; those outside `CORE` are marked `full`."""
    return _outside_full(names, CORE)


def by_class(names: Iterable[str]) -> list[object]:
    """The same of a test of what the runtime does; those outside `CLASSES` are marked `full`."""
    return _outside_full(names, CLASSES)


def _outside_full(names: Iterable[str], kept: Sequence[str]) -> list[object]:
    return [pytest.param(name, id=name, marks=() if name in kept else pytest.mark.full) for name in names]


PARTS = {  # by what the tests call them, parts of a module's kernels
    "FORWARD": "forward",
    "FORWARD_OUT": "forward_out",
    "BACKWARD": "backward",
    "BACKWARD_OUT": "backward_out",
    "OPERATORS": "operators",
    "INPUTS": "inputs",
}


def load(path: Path, name: str = "") -> ModuleType:
    """The module in a file, in the package of its folder; or under a given name, for others to import.

    A module has its kernels' parts as attributes, too.
    """
    package = name.rpartition(".")[0] or f"in_{hashlib.sha256(str(path.parent).encode()).hexdigest()[:16]}"
    if package not in sys.modules:
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(path.parent)]
    found = importlib.util.spec_from_file_location(name or f"{package}.{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    if hasattr(module, "KERNELS"):
        kernels = module.KERNELS
        vars(module).update({part: getattr(kernels, own) for part, own in PARTS.items()})
        texts = kernels.texts()
        vars(module).update(CPU_TEXTS=[texts.binding, texts.cpu], CUDA_TEXT=texts.cuda)
    return module


def with_runtime(folder: Path, binding: str = "stable") -> Path:
    """A folder of modules, with the runtime of a binding in it."""
    from fusegen.project import runtime_folder

    runtime_folder.write(folder, binding)
    return folder


@functools.cache
def generated(name: str) -> ModuleType:
    """A committed module, of a folder too, under the name that it has where it is committed."""
    return load(GENERATED / f"{name}.py", f"generated.{name.replace('/', '.')}")


def compiled(folder: Path, name: str, body: str) -> ModuleType:
    """The module of a spec of a test's own; `body` is all but its name and its summary."""
    from parsed import spec_file

    from fusegen.project import build

    spec = spec_file(folder, name, body)
    module = with_runtime(folder) / f"{name}.py"
    module.write_text(build.module(build.compiled_file(spec)), encoding="utf-8")
    return load(module)


class Modules(dict[str, ModuleType]):
    """The modules of specs of a test's own, each compiled when it is first asked for."""

    def __init__(self, folder: Path, bodies: Mapping[str, str]) -> None:
        """Take their bodies, by their names."""
        super().__init__()
        self.folder, self.bodies = folder, bodies

    def __missing__(self, name: str) -> ModuleType:
        """Return a module that is not there yet."""
        self[name] = compiled(self.folder, name, self.bodies[name])
        return self[name]


def patterns(dtype: torch.dtype, count: int, kinks: tuple[float, ...] = (), device: str = "cpu") -> Tensor:
    """Values of every kind: random bits, every special value, and the neighbours of zero and the kinks.

    In a 16-bit type they are all there are.
    """
    generator = torch.Generator(device).manual_seed(count)
    integer = INTEGERS[dtype]
    if dtype.itemsize == 2:
        every = torch.arange(-(2**15), 2**15, dtype=integer, device=device)
        repeats = max(1, count // every.numel())
        return every.repeat(repeats).view(dtype)
    words = torch.randint(
        -(2**31), 2**31, (count * dtype.itemsize // 4,), generator=generator, device=device
    )
    info = torch.finfo(dtype)
    special = [0.0, info.smallest_normal, info.tiny, info.max, info.max / 6, torch.inf, torch.nan, *kinks]
    near = torch.tensor(special, dtype=dtype, device=device).view(integer)
    near = torch.cat([near + step for step in range(-3, 4)]).view(dtype)
    ordinary = torch.randn(count // 2, generator=generator, dtype=dtype, device=device) * 4
    return torch.cat([words.to(torch.int32).view(dtype), near, -near, ordinary])


def differences(actual: Tensor, expected: Tensor) -> Tensor:
    """Where two tensors differ in a bit; a NaN equals every other."""
    integer = INTEGERS[actual.dtype]
    bits = actual.contiguous().view(integer) != expected.contiguous().view(integer)
    return bits & ~(actual.isnan() & expected.isnan())


def assert_same(actual: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Two tensors agree in dtype, shape and every bit; if not, say where, for what inputs."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    wrong = differences(actual, expected)
    if wrong.any():
        at = wrong.nonzero()[:5]
        shown = [
            [value.expand(actual.shape)[tuple(i)].item() for value in (*inputs, actual, expected)]
            for i in at
        ]
        pytest.fail(f"{int(wrong.sum())} of {wrong.numel()} differ; inputs, actual, expected: {shown}")


def assert_same_in_any_layout(module: ModuleType, name: str, x: Tensor) -> None:
    """Results of a matrix are those of its transpose, of a part of it, and of it in place."""
    grad = torch.randn_like(x)
    y, slope = module.KERNELS.forward(x), module.KERNELS.backward(grad, x)
    assert_same(module.KERNELS.forward(x.t()).t(), y, x)
    assert_same(module.KERNELS.backward(grad.t(), x.t()).t(), slope, grad, x)
    assert_same(module.KERNELS.forward(x.view(-1)[1:]), y.view(-1)[1:], x.view(-1)[1:])
    assert_same(module.KERNELS.forward(x[:3, :5]), y[:3, :5], x[:3, :5])
    assert_same(getattr(module, name)(x.clone(), inplace=True), y, x)


def in_a_graph(module: ModuleType, x: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A graph in which a module's function is used first, replayed once, and its result."""
    module.KERNELS.forward(x.double())  # builds it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module.KERNELS.forward(x)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return graph, y


def ulps(actual: Tensor, expected: Tensor) -> int:
    """The largest distance between two tensors in units of the last place.

    A NaN beside a number is further away than any two numbers.
    """
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)

    def ordered(values: Tensor) -> Tensor:
        """Integers in the order of the floats, both zeros being 0."""
        bits = values.contiguous().view(INTEGERS[values.dtype]).long()
        lowest = -(2 ** (8 * values.dtype.itemsize - 1))
        return torch.where(bits < 0, lowest - bits, bits)

    distance = (ordered(actual).double() - ordered(expected).double()).abs()
    if actual.dtype == torch.float64:  # exact where the two are near
        distance = torch.where(distance < 2**50, (ordered(actual) - ordered(expected)).abs(), distance)
    distance = torch.where(actual.isnan() & expected.isnan(), 0, distance)
    distance = torch.where(actual.isnan() != expected.isnan(), torch.inf, distance)
    worst = distance.max().item() if distance.numel() else 0
    return int(min(worst, 2**63))


def arranged(layout: str, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """A tensor of ordinary values and of a layout of `LAYOUTS`."""
    generator = torch.Generator(device).manual_seed(0)

    def filled(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device, dtype=dtype) * 4

    return {
        "contiguous": lambda: filled(7, 33, 65),
        "transposed": lambda: filled(65, 33, 7).permute(1, 2, 0),
        "sliced": lambda: filled(9, 70, 131)[1::2, 3:-4, ::3],
        "expanded": lambda: filled(5, 1, 67).expand(5, 40, 67),
        "channels_last": lambda: filled(3, 17, 19, 23).to(memory_format=torch.channels_last),
        "0-d": lambda: filled(),
        "empty": lambda: filled(3, 0, 5),
        "ones": lambda: filled(1, 1, 41, 1).transpose(0, 2),
    }[layout]()


def meaningful_strides(values: Tensor) -> list[int]:
    """The strides that decide where an element lies: none where a dimension has one element or none."""
    return [
        step for step, size in zip(values.stride(), values.shape, strict=True) if size > 1 < values.numel()
    ]


# The library: what every committed module is held against


@dataclass(frozen=True)
class Activation:
    """A spec of the library, by PyTorch."""

    eager: Callable[..., Tensor]  # the same of the same tensors and scalars, in PyTorch's own operations
    kinks: tuple[float, ...] = ()  # where it or its slope jumps, with the default scalars
    exact: bool = False  # whether forward and backward are eager's to the bit
    inputs: int = 1  # how many tensors it takes
    others: tuple[tuple[float, ...], ...] = ()  # scalars to try beside the defaults


def _glu(a: Tensor, b: Tensor) -> Tensor:
    shape = (a + b).shape
    return F.glu(torch.stack([a.expand(shape), b.expand(shape)]), 0)[0]


LIBRARY = {
    "celu": Activation(F.celu, (0.0,), others=((0.5,), (2.5,))),
    "elu": Activation(F.elu, (0.0,), others=((0.5,), (2.5,))),
    "geglu": Activation(lambda gate, up: F.gelu(gate) * up, inputs=2),
    "gelu": Activation(F.gelu),
    "gelu_tanh": Activation(lambda x: F.gelu(x, approximate="tanh")),
    "glu": Activation(_glu, inputs=2),
    "hardshrink": Activation(F.hardshrink, (-0.5, 0.5), True, others=((0.0,), (1.25,), (-0.5,))),
    "hardsigmoid": Activation(F.hardsigmoid, (-3.0, 3.0), True),
    "hardsigmoid_keras": Activation(lambda x: (0.2 * x + 0.5).clamp(0, 1), (-2.5, 2.5)),
    "hardswish": Activation(F.hardswish, (-3.0, 3.0), True),
    "hardtanh": Activation(
        F.hardtanh, (-1.0, 1.0), True, others=((-0.5, 0.5), (0.1, 0.1), (-math.inf, 2.0))
    ),
    "leaky_relu": Activation(F.leaky_relu, (0.0,), True, others=((0.0,), (0.2,))),
    "lecun_tanh": Activation(lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
    "logsigmoid": Activation(F.logsigmoid),
    "mish": Activation(F.mish),
    "quick_gelu": Activation(lambda x: x * torch.sigmoid(1.702 * x)),
    "pade_tanh": Activation(lambda x: x * (27 + x * x) / (27 + 9 * x * x)),
    "quick_tanh": Activation(
        lambda x: (u := x.clamp(-3, 3)) * (27 + u * u) / (27 + 9 * u * u), (-3.0, 3.0)
    ),
    "reglu": Activation(lambda gate, up: F.relu(gate) * up, (0.0,), inputs=2),
    "relu": Activation(F.relu, (0.0,), True),
    "relu6": Activation(F.relu6, (0.0, 6.0), True),
    "relu_hardswish": Activation(lambda x: F.hardswish(F.relu(x)), (0.0, 3.0)),
    "rrelu": Activation(F.rrelu, (0.0,), True, others=((0.0, 0.5), (0.25, 0.25))),
    "selu": Activation(F.selu, (0.0,)),
    "serf": Activation(lambda x: x * torch.erf(F.softplus(x))),
    "sigmoid": Activation(torch.sigmoid),
    "silu": Activation(F.silu),
    "snake": Activation(
        lambda x, alpha=1.0: x + torch.sin(alpha * x).square() / alpha, others=((0.5,), (3.0,))
    ),
    "softplus": Activation(F.softplus, (20.0,), others=((3.0, 0.25), (0.5, 20.0))),
    "softshrink": Activation(F.softshrink, (-0.5, 0.5), True, others=((0.0,), (1.25,))),
    "softsign": Activation(F.softsign, (0.0,)),
    "squared_relu": Activation(lambda x: F.relu(x).square(), (0.0,)),
    "star_relu": Activation(
        lambda x, scale=0.8944, bias=-0.4472: scale * F.relu(x).square() + bias,
        (0.0,),
        others=((2.0, 0.5),),
    ),
    "swiglu": Activation(lambda gate, up: F.silu(gate) * up, inputs=2),
    "tanh": Activation(torch.tanh),
    "tanh_exp": Activation(lambda x: x * torch.tanh(torch.exp(x))),
    "tanhshrink": Activation(F.tanhshrink),
    "threshold": Activation(
        lambda x, threshold=0.0, value=0.0: F.threshold(x, threshold, value),
        (0.0,),
        True,
        others=((0.5, -2.0), (-1.0, 20.0)),
    ),
    # chains
    "add_min_gelu_scale": Activation(
        lambda x: F.gelu(torch.minimum(x + 0.5, torch.zeros_like(x))) * 2, (-0.5,)
    ),
    "clamp_scale_clamp_divide": Activation(
        lambda x: (x.clamp(0, 1) * 2).clamp(0, 1) / 2, (0.0, 0.5, 1.0)
    ),
    "gelu_gelu": Activation(lambda x: F.gelu(F.gelu(x))),
    "hardswish_relu": Activation(lambda x: F.relu(F.hardswish(x)), (0.0, 3.0, -3.0)),
    "hardtanh_mish": Activation(lambda x: F.mish(F.hardtanh(x)), (-1.0, 1.0)),
    "leaky_relu_twice": Activation(lambda x: F.leaky_relu(F.leaky_relu(x)), (0.0,)),
    "mish_add_hardtanh_scale": Activation(lambda x: F.hardtanh(F.mish(x) + 0.5) * 2, (0.6859208,)),
    "mish_mish": Activation(lambda x: F.mish(F.mish(x))),
    "mish_tanh": Activation(lambda x: torch.tanh(F.mish(x))),
    "relu_leaky_relu_gelu_sigmoid": Activation(
        lambda x: torch.sigmoid(F.gelu(F.leaky_relu(F.relu(x)))), (0.0,)
    ),
    "scale_tanh_scale_sigmoid": Activation(lambda x: torch.sigmoid(torch.tanh(x * 2) * 0.5)),
    "scaled_relu_sigmoid": Activation(lambda x: torch.sigmoid(F.relu(x) * 2), (0.0,)),
    "silu_half_clamp_tanh_clamp": Activation(
        lambda x: torch.tanh((F.silu(x) / 2).clamp(-1, 1)).clamp(-1, 1)
    ),
    "silu_hardswish": Activation(lambda x: F.hardswish(F.silu(x)), (3.1488,)),
    "silu_scale_silu": Activation(lambda x: F.silu(F.silu(x) * 0.5)),
    "softplus_tanh_mish_silu_hardtanh": Activation(
        lambda x: F.hardtanh(F.silu(F.mish(torch.tanh(F.softplus(x)))))
    ),
    "subtract_mish": Activation(lambda x: F.mish(x - 0.7)),
    "subtract_tanh_subtract": Activation(lambda x: torch.tanh(x - 0.5) - 0.2),
    "tanh_gelu_mish_silu_sigmoid": Activation(
        lambda x: torch.sigmoid(F.silu(F.mish(F.gelu(torch.tanh(x)))))
    ),
    "tanh_of_silu_then_gelu_hardtanh": Activation(
        lambda x: F.hardtanh(F.gelu(torch.tanh(F.silu(x))))
    ),
}  # fmt: skip
EXACT = [name for name, row in LIBRARY.items() if row.exact]
ON_CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    ],
)
DEVICES = ("cpu", ON_CUDA)


def function(name: str) -> Callable[..., Tensor]:
    """The plain function of a committed module."""
    found: Callable[..., Tensor] = getattr(generated(name), name.rpartition("/")[2])
    return found


def scalars(name: str) -> tuple[tuple[float, ...], ...]:
    """The scalars to try a committed module with, the defaults first, in the order of its operator."""
    schema = generated(name).KERNELS.overload._schema.arguments
    defaults = inspect.signature(function(name)).parameters
    wanted = [argument.name for argument in schema if str(argument.type) == "float"]
    return (tuple(float(defaults[n].default) for n in wanted), *LIBRARY[name].others)


def smooth(name: str, *shape: int, device: str = "cpu", dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Inputs away from every kink, and so that none is hit by a step of a finite difference."""
    generator = torch.Generator().manual_seed(7)
    tensors = []
    for _ in range(LIBRARY[name].inputs):
        x = torch.rand(shape, generator=generator, dtype=torch.float64) * 9 - 4.5
        for kink in LIBRARY[name].kinks:
            x = torch.where((x - kink).abs() < 0.05, x + 0.125, x)
        tensors.append(x.to(device, dtype))
    return tensors


NO_GPU = re.compile(
    r"^W\d{4} .*/torch/utils/cpp_extension\.py:\d+\] No CUDA runtime is found, using CUDA_HOME='[^']*'\n",
    re.MULTILINE,
)


def complaints(err: str) -> str:
    """The complaints of a process, but for the one line in which PyTorch tells of an nvcc without a GPU."""
    return NO_GPU.sub("", err)


def nearest(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Doubles rounded once; a conversion by way of float rounds twice."""
    near = exact.to(dtype)
    bits = near.view(torch.int16)
    others = [(bits + step).view(dtype) for step in (-1, 1)]
    gap = (near.double() - exact).abs()
    for other in others:
        closer = (other.double() - exact).abs() < gap
        near = torch.where(closer, other, near)
        gap = torch.where(closer, (other.double() - exact).abs(), gap)
    return near


def units(y: Tensor, exact: Tensor) -> Tensor:
    """The errors of floats, in units of the last place that the exact ones would have."""
    exponent = torch.frexp(exact.abs().clamp(min=2.0**-126))[1]
    return (y.double() - exact).abs() / torch.ldexp(torch.ones_like(exact), exponent - 24)


def methods(source: str) -> list[tuple[str, str, str]]:
    """The methods of 16, 32 and 64 bits that a C++ text names, of each kernel."""
    kernel = r"^struct (?:For|Back)ward : (?:Elementwise|Broadcasting)<.*?> \{(.*?)[\n ]\};$"
    bodies = re.findall(kernel, source, re.MULTILINE | re.DOTALL)
    found = (re.search(r"using Methods = ByWidth<(.*)>;", body) for body in bodies)
    named = (match[1] if match else DEFAULT_METHODS for match in found)
    return [(first, second, third) for first, second, third in map(_split, named)]


def _split(text: str) -> list[str]:
    """The arguments of a template, which may have arguments of their own."""
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def loops(module: ModuleType, kernel: str, folder: Path) -> list[bool]:
    """For each marked loop of a module's CPU text, True if it becomes vector instructions."""
    from fusegen.runtime.flags import CPU_FLAGS, CPU_ISA
    from fusegen.runtime.library_names import definition

    without = {"forward": "BACKWARD", "backward": "FORWARD"}[kernel]
    text = definition("some", "module") + f"#define WITHOUT_{without}\n" + "\n".join(module.CPU_TEXTS)
    source = folder / "kernel.cpp"
    source.write_text(text.replace('"KEY"', '"CPU"'), encoding="utf-8")
    told = subprocess.run(
        ["g++", "-std=c++17", "-S", "-o", os.devnull, *(f"-I{path}" for path in include_paths()),
         *CPU_FLAGS, *CPU_ISA["AVX2"], "-fopt-info-vec-optimized", source],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    marked = (k + 2 for k, line in enumerate(text.splitlines()) if line == "#pragma GCC ivdep")
    return [f"kernel.cpp:{line}:" in told for line in marked]
