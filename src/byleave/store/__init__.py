"""The record: the only SQL in Byleave.

State, the event that tells of it and its audit link are written in one transaction, and every change is a
compare-and-set. What callers get are frozen rows (`records`); what others should know travels as a hint after the
commit (`Database.on_commit`). Nothing here judges a call, talks to a client or waits for anyone.

Read `schema.sql` first, then `ledger` (feed and audit chain), then `executions`.
"""

import sqlite3

from .records import ApprovalRow, ExecutionRow, MessageRow, ProjectRow, RunRow, SessionRow, StoredEvent
from .sqlite import DAMAGE_HINT, DamagedError
from .store import Store

STORAGE_ERRORS = (sqlite3.OperationalError, OSError)
"""Raised by a full or failing disk; nothing of the unit was kept."""

__all__ = [
    "DAMAGE_HINT",
    "STORAGE_ERRORS",
    "ApprovalRow",
    "DamagedError",
    "ExecutionRow",
    "MessageRow",
    "ProjectRow",
    "RunRow",
    "SessionRow",
    "Store",
    "StoredEvent",
]
