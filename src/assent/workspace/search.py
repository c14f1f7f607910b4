"""search_files: text or a regular expression in the workspace's files, bounded in time and number.

The place to search is opened beneath the workspace and handed to the searching process by descriptor, so it cannot be
swapped for another. ripgrep searches where it is installed, else `scan.py` does in a process of its own, which can be
killed whatever the expression does to it. Both leave out what .gitignore names, hidden files (unless the glob starts
with a dot), and files that hold secrets by their name; neither follows links.
"""

import asyncio
import base64
import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assent.gate import secret_name
from assent.protocol.errors import ExecutionTimeout, InvalidParameters, ToolFailure
from assent.protocol.tools import SearchFilesParams, SearchFilesResult, SearchMatch
from assent.protocol.values import JsonObject

from .disguises import refuse_hidden_secret
from .paths import PathValidator, told_of, visible
from .programs import find_program

_SECONDS = 10.0
_MAX_LINE = 2000
_MAX_FILE = "32M"
_MAX_RECORD = 48 * 1024 * 1024  # one line of the searcher's answer; a file is smaller, its escapes may not be
_MAX_BRACES = 64
_SCAN = Path(__file__).with_name("scan.py")


@dataclass(frozen=True, slots=True)
class _Place:
    """What is searched: an open descriptor and the path it stands for."""

    fd: int
    real: str
    is_file: bool

    def path_of(self, found: str) -> str:
        if self.is_file:
            return self.real
        below = found.removeprefix("./")
        return below if self.real == "." else f"{self.real}/{below}"


class SearchExecutor:
    """Searches one workspace. `use_ripgrep` None: when it is installed."""

    def __init__(self, paths: PathValidator, *, use_ripgrep: bool | None = None, seconds: float = _SECONDS) -> None:
        self._paths = paths
        self._seconds = seconds
        self._ripgrep = None if use_ripgrep is False else self._find_ripgrep()

    def _find_ripgrep(self) -> str | None:
        try:
            return find_program("rg", self._paths.root)
        except ToolFailure:
            return None

    async def search(self, params: SearchFilesParams) -> SearchFilesResult:
        globs = expand_glob(params.glob)
        if "\n" in params.pattern or "\x00" in params.pattern:
            raise InvalidParameters("The pattern may not hold a newline or NUL: the search goes line by line.")
        relative = self._paths.relative(params.path)
        with told_of(params.path):
            place = self._open(relative, params.path)
        try:
            refuse_hidden_secret(relative, place.real)
            if self._ripgrep is not None:
                argv, work = _ripgrep_argv(self._ripgrep, params, globs, place), b""
            else:
                argv, work = _scan_argv(), _scan_work(params, globs, place)
            return await self._collect(argv, work, place, params, globs)
        finally:
            os.close(place.fd)

    def _open(self, relative: str, path: str) -> _Place:
        fd = self._paths.open_raw(relative, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        kind = os.fstat(fd).st_mode
        if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
            os.close(fd)
            raise ToolFailure(f"{path!r} is neither a file nor a directory.")
        return _Place(fd, self._paths.real_path(fd), stat.S_ISREG(kind))

    async def _collect(
        self, argv: list[str], work: bytes, place: _Place, params: SearchFilesParams, globs: list[str]
    ) -> SearchFilesResult:
        wanted = _name_filter(globs, place)
        matches: list[SearchMatch] = []
        try:
            async with asyncio.timeout(self._seconds), aclosing(_records(argv, work, place)) as records:
                async for record in records:
                    match = _match_of(record, place)
                    if match is None or not wanted(match[0]):
                        continue
                    if len(matches) == params.max_results:
                        return SearchFilesResult(matches=matches, total_count=len(matches), truncated=True)
                    matches.append(
                        SearchMatch(path=visible(place.path_of(match[0])), line_number=match[1], line=match[2])
                    )
        except TimeoutError as error:
            raise ExecutionTimeout(
                f"The search took longer than {self._seconds:g} s and was ended.",
                hint="Search a smaller directory, or use a simpler pattern.",
            ) from error
        return SearchFilesResult(matches=matches, total_count=len(matches))


def expand_glob(glob: str | None) -> list[str]:
    """Globs on names without braces: `*.{ts,tsx}` gives two. A leading `**/` says nothing here and is dropped."""
    if glob is None:
        return []
    glob = glob.removeprefix("**/")
    if "/" in glob or "\\" in glob or not glob.isprintable():
        raise InvalidParameters(
            f"The glob {glob!r} is for file names and cannot hold a slash.", hint="Name the directory in 'path'."
        )
    done: list[str] = []
    waiting = [glob]
    while waiting:
        current = waiting.pop()
        found = re.search(r"\{([^{}]*)\}", current)
        if found is None:
            done.append(_whole(current, glob))
        else:
            waiting.extend(current[: found.start()] + part + current[found.end() :] for part in found[1].split(","))
        if len(done) + len(waiting) > _MAX_BRACES:
            raise InvalidParameters(f"The glob {glob[:60]!r} stands for more than {_MAX_BRACES} others.")
    return sorted(set(done))


def _whole(glob: str, given: str) -> str:
    """Refuse what one searcher takes for an error and the other for a name."""
    if set(re.sub(r"\[[!^]?+.[^\]]*\]", "", glob)) & set("[{}"):
        raise InvalidParameters(f"The glob {given!r} has a bracket that is not closed.")
    return glob


def _name_filter(globs: list[str], place: _Place) -> Callable[[str], bool]:
    """Whether a found path is one we may tell of."""
    fits = [re.compile(fnmatch.translate(glob)).match for glob in globs]
    hidden = any(glob.startswith(".") for glob in globs)
    asked_for_secrets = secret_name(place.real)  # named by the call itself, so the gate has seen it

    def wanted(found: str) -> bool:
        if place.is_file:
            return True
        parts = found.removeprefix("./").split("/")
        if any(part.startswith(".") for part in parts[:-1]) or (parts[-1].startswith(".") and not hidden):
            return False
        # The gate asks before such a file is read; a search must not read it unasked.
        if not asked_for_secrets and secret_name(place.path_of(found)):
            return False
        return not fits or any(match(parts[-1]) for match in fits)

    return wanted


def _ripgrep_argv(ripgrep: str, params: SearchFilesParams, globs: list[str], place: _Place) -> list[str]:
    argv = [ripgrep, "--no-config", "--json", "--no-messages", "--no-follow", "--sort=path", "--no-require-git"]
    argv += ["--no-ignore-global", "--no-ignore-dot", "--no-ignore-exclude", f"--max-filesize={_MAX_FILE}"]
    argv += ["--case-sensitive" if params.case_sensitive else "--ignore-case"]
    if not params.regex:
        argv.append("--fixed-strings")
    if not place.is_file and globs:
        # A type, not --glob: a glob that is given overrules .gitignore.
        argv += [f"--type-add=wanted:{glob}" for glob in globs]
        argv.append("--type=wanted")
    if any(glob.startswith(".") for glob in globs):
        argv.append("--hidden")
    return [*argv, "-e", params.pattern, "--", f"/proc/self/fd/{place.fd}" if place.is_file else "./"]


def _scan_argv() -> list[str]:
    return [sys.executable, "-I", str(_SCAN)]


def _scan_work(params: SearchFilesParams, globs: list[str], place: _Place) -> bytes:
    work = {
        "fd": place.fd,
        "above": [] if place.is_file or place.real == "." else place.real.split("/"),
        "pattern": params.pattern if params.regex else re.escape(params.pattern),
        "case_sensitive": params.case_sensitive,
        "globs": globs,
    }
    return json.dumps(work).encode("utf-8")


async def _records(argv: list[str], work: bytes, place: _Place) -> AsyncGenerator[JsonObject]:
    """The searcher's answer, line by line; leaving early kills it."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if work else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
        # The child changes to the directory behind our descriptor, whatever its name leads to by now.
        cwd="/" if place.is_file else f"/proc/self/fd/{place.fd}",
        pass_fds=(place.fd,),
        limit=1 << 20,
    )
    errors = asyncio.ensure_future(_first_bytes(process.stderr))
    try:
        if process.stdin is not None:
            process.stdin.write(work)
            process.stdin.close()
        async for line in _lines(process.stdout):
            yield json.loads(line)
        said = (await errors).decode("utf-8", "replace")
        if await process.wait() == 2 and said:
            raise InvalidParameters(f"The pattern cannot be searched for: {_shorten(said)}")
    finally:
        if process.returncode is None:
            process.kill()
        errors.cancel()
        await asyncio.gather(errors, asyncio.shield(process.wait()), return_exceptions=True)


def _shorten(text: str) -> str:
    return " ".join(text.split())[:300]


async def _first_bytes(stream: asyncio.StreamReader | None) -> bytes:
    kept = b""
    while stream is not None and (data := await stream.read(65536)):
        kept = (kept + data)[:4096]
    return kept


async def _lines(stream: asyncio.StreamReader | None) -> AsyncGenerator[bytes]:
    """Lines of any length up to a bound; a longer one is dropped."""
    kept = bytearray()
    dropping = False
    while stream is not None and (data := await stream.read(1 << 18)):
        *ended, rest = data.split(b"\n")
        for piece in ended:
            if not dropping:
                yield bytes(kept) + piece
            kept.clear()
            dropping = False
        kept += rest
        if len(kept) > _MAX_RECORD:
            dropping = True
            kept.clear()


def _match_of(record: JsonObject, place: _Place) -> tuple[str, int, str] | None:
    if record.get("type") != "match":
        return None
    data = record["data"]
    path = "" if place.is_file else os.fsdecode(_bytes_of(data["path"]))
    line = _bytes_of(data["lines"]).decode("utf-8", "replace").rstrip("\r\n")
    if len(line) > _MAX_LINE:
        line = line[:_MAX_LINE] + " [...]"
    return path, int(data["line_number"]), line


def _bytes_of(value: Any) -> bytes:
    """ripgrep writes text as `text` and anything else as base64 in `bytes`."""
    return value["text"].encode("utf-8") if "text" in value else base64.b64decode(value["bytes"])
