"""The record: the only SQL in Byleave.

State, its event and its audit link are written in one transaction, and every change is a compare-and-set. Callers get
frozen rows; others are told by a hint after the commit (`Database.on_commit`). Nothing here judges a call,
talks to a client or waits for anyone.

Read `schema.sql` first, then `ledger` (feed and audit chain), then `executions`.
"""

import sqlite3

from .database import InUseError, StorageError, UnknownEndError
from .records import ApprovalRow, MessageRow, ProjectRow, RunRow, SessionRow, StoredEvent
from .sqlite import DAMAGE_HINT, DamagedError
from .store import Store
from .transitions import ExecutionRow

STORAGE_ERRORS = (sqlite3.OperationalError, StorageError)
"""Raised by a full or failing disk, or a database server that is away."""

__all__ = [
    "DAMAGE_HINT",
    "STORAGE_ERRORS",
    "ApprovalRow",
    "DamagedError",
    "ExecutionRow",
    "InUseError",
    "MessageRow",
    "ProjectRow",
    "RunRow",
    "SessionRow",
    "StorageError",
    "Store",
    "StoredEvent",
    "UnknownEndError",
]
