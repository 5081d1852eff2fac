"""Prove that modules whose text changed have the kernels of a revision, and renew their certificates.

    python -m benchmarks.same_kernels HEAD                      # a table; status 1 if anything changed
    python -m benchmarks.same_kernels HEAD gelu --device cuda --renew

Each module of generated/ is compared with that of the revision. What is the same text without comments
and declarations of headers that no name reaches is the same, and so it is without templates that nothing
names, and without branches of `if constexpr` whose condition needs a constant that is false in every
struct: no code is made of these. So are kernels of other blocks for which an SM has registers, which decide
where values are, not what they are. Else, for each device:

- CUDA: the PTX for sm_90 of each kernel has to be the same, by nvcc with the flags of the module. What the
  host decides has no kernel to compare: launches, layouts, flags, the Python of masks. Where that text
  moved, somebody has to read it, and to say so by --host-text-reviewed.
- CPU: both versions run, under the instruction set of this computer, on every value of each 16-bit type, on
  2^20 bit patterns an even step apart of float32 and of float64, on special values and on ordinary numbers;
  dense, as every other column, and off the alignment; fewer at other scalars. Values, with and without a
  gradient, and gradients have to agree bit for bit; a NaN equals every other. Of several tensors the
  patterns are shuffled, with a fixed seed.

The Python of a module decides results, too: which kernel takes which tensors, scalars and types. Where it
changed, both versions run, even where all C++ is the same. For CUDA they run on the GPU if PyTorch has
one, else on the CPU. Python that only tensors on CUDA reach counts as text of the host in either case.

Of a module of several kernels each one's text is compared, and on CUDA its PTX, if the Python is the same.

--renamed OLD=NEW, once for each name, compares the text alone, in seconds: the C++ has to be that of the
revision token for token, with identifiers replaced as told, and no two names may have become one.
FUNCTION.OLD=NEW renames a parameter or a local variable. Any other change counts as one of kernels.

--renew writes the digest of the module into each part of a certificate whose kernels are proved to be the
same and which was of the revision's module: not a part that was stale there, nor one of a chip that the
comparison says nothing of (PTX of another architecture, results under another instruction set).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import click

from benchmarks.same_kernels.renames import Renames
from benchmarks.same_kernels.several import parts
from benchmarks.same_kernels.verdict import Verdict, verdict
from benchmarks.same_kernels.versions import Pair, files_of, workers
from fusegen.codegen import runtime_text
from fusegen.evidence.certify import certificate_text
from fusegen.evidence.certify.certificate import DEVICES, Certificate, Part, path_of
from fusegen.evidence.certify.digest import kernel_digest

FOLDER = Path("generated")
RULE = ("declarations", "reachable", "digest")  # of evidence/certify, each behind what it imports
HELP = "\b\n" + str(__doc__).replace("\n\n", "\n\n\b\n")  # lines as they are
REVIEWED = (
    "Asserts that you have read how the host's text for CUDA moved, and that no result changes by it."
)


def committed(ref: str, path: Path) -> bytes | None:
    """Return a file as it is in a revision, if it is there."""
    done = subprocess.run(["git", "show", f"{ref}:./{path.as_posix()}"], capture_output=True)
    return None if done.returncode else done.stdout


def committed_folder(ref: str, folder: Path) -> dict[Path, bytes]:
    """Return the files of a folder as they are in a revision."""
    place = f"./{folder.as_posix()}/"
    command = ["git", "ls-tree", "-r", "--name-only", ref, place]
    done = subprocess.run(command, capture_output=True, text=True)
    paths = map(Path, done.stdout.split())
    return {path: text for path in paths if (text := committed(ref, path)) is not None}


def verdicts(
    ref: str, names: tuple[str, ...], devices: tuple[str, ...], renames: Renames
) -> Iterator[Verdict]:
    """Yield a verdict for each module and device, as soon as it is known."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both = workers()
        for worker in both:
            stack.enter_context(worker)
        for path, held in committed_folder(ref, FOLDER / runtime_text.FOLDER).items():
            place = folder / path.relative_to(FOLDER)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(held)
        for name in names:
            now, old = FOLDER / f"{name}.py", folder / f"{name}.py"
            text = committed(ref, now)
            old.parent.mkdir(parents=True, exist_ok=True)
            old.write_bytes(text or b"")
            for device in devices:
                missing = Verdict(name, device, wrong=(f"{ref} has no such module",))
                yield missing if text is None else verdict(Pair(old, now.resolve(), both), device, renames)


def revision(ref: str) -> str:
    """Return the commit that a name stands for now, whatever is committed meanwhile.

    Raises:
        BadParameter: it stands for none.
    """
    done = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "--short=12", f"{ref}^{{commit}}"], capture_output=True
    )
    if done.returncode:
        raise click.BadParameter(f"git knows no revision {ref}", param_hint="REF")
    return done.stdout.decode().strip()


# Certificates


@cache
def runtime_of(ref: str) -> dict[str, str]:
    """Return the files of the runtime of a revision, by path."""
    place = FOLDER / runtime_text.FOLDER
    held = committed_folder(ref, place)
    return {path.relative_to(place).as_posix(): text.decode() for path, text in held.items()}


@cache
def digest_of(ref: str) -> Callable[[str, str, dict[str, str]], str]:
    """Return the digest of a module's kernels as a revision takes it, if it holds fusegen."""
    found: Callable[[str, str, dict[str, str]], str] = kernel_digest
    with mock.patch.dict(sys.modules):
        for name in RULE:
            source = committed(ref, Path(f"fusegen/evidence/certify/{name}.py"))
            if source is not None:
                own = ModuleType(f"fusegen.evidence.certify.{name}")
                own.__file__, sys.modules[own.__name__] = __file__, own
                exec(compile(source, f"{ref}:{name}.py", "exec"), vars(own))
                found = vars(own).get("kernel_digest", found)
                # which would recall the digests of today's rule
                vars(own)["compile_cache"] = mock.Mock(recall=lambda key: None)
    return found


def renewed(ref: str, found: Verdict) -> str:
    """Write digests into the certificates of a module, where it is shown to be of the same kernels.

    Returns:
        What was done, or why nothing was; empty if there is nothing to do.
    """
    module = FOLDER / f"{found.name}.py"
    whole = (committed(ref, module) or b"").decode(), module.read_text(encoding="utf-8")
    old, now = (parts(found.name, text) for text in whole)
    done = [_renewed(ref, found, path_of(module, title), (old[title], now[title])) for title in now]
    return "; ".join(dict.fromkeys(filter(None, done)))


def _renewed(ref: str, found: Verdict, path: Path, texts: tuple[str, str]) -> str:
    """Write the digest of a kernel into its certificate, as `renewed` does for all kernels of a module."""
    old = digest_of(ref)(texts[0], found.device, runtime_of(ref))
    now = kernel_digest(texts[1], found.device, files_of(FOLDER / runtime_text.FOLDER))
    before, after = committed(ref, path) or b"", path.read_bytes() if path.exists() else b""
    part = _part(before, found.device)
    if old == now or part is None or not found.same:
        return ""
    if part.kernel.digest != old:
        return f"its certificate was stale in {ref}"
    if part != (held := _part(after, found.device)):
        same = held is not None and held.kernel.digest == now
        return "its certificate is of this module" if same else f"its certificate is not that of {ref}"
    chip = part.kernel.machine.chip
    if found.chips and not any(one in chip for one in found.chips):
        return f"its certificate is of {chip}, which this does not show"
    new = certificate_text.text(_read(after).with_digest(found.device, now))
    path.write_text(new, encoding="utf-8")
    return "renewed"


def _part(certificate: bytes, device: str) -> Part | None:
    """Return a device's part of a certificate of this format, if it is there and as it was written."""
    part = _read(certificate).parts.get(device)
    return None if part is None or part.is_edited else part


def _read(certificate: bytes) -> Certificate:
    try:
        return certificate_text.read(certificate.decode())
    except ValueError:
        return Certificate()


# The command


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules that are meant.

    Raises:
        BadParameter: there is no such module.
    """
    below = (path.relative_to(FOLDER) for path in FOLDER.rglob("*.py"))
    kept = (path for path in below if runtime_text.FOLDER not in path.parts)
    known = sorted((path.with_suffix("").as_posix() for path in kept), key=lambda name: ("/" in name, name))
    if unknown := sorted(set(given) - set(known)):
        raise click.BadParameter(f"{FOLDER} has no module {', '.join(unknown)}", param_hint="NAMES")
    return tuple(name for name in known if not given or name in given)


def _renames(given: tuple[str, ...]) -> Renames:
    """Return the names that were replaced.

    Raises:
        BadParameter: they are written otherwise.
    """
    try:
        return Renames.of(given)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--renamed") from error


@click.command(help=HELP)
@click.option("--device", "devices", multiple=True, default=DEVICES, type=click.Choice(DEVICES))
@click.option("--renew", is_flag=True, help="Write new digests into certificates.")
@click.option("--host-text-reviewed", is_flag=True, help=REVIEWED)
@click.option("--renamed", multiple=True, metavar="OLD=NEW", help="A name of C++ that was replaced.")
@click.argument("ref")
@click.argument("names", nargs=-1)
def main(ref: str, names: tuple[str, ...], **options: Any) -> None:
    """Compares, tells and renews."""
    ref = revision(ref)
    counts = {"unchanged": 0, "changed": 0, "renewed": 0}
    for found in verdicts(ref, _names(names), options["devices"], _renames(options["renamed"])):
        shown = found.reviewed() if options["host_text_reviewed"] else found
        done = renewed(ref, shown) if options["renew"] else ""
        click.echo(f"{found.name:24} {found.device:4} {'; '.join(filter(None, (str(shown), done)))}")
        counts["unchanged" if shown.same else "changed"] += 1
        counts["renewed"] += done == "renewed"
    click.echo(", ".join(f"{count} {what}" for what, count in counts.items()))
    raise SystemExit(min(1, counts["changed"]))


if __name__ == "__main__":
    main()
