"""read_file and list_directory: what comes back, and what is refused."""

import asyncio
import base64
import errno
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from byleave.protocol.errors import ByleaveError, InvalidParameters, PathValidationError, ToolFailure, ToolTypeError
from byleave.protocol.tools import ListDirectoryParams, ListDirectoryResult, ReadFileParams, ReadFileResult
from byleave.protocol.wire import moment
from byleave.settings import ClientSettings
from byleave.workspace.files import executor as listing
from byleave.workspace.files.contents import cut_lines
from byleave.workspace.files.executor import FileSystemExecutor
from byleave.workspace.paths import PathValidator
from byleave.workspace.workspace import Workspace
from harness.place import Place


async def _read(workspace: Workspace, path: str, **rest: int) -> ReadFileResult:
    result = await workspace.run("read_file", {"path": path, **rest})
    assert isinstance(result, ReadFileResult)
    return result


async def _list(workspace: Workspace, **params: object) -> ListDirectoryResult:
    result = await workspace.run("list_directory", params)
    assert isinstance(result, ListDirectoryResult)
    return result


@pytest.mark.promise("T1")
@pytest.mark.parametrize(
    ("data", "content", "encoding"),
    [
        (b"plain\n", "plain\n", "utf-8"),
        (b"", "", "utf-8"),
        ("é\r\n".encode(), "é\r\n", "utf-8"),
        ("é".encode("utf-8-sig"), "é", "utf-8-sig"),
        ("é".encode("utf-16"), "é", "utf-16"),
        ("é".encode("utf-32"), "é", "utf-32"),
        ("caf\xe9".encode("latin-1"), "café", "latin-1"),
        ("\u20ac \xe9".encode("cp1252"), "€ é", "cp1252"),
        (b"\x81\xe9", "\x81é", "latin-1"),
        (b"%PDF-1.4 text", base64.b64encode(b"%PDF-1.4 text").decode(), "base64"),
        (b"\x89PNG\r\n\x1a\n\x00", base64.b64encode(b"\x89PNG\r\n\x1a\n\x00").decode(), "base64"),
        (b"RIFF\x00\x00\x00\x00WEBP", base64.b64encode(b"RIFF\x00\x00\x00\x00WEBP").decode(), "base64"),
        (b"\x00\x00\x00\x20ftypavif", base64.b64encode(b"\x00\x00\x00\x20ftypavif").decode(), "base64"),
        (b"<svg/>", "<svg/>", "utf-8"),
    ],
)
async def test_file_comes_with_the_encoding_it_was_read_in(
    workspace: Workspace, place: Place, data: bytes, content: str, encoding: str
) -> None:
    place.file("x", data)
    result = await _read(workspace, "x")
    assert (result.content, result.encoding, result.size) == (content, encoding, len(data))


@pytest.mark.promise("T1")
@pytest.mark.parametrize(
    "data",
    [
        *(b"\x7fELF\x00\x01", b"\xff\xfe\x00\xd8", b"ab\x00", b"\xff\x01\x02", b"RIFF\x00\x00\x00\x00WAVE"),
        *(b"\x00\x00\xfe\xff" + rest for rest in (b"\x00\x11\x00\x00", b"\x00\x00\xd8\x00", b"\x00\x00\x00")),
    ],
)
async def test_binary_file_is_refused(workspace: Workspace, place: Place, data: bytes) -> None:
    place.file("x.bin", data)
    with pytest.raises(ToolFailure, match="binary file"):
        await _read(workspace, "x.bin")


@pytest.mark.promise("T1")
async def test_line_range_is_cut_and_the_total_told(workspace: Workspace, place: Place) -> None:
    place.file("x", "one\ntwo\u2028still two\nthree")
    result = await _read(workspace, "x", start_line=2, end_line=99)
    assert result.content == "two\u2028still two\nthree"
    assert (result.start_line, result.end_line, result.total_lines) == (2, 3, 3)
    assert (await _read(workspace, "x", end_line=1)).content == "one\n"
    assert (await _read(workspace, "x")).total_lines == 3


@pytest.mark.promise("T1")
async def test_impossible_line_range_is_an_error(workspace: Workspace, place: Place) -> None:
    place.file("x", "one\n")
    place.file("x.png", b"\x89PNG\r\n\x1a\n\x00")
    with pytest.raises(ToolFailure, match="has 1 line; there is no line 2"):
        await _read(workspace, "x", start_line=2)
    with pytest.raises(InvalidParameters, match="comes before"):
        await _read(workspace, "x", start_line=3, end_line=2)
    with pytest.raises(InvalidParameters, match="no lines"):
        await _read(workspace, "x.png", start_line=1)


@pytest.mark.promise("T1")
def test_lines_past_the_end_are_empty() -> None:
    assert cut_lines("a\nb", 5, None).text == ""


@pytest.mark.promise("T1", "G4")
async def test_file_over_the_limit_is_refused(place: Place, tmp_path: Path) -> None:
    workspace = Workspace(place.root, ClientSettings(home=tmp_path, max_file_bytes=10))
    place.file("fits", b"x" * 10)
    place.file("over", b"x" * 11)
    assert (await _read(workspace, "fits")).size == 10
    with pytest.raises(ToolFailure, match="larger than 10 bytes"):
        await _read(workspace, "over")
    await workspace.close()


@pytest.mark.promise("T1", "G4")
def test_limit_holds_while_a_file_grows(place: Place) -> None:
    paths = PathValidator(place.root)
    files = FileSystemExecutor(paths, max_file_bytes=100)
    read_end, write_end = os.pipe()
    os.write(write_end, b"x" * 200)  # a size of 0 and bytes all the same, as a file that grew has
    with pytest.raises(ToolFailure, match="larger than"):
        files._read_rest(read_end, "x", b"")
    os.close(read_end)
    os.close(write_end)
    files.close()
    paths.close()


@pytest.mark.promise("T1")
async def test_large_file_is_read_whole(workspace: Workspace, place: Place) -> None:
    place.file("big", b"0123456789abcde\n" * 65536)
    result = await _read(workspace, "big")
    assert (result.size, result.total_lines) == (1 << 20, 65536)


@pytest.mark.promise("T1")
async def test_what_is_no_regular_file_is_refused_without_waiting(workspace: Workspace, place: Place) -> None:
    os.mkfifo(place.root / "pipe")
    (place.root / "d").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        # The address of a socket is short, so it is bound by its name alone.
        here = os.open(".", os.O_RDONLY)
        os.chdir(place.root)
        listener.bind("sock")
        os.fchdir(here)
        os.close(here)
        async with asyncio.timeout(2):
            for path, words in (("pipe", "a FIFO"), ("d", "a directory"), ("sock", "not a regular file")):
                with pytest.raises(ToolFailure, match=words):
                    await _read(workspace, path)


@pytest.mark.promise("T1", "S")
async def test_unreadable_and_missing_files_are_said_without_the_machines_paths(
    workspace: Workspace, place: Place
) -> None:
    place.file("locked", "x").chmod(0)
    for path, words in (("locked", "No permission"), ("missing", "There is no 'missing'")):
        with pytest.raises(ToolFailure, match=words) as caught:
            await _read(workspace, path)
        assert str(place.root) not in str(caught.value)


@pytest.mark.promise("T1", "S")
async def test_link_does_not_hide_that_a_file_holds_secrets(workspace: Workspace, place: Place) -> None:
    place.file(".env", "KEY=1")
    place.file("plain.txt", "x")
    (place.root / "notes.txt").symlink_to(".env")
    (place.root / "other.txt").symlink_to("plain.txt")
    for tool, params in (("read_file", {}), ("search_files", {"pattern": "KEY"})):
        with pytest.raises(PathValidationError, match="may hold secrets"):
            await workspace.run(tool, {"path": "notes.txt", **params})
    assert (await _read(workspace, ".env")).content == "KEY=1"
    assert (await _read(workspace, "other.txt")).content == "x"


async def test_dots_behind_a_linked_directory_do_not_hide_that_a_file_holds_secrets(
    workspace: Workspace, place: Place
) -> None:
    place.file(".docker/config.json", "KEY=1")
    place.file(".docker/contexts/x", "x")
    (place.root / "link").symlink_to(".docker/contexts")
    with pytest.raises(PathValidationError, match="may hold secrets"):
        await workspace.run("read_file", {"path": "link/../config.json"})


@pytest.mark.promise("W4", "C1")
async def test_unknown_tool_and_wrong_parameters_are_refused(workspace: Workspace) -> None:
    with pytest.raises(ToolTypeError, match="There is no tool 'rm'"):
        await workspace.run("rm", {})
    with pytest.raises(InvalidParameters, match=r"read_file: cwd"):
        await workspace.run("read_file", {"path": "x", "cwd": "/"})
    with pytest.raises(InvalidParameters, match=r"path"):
        await workspace.run("read_file", {})


@pytest.mark.promise("T1")
async def test_walk_and_kernel_read_the_same(place: Place) -> None:
    place.file("x", "same")
    paths = PathValidator(place.root, use_openat2=False)
    files = FileSystemExecutor(paths)
    assert (await files.read_file(ReadFileParams(path="x"))).content == "same"
    files.close()
    paths.close()


@pytest.mark.promise("T4")
async def test_directory_is_listed_in_order_with_sizes_and_times(workspace: Workspace, place: Place) -> None:
    place.file("b.txt", "12345")
    place.file("a/inner.py", "x")
    place.file(".hidden", "x")
    os.utime(place.root / "b.txt", (1_700_000_000.25, 1_700_000_000.25))
    result = await _list(workspace)
    assert [(entry.name, entry.path, entry.type) for entry in result.files] == [
        ("a", "a", "directory"),
        ("b.txt", "b.txt", "file"),
    ]
    assert (result.files[1].size, result.total_count, result.truncated) == (5, 2, False)
    assert moment(result.files[1].modified).timestamp() == 1_700_000_000.25


@pytest.mark.promise("T4")
async def test_recursive_listing_goes_down_but_not_into_hidden_directories(workspace: Workspace, place: Place) -> None:
    for name in ("src/a.py", "src/deep/b.py", ".git/config", "src/.env", "top.py", "notes.md"):
        place.file(name)
    found = await _list(workspace, recursive=True, pattern="*.py")
    assert [entry.path for entry in found.files] == ["src/a.py", "src/deep/b.py", "top.py"]
    found = await _list(workspace, recursive=True, pattern=".*")
    assert [entry.path for entry in found.files] == [".git", "src/.env"]
    found = await _list(workspace, path="src/deep")
    assert [entry.path for entry in found.files] == ["src/deep/b.py"]


@pytest.mark.promise("T4", "G1")
async def test_links_are_listed_but_never_followed_outside(workspace: Workspace, place: Place) -> None:
    place.file("d/x")
    (place.root / "in").symlink_to("d")
    (place.root / "out").symlink_to("../out")
    (place.root / "gone").symlink_to("nowhere")
    found = await _list(workspace, recursive=True)
    assert [(entry.path, entry.type) for entry in found.files] == [
        ("d", "directory"),
        ("d/x", "file"),
        ("gone", "file"),
        ("in", "directory"),
        ("out", "file"),
    ]


@pytest.mark.promise("T4", "G4")
async def test_listing_stops_at_a_thousand_and_says_how_many_there_are(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1500):
        (place.root / f"{number:04}").touch()
    found = await _list(workspace)
    assert (len(found.files), found.truncated, found.files[-1].name) == (1000, True, "0999")
    assert (found.total_count, found.at_least) == (1500, False)
    place.file("deeper/x")
    assert (await _list(workspace, recursive=True)).total_count == 1502
    monkeypatch.setattr(listing, "_COUNTING_SECONDS", -1.0)
    found = await _list(workspace)
    assert (found.total_count, found.at_least) == (1001, True)


@pytest.mark.promise("T4", "G4")
async def test_bounds_of_depth_names_and_time_hold(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("a/b/c/d/e")
    monkeypatch.setattr(listing, "_MAX_DEPTH", 2)
    found = await _list(workspace, recursive=True)
    assert ([entry.path for entry in found.files], found.truncated) == (["a", "a/b", "a/b/c"], True)
    assert found.at_least
    monkeypatch.setattr(listing, "_MAX_NAMES", 1)
    assert (await _list(workspace)).truncated
    monkeypatch.setattr(listing, "_MAX_SECONDS", -1.0)
    assert (await _list(workspace)).files == []


@pytest.mark.promise("T4")
async def test_listing_what_is_no_directory_is_an_error(workspace: Workspace, place: Place) -> None:
    place.file("x")
    with pytest.raises(ToolFailure, match="is a file"):
        await _list(workspace, path="x")
    with pytest.raises(InvalidParameters, match="cannot hold a '/'"):
        await _list(workspace, pattern="../*")
    with pytest.raises(PathValidationError):
        await _list(workspace, path="..")


@pytest.mark.promise("T4")
def test_entry_that_vanishes_while_listing_is_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = PathValidator(place.root)
    place.file("x")
    one = listing.Listing(paths, ListDirectoryParams(), threading.Event())
    monkeypatch.setattr(one, "_names", lambda fd: ["gone", "x"])  # pyright: ignore[reportUnknownLambdaType]
    assert [entry.name for entry in one.run().files] == ["x"]
    paths.close()


@pytest.mark.promise("T4")
def test_directory_that_cannot_be_opened_is_listed_without_its_inside(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = PathValidator(place.root)
    place.file("locked/inside")
    place.file("open/inside")
    opened = paths.open_child

    def refuse(fd: int, name: str, flags: int) -> int:
        if name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(fd, name, flags)

    monkeypatch.setattr(paths, "open_child", refuse)
    result = listing.Listing(paths, ListDirectoryParams(recursive=True), threading.Event()).run()
    assert [entry.path for entry in result.files] == ["locked", "open", "open/inside"]
    paths.close()


@pytest.mark.promise("S")
@pytest.mark.parametrize("tool", ["read_file", "list_directory", "search_files", "write_file"])
@pytest.mark.parametrize("path", ["../out/secret.txt", "/etc/passwd", "{WS}-evil/x", "..", "/proc/self/environ"])
async def test_every_tool_refuses_the_same_paths(workspace: Workspace, place: Place, tool: str, path: str) -> None:
    params: dict[str, str] = {"path": path.replace("{WS}", str(place.root))}
    params |= {"search_files": {"pattern": "x"}, "write_file": {"content": "x"}}.get(tool, {})
    with pytest.raises(ByleaveError):
        await workspace.run(tool, params)


@pytest.mark.promise("T1")
@pytest.mark.parametrize(
    ("encoding", "mark", "told"),
    [
        ("utf-8", b"", "utf-8"),
        ("utf-8", b"\xef\xbb\xbf", "utf-8-sig"),
        ("utf-16-le", b"\xff\xfe", "utf-16"),
        ("utf-16-be", b"\xfe\xff", "utf-16"),
        ("utf-32-be", b"\x00\x00\xfe\xff", "utf-32"),
        ("latin-1", b"", "latin-1"),
        ("cp1252", b"", "cp1252"),
    ],
)
async def test_lines_are_cut_in_every_encoding_and_keep_their_ends(
    workspace: Workspace, place: Place, encoding: str, mark: bytes, told: str
) -> None:
    dash = "\u2013" if encoding not in ("latin-1",) else "-"
    lines = ["eins é\r\n", f"zwei {dash} ü\r\n", "drei"]
    data = mark + "".join(lines).encode(encoding)
    place.file("x.txt", data)
    result = await _read(workspace, "x.txt", start_line=2, end_line=2)
    assert (result.content, result.encoding, result.size) == (lines[1], told, len(data))
    assert (result.start_line, result.end_line, result.total_lines) == (2, 2, 3)


@pytest.mark.promise("T1", "G4")
async def test_huge_sparse_file_is_refused_at_once(workspace: Workspace, place: Place) -> None:
    os.truncate(place.file("sparse.txt"), 10 * 1024**3)
    async with asyncio.timeout(5):
        for tool, params in (("read_file", {}), ("read_file", {"start_line": 1, "end_line": 1})):
            with pytest.raises(ToolFailure, match="is larger than"):
                await workspace.run(tool, {"path": "sparse.txt", **params})
        with pytest.raises(ToolFailure, match="larger than"):
            await workspace.run("write_file", {"path": "sparse.txt", "content": "x", "mode": "append"})
        result = await _list(workspace)
    assert result.files[0].size == 10 * 1024**3
    assert os.listdir(place.root) == ["sparse.txt"]


@pytest.mark.promise("T1", "T2", "T4", "T5")
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
async def test_no_tool_waits_for_what_is_no_regular_file(workspace: Workspace, place: Place, kind: str) -> None:
    path = place.root / "odd.txt"
    place.file("plain.txt", "needle")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.open(".", os.O_RDONLY)
        os.chdir(place.root)  # the address of a socket is short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("odd.txt")
        os.fchdir(here)
        os.close(here)
    else:
        try:
            os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("only root can make a device")
    before = path.lstat().st_mode
    async with asyncio.timeout(10):
        for tool, params in (
            ("read_file", {"path": "odd.txt"}),
            ("write_file", {"path": "odd.txt", "content": "x"}),
            ("write_file", {"path": "odd.txt", "content": "x", "mode": "append"}),
            ("list_directory", {"path": "odd.txt"}),
            ("search_files", {"path": "odd.txt", "pattern": "x"}),
        ):
            with pytest.raises(ByleaveError):
                await workspace.run(tool, params)
        listed = await _list(workspace, recursive=True)
        found = await workspace.run("search_files", {"pattern": "needle"})
    assert [entry.name for entry in listed.files] == ["odd.txt", "plain.txt"]
    assert "plain.txt" in str(found)
    assert path.lstat().st_mode == before
    assert sorted(os.listdir(place.root)) == ["odd.txt", "plain.txt"]


@pytest.mark.promise("T1", "T4")
async def test_odd_names_are_listed_so_that_they_can_be_seen(workspace: Workspace, place: Place) -> None:
    names = [b"a\nb.txt", b"bad\xff.txt", b"-dash.txt", "x\u202ey.txt".encode(), b"long" + b"x" * 247 + b".txt"]
    for name in names:
        (place.root / os.fsdecode(name)).write_text("x")
    listed = [entry.name for entry in (await _list(workspace)).files]
    assert sorted(listed) == sorted(
        ["a\\x0ab.txt", "bad\\xff.txt", "-dash.txt", "x\\u202ey.txt", os.fsdecode(names[4])]
    )
    for readable in ("-dash.txt", os.fsdecode(names[4])):
        assert (await _read(workspace, readable)).content == "x"
    for unreadable in ("a\nb.txt", "x\u202ey.txt", os.fsdecode(names[1])):
        with pytest.raises(ByleaveError):
            await _read(workspace, unreadable)


@pytest.mark.promise("T1", "S")
def test_secret_that_is_removed_while_it_is_read_stays_one(place: Place) -> None:
    paths = PathValidator(place.root)
    fd = os.open(place.file("id_rsa", "x"), os.O_RDONLY)
    named = os.open(place.file("real (deleted)", "x"), os.O_RDONLY)
    (place.root / "id_rsa").unlink()
    assert paths.real_path(fd) == "id_rsa"
    assert paths.real_path(named) == "real (deleted)"
    os.close(fd)
    os.close(named)
    paths.close()


AS_NOBODY = """
import json, os, sys
from pathlib import Path
from byleave.protocol.tools import ListDirectoryParams, ReadFileParams, WriteFileParams
from byleave.workspace.files.executor import FileSystemExecutor
from byleave.workspace.paths import PathValidator
from byleave.workspace.files.executor import Listing
import threading
os.setgroups([]); os.setgid(65534); os.setuid(65534)
paths = PathValidator(sys.argv[1])
files = FileSystemExecutor(paths)
attempts = {
    "read": lambda: files.read_now(ReadFileParams(path="private.txt")),
    "write": lambda: files.write_now(WriteFileParams(path="theirs.txt", content="x")),
    "append": lambda: files.write_now(WriteFileParams(path="theirs.txt", content="x", mode="append")),
    "new": lambda: files.write_now(WriteFileParams(path="theirs/new.txt", content="x")),
    "made": lambda: files.write_now(WriteFileParams(path="theirs/a/b/new.txt", content="x")),
    "list": lambda: Listing(paths, ListDirectoryParams(path="closed"), threading.Event()).run(),
    "enter": lambda: files.read_now(ReadFileParams(path="closed/x.txt")),
    "own": lambda: files.write_now(WriteFileParams(path="ours/new.txt", content="x")),
    "only written": lambda: files.write_now(WriteFileParams(path="ours/blind.txt", content="x")),
}
def answer(attempt):
    try:
        return str(attempt().success)
    except Exception as error:
        return error.message
print(json.dumps({name: answer(attempt) for name, attempt in attempts.items()}), flush=True)
os._exit(0)
"""


@pytest.mark.promise("T1", "T2", "T4")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_ordinary_user_is_told_what_is_not_permitted() -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base)
        root.chmod(0o755)
        for name in ("theirs", "closed", "ours"):
            (root / name).mkdir()
        for name in ("private.txt", "theirs.txt", "closed/x.txt", "ours/blind.txt"):
            (root / name).write_text("old")
        (root / "private.txt").chmod(0o600)
        (root / "closed").chmod(0o700)
        (root / "ours/blind.txt").chmod(0o200)
        os.chown(root / "ours", 65534, 65534)
        os.chown(root / "ours/blind.txt", 65534, 65534)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, base], env=env, capture_output=True, text=True, check=True
        )
        told = json.loads(done.stdout)
        assert told.pop("own") == told.pop("only written") == "True"
        assert all("No permission" in answer for answer in told.values()), told
        left = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
    assert left.pop("ours/new.txt") == left.pop("ours/blind.txt") == "x"
    assert set(left.values()) == {"old"}


@pytest.mark.promise("T1", "T4")
async def test_directory_that_nobody_may_enter_is_closed_to_every_tool(workspace: Workspace, place: Place) -> None:
    """To root too, who could."""
    place.file("closed/a.txt", "inside")
    place.file("closed/deep/a.txt", "inside")
    place.file("open/b.txt", "inside")
    (place.root / "closed").chmod(0)
    try:
        for tool, params in (
            ("read_file", {"path": "closed/a.txt"}),
            ("read_file", {"path": "closed/deep/a.txt"}),
            ("list_directory", {"path": "closed"}),
            ("list_directory", {"path": "closed/deep"}),
            ("write_file", {"path": "closed/a.txt", "content": "x"}),
            ("write_file", {"path": "closed/deep/a.txt", "content": "x"}),
            ("write_file", {"path": "closed/deep/new.txt", "content": "x"}),
        ):
            with pytest.raises(ToolFailure, match="No permission"):
                await workspace.run(tool, params)
        assert (await workspace.inspect_write("closed/deep/a.txt")).files == []
        listing = await workspace.run("list_directory", {"recursive": True})
        assert isinstance(listing, ListDirectoryResult)
        assert [entry.path for entry in listing.files] == ["closed", "open", "open/b.txt"]
        (place.root / "closed").chmod(0o111)  # to be entered, not to be listed
        assert (await _read(workspace, "closed/a.txt")).content == "inside"
        with pytest.raises(ToolFailure, match="No permission"):
            await workspace.run("list_directory", {"path": "closed"})
    finally:
        (place.root / "closed").chmod(0o755)


@pytest.mark.promise("T4")
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.{py,txt}", ["a.py", "b.txt"]),
        ("{a,b}.*", ["a.py", "b.txt"]),
        ("{.e,a}*", [".eslintrc", "a.py"]),
        ("{a.py}", ["a.py"]),
        ("[ab].*", ["a.py", "b.txt"]),
    ],
)
async def test_pattern_of_a_listing_may_hold_braces(
    workspace: Workspace, place: Place, pattern: str, names: list[str]
) -> None:
    for name in ("a.py", "b.txt", "c.md", ".eslintrc"):
        place.file(name)
    listing = await workspace.run("list_directory", {"pattern": pattern})
    assert isinstance(listing, ListDirectoryResult)
    assert [entry.name for entry in listing.files] == names


@pytest.mark.promise("T4")
async def test_pattern_for_all_depths_is_taken_where_all_depths_are_listed(workspace: Workspace, place: Place) -> None:
    for name in ("a.py", "deep/b.py", "deep/c.md"):
        place.file(name)
    listing = await workspace.run("list_directory", {"pattern": "**/*.py", "recursive": True})
    assert isinstance(listing, ListDirectoryResult)
    assert [entry.path for entry in listing.files] == ["a.py", "deep/b.py"]
    with pytest.raises(InvalidParameters, match="cannot hold a '/'"):
        await workspace.run("list_directory", {"pattern": "**/*.py"})


@pytest.mark.promise("T4")
@pytest.mark.parametrize("pattern", ["!*.py", "{a", "{a,b}" * 20])
async def test_pattern_that_fits_nothing_by_mistake_is_said(workspace: Workspace, pattern: str) -> None:
    with pytest.raises(InvalidParameters, match="glob"):
        await workspace.run("list_directory", {"pattern": pattern})


@pytest.mark.promise("T1")
async def test_message_tells_the_path_as_it_was_asked_for_and_not_at_any_length(
    workspace: Workspace, place: Place
) -> None:
    with pytest.raises(ToolFailure, match=re.escape(f"There is no '{place.root}/src//a.py'")):
        await _read(workspace, f"{place.root}/src//a.py")
    with pytest.raises(ToolFailure, match="There is no") as refused:
        await _read(workspace, "a/" * 1000 + "b")
    assert len(refused.value.message) < 300


@pytest.mark.promise("T1")
async def test_text_that_begins_like_a_picture_is_text(workspace: Workspace, place: Place) -> None:
    place.file("x.csv", "BMW;größe\n".encode("latin-1"))
    assert (await _read(workspace, "x.csv")).content == "BMW;größe\n"
    place.file("x.bmp", b"BM" + (70).to_bytes(4, "little") + bytes(64))
    assert (await _read(workspace, "x.bmp")).encoding == "base64"


@pytest.mark.promise("T4")
async def test_names_with_fillers_are_listed_so_that_they_can_be_seen(workspace: Workspace, place: Place) -> None:
    for char in "\u115f\u3164\u2800\ufe0f\u034f\uffa0":
        place.file(f"a{char}b")
    listing = await workspace.run("list_directory", {})
    assert isinstance(listing, ListDirectoryResult)
    assert all(entry.name.isascii() for entry in listing.files)
    for char in "\u115f\u3164\u2800\ufe0f\u034f\uffa0":
        with pytest.raises(PathValidationError, match="no path here may hold"):
            await _read(workspace, f"a{char}b")


@pytest.mark.promise("S")
async def test_lines_of_a_secret_are_masked_when_they_are_read_without_its_first(
    workspace: Workspace, place: Place
) -> None:
    line = "Ab3" + "x" * 61
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\n{line}\n-----END PRIVATE KEY-----\n"
    place.file("all.yaml", f"{key}---\nkind: Secret\ndata:\n  DATABASE_URL: cG9zdGdyZXM\n")
    assert (await _read(workspace, "all.yaml", start_line=3, end_line=3)).content == "[masked:private-key]\n"
    assert (await _read(workspace, "all.yaml", start_line=8)).content == "  DATABASE_URL: [masked:secret]\n"
