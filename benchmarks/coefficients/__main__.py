"""The error of arrays of coefficients, and the coefficients made again.

    python -m benchmarks.coefficients              # a row for each array: its interval, bound and error
    python -m benchmarks.coefficients tanh_float   # its coefficients, and those made again

A polynomial that interpolates comes out to the bit. Of minimax ones several have an error within the
bound, as coefficients are rounded one after the other: another one of these comes out.
"""

from __future__ import annotations

import sys

from benchmarks.coefficients.rows import ROWS


def main(names: list[str]) -> None:
    """Print the table, or the coefficients of some rows."""
    if not names:
        print("| array | from | to | method | bound | error |\n|---|---|---|---|---|---|")
        for name, row in ROWS.items():
            low, high = row.interval
            error = f"2^{row.error(row.coefficients):.2f}"
            print(f"| {name} | {low} | {high} | {row.method} | 2^{row.bound} | {error} |")
    for name in names:
        row = ROWS[name]
        made = row.made() or []
        print(row.note(name), f"\n// {row.method}: 2^{row.error(row.coefficients):.2f}")
        for place, own in enumerate(row.coefficients):
            print(f"  {own!r:26}", *map(repr, map(float, made[place : place + 1])))
        if made:
            print(f"// made again: 2^{row.error(made):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
