"""What the owner of this machine has ruled out, asked about paths of the workspace as a walk meets them.

A rule comes as a function from a path relative to the workspace to whether it is forbidden; a directory that is
forbidden takes everything below it along. Nothing here reads the rules or decides what they should be.
"""

from collections.abc import Callable, Collection

from byleave.protocol.errors import PathValidationError

Forbidden = Callable[[str], bool]


class Rulings:
    """One walk's questions; what is known of a directory is remembered as long as the walk."""

    def __init__(self, forbidden: Forbidden | None, left_out: Collection[str] = ()) -> None:
        self._forbidden = forbidden
        self._left_out = frozenset(left_out)
        self._directories: dict[str, bool] = {}

    def __bool__(self) -> bool:
        """Whether anything could be ruled out at all."""
        return self._forbidden is not None or bool(self._left_out)

    def rules_out(self, path: str) -> bool:
        """Whether a path, or a directory above it, is ruled out."""
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
