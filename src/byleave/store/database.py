"""The interface between the store and its database, and the hints sent after a commit.

A unit of work is a plain function of a `Transaction`; the dialect decides on which thread and connection it runs.
SQL is written once, with `:name` parameters and in the part of the language both dialects share; the few
differences are methods here. Work must not touch the event loop, and must not keep the transaction.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Hint:
    """Something became true. Losing a hint costs latency, never correctness."""

    topic: str
    """The id of an execution, a question or a run; or a name, as of a project's feed."""
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


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Row | None: ...

    def fetchall(self) -> Sequence[Row]: ...


class Execute(Protocol):
    """Executes one statement."""

    def __call__(self, sql: str, parameters: Mapping[str, Any] = ..., /) -> Cursor: ...


class ExecuteMany(Protocol):
    """Executes one statement for each set of parameters."""

    def __call__(self, sql: str, parameters: Iterable[Mapping[str, Any]], /) -> object: ...


@dataclass(slots=True)
class Transaction:
    """One open transaction."""

    execute: Execute
    executemany: ExecuteMany
    now: str
    """The database's clock at the start of this transaction."""
    seal_keys: tuple[bytes, ...] = ()
    """Keys of the audit chains' seals: the first one seals, the others are earlier keys that are still accepted."""
    batch: Batch = field(default_factory=Batch)
    """Additions of this commit's ledgers so far."""
    hints: list[Hint] = field(default_factory=list[Hint])
    """Sent once this has committed, and not otherwise."""


class Database(Protocol):
    """Runs transactions."""

    @property
    def damage(self) -> Exception | None:
        """The first error that said the file is damaged."""
        ...

    def write(
        self, work: Callable[[Transaction], Result], *, relaxed: bool = False, heavy: bool = False
    ) -> Awaitable[Result]:
        """Run one unit in a transaction. Units are run in the order of these calls, whenever they are awaited.

        `relaxed`: returns once committed, before it is on disk: for data that a power cut may take without harm.
        `heavy`: carries as much data as a file.
        """
        ...

    async def read(self, work: Callable[[Transaction], Result]) -> Result: ...

    async def rewrite(self) -> None:
        """Write the whole file anew, without its free pages. Needs as much free disk again."""
        ...

    async def close(self) -> None: ...
