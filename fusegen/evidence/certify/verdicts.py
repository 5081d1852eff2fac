"""A verdict in words: the broken promises, and the worst inputs."""

from collections.abc import Iterator

from fusegen.evidence.certify import exact
from fusegen.evidence.certify.certification import Verdict

MOST_TOLD = 2  # inputs of an output beside a broken promise


def broken(verdict: Verdict) -> Iterator[str]:
    """Yield the broken promises."""
    for sentence in verdict.evidence.broken:
        yield f"{verdict.name} on {verdict.device} in {verdict.evidence.dtype}: {sentence}"


def worst(verdict: Verdict, most: int = exact.MOST_WORST) -> Iterator[str]:
    """Yield the inputs of the largest errors, at most so many an output, each with a command for it."""
    place = f"--device {verdict.device} --dtype {verdict.evidence.dtype}"
    for output in verdict.evidence.outputs:
        for row in output.given.worst[:most]:
            if row.rows:
                yield f"  {output.name} {row.ulp:.4g} ulp in rows of the kind and length {row.rows}"
                continue
            at = " ".join(f"--at {x}" for x in row.inputs)
            yield f"  {output.name} {row.ulp:.4g} ulp: fusegen certify {verdict.name} {place} {at}"


def told(verdict: Verdict) -> Iterator[str]:
    """Yield the broken promises, and the worst inputs with a command that shows each again."""
    evidence = verdict.evidence
    yield from broken(verdict)
    yield from worst(verdict, MOST_TOLD)
    for sample in evidence.scalars:
        values = ", ".join(f"{name} = {value:.6g}" for name, value in sample.scalars)
        if any(sentence.startswith(f"with {values}: ") for sentence in evidence.broken):
            for output in sample.outputs:
                for row in output.given.worst:
                    at = ", ".join(row.inputs)
                    yield f"  with {values}: {output.name} {row.ulp:.4g} ulp at {at}"
