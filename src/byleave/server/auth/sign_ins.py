"""Sign-ins of the page: one-time links, cookies and signing out.

A link's code is random, works once within ten minutes, and is kept in memory only: whoever can read the terminal that
printed it is the user. A page signed in by it gets the scopes chat and approve. A program may exchange it for a token
with no more scopes than the token or sign-in that asked for the link. Neither lasts longer than that: a link cannot
prolong a short token or a stolen sign-in, or make a page able to execute.

A cookie is signed and valid until it expires, wherever it is copied to; so each request asks the record whether it was
signed out. Signing out ends the sign-in, all sign-ins that came from its links, and every feed they read.
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
"""Most valid links of one user; a further one ends the oldest."""
ASKING_SECONDS = 60.0
MOST_ASKED = 10
"""Most links one user may ask for within `ASKING_SECONDS`."""
SESSION_SECONDS = 12 * 3600
PROGRAM_SECONDS = 30 * 24 * 3600
"""Longest life of a token that a program got for a link."""
PROGRAM_SCOPES = frozenset({Scope.CHAT, Scope.APPROVE, Scope.EXECUTE})
MOST_LED = 8
"""Longest chain of sign-ins that each came from a link of the one before."""
MOST_WRONG = 30
"""Most wrong codes within `ASKING_SECONDS` that are answered as wrong; further ones get a 429. A right code always
works: nobody can lock others out by guessing, and 256 bits cannot be guessed."""
COOKIE = "byleave_session"
"""Prefix of all our cookie names; see `cookie_name`."""
LINK_HINT = "Open a new link: `byleave link` prints one, and so does `byleave up` when it starts."
OVER = "You are no longer signed in here."


class Code(NamedTuple):
    """The sign-in that a link stands for."""

    user: str
    good_until: float
    """By our clock."""
    session_until: float | None
    """Latest end of its sign-in, in seconds since 1970; None if only the usual length limits it."""
    scopes: frozenset[Scope] = PROGRAM_SCOPES
    """Scopes a program may get by it: never more than the asker has."""
    led_by: tuple[str, ...] = ()
    """The page sign-ins that led to it: its sign-in ends with them."""

    def session_seconds(self, longest: int = SESSION_SECONDS) -> int:
        """Length of a sign-in by this link."""
        left = longest if self.session_until is None else self.session_until - time.time()
        return max(1, min(longest, int(left)))


class SignIn:
    """The codes that are still valid."""

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
        """Make a code for this user, valid once within ten minutes. `until` is the latest end of its sign-in."""
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
        """Make a code for a request over the network, with a rate limit for each user."""
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
        """Look a code up without using it; None if it is unknown, used or expired."""
        found = self._codes.get(_digest(code))
        return found if found is not None and found.good_until > self._clock() else None

    def use(self, code: str) -> Code | None:
        """Look a code up and use it."""
        found = self.look_up(code)
        self._codes.pop(_digest(code), None)
        return found

    def count_wrong(self) -> None:
        """Count a wrong code; raise TooMany if there were too many lately."""
        now = self._clock()
        self._wrong = [moment for moment in self._wrong if moment > now - ASKING_SECONDS]
        if len(self._wrong) >= MOST_WRONG:
            raise TooMany(
                "Too many wrong codes were tried within a minute.", hint="Wait a minute, then use a new link."
            )
        self._wrong.append(now)


class PageSessions:
    """The sign-ins of the page."""

    def __init__(self, verifier: TokenVerifier, store: Store, streams: StreamManager) -> None:
        self._verifier = verifier
        self._store = store
        self._streams = streams

    async def verify(self, cookies: Sequence[str], key: str) -> Principal:
        """Return who is asking, or raise Unauthenticated. Other programs of this host see the cookie, but not the key.
        They can set further cookies beside it; the key selects the right one."""
        holders = await self.holders(cookies)
        for principal in holders:
            if is_key(key, principal.page_key):
                return principal
        raise Unauthenticated("The page's cookie came without the page's key." if holders else OVER, hint=LINK_HINT)

    async def holders(self, cookies: Sequence[str]) -> list[Principal]:
        """Return the holders of those cookies that are valid."""
        found: list[Principal] = []
        for cookie in cookies:
            with suppress(Unauthenticated):
                found.append(await self.holder(cookie))
        return found

    async def holder(self, cookie: str) -> Principal:
        """Return the cookie's holder, or raise Unauthenticated. The cookie alone must authorize nothing."""
        try:
            principal = await self._verifier.verify(cookie)
        except Unauthenticated:
            raise Unauthenticated(OVER, hint=LINK_HINT) from None
        await self._check(principal.sign_ins)
        return principal

    async def end(self, principal: Principal) -> None:
        """Sign out: nothing of this sign-in is valid any more, here or anywhere."""
        sign_in = principal.sign_ins[0]
        # No sign-in that it led to can last longer than this.
        good_until = time.time() + SESSION_SECONDS + LEEWAY_SECONDS
        until = timestamp(datetime.fromtimestamp(good_until, UTC))
        await self._store.sign_ins.end(sign_in, principal.user_id, until)
        ended = self._streams.end(principal.user_id, sign_in)
        log.info("signed out", user=principal.user_id, feeds=ended)

    async def open_feed(self, principal: Principal, reader: Reader) -> FeedStream:
        """Open a feed that ends with its sign-in, and no later than its cookie or token."""
        ends = math.inf if principal.expires_at is None else principal.expires_at + LEEWAY_SECONDS
        stream = await self._streams.open(reader, principal.sign_ins, ends)
        try:
            # Checked after opening: a sign-out from here on finds the stream in the list and ends it.
            await self._check(principal.sign_ins)
        except BaseException:
            stream.close()
            raise
        return stream

    async def _check(self, sign_ins: tuple[str, ...]) -> None:
        if sign_ins and await self._store.sign_ins.any_ended(sign_ins):
            raise Unauthenticated(OVER, hint=LINK_HINT)


def cookie_name(host: str) -> str:
    """Name of the page's cookie at this host, with its port. Browsers share cookies between all ports of a host: two
    servers there, or two behind tunnels, must not replace each other's."""
    _, colon, port = host.rpartition(":")
    return f"{COOKIE}_{port}" if colon and port.isascii() and port.isdigit() else COOKIE


def cookies_in(header: str) -> list[str]:
    """All values sent under our cookie names: also those of other servers of this host, and those that programs on
    other ports set under the same name for a path of ours, which browsers send first."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for name, _, value in pairs if value and (name == COOKIE or name.startswith(f"{COOKIE}_"))]


def _digest(code: str) -> str:
    # Codes are kept as digests, so that the time of a lookup tells nothing about a guess.
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
