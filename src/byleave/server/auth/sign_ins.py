"""Sign-ins of the page: the one-time links that open them, their cookies, and their end.

A code of a link is random, works once and for ten minutes, and lives in memory only: whoever can read the terminal that
printed it is the user. A page that it signs in gets what a page needs (chat and approve). A program may exchange it for
a token of its own, which may do no more than what asked for the link. What it signs in never lasts longer than what
asked for it: a link is no way to make a short token or a stolen sign-in last, or a page able to execute.

A cookie is signed and good until its time, wherever it is copied to; so whether somebody signed out of it is asked of
the record each time. Signing out ends the sign-in, those that links it asked for led to, and every feed they read.
"""

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from byleave.protocol.errors import RefusedError
from byleave.protocol.states import Scope
from byleave.protocol.wire import timestamp
from byleave.server.errors import TooMany, Unauthenticated
from byleave.server.feed import FeedStream, Reader, StreamManager
from byleave.store import Store

from .tokens import LEEWAY_SECONDS, Principal, TokenVerifier, is_key

log = structlog.stdlib.get_logger(__name__)

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
OVER = "You are no longer signed in here."


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


class PageSessions:
    """Who is signed in to the page."""

    def __init__(self, verifier: TokenVerifier, store: Store, streams: StreamManager) -> None:
        self._verifier = verifier
        self._store = store
        self._streams = streams

    async def verify(self, cookies: Sequence[str], key: str) -> Principal:
        """Who is asking, or Unauthenticated: other programs of this host get to see the cookie, but not the key. They
        can set further ones beside it; the key says which one is meant."""
        holders = await self.holders(cookies)
        for principal in holders:
            if is_key(key, principal.page_key):
                return principal
        raise Unauthenticated("The page's cookie came without the page's key." if holders else OVER, hint=LINK_HINT)

    async def holders(self, cookies: Sequence[str]) -> list[Principal]:
        """Whose cookies these are, as far as they are good."""
        found: list[Principal] = []
        for cookie in cookies:
            with suppress(Unauthenticated):
                found.append(await self.holder(cookie))
        return found

    async def holder(self, cookie: str) -> Principal:
        """Whose cookie this is, or Unauthenticated. Nothing is to be done or told for the cookie alone."""
        try:
            principal = await self._verifier.verify(cookie)
        except Unauthenticated:
            raise Unauthenticated(OVER, hint=LINK_HINT) from None
        await self._check(principal.sign_ins)
        return principal

    async def end(self, principal: Principal) -> None:
        """Sign out: nothing of this sign-in is good any more, here or anywhere."""
        sign_in = principal.sign_ins[0]
        # None that it led to lasts longer than a sign-in can.
        good_until = time.time() + SESSION_SECONDS + LEEWAY_SECONDS
        until = timestamp(datetime.fromtimestamp(good_until, UTC))
        await self._store.sign_ins.end(sign_in, principal.user_id, until)
        ended = self._streams.end(principal.user_id, sign_in)
        log.info("signed out", user=principal.user_id, feeds=ended)

    async def open_feed(self, principal: Principal, reader: Reader) -> FeedStream:
        """A feed that ends with the sign-in it is read with, and no later than the cookie or the token."""
        ends = math.inf if principal.expires_at is None else principal.expires_at + LEEWAY_SECONDS
        stream = await self._streams.open(reader, principal.sign_ins, ends)
        try:
            # Only now: who signs out from here on finds the stream in the list of those to end.
            await self._check(principal.sign_ins)
        except BaseException:
            stream.close()
            raise
        return stream

    async def _check(self, sign_ins: tuple[str, ...]) -> None:
        if sign_ins and await self._store.sign_ins.any_ended(sign_ins):
            raise Unauthenticated(OVER, hint=LINK_HINT)


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
