"""The page's cookie reaches every port of its host: whoever gets it there can do nothing with it, without the key."""

from pathlib import Path

import jwt
import pytest
from pydantic import SecretStr

from byleave.server import server_secret
from byleave.server.auth.sign_ins import COOKIE, cookie_name
from byleave.server.auth.tokens import HEADER, LONGEST_KEY, issue_session
from harness.http_server import Server, StartServer
from harness.signing import handed_key, page_cookie, page_headers

pytestmark = pytest.mark.promise("S", "A")


async def _signed_in(server: Server, user: str = "alice") -> dict[str, str]:
    """What the page of a signed-in browser sends."""
    code = await server.parts.sign_in.new_code(user)
    answer = await server.bearer("").get(f"/signin?code={code}", headers={"Authorization": ""})
    own = {"Authorization": "", "Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    return {**own, **page_headers(answer.headers["Set-Cookie"], answer.text)}


def _with_key(page: dict[str, str], key: str | None) -> dict[str, str]:
    """The same with another key, or with none."""
    rest = {name: value for name, value in page.items() if name != HEADER}
    return rest if key is None else {**rest, HEADER: key}


async def test_cookie_without_its_key_reads_nothing_hears_nothing_and_decides_nothing(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    _, approval_id = await alice.question(project)
    page, other, visitor = await _signed_in(server), await _signed_in(server), server.bearer("")
    assert page[HEADER] != other[HEADER]
    confirm, stream = f"/my/approvals/{approval_id}/confirm", f"/my/projects/{project}/chat/stream"
    wrong = (None, "", "x", other[HEADER], page[HEADER][:-1], page[HEADER] + "x", "ÿ", "x" * (LONGEST_KEY + 1))
    for key in wrong:
        stolen = _with_key(page, key)
        for path in ("/my/me", "/my/nothing"):
            told = await visitor.get(path, headers=stolen)
            assert (told.status, "byleave link" in told.json["hint"]) == (401, True), (path, key)
        async with server.session.get(server.url + stream, headers=stolen) as feed:
            assert feed.status == 401, key
        for path in (confirm, "/my/signin"):
            told = await visitor.post(path, {"decision": "approved"}, headers=stolen)
            assert (told.status, "byleave link" in told.json["hint"]) == (401, True), (path, key)
    assert (await visitor.get(f"/my/me?{HEADER}={page[HEADER]}", headers=_with_key(page, None))).status == 401
    async with server.session.get(server.url + stream, headers=page) as feed:
        assert feed.status == 200
    assert (await visitor.post(confirm, {"decision": "rejected"}, headers=page)).status == 200


async def test_key_given_twice_is_refused_as_it_stands(server: Server) -> None:
    page = await _signed_in(server)
    twice = [*page.items(), (HEADER, "x")]
    async with server.session.get(f"{server.url}/my/me", headers=twice) as answer:
        assert answer.status == 400


async def test_key_without_the_cookie_opens_nothing_and_a_bearer_token_needs_none(server: Server) -> None:
    page = await _signed_in(server)
    alone = {name: value for name, value in page.items() if name != "Cookie"}
    assert (await server.bearer("").get("/my/me", headers=alone)).status == 401
    assert (await server.user().get("/my/me", headers={HEADER: "wrong"})).status == 200


async def test_sign_in_from_before_there_were_keys_is_not_good(server: Server) -> None:
    secret = server_secret(server.settings)
    claims = jwt.decode(issue_session(server.settings, "alice", 60, key="k"), secret, algorithms=["HS256"])
    for digest in (None, "", "k", 1, ["k"], claims["key"].upper()):
        old = {name: value for name, value in {**claims, "key": digest}.items() if value is not None}
        cookie = f"{COOKIE}={jwt.encode(old, secret, algorithm='HS256')}"
        for key in ("k", ""):
            answer = await server.bearer("").get("/my/me", headers={"Authorization": "", "Cookie": cookie, HEADER: key})
            assert (answer.status, "byleave link" in answer.json["hint"]) == (401, True), digest


async def test_signing_out_without_the_key_clears_that_browsers_cookie_and_ends_nothing(server: Server) -> None:
    page, visitor = await _signed_in(server), server.bearer("")
    out = await visitor.post("/signout", {}, headers=_with_key(page, "x"))
    assert (out.status, page_cookie(out.headers["Set-Cookie"]).value) == (204, "")
    assert (await visitor.get("/my/me", headers=page)).status == 200, "nobody else signs the person out"
    assert (await visitor.post("/signout", {}, headers=page)).status == 204
    assert (await visitor.get("/my/me", headers=page)).status == 401


async def test_key_is_handed_over_once_in_a_body_that_nothing_keeps_and_in_no_address(server: Server) -> None:
    visitor, user = server.bearer(""), 'al"ice <script>'
    link = f"/signin?code={await server.parts.sign_in.new_code(user)}"
    answer = await visitor.get(link, headers={"Authorization": "", "Sec-Fetch-Site": "none", "Accept": "text/html"})
    key, whose = handed_key(answer.text)
    assert (answer.status, whose, len(key) >= 43) == (200, user, True)
    assert "Location" not in answer.headers
    assert not any(key in value for value in answer.headers.values()), "a program on the way may log headers"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    [policy] = answer.headers.getall("Content-Security-Policy")
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert (answer.text.count("<script>"), answer.text.count(key)) == (1, 1)
    claims = jwt.decode(
        page_headers(answer.headers["Set-Cookie"], answer.text)["Cookie"].partition("=")[2],
        server_secret(server.settings),
        algorithms=["HS256"],
    )
    assert key not in str(claims), "who has the cookie cannot read the key out of it"


async def test_cookies_that_another_port_set_beside_ours_keep_nobody_out(server: Server) -> None:
    """A program on another port can set one of this name for a path of ours: browsers send it, and send it first."""
    page, mallory, visitor = await _signed_in(server), await _signed_in(server, "mallory"), server.bearer("")
    others = f"{COOKIE}=x; {mallory['Cookie']}; {COOKIE}="
    for cookies in (f"{others}; {page['Cookie']}", f"{page['Cookie']}; {others}"):
        tossed = {**page, "Cookie": cookies}
        me = await visitor.get("/my/me", headers=tossed)
        assert (me.status, me.json.get("user_id")) == (200, "alice")
    without = await visitor.get("/my/me", headers={**page, "Cookie": others})
    assert without.status == 401
    # Signing out ends the sign-in whose key it is.
    tossed = {**page, "Cookie": f"{others}; {page['Cookie']}"}
    assert (await visitor.post("/signout", {}, headers=tossed)).status == 204
    assert [(await visitor.get("/my/me", headers=each)).status for each in (page, mallory)] == [401, 200]


async def test_two_servers_of_one_host_do_not_sign_a_person_out_of_one_another(
    start_server: StartServer, tmp_path: Path
) -> None:
    """One beside the other, or two behind tunnels: a browser has one jar for all ports of a host."""
    jar: dict[str, str] = {}
    keys: list[str] = []
    servers = [await start_server(home=tmp_path / name, secret=SecretStr(name * 32)) for name in ("a", "b")]
    for server in servers:
        code = await server.parts.sign_in.new_code("alice")
        answer = await server.bearer("").get(f"/signin?code={code}", headers={"Authorization": ""})
        cookie = page_cookie(answer.headers["Set-Cookie"])
        jar[cookie.key] = cookie.value
        keys.append(handed_key(answer.text)[0])
    cookies = "; ".join(f"{name}={value}" for name, value in jar.items())
    pages = [{"Authorization": "", "Sec-Fetch-Site": "same-origin", "Cookie": cookies, HEADER: key} for key in keys]
    told = [
        (await each.bearer("").get("/my/me", headers=page)).status for each, page in zip(servers, pages, strict=True)
    ]
    assert told == [200, 200]
    assert (await servers[0].bearer("").get("/my/me", headers=pages[1])).status == 401


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:8477", f"{COOKIE}_8477"),
        ("[::1]:80", f"{COOKIE}_80"),
        ("[::1]", COOKIE),
        ("byleave.example.com", COOKIE),
        ("localhost:", COOKIE),
    ],
)
def test_cookie_is_named_by_the_port_the_browser_sees(host: str, name: str) -> None:
    assert cookie_name(host) == name
