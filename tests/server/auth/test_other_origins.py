"""Pages of other origins: those the operator listed may use the API with a bearer token, and no other in any way."""

import pytest
from pydantic import ValidationError

from byleave.server.auth.sign_ins import COOKIE
from byleave.server.auth.tokens import HEADER, issue_session
from byleave.settings import ServerSettings
from harness.http_server import Answer, Server, StartServer

LISTED = "https://intranet.example"
OTHERS = (
    "null",
    "https://evil.example",
    "http://intranet.example",
    "https://intranet.example:8443",
    "https://intranet.example.evil.example",
    "https://intranet.example/",
    "HTTPS://INTRANET.EXAMPLE",
    "https://user@intranet.example",
    "*",
)


def _allows(answer: Answer) -> bool:
    assert "Access-Control-Allow-Credentials" not in answer.headers
    return "Access-Control-Allow-Origin" in answer.headers


async def test_listed_page_reads_answers_with_a_bearer_token(start_server: StartServer) -> None:
    server = await start_server(page_origins=(LISTED, "http://127.0.0.1:3000"))
    alice = server.user()
    for origin in (LISTED, "http://127.0.0.1:3000"):
        for path, status in (("/my/me", 200), ("/my/nothing", 404)):
            answer = await alice.get(path, headers={"Origin": origin})
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (status, origin)
            assert "Date" in answer.headers["Access-Control-Expose-Headers"]
            assert "Origin" in answer.headers.getall("Vary")
        posted = await alice.post("/my/projects", {"name": "x"}, headers={"Origin": origin})
        assert (posted.status, _allows(posted)) == (201, True)
    wrong = await server.bearer("wrong").get("/my/me", headers={"Origin": LISTED})
    assert (wrong.status, _allows(wrong)) == (401, True), "the page can read why"
    project = await alice.project()
    async with alice.session.get(
        f"{server.url}/my/projects/{project}/chat/stream?execute=false",
        headers={"Authorization": f"Bearer {alice.token}", "Origin": LISTED},
    ) as feed:
        assert feed.headers["Access-Control-Allow-Origin"] == LISTED


async def test_browser_is_told_what_a_listed_page_may_send_without_a_token(start_server: StartServer) -> None:
    server = await start_server(page_origins=(LISTED,))
    visitor = server.bearer("")
    asks = {"Authorization": "", "Access-Control-Request-Method": "POST", "Origin": LISTED}
    for path in ("/my/projects", "/my/nothing/there", "/page/embed.js"):
        answer = await visitor.ask("OPTIONS", path, headers=asks)
        assert answer.status == 204
        assert answer.headers.getall("Access-Control-Allow-Origin") == [LISTED]
        assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
        assert "Last-Event-ID" in answer.headers["Access-Control-Allow-Headers"]
        assert HEADER.lower() not in answer.headers["Access-Control-Allow-Headers"].lower(), "the key is our own page's"
        assert answer.headers["Access-Control-Allow-Methods"] == "GET, POST"
        assert not answer.text
        assert _allows(answer)
    for path in ("/", "/signin", "/signout", "/mcp", "/mcp/x", "/openapi.json", "/myth", "/healthz"):
        assert not _allows(await visitor.ask("OPTIONS", path, headers=asks)), path
        assert not _allows(await server.user().get(path, headers={"Origin": LISTED})), path
    assert (await visitor.ask("OPTIONS", "/my/projects", headers={"Authorization": "", "Origin": LISTED})).status == 401
    asks["Host"] = "evil.example"
    assert (await visitor.ask("OPTIONS", "/my/projects", headers=asks)).status == 421


async def test_page_that_is_not_listed_is_allowed_nothing(start_server: StartServer) -> None:
    server = await start_server(page_origins=(LISTED,))
    alice, preflight = server.user(), {"Authorization": "", "Access-Control-Request-Method": "GET"}
    for origin in OTHERS:
        answer = await alice.get("/my/me", headers={"Origin": origin})
        assert not _allows(answer), origin
        assert "Origin" in answer.headers.getall("Vary"), "no cache hands one page's answer to another"
        asked = await alice.ask("OPTIONS", "/my/me", headers={**preflight, "Origin": origin})
        assert (asked.status, _allows(asked)) == (401, False), origin
        assert not _allows(await alice.get("/page/none.js", headers={"Origin": origin})), origin


async def test_cookie_opens_nothing_to_a_listed_page(start_server: StartServer) -> None:
    server = await start_server(page_origins=(LISTED,))
    visitor = server.bearer("")
    session = issue_session(server.settings, "alice", 60, key="k")
    cookie = {"Authorization": "", "Cookie": f"{COOKIE}={session}", HEADER: "k"}
    own = await visitor.get("/my/me", headers={**cookie, "Sec-Fetch-Site": "same-origin"})
    assert own.status == 200
    for site in ("cross-site", "same-site"):
        headers = {**cookie, "Origin": LISTED, "Sec-Fetch-Site": site, "Content-Type": "application/json"}
        read = await visitor.get("/my/me", headers=headers)
        written = await visitor.ask("POST", "/my/projects", data=b'{"name":"x"}', headers=headers)
        for answer in (read, written):
            assert (answer.status, _allows(answer)) == (403, False)
    quiet = await visitor.get("/my/me", headers={**cookie, "Origin": LISTED})
    assert not _allows(quiet), "an old browser that says nothing of the site does not read it either"


async def test_files_of_the_page_may_be_taken_by_listed_pages_only_where_some_are(start_server: StartServer) -> None:
    listed = await start_server(page_origins=(LISTED,))
    answer = await listed.user().get("/page/none.js", headers={"Authorization": "", "Origin": LISTED})
    assert (answer.status, _allows(answer)) == (404, True)
    assert answer.headers.getall("Cross-Origin-Resource-Policy") == ["cross-origin"]
    index = await listed.user().get("/", headers={"Authorization": "", "Origin": LISTED})
    assert (_allows(index), index.headers["Cross-Origin-Resource-Policy"]) == (False, "same-origin")
    api = await listed.user().get("/my/me", headers={"Origin": LISTED})
    assert api.headers.getall("Cross-Origin-Resource-Policy") == ["same-origin"]


async def test_without_the_setting_nothing_of_it_is_there(server: Server) -> None:
    for path in ("/my/me", "/page/none.js", "/"):
        answer = await server.user().get(path, headers={"Origin": LISTED})
        assert not _allows(answer)
        assert "Origin" not in answer.headers.getall("Vary", [])
        assert answer.headers.getall("Cross-Origin-Resource-Policy") == ["same-origin"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://Intranet.Example", "https://intranet.example"),
        ("https://intranet.example/", "https://intranet.example"),
        ("https://intranet.example:443", "https://intranet.example"),
        ("http://localhost:80", "http://localhost"),
        ("http://localhost:443", "http://localhost:443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_origin_is_kept_as_browsers_write_it(written: str, read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLEAVE_PAGE_ORIGINS", f" {written} ,")
    assert ServerSettings().page_origins == (read,)


@pytest.mark.parametrize(
    "written",
    [
        "*",
        "null",
        "intranet.example",
        "https://*.example",
        "https://a.example/page",
        "https://a@b",
        "ftp://a",
        "https://",
    ],
)
def test_what_is_no_single_origin_is_refused_at_the_start(written: str) -> None:
    with pytest.raises(ValidationError, match="is not an origin"):
        ServerSettings(page_origins=(written,))
