"""Launch configurations of dense tensors on CUDA: `launch.toml` as values.

A row has, for tensors up to a size, the threads of a block, the 16-byte vectors of each tensor a thread,
and the distance in blocks of the L2 prefetch. There are rows for a chip (sm_90), a launch class
(`cost.py`) or one kernel by its name, and the bits of an element. `heavy_unary` are the kernels of the
class heavy that read one tensor; without rows of their own they take those of heavy. A chip without rows
takes those of the next older one, and a chip older than all takes the oldest's; so a table lists only what
differs.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from fusegen.errors import BadLaunches, Span

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = Path(__file__).with_name("launch.toml")
OWN = "launch.toml"  # a project's own, beside its specs
BITS = (16, 32, 64)
FEWEST_THREADS, MOST_THREADS, THREADS = 32, 256, "a multiple of 32 up to 256"
VECTORS = (1, 2, 4)
MOST_KIB, MOST_AHEAD = 2**40, 2**16
UNARY = "_unary"  # behind a class: its kernels that read one tensor
BROADCAST = "broadcast"  # the class of tensors that are not all dense in one layout
THIN, TILES = "thin", [(t, v) for t in (128, 256) for v in (2, 4)]  # of convolutions: threads, vectors
HEAD = """\
Launch configurations of dense tensors on CUDA: for tensors up to a size in KiB, the threads of a block, the
16-byte vectors of each tensor a thread, and the distance in blocks of the L2 prefetch. There are rows by
chip, by launch class (schedule/cost.py; _unary: of kernels that read one tensor) or by kernel, and by the
bits of an element. A row that a chip lacks is that of the next older chip. `fusegen tune` measures the
rows; those of broadcast, for tensors of several shapes, it measures on forward kernels. A vector of thin,
which convolutions of few input channels take, is 8 pixels of a warp."""
CHIP, WIDTH = re.compile(r"sm_([1-9]\d{1,2})"), re.compile(r"bits(16|32|64)")


@dataclass(frozen=True, slots=True)
class Launch:
    """One row."""

    kib: int | None  # of one tensor, at most, in units of 1,024 bytes; none for any size
    threads: int  # of a block
    vectors: int  # of each tensor, a thread
    # the distance in blocks of the L2 prefetch; 0 for none. It takes an instruction of sm_90; older chips
    # do not prefetch
    ahead: int = 0

    def __str__(self) -> str:
        return f"{self.threads}x{self.vectors}" + (f"+{self.ahead}" if self.ahead else "")


class LaunchClass(Enum):
    """The kernels that take the same rows: by what an element costs, or by the method that gives it."""

    LIGHT = "light"  # few instructions for each byte that is moved
    MEDIUM = "medium"
    HEAVY = "heavy"  # about as many as are issued while the bytes are moved, or more
    VERIFIED = "verified"  # 16-bit results whose rounding is verified
    TABLE = "table"  # one of all 65,536 results
    CUBIC = "cubic"  # a piecewise cubic on the uniform grid
    CUBIC_SLOPE = "cubic_slope"  # one that the incoming gradient is multiplied with
    FINE_CUBIC = "fine_cubic"  # a piecewise cubic on the grid of octaves
    FINE_CUBIC_SLOPE = "fine_cubic_slope"
    PLAIN_DOUBLE = "plain_double"  # single-word double


CLASSES = frozenset(each.value for each in LaunchClass)
Launches = tuple[Launch, ...]  # by size, the last for any
Key = tuple[int, str, int]  # chip; class or kernel; bits


@dataclass(frozen=True)
class Table:
    """Rows by what they are for."""

    chips: dict[int, str]  # what is said of each chip: where its rows come from
    rows: dict[Key, Launches]  # by chip, class or kernel, and bits

    def over(self, other: Table) -> Table:
        """These rows, and another table's where this one has none; those for a class are for all of it."""
        said = {(chip, name + UNARY, bits) for chip, name, bits in self.rows}
        others = {key: rows for key, rows in other.rows.items() if key not in said}
        return Table(other.chips | self.chips, others | self.rows)

    def chosen(
        self,
        kernel: str,  # its name
        cost: str,  # its class, as `class_of` has it
        bits: int,  # of an element
    ) -> dict[int, Launches]:
        """A kernel's rows by chip, oldest first: its own, else its class's; none like the chip's before."""
        found: dict[int, Launches] = {}
        last: Launches = ()
        for chip in sorted(self.chips):
            names = (kernel, cost, cost.removesuffix(UNARY))
            own = (self.rows[chip, name, bits] for name in names if (chip, name, bits) in self.rows)
            rows = next(own, last)
            if rows != last:
                found[chip] = last = rows
        return found

    def at(self, chip: int, kernel: str, cost: str, bits: int) -> Launches:
        """Return the rows that a kernel takes on a chip."""
        found = self.chosen(kernel, cost, bits)
        return found[max((c for c in found if c <= chip), default=min(found))]


def class_of(cost: LaunchClass, reads: int) -> str:
    """Return the class whose rows a kernel takes, by the tensors that it reads."""
    return cost.value + UNARY * (reads == 1)


def special_rows(table: Table, kernel: str, name: str, bits: int) -> dict[int, Launches]:
    """Return the rows of a kernel for BROADCAST or THIN, by chip, oldest first."""
    return table.chosen(f"{kernel}_{name}", name, bits) or shipped().chosen(name, name, bits)


def shipped() -> Table:
    """Return the table that comes with fusegen."""
    return read(SHIPPED)


def beside(folder: Path) -> Table:
    """Return the table for the specs of a folder: its own rows over those that come with fusegen.

    Raises:
        BadLaunches: a table is not as it should be.
    """
    own = folder / OWN
    return read(own).over(shipped()) if own.is_file() else shipped()


def read(path: Path) -> Table:
    """Return the table in a file.

    Raises:
        BadLaunches: it is no TOML, or a row is not as it should be.
    """
    shown = path.name if path == SHIPPED else path.as_posix()
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # which undecodable text and TOML are, too
        raise BadLaunches(Span(shown), why=str(error).splitlines()[0]) from None
    except RecursionError:
        raise BadLaunches(Span(shown), why="it is nested too deeply") from None


def parse(text: str) -> Table:
    """Return the table that a text says.

    Raises:
        ValueError: what is wrong with it.
    """
    chips: dict[int, str] = {}
    rows: dict[Key, Launches] = {}
    for name, chip in tomllib.loads(text).items():
        number = CHIP.fullmatch(name)
        if not number or not isinstance(chip, dict):
            raise ValueError(f"{name} is no chip such as [sm_90]")
        which = int(number[1])
        chips[which] = str(chip.pop("source", ""))
        for key, widths in chip.items():
            if not isinstance(widths, dict):
                raise ValueError(f"{name}.{key} is no table")
            for width, entries in widths.items():
                bits = WIDTH.fullmatch(width)
                if not bits:
                    raise ValueError(f"{name}.{key}.{width} is none of bits16, bits32 and bits64")
                rows[which, key, int(bits[1])] = _launches(f"{name}.{key}.{width}", entries)
    return Table(chips, rows)


def _launches(name: str, entries: Any) -> Launches:
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{name} has no rows")
    rows = tuple(_launch(name, entry) for entry in entries)
    sizes = [row.kib for row in rows[:-1] if row.kib]
    if rows[-1].kib is not None or len(sizes) < len(rows) - 1 or sizes != sorted(set(sizes)):
        raise ValueError(f"the rows of {name} have no growing kib, and none in the last")
    return rows


def _launch(name: str, entry: Any) -> Launch:
    needed, known = {"threads", "vectors"}, {field.name for field in fields(Launch)}
    if not isinstance(entry, dict) or not needed <= entry.keys() <= known:
        raise ValueError(f"a row of {name} needs threads and vectors, and may have kib and ahead")
    row = Launch(entry.get("kib"), entry["threads"], entry["vectors"], entry.get("ahead", 0))
    if row.threads not in range(FEWEST_THREADS, MOST_THREADS + 1, FEWEST_THREADS):
        raise ValueError(f"{name} has {row.threads!r} threads, and not {THREADS}")
    if row.vectors not in VECTORS:
        raise ValueError(f"{name} has {row.vectors!r} vectors, and not 1, 2 or 4")
    if name.split(".")[1].endswith(THIN) and (row.threads, row.vectors) not in TILES:
        raise ValueError(f"{name} has a row that is none of 128 or 256 threads with 2 or 4 vectors")
    if row.kib is not None and not (type(row.kib) is int and 0 < row.kib <= MOST_KIB):
        raise ValueError(f"{name} has a kib of {row.kib!r}")
    if type(row.ahead) is not int or not 0 <= row.ahead <= MOST_AHEAD:
        raise ValueError(f"{name} is {row.ahead!r} blocks ahead, and not 0 to {MOST_AHEAD}")
    return row


def text(table: Table) -> str:
    """Return a table as a file, sorted."""
    lines = [f"# {line}" for line in HEAD.splitlines()]
    for chip in sorted(table.chips):
        lines += ["", f"[sm_{chip}]", f'source = "{table.chips[chip]}"']
        for key in sorted({key for which, key, _ in table.rows if which == chip}, key=_order):
            lines += ["", f"[sm_{chip}.{key}]"]
            for bits in BITS:
                if (chip, key, bits) in table.rows:
                    lines.append(f"bits{bits} = {_entries(table.rows[chip, key, bits])}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _order(key: str) -> tuple[bool, str]:
    """Return classes first."""
    return key.removesuffix(UNARY) not in CLASSES | {BROADCAST, THIN}, key


def _entries(rows: Launches) -> str:
    said = []
    for row in rows:
        size, ahead = f"kib = {row.kib}, " if row.kib else "", f", ahead = {row.ahead}" if row.ahead else ""
        said.append(f"{{ {size}threads = {row.threads}, vectors = {row.vectors}{ahead} }}")
    return f"[{said[0]}]" if len(said) == 1 else "[\n  " + ",\n  ".join(said) + ",\n]"
