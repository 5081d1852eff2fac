"""The broken promises that certificates name, as `build` tells them.

A certificate counts if it is one of the kernels that were built. Estimates miss single results; what was
measured once is told until the spec accepts it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fusegen.core.spec import ACCEPTED, Spec
from fusegen.evidence.certify import certificate_state
from fusegen.evidence.certify.certificate import path_of
from fusegen.language import library
from fusegen.project.modules import Built

VALUE, GRADIENT, _ = ACCEPTED
MARK = "BROKEN"  # in the text of a certificate with exceptions
SENTENCE = (
    "{name}: its certificate names broken promises, on {device} in {dtype}: {first}{more}; see {path}, or "
    "give the reason why it is right with 'accept: {{{key}: ...}}'"
)
SEVERAL = "{count} modules have certificates that name broken promises: 'python -m fusegen list' shows them"
MOST = 4  # modules that are told one by one
DEVICES = {"cpu": "the CPU", "cuda": "CUDA"}


@dataclass(frozen=True)
class Exceptions:
    """The broken promises of the kernels of a module, in the order of its certificates."""

    path: Path  # of the last certificate
    found: tuple[tuple[str, str, str], ...]  # of each the device, the dtype and the sentence

    def sentence(self, spec: Spec) -> str | None:
        """Return what is said of those that a spec does not accept; None where it accepts all."""
        accepted = {key for key, _ in spec.accept}
        left = [each for each in self.found if key_of(each[2]) not in accepted]
        if not left:
            return None
        device, dtype, first = left[0]
        more = f" and {len(left) - 1} more" if left[1:] else ""
        words = {"name": spec.name, "device": DEVICES[device], "dtype": dtype, "key": key_of(first)}
        return SENTENCE.format(first=first, more=more, path=self.path.as_posix(), **words)


def told(built: Mapping[Path, Built], specs: Mapping[Path, Path]) -> Iterator[str]:
    """Yield what `build` says of modules: its remarks, and of what only certificates know.

    Args:
        built: the modules that were written.
        specs: the file of the spec of each.
    """
    known: list[str] = []
    for module, one in built.items():
        spec = library.load(specs[module]) if _may_have_exceptions(module) else None
        found = of_module(module, spec) if spec else None
        keys = {key_of(sentence) for *_, sentence in found.found} if found else set()
        needed = {sentence for key, sentence in one.unneeded.items() if key in keys}
        yield from (remark for remark in one.remarks if remark not in needed)
        if spec and found and not one.warned and (sentence := found.sentence(spec)):
            known.append(sentence)
    yield from known if len(known) <= MOST else [SEVERAL.format(count=len(known))]


def of_module(module: Path, spec: Spec) -> Exceptions:
    """Return the exceptions that the certificates of a module name, of the kernels that it has."""
    found = [
        (device, one.dtype, sentence)
        for certificate, states in certificate_state.of_kernels(module, spec)
        for device, state in states.items()
        if state not in (*certificate_state.SENTENCES, "ok")
        for one in certificate.parts[device].evidence
        for sentence in one.broken
    ]
    return Exceptions(path_of(module), tuple(found))


def key_of(sentence: str) -> str:
    """Return the key of `accept` for a broken promise."""
    return GRADIENT if "gradient" in sentence else VALUE


def _may_have_exceptions(module: Path) -> bool:
    """Return True if a certificate of a module names exceptions, whatever it is worth."""
    paths = module.parent.glob(f"{module.stem}.*{path_of(module).suffix}")
    return any(MARK in path.read_text(encoding="utf-8", errors="replace") for path in paths)
