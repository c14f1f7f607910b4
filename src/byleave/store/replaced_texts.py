"""The texts that writes would replace, while people decide: kept beside the questions, which stay small.

Only what is too long for the question itself is here. It is never a reason to lose a question: where a user has too
much of it, what belongs to decided questions goes first, and then a new text is not kept; the digest is what binds.
A day later nobody needs it any more: the record has the digest.
"""

from .database import Transaction
from .transitions import later

KEPT_SECONDS = 24 * 3600
MAX_CHARACTERS = 32 * 1024 * 1024
"""Most that is kept for one user."""


def keep(transaction: Transaction, approval_id: str, user_id: str, text: str) -> bool:
    """Keep the text a question is about; False when there is no room."""
    transaction.change(
        "DELETE FROM replaced_texts WHERE created_at < :before", {"before": later(transaction.now, -KEPT_SECONDS)}
    )
    if _kept(transaction, user_id) + len(text) > MAX_CHARACTERS:
        transaction.change(
            "DELETE FROM replaced_texts WHERE user_id = :user_id AND approval_id NOT IN "
            "(SELECT id FROM approvals WHERE user_id = :user_id AND status = 'pending')",
            {"user_id": user_id},
        )
        if _kept(transaction, user_id) + len(text) > MAX_CHARACTERS:
            return False
    transaction.change(
        "INSERT INTO replaced_texts (approval_id, user_id, size, text, created_at) "
        "VALUES (:approval_id, :user_id, :size, :text, :now)",
        {
            "approval_id": approval_id,
            "user_id": user_id,
            "size": len(text),
            "text": text,
            "now": transaction.now,
        },
    )
    return True


def text_of(transaction: Transaction, approval_id: str) -> str | None:
    """The text a question is about, while it is kept."""
    row = transaction.one(
        "SELECT text FROM replaced_texts WHERE approval_id = :id AND created_at >= :since",
        {"id": approval_id, "since": later(transaction.now, -KEPT_SECONDS)},
    )
    return row["text"] if row else None


def _kept(transaction: Transaction, user_id: str) -> int:
    row = transaction.one(
        "SELECT coalesce(sum(size), 0) AS kept FROM replaced_texts WHERE user_id = :user_id", {"user_id": user_id}
    )
    return row["kept"] if row else 0
