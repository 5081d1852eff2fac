"""The generated CUDA text under nvcc: no warning, no spill, no double that nobody asked for."""

import inspect
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from budget import FULL
from conftest import ROOT, library_spec
from emulated import ELEMENTS as EVERY
from kernels import LIBRARY, NAMES, by_module, generated
from parsed import spec_file
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

from fusegen.compiler.halves import Halves
from fusegen.core import budget
from fusegen.core.targets import Device
from fusegen.evidence.certify.interval_filter import CUDA_FLAGS, IntervalFilter
from fusegen.evidence.certify.subject import of_spec
from fusegen.project import build
from fusegen.runtime import flags, tools


def _compiler() -> str | None:
    """The toolkit's nvcc, or the one that the extra `cuda` installs."""
    packages = find_spec("nvidia")
    folders = packages.submodule_search_locations if packages else None
    installed = [Path(folder) / "cu13" / "bin" / "nvcc" for folder in folders or ()]
    return shutil.which("nvcc") or next((str(path) for path in installed if path.exists()), None)


NVCC = _compiler()
pytestmark = pytest.mark.skipif(NVCC is None, reason="needs nvcc")

CHIPS = ("80", "90", "100")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# how the names of what computes in double are mangled: an instance for it, and what fills a table
DOUBLE = re.compile(r"(?:For|Back)wardEdd|_bitmaskI\w+?Edd|10fill_tableI|3fitI")
LOOKS_UP = re.compile(r"9TabulatedI|22table_in_shared_memoryI")
TESTED = re.compile(r"3ZivI")  # which hands scalars to the function that does
HANDED = {"ld.param.f64", "st.param.f64"}
FILLED = ("TABLE", "CUBIC", "CUBIC_SLOPE")  # for which there is a kernel more
STAGED = (("Forward", "TABLE"),)  # and for one dtype another one
UNARY = [
    name
    for name, row in sorted(LIBRARY.items())
    if row.inputs == 1 and not row.exact and "chain:" not in (ROOT / "specs" / f"{name}.yaml").read_text()
]
FUNCTOR = re.compile(  # its name, its tables of launches, its methods
    r"struct (\w+) : \w+<.*> \{\n  static constexpr const \w*Launch (.*);\n(?:.*;\n)*?"
    r"  using Methods = (.*);"
)
SMALLER = ("float32", "float16", "bfloat16")
KERNELS, ELEMENTS = 2, 4  # forward and backward; dtypes
# compiled with every index; the others as dense tensors need it
WHOLE = ("rrelu", "swiglu")
# a module of each method, by default of two, for one chip; `make test-full` compiles all for every chip
METHODS = ("celu", "mish_mish", *(("hardtanh", "snake", "tanh") if FULL else ()))
GROUPS = 8
SOME = "Dtypes<BFLOAT16, FLOAT64>()"
TRIGONOMETRIC = {"cvt.rn.f64.s64", "mul.rn.f64", "cvt.rn.f32.f64"}  # in sinf, for huge arguments
SLOW_SINE = ("snake", "sin")  # whose reduction of huge arguments takes a table on the stack

FORMULAS = {
    "exp": "exp(x) + exp2(0.1 * x) - expm1(x / 3)",
    "log": "log1p(abs(x)) + log(2 + square(x)) + log2(2 + abs(x))",
    "softplus": "softplus(2.5 * x) / 2.5",
    "sigmoid": "x * sigmoid(1.702 * x)",
    "tanh": "x * tanh(log1p(exp(x)))",
    "mish": "x * tanh(softplus(x))",
    "erf": "x * 0.5 * (1 + erf(x / sqrt(2))) + erfc(x) + ndtr(x)",
    "pow": "pow(x, 2.5) + x ** 3 + x ** -2 + pow(x, 0.1)",
    "sqrt": "sqrt(x) + rsqrt(x) + reciprocal(x) + x / (1 + abs(x))",
    "where": "where(x > 0.1, x * pi, e * x - 0.3)",
    "sin": "2 + sin(x) * cos(x) + sign(x) / 7",
    "turns": "sin(pi * x) + cos(2 * pi * x + 0.3 * pi)",
    "bounds": "clamp(x, -0.1, 0.7) + minimum(x, 0.3) + maximum(x, 0.9) + relu6(x)",
    "eager": "where(x > 0.1, x * pi, e * x - 0.3)",
}


def nvcc(folder: Path, name: str, text: str, *flags: str) -> str:
    """The output of nvcc when it compiles a text without a warning, with the flags that PyTorch adds.

    PTX that nobody reads is optimised with FUSEGEN_FULL only: the compiler of C++ warns without it. Until
    then it is of a dtype that is computed in float and rounded, and of one that is computed in double.
    """
    source = folder / f"{name}.cu"
    quick = "-ptx" in flags and "-Xcicc" not in flags and not FULL
    some = text.replace(EVERY, SOME) if quick and "using Elements = Dtypes<" not in text else text
    source.write_text(some, encoding="utf-8")
    own = ("-std=c++17", "-Werror", "all-warnings", "--threads=2", *COMMON_NVCC_FLAGS)
    command = [str(NVCC), *own, *flags, *(("-Xcicc", "-O0") if quick else ()), str(source)]
    done = subprocess.run([*command, "-o", str(folder / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def for_dense(text: str) -> str:
    """The text with the kernel for dense tensors in place of that for strided ones, which takes long."""
    strided, dense = "kernel_of<F, T, M, 0>()", "kernel_of<F, T, M, 1>()"
    assert text.count(strided) == 1
    return text.replace(strided, dense)


def vectors(name: str) -> int:
    """The number of instances for dense tensors that a module's kernels have, all together."""
    text = generated(name).CUDA_SOURCE
    tables = dict(re.findall(r"constexpr \w*Launch (\w+)\[\] = \{(.*?)\{\}\};", text, re.DOTALL))
    count = 0
    for functor, rows, methods in FUNCTOR.findall(text):
        for bits, table in re.findall(r"\*BITS(\d+) = (\w+)", rows):
            kind = re.sub(r"_(16|32|64)(_\w+)?$", "", table)
            instances = len({"1", *re.findall(r"\{\d+, \w+, \d+, (\d)", tables[table])})
            if kind == "TABLE" and "AtDefaults<Table" in methods:
                instances *= 2  # computed with other scalars
            instances += kind in FILLED
            count += (2 if bits == "16" else 1) * instances + ((functor, kind) in STAGED)
    return count + KERNELS * ELEMENTS * bool(generated(name).KERNELS.sources.bitmask)


def grouped(texts: dict[str, str]) -> str:
    """Some modules' texts as one, each in a namespace of its own, for dense tensors."""
    whole = "\n".join(for_dense(text) for text in texts.values())
    headers = sorted(set(re.findall(r"^#include .+$", whole, re.MULTILINE)))
    bare = {name: re.sub(r"^#include .+$", "", for_dense(text), flags=re.M) for name, text in texts.items()}
    parts = [f"#undef FUSEGEN_CALL_H\nnamespace of_{name} {{\n{text}\n}}" for name, text in bare.items()]
    return "\n".join([*headers, *parts, ""])


def cuda_text(name: str) -> str:
    return str(generated(name).CUDA_TEXT)


def kernels(ptx: str) -> dict[str, str]:
    """The text of each kernel by its mangled name, without the functions that stand behind it."""
    entries = re.split(r"^(?:\.visible )?\.entry ", ptx, flags=re.MULTILINE)[1:]
    return {entry.split("(")[0]: entry.split("\n}\n")[0] for entry in entries}


def doubles(entry: str) -> set[str]:
    return set(re.findall(r"\S+\.f64\S*", entry))


def compiled(folder: Path, name: str, text: str, instances: int, chips: Sequence[str] = CHIPS) -> None:
    """Compile for every chip: no warning, spill or stack frame, and double only for float64 tensors."""
    code = [f"-gencode=arch=compute_{chip},code=sm_{chip}" for chip in chips]
    own = [*flags.CUDA_FLAGS, "-Xptxas=-v", "-c", "--keep", f"--keep-dir={folder}", *code]
    told = nvcc(folder, name, text, *own)
    found = re.findall(f"{ENTRY.pattern}.*?{FRAME.pattern}", told, re.DOTALL)
    assert sorted(chip for _, chip, *_ in found) == sorted([*chips] * instances)
    for entry, chip, frame, *spills in found:
        if any(f"of_{slow}" in entry for slow in SLOW_SINE):
            assert sum(map(int, spills)) <= 24, (entry, chip)
        elif "3fitI" in entry:  # runs once; its array and what it keeps while it calls take the stack
            assert int(frame) <= 64, (entry, chip)
            assert max(map(int, spills)) <= 4, (entry, chip)
        elif DOUBLE.search(entry):
            assert int(frame) <= 8, (entry, chip)  # ptxas may save a register around a division
        else:
            assert (frame, *spills) == ("0", "0", "0"), (entry, chip)
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.ptx")]
    assert len(texts) == len(chips)
    for entry, body in (item for text in texts for item in kernels(text).items()):
        sine = any(f"of_{slow}" in entry for slow in SLOW_SINE) and not LOOKS_UP.search(entry)
        expected = TRIGONOMETRIC if sine else set()
        computed = doubles(body) - (HANDED if TESTED.search(entry) else set())
        assert bool(computed) if DOUBLE.search(entry) else computed == expected, entry


@pytest.mark.full
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_module_compiles(name: str, tmp_path: Path) -> None:
    compiled(tmp_path, name, cuda_text(name), KERNELS * ELEMENTS + vectors(name))


def test_a_module_of_each_method_compiles(tmp_path: Path) -> None:
    texts = {name: cuda_text(name) for name in METHODS}
    compiled(tmp_path, "methods", grouped(texts), sum(map(vectors, texts)), CHIPS[1:2])


@pytest.mark.full
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_module_compiles(group: int, tmp_path: Path) -> None:
    texts = {name: cuda_text(name) for name in NAMES[group::GROUPS]}
    compiled(tmp_path, f"group{group}", grouped(texts), sum(map(vectors, texts)))


BY_CUBICS, BY_DOUBLE = r"two_phases\w*I\w+13OctavesKernelI", r"8ByDoubleI"
DOUBLED = {  # chains, and the registers that some of their kernels for floats may take
    "chain: [hardswish, softsign, silu, mish, quick_gelu, tanhshrink]": {BY_CUBICS: 40},
    "params: {a: 0.7}\nchain: [softsign, silu, mish, quick_gelu, tanhshrink, a * x]": {
        BY_CUBICS: 40,
        BY_DOUBLE: 80,
    },
    "inputs: {x: {}, y: {}}\nchain: [softsign, silu, mish, quick_gelu, x * y]": {BY_DOUBLE: 80},
}


FIRST, *OTHERS = DOUBLED


@pytest.mark.full
@pytest.mark.usefixtures("exact_eager_once")
@pytest.mark.parametrize("body", [FIRST, *(pytest.param(body, marks=pytest.mark.full) for body in OTHERS)])
def test_what_float_would_lose_compiles(body: str, tmp_path: Path) -> None:
    """Values that calls of double need stay on the stack."""
    spec = spec_file(tmp_path, "lost", body)
    chips = [f"-gencode=arch=compute_{chip},code=sm_{chip}" for chip in CHIPS]
    told = nvcc(tmp_path, "lost", whole_text(spec), *CUDA_FLAGS, "-Xptxas=-v", "-c", *chips)
    found = re.findall(f"{ENTRY.pattern}.*?{FRAME.pattern}.*?Used (\\d+) registers", told, re.DOTALL)
    for kernel, most in DOUBLED[body].items():
        floats = [row for row in found if re.search(kernel, row[0])]
        assert len(floats) >= 2 * len(CHIPS)
        for entry, chip, _, stored, _, registers in floats:
            assert int(registers) <= most, (entry, chip)
            assert most > 40 or int(stored) <= (8 if chip == "100" else 0), (entry, chip)


ONE = "params: {a: 0.7}\nchain: [silu, mish, a * x]"
TWO = (
    "inputs: {x: {}, y: {}}\n"
    "formula: where(abs(x) < 1, exp(x * x) / (1 + exp(x * x)) * y, where(y > 0, sqrt(abs(x)), 0))"
)


@pytest.mark.full
@pytest.mark.usefixtures("exact_eager_once")
@pytest.mark.parametrize(
    ("dtype", "body"),
    [
        *(("float32", ONE), ("bfloat16", TWO)),
        *(
            pytest.param(dtype, body, marks=pytest.mark.full)
            for dtype, body in (("float16", ONE), ("bfloat16", ONE), ("float32", TWO))
        ),
    ],
)
def test_a_module_of_one_dtype_compiles(dtype: str, body: str, tmp_path: Path) -> None:
    """With what double makes of it, though no tensor is of doubles."""
    spec = spec_file(tmp_path, "alone", f"dtypes: [{dtype}]\n{body}")
    told = nvcc(tmp_path, "alone", whole_text(spec), *CUDA_FLAGS, "-Xptxas=-v", "-c", "-arch=sm_90")
    assert len(ENTRY.findall(told)) >= 4


@pytest.mark.full
def test_all_processors_together_give_the_same_kernels(tmp_path: Path) -> None:
    version = subprocess.run([str(NVCC), "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"release (\d+)\.", version)[0]) < 13:
        pytest.skip("a module asks nvcc 13 and newer only")
    [flag] = re.findall(r'"(-Xptxas=[^"]+)"', inspect.getsource(tools.split_compile))
    own, text = (*CUDA_FLAGS, "-Xptxas=-v", "-arch=sm_90", "-c"), cuda_text("softsign")
    told = [nvcc(tmp_path, "softsign", text, *own, *more) for more in ((), (flag,))]
    found = [set(re.findall(r"'(\w+)' for 'sm_90'.*?Used (\d+) registers", one, re.DOTALL)) for one in told]
    assert found[0] == found[1]
    assert len(found[0]) >= 20


@pytest.mark.full
@pytest.mark.parametrize("name", by_module(["gelu", "relu6", "silu", "snake", "tanh_exp"]))
def test_what_holds_a_module_against_its_formula_compiles(name: str, tmp_path: Path) -> None:
    subject = of_spec(library_spec(name), ROOT / "generated")
    text = IntervalFilter(subject.stable, subject.params).text
    told = nvcc(tmp_path, name, text, *CUDA_FLAGS, "-Xptxas=-v", "-arch=sm_90", "-c")
    assert name in SLOW_SINE or set(FRAME.findall(told)) == {("0", "0", "0")}


def in_float(spec: Path) -> str:
    """The CUDA text of a spec whose floats are computed in float, whatever that errs by."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "FLOAT_ENOUGH", dict.fromkeys(Device, math.inf))
        patch.setattr(budget, "LOST_IN_16_BITS", math.inf)
        patch.setattr(Halves, "misses", lambda promise, kernel: [])
        return whole_text(spec)


def whole_text(spec: Path) -> str:
    """All that nvcc is given of a spec's module."""
    return build.text_of(build.compiled_file(spec), "cuda")


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The PTX of each kernel for smaller tensors of every formula, by its mangled name."""
    folder = tmp_path_factory.mktemp("formulas")
    texts = {}
    for of, formula in FORMULAS.items():
        numerics = "eager" if of == "eager" else "accurate"
        head = f"params: {{alpha: 0.1}}\nnumerics: {numerics}\ndtypes: [{', '.join(SMALLER)}]\n"
        texts[of] = in_float(spec_file(folder, f"f_{of}", f"{head}formula: alpha + {formula}"))
    nvcc(folder, "formulas", grouped(texts), *CUDA_FLAGS, "-arch=compute_90", "-ptx", "-Xcicc", "-O3")
    return kernels((folder / "formulas").read_text(encoding="utf-8"))


@pytest.mark.full
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(k, marks=pytest.mark.full) for k in range(4, len(UNARY), 4))]
)
def test_any_function_compiles_within_a_chain(first: int, tmp_path: Path) -> None:
    """There it takes what the one before has rounded, in two words, and gives two, in double as well."""
    steps = ["silu", *UNARY[first : first + 4], "sigmoid"]
    spec = spec_file(tmp_path, "within", f"dtypes: [float32, float64]\nchain: [{', '.join(steps)}]")
    for name in steps:
        shutil.copy(ROOT / "specs" / f"{name}.yaml", tmp_path)
    nvcc(tmp_path, "within", in_float(spec), *CUDA_FLAGS, "-arch=compute_90", "-ptx")


@pytest.mark.full
@pytest.mark.together
@pytest.mark.parametrize("of", FORMULAS)
def test_no_double_behind_a_function(of: str, instructions: dict[str, str]) -> None:
    """The math library's own code included: an overload taken wrongly would show here."""
    own = {entry: body for entry, body in instructions.items() if re.match(rf"_ZN\d+of_{of}\d", entry)}
    made = {entry: body for entry, body in own.items() if not DOUBLE.search(entry)}
    assert len(made) >= KERNELS * len(SMALLER)
    handed = {entry: HANDED if TESTED.search(entry) else set() for entry in made}
    found = {word for entry, body in made.items() for word in doubles(body) - handed[entry]}
    assert found == TRIGONOMETRIC if of == "sin" else not found
