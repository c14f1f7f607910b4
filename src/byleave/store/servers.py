"""The servers that share a record, and the clients connected to each.

A server that stops without signing off loses its lease by the database's clock; then another one removes its
connections. Its own row stays for a while: it says whether its last commit was kept. Nothing here decides which client
a call goes to.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from byleave.protocol.errors import ConfigurationError
from byleave.protocol.wire import later

from .database import Database, Hint, Transaction
from .records import columns, placeholders

FORGET_SECONDS = 3600
CONNECTIONS_TOPIC = "connections"
"""The topic for news of a project's connections at other servers, with the project's id behind a slash."""
_OTHERS = "id <> 'all' AND id <> :id"


class Connection(NamedTuple):
    """A client's stream that is open at a server."""

    server_id: str
    number: int
    project_id: str
    client_id: str
    declared: bool
    workspace: str | None
    isolation: str | None
    looks: bool
    editor: str | None
    generation: str | None
    since: str


class Count(NamedTuple):
    """The connections of a server, counted."""

    connections: int = 0
    newest: int = 0


class Server(NamedTuple):
    """A server as the record shows it."""

    id: str
    lapsed: bool
    """True if its lease ran out."""
    held: Count


_CONNECTION_COLUMNS = columns(Connection)
_INSERT = f"INSERT INTO connections {placeholders(Connection._fields)}"


class Servers:
    """Transactions of servers and connections. Only for a record that servers share."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def own_id(self) -> str | None:
        """The id of this server; None if it has the record for itself."""
        return self._database.server_id

    async def look(self) -> list[Server]:
        """All servers with their counts."""

        def work(transaction: Transaction) -> list[Server]:
            rows = transaction.execute(
                "SELECT id, until, count(number) AS connections, coalesce(max(number), 0) AS newest FROM servers "
                "LEFT JOIN connections ON server_id = id WHERE id <> 'all' GROUP BY id, until"
            ).fetchall()
            now = transaction.now
            return [Server(row["id"], row["until"] < now, Count(row["connections"], row["newest"])) for row in rows]

        return await self._database.read(work)

    async def connections(self, project_id: str | None = None) -> list[Connection]:
        """Other servers' connections, of one project or all."""

        def work(transaction: Transaction) -> list[Connection]:
            which = "" if project_id is None else "project_id = :project_id AND "
            rows = transaction.execute(
                f"SELECT {_CONNECTION_COLUMNS} FROM connections WHERE {which}server_id <> :own",  # noqa: S608 - our own words
                {"project_id": project_id, "own": self.own_id},
            ).fetchall()
            return [Connection(*(row[name] for name in Connection._fields)) for row in rows]

        return await self._database.read(work)

    async def move(self, came: Iterable[Connection], left: Sequence[tuple[int, str]], *, anew: bool = False) -> None:
        """Record streams that opened, and those that closed, each by number and project.

        `anew`: these are all there are; what is recorded of this server else is not true.
        """
        arrivals = [connection._asdict() for connection in came]
        projects = {each["project_id"] for each in arrivals} | {project_id for _, project_id in left}

        def work(transaction: Transaction) -> None:
            if anew:
                _remove(transaction, self.own_id or "")
            for number, _ in left:
                transaction.execute(
                    "DELETE FROM connections WHERE server_id = :id AND number = :number",
                    {"id": self.own_id, "number": number},
                )
            if arrivals:
                transaction.executemany(_INSERT, arrivals)
            transaction.hints.extend(map(_news, projects))

        await self._database.write(work, relaxed=True)

    async def bury(self, server_id: str) -> set[str]:
        """Remove the connections of a server whose lease ran out; return their projects."""

        def work(transaction: Transaction) -> set[str]:
            now = transaction.now
            lapsed = transaction.execute(
                "SELECT 1 FROM servers WHERE id = :id AND until < :now", {"id": server_id, "now": now}
            ).fetchone()
            if lapsed is None:
                return set()
            projects = _remove(transaction, server_id)
            transaction.hints.extend(map(_news, projects))
            transaction.execute(
                "DELETE FROM servers WHERE id = :id AND until < :old",
                {"id": server_id, "old": later(now, -FORGET_SECONDS)},
            )
            return projects

        return await self._database.write(work)


def _remove(transaction: Transaction, server_id: str) -> set[str]:
    rows = transaction.execute(
        "DELETE FROM connections WHERE server_id = :id RETURNING project_id", {"id": server_id}
    ).fetchall()
    return {row["project_id"] for row in rows}


def _news(project_id: str) -> Hint:
    return Hint(f"{CONNECTIONS_TOPIC}/{project_id}")


async def refuse_another_secret(database: Database) -> None:
    """Refuse to share a record with living servers that seal it with another secret than ours."""

    def work(transaction: Transaction) -> str | None:
        row = transaction.execute(
            f"SELECT place FROM servers WHERE {_OTHERS} AND until > :now LIMIT 1",  # noqa: S608 - our own words
            {"id": database.server_id, "now": transaction.now},
        ).fetchone()
        return row["place"] if row else None

    place = None if database.server_id is None else await database.read(work)
    if place is not None:
        raise ConfigurationError(
            f"Another server ({place}) keeps the record {database.name!r} with another secret.",
            hint="Give all servers of a record the same BYLEAVE_SECRET.",
        )
