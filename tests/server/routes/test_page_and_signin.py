"""The chat page: served safely, signed in by a link that works once, and safe from other pages."""

import asyncio
import time
from pathlib import Path

import jwt
import pytest
import segno

from byleave.protocol.states import Scope
from byleave.server import issue_token, server_secret
from byleave.server.auth.sign_ins import (
    COOKIE,
    MOST_ASKED,
    PROGRAM_SECONDS,
)
from byleave.server.auth.tokens import HEADER, issue_session
from byleave.server.routes.page import FOREVER, PageFile
from harness.http_server import Server, StartServer, User
from harness.signing import handed_key, page_cookie, page_headers

JSON = {"Content-Type": "application/json"}


async def _signed_in(server: Server, user: str = "alice") -> tuple[User, dict[str, str]]:
    visitor = server.bearer("")
    code = await server.parts.sign_in.new_code(user)
    answer = await visitor.get(f"/signin?code={code}", headers={"Authorization": ""})
    assert answer.status == 200
    cookie = page_cookie(answer.headers["Set-Cookie"])
    assert (cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (True, "strict", "/")
    given = page_headers(answer.headers["Set-Cookie"], answer.text)
    return visitor, {
        "Authorization": "",
        **given,
        "Cookie": f"theme=dark; {given['Cookie']}",
        "Sec-Fetch-Site": "same-origin",
    }


async def _led(visitor: User, cookie: dict[str, str]) -> dict[str, str]:
    """Another browser, signed in by a link that this one asked for."""
    link = (await visitor.post("/my/signin", {}, headers=cookie)).json["path"]
    answer = await visitor.get(link, headers={"Authorization": ""})
    return {**cookie, **page_headers(answer.headers["Set-Cookie"], answer.text)}


HTML = {"Authorization": "", "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
INDEX = '<!doctype html><script type="module" src="/page/index-B7mn8QRM.js"></script>'
SCRIPT = "export const hello = 1;\n" * 200


def _build(directory: Path, index: str = INDEX, **files: str) -> None:
    directory.mkdir(exist_ok=True)
    for name, text in {"index-B7mn8QRM.js": SCRIPT, **files, "index.html": index}.items():
        (directory / name).write_text(text, encoding="utf-8")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page of servers that start from here on is built."""
    directory = tmp_path / "page"
    monkeypatch.setattr("byleave.server.routes.page.PAGE", directory)
    return directory


async def test_page_and_its_files_are_served_with_a_strict_policy(page: Path, start_server: StartServer) -> None:
    files = {
        "embed.js": "x",
        "sw.js": "x",
        "a.mjs": "x",
        "style-Cw1fNA0s.css": "x",
        "i.svg": "<svg/>",
        "app.webmanifest": "{}",
    }
    _build(page, **files)
    (page / "secret.js").symlink_to("/etc/hostname")
    (page / "deeper").mkdir()
    (page / "deeper" / "x.js").write_text("x")
    alice = (await start_server()).user()
    index = await alice.get("/")
    assert (index.status, index.text) == (200, INDEX)
    assert index.headers["Content-Type"] == "text/html; charset=utf-8"
    assert index.headers["Cache-Control"] == "no-cache"
    policy = index.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    kinds = {
        "index-B7mn8QRM.js": ("text/javascript; charset=utf-8", FOREVER),
        "style-Cw1fNA0s.css": ("text/css; charset=utf-8", FOREVER),
        "embed.js": ("text/javascript; charset=utf-8", "no-cache"),
        "a.mjs": ("text/javascript; charset=utf-8", "no-cache"),
        "i.svg": ("image/svg+xml", "no-cache"),
        "app.webmanifest": ("application/manifest+json", "no-cache"),
    }
    for name, (kind, kept) in kinds.items():
        answer = await alice.get(f"/page/{name}")
        assert (answer.status, answer.headers["Content-Type"], answer.headers["Cache-Control"]) == (200, kind, kept)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers.getall("Cross-Origin-Resource-Policy") == ["same-origin"]
        assert "Access-Control-Allow-Origin" not in answer.headers
    # It alone may look after the whole page, which is not below its own path.
    assert (await alice.get("/page/sw.js")).headers["Service-Worker-Allowed"] == "/"
    assert "Service-Worker-Allowed" not in (await alice.get("/page/embed.js")).headers
    for path in ("../app.py", "..%2fapp.py", "", "none.js", "%00", "index.html", "secret.js", "deeper/x.js", "deeper"):
        assert (await alice.get(f"/page/{path}")).status == 404, path


async def test_file_is_compressed_for_those_who_take_it_and_not_sent_again_while_it_is_the_same(
    page: Path, start_server: StartServer
) -> None:
    _build(page)
    alice = (await start_server()).user()
    path = "/page/index-B7mn8QRM.js"
    for accepted, packed in (
        ("gzip, br", True),
        ("br, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.00", False),
        ("", False),
    ):
        answer = await alice.get(path, headers={"Accept-Encoding": accepted})
        assert (answer.headers.get("Content-Encoding") == "gzip") is packed, accepted
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert answer.text == SCRIPT
        if packed:
            assert int(answer.headers["Content-Length"]) < len(SCRIPT) / 5
    for path in ("/page/index-B7mn8QRM.js", "/"):
        tag = (await alice.get(path)).headers["ETag"]
        for given in (tag, f'"other", {tag}', tag.removeprefix("W/")):
            again = await alice.get(path, headers={"If-None-Match": given})
            assert (again.status, again.text, again.headers["ETag"]) == (304, "", tag)
            assert "Content-Security-Policy" in again.headers
        assert (await alice.get(path, headers={"If-None-Match": '"other"'})).status == 200


async def test_page_that_was_not_built_says_how_and_one_built_later_is_served(
    page: Path, start_server: StartServer
) -> None:
    alice = (await start_server()).user()
    missing = await alice.get("/")
    assert (missing.status, missing.headers["Cache-Control"]) == (503, "no-store")
    assert "make ui" in missing.text
    assert "script-src" not in missing.headers["Content-Security-Policy"]
    _build(page)
    assert (await alice.get("/")).text == INDEX
    newer = INDEX.replace("B7mn8QRM", "Zz9_x-0A")
    (page / "index-B7mn8QRM.js").unlink()
    _build(page, newer, **{"index-Zz9_x-0A.js": "newer"})
    (page / "index-B7mn8QRM.js").unlink()
    assert (await alice.get("/")).text == newer
    assert (await alice.get("/page/index-Zz9_x-0A.js")).text == "newer"
    assert (await alice.get("/page/index-B7mn8QRM.js")).text == SCRIPT, "a page that is open still finds its files"
    (page / "index.html").unlink()
    assert (await alice.get("/")).text == newer, "while it is being built the last one stays"


@pytest.mark.parametrize(
    ("name", "hashed"),
    [
        ("index-B7mn8QRM.js", True),
        ("a-b-Cw1fNA0s.css", True),
        ("x-_-aB3_-z.js", True),
        ("embed.js", False),
        ("my-function.js", False),
        ("index-B7mn8QR.js", False),
        ("index-B7mn8QRM.js.map", False),
        ("B7mn8QRM.js", False),
    ],
)
def test_only_a_name_with_a_hash_in_it_is_kept_for_good(name: str, hashed: bool) -> None:
    assert PageFile(name, b"").never_changes is hashed


async def test_link_signs_in_once_and_for_chat_and_approve_only(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    _, approval_id = await alice.question(project)
    visitor, cookie = await _signed_in(server)
    assert (await visitor.get("/my/projects", headers=cookie)).json["total_count"] == 1
    decided = await visitor.post(f"/my/approvals/{approval_id}/confirm", {"decision": "rejected"}, headers=cookie)
    [told] = (await visitor.get("/my/tools/history", headers=cookie)).json["executions"]
    assert (told["decision"]["status"], told["decision"]["decided_from"]) == ("rejected", "page")
    assert decided.status == 200
    result = f"/my/projects/{project}/tools/exec_1/result"
    assert (await visitor.post(result, {"status": "completed", "result": {}}, headers=cookie)).status == 403
    code = await server.parts.sign_in.new_code("alice")
    assert (await visitor.get(f"/sign-in?code={code}")).status == 200
    for used in (code, "wrong", "\xff"):
        assert (await visitor.get(f"/signin?code={used}")).status == 401
    assert (await visitor.get("/signin")).status == 400


async def test_request_with_the_cookie_from_another_page_is_refused(server: Server) -> None:
    visitor, cookie = await _signed_in(server)
    host = server.url.removeprefix("http://")

    async def post(**headers: str) -> int:
        given = {"Authorization": "", "Cookie": cookie["Cookie"], HEADER: cookie[HEADER], **headers}
        answer = await visitor.ask("POST", "/my/projects", data=b'{"name":"x"}', headers=given)
        return answer.status

    same = {"Sec-Fetch-Site": "same-origin"}
    assert await post(**same, **JSON) == 201
    assert await post(Origin=f"http://{host}", **JSON) == 201
    assert await post(**JSON) == 403
    for site in ("cross-site", "same-site", "none"):
        assert await post(**{"Sec-Fetch-Site": site}, **JSON) == 403, site
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null"):
        assert await post(Origin=origin, **same, **JSON) == 403, origin
    assert await post(**same, **{"Content-Type": "text/plain"}) == 415
    for site, status in (("cross-site", 403), ("same-site", 403), ("none", 200)):
        answer = await visitor.get("/my/projects", headers={**cookie, "Sec-Fetch-Site": site})
        assert answer.status == status, site


async def test_cookie_that_was_not_ours_is_401_and_signing_out_clears_it(server: Server) -> None:
    visitor, cookie = await _signed_in(server)
    forged = {**cookie, "Cookie": f"{COOKIE}={server.user().token}"}
    assert (await visitor.get("/my/projects", headers=forged)).status == 401
    session = issue_session(server.settings, "alice", 60, key="k")
    assert (await server.bearer(session).get("/my/projects")).status == 401, "a session is no bearer token"
    out = await visitor.post("/signout", {}, headers=cookie)
    assert out.status == 204
    assert page_cookie(out.headers["Set-Cookie"]).value == ""


async def test_copied_cookie_is_dead_after_signing_out_also_when_the_server_starts_again(
    start_server: StartServer,
) -> None:
    server = await start_server()
    visitor, cookie = await _signed_in(server)
    _, other = await _signed_in(server)
    link_targets = await _led(visitor, cookie)
    unused = (await visitor.post("/my/signin", {}, headers=link_targets)).json["path"]
    assert (await visitor.get("/my/me", headers=link_targets)).status == 200
    assert (await visitor.post("/signout", {}, headers={**cookie, "Cookie": f"{COOKIE}=x"})).status == 204
    assert (await visitor.get("/my/me", headers=cookie)).status == 200, "nobody signed out of this one"
    assert (await visitor.post("/signout", {}, headers=cookie)).status == 204
    assert (await visitor.post("/signout", {}, headers=cookie)).status == 204, "twice does no harm"
    late = await visitor.get(unused, headers={"Authorization": ""})
    late_cookie = {**cookie, **page_headers(late.headers["Set-Cookie"], late.text)}
    for dead in (cookie, link_targets, late_cookie):
        answer = await visitor.get("/my/me", headers=dead)
        assert (answer.status, "byleave link" in answer.json["hint"]) == (401, True)
    assert (await visitor.get("/my/me", headers=other)).status == 200, "another sign-in of the same person"
    server.listening.stop()
    await server.task
    again = await start_server()
    assert (await again.bearer("").get("/my/me", headers=cookie)).status == 401
    assert (await again.bearer("").get("/my/me", headers=other)).status == 200


async def test_sign_in_that_was_led_to_ends_without_the_one_that_led_to_it(server: Server) -> None:
    visitor, cookie = await _signed_in(server)
    link_targets = await _led(visitor, cookie)
    assert (await visitor.post("/signout", {}, headers=link_targets)).status == 204
    assert (await visitor.get("/my/me", headers=link_targets)).status == 401
    assert (await visitor.get("/my/me", headers=cookie)).status == 200


async def test_running_feeds_of_a_cookie_end_when_its_person_signs_out(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    visitor, cookie = await _signed_in(server)
    stolen, (_, other) = dict(cookie), await _signed_in(server)
    url = f"{server.url}/my/projects/{project}/chat/stream"
    async with (
        server.session.get(url, headers=stolen) as dead,
        server.session.get(url, headers=other) as alive,
        alice.feed(project) as bearer,
    ):
        assert (dead.status, alive.status) == (200, 200)
        assert (await visitor.post("/signout", {}, headers=cookie)).status == 204
        async with asyncio.timeout(10):
            assert b"event:" not in await dead.content.read(), "it ended, and told nothing more"
        await alice.question(project)
        await bearer.until("tool.approval_request")
        async with asyncio.timeout(10):
            while b"tool.approval_request" not in await alive.content.readany():
                pass
    async with server.session.get(url, headers=stolen) as refused:
        assert refused.status == 401


async def test_cookie_that_could_not_be_ended_is_not_good(server: Server) -> None:
    secret = server_secret(server.settings)
    claims = jwt.decode(issue_session(server.settings, "alice", 60, key="k"), secret, algorithms=["HS256"])
    for change in ({"jti": None}, {"jti": ""}, {"led_by": [1]}):
        old = {name: value for name, value in {**claims, **change}.items() if value is not None}
        cookie = {"Authorization": "", HEADER: "k", "Cookie": f"{COOKIE}={jwt.encode(old, secret, algorithm='HS256')}"}
        assert (await server.bearer("").get("/my/me", headers=cookie)).status == 401, change


async def test_server_is_alive_and_ready(server: Server) -> None:
    alice = server.user()
    for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
        answer = await alice.get(path, headers={"Authorization": ""})
        assert answer.json == {"status": status}


async def test_links_are_not_given_more_often_than_a_person_would_ask(server: Server) -> None:
    alice = server.user()
    statuses = [(await alice.post("/my/signin")).status for _ in range(MOST_ASKED + 1)]
    assert statuses == [200] * MOST_ASKED + [429]
    assert (await server.user("bob").post("/my/signin")).status == 200


async def test_link_of_a_token_without_an_end_to_speak_of_signs_in_for_the_usual_time(server: Server) -> None:
    for_ever = server.bearer(server.signed({"sub": "alice", "scope": "chat approve execute", "exp": 10**15}))
    link = await for_ever.post("/my/signin")
    assert link.status == 200
    told = await server.bearer("").post(
        "/signin/exchange", {"code": link.json["path"].partition("code=")[2]}, headers={"Authorization": ""}
    )
    assert told.json["expires_in_seconds"] == PROGRAM_SECONDS


async def test_person_gets_a_link_for_another_browser_and_nobody_else_does(server: Server) -> None:
    alice = server.user()
    link = await alice.post("/my/signin")
    assert (link.status, link.json["expires_in_seconds"]) == (200, 600)
    visitor = server.bearer("")
    answer = await visitor.get(link.json["path"], headers={"Authorization": ""})
    assert answer.status == 200
    cookie = {
        "Authorization": "",
        **page_headers(answer.headers["Set-Cookie"], answer.text),
        "Sec-Fetch-Site": "same-origin",
    }
    assert (await visitor.get("/my/me", headers=cookie)).json["user_id"] == "alice"
    assert (await visitor.post("/my/signin", {}, headers=cookie)).status == 200, "also with the page's cookie"
    assert (await visitor.ask("POST", "/my/signin", headers=cookie)).status == 415, "as JSON"
    assert (await visitor.post("/my/signin", {}, headers={**cookie, "Sec-Fetch-Site": "cross-site"})).status == 403
    for scopes in (
        (Scope.CHAT,),
        (Scope.APPROVE,),
        (Scope.EXECUTE,),
        (Scope.AGENT,),
        (Scope.CHAT, Scope.APPROVE, Scope.AGENT),
    ):
        assert (await server.user("alice", scopes).post("/my/signin")).status == 403, scopes
    assert (await visitor.get(link.json["path"])).status == 401, "it works once"
    while (last := await alice.post("/my/signin")).status == 200:
        pass
    assert (last.status, "minute" in last.json["hint"]) == (429, True)


async def test_sign_in_never_lasts_longer_than_what_asked_for_it(server: Server) -> None:
    short = server.bearer(issue_token(server.settings, "alice", (Scope.CHAT, Scope.APPROVE), 100))
    link = (await short.post("/my/signin")).json["path"]
    answer = await short.get(link, headers={"Authorization": ""})
    cookie = page_cookie(answer.headers["Set-Cookie"])
    assert 0 < int(cookie["max-age"]) <= 100
    principal = await server.parts.sessions.holder(cookie.value)
    assert principal.expires_at is not None
    assert principal.expires_at <= time.time() + 101


async def test_old_link_is_a_page_for_a_person_and_a_problem_for_a_program(server: Server) -> None:
    visitor = server.bearer("")
    page = await visitor.get("/signin?code=%3Cscript%3E", headers=HTML)
    assert page.status == 401
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<code>byleave link</code>" in page.text
    assert "script" not in page.text
    [policy] = page.headers.getall("Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "form-action 'none'" in policy
    assert (page.headers["Cache-Control"], page.headers["X-Frame-Options"]) == ("no-store", "DENY")
    _, cookie = await _signed_in(server)
    back = await visitor.get("/signin?code=old", headers={**cookie, **HTML})
    assert (back.status, back.headers["Location"], "Set-Cookie" in back.headers) == (303, "/", False)
    problem = await visitor.get("/signin?code=old", headers={"Authorization": ""})
    assert (problem.status, "byleave link" in problem.json["hint"]) == (401, True)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", None])
async def test_link_that_another_page_led_to_asks_first(server: Server, site: str | None) -> None:
    visitor = server.bearer("")
    link = f"/signin?code={await server.parts.sign_in.new_code('mallory & co')}"
    led = HTML if site is None else {**HTML, "Sec-Fetch-Site": site}
    asked = await visitor.get(link, headers=led)
    assert (asked.status, "Set-Cookie" in asked.headers) == (200, False)
    assert "<bdi>mallory &amp; co</bdi>" in asked.text
    assert f'<form method="post" action="{link}">' in asked.text
    [policy] = asked.headers.getall("Content-Security-Policy")
    assert "form-action 'self'" in policy
    assert asked.headers.getall("Referrer-Policy") == ["same-origin"]
    form = {"Authorization": "", "Content-Type": "application/x-www-form-urlencoded"}
    host = server.url.removeprefix("http://")
    for forged in (
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": f"http://{host}.evil.example"},
        {"Origin": f"http://{host}1"},
        {"Origin": f"http://{host}", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://[evil"},
    ):
        answer = await visitor.ask("POST", link, headers={**form, **forged})
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False), forged
    pressed = await visitor.ask("POST", link, headers={**form, "Origin": f"http://{host}"})
    assert (pressed.status, handed_key(pressed.text)[1]) == (200, "mallory & co")
    assert (await visitor.ask("POST", link, headers={**form, **led, "Sec-Fetch-Site": "same-origin"})).status == 401


async def test_browser_that_is_made_to_fetch_a_link_as_an_image_is_not_signed_in(server: Server) -> None:
    # Over plain HTTP a browser does not say which page made it ask, and a page on another port may set our cookie.
    browser = {"Authorization": "", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept": "image/webp,*/*"}
    link = f"/signin?code={await server.parts.sign_in.new_code('mallory')}"
    answer = await server.bearer("").get(link, headers=browser)
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


async def test_link_for_somebody_else_than_is_signed_in_asks_first(server: Server) -> None:
    visitor, cookie = await _signed_in(server, "alice")
    typed = {**cookie, **HTML, "Sec-Fetch-Site": "none"}
    for user, signs_in in (("alice", True), ("bob", False)):
        code = await server.parts.sign_in.new_code(user)
        answer = await visitor.get(f"/signin?code={code}", headers=typed)
        assert (answer.status, "Set-Cookie" in answer.headers) == (200, signs_in), user
        assert (await visitor.get(f"/signin?code={code}", headers={**typed, "Accept": "*/*"})).status in (401, 403)
    assert "signed in as <bdi>alice</bdi> now" in answer.text
    forged = {**typed, "Cookie": f"{COOKIE}=forged"}
    followed = await visitor.get(f"/signin?code={code}", headers=forged)
    assert handed_key(followed.text)[1] == "bob", "a forged cookie is nobody's"


async def test_no_other_page_signs_a_browser_out(server: Server) -> None:
    visitor, cookie = await _signed_in(server)
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}, {"Origin": "https://evil.example"}):
        answer = await visitor.post("/signout", {}, headers={"Authorization": "", **headers})
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False), headers
    plain = {**cookie, "Content-Type": "text/plain"}
    assert (await visitor.ask("POST", "/signout", headers=plain)).status == 415


async def test_sign_in_that_ended_says_how_to_sign_in_again(server: Server) -> None:
    visitor = server.bearer("")
    answer = await visitor.get("/my/me", headers={"Authorization": "", "Cookie": f"{COOKIE}=over"})
    assert (answer.status, "byleave link" in answer.json["hint"]) == (401, True)


@pytest.mark.promise("R-user")
async def test_page_of_one_user_shows_nothing_of_another(server: Server) -> None:
    await server.user("bob").project("secret plans")
    visitor, cookie = await _signed_in(server)
    assert "secret plans" not in (await visitor.get("/my/projects", headers=cookie)).text


async def test_browser_stays_signed_in_as_long_as_the_operator_says(start_server: StartServer) -> None:
    for hours, seconds in ((12, 43_200), (720, 2_592_000), (0.001, 3)):
        server = await start_server(sign_in_hours=hours)
        answer = await server.bearer("").get(
            f"/signin?code={await server.parts.sign_in.new_code('alice')}", headers={"Authorization": ""}
        )
        assert int(page_cookie(answer.headers["Set-Cookie"])["max-age"]) == seconds
        server.listening.stop()
        await server.task


# Links for a phone


def _matrix(text: str) -> list[str]:
    return ["".join(map(str, row)) for row in segno.make_qr(text, error="l").matrix]


async def test_link_for_a_phone_has_the_public_address_and_its_code_signs_in_there_once(
    start_server: StartServer,
) -> None:
    server = await start_server(public_url="https://Phone.Example.com/")
    alice = server.user("alice")
    made = await alice.post("/my/signin/phone")
    assert (made.status, made.headers["Cache-Control"]) == (200, "no-store")
    url: str = made.json["url"]
    assert url.startswith("https://phone.example.com/signin?code=")
    assert made.json["qr"] == _matrix(url)
    visitor = server.bearer("")
    there = {**HTML, "Host": "phone.example.com", "Sec-Fetch-Site": "none"}
    path = url.removeprefix("https://phone.example.com")
    opened = await visitor.get(path, headers=there)
    assert opened.status == 200
    assert page_cookie(opened.headers["Set-Cookie"])["secure"], "its public address is https, whatever came to us"
    assert (await visitor.get(path, headers=there)).status == 401


async def test_link_for_a_phone_leads_to_where_the_asker_reached_the_server(start_server: StartServer) -> None:
    server = await start_server(allowed_hosts=("box.local", "127.0.0.1"))
    alice, host = server.user("alice"), {"Host": "box.local:8477"}
    assert (await alice.post("/my/signin/phone", headers=host)).json["url"].startswith("http://box.local:8477/signin?")
    # The page's own address tells that a proxy in front of us speaks https; another page's does not count.
    for origin, base in (
        ("https://box.local:8477", "https://box.local:8477"),
        ("https://evil.test", "http://box.local:8477"),
    ):
        made = await alice.post("/my/signin/phone", headers={**host, "Origin": origin})
        assert made.json["url"].startswith(f"{base}/signin?code=")


async def test_server_that_only_its_own_machine_reaches_makes_no_link_for_a_phone(start_server: StartServer) -> None:
    server = await start_server()
    alice = server.user("alice")
    for _ in range(2 * MOST_ASKED):
        assert (await alice.post("/my/signin/phone")).status == 409
    refused = await alice.post("/my/signin/phone")
    assert "only its own machine" in refused.json["detail"]
    assert "BYLEAVE_PUBLIC_URL" in refused.json["hint"]
    assert (await alice.post("/my/signin")).status == 200, "none was made, and so none counted"


@pytest.mark.parametrize("scopes", [(Scope.CHAT,), (Scope.APPROVE,), (Scope.EXECUTE,), (Scope.AGENT,)])
async def test_link_for_a_phone_needs_both_scopes_of_a_person(
    scopes: tuple[Scope, ...], start_server: StartServer
) -> None:
    server = await start_server(public_url="https://phone.example.com")
    token = issue_token(server.settings, "alice", scopes, 60)
    assert (await server.bearer(token).post("/my/signin/phone")).status == 403
