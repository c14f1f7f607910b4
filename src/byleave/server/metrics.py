"""Exposition: what `/metrics` answers, and who may read it.

Nothing is counted before somebody asks: a rate needs two readings, so Prometheus misses nothing, and a server that
nobody watches pays nothing. Without a token only a program on this machine may read: what a proxy on it passes on
comes from anywhere, so any sign of one is a reason to refuse.
"""

import asyncio
import contextlib
import hmac
import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from byleave import telemetry
from byleave.calls.spans import Observer
from byleave.protocol.errors import RefusedError
from byleave.telemetry.prometheus import Registry

from .errors import Unauthenticated
from .proxies import WAS_FORWARDED
from .services import Services

PART = "metrics"
FIRST_LOOK_SECONDS = 5.0
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HINT = "Set BYLEAVE_METRICS_TOKEN on the server, and send it as `Authorization: Bearer …`."


class Exposition:
    """Metrics of one server, from the first request on."""

    def __init__(self, parts: Services) -> None:
        self._registry = Registry()
        telemetry.add_meter(self._registry)
        self._observer: Observer | None = None
        if parts.observer is None:
            self._observer = Observer(parts.store, parts.bus, parts.presence)
            self._observer.start()

    @classmethod
    async def of(cls, parts: Services) -> "Exposition":
        found = parts.on_demand.get(PART)
        if isinstance(found, cls):
            return found
        made = cls(parts)
        parts.on_demand[PART] = made
        if made._observer is not None:
            with contextlib.suppress(Exception):  # numbers that need no database are worth having without it
                async with asyncio.timeout(FIRST_LOOK_SECONDS):
                    await made._observer.look()
        return made

    def text(self) -> str:
        return self._registry.text()

    async def close(self) -> None:
        telemetry.remove_meter(self._registry)
        if self._observer is not None:
            await self._observer.stop()


def check_may_read(token: SecretStr | None, scope: Mapping[str, Any], authorization: str, host: str) -> None:
    """Raise unless the asker has the token or, when there is none, is a program on this machine."""
    if token is None:
        if scope.get(WAS_FORWARDED) or not _is_local(scope["client"], host):
            raise RefusedError("Without a token only a program on the server's own machine reads this.", hint=HINT)
        return
    kind, _, given = authorization.partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.get_secret_value().encode()):
        raise Unauthenticated("This needs the token of the server's metrics.", hint=HINT)


def _is_local(client: tuple[str, int] | None, host: str) -> bool:
    address = None if client is None else ipaddress.ip_address(client[0])
    mapped = getattr(address, "ipv4_mapped", None) or address
    # A proxy that adds no headers may still pass on the name that it was asked by.
    return mapped is not None and mapped.is_loopback and urlsplit(f"//{host}").hostname in LOCAL_NAMES
