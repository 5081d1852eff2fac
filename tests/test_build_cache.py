"""The cache of builds: where it is, what it trusts, how it repairs itself, and who waits for whom."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from budget import HANG
from kernels import complaints
from processes import ANSWER, CAUGHT, USE, Forked, answer, built, environment, script, started, told
from processes import cache as cache

from fusegen.project.library_folder import build_folder
from fusegen.runtime.cache import checksum
from fusegen.runtime.library_names import MARK

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
STRANGER = 12345
NO_COMPILER = "hardsigmoid: no C++ compiler c++; install g++ or set CXX"
NO_PASSWD = """
import pwd
def getpwuid(uid):
    raise KeyError(uid)
pwd.getpwuid = getpwuid
"""
GELU = "import torch; from generated.gelu import gelu as f; print(f(torch.ones(1)).tolist())"
NO_LOCKS = """
import errno, fcntl
def lockf(*arguments):
    raise OSError(errno.ENOLCK, 'No locks available')
fcntl.lockf = lockf
"""
FAILING = 'case "$*" in *main.cpp*) echo it fails; exit 1;; esac\nexec c++ "$@"\n'
FAILED = "the forward kernel did not compile for cpu; the compiler's output is in "
VARIABLES = ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME", "HOME")


def copied(cache: Path, folder: Path) -> Path:
    """The folder of builds below `folder`, with what is built in `cache`."""
    target = folder / "fusegen"
    shutil.copytree(cache / "fusegen", target)
    target.chmod(0o755)
    return target


def library(folder: Path) -> Path:
    """The only library of a folder of builds that has no names: that of float32."""
    [found] = [path for path in folder.glob("*.so") if MARK not in path.read_bytes()]
    return found


def spoken(code: str, env: dict[str, str], *within: str) -> str:
    """The output of Python in an environment and within a command; it complains of nothing."""
    done = subprocess.run(
        [*within, sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=HANG
    )
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    return done.stdout


def without_compiler(folder: Path, code: str = CAUGHT) -> str:
    """The output of a process that finds the library in `folder`, or says that it has no compiler."""
    return told(code, folder, PATH="/nonexistent")


def sentence(what: str) -> str:
    """The sentence that CAUGHT prints of an error."""
    return f"RuntimeError hardsigmoid: {what} None True\n"


def cannot_build(folder: Path, why: str) -> str:
    """The sentence that CAUGHT prints where a folder of builds cannot be written."""
    return sentence(
        f"cannot build in {folder}: {why}; set TORCH_EXTENSIONS_DIR to a folder that can be written"
    )


REFUSED = f"RuntimeError {NO_COMPILER} None False\n"  # the library is there, and was not used


# Where it is


PLACES = pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"TORCH_EXTENSIONS_DIR": "/t"}, "t"),
        ({"TORCH_EXTENSIONS_DIR": "/t", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "t"),
        ({"XDG_CACHE_HOME": "/x"}, "x/torch_extensions"),
        ({"TORCH_EXTENSIONS_DIR": "", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "x/torch_extensions"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "h/.cache/torch_extensions"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "h/.cache/torch_extensions"),
    ],
)


@pytest.mark.few(2)
@PLACES
def test_the_first_variable_that_is_set_says_where(
    cache: Path, tmp_path: Path, given: dict[str, str], place: str
) -> None:
    """No later one is needed, nor an entry in the system's list of users."""
    copied(cache, tmp_path / place)
    env = {key: value for key, value in environment(tmp_path).items() if key not in VARIABLES}
    env |= {key: str(tmp_path) + value if value[:1] == "/" else value for key, value in given.items()}
    assert answer(NO_PASSWD + USE, env | {"PATH": "/nonexistent"}) == ANSWER


@PLACES
def test_the_filters_of_certify_lie_where_modules_build(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], place: str
) -> None:
    for key in VARIABLES:
        monkeypatch.delenv(key, raising=False)
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    assert build_folder() == Path("/", place, "fusegen")


def test_no_variable_and_no_user_is_one_sentence(tmp_path: Path) -> None:
    env = {key: value for key, value in environment(tmp_path).items() if key not in VARIABLES}
    unset = (
        "no folder to build in: neither TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME nor HOME is set; set the first"
    )
    assert answer(NO_PASSWD + CAUGHT, env) == f"RuntimeError hardsigmoid: {unset} None False\n"


QUOTED = ("a\nb", "é'\"")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [*QUOTED, *(pytest.param(name, marks=pytest.mark.full) for name in ("a $b", "a:b", "a|b"))]
)
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    assert told(USE, tmp_path / name) == ANSWER
    assert without_compiler(tmp_path / name) == ANSWER


@pytest.mark.full
def test_an_ascii_locale_will_do(tmp_path: Path) -> None:
    """The comments of gelu's sources are not ASCII, nor is the path."""
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert spoken(GELU, environment(tmp_path / "é", **locale)) == "[0.8413447141647339]\n"


def test_files_that_others_may_write_are_never_made(tmp_path: Path) -> None:
    """Not even where the user's files are the group's, too."""
    assert told("import os; os.umask(0)\n" + USE, tmp_path) == ANSWER
    assert without_compiler(tmp_path) == ANSWER
    assert {
        path.stat().st_mode & 0o022 for path in [tmp_path / "fusegen", *tmp_path.glob("fusegen/*")]
    } == {0}


# Whom it trusts, and what is broken


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _given_away(path: Path) -> None:
    os.chown(path, STRANGER, -1)


def _shortened(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _foreign(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes((b"\x7fELF" + bytes(size))[:size])


BROKEN: dict[str, Callable[[Path], None]] = {
    "others may write it": lambda path: path.chmod(0o757),
    "a group may write it": lambda path: path.chmod(0o775),
    "a link": _linked,
    "a pipe": _fifo,
    "gone": lambda path: path.unlink(),
    "empty": lambda path: os.truncate(path, 0),
    "half": _shortened,
    "another of its size": _foreign,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("what", [".so", pytest.param(".sum", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "harm", [*BROKEN.values(), pytest.param(_given_away, marks=ROOT_ONLY)], ids=[*BROKEN, "another user's"]
)
def test_a_library_that_may_be_another_is_not_used(
    cache: Path, tmp_path: Path, what: str, harm: Callable[[Path], None]
) -> None:
    harm(library(copied(cache, tmp_path)).with_suffix(what))
    assert without_compiler(tmp_path) == REFUSED


@pytest.mark.parametrize(
    "harm", ["a link", *(pytest.param(harm, marks=pytest.mark.full) for harm in ("a pipe", "half"))]
)
def test_such_a_library_is_built_anew(cache: Path, tmp_path: Path, harm: str) -> None:
    path = library(copied(cache, tmp_path))
    BROKEN[harm](path)
    harmed = (tmp_path / "fusegen" / "elsewhere").read_bytes() if harm == "a link" else b""
    assert told(USE, tmp_path) == ANSWER
    assert path.is_file()
    assert not path.is_symlink()
    assert without_compiler(tmp_path) == ANSWER
    assert harm != "a link" or (tmp_path / "fusegen" / "elsewhere").read_bytes() == harmed


@pytest.mark.full
def test_a_library_that_does_not_load_is_built_anew(cache: Path, tmp_path: Path) -> None:
    """It is whole, but for another machine, or of a newer compiler's library."""
    path = library(copied(cache, tmp_path))
    _foreign(path)
    path.with_suffix(".sum").write_bytes(checksum(path, path.read_bytes()))
    assert without_compiler(tmp_path) == REFUSED
    assert told(USE, tmp_path) == ANSWER
    assert without_compiler(tmp_path) == ANSWER


def test_a_swapped_library_is_not_used(cache: Path, tmp_path: Path) -> None:
    """It is whole, with its own sum beside it, under the name of another."""
    path = library(copied(cache, tmp_path))
    other = path.with_name("gelu_0123456789abcdef.so")
    sum_ = checksum(other, path.read_bytes()) + path.with_suffix(".sum").read_bytes().partition(b"\n")[2]
    path.with_suffix(".sum").write_bytes(sum_)
    assert without_compiler(tmp_path) == REFUSED


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "tools", [{"CXX": "c++ -O1"}, {"NVCC_APPEND_FLAGS": "-lineinfo"}, {"CPATH": "/opt/include"}], ids=str
)
def test_a_library_of_other_tools_is_built_anew(cache: Path, tmp_path: Path, tools: dict[str, str]) -> None:
    path = library(copied(cache, tmp_path))
    _, _, made_by = path.with_suffix(".sum").read_text().partition("\n")
    assert made_by.startswith("made by ")
    assert told(USE, tmp_path, **tools) == ANSWER
    assert path.with_suffix(".sum").read_text().partition("\n")[2] not in ("", made_by)


UNSAFE = {
    "CXX": ("c++ -ffast-math", "-ffast-math"),
    "NVCC_APPEND_FLAGS": ("--use_fast_math", "--use_fast_math"),
    "NVCC_PREPEND_FLAGS": ("-O3 -ftz=true", "-ftz=true"),
}


@pytest.mark.parametrize("variable", UNSAFE)
def test_flags_that_change_results_are_refused(tmp_path: Path, variable: str) -> None:
    given, flag = UNSAFE[variable]
    refused = f"hardsigmoid: {variable} has {flag}, which changes results; remove it"
    assert told(CAUGHT, tmp_path, **{variable: given}) == f"RuntimeError {refused} None False\n"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(BROKEN["others may write it"], id="others may write it"),
        pytest.param(BROKEN["a group may write it"], id="a group may write it"),
        pytest.param(_given_away, marks=ROOT_ONLY, id="another user's"),
    ],
)
def test_a_folder_that_others_can_write_is_one_sentence(
    cache: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = copied(cache, tmp_path)
    harm(folder)
    hint = "make it yours alone (chown, chmod go-w), or set TORCH_EXTENSIONS_DIR to another folder"
    line = f"RuntimeError hardsigmoid: other users can write {folder}; {hint} None False\n"
    assert told(CAUGHT, tmp_path) == line


@ROOT_ONLY
def test_a_cache_of_roots_serves_another_user(cache: Path) -> None:
    """As a library that was built with the image of a container does."""
    user = f"import os, torch, generated.hardsigmoid\nos.setresuid({STRANGER}, {STRANGER}, {STRANGER})\n"
    with TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        copied(cache, folder)
        assert without_compiler(folder, user + CAUGHT) == ANSWER
        library(folder / "fusegen").unlink()
        refused = cannot_build(folder / "fusegen", "Permission denied")
        assert without_compiler(folder, user + CAUGHT) == refused


def test_a_compiler_that_is_no_command_is_one_sentence(tmp_path: Path) -> None:
    """It is known before a folder of builds is opened."""
    refused = 'RuntimeError hardsigmoid: CXX is no command, for a quotation has no end: "g++ None False\n'
    assert told(CAUGHT, tmp_path, CXX='"g++') == refused


@pytest.mark.few(2)
@pytest.mark.parametrize("what", [".lock", ".log"])
@pytest.mark.parametrize("kind", ["link", "pipe", "others may write it"])
def test_locks_and_logs_are_never_written_through(
    cache: Path, tmp_path: Path, what: str, kind: str
) -> None:
    path = library(copied(cache, tmp_path))
    path.unlink()
    precious = tmp_path / "precious"
    precious.write_text("precious", encoding="utf-8")
    alike = "_".join(path.stem.split("_")[-3:])  # libraries that differ in their names only have one lock
    placed = path.with_name(f"{alike}{what}") if what == ".lock" else path.with_suffix(what)
    placed.unlink(missing_ok=True)
    if kind == "link":
        placed.symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(placed)
    else:
        placed.write_text("theirs", encoding="utf-8")
        placed.chmod(0o666)
    failing = script(tmp_path, "failing", FAILING)
    assert told(CAUGHT, tmp_path, CXX=failing) == sentence(FAILED + str(path.with_suffix(".log")))
    assert precious.read_text(encoding="utf-8") == "precious"
    assert not placed.is_symlink()
    assert placed.is_file()
    assert placed.stat().st_mode & 0o022 == 0
    assert "it fails" in path.with_suffix(".log").read_text(encoding="utf-8")


# Who waits for whom


def test_a_file_system_without_locks_will_do(tmp_path: Path) -> None:
    assert told(NO_LOCKS + USE, tmp_path) == ANSWER
    assert without_compiler(tmp_path) == ANSWER


def waiting_for(path: Path, process: Forked) -> None:
    """Waits until a file is there, which a process makes."""
    deadline = time.monotonic() + HANG
    while not path.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)


def ended(process: Forked, folder: Path) -> None:
    """Kills a process; its compiler, which is in a group of ninja's, gives up."""
    (folder / "over").touch()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def held_up(folder: Path) -> str:
    """A compiler that says that it compiles, and begins when it is let go."""
    wait = f"""
      echo > {folder / "compiling"}
      while [ ! -e {folder / "go"} ]; do [ ! -e {folder / "over"} ] || exit 1; sleep 0.05; done
    """
    return script(folder, "held", f'case "$*" in *main.cpp*) {wait};; esac\nexec c++ "$@"\n')


FORKING = """
import os, sys, time, torch
from concurrent.futures import ThreadPoolExecutor
from generated.hardsigmoid import hardsigmoid as f
pool = ThreadPoolExecutor(1)
future = pool.submit(f, torch.ones(3))
while not os.path.exists({compiling!r}):
    time.sleep(0.05)
child = os.fork()
if child == 0:
    {child}
"""
PARENT = """
open({go!r}, 'w').close()
print(future.result().tolist(), os.waitpid(child, 0)[1])
"""


def test_a_fork_while_a_thread_builds_can_use_the_function(tmp_path: Path) -> None:
    child = "os._exit(0 if f(torch.ones(3)).tolist() == [0.6666666865348816] * 3 else 1)"
    code = FORKING.format(compiling=str(tmp_path / "compiling"), child=child)
    code += PARENT.format(go=str(tmp_path / "go"))
    process = started(code, tmp_path / "builds", CXX=held_up(tmp_path))
    try:
        out, err = process.communicate(timeout=HANG)
        assert (out, complaints(err)) == (ANSWER.replace("\n", " 0\n"), "")
    finally:
        ended(process, tmp_path)


def test_a_fork_keeps_no_lock_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    child = f"open({str(tmp_path / 'forked')!r}, 'w').close(); time.sleep(600)"
    code = FORKING.format(compiling=str(tmp_path / "compiling"), child=child)
    process = started(code + "time.sleep(600)\n", tmp_path / "builds", CXX=held_up(tmp_path))
    try:
        waiting_for(tmp_path / "forked", process)
        os.kill(process.pid, signal.SIGKILL)
        assert told(USE, tmp_path / "builds") == ANSWER
    finally:
        ended(process, tmp_path)


def test_two_processes_build_at_once_after_one_was_killed(tmp_path: Path) -> None:
    """One of the two builds, the other waits."""
    builds, count = tmp_path / "builds", tmp_path / "count"
    killed = started(USE, builds, CXX=held_up(tmp_path))
    try:
        waiting_for(tmp_path / "compiling", killed)
        os.kill(killed.pid, signal.SIGKILL)  # only it: its compiler goes on
        compiler = script(
            tmp_path, "counted", f'case "$*" in *main.cpp*) echo >> {count};; esac\nexec c++ "$@"\n'
        )
        for process in [started(USE, builds, CXX=compiler) for _ in range(2)]:
            out, err = process.communicate(timeout=HANG)
            assert (process.returncode, out, complaints(err)) == (0, ANSWER, "")
        assert count.read_text(encoding="utf-8") == "\n"
    finally:
        ended(killed, tmp_path)


# In containers


def mounted(*commands: str) -> list[str]:
    """A command that runs another where some file systems are mounted for it alone."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *own, "sh", "-ec", "\n".join([*commands, 'exec "$0" "$@"'])]


def _can_mount() -> bool:
    command = [*mounted("mount -t tmpfs none /mnt"), "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0
    )


CONTAINERS = pytest.mark.skipif(not _can_mount(), reason="needs mount namespaces")
READ_ONLY = "mount -o remount,bind,ro /"


@pytest.mark.full
@CONTAINERS
def test_a_container_that_is_read_only_but_for_one_folder(tmp_path: Path) -> None:
    """It has no home and no user of that name; then it is all read-only, and the library is in it."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o777)
    env = {
        key: value
        for key, value in environment(folder, PYTHONDONTWRITEBYTECODE="1").items()
        if key != "HOME"
    }
    writable = mounted(
        f"mount --bind {folder} {folder}", READ_ONLY, f"! touch {tmp_path}/written 2> /dev/null"
    )
    assert spoken(NO_PASSWD + USE, env, *writable) == ANSWER
    suffixes = sorted(Path(name).suffix for name in built(folder))
    assert suffixes == [".lock", ".lock", ".so", ".so", ".sum", ".sum"]  # of the binding, and of a dtype
    read_only = mounted(READ_ONLY, f"! touch {folder}/written 2> /dev/null")
    assert spoken(NO_PASSWD + USE, env, *read_only) == ANSWER


@pytest.mark.full
@CONTAINERS
def test_a_container_that_is_all_read_only_is_one_sentence(tmp_path: Path) -> None:
    refused = cannot_build(tmp_path / "fusegen", "Read-only file system")
    assert spoken(CAUGHT, environment(tmp_path), *mounted(READ_ONLY)) == refused


@CONTAINERS
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    full = mounted(f"mount -t tmpfs -o size=4k,mode=755 none {tmp_path}")
    refused = cannot_build(tmp_path / "fusegen", "No space left on device")
    assert spoken(CAUGHT, environment(tmp_path), *full) == refused


@pytest.mark.full
@CONTAINERS
def test_a_disk_that_the_compiler_fills_is_one_sentence_and_a_log(tmp_path: Path) -> None:
    full = mounted(f"mount -t tmpfs -o size=132k,mode=755 none {tmp_path}")
    code = CAUGHT + f"import pathlib\nfor log in pathlib.Path({str(tmp_path)!r}).rglob('*.log'):\n"
    code += "    print(log, 'No space left on device' in log.read_text())"
    failed, *logs = spoken(
        code, environment(tmp_path), *full
    ).splitlines()  # of the binding, and of a dtype
    told_so = dict(log.split() for log in logs)
    [where] = [log for log in told_so if log in failed]
    assert failed + "\n" == sentence(FAILED + where)
    assert told_so[where] == "True"


@pytest.mark.full
@CONTAINERS
def test_a_folder_that_runs_nothing_is_one_sentence(tmp_path: Path) -> None:
    mount = mounted(f"mount -t tmpfs -o noexec,mode=755 none {tmp_path}")
    noexec = f"{tmp_path / 'fusegen'} is mounted noexec; set TORCH_EXTENSIONS_DIR to a folder that is not"
    assert (
        spoken(CAUGHT, environment(tmp_path), *mount) == f"RuntimeError hardsigmoid: {noexec} None False\n"
    )
