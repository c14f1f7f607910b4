"""What the owner of this machine has ruled out, asked about paths of the workspace as a walk meets them.

A rule comes as a function from a path relative to the workspace to whether it is forbidden; a directory that is
forbidden takes everything below it along. Nothing here reads the rules or decides what they should be.

Denied patterns, stepped through one name at a time, so that a walk costs the same however many there are.

A pattern means here what it means to the gate (`gate.globs`, as what tightens is read: case and look-alikes do not
matter, a directory takes all in it along). Time and memory stay bounded whatever the patterns and names hold: no
regular expression is made of them. Nothing here looks at a disk.
"""

import re
from collections.abc import Callable, Collection, Sequence

from byleave.gate.names import BELOW, DEEP, names_of, part_fits, plain_parts
from byleave.gate.text.characters import plain_form
from byleave.protocol.errors import PathValidationError

Forbidden = Callable[[str], bool]


class Rulings:
    """One walk's questions; what is known of a directory is remembered as long as the walk."""

    def __init__(self, forbidden: Forbidden | None, left_out: Collection[str] = ()) -> None:
        self._forbidden = forbidden
        self._left_out = frozenset(left_out)
        self._directories: dict[str, bool] = {}

    def __bool__(self) -> bool:
        """True if anything could be ruled out at all."""
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
        """Raise for a call that asks for a place that is ruled out."""
        if self.rules_out(real):
            raise PathValidationError(
                f"The owner of this machine has ruled out {asked!r}.", hint="Work without it; no approval opens it."
            )

    def _names(self, path: str) -> bool:
        return path in self._left_out or (self._forbidden is not None and self._forbidden(path))


_MOST_REMEMBERED = 20_000
_MOST_PLACES = 2_000
# A name that is spelled in one way only.
_PLAIN_NAME = re.compile(r"[a-z0-9_.-]*[a-z0-9_-]").fullmatch

Live = frozenset[tuple[int, int]]
"""Which patterns may still fit, and how many of their parts did."""
_NOTHING: Live = frozenset()


def _spellings(name: str) -> tuple[str, ...]:
    """A name as it stands but for its case, and as a careless file system would compare it."""
    plain = plain_form(name)
    if _PLAIN_NAME(plain):
        return (plain,)
    careless = names_of(name)
    return (plain, careless[0]) if len(careless) == 1 else (plain,)


class _Wildcards:
    """Parts with wildcards: most names fit none of them, which their literal ends tell at once."""

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
        """What follows the parts that fit a name."""
        tried = [self._others] if self._others else []
        if name.endswith(self._ends):
            tried.append(self._by_end)
        if name.startswith(self._starts):
            tried.append(self._by_start)
        return {
            then for parts in tried for part, all_then in parts.items() if part_fits(part, name) for then in all_then
        }


class Spot:
    """What the patterns say of one place: forbidden, out of their reach, or still to be looked into."""

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
        """The place below for every name that fits nothing."""
        for number, at in live:
            part = patterns.parts[number][at]
            if part == DEEP:
                self._always.add((number, at))
            elif "*" in part or "?" in part:
                self._wild.add(part, (number, at + 1))
            else:
                self._exact.setdefault(part, set()).add((number, at + 1))

    def below(self, name: str) -> "Spot":
        """The place one name further down."""
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
    """Patterns of paths, stepped through one name at a time: a walk costs the same however many there are."""

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
        """`**` may stand for no name at all."""
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
        """True if a pattern fits here, or is about all that lies in this very directory."""
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
