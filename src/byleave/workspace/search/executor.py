"""search_files: text or a regular expression in the workspace's files, bounded in time and number.

The place to search is opened beneath the workspace and handed to the searching process by descriptor, so it cannot be
swapped for another. ripgrep searches in its sandbox (`ripgrep`); where that does not work, `scan` does, which walks by
descriptors. Never ripgrep without a sandbox: it opens by path. Both leave out what .gitignore names, hidden files
(unless the glob starts with a dot), files that hold secrets by their name, other mounts, and what the owner has ruled
out; neither follows links, and both give the same answer, in the order of paths. Nothing an agent sends may become an
option of ripgrep, or stand for more globs than a search bears.
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
from functools import partial
from pathlib import Path

from byleave.gate import secret_name
from byleave.protocol.errors import ExecutionTimeout, InvalidParameters, ToolFailure
from byleave.protocol.tools import SearchFilesParams, SearchFilesResult
from byleave.workspace.files.links import refuse_hidden_secret
from byleave.workspace.paths import PathValidator, names_directory, told_of, visible
from byleave.workspace.rulings import Forbidden, Rulings
from byleave.workspace.sandbox.environment import command_user
from byleave.workspace.sandbox.sandbox import Isolation, Launch

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
    memory_file,
    mounts_below,
    running,
    unless_stuck,
    working_ripgrep,
)
from .scan import MAX_DEPTH, MAX_FILE, GlobError, glob_pattern, read_rules

_MAX_BRACES = 64


def expand_glob(glob: str | None) -> list[str]:
    """Globs on names without braces: `*.{ts,tsx}` gives two. A leading `**/` says nothing here and is dropped."""
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


def ripgrep_arguments(params: SearchFilesParams, globs: list[str], place: "SearchRoot") -> list[str]:
    """Everything after the program's name; the pattern and the place come last, where nothing is read as an option."""
    arguments = ["--no-config", "--no-messages", "--no-follow", "--heading", "--null", "--line-number"]
    arguments += ["--with-filename", "--color=never", "--crlf", f"--max-count={params.max_results + 1}"]
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
        # A type, not --glob: a glob that is given overrules .gitignore. A colon would end it; the names are looked at
        # again when they come back.
        arguments += [f"--type-add=wanted:{glob.replace(':', '?')}" for glob in globs]
        arguments.append("--type=wanted")
        if any(glob.startswith(".") for glob in globs):
            arguments += ["--hidden", "--glob=!.*/"]
    return [*arguments, "-e", params.pattern, "--", "./"]


_SECONDS = 10.0
_HEAVY = 8 * MAX_FILE
"""To read such a file takes longer than to ask for the size of all."""
_ASKED_AT_ONCE = 2000
# The modules beside this one as a package of their own: all of Byleave would take longer to import than to search.
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
    """Searches one workspace. `use_ripgrep` False: never with it.

    `forbidden` says of a path relative to the workspace whether the owner has ruled it out, with all below it.
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
        """True if a search was held up by a large file: then ripgrep asks for the size of every file, which costs."""
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
            async with asyncio.timeout(self._seconds):
                found = await self._find(params, globs, place, rulings)
        except TimeoutError as error:
            self._sizes_matter = True  # perhaps it was a large file
            raise ExecutionTimeout(
                f"The search took longer than {self._seconds:g} s and was ended.",
                hint="Search a smaller directory, or use a simpler pattern.",
            ) from error
        finally:
            os.close(place.fd)
        matches = [
            {"path": path, "line_number": number, "line": line}
            for path, lines in ((visible(place.path_of(path)), lines) for path, lines in found.found())
            for number, line in lines
        ]
        # All at once: one by one they take as long as it took to read them.
        told = {"matches": matches, "total_count": len(matches), "truncated": found.truncated}
        return SearchFilesResult.model_validate(told)

    def ripgrep(self) -> RipgrepSandbox | None:
        """ripgrep in its walls, found out once by really starting it; None: `scan` searches."""
        with self._probing:
            if not self._probed:
                self._probed = True
                with suppress(OSError), ExitStack() as held:  # what cannot be opened is said by the search itself
                    fd = self._paths.open_raw(".", _READ)
                    held.callback(os.close, fd)
                    self._ripgrep = working_ripgrep(self._paths.root, SearchRoot(fd, ".", is_file=False))
            return self._ripgrep

    def _open(self, relative: str, path: str) -> SearchRoot:
        # Only a directory may be named with a slash at the end.
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
                found.clear()  # a repository of its own: what lies above it has no say
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

    async def _find(
        self, params: SearchFilesParams, globs: list[str], place: SearchRoot, rulings: Rulings
    ) -> FirstMatches:
        wanted = _name_filter(globs, place, rulings)
        if self._ripgrep is not None:
            # The walls could not be put up: the place is being moved about, or cannot be mounted. Or it was too much
            # for ripgrep: `scan` reads no more of any file than it needs.
            with suppress(NoWalls, HeldUp):
                return await self._ripgrep_finds(self._ripgrep, params, globs, place, wanted)
        return await self._scan(params, globs, place, wanted, rulings)

    async def _ripgrep_finds(
        self,
        ripgrep: RipgrepSandbox,
        params: SearchFilesParams,
        globs: list[str],
        place: SearchRoot,
        wanted: Callable[[str], bool],
    ) -> FirstMatches:
        """Large files are not told of. They are not read either, once one of them has held up a search."""
        arguments = ripgrep_arguments(params, globs, place)
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
            # It may take long for another reason, and be nearly done: so both run, and the first to end is taken.
            async with running(of_small()) as other, running(first_to_end(search, other)) as either:
                return await unless_stuck(either, place)

    def _is_large(self, place: SearchRoot, path: str) -> bool:
        try:
            fd = self._paths.open_raw(place.path_of(path), os.O_PATH)
        except OSError:
            return False  # gone; it was there when it was searched
        try:
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        self._sizes_matter = self._sizes_matter or size > _HEAVY
        return size > MAX_FILE

    async def _scan(
        self,
        params: SearchFilesParams,
        globs: list[str],
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
            "globs": globs,
            "max_count": params.max_results + 1,
            "seconds": self._seconds,
            "owner": None if runner is None else [runner.uid, runner.gid],
        }
        reader = AnswerReader(params.max_results, wanted, in_order=True)
        async with _asked(place, rulings) as ask:
            with ExitStack() as held:
                fd = memory_file(json.dumps(work | {"ask": ask}).encode("ascii"))
                held.callback(os.close, fd)
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
    """A descriptor over which the scan asks what is ruled out before it enters or opens; None: nothing is."""
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
    """One question at a time: a line with a list of paths; the answer, a digit for each."""
    loop = asyncio.get_running_loop()
    question = bytearray()
    while data := await loop.sock_recv(ours, 1 << 16):
        question += data
        if data.endswith(b"\n"):
            paths: list[str] = json.loads(question)
            question.clear()
            for at in range(0, len(paths), _ASKED_AT_ONCE):  # a piece at a time: the client has other things to do
                some = paths[at : at + _ASKED_AT_ONCE]
                answer = "".join("1" if rulings.rules_out(place.path_of(path)) else "0" for path in some)
                await loop.sock_sendall(ours, answer.encode("ascii"))
                await asyncio.sleep(0)


def _name_filter(globs: list[str], place: SearchRoot, rulings: Rulings) -> Callable[[str], bool]:
    """True if a found path is one we may tell of."""
    fits = [glob_pattern(glob, of_names=True).fullmatch for glob in globs]
    hidden = any(glob.startswith(".") for glob in globs)
    asked_for_secrets = secret_name(place.real)  # named by the call itself, so the gate has seen it

    def wanted(found: str) -> bool:
        if place.is_file:
            return True
        parts = found.split("/")
        if any(part.startswith(".") for part in parts[:-1]) or (parts[-1].startswith(".") and not hidden):
            return False
        # The gate asks before such a file is read; a search must not read it unasked.
        if not asked_for_secrets and secret_name(place.path_of(found)):
            return False
        if rulings.rules_out(place.path_of(found)):
            return False
        return not fits or any(match(os.fsencode(parts[-1])) for match in fits)

    return wanted


def _from(directory: str, real: str) -> str:
    """What leads from a directory to the searched place below it, with a slash at its end."""
    return (real[len(directory) + 1 :] if directory else real) + "/"
