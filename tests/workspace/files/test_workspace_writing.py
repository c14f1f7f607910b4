"""write_file: all or nothing, inside, with the permissions the user gave."""

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

import pytest

from byleave.protocol.errors import ExecutionCancelled, InvalidParameters, PathValidationError, ToolFailure
from byleave.protocol.tools import WriteFileParams, WriteFileResult
from byleave.settings import ClientSettings
from byleave.workspace.files import drafts, writing
from byleave.workspace.files.executor import FileSystemExecutor
from byleave.workspace.paths import PathValidator
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("T2")


async def _write(workspace: Workspace, path: str, content: str, mode: str = "write") -> WriteFileResult:
    result = await workspace.run("write_file", {"path": path, "content": content, "mode": mode})
    assert isinstance(result, WriteFileResult)
    return result


def _everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


async def test_new_file_and_its_directories_are_made(workspace: Workspace, place: Place) -> None:
    result = await _write(workspace, "a/b/c.txt", "é\n")
    assert (result.path, result.size) == ("a/b/c.txt", 3)
    assert (place.root / "a/b/c.txt").read_bytes() == "é\n".encode()
    assert _everything(place.root) == ["a", "a/b", "a/b/c.txt"]


async def test_new_file_has_the_usual_permissions(workspace: Workspace, place: Place) -> None:
    old = os.umask(0o027)
    try:
        await _write(workspace, "x", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((place.root / "x").stat().st_mode) == 0o640


async def test_replaced_file_keeps_its_permissions_but_never_set_uid(workspace: Workspace, place: Place) -> None:
    place.file("x", "old").chmod(0o4751)
    await _write(workspace, "x", "new")
    assert (place.root / "x").read_text() == "new"
    assert stat.S_IMODE((place.root / "x").stat().st_mode) == 0o751


async def test_append_adds_to_the_end(workspace: Workspace, place: Place) -> None:
    place.file("x", "one\n")
    result = await _write(workspace, "x", "two\n", "append")
    assert (result.size, (place.root / "x").read_text()) == (8, "one\ntwo\n")
    await _write(workspace, "new", "first", "append")
    assert (place.root / "new").read_text() == "first"


async def test_read_only_file_is_refused_even_for_root(workspace: Workspace, place: Place) -> None:
    place.file("x", "old").chmod(0o444)
    with pytest.raises(ToolFailure, match="No permission to write 'x'"):
        await _write(workspace, "x", "new")
    assert (place.root / "x").read_text() == "old"


@pytest.mark.parametrize(
    "path",
    [".git/config", ".GIT/hooks/pre-commit", "sub/.git/hooks/x", ".byleave/policy.toml", ".git./x", "git~1/config"],
)
@pytest.mark.promise("S")
async def test_git_and_byleave_are_never_written(workspace: Workspace, place: Place, path: str) -> None:
    with pytest.raises(PathValidationError, match="never written"):
        await _write(workspace, path, "x")
    assert _everything(place.root) == []


@pytest.mark.promise("S", "G1")
async def test_link_does_not_lead_around_the_second_wall(workspace: Workspace, place: Place) -> None:
    place.file(".git/hooks/sample", "x")
    (place.root / "l").symlink_to(".git/hooks")
    for path in ("l/pre-commit", "l/sample", "l/deep/x"):
        with pytest.raises(PathValidationError, match="never written"):
            await _write(workspace, path, "x")
    assert _everything(place.root / ".git") == ["hooks", "hooks/sample"]


@pytest.mark.parametrize("path", ["a.exe", "lib.SO", "a.bin.", "x.dll"])
async def test_programs_and_libraries_are_never_written(workspace: Workspace, path: str) -> None:
    with pytest.raises(PathValidationError, match="program or library"):
        await _write(workspace, path, "x")


@pytest.mark.promise("G1", "S")
async def test_link_to_outside_is_refused(workspace: Workspace, place: Place) -> None:
    (place.root / "f").symlink_to("../out/secret.txt")
    (place.root / "d").symlink_to("../out")
    (place.root / "new").symlink_to("../out/new.txt")
    (place.root / "gone").symlink_to("nowhere")
    for path in ("f", "d/secret.txt", "d/new.txt", "new", "gone"):
        with pytest.raises(PathValidationError):
            await _write(workspace, path, "x")
    assert [path.name for path in place.outside.iterdir()] == ["secret.txt"]
    assert (place.outside / "secret.txt").read_text() == "SECRET"


async def test_link_inside_is_written_through(workspace: Workspace, place: Place) -> None:
    place.file("real/x", "old")
    (place.root / "l").symlink_to("real/x")
    assert (await _write(workspace, "l", "new")).path == "real/x"
    assert (place.root / "l").is_symlink()
    assert (place.root / "real/x").read_text() == "new"


@pytest.mark.promise("G1", "S")
@pytest.mark.parametrize("real", ["package.json", ".github/workflows/ci.yml", "run.sh", "Makefile"])
async def test_link_cannot_make_a_file_look_more_harmless(workspace: Workspace, place: Place, real: str) -> None:
    place.file(real, "old")
    (place.root / "notes.txt").symlink_to(real)
    (place.root / "docs").symlink_to(".github")
    with pytest.raises(PathValidationError, match="judged more strictly"):
        await _write(workspace, "notes.txt", "new")
    assert (place.root / real).read_text() == "old"
    if real.startswith(".github"):
        with pytest.raises(PathValidationError, match="judged more strictly"):
            await _write(workspace, "docs/workflows/new.md", "x")


async def test_file_that_is_replaced_while_it_is_written_is_found_again(place: Place) -> None:
    """Two writers of one file: each puts its whole content, none puts it under another name."""
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    place.file("x", "old")
    params = [WriteFileParams(path="x", content=str(number)) for number in range(100)]
    await asyncio.gather(*(files.write_file(one) for one in params))
    assert _everything(place.root) == ["x"]
    files.close()
    paths.close()


def test_replaced_file_is_not_mistaken_for_its_successor(place: Place) -> None:
    fd = os.open(place.root, os.O_PATH)
    old = place.file("x").stat()
    target = writing._Target(fd, "x", "x", None, old)
    assert writing._same_file(target, old)
    place.file("y").rename(place.root / "x")
    assert not writing._same_file(target, old)
    (place.root / "x").unlink()
    assert not writing._same_file(target, old)
    os.close(fd)


@pytest.mark.promise("G1")
async def test_hard_link_is_never_written(workspace: Workspace, place: Place) -> None:
    os.link(place.outside / "secret.txt", place.root / "h")
    for mode in ("write", "append"):
        with pytest.raises(PathValidationError, match="has another name"):
            await _write(workspace, "h", "new", mode)
    assert (place.outside / "secret.txt").read_text() == "SECRET"
    assert _everything(place.root) == ["h"]


async def test_directory_fifo_and_parent_are_refused(workspace: Workspace, place: Place) -> None:
    (place.root / "d").mkdir()
    os.mkfifo(place.root / "pipe")
    for path in ("d", "d/", ".", "pipe", "d/missing/.."):
        with pytest.raises(ToolFailure):
            await _write(workspace, path, "x")
    place.file("file")
    with pytest.raises(ToolFailure, match="is a file, not a directory"):
        await _write(workspace, "file/x", "x")


@pytest.mark.promise("G4")
async def test_size_limit_counts_what_the_file_becomes(place: Place, tmp_path: Path) -> None:
    workspace = Workspace(place.root, ClientSettings(home=tmp_path, max_file_bytes=10))
    await _write(workspace, "x", "1234567890")
    for path, content in (("x", "1"), ("y", "12345678901")):
        with pytest.raises(ToolFailure, match="larger than 10 bytes"):
            await _write(workspace, path, content, "append")
    place.file("z", "x" * 50)
    with pytest.raises(ToolFailure, match="larger than 10 bytes"):
        await _write(workspace, "z", "1", "append")
    assert _everything(place.root) == ["x", "z"]
    await workspace.close()


def test_full_disk_leaves_the_old_file_and_no_debris(place: Place) -> None:
    """A child whose files may not grow stands for a full disk: the kernel refuses the write half way."""
    place.file("x", "old")
    script = (
        "import sys; from byleave.protocol.tools import WriteFileParams as P\n"
        "from byleave.workspace.files.executor import FileSystemExecutor\n"
        "from byleave.workspace.paths import PathValidator\n"
        "f = FileSystemExecutor(PathValidator(sys.argv[1]))\n"
        "for path in ('x', 'a/b/new'):\n"
        "    try: f.write_now(P(path=path, content='y' * 5_000_000))\n"
        "    except Exception as error: print(error.message)\n"
    )

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    done = subprocess.run(
        [sys.executable, "-c", script, str(place.root)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin"},
    )
    assert done.stdout.count("would be larger than this machine allows") == 2
    assert (place.root / "x").read_text() == "old"
    assert _everything(place.root) == ["x"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_no_space_left_is_said_and_leaves_no_debris(place: Place) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place.root)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount")
    try:
        paths = PathValidator(place.root)
        files = FileSystemExecutor(paths)
        files.write_now(WriteFileParams(path="x", content="old"))
        with pytest.raises(ToolFailure, match="no space left"):
            files.write_now(WriteFileParams(path="x", content="y" * 1_000_000))
        assert (place.root / "x").read_text() == "old"
        assert _everything(place.root) == ["x"]
        files.close()
        paths.close()
    finally:
        subprocess.run(["umount", str(place.root)], check=True)


@pytest.mark.promise("C8")
def test_cancelled_write_changes_nothing(place: Place) -> None:
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    stop = threading.Event()
    stop.set()
    place.file("x", "old")
    for mode in ("write", "append"):
        with pytest.raises(ExecutionCancelled):
            files.write_now(WriteFileParams(path="x", content="new", mode=mode), stop)
        with pytest.raises(ExecutionCancelled):
            files.write_now(WriteFileParams(path="a/b", content="new", mode=mode), stop)
    assert _everything(place.root) == ["x"]
    assert (place.root / "x").read_text() == "old"
    files.close()
    paths.close()


@pytest.mark.promise("C8")
async def test_cancelled_call_waits_for_its_thread(workspace: Workspace, place: Place) -> None:
    call = asyncio.ensure_future(_write(workspace, "x", "y" * 50_000_000))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    before = _everything(place.root)
    assert before in ([], ["x"])
    if before:
        assert (place.root / "x").stat().st_size == 50_000_000


def test_append_does_not_lose_what_came_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    place.file("x", "one ")
    real = writing._unchanged
    busy = iter([True, False])

    def unchanged(target: writing._Target) -> bool:
        if next(busy, False):
            (place.root / "x").write_text("one two ")
        return real(target)

    monkeypatch.setattr(writing, "_unchanged", unchanged)
    files.write_now(WriteFileParams(path="x", content="three", mode="append"))
    assert (place.root / "x").read_text() == "one two three"
    monkeypatch.setattr(writing, "_unchanged", lambda target: False)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(writing, "_PATIENCE_SECONDS", 0.2)
    with pytest.raises(ToolFailure, match="kept changing"):
        files.write_now(WriteFileParams(path="x", content="!", mode="append"))
    assert _everything(place.root) == ["x"]
    files.close()
    paths.close()


def test_file_that_appears_while_it_is_appended_to_is_not_overwritten(place: Place) -> None:
    paths = PathValidator(place.root)
    fd = os.open(place.root, os.O_PATH)
    target = writing._Target(fd, "x", "x", None, None)
    assert writing._unchanged(target)
    place.file("x")
    assert not writing._unchanged(target)
    os.close(fd)
    paths.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for others")
async def test_what_root_writes_in_somebodys_workspace_is_theirs(workspace: Workspace, place: Place) -> None:
    os.chown(place.root, 65534, 65534)
    await workspace.run("write_file", {"path": "a/b/new.txt", "content": "x", "mode": "write"})
    owners = {(place.root / name).stat().st_uid for name in ("a", "a/b", "a/b/new.txt")}
    assert owners == {65534}


TWO_HANDS = """
import sys, threading
from byleave.protocol.tools import WriteFileParams
from byleave.workspace.files.executor import FileSystemExecutor
from byleave.workspace.paths import PathValidator
root, who, *paths = sys.argv[1:]
files = FileSystemExecutor(PathValidator(root))
print("ready", flush=True)
sys.stdin.readline()
def append(hand):
    for path in paths:
        for number in range(10):
            content = f"{who}{hand} {number} {'x' * 2000}\\n"
            files.write_now(WriteFileParams(path=path, content=content, mode="append"))
threads = [threading.Thread(target=append, args=(hand,)) for hand in "lr"]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_two_clients_that_append_at_once_lose_nothing(place: Place) -> None:
    place.file("log.txt")
    paths = ("log.txt", "new/deep/log.txt")
    command = [sys.executable, "-c", TWO_HANDS, str(place.root)]
    clients = [
        subprocess.Popen([*command, who, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for who in "ab"
    ]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    for client in clients:
        client.communicate()
        assert client.returncode == 0
    expected = [f"{who}{hand} {number} {'x' * 2000}" for who in "ab" for hand in "lr" for number in range(10)]
    for path in paths:
        lines = (place.root / path).read_text().splitlines()
        assert _digest(sorted(lines)) == _digest(sorted(expected))
        assert [line for line in lines if line.startswith("al")] == expected[:10]
    assert not [name for name in _everything(place.root) if name.endswith(".tmp")]


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_answer(place: Place, tmp_path: Path) -> None:
    place.file("old.txt", "old")
    script = (
        "import sys; from byleave.protocol.tools import WriteFileParams as P\n"
        "from byleave.workspace.files.executor import FileSystemExecutor\n"
        "from byleave.workspace.paths import PathValidator\n"
        "f = FileSystemExecutor(PathValidator(sys.argv[1]))\n"
        "for path in ('old.txt', 'a/b/new.txt'):\n"
        "    f.write_now(P(path=path, content='new')); print('answered', flush=True)\n"
    )
    trace = tmp_path / "trace"
    calls = "trace=fsync,linkat,rename,renameat,renameat2,write"
    subprocess.run(
        ["strace", "-f", "-y", "-e", calls, "-o", str(trace), sys.executable, "-c", script, str(place.root)],
        check=True,
        capture_output=True,
    )
    steps = [
        (found[1], found[2])
        for line in trace.read_text().splitlines()
        if (found := re.search(r"(fsync|linkat|rename\w*|write)\((.*)", line))
        and (str(place.root) in found[2] or "answered" in found[2])
    ]
    root = re.escape(str(place.root))
    nameless = rf"\d+<{root}\S*/#\d+.*>"
    expected = [
        *[("write", nameless), ("fsync", nameless), ("linkat", r".*\.tmp"), ("rename", r".*\.tmp.*old\.txt")],
        *[("fsync", rf"\d+<{root}>"), ("write", "1<.*answered")],
        *[("write", nameless), ("fsync", nameless), ("linkat", r".*new\.txt")],
        *[("fsync", rf"\d+<{root}/a/b>"), ("fsync", rf"\d+<{root}>"), ("fsync", rf"\d+<{root}/a>")],
        ("write", "1<.*answered"),
    ]
    assert len(steps) == len(expected), steps
    for (name, arguments), (call, pattern) in zip(steps, expected, strict=True):
        assert name.startswith(call), steps
        assert re.match(pattern, arguments), (pattern, arguments)


def test_file_that_another_program_locked_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_LOCK_SECONDS", 0.05)
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    directory = os.open(place.root, os.O_RDONLY)
    with place.file("x", "old").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ToolFailure, match="Another program has locked 'x'"):
            files.write_now(WriteFileParams(path="x", content="new"))
        fcntl.flock(directory, fcntl.LOCK_EX)  # a directory that is locked keeps nobody from making a file in it
        assert files.write_now(WriteFileParams(path="y", content="new")).size == 3
    os.close(directory)
    assert (place.root / "x").read_text() == "old"
    assert _everything(place.root) == ["x", "y"]
    files.close()
    paths.close()


@pytest.mark.parametrize("mode", [0o555, 0o600])
async def test_directory_that_is_read_only_or_closed_is_refused_even_for_root(
    workspace: Workspace, place: Place, mode: int
) -> None:
    place.file("d/x", "old")
    (place.root / "d").chmod(mode)
    for path in ("d/x", "d/new"):
        with pytest.raises(ToolFailure, match="No permission"):
            await _write(workspace, path, "new")
    (place.root / "d").chmod(0o755)
    assert _everything(place.root) == ["d", "d/x"]
    assert (place.root / "d/x").read_text() == "old"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without nameless files: it takes the flag for the directory it is part of."""
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)


@pytest.mark.usefixtures("named")
async def test_file_system_without_nameless_files_is_written_all_the_same(workspace: Workspace, place: Place) -> None:
    await _write(workspace, "x", "one\n")
    await _write(workspace, "x", "two\n", "append")
    await _write(workspace, "x", "three\n", "append")
    assert (place.root / "x").read_text() == "one\ntwo\nthree\n"
    stop = threading.Event()
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    with pytest.raises(ZeroDivisionError):
        files.write_now(WriteFileParams(path="y", content="y"), stop, lambda replacing: 1 // 0)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        files.write_now(WriteFileParams(path="x", content="y"), stop, lambda replacing: 1 // 0)  # type: ignore[arg-type]
    assert _everything(place.root) == ["x"]
    assert (place.root / "x").read_text() == "one\ntwo\nthree\n"
    files.close()
    paths.close()


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_file_system_without_hard_links_is_written_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(code, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    files.write_now(WriteFileParams(path="x", content="new"))
    with pytest.raises(ToolFailure, match="appeared while it was written"):
        files.write_now(WriteFileParams(path="y", content="new"), None, lambda _: place.file("y", "theirs") and None)
    assert ((place.root / "x").read_text(), (place.root / "y").read_text()) == ("new", "theirs")
    assert _everything(place.root) == ["x", "y"]
    files.close()
    paths.close()


def test_link_that_fails_for_another_reason_leaves_no_debris(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", failing)
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    with pytest.raises(ToolFailure, match="could not be used"):
        files.write_now(WriteFileParams(path="a/x", content="new"))
    assert _everything(place.root) == []
    files.close()
    paths.close()


async def test_half_a_character_is_not_written(workspace: Workspace, place: Place) -> None:
    with pytest.raises(InvalidParameters, match="half a surrogate pair"):
        await workspace.run("write_file", {"path": "x.txt", "content": "\ud800"})
    assert _everything(place.root) == []


@pytest.mark.parametrize("mode", ["write", "append"])
def test_file_that_appears_at_the_last_moment_is_never_replaced(place: Place, mode: Literal["write", "append"]) -> None:
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    params = WriteFileParams(path="a/x", content="new", mode=mode)
    with pytest.raises(ToolFailure, match="appeared while it was written"):
        files.write_now(params, None, lambda _: place.file("a/x", "theirs") and None)
    assert (place.root / "a/x").read_text() == "theirs"
    assert _everything(place.root) == ["a", "a/x"]
    files.close()
    paths.close()


def test_directory_that_is_removed_meanwhile_is_made_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real, gone = writing.create_draft, iter([True])

    def create(dir_fd: int, mode: int) -> tuple[int, str | None]:
        if next(gone, False):
            (place.root / "a").rmdir()
        return real(dir_fd, mode)

    monkeypatch.setattr(writing, "create_draft", create)
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    files.write_now(WriteFileParams(path="a/x", content="new"))
    assert (place.root / "a/x").read_text() == "new"
    files.close()
    paths.close()


async def test_disk_that_does_not_confirm_is_told(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "sync_directory", lambda fd: False)  # pyright: ignore[reportUnknownLambdaType]
    result = await _write(workspace, "x", "new")
    assert result.warnings == [writing._NOT_SYNCED]
    assert (place.root / "x").read_text() == "new"


def test_file_that_may_only_be_written_can_be_locked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def reopen(fd: int, flags: int) -> int:
        if not flags & (os.O_WRONLY | os.O_DIRECTORY):
            raise PermissionError
        return drafts.reopen(fd, flags)

    place.file("x", "old")
    monkeypatch.setattr(writing, "reopen", reopen)
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths)
    files.write_now(WriteFileParams(path="x", content="new"))
    assert (place.root / "x").read_text() == "new"
    files.close()
    paths.close()


@pytest.mark.promise("S")
async def test_name_of_a_draft_is_never_written(workspace: Workspace, place: Place) -> None:
    for path in (".byleave-0123456789abcdef.tmp", "a/.BYLEAVE-0123456789ABCDEF.TMP/x"):
        with pytest.raises(PathValidationError, match="never written"):
            await _write(workspace, path, "x")
    assert _everything(place.root) == []


def test_only_drafts_whose_writer_is_gone_are_removed(place: Place) -> None:
    left, used, hidden = (f".byleave-{digit * 16}.tmp" for digit in "abc")
    place.file(f"a/{left}", "half")
    place.file(f".github/{left}", "half")
    place.file(f".git/{hidden}", "git's own")
    place.file(".byleave-short.tmp", "theirs")
    os.mkfifo(place.root / f".byleave-{'d' * 16}.tmp")
    (place.root / f".byleave-{'e' * 16}.tmp").symlink_to("../out/secret.txt")
    (place.root / "out").symlink_to("../out")
    (place.outside / left).write_text("outside")
    with place.file(used, "being written").open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        before = set(_everything(place.root))
        assert drafts.remove_drafts(place.root) == 2
        assert before - set(_everything(place.root)) == {f"a/{left}", f".github/{left}"}
    assert drafts.remove_drafts(place.root) == 1
    assert (place.outside / left).read_text() == "outside"
    assert (place.outside / "secret.txt").read_text() == "SECRET"


def test_sync_that_fails_is_told_unless_there_is_nothing_to_sync(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(place.root, os.O_PATH)
    for code, confirmed in ((errno.EIO, False), (errno.EINVAL, True)):

        def fsync(fd: int, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", fsync)
        assert drafts.sync_directory(fd) is confirmed
    os.close(fd)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
async def test_text_of_two_bytes_a_character_is_not_appended_to(
    workspace: Workspace, place: Place, encoding: str
) -> None:
    old = "\ufeffold\n".encode(encoding) if encoding.endswith("be") else "old\n".encode(encoding)
    place.file("x.txt", old)
    with pytest.raises(ToolFailure, match="what is appended would be in UTF-8"):
        await _write(workspace, "x.txt", "new\n", "append")
    assert (place.root / "x.txt").read_bytes() == old
    assert _everything(place.root) == ["x.txt"]
    await _write(workspace, "x.txt", "new\n")
    await _write(workspace, "x.txt", "newer\n", "append")
    assert (place.root / "x.txt").read_text() == "new\nnewer\n"


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    "path",
    [
        *(".git:x/config", ".git::$INDEX_ALLOCATION/x", ".git\u00a0/x", "\uff0egit/x", ".\uff47it/x", "git~2/x"),
        *("a.so.1", "a.exe:x", "a.pyc", "a.\uff45xe", "a.exe\u00a0", "x.txt/."),
    ],
)
async def test_second_wall_knows_every_spelling_the_first_does(workspace: Workspace, place: Place, path: str) -> None:
    with pytest.raises((PathValidationError, ToolFailure)):
        await _write(workspace, path, "x")
    assert _everything(place.root) == []


@pytest.mark.parametrize("path", ["node_modules/.bin/x.md", "org.acme.lib/x.md", "x.so/y.md"])
async def test_directory_may_end_like_a_program(workspace: Workspace, place: Place, path: str) -> None:
    await _write(workspace, path, "x")
    assert (place.root / path).read_text() == "x"
