"""Store the rules that clients declare, and the keys and tokens that identify clients.

Rules are kept as declared; the gate parses them. The client checks every call against its own copy again, so a stale
or forged declaration here can cost a question or an error, never a run. A client is known by the key it made at first
contact or, if it sent none, by the tokens it has connected with; only digests of them are kept. Beside them stands the
latest start of the client that opened a stream.
"""

from collections.abc import Iterable, Sequence

from byleave.protocol.errors import ConflictError
from byleave.protocol.events import MachinesChanged
from byleave.protocol.generation import SUPERSEDED, Generation
from byleave.protocol.overview import Machine
from byleave.protocol.wire import later

from .database import Database, Hint, Row, Transaction
from .ledger import Ledger, feed_topic

KEPT_SECONDS = 30 * 24 * 3600
"""A client stays known by a token or key this long after its last connection with it."""
KEY = "key:"
"""Prefix of a key's digest, which stands in the column of tokens."""
ANONYMOUS = "anon"
"""Prefix of the ids the server gives to clients that bring none."""
MOST_REMEMBERED = 10_000


def policy_topic(project_id: str) -> str:
    """The topic for news of a project's declared rules."""
    return f"policy:{project_id}"


class Machines:
    """Transactions of declared rules and known clients."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[tuple[str, str, str]] = set()
        """Clients with their keys. Not with their tokens: a key may replace those, also at another server."""

    async def connected(
        self,
        project_id: str,
        client_id: str,
        *,
        token: str,
        key: str | None = None,
        joins: bool = True,
        generation: Generation | None = None,
        displaces: bool = False,
    ) -> bool:
        """Record that a client connects with this token and key; False if it is known by others.

        A generation that another one has superseded is a ConflictError; a later one that `joins` supersedes the known
        one, whose streams then end. `displaces`: those are open, so calls may run there: see `take_displacement`.

        If no key is known, a renewed token that `joins` is added to the older ones, except for an anonymous client:
        its id belongs to one stream. A key replaces them.
        """
        speaker = _known_by(token, key)
        recorded = generation if joins else None
        joins = joins and key is None and not client_id.startswith(f"{ANONYMOUS}_")

        def work(transaction: Transaction) -> bool:
            now = transaction.now
            rows = transaction.execute(
                "SELECT token, generation, instance FROM client_tokens "
                "WHERE project_id = :project_id AND client_id = :client_id AND seen_at >= :old",
                {"project_id": project_id, "client_id": client_id, "old": later(now, -KEPT_SECONDS)},
            ).fetchall()
            known = {row["token"] for row in rows}
            keyed = any(one.startswith(KEY) for one in known)
            brings_key = key is not None and token in known
            if known and speaker not in known and (keyed or not (joins or brings_key)):
                return False
            latest = _latest(rows)
            if generation is not None and generation.is_superseded_by(latest):
                raise ConflictError(
                    "This client's state was copied or restored: another one with the same identity has connected "
                    "since.",
                    state=SUPERSEDED,
                    hint="Come as a new client, with another id.",
                )
            supersedes = recorded is not None and recorded.supersedes(latest)
            if supersedes:
                transaction.hints.append(Hint(feed_topic(project_id)))
            if key is not None and not keyed:
                transaction.execute(
                    "DELETE FROM client_tokens WHERE project_id = :project_id AND client_id = :client_id",
                    {"project_id": project_id, "client_id": client_id},
                )
            transaction.execute(
                "INSERT INTO client_tokens (project_id, client_id, token, seen_at, generation, instance, displaces) "
                "VALUES (:project_id, :client_id, :token, :now, :generation, :instance, :displaces) "
                "ON CONFLICT (project_id, client_id, token) DO UPDATE SET seen_at = excluded.seen_at, "
                "generation = coalesce(excluded.generation, client_tokens.generation), "
                "instance = coalesce(excluded.instance, client_tokens.instance), "
                "displaces = client_tokens.displaces OR excluded.displaces",
                {
                    "project_id": project_id,
                    "client_id": client_id,
                    "token": speaker,
                    "now": now,
                    "generation": recorded and recorded.number,
                    "instance": recorded and recorded.instance,
                    "displaces": supersedes and displaces,
                },
            )
            transaction.execute(
                "DELETE FROM client_tokens WHERE project_id = :project_id AND seen_at < :old",
                {"project_id": project_id, "old": later(now, -KEPT_SECONDS)},
            )
            return True

        return await self._database.write(work, relaxed=True)

    async def generation(self, project_id: str, client_id: str) -> Generation | None:
        """The latest generation of a client that opened a stream."""

        def work(transaction: Transaction) -> Generation | None:
            return _latest(
                transaction.execute(
                    "SELECT generation, instance FROM client_tokens "
                    "WHERE project_id = :project_id AND client_id = :client_id",
                    {"project_id": project_id, "client_id": client_id},
                ).fetchall()
            )

        return await self._database.read(work)

    async def speaks_for(self, project_id: str, client_id: str, *, token: str, key: str | None = None) -> bool:
        """True if this client is known by this key, or without one by this token; checked with every result."""
        speaker = _known_by(token, key)
        claim = (project_id, client_id, speaker)
        if claim in self._known:
            return True
        found = await self._database.read(
            lambda transaction: transaction.execute(
                "SELECT 1 FROM client_tokens WHERE project_id = :project_id AND client_id = :client_id "
                "AND token = :token",
                {"project_id": project_id, "client_id": client_id, "token": speaker},
            ).fetchone()
        )
        if found is None:
            return False
        if key is not None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known.add(claim)
        return True

    async def declare(self, project_id: str, client_id: str, policy: str, *, digest: str) -> bool:
        """Store the rules of a client; True if they differ from the known ones."""

        def work(transaction: Transaction) -> bool:
            known = transaction.execute(
                "SELECT policy FROM machines WHERE project_id = :project_id AND client_id = :client_id",
                {"project_id": project_id, "client_id": client_id},
            ).fetchone()
            changed = known is None or known["policy"] != policy
            transaction.execute(
                "INSERT INTO machines (project_id, client_id, policy, declared_at) "
                "VALUES (:project_id, :client_id, :policy, :now) ON CONFLICT (project_id, client_id) "
                "DO UPDATE SET policy = excluded.policy, declared_at = excluded.declared_at",
                {"project_id": project_id, "client_id": client_id, "policy": policy, "now": transaction.now},
            )
            if changed:
                with Ledger(transaction, project_id) as ledger:
                    ledger.audit("policy_declared", f"client:{client_id}", policy=digest)
                transaction.hints.append(Hint(policy_topic(project_id)))
            return changed

        return await self._database.write(work)

    async def policy(self, project_id: str, client_id: str | None) -> str | None:
        """The rules this client declared; without one, those declared last for the project."""

        def work(transaction: Transaction) -> str | None:
            row = transaction.execute(
                "SELECT policy FROM machines WHERE project_id = :project_id "
                "AND (:client_id IS NULL OR client_id = :client_id) ORDER BY declared_at DESC, client_id LIMIT 1",
                {"project_id": project_id, "client_id": client_id},
            ).fetchone()
            return row["policy"] if row else None

        return await self._database.read(work)

    async def tell(self, project_id: str, machines: Sequence[Machine]) -> None:
        """Announce the connected machines on the feed. No audit link: nothing is decided by it."""

        def work(transaction: Transaction) -> None:
            with Ledger(transaction, project_id) as ledger:
                ledger.event(MachinesChanged(timestamp=transaction.now, machines=list(machines)))

        await self._database.write(work, relaxed=True)


def take_displacement(transaction: Transaction, project_id: str, client_id: str) -> bool:
    """True, once, if this client connected while an earlier generation of it was there, which may run its calls."""
    row = transaction.execute(
        "UPDATE client_tokens SET displaces = FALSE "
        "WHERE project_id = :project_id AND client_id = :client_id AND displaces RETURNING client_id",
        {"project_id": project_id, "client_id": client_id},
    ).fetchone()
    return row is not None


def _latest(rows: Iterable[Row]) -> Generation | None:
    known = [Generation(row["generation"], row["instance"]) for row in rows if row["generation"] is not None]
    return max(known, default=None)


def _known_by(token: str, key: str | None) -> str:
    return token if key is None else f"{KEY}{key[: len(token) - len(KEY)]}"
