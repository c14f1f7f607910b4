"""The interface between the store and its database, and the hints sent after a commit.

A unit of work is a plain function of a `Transaction`; the dialect decides on which thread and connection it runs.
SQL is written once, with `:name` parameters and in the part of the language both dialects share; the few
differences are methods here. Work must not touch the event loop, and must not keep the transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Hint:
    """Something became true. Losing a hint costs latency, never correctness."""

    topic: str
    fact: object | None = None
    """The committed rows, where the receiver lives in this process."""


class Head(NamedTuple):
    """The newest numbers of a project's feed and audit chain."""

    seq: int
    audit_seq: int
    audit_hash: str


@dataclass(slots=True)
class Batch:
    """Events and audit links that a commit adds, for all its units; written in one statement each before it."""

    events: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    links: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    heads: dict[str, Head] = field(default_factory=dict[str, Head])
    """Heads by project, as they will be once the batch is written."""
    sealed: dict[str, Head] = field(default_factory=dict[str, Head])
    """Projects whose chain grows, and so gets a new seal; each with its head as this commit found it."""
    all_heads: str = ""
    """Digest of all projects' heads as this process wrote it last; empty before its first commit."""


class Transaction(Protocol):
    """One open transaction."""

    @property
    def batch(self) -> Batch:
        """Additions of this commit's ledgers so far."""
        ...

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

        `relaxed`: returns once committed, before it is on disk: for data that a power cut may take without harm.
        `heavy`: carries as much data as a file.
        """
        ...

    async def read(self, work: Callable[[Transaction], Result]) -> Result: ...

    async def rewrite(self) -> None:
        """Write the whole file anew, without its free pages. Needs as much free disk again."""
        ...

    async def close(self) -> None: ...
