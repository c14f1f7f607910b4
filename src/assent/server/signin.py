"""One-time codes that turn a link on the terminal into a signed-in page.

A code is random, works once and for ten minutes, and lives in memory only: whoever can read the terminal that printed
it is the user. It never carries more than the page needs (chat and approve).
"""

import hashlib
import secrets
import time
from collections.abc import Callable

CODE_SECONDS = 600.0
MOST_CODES = 1000
SESSION_SECONDS = 12 * 3600
COOKIE = "assent_session"


class SignIn:
    """The codes that are still good."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, tuple[str, float]] = {}

    def new_code(self, user: str) -> str:
        """A code for this user, good once and for ten minutes."""
        now = self._clock()
        self._codes = {key: value for key, value in self._codes.items() if value[1] > now}
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = (user, now + CODE_SECONDS)
        return code

    def redeem(self, code: str) -> str | None:
        """The user this code is for; None when it is unknown, used or too old."""
        user, until = self._codes.pop(_digest(code), ("", 0.0))
        return user if until > self._clock() else None


def _digest(code: str) -> str:
    # Kept as a digest: looking one up takes the same time however much of it was guessed.
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
