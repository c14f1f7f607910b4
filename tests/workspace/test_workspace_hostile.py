"""What an agent may have put into the workspace before, or asks for, to stop, mislead or outrun the file tools."""

import os
import struct
import threading
import time
from pathlib import Path
from typing import Literal

import pytest

from byleave.gate import Policy, parse_policy
from byleave.protocol.errors import ByleaveError, ToolFailure
from byleave.protocol.overview import Layer
from byleave.protocol.tools import ListDirectoryResult, ReadFileParams, SearchFilesParams, WriteFileParams
from byleave.settings import ClientSettings
from byleave.workspace.denied_paths import DeniedPaths, GuardedPaths
from byleave.workspace.files import contents as contents_module
from byleave.workspace.files import drafts as drafts_module
from byleave.workspace.files import executor as listing_module
from byleave.workspace.files.contents import cut_lines
from byleave.workspace.files.drafts import take_attributes
from byleave.workspace.files.executor import FileSystemExecutor
from byleave.workspace.files.writing import Replacing
from byleave.workspace.paths import PathValidator
from byleave.workspace.search import executor as search_module
from byleave.workspace.search import ripgrep as search_runs
from byleave.workspace.search.executor import SearchExecutor
from byleave.workspace.search.scan import glob_pattern
from byleave.workspace.undo.restoring import UndoHistory
from byleave.workspace.undo.snapshots import MAX_HOOKS, TreeScan
from byleave.workspace.workspace import Workspace
from harness.place import Place


@pytest.fixture
def paths(place: Place) -> PathValidator:
    return PathValidator(place.root)


# Names and globs that cost more than they should


@pytest.mark.promise("T5")
@pytest.mark.parametrize("use_ripgrep", [None, False])
@pytest.mark.parametrize("glob", ["*a" * 40 + "*:b", "a" + "*" * 500 + ":b", "*[!b]" * 40 + "*:b"])
async def test_glob_of_many_stars_does_not_stop_the_client(
    place: Place, paths: PathValidator, glob: str, use_ripgrep: bool | None
) -> None:
    place.file("a" * 200 + "b", "hello\n")
    searcher = SearchExecutor(paths, use_ripgrep=use_ripgrep)
    found = await searcher.search(SearchFilesParams(path=".", pattern="hello", glob=glob))
    assert found.matches == []


@pytest.mark.promise("T5")
@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*ab*abc", "xabab_abc", True),
        ("*ab*abc", "xababc", True),
        ("*ab*abc", "xabc", False),
        ("*a?c*c", "abcacc", True),
        ("*a*/b*c", "xa1/b2c", True),
        ("*a*/b*c", "xa1/2/bc", False),
        ("a**b", "axxb", True),
        ("a***b", "ab", True),
        ("*[ab]*[ab]*", "xaxbx", True),
        ("*[!a]*b", "aaa/b", True),
        ("*[!a]x*b", "acx/xb", True),
        ("{*a*b,c}*d", "xaybzd", True),
        ("{*a*b,c}*d", "xaybz", False),
    ],
)
def test_stars_mean_what_they_meant_when_they_are_fast(glob: str, path: str, fits: bool) -> None:
    assert bool(glob_pattern(glob).fullmatch(path.encode())) is fits


@pytest.mark.promise("T5")
@pytest.mark.parametrize("is_link", [False, True])
async def test_pipe_that_is_called_gitignore_does_not_stop_a_search(
    place: Place, paths: PathValidator, is_link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_runs, "_SUSPICIOUS_SECONDS", 0.3)
    place.file("sub/a.txt", "hello\n")
    os.mkfifo(place.root / "sub" / ("pipe" if is_link else ".gitignore"))
    if is_link:
        (place.root / "sub/.gitignore").symlink_to("pipe")
    found = await SearchExecutor(paths).search(SearchFilesParams(path=".", pattern="hello"))
    assert [match.path for match in found.matches] == ["sub/a.txt"]


@pytest.mark.promise("T5")
async def test_search_that_only_takes_long_is_left_alone(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_runs, "_SUSPICIOUS_SECONDS", 0.0)
    monkeypatch.setattr(search_runs, "_LOOK_SECONDS", -1.0)
    place.file("a.txt", "hello\n")
    found = await SearchExecutor(paths).search(SearchFilesParams(path=".", pattern="hello"))
    assert [match.path for match in found.matches] == ["a.txt"]
    found = await SearchExecutor(paths).search(SearchFilesParams(path="a.txt", pattern="hello"))
    assert [match.path for match in found.matches] == ["a.txt"]


@pytest.mark.promise("T5", "G9")
async def test_directory_with_very_many_names_is_asked_about_piece_by_piece(
    place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "_ASKED_AT_ONCE", 2)
    for name in "abcdefg":
        place.file(name, "hello\n")
    searcher = SearchExecutor(paths, use_ripgrep=False, forbidden=lambda path: path in ("b", "e"))
    found = await searcher.search(SearchFilesParams(path=".", pattern="hello"))
    assert [match.path for match in found.matches] == ["a", "c", "d", "f", "g"]


@pytest.mark.promise("T4")
@pytest.mark.parametrize("seconds", [2**40, -(2**40)])
async def test_time_that_no_calendar_holds_does_not_stop_a_listing(seconds: int, settings: ClientSettings) -> None:
    shared = Path("/dev/shm")  # tmpfs keeps any time; most disks do not
    if not shared.is_dir():
        pytest.skip("needs a file system that keeps any time")
    root = shared / f"byleave-test-{os.getpid()}-{seconds}"
    root.mkdir()
    workspace = Workspace(root, settings)
    try:
        (root / "odd.txt").write_text("x")
        (root / "plain.txt").write_text("x")
        os.utime(root / "odd.txt", (seconds, seconds))
        found = await workspace.run("list_directory", {"path": "."})
        assert isinstance(found, ListDirectoryResult)
        assert [entry.name for entry in found.files] == ["odd.txt", "plain.txt"]
        assert found.files[0].modified.endswith("Z")
    finally:
        await workspace.close()
        for name in ("odd.txt", "plain.txt"):
            (root / name).unlink()
        root.rmdir()


@pytest.mark.promise("T4")
async def test_listing_of_names_that_do_not_fit_ends_in_time(
    place: Place, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3000):
        place.file(f"f{number}")
    monkeypatch.setattr(listing_module, "_MAX_SECONDS", -1.0)
    found = await workspace.run("list_directory", {"path": ".", "pattern": "nothing*"})
    assert isinstance(found, ListDirectoryResult)
    assert found.truncated


@pytest.mark.promise("T2")
@pytest.mark.parametrize("use_openat2", [True, False])
async def test_write_below_very_many_new_directories_is_refused_in_words(place: Place, use_openat2: bool) -> None:
    files = FileSystemExecutor(PathValidator(place.root, use_openat2=use_openat2))
    with pytest.raises(ToolFailure, match="directories"):
        await files.write_file(WriteFileParams(path="d/" * 2000 + "f.txt", content="x"))
    assert os.listdir(place.root) == []
    written = await files.write_file(WriteFileParams(path="d/" * 60 + "f.txt", content="x"))
    assert written.size == 1
    await files.write_file(WriteFileParams(path="d/" * 100 + "f.txt", content="x"))  # 40 of them are new
    files.close()


@pytest.mark.promise("T1")
@pytest.mark.parametrize("piece", [1, 2, 3, 1 << 16])
def test_lines_far_down_are_found_by_counting(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "_PIECE", piece)
    for text in ("", "a", "a\n", "\n\n\n", "a\nbb\n\nccc\nd"):
        lines = text.splitlines(keepends=True)
        for first in range(1, len(lines) + 3):
            for last in (None, *range(first, len(lines) + 3)):
                cut = cut_lines(text, first, last)
                assert cut.text == "".join(lines[first - 1 : last])
                assert (cut.first, cut.total) == (first, len(lines))


@pytest.mark.promise("T1")
def test_line_among_millions_is_found_at_once() -> None:
    text = "x\n" * 20_000_000
    began = time.process_time()
    assert cut_lines(text, 19_999_999, 20_000_000).text == "x\nx\n"
    assert time.process_time() - began < 1


# Losing what somebody else writes


@pytest.mark.promise("T2")
@pytest.mark.parametrize("mode", ["append", "write"])
def test_write_loses_nothing_that_is_added_while_the_old_content_is_kept(
    place: Place, paths: PathValidator, mode: Literal["append", "write"]
) -> None:
    """Not a byte: what comes after it was kept could not be undone."""
    file = place.file("log.txt", "one\n")
    files = FileSystemExecutor(paths)

    def keep(replacing: Replacing) -> None:
        with file.open("a") as log:
            log.write("two\n")

    with pytest.raises(ToolFailure, match="changed"):
        files.write_now(WriteFileParams(path="log.txt", content="three\n", mode=mode), threading.Event(), keep)
    assert file.read_text() == "one\ntwo\n"
    assert os.listdir(place.root) == ["log.txt"]
    files.close()


ACCESS_LIST = "system.posix_acl_access"
# Its owner reads and writes, user 1 reads, its group nothing, the bound for both is to read, others nothing.
_ONLY_USER_1 = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 6, 2**32 - 1), (2, 4, 1), (4, 0, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1))
)


@pytest.fixture
def listed_file(place: Place) -> Path:
    """A file with an access list, which its group may not read though its mode seems to say so."""
    file = place.file("shared.txt", "old")
    try:
        os.setxattr(file, ACCESS_LIST, _ONLY_USER_1)
        os.setxattr(file, "user.note", b"mine")
    except OSError:
        pytest.skip("needs a file system with access lists")
    assert file.stat().st_mode & 0o777 == 0o640
    return file


@pytest.mark.promise("T2")
@pytest.mark.parametrize("mode", ["write", "append"])
async def test_write_does_not_open_a_file_with_an_access_list_to_its_group(
    workspace: Workspace, listed_file: Path, mode: str
) -> None:
    await workspace.run("write_file", {"path": "shared.txt", "content": "new", "mode": mode})
    assert os.getxattr(listed_file, ACCESS_LIST) == _ONLY_USER_1
    assert os.getxattr(listed_file, "user.note") == b"mine"
    assert listed_file.stat().st_mode & 0o777 == 0o640


@pytest.mark.promise("L8")
async def test_undo_does_not_open_a_file_with_an_access_list_to_its_group(
    workspace: Workspace, place: Place, settings: ClientSettings, listed_file: Path
) -> None:
    await workspace.run("write_file", {"path": "shared.txt", "content": "new"}, record_as="call")
    history = UndoHistory(PathValidator(place.root), settings.home)
    with history.alone():
        history.apply(history.plan(history.entry("call")))
    history.close()
    assert listed_file.read_text() == "old"
    assert os.getxattr(listed_file, ACCESS_LIST) == _ONLY_USER_1


@pytest.mark.promise("T2")
def test_file_whose_access_list_cannot_be_taken_over_is_closed_to_its_group(
    listed_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = listed_file.with_name("other.txt")
    other.write_text("x")
    other.chmod(0o640)
    old, new = os.open(listed_file, os.O_PATH), os.open(other, os.O_RDWR)
    monkeypatch.setattr(drafts_module, "_ACCESS_LIST", "system.posix_acl_default")  # a file has none

    def all_of_it(path: str) -> list[str]:
        return ["system.posix_acl_default"]

    monkeypatch.setattr(os, "listxattr", all_of_it)
    take_attributes(old, new)
    assert other.stat().st_mode & 0o777 == 0o600
    os.close(old)
    os.close(new)


# What the floor says, and sees


def _denying(*denied: str) -> Policy:
    text = f'[[rule]]\naction = "deny"\npaths = {list(denied)!r}\n'.replace("'", '"')
    return Policy((parse_policy(text, Layer.USER, source="policy.toml"),))


@pytest.mark.promise("G9")
async def test_denied_file_that_is_met_late_is_refused_in_words(place: Place, paths: PathValidator) -> None:
    """As when it is swapped in after the first look."""
    place.file("private/key", "SECRET")
    guard = DeniedPaths(_denying("private/**")).guards.get("read_file")
    assert guard is not None
    files = FileSystemExecutor(GuardedPaths(paths, guard), max_file_bytes=1000)
    with pytest.raises(ByleaveError, match="No permission"):
        await files.read_file(ReadFileParams(path="private/key"))
    files.close()


@pytest.mark.promise("G1", "G9")
def test_file_that_was_unlinked_keeps_its_name_while_another_name_holds_it(place: Place, paths: PathValidator) -> None:
    file = place.file("key.pem", "SECRET")
    os.link(file, place.root / "other")
    fd = paths.open_exact("key.pem", os.O_RDONLY)
    file.unlink()
    assert paths.real_path(fd) == "key.pem"
    os.close(fd)


@pytest.mark.promise("G1")
def test_name_that_ends_like_the_kernels_remark_is_itself(place: Place, paths: PathValidator) -> None:
    place.file("key (deleted)", "x")
    fd = paths.open_exact("key (deleted)", os.O_RDONLY)
    assert paths.real_path(fd) == "key (deleted)"
    os.close(fd)


# What runs later


@pytest.mark.promise("C2")
def test_config_of_a_repository_is_seen_among_any_number_of_files(place: Place, paths: PathValidator) -> None:
    for number in range(3 * MAX_HOOKS):
        place.file(f"sub/.git/junk{number}")
        place.file(f"sub/.git/hooks/junk{number}.sample")
    for number in range(2 * MAX_HOOKS):
        place.file(f"other/.git/hooks/junk{number}")
    place.file("other/.git/hooks/pre-push", "x")
    place.file("sub/.git/config", "[core]\n")
    place.file("sub/.git/hooks/pre-commit", "x")
    tree = TreeScan(paths, {}, max_files=10_000).run()
    seen = {path for path, state in tree.states.items() if state.kind == "git"}
    assert {path for path in seen if path.startswith("sub/")} == {"sub/.git/config", "sub/.git/hooks/pre-commit"}
    assert "other/.git/hooks/pre-push" in seen


# Names behind links


@pytest.mark.promise("G9")
@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("link/x", "private/x"),
        ("link/new/deep/x.txt", "private/new/deep/x.txt"),
        ("link/" + "d/" * 64 + "x.txt", "private/" + "d/" * 64 + "x.txt"),
        ("link/x../y", "private/x../y"),
        ("new/deep/x.txt", "new/deep/x.txt"),
        ("new/../link/x", "new/../link/x"),  # nothing can be opened there
        (".", "."),
    ],
)
async def test_path_that_is_not_there_yet_is_named_by_what_its_link_leads_to(
    place: Place, workspace: Workspace, name: str, real: str
) -> None:
    place.file("private/key")
    (place.root / "link").symlink_to("private")
    assert await workspace.under_real_names({"path": name}) == {"path": real}
    args = [name, f"--file={name}", "-x", "--y=", "..", 7]
    assert await workspace.under_real_names({"args": args}) == {"args": [real, f"--file={real}", *args[2:]]}


# The workspace itself


@pytest.mark.promise("T1", "T2", "T4", "T5")
@pytest.mark.parametrize("how", ["removed", "moved"])
@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("read_file", {"path": "a.txt"}),
        ("write_file", {"path": "a.txt", "content": "x"}),
        ("write_file", {"path": "new/b.txt", "content": "x"}),
        ("list_directory", {"path": "."}),
        ("search_files", {"path": ".", "pattern": "x"}),
    ],
)
async def test_workspace_that_is_gone_is_said_at_once(
    place: Place, settings: ClientSettings, tool: str, params: dict[str, str], how: str
) -> None:
    workspace = Workspace(place.root, settings)
    if how == "removed":
        place.root.rmdir()
    else:
        place.file("a.txt", "x\n" * 200_000)  # too large to be read at once
        place.root.rename(place.root.with_name("elsewhere"))
    try:
        with pytest.raises(ToolFailure, match="was moved or removed"):
            await workspace.run(tool, params)
    finally:
        await workspace.close()
    assert not place.root.exists()
