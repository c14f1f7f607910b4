"""Whether a server can do its work: fixed sentences for anybody, also when a real PostgreSQL is gone or read-only."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from byleave.server import readiness
from byleave.server.errors import Unavailable
from byleave.server.readiness import SILENT, Readiness
from byleave.settings import ServerSettings
from byleave.store import DamagedError, StorageError
from harness import postgres
from harness.http_server import SECRET, Answer, Server, running_server

PLACE = "db-7.internal.example"


def _failing(error: Exception) -> Readiness:
    async def fail() -> None:
        raise error

    return Readiness(fail)


def _sqlite(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"in {PLACE}")
    error.sqlite_errorname = name
    return error


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (_sqlite("SQLITE_FULL"), "The disk of the record is full."),
        (_sqlite("SQLITE_READONLY_DBMOVED"), "The record can only be read."),
        (_sqlite("SQLITE_BUSY"), "The record cannot be read or written."),
        (DamagedError(f"in {PLACE}"), "The record is damaged, or its disk fails."),
        (StorageError(f"in {PLACE}"), "The record cannot be read or written."),
        (
            _caused(StorageError(PLACE), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
            "The disk of the record is full.",
        ),
        (RuntimeError(PLACE), "The record cannot be read or written."),
    ],
)
async def test_failures_are_told_in_fixed_sentences_and_logged_whole(error: Exception, sentence: str) -> None:
    with capture_logs() as logs, pytest.raises(Unavailable) as told:
        await _failing(error).check()
    assert told.value.message == sentence
    assert PLACE not in f"{told.value.message} {told.value.hint}"
    assert PLACE in logs[0]["error"]


async def test_checks_that_overlap_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ANSWER_SECONDS", 0.05)
    begun: list[asyncio.Event] = []

    async def hang() -> None:
        begun.append(asyncio.Event())
        await begun[-1].wait()

    checking = Readiness(hang)
    answers = await asyncio.gather(*(checking.check() for _ in range(20)), return_exceptions=True)
    assert {answer.message for answer in answers if isinstance(answer, Unavailable)} == {SILENT}
    with pytest.raises(Unavailable, match="does not answer"):
        await checking.check()
    assert len(begun) == 1, "a database that hangs is not asked again and again"
    begun[0].set()
    await checking.close()


@pytest.fixture
async def on_postgres(tmp_path: Path) -> AsyncIterator[tuple[Server, postgres.PostgresServer]]:
    """A server with a PostgreSQL of its own, to be ended."""
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as database, database.database() as url:
        settings = ServerSettings(home=tmp_path / "home", secret=SecretStr(SECRET), database_url=url)
        async with running_server(settings) as server:
            yield server, database


async def test_server_knows_that_its_postgresql_is_gone_or_read_only(
    on_postgres: tuple[Server, postgres.PostgresServer],
) -> None:
    server, database = on_postgres
    visitor = server.bearer("")

    async def ready() -> Answer:
        return await visitor.get("/readyz", headers={"Authorization": ""})

    assert (await ready()).status == 200
    await asyncio.to_thread(database.do, "ALTER SYSTEM SET default_transaction_read_only = on")
    await asyncio.to_thread(database.control, "reload")
    async with asyncio.timeout(20):
        while (answer := await ready()).status == 200:
            await asyncio.sleep(0.02)
    assert answer.json["detail"] == "The record can only be read."
    await asyncio.to_thread(
        database.run,
        postgres.program("psql") or "",
        "-h",
        str(database.directory),
        "-U",
        "byleave",
        "-c",
        "SET default_transaction_read_only = off",
        "-c",
        "ALTER SYSTEM RESET default_transaction_read_only",
        "postgres",
    )
    await asyncio.to_thread(database.control, "reload")
    async with asyncio.timeout(20):
        while (await ready()).status != 200:
            await asyncio.sleep(0.02)
    await asyncio.to_thread(database.control, "-m", "immediate", "stop")
    gone = await ready()
    assert (gone.status, gone.json["detail"] in (SILENT, "The record cannot be read or written.")) == (503, True)
    assert str(database.directory) not in gone.text
    assert (await visitor.get("/healthz", headers={"Authorization": ""})).status == 200
    await asyncio.to_thread(database.control, "-o", f"-k '{database.directory}' -c listen_addresses=''", "start")
    async with asyncio.timeout(30):
        while (await ready()).status != 200:
            await asyncio.sleep(0.05)
