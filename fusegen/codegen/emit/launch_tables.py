"""The launch tables of a module's CUDA kernels, as C++."""

from collections.abc import Iterable, Mapping

from fusegen.codegen.printed import LaunchPlan
from fusegen.core.launch import Launches

WIDTH = 120  # of a line
Names = dict[tuple[str, tuple[str, ...]], str]  # of tables, by class and rows


def members(plans: Mapping[str, tuple[LaunchPlan, ...]]) -> tuple[list[str], dict[str, list[str]]]:
    """Each table of rows once, and the members of each type that say which ones it takes."""
    names: Names = {}
    dense = {functor: _dense(functor, own, names) for functor, own in plans.items()}
    every = [plan for own in plans.values() for plan in own]
    prefetches = any(row.ahead for plan in every for rows in plan.launches.values() for row in rows)
    row = "PrefetchLaunch" if prefetches else "Launch"
    tables = [_table(row, name, table) for (_, table), name in names.items()]
    names = {}
    broadcast = {functor: _broadcast(functor, own, names) for functor, own in plans.items()}
    tables += [_table("Launch", name, table) for (_, table), name in names.items()]
    found = {functor: [f"static constexpr const {row} {taken}"] for functor, taken in dense.items()}
    for functor, taken in broadcast.items():
        found[functor] += [f"static constexpr const Launch {taken}"] if taken else []
    return tables, found


def library(
    form: str,  # the name of its rows
    # these, by the width of elements, then by chip, oldest first
    launches: Mapping[int, Mapping[int, Launches]],
) -> tuple[list[str], list[str]]:
    """Return the tables of a form that is a library, and their names for elements of 16 and of 32 bits."""
    rows = {bits: _rows(by_chip) for bits, by_chip in launches.items()}
    several = len(set(rows.values())) > 1
    names = {bits: f"{form.upper()}{bits if several else ''}" for bits in rows}
    tables = dict.fromkeys(_table("Launch", names[bits], table) for bits, table in rows.items())
    any_ = next(iter(names.values()))
    return [*tables], [names.get(bits, any_) for bits in (16, 32)]


def _dense(functor: str, plans: tuple[LaunchPlan, ...], names: Names) -> str:
    taken = []
    for plan in plans:
        name = _named(plan.cost.upper(), _rows(plan.launches, "ahead"), (plan, functor), names)
        taken.append(f"*BITS{plan.bits} = {name}")
    return ", ".join(taken)


def _broadcast(functor: str, plans: tuple[LaunchPlan, ...], names: Names) -> str:
    """Return the rows for tensors that are not all dense in one layout, which prefetch nothing."""
    taken = []
    for plan in plans:
        if plan.broadcast:
            name = _named("BROADCAST", _rows(plan.broadcast), (plan, functor), names)
            taken.append(f"*BROADCAST{plan.bits} = {name}")
    return ", ".join(taken)


def _rows(launches: Mapping[int, Launches], *further: str) -> tuple[str, ...]:
    return tuple(
        f"{chip}, {row.kib or 'ANY'}, {row.threads}, {row.vectors}"
        + "".join(f", {getattr(row, name)}" for name in further if getattr(row, name))
        for chip, rows in launches.items()
        for row in rows
    )


def _named(cost: str, table: tuple[str, ...], of: tuple[LaunchPlan, str], names: Names) -> str:
    """Return the name of a table, which is a new one if no table of its class has its rows."""
    plan, functor = of
    free = (cost, f"{cost}_{plan.bits}", f"{cost}_{plan.bits}_{functor.upper()}")
    return names.setdefault((cost, table), next(name for name in free if name not in names.values()))


def _table(row: str, name: str, rows: Iterable[str]) -> str:
    lines = [f"constexpr {row} {name}[] = {{"]
    for each in (*(f"{{{one}}}, " for one in rows), "{}};"):
        if len(lines[-1] + each.rstrip()) > WIDTH:
            lines = [*lines[:-1], lines[-1].rstrip(), "    "]
        lines[-1] += each
    return "\n".join(lines)
