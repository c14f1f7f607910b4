"""The tables in a PostgreSQL database: made from the one schema, migrated, checked, and written by servers in turn.

Each write transaction first locks the row `all` of `servers`, so that servers take turns: the audit chains' heads are
sealed together, and events are numbered in the order of commits. It counts itself there and in its server's own row,
whose lease it extends by the database's clock: a server that lost its connection at a commit finds out whether it was
kept. It is a row and no advisory lock of a session: a pooler has no sessions.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psycopg

from byleave.protocol.errors import ConfigurationError
from byleave.store import migrations
from byleave.store.database import InUseError, Transaction
from byleave.store.migrations import check_known, difference, in_postgres, migrate

from .connections import (
    LIMITS,
    NOW,
    SERVER,
    TOOL,
    Connection,
    Statements,
    connect,
    name_of,
    roll_back,
)

LEASE_SECONDS = 10
OLDEST_VERSION = 14
_SCHEMA_LOCK = 0x62796C65617665
UNHURRIED = (
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '30s'"
)
"""For a transaction that may take minutes, but must not wait for minutes, while others wait for it."""
_WRITER = "oldest writer: "
"""A comment on `alembic_version` says which servers may write, and is a part of it: a dump keeps both."""
SILENT_SECONDS = 20
"""A server that is silent for so long is gone."""
TakeIn = Callable[[Transaction, str | None], None]
"""Seals a record that is new (None) or was at an older revision."""

ALL = "all"
"""The row that writers lock in turn. First of all locks, so that no two wait for each other."""
_LATER = f"(clock_timestamp() + interval '{LEASE_SECONDS} seconds')"
_UNTIL = NOW.removesuffix(" AS now").replace("clock_timestamp()", _LATER)
TAKE_TURN = f"UPDATE servers SET commits = commits + 1 WHERE id = '{ALL}' RETURNING commits"  # noqa: S608 - our own words
EXTEND_LEASE = f"UPDATE servers SET commits = commits + 1, until = {_UNTIL} WHERE id = :id RETURNING commits, {NOW}"  # noqa: S608 - our own words
REGISTER = (
    f"INSERT INTO servers (id, place, commits, until) VALUES (:id, :place, 1, {_UNTIL}) "  # noqa: S608 - our own words
    f"RETURNING commits, {NOW}"
)


def schema() -> str:
    """The schema in PostgreSQL's words."""
    return in_postgres(migrations.SCHEMA.read_text(encoding="utf-8"))


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
        "current_setting('transaction_read_only') AS read_only, current_schema() AS place"
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
    if writes and row["read_only"] == "on":
        raise ConfigurationError(
            "The database is read-only: it takes no changes.",
            hint="See who set default_transaction_read_only, and why; a managed database does when its disk is full.",
        )
    if row["place"] is None:
        raise ConfigurationError(
            "The database has no schema that its user may use.", hint="Make the user the owner of the database."
        )
    return Facts(row["fsync"] == "on", row["durable"] != "off")


def stored_revision(connection: Connection, name: str) -> str | None:
    """The revision of a record; None for an empty database. Refuses one that needs a newer version."""
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN "
        "('r', 'p', 'v', 'm', 'f')"
    ).fetchall()
    tables = {row["relname"] for row in rows}
    if not tables:
        return None
    versioned = "alembic_version" in tables
    found = (
        connection.execute(
            "SELECT version_num, obj_description('alembic_version'::regclass, 'pg_class') AS told FROM alembic_version"
        ).fetchall()
        if versioned
        else []
    )
    if len(found) != 1 or "feeds" not in tables:
        raise ConfigurationError(
            "There are tables in the database that are no record of Byleave.",
            hint="Give Byleave a database of its own: createdb -O byleave byleave.",
        )
    revision, told = str(found[0]["version_num"]), found[0]["told"] or ""
    check_known(name, revision, told.removeprefix(_WRITER) if told.startswith(_WRITER) else None)
    return revision


def bring_up_to_date(
    connection: Connection,
    url: str,
    take_in: TakeIn,
    clock: Callable[[], str] | None,
    seal_keys: tuple[bytes, ...],
) -> None:
    """Make the tables of an empty database, or migrate those of an older record: in one transaction with `take_in`."""

    def finish(connection: Connection, was: str | None) -> None:
        statements = Statements(connection)
        moment: Any = statements.execute(f"SELECT {NOW}").fetchone()
        now = moment["now"] if clock is None else clock()
        take_in(statements.transaction(now, seal_keys), was)
        statements.send()
        note_writer(connection)

    stored = stored_revision(connection, name_of(url))
    if stored is None:
        begin_alone(connection)
        try:
            if stored_revision(connection, name_of(url)) is None:  # else another server was first
                make_tables(connection)
                finish(connection, None)
                connection.execute("COMMIT")
        finally:
            roll_back(connection)
    elif stored < migrations.NEWEST:
        upgrade(url, finish)


def begin_alone(connection: Connection) -> None:
    """Begin a transaction that makes or migrates the tables; another one like it waits for its end."""
    connection.execute(f"BEGIN; {UNHURRIED}".encode())
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))


def refuse_beside_servers(connection: Connection, why: str) -> None:
    """Refuse while a server is connected. Each says something every few seconds; a pooler's spare connection does not.

    Its own connections must be those of a `TOOL`.
    """
    found: Any = connection.execute(
        "SELECT count(*) AS connections FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = %s AND state_change > clock_timestamp() - %s * interval '1 second'",
        (SERVER, SILENT_SECONDS),
    ).fetchone()
    if found["connections"]:
        raise InUseError(
            f"The database is in use by a Byleave server ({found['connections']} connections): {why}.",
            hint="Stop all servers on this database first; behind a pooler wait half a minute after that.",
        )


def make_tables(connection: Connection) -> None:
    """Make the tables of a new record inside the connection's transaction."""
    connection.execute(schema().encode())
    connection.execute("INSERT INTO alembic_version VALUES (%s)", (migrations.NEWEST,))
    connection.execute(f"INSERT INTO servers (id, place, commits, until) VALUES ('{ALL}', '', 0, '')".encode())  # noqa: S608 - our own words


def note_writer(connection: Connection) -> None:
    """Say in the record which servers may write into it from now on."""
    connection.execute(f"COMMENT ON TABLE alembic_version IS '{_WRITER}{migrations.OLDEST_WRITER}'".encode())


def upgrade(url: str, finish: Callable[[Connection, str], None]) -> None:
    """Migrate an older record in one transaction; `finish` gets the revision that it had."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    engine = create_engine("postgresql+psycopg://", creator=lambda: connect(url, TOOL), poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        begin_alone(connection.connection.dbapi_connection)  # which begins none by itself

    try:
        with engine.begin() as connection:
            ours: Any = connection.connection.dbapi_connection
            stored = stored_revision(ours, name_of(url))
            if stored is not None and stored < migrations.NEWEST:  # else another server was first
                if stored < migrations.OLDEST_WRITER:
                    refuse_beside_servers(ours, "its tables are changed so that they cannot go on")
                migrate(connection)
                finish(ours, stored)
    except DBAPIError as error:
        raise (error.orig if isinstance(error.orig, psycopg.Error) else error) from error
    finally:
        engine.dispose()


def difference_from_schema(connection: Connection) -> str | None:
    """The first object that is not as this server made it, compared with a schema of temporary tables."""
    connection.execute(f"BEGIN READ WRITE; {LIMITS}".encode())  # also where transactions only read by default
    try:
        (row,) = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        if row["version_num"] > migrations.NEWEST:
            return f"its tables are those of a newer Byleave ({row['version_num']!r}): verify it with that version"
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
