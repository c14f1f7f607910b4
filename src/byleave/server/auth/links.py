"""One-time codes that turn a link on the terminal into a signed-in page.

A code is random, works once and for ten minutes, and lives in memory only: whoever can read the terminal that printed
it is the user. A page that it signs in gets what a page needs (chat and approve). A program may exchange it for a token
of its own, which may do no more than what asked for the link. What it signs in never lasts longer than what asked for
it: a link is no way to make a short token or a stolen sign-in last, or a page able to execute.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from byleave.protocol.errors import RefusedError
from byleave.protocol.states import Scope
from byleave.server.errors import TooMany

CODE_SECONDS = 600.0
MOST_CODES = 1000
MOST_CODES_OF_ONE = 10
"""Links of one user that are good at the same time; a further one ends the oldest."""
ASKING_SECONDS = 60.0
MOST_ASKED = 10
"""Links one user may ask for within `ASKING_SECONDS`."""
SESSION_SECONDS = 12 * 3600
PROGRAM_SECONDS = 30 * 24 * 3600
"""How long a token lasts that a program got for a link."""
PROGRAM_SCOPES = frozenset({Scope.CHAT, Scope.APPROVE, Scope.EXECUTE})
MOST_LED = 8
"""Sign-ins that may follow from one another by links."""
MOST_WRONG = 30
"""Wrong codes within `ASKING_SECONDS` that are told they are wrong; the rest is told to wait. A right one always
works: nobody can keep others out by guessing, and guessing 256 bits leads nowhere."""
COOKIE = "byleave_session"
"""What the names of all our cookies begin with; see `cookie_name`."""
LINK_HINT = "Open a new link: `byleave link` prints one, and so does `byleave up` when it starts."


class Code(NamedTuple):
    """What a link stands for."""

    user: str
    good_until: float
    """By our clock."""
    session_until: float | None
    """When what it signs in must have ended, in seconds since 1970; None: nothing but its usual length."""
    scopes: frozenset[Scope] = PROGRAM_SCOPES
    """What a program may get by it: never more than what asked for it has."""
    led_by: tuple[str, ...] = ()
    """The sign-ins of the page that asked for it: what it signs in ends with them."""

    def session_seconds(self, longest: int = SESSION_SECONDS) -> int:
        """How long a sign-in by this link lasts."""
        left = longest if self.session_until is None else self.session_until - time.time()
        return max(1, min(longest, int(left)))


class SignIn:
    """The codes that are still good."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, Code] = {}
        self._asked: dict[str, list[float]] = {}
        self._wrong: list[float] = []

    def new_code(
        self,
        user: str,
        *,
        until: float | None = None,
        scopes: frozenset[Scope] = PROGRAM_SCOPES,
        led_by: tuple[str, ...] = (),
    ) -> str:
        """A code for this user, good once and for ten minutes. `until`: when its sign-in ends at the latest."""
        now = self._clock()
        self._codes = {key: code for key, code in self._codes.items() if code.good_until > now}
        own = [key for key, code in self._codes.items() if code.user == user]
        for key in own[: 1 - MOST_CODES_OF_ONE]:
            del self._codes[key]
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = Code(user, now + CODE_SECONDS, until, scopes & PROGRAM_SCOPES, led_by)
        return code

    def asked_for(
        self,
        user: str,
        *,
        until: float | None,
        scopes: frozenset[Scope] = PROGRAM_SCOPES,
        led_by: tuple[str, ...] = (),
    ) -> str:
        """The same over the network: not more often than a person would ask."""
        if len(led_by) >= MOST_LED:
            raise RefusedError(
                "This sign-in is the last of too many that each asked for the next.", hint="Run `byleave link` instead."
            )
        now = self._clock()
        self._asked = {
            name: recent
            for name, moments in self._asked.items()
            if (recent := [moment for moment in moments if moment > now - ASKING_SECONDS])
        }
        asked = self._asked.setdefault(user, [])
        if len(asked) >= MOST_ASKED:
            raise TooMany(
                f"You asked for {MOST_ASKED} links within a minute.", hint="Use the last one, or wait a minute."
            )
        asked.append(now)
        return self.new_code(user, until=until, scopes=scopes, led_by=led_by)

    def look_up(self, code: str) -> Code | None:
        """What a code stands for, without using it up; None when it is unknown, used or too old."""
        found = self._codes.get(_digest(code))
        return found if found is not None and found.good_until > self._clock() else None

    def use(self, code: str) -> Code | None:
        """The same, and it is used up."""
        found = self.look_up(code)
        self._codes.pop(_digest(code), None)
        return found

    def count_wrong(self) -> None:
        """Somebody tried a code that is none; TooMany when that happens too often."""
        now = self._clock()
        self._wrong = [moment for moment in self._wrong if moment > now - ASKING_SECONDS]
        if len(self._wrong) >= MOST_WRONG:
            raise TooMany(
                "Too many wrong codes were tried within a minute.", hint="Wait a minute, then use a new link."
            )
        self._wrong.append(now)


def cookie_name(host: str) -> str:
    """What the cookie of the page at this host is called. Browsers keep one of a name for all ports of a host: two
    servers there, or two behind tunnels, must not sign a person out of one another."""
    _, colon, port = host.rpartition(":")
    return f"{COOKIE}_{port}" if colon and port.isascii() and port.isdigit() else COOKIE


def cookies_in(header: str) -> list[str]:
    """What a browser sent as the page's cookie. It may be several: those of other servers of this host, and what
    programs on other ports set under the same name for a path of ours, which browsers send first."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for name, _, value in pairs if value and (name == COOKIE or name.startswith(f"{COOKIE}_"))]


def _digest(code: str) -> str:
    # Kept as a digest: looking one up takes the same time however much of it was guessed.
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
