"""Store: opens the record; one object with a part for each table."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from byleave.installation import install_command
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import now
from byleave.settings import ServerSettings

from .approvals import Approvals
from .audit import Audit
from .chat import Chat
from .conversations import Conversations
from .database import Database, OnCommit, Transaction
from .executions import Executions
from .grants import Grants
from .ledger import Feed, adopt, reseal, seal_together, sealed_value, write_batch
from .machines import Machines
from .migrations import COVERED_SINCE, bring_up_to_date, check_up_to_date, stored_revision
from .notices import Notices
from .retention import Retention
from .runs import Runs
from .servers import Servers, refuse_another_secret
from .sign_ins import SignIns
from .sqlite import SqliteDatabase, begun, told_in_words
from .transitions import Waits
from .undos import Undos

if TYPE_CHECKING:
    from .postgres import PostgresDatabase
    from .postgres.notices import PostgresWakeUps

log = structlog.stdlib.get_logger(__name__)

POSTGRES_PREFIXES = ("postgresql://", "postgres://")
SQLITE_PREFIX = "sqlite:///"
SQLITE_HEADER = b"SQLite format 3\x00"


class Store:
    """The open record."""

    def __init__(self, database: Database, settings: ServerSettings) -> None:
        self.database = database
        self._url = settings.database
        self.waits = Waits(settings.client_wait_seconds, settings.result_grace_seconds, settings.queue_wait_seconds)
        self.executions = Executions(database, self.waits)
        self.approvals = Approvals(database)
        self.grants = Grants(database)
        self.machines = Machines(database)
        self.chat = Chat(database)
        self.conversations = Conversations(database)
        self.runs = Runs(database, self.waits, lease_seconds=settings.lease_seconds)
        self.feed = Feed(database)
        self.audit = Audit(database)
        self.undos = Undos(database)
        self.retention = Retention(database)
        self.sign_ins = SignIns(database)
        self.notices = Notices(database)
        self.servers = Servers(database)

    @classmethod
    async def open(
        cls,
        settings: ServerSettings,
        *,
        seal_keys: tuple[bytes, ...],
        on_commit: OnCommit = lambda topic, fact: None,
        clock: Callable[[], str] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> "Store":
        """Open the database that the settings name, and migrate it first.

        `seal_keys`: the key that seals the audit chains' heads, and earlier ones that are still accepted. `clock` takes
        the place of the database's, for tests. `tell` sends a committed topic to other servers of the record.
        """
        if settings.database.startswith(POSTGRES_PREFIXES):
            database = await _open_postgres(settings, seal_keys, on_commit, clock, tell)
        else:
            database = await _open_sqlite(settings, seal_keys, on_commit, clock)
        try:
            with database.told_in_words():
                if len(seal_keys) > 1:
                    await database.write(reseal)
                if await database.read(sealed_value) is None:
                    await refuse_another_secret(database)
                    log.error(
                        "the record was sealed with another secret",
                        path=database.name,
                        hint="Start with the secret it was made with (BYLEAVE_SECRET, or the file `secret` in its "
                        "BYLEAVE_HOME), or name that one in BYLEAVE_PREVIOUS_SECRET: what is written without it "
                        "fails `byleave audit verify`.",
                    )
        except BaseException:
            await database.close()
            raise
        return cls(database, settings)

    @classmethod
    async def inspect(cls, settings: ServerSettings, *, seal_keys: tuple[bytes, ...]) -> "Store":
        """Open for reading only, also while a server has it open."""
        if settings.database.startswith(POSTGRES_PREFIXES):
            database = postgres()(settings.database, seal_keys=seal_keys)
            await database.open_to_read()
            return cls(database, settings)
        path = sqlite_path(settings.database)
        if not path.is_file():
            raise ConfigurationError(
                f"There is no database at {str(path)!r}.",
                hint="Point BYLEAVE_HOME or BYLEAVE_DATABASE_URL at the server's, or start a server first.",
            )
        with told_in_words(path):
            check_up_to_date(str(path), stored_revision(path))
            database = SqliteDatabase(path, read_only=True, seal_keys=seal_keys)
        return cls(database, settings)

    @classmethod
    async def revision(cls, settings: ServerSettings) -> str | None:
        """The revision of a record that any version wrote; None if there is none. Refuses one this cannot read."""
        if settings.database.startswith(POSTGRES_PREFIXES):
            return await asyncio.to_thread(postgres().revision, settings.database)
        path = sqlite_path(settings.database)
        with told_in_words(path):
            return stored_revision(path) if path.is_file() else None

    def wake_ups(self, url: str | None) -> "PostgresWakeUps | None":
        """Wake-ups of other servers through the database, or a direct connection to it; None if there are no others."""
        if self.servers.own_id is None:
            return None
        from .postgres.notices import PostgresWakeUps

        return PostgresWakeUps(url or self._url, self.servers.own_id)

    async def is_own(self) -> bool:
        """True if the record was sealed with this secret: anything written with another one breaks its chain."""
        return await self.database.read(sealed_value) is not None

    async def check_writable(self) -> None:
        """Raise any error that keeps the record from being written."""
        await self.database.check_writable()

    async def close(self) -> None:
        await self.database.close()


def _take_in(transaction: Transaction, revision: str | None) -> None:
    """Seal a record that is new, or was at an older revision."""
    is_covered = revision is not None and revision >= COVERED_SINCE
    (seal_together if is_covered else adopt)(transaction)


def sqlite_path(url: str) -> Path:
    """The file of an SQLite URL."""
    if not url.startswith(SQLITE_PREFIX) or len(url) == len(SQLITE_PREFIX):
        raise ConfigurationError(
            f"Byleave cannot keep its record in {url.split('://')[0]!r}.",
            hint="Set BYLEAVE_DATABASE_URL to sqlite:////path/to/byleave.db or postgresql://user@host/database, "
            "or leave it out.",
        )
    return Path(url.removeprefix(SQLITE_PREFIX))


async def _open_sqlite(
    settings: ServerSettings, seal_keys: tuple[bytes, ...], on_commit: OnCommit, clock: Callable[[], str] | None
) -> Database:
    path, moment = sqlite_path(settings.database), clock or now

    def take_in(connection: sqlite3.Connection, revision: str | None) -> None:
        connection.row_factory = sqlite3.Row
        _take_in(begun(connection, moment, seal_keys), revision)

    make_file(path)
    with told_in_words(path):
        return SqliteDatabase(
            path,
            durability=settings.durability,
            on_commit=on_commit,
            before_commit=write_batch,
            clock=moment,
            prepare=lambda: bring_up_to_date(path, take_in),
            seal_keys=seal_keys,
        )


async def _open_postgres(
    settings: ServerSettings,
    seal_keys: tuple[bytes, ...],
    on_commit: OnCommit,
    clock: Callable[[], str] | None,
    tell: Callable[[str], None] | None,
) -> Database:
    database = postgres()(
        settings.database,
        durability=settings.durability,
        on_commit=on_commit,
        before_commit=write_batch,
        clock=clock,
        seal_keys=seal_keys,
        tell=tell,
    )
    await database.open(_take_in)
    return database


def postgres() -> "type[PostgresDatabase]":
    """The other dialect, whose library is an extra."""
    try:
        from .postgres import PostgresDatabase
    except ImportError as error:
        raise ConfigurationError(
            f"A record in PostgreSQL needs psycopg, which cannot be loaded: {error}.",
            hint=install_command("postgres"),
        ) from None
    return PostgresDatabase


def make_file(path: Path) -> None:
    """Create the record for its owner alone: directory 0700, file 0600 (SQLite gives its WAL files the same mode).

    An existing file that is no database is not ours, and is left unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.read(descriptor, len(SQLITE_HEADER)) not in (b"", SQLITE_HEADER):
                raise ConfigurationError(
                    f"The file {str(path)!r} is not a database.",
                    hint="Point BYLEAVE_DATABASE_URL at a new file, or leave it out.",
                )
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot open the database {str(path)!r}: {error.strerror}.",
            hint="Choose a directory you may write with BYLEAVE_HOME.",
        ) from None
