"""UserLimits: how many calls one user may have open, and how much of the record they may fill.

Another user's calls never count, and calls of agents elsewhere have a limit of their own: an agent must not keep its
person from working. Decided inside the transaction that begins a call. An open call is never ended for a
limit, and a report never refused: it is of a call that was accepted.

Counting costs a statement, so it is not done for each call: once counted, a user may begin as many as there was room
for. Ends are not noticed meanwhile, so the next count finds at least as much room. Each server counts what it begins:
several on one database may let a user have as many times as much.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from byleave.protocol.errors import RefusedError
from byleave.protocol.executions import agent_name
from byleave.settings import ServerSettings
from byleave.store.database import Transaction
from byleave.store.transitions import NewExecution, count_open

MEGABYTE = 1024 * 1024
MOST_USERS = 10_000
"""Users whose room is remembered; the others' calls are counted again."""


class RecordFullError(RefusedError):
    """A call of a user whose part of the record is full. Nothing of it is recorded: that would fill it further."""


class UserLimits:
    """The limits of a server, and what it knows of its users."""

    def __init__(self, settings: ServerSettings) -> None:
        self._most_open = settings.user_open_calls
        self.most_bytes = settings.user_mb * MEGABYTE
        """Most that a user's part of the record may have before further calls are refused; 0 for no limit."""
        self.met = asyncio.Event()
        """Set when somebody met that limit: it is worth measuring again."""
        self._room: dict[tuple[str, bool], int] = {}
        """Calls that a user, or their agents elsewhere, may begin before the open ones are counted again."""
        self._stored: Counter[str] = Counter()
        """Bytes of each user's record when it was last measured, and what was added since."""
        self._added: Counter[str] = Counter()
        """Bytes added since the last measurement began: it may have missed them."""

    def admit(self, transaction: Transaction, new: NewExecution, *, begins: bool) -> str | None:
        """Count a call that is recorded, and if it `begins`, as open; return why it may not begin, or None if it may.

        Raises RecordFullError if there is no room to record it.
        """
        if self.most_bytes:
            self._check_room(new)
        most = self._most_open
        if not most or not begins:
            return None
        from_elsewhere = new.run_id is None and new.agent_id is not None and agent_name(new.agent_id) != ""
        user_id, _ = key = new.user_id, from_elsewhere
        room = self._room.get(key, 0)
        if room <= 0:
            room = most - count_open(transaction, user_id, from_elsewhere=from_elsewhere, most=most)
            if room <= 0:
                whose = "this user's agents elsewhere" if from_elsewhere else "this user"
                until = "until some have ended or are cancelled"
                return f"{most} calls of {whose} are open already; no more begin {until}."
        if len(self._room) >= MOST_USERS:
            self._room.clear()
        self._room[key] = room - 1
        return None

    def _check_room(self, new: NewExecution) -> None:
        """Refuse a call of a user whose part of the record is full, and count what it adds."""
        if self._stored[new.user_id] >= self.most_bytes:
            raise RecordFullError(
                f"This user's part of the record is full: it has {self.most_bytes // MEGABYTE:,} MB, the most that "
                "BYLEAVE_USER_MB allows.",
                hint="On the server, the operator removes old calls (byleave db prune --older-than 30d) or raises "
                "BYLEAVE_USER_MB.",
            )
        self.add(new.user_id, new.tool_params, new.true_params)

    def add(self, user_id: str, *texts: str | None) -> None:
        """Count what was recorded for a user since the last measurement."""
        size = sum(len(text) for text in texts if text is not None)
        self._stored[user_id] += size
        self._added[user_id] += size

    def measuring(self) -> None:
        """Note that a measurement begins."""
        self._added.clear()

    def measured(self, shares: Mapping[str, int]) -> None:
        """Take the bytes that each user's part of the record had, by the measurement that began last."""
        self._stored = Counter(shares) + self._added
