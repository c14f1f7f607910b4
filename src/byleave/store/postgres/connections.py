"""Connections to PostgreSQL, and the statements of a transaction.

A statement is sent when somebody looks at its result; those before it that nobody has looked at travel with it, in one
round trip. Parameters are put into the text here, quoted by libpq, and every transaction brings its own limits: nothing
belongs to a connection of the server, so that a pooler may give it to somebody else after each commit.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar, cast

import psycopg
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict

from byleave.protocol.errors import ConfigurationError
from byleave.store.database import Batch, Lookup, StorageError, Transaction

Connection = psycopg.Connection[Any]

FAILURES = (psycopg.OperationalError, psycopg.InternalError)
"""The server failed or is away; other errors are a statement's own."""
CONNECT_SECONDS = 5
STATEMENT_SECONDS = 30
"""No statement of ours takes as long: one that does waits for a lock that somebody forgot."""
IDLE_SECONDS = 10
"""The server ends a transaction of ours that says nothing for so long: its lock keeps the next server out."""
LIMITS = (
    f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
)
NOW = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS now"""
READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {LIMITS}"
SERVER, TOOL = "byleave", "byleave tool"
"""Names of connections, as PostgreSQL lists them: of a server, and of what must not run beside one."""
NUL, NUL_SIGN = "\x00", "\u2400"
"""PostgreSQL cannot store the first; the second is shown for it."""
DEFAULTS = {
    "connect_timeout": CONNECT_SECONDS,
    # A server that vanished without a word is noticed in seconds, not in hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_PARAMETER = re.compile(r'(?<![:\w"?]):([a-z_][a-z0-9_]*)')
_ONE_ROW = re.compile(r"(INSERT INTO \w+ \([^()]*\) VALUES )(\([^()]*\))")
_READS = ("SELECT", "WITH")
_BY_KEY = re.compile(
    r"INSERT INTO (?P<new>\w+) \([^()]*\) VALUES \([^()]*\)"
    r"|UPDATE (?P<old>\w+) SET [^()]* WHERE id = :id(?: AND (?:(?! OR )[^()])*)?"
)
"""Statements that write the row `:id` of a table, and no other."""
_ONE_CHANGED = (b"WITH changed AS (", b" RETURNING 1) SELECT 1 / count(*) FROM changed")
"""Fails by a division by zero if a statement changed nothing: an answer to it need not be waited for."""
_WORDS = (
    ("password authentication failed", "The user name or the password is wrong."),
    ("no password supplied", "Put the password into the URL, or into ~/.pgpass."),
    ("FATAL: database", "Create the database and its user first: createuser byleave, createdb -O byleave byleave."),
    ("FATAL: role", "Create the database's user first: createuser byleave."),
    ("no pg_hba.conf entry", "Allow this machine and user in the server's pg_hba.conf."),
    ("too many", "Allow more connections in the server's settings, or put PgBouncer before it: Byleave opens five."),
    ("No space left on device", "Free room on the database's disk; the record is as it was."),
    ("read-only transaction", "The database takes no changes: see who set default_transaction_read_only, and why."),
    ("lock timeout", "Somebody has a table locked: see pg_stat_activity; then try again. The record is as it was."),
    ("permission denied", "Make the user the owner of the database: ALTER DATABASE … OWNER TO …"),
    ("SSL", "See `sslmode` in the URL."),
)
"""Parts of messages, with what to do about them."""


def connect(url: str, name: str = SERVER) -> Connection:
    """A connection that begins and ends transactions only when told."""
    given: dict[str, Any] = {**DEFAULTS, "application_name": name, **conninfo_to_dict(url), "client_encoding": "UTF8"}
    return psycopg.connect(
        **given, autocommit=True, prepare_threshold=None, row_factory=_rows, cursor_factory=psycopg.ClientCursor
    )


def name_of(url: str) -> str:
    """The URL without its password, for people."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise ConfigurationError(  # without libpq's words, which quote parts of the URL
            "BYLEAVE_DATABASE_URL is not the URL of a PostgreSQL database.",
            hint="Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; escape `@`, `:` and `/` in the password.",
        ) from None
    user, host = parts.get("user", ""), parts.get("host", "")
    at = f"{user}@{host}" if user else host
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{at}{port}/{parts.get('dbname', '')}"


def is_lost(connection: Connection) -> bool:
    return connection.closed or connection.broken


def roll_back(connection: Connection) -> None:
    """End whatever is open; a connection that cannot even do that is closed."""
    if is_lost(connection):
        connection.close()
    elif connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:  # the transaction ends with it
            connection.close()


@contextmanager
def told_in_words(name: str, doing: str = "opened") -> Generator[None]:
    """Turn an error about the whole record into a ConfigurationError with a hint."""
    try:
        yield
    except (psycopg.Error, StorageError) as error:
        told = " ".join(str(error).split())
        hint = next((hint for part, hint in _WORDS if part in told), None)
        if hint is None and isinstance(error, psycopg.OperationalError | StorageError):
            hint = "Check that the server runs, and BYLEAVE_DATABASE_URL: its host, port and database."
        hint = hint or "The record is as it was; PostgreSQL's log says more."
        raise ConfigurationError(f"The record at {name!r} cannot be {doing}: {told}.", hint=hint) from error


def storable(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values as they are stored: without NUL, which PostgreSQL has no room for."""
    if any(value.__class__ is str and NUL in value for value in values.values()):
        return {name: _without_nul(value) if value.__class__ is str else value for name, value in values.items()}
    return values


def _without_nul(text: str) -> str:
    return text.replace(NUL, NUL_SIGN)


_item: Callable[[Any, Any], Any] = cast("Any", tuple).__getitem__


class Row(tuple[Any, ...]):
    """A row by number and by name, like `sqlite3.Row`."""

    __slots__ = ()
    names: ClassVar[Mapping[str, int]] = {}

    def __getitem__(self, key: Any) -> Any:
        return _item(self, self.names[key] if key.__class__ is str else key)

    def keys(self) -> Iterable[str]:
        return self.names.keys()


@lru_cache(maxsize=1024)
def _row_class(names: tuple[bytes | None, ...]) -> type[Row]:
    numbers = {(name or b"").decode(): number for number, name in enumerate(names)}
    return type("Row", (Row,), {"__slots__": (), "names": numbers})


def _rows(cursor: "psycopg.Cursor[Any]") -> Callable[[Iterable[Any]], Row]:
    # Not by `cursor.description`, which makes an object for each column.
    result = cursor.pgresult
    return _row_class(() if result is None else tuple(map(result.fname, range(result.nfields))))


class Result:
    """The result of a statement, which is sent when somebody looks."""

    __slots__ = ("_count", "_is_here", "_rows", "_statements")

    def __init__(self, statements: "Statements") -> None:
        self._statements = statements
        self._is_here = False
        self._count = -1
        self._rows: list[Any] = []

    def take(self, cursor: "psycopg.Cursor[Any]") -> None:
        self._is_here = True
        self._count = cursor.rowcount
        self._rows = cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []
        self._rows.reverse()

    @property
    def rowcount(self) -> int:
        self._look()
        return self._count

    def fetchone(self) -> Any:
        self._look()
        return self._rows.pop() if self._rows else None

    def fetchall(self) -> Sequence[Any]:
        self._look()
        rows, self._rows = self._rows, []
        rows.reverse()
        return rows

    def _look(self) -> None:
        if not self._is_here:
            self._statements.send()


class Statements:
    """The statements of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._literal = Transformer(connection).as_literal
        self._waiting: list[tuple[bytes, Result]] = []
        self._ahead: dict[bytes, tuple[tuple[str, str], Result]] = {}
        """Lookups that were sent ahead, each with its row."""
        self.changes = 0
        """Statements that may have changed something."""

    def transaction(self, now: str, seal_keys: tuple[bytes, ...], batch: Batch | None = None) -> Transaction:
        return Transaction(
            self.execute, self.executemany, self.change, now, seal_keys, batch or Batch(), storable=storable
        )

    def look_ahead(self, lookups: Iterable[Lookup]) -> None:
        """Ask what units will ask: they get these answers, unless a row may have changed by then."""
        for lookup in lookups:
            text = self._filled(lookup.sql, lookup.parameters)
            if text not in self._ahead:
                self._ahead[text] = (lookup.table, lookup.key), self._add(text)

    def execute(self, sql: str, parameters: Mapping[str, Any] = {}, /) -> Result:
        text = self._filled(sql, parameters)
        if not sql.lstrip().startswith(_READS):
            self._changing(sql, parameters)
        elif text in self._ahead:
            return self._ahead.pop(text)[1]
        return self._add(text)

    def change(self, sql: str, parameters: Mapping[str, Any], /) -> None:
        self._changing(sql, parameters)
        self._add(self._filled(sql, parameters).join(_ONE_CHANGED))

    def executemany(self, sql: str, parameters: Iterable[Mapping[str, Any]], /) -> object:
        """Insert all rows by one statement."""
        head, row = _insertion(sql)
        self._changing(sql, {})
        return self._add(head + b", ".join(self._filled(row, values) for values in parameters))

    def send(self, *last: str) -> None:
        """Send what waits, and these."""
        if not self._waiting and not last:
            return
        waiting, self._waiting = self._waiting, []
        texts = [*(text for text, _ in waiting), *(text.encode() for text in last)]
        cursor = self._connection.execute(b";\n".join(texts))
        for number, (_, result) in enumerate(waiting):
            if number:
                cursor.nextset()
            result.take(cursor)

    def _changing(self, sql: str, parameters: Mapping[str, Any]) -> None:
        """Drop the answers that a statement may make untrue."""
        self.changes += 1
        if self._ahead:
            table = _table_by_key(sql)
            row = (table, parameters["id"]) if table and "id" in parameters else None
            self._ahead = {} if row is None else {text: one for text, one in self._ahead.items() if one[0] != row}

    def _add(self, text: bytes) -> Result:
        result = Result(self)
        self._waiting.append((text, result))
        return result

    def _filled(self, sql: str, parameters: Mapping[str, Any]) -> bytes:
        """The statement with its parameters in it."""
        parts, names = _split(sql)
        filled = [parts[0]]
        for name, part in zip(names, parts[1:], strict=True):
            value = parameters[name]
            if value.__class__ is str and NUL in value:
                value = _without_nul(value)
            filled += (self._literal(value), part)
        return b"".join(filled)


@lru_cache(maxsize=2048)
def _split(sql: str) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    pieces = _PARAMETER.split(sql)
    return tuple(piece.encode() for piece in pieces[::2]), tuple(pieces[1::2])


@lru_cache(maxsize=2048)
def _table_by_key(sql: str) -> str | None:
    """The table of which a statement writes the row `:id` alone; None if it may write others."""
    found = _BY_KEY.fullmatch(sql)
    return found and (found["new"] or found["old"])


@lru_cache(maxsize=64)
def _insertion(sql: str) -> tuple[bytes, str]:
    found = _ONE_ROW.fullmatch(sql)
    if found is None:
        raise ValueError(f"not the insertion of a row: {sql}")
    return found[1].encode(), found[2]
