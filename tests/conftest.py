"""Shared parts of the tests: a workshop to build specs in, golden texts, one profile for random tests."""

from __future__ import annotations

import functools
import gc
import logging
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import compiler
import pytest
import together
from budget import FULL, examples

if TYPE_CHECKING:
    from click.testing import Result

    from fusegen.compiler.pipeline import Compiled

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"

ALONE = ("test_gpu.py",)  # what runs with torch and pytest only
NEEDED = ("click", "flint", "hypothesis", "jinja2", "jsonschema", "mpmath", "rich", "sympy", "yaml")
MISSING = [name for name in NEEDED if find_spec(name) is None]
LEFT_OUT = pytest.StashKey[int]()  # how many tests marked `full` do not run
OF_RESULTS = (  # which compile the same texts, and nothing of the compiler is another one there
    "test_ahead.py",
    "test_ahead_files.py",
    "test_backend.py",
    "test_bench.py",
    "test_capture.py",
    "test_certify_cli.py",
    "test_certify_contract.py",
    "test_certify_rows.py",
    "test_certify_several.py",
    "test_clean.py",
    "test_cli.py",
    "test_config.py",
    "test_differences.py",
    "test_explain.py",
    "test_hub.py",
    "test_lift_batches.py",
    "test_lift_clocks.py",
    "test_lift_dropouts.py",
    "test_lift_norms.py",
    "test_lift_reports.py",
    "test_lift_rows.py",
    "test_names.py",
    "test_network.py",
    "test_network_state.py",
    "test_onnx.py",
    "test_outputs.py",
    "test_package.py",
    "test_pairs.py",
    "test_partial.py",
    "test_projects.py",
    "test_pybind.py",
    "test_records.py",
    "test_renames.py",
    "test_report.py",
    "test_runtime.py",
    "test_shared_ahead.py",
    "test_standalone.py",
    "test_subfolders.py",
    "test_training.py",
)
INDUCTOR = {  # where its cache is new, its tests of vectors take 6 s; each of its processes, 2 s
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
STRICT = pytest.mark.filterwarnings(
    "error", "ignore:.torch.jit.script.*:DeprecationWarning"
)  # by torch._inductor itself

if "hypothesis" not in MISSING:
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "fusegen",
        max_examples=examples(100),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("fusegen")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, of the tests for a GPU, those that compile specs where the compiler cannot run."""
    compiles = collection_path.suffix == ".py" and collection_path.name not in ALONE
    return True if compiles and MISSING and config.option.markexpr == "gpu" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Have every second worker import all tests from the last on, so that one rewrites what both read."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    whole = session.config.args == session.config.getini("testpaths")
    if whole and not MISSING and int(worker.removeprefix("gw")) % 2:
        for path in sorted(Path(__file__).parent.glob("test_*.py"), reverse=True):
            import_module(path.stem)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = 0
    config.pluginmanager.register(together)
    os.environ.update(INDUCTOR)
    os.environ["FUSEGEN_PROGRESS"] = "none"  # builds on stderr, of which tests read the rest
    os.environ["FUSEGEN_BACKGROUND"] = "0"  # where a test asks for it, it is built


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests marked `full`, unless FUSEGEN_FULL is set or only tests for a GPU run."""
    if FULL or config.option.markexpr == "gpu":
        return
    leave_rows(items)
    full = [item for item in items if item.get_closest_marker("full")]
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=full)
    config.stash[LEFT_OUT] = len(full)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = len(full)


def leave_rows(items: Iterable[pytest.Item]) -> None:
    """Marks `full`, of each test marked `few`, the rows beyond those that the mark keeps."""
    tables = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        others = item.get_closest_marker("gpu") or item.get_closest_marker("full")
        if isinstance(item, pytest.Function) and item.get_closest_marker("few") and not others:
            tables[item.nodeid.partition("[")[0]].append(item)
    for rows in tables.values():
        found = diagonal([row.callspec._idlist for row in rows])
        count = min([len(found), *next(rows[0].iter_markers("few")).args])
        kept = {found[k * len(found) // count] for k in range(count)}
        for k in {*range(len(rows))} - kept:
            rows[k].add_marker("full")


def diagonal(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of a product of tables, as few rows as hold every row of each table; all rows of one table.

    Args:
        rows: for each row, what tells the row of each table.

    Returns:
        The numbers of the rows, ascending.
    """
    tables = [list(dict.fromkeys(table)) for table in zip(*rows, strict=True)]
    longest = max(map(len, tables))
    wanted = {tuple(table[k % len(table)] for table in tables) for k in range(longest)}
    return [k for k, row in enumerate(rows) if tuple(row) in wanted] or [0]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the count of a worker of pytest-xdist; every worker collects the same tests."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports how many tests `make test` leaves to `make test-full`."""
    count = terminalreporter.config.stash[LEFT_OUT]
    if count:
        terminalreporter.write_line(f"{count} tests marked `full` were left out; FUSEGEN_FULL=1 runs them")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from what was imported, which lives as long as the run."""
    gc.freeze()


def pytest_report_header() -> list[str]:
    """Say so."""
    return [f"missing: {', '.join(MISSING)}; with -m gpu only {', '.join(ALONE)} runs"] if MISSING else []


def pytest_itemcollected(item: pytest.Item) -> None:
    """Turn warnings into errors in every test, and not in the plugins that happen to be installed."""
    item.add_marker(STRICT, append=False)  # so that the marks of a test come later and win


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden/")


@pytest.fixture(scope="session", autouse=True)
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder of builds for the whole run, whatever the number of workers, and its compiler."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "extensions"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        if not os.environ.get("CXX"):
            patch.setenv("CXX", str(compiler.script(folder)))
            bare = compiler.script(folder, compiler.BARE)  # for processes that name no compiler
            patch.setenv("PATH", str(bare.parent), prepend=os.pathsep)
        yield folder


@pytest.fixture
def optimised(extensions: Path) -> Iterator[None]:
    """Specs of a test's own are built with the flags of the runtime, in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(extensions / "optimised"))
        patch.setenv(compiler.LEVEL, "1")
        yield


def library_spec(name: str) -> Compiled:
    """A spec of the library, compiled once in a process, and again under estimates that a test patches."""
    from fusegen.compiler.estimates import Formula
    from fusegen.core import budget

    return _compiled(name, Formula.eager_error, *budget.FLOAT_ENOUGH.values())


@functools.cache
def _compiled(name: str, *estimates: object) -> Compiled:
    from fusegen.project import build

    return build.compiled_file(ROOT / "specs" / f"{name}.yaml")


@pytest.fixture(scope="session", autouse=True)
def results(extensions: Path) -> Iterator[Callable[[], Path | None] | None]:
    """One folder of the compiler's results for the whole run, of which fixtures of many tests take theirs.

    The value finds the folder of the user, where a run leaves nothing.
    """
    if MISSING:
        yield None
        return
    from fusegen.project import compile_cache

    own, folder = compile_cache._folder, extensions / "results"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_cache, "_folder", lambda: folder)
        yield own


@pytest.fixture
def use_cache() -> None:
    """Ask for the user's cache of the compiler's results, which other tests do without."""


@pytest.fixture(autouse=True)
def no_cache(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    results: Callable[[], Path | None] | None,
) -> None:
    """Compute everything, so that no test passes by what another one left, but in those of `OF_RESULTS`."""
    if results is None:
        return
    of_user = "use_cache" in request.fixturenames
    if request.path.name in OF_RESULTS and not of_user:
        return
    folder = results if of_user else lambda: None
    monkeypatch.setattr("fusegen.project.compile_cache._folder", folder)


@pytest.fixture(scope="session", autouse=True)
def small_regions() -> Iterator[dict[str, int]]:
    """Give regions of few numbers a kernel, so that models of tests are small.

    The value has the bytes that a kernel has to save in a call, by the device, as they are without it.
    """
    if not find_spec("torch"):
        yield {}
        return
    from fusegen.models.lift.regions.worth import CALL

    with pytest.MonkeyPatch.context() as patch:
        own = dict(CALL)
        for device in own:
            patch.setitem(CALL, device, 1)
        yield own


@pytest.fixture
def use_worth(small_regions: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for the bytes that a kernel has to save in a call, which other tests do without."""
    from fusegen.models.lift.regions.worth import CALL

    for device, least in small_regions.items():
        monkeypatch.setitem(CALL, device, least)


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """The messages of warnings in fusegen's log."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handler, "emit", lambda record: messages.append(record.getMessage()))
        logger = logging.getLogger("fusegen")
        logger.addHandler(handler)
        yield messages
        logger.removeHandler(handler)


class Workshop:
    """An empty folder to work in, as a user would: specs in specs/, commands typed at its top."""

    def __init__(self, folder: Path) -> None:
        """Work in `folder`."""
        self.folder = folder

    def spec(self, name: str, body: str, *, head: bool = True) -> Path:
        """The path of a new specs/NAME.yaml; `head` puts its name and a summary in front of `body`."""
        start = f"name: {name}\nsummary: A test.\n" if head else ""
        return self.file(f"specs/{name}.yaml", start + body.rstrip("\n") + "\n")

    def build(self, name: str, body: str) -> Path:
        """The path of a new spec, of which a module is made, as of all others."""
        path = self.spec(name, body)
        self.done("build")
        return path

    def file(self, path: str, text: str | bytes) -> Path:
        """The path of a new file with these bytes."""
        full = self.folder / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(text if isinstance(text, bytes) else text.encode())
        return full

    def run(self, *arguments: str) -> Result:
        """The answer of the command line, in this process."""
        from click.testing import CliRunner

        from fusegen.cli import main

        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    def done(self, *arguments: str) -> str:
        """Return what the command line prints of a command that ends well."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, *arguments: str) -> str:
        """Return what the command line says of a mistake; it does nothing, and prints nothing else."""
        result = self.run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    def files(self) -> dict[str, bytes]:
        """Every file of the folder with its bytes, by its path from there."""
        found = sorted(path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())
        return {
            path.as_posix(): (self.folder / path).read_bytes()
            for path in found
            if "__pycache__" not in path.parts  # which Python writes, or does not
        }


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.chdir(tmp_path)
    return Workshop(tmp_path)


@pytest.fixture
def gated(workshop: Workshop) -> Workshop:
    """A workshop with a spec and its module."""
    workshop.build("gate", "formula: x * clamp(x + 3, 0, 6) / 6")
    return workshop


@pytest.fixture(scope="session")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two specs, their modules and the schema, which nobody changes."""
    made = Workshop(tmp_path_factory.mktemp("first_build"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fusegen.project.compile_cache._folder", lambda: None)
        patch.chdir(made.folder)
        made.spec("gate", "formula: x * clamp(x + 3, 0, 6) / 6")
        made.spec("twice", "chain: [gate, gate]")
        assert made.run("build").exit_code == 0
        assert made.run("schema").exit_code == 0
    return made.folder


@pytest.fixture
def built(first_build: Path, workshop: Workshop) -> Workshop:
    """A workshop with a copy of these."""
    shutil.copytree(first_build, workshop.folder, dirs_exist_ok=True)
    return workshop


@contextmanager
def _exact_eager() -> Iterator[None]:
    import numpy as np

    from fusegen.compiler.estimates import Formula
    from fusegen.core.facts import Roundoff
    from fusegen.core.ir import Kernel
    from fusegen.numerics.ieee import Column
    from fusegen.numerics.sample import LARGEST

    exact, infinite = Roundoff(0.0, {}, ""), Roundoff(math.inf, {}, "")

    def error(formula: Formula, device: object, which: object) -> Roundoff:
        return infinite if formula.tried == LARGEST else exact

    def errors(formula: Formula, kernel: Kernel) -> Column:
        size = math.inf if formula.tried == LARGEST else 0.0
        return np.full(np.shape(formula.sample(kernel).reals), size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Formula, "eager_error", error)
        patch.setattr(Formula, "eager_at", errors)
        yield


@pytest.fixture(scope="module")
def exact_eager() -> Iterator[None]:
    """Eager's operations are estimated to be exact, so that double takes what float would lose.

    Next to the largest float they overflow, as any do.
    """
    with _exact_eager():
        yield


@pytest.fixture
def exact_eager_once() -> Iterator[None]:
    """Eager's operations are estimated to be exact, in one test."""
    with _exact_eager():
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function that compares a text with tests/golden/NAME, or writes it there with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        assert text == path.read_text(encoding="utf-8")

    return compare
