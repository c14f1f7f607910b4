"""Readiness: whether this server can do its work, told in fixed sentences.

Anybody may ask, so a database's own words are logged and never passed on: they name addresses, users and files. A check
that is under way is shared: however many ask, the record is tried once at a time.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator

import structlog

from byleave.store import DAMAGE_HINT, DamagedError, StorageError

from .errors import Unavailable

log = structlog.stdlib.get_logger(__name__)

ANSWER_SECONDS = 5.0
"""A database that takes longer is of no use to a load balancer's next request."""
SILENT = "The database does not answer."
LOOK_HINT = "The server's log says more."
FULL = "The disk of the record is full."
READ_ONLY = "The record can only be read."
SENTENCES = {
    "SQLITE_FULL": FULL,
    "SQLITE_READONLY": READ_ONLY,
    "ENOSPC": FULL,
    "EROFS": READ_ONLY,
    "25006": READ_ONLY,  # read_only_sql_transaction
    "53100": FULL,  # disk_full
    "53300": "The database has no connection left.",  # too_many_connections
}
"""By the beginning of SQLite's name of an error, of PostgreSQL's state, or of the system's name."""

Check = Callable[[], Awaitable[object]]


class Readiness:
    """Runs the checks of one server."""

    def __init__(self, *checks: Check) -> None:
        """Each check raises what keeps the server from working."""
        self._checks = checks
        self._checking: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Raise Unavailable unless every check passes."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check(), name="byleave-readiness")
            self._checking.add_done_callback(_hear)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.shield(self._checking)
        except TimeoutError:
            raise Unavailable(SILENT, hint=LOOK_HINT) from None
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the server is not ready
            log.error("not ready", error=f"{type(error).__name__}: {error}")
            raise _told(error) from None

    async def close(self) -> None:
        """Wait for no check any more."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    async def _check(self) -> None:
        for check in self._checks:
            await check()


def _told(error: BaseException) -> Unavailable:
    if isinstance(error, DamagedError):
        return Unavailable("The record is damaged, or its disk fails.", hint=DAMAGE_HINT)
    for each in _causes(error):
        code = str(getattr(each, "sqlstate", None) or getattr(each, "sqlite_errorname", None))
        if isinstance(each, OSError) and each.errno is not None:
            code = errno.errorcode.get(each.errno, "")
        found = next((sentence for start, sentence in SENTENCES.items() if code.startswith(start)), None)
        if found is not None:
            return Unavailable(found, hint=LOOK_HINT)
    if isinstance(error, StorageError):  # its hint is a sentence of ours; its message may quote the database
        return Unavailable("The record cannot be read or written.", hint=f"{error.hint} {LOOK_HINT}")
    return Unavailable("The record cannot be read or written.", hint=LOOK_HINT)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _hear(done: "asyncio.Task[None]") -> None:
    if not done.cancelled():
        done.exception()  # who asked may have gone
