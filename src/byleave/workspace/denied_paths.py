"""Paths that the owner's rules deny, kept out of every tool's reach.

The gate judges the words of a call. `DeniedPaths` keeps the same denials true afterwards: listings and searches leave
denied paths out, a file tool closes a file whose real path is denied, and `masked` lists the paths that the sandbox
must cover so that no command can open them. Only rules that deny nothing but paths count (no command, no options); one
that names a tool binds that tool. If the workspace is too large to search, nothing runs. Nothing here adds to the rules
or follows a link out of the workspace.

`Denials` matches patterns one name at a time, so that a walk costs the same however many there are. A pattern means the
same as in the gate (`gate.names`, read as for a rule that tightens: case and look-alikes do not matter, a directory
includes its content). Time and memory stay bounded whatever the patterns and names are: no regular expression is built
from them. `Rulings` asks a function whether a path is forbidden, and remembers the answer for each directory.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from byleave.gate import Policy, Rule
from byleave.gate.paths import BELOW, DEEP, names_of, part_fits, plain_form, plain_parts
from byleave.protocol.errors import PathValidationError, RefusedError
from byleave.protocol.tools import TOOLS

from .paths import PathValidator, visible

COMMANDS = "execute_command"
MAX_ENTRIES = 200_000
MAX_SECONDS = 3.0
MAX_DEPTH = 128
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
Forbidden = Callable[[str], bool]


class Rulings:
    """Checks paths during one walk, and caches the answer for each directory."""

    def __init__(self, forbidden: Forbidden | None, left_out: Collection[str] = ()) -> None:
        self._forbidden = forbidden
        self._left_out = frozenset(left_out)
        self._directories: dict[str, bool] = {}

    def __bool__(self) -> bool:
        """True if there is anything to rule out."""
        return self._forbidden is not None or bool(self._left_out)

    def rules_out(self, path: str) -> bool:
        """True if a path, or a directory above it, is ruled out."""
        if not self or path == ".":
            return False
        end = path.find("/")
        while end >= 0:
            directory = path[:end]
            if directory not in self._directories:
                self._directories[directory] = self._names(directory)
            if self._directories[directory]:
                return True
            end = path.find("/", end + 1)
        return self._names(path)

    def refuse(self, asked: str, real: str) -> None:
        """Raise if the call's real path is ruled out."""
        if self.rules_out(real):
            raise PathValidationError(
                f"The owner of this machine has ruled out {asked!r}.", hint="Work without it; no approval opens it."
            )

    def _names(self, path: str) -> bool:
        return path in self._left_out or (self._forbidden is not None and self._forbidden(path))


_MOST_REMEMBERED = 20_000
_MOST_PLACES = 2_000
# A name with a single spelling.
_PLAIN_NAME = re.compile(r"[a-z0-9_.-]*[a-z0-9_-]").fullmatch
Live = frozenset[tuple[int, int]]
"""Patterns that may still match: the pattern's number, and how many of its parts have matched."""
_NOTHING: Live = frozenset()


def _spellings(name: str) -> tuple[str, ...]:
    """The name in lower case, and as a lenient file system would compare it."""
    plain = plain_form(name)
    if _PLAIN_NAME(plain):
        return (plain,)
    careless = names_of(name)
    return (plain, careless[0]) if len(careless) == 1 else (plain,)


class _Wildcards:
    """Pattern parts with wildcards. Their literal starts and ends quickly rule out most names."""

    def __init__(self) -> None:
        self._by_end: dict[str, set[tuple[int, int]]] = {}
        self._by_start: dict[str, set[tuple[int, int]]] = {}
        self._others: dict[str, set[tuple[int, int]]] = {}
        self._ends: tuple[str, ...] = ()
        self._starts: tuple[str, ...] = ()

    def add(self, part: str, then: tuple[int, int]) -> None:
        start, _, _ = part.partition("*")
        _, _, end = part.rpartition("*")
        if "?" in part or not (start or end):
            self._others.setdefault(part, set()).add(then)
        elif end:
            self._by_end.setdefault(part, set()).add(then)
            self._ends = (*self._ends, end)
        else:
            self._by_start.setdefault(part, set()).add(then)
            self._starts = (*self._starts, start)

    def fitting(self, name: str) -> set[tuple[int, int]]:
        """The next positions, after the parts that match a name."""
        tried = [self._others] if self._others else []
        if name.endswith(self._ends):
            tried.append(self._by_end)
        if name.startswith(self._starts):
            tried.append(self._by_start)
        return {
            then for parts in tried for part, all_then in parts.items() if part_fits(part, name) for then in all_then
        }


class Spot:
    """The state of the patterns at one path: forbidden, free, or undecided."""

    __slots__ = ("_always", "_exact", "_otherwise", "_patterns", "_remembered", "_wild", "forbidden", "free", "live")

    def __init__(self, patterns: "Denials", live: Live, *, forbidden: bool) -> None:
        self.forbidden = forbidden
        self.free = not live
        """True if nothing below can be forbidden."""
        self.live = live
        self._patterns = patterns
        self._remembered: dict[str, Spot] = {}
        self._always: set[tuple[int, int]] = set()
        self._exact: dict[str, set[tuple[int, int]]] = {}
        self._wild = _Wildcards()
        self._otherwise: Spot | None = None
        """The state below for every name that matches nothing."""
        for number, at in live:
            part = patterns.parts[number][at]
            if part == DEEP:
                self._always.add((number, at))
            elif "*" in part or "?" in part:
                self._wild.add(part, (number, at + 1))
            else:
                self._exact.setdefault(part, set()).add((number, at + 1))

    def below(self, name: str) -> "Spot":
        """The state one name further down."""
        known = self._remembered.get(name)
        if known is None:
            known = self if self.forbidden else self._after(name)
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[name] = known
        return known

    def _after(self, name: str) -> "Spot":
        fitting: set[tuple[int, int]] = set()
        for spelled in _spellings(name):
            fitting |= self._exact.get(spelled, _NOTHING)
            fitting |= self._wild.fitting(spelled)
        if fitting:
            return self._patterns.at(self._always | fitting)
        if self._otherwise is None:
            self._otherwise = self._patterns.at(self._always)
        return self._otherwise


class Denials:
    """Path patterns, matched one name at a time."""

    def __init__(self, globs: Sequence[str]) -> None:
        self.globs = tuple(dict.fromkeys(globs))
        self.parts = [plain_parts(glob) for glob in self.globs]
        self._known: dict[Live, Spot] = {}
        self.top = self.at({(number, 0) for number in range(len(self.parts))})

    def at(self, reached: set[tuple[int, int]]) -> Spot:
        live = frozenset(self._with_empty(reached))
        known = self._known.get(live)
        if known is None:
            forbidden = any(self._is_whole(number, at) for number, at in live)
            known = Spot(self, frozenset() if forbidden else live, forbidden=forbidden)
            if len(self._known) >= _MOST_PLACES:
                self._known.clear()
            self._known[live] = known
        return known

    def _with_empty(self, reached: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Add the positions after each `**`, which may match no name."""
        found, waiting = set(reached), list(reached)
        while waiting:
            number, at = waiting.pop()
            parts = self.parts[number]
            following = (number, at + 1)
            if at < len(parts) and parts[at] == DEEP and following not in found:
                found.add(following)
                waiting.append(following)
        return found

    def _is_whole(self, number: int, at: int) -> bool:
        """True if a pattern matches here, or matches everything in this directory."""
        parts = self.parts[number]
        return at == len(parts) or (0 < at == len(parts) - 2 and parts[at:] == BELOW)

    def forbid(self, relative: str) -> bool:
        here = self.top
        for name in relative.split("/"):
            if here.forbidden or here.free:
                break
            if name not in ("", "."):
                here = here.below(name)
        return here.forbidden


class DeniedPaths:
    """The paths that a policy denies to each tool, however a call spells them."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        tools = TOOLS if policy.has_rules else ()
        self._patterns = {tool: found for tool in tools if (found := _denials(policy, tool))}
        self.guards = {tool: patterns.forbid for tool, patterns in self._patterns.items()}
        """A check like `forbids` for each tool that has denied paths."""

    def forbids(self, relative: str, tool: str) -> bool:
        """True if a workspace-relative path, or a directory above it, is denied to a tool."""
        return tool in self.guards and self.guards[tool](relative)

    def refuse(self, relative: str, tool: str) -> None:
        """Raise for a denied path, with the rule's reason."""
        if self.forbids(relative, tool):
            rule = self._rule(relative, tool)
            because = f" {rule.because}" if rule.because else ""
            raise PathValidationError(
                f"{visible(relative)!r} is denied by rule {rule.name}.{because}", hint=rule.instead
            )

    def masked(
        self, paths: PathValidator, *, max_entries: int = MAX_ENTRIES, seconds: float = MAX_SECONDS
    ) -> list[str]:
        """Existing paths denied to commands, relative to the workspace. A directory stands for everything in it."""
        patterns = self._patterns.get(COMMANDS)
        if patterns is None:
            return []
        if patterns.top.forbidden:
            rule = self._rule(".", COMMANDS)
            raise RefusedError(
                f"Rule {rule.name} ({rule.text}) denies the whole workspace, so no command can run in it.",
                hint="deny the directories it is about",
            )
        try:
            return _Walk(paths, patterns, max_entries, seconds).run()
        except _TooMuch as error:
            raise self._too_much(error.live, patterns) from None

    def _rule(self, relative: str, tool: str) -> Rule:
        rules = self._policy.path_denials(tool)
        return next((rule for rule in rules if Denials(rule.pattern.paths).forbid(relative)), rules[0])

    def _too_much(self, live: Live, patterns: Denials) -> RefusedError:
        deep = [number for number, at in live if patterns.parts[number][at] == DEEP]
        wide = patterns.globs[min(deep or [number for number, _ in live])]
        rule = next(rule for rule in self._policy.path_denials(COMMANDS) if wide in rule.pattern.paths)
        narrower = f"config/{wide.removeprefix('**/').lstrip('/')}"
        return RefusedError(
            f"Rule {rule.name} denies {wide!r}, and there is too much here to look through for it before a command; "
            "nothing was run.",
            hint=f"write it narrower, such as {narrower!r}, or deny one directory: 'secrets/**'",
        )


def _denials(policy: Policy, tool: str) -> Denials | None:
    globs = [glob for rule in policy.path_denials(tool) for glob in rule.pattern.paths]
    return Denials(globs) if globs else None


class _TooMuch(Exception):
    """The walk met its limit of entries, depth or time."""

    def __init__(self, live: Live) -> None:
        self.live = live


class _Walk:
    """One search of the workspace for denied paths."""

    def __init__(self, paths: PathValidator, patterns: Denials, max_entries: int, seconds: float) -> None:
        self._paths = paths
        self._patterns = patterns
        self._left = max_entries
        self._deadline = time.monotonic() + seconds
        self._found: set[str] = set()
        self._behind_links: set[tuple[str, Live]] = set()

    def run(self) -> list[str]:
        top = self._patterns.top
        self._enter(self._paths.open_exact(".", _READ_DIRECTORY), "", top, 0)
        kept: list[str] = []
        for path in sorted(self._found, key=lambda path: path.split("/")):
            if not kept or not path.startswith(f"{kept[-1]}/"):
                kept.append(path)
        return kept

    def _enter(self, fd: int, prefix: str, here: Spot, depth: int) -> None:
        inside: list[tuple[str, Spot]] = []
        try:
            if depth > MAX_DEPTH or time.monotonic() > self._deadline:
                raise _TooMuch(here.live)
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._count(here)
                    there = here.below(entry.name)
                    if there.free and not there.forbidden:
                        continue
                    if entry.is_symlink():
                        self._follow(prefix + entry.name, there, depth)
                    elif there.forbidden:
                        self._found.add(prefix + entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        inside.append((entry.name, there))
            for name, there in inside:
                self._descend(fd, name, prefix, there, depth)
        finally:
            os.close(fd)

    def _count(self, here: Spot) -> None:
        self._left -= 1
        if self._left < 0 or (self._left % 1024 == 0 and time.monotonic() > self._deadline):
            raise _TooMuch(here.live)

    def _descend(self, fd: int, name: str, prefix: str, there: Spot, depth: int) -> None:
        try:
            child = self._paths.open_child(fd, name, _READ_DIRECTORY)
        except FileNotFoundError:
            return
        except OSError:
            # Not readable, or another mount: it cannot be searched, so all of it is covered.
            self._found.add(prefix + name)
            return
        self._enter(child, f"{prefix}{name}/", there, depth + 1)

    def _follow(self, relative: str, there: Spot, depth: int) -> None:
        """Cover a link's target. A target outside the workspace does not exist in the sandbox."""
        root = str(self._paths.root)
        # Absolute links too: the file tools do not follow them, but programs do.
        behind = os.path.realpath(f"{root}/{relative}")
        if not f"{behind}/".startswith(f"{root}/"):
            return
        real = os.path.relpath(behind, root)
        try:
            is_directory = stat.S_ISDIR(os.lstat(behind).st_mode)
        except OSError:
            return  # nothing is there
        if there.forbidden:
            if real == ".":
                raise RefusedError(
                    f"{visible(relative)!r} is denied and links to the whole workspace, so no command can run in it.",
                    hint="remove the link",
                )
            self._found.add(real)
        elif is_directory and (real, there.live) not in self._behind_links:
            self._behind_links.add((real, there.live))
            try:
                child = self._paths.open_exact(real, _READ_DIRECTORY)
            except OSError:
                self._found.add(real)
                return
            self._enter(child, "" if real == "." else f"{real}/", there, depth + 1)


class GuardedPaths(PathValidator):
    """A PathValidator that refuses forbidden real paths, checked on the open descriptor."""

    def __init__(self, base: PathValidator, forbidden: Callable[[str], bool]) -> None:
        self.__dict__.update(base.__dict__)
        self._root_fd = os.dup(base._root_fd)
        self.forbidden = self._forbidden = forbidden

    def open_raw(self, relative: str, flags: int, mode: int = 0) -> int:
        return self._allowed(super().open_raw(relative, flags, mode))

    def open_cached(self, relative: str, flags: int) -> int | None:
        fd = super().open_cached(relative, flags)
        try:
            return None if fd is None else self._allowed(fd)
        except OSError:
            return None  # `open_raw` raises the error

    def open_child(self, dir_fd: int, name: str, flags: int) -> int:
        return self._allowed(super().open_child(dir_fd, name, flags))

    def open_exact(self, relative: str, flags: int) -> int:
        return self._allowed(super().open_exact(relative, flags))

    def _allowed(self, fd: int) -> int:
        try:
            allowed = not self._forbidden(self.real_path(fd))
        except OSError:
            os.close(fd)
            raise
        if not allowed:
            os.close(fd)
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return fd


def make_own(root: Path, directories: Sequence[Path]) -> None:
    """Create Byleave's own directories that lie in the workspace: a missing one cannot be covered."""
    for path in (Path(spell(directory)) for directory in directories for spell in (os.path.abspath, os.path.realpath)):
        if path != root and path.is_relative_to(root):
            with suppress(PermissionError):  # then a command cannot create it either
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
