"""The kernels that nvcc makes of a module: a digest of the PTX of each, free of names that it makes up."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from benchmarks.same_kernels.text import Recipe
from fusegen.project.library_folder import build_folder

FLAGS = ("-std=c++17", "-w", "-arch=sm_90", "-ptx")
CHIPS = ("H100", "H200", "GH200")  # of that architecture, as certificates name them
SOURCE = "kernels.cu"
NAMELESS = re.compile(r"(\d+)_(?:INTERNAL_|GLOBAL__N__)")  # after the length of this name
IGNORED = re.compile(r"//[^\n]*|^\s*\.(?:loc|file)\b[^\n]*", re.MULTILINE)
NUMBERED = re.compile(r"(?<=\$L__BB)\d+(?=_)|(?<=__local_depot)\d+")  # by the place in the file
ITEMS = re.compile(r"^(?=\.(?:visible|weak|extern|common|entry|func|global|const|shared)\b)", re.MULTILINE)
NAMES = re.compile(  # of a kernel, a function or a variable
    r"\.entry\s+([\w$]+)|\.func\s*(?:\([^)]*\))?\s*([\w$]+)|^[^(=;\[]*?([\w$]+)\s*[\[=;]"
)
ASSERTION = re.compile(r"(?<!\\\n)^(?=.*\bassert\()", re.MULTILINE)  # but for those of macros
LAST_PARAMETER = re.compile(r",?\s*\.param\s[^,()]*?([\w$]+)(?:\[\d+\])?(?=\s*\))")  # of a kernel
LOCAL = re.compile(r"(?!\.extern)[^(\n]*\.(?:entry|func)\b")  # what has its text here, under any name
WORD = re.compile(r"(?<![\w$.%])[A-Za-z_$][\w$]*")
Kernels = dict[str, str]  # digests by the name of the kernel


def compiled(recipe: Recipe) -> Kernels:
    """Return a digest of the PTX for sm_90 of each kernel, by mangled name; kept where modules build.

    Raises:
        RuntimeError: there is no nvcc, or it fails.
    """
    text = numbered_alike("\n".join(recipe["cuda_sources"]))
    flags = [*_own_flags(), *recipe["extra_cuda_cflags"], *FLAGS]
    flags = [flag for flag in flags if not flag.startswith("-gencode")]
    folder = build_folder()
    content = repr((text, flags, _version(), Path(__file__).read_bytes()))
    kept = folder / f"ptx_{hashlib.sha256(content.encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        folder.mkdir(0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as build:
            new = Path(build) / "kernels.json"
            new.write_text(json.dumps(kernels(_ptx(Path(build) / SOURCE, text, flags))), encoding="utf-8")
            os.replace(new, kept)
    found: Kernels = json.loads(kept.read_text(encoding="utf-8"))
    return found


def numbered_alike(text: str) -> str:
    """Return CUDA text whose assertions are on line 1 of one file: a kernel has the places of these."""
    return ASSERTION.sub(f'#line 1 "{SOURCE}"\n', text)


def differing(old: Kernels, now: Kernels) -> int:
    """The number of kernels that differ; a renamed one is compared with those whose names are gone."""
    renamed = [Counter(d for name, d in a.items() if name not in b) for a, b in ((old, now), (now, old))]
    same_names = sum(old[name] != now[name] for name in old.keys() & now.keys())
    return same_names + max((renamed[0] - renamed[1]).total(), (renamed[1] - renamed[0]).total())


def kernels(ptx: str) -> Kernels:
    """Return a digest of each kernel in a PTX file, with the functions and the variables that it uses.

    Names do not count, nor do comments, lines of the source, and numbers that go by the place in the file.
    A variable that kernels share counts by which kernels use it, and by how each does. The last parameters
    of a kernel do not count where it reads none of them, as empty ones: all others keep their places.
    """
    items: dict[str, str] = {}
    for item in ITEMS.split(NUMBERED.sub("", _without_nameless(IGNORED.sub("", ptx))))[1:]:
        if found := NAMES.search(item):
            items[next(filter(None, found.groups()))] = _without_unread(item)
    entries = [name for name, item in items.items() if ".entry" in item]
    return {name: _digest(name, items, (), _labels(entries, items)) for name in entries}


def _without_unread(item: str) -> str:
    """Return the text of a kernel without its last parameters, as long as nothing reads them."""
    while ".entry" in item and (found := LAST_PARAMETER.search(item)) and item.count(found[1]) == 1:
        item = item[: found.start()] + item[found.end() :]
    return item


def _labels(entries: list[str], items: Mapping[str, str]) -> dict[str, str]:
    """Return a name for each variable by the kernels that use it, whatever its own name is."""
    variables = [name for name, item in items.items() if not LOCAL.match(item)]
    users: dict[str, list[str]] = {name: [] for name in variables}
    for entry in entries:
        used = [name for name in dict.fromkeys(_used(entry, items, set())) if name in users]
        labels = {name: f"variable {place}" for place, name in enumerate(used)}
        digest = _digest(entry, items, (), labels)
        for name, label in labels.items():
            users[name].append(f"{digest} {label}")
    return {name: f"variable of {sorted(users[name])}" for name in variables}


def _used(name: str, items: Mapping[str, str], seen: set[str]) -> Iterator[str]:
    """Yield the items that an item uses, and those that these do, in the order of their first use."""
    seen.add(name)
    for word in dict.fromkeys(WORD.findall(items[name])):
        if word in items and word not in seen:
            yield word
            yield from _used(word, items, seen)


def _digest(name: str, items: Mapping[str, str], above: tuple[str, ...], labels: Mapping[str, str]) -> str:
    """Return the digest of an item, whatever its name is; `above` are those that have led to it."""

    def word(found: re.Match[str]) -> str:
        used = found[0]
        if used in (name, *above):
            return f"caller {(name, *above).index(used)}"
        if used not in items:  # of parameters and of static variables, the kernel's name is a part
            return used.replace(name.removeprefix("_Z"), "own") if used.startswith(("_ZZ", name)) else used
        return f"{labels.get(used, '')} {_digest(used, items, (name, *above), labels)}"

    text = WORD.sub(word, items[name])
    lines = (" ".join(line.split()) for line in text.splitlines())
    return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()[:16]


def _without_nameless(ptx: str) -> str:
    """Return the text without the names of nameless namespaces, which tell of the file."""
    kept, position = [], 0
    while found := NAMELESS.search(ptx, position):
        kept.append(ptx[position : found.start()])
        position = found.end(1) + int(found[1])
    return "".join([*kept, ptx[position:]])


def _ptx(source: Path, text: str, flags: list[str]) -> str:
    source.write_text(text, encoding="utf-8")
    made = source.with_suffix(".ptx")
    done = subprocess.run(
        [str(nvcc()), *flags, str(source), "-o", str(made)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"nvcc fails: {(done.stderr.splitlines() or ['it says nothing'])[0]}")
    return made.read_text(encoding="utf-8")


def _own_flags() -> list[str]:
    """Return the flags that PyTorch adds for every module."""
    from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

    return list(COMMON_NVCC_FLAGS)


@cache
def _version() -> str:
    if nvcc() is None:
        raise RuntimeError("there is no nvcc to compare the kernels with")
    return subprocess.run([str(nvcc()), "--version"], capture_output=True, text=True).stdout


@cache
def nvcc() -> str | None:
    """Return the toolkit's nvcc, or the one that the extra `cuda` installs."""
    packages = find_spec("nvidia")
    folders = packages.submodule_search_locations if packages else None
    installed = [Path(folder) / "cu13" / "bin" / "nvcc" for folder in folders or ()]
    return shutil.which("nvcc") or next((str(path) for path in installed if path.exists()), None)
