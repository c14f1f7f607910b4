"""The interface between the store and its database, units of work that wait for their commit, and the hints after it.

A unit of work is a plain function of a `Transaction`; the dialect decides on which thread and connection it runs.
SQL is written once, with `:name` parameters and in the part of the language both dialects share; the few
differences are methods here. Work must not touch the event loop, and must not keep the transaction.
"""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from byleave.protocol.errors import ConfigurationError

Result = TypeVar("Result")
Row = Mapping[str, Any]


class InUseError(ConfigurationError):
    """Another process has the record open for writing."""


class StorageError(OSError):
    """The disk or a database server failed. Nothing of the unit was kept, unless it is an `UnknownEndError`."""

    hint = "Nothing of this request was kept: send it again in a moment."

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint or self.hint


class UnknownEndError(StorageError):
    """The flush failed, or the database server went away at the commit: the unit may have been kept."""

    hint = "It may have been kept: look before you send it again."


@dataclass(frozen=True)
class Hint:
    """Something became true. Losing a hint costs latency, never correctness."""

    topic: str
    """The id of an execution, a question or a run; or a name, as of a project's feed."""
    fact: object | None = None
    """The committed rows, where the receiver lives in this process."""
    stays: bool = False
    """True if other servers need not know."""


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
    """Count and digest of all projects' heads as this process saw them last; empty before its first commit."""


class Space(NamedTuple):
    """Room that the record takes on the disk."""

    used: int
    """Bytes that hold something."""
    free: int
    """Bytes that will be used again."""
    shrinks: bool
    """True if free space can be given back in steps, or is the database server's to see to."""


class Lookup(NamedTuple):
    """A statement that reads the row of a table with this key, and maybe others that no unit changes by their keys."""

    table: str
    key: str
    sql: str
    parameters: Mapping[str, Any]


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Row | None: ...

    def fetchall(self) -> Sequence[Row]: ...


class Execute(Protocol):
    """Executes one statement."""

    def __call__(self, sql: str, parameters: Mapping[str, Any] = ..., /) -> Cursor: ...


class Change(Protocol):
    """Executes a statement that must change one row; else the transaction fails, at its commit at the latest."""

    def __call__(self, sql: str, parameters: Mapping[str, Any], /) -> None: ...


class ExecuteMany(Protocol):
    """Executes one statement for each set of parameters."""

    def __call__(self, sql: str, parameters: Iterable[Mapping[str, Any]], /) -> object: ...


@dataclass(slots=True)
class Transaction:
    """One open transaction."""

    execute: Execute
    executemany: ExecuteMany
    change: Change
    now: str
    """The database's clock at the start of this transaction."""
    seal_keys: tuple[bytes, ...] = ()
    """Keys of the audit chains' seals: the first one seals, the others are earlier keys that are still accepted."""
    batch: Batch = field(default_factory=Batch)
    """Additions of this commit's ledgers so far."""
    hints: list[Hint] = field(default_factory=list[Hint])
    """Sent once this has committed, and not otherwise."""
    storable: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Makes the values such as the database can store; None if it can store all."""


class Database(Protocol):
    """Runs transactions."""

    @property
    def name(self) -> str:
        """Address of the record, without any password."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Errors of its statements."""
        ...

    @property
    def server_id(self) -> str | None:
        """Name of this server among those that share the record; None if it has the record for itself."""
        ...

    def write(
        self,
        work: Callable[[Transaction], Result],
        *,
        relaxed: bool = False,
        heavy: bool = False,
        ahead: Callable[[], Sequence[Lookup]] | None = None,
    ) -> Awaitable[Result]:
        """Run one unit in a transaction. Units are run in the order of these calls, whenever they are awaited.

        `relaxed`: returns once committed, before it is on disk: for data that a power cut may take without harm.
        `heavy`: carries as much data as a file.
        `ahead`: makes the lookups that the unit will make, which a database server can answer for all units at once.
        """
        ...

    async def read(self, work: Callable[[Transaction], Result]) -> Result: ...

    def shortened(self, column: str, without: Sequence[str]) -> str:
        """SQL for the JSON object in a column without these keys, marked as `shortened`."""
        ...

    def told_in_words(self) -> AbstractContextManager[None]:
        """Turns an error about the whole record into a ConfigurationError with a hint."""
        ...

    async def check(self) -> str | None:
        """A fault of the tables, as a sentence: rows are read through indexes, which must show all there is."""
        ...

    async def check_writable(self) -> None:
        """Raise any error that keeps the record from being written."""
        ...

    async def space(self, above: int = 0) -> Space:
        """The room in use. Where that takes long to find out, only files of more than `above` bytes are looked into."""
        ...

    async def give_back(self, keep_bytes: int) -> int:
        """Give some free pages back to the disk; returns the pages that can still be given back."""
        ...

    async def rewrite(self) -> None:
        """Write the whole file anew, without its free pages. Needs as much free disk again."""
        ...

    async def close(self) -> None: ...


MAX_BATCH = 64
"""Most units in one transaction: limits how long the first of them waits for the others."""
OnCommit = Callable[[str, object | None], None]


@dataclass(slots=True)
class Unit:
    """One unit of work and its result."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    relaxed: bool
    heavy: bool
    ahead: Callable[[], Sequence[Lookup]] | None = None
    result: Any = None
    error: BaseException | None = None
    hints: list[Hint] = field(default_factory=list[Hint])

    def answer(self, loop: asyncio.AbstractEventLoop, on_commit: OnCommit) -> None:
        """Send the hints, then tell the caller."""
        for hint in self.hints:
            try:
                on_commit(hint.topic, hint.fact)
            except Exception as error:  # noqa: BLE001 - a listener's error must not keep a caller waiting
                loop.call_exception_handler({"message": f"a listener to {hint.topic} failed", "exception": error})
        if self.future.done():  # the caller was cancelled, but the work is committed
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Worker:
    """A thread that runs jobs in order."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self.waiting = 0
        """Jobs that have not ended."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        future: asyncio.Future[Result] = self._loop.create_future()
        self.waiting += 1
        future.add_done_callback(self._done)
        self._jobs.put((job, future))
        return future

    async def close(self) -> None:
        """Finish all jobs, then end the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _done(self, future: "asyncio.Future[Any]") -> None:
        self.waiting -= 1

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            self._do(*item)
            del item  # it may hold a file, and the next job may come in hours

    def _do(self, job: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - carried to the caller, whatever it is
            self._loop.call_soon_threadsafe(_fail, future, error)
        else:
            self._loop.call_soon_threadsafe(_finish, future, result)


def _finish(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def closed() -> ConfigurationError:
    return ConfigurationError("The database is closed.", hint="The server is shutting down; try again later.")
