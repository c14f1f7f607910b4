"""Which pages of other origins may use this server: those the operator listed, with a bearer token and nothing else.

Without the setting there are none. The list is compared whole and exactly, as browsers write an origin; `null`, other
ports, other schemes and names that merely look alike are others. Credentials are never allowed: the cookie is for our
own page. A page that is not listed learns nothing, not even that there is a list.
"""

from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.responses import Response

HeaderOf = Callable[[bytes], str]

API = "/my/"
FILES = "/page/"
PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "Authorization, Content-Type, Last-Event-ID",
    "access-control-max-age": "600",
    "vary": "Origin",
}
READABLE = b"Date, Retry-After"


class Origins:
    """The origins that were listed."""

    def __init__(self, listed: Iterable[str]) -> None:
        self._listed = frozenset(listed)

    def allowing(self, path: str, header: HeaderOf) -> list[tuple[bytes, bytes]]:
        """The headers by which a browser lets a page of another origin read this answer."""
        if not self._listed or not path.startswith((API, FILES)):
            return []
        # Also for those who are not listed: no cache may hand the answer for one to another.
        found = [(b"vary", b"Origin")]
        public = path.startswith(FILES)
        if public:
            # The files are the same for everybody; a plain <link> or <script> does not even say where it is.
            found.append((b"cross-origin-resource-policy", b"cross-origin"))
        origin = header(b"origin")
        if origin in self._listed and (public or _has_bearer(header)):
            found += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", READABLE),
            ]
        return found

    def is_preflight(self, path: str, header: HeaderOf) -> bool:
        """Whether a browser asks on behalf of a listed page what it may send."""
        return (
            path.startswith((API, FILES))
            and bool(header(b"access-control-request-method"))
            and header(b"origin") in self._listed
        )

    def preflight(self, origin: str) -> Response:
        """The answer to that, the same for every path: it tells nothing of what is there."""
        return Response(status_code=204, headers={"access-control-allow-origin": origin, **PREFLIGHT})


def is_of(origin: str, host: str) -> bool:
    """Whether an origin is that of a page this host served."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # a bracket without its other
        return False


def _has_bearer(header: HeaderOf) -> bool:
    return header(b"authorization").lower().startswith("bearer ")
