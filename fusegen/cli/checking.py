"""The command that compares generated files with their specs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli import github, printing, stat
from fusegen.cli.json_records import JSON, Record, record
from fusegen.cli.options import SEVERAL_SPECS, WHERE, schema_file, specs_folder
from fusegen.errors import FusegenError, SpecErrors, counted

if TYPE_CHECKING:
    from fusegen.core.spec import Spec
    from fusegen.core.write import Change
    from fusegen.project.outputs import Outputs

REFERENCE_LIBRARIES = ("torch", "python-flint")  # which comparisons of references with formulas need
PRINTER = f"{__name__}.printer"  # of mistakes, among the meta data of a click context


def _choose(ctx: click.Context, option: click.Parameter, value: str) -> str:
    """Print the mistakes of the command as annotations, if that is the format."""
    if value == "github":
        ctx.meta[PRINTER] = _print_mistakes
    return value


def _print_mistakes(error: FusegenError | SpecErrors) -> None:
    click.echo("\n".join(github.of_error(error)))
    github.append_summary((), [str(error)])


@click.command()
@SEVERAL_SPECS
@WHERE
@JSON
@click.option(
    "--stat", "in_short", is_flag=True, help="Print a line for each difference instead of a diff."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "github")),
    default="text",
    callback=_choose,
    help="The format; github prints annotations and appends a summary to GITHUB_STEP_SUMMARY.",
)
def check(specs: tuple[str, ...], output: Path, as_json: bool, in_short: bool, form: str) -> None:
    """Compare generated/ and specs/schema.json with the specs.

    If SPECs are named, only their modules are compared, and the runtime and the manifest beside them.
    Stale certificates are reported, and the number of modules without one; those are no differences. With
    PyTorch and python-flint references are compared with formulas, too.
    """
    chosen = [form] * (form != "text") + ["json"] * as_json + ["stat"] * in_short
    if len(chosen) > 1:
        raise click.UsageError("--json, --stat and --format github exclude each other")
    records: list[Record] = []
    for found in _found(output, specs):
        records.append(found)
        printing.FORMS[chosen[0] if chosen else "text"](found)
    if form == "github":
        github.append_summary(records)
    if records[-1]["differences"] or records[-1]["complaints"]:
        sys.exit(1)


def _found(output: Path, named: tuple[str, ...]) -> Iterator[Record]:
    """Yield the differences and complaints, or without any the notes; then a summary."""
    from fusegen.codegen.printed import Binding
    from fusegen.language import library
    from fusegen.project import modules, outputs

    specs = library.find_all(named, specs_folder())
    folder = outputs.opened(output, specs_folder()).configured()
    built = modules.built(specs, output, Binding(folder.binding))
    texts = {path: found.text for path, found in built.items()}
    kernels = {path: found.kernels for path, found in built.items()}
    of_modules = dict(zip(texts, specs, strict=True))
    differences = _changes(folder, texts, folder.manifest(texts, specs, kernels))
    differences += () if named else _changes_of_schema()
    counts = Counter({"added": 0, "removed": 0})
    for change in differences:
        path = change.path
        touched = stat.kernels(change, folder.kernels(path), kernels[path]) if path in kernels else {}
        found = _difference(change, of_modules.get(path), touched)
        counts.update({key: found[key] for key in counts})
        yield found
    complaints = list(() if named else folder.complaints(texts))
    if not differences and not complaints:
        loaded = {path: library.load(path) for path in specs}
        wrong, notes = _certificates(dict(zip(texts, loaded.values(), strict=True)), output)
        complaints += wrong
        alone = () if named else folder.uncertified()
        notes += [f"{path}: there is no module of this certificate; delete it" for path in alone]
        yield from (record("certificate", text=text) for text in notes)
        if not wrong:
            yield from _references(dict(zip(loaded, texts.values(), strict=True)), loaded, output)
    yield from (record("complaint", text=text) for text in complaints)
    yield record(
        "summary",
        modules=len(texts),
        differences=len(differences),
        complaints=len(complaints),
        uncertified=_uncertified(texts),
        **counts,
    )


def _changes(
    folder: Outputs, texts: dict[Path, str], of_manifest: tuple[Change, ...]
) -> tuple[Change, ...]:
    """Return the changes of modules, their runtime, the manifest, and the file of a package."""
    from fusegen.core import write
    from fusegen.project import package_folder

    of_package = package_folder.changed(folder, texts) if package_folder.is_package(folder) else ()
    return (*write.changes(texts), *folder.runtime(texts), *of_manifest, *of_package)


def _changes_of_schema() -> tuple[Change, ...]:
    """Return the change of the schema, if there is one."""
    from fusegen.core import write
    from fusegen.language.schema import schema_text

    return write.changes({schema_file(): schema_text()}) if schema_file().exists() else ()


def _difference(change: Change, spec: Path | None, touched: Mapping[str, list[str]]) -> Record:
    """Return the difference of a file, with the spec if it is a module, and the kernels that it touches."""
    from fusegen.evidence.certify import certificate_state
    from fusegen.language import library

    states = certificate_state.of_spec(change.path, library.load(spec)) if spec else {}
    return record(
        "difference",
        file=str(change.path),
        change=change.kind,
        diff=change.diff(),
        spec=spec.as_posix() if spec else "",
        line=_line(spec) if spec else 0,
        **stat.lines(change),
        kernels=touched,
        certificate=stat.certificates(states, touched),
    )


def _line(spec: Path) -> int:
    """Return the line of a spec that has its formula or its chain, or the first."""
    texts = spec.read_text(encoding="utf-8").splitlines()
    return next((k for k, text in enumerate(texts, 1) if text.startswith(("formula", "chain"))), 1)


def _certificates(specs: Mapping[Path, Spec], output: Path) -> tuple[list[str], list[str]]:
    """Return sentences on certificates that are wrong, and on those that prove nothing of their module."""
    from fusegen.evidence.certify import certificate_state

    wrong: list[str] = []
    notes: list[str] = []
    for path, spec in specs.items():
        name = path.relative_to(output).with_suffix("").as_posix()
        found = certificate_state.of_spec(path, spec)
        for told, among in (
            (wrong, certificate_state.WRONG),
            (notes, certificate_state.SENTENCES.keys() - set(certificate_state.WRONG)),
        ):
            told += certificate_state.sentences(path, name, {d: s for d, s in found.items() if s in among})
    return wrong, notes


def _uncertified(modules: Iterable[Path]) -> int:
    from fusegen.evidence.certify import certificate

    return sum(not certificate.path_of(path).exists() for path in modules)


def _references(texts: Mapping[Path, str], specs: Mapping[Path, Spec], output: Path) -> Iterator[Record]:
    """Compare references that only PyTorch can evaluate, once, or say that it is missing."""
    from fusegen.compiler.reference_check import needs_torch
    from fusegen.project import compile_cache

    pending = {path: text for path, text in texts.items() if needs_torch(specs[path])}
    missing = [name for name in ("torch", "flint") if find_spec(name) is None]
    if pending and missing:
        number, needed = counted(len(pending), "reference"), " and ".join(missing)
        yield record("reference", text=f"{number} not compared: this needs {needed}")
    elif pending:
        key = compile_cache.key(
            "references", *map(metadata.version, REFERENCE_LIBRARIES), *pending.values()
        )
        if not compile_cache.recall(key):
            from fusegen.evidence.certify.kernels_of_modules import require_references
            from fusegen.project import build

            require_references([build.compiled_either(path) for path in pending], output)
            compile_cache.remember(key, True)
