"""The walls around a search: what ripgrep can see, what is left of it, and what a race can get out of it."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from byleave.protocol.errors import ByleaveError, ExecutionTimeout, PathValidationError
from byleave.protocol.tools import ListDirectoryParams, ListDirectoryResult, SearchFilesParams, SearchFilesResult
from byleave.workspace.files.executor import Listing
from byleave.workspace.paths import PathValidator
from byleave.workspace.sandbox.processes import run_process
from byleave.workspace.sandbox.sandbox import Launch
from byleave.workspace.search import executor as search
from byleave.workspace.search import ripgrep as search_runs
from byleave.workspace.search import ripgrep as search_sandbox
from byleave.workspace.search.executor import Names, SearchExecutor, ripgrep_arguments
from byleave.workspace.search.ripgrep import Above, AnswerReader, RipgrepSandbox, SearchRoot, working_ripgrep
from harness.place import Place

pytestmark = pytest.mark.promise("T5", "S")

_SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pairs = [os.fsencode(name) for name in sys.argv[1:]]
print("ready", flush=True)
count = 0
os.set_blocking(0, False)
while True:
    for one, other in zip(pairs[::2], pairs[1::2]):
        if libc.renameat2(-100, one, -100, other, 2):
            raise OSError(ctypes.get_errno(), "renameat2")
    count += 1
    if count % 64 == 0:
        try:
            if os.read(0, 1) == b"":
                break
        except BlockingIOError:
            pass
print(count)
"""


@pytest.fixture
def paths(place: Place) -> Iterator[PathValidator]:
    paths = PathValidator(place.root)
    yield paths
    paths.close()


def _found(result: SearchFilesResult) -> list[str]:
    return [match.path for match in result.matches]


def _processes(mark: str) -> list[int]:
    """Processes that carry the mark in their arguments, and scans of ours."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            line = Path("/proc", name, "cmdline").read_bytes()
            parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1]
            if mark.encode() in line or (b"searching" in line and parent == str(os.getpid())):
                found.append(int(name))
    return found


def _inner(pid: int) -> int:
    """The one process at the end of a chain of children."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def test_ripgrep_sees_the_place_and_nothing_else(place: Place, paths: PathValidator) -> None:
    place.file("sub/big", "needle and a line that is long enough to fill a pipe\n" * 200_000)
    fd = os.open(place.root / "sub", os.O_PATH)
    ripgrep = working_ripgrep(place.root, SearchRoot(fd, "sub", is_file=False))
    assert ripgrep is not None
    above = (Above("", b"*.log\n"),)
    with ripgrep.launch(SearchRoot(fd, "sub", is_file=False, above=above), ["--no-config", "needle", "./"]) as launch:
        assert launch.isolation.isolated
        with subprocess.Popen(
            launch.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=launch.env, pass_fds=launch.pass_fds
        ) as process:
            assert process.stdout is not None
            process.stdout.read(1)  # it runs, and now waits for us to read on
            pid = _inner(process.pid)
            assert Path(f"/proc/{pid}/comm").read_text() == "rg\n"
            flags = [Path(f"/proc/{pid}/fdinfo/{name}").read_text() for name in os.listdir(f"/proc/{pid}/fd")]
            status = Path(f"/proc/{pid}/status").read_text()
            seen = set(os.listdir(f"/proc/{pid}/root"))
            inside = sorted(os.listdir(f"/proc/{pid}/root/.ws"))
            network = os.readlink(f"/proc/{pid}/ns/net")
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            process.kill()
    os.close(fd)
    assert not [text for text in flags if int(text.split()[3], 8) & os.O_PATH], "the descriptor came along"
    assert seen <= {".ws", "rg", "usr", "lib", "lib32", "lib64"}
    assert inside == [".gitignore", "sub"]
    assert network != os.readlink("/proc/self/ns/net")
    assert {word.partition(b"=")[0] for word in environ.split(b"\0")} <= {b"LANG", b"LC_ALL", b"PWD", b""}
    assert re.search(r"CapEff:\s0+\n", status)
    assert re.search(r"NoNewPrivs:\s1\n", status)
    assert re.search(r"Seccomp:\s2\n", status)


async def test_walls_that_cannot_be_put_up_leave_the_search_to_the_scan(place: Place, paths: PathValidator) -> None:
    place.file("a", "needle")
    searcher = SearchExecutor(paths)
    ripgrep = searcher.ripgrep()
    assert ripgrep is not None
    ripgrep._base[:] = ["/bin/false"]
    assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["a"]


@pytest.mark.parametrize("program", ["/bin/false", "/missing/bwrap", "/bin/sleep"])
async def test_walls_that_do_not_hold_are_never_used(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    def found(name: str, root: Path) -> str:
        return program if name == "bwrap" else f"/usr/bin/{name}"

    monkeypatch.setattr(search_sandbox, "find_program", found)
    place.file("a", "needle")
    searcher = SearchExecutor(paths)
    assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["a"]
    assert searcher.ripgrep() is None


@pytest.mark.parametrize("use_ripgrep", [True, False], ids=["ripgrep", "scan"])
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_no_process_is_left(place: Place, paths: PathValidator, use_ripgrep: bool, how: str) -> None:
    mark = f"mark{os.getpid()}"
    if use_ripgrep:
        for number in range(4):
            place.file(f"{number}", (b"word and " * 12_500 + b"\n") * 80)
        # Slow, and yet within ripgrep's limits: past them it would end with an error, sometimes before its time is up.
        pattern = rf"(\w{{1,60}}\s\w+\s){{12}}[0-9]({mark})?"
    else:
        place.file("a", "a" * 5000 + "!")
        pattern = "(a+)+$"
    searcher = SearchExecutor(paths, use_ripgrep=use_ripgrep, seconds=0.1 if how == "timeout" else 30)
    searching = asyncio.ensure_future(searcher.search(SearchFilesParams(pattern=pattern, regex=True)))
    if how == "timeout":
        with pytest.raises(ExecutionTimeout):
            await searching
    else:
        while not _processes(mark):
            assert not searching.done()
            await asyncio.sleep(0)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
    assert _processes(mark) == []


async def test_large_file_that_holds_up_a_search_is_not_read_again(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _launches(monkeypatch)
    monkeypatch.setattr(search_runs, "_SUSPICIOUS_SECONDS", 0.0)
    place.file("deep/large", (b"word and " * 12_500 + b"\n") * 300)
    place.file("small", "word and " * 20 + "7\n")
    searcher = SearchExecutor(paths)
    slow = SearchFilesParams(pattern=r"(\w{1,30}\s\w+\s){20}\d", regex=True)
    assert _found(await searcher.search(slow)) == ["small"]
    assert [any(word.startswith("--max-filesize=") for word in line) for line in seen] == [False, True]
    assert _found(await searcher.search(slow)) == ["small"]
    assert [any(word.startswith("--max-filesize=") for word in line) for line in seen] == [False, True, True]


async def test_large_file_that_takes_too_much_memory_ends_no_search(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(search_sandbox._LIMITS, "data", 64 * 1024 * 1024)
    place.file("large", b"word and " * 12 * 1024 * 1024)
    place.file("small", "a needle\n")
    searcher = SearchExecutor(paths)
    assert searcher.ripgrep() is not None
    assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["small"]


async def test_matches_are_the_first_by_path_however_many_there_are(place: Place, paths: PathValidator) -> None:
    for number in range(300):
        place.file(f"{number:03}", "needle\n" * 50)
    searcher = SearchExecutor(paths)
    result = await searcher.search(SearchFilesParams(pattern="needle", max_results=120))
    found = [(match.path, match.line_number) for match in result.matches]
    assert found == [(f"{number:03}", line) for number in range(3) for line in range(1, 51)][:120]
    assert result.truncated


def test_ripgrep_in_order_is_read_as_well(place: Place) -> None:
    for number in range(30):
        place.file(f"{number:02}", "needle\r\n" * 50)
    fd = os.open(place.root, os.O_RDONLY)
    here = SearchRoot(fd, ".", is_file=False)
    ripgrep = working_ripgrep(place.root, here)
    assert ripgrep is not None
    arguments = ripgrep_arguments(
        SearchFilesParams(pattern="needle"), Names((), secret=False, overrule=False, per_file=1001), here
    )
    reader = AnswerReader(120, lambda _: True, in_order=True)
    with ripgrep.launch(here, ["--sort=path", *arguments]) as launch:
        run = subprocess.run(launch.argv, capture_output=True, env=launch.env, pass_fds=launch.pass_fds, check=True)
    reader.feed("stdout", run.stdout[:-10])
    assert reader.enough
    path, lines = reader.matches.found()[-1]
    assert (path, lines[-1][0]) == ("02", 20)
    os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root")
async def test_root_searches_as_the_owner_of_the_workspace() -> None:
    root = Path(tempfile.mkdtemp())
    try:
        for name, owner, mode in (("open", 65534, 0o600), ("closed", 0, 0o600), ("dir", 0, 0o700)):
            path = root / name
            if name == "dir":
                path.mkdir()
                (path / "x").write_text("needle")
            else:
                path.write_text("needle")
            os.chown(path, owner, owner)
            path.chmod(mode)
        os.chown(root, 65534, 65534)
        root.chmod(0o755)
        paths = PathValidator(root)
        for use_ripgrep in (True, False):
            searcher = SearchExecutor(paths, use_ripgrep=use_ripgrep)
            assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["open"]
            assert (searcher.ripgrep() is not None) is use_ripgrep
        paths.close()
    finally:
        shutil.rmtree(root)


def test_other_mounts_are_named_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"1 2 0:3 / {tmp_path}/a\\040b rw - x x rw\n4 5 0:6 / {tmp_path}-twin rw - x x rw\n")
    monkeypatch.setattr(search_sandbox, "_MOUNTS", str(table))
    assert search_sandbox.mounts_below(tmp_path) == ["a b"]


def test_owner_can_be_left_out_of_it(place: Place) -> None:
    assert RipgrepSandbox(place.root, as_owner=False).runner is None


@pytest.mark.promise("T4")
def test_listing_leaves_out_what_the_owner_has_ruled_out(place: Place, paths: PathValidator) -> None:
    for name in ("private/a", "private/deep/b", "sub/one.txt", "sub/two.txt"):
        place.file(name, "12345")
    (place.root / "link").symlink_to("sub/one.txt")

    def forbidden(path: str) -> bool:
        assert not path.startswith("private/"), "it was entered"
        return path in ("private", "sub/one.txt")

    paths.forbidden = forbidden

    def listed(path: str) -> ListDirectoryResult:
        params = ListDirectoryParams(path=path, recursive=True)
        return Listing(paths, params, threading.Event()).run()

    found = {entry.path: entry.size for entry in listed(".").files}
    assert found == {"link": len("sub/one.txt"), "sub": 0, "sub/two.txt": 5}
    with pytest.raises(PathValidationError, match="ruled out"):
        listed("private")


@pytest.mark.promise("G1", "T4")
async def test_nothing_outside_is_reported_while_links_are_swapped(place: Place, paths: PathValidator) -> None:
    (place.outside / "secret.txt").write_text("needle SECRET\n" * 3)
    (place.outside / "deep").mkdir()
    (place.outside / "deep" / "secret.txt").write_text("needle SECRET\n")
    place.file("x/d/deep/in.txt", "needle\n")
    place.file("x/f.txt", "needle\n")
    (place.root / "x" / "l").symlink_to("../../out")
    (place.root / "x" / "g.txt").symlink_to("../../out/secret.txt")
    names = [str(place.root / "x" / name) for name in ("d", "l", "f.txt", "g.txt")]
    told: list[str] = []
    searchers = [SearchExecutor(paths), SearchExecutor(paths, use_ripgrep=False)]
    assert searchers[0].ripgrep() is not None

    async def look(path: str, searcher: SearchExecutor) -> None:
        with suppress(ByleaveError):
            result = await searcher.search(SearchFilesParams(pattern="needle", path=path))
            told.extend(f"{match.path} {match.line}" for match in result.matches)
        with suppress(ByleaveError):
            params = ListDirectoryParams(path=path, recursive=True)
            listed = Listing(paths, params, threading.Event()).run()
            told.extend(f"{entry.path} {entry.type}" for entry in listed.files)

    with subprocess.Popen(
        [sys.executable, "-I", "-c", _SWAPPER, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as swapper:
        assert swapper.stdin is not None
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == "ready\n"
        end = time.monotonic() + 2
        while time.monotonic() < end:
            await asyncio.gather(*(look(path, searcher) for path in (".", "x/d", "x/d/deep") for searcher in searchers))
        swapper.stdin.close()
        assert int(swapper.stdout.read()) > 100
    assert not [line for line in told if "SECRET" in line or "secret" in line]
    assert any("in.txt needle" in line for line in told)


def _launches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that are started from now on, without those that look for names alone."""
    seen: list[list[str]] = []

    def run(launch: Launch, *rest: Any, **more: Any) -> Any:
        if "--max-count=1" not in launch.argv:
            seen.append(launch.argv)
        return run_process(launch, *rest, **more)

    monkeypatch.setattr(search_runs, "run_process", run)
    return seen


async def test_large_file_of_one_line_is_not_read_into_memory(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _launches(monkeypatch)
    place.file("large", b"word and " * 4 * 1024 * 1024)
    place.file("small", "a needle\n")
    searcher = SearchExecutor(paths)
    assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["small"]
    memory = [int(word.removeprefix("--data=")) for word in seen[0] if word.startswith("--data=")]
    assert memory == [search.LITTLE_MEMORY]
    assert search.LITTLE_MEMORY <= 256 * 1024 * 1024


async def test_without_a_limit_to_its_memory_ripgrep_reads_no_large_file(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _launches(monkeypatch)
    searcher = SearchExecutor(paths)
    ripgrep = searcher.ripgrep()
    assert ripgrep is not None
    ripgrep._prlimit = None
    place.file("a", "a needle\n")
    assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["a"]
    assert any(word.startswith("--max-filesize=") for word in seen[0])


async def test_after_a_search_that_took_too_long_large_files_are_not_read(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _launches(monkeypatch)
    os.mkfifo(place.root / ".gitignore")
    searcher = SearchExecutor(paths, seconds=0.2)
    assert searcher.ripgrep() is not None
    with pytest.raises(ExecutionTimeout):
        await searcher.search(SearchFilesParams(pattern="needle"))
    os.unlink(place.root / ".gitignore")
    place.file("a", "a needle\n")
    searcher._seconds = 10
    assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["a"]
    assert [any(word.startswith("--max-filesize=") for word in line) for line in seen] == [False, True]


async def test_after_a_very_large_file_was_met_large_files_are_not_read(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _launches(monkeypatch)
    monkeypatch.setattr(search, "_HEAVY", 3)
    place.file("a", "a needle\n")
    searcher = SearchExecutor(paths)
    for _ in range(2):
        assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["a"]
    assert [any(word.startswith("--max-filesize=") for word in line) for line in seen] == [False, True]


async def test_rules_that_are_too_much_for_ripgrep_do_not_stop_a_search(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(search_sandbox._LIMITS, "data", 64 * 1024 * 1024)
    os.truncate(place.file(".gitignore"), 300 * 1024 * 1024)
    place.file("a", "a needle\n")
    searcher = SearchExecutor(paths)
    assert searcher.ripgrep() is not None
    assert _found(await searcher.search(SearchFilesParams(pattern="needle"))) == ["a"]


def test_only_what_ripgrep_would_read_holds_it_up(place: Place) -> None:
    def found(*, largest: int | None = 10) -> str | None:
        fd = os.open(place.root, os.O_RDONLY)
        return search_runs.what_holds_up(fd, largest, threading.Event())

    place.file(".git/objects/pack", "x" * 20)
    place.file("picture", b"\0" * 20)
    place.file("deep/down/short", "x" * 10)
    (place.root / "loop").symlink_to(".")
    (place.root / "away").symlink_to(place.outside)
    assert found() is None
    place.file("deep/wide", "x".encode("utf-16") * 20)
    assert found() == "large"
    assert found(largest=None) is None
    place.file("deep/wide", "x" * 20)
    assert found() == "large"
    os.mkfifo(place.root / "deep/down/.gitignore")
    assert found() == "ignore"
    os.unlink(place.root / "deep/down/.gitignore")
    os.truncate(place.file("deep/.gitignore"), 1 << 40)
    assert found(largest=None) == "ignore"


def test_look_for_what_holds_up_a_search_ends_with_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_runs, "_LOOK_EVERY", 1)
    place.file("large", "x" * 20)
    stop = threading.Event()
    stop.set()
    assert search_runs.what_holds_up(os.open(place.root, os.O_RDONLY), 10, stop) is None


async def test_look_that_never_began_keeps_no_descriptor(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_runs, "_SUSPICIOUS_SECONDS", 0.0)
    os.mkfifo(place.root / ".gitignore")
    searcher = SearchExecutor(paths, seconds=0.1)
    assert searcher.ripgrep() is not None
    busy = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        before = os.listdir("/proc/self/fd")
        waiting = asyncio.ensure_future(asyncio.to_thread(busy.wait))
        with pytest.raises(ExecutionTimeout):
            await searcher.search(SearchFilesParams(pattern="needle"))
        busy.set()
        await waiting
        await asyncio.to_thread(lambda: None)
        assert len(os.listdir("/proc/self/fd")) == len(before)
