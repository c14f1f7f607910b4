"""search_web: one query to the one provider the user configured, and a bounded answer.

The query and the key go to the configured host only, the key only over https or to loopback; a key never appears in an
error. An address written out in a setting, and `localhost`, is trusted as the owner's word. A name is not: it must
resolve to public addresses only, checked on the very addresses that are connected to, so that no second lookup can
answer differently. Link-local addresses and those of cloud credential services are never contacted. Redirects are not
followed, proxies from the environment are not used, cookies are not kept. Time and size are bounded. A hit is untrusted
text: one without a plain web address is left out, and hidden characters are made visible. No page behind a hit is
fetched.
"""

import ipaddress
import json
import re
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from byleave.addresses import is_localhost, is_never_asked, read_address
from byleave.gate import safe_text
from byleave.protocol.errors import ByleaveError, ConfigurationError, ToolFailure
from byleave.protocol.tools import SearchWebParams, SearchWebResult, WebHit
from byleave.protocol.wire import JsonObject
from byleave.resolver import CheckedResolver
from byleave.settings import ClientSettings

_SECONDS = 15
_MAX_BYTES = 2 * 1024 * 1024
_MAX_HEADERS = 100
_MAX_HEADER_BYTES = 8190
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")
# Every spelling that the system reads as an address: 127.1, 0x7f.1, 2130706433, 127.0.0.1.
_NUMBER_LAST = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")
_PRIVATE_HINT = (
    "If it is your own SearXNG on a private network, set BYLEAVE_SEARCH_ALLOW_PRIVATE=true, or write its address in "
    "place of its name."
)


class BoundedWeb:
    """Requests JSON from a provider's API, bounded in destination, time and size."""

    def __init__(self, *, allow_private: bool = False, resolver: AbstractResolver | None = None) -> None:
        """`allow_private`: names may resolve to private addresses. `resolver`: None for the system's."""
        self._allow_private = allow_private
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None

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
    ) -> JsonObject:
        """Send one request. `setting` names the setting that holds the URL; `keys` are secret headers."""
        where = checked_url(name, setting, url, keyed=bool(keys))
        if self._session is None:
            self._session = self._open()
        try:
            async with self._session.request(
                method, where, headers=keys, params=query, json=body, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise _refused(name, response.status)
                data = await _read_bounded(response, name)
        except TimeoutError as error:
            raise ToolFailure(f"{name} did not answer within {_SECONDS} s.", hint="Try again later.") from error
        except (aiohttp.ClientError, ValueError) as error:
            # Not the error's own text: it may quote the address or headers, and so a key.
            raise ToolFailure(f"{name} at {where.raw_host} could not be reached ({type(error).__name__}).") from None
        try:
            answer: object = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ToolFailure(f"{name} answered with something that is no JSON object.")
        return cast(JsonObject, answer)

    def _open(self) -> aiohttp.ClientSession:
        resolver = CheckedResolver(
            self._resolver, allow_private=self._allow_private, trust_localhost=True, private_hint=_PRIVATE_HINT
        )
        return aiohttp.ClientSession(
            # No DNS cache: it would outlive the check.
            connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False),
            timeout=aiohttp.ClientTimeout(total=_SECONDS),
            headers={"Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            max_headers=_MAX_HEADERS,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def checked_url(name: str, setting: str, text: str, *, keyed: bool = False) -> URL:
    """Parse the provider's URL with the parser that connects to it. Raises ConfigurationError if it is not plain."""
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    wrong = _wrong_form(text, url) or _wrong_host(text, url)
    if wrong is not None:
        hint = f"Set {setting} to an address such as https://search.example.org."
        raise ConfigurationError(f"The address of {name} {wrong}.", hint=hint)
    if keyed and url.scheme != "https" and not _is_loopback(url):
        raise ConfigurationError(
            f"The key for {name} would go to {url.raw_host} unencrypted.",
            hint=f"Let {setting} begin with https://.",
        )
    return url


def _wrong_form(text: str, url: URL) -> str | None:
    if not text.isprintable() or " " in text or "\\" in text:
        return "holds a blank, a backslash or a hidden character"
    if url.scheme not in ("http", "https") or not url.raw_host:
        return "is no web address"
    if "@" in text.partition("://")[2].partition("/")[0]:
        return "holds a user name or a password"
    if "?" in text or "#" in text:
        return "holds a query or a fragment"
    return None


def _wrong_host(text: str, url: URL) -> str | None:
    host = url.raw_host or ""
    address = read_address(host)
    if address is not None:
        return f"is {address}, which is never asked" if is_never_asked(address) else None
    if ":" in host or _NUMBER_LAST.fullmatch(host):
        return f"names a host, {host!r}, that is an address in an unusual form"
    # The parser drops brackets around a host that is no address, so look for them in the text.
    return None if _NAME.fullmatch(host) and "[" not in text else f"names a host, {host!r}, that is no name"


def _is_loopback(url: URL) -> bool:
    host = url.raw_host or ""
    address = read_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return is_localhost(host) if address is None else address.is_loopback


def _refused(name: str, status: int) -> ToolFailure:
    if status in (401, 403):
        return ToolFailure(f"{name} refused the request ({status}).", hint="Check its API key or its settings.")
    if status == 429:
        return ToolFailure(f"{name} says there were too many requests ({status}).", hint="Try again later.")
    if 300 <= status < 400:
        return ToolFailure(f"{name} redirects elsewhere ({status}), which is not followed.", hint="Check its URL.")
    return ToolFailure(f"{name} answered with status {status}.")


async def _read_bounded(response: aiohttp.ClientResponse, name: str) -> bytes:
    """Read the body; the limit counts decompressed bytes."""
    data = bytearray()
    async for piece in response.content.iter_chunked(65536):
        data += piece
        if len(data) > _MAX_BYTES:
            raise ToolFailure(f"{name} answered with more than {_MAX_BYTES} bytes.")
    return bytes(data)


_MAX_TITLE = 300
_MAX_SNIPPET = 2000
_MAX_URL = 2000
_HINT = "Set BYLEAVE_SEARXNG_URL, BYLEAVE_TAVILY_API_KEY or BYLEAVE_BRAVE_API_KEY for the client."


class SearchProvider(Protocol):
    """A service that answers web searches."""

    async def search(self, query: str, max_results: int) -> list[WebHit]:
        """Return at most `max_results` hits, the best first."""
        ...


class Fetcher(Protocol):
    """Requests JSON from an API, bounded in time and size."""

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
    """Read hits from untrusted JSON; leave out those without a plain web address."""
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
    """True for a web address without hidden characters and without a user before the host."""
    if len(url) > _MAX_URL or " " in url or "\\" in url or safe_text(url) != url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def _line(text: object, limit: int) -> str:
    """Join text into one line without hidden characters."""
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
        """The error that keeps every search from working; None if there is none."""
        if self._provider is not None or self._found:
            return None
        wanted = self._settings.search_provider
        if wanted is not None:
            return ConfigurationError(f"The web search provider {wanted!r} has no URL or key.", hint=_HINT)
        return ToolFailure("No web search provider is configured.", hint=_HINT)

    @property
    def _found(self) -> str | None:
        """Name of the first provider that is configured."""
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
            self._fetcher = BoundedWeb(allow_private=self._settings.search_allow_private)
        return self._fetcher

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
