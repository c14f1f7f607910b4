"""search_files with ripgrep and with the search of its own: the same answers, the same bounds."""

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from byleave.gate import Gate
from byleave.protocol.errors import ExecutionTimeout, InvalidParameters, PathValidationError, ToolFailure
from byleave.protocol.tools import SearchFilesParams, SearchFilesResult
from byleave.workspace.paths import PathValidator
from byleave.workspace.search import executor as search
from byleave.workspace.search import ripgrep as search_sandbox
from byleave.workspace.search import scan
from byleave.workspace.search.executor import SearchExecutor
from byleave.workspace.search.ripgrep import AnswerReader
from byleave.workspace.search.scan import GlobError, glob_pattern
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("T5")


@pytest.fixture(params=[True, False], ids=["ripgrep", "scan"])
def searcher(request: pytest.FixtureRequest, place: Place) -> Iterator[SearchExecutor]:
    paths = PathValidator(place.root)
    searcher = SearchExecutor(paths, use_ripgrep=request.param)
    assert (searcher.ripgrep() is not None) is request.param
    yield searcher
    paths.close()


async def _search(searcher: SearchExecutor, pattern: str, **rest: object) -> list[tuple[str, int, str]]:
    result = await searcher.search(SearchFilesParams.model_validate({"pattern": pattern, **rest}))
    return [(match.path, match.line_number, match.line) for match in result.matches]


def _told(reader: AnswerReader) -> list[tuple[str, int, str]]:
    return [(path, number, line) for path, lines in reader.matches.found() for number, line in lines]


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


async def test_rules_behind_a_line_that_is_no_text_are_not_read(searcher: SearchExecutor, place: Place) -> None:
    place.file(".gitignore", b"a\n\xff\nb\n")
    for name in ("a", "b"):
        place.file(name, "needle")
    assert await _search(searcher, "needle") == [("b", 1, "needle")]


@pytest.mark.promise("S")
async def test_secrets_that_a_search_leaves_out_are_named_whether_they_match_or_not(
    searcher: SearchExecutor, place: Place
) -> None:
    place.file(".gitignore", ".env\nnode_modules/\n")
    for name in (".env", "src/secret.yaml", "node_modules/x/secret.yaml", ".aws/credentials", "a.py", "SERVER.Pem"):
        place.file(name, "API_HOST=1\n")
    for pattern in ("API_HOST", "nothing like it"):
        result = await searcher.search(SearchFilesParams(pattern=pattern))
        assert [match.path for match in result.matches] == (["a.py"] if pattern == "API_HOST" else [])
        (warning,) = result.warnings
        assert "'.env', 'SERVER.Pem', 'src/secret.yaml'. A call that names such a file is asked about." in warning
    assert not (await searcher.search(SearchFilesParams(pattern="API_HOST", glob="*.py"))).warnings


@pytest.mark.promise("S")
@pytest.mark.parametrize(("glob", "path"), [(".env*", ".env"), ("secret.yaml", "src/secret.yaml")])
async def test_secrets_that_a_glob_asks_for_are_asked_about_and_then_searched(
    searcher: SearchExecutor, place: Place, glob: str, path: str
) -> None:
    place.file(".gitignore", ".env\n")
    for name in (".env", "src/secret.yaml", "a.py"):
        place.file(name, "HOST=1\n")
    assert Gate().judge("search_files", {"pattern": "HOST", "glob": glob}).verdict.level == "MEDIUM"
    result = await searcher.search(SearchFilesParams(pattern="HOST", glob=glob))
    assert ([match.path for match in result.matches], result.warnings) == ([path], [])


@pytest.mark.promise("S")
async def test_line_that_only_others_tell_is_secret_is_masked_when_it_is_found(
    searcher: SearchExecutor, place: Place
) -> None:
    line = "Ab3" + "x" * 61
    key = f"    -----BEGIN PRIVATE KEY-----\n    {line}\n    {line}\n    -----END PRIVATE KEY-----\n"
    place.file("k8s/all.yaml", f"kind: Secret\ndata:\n  DATABASE_URL: cG9zdGdyZXM\nstringData:\n  tls.key: |\n{key}")
    masked = "    [masked:private-key]"
    found = await _search(searcher, "^ {4}[A-Za-z0-9+/=]{40,}$", regex=True)
    assert found == [("k8s/all.yaml", 7, masked), ("k8s/all.yaml", 8, masked)]
    assert await _search(searcher, "DATABASE_URL") == [("k8s/all.yaml", 3, "  DATABASE_URL: [masked:secret]")]


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


@pytest.mark.parametrize(
    ("pattern", "matches"), [("(a+)+$", 0), ("(a|aa)+$", 0), (r"^(\w+\s?)*$", 0), ("(.*a){25}", 1)]
)
async def test_no_expression_can_hang_it(place: Place, pattern: str, matches: int) -> None:
    place.file("a", "a" * 50_000 + "!\n")
    paths = PathValidator(place.root)
    outcomes: dict[bool, int | type[Exception]] = {}
    for use_ripgrep in (True, False):
        searcher = SearchExecutor(paths, use_ripgrep=use_ripgrep, seconds=0.5)
        async with asyncio.timeout(5):
            try:
                outcomes[use_ripgrep] = len(await _search(searcher, pattern, regex=True))
            except (ExecutionTimeout, InvalidParameters) as error:
                outcomes[use_ripgrep] = type(error)
    paths.close()
    assert outcomes[True] in (matches, ExecutionTimeout)
    assert outcomes[False] in (matches, ExecutionTimeout)


async def test_search_goes_through_the_workspace(workspace: Workspace, place: Place) -> None:
    place.file("a", "needle")
    result = await workspace.run("search_files", {"pattern": "needle"})
    assert isinstance(result, SearchFilesResult)
    assert result.matches[0].path == "a"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_answer_is_read_in_whatever_pieces_it_comes(size: int, end: bytes) -> None:
    answer = (
        b"./b/x\x001:one\n2:" + b"y" * 20_000 + b"\n3:three\n\n"
        b"./bin\x001:needle\n./bin: WARNING: stopped searching binary file after match\n\n"
        b"./no\x001:not wanted\n\n"
        b"./n\nl\x004:newline\n\n"
        b"./forged\n\n./a\x001:forged\n\n"
        b"./a\x009:first\n"
    )
    answer = answer.replace(b"\n\n./", b"\n" + end + b"./").replace(b"./forged\n\r\n", b"./forged\n\n")
    reader = AnswerReader(10, lambda path: path != "no")
    for at in range(0, len(answer), size):
        reader.feed("stdout", answer[at : at + size])
    reader.feed("stdout", b"", final=True)
    found = _told(reader)
    assert [(path, number) for path, number, _ in found] == [("a", 9), ("b/x", 1), ("b/x", 2), ("b/x", 3), ("n\nl", 4)]
    assert found[2][2] == "y" * 2000 + " [...]"
    assert not reader.matches.truncated


def test_first_matches_are_the_same_in_any_order_of_files() -> None:
    files = [b"./%s\x00%s" % (name, b"".join(b"%d:x\n" % line for line in range(1, 4))) for name in _NAMES]
    expected = [
        (name.decode(), line) for name in sorted(_NAMES, key=lambda name: name.split(b"/")) for line in (1, 2, 3)
    ]
    for seed in range(20):
        random.Random(seed).shuffle(files)
        for most in (1, 3, 4, 11, 12, 13):
            reader = AnswerReader(most, lambda _: True)
            reader.feed("stdout", b"\n".join(files), final=True)
            assert [match[:2] for match in _told(reader)] == expected[:most]
            assert reader.matches.truncated is (most < 12)


_NAMES = (b"a/b", b"a.txt", b"a/c/d", b"b")


def test_file_beyond_the_last_match_is_not_asked_about() -> None:
    asked: list[str] = []
    reader = AnswerReader(1, lambda path: asked.append(path) is None)
    reader.feed("stdout", b"./b\x001:x\n2:x\n\n./c\x001:x\n\n./a\x001:x\n", final=True)
    assert asked == ["b", "a"]
    assert _told(reader) == [("a", 1, "x")]


async def test_rules_beyond_the_bound_are_left_out_and_never_cut(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_IGNORE", 10)
    place.file(".gitignore", "no.txt\n*.md\n")  # ten bytes of it would end in a rule for everything
    for name in ("no.txt", "a.txt", "b.md"):
        place.file(f"src/{name}", "needle\n")
    paths = PathValidator(place.root)
    for use_ripgrep in (None, False):
        found = await _search(SearchExecutor(paths, use_ripgrep=use_ripgrep), "needle", path="src")
        assert [path for path, _, _ in found] == ["src/a.txt", "src/b.md"]
    paths.close()


def test_path_that_never_ends_takes_no_memory() -> None:
    reader = AnswerReader(10, lambda _: True)
    for _ in range(100):
        reader.feed("stdout", b"x" * 10_000)
    assert len(reader._kept) <= 1 << 16


async def test_machine_without_ripgrep_falls_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, root: Path) -> str:
        raise ToolFailure("rg is not installed on this machine.")

    monkeypatch.setattr(search_sandbox, "find_program", missing)
    place.file("a", "needle")
    paths = PathValidator(place.root)
    searcher = SearchExecutor(paths)
    assert await _search(searcher, "needle") == [("a", 1, "needle")]
    assert searcher.ripgrep() is None
    paths.close()


async def test_what_the_owner_has_ruled_out_is_left_out(place: Place, request: pytest.FixtureRequest) -> None:
    asked: list[str] = []

    def forbidden(path: str) -> bool:
        asked.append(path)
        return path in ("private", "sub/one.txt")

    for name in ("private/a", "private/deep/b", "sub/one.txt", "sub/two.txt", "private.txt"):
        place.file(name, "needle")
    paths = PathValidator(place.root)
    for use_ripgrep in (True, False):
        searcher = SearchExecutor(paths, forbidden=forbidden, use_ripgrep=use_ripgrep)
        assert [path for path, _, _ in await _search(searcher, "needle")] == ["private.txt", "sub/two.txt"]
        assert [path for path, _, _ in await _search(searcher, "needle", path="sub")] == ["sub/two.txt"]
        for path in ("private", "private/deep", "sub/one.txt"):
            with pytest.raises(PathValidationError, match="ruled out"):
                await _search(searcher, "needle", path=path)
    asked.clear()
    await _search(SearchExecutor(paths, forbidden=forbidden, use_ripgrep=False), "needle")
    assert "private" in asked
    assert "private/deep" not in asked, "a directory that is ruled out is not entered"
    paths.close()


async def test_repository_within_another_has_its_own_rules(searcher: SearchExecutor, place: Place) -> None:
    place.file(".gitignore", "*.log\n")
    for name in ("a.log", "inner/b.log", "inner/deep/c.log"):
        place.file(name, "needle")
    place.file("inner/.git/HEAD", "ref")
    assert [path for path, _, _ in await _search(searcher, "needle")] == ["inner/b.log", "inner/deep/c.log"]
    assert [path for path, _, _ in await _search(searcher, "needle", path="inner/deep")] == ["inner/deep/c.log"]


async def test_file_that_is_too_large_is_said(searcher: SearchExecutor, place: Place) -> None:
    with place.file("big").open("wb") as file:
        file.truncate(33 * 1024 * 1024)
    with pytest.raises(ToolFailure, match="larger than 32 MiB"):
        await _search(searcher, "x", path="big")
    assert await _search(searcher, "x") == []


async def test_file_that_is_too_large_is_left_out(searcher: SearchExecutor, place: Place) -> None:
    place.file("big", b"a needle\n" * (4 * 1024 * 1024))
    place.file("small", "a needle\n")
    assert await _search(searcher, "needle") == [("small", 1, "a needle")]
    assert await _search(searcher, "needle", max_results=1) == [("small", 1, "a needle")]


_RULES = (
    *("*.log", "!keep.log", "build/", "/build", "src/*", "!src/a", "**/a", "a/**", "src/**/b", "**", "*", "!*/"),
    *("?", "[ab]", "[!a]", "[^a-c]*", "{a,b}", "*.{py,txt}", "/src/", "a/b", "a/b/", "\\#c", "\\!i", "#c", "t\\ "),
    *("é*", "[z-a]", "{a", "a\\", "!", "/", "/*", "!/src", "**/src/**", "a**b", "[]a]", "[a-]", "[--a]", "{,a}"),
    *("!*.py", "t ", "!.hid"),
)
_FILES = (
    "a",
    "b",
    "c.txt",
    "keep.log",
    "d.log",
    "e.py",
    ".hid",
    "build",
    "src",
    "g g",
    "é.txt",
    "x,y",
    "#c",
    "!i",
    "t ",
)
_LINES = ("needle", "Needle", "needle\r", "", "é needle É", "123 needle_4", "nee", "needle " * 400, "日本 needle")
_PATTERNS = ("needle", "^needle$", "needle.", "^$", "x*", r"\d+\s", r"\w+_\d", "[^a-z]", r"\W", r"e\s*$", "(?i)NEE")


def _tree(chance: random.Random, directory: Path, depth: int = 0) -> None:
    """Directories, files, links and ignore rules as they come."""
    if chance.random() < 0.5:
        rules = "\n".join(chance.choices(_RULES, k=chance.randint(1, 4)))
        (directory / ".gitignore").write_text(rules, encoding="utf-8")
    for name in chance.sample(_FILES, chance.randint(2, 6)):
        kind = chance.random()
        if kind < 0.35 and depth < 3:
            (directory / name).mkdir()
            _tree(chance, directory / name, depth + 1)
        elif kind < 0.4:
            (directory / name).symlink_to(chance.choice(["a", "../a", "/etc", "src", ".gitignore"]))
        else:
            text = "\n".join(chance.choices(_LINES, k=chance.randint(0, 6))) + chance.choice(["\n", ""])
            end = chance.choices([b"", b"\x00needle\n", b"\nneedle\xff\xfe x\n"], [8, 1, 1])[0]
            encoding = chance.choices(["utf-8", "utf-16", "utf-8-sig"], [8, 1, 1])[0]
            (directory / name).write_bytes(text.encode(encoding) + (end if encoding == "utf-8" else b""))


@pytest.mark.parametrize("seed", range(8))
async def test_both_searches_find_the_same(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    _tree(chance, place.root)
    paths = PathValidator(place.root)
    ripgrep, scanning = SearchExecutor(paths), SearchExecutor(paths, use_ripgrep=False)
    places = [".", *(str(path.relative_to(place.root)) for path in place.root.rglob("*") if not path.is_symlink())]
    for pattern in chance.sample(_PATTERNS, 4):
        params = SearchFilesParams(
            pattern=pattern,
            regex=True,
            path=chance.choice(places),
            glob=chance.choice([None, None, "*.txt", "[^a]*", ".*", "{a,b}", "?"]),
            max_results=chance.choice([1000, 5]),
        )
        assert await scanning.search(params) == await ripgrep.search(params), params
    paths.close()


@pytest.mark.parametrize(
    "pattern", ["(?=n)", r"(n)\1", "a++", "n{", r"a\nb", "(?>n)", "[[:alpha:]]", r"[\S]", r"\Z", "(?P=x)", "(?#x)"]
)
def test_expression_that_means_something_else_here_is_refused(
    pattern: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    fd = os.open(place.root, os.O_RDONLY)
    assert scan.main(_work(fd, pattern=pattern)) == 2
    assert "regex parse error" in capsys.readouterr().err
    os.close(fd)


def _work(fd: int, **more: object) -> JsonObject:
    work = {"fd": fd, "above": [], "pattern": "needle", "regex": True, "case_sensitive": True, "globs": []}
    return work | {"overrules": False, "max_count": 1001, "ask": None, "seconds": 10, "owner": None} | more


def test_scan_answers_like_ripgrep(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    place.file("up/.gitignore", "local\n")
    for name in ("up/a", "up/skip", "up/local", "up/gone", "up/d/b", "up/.hidden"):
        place.file(name, "needle\n")
    place.file("up/broken", b"needle \xff\n")
    place.file("up/empty", "")
    os.mkfifo(place.root / "up" / "pipe")
    os.mkfifo(place.root / "up" / "d" / ".gitignore")
    (place.root / "up" / "link").symlink_to("a")
    above = [("skip\n/up/gone\n!skip/kept\n", "up/")]
    fd = os.open(place.root / "up", os.O_RDONLY)

    def found(**more: object) -> list[str]:
        assert scan.main(_work(fd, **more)) == 0
        sys.stdout.flush()
        answer = capfdbinary.readouterr().out
        return [os.fsdecode(part.split(b"\0")[0]) for part in answer.split(b"\n\n") if part]

    assert found(above=above) == ["./a", "./broken", "./d/b"]
    assert found(above=above, regex=False) == ["./a", "./broken", "./d/b"]
    assert found(pattern="absent") == []
    monkeypatch.setattr(scan, "_SYS_OPENAT2", 100_000)  # a kernel without it
    assert found(above=above) == ["./a", "./broken", "./d/b"]
    ours, theirs = socket.socketpair()
    ours.send(b"0000000000")
    with ours:
        assert found(ask=theirs.detach()) != []
        assert json.loads(ours.recv(1 << 16).splitlines()[0])[0] == "a"
    monkeypatch.setattr(scan, "MAX_DEPTH", 0)
    assert found(globs=["b"]) == []
    monkeypatch.setattr(scan, "MAX_FILE", 1)
    assert found() == []
    os.close(fd)


@pytest.mark.parametrize(
    ("glob", "fits", "not_"),
    [
        ("*.py", "a.py", "a/b.py"),
        ("**/*.py", "a/b.py", "a.pyc"),
        ("a/**", "a/b/c", "a"),
        ("a/**/b", "a/x/y/b", "a/xb"),
        ("**", "a/b", ""),
        ("a**b", "axb", "a/b"),
        ("**/**/a", "x/a", "ax"),
        ("a/**/**", "a/b", "b"),
        ("{a/**,b}", "a/c", "c"),
        ("{x,**}y", "xy", "ab"),
        ("a,b", "a,b", "a"),
        ("[!a]b", "cb", "ab"),
        ("\\*", "*", "a"),
        ("a?c", "abc", "a/c"),
        ("a{}b", "ab", "a{}b"),
        ("{**x,y}", "ax", "a/x"),
        ("[a-c]x", "bx", "-x"),
        ("[a-]x", "-x", "bx"),
    ],
)
def test_glob_means_what_it_means_to_ripgrep(glob: str, fits: str, not_: str) -> None:
    pattern = glob_pattern(glob)
    assert pattern.fullmatch(os.fsencode(fits))
    assert not not_ or not pattern.fullmatch(os.fsencode(not_))


@pytest.mark.parametrize("glob", ["{a", "a}", "{{a}}", "[a", "[b-a]", "a\\"])
def test_glob_that_ripgrep_does_not_take_is_an_error(glob: str) -> None:
    with pytest.raises(GlobError):
        glob_pattern(glob)


def test_scan_process_is_limited_and_gives_up_root() -> None:
    looks = """
import os, resource
scan.limit(3, [65534, 65534] if os.geteuid() == 0 else None)
print(os.geteuid() == 0, [resource.getrlimit(name)[1] for name in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)])
"""
    program = search._SCAN.replace("scan.start()", looks)
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False [1073741824, 8]"


async def test_what_nobody_may_read_is_not_searched(searcher: SearchExecutor, place: Place) -> None:
    """Not by root either, who could."""
    place.file("locked.txt", "needle\n").chmod(0)
    place.file("closed/a.txt", "needle\n")
    (place.root / "closed").chmod(0)
    try:
        assert await _search(searcher, "needle") == []
        for path in ("locked.txt", "closed", "closed/a.txt"):
            with pytest.raises(ToolFailure, match="No permission"):
                await _search(searcher, "needle", path=path)
    finally:
        (place.root / "closed").chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("use_ripgrep", [None, False], ids=["ripgrep", "scan"])
@pytest.mark.parametrize("kind", ["file", "directory"])
async def test_what_the_owner_of_the_workspace_may_not_read_is_said(use_ripgrep: bool | None, kind: str) -> None:
    root = Path(tempfile.mkdtemp())  # pytest's own directories are closed to others
    try:
        (root / "d").mkdir()
        (root / "d" / "a.txt").write_text("needle\n")
        os.chown(root, 4000, 4000)
        root.chmod(0o755)
        path = "d/a.txt" if kind == "file" else "d"
        (root / path).chmod(0o600 if kind == "file" else 0o700)
        paths = PathValidator(root)
        searcher = SearchExecutor(paths, use_ripgrep=use_ripgrep)
        with pytest.raises(ToolFailure, match=f"No permission to read '{path}'"):
            await _search(searcher, "needle", path=path)
        paths.close()
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("path", ["a.txt/", "a.txt/."])
async def test_file_that_is_named_like_a_directory_is_not_searched(
    searcher: SearchExecutor, place: Place, path: str
) -> None:
    place.file("a.txt", "needle\n")
    with pytest.raises(ToolFailure, match="is a file, not a directory"):
        await _search(searcher, "needle", path=path)


async def test_glob_that_would_leave_out_is_refused_in_words(searcher: SearchExecutor) -> None:
    with pytest.raises(InvalidParameters, match="leave out"):
        await _search(searcher, "needle", glob="!*.py")


@pytest.mark.parametrize("pattern", ["i", "\u0130", "\u0131", "[^x]i", "I\\w*", "(?i)x|i"])
async def test_letters_of_other_alphabets_are_folded_alike(place: Place, pattern: str) -> None:
    place.file("a.txt", "i\nI\n\u0130\n\u0131\n\u0130i\n\u212a\nk\n\u017f\ns\n")
    paths = PathValidator(place.root)
    found = [
        await _search(SearchExecutor(paths, use_ripgrep=use), pattern, case_sensitive=False, regex=True)
        for use in (None, False)
    ]
    assert found[0] == found[1]
    paths.close()
