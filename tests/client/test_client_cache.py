"""What the read cache remembers, and when it must not."""

import os
from pathlib import Path

import pytest

from byleave.client.cache import MAX_ENTRY_BYTES, ReadCache
from byleave.protocol.tools import ListDirectoryResult, ReadFileResult

pytestmark = pytest.mark.promise("C6")


@pytest.fixture
def old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("byleave.client.cache.SETTLED_SECONDS", 0)
    path = tmp_path / "src" / "a.txt"
    path.parent.mkdir()
    path.write_text("one")
    return path


def result(content: str) -> ReadFileResult:
    return ReadFileResult(content=content, encoding="utf-8", size=len(content))


def fill(cache: ReadCache, path: str, content: str = "one") -> None:
    reading = cache.before({"path": path})
    assert reading is not None
    cache.put(reading, result(content))


def test_other_spellings_of_a_path_share_what_is_known(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    fill(cache, "src/a.txt")
    assert cache.get({"path": "./src//a.txt"}) == result("one")
    assert cache.get({"path": str(old_file)}) == result("one")
    assert cache.get({"path": "src/a.txt", "start_line": 1}) is None


def test_a_file_of_the_same_size_and_time_but_another_inode_is_read_again(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    fill(cache, "src/a.txt")
    before = old_file.stat()
    other = tmp_path / "other"
    other.write_text("two")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(old_file)
    assert cache.get({"path": "src/a.txt"}) is None


def test_a_forged_modification_time_does_not_help(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    fill(cache, "src/a.txt")
    before = old_file.stat()
    old_file.write_text("two")
    os.utime(old_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.get({"path": "src/a.txt"}) is None


def test_a_file_that_is_gone_is_not_answered(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    fill(cache, "src/a.txt")
    old_file.unlink()
    assert cache.get({"path": "src/a.txt"}) is None
    assert cache.before({"path": "src/a.txt"}) is None
    assert cache.before({"path": "a\0b"}) is None


def test_a_file_changed_just_now_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    cache = ReadCache(tmp_path, 300)
    fill(cache, "a.txt")
    assert cache.get({"path": "a.txt"}) is None


def test_a_file_that_changed_while_it_was_read_is_not_remembered(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    reading = cache.before({"path": "src/a.txt"})
    old_file.write_text("other")
    assert reading is not None
    cache.put(reading, result("one"))
    assert cache.get({"path": "src/a.txt"}) is None


def test_a_read_that_a_write_overtook_is_not_remembered(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    reading = cache.before({"path": "src/a.txt"})
    cache.forget("elsewhere")
    assert reading is not None
    cache.put(reading, result("one"))
    assert cache.get({"path": "src/a.txt"}) is None


def test_other_results_are_not_remembered(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    reading = cache.before({"path": "src/a.txt"})
    assert reading is not None
    cache.put(reading, ListDirectoryResult(files=[], total_count=0))
    cache.put(None, result("one"))
    assert cache.get({"path": "src/a.txt"}) is None


def test_time_ends_what_is_known(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 0)
    fill(cache, "src/a.txt")
    assert cache.get({"path": "src/a.txt"}) is None


@pytest.mark.parametrize(
    ("forgotten", "known"), [("src/a.txt", False), ("src", False), ("sr", True), ("other", True), (None, False)]
)
def test_a_write_ends_what_is_known_of_its_path_and_below(
    tmp_path: Path, old_file: Path, forgotten: str | None, known: bool
) -> None:
    cache = ReadCache(tmp_path, 300)
    fill(cache, "src/a.txt")
    cache.forget(forgotten)
    assert (cache.get({"path": "src/a.txt"}) is not None) is known


def test_memory_is_bounded(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300, max_bytes=4000)
    for name in ("b", "c", "d"):
        (tmp_path / name).write_text("x")
        fill(cache, name, "x" * 400)
    assert [cache.get({"path": name}) is not None for name in ("b", "c", "d")] == [False, True, True]
    fill(cache, "c", "x" * MAX_ENTRY_BYTES)
    assert cache._bytes <= 4000
    cache.forget()
    assert cache._bytes == 0


@pytest.mark.promise("S")
@pytest.mark.parametrize("path", ["src/../src/a.txt", "link/../a.txt", "src/a.txt/x/..", "src/.."])
def test_a_path_that_climbs_is_neither_answered_nor_remembered(tmp_path: Path, old_file: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("src")
    cache = ReadCache(tmp_path, 300)
    fill(cache, "src/a.txt")
    assert cache.get({"path": path}) is None
    assert cache.before({"path": path}) is None


def test_a_write_to_a_path_that_climbs_ends_all_that_is_known(tmp_path: Path, old_file: Path) -> None:
    cache = ReadCache(tmp_path, 300)
    fill(cache, "src/a.txt")
    cache.forget("link/../b.txt")
    assert cache.get({"path": "src/a.txt"}) is None


@pytest.mark.promise("S")
@pytest.mark.parametrize("name", [".env", "id_rsa", "./.env"])
def test_a_file_that_usually_holds_secrets_is_never_remembered(tmp_path: Path, old_file: Path, name: str) -> None:
    (tmp_path / name).write_text("one")
    cache = ReadCache(tmp_path, 300)
    assert cache.before({"path": name}) is None
    assert cache.before({"path": str(tmp_path / name)}) is None
    assert cache.get({"path": name}) is None
