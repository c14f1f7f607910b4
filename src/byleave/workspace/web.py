"""search_web: one query to the one provider the user configured, and a bounded answer.

Each provider is a request and a way to read its JSON. The query and the key go to the host that was configured and
nowhere else (`fetching` sees to that), and a key never appears in an error. A hit is a stranger's text: what is no
plain web address is left out, and hidden characters are made visible. No page behind a hit is fetched.
"""

from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from byleave.gate import safe_text
from byleave.protocol.errors import ByleaveError, ConfigurationError, ToolFailure
from byleave.protocol.tools import SearchWebParams, SearchWebResult, WebHit
from byleave.protocol.wire import JsonObject
from byleave.settings import ClientSettings

_MAX_TITLE = 300
_MAX_SNIPPET = 2000
_MAX_URL = 2000
_HINT = "Set BYLEAVE_SEARXNG_URL, BYLEAVE_TAVILY_API_KEY or BYLEAVE_BRAVE_API_KEY for the client."


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
        setting: str,
        keys: dict[str, str] | None = None,
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
        answer = await self._web.ask(
            "SearXNG",
            "GET",
            f"{self._url}/search",
            setting="BYLEAVE_SEARXNG_URL",
            query={"q": query, "format": "json"},
        )
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
            setting="BYLEAVE_TAVILY_URL",
            keys={"Authorization": f"Bearer {self._key}"},
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
            setting="BYLEAVE_BRAVE_URL",
            keys={"X-Subscription-Token": self._key},
            query={"q": query, "count": str(max_results)},
        )
        pages: Any = answer.get("web")
        found = cast(JsonObject, pages).get("results") if isinstance(pages, dict) else None
        return _hits(found, "description", max_results)


def _hits(found: object, snippet_key: str, max_results: int) -> list[WebHit]:
    """Read hits out of a stranger's JSON; what is no hit with a plain web address is left out."""
    hits: list[WebHit] = []
    for item in cast(list[object], found) if isinstance(found, list) else []:
        if not isinstance(item, dict):
            continue
        entry = cast(JsonObject, item)
        url = entry.get("url")
        if isinstance(url, str) and _is_plain(url):
            title, snippet = _line(entry.get("title"), _MAX_TITLE), _line(entry.get(snippet_key), _MAX_SNIPPET)
            hits.append(WebHit(title=title, url=url, snippet=snippet))
    return hits[:max_results]


def _is_plain(url: str) -> bool:
    """Whether it is a web address that shows where it leads: nothing hidden in it, no user before the host."""
    if len(url) > _MAX_URL or " " in url or "\\" in url or safe_text(url) != url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def _line(text: object, limit: int) -> str:
    """One line in which nothing is hidden."""
    return safe_text(" ".join(text[: 4 * limit].split()))[:limit] if isinstance(text, str) else ""


class WebSearcher:
    """search_web through the configured provider."""

    def __init__(self, settings: ClientSettings, provider: SearchProvider | None = None) -> None:
        self._fetcher: Fetcher | None = None
        self._settings = settings
        self._provider = provider

    async def search(self, params: SearchWebParams) -> SearchWebResult:
        if self._provider is None:
            problem = self.problem
            if problem is not None:
                raise problem
            self._provider = self._configured()
        return SearchWebResult(results=await self._provider.search(params.query, params.max_results))

    @property
    def problem(self) -> ByleaveError | None:
        """Why no search can work here; None where one can."""
        if self._provider is not None or self._found:
            return None
        wanted = self._settings.search_provider
        if wanted is not None:
            return ConfigurationError(f"The web search provider {wanted!r} has no URL or key.", hint=_HINT)
        return ToolFailure("No web search provider is configured.", hint=_HINT)

    @property
    def _found(self) -> str | None:
        """The provider that has what it needs, by its name."""
        settings = self._settings
        has = {"searxng": settings.searxng_url, "tavily": settings.tavily_api_key, "brave": settings.brave_api_key}
        return next((name for name in has if settings.search_provider in (None, name) and has[name]), None)

    def _configured(self) -> SearchProvider:
        settings, tavily, brave = self._settings, self._settings.tavily_api_key, self._settings.brave_api_key
        match self._found:
            case "tavily" if tavily is not None:
                return TavilyProvider(self._web, settings.tavily_url, tavily.get_secret_value())
            case "brave" if brave is not None:
                return BraveProvider(self._web, settings.brave_url, brave.get_secret_value())
            case _:
                return SearxngProvider(self._web, settings.searxng_url or "")

    @property
    def _web(self) -> Fetcher:
        if self._fetcher is None:
            # Here and not above: the HTTP client takes longer to load than most commands take to run.
            from .fetching import BoundedWeb

            self._fetcher = BoundedWeb(allow_private=self._settings.search_allow_private)
        return self._fetcher

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
