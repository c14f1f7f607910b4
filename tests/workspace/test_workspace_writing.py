"""write_file: all or nothing, inside, with the permissions the user gave."""

import asyncio
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from assent.protocol.errors import ExecutionCancelled, PathValidationError, ToolFailure
from assent.protocol.tools import WriteFileParams, WriteFileResult
from assent.settings import ClientSettings
from assent.workspace import FileSystemExecutor, PathValidator, Workspace, writing

from .conftest import Place

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
    [".git/config", ".GIT/hooks/pre-commit", "sub/.git/hooks/x", ".assent/policy.toml", ".git./x", "git~1/config"],
)
@pytest.mark.promise("S")
async def test_git_and_assent_are_never_written(workspace: Workspace, place: Place, path: str) -> None:
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
async def test_hard_link_to_outside_is_replaced_not_written(workspace: Workspace, place: Place) -> None:
    os.link(place.outside / "secret.txt", place.root / "h")
    await _write(workspace, "h", "new")
    assert (place.outside / "secret.txt").read_text() == "SECRET"


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
        "import sys; from assent.protocol.tools import WriteFileParams as P; from assent.workspace import *\n"
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
