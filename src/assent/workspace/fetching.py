"""One request to a search provider: bounded in time and size, redirects not followed, keys never in an error."""

import json
from typing import cast
from urllib.parse import urlsplit

import aiohttp

from assent.protocol.errors import ToolFailure
from assent.protocol.values import JsonObject

_SECONDS = 15
_MAX_BYTES = 2 * 1024 * 1024


class BoundedWeb:
    """Asks a provider's API for JSON within bounds of time and size."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self,
        name: str,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        body: JsonObject | None = None,
    ) -> JsonObject:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS))
        host = urlsplit(url).hostname or "its host"
        try:
            async with self._session.request(
                method, url, headers=headers, params=query, json=body, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise _refused(name, response.status)
                data = await _read_bounded(response, name)
        except TimeoutError as error:
            raise ToolFailure(f"{name} did not answer within {_SECONDS} s.", hint="Try again later.") from error
        except (aiohttp.ClientError, ValueError) as error:
            # Not the error's own text: it may quote the address or headers, and so a key.
            raise ToolFailure(f"{name} at {host} could not be reached ({type(error).__name__}).") from None
        try:
            answer: object = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ToolFailure(f"{name} answered with something that is no JSON object.")
        return cast(JsonObject, answer)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _refused(name: str, status: int) -> ToolFailure:
    if status in (401, 403):
        return ToolFailure(f"{name} refused the request ({status}).", hint="Check its API key or its settings.")
    if status == 429:
        return ToolFailure(f"{name} says there were too many requests ({status}).", hint="Try again later.")
    if 300 <= status < 400:
        return ToolFailure(f"{name} redirects elsewhere ({status}), which is not followed.", hint="Check its URL.")
    return ToolFailure(f"{name} answered with status {status}.")


async def _read_bounded(response: aiohttp.ClientResponse, name: str) -> bytes:
    """The body, counted after decompression."""
    data = bytearray()
    async for piece in response.content.iter_chunked(65536):
        data += piece
        if len(data) > _MAX_BYTES:
            raise ToolFailure(f"{name} answered with more than {_MAX_BYTES} bytes.")
    return bytes(data)
