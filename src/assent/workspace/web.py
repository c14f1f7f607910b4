"""search_web: one query to the one provider the user configured, and a bounded answer.

Each provider is a request and a way to read its JSON. Time and size are bounded, redirects are not followed (the
query and the key go to the host that was configured and nowhere else), and a key never appears in an error. No page
behind a hit is fetched.
"""

from typing import Any, Protocol, cast

from assent.protocol.errors import ConfigurationError, ToolFailure
from assent.protocol.tools import SearchWebParams, SearchWebResult, WebHit
from assent.protocol.values import JsonObject
from assent.settings import ClientSettings

_MAX_TITLE = 300
_MAX_SNIPPET = 2000
_HINT = "Set ASSENT_SEARXNG_URL, ASSENT_TAVILY_API_KEY or ASSENT_BRAVE_API_KEY for the client."


class SearchProvider(Protocol):
    """Somebody who answers web searches."""

    async def search(self, query: str, max_results: int) -> list[WebHit]:
        """The best hits first, at most `max_results`."""
        ...


class Fetcher(Protocol):
    """Asks an API for JSON within bounds of time and size."""

    async def ask(
        self,
        name: str,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        body: JsonObject | None = None,
    ) -> JsonObject: ...

    async def close(self) -> None: ...


class SearxngProvider:
    """A SearXNG instance with its JSON format switched on."""

    def __init__(self, web: Fetcher, url: str) -> None:
        self._web = web
        self._url = url.rstrip("/")

    async def search(self, query: str, max_results: int) -> list[WebHit]:
        answer = await self._web.ask("SearXNG", "GET", f"{self._url}/search", query={"q": query, "format": "json"})
        return _hits(answer.get("results"), "content", max_results)


class TavilyProvider:
    def __init__(self, web: Fetcher, url: str, key: str) -> None:
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
    def __init__(self, web: Fetcher, url: str, key: str) -> None:
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


class WebSearcher:
    """search_web through the configured provider."""

    def __init__(self, settings: ClientSettings, provider: SearchProvider | None = None) -> None:
        self._fetcher: Fetcher | None = None
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

    @property
    def _web(self) -> Fetcher:
        if self._fetcher is None:
            # Here and not above: the HTTP client takes longer to load than most commands take to run.
            from .fetching import BoundedWeb

            self._fetcher = BoundedWeb()
        return self._fetcher

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
        if self._fetcher is not None:
            await self._fetcher.close()
