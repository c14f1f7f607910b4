"""Messages that are sent again because their answer was lost: found by the key their sender gave them.

The key is kept with the message, in its transaction: either both are there or neither. The same key finds the same
message and never makes another; with another message it is a conflict, and nothing is kept.
"""

import hashlib
from dataclasses import dataclass

from byleave.protocol.digests import canonical_json
from byleave.protocol.errors import ConflictError

from .database import Row, Transaction


@dataclass(frozen=True, slots=True)
class MessageKey:
    """The sender's name for one message, and what was sent under it."""

    key: str
    digest: str
    session_id: str | None
    """As it was sent: None asks for a new session."""

    @classmethod
    def of(cls, key: str, session_id: str | None, **sent: str | None) -> "MessageKey":
        return cls(key, hashlib.sha256(canonical_json(sent).encode("ascii")).hexdigest(), session_id)


def sent_before(transaction: Transaction, user_id: str, project_id: str, key: MessageKey) -> Row | None:
    """The message that was sent under this key: its id, session and run."""
    row = transaction.one(
        "SELECT message_keys.digest, message_keys.session_id AS asked_session, messages.id, messages.session_id, "
        "messages.run_id FROM message_keys JOIN messages ON messages.id = message_keys.message_id "
        "WHERE message_keys.project_id = :project_id AND message_keys.user_id = :user_id AND client_key = :key",
        {"project_id": project_id, "user_id": user_id, "key": key.key},
    )
    # Who sent it without a session may have learned meanwhile which one it opened.
    if row is not None and (
        row["digest"] != key.digest or key.session_id not in (row["asked_session"], row["session_id"])
    ):
        raise ConflictError(
            f"Another message was sent under the key {key.key!r}.",
            state="sent",
            hint="It was kept. Give each message a key of its own, and send the same message again under its key.",
        )
    return row


def remember(transaction: Transaction, user_id: str, project_id: str, key: MessageKey, message_id: str) -> None:
    """Keep under which key a message was sent."""
    transaction.change(
        "INSERT INTO message_keys (project_id, user_id, client_key, digest, session_id, message_id) "
        "VALUES (:project_id, :user_id, :key, :digest, :session_id, :message_id)",
        {
            "project_id": project_id,
            "user_id": user_id,
            "key": key.key,
            "digest": key.digest,
            "session_id": key.session_id,
            "message_id": message_id,
        },
    )
