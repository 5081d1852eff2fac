"""The broken promises that certificates name, as `build` tells them.

A certificate counts if it is one of the kernels that were built. Estimates miss single results that a
certificate has measured; `build` names these until the spec accepts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.core.spec import ACCEPTED, Spec
from fusegen.evidence.certify import certificate_state, module_kernels
from fusegen.evidence.certify.certificate import path_of
from fusegen.language import library
from fusegen.project.modules import Built

VALUE, GRADIENT, _ = ACCEPTED
MARK = "BROKEN"  # in the text of a certificate with exceptions
SENTENCE = (
    "{name}: its certificate names broken promises, on {device} in {dtype}: {first}{more}; see {path}, or "
    "give the reason why it is right with 'accept: {{{key}: ...}}'"
)
SEVERAL = (
    "{count} modules{beside} have certificates that name broken promises, which their specs do not accept; "
    "'python -m fusegen list' shows them"
)
BESIDE = " beside those above"
MOST = 4  # modules that have a sentence each
DEVICES = {"cpu": "the CPU", "cuda": "CUDA"}


@dataclass(frozen=True)
class Broken:
    """A broken promise."""

    path: Path  # of the certificate that names it
    # device, dtype: of the results
    device: str
    dtype: str
    words: str  # of the certificate

    @property
    def key(self) -> str:
        """The key of `accept` for it."""
        return GRADIENT if "gradient" in self.words else VALUE


def sentence(spec: Spec, found: Sequence[Broken]) -> str | None:
    """Return what is said of those that a spec does not accept; None where it accepts all."""
    accepted = {key for key, _ in spec.accept}
    left = [each for each in found if each.key not in accepted]
    if not left:
        return None
    first = left[0]
    return SENTENCE.format(
        name=spec.name,
        device=DEVICES[first.device],
        dtype=first.dtype,
        first=first.words,
        more=f" and {len(left) - 1} more" if left[1:] else "",
        path=first.path.as_posix(),
        key=first.key,
    )


def told(built: Mapping[Path, Built], specs: Mapping[Path, Path]) -> Iterator[str]:
    """Yield what `build` says of modules: its remarks, and of what only certificates know.

    Args:
        built: the modules that were written.
        specs: the file of the spec of each.
    """
    known: list[str] = []
    for module, one in built.items():
        spec = library.load(specs[module]) if _may_have_exceptions(module) else None
        found = of_module(module, spec) if spec else ()
        keys = {each.key for each in found}
        needed = {unneeded for key, unneeded in one.unneeded.items() if key in keys}
        yield from (remark for remark in one.remarks if remark not in needed)
        if spec and not one.warned and (said := sentence(spec, found)):
            known.append(said)
    beside = BESIDE if any(one.warned for one in built.values()) else ""
    yield from known if len(known) <= MOST else [SEVERAL.format(count=len(known), beside=beside)]


def of_module(module: Path, spec: Spec) -> tuple[Broken, ...]:
    """Return what the certificates of the kernels of a module name, in the order of these."""
    titles = module_kernels.titles(spec)
    return tuple(
        Broken(path_of(module, title), device, one.dtype, words)
        for title, (certificate, states) in zip(
            titles, certificate_state.of_kernels(module, spec), strict=True
        )
        for device, state in states.items()
        if state not in (*certificate_state.SENTENCES, "ok")
        for one in certificate.parts[device].evidence
        for words in one.broken
    )


def _may_have_exceptions(module: Path) -> bool:
    """Return True if a certificate of a module names exceptions, whatever it is worth."""
    paths = module.parent.glob(f"{module.stem}.*{path_of(module).suffix}")
    return any(MARK in path.read_text(encoding="utf-8", errors="replace") for path in paths)
