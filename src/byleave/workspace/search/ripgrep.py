"""ripgrep's runs for one search: how many at once, when one is stuck, and how it ended.

Whatever is done here, the answer is the same; it only comes sooner, or comes at all. A run that takes long is looked
after once: a .gitignore that is a pipe would hold it up for ever (`NoWalls`: the scan searches instead), a large file
for as long as it takes to read (`HeldUp`). Every run ends with the search that started it.
"""

import asyncio
import os
import stat
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from byleave.protocol.errors import InvalidParameters, ToolFailure
from byleave.protocol.tools import SearchFilesParams
from byleave.workspace.commands.processes import run_process
from byleave.workspace.paths import visible
from byleave.workspace.sandbox.sandbox import Launch

from .answers import AnswerReader, FirstMatches
from .sandbox import Place, RipgrepSandbox
from .scan import MAX_DEPTH, MAX_IGNORE, NO_PERMISSION

Search = asyncio.Future[FirstMatches]

_SUSPICIOUS_SECONDS = 2.5
_LOOK_SECONDS = 2.0
_LOOK_EVERY = 64
_HEAD = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TWO_BYTES_EACH = (b"\xff\xfe", b"\xfe\xff")


class NoWalls(Exception):
    """ripgrep was not started, because its walls could not be put up; or it waits for a pipe."""


class HeldUp(ToolFailure):
    """The search met a file that takes too long to read, or more memory than it may have."""

    def __init__(self) -> None:
        super().__init__(
            "The search ended before it was done: a file in it may need more memory than a search may take.",
            hint="Search a smaller directory.",
        )


@asynccontextmanager
async def running(search: Coroutine[Any, Any, FirstMatches]) -> AsyncGenerator[Search]:
    """Runs beside the block, and no longer than it."""
    task = asyncio.ensure_future(search)
    try:
        yield task
    finally:
        await _ended([task])


async def _ended(tasks: Sequence[Search]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def first_to_end(*searches: Search) -> FirstMatches:
    """Of searches that give the same answer. HeldUp: all of them were."""
    for done in asyncio.as_completed(searches):
        with suppress(HeldUp):
            return await done
    raise HeldUp


async def unless_stuck(search: Search, place: Place, *, largest: int | None = None) -> FirstMatches:
    """NoWalls: it waits for a pipe; with `largest`, HeldUp: there is a larger file. Then it still runs."""
    await asyncio.wait([search], timeout=_SUSPICIOUS_SECONDS)
    if not search.done():
        stop = threading.Event()
        look = asyncio.ensure_future(asyncio.to_thread(what_holds_up, os.dup(place.fd), largest, stop))
        try:
            # Not cancelled with us: a look that never began would never close its descriptor.
            found = await asyncio.shield(look)
        finally:
            stop.set()
        if found == "ignore":
            raise NoWalls
        if found == "large" and not search.done():
            raise HeldUp
    return await search


async def fastest(
    ripgrep: RipgrepSandbox,
    params: SearchFilesParams,
    arguments: list[str],
    place: Place,
    wanted: Callable[[str], bool],
    *,
    memory: int | None = None,
) -> FirstMatches:
    """The first matches, by all threads in any order.

    Where there are many more than asked for, a second ripgrep walks in order: it can stop as soon as it has enough, so
    it mostly comes first, and gives the same answer.
    """

    async def run(reader: AnswerReader, more: list[str]) -> FirstMatches:
        with ripgrep.launch(place, [*more, *arguments], memory=memory) as launch:
            try:
                code = await answer(launch, reader)
            except ToolFailure as error:
                raise NoWalls from error
        judge(code, reader, place, {0, 1})
        return reader.matches

    plenty = asyncio.Event()
    first = AnswerReader(params.max_results, wanted)
    first.when_plenty = plenty.set

    async def run_in_order() -> FirstMatches:
        await plenty.wait()
        return await run(AnswerReader(params.max_results, wanted, in_order=True), ["--sort=path"])

    tasks = [asyncio.ensure_future(run(first, [])), asyncio.ensure_future(run_in_order())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        await _ended(tasks)


async def answer(launch: Launch, reader: AnswerReader) -> int | None:
    """Run a searching process to its end, or until its answer is enough; then the exit code is None."""
    process = asyncio.ensure_future(run_process(launch, reader, seconds=3600))
    reader.when_enough = process.cancel
    try:
        return (await process).exit_code
    except asyncio.CancelledError:
        if reader.enough and process.done() and not _is_cancelled():
            return None
        raise


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def judge(code: int | None, reader: AnswerReader, place: Place, good: set[int]) -> None:
    """Raise for an exit code that says there is no answer."""
    if code is None or code in good:
        return
    said = reader.said()
    if code == NO_PERMISSION or (code == 2 and place.is_file and not said):
        raise ToolFailure(f"No permission to read {visible(place.real)!r}.")
    if code != 2:
        raise HeldUp
    if said:
        raise InvalidParameters(f"The pattern cannot be searched for: {said}")


def what_holds_up(fd: int, largest: int | None, stop: threading.Event) -> Literal["ignore", "large"] | None:
    """What may hold up ripgrep below an open directory, as far as a short look goes. Closes the descriptor.

    A .gitignore that is a pipe or huge, or, with `largest`, a larger file that is text.
    """
    look = _Look(largest, stop)
    try:
        if look.meets_ignore(fd):
            return "ignore"
    except OSError:
        pass  # it is no directory, or there is a fault on the disk
    finally:
        os.close(fd)
    return "large" if look.met_large else None


class _Look:
    """One walk over what ripgrep searches: not into hidden directories, not through links."""

    def __init__(self, largest: int | None, stop: threading.Event) -> None:
        self._largest = largest
        self._stop = stop
        self._until = time.monotonic() + _LOOK_SECONDS
        self._count = 0
        self.met_large = False

    def meets_ignore(self, fd: int, depth: int = 0) -> bool:
        inside: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if self._is_over():
                    return False
                if entry.name == ".gitignore" and _holds_up(fd):
                    return True
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith(".") and depth < MAX_DEPTH:
                        inside.append(entry.name)
                elif self._largest is not None and not self.met_large:
                    self.met_large = _size(entry) > self._largest and _is_text(entry.name, fd)
        return any(self._meets_ignore_in(name, fd, depth + 1) for name in inside)

    def _meets_ignore_in(self, name: str, fd: int, depth: int) -> bool:
        try:
            child = os.open(name, _DIRECTORY, dir_fd=fd)
        except OSError:
            return False  # gone, or not ours to look into
        try:
            return not self._is_over() and self.meets_ignore(child, depth)
        finally:
            os.close(child)

    def _is_over(self) -> bool:
        self._count += 1
        return self._count % _LOOK_EVERY == 0 and (self._stop.is_set() or time.monotonic() > self._until)


def _holds_up(directory: int) -> bool:
    with suppress(OSError):
        info = os.stat(".gitignore", dir_fd=directory)
        return stat.S_ISFIFO(info.st_mode) or info.st_size > 32 * MAX_IGNORE
    return False


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
    except OSError:
        return 0  # gone, or not ours to look at


def _is_text(name: str, directory: int) -> bool:
    """ripgrep reads no further than the first NUL, unless a mark says that every other byte may be one."""
    try:
        fd = os.open(name, _FILE, dir_fd=directory)
    except OSError:
        return False
    try:
        head = os.read(fd, _HEAD)
    except OSError:
        return False
    finally:
        os.close(fd)
    return b"\0" not in head or head.startswith(_TWO_BYTES_EACH)
