"""Programs come in by a one-time link, and a server proves which one it is before anybody shows it a token."""

import base64
import hmac
import json
import secrets
import time

import pytest
from pydantic import SecretStr

from byleave.protocol.sign_in import proof_message
from byleave.protocol.states import Scope
from byleave.server import issue_token
from byleave.server.auth.sign_ins import ASKING_SECONDS, COOKIE, MOST_WRONG, PROGRAM_SECONDS, SignIn
from byleave.server.errors import TooMany
from harness.http_server import Answer, Server, StartServer
from harness.signing import page_headers

pytestmark = pytest.mark.promise("S")

NOBODY = {"Authorization": ""}


async def _exchanged(server: Server, code: str, **headers: str) -> Answer:
    return await server.bearer("").post("/signin/exchange", {"code": code}, headers={**NOBODY, **headers})


async def test_link_is_exchanged_once_for_a_token_of_the_same_user(server: Server) -> None:
    code = await server.parts.sign_in.new_code("alice")
    answer = await _exchanged(server, code)
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    assert "Set-Cookie" not in answer.headers
    told = answer.json
    assert (told["user_id"], told["scopes"]) == ("alice", ["approve", "chat", "execute"])
    assert told["expires_in_seconds"] == PROGRAM_SECONDS
    me = (await server.bearer(told["token"]).get("/my/me")).json
    assert (me["user_id"], sorted(me["scopes"])) == ("alice", ["approve", "chat", "execute"])
    again = await _exchanged(server, code)
    assert (again.status, "byleave link" in again.json["hint"]) == (401, True)
    assert "works once" in again.json["detail"]
    assert (await server.bearer("").get(f"/signin?code={code}", headers=NOBODY)).status == 401, "in a browser neither"


async def test_token_for_a_link_never_lasts_longer_or_may_more_than_what_asked_for_it(server: Server) -> None:
    person = (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE)
    short = server.bearer(issue_token(server.settings, "alice", person, 100))
    code = (await short.post("/my/signin")).json["path"].partition("code=")[2]
    told = (await _exchanged(server, code)).json
    assert 0 < told["expires_in_seconds"] <= 100
    principal = await server.parts.verifier.verify(told["token"])
    assert principal.expires_at is not None
    assert principal.expires_at <= time.time() + 101
    page = server.bearer(issue_token(server.settings, "alice", (Scope.CHAT, Scope.APPROVE), 100))
    link = (await page.post("/my/signin")).json["path"]
    refused = await _exchanged(server, link.partition("code=")[2])
    assert (refused.status, "byleave link" in refused.json["hint"]) == (403, True)
    assert (await page.get(link, headers=NOBODY)).status == 200, "it was not used up, and signs in a browser"


async def test_cookie_of_a_page_makes_no_link_that_gives_a_token(server: Server) -> None:
    visitor = server.bearer("")
    signed = await visitor.get(f"/signin?code={await server.parts.sign_in.new_code('alice')}", headers=NOBODY)
    given = page_headers(signed.headers["Set-Cookie"], signed.text)
    cookie = {**NOBODY, **given, "Sec-Fetch-Site": "same-origin"}
    link = (await visitor.post("/my/signin", {}, headers=cookie)).json["path"]
    assert (await _exchanged(server, link.partition("code=")[2])).status == 403


@pytest.mark.parametrize(
    "page",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Cookie": f"{COOKIE}=x"},
    ],
)
async def test_no_page_exchanges_a_link_or_asks_for_a_proof(server: Server, page: dict[str, str]) -> None:
    code = await server.parts.sign_in.new_code("alice")
    assert (await _exchanged(server, code, **page)).status == 403
    own = {"Origin": server.url, **page}
    assert (await _exchanged(server, code, **own)).status == 403, "our own page neither"
    claims = server.user().token.rpartition(".")[0]
    body = {"claims": claims, "challenge": secrets.token_urlsafe(32)}
    assert (await server.bearer("").post("/proof", body, headers={**NOBODY, **page})).status == 403
    assert (await _exchanged(server, code)).status == 200, "it was not used up"


async def test_form_or_query_exchanges_nothing(server: Server) -> None:
    code = await server.parts.sign_in.new_code("alice")
    visitor = server.bearer("")
    form = {**NOBODY, "Content-Type": "application/x-www-form-urlencoded"}
    assert (await visitor.ask("POST", "/signin/exchange", data=f"code={code}", headers=form)).status == 415
    assert (await visitor.ask("POST", f"/signin/exchange?code={code}", headers=NOBODY)).status == 415
    assert (await visitor.get(f"/signin/exchange?code={code}", headers=NOBODY)).status == 405
    assert (await visitor.post("/signin/exchange", {"code": ""}, headers=NOBODY)).status == 400
    options = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    preflight = await visitor.ask("OPTIONS", "/signin/exchange", headers={**NOBODY, **options})
    assert (preflight.status, "Access-Control-Allow-Origin" in preflight.headers) == (405, False)


async def test_server_of_an_identity_provider_gives_no_token_and_keeps_the_link(start_server: StartServer) -> None:
    server = await start_server(jwks_url="http://127.0.0.1:9/keys")
    code = await server.parts.sign_in.new_code("alice")
    answer = await _exchanged(server, code)
    assert (answer.status, "identity provider" in answer.json["detail"]) == (403, True)
    assert await server.parts.sign_in.look_up(code) is not None


async def test_wrong_codes_are_slowed_down_and_right_ones_never(server: Server) -> None:
    now = [0.0]
    sign_in = SignIn(server.parts.store, b"a key", clock=lambda: now[0])
    for _ in range(MOST_WRONG):
        sign_in.count_wrong()
    with pytest.raises(TooMany):
        sign_in.count_wrong()
    assert await sign_in.use(await sign_in.new_code("alice")) is not None
    now[0] = ASKING_SECONDS + 1
    sign_in.count_wrong()


async def test_guessing_codes_is_429_before_long(server: Server) -> None:
    statuses = [(await _exchanged(server, f"guess{number}")).status for number in range(MOST_WRONG + 1)]
    assert statuses == [401] * MOST_WRONG + [429]
    assert (await _exchanged(server, await server.parts.sign_in.new_code("alice"))).status == 200


# The proof


def _signature(token: str) -> bytes:
    text = token.rpartition(".")[2]
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def _proof(server: Server, claims: str, challenge: str) -> Answer:
    body = {"claims": claims, "challenge": challenge}
    return await server.bearer("").post("/proof", body, headers=NOBODY)


async def test_server_proves_itself_to_who_has_a_token_of_it_and_to_nobody_else(server: Server) -> None:
    token, challenge = server.user().token, secrets.token_urlsafe(32)
    told = (await _proof(server, token.rpartition(".")[0], challenge)).json
    port = int(server.url.rpartition(":")[2])
    assert (told["host"], told["port"]) == ("127.0.0.1", port)
    right = hmac.digest(_signature(token), proof_message(challenge, "127.0.0.1", port), "sha256").hex()
    assert told["proof"] == right
    assert token.rpartition(".")[2] not in json.dumps(told), "the signature is never told"
    other = (await _proof(server, token.rpartition(".")[0], secrets.token_urlsafe(32))).json
    assert other["proof"] != right, "an old proof answers no new challenge"


async def test_server_with_another_secret_proves_nothing(server: Server) -> None:
    foreign = server.settings.model_copy(update={"secret": SecretStr("x" * 40)})
    token, challenge = issue_token(foreign, "alice", (Scope.CHAT,), 60), secrets.token_urlsafe(32)
    told = (await _proof(server, token.rpartition(".")[0], challenge)).json
    message = proof_message(challenge, told["host"], told["port"])
    assert told["proof"] != hmac.digest(_signature(token), message, "sha256").hex()


@pytest.mark.parametrize("header", ['{"alg":"RS256"}', '{"alg":"none"}', "[]", "{", "é"])
async def test_only_what_this_server_could_have_signed_is_proven(server: Server, header: str) -> None:
    claims = base64.urlsafe_b64encode(header.encode()).decode().rstrip("=") + ".e30"
    assert (await _proof(server, claims, secrets.token_urlsafe(32))).status == 400


@pytest.mark.parametrize(("claims", "challenge"), [("a.b.c", "x" * 43), ("a b.c", "x" * 43), ("a.b", "short")])
async def test_proof_of_something_else_is_refused(server: Server, claims: str, challenge: str) -> None:
    assert (await _proof(server, claims, challenge)).status == 400
