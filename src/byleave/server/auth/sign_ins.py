"""Sign-ins of the page: one-time links, cookies and signing out.

A link's code is random and works once within ten minutes, at any server of the record, which keeps a digest of it:
whoever can read the terminal that printed it is the user. A page signed in by it gets the scopes chat and approve. A
program may exchange it for a token with no more scopes than the token or sign-in that asked for the link. Neither lasts
longer than that: a link cannot prolong a short token or a stolen sign-in, or make a page able to execute.

A cookie is signed and valid until it expires, wherever it is copied to; so each request asks the record whether it was
signed out. Signing out ends the sign-in, all sign-ins that came from its links, and every feed they read: here at once,
at other servers when they hear of it or look again.
"""

import asyncio
import hmac
import json
import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from byleave.bus import Bus
from byleave.protocol.errors import RefusedError
from byleave.protocol.states import Scope
from byleave.protocol.wire import moment, timestamp
from byleave.server.errors import TooMany, Unauthenticated
from byleave.server.feed import FeedStream, Reader, StreamManager
from byleave.store import STORAGE_ERRORS, Store
from byleave.store.sign_ins import SIGN_OUTS, LinkRow

from .tokens import LEEWAY_SECONDS, Principal, TokenVerifier, is_key

log = structlog.stdlib.get_logger(__name__)

CODE_SECONDS = 600.0
MOST_CODES_OF_ONE = 10
"""Most valid links of one user; a further one ends the oldest."""
ASKING_SECONDS = 60.0
MOST_ASKED = 10
"""Most links one user may ask for within `ASKING_SECONDS`."""
LONGEST_SESSION_SECONDS = 30 * 24 * 3600
"""Longest a page can stay signed in, whatever the settings say."""
PROGRAM_SECONDS = 30 * 24 * 3600
"""Longest life of a token that a program got for a link."""
PROGRAM_SCOPES = frozenset({Scope.CHAT, Scope.APPROVE, Scope.EXECUTE})
MOST_LED = 8
"""Longest chain of sign-ins that each came from a link of the one before."""
LOOK_AGAIN_SECONDS = 2.0
"""Interval at which sign-outs at other servers are looked for, in case a hint got lost."""
MOST_WRONG = 30
"""Most wrong codes within `ASKING_SECONDS` that one server answers as wrong; further ones get a 429. A right code
always works: nobody can lock others out by guessing, and 256 bits cannot be guessed."""
COOKIE = "byleave_session"
"""Prefix of all our cookie names; see `cookie_name`."""
LINK_HINT = "Open a new link: `byleave link` prints one, and so does `byleave up` when it starts."
OVER = "You are no longer signed in here."


class Code(NamedTuple):
    """The sign-in that a link stands for."""

    user: str
    session_until: float | None = None
    """Latest end of its sign-in, in seconds since 1970; None if only the usual length limits it."""
    scopes: frozenset[Scope] = PROGRAM_SCOPES
    """Scopes a program may get by it: never more than the asker has."""
    led_by: tuple[str, ...] = ()
    """The page sign-ins that led to it: its sign-in ends with them."""

    def session_seconds(self, longest: float) -> int:
        """Length of a sign-in by this link."""
        left = longest if self.session_until is None else self.session_until - time.time()
        return max(1, int(min(longest, left)))


class SignIn:
    """Links that are still good, at any server of this record."""

    def __init__(self, store: Store, key: bytes, clock: Callable[[], float] = time.monotonic) -> None:
        """`key` is that of the stored digests; `clock` times wrong codes only."""
        self._links = store.sign_ins
        self._key = key
        self._clock = clock
        self._wrong: list[float] = []

    async def new_code(self, user: str) -> str:
        """Make a code for this user, valid once within ten minutes."""
        return await self._make(Code(user))

    async def asked_for(
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
        link = Code(user, until, scopes & PROGRAM_SCOPES, led_by)
        return await self._make(link, (MOST_ASKED, ASKING_SECONDS))

    async def look_up(self, code: str) -> Code | None:
        """Look a code up without using it; None if it is unknown, used or expired."""
        return _code(await self._links.look_up_link(self._digest(code)))

    async def use(self, code: str) -> Code | None:
        """Look a code up and use it; of several at once, one gets it."""
        return _code(await self._links.use_link(self._digest(code)))

    def count_wrong(self) -> None:
        """Count a wrong code; raise TooMany if there were too many lately."""
        now = self._clock()
        self._wrong = [moment for moment in self._wrong if moment > now - ASKING_SECONDS]
        if len(self._wrong) >= MOST_WRONG:
            raise TooMany(
                "Too many wrong codes were tried within a minute.", hint="Wait a minute, then use a new link."
            )
        self._wrong.append(now)

    async def _make(self, link: Code, lately: tuple[int, float] | None = None) -> str:
        code = secrets.token_urlsafe(32)
        if not await self._links.add_link(
            self._digest(code), _row(link), seconds=CODE_SECONDS, most=MOST_CODES_OF_ONE, lately=lately
        ):
            raise TooMany(
                f"You asked for {MOST_ASKED} links within a minute.", hint="Use the last one, or wait a minute."
            )
        return code

    def _digest(self, code: str) -> str:
        return hmac.digest(self._key, code.encode("utf-8", "replace"), "sha256").hex()


class PageSessions:
    """The sign-ins of the page."""

    def __init__(self, verifier: TokenVerifier, store: Store, bus: Bus, streams: StreamManager) -> None:
        self._verifier = verifier
        self._store = store
        self._bus = bus
        self._streams = streams
        self._feeds: set[FeedStream] = set()
        """Open feeds that end with a sign-in."""
        self._watching: asyncio.Task[None] | None = None

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
        seconds = LONGEST_SESSION_SECONDS + LEEWAY_SECONDS
        await self._store.sign_ins.end(sign_in, principal.user_id, seconds=seconds)
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
        if principal.sign_ins:
            self._watch(stream)
        return stream

    async def close(self) -> None:
        """Stop watching for sign-outs."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _check(self, sign_ins: tuple[str, ...]) -> None:
        if sign_ins and await self._store.sign_ins.ended(sign_ins):
            raise Unauthenticated(OVER, hint=LINK_HINT)

    def _watch(self, stream: FeedStream) -> None:
        """End this feed also when its person signs out at another server."""
        if stream.closed:
            return
        self._feeds.add(stream)
        stream.on_close.append(lambda: self._feeds.discard(stream))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._end_feeds(), name="byleave-sign-outs")

    async def _end_feeds(self) -> None:
        """End feeds whose sign-in was ended anywhere, as long as there are any."""
        news = asyncio.Event()
        stop = self._bus.listen(SIGN_OUTS, lambda fact: news.set())
        try:
            while self._feeds:
                # Also looked at first: a sign-out may have been told of before we listened.
                news.clear()
                try:
                    ended = await self._store.sign_ins.ended({name for feed in self._feeds for name in feed.sign_ins})
                except STORAGE_ERRORS as error:  # nobody reads anything then; feeds that go on are looked at again
                    log.error("sign-outs could not be read", error=str(error))
                    ended = frozenset[str]()
                for feed in tuple(self._feeds):
                    if not ended.isdisjoint(feed.sign_ins):
                        feed.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                        await news.wait()
        finally:
            stop()


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


def _row(link: Code) -> LinkRow:
    until = link.session_until
    if until is not None and until > time.time() + CODE_SECONDS + PROGRAM_SECONDS:
        until = None  # later than any sign-in by this link could end, and maybe than a date can tell
    return LinkRow(
        link.user,
        " ".join(sorted(link.scopes)),
        json.dumps(link.led_by),
        None if until is None else timestamp(datetime.fromtimestamp(until, UTC)),
    )


def _code(row: LinkRow | None) -> Code | None:
    if row is None:
        return None
    until = None if row.session_until is None else moment(row.session_until).timestamp()
    scopes = frozenset(Scope(name) for name in row.scopes.split())
    return Code(row.user_id, until, scopes, tuple(json.loads(row.led_by)))
