"""ripgrep for searches: its sandbox, the reader of its output, and the handling of a run that is stuck.

ripgrep runs in bubblewrap with the searched directory and nothing else of the user's files. The directory is passed as
a descriptor and mounted from it (`--ro-bind-fd`) in a private skeleton: no path of the user's tree is resolved again,
so nothing can be swapped, and a link that leads out leads nowhere. The .gitignore files above it are copied into the
skeleton. Without a bubblewrap that can do this, `scan` searches instead.

Its threads finish files in any order, so every file is read and only the first `max_results` matches are kept: the
answer does not depend on the threads. The output is that of `rg --heading --null --line-number`; no file's content can
imitate it. A run that takes long is checked once: a .gitignore that is a pipe would block it forever (`NoWalls`), a
large file for as long as it takes to read (`HeldUp`). Every run ends with the search that started it.
"""

import asyncio
import os
import re
import stat
import threading
import time
from bisect import insort
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from byleave.protocol.errors import InvalidParameters, ToolFailure
from byleave.protocol.tools import SearchFilesParams
from byleave.workspace.paths import visible
from byleave.workspace.sandbox.environment import CommandUser, command_user, find_program
from byleave.workspace.sandbox.processes import OutputKeeper, StreamName, run_process
from byleave.workspace.sandbox.sandbox import Isolation, Launch, memory_files, tried_out
from byleave.workspace.sandbox.seccomp import filter_for

from .scan import MAX_DEPTH, MAX_IGNORE, NO_PERMISSION

# A character takes at most four bytes; more characters than this are not shown.
MAX_LINE = 2000
MAX_COLUMNS = 4 * MAX_LINE
_MAX_PIECE = MAX_COLUMNS + 64
_MAX_PATH = 1 << 16
_MAX_SAID = 4096
_PLENTY = 4
_BINARY = b"./"  # no match begins so: ripgrep repeats the path to say that the file is binary


@dataclass(order=True)
class _File:
    """One file with matches. Files sort in the order of a walk that sorts each directory by name."""

    parts: list[bytes]
    lines: list[bytes] = field(compare=False, default_factory=list[bytes])


class FirstMatches:
    """The first matches in path order, collected from matches in any order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: list[_File] = []
        self._count = 0
        self.truncated = False

    def beyond(self, file: _File) -> bool:
        """True if there are already enough matches before this file."""
        return self._count >= self._most and self._files[-1] < file

    def add(self, file: _File) -> None:
        if self.beyond(file):
            self.truncated = True
            return
        insort(self._files, file)
        self._count += len(file.lines)
        while self._count - len(self._files[-1].lines) >= self._most:
            self._count -= len(self._files.pop().lines)
            self.truncated = True
        self.truncated = self.truncated or self._count > self._most

    def found(self) -> list[tuple[str, list[tuple[int, str]]]]:
        """Return each path with its line numbers and lines."""
        left = self._most
        told: list[tuple[str, list[tuple[int, str]]]] = []
        for file in self._files:
            lines = [_match(line) for line in file.lines[:left]]
            told.append((b"/".join(file.parts).decode("utf-8", "surrogateescape"), lines))
            left -= len(lines)
        return told


def _match(line: bytes) -> tuple[int, str]:
    number, _, rest = line.partition(b":")
    return int(number), shown_line(rest.decode("utf-8", "replace"))


def shown_line(text: str) -> str:
    """A line as it is reported: without its end, and not too long."""
    text = text.rstrip("\r\n")
    return text if len(text) <= MAX_LINE else text[:MAX_LINE] + " [...]"


class AnswerReader(OutputKeeper):
    """Reads the output of one searching process. `wanted` is called once for each file that may count."""

    gathers = True

    def __init__(self, most: int, wanted: Callable[[str], bool], *, in_order: bool = False) -> None:
        super().__init__(_MAX_SAID)
        self.matches = FirstMatches(most)
        self._wanted = wanted
        self._in_order = in_order
        self._kept = bytearray()
        self._file: _File | None = None
        """The file whose lines are being read; None while its path is."""
        self._passing = False
        self._binary = False
        self._cut = False
        """True if the rest of a long line is still to come."""
        self.when_enough: Callable[[], object] | None = None
        """Called when further output cannot change the result."""
        self.when_plenty: Callable[[], object] | None = None
        """Called when there are so many matches that a search in order would soon have enough."""
        self._plenty = _PLENTY * most

    @property
    def enough(self) -> bool:
        return self._in_order and self.matches.truncated

    def said(self) -> str:
        """The process's error messages, in one line."""
        return " ".join(self.captured().stderr.split())[:300]

    def feed(self, stream: StreamName, data: bytes, *, final: bool = False) -> None:
        if stream == "stderr":
            super().feed(stream, data, final=final)
            return
        if self.enough:
            return
        self._kept += data
        while self._read_path() if self._file is None else self._read_lines(final=final):
            pass
        if self._plenty <= 0 and self.when_plenty is not None and self.matches.truncated:
            self.when_plenty()
        if self.enough and self.when_enough is not None:
            self.when_enough()

    def _read_path(self) -> bool:
        """Read a path; True if it was complete."""
        end = self._kept.find(b"\0")
        if end < 0:
            del self._kept[: max(0, len(self._kept) - _MAX_PATH)]
            return False
        path = bytes(self._kept[:end])
        del self._kept[: end + 1]
        self._file = _File(path.removeprefix(b"./").split(b"/"))
        # A path with an empty line could imitate the output format, so its file is not reported.
        plain = path.startswith(b"./") and b"\n\n" not in path
        beyond = self.matches.truncated and self.matches.beyond(self._file)
        self._passing = beyond or not (plain and self._wanted(path[2:].decode("utf-8", "surrogateescape")))
        self._binary = False
        return True

    def _read_lines(self, *, final: bool) -> bool:
        """Read lines; True if the file's last line was among them."""
        end, after = self._separator()
        ended = final or end >= 0
        # A partial separator at the end waits for its rest.
        size = end + 1 if end >= 0 else len(self._kept) if final else self._kept.rfind(b"\n", 0, -2) + 1
        self._plenty -= self._kept.count(b"\n", 0, size)
        if self._passing:
            size = max(size, 0 if ended else len(self._kept) - 2)
        else:
            self._take(bytes(self._kept[:size]))
        del self._kept[: after if end >= 0 else size]
        if ended:
            self._finish()
        elif not self._passing and len(self._kept) > _MAX_PIECE + 2:
            self._shorten()
        return end >= 0

    def _separator(self) -> tuple[int, int]:
        """Start and end of the empty line after a file's last line. With --sort, ripgrep ends it with CRLF too."""
        end = self._kept.find(b"\n\n")
        other = self._kept.find(b"\n\r\n", 0, end if end >= 0 else len(self._kept))
        return (end, end + 2) if other < 0 else (other, other + 3)

    def _take(self, data: bytes) -> None:
        """Take whole lines of the file."""
        if self._file is None or not data:
            return
        lines = data.split(b"\n")
        if not lines[-1]:
            del lines[-1]
        if self._cut:
            del lines[0]  # its beginning is already taken
            self._cut = False
        for line in lines:
            if line.startswith(_BINARY):
                self._binary = True
            if not self._binary:
                self._file.lines.append(line[:_MAX_PIECE])

    def _shorten(self) -> None:
        """Take the beginning of an overlong line, and drop the rest."""
        if not self._cut:
            self._take(bytes(self._kept[:_MAX_PIECE]))
        self._cut = True
        del self._kept[:-2]

    def _finish(self) -> None:
        if self._file is not None and self._file.lines and not self._passing and not self._binary:
            self.matches.add(self._file)
        self._file = None
        self._cut = False


_SKELETON = "/.ws"
_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64")
_LIMITS = {"core": 0, "cpu": 120, "data": 2 * 1024**3, "fsize": 4 * 1024**2, "nofile": 1024}
"""Not nproc: ripgrep starts no process, and from outside it would count all of the user's."""
LITTLE_MEMORY = 256 * 1024**2
"""Enough unless a line is longer than any that is reported; a large file may be one line."""
_PROBE_SECONDS = 10
_MOUNTS = "/proc/self/mountinfo"
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Above:
    """A .gitignore above the searched directory."""

    directory: str
    """Relative to the workspace; empty for the workspace itself."""
    content: bytes


@dataclass(frozen=True, slots=True)
class SearchRoot:
    """The searched file or directory: an open descriptor, its path, and the ignore rules above it."""

    fd: int
    real: str
    is_file: bool
    above: tuple[Above, ...] = ()

    def path_of(self, found: str) -> str:
        """Convert a found path to one relative to the workspace."""
        if self.is_file:
            return self.real
        return found if self.real == "." else f"{self.real}/{found}"


class RipgrepSandbox:
    """ripgrep in bubblewrap, for one workspace. Raises ToolFailure if one of the two is not installed."""

    def __init__(self, root: Path, *, as_owner: bool = True) -> None:
        self._ripgrep = os.path.realpath(find_program("rg", root))
        self._bwrap = find_program("bwrap", root)
        self._filter = filter_for()
        self.runner: CommandUser | None = command_user(root) if as_owner else None
        self._prlimit: str | None = None
        with suppress(ToolFailure):
            self._prlimit = find_program("prlimit", root)
        self._base = [
            self._bwrap,
            *["--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"],
            *_libraries(),
            *["--ro-bind", self._ripgrep, "/rg", "--perms", "0755", "--dir", _SKELETON],
        ]

    @property
    def is_limited(self) -> bool:
        """True if its memory is limited."""
        return self._prlimit is not None

    def _limiting(self, memory: int | None) -> list[str]:
        if self._prlimit is None:
            return []
        limits = _LIMITS | ({} if memory is None else {"data": min(memory, _LIMITS["data"])})
        return [self._prlimit, *(f"--{name}={most}" for name, most in limits.items()), "--"]

    def probe(self, place: SearchRoot) -> str | None:
        """Start ripgrep through the full argument list; None if it worked, else the reason."""
        return tried_out(self.launch(place, ["--version"]), "bubblewrap")

    @contextmanager
    def launch(self, place: SearchRoot, arguments: Sequence[str], *, memory: int | None = None) -> Generator[Launch]:
        """Prepare ripgrep with `arguments` in the searched directory, or in one that holds only the searched file.

        `memory`: a lower memory limit than usual, in bytes.
        """
        with ExitStack() as held:
            read_end, write_end = (_held(held, fd) for fd in os.pipe())
            contents = [above.content for above in place.above]
            written = memory_files(held, [*contents, *([] if self._filter is None else [self._filter])])
            ignores = {fd: _inside(above.directory) for fd, above in zip(written, place.above, strict=False)}
            filters = written[len(contents) :]
            if place.is_file:
                here, target = _SKELETON, f"{_SKELETON}/file"
            else:
                here = target = _inside("" if place.real == "." else place.real)
            yield Launch(
                argv=[
                    *self._limiting(memory),
                    *self._base,
                    *(word for fd, path in ignores.items() for word in ("--file", str(fd), f"{path}/.gitignore")),
                    *["--ro-bind-fd", str(place.fd), target],
                    *["--remount-ro", "/", "--chdir", here],
                    *(word for fd in filters for word in ("--seccomp", str(fd))),
                    *["--json-status-fd", str(write_end), "--", "/rg", *arguments],
                ],
                env={"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
                cwd="/",
                isolation=self._isolation(),
                pass_fds=(place.fd, write_end, *filters, *ignores),
                status_fd=read_end,
                uid=self.runner.uid if self.runner else None,
                gid=self.runner.gid if self.runner else None,
            )

    def _isolation(self) -> Isolation:
        root = os.geteuid() == 0
        return Isolation(
            isolated=True,
            backend="bwrap",
            fs="allowlist",
            net="none",
            pidns=True,
            seccomp=self._filter is not None,
            runs_as="owner" if self.runner else "root" if root else "user",
            limits=tuple(_LIMITS),
        )


def working_ripgrep(root: Path, place: SearchRoot) -> RipgrepSandbox | None:
    """ripgrep in a sandbox that works here; None if ripgrep or a working sandbox is missing."""
    try:
        for as_owner in (True, False):
            found = RipgrepSandbox(root, as_owner=as_owner)
            if found.probe(place) is None:
                return found
            if found.runner is None:
                return None
    except ToolFailure:
        pass  # not installed
    return None


def mounts_below(root: Path) -> list[str]:
    """Mount points in the workspace, relative to it. No tool enters other file systems."""
    above = os.fsencode(root) + b"/"
    with open(_MOUNTS, "rb") as file:
        points = [line.split(b" ")[4] for line in file]
    named = (_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), point) for point in points)
    return [os.fsdecode(point.removeprefix(above)) for point in named if point.startswith(above)]


def _held(held: ExitStack, fd: int) -> int:
    held.callback(os.close, fd)
    return fd


def _inside(directory: str) -> str:
    return f"{_SKELETON}/{directory}" if directory else _SKELETON


def _libraries() -> list[str]:
    """Mounts of the shared libraries, without any program."""
    arguments: list[str] = []
    for name in _LIBRARIES:
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    return arguments


Search = asyncio.Future[FirstMatches]

_SUSPICIOUS_SECONDS = 2.5
_LOOK_SECONDS = 2.0
_LOOK_EVERY = 64
_HEAD = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TWO_BYTES_EACH = (b"\xff\xfe", b"\xfe\xff")


class NoWalls(Exception):
    """ripgrep's sandbox could not be set up, or ripgrep waits for a pipe."""


class HeldUp(ToolFailure):
    """The search met a file that takes too long to read, or needs too much memory."""

    def __init__(self) -> None:
        super().__init__(
            "The search ended before it was done: a file in it may need more memory than a search may take.",
            hint="Search a smaller directory.",
        )


@asynccontextmanager
async def running(search: Coroutine[Any, Any, FirstMatches]) -> AsyncGenerator[Search]:
    """Run a search as a task, and cancel it when the block ends."""
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
    """The result of the first search to end; all give the same answer. HeldUp if all were held up."""
    for done in asyncio.as_completed(searches):
        with suppress(HeldUp):
            return await done
    raise HeldUp


async def unless_stuck(search: Search, place: SearchRoot, *, largest: int | None = None) -> FirstMatches:
    """Wait for a search. Raises NoWalls if it waits for a pipe, HeldUp if there is a file over `largest`; it still
    runs then."""
    await asyncio.wait([search], timeout=_SUSPICIOUS_SECONDS)
    if not search.done():
        stop = threading.Event()
        look = asyncio.ensure_future(asyncio.to_thread(what_holds_up, os.dup(place.fd), largest, stop))
        try:
            # Shielded from cancellation: a check that never started would never close its descriptor.
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
    place: SearchRoot,
    wanted: Callable[[str], bool],
    *,
    memory: int | None = None,
) -> FirstMatches:
    """Search with all threads, in any order.

    If there are many more matches than requested, a second ripgrep walks in order: it can stop as soon as it has
    enough, so it usually ends first, with the same answer.
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
    """Run a searching process; return its exit code, or None if it was stopped with enough matches."""
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


def judge(code: int | None, reader: AnswerReader, place: SearchRoot, good: set[int]) -> None:
    """Raise for an exit code that means there is no result."""
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
    """Search briefly for what may hold up ripgrep below an open directory. Closes the descriptor.

    "ignore": a .gitignore that is a pipe or huge. "large": a text file over `largest`.
    """
    look = _Look(largest, stop)
    try:
        if look.meets_ignore(fd):
            return "ignore"
    except OSError:
        pass  # not a directory, or a disk error
    finally:
        os.close(fd)
    return "large" if look.met_large else None


class _Look:
    """One walk over the files ripgrep searches: no hidden directories, no links."""

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
            return False  # gone, or no permission
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
        return 0  # gone, or no permission


def _is_text(name: str, directory: int) -> bool:
    """True if ripgrep would read it all: it stops at the first NUL, unless a BOM marks UTF-16."""
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
