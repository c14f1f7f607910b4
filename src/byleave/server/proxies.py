"""TrustedProxies: the true sender, scheme and host of a request that a proxy passed on.

`X-Forwarded-For`, `-Proto` and `-Host` are believed from listed addresses only, and dropped from everybody else:
whoever could set them would choose the address that is logged and limited, and whether the cookie is `Secure`. What a
listed proxy says twice or in other words is refused and not guessed at: the sender may have added to it.
"""

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import Scope

from .bodies import Headers
from .errors import WrongForm

FOR, PROTO, HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
FORWARDED = frozenset({FOR, PROTO, HOST, b"x-forwarded-port", b"x-real-ip", b"forwarded", b"via"})
"""Headers that proxies add; a program that asks us directly sends none."""
WAS_FORWARDED = "byleave.forwarded"
"""True in the scope of a request that carried any of them."""

_SEPARATORS = re.compile(r"[,;]")  # headers given twice are joined by the second
_WITH_PORT = re.compile(r"\[(.*)\](?::[0-9]+)?|([0-9.]+):[0-9]+")
_HINT = "Let the proxy set this header itself, once, as in deploy/nginx.conf."

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedProxies:
    """The proxies that the operator listed."""

    def __init__(self, listed: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(one) for one in listed]

    def see_through(self, scope: Scope, headers: Headers) -> Headers:
        """Put the true sender, scheme and host into the scope; return the headers without those of proxies."""
        scope[WAS_FORWARDED] = True
        own = {name: value for name, value in headers.items() if name not in FORWARDED}
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in FORWARDED]
        peer = None if scope["client"] is None else _address(scope["client"][0])
        if peer is None or not self._trusts(peer):
            return own
        if FOR in headers:
            scope["client"] = (str(self._sender(peer, headers[FOR])), 0)
        if PROTO in headers:
            scope["scheme"] = _scheme(headers[PROTO])
        if HOST in headers:
            host = _one(headers[HOST], "X-Forwarded-Host")
            own[b"host"] = host
            others = [pair for pair in scope["headers"] if pair[0] != b"host"]
            scope["headers"] = [(b"host", host.encode("latin-1")), *others]
        return own

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _sender(self, peer: Address, chain: str) -> Address:
        """The last address that no trusted proxy has: what is to the left of it, anybody may have written."""
        for text in reversed(_SEPARATORS.split(chain)):
            address = _address(text)
            if address is None:
                break
            peer = address
            if not self._trusts(peer):
                break
        return peer


def _address(text: str) -> Address | None:
    text = text.strip().strip('"')
    with_port = _WITH_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port[1] or with_port[2] or ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _one(value: str, name: str) -> str:
    if _SEPARATORS.search(value):
        raise WrongForm(f"A proxy sent {name} twice, or with several values.", hint=_HINT)
    return value.strip()


def _scheme(value: str) -> str:
    scheme = _one(value, "X-Forwarded-Proto").lower()
    if scheme not in ("http", "https"):
        raise WrongForm("A proxy sent an X-Forwarded-Proto that is neither http nor https.", hint=_HINT)
    return scheme
