"""search_web: one query to the one provider the user configured, and a bounded answer.

Each provider is a request and a way to read its JSON. Time and size are bounded, redirects are not followed (the
query and the key go to the host that was configured and nowhere else), and a key never appears in an error. No page
behind a hit is fetched.
"""

import json
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import aiohttp

from assent.protocol.errors import ConfigurationError, ToolFailure
from assent.protocol.tools import SearchWebParams, SearchWebResult, WebHit
from assent.protocol.values import JsonObject
from assent.settings import ClientSettings

_SECONDS = 15
_MAX_BYTES = 2 * 1024 * 1024
_MAX_TITLE = 300
_MAX_SNIPPET = 2000
_HINT = "Set ASSENT_SEARXNG_URL, ASSENT_TAVILY_API_KEY or ASSENT_BRAVE_API_KEY for the client."


class SearchProvider(Protocol):
    """Somebody who answers web searches."""

    async def search(self, query: str, max_results: int) -> list[WebHit]:
        """The best hits first, at most `max_results`."""
        ...


class SearxngProvider:
    """A SearXNG instance with its JSON format switched on."""

    def __init__(self, web: "BoundedWeb", url: str) -> None:
        self._web = web
        self._url = url.rstrip("/")

    async def search(self, query: str, max_results: int) -> list[WebHit]:
        answer = await self._web.ask("SearXNG", "GET", f"{self._url}/search", query={"q": query, "format": "json"})
        return _hits(answer.get("results"), "content", max_results)


class TavilyProvider:
    def __init__(self, web: "BoundedWeb", url: str, key: str) -> None:
        self._web = web
        self._url = url.rstrip("/")
        self._key = key

    async def search(self, query: str, max_results: int) -> list[WebHit]:
        answer = await self._web.ask(
            "Tavily",
            "POST",
            f"{self._url}/search",
            headers={"Authorization": f"Bearer {self._key}"},
            body={"query": query, "max_results": max_results},
        )
        return _hits(answer.get("results"), "content", max_results)


class BraveProvider:
    def __init__(self, web: "BoundedWeb", url: str, key: str) -> None:
        self._web = web
        self._url = url.rstrip("/")
        self._key = key

    async def search(self, query: str, max_results: int) -> list[WebHit]:
        answer = await self._web.ask(
            "Brave Search",
            "GET",
            f"{self._url}/res/v1/web/search",
            headers={"X-Subscription-Token": self._key, "Accept": "application/json"},
            query={"q": query, "count": str(max_results)},
        )
        pages: Any = answer.get("web")
        found = cast(JsonObject, pages).get("results") if isinstance(pages, dict) else None
        return _hits(found, "description", max_results)


def _hits(found: object, snippet_key: str, max_results: int) -> list[WebHit]:
    """Read hits out of a stranger's JSON; what is no hit with a web address is left out."""
    hits: list[WebHit] = []
    for item in cast(list[object], found) if isinstance(found, list) else []:
        if not isinstance(item, dict):
            continue
        entry = cast(JsonObject, item)
        url = entry.get("url")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            title, snippet = entry.get("title"), entry.get(snippet_key)
            hits.append(
                WebHit(
                    title=title[:_MAX_TITLE] if isinstance(title, str) else "",
                    url=url[:_MAX_SNIPPET],
                    snippet=snippet[:_MAX_SNIPPET] if isinstance(snippet, str) else "",
                )
            )
    return hits[:max_results]


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


class WebSearcher:
    """search_web through the configured provider."""

    def __init__(self, settings: ClientSettings, provider: SearchProvider | None = None) -> None:
        self._web = BoundedWeb()
        self._settings = settings
        self._provider = provider

    async def search(self, params: SearchWebParams) -> SearchWebResult:
        if self._provider is None:
            self._provider = self._configured()
        return SearchWebResult(results=await self._provider.search(params.query, params.max_results))

    def _configured(self) -> SearchProvider:
        known = {"searxng": self._searxng, "tavily": self._tavily, "brave": self._brave}
        wanted = self._settings.search_provider
        for name, make in known.items():
            if wanted in (None, name) and (provider := make()) is not None:
                return provider
        if wanted is not None:
            raise ConfigurationError(f"The web search provider {wanted!r} has no URL or key.", hint=_HINT)
        raise ToolFailure("No web search provider is configured.", hint=_HINT)

    def _searxng(self) -> SearchProvider | None:
        url = self._settings.searxng_url
        return SearxngProvider(self._web, url) if url else None

    def _tavily(self) -> SearchProvider | None:
        key = self._settings.tavily_api_key
        return TavilyProvider(self._web, self._settings.tavily_url, key.get_secret_value()) if key else None

    def _brave(self) -> SearchProvider | None:
        key = self._settings.brave_api_key
        return BraveProvider(self._web, self._settings.brave_url, key.get_secret_value()) if key else None

    async def close(self) -> None:
        await self._web.close()
