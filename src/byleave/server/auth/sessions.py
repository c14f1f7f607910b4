"""The page's sign-ins: verified by their cookie, their key and the record, and ended for good.

A cookie is signed and good until its time, wherever it is copied to; so whether somebody signed out of it is asked of
the record each time. Signing out ends the sign-in, those that links it asked for led to, and every feed they read.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from byleave.protocol.wire import timestamp
from byleave.server.errors import Unauthenticated
from byleave.server.feed import FeedStream, Reader, StreamManager
from byleave.store import Store

from .links import LINK_HINT, SESSION_SECONDS
from .tokens import LEEWAY_SECONDS, Principal, TokenVerifier, is_key

log = structlog.stdlib.get_logger(__name__)

OVER = "You are no longer signed in here."


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
