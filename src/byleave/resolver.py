"""CheckedResolver: resolves names for aiohttp, and fails for those that lead where our programs may not go.

A name is checked by the very addresses that are connected to, so that no second lookup can answer differently. Only
what connects imports this: aiohttp takes long to load.
"""

import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from byleave.addresses import is_localhost, is_never_asked, is_public, read_address
from byleave.protocol.errors import ByleaveError, RefusedError


class CheckedResolver(AbstractResolver):
    """Resolves names, and fails if any address of a name may not be contacted."""

    def __init__(
        self,
        inner: AbstractResolver | None = None,
        *,
        allow_private: bool,
        trust_localhost: bool = False,
        private_hint: str = "Only public addresses are contacted.",
    ) -> None:
        """`inner`: None for the system's. `trust_localhost`: that name leads to this machine, and needs no leave."""
        self._inner = inner or aiohttp.ThreadedResolver()
        self._allow_private = allow_private
        self._trust_localhost = trust_localhost
        self._private_hint = private_hint

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = _loopback(host, port) if is_localhost(host) else await self._inner.resolve(host, port, family)
        if is_localhost(host) and self._trust_localhost:
            return found
        for each in found:
            if (refusal := self._refusal(host, each["host"])) is not None:
                raise refusal
        return found

    def _refusal(self, host: str, found: str) -> ByleaveError | None:
        address = read_address(found.partition("%")[0])
        if address is None or is_never_asked(address):
            return RefusedError(f"{host!r} leads to {found}, which is never asked.", hint="Check who answers for it.")
        if self._allow_private or is_public(address):
            return None
        return RefusedError(f"{host!r} leads to {found}, which is not a public address.", hint=self._private_hint)

    async def close(self) -> None:
        await self._inner.close()


def _loopback(host: str, port: int) -> list[ResolveResult]:
    """Resolve `localhost` to loopback without a lookup."""
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=numeric)
        for address, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))
    ]
