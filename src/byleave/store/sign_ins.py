"""Store sign-in links, and sign-ins of the page that were ended.

Of a link's code only a keyed digest is kept: who reads the database can use no link. One statement marks a link as
used, so that two servers cannot both use it. An ended sign-in is kept until its cookie expires: until then the cookie
would be valid by itself. All times are the database's.
"""

from collections.abc import Collection
from typing import NamedTuple

from byleave.protocol.wire import later

from .database import Database, Hint, Row, Transaction
from .notices import forget_devices

SIGN_OUTS = "sign-outs"
"""The topic for news of ended sign-ins."""


class LinkRow(NamedTuple):
    """The sign-in that a link stands for."""

    user_id: str
    scopes: str
    led_by: str
    session_until: str | None


LINK_COLUMNS = ", ".join(LinkRow._fields)
_USABLE = "digest = :digest AND used_at IS NULL AND good_until > :now"


class SignIns:
    """Transactions of sign-in links and ended sign-ins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_link(
        self, digest: str, link: LinkRow, *, seconds: float, most: int, lately: tuple[int, float] | None = None
    ) -> bool:
        """Store a link for so many seconds. Of the user's usable links the `most` newest stay.

        `lately`: False, and nothing stored, if the user got this number within these seconds.
        """

        def work(transaction: Transaction) -> bool:
            now, user = transaction.now, {"user_id": link.user_id}
            transaction.execute("DELETE FROM sign_in_links WHERE good_until <= :now", {"now": now})
            if lately is not None:
                made = transaction.execute(
                    "SELECT count(*) AS links FROM sign_in_links WHERE user_id = :user_id AND created_at > :since",
                    {**user, "since": later(now, -lately[1])},
                ).fetchone()
                if made is not None and made["links"] >= lately[0]:
                    return False
            transaction.execute(
                "DELETE FROM sign_in_links WHERE digest IN (SELECT digest FROM sign_in_links WHERE user_id = :user_id "
                "AND used_at IS NULL ORDER BY created_at DESC LIMIT 1000 OFFSET :others)",
                {**user, "others": most - 1},
            )
            transaction.execute(
                f"INSERT INTO sign_in_links (digest, {LINK_COLUMNS}, created_at, good_until) VALUES "  # noqa: S608 - our own words
                "(:digest, :user_id, :scopes, :led_by, :session_until, :now, :good_until)",
                {**link._asdict(), "digest": digest, "now": now, "good_until": later(now, seconds)},
            )
            return True

        return await self._database.write(work)

    async def look_up_link(self, digest: str) -> LinkRow | None:
        """A usable link, without using it."""

        def work(transaction: Transaction) -> LinkRow | None:
            return _link(
                transaction.execute(
                    f"SELECT {LINK_COLUMNS} FROM sign_in_links WHERE {_USABLE}",  # noqa: S608 - our own words
                    {"digest": digest, "now": transaction.now},
                ).fetchone()
            )

        return await self._database.read(work)

    async def use_link(self, digest: str) -> LinkRow | None:
        """Mark a link as used; None if it is unknown, used or too old."""
        return await self._database.write(lambda transaction: use_link(transaction, digest))

    async def end(self, sign_in: str, user_id: str, *, seconds: float) -> None:
        """End a sign-in: its cookies, which last no longer than so many seconds, are no longer valid."""

        def work(transaction: Transaction) -> None:
            now = transaction.now
            transaction.execute("DELETE FROM ended_sign_ins WHERE good_until < :now", {"now": now})
            transaction.execute(
                "INSERT INTO ended_sign_ins (id, user_id, ended_at, good_until) "
                "VALUES (:id, :user_id, :now, :good_until) ON CONFLICT (id) DO NOTHING",
                {"id": sign_in, "user_id": user_id, "now": now, "good_until": later(now, seconds)},
            )
            forget_devices(transaction, sign_in, user_id)
            transaction.hints.append(Hint(SIGN_OUTS))

        await self._database.write(work)

    async def ended(self, sign_ins: Collection[str]) -> frozenset[str]:
        """Those of these sign-ins that were ended. Never remembered: another server may have ended one just now."""

        def work(transaction: Transaction) -> frozenset[str]:
            # All asked before the first is looked at: one round trip.
            asked = [
                (sign_in, transaction.execute("SELECT 1 FROM ended_sign_ins WHERE id = :id", {"id": sign_in}))
                for sign_in in sign_ins
            ]
            return frozenset(sign_in for sign_in, found in asked if found.fetchone() is not None)

        return await self._database.read(work)


def use_link(transaction: Transaction, digest: str) -> LinkRow | None:
    """Mark a link as used, in one statement: whoever comes second finds none."""
    rows = transaction.execute(
        f"UPDATE sign_in_links SET used_at = :now WHERE {_USABLE} RETURNING {LINK_COLUMNS}",  # noqa: S608 - our own words
        {"digest": digest, "now": transaction.now},
    ).fetchall()
    return _link(rows[0] if rows else None)


def _link(row: Row | None) -> LinkRow | None:
    return None if row is None else LinkRow(*(row[name] for name in LinkRow._fields))
