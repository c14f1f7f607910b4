"""The chat page: served safely, signed in by a link that works once, and safe from other pages."""

import re
from http.cookies import SimpleCookie
from typing import Any

import pytest

from assent.server import SignIn
from assent.server.auth import issue_session
from assent.server.pages import page_files
from assent.server.signin import CODE_SECONDS, COOKIE, MOST_CODES

JSON = {"Content-Type": "application/json"}


async def _signed_in(server: Any, user: str = "alice") -> tuple[Any, dict[str, str]]:
    visitor = server.bearer("")
    code = server.parts.sign_in.new_code(user)
    answer = await visitor.get(f"/signin?code={code}", headers={"Authorization": ""})
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = SimpleCookie(answer.headers["Set-Cookie"])[COOKIE]
    assert (cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (True, "strict", "/")
    return visitor, {
        "Authorization": "",
        "Cookie": f"theme=dark; {COOKIE}={cookie.value}",
        "Sec-Fetch-Site": "same-origin",
    }


async def test_page_and_its_files_are_served_with_a_strict_policy(server: Any) -> None:
    alice = server.user()
    page = await alice.get("/")
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        assert (await alice.get(path)).status == 200, path
    for path in ("/page/../app.py", "/page/..%2fapp.py", "/page/", "/page/none.js", "/page/%00"):
        assert (await alice.get(path)).status == 404, path


def test_page_puts_text_in_as_text_and_has_nothing_inline() -> None:
    for name, (content, _) in page_files().items():
        text = content.decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", text), name


async def test_link_signs_in_once_and_for_chat_and_approve_only(server: Any) -> None:
    alice = server.user()
    project = await alice.project()
    _, approval_id = await alice.question(project)
    visitor, cookie = await _signed_in(server)
    assert (await visitor.get("/my/projects", headers=cookie)).json["total_count"] == 1
    decided = await visitor.post(f"/my/approvals/{approval_id}/confirm", {"decision": "rejected"}, headers=cookie)
    assert decided.status == 200
    result = f"/my/projects/{project}/tools/exec_1/result"
    assert (await visitor.post(result, {"status": "completed", "result": {}}, headers=cookie)).status == 403
    code = server.parts.sign_in.new_code("alice")
    assert (await visitor.get(f"/sign-in?code={code}")).status == 303
    for used in (code, "wrong", "\xff"):
        assert (await visitor.get(f"/signin?code={used}")).status == 401
    assert (await visitor.get("/signin")).status == 400


async def test_request_with_the_cookie_from_another_page_is_refused(server: Any) -> None:
    visitor, cookie = await _signed_in(server)
    host = server.url.removeprefix("http://")

    async def post(**headers: str) -> int:
        given = {"Authorization": "", "Cookie": cookie["Cookie"], **headers}
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


async def test_cookie_that_was_not_ours_is_401_and_signing_out_clears_it(server: Any) -> None:
    visitor, cookie = await _signed_in(server)
    forged = {**cookie, "Cookie": f"{COOKIE}={server.user().token}"}
    assert (await visitor.get("/my/projects", headers=forged)).status == 401
    session = issue_session(server.settings, "alice", 60)
    assert (await server.bearer(session).get("/my/projects")).status == 401, "a session is no bearer token"
    out = await visitor.post("/signout", {}, headers=cookie)
    assert out.status == 204
    assert f'{COOKIE}=""' in out.headers["Set-Cookie"]


async def test_server_is_alive_and_ready(server: Any) -> None:
    alice = server.user()
    for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
        answer = await alice.get(path, headers={"Authorization": ""})
        assert answer.json == {"status": status}


def test_codes_end_and_do_not_pile_up() -> None:
    now = [0.0]
    sign_in = SignIn(clock=lambda: now[0])
    old = sign_in.new_code("alice")
    now[0] = CODE_SECONDS + 1
    assert sign_in.redeem(old) is None
    first = sign_in.new_code("alice")
    last = [sign_in.new_code("bob") for _ in range(MOST_CODES)][-1]
    assert sign_in.redeem(first) is None
    assert sign_in.redeem(last) == "bob"
    assert sign_in.redeem(last) is None


@pytest.mark.promise("R-user")
async def test_page_of_one_user_shows_nothing_of_another(server: Any) -> None:
    await server.user("bob").project("secret plans")
    visitor, cookie = await _signed_in(server)
    assert "secret plans" not in (await visitor.get("/my/projects", headers=cookie)).text
