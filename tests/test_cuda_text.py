"""What nvcc makes of the generated CUDA text: no warning, no spill, no double that nobody asked for."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from kernels import NAMES, generated

from fusegen.pipeline import compilation


def _compiler() -> str | None:
    """The toolkit's nvcc, or the one that the extra `cuda` installs."""
    packages = find_spec("nvidia")
    folders = packages.submodule_search_locations if packages else None
    installed = [Path(folder) / "cu13" / "bin" / "nvcc" for folder in folders or ()]
    return shutil.which("nvcc") or next((str(path) for path in installed if path.exists()), None)


NVCC = _compiler()
pytestmark = pytest.mark.skipif(NVCC is None, reason="needs nvcc")

CHIPS = ("80", "90", "100")
INSTANCES = 12  # of a kernel on one chip: four element types, each dense, and strided with either index
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
DOUBLE = re.compile(r"_kernelId")  # how the name of an instance for double is mangled
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
SMALLER = ("float32", "float16", "bfloat16")
TRIGONOMETRIC = {"cvt.rn.f64.s64", "mul.rn.f64", "cvt.rn.f32.f64"}  # in sinf, for huge arguments

FORMULAS = {
    "exp": "exp(x) + exp2(0.1 * x) - expm1(x / 3)",
    "log": "log1p(abs(x)) + log(square(x)) + log2(x)",
    "softplus": "softplus(2.5 * x) / 2.5",
    "sigmoid": "x * sigmoid(1.702 * x)",
    "tanh": "x * tanh(log1p(exp(x)))",
    "erf": "x * 0.5 * (1 + erf(x / sqrt(2))) + erfc(x)",
    "pow": "pow(x, 2.5) + x ** 3 + x ** -2 + pow(x, 0.1)",
    "sqrt": "sqrt(x) + rsqrt(x) + reciprocal(x)",
    "where": "where(x > 0.1, x * pi, e * x - 0.3)",
    "sin": "sin(x) * cos(0.7 * x) + sign(x) / 7",
    "bounds": "clamp(x, -0.1, 0.7) + minimum(x, 0.3) + maximum(x, 0.9) + relu6(x)",
}


def nvcc(folder: Path, name: str, text: str, *flags: str) -> str:
    """What nvcc prints when it compiles a text without a warning."""
    source = folder / f"{name}.cu"
    source.write_text(text, encoding="utf-8")
    command = [str(NVCC), "-std=c++17", "-Werror", "all-warnings", *flags, str(source)]
    done = subprocess.run([*command, "-o", str(folder / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_module_compiles(name: str, tmp_path: Path) -> None:
    """Without a warning, a spill or a stack frame, and with double only where tensors are float64."""
    module = generated(name)
    chips = [f"-gencode=arch=compute_{chip},code=sm_{chip}" for chip in CHIPS]
    text = module.CALL_SOURCE + module.CUDA_PRELUDE + module.CUDA_SOURCE
    flags = [*module.CUDA_FLAGS, "-Xptxas=-v", "-c", "--keep", f"--keep-dir={tmp_path}", *chips]
    told = nvcc(tmp_path, name, text, *flags)
    entries, frames = ENTRY.findall(told), FRAME.findall(told)
    assert sorted(chip for _, chip in entries) == sorted(CHIPS * INSTANCES)
    assert len(frames) == len(entries)
    assert set(frames) == {("0", "0", "0")}
    texts = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.ptx")]
    assert len(texts) == len(CHIPS)
    for entry in (entry for text in texts for entry in kernels(text)):
        mangled = entry.split("(")[0]
        assert (".f64" in entry) == bool(DOUBLE.search(mangled)), mangled


def kernels(ptx: str) -> list[str]:
    """The text of each kernel, from its name on."""
    return re.split(r"^(?:\.visible )?\.entry ", ptx, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(("of", "numerics"), [*((of, "accurate") for of in FORMULAS), ("where", "eager")])
def test_no_double_behind_a_function(of: str, numerics: str, tmp_path: Path) -> None:
    """The math library's own code included: an overload taken wrongly would show here."""
    spec = tmp_path / f"f_{of}.yaml"
    spec.write_text(
        f"name: f_{of}\nsummary: A test.\nparams: {{alpha: 0.1}}\nnumerics: {numerics}\n"
        f"dtypes: [{', '.join(SMALLER)}]\nformula: alpha + {FORMULAS[of]}\n",
        encoding="utf-8",
    )
    sources = compilation(spec).sources
    text = sources["call"] + sources["cuda_prelude"] + sources["cuda"]
    nvcc(tmp_path, f"f_{of}", text, "-O3", "--fmad=false", "-arch=compute_90", "-ptx")
    made = kernels((tmp_path / f"f_{of}").read_text(encoding="utf-8"))
    assert len(made) == INSTANCES * len(SMALLER) // 4
    double = {word for entry in made for word in re.findall(r"\S+\.f64\S*", entry)}
    assert double == TRIGONOMETRIC if of == "sin" else not double
