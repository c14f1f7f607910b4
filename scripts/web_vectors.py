"""What both clients make of a web search: `vscode/test/vectors/web.json`, made by running the Python client for real.

Addresses as an owner may write them, addresses a name may lead to, hits as strangers send them, and whole exchanges
with a server on this machine: what it is asked, what it answers, what comes of it. The TypeScript client runs the same.
Hints name settings, which have other names there; what a failed connection is called depends on the library. Both are
taken out. A test makes everything again and says whether the file still holds.
"""

import asyncio
import base64
import gzip
import ipaddress
import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

from aiohttp import web

from byleave.protocol.errors import ByleaveError, ConfigurationError
from byleave.protocol.tools import SearchWebParams
from byleave.settings import ClientSettings
from byleave.workspace import WebSearcher
from byleave.workspace.fetching import checked_url, is_never_asked, is_public

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "vscode" / "test" / "vectors" / "web.json"
KEY = "key-tell-nobody"
BASE = "{base}"
HEADERS = ("accept", "authorization", "x-subscription-token", "content-type", "cookie")


def _words(text: str) -> list[str]:
    return text.split()


URLS = _words("""
http://search.test https://search.test/ HTTP://Search.Test:8080/a/b http://a_b/ https://a.b. http://bücher.example/
http://192.168.1.5/ http://[fd12::1]/x http://[::1]:8/ http://[::ffff:127.0.0.1]/ http://127.0.0.1:99 http://a:/ http://\uff11\uff12\uff17.0.0.1/
ftp://search.test/ file:///etc/passwd gopher://127.0.0.1/ unix:///run/x.sock //search.test/ http:search.test http:// http://[::1
http://h:99999/ http://h:x/ http://[x]/ http://user@search.test/ http://:word@search.test/ http://@search.test/
https://api.tavily.com@127.0.0.1/ http://search.test/?a= http://search.test/# http://search.test\\@127.0.0.1/
http://sea\u200brch.test/ http://search\u202e.test/ http://2130706433/ http://0x7f000001/ http://0x7f.1/ http://0177.0.0.1/
http://127.1/ http://127.0.0.1./ http://1.2.3.4.5/ http://010.0.0.1/ http://0x.0x/ http://[fe80::1%25eth0]/ http://[::1%251]/
http://%31%32%37.0.0.1/ http://[v1.x]/ http://search..test/ http://%6c%6f/ http://169.254.169.254/ http://[fe80::1]/
http://[::ffff:169.254.169.254]/ http://[64:ff9b::a9fe:a9fe]/ http://localhost/ http://localhost.test/ https://8.8.8.8/
http://xn--a/ http://api.tavily.com/ http://[2002:7f00:1::]/ http://-/ http://a-.b/ http://search.test:0/ http://a,b/ x
""")
ADDRESSES = _words("""
8.8.8.8 93.184.216.34 1.1.1.1 2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::808:808 223.255.255.255
9.255.255.255 127.9.9.9 0.0.0.0 0.1.2.3 10.0.0.1 11.0.0.0 172.15.255.255 172.16.0.1 172.31.255.255 172.32.0.0
192.168.1.1 127.0.0.1 192.169.0.0
100.63.255.255 100.64.0.1 100.127.255.255 100.128.0.0 192.0.0.1 192.0.1.0 192.0.2.1 192.88.99.1 192.88.98.1
198.17.255.255 198.18.0.1 198.19.255.255 198.20.0.0 198.51.100.1 203.0.113.1 203.0.112.255 224.0.0.1 239.1.1.1 240.0.0.1
255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1
64:ff9b::10.0.0.1 64:ff9b:1::808:808 2002:7f00:1:: 2002:808:808:: 2001:0:808:808::1 100::1 2001:db8::1 2001:1ff:ffff::1
2001:200::1 3fff::1 3fff:fff::1 3fff:1000::1 4000::1 1fff::1 5f00::1 fc00::1 fd12:3456::1 fec0::1 ff02::1 ff0e::1
169.254.169.254 169.254.170.2 169.253.255.255 169.255.0.0 fe80::1 febf::1 fec0:: 100.100.100.200 100.100.100.201
168.63.129.16 192.0.0.192 fd00:ec2::254 fd20:ce::254 fd00:42::42 fd00:42::43 ::ffff:169.254.169.254 ::169.254.169.254
::ffff:0:169.254.169.254 64:ff9b::169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: 2001:0:a9fe:a9fe::1
2001:0:808:808:0:0:5601:5601 ::ffff:168.63.129.16
""")


def _hit(**changes: Any) -> dict[str, Any]:
    return {"title": "T", "url": "https://example.org/", "content": "snippet", "description": "other"} | changes


STRANGE_URLS = (
    *("http://a", "HTTPS://A/x?y#z", "ftp://a/", "javascript:x", "http:a", "http://", "http:///x", "http://:80/"),
    *(
        "http://u@a/",
        "http://a/@b",
        "http://a b/",
        "http://a\\b/",
        "http://a/\u202e",
        "http://a/\u200bx",
        "http://[::1]/",
    ),
    *("http://[x]/", "http://[v1.x]/", "http://a]/", "http://é.example/ü", "http://a\uff0fb/", "http://a\u2100b/", "x"),
    *(f"http://a/{'x' * 1991}", f"http://a/{'x' * 1992}", "http://a/\ud800", "", " http://a/", "http://a:b/"),
)
STRANGE_TEXTS: tuple[Any, ...] = (
    *(
        "plain",
        " two\t\nwords\x1c here\u3000\u2028end ",
        "",
        None,
        7,
        ["x"],
        "x" * 301,
        "é" * 2100,
        "a\u202eb",
        "\x1b[31mred",
    ),
    *("<b>bold</b>", "\U0001f600" * 400, "half \ud800", f"{' ' * 2000}late", "a\u00adb"),
)


def _hits() -> list[dict[str, Any]]:
    found: list[Any] = [_hit(url=url) for url in STRANGE_URLS]
    found += [_hit(title=text, content=text) for text in STRANGE_TEXTS]
    found += ["junk", None, 3, [], {}, {"title": "no url"}, _hit(url=5)]
    return [{"results": found, "max_results": 20}, {"results": [_hit()] * 5, "max_results": 3}]


def _answer(body: Any = None, *, status: int = 200, raw: bytes | None = None, **headers: str) -> dict[str, Any]:
    data = raw if raw is not None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": status, "headers": named, "body": base64.b64encode(data).decode()}


def _exchanges() -> list[dict[str, Any]]:
    hits = [_hit(), {"url": "javascript:x"}, "junk", _hit(title=1, content=None, description=None), _hit()]
    usual, brave = _answer({"results": hits}), _answer({"web": {"results": hits}})
    searxng = {"searxng_url": BASE + "/"}
    tavily = {"tavily_api_key": KEY, "tavily_url": BASE}
    braved = {"brave_api_key": KEY, "brave_url": BASE + "//"}
    cases: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
        (searxng, usual),
        ({"searxng_url": BASE + "/at"}, usual),
        (tavily, usual),
        (braved, brave),
        ({**searxng, **tavily, **braved}, usual),
        ({**searxng, **tavily, "search_provider": "tavily"}, usual),
        ({**searxng, "search_provider": "brave"}, None),
        ({}, None),
        ({"search_provider": "searxng"}, None),
        ({"searxng_url": "not a url"}, None),
        ({"tavily_api_key": KEY, "tavily_url": "http://192.0.2.1"}, None),
        (braved, _answer({"web": [], "results": {}})),
        (searxng, _answer({"results": None})),
        (searxng, _answer(raw=gzip.compress(json.dumps({"results": hits}).encode(), mtime=0), Content_Encoding="gzip")),
        (searxng, _answer(raw=zlib.compress(json.dumps({"results": hits}).encode()), Content_Encoding="deflate")),
        (searxng, _answer(raw=gzip.compress(b" " * 3_000_000, mtime=0), Content_Encoding="gzip")),
        (searxng, _answer(raw=b"\xef\xbb\xbf{}")),
        *((tavily, _answer(status=status, raw=KEY.encode())) for status in (201, 204, 401, 403, 404, 429, 500, 503)),
        (tavily, _answer(status=302, Location="http://127.0.0.1:9/elsewhere")),
        *((searxng, _answer(raw=text)) for text in (b"<html>", b"[" * 5000, b"[]", b"", b"null", b'"x"', b"\xff{}")),
    ]
    return [{"settings": settings, "answer": answer} for settings, answer in cases]


class _Server:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}
        self.seen: list[dict[str, Any]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(
            {
                "method": request.method,
                "path": request.raw_path,
                "headers": {name: request.headers[name] for name in HEADERS if name in request.headers},
                "body": json.loads(body) if body else None,
            }
        )
        headers = {"Content-Type": "application/json", "Set-Cookie": "kept=no", **self.answer["headers"]}
        data = base64.b64decode(self.answer["body"])
        return web.Response(status=self.answer["status"], headers=headers, body=data)


async def _run(case: dict[str, Any], server: _Server, base: str, home: Path) -> dict[str, Any]:
    server.answer, server.seen = case["answer"] or {}, []
    given = {name: value.replace(BASE, base) for name, value in case["settings"].items()}
    searcher = WebSearcher(ClientSettings(home=home, **given))
    try:
        found = await searcher.search(SearchWebParams(query="a & b+ü", max_results=2))
        expected: dict[str, Any] = {"result": found.model_dump(mode="json")}
    except ByleaveError as error:
        expected = {"error": error.message, "error_type": error.error_type.value, "kind": type(error).__name__}
    finally:
        await searcher.close()
    return {**case, "expected": expected, "seen": [*server.seen]}


def _wrong(text: str, *, keyed: bool) -> str | None:
    try:
        checked_url("SearXNG", "SETTING", text, keyed=keyed)
    except ConfigurationError as error:
        return error.message
    return None


async def build() -> dict[str, Any]:
    """Everything, as the Python client has it now."""
    server, app = _Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        with tempfile.TemporaryDirectory() as home:
            exchanges = [await _run(case, server, base, Path(home)) for case in _exchanges()]
            hits: list[dict[str, Any]] = []
            for case in _hits():
                answer = _answer({"results": case["results"]})
                found = await _hits_of(answer, case["max_results"], server, base, Path(home))
                hits.append({"answer": answer["body"], "max_results": case["max_results"], "hits": found})
    finally:
        await runner.cleanup()
    numbers = {text: ipaddress.ip_address(text) for text in ADDRESSES}
    return {
        "urls": [[text, _wrong(text, keyed=False), _wrong(text, keyed=True)] for text in URLS],
        "addresses": [[text, is_public(number), is_never_asked(number)] for text, number in numbers.items()],
        "hits": hits,
        "exchanges": exchanges,
    }


async def _hits_of(answer: dict[str, Any], most: int, server: _Server, base: str, home: Path) -> list[dict[str, Any]]:
    server.answer = answer
    searcher = WebSearcher(ClientSettings(home=home, searxng_url=base))
    try:
        found = await searcher.search(SearchWebParams(query="x", max_results=most))
    finally:
        await searcher.close()
    return [hit.model_dump() for hit in found.results]


def text_of(made: dict[str, Any]) -> str:
    """The file's text: one case on a line."""
    parts = [f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]" for name, cases in made.items()]
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    TARGET.write_text(text_of(asyncio.run(build())), "utf-8")
