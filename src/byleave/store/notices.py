"""Store the devices that get push messages, and claim the questions that people are told about elsewhere.

A question is claimed in one transaction, so of several servers one tells about it. A claim that was not finished counts
as that of a server that died. All times are the database's. Nothing here sends anything.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from byleave.protocol.errors import NotFound
from byleave.protocol.states import RiskLevel
from byleave.protocol.wire import later, moment, new_id

from .database import Database, Row, Transaction

CLAIM_SECONDS = 60.0
"""A claim that is not finished by then is free again: its server died. Longer than all tries to send take."""
GATHER_SECONDS = 30.0
"""A user who was told hears of further questions no sooner than this, and of all at once."""
FORGET_SECONDS = 3600.0
MOST_AT_ONCE = 500


class Device(NamedTuple):
    """A browser that gets push messages."""

    id: str
    user_id: str
    endpoint: str
    p256dh: str
    auth: str
    name: str
    created_at: str
    sent_at: str | None = None


class Waiting(NamedTuple):
    """A question that nobody has answered for a while."""

    approval_id: str
    user_id: str
    project: str
    risk_level: RiskLevel
    description: str
    seconds_left: float


_DEVICE_COLUMNS = ", ".join(Device._fields)
_UNTOLD = "(n.approval_id IS NULL OR (n.sent_at IS NULL AND n.claimed_at < :lapsed))"
_PENDING = "a.status = 'pending' AND a.deadline > :now"
_HAS_DEVICE = "EXISTS (SELECT 1 FROM push_devices AS d WHERE d.user_id = a.user_id)"


class Notices:
    """Transactions of devices and of questions to tell about."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Devices

    async def add_device(
        self,
        user_id: str,
        endpoint: str,
        *,
        p256dh: str,
        auth: str,
        name: str,
        sign_ins: Sequence[str],
        most: int,
    ) -> Device:
        """Store a device, or its new keys. It belongs to who added it last; of a user the `most` newest stay."""
        digest = hashlib.sha256(endpoint.encode()).hexdigest()

        def work(transaction: Transaction) -> Device:
            known = transaction.execute(
                f"SELECT {_DEVICE_COLUMNS} FROM push_devices WHERE endpoint_digest = :digest",  # noqa: S608 - our own words
                {"digest": digest},
            ).fetchone()
            same = known is not None and known["user_id"] == user_id
            device = Device(
                id=known["id"] if known is not None and same else new_id("device"),
                user_id=user_id,
                endpoint=endpoint,
                p256dh=p256dh,
                auth=auth,
                name=name,
                created_at=known["created_at"] if known is not None and same else transaction.now,
                sent_at=known["sent_at"] if known is not None and same else None,
            )
            transaction.execute("DELETE FROM push_devices WHERE endpoint_digest = :digest", {"digest": digest})
            transaction.execute(
                f"INSERT INTO push_devices ({_DEVICE_COLUMNS}, endpoint_digest, sign_ins) VALUES "  # noqa: S608 - our own words
                f"({', '.join(f':{name}' for name in Device._fields)}, :digest, :sign_ins)",
                {**device._asdict(), "digest": digest, "sign_ins": f" {' '.join(sign_ins)} "},
            )
            transaction.execute(
                "DELETE FROM push_devices WHERE id IN (SELECT id FROM push_devices WHERE user_id = :user_id "
                "ORDER BY created_at DESC, id LIMIT 1000 OFFSET :most)",
                {"user_id": user_id, "most": most},
            )
            return device

        return await self._database.write(work)

    async def devices(self, user_id: str) -> list[Device]:
        """A user's devices, newest first."""

        def work(transaction: Transaction) -> list[Device]:
            rows = transaction.execute(
                f"SELECT {_DEVICE_COLUMNS} FROM push_devices WHERE user_id = :user_id ORDER BY created_at DESC, id",  # noqa: S608 - our own words
                {"user_id": user_id},
            ).fetchall()
            return [_device(row) for row in rows]

        return await self._database.read(work)

    async def remove_device(self, device_id: str, user_id: str) -> Device:
        """Remove a user's device, or raise NotFound."""

        def work(transaction: Transaction) -> Device:
            rows = transaction.execute(
                f"DELETE FROM push_devices WHERE id = :id AND user_id = :user_id RETURNING {_DEVICE_COLUMNS}",  # noqa: S608 - our own words
                {"id": device_id, "user_id": user_id},
            ).fetchall()
            if not rows:
                raise NotFound(f"No device {device_id[:100]!r}.", hint="See `GET /my/notices` for yours.")
            return _device(rows[0])

        return await self._database.write(work)

    async def sent_to(self, device: Device, *, gone: bool) -> None:
        """Note that a device got a message; remove it if its push service says that it is gone."""

        def work(transaction: Transaction) -> None:
            # By its address too: it may have been added anew, with another one.
            which = "WHERE id = :id AND endpoint = :endpoint"
            values = {"id": device.id, "endpoint": device.endpoint}
            if gone:
                transaction.execute(f"DELETE FROM push_devices {which}", values)  # noqa: S608 - our own words
            else:
                values["now"] = transaction.now
                transaction.execute(f"UPDATE push_devices SET sent_at = :now {which}", values)  # noqa: S608 - our own words

        await self._database.write(work, relaxed=True)

    # Questions

    async def next_due(self, after_seconds: float, *, everybody: bool) -> float | None:
        """Seconds until a question has waited so long and nobody was told; None if there is none. `everybody`: also of
        users without a device."""

        def work(transaction: Transaction) -> float | None:
            now = transaction.now
            row = transaction.execute(
                "SELECT min(a.created_at) AS oldest FROM approvals AS a "  # noqa: S608 - our own words
                "LEFT JOIN notices AS n ON n.approval_id = a.id "
                f"WHERE {_PENDING} AND {_UNTOLD}{'' if everybody else f' AND {_HAS_DEVICE}'}",
                {"now": now, "lapsed": later(now, -CLAIM_SECONDS)},
            ).fetchone()
            oldest = row["oldest"] if row else None
            return None if oldest is None else max(0.0, _seconds(now, later(oldest, after_seconds)))

        return await self._database.read(work)

    async def claim(self, after_seconds: float, *, everybody: bool) -> list[Waiting]:
        """Claim the questions that have waited so long, for this server to tell about, oldest first."""

        def work(transaction: Transaction) -> list[Waiting]:
            now = transaction.now
            transaction.execute(
                "DELETE FROM notices WHERE claimed_at < :old AND NOT EXISTS "
                "(SELECT 1 FROM approvals AS a WHERE a.id = notices.approval_id AND a.status = 'pending')",
                {"old": later(now, -FORGET_SECONDS)},
            )
            rows = transaction.execute(
                "SELECT a.id, a.user_id, a.risk_level, a.description, a.deadline, p.name AS project "  # noqa: S608 - our own words
                "FROM approvals AS a JOIN projects AS p ON p.id = a.project_id "
                "LEFT JOIN notices AS n ON n.approval_id = a.id "
                f"WHERE {_PENDING} AND {_UNTOLD} AND a.created_at <= :before "
                "AND NOT EXISTS (SELECT 1 FROM notices AS g WHERE g.user_id = a.user_id AND g.claimed_at > :lately) "
                f"{'' if everybody else f'AND {_HAS_DEVICE} '}ORDER BY a.created_at, a.id LIMIT :most",
                {
                    "now": now,
                    "lapsed": later(now, -CLAIM_SECONDS),
                    "before": later(now, -after_seconds),
                    "lately": later(now, -GATHER_SECONDS),
                    "most": MOST_AT_ONCE,
                },
            ).fetchall()
            for row in rows:
                transaction.execute(
                    "INSERT INTO notices (approval_id, user_id, claimed_at) VALUES (:id, :user_id, :now) "
                    "ON CONFLICT (approval_id) DO UPDATE SET claimed_at = :now",
                    {"id": row["id"], "user_id": row["user_id"], "now": now},
                )
            return [_waiting(row, now) for row in rows]

        return await self._database.write(work)

    async def still_wait(self, approval_ids: Collection[str]) -> bool:
        """True if one of these questions still waits."""

        def work(transaction: Transaction) -> bool:
            return any(
                transaction.execute(
                    f"SELECT 1 FROM approvals AS a WHERE a.id = :id AND {_PENDING}",  # noqa: S608 - our own words
                    {"id": approval_id, "now": transaction.now},
                ).fetchone()
                for approval_id in approval_ids
            )

        return await self._database.read(work)

    async def finish(self, approval_ids: Collection[str]) -> None:
        """Finish claims: the person was told, or could not be."""

        def work(transaction: Transaction) -> None:
            for approval_id in approval_ids:
                values = {"id": approval_id, "now": transaction.now}
                transaction.execute("UPDATE notices SET sent_at = :now WHERE approval_id = :id", values)

        await self._database.write(work, relaxed=True)


def forget_devices(transaction: Transaction, sign_in: str, user_id: str) -> None:
    """Remove the devices that a sign-in of the page, or one it led to, had added."""
    transaction.execute(
        "DELETE FROM push_devices WHERE user_id = :user_id AND sign_ins LIKE :which",
        {"user_id": user_id, "which": f"% {sign_in} %"},
    )


def _device(row: Row) -> Device:
    return Device(*(row[name] for name in Device._fields))


def _waiting(row: Row, now: str) -> Waiting:
    return Waiting(
        row["id"],
        row["user_id"],
        row["project"],
        RiskLevel(row["risk_level"]),
        row["description"],
        _seconds(now, row["deadline"]),
    )


def _seconds(since: str, until: str) -> float:
    return (moment(until) - moment(since)).total_seconds()
