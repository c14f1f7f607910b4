"""The interface between the store and its database, and the hints sent after a commit.

A unit of work is a plain function of a `Transaction`; the dialect decides on which thread and connection it runs.
SQL is written once, with `:name` parameters and in the part of the language both dialects share; the few
differences are methods here. Work must not touch the event loop, and must not keep the transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Hint:
    """Something became true. Losing a hint costs latency, never correctness."""

    topic: str
    fact: object | None = None
    """The committed rows, where the receiver lives in this process."""


class Transaction(Protocol):
    """One open transaction."""

    @property
    def now(self) -> str:
        """The database's clock at the start of this transaction."""
        ...

    @property
    def seal_keys(self) -> tuple[bytes, ...]:
        """Keys of the audit chains' seals: the first one seals, the others are earlier keys that are still accepted."""
        ...

    def one(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Row | None: ...

    def all(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[Row]: ...

    def change(self, sql: str, parameters: Mapping[str, Any] | None = None) -> int:
        """Execute and return the number of rows changed."""
        ...

    def change_many(self, sql: str, parameters: Sequence[Mapping[str, Any]]) -> None: ...

    def hint(self, topic: str, fact: object | None = None) -> None:
        """Send a hint once this has committed; none is sent otherwise."""
        ...


class Database(Protocol):
    """Runs transactions."""

    @property
    def damage(self) -> Exception | None:
        """The first error that said the file is damaged."""
        ...

    async def write(
        self, work: Callable[[Transaction], Result], *, relaxed: bool = False, heavy: bool = False
    ) -> Result:
        """Run one unit in a transaction.

        `relaxed`: answered when committed, before it is on the disk: for data that a power cut may take without harm.
        `heavy`: carries as much data as a file.
        """
        ...

    async def read(self, work: Callable[[Transaction], Result]) -> Result: ...

    async def close(self) -> None: ...
