"""Store the rules that clients declare, the keys and tokens that identify clients, and ended sign-ins.

Rules are kept as declared; the gate parses them. The client checks every call against its own copy again, so a stale
or forged declaration here can cost a question or an error, never a run. A client is known by the key it made at first
contact or, if it sent none, by the tokens it has connected with; only digests of them are kept. An ended sign-in of the
page is kept until its cookie expires: until then the cookie would be valid by itself.
"""

from collections.abc import Sequence

from byleave.protocol.events import MachinesChanged
from byleave.protocol.overview import Machine
from byleave.protocol.wire import later

from .database import Database, Hint, Transaction
from .ledger import Ledger

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

    async def connected(
        self, project_id: str, client_id: str, *, token: str, key: str | None = None, joins: bool = True
    ) -> bool:
        """Record that a client connects with this token and key; False if it is known by others.

        If no key is known, a renewed token that `joins` is added to the older ones, except for an anonymous client:
        its id belongs to one stream. A key replaces them.
        """
        speaker = _known_by(token, key)
        joins = joins and key is None and not client_id.startswith(f"{ANONYMOUS}_")

        def work(transaction: Transaction) -> bool:
            now = transaction.now
            rows = transaction.execute(
                "SELECT token FROM client_tokens WHERE project_id = :project_id AND client_id = :client_id "
                "AND seen_at >= :old",
                {"project_id": project_id, "client_id": client_id, "old": later(now, -KEPT_SECONDS)},
            ).fetchall()
            known = {row["token"] for row in rows}
            keyed = any(one.startswith(KEY) for one in known)
            brings_key = key is not None and token in known
            if known and speaker not in known and (keyed or not (joins or brings_key)):
                return False
            if key is not None and not keyed:
                transaction.execute(
                    "DELETE FROM client_tokens WHERE project_id = :project_id AND client_id = :client_id",
                    {"project_id": project_id, "client_id": client_id},
                )
            transaction.execute(
                "INSERT INTO client_tokens (project_id, client_id, token, seen_at) "
                "VALUES (:project_id, :client_id, :token, :now) ON CONFLICT (project_id, client_id, token) "
                "DO UPDATE SET seen_at = excluded.seen_at",
                {"project_id": project_id, "client_id": client_id, "token": speaker, "now": now},
            )
            transaction.execute(
                "DELETE FROM client_tokens WHERE project_id = :project_id AND seen_at < :old",
                {"project_id": project_id, "old": later(now, -KEPT_SECONDS)},
            )
            return True

        taken = await self._database.write(work, relaxed=True)
        if key is not None:  # its tokens alone no longer suffice
            self._known -= {one for one in self._known if one[:2] == (project_id, client_id)}
        return taken

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


def _known_by(token: str, key: str | None) -> str:
    return token if key is None else f"{KEY}{key[: len(token) - len(KEY)]}"


class SignIns:
    """Transactions of ended sign-ins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def end(self, sign_in: str, user_id: str, good_until: str) -> None:
        """End a sign-in: its cookies are no longer valid."""

        def work(transaction: Transaction) -> None:
            transaction.execute("DELETE FROM ended_sign_ins WHERE good_until < :now", {"now": transaction.now})
            transaction.execute(
                "INSERT INTO ended_sign_ins (id, user_id, ended_at, good_until) "
                "VALUES (:id, :user_id, :now, :good_until) ON CONFLICT (id) DO NOTHING",
                {"id": sign_in, "user_id": user_id, "now": transaction.now, "good_until": good_until},
            )

        await self._database.write(work)

    async def any_ended(self, sign_ins: Sequence[str]) -> bool:
        """True if one of these sign-ins was ended."""

        def work(transaction: Transaction) -> bool:
            return any(
                transaction.execute("SELECT 1 FROM ended_sign_ins WHERE id = :id", {"id": sign_in}).fetchone()
                is not None
                for sign_in in sign_ins
            )

        return await self._database.read(work)
