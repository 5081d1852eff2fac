"""The declarations of headers that a certificate's digest covers: all that can change a kernel."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from budget import FULL
from emulated import ELEMENTS
from kernels import GENERATED
from test_cuda_text import NVCC, nvcc
from torch.utils.cpp_extension import include_paths

from fusegen.codegen import runtime_text
from fusegen.core.header_files import inlined, without_comments
from fusegen.evidence.certify.digest import kernel_digest, reached_headers
from fusegen.project.loader import imported
from fusegen.runtime import flavour, sources

FILES = runtime_text.files("stable")
MODULES = sorted(
    path.relative_to(GENERATED).with_suffix("").as_posix()
    for path in GENERATED.rglob("*.py")
    if runtime_text.FOLDER not in path.parts
)
DEFAULT = {("relu6", "cpu"), ("rows/softmax", "cpu"), ("gelu", "cuda")}
ROWS = [
    pytest.param(name, device, marks=() if (name, device) in DEFAULT else pytest.mark.full)
    for name in MODULES
    for device in ("cpu", "cuda")
]
FEW = ELEMENTS if FULL else "Dtypes<FLOAT32>()"
OF_PYTORCH = [f"-I{path}" for path in include_paths()]
NAMES = {"cpu": '#define FUSEGEN_SPACE "a"\n#define FUSEGEN_MODULE "b"\n'}
NAMES["cuda"] = f"{NAMES['cpu']}#define ON_CUDA\n#define WITH_CONVOLVED\n#define WITH_MULTIPLIED\n"


def whole(name: str) -> str:
    """A header as the digest has it where every declaration counts."""
    return without_comments(FILES[f"include/{name}"]) + "\n"


def texts(name: str, device: str) -> Iterator[tuple[str, str]]:
    """The texts that a module's libraries are compiled from, without headers, and what each is."""
    kernels = imported(GENERATED / f"{name}.py").KERNELS
    main = {"cpu": kernels.sources.cpu, "cuda": kernels.sources.cuda}[device]
    bound = NAMES[device] + sources.binding(kernels)
    behind = kernels.sources.convolution or sources.PRODUCT.format(kernels.name) * kernels.sources.product
    bound += flavour.joined(kernels.sources.joined, kernels.signature) if behind else ""
    yield "main", main
    yield "binding", bound
    if device == "cpu":
        yield "binding by dtype", f"#define FUSEGEN_BY_DTYPE\n{bound}"
    elif behind:
        yield "joined", main + behind


def compiled(folder: Path, text: str, device: str) -> bytes:
    """The object code of a text, or its PTX; without a flag -O0, at which g++ keeps unused constants."""
    if device == "cuda":
        nvcc(folder, "a", text, "-ptx", "-arch=compute_90", "-Xcicc", "-O0")
        return (folder / "a").read_bytes()
    source, made = folder / "a.cpp", folder / "a.o"
    source.write_text(text, encoding="utf-8")
    flags = ["-std=c++17", "-fPIC", "-O1", "-march=native", "-w", f"-I{folder}", *OF_PYTORCH]
    subprocess.run(["g++", *flags, "-c", source, "-o", made], check=True)
    return made.read_bytes()


@pytest.mark.parametrize(("name", "device"), ROWS)
def test_what_no_name_reaches_changes_no_machine_code(name: str, device: str, tmp_path: Path) -> None:
    if device == "cuda" and NVCC is None:
        pytest.skip("needs nvcc")
    module = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    kept = reached_headers(module, device, FILES)
    assert any(kept[each] != whole(each) for each in kept)
    for path, of in flavour.SYSTEM.items() if device == "cpu" else ():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(sources.header(of), encoding="utf-8")
    for part, text in texts(name, device):
        if FULL or part == "main":
            compiler = "cpu" if part.startswith("binding") else device
            both = [inlined(text, read) for read in (whole, lambda each: kept.get(each) or whole(each))]
            made = [compiled(tmp_path, each.replace(ELEMENTS, FEW), compiler) for each in both]
            assert made[0] == made[1], part


HEADER = """
#pragma once
#include <cmath>
#define LIMIT 4
#define FUSEGEN_CALLED(x) by_macro(x)
#define FUSEGEN_OTHER(x) by_other(x)
#define FUSEGEN_PASTED(NAME) NAME##_of_paste()
#define MAKES int made() { return 8; } inline
#ifdef FUSEGEN_FAST
#endif
namespace fusegen {
namespace {
struct Unused { int a; };
template <class T> T inner(T x) { return x + 1; }
template <class T> T called(T x) { return inner(x); }
template <class T> T called(T x, T y) { return x + y; }
template <class T> T unused(T x) { return far(x); }
template <class T> T far(T x) { return x + 2; }
int by_macro(int x) { return x + 3; }
int by_other(int x) { return x + 4; }
int part_of_paste() { return 5; }
template <class T> bool operator==(Pair<T> a, Pair<T> b) { return a.x == b.x; }
int registered = 6;
MAKES int beside() { return 9; }
}
}
"""
OWN = """
#include "once.h"
int own = fusegen::called(LIMIT) + FUSEGEN_CALLED(2) + FUSEGEN_PASTED(part) + made();
"""
CHANGES = {  # of the header, and whether a kernel may change
    "a declaration that is called": ("return inner(x)", "return inner(x + 1)", True),
    "one that this one calls": ("x + 1;", "x + 7;", True),
    "an overload": ("x + y;", "x - y;", True),
    "a new overload": ("struct Unused", "int called(int x) { return x; }\nstruct Unused", True),
    "a macro": ("by_macro(x)\n", "by_macro(-x)\n", True),
    "what a macro calls": ("x + 3", "x + 7", True),
    "what a macro pastes the name of": ("return 5", "return 7", True),
    "a macro without arguments": ("LIMIT 4", "LIMIT 7", True),
    "a conditional": ("FUSEGEN_FAST", "FUSEGEN_SLOW", True),
    "an included header": ("<cmath>", "<math.h>", True),
    "an operator": ("a.x == b.x", "a.x != b.x", True),
    "what is behind a macro that declares another function": ("return 9", "return 7", True),
    "an object": ("registered = 6", "registered = 7", True),
    "the order": ("namespace {\n", "namespace {\ntemplate <class T> T inner(T x);\n", True),
    "a macro that nothing names": ("by_other(x)\n", "by_other(-x)\n", False),
    "what it calls": ("x + 4", "x + 7", False),
    "a function that nothing names": ("far(x);", "far(-x);", False),
    "what it calls, too": ("x + 2", "x + 7", False),
    "a type that nothing names": ("int a;", "long a;", False),
    "a new function": ("struct Unused", "int unheard(int x) { return called(x); }\nstruct Unused", False),
    "a comment": ("struct Unused", "// Used\nstruct Unused", False),
}


def digest(header: str, device: str) -> str:
    """The digest of a module with `OWN`, which includes a header."""
    module = "".join(f'{name} = r"""{OWN}"""\n' for name in ("CUDA_SOURCE", "CPU_SOURCE"))
    return kernel_digest(module, device, FILES | {"include/once.h": header})


@pytest.mark.together
@pytest.mark.parametrize("what", CHANGES)
def test_a_digest_covers_what_names_reach(what: str) -> None:
    old, new, is_seen = CHANGES[what]
    assert HEADER.count(old) == 1
    for device in ("cpu", "cuda"):
        assert (digest(HEADER, device) != digest(HEADER.replace(old, new), device)) == is_seen


def test_all_counts_beside_a_macro_that_opens_a_brace() -> None:
    header = HEADER.replace("#define LIMIT 4", "#define LIMIT 4\n#define OPENS {")
    assert digest(header, "cpu") != digest(header.replace("far(x);", "far(-x);"), "cpu")


def test_a_changed_function_of_a_header_concerns_the_modules_that_reach_it() -> None:
    name = "include/functions/selections.h"
    old = "return x / (fabs(x) + M(1));"
    assert FILES[name].count(old) == 1
    changed = FILES | {name: FILES[name].replace(old, "return x / (M(1) + fabs(x));")}
    concerned = set()
    for module in ("softsign", "hardtanh", "relu6", "gelu", "rows/softmax"):
        text = (GENERATED / f"{module}.py").read_text(encoding="utf-8")
        assert "functions/selections.h" in reached_headers(text, "cpu", FILES)
        if kernel_digest(text, "cpu", changed) != kernel_digest(text, "cpu", FILES):
            concerned.add(module)
    assert concerned == {"softsign"}
