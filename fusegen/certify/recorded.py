"""The evidence that a certificate holds, read back. This needs no torch."""

from __future__ import annotations

from fusegen.certify.certificate import Json
from fusegen.certify.findings import (
    Accuracy,
    Evidence,
    Output,
    Relations,
    Sample,
    Special,
    Worst,
    four_digits,
)


def evidence(dtype: str, shown: Json) -> Evidence:
    """The evidence that was written down; not which reference is another function.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: it is none.
    """
    return Evidence(
        dtype,
        int(shown["inputs"]),
        bool(shown["every"]),
        int(shown.get("undecided", 0)),
        tuple(_found_outputs(shown)),
        scalars=tuple(_found_sample(sample) for sample in shown.get("scalars", ())),
        promise=str(shown["promise"]),
        broken=tuple(map(str, shown["broken"])),
        relations=_found_relations(shown.get("relations", {})),
    )


def _found_outputs(shown: Json) -> list[Output]:
    return [
        Output(
            name,
            _found_accuracy(held["given"]),
            _found_accuracy(held["eager"]) if "eager" in held else None,
            int(held["bits_differ"]),
            int(held["worse_than_eager"]),
            _found_range(held["range"]) if "range" in held else None,
            tuple(_found_special(place, row) for place, row in held.get("specials", {}).items()),
        )
        for name, held in shown.items()
        if name == "value" or name.startswith("gradient of ")
    ]


def _found_sample(shown: Json) -> Sample:
    values = tuple((str(name), float(value)) for name, value in shown["values"].items())
    return Sample(int(shown["inputs"]), tuple(_found_outputs(shown)), values)


def _found_accuracy(held: Json) -> Accuracy:
    rows = [Worst(tuple(row[:-3]), float(row[-3]), row[-2], row[-1]) for row in held["worst"]]
    if four_digits(float(held["ulp"])) != (rows[0].ulp if rows else 0.0):
        raise ValueError("the largest error is not that of the worst input")
    return Accuracy(
        tuple(rows),
        int(held["misrounded"]),
        int(held.get("beyond_neighbour", 0)),
        int(held.get("overflows", 0)),
        int(held.get("monotonicity_breaks", 0)),
    )


def _found_relations(held: Json) -> Relations:
    return Relations(int(held.get("kept", 0)), tuple(map(str, held.get("broken", ()))))


def _found_range(held: list[str]) -> tuple[float, float, float, float]:
    low, high, real_low, real_high = map(float, held)
    return low, high, real_low, real_high


def _found_special(place: str, row: list[str]) -> Special:
    given, eager, real = row
    of, _, value = place.rpartition("=")
    return Special(value, given, eager, real, of)
