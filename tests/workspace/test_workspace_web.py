"""search_web against a real HTTP server that speaks the three providers' APIs."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from assent.protocol.errors import AssentError, ConfigurationError, ToolFailure
from assent.protocol.tools import SearchWebParams, SearchWebResult, WebHit
from assent.settings import ClientSettings
from assent.workspace import WebSearcher, Workspace, fetching

from .conftest import Place

pytestmark = pytest.mark.promise("T6")

HIT = {"title": "T", "url": "https://example.org/", "content": "snippet", "description": "snippet"}
KEY = "key-tell-nobody"


@dataclass
class Provider:
    """A provider whose next answer the test decides."""

    url: str
    answer: web.StreamResponse | None = None
    seen: list[web.Request] = field(default_factory=list[web.Request])
    bodies: list[Any] = field(default_factory=list[Any])
    hang: asyncio.Event | None = None


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    state = Provider("")

    async def handle(request: web.Request) -> web.StreamResponse:
        state.seen.append(request)
        state.bodies.append(await request.json() if request.can_read_body else None)
        if state.hang is not None:
            await state.hang.wait()
        if state.answer is not None:
            return state.answer
        hits = [HIT, {"url": "javascript:x"}, "junk", HIT | {"title": 1, "content": None, "description": None}, HIT]
        if request.path.startswith("/res/"):
            return web.json_response({"web": {"results": hits}})
        return web.json_response({"results": hits})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    state.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield state
    await runner.cleanup()


async def _ask(settings: ClientSettings, max_results: int = 2) -> list[WebHit]:
    searcher = WebSearcher(settings)
    try:
        return (await searcher.search(SearchWebParams(query="a & b", max_results=max_results))).results
    finally:
        await searcher.close()


def _settings(kind: str, url: str, home: Path) -> ClientSettings:
    if kind == "searxng":
        return ClientSettings(home=home, searxng_url=url + "/")
    if kind == "tavily":
        return ClientSettings(home=home, tavily_api_key=SecretStr(KEY), tavily_url=url)
    return ClientSettings(home=home, brave_api_key=SecretStr(KEY), brave_url=url)


@pytest.mark.parametrize("kind", ["searxng", "tavily", "brave"])
async def test_every_provider_is_asked_in_its_own_way(provider: Provider, tmp_path: Path, kind: str) -> None:
    hits = await _ask(_settings(kind, provider.url, tmp_path))
    assert hits == [
        WebHit(title="T", url="https://example.org/", snippet="snippet"),
        WebHit(title="", url="https://example.org/", snippet=""),
    ]
    request = provider.seen[0]
    match kind:
        case "searxng":
            assert (request.path, dict(request.query)) == ("/search", {"q": "a & b", "format": "json"})
        case "tavily":
            assert (request.method, request.path) == ("POST", "/search")
            assert request.headers["Authorization"] == f"Bearer {KEY}"
            assert provider.bodies == [{"query": "a & b", "max_results": 2}]
        case _:
            assert (request.path, dict(request.query)) == ("/res/v1/web/search", {"q": "a & b", "count": "2"})
            assert request.headers["X-Subscription-Token"] == KEY


async def test_no_provider_is_a_clear_error_that_names_the_settings(workspace: Workspace) -> None:
    with pytest.raises(ToolFailure, match=r"No web search provider is configured\.") as caught:
        await workspace.run("search_web", {"query": "x"})
    for name in ("ASSENT_SEARXNG_URL", "ASSENT_TAVILY_API_KEY", "ASSENT_BRAVE_API_KEY"):
        assert name in (caught.value.hint or "")


async def test_wanted_provider_without_a_key_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'brave'"):
        await _ask(ClientSettings(home=tmp_path, search_provider="brave", searxng_url="http://127.0.0.1:9"))


async def test_wanted_provider_wins_over_the_first(provider: Provider, tmp_path: Path) -> None:
    settings = _settings("brave", provider.url, tmp_path)
    settings = settings.model_copy(update={"searxng_url": "http://127.0.0.1:9", "search_provider": "brave"})
    assert await _ask(settings)


async def test_workspace_searches_the_web(provider: Provider, place: Place, tmp_path: Path) -> None:
    workspace = Workspace(place.root, _settings("searxng", provider.url, tmp_path))
    result = await workspace.run("search_web", {"query": "x", "max_results": 1})
    assert isinstance(result, SearchWebResult)
    assert len(result.results) == 1
    await workspace.close()


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(status=401, text=KEY), "refused the request"),
        (web.Response(status=429), "too many requests"),
        (web.Response(status=500), "status 500"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:9/elsewhere"}), "not followed"),
        (web.Response(text="<html>"), "no JSON object"),
        (web.Response(text="[" * 100_000), "no JSON object"),
        (web.Response(text="[]"), "no JSON object"),
        (web.Response(body=b" " * 3_000_000), "more than"),
    ],
    ids=["key", "many", "broken", "redirect", "html", "deep", "list", "large"],
)
async def test_answer_that_is_of_no_use_is_a_clear_error_without_the_key(
    provider: Provider, tmp_path: Path, answer: web.Response, words: str
) -> None:
    provider.answer = answer
    with pytest.raises(ToolFailure, match=words) as caught:
        await _ask(_settings("tavily", provider.url, tmp_path))
    assert KEY not in str(caught.value)
    assert len(provider.seen) == 1


async def test_answer_without_hits_is_empty(provider: Provider, tmp_path: Path) -> None:
    provider.answer = web.json_response({"web": [], "results": {}})
    assert await _ask(_settings("brave", provider.url, tmp_path)) == []


async def test_compressed_answer_counts_as_what_it_becomes(provider: Provider, tmp_path: Path) -> None:
    answer = web.Response(body=b" " * 50_000_000)
    answer.enable_compression()
    provider.answer = answer
    with pytest.raises(ToolFailure, match="more than"):
        await _ask(_settings("searxng", provider.url, tmp_path))


async def test_provider_that_does_not_answer_is_given_up(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_SECONDS", 0.1)
    provider.hang = asyncio.Event()
    with pytest.raises(ToolFailure, match="did not answer"):
        await _ask(_settings("searxng", provider.url, tmp_path))
    provider.hang.set()


async def test_provider_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ToolFailure, match=r"Tavily at 127\.0\.0\.1 could not be reached") as caught:
        await _ask(_settings("tavily", f"http://127.0.0.1:{port}", tmp_path))
    assert KEY not in str(caught.value)


async def test_address_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssentError):
        await _ask(ClientSettings(home=tmp_path, searxng_url="not a url"))
