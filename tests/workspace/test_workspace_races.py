"""Twenty seconds against a racer: it swaps files and directories with links that lead out while every tool is used."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from byleave.protocol.errors import ByleaveError
from byleave.protocol.tools import ListDirectoryParams, ReadFileParams, SearchFilesParams, WriteFileParams
from byleave.workspace.files.executor import FileSystemExecutor, Listing
from byleave.workspace.paths import PathValidator
from byleave.workspace.search.executor import SearchExecutor

SECONDS = 20.0
ENOUGH = 100
PATIENCE = 60.0
_RACER = Path(__file__).parent.parent / "harness" / "racer.py"

Call = Callable[[], object]


class Arena:
    """A workspace whose parts lead out every other moment, and the two places they lead to."""

    def __init__(self, base: Path) -> None:
        self.root, self.outside, self.away = base / "ws", base / "out", base / "away"
        for directory in (self.root, self.outside / "deep", self.away):
            directory.mkdir(parents=True)
        for directory in (self.outside, self.outside / "deep", self.away):
            for name in ("f.txt", "g.txt", "SECRET-NAME.txt"):
                (directory / name).write_text("needle SECRET\n")
        for name in ("d", "e", "d/deep", "p", "p/q"):
            (self.root / name).mkdir()
        for name in ("f.txt", "g.txt", "d/f.txt", "e/f.txt", "d/deep/f.txt", "p/q/f.txt"):
            (self.root / name).write_text("needle inside\n")
        (self.root / "x1").symlink_to("../out")
        (self.root / "x2").symlink_to(self.outside)
        (self.root / "x3").symlink_to("../out/f.txt")
        (self.root / "x4").symlink_to(self.outside / "f.txt")
        self.exchange = [
            [str(self.root / inner), str(self.root / link)]
            for inner, link in (("d", "x1"), ("e", "x2"), ("f.txt", "x3"), ("g.txt", "x4"))
        ]
        # While a name below `p` is resolved, `p` goes where `..` leads to somebody else's files.
        self.moves = [[str(self.root / "p"), str(self.away / "p")]]

    def fingerprint(self) -> dict[str, tuple[str, int, int]]:
        """All that lies outside: names, content, modes and when it was changed."""
        found: dict[str, tuple[str, int, int]] = {}
        for path in sorted([*self.outside.rglob("*"), *self.away.rglob("*")]):
            data = path.read_bytes() if path.is_file() else b""
            info = path.lstat()
            changed = 0 if path.is_dir() else info.st_mtime_ns
            found[str(path)] = (hashlib.sha256(data).hexdigest(), info.st_mode, changed)
        return found


class Tools:
    """The four file tools on one arena, by one way of opening files."""

    def __init__(self, arena: Arena, *, use_openat2: bool) -> None:
        self.arena = arena
        self.paths = PathValidator(arena.root, use_openat2=use_openat2)
        assert self.paths.uses_openat2 is use_openat2
        self.files = FileSystemExecutor(self.paths)
        self.search = SearchExecutor(self.paths)
        self.tried: Counter[str] = Counter()
        self.worked: Counter[str] = Counter()
        self.leaked: list[str] = []

    def calls(self) -> dict[str, Iterator[Call]]:
        files = ("d/f.txt", "e/f.txt", "f.txt", "g.txt", "d/deep/f.txt", "p/q/../../f.txt", "e/../d/deep/../f.txt")
        directories = (".", "d", "e", "d/deep", "p/q/../..")
        written = cycle((*files, "d/new.txt", "e/made/new.txt", "p/q/../../new.txt"))
        modes = cycle(("write", "append", "append"))

        def write() -> object:
            params = WriteFileParams(path=next(written), content="needle inside\n", mode=next(modes))
            return self.files.write_now(params)

        def read(path: str) -> Call:
            return lambda: self.files.read_now(ReadFileParams(path=path))

        def listing(path: str) -> Call:
            params = ListDirectoryParams(path=path, recursive=True)
            return lambda: Listing(self.paths, params, threading.Event()).run()

        return {
            "read": cycle([read(path) for path in files]),
            "write": cycle([write]),
            "list": cycle([listing(path) for path in directories]),
        }

    def searches(self) -> Iterator[Callable[[], Coroutine[None, None, object]]]:
        def search(path: str) -> Callable[[], Coroutine[None, None, object]]:
            return lambda: self.search.search(SearchFilesParams(pattern="needle", path=path))

        return cycle([search(path) for path in (".", "d", "e", "d/deep", "p/q/../..", "f.txt", "d/f.txt")])

    def use(self, name: str, calls: Iterator[Call], until: float) -> None:
        while self._goes_on(name, until):
            with self._judged(name) as said:
                said.append(next(calls)())

    async def use_search(self, until: float) -> None:
        calls = self.searches()
        while self._goes_on("search", until):
            with self._judged("search") as said:
                said.append(await next(calls)())

    def _goes_on(self, name: str, until: float) -> bool:
        """The whole span; on a machine that is busy, longer, until it has worked often enough to say something."""
        late = time.monotonic() - until
        return late < 0 or (late < PATIENCE and self.worked[name] < ENOUGH)

    @contextmanager
    def _judged(self, name: str) -> Generator[list[object]]:
        said: list[object] = []
        self.tried[name] += 1
        try:
            yield said
            self.worked[name] += 1
        except ByleaveError as error:
            said.append(error)
        if "SECRET" in str(said[0]):
            self.leaked.append(f"{name}: {str(said[0])[:200]}")

    def close(self) -> None:
        self.files.close()
        self.paths.close()


@contextmanager
def racing(arenas: list[Arena]) -> Generator[list[int]]:
    """A racer against all of them; afterwards the list holds how often it swapped."""
    work = {
        "exchange": [pair for arena in arenas for pair in arena.exchange],
        "moves": [move for arena in arenas for move in arena.moves],
    }
    swaps: list[int] = []
    racer = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_RACER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert racer.stdin is not None
    assert racer.stdout is not None
    try:
        racer.stdin.write(json.dumps(work) + "\n")
        racer.stdin.flush()
        assert racer.stdout.readline() == "ready\n"
        yield swaps
    finally:
        said, _ = racer.communicate()
        swaps.append(int(said or 0))


@pytest.mark.promise("G1", "T1", "T2", "T4", "T5", "S")
@pytest.mark.timeout(120)
async def test_no_tool_leaves_the_workspace_in_twenty_seconds_of_swapped_links(tmp_path: Path) -> None:
    arenas = [Arena(tmp_path / way) for way in ("openat2", "walk")]
    before = [arena.fingerprint() for arena in arenas]
    tools = [Tools(arena, use_openat2=way) for arena, way in zip(arenas, (True, False), strict=True)]
    with racing(arenas) as swaps:
        until = time.monotonic() + SECONDS
        await asyncio.gather(
            *(one.use_search(until) for one in tools),
            *(asyncio.to_thread(one.use, name, calls, until) for one in tools for name, calls in one.calls().items()),
        )
    for one in tools:
        one.close()
        print(f"{swaps[0]} swaps; tried {dict(one.tried)}, worked {dict(one.worked)}")
    assert [arena.fingerprint() for arena in arenas] == before
    drafts = [name for _, directories, names in os.walk(tmp_path) for name in [*directories, *names] if ".tmp" in name]
    assert drafts == []
    for one in tools:
        assert min(one.worked[name] for name in ("read", "write", "list", "search")) >= ENOUGH, one.worked
        # Else nothing was swapped under its hands, and the test says nothing.
        assert all(one.worked[name] < one.tried[name] for name in ("read", "write", "search")), one.tried
    assert [leak for one in tools for leak in one.leaked] == []
