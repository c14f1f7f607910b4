"""search_files with ripgrep and with the search of its own: the same answers, the same bounds."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assent.protocol.errors import ExecutionTimeout, InvalidParameters, PathValidationError, ToolFailure
from assent.protocol.tools import SearchFilesParams, SearchFilesResult
from assent.workspace import PathValidator, SearchExecutor, Workspace, scan, search

from .conftest import Place

pytestmark = pytest.mark.promise("T5")


@pytest.fixture(params=[True, False], ids=["ripgrep", "scan"])
def searcher(request: pytest.FixtureRequest, place: Place) -> Iterator[SearchExecutor]:
    paths = PathValidator(place.root)
    searcher = SearchExecutor(paths, use_ripgrep=request.param)
    assert (searcher._ripgrep is not None) is request.param
    yield searcher
    paths.close()


async def _search(searcher: SearchExecutor, pattern: str, **rest: Any) -> list[tuple[str, int, str]]:
    result = await searcher.search(SearchFilesParams(pattern=pattern, **rest))
    return [(match.path, match.line_number, match.line) for match in result.matches]


async def test_text_is_found_with_path_and_line(searcher: SearchExecutor, place: Place) -> None:
    place.file("src/a.py", "one\nneedle (x)\r\nNeedle\n")
    place.file("b.txt", "a needle\n")
    assert await _search(searcher, "needle") == [("b.txt", 1, "a needle"), ("src/a.py", 2, "needle (x)")]
    assert await _search(searcher, "needle (", path="src") == [("src/a.py", 2, "needle (x)")]
    assert len(await _search(searcher, "needle", case_sensitive=False)) == 3
    assert await _search(searcher, "nothing like it") == []


async def test_regular_expression_is_used_only_when_asked_for(searcher: SearchExecutor, place: Place) -> None:
    place.file("a", "foo42\nfo+\n")
    assert await _search(searcher, r"fo+\d", regex=True) == [("a", 1, "foo42")]
    assert await _search(searcher, "fo+") == [("a", 2, "fo+")]
    assert await _search(searcher, "-e") == []


async def test_one_file_can_be_searched(searcher: SearchExecutor, place: Place) -> None:
    place.file("src/.env", "KEY=1\n")
    assert await _search(searcher, "KEY", path="src/.env") == [("src/.env", 1, "KEY=1")]


async def test_ignored_hidden_secret_and_binary_files_are_left_out(searcher: SearchExecutor, place: Place) -> None:
    place.file(".gitignore", "*.log\nbuild/\n!keep.log\n")
    place.file("sub/.gitignore", "local\n")
    for name in ("a.log", "keep.log", "build/x", "sub/local", "sub/x", ".env", ".git/x", "key.pem", "sub/deep/local"):
        place.file(name, "needle")
    place.file("binary", b"needle\x00")
    assert [path for path, _, _ in await _search(searcher, "needle")] == ["keep.log", "sub/x"]
    assert [path for path, _, _ in await _search(searcher, "needle", path="sub")] == ["sub/x"]
    assert [path for path, _, _ in await _search(searcher, "needle", path="sub/deep")] == []


async def test_directory_of_secrets_is_searched_when_it_is_asked_for(searcher: SearchExecutor, place: Place) -> None:
    place.file(".aws/credentials", "needle")
    assert await _search(searcher, "needle") == []
    assert await _search(searcher, "needle", path=".aws") == [(".aws/credentials", 1, "needle")]


async def test_glob_chooses_names_and_does_not_overrule_ignoring(searcher: SearchExecutor, place: Place) -> None:
    place.file(".gitignore", "*.js\n")
    for name in ("a.ts", "b/c.tsx", "d.js", "e.md", ".eslintrc", ".env"):
        place.file(name, "needle")
    assert [path for path, _, _ in await _search(searcher, "needle", glob="*.{ts,tsx,js}")] == ["a.ts", "b/c.tsx"]
    assert [path for path, _, _ in await _search(searcher, "needle", glob="**/*.md")] == ["e.md"]
    assert [path for path, _, _ in await _search(searcher, "needle", glob=".e*")] == [".eslintrc"]


@pytest.mark.parametrize("glob", ["../*", "a/b", "a\\b", "{a,b}" * 30, "a\nb", "[", "[]", "{a", "a}", "[!"])
async def test_glob_that_leaves_or_explodes_is_refused(searcher: SearchExecutor, glob: str) -> None:
    with pytest.raises(InvalidParameters):
        await _search(searcher, "x", glob=glob)


async def test_ignored_directory_is_searched_when_it_is_asked_for(searcher: SearchExecutor, place: Place) -> None:
    place.file(".gitignore", "node_modules/\n")
    place.file("node_modules/x/a.js", "needle")
    assert await _search(searcher, "needle") == []
    assert [path for path, _, _ in await _search(searcher, "needle", path="node_modules")] == ["node_modules/x/a.js"]
    assert [path for path, _, _ in await _search(searcher, "needle", path="node_modules/x")] == ["node_modules/x/a.js"]


@pytest.mark.promise("G1", "S")
async def test_links_are_not_followed(searcher: SearchExecutor, place: Place) -> None:
    (place.root / "d").symlink_to("../out")
    (place.root / "f").symlink_to("../out/secret.txt")
    assert await _search(searcher, "SECRET") == []
    for path in ("d", "f", "..", "/etc"):
        with pytest.raises(PathValidationError):
            await _search(searcher, "SECRET", path=path)


async def test_place_that_cannot_be_searched_is_an_error(searcher: SearchExecutor, place: Place) -> None:
    os.mkfifo(place.root / "pipe")
    with pytest.raises(ToolFailure, match="neither a file nor a directory"):
        await _search(searcher, "x", path="pipe")
    with pytest.raises(ToolFailure, match="There is no"):
        await _search(searcher, "x", path="missing")


async def test_broken_expression_is_said(searcher: SearchExecutor) -> None:
    with pytest.raises(InvalidParameters, match="cannot be searched for"):
        await _search(searcher, "(", regex=True)
    with pytest.raises(InvalidParameters, match="newline"):
        await _search(searcher, "a\nb")


@pytest.mark.promise("G4")
async def test_matches_stop_at_the_maximum(searcher: SearchExecutor, place: Place) -> None:
    place.file("a", "needle\n" * 2000)
    result = await searcher.search(SearchFilesParams(pattern="needle"))
    assert (len(result.matches), result.total_count, result.truncated) == (1000, 1000, True)
    result = await searcher.search(SearchFilesParams(pattern="needle", max_results=3))
    assert [match.line_number for match in result.matches] == [1, 2, 3]


async def test_long_and_broken_lines_are_made_fit(searcher: SearchExecutor, place: Place) -> None:
    place.file("a", b"needle " + b"x" * 500_000 + b"\nneedle \xff\xfe\n")
    found = await _search(searcher, "needle")
    assert len(found[0][2]) < 2020
    assert found[1][2] == "needle \ufffd\ufffd"


async def test_strange_names_are_shown_visibly(searcher: SearchExecutor, place: Place) -> None:
    place.file("a\x1b[2J.txt", "needle")
    Path(os.fsdecode(os.fsencode(place.root) + b"/b\xff")).write_text("needle")
    assert [path for path, _, _ in await _search(searcher, "needle")] == ["a\\x1b[2J.txt", "b\\xff"]


async def test_utf16_is_searched_as_text(searcher: SearchExecutor, place: Place) -> None:
    place.file("a", "needle é\n".encode("utf-16"))
    assert await _search(searcher, "needle") == [("a", 1, "needle é")]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", r"^(\w+\s?)*$", "(.*a){25}"])
async def test_no_expression_can_hang_it(place: Place, pattern: str) -> None:
    place.file("a", "a" * 50_000 + "!\n")
    paths = PathValidator(place.root)
    for use_ripgrep in (True, False):
        searcher = SearchExecutor(paths, use_ripgrep=use_ripgrep, seconds=0.5)
        with suppress(ExecutionTimeout, InvalidParameters):
            async with asyncio.timeout(5):
                await _search(searcher, pattern, regex=True)
    paths.close()


async def test_search_goes_through_the_workspace(workspace: Workspace, place: Place) -> None:
    place.file("a", "needle")
    result = await workspace.run("search_files", {"pattern": "needle"})
    assert isinstance(result, SearchFilesResult)
    assert result.matches[0].path == "a"


async def test_line_over_every_bound_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_MAX_RECORD", 10)
    stream = asyncio.StreamReader()
    # One piece at a time, as a pipe gives them.
    reader = search._lines(stream)
    stream.feed_data(b"x" * 20)
    first = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    stream.feed_data(b"yy\nshort\n")
    stream.feed_eof()
    assert await first == b"short"


def test_machine_without_ripgrep_falls_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, root: Path) -> str:
        raise ToolFailure("rg is not installed on this machine.")

    monkeypatch.setattr(search, "find_program", missing)
    paths = PathValidator(place.root)
    assert SearchExecutor(paths)._ripgrep is None
    paths.close()


def _scan(fd: int, monkeypatch: pytest.MonkeyPatch, **work: Any) -> int:
    defaults = {"fd": fd, "above": [], "pattern": "needle", "case_sensitive": True, "globs": []}
    read_end, write_end = os.pipe()
    os.write(write_end, json.dumps(defaults | work).encode())
    os.close(write_end)
    with os.fdopen(read_end) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        return scan.main()


def test_scan_answers_like_ripgrep(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.file(".gitignore", "skip\n/up/gone\n!skip/kept\n")
    place.file("up/.gitignore", "local\n")
    for name in ("up/a", "up/skip", "up/local", "up/gone", "up/d/b", "up/.hidden"):
        place.file(name, "needle\n")
    place.file("up/broken", b"needle \xff\n")
    os.mkfifo(place.root / "up" / "pipe")
    (place.root / "up" / "link").symlink_to("a")
    fd = os.open(place.root / "up", os.O_RDONLY)
    assert _scan(fd, monkeypatch, above=["up"]) == 0
    found = [json.loads(line)["data"] for line in capsys.readouterr().out.splitlines()]
    assert [data["path"]["text"] for data in found] == ["a", "broken", "d/b"]
    assert "bytes" in found[1]["lines"]
    assert _scan(fd, monkeypatch, pattern="absent") == 1
    assert _scan(fd, monkeypatch, pattern="(") == 2
    monkeypatch.setattr(scan, "_MAX_DEPTH", 0)
    assert _scan(fd, monkeypatch, globs=["b"]) == 1
    monkeypatch.setattr(scan, "_MAX_FILE", 1)
    assert _scan(fd, monkeypatch) == 1
    os.close(fd)


def test_ignore_file_that_is_no_file_is_left_alone(place: Place) -> None:
    os.mkfifo(place.root / ".gitignore")
    fd = os.open(place.root, os.O_RDONLY)
    assert scan._ignores_in(fd, "") == []
    assert scan._ignores_above(fd, ["ws"])[0:] == []
    os.close(fd)


def test_scan_runs_alone(place: Place) -> None:
    done = subprocess.run(
        [sys.executable, "-I", scan.__file__], input="{}", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "KeyError" in done.stderr
