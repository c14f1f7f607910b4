"""A one-time link exchanged for a token of this program's own.

The code goes to the server of the link and to no other: redirects are not followed, a name of this machine is reached
by number, and nothing else is sent with it. A link that does not work says what to do: most are simply too old.
"""

import aiohttp
from pydantic import ValidationError
from yarl import URL

from byleave.protocol.errors import ByleaveError, ConfigurationError, Problem, RefusedError, UnreachableError
from byleave.protocol.sign_in import ExchangeBody, ExchangedToken

from .feed import CONNECT_SECONDS
from .loopback_address import Pinned

ANSWER_SECONDS = 30.0
MAX_ANSWER_BYTES = 64 * 1024


async def exchange_link(server_url: str, code: str) -> ExchangedToken:
    """The token for a link's code. Raises what a person is told."""
    base = URL(server_url)
    if base.scheme not in ("http", "https") or not base.host or base.user or base.query_string or base.fragment:
        raise ConfigurationError(f"{server_url!r} is not the address of a server.", hint="write it as http://HOST:PORT")
    url = await Pinned(base, connect_seconds=CONNECT_SECONDS).at(base.joinpath("signin", "exchange"))
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
    body = ExchangeBody(code=code).model_dump()
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.post(url, json=body, allow_redirects=False) as response,
        ):
            return _told(base, response.status, await response.content.read(MAX_ANSWER_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(
            f"Nothing answers at {base.origin()}.",
            hint="is the server of this link still running? start it, then get a new link",
        ) from error


def _told(base: URL, status: int, answer: bytes) -> ExchangedToken:
    try:
        if status == 200:
            return ExchangedToken.model_validate_json(answer)
        problem = Problem.model_validate_json(answer)
    except ValidationError:
        problem = None
    if problem is None or status in (404, 405):
        raise _no_exchange(base, status)
    raise RefusedError(problem.detail[:500], hint=None if problem.hint is None else problem.hint[:500])


def _no_exchange(base: URL, status: int) -> ByleaveError:
    return ConfigurationError(
        f"What answers at {base.origin()} gives no token for a link ({status}).",
        hint="is it a Byleave server of this version? a token works too: `byleave token --user NAME` prints one",
    )
