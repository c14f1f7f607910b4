"""Checks of paths against denied patterns, for walks through the workspace.

`Rulings` asks a function whether a relative path is forbidden; a forbidden directory includes everything below it.
`Denials` matches patterns one name at a time, so that a walk costs the same however many there are. A pattern means the
same as in the gate (`gate.paths`, read as for a rule that tightens: case and look-alikes do not matter, a directory
includes its content). Time and memory stay bounded whatever the patterns and names are: no regular expression is built
from them. Nothing here reads the rules, decides what they should be, or touches the disk.
"""

import re
from collections.abc import Callable, Collection, Sequence

from byleave.gate.paths import BELOW, DEEP, names_of, part_fits, plain_form, plain_parts
from byleave.protocol.errors import PathValidationError

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
