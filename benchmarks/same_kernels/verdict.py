"""The verdict on two versions of a module: the same kernels on a device or not, and what shows it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import torch

from benchmarks.same_kernels import several
from benchmarks.same_kernels.ptx import CHIPS, compiled, differing
from benchmarks.same_kernels.renames import NONE, Renames
from benchmarks.same_kernels.results import counted, result, results
from benchmarks.same_kernels.text import Recipe, bare, device_part, host_texts, moved, python_of
from benchmarks.same_kernels.versions import Pair, recipes
from fusegen.core.header_files import without_comments
from fusegen.evidence.certify.digest import kernel_digest
from fusegen.evidence.certify.host import machine

Found = tuple[tuple[str, ...], tuple[str, ...]]  # what is the same, and what is not


@dataclass(frozen=True)
class Verdict:
    """The verdict on a module's kernels on one device."""

    # name, device: whose
    name: str
    device: str
    proofs: tuple[str, ...] = ()  # what was compared and is the same
    wrong: tuple[str, ...] = ()  # what is not the same, or why nothing is known
    moved: tuple[str, ...] = ()  # what the host of CUDA decides by another text
    chips: tuple[str, ...] = ()  # those that the proof holds for, as certificates name them; empty for all

    @property
    def same(self) -> bool:
        """True if the kernels are proved to be the same."""
        return not self.wrong and not self.moved

    def reviewed(self) -> Verdict:
        """Return the verdict after somebody has read what moved."""
        read = (f"host text reviewed: {', '.join(self.moved)}",) * bool(self.moved)
        return replace(self, proofs=self.proofs + read, moved=())

    def __str__(self) -> str:
        proved = f"unchanged ({'; '.join(self.proofs)})"
        if self.same:
            return proved
        host = (f"host text of CUDA moved: {', '.join(self.moved)}",) * bool(self.moved)
        rest = (f"kernels {proved}",) * bool(self.proofs)
        return f"changed: {'; '.join((*self.wrong, *host, *rest))}"


def verdict(pair: Pair, device: str, renames: Renames = NONE) -> Verdict:
    """Compare the two versions for ``cpu`` or ``cuda``; what cannot be compared counts as changed."""
    whole = zip(pair.texts, pair.runtimes, strict=True)
    digests = {kernel_digest(text, device, runtime) for text, runtime in whole}
    if len(digests) == 1:
        return Verdict(pair.name, device, ("text",))
    try:
        by_text = by_names(pair, device, renames)
        has_several = len(several.parts(pair.name, "")) > 1
        if by_text.same or renames != NONE or (has_several and (device == "cpu" or not _same_python(pair))):
            return by_text
        return on_cpu(pair) if device == "cpu" else on_cuda(pair)
    except Exception as error:
        return Verdict(pair.name, device, wrong=(str(error).partition("\n")[0] or type(error).__name__,))


def by_names(pair: Pair, device: str, renames: Renames) -> Verdict:
    """By the text, with names replaced; neither kernels are compiled nor results compared.

    Raises:
        Unproved: a name may be captured.
    """
    old, now = (several.parts(pair.name, text) for text in pair.texts)
    other = [
        title
        for title in now
        if not several.same_text((old[title], now[title]), pair.runtimes, device, renames)
    ]
    if not other:
        proof = "text with names replaced" if renames != NONE else "text but for what no code is made of"
        return Verdict(pair.name, device, (proof,))
    of = f" of {' and '.join(title or 'the last kernel' for title in other)}" * (len(now) > 1)
    return Verdict(pair.name, device, wrong=(f"more than these names{of}",))


def on_cpu(pair: Pair) -> Verdict:
    """By results under the instruction set of this computer."""
    proofs, wrong = computed(pair, "cpu")
    return Verdict(pair.name, "cpu", proofs, wrong, chips=(machine("cpu").chip,))


def on_cuda(pair: Pair) -> Verdict:
    """Return kernels by their text, else by PTX; the rest by the host's text; Python by results, too."""
    old, now = pair.ask(recipes, "cuda")
    other = [key for key in now if _for_device(old[key]) != _for_device(now[key])]
    found: list[Found] = [(("text of kernels",), ())]
    if other:
        found = [by_ptx([old[key] for key in other], [now[key] for key in other])]
    if not _same_python(pair):
        found.append(computed(pair, "cuda" if torch.cuda.is_available() else "cpu"))
    proofs, wrong = (tuple(one for each in part for one in each) for part in zip(*found, strict=True))
    told = [host_texts(text, each) for text, each in zip(pair.texts, (old, now), strict=True)]
    return Verdict(pair.name, "cuda", proofs, wrong, moved(*told), CHIPS if other else ())


def by_ptx(old: Iterable[Recipe], now: Iterable[Recipe]) -> Found:
    """Compare the kernels that nvcc makes by some recipes, in pairs."""
    with ThreadPoolExecutor() as pool:
        pairs = list(zip(pool.map(compiled, old), pool.map(compiled, now), strict=True))
    count, wrong = sum(len(made) for _, made in pairs), sum(differing(*pair) for pair in pairs)
    if count == 0:
        return (), ("nvcc makes no kernels",)
    return ((), (f"PTX of {wrong} of {count} kernels",)) if wrong else ((f"PTX of {count} kernels",), ())


@cache
def computed(pair: Pair, device: str) -> Found:
    """Compare what both versions compute on a device."""
    old, now = pair.ask(results, device)
    labels = [one for one in old.digests | now.digests if old.digests.get(one) != now.digests.get(one)]
    if not labels:
        return (f"results over {now.inputs:,} inputs on {device}",), ()
    first = next((label for label in labels if label in old.digests and label in now.digests), None)
    told = counted(*pair.ask(result, device, *first)) if first else "only one version has it"
    share = f"{len(labels)} of {len(now.digests)} outputs on {device}"
    return (), (f"{share}, first {' '.join(first or labels[0])}: {told}",)


def _same_python(pair: Pair) -> bool:
    return len({python_of(text) for text in pair.texts}) == 1


def _for_device(recipe: Recipe) -> str:
    """Return what decides the kernels that nvcc makes; flags of ptxas count as text of the host."""
    flags = [flag for flag in recipe["extra_cuda_cflags"] if not flag.startswith("-Xptxas=")]
    text = device_part(without_comments("\n".join(recipe["cuda_sources"])))
    return bare({"cuda_sources": [text], "extra_cuda_cflags": flags})
