"""A real database whose Nth operation fails, for tests that try every N."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from byleave.store.database import Cursor, Lookup, Space, Transaction
from byleave.store.ledger import write_batch
from byleave.store.sqlite import SqliteDatabase


class Trouble:
    """Counts operations and fails one of them."""

    def __init__(self, fail_at: int) -> None:
        self.fail_at = fail_at
        self.count = 0

    def tick(self) -> None:
        self.count += 1
        if self.count == self.fail_at:
            raise sqlite3.OperationalError("disk I/O error")


R = TypeVar("R")


class TroubledDatabase:
    """A real database whose Nth operation fails inside its transaction."""

    def __init__(self, database: SqliteDatabase, trouble: Trouble) -> None:
        self._database = database
        self._trouble = trouble

    @property
    def name(self) -> str:
        return self._database.name

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return self._database.errors

    @property
    def server_id(self) -> str | None:
        return self._database.server_id

    def shortened(self, column: str, without: Sequence[str]) -> str:
        return self._database.shortened(column, without)

    def told_in_words(self) -> AbstractContextManager[None]:
        return self._database.told_in_words()

    async def check(self) -> str | None:
        return await self._database.check()

    async def check_writable(self) -> None:
        await self._database.check_writable()

    async def space(self, above: int = 0) -> Space:
        return await self._database.space(above)

    async def give_back(self, keep_bytes: int) -> int:
        return await self._database.give_back(keep_bytes)

    async def write(
        self,
        work: Callable[[Transaction], R],
        *,
        relaxed: bool = False,
        heavy: bool = False,
        ahead: Callable[[], Sequence[Lookup]] | None = None,
    ) -> R:
        def troubled(transaction: Transaction) -> R:
            mine = self._troubled(transaction)
            result = work(mine)
            write_batch(mine)  # here, so that each of its statements fails once too
            return result

        return await self._database.write(troubled, relaxed=relaxed, heavy=heavy, ahead=ahead)

    async def read(self, work: Callable[[Transaction], R]) -> R:
        return await self._database.read(work)

    async def rewrite(self) -> None:
        await self._database.rewrite()

    async def close(self) -> None:
        await self._database.close()

    def _troubled(self, transaction: Transaction) -> Transaction:
        def execute(sql: str, parameters: Mapping[str, object] = MappingProxyType({}), /) -> Cursor:
            self._trouble.tick()
            return transaction.execute(sql, dict(parameters))

        def executemany(sql: str, parameters: Iterable[Mapping[str, object]], /) -> None:
            self._trouble.tick()
            transaction.executemany(sql, parameters)

        def change(sql: str, parameters: Mapping[str, object], /) -> None:
            self._trouble.tick()
            transaction.change(sql, parameters)

        return replace(transaction, execute=execute, executemany=executemany, change=change)


def damage(path: Path, name: str) -> None:
    """Overwrite the first page of a table or index in a file that nobody has open."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xaa" * size)
