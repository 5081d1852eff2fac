"""The evidence on disk: ``generated/NAME.certificate.txt``, one part per device.

A part belongs to the module whose text has the digest it names; `state` says what a file is worth, and
`certificate_text` how it is written. This file needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fusegen.evidence.certify.findings import Evidence

FORMAT, CONTRACT, SEED = 4, 3, 20261
SUFFIX = ".certificate.txt"
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "float16", "bfloat16", "float64")
TITLE_WIDTH = 158  # of the first line, which is cut there


@dataclass(frozen=True)
class Machine:
    """The chip and the software that a certificate was made with."""

    chip: str  # the GPU, or the CPU's instruction set as PyTorch uses it
    torch: str  # PyTorch's version
    compiler: str  # that of the kernel


@dataclass(frozen=True)
class Claim:
    """The spec that a certificate has to belong to."""

    name: str
    formula: str
    dtypes: tuple[str, ...]
    numerics: str = "accurate"

    @property
    def title(self) -> str:
        """The name and the formula, cut to a line."""
        whole = f"{self.name}: {self.formula}"
        return whole if len(whole) <= TITLE_WIDTH else f"{whole[: TITLE_WIDTH - 1]}…"


@dataclass(frozen=True)
class Kernel:
    """The kernels of one device: their digest, and what they were built by and run on."""

    device: str
    digest: str
    machine: Machine


@dataclass(frozen=True)
class Part:
    """The evidence on one device."""

    kernel: Kernel  # what was tried
    evidence: tuple[Evidence, ...]  # of each dtype, in the order of `DTYPES`
    is_edited: bool = False  # whether its lines are not those that were written

    def of(self, dtype: str) -> Evidence | None:
        """Return the evidence of a dtype, if there is any."""
        return next((one for one in self.evidence if one.dtype == dtype), None)


@dataclass(frozen=True)
class Certificate:
    """The evidence of a spec."""

    title: str = ""  # the spec's name and formula
    promise: str = "accurate"  # ``accurate``, ``arithmetic`` or ``eager``; see `contract`
    parts: Mapping[str, Part] = field(default_factory=dict)  # by device

    def evidence(self, device: str, dtype: str) -> Evidence | None:
        """Return the evidence of a dtype on a device, if there is any."""
        part = self.parts.get(device)
        return part.of(dtype) if part else None

    def holds(self, kernel: Kernel, dtype: str) -> bool:
        """Return True if there is evidence of a dtype for this kernel, chip, PyTorch and compiler."""
        part = self.parts.get(kernel.device)
        return part is not None and part.kernel == kernel and part.of(dtype) is not None

    def with_evidence(self, claim: Claim, kernel: Kernel, evidence: Evidence) -> Certificate:
        """Return the certificate with one dtype's evidence, without that of another kernel or machine.

        Parts of another formula or promise go, too.
        """
        others = self.parts if (self.title, self.promise) == (claim.title, evidence.promise) else {}
        known = others.get(kernel.device)
        kept = known.evidence if known and known.kernel == kernel and not known.is_edited else ()
        found = {one.dtype: one for one in (*kept, evidence)}
        ordered = tuple(found[dtype] for dtype in DTYPES if dtype in found)
        parts = {**others, kernel.device: Part(kernel, ordered)}
        return Certificate(claim.title, evidence.promise, dict(sorted(parts.items())))

    def with_digest(self, device: str, digest: str) -> Certificate:
        """Return the certificate with another digest of a device's kernels, which are the same ones."""
        part = self.parts[device]
        renewed = replace(part, kernel=replace(part.kernel, digest=digest))
        return replace(self, parts={**self.parts, device: renewed})


def path_of(module: Path, of: str = "") -> Path:
    """Return the path of the certificate of a module's kernel: of the last one, or of one by its title."""
    return module.with_suffix(f".{of}{SUFFIX}" if of else SUFFIX)
