"""What a write would replace is looked at before it is asked about, and only that is replaced: real files and races."""

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from byleave.gate import Policy, parse_policy
from byleave.protocol.approvals import SeenFile, SeenRole
from byleave.protocol.changes import MAX_SHOWN_TEXT
from byleave.protocol.errors import DriftedError, ToolFailure
from byleave.protocol.overview import Layer
from byleave.protocol.tools import WriteFileParams, WriteFileResult
from byleave.workspace.files import writing as writing_module
from byleave.workspace.files.executor import FileSystemExecutor
from byleave.workspace.files.inspection import inspect_write
from byleave.workspace.paths import PathValidator
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("A", "S")

NOBODY = 65534
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


def sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


async def look(workspace: Workspace, path: str) -> SeenFile:
    inspection = await workspace.inspect_write(path)
    assert inspection.problem is None
    [file] = inspection.files
    assert file.role is SeenRole.REPLACES
    return file


async def problem(workspace: Workspace, path: str) -> str:
    inspection = await workspace.inspect_write(path)
    assert inspection.files == []
    return inspection.problem or ""


def write(
    place: Place,
    bound: dict[str, str],
    content: str = "new",
    *,
    path: str = "a.txt",
    append: bool = False,
    keep: Callable[[object], None] | None = None,
) -> WriteFileResult:
    files = FileSystemExecutor(PathValidator(place.root), max_file_bytes=1000)
    params = WriteFileParams(path=path, content=content, mode="append" if append else "write")
    return files.write_now(params, None, keep, bound)


# Looking


async def test_what_stands_there_is_told_with_its_digest_and_text(workspace: Workspace, place: Place) -> None:
    place.file("a.txt", "one\ntwo\n")
    seen = await look(workspace, "./a.txt")
    assert (seen.path, seen.sha256, seen.size, seen.text) == ("a.txt", sha("one\ntwo\n"), 8, "one\ntwo\n")
    assert seen.modified_at is not None
    assert (seen.note, seen.shortened) == (None, False)


@pytest.mark.parametrize("path", ["new.txt", "a/b/new.txt"])
async def test_what_is_not_there_is_told_as_missing(workspace: Workspace, path: str) -> None:
    seen = await look(workspace, path)
    assert (seen.path, seen.sha256, seen.text) == (path, "missing", None)


async def test_behind_a_link_the_real_path_is_told(workspace: Workspace, place: Place) -> None:
    place.file("docs/real.txt", "real")
    (place.root / "docs/link.txt").symlink_to("real.txt")
    (place.root / "way").symlink_to("docs")
    assert (await look(workspace, "docs/link.txt")).path == "docs/real.txt"
    assert (await look(workspace, "way/new.txt")).path == "docs/new.txt"


async def test_secrets_are_masked_before_anything_leaves_the_machine(workspace: Workspace, place: Place) -> None:
    place.file("a.txt", f"token = {SECRET}\nrest\n")
    seen = await look(workspace, "a.txt")
    assert SECRET not in (seen.text or "")
    assert "rest" in (seen.text or "")
    assert seen.sha256 == sha(f"token = {SECRET}\nrest\n")


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("a.dat", b"a\x00b", "It is not text."),
        ("a.txt", b"caf\xe9\n", "It is not text in UTF-8."),
        ("a.txt", b"x" * (MAX_SHOWN_TEXT + 1), "It is too long to be shown here."),
        ("a.txt", b"x" * (5 * MAX_SHOWN_TEXT), "It is too long to be shown here."),
        ("a.txt", "\U0001f600".encode() * MAX_SHOWN_TEXT, "It is too long to be shown here."),
        (".env", b"PASSWORD=hunter2\n", "Its name says that it may hold secrets, so its content is not shown."),
    ],
)
async def test_why_a_text_is_not_told_is_said_and_its_digest_is_there(
    workspace: Workspace, place: Place, name: str, content: bytes, note: str
) -> None:
    place.file(name, content)
    seen = await look(workspace, name)
    assert (seen.text, seen.note, seen.shortened) == (None, note, True)
    assert (seen.sha256, seen.size) == (sha(content), len(content))


async def test_one_long_line_is_told_whole(workspace: Workspace, place: Place) -> None:
    place.file("a.txt", "x" * MAX_SHOWN_TEXT)
    assert len((await look(workspace, "a.txt")).text or "") == MAX_SHOWN_TEXT


@pytest.mark.parametrize("path", ["shut/new.txt", "shut/there.txt", "shut/deep/new.txt"])
def test_a_person_is_not_asked_about_a_write_into_a_read_only_directory(path: str) -> None:
    with tempfile.TemporaryDirectory() as base:  # not pytest's own: another user has to reach it
        os.chmod(base, 0o755)
        shut = Path(base) / "shut"
        shut.mkdir()
        (shut / "there.txt").write_text("x")
        shut.chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(shut / "there.txt", NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            inspection = inspect_write(PathValidator(Path(base)), path)
        finally:
            if is_root:
                os.seteuid(0)
            shut.chmod(0o755)
    assert "directory 'shut' is read-only" in (inspection.problem or "")


async def test_what_no_write_could_replace_is_not_looked_at(workspace: Workspace, place: Place) -> None:
    os.mkfifo(place.root / "pipe")
    (place.root / "dir").mkdir()
    (place.root / "out").symlink_to(place.outside / "secret.txt")
    (place.root / "dead").symlink_to("nowhere")
    place.file("two", "x")
    os.link(place.root / "two", place.root / "names")
    place.file("fixed", "x").chmod(0o444)
    place.file("blind", "x").chmod(0o200)
    place.file(".git/config", "x")
    (place.root / "innocent").symlink_to(".git/config")
    place.file(".env", "x")
    (place.root / "plain.md").symlink_to(".env")
    assert "not a regular file" in await problem(workspace, "pipe")
    assert "is a directory" in await problem(workspace, "dir")
    assert "names a directory" in await problem(workspace, "dir/")
    assert "outside the workspace" in await problem(workspace, "out")
    assert "is a link to something that is not there" in await problem(workspace, "dead")
    assert "has another name" in await problem(workspace, "names")
    assert "read-only" in await problem(workspace, "fixed")
    assert "No permission" in await problem(workspace, "blind")
    assert "never written" in await problem(workspace, "innocent")
    assert "judged more strictly" in await problem(workspace, "plain.md")
    assert "is a file, not a directory" in await problem(workspace, "two/x")
    assert "cannot be told" in await problem(workspace, "none/../x")


async def test_a_pipe_is_not_even_opened(workspace: Workspace, place: Place) -> None:
    os.mkfifo(place.root / "pipe")
    assert "not a regular file" in await problem(workspace, "pipe")
    with pytest.raises(OSError, match="No such device"):  # nobody reads it, so nobody was let go on
        os.open(place.root / "pipe", os.O_WRONLY | os.O_NONBLOCK)


async def test_a_huge_sparse_file_costs_nothing(workspace: Workspace, place: Place) -> None:
    os.truncate(place.file("a.txt"), 10 * 1024**3)
    began = time.monotonic()
    assert "larger than" in await problem(workspace, "a.txt")
    assert time.monotonic() - began < 2


async def test_what_changes_kind_while_it_is_looked_at_is_never_waited_for(place: Place, tmp_path: Path) -> None:
    """A file that is a pipe, a link out and a directory by turns: each look ends, and tells no byte from outside."""
    paths, stop = PathValidator(place.root), threading.Event()
    target = place.root / "a.txt"
    spare = tmp_path / "spare"

    def swap() -> None:
        while not stop.is_set():
            for make in (
                lambda: spare.write_text("inside"),
                lambda: os.mkfifo(spare),
                lambda: spare.symlink_to(place.outside / "secret.txt"),
            ):
                make()
                os.replace(spare, target)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(300):
            for file in inspect_write(paths, "a.txt").files:
                assert file.text in (None, "inside")
    finally:
        stop.set()
        swapping.join()
    paths.close()


def policy(text: str) -> Policy:
    return Policy((parse_policy(text, Layer.USER, source="policy.toml"),))


async def test_what_the_owner_denies_is_not_looked_at_and_what_may_not_be_read_is_not_told(
    workspace: Workspace, place: Place
) -> None:
    place.file("private/a.txt", "hidden")
    place.file("blind/a.txt", "hidden")
    (place.root / "door").symlink_to("private")
    rules = '[[rule]]\naction = "deny"\ntool = "{}"\npaths = ["{}/**"]\n'
    workspace.obey(policy(rules.format("write_file", "private") + rules.format("read_file", "blind")))
    assert "denied by rule" in await problem(workspace, "private/a.txt")
    assert "denied by rule" in await problem(workspace, "door/a.txt")
    assert "denied by rule" in await problem(workspace, "door/new.txt")
    seen = await look(workspace, "blind/a.txt")
    assert (seen.text, seen.note, seen.sha256) == (None, "A rule denies reading it.", sha("hidden"))


async def test_a_fault_of_ours_says_that_nothing_is_known(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("a.txt", "x")
    monkeypatch.setattr("byleave.workspace.files.inspection._text", lambda *_: 1 // 0)
    assert await problem(workspace, "a.txt") == "The file could not be looked at (ZeroDivisionError)."


# Writing


def test_a_bound_write_replaces_what_was_shown(place: Place) -> None:
    target = place.file("a.txt", "old")
    assert write(place, {"a.txt": sha("old")}).size == 3
    assert target.read_text() == "new"
    assert write(place, {"a.txt": sha("new")}, "er\n", append=True).size == 6
    assert target.read_text() == "newer\n"
    write(place, {"b/c.txt": "missing"}, path="b/c.txt")
    assert (place.root / "b/c.txt").read_text() == "new"


@pytest.mark.parametrize("append", [False, True])
def test_another_content_than_was_shown_is_drift_and_stays(place: Place, append: bool) -> None:
    target = place.file("a.txt", "theirs")
    with pytest.raises(DriftedError, match="changed after it was shown; nothing was written"):
        write(place, {"a.txt": sha("old")}, append=append)
    with pytest.raises(DriftedError):
        write(place, {"a.txt": "missing"}, append=append)
    assert (target.read_text(), os.listdir(place.root)) == ("theirs", ["a.txt"])


def test_a_file_that_is_gone_is_drift_and_nothing_is_made(place: Place) -> None:
    with pytest.raises(DriftedError):
        write(place, {"b/a.txt": sha("old")}, path="b/a.txt")
    assert os.listdir(place.root) == []


def test_a_file_that_already_is_what_was_approved_is_no_drift(place: Place) -> None:
    place.file("a.txt", "new")
    assert write(place, {"a.txt": sha("old")}).size == 3
    with pytest.raises(DriftedError):
        write(place, {"a.txt": sha("old")}, append=True)


def test_a_file_that_grew_beyond_every_look_is_drift_at_once(place: Place) -> None:
    os.truncate(place.file("a.txt"), 10 * 1024**3)
    with pytest.raises(DriftedError):
        write(place, {"a.txt": sha("old")})


@pytest.mark.parametrize(
    "put",
    [
        lambda target: os.mkfifo(target),
        lambda target: target.mkdir(),
        lambda target: target.symlink_to("/etc/hostname"),
        lambda target: target.symlink_to("nowhere"),
    ],
)
def test_what_came_in_its_place_is_drift(place: Place, put: Callable[[Path], None]) -> None:
    put(place.root / "a.txt")
    with pytest.raises(DriftedError, match="It is not what was shown; nothing was written"):
        write(place, {"a.txt": sha("old")})


def test_a_link_turned_to_a_file_with_the_same_content_is_drift(place: Place) -> None:
    place.file("shown/x", "old")
    other = place.file("other/x", "old")
    (place.root / "a.txt").symlink_to("other/x")
    with pytest.raises(DriftedError):
        write(place, {"shown/x": sha("old")})
    assert other.read_text() == "old"


@pytest.mark.parametrize("append", [False, True])
def test_a_change_right_before_the_rename_is_drift(place: Place, append: bool) -> None:
    """While what is replaced is kept for undo, somebody goes on writing, or puts another file there."""
    target = place.file("a.txt", "old")

    def rewrite(_: object) -> None:
        target.write_text("theirs")

    with pytest.raises(DriftedError):
        write(place, {"a.txt": sha("old")}, append=append, keep=rewrite)
    target.write_text("old")

    def replace(_: object) -> None:
        place.file("other", "theirs").rename(target)

    with pytest.raises(DriftedError):
        write(place, {"a.txt": sha("old")}, append=append, keep=replace)
    assert target.read_text() == "theirs"


def test_a_file_that_appears_while_it_is_written_is_drift(place: Place) -> None:
    with pytest.raises(DriftedError):
        write(place, {"a.txt": "missing"}, keep=lambda _: place.file("a.txt", "theirs") and None)
    assert (place.root / "a.txt").read_text() == "theirs"
    os.unlink(place.root / "a.txt")
    with pytest.raises(ToolFailure, match="appeared"):  # without an approval that showed it missing
        write(place, {}, keep=lambda _: place.file("a.txt", "theirs") and None)


def test_what_was_copied_counts_not_what_was_put_back_for_the_look(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer beside us shows other bytes while they are copied, and hides that with the file's old times."""
    target = place.file("a.txt", "old")
    times = os.stat(target)
    copy = writing_module._Writer._copy_old

    def copying(writer: Any, *more: Any) -> Any:
        target.write_text("bad")
        try:
            return copy(writer, *more)
        finally:
            target.write_text("old")
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))

    monkeypatch.setattr(writing_module._Writer, "_copy_old", copying)
    with pytest.raises(DriftedError):
        write(place, {"a.txt": sha("old")}, append=True)
    assert target.read_text() == "old"
