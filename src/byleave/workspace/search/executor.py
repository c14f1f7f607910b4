"""search_files: finds text or a regular expression in the workspace's files, bounded in time and number.

The searched directory is opened beneath the workspace and passed to the searching process by descriptor, so it cannot
be swapped. ripgrep searches in its sandbox (`ripgrep`); if that does not work, `scan` does, which walks by descriptors.
ripgrep never runs without a sandbox: it opens by path. Both leave out files that .gitignore names, hidden files (unless
the glob starts with a dot), files whose names mark secrets, other mounts, and denied paths. A call that asks for
secrets by path or glob gets them; any other is told their names, whether they match or not. Neither search follows
links, and both give the same answer, in the order of paths. An agent's input can neither become an option of ripgrep
nor expand to too many globs.
"""

import asyncio
import json
import os
import re
import socket
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from byleave.gate import WITHHELD, asks_for_secrets, mask_across_lines, may_be_part, secret_globs, secret_name
from byleave.protocol.errors import ExecutionTimeout, InvalidParameters, ToolFailure
from byleave.protocol.tools import MAX_MATCHES, SearchFilesParams, SearchFilesResult
from byleave.workspace.denied_paths import Forbidden, Rulings
from byleave.workspace.files.links import refuse_hidden_secret
from byleave.workspace.paths import PathValidator, left_out, names_directory, told_of, visible
from byleave.workspace.sandbox.environment import command_user
from byleave.workspace.sandbox.sandbox import Isolation, Launch, memory_files

from .ripgrep import (
    LITTLE_MEMORY,
    MAX_COLUMNS,
    Above,
    AnswerReader,
    FirstMatches,
    HeldUp,
    NoWalls,
    RipgrepSandbox,
    SearchRoot,
    answer,
    fastest,
    first_to_end,
    judge,
    mounts_below,
    running,
    shown_line,
    unless_stuck,
    working_ripgrep,
)
from .scan import MAX_DEPTH, MAX_FILE, GlobError, as_utf8, glob_pattern, read_rules

_MAX_BRACES = 64


def expand_glob(glob: str | None) -> list[str]:
    """Expand the braces of a glob on names: `*.{ts,tsx}` gives two. A leading `**/` means nothing and is dropped."""
    if glob is None:
        return []
    glob = glob.removeprefix("**/")
    if glob.startswith("!"):
        raise InvalidParameters(
            f"The glob {glob!r} would say what to leave out, and it can only say what to take.",
            hint="Name what to take, such as '*.py'.",
        )
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
    try:
        glob_pattern(glob, of_names=True)
    except GlobError as error:
        raise InvalidParameters(f"The glob {given!r} cannot be read: {error}.") from error
    return glob


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a search is for."""

    globs: tuple[str, ...]
    secret: bool
    """True if it may report files that usually hold secrets."""
    overrule: bool
    """True to report names that .gitignore names too, as it mostly does those of secrets."""
    per_file: int
    """At most so many lines of each file are read."""


def _in_any_case(glob: str) -> str:
    return "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in glob)


_SECRETS = Names(
    tuple(_in_any_case(glob) for glob in secret_globs().files if "/" not in glob),
    secret=True,
    overrule=True,
    per_file=1,
)
_ANY_LINE = SearchFilesParams.model_construct(pattern="", max_results=MAX_MATCHES)


def ripgrep_arguments(params: SearchFilesParams, names: Names, place: "SearchRoot") -> list[str]:
    """ripgrep's arguments. The pattern and the path come last, so that neither can be read as an option."""
    globs = names.globs
    arguments = ["--no-config", "--no-messages", "--no-follow", "--heading", "--null", "--line-number"]
    arguments += ["--with-filename", "--color=never", "--crlf", f"--max-count={names.per_file}"]
    arguments += [f"--max-columns={MAX_COLUMNS}", "--max-columns-preview"]
    arguments += ["--case-sensitive" if params.case_sensitive else "--ignore-case"]
    if not params.regex:
        arguments.append("--fixed-strings")
    if place.is_file:
        arguments += ["--no-ignore", "--hidden"]
    else:
        arguments += ["--no-require-git", "--no-ignore-global", "--no-ignore-dot", "--no-ignore-exclude"]
        arguments.append(f"--max-depth={MAX_DEPTH + 1}")
    if not place.is_file and globs:
        # A type does not overrule .gitignore, as an explicit glob does. A colon would end it, so `?` stands for it; the
        # names found are matched again.
        if names.overrule:
            arguments += [f"--glob={glob}" for glob in globs]
        else:
            arguments += [*(f"--type-add=wanted:{glob.replace(':', '?')}" for glob in globs), "--type=wanted"]
        if any(glob.startswith(".") for glob in globs):
            arguments += ["--hidden", "--glob=!.*/"]
    return [*arguments, "-e", params.pattern, "--", "./"]


_SECONDS = 10.0
_HEAVY = 8 * MAX_FILE
"""Reading a file of this size takes longer than checking every file's size."""
_ASKED_AT_ONCE = 2000
# Imports this directory as a package of its own: importing all of Byleave would take longer than the search.
_SCAN = f"""
import sys, types
searching = sys.modules["searching"] = types.ModuleType("searching")
searching.__path__ = [{str(Path(__file__).parent)!r}]
from searching import scan
scan.start()
"""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_NO_WALLS = Isolation(isolated=False, backend="none", fs="none", net="host", pidns=False)


class SearchExecutor:
    """Searches one workspace. `use_ripgrep`: False for `scan` only.

    `forbidden`: True for a denied path relative to the workspace; everything below it is denied too.
    """

    def __init__(
        self,
        paths: PathValidator,
        *,
        forbidden: Forbidden | None = None,
        use_ripgrep: bool | None = None,
        seconds: float = _SECONDS,
    ) -> None:
        self._paths = paths
        self._forbidden = forbidden
        self._seconds = seconds
        self._probed = use_ripgrep is False
        self._ripgrep: RipgrepSandbox | None = None
        self._sizes_matter = False
        """True once a large file has held up a search: ripgrep then checks every file's size, which costs time."""
        self._probing = threading.Lock()

    async def search(self, params: SearchFilesParams) -> SearchFilesResult:
        globs = expand_glob(params.glob)
        if set(params.pattern) & set("\r\n\x00"):
            raise InvalidParameters("The pattern may not hold a newline or NUL: the search goes line by line.")
        if not self._probed:
            await asyncio.to_thread(self.ripgrep)
        relative = self._paths.relative(params.path)
        rulings = Rulings(self._forbidden, mounts_below(self._paths.root))
        with told_of(params.path):
            place = self._open(relative, params.path)
        try:
            refuse_hidden_secret(relative, place.real)
            rulings.refuse(params.path, place.real)
            asked = asks_for_secrets(place.real, params.glob)
            names = Names(tuple(globs), asked, asks_for_secrets(".", params.glob), params.max_results + 1)
            async with asyncio.timeout(self._seconds):
                if asked or place.is_file:
                    found, left = await self._find(params, names, place, rulings), []
                else:
                    # By name alone: whether they match is not told.
                    async with running(self._find(_ANY_LINE, _SECRETS, place, rulings)) as secrets:
                        found = await self._find(params, names, place, rulings)
                        left = _left_out(await secrets, names, place)
                lines = await asyncio.to_thread(self._masked, place, found)
        except TimeoutError as error:
            self._sizes_matter = True  # perhaps because of a large file
            raise ExecutionTimeout(
                f"The search took longer than {self._seconds:g} s and was ended.",
                hint="Search a smaller directory, or use a simpler pattern.",
            ) from error
        finally:
            os.close(place.fd)
        # Validated all at once: one by one would take as long as the search.
        return SearchFilesResult.model_validate(
            {
                "matches": [{"path": visible(path), "line_number": at, "line": line} for path, at, line in lines],
                "total_count": len(lines),
                "truncated": found.truncated,
                "warnings": left_out(left),
            }
        )

    def ripgrep(self) -> RipgrepSandbox | None:
        """ripgrep in its sandbox, probed once; None if `scan` has to search."""
        with self._probing:
            if not self._probed:
                self._probed = True
                with suppress(OSError), ExitStack() as held:  # the search itself raises this error
                    fd = self._paths.open_raw(".", _READ)
                    held.callback(os.close, fd)
                    self._ripgrep = working_ripgrep(self._paths.root, SearchRoot(fd, ".", is_file=False))
            return self._ripgrep

    def _open(self, relative: str, path: str) -> SearchRoot:
        # A path with a trailing slash must be a directory.
        fd = self._paths.open_raw(relative, _READ | (os.O_DIRECTORY if names_directory(path) else 0))
        try:
            info = os.fstat(fd)
            real = self._paths.real_path(fd)
            self._paths.refuse_closed(fd, info)
            if stat.S_ISDIR(info.st_mode):
                return SearchRoot(fd, real, is_file=False, above=tuple(self._above(real)))
            if not stat.S_ISREG(info.st_mode):
                raise ToolFailure(f"{path!r} is neither a file nor a directory.")
            if info.st_size > MAX_FILE:
                raise ToolFailure(f"{path!r} is larger than {MAX_FILE >> 20} MiB.", hint="Use a command like grep.")
            return SearchRoot(fd, real, is_file=True)
        except BaseException:
            os.close(fd)
            raise

    def _above(self, real: str) -> list[Above]:
        """The .gitignore files between the workspace and the searched directory."""
        found: list[Above] = []
        parts = [] if real == "." else real.split("/")
        for depth in range(len(parts)):
            directory = "/".join(parts[:depth])
            if self._exists(os.path.join(directory, ".git")):
                found.clear()  # a nested repository: rules above it do not apply
            with suppress(OSError):
                fd = self._paths.open_raw(os.path.join(directory, ".gitignore"), _READ)
                with os.fdopen(fd, "rb") as file:
                    if stat.S_ISREG(os.fstat(fd).st_mode):
                        found.append(Above(directory, read_rules(file)))
        return found

    def _exists(self, relative: str) -> bool:
        try:
            os.close(self._paths.open_raw(relative, os.O_PATH))
        except OSError:
            return False
        return True

    def _masked(self, place: SearchRoot, found: FirstMatches) -> list[tuple[str, int, str]]:
        """The matches, masked where other lines of their file tell that they hold secrets."""
        told: list[tuple[str, int, str]] = []
        for path, lines in ((place.path_of(path), lines) for path, lines in found.found()):
            text = self._text(path) if any(may_be_part(line) for _, line in lines) else ""
            masked = mask_across_lines(text)
            if masked != text:
                # Compared with what was found: the file may be another one meanwhile.
                before, after = text.split("\n"), masked.split("\n")
                lines = [
                    (number, shown_line(after[number - 1]))
                    if number <= len(after) and shown_line(before[number - 1]) == line
                    else (number, WITHHELD)
                    for number, line in lines
                ]
            told += [(path, number, line) for number, line in lines]
        return told

    def _text(self, path: str) -> str:
        with suppress(OSError):
            fd = self._paths.open_raw(path, _READ)
            with os.fdopen(fd, "rb") as file:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    return as_utf8(file.read(MAX_FILE)).decode("utf-8", "replace")
        return ""  # gone

    async def _find(self, params: SearchFilesParams, names: Names, place: SearchRoot, rulings: Rulings) -> FirstMatches:
        wanted = _name_filter(names, place, rulings)
        if self._ripgrep is not None:
            # NoWalls: the directory was moved meanwhile or cannot be mounted. HeldUp: a file was too much for ripgrep;
            # `scan` skips large ones.
            with suppress(NoWalls, HeldUp):
                return await self._ripgrep_finds(self._ripgrep, params, names, place, wanted)
        return await self._scan(params, names, place, wanted, rulings)

    async def _ripgrep_finds(
        self,
        ripgrep: RipgrepSandbox,
        params: SearchFilesParams,
        names: Names,
        place: SearchRoot,
        wanted: Callable[[str], bool],
    ) -> FirstMatches:
        """Search with ripgrep. Large files are never reported; once one held up a search, they are not read either."""
        arguments = ripgrep_arguments(params, names, place)
        of_small = partial(fastest, ripgrep, params, [f"--max-filesize={MAX_FILE}", *arguments], place, wanted)
        if self._sizes_matter or place.is_file or not ripgrep.is_limited:
            async with running(of_small()) as search:
                return await unless_stuck(search, place)

        def wanted_and_small(path: str) -> bool:
            return wanted(path) and not self._is_large(place, path)

        of_all = fastest(ripgrep, params, arguments, place, wanted_and_small, memory=LITTLE_MEMORY)
        async with running(of_all) as search:
            with suppress(HeldUp):
                return await unless_stuck(search, place, largest=MAX_FILE)
            self._sizes_matter = True
            # The first search may be nearly done, so both run and the first to end is taken.
            async with running(of_small()) as other, running(first_to_end(search, other)) as either:
                return await unless_stuck(either, place)

    def _is_large(self, place: SearchRoot, path: str) -> bool:
        try:
            fd = self._paths.open_raw(place.path_of(path), os.O_PATH)
        except OSError:
            return False  # gone since the search
        try:
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        self._sizes_matter = self._sizes_matter or size > _HEAVY
        return size > MAX_FILE

    async def _scan(
        self,
        params: SearchFilesParams,
        names: Names,
        place: SearchRoot,
        wanted: Callable[[str], bool],
        rulings: Rulings,
    ) -> FirstMatches:
        runner = command_user(self._paths.root)
        work = {
            "fd": place.fd,
            "above": [
                (above.content.decode("utf-8", "surrogateescape"), _from(above.directory, place.real))
                for above in place.above
            ],
            "pattern": params.pattern,
            "regex": params.regex,
            "case_sensitive": params.case_sensitive,
            "globs": names.globs,
            "overrules": names.overrule,
            "max_count": names.per_file,
            "seconds": self._seconds,
            "owner": None if runner is None else [runner.uid, runner.gid],
        }
        reader = AnswerReader(params.max_results, wanted, in_order=True)
        async with _asked(place, rulings) as ask:
            with ExitStack() as held:
                (fd,) = memory_files(held, [json.dumps(work | {"ask": ask}).encode("ascii")])
                launch = Launch(
                    argv=[sys.executable, "-I", "-c", _SCAN, str(fd)],
                    env={"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"},
                    cwd="/",
                    isolation=_NO_WALLS,
                    pass_fds=(place.fd, fd, *([] if ask is None else [ask])),
                )
                code = await answer(launch, reader)
        judge(code, reader, place, {0})
        return reader.matches


@asynccontextmanager
async def _asked(place: SearchRoot, rulings: Rulings) -> AsyncGenerator[int | None]:
    """A socket on which the scan asks about paths before it opens them; None if nothing is ruled out."""
    if not rulings:
        yield None
        return
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    with ours, theirs:
        answering = asyncio.ensure_future(_rule(ours, place, rulings))
        try:
            yield theirs.fileno()
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


async def _rule(ours: socket.socket, place: SearchRoot, rulings: Rulings) -> None:
    """Answer the scan's questions: a line with a list of paths, answered with a digit for each."""
    loop = asyncio.get_running_loop()
    question = bytearray()
    while data := await loop.sock_recv(ours, 1 << 16):
        question += data
        if data.endswith(b"\n"):
            paths: list[str] = json.loads(question)
            question.clear()
            for at in range(0, len(paths), _ASKED_AT_ONCE):  # in pieces, so that the event loop is not blocked
                some = paths[at : at + _ASKED_AT_ONCE]
                answer = "".join("1" if rulings.rules_out(place.path_of(path)) else "0" for path in some)
                await loop.sock_sendall(ours, answer.encode("ascii"))
                await asyncio.sleep(0)


def _left_out(secrets: FirstMatches, names: Names, place: SearchRoot) -> list[str]:
    """The paths of secrets that a search for these names leaves out."""
    fits = _fits(names.globs)
    return [path for found, _ in secrets.found() if secret_name(path := place.path_of(found)) and fits(found)]


@lru_cache(maxsize=64)
def _fits(globs: tuple[str, ...]) -> Callable[[str], bool]:
    patterns = [glob_pattern(glob, of_names=True).fullmatch for glob in globs]
    return lambda path: not patterns or any(match(os.fsencode(path.rpartition("/")[2])) for match in patterns)


def _name_filter(names: Names, place: SearchRoot, rulings: Rulings) -> Callable[[str], bool]:
    """Return a function that is True for found paths that may be reported."""
    fits = _fits(names.globs)
    hidden = any(glob.startswith(".") for glob in names.globs)

    def wanted(found: str) -> bool:
        if place.is_file:
            return True
        parts = found.split("/")
        if any(part.startswith(".") for part in parts[:-1]) or (parts[-1].startswith(".") and not hidden):
            return False
        # The gate asks a person before such a file is read; a search must not show it without asking.
        if (names is _SECRETS or not names.secret) and secret_name(place.path_of(found)) != names.secret:
            return False
        if rulings.rules_out(place.path_of(found)):
            return False
        return fits(found)

    return wanted


def _from(directory: str, real: str) -> str:
    """The path from a directory to the searched directory below it, with a trailing slash."""
    return (real[len(directory) + 1 :] if directory else real) + "/"
