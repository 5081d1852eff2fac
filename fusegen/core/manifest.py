"""`MANIFEST.toml` in a folder of modules: its binding, its runtime, and the modules that fusegen wrote.

Modules and the digests of their kernels are two tables, so that a change of a comment is a line in one.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusegen.core.access import refused
from fusegen.core.spec import NAME_PATTERN
from fusegen.errors import BadManifest, toml_place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "MANIFEST.toml"
FORMAT = 1
MOST_BYTES = 2**22  # of a file that is read: a module takes some 290
DIGEST_PATTERN = "[0-9a-f]{64}"
KERNEL_PATTERN = "[0-9a-f]{16}"
HEAD = f"""\
# The modules that 'fusegen build' wrote into this folder, and may remove with --prune. DO NOT EDIT.
format = {FORMAT}
"""
OF_KERNELS = """
# Digests of the C++ of the forward pass and of the gradient; comments do not count.
[kernels]
"""
OF_RUNTIME = """
# Digests of the files in _runtime.
[runtime]
"""
BINDINGS = ("stable", "pybind")
Kernels = Mapping[str, tuple[str, str]]  # by device, the digests of the forward pass and of the gradient


@dataclass(frozen=True, slots=True)
class Entry:
    """A module that the folder owns."""

    spec: str  # the path of its spec from the folder, or ``fusegen:NAME`` for one that comes with fusegen
    sha256: str  # the digest of the text that was written, in hexadecimal
    # the digests of its kernels; none if a fusegen wrote it that recorded none
    kernels: Kernels = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record of a folder."""

    # that fusegen wrote there, by their paths from the folder, without the ending
    modules: Mapping[str, Entry] = field(default_factory=dict)
    binding: str = BINDINGS[0]  # of all of them
    # the digests of the files of the runtime beside them, by name; none in the manifest of an older fusegen
    runtime: Mapping[str, str] = field(default_factory=dict)


def read(folder: Path) -> Manifest:
    """Return the manifest of a folder; an empty one where it has none.

    Raises:
        BadManifest: there is a manifest that fusegen did not write.
        NoAccess: it cannot be read.
    """
    path = folder / NAME
    try:
        with path.open("rb") as file:
            held = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise refused(error, path, "read") from None
    try:
        return _parsed(held)
    except (ValueError, RecursionError) as error:
        why = str(error).splitlines()[0] if isinstance(error, ValueError) else "it is nested too deeply"
        span, why = toml_place(path.as_posix(), why)
        raise BadManifest(span, why=why) from None


def text(of: Manifest) -> str:
    """The text of a manifest, with two lines for each module, sorted; those of subfolders are last."""
    entries = sorted(of.modules.items(), key=lambda item: (item[0].split("/")[:-1], item[0]))
    lines = [
        f'{_key(name)} = {{ spec = "{_escaped(entry.spec)}", sha256 = "{entry.sha256}" }}\n'
        for name, entry in entries
    ]
    kernels = [f"{_key(name)} = {{ {_row(entry.kernels)} }}\n" for name, entry in entries if entry.kernels]
    runtime = [f'"{name}" = "{sha256}"\n' for name, sha256 in sorted(of.runtime.items())]
    head = f'{HEAD}binding = "{of.binding}"\n\n[modules]\n'
    kernels = [OF_KERNELS, *kernels] if kernels else []
    return "".join([head, *lines, *kernels, OF_RUNTIME * bool(runtime), *runtime])


def kernels_of(row: Any) -> Kernels:
    """Return the digests of a module's kernels, as a file has them.

    Raises:
        ValueError: they are none.
    """
    match row:
        case {"cuda": [str(a), str(b)], "cpu": [str(c), str(d)], **rest} if not rest:
            if all(re.fullmatch(KERNEL_PATTERN, each) for each in (a, b, c, d)):
                return {"cuda": (a, b), "cpu": (c, d)}
    raise ValueError("the digests of its kernels are none")


def _row(kernels: Kernels) -> str:
    return ", ".join(f'{device} = ["{one}", "{other}"]' for device, (one, other) in kernels.items())


def _parsed(held: bytes) -> Manifest:
    if len(held) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
    found = tomllib.loads(held.decode("utf-8"))
    modules = found.get("modules")
    if found.get("format") != FORMAT or not isinstance(modules, dict):
        raise ValueError(f"it has no 'format = {FORMAT}' and no table 'modules'")
    # an older fusegen recorded one digest of all files of the runtime
    binding, runtime = found.get("binding", BINDINGS[0]), found.get("runtime", {})
    digests = runtime.values() if isinstance(runtime, dict) else (runtime,)
    if binding not in BINDINGS or not all(re.fullmatch(DIGEST_PATTERN, str(each)) for each in digests):
        raise ValueError("its binding or its runtime is none")
    kernels = found.get("kernels", {})
    if not isinstance(kernels, dict) or not kernels.keys() <= modules.keys():
        raise ValueError("its kernels are not those of its modules")
    entries = {name: _entry(name, row, kernels.get(name)) for name, row in modules.items()}
    return Manifest(entries, binding, runtime if isinstance(runtime, dict) else {})


def _entry(name: str, row: Any, kernels: Any) -> Entry:
    if not all(re.fullmatch(NAME_PATTERN, part) for part in name.split("/")):
        raise ValueError(f"{name!r} is not the name of a module")
    strings = isinstance(row, dict) and all(isinstance(value, str) for value in row.values())
    if not strings or row.keys() != {"spec", "sha256"} or not re.fullmatch(DIGEST_PATTERN, row["sha256"]):
        raise ValueError(f"{name} needs a spec and a sha256")
    return Entry(row["spec"], row["sha256"], {} if kernels is None else kernels_of(kernels))


def _key(name: str) -> str:
    """Return the name of a module as a key of TOML."""
    return f'"{name}"' if "/" in name else name


def _escaped(text: str) -> str:
    known = text.encode("utf-8", errors="replace").decode("utf-8")
    return "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in known)
