"""A standalone file from its parts: its first lines, its library, and its Python on lines that fit."""

import hashlib
import re
import runpy
from textwrap import wrap
from typing import Any

from fusegen.codegen import runtime_text
from fusegen.codegen.render import fill
from fusegen.codegen.render.python import filled
from fusegen.codegen.standalone import python
from fusegen.codegen.standalone.reading import Module

WIDTH = 120  # of a line
GIVEN_UP = "Given up: "
MADE = re.compile(r"^(# Spec \w+\. Remake it with: python -m fusegen build) ", re.MULTILINE)
HEAD = re.compile(r"\A(?:# .*\n)+#\n(?:# .*\n)+")  # until the formulas end
FLAGS = runpy.run_path(str(runtime_text.SOURCE / "flags.py"))  # which depends on nothing
CPU_FLAGS, CUDA_FLAGS = FLAGS["CPU_FLAGS"], FLAGS["CUDA_FLAGS"]
CPP = re.compile(r'(r""".*?""")', re.DOTALL)


def part(context: dict[str, Any]) -> str:
    """Return the kernels of a file, and the function that runs them."""
    given = {"thin": {}, "prefix": ""} | context
    kernels = [fill(f"standalone/{name}.py.j2", given).rstrip("\n") for name in context["templates"]]
    return fill("standalone/part.py.j2", given | {"kernels": "\n\n".join(kernels)}).rstrip("\n")


def filled_in(context: dict[str, Any]) -> str:
    """Return a file, whose lines of Python are broken where they are too long."""
    body = context["body"] if "body" in context else part(context)
    imports = ["ctypes", *(name for name in ("functools", "pathlib") if f"{name}." in body), "torch"]
    made = {"body": body, "given_up": given_up(context["given_up"]), "imports": ", ".join(imports)}
    whole = fill("standalone/file.py.j2", {"several": False} | context | made)
    pieces = CPP.split(whole)
    return "".join(piece if CPP.match(piece) else python.wrapped_lines(piece) for piece in pieces)


def flags() -> list[str]:
    """Return the lines of the arguments that give a library's flags."""
    cpu = filled(
        [f'"{flag}"' for flag in (*CPU_FLAGS, "-march=native")], WIDTH - len("    extra_cflags=[]")
    )
    lines = [f"{'extra_cflags=[' if i == 0 else '    '}{line}" for i, line in enumerate(cpu)]
    lines[-1] = lines[-1].rstrip(",") + "],"
    return [*lines, f"extra_cuda_cflags={CUDA_FLAGS},".replace("'", '"')]


def library() -> str:
    """Return the statement that builds and loads a library."""
    given = "NAME, CPU, CUDA if torch.cuda.is_available() else []"
    first = f"{given}, is_python_module=False, no_implicit_headers=True,"
    inside = "".join(f"    {line}\n" for line in (first, *flags()))
    return f"LIBRARY = ctypes.CDLL(load_inline(\n{inside}))"


def head(module: Module, laid: dict[str, str], dtypes: list[str]) -> dict[str, Any]:
    """Return the first lines, the name of the library, and how it is built."""
    made = r"\1 --standalone . " + (f"--dtype {dtypes[0]} " if len(dtypes) == 1 else "")
    [lines] = HEAD.findall(MADE.sub(made, module.text, count=1))
    head = [
        part
        for line in lines.splitlines()
        for part in (wrap(line, WIDTH, subsequent_indent="#     ") or [line])
    ]
    digest = hashlib.sha256(repr((laid, CPU_FLAGS, CUDA_FLAGS)).encode()).hexdigest()[:8]
    return {
        "head": head,
        "library": f"{module.name}_{digest}",
        "built": library(),
    }


def given_up(*sentences: str) -> str:
    """Return the comment that says what a file gives up, from those of its parts."""
    words = (" ".join(one.replace("\n#", " ").split()) for one in sentences)
    parts = (part for one in words for part in one.removeprefix(GIVEN_UP).rstrip(".").split(", "))
    return "\n#     ".join(wrap(f"{GIVEN_UP}{', '.join(dict.fromkeys(parts))}.", WIDTH - 6))
