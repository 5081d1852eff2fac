"""A wheel of modules with their libraries: what it installs needs no compiler.

See https://packaging.python.org/specifications/binary-distribution-format/. The same files give the same
bytes.
"""

import base64
import csv
import hashlib
import io
import re
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path, PurePosixPath

from fusegen import __version__
from fusegen.codegen import runtime_text
from fusegen.core.access import refused
from fusegen.errors import NotADistribution, Span
from fusegen.project import library_folder, package_folder
from fusegen.tools.hub import licence

NAME = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
VERSION = re.compile(
    r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?", re.ASCII
)
TORCH = "torch>=2.10"
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: Kernels for PyTorch, compiled: {functions}
License-Expression: {licence}
License-File: LICENSE
Requires-Python: >=3.10
Requires-Dist: {torch}
"""
TAGS = """\
Wheel-Version: 1.0
Generator: fusegen {generator}
Root-Is-Purelib: false
Tag: {tag}
"""


@dataclass(frozen=True)
class Distribution:
    """The name and the version of a distribution."""

    name: str
    version: str

    @classmethod
    def of(cls, text: str) -> "Distribution":
        """Return the distribution of a text such as ``my-kernels==1.0``.

        Raises:
            NotADistribution: it is no name and version, or its package could not be imported.
        """
        name, _, version = text.partition("==")
        found = cls(name, version)
        if not NAME.fullmatch(name) or not VERSION.fullmatch(version) or iskeyword(found.package):
            raise NotADistribution(Span("--wheel"), text=text)
        return found

    @property
    def package(self) -> str:
        """The name of its package, as in file names, too."""
        return re.sub("[-_.]+", "_", self.name).lower()


def file_name(of: Distribution) -> str:
    """Return the name of the wheel for this platform."""
    return f"{of.package}-{of.version}-{_tag()}.whl"


def content(
    of: Distribution,  # its name and version
    # the texts of modules, by their paths without suffix in the package
    modules: Mapping[PurePosixPath, str],
    libraries: Iterable[Path],  # theirs, compiled
) -> bytes:
    """Return the bytes of a wheel.

    Raises:
        TwoOfOneExport: two modules export one name.
        NoAccess: a library cannot be read.
    """
    files = {f"{of.package}/{name}": text for name, text in _package(modules).items()}
    files |= {f"{of.package}/{library_folder.LIBRARIES}/{name}": held for name, held in _read(libraries)}
    info = f"{of.package}-{of.version}.dist-info"
    named = ", ".join(sorted(path.name for path in modules))
    about = {"name": of.name, "version": of.version, "functions": named}
    files[f"{info}/METADATA"] = METADATA.format(**about, licence=licence.IDENTIFIER, torch=TORCH).encode()
    files[f"{info}/WHEEL"] = TAGS.format(generator=__version__, tag=_tag()).encode()
    files[f"{info}/licenses/LICENSE"] = licence.TEXT.encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, held in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980, whenever it is written
            entry.external_attr = 0o100644 << 16  # a library that others can write is not loaded
            archive.writestr(entry, held, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _package(modules: Mapping[PurePosixPath, str]) -> dict[str, bytes]:
    """Return the Python files and the headers of a package, by path; it exports functions and layers."""
    dotted = {".".join(path.parts): text for path, text in modules.items()}
    exported = {name: package_folder.exports(Path(name), text) for name, text in dotted.items()}
    package_folder.require_distinct(Span("--wheel"), exported)
    runtime = runtime_text.needed("stable", modules.values())
    files = {
        package_folder.NAME: package_folder.text(exported),
        **{f"{path}.py": text for path, text in sorted(modules.items())},
        **{f"{runtime_text.FOLDER}/{name}": text for name, text in runtime.items()},
    }
    return {name: text.encode() for name, text in files.items()}


def _read(libraries: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    for library in sorted({*libraries}):
        for path in (library, library.with_suffix(".sum")):
            try:
                yield path.name, path.read_bytes()
            except OSError as error:
                raise refused(error, path, "read") from None


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    rows: list[Sequence[object]] = []
    for name, held in files.items():
        made = base64.urlsafe_b64encode(hashlib.sha256(held).digest()).rstrip(b"=").decode()
        rows.append((name, f"sha256={made}", len(held)))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([*rows, (own, "", "")])
    return text.getvalue().encode()


def _tag() -> str:
    """Return the tag of any Python 3 on this platform, whose C library the libraries need."""
    return f"py3-none-{re.sub('[-.]', '_', sysconfig.get_platform())}"
