"""Sign-ins of the page that were ended: a cookie is good by itself until its time, so this says which are not.

Kept until the cookie would have ended anyway. Nothing here makes a sign-in; it only ever takes one away.
"""

from collections.abc import Sequence

from .database import Database, Transaction


class SignIns:
    """The transactions of ended sign-ins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def end(self, sign_in: str, user_id: str, good_until: str) -> None:
        """No cookie of this sign-in is good any more."""

        def work(transaction: Transaction) -> None:
            transaction.change("DELETE FROM ended_sign_ins WHERE good_until < :now", {"now": transaction.now})
            transaction.change(
                "INSERT INTO ended_sign_ins (id, user_id, ended_at, good_until) "
                "VALUES (:id, :user_id, :now, :good_until) ON CONFLICT (id) DO NOTHING",
                {"id": sign_in, "user_id": user_id, "now": transaction.now, "good_until": good_until},
            )

        await self._database.write(work)

    async def any_ended(self, sign_ins: Sequence[str]) -> bool:
        """Whether somebody signed out of one of them."""

        def work(transaction: Transaction) -> bool:
            return any(
                transaction.one("SELECT 1 FROM ended_sign_ins WHERE id = :id", {"id": sign_in}) is not None
                for sign_in in sign_ins
            )

        return await self._database.read(work)
