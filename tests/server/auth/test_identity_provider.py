"""People sign in to the page by a real identity provider, and nobody else does."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Unpack

import pytest
from pydantic import SecretStr

from byleave.protocol.errors import ConfigurationError, RefusedError
from byleave.protocol.states import Scope
from byleave.server.auth import keys
from byleave.server.auth.claims import ClaimMap
from byleave.server.auth.provider import IdentityProvider
from byleave.server.errors import Unauthenticated, Unavailable
from byleave.settings import ServerSettings
from harness.http_server import Server, StartServer
from harness.identity_provider import FROM_TYPING, client, provider, visitor
from harness.json_values import JsonObject
from harness.options import ServerOptions
from harness.ports import free_port

PEOPLE: dict[str, JsonObject] = {
    "ada": {"email": "ada@example.org", "email_verified": True, "groups": ["developers", "choir"]},
    "eve": {"email": "ada@example.org", "email_verified": False, "groups": ["choir"]},
}
Settled = Callable[..., Awaitable[tuple[Server, str]]]


@pytest.fixture
async def settled(start_server: StartServer) -> AsyncGenerator[Settled]:
    """A server and the provider it asks."""
    async with AsyncExitStack() as stack:

        async def start(*, key: str | None = "s/e:c r%et", **changes: Unpack[ServerOptions]) -> tuple[Server, str]:
            port = free_port()
            options: ServerOptions = {
                "oidc_issuer": f"http://127.0.0.1:{port}",
                "oidc_client_id": "byleave",
                "oidc_client_secret": None if key is None else SecretStr(key),
                **changes,
            }
            server = await start_server(**options)
            more = {} if key else {"client_secret": None, "token_endpoint_auth_method": "none"}
            return server, await stack.enter_async_context(provider(port, [client(server.url, **more)], PEOPLE))

        yield start


@pytest.mark.parametrize("secret", ["s/e:c r%et", None])
async def test_a_person_signs_in_by_the_provider_and_opens_the_page(settled: Settled, secret: str | None) -> None:
    server, _ = await settled(key=secret)
    async with visitor(server.url) as browser:
        status, said = await browser.sign_in("ada")
        assert status == 200, said
        assert (await browser.me())["user_id"] == said["user_id"] == "ada"
        assert (await browser.me())["scopes"] == ["approve", "chat"]
        # The cookie alone opens nothing, as after a link.
        async with browser.session.get(f"{server.url}/my/me") as answer:
            assert answer.status == 401


async def test_a_verified_address_names_a_user_and_an_unverified_one_none(settled: Settled) -> None:
    server, _ = await settled(token_user_claim="email")
    async with visitor(server.url) as browser:
        assert (await browser.sign_in("ada"))[1]["user_id"] == "ada@example.org"
    async with visitor(server.url) as browser:
        status, said = await browser.sign_in("eve")
        assert (status, said["detail"]) == (401, "The identity provider has not verified this e-mail address.")


async def test_only_people_with_a_mapped_role_open_the_page(settled: Settled) -> None:
    server, _ = await settled(token_roles={"developers": ("chat", "approve")})
    async with visitor(server.url) as browser:
        assert (await browser.sign_in("ada"))[0] == 200
    async with visitor(server.url) as browser:
        status, said = await browser.sign_in("eve")
        assert status == 403
        assert "none of its roles" in said["detail"]
        assert "Set-Cookie" not in str(said)


async def test_a_code_ends_only_the_attempt_it_is_of_and_only_once(settled: Settled) -> None:
    server, _ = await settled()
    async with visitor(server.url) as attacker, visitor(server.url) as browser:
        theirs, address = await attacker.begin()
        given = await attacker.sign_in_there(address, "eve")
        mine, _ = await browser.begin()
        assert (await browser.finish(mine, given))[0] == 401, "the answer to the attempt of another browser"
        assert (await browser.finish("", given))[0] == 401
        assert (await browser.finish(mine[:-4] + "AAAA", given))[0] == 401
        assert (await attacker.finish(theirs, {**given, "iss": "https://other.example"}))[0] == 401
        assert (await attacker.finish(theirs, given))[0] == 200
        status, said = await attacker.finish(theirs, given)
        assert (status, said["detail"]) == (401, "The identity provider did not accept this sign-in.")


async def test_nobody_is_signed_in_from_another_page_or_over_somebody_else_unasked(settled: Settled) -> None:
    server, _ = await settled()
    start, told = f"{server.url}/signin/provider", []
    async with visitor(server.url) as browser:
        async with browser.session.get(start, headers={**FROM_TYPING, "Sec-Fetch-Site": "cross-site"}) as answer:
            told.append(await answer.text())
        await browser.sign_in("ada")
        async with browser.session.get(start, headers=FROM_TYPING) as answer:
            told.append(await answer.text())
        assert all("Sign in?" in text and "data-ticket" not in text for text in told)
        assert "<bdi>ada</bdi>" in told[1]
        # The button goes on; a page of another origin cannot press it.
        async with browser.session.post(start, headers={"Sec-Fetch-Site": "cross-site"}) as answer:
            assert answer.status == 403
        async with browser.session.post(start, headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert "data-ticket" in await answer.text()
        body, marks = {"ticket": "x", "code": "x", "state": "x"}, {"Sec-Fetch-Site": "cross-site"}
        async with browser.session.post(f"{start}/finish", json=body, headers=marks) as answer:
            assert answer.status == 403


async def test_a_cancelled_sign_in_and_a_strange_error_are_told_without_markup(settled: Settled) -> None:
    server, _ = await settled()
    async with visitor(server.url) as browser:
        for query, words in (("error=access_denied", "cancelled"), ("error=<b>x", "&lt;b&gt;x")):
            async with browser.session.get(f"{server.url}/signin/provider/return?{query}") as answer:
                assert answer.status >= 400
                assert words in await answer.text()


async def test_signing_out_there_leads_to_the_providers_page(settled: Settled) -> None:
    server, issuer = await settled()
    async with visitor(server.url) as browser:
        out = browser.session.get(f"{server.url}/signin/provider/out", allow_redirects=False)
        async with out as answer:
            assert answer.status == 303
            assert answer.headers["Location"].startswith(f"{issuer}/session/end?client_id=byleave")
        async with browser.session.get(answer.headers["Location"]) as there:
            assert there.status == 200


async def test_the_page_says_which_provider_there_is(settled: Settled, start_server: StartServer) -> None:
    server, _ = await settled(oidc_name="Example")
    async with visitor(server.url) as browser, browser.session.get(f"{server.url}/signin/ways") as answer:
        assert await answer.json() == {"provider": "Example"}
    without = await start_server(home=server.settings.home / "other")
    async with visitor(without.url) as browser:
        async with browser.session.get(f"{without.url}/signin/ways") as answer:
            assert await answer.json() == {"provider": None}
        async with browser.session.get(f"{without.url}/signin/provider") as answer:
            assert answer.status == 404


async def test_keys_that_the_provider_rotated_are_fetched_anew(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "REFRESH_SECONDS", 0)
    port = free_port()
    server = await start_server(
        oidc_issuer=f"http://127.0.0.1:{port}", oidc_client_id="byleave", oidc_client_secret=SecretStr("s/e:c r%et")
    )
    for _ in range(2):
        async with provider(port, [client(server.url)], PEOPLE), visitor(server.url) as browser:
            assert (await browser.sign_in("ada"))[0] == 200


async def test_a_provider_that_is_down_is_told_in_words_and_links_still_work(start_server: StartServer) -> None:
    server = await start_server(oidc_issuer=f"http://127.0.0.1:{free_port()}", oidc_client_id="byleave")
    async with visitor(server.url) as browser:
        async with browser.session.get(f"{server.url}/signin/provider", headers=FROM_TYPING) as answer:
            assert answer.status == 503
            assert "The identity provider does not answer." in await answer.text()
        async with browser.session.get(f"{server.url}/signin/provider", headers={"Sec-Fetch-Site": "none"}) as answer:
            assert (await answer.json())["hint"].startswith("Try again in a while; a link")


@asynccontextmanager
async def answering(body: bytes, status: str) -> AsyncGenerator[str]:
    """A program that answers everything with this; ISSUER in it is its own address."""
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    said = body.replace(b"ISSUER", issuer.encode())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(said)}\r\nConnection: close\r\n\r\n".encode() + said)
        with contextlib.suppress(ConnectionError):  # it reads no more than it takes
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port):
        yield issuer


NONSENSE = [
    (b"<html>", "200 OK"),
    (b"[]", "200 OK"),
    (b"[" * 100_000, "200 OK"),
    (b'{"issuer": "ISSUER"}', "200 OK"),
    (b'{"issuer": "https://other.example"}', "200 OK"),
    (b'{"issuer": "ISSUER", "authorization_endpoint": "javascript:alert(1)"}', "200 OK"),
    (b'{"issuer": "ISSUER", "authorization_endpoint": "http://other.example/a"}', "200 OK"),
    (b"{" + b" " * 2_000_000 + b"}", "200 OK"),
    (b"{}", "500 Internal Server Error"),
    (b"", "302 Found\r\nLocation: /elsewhere"),
]


async def test_no_connection_is_kept_that_the_provider_could_close_as_a_code_is_sent() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(answer, "127.0.0.1", port):
        await _refused(f"http://127.0.0.1:{port}")
    assert b"connection: close" in asked[0].lower()


@pytest.mark.parametrize(("body", "status"), NONSENSE)
async def test_nonsense_from_the_provider_signs_nobody_in(body: bytes, status: str) -> None:
    async with answering(body, status) as issuer:
        await _refused(issuer)


async def _refused(issuer: str) -> None:
    settings = ServerSettings(oidc_issuer=issuer, oidc_client_id="byleave")
    asked = IdentityProvider(settings, b"k" * 32, ClaimMap())
    try:
        with pytest.raises(Unavailable):
            await asked.begin("http://127.0.0.1/signin/provider/return")
    finally:
        await asked.close()


@pytest.mark.parametrize(
    ("issuer", "client_id"),
    [
        ("http://login.example.org", "x"),
        ("ftp://127.0.0.1", "x"),
        ("https://u:p@example.org", "x"),
        (None, "x"),
        ("https://a", None),
    ],
)
def test_an_unsafe_or_half_configured_provider_is_refused_at_the_start(
    issuer: str | None, client_id: str | None
) -> None:
    settings = ServerSettings(oidc_issuer=issuer, oidc_client_id=client_id)
    with pytest.raises(ConfigurationError):
        IdentityProvider(settings, b"k" * 32, ClaimMap())


@pytest.mark.parametrize(
    ("values", "claims", "scopes"),
    [
        ({}, {"scope": "chat approve other"}, {"chat", "approve"}),
        ({"token_scope_claims": ("scp", "also")}, {"scp": "chat", "also": ["approve", 5]}, {"chat", "approve"}),
        ({"token_scope_prefix": "byleave:"}, {"scope": "byleave:chat approve"}, {"chat"}),
        ({"token_scope_prefix": "https://b.example/"}, {"scope": "https://b.example/agent"}, {"agent"}),
        ({"token_roles": {"dev": ("chat", "execute")}}, {"groups": ["dev", "choir"]}, {"chat", "execute"}),
        (
            {"token_roles": {"dev": ("chat",)}, "token_role_claims": ("realm_access.roles",)},
            {"realm_access": {"roles": ["dev"]}},
            {"chat"},
        ),
        ({"token_roles": {"dev": ("chat",)}}, {"groups": {"dev": True}, "roles": None}, set()),
    ],
)
def test_claims_give_the_scopes_that_the_settings_say(
    values: ServerOptions, claims: JsonObject, scopes: set[str]
) -> None:
    assert ClaimMap.of(ServerSettings(**values)).scopes(claims) == scopes


def test_roles_are_read_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLEAVE_TOKEN_ROLES", "developers=chat approve execute, nightly = agent")
    found = ClaimMap.of(ServerSettings())
    assert found.scopes({"roles": "nightly"}) == {Scope.AGENT}
    assert found.scopes({"groups": ["developers"]}) == {Scope.CHAT, Scope.APPROVE, Scope.EXECUTE}
    for wrong in ("developers", "developers=chatt", "=chat"):
        monkeypatch.setenv("BYLEAVE_TOKEN_ROLES", wrong)
        with pytest.raises(ConfigurationError, match="BYLEAVE_TOKEN_ROLES"):
            ClaimMap.of(ServerSettings())


def test_a_claim_that_names_nobody_is_refused() -> None:
    for claims in ({}, {"sub": 5}, {"sub": ""}, {"sub": "a\nb"}, {"sub": ["a"]}):
        with pytest.raises(Unauthenticated):
            ClaimMap().user(claims)
    with pytest.raises(RefusedError):
        ClaimMap(roles={"dev": frozenset({Scope.CHAT})}).page_scopes({"roles": ["dev"]}, frozenset({Scope.CHAT}))
