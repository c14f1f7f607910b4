"""The tables in a PostgreSQL database: made from the one schema, checked against it, and held by one server at a time.

`server_lease` has one row. Each write transaction first extends the lease and counts itself there, by the database's
clock: a server whose lease was taken over changes nothing any more, and a server that lost its connection at a commit
finds out whether it was kept. It is a row and no advisory lock of a session: a pooler has no sessions.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psycopg

from byleave.protocol.errors import ConfigurationError
from byleave.store.database import Transaction
from byleave.store.migrations import NEWEST, REVISIONS, SCHEMA, difference

from .connections import LIMITS, NOW, Connection, Statements, storable

LEASE_SECONDS = 10
OLDEST_VERSION = 14
_SCHEMA_LOCK = 0x62796C65617665
_TEXT = re.compile(r"\b(?:VARCHAR\(\d+\)|TEXT)(?= |,)")

LEASE = """
CREATE TABLE server_lease (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    place TEXT NOT NULL,
    commits BIGINT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);
"""
_UNTIL = f"clock_timestamp() + interval '{LEASE_SECONDS} seconds'"
TAKE_LEASE = (
    "INSERT INTO server_lease (name, owner, place, commits, until) "  # noqa: S608 - our own words
    f"VALUES ('writer', :owner, :place, 0, {_UNTIL}) ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, "
    "place = excluded.place, until = excluded.until WHERE server_lease.until < clock_timestamp() RETURNING commits"
)
EXTEND_LEASE = (
    f"UPDATE server_lease SET until = {_UNTIL}, commits = commits + 1 "  # noqa: S608 - our own words
    f"WHERE name = 'writer' AND owner = :owner RETURNING commits, {NOW}"
)
LOOK_AT_LEASE = (
    "SELECT owner, place, commits, extract(epoch FROM until)::float8 AS until FROM server_lease WHERE name = 'writer'"
)
END_LEASE = (
    "UPDATE server_lease SET until = clock_timestamp() - interval '1 second' WHERE name = 'writer' AND owner = :owner"
)


def schema() -> str:
    """The schema in PostgreSQL's words: ids and times compare byte by byte, whatever language the database is for."""
    return _TEXT.sub('TEXT COLLATE "C"', SCHEMA.read_text(encoding="utf-8") + LEASE)


class Facts(NamedTuple):
    """Facts about a server that we must know."""

    flushes: bool
    """False if it was told to forget its disk."""
    commits_are_durable: bool


def look_at_server(connection: Connection, *, writes: bool) -> Facts:
    """Refuse a server that cannot keep the record."""
    row: Any = connection.execute(
        "SELECT current_setting('server_version_num')::int / 10000 AS version, "
        "current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS standby, "
        "current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS durable, "
        "current_schema() AS place"
    ).fetchone()
    if row["version"] < OLDEST_VERSION:
        raise ConfigurationError(
            f"PostgreSQL {row['version']} is too old.", hint=f"Byleave needs version {OLDEST_VERSION} or newer."
        )
    if row["encoding"] != "UTF8":
        raise ConfigurationError(
            f"The database stores text as {row['encoding']}, which cannot hold every text.",
            hint="Create it with createdb -E UTF8 -T template0.",
        )
    if writes and row["standby"]:
        raise ConfigurationError("The database is a standby: it can only be read.", hint="Name the primary server.")
    if row["place"] is None:
        raise ConfigurationError(
            "The database has no schema that its user may use.", hint="Make the user the owner of the database."
        )
    return Facts(row["fsync"] == "on", row["durable"] != "off")


def stored_revision(connection: Connection) -> str | None:
    """The revision of a record; None for an empty database. Refuses one that this version cannot read."""
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN "
        "('r', 'p', 'v', 'm', 'f')"
    ).fetchall()
    tables = {row["relname"] for row in rows}
    if not tables:
        return None
    versioned = "alembic_version" in tables
    found = connection.execute("SELECT version_num FROM alembic_version").fetchall() if versioned else []
    if len(found) != 1 or not {"feeds", "server_lease"} <= tables:
        raise ConfigurationError(
            "There are tables in the database that are no record of Byleave.",
            hint="Give Byleave a database of its own: createdb -O byleave byleave.",
        )
    revision = str(found[0]["version_num"])
    if revision not in REVISIONS:
        raise ConfigurationError(
            f"The record was written by a newer Byleave (its tables are {revision!r}).",
            hint="Install that version again, or put back the backup from before the upgrade.",
        )
    if revision != NEWEST:
        raise ConfigurationError(
            f"The record was written by an older Byleave (its tables are {revision!r}).",
            hint="Start the server of that version, and see its release notes for the upgrade.",
        )
    return revision


def make_tables(
    connection: Connection,
    take_in: Callable[[Transaction], None],
    clock: Callable[[], str] | None,
    seal_keys: tuple[bytes, ...],
) -> None:
    """Make the tables of an empty database; `take_in` seals the record in the same transaction."""
    connection.execute(f"BEGIN; {LIMITS}".encode())
    # Two servers that start together: the second finds the tables made.
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
    if stored_revision(connection) is None:
        connection.execute(schema().encode())
        statements = Statements(connection)
        statements.execute("INSERT INTO alembic_version VALUES (:revision)", {"revision": NEWEST})
        moment: Any = statements.execute(f"SELECT {NOW}").fetchone()
        now = moment["now"] if clock is None else clock()
        execute, executemany = statements.execute, statements.executemany
        take_in(Transaction(execute, executemany, now, seal_keys, storable=storable))
        statements.send()
    connection.execute("COMMIT")


class Lease(NamedTuple):
    """The lease as it was found."""

    taken: bool
    place: str = ""
    until: float = 0.0
    """Grows whenever its owner writes."""


def take_lease(connection: Connection, owner: str, place: str) -> Lease:
    """Take the lease if it ran out."""
    connection.execute(f"BEGIN; {LIMITS}; SET LOCAL lock_timeout = '1s'".encode())
    statements = Statements(connection)
    try:
        row = statements.execute(TAKE_LEASE, {"owner": owner, "place": place}).fetchone()
        connection.execute("COMMIT")
        if row is not None:
            return Lease(taken=True)
    except psycopg.errors.LockNotAvailable:  # a transaction of its owner is open
        connection.execute("ROLLBACK")
    found: Any = connection.execute(LOOK_AT_LEASE).fetchone()
    return Lease(taken=False, place=found["place"], until=found["until"])


def difference_from_schema(connection: Connection) -> str | None:
    """The first object that is not as this server made it, compared with a schema of temporary tables."""
    connection.execute(f"BEGIN; {LIMITS}".encode())
    try:
        found = _objects(connection, "current_schema()::regnamespace")
        connection.execute("SET LOCAL search_path = pg_temp")
        connection.execute(schema().encode())
        return difference(found, _objects(connection, "pg_my_temp_schema()"))
    finally:
        connection.execute("ROLLBACK")


_OBJECTS = (
    """SELECT CASE relkind WHEN 'r' THEN 'table ' WHEN 'v' THEN 'view ' ELSE 'object ' END || relname AS name,
        relkind::text, relrowsecurity, relforcerowsecurity, relhasrules, relhassubclass FROM pg_class
        WHERE relnamespace = {of} AND relkind NOT IN ('i', 'I')""",
    """SELECT 'table ' || relname AS name, attname, format_type(atttypid, atttypmod), attnotnull, attgenerated::text,
        attidentity::text, collname, pg_get_expr(adbin, adrelid) FROM pg_class
        JOIN pg_attribute ON attrelid = pg_class.oid LEFT JOIN pg_collation ON pg_collation.oid = attcollation
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relnamespace = {of} AND relkind = 'r' AND attnum > 0 AND NOT attisdropped ORDER BY attname""",
    """SELECT 'table ' || relname AS name, conname, pg_get_constraintdef(pg_constraint.oid), convalidated
        FROM pg_constraint JOIN pg_class ON conrelid = pg_class.oid WHERE relnamespace = {of} ORDER BY conname""",
    """SELECT 'index ' || relname AS name, pg_get_indexdef(pg_class.oid), indisvalid, indisready, indislive
        FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid WHERE relnamespace = {of}""",
    """SELECT 'trigger ' || tgname AS name, relname, pg_get_triggerdef(pg_trigger.oid) FROM pg_trigger
        JOIN pg_class ON tgrelid = pg_class.oid WHERE relnamespace = {of} AND NOT tgisinternal""",
    "SELECT 'function ' || proname AS name FROM pg_proc WHERE pronamespace = {of}",
)


def _objects(connection: Connection, of: str) -> Mapping[str, object]:
    place: Any = connection.execute(f"SELECT ({of})::regnamespace::text AS name".encode()).fetchone()
    own = re.compile(rf"(?<![\w.])(?:{re.escape(place['name'])}|pg_temp)\.")
    found: dict[str, list[object]] = {}
    for query in _OBJECTS:
        for row in connection.execute(query.format(of=of).encode()).fetchall():
            about = [own.sub("", value) if isinstance(value, str) else value for value in tuple(row)[1:]]
            found.setdefault(row["name"], []).append(about)
    return found
