"""search_web against a real HTTP server that speaks the three providers' APIs."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import SecretStr

from byleave.addresses import is_never_asked, is_public
from byleave.protocol.errors import ByleaveError, ConfigurationError, RefusedError, ToolFailure
from byleave.protocol.tools import SearchWebParams, SearchWebResult, WebHit
from byleave.resolver import CheckedResolver
from byleave.settings import ClientSettings
from byleave.workspace import web as fetching
from byleave.workspace.web import BoundedWeb, WebSearcher, checked_url
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("T6")

HIT = {"title": "T", "url": "https://example.org/", "content": "snippet", "description": "snippet"}
KEY = "key-tell-nobody"


def _listed(text: str) -> list[str]:
    return text.split()


@dataclass
class Provider:
    """A provider whose next answer the test decides."""

    url: str
    answer: web.StreamResponse | None = None
    seen: list[web.Request] = field(default_factory=list[web.Request])
    bodies: list[JsonObject | None] = field(default_factory=list[JsonObject | None])
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
    for name in ("BYLEAVE_SEARXNG_URL", "BYLEAVE_TAVILY_API_KEY", "BYLEAVE_BRAVE_API_KEY"):
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
        (web.Response(status=403, text=KEY), "refused the request"),
        (web.Response(status=429), "too many requests"),
        (web.Response(status=500), "status 500"),
        (web.Response(status=201, text=KEY), "status 201"),
        (web.Response(status=204), "status 204"),
        (web.Response(status=404, text=KEY), "status 404"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:9/elsewhere"}), "not followed"),
        (web.Response(text="<html>"), "no JSON object"),
        (web.Response(text="[" * 100_000), "no JSON object"),
        (web.Response(text="[]"), "no JSON object"),
        (web.Response(text="null"), "no JSON object"),
        (web.Response(text=""), "no JSON object"),
        (web.Response(body=b"\xff{}"), "no JSON object"),
        (web.Response(body=b" " * 3_000_000), "more than"),
    ],
    ids=_listed("key forbidden many broken created nothing missing redirect html deep list null empty bytes large"),
)
async def test_answer_that_is_of_no_use_is_a_clear_error_without_the_key(
    provider: Provider, tmp_path: Path, answer: web.Response, words: str
) -> None:
    provider.answer = answer
    with pytest.raises(ToolFailure, match=words) as caught:
        await _ask(_settings("tavily", provider.url, tmp_path))
    assert KEY not in str(caught.value)
    assert len(provider.seen) == 1


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("brave", b'{"web": [], "results": {}}'), ("searxng", b'{"results": null}'), ("searxng", b"\xef\xbb\xbf{}")],
)
async def test_answer_without_hits_is_empty(provider: Provider, tmp_path: Path, kind: str, answer: bytes) -> None:
    provider.answer = web.Response(body=answer)
    assert await _ask(_settings(kind, provider.url, tmp_path)) == []


async def test_first_provider_is_asked_below_the_path_of_its_address(provider: Provider, tmp_path: Path) -> None:
    settings = _settings("tavily", provider.url, tmp_path)
    await _ask(settings.model_copy(update={"searxng_url": f"{provider.url}/at//"}))
    assert [request.path for request in provider.seen] == ["/at/search"]


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
    with pytest.raises(ByleaveError):
        await _ask(ClientSettings(home=tmp_path, searxng_url="not a url"))


# Where a query may go


class Names(AbstractResolver):
    """Looks names up in a table, and counts."""

    def __init__(self, **addresses: list[str]) -> None:
        self.addresses = addresses
        self.lookups: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.lookups.append(host)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.addresses[host.partition(".")[0]]
        ]

    async def close(self) -> None:
        pass


async def _ask_by_name(names: Names, url: str, *, allow_private: bool = False) -> JsonObject:
    fetcher = BoundedWeb(allow_private=allow_private, resolver=names)
    try:
        return await fetcher.ask("SearXNG", "GET", f"{url}/search", setting="BYLEAVE_SEARXNG_URL", query={"q": "x"})
    finally:
        await fetcher.close()


def _named(provider: Provider, name: str) -> str:
    return f"http://{name}:{provider.url.rpartition(':')[2]}"


PUBLIC = _listed("""
    8.8.8.8 93.184.216.34 2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::808:808
    9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0
    192.88.98.1 192.169.0.0 198.17.255.255 198.20.0.0 203.0.112.255 223.255.255.255 2001:200::1 3fff:1000::1
""")
"""The second and third line: right beside what is private."""
PRIVATE = _listed("""
    127.0.0.1 127.9.9.9 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 192.0.0.1 192.0.2.1
    192.88.99.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255
    :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1
    64:ff9b::10.0.0.1 64:ff9b:1::808:808 2002:7f00:1:: 2002:808:808:: 2001:0:808:808::1 100::1 2001:db8::1 3fff::1
    5f00::1 fc00::1 fd12:3456::1 fec0::1 ff02::1 ff0e::1
    100.127.255.255 198.19.255.255 100.100.100.201 2001:1ff:ffff::1 3fff:fff::1 1fff::1 4000::1 fec0:: fd00:42::43
""")
NEVER = _listed("""
    169.254.169.254 169.254.170.2 169.254.0.1 fe80::1 febf::1 100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254
    fd20:ce::254 fd00:42::42 ::ffff:169.254.169.254 ::169.254.169.254 ::ffff:0:169.254.169.254
    64:ff9b::169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: 2001:0:a9fe:a9fe::1 2001:0:808:808:0:0:5601:5601
    ::ffff:168.63.129.16
""")


@pytest.mark.promise("S")
@pytest.mark.parametrize("found", PUBLIC)
async def test_name_that_leads_to_public_addresses_is_given_just_those(found: str) -> None:
    names = Names(search=[found, "1.1.1.1"])
    given = await CheckedResolver(names, allow_private=False).resolve("search.test", 443)
    assert [each["host"] for each in given] == [found, "1.1.1.1"]
    assert is_public(ipaddress.ip_address(found))


@pytest.mark.promise("S")
@pytest.mark.parametrize("found", [*PRIVATE, "fe80::1%eth0", "junk"])
async def test_name_that_leads_anywhere_private_is_refused(found: str) -> None:
    """Also when another of its addresses is public."""
    resolver = CheckedResolver(Names(search=["1.1.1.1", found]), allow_private=False)
    with pytest.raises(RefusedError, match=r"'search\.test' leads to") as caught:
        await resolver.resolve("search.test", 443)
    assert caught.value.hint
    assert found in caught.value.message


@pytest.mark.promise("S")
@pytest.mark.parametrize("found", [*NEVER, "fe80::1%eth0"])
async def test_link_local_and_metadata_addresses_are_never_asked(found: str) -> None:
    with pytest.raises(RefusedError, match="never asked"):
        await CheckedResolver(Names(search=[found]), allow_private=True).resolve("search.test", 80)
    plain = found.partition("%")[0]
    assert is_never_asked(ipaddress.ip_address(plain))
    literal = f"[{plain}]" if ":" in plain else plain
    with pytest.raises(ConfigurationError, match="never asked"):
        checked_url("SearXNG", "BYLEAVE_SEARXNG_URL", f"http://{literal}/search")


async def test_private_addresses_are_not_the_ones_never_asked() -> None:
    assert not any(is_never_asked(ipaddress.ip_address(found)) for found in [*PRIVATE, *PUBLIC])


@pytest.mark.promise("S")
async def test_query_does_not_reach_a_private_server_by_name(provider: Provider) -> None:
    names = Names(search=["127.0.0.1"])
    with pytest.raises(RefusedError, match="not a public address") as caught:
        await _ask_by_name(names, _named(provider, "search.test"))
    assert "BYLEAVE_SEARCH_ALLOW_PRIVATE" in (caught.value.hint or "")
    assert (names.lookups, provider.seen) == (["search.test"], [])


async def test_private_server_is_asked_by_name_when_the_owner_allows_it(provider: Provider) -> None:
    names = Names(search=["127.0.0.1"])
    assert "results" in await _ask_by_name(names, _named(provider, "search.test"), allow_private=True)
    # One lookup: what was judged is what was connected to.
    assert names.lookups == ["search.test"]


async def test_what_the_system_says_of_a_name_is_judged_by_the_setting(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(provider.url.rpartition(":")[2])))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: answer)  # pyright: ignore[reportUnknownLambdaType]
    settings = _settings("searxng", _named(provider, "search.test"), tmp_path)
    with pytest.raises(RefusedError, match="not a public address"):
        await _ask(settings)
    assert await _ask(settings.model_copy(update={"search_allow_private": True}))


@pytest.mark.promise("S")
async def test_name_is_judged_again_for_every_connection(provider: Provider) -> None:
    names = Names(search=["127.0.0.1"])
    fetcher = BoundedWeb(allow_private=True, resolver=names)
    url = f"{_named(provider, 'search.test')}/search"
    try:
        provider.answer = web.json_response({}, headers={"Connection": "close"})
        assert await fetcher.ask("SearXNG", "GET", url, setting="S") == {}
        names.addresses = {"search": ["169.254.169.254"]}
        with pytest.raises(RefusedError, match="never asked"):
            await fetcher.ask("SearXNG", "GET", url, setting="S")
    finally:
        await fetcher.close()
    assert len(provider.seen) == 1


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST"])
async def test_localhost_is_this_machine_and_nobody_is_asked_about_it(provider: Provider, host: str) -> None:
    names = Names(localhost=["8.8.8.8"])
    assert "results" in await _ask_by_name(names, _named(provider, host))
    assert names.lookups == []


@pytest.mark.parametrize(
    "host",
    [
        *("192.168.1.5", "[fd12::1]", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1:99"),
        *("a_b", "a.b.", "b\u00fccher.example", "\uff11\uff12\uff17.0.0.1"),
    ],
)
def test_address_that_is_written_out_is_the_owners_word(host: str) -> None:
    assert checked_url("SearXNG", "S", f"http://{host}/search").path == "/search"


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://search.test/", "no web address"),
        ("file:///etc/passwd", "no web address"),
        ("gopher://127.0.0.1/", "no web address"),
        ("unix:///run/x.sock", "no web address"),
        ("//search.test/", "no web address"),
        ("http:search.test", "no web address"),
        ("http://", "no web address"),
        ("http://[::1", "no web address"),
        ("http://h:99999/", "no web address"),
        ("http://h:x/", "no web address"),
        ("http://[x]/", "no web address"),
        ("http://user@search.test/", "user name or a password"),
        ("http://:word@search.test/", "user name or a password"),
        ("http://@search.test/", "user name or a password"),
        ("https://api.tavily.com@127.0.0.1/", "user name or a password"),
        ("http://search.test/?a=", "a query"),
        ("http://search.test/#", "a query"),
        ("http://search.test\\@127.0.0.1/", "a backslash"),
        ("http://a b/", "a blank"),
        ("http://sea\trch.test/", "a hidden character"),
        ("http://search\u202e.test/", "a hidden character"),
        ("http://sea\u200brch.test/", "a hidden character"),
        ("http://2130706433/", "unusual form"),
        ("http://0x7f000001/", "unusual form"),
        ("http://0x7f.1/", "unusual form"),
        ("http://0177.0.0.1/", "unusual form"),
        ("http://127.1/", "unusual form"),
        ("http://127.0.0.1./", "unusual form"),
        ("http://1.2.3.4.5/", "unusual form"),
        ("http://010.0.0.1/", "unusual form"),
        ("http://0x.0x/", "unusual form"),
        ("http://[fe80::1%25eth0]/", "unusual form"),
        ("http://[::1%251]/", "unusual form"),
        ("http://%31%32%37.0.0.1/", "unusual form"),
        ("http://[v1.x]/", "no name"),
        ("http://search..test/", "no name"),
        ("http://%6c%6f/", "no name"),
        ("http://a,b/", "no name"),
    ],
)
async def test_address_in_an_odd_form_is_refused_before_anything_is_asked(url: str, words: str) -> None:
    names = Names()
    with pytest.raises(ConfigurationError, match=words) as caught:
        await _ask_by_name(names, url)
    assert "BYLEAVE_SEARXNG_URL" in (caught.value.hint or "")
    assert names.lookups == []


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    "host", ["api.tavily.com", "8.8.8.8", "192.168.1.5", "localhost.test", "[2002:7f00:1::]", "b\u00fccher.example"]
)
def test_key_is_not_sent_unencrypted(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unencrypted") as caught:
        checked_url("Tavily", "BYLEAVE_TAVILY_URL", f"http://{host}/search", keyed=True)
    assert "BYLEAVE_TAVILY_URL" in (caught.value.hint or "")
    assert checked_url("Tavily", "BYLEAVE_TAVILY_URL", f"https://{host}/search", keyed=True)


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.0.0.1", "127.8.8.8", "[::1]", "[::ffff:127.0.0.1]"])
def test_key_stays_on_this_machine_without_encryption(host: str) -> None:
    assert checked_url("Tavily", "BYLEAVE_TAVILY_URL", f"http://{host}/search", keyed=True)


async def test_no_key_is_sent_by_a_provider_whose_address_is_unencrypted(tmp_path: Path) -> None:
    for kind in ("tavily", "brave"):
        with pytest.raises(ConfigurationError, match="unencrypted") as caught:
            await _ask(_settings(kind, "http://search.test", tmp_path))
        assert KEY not in str(caught.value)


@pytest.mark.promise("S")
async def test_proxy_of_the_environment_is_not_used(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, address)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert await _ask(_settings("searxng", provider.url, tmp_path))
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.promise("S")
async def test_cookies_are_not_kept(provider: Provider, tmp_path: Path) -> None:
    searcher = WebSearcher(_settings("searxng", provider.url, tmp_path))
    provider.answer = web.json_response({}, headers={"Set-Cookie": "who=you; Path=/"})
    for _ in range(2):
        await searcher.search(SearchWebParams(query="x"))
        provider.answer = None
    await searcher.close()
    assert [dict(request.cookies) for request in provider.seen] == [{}, {}]


@asynccontextmanager
async def _endless(start: bytes, more: bytes) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """A server that begins an answer and never comes to its end, until nobody listens."""
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(start)
        try:
            while True:
                writer.write(more)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            left.set()
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", left


@pytest.mark.parametrize(
    ("start", "more", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", "could not be reached"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b" * 4096, "could not be reached"),
        (b"HTTP/1.1 200 ", b"b" * 4096, "could not be reached"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536, "more than"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", "did not answer"),
    ],
    ids=["headers", "header", "line", "body", "trickle"],
)
async def test_answer_without_an_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes, more: bytes, words: str
) -> None:
    if words == "did not answer":
        monkeypatch.setattr(fetching, "_SECONDS", 0.1)
    async with _endless(start, more) as (url, left), asyncio.timeout(10):
        with pytest.raises(ToolFailure, match=words):
            await _ask(_settings("searxng", url, tmp_path))
        await left.wait()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 50\r\n\r\n\x1f\x8b\x08\x00\x00",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["nothing", "torn", "torn gzip", "cut gzip", "other protocol"],
)
async def test_answer_that_breaks_off_is_said_without_the_key(tmp_path: Path, answer: bytes) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(broken, "127.0.0.1", 0) as server, asyncio.timeout(10):
        url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for scheme in ("http", "https"):
            with pytest.raises(ToolFailure, match="Tavily ") as caught:
                await _ask(_settings("tavily", f"{scheme}://{url}", tmp_path))
            assert KEY not in str(caught.value)


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "HTTPS//x",
        "https://",
        "https:///path",
        "https://[::1",
        "https://bank.example@evil.example/",
        "https://:80/",
        "https://[x]/",
        "https://a]/",
        "https://a\uff0fb/",
        "https://a\u2100b/",
        "https://a.example/\ud800",
        " https://a.example/",
        "",
        "https://evil.example\\@bank.example/",
        "https://a.example/\u202e",
        "https://a.example/\n",
        "https://a.example/\x1b[2J",
        "https://a.example/a b",
        "https://a.example/" + "a" * 2000,
        7,
        None,
    ],
)
async def test_hit_without_a_plain_address_is_left_out(provider: Provider, tmp_path: Path, url: object) -> None:
    provider.answer = web.json_response({"results": [HIT | {"url": url}, HIT]})
    assert [hit.url for hit in await _ask(_settings("searxng", provider.url, tmp_path), 5)] == [HIT["url"]]


@pytest.mark.promise("S")
async def test_nothing_is_hidden_in_the_words_of_a_hit(provider: Provider, tmp_path: Path) -> None:
    bad = "one\n\n\u2028 two\x1b[2J\u202e\u200b three"
    provider.answer = web.json_response({"results": [HIT | {"title": bad, "content": bad * 500}]})
    [hit] = await _ask(_settings("searxng", provider.url, tmp_path))
    assert hit.title == r"one two\x1b[2J\u{202e}\u{200b} three"
    assert len(hit.snippet) == 2000
    assert not set(hit.snippet) & set("\n\x1b\u202e\u200b")
