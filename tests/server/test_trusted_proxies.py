"""What a reverse proxy says of a request is believed from the operator's own proxies, and from nobody else."""

import json

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from byleave.server.proxies import TrustedProxies
from byleave.settings import ServerSettings
from harness.http_server import Answer, Server, StartServer
from harness.signing import page_cookie, page_headers

NAME = "byleave.example.com"
TLS = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": NAME, "X-Forwarded-For": "198.51.100.7"}
HERE = ("127.0.0.1",)


async def _sign_in(server: Server, headers: dict[str, str]) -> Answer:
    code = await server.parts.sign_in.new_code("alice")
    return await server.bearer("").get(f"/signin?code={code}", headers={"Authorization": "", **headers})


async def test_sign_in_through_a_trusted_proxy_with_tls_gives_a_secure_cookie(start_server: StartServer) -> None:
    server = await start_server(trusted_proxies=HERE, allowed_hosts=(NAME, "127.0.0.1"))
    answer = await _sign_in(server, TLS)
    cookie = page_cookie(answer.headers["Set-Cookie"])
    assert (cookie["secure"], cookie.key) == (True, "byleave_session"), "named without our own port"
    plain = await _sign_in(server, {**TLS, "X-Forwarded-Proto": "http"})
    assert page_cookie(plain.headers["Set-Cookie"])["secure"] == ""
    assert page_cookie((await _sign_in(server, {})).headers["Set-Cookie"])["secure"] == ""


async def test_forged_headers_of_an_untrusted_address_are_not_believed(start_server: StartServer) -> None:
    server = await start_server(trusted_proxies=("192.0.2.1", "10.0.0.0/8"), allowed_hosts=(NAME, "127.0.0.1"))
    with capture_logs() as logs:
        answer = await _sign_in(server, TLS)
        assert page_cookie(answer.headers["Set-Cookie"])["secure"] == ""
        assert page_cookie(answer.headers["Set-Cookie"]).key != "byleave_session", "by the host that was asked"
        assert (await server.user().post("/my/projects", {"name": "x"}, headers=TLS)).status == 201
    assert {line["address"] for line in logs if line["event"] == "request"} == {"127.0.0.1"}
    # Nor does it take a host that is not ours, or refuse what nobody reads.
    other = await server.user().get("/my/me", headers={"X-Forwarded-Host": "evil.example"})
    assert other.status == 200
    assert (await server.user().get("/my/me", headers={"X-Forwarded-Proto": "ftp, https"})).status == 200


async def test_host_that_a_trusted_proxy_tells_must_be_ours_too(start_server: StartServer) -> None:
    server = await start_server(trusted_proxies=HERE, allowed_hosts=(NAME, "127.0.0.1"))
    told = {**TLS, "X-Forwarded-Host": "evil.example"}
    assert (await server.user().get("/my/me", headers=told)).status == 421


async def test_only_the_servers_own_page_uses_the_cookie_behind_a_proxy(start_server: StartServer) -> None:
    server = await start_server(trusted_proxies=HERE, allowed_hosts=(NAME,))
    visitor, signed = server.bearer(""), await _sign_in(server, TLS)
    own = {"Authorization": "", **TLS, **page_headers(signed.headers["Set-Cookie"], signed.text)}

    async def post(origin: str) -> int:
        return (await visitor.post("/my/projects", {"name": "x"}, headers={**own, "Origin": origin})).status

    assert await post(f"https://{NAME}") == 201
    for origin in (f"http://{NAME}", f"https://{NAME}:8443", "https://evil.example", server.url, "https://[", "null"):
        assert await post(origin) == 403, origin
    out = await visitor.post("/signout", {}, headers={**own, "Origin": f"https://{NAME}"})
    assert (out.status, page_cookie(out.headers["Set-Cookie"])["secure"]) == (204, True)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-Proto": "https, http"},
        {"X-Forwarded-Proto": "wss"},
        {"X-Forwarded-Proto": ""},
        {"X-Forwarded-Host": f"evil.example, {NAME}"},
    ],
)
async def test_what_a_proxy_says_twice_or_otherwise_is_refused(
    start_server: StartServer, headers: dict[str, str]
) -> None:
    server = await start_server(trusted_proxies=HERE)
    answer = await server.user().get("/my/me", headers=headers)
    assert (answer.status, "deploy/nginx.conf" in answer.json["hint"]) == (400, True)


@pytest.mark.parametrize(
    ("peer", "chain", "sender"),
    [
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),  # the first was sent by the second
        ("127.0.0.1", "198.51.100.7, 10.1.2.3", "198.51.100.7"),  # 10.1.2.3 is one of ours
        ("127.0.0.1", "10.9.9.9, 10.1.2.3", "10.9.9.9"),  # who asks is within the network of the proxies
        ("127.0.0.1", "198.51.100.7, unknown", "127.0.0.1"),
        ("127.0.0.1", "unknown, 10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "198.51.100.7:4711", "198.51.100.7"),
        ("127.0.0.1", '"[2001:db8::1]:4711"', "2001:db8::1"),
        ("127.0.0.1", "203.0.113.9; 198.51.100.7", "198.51.100.7"),  # two headers
        ("::ffff:127.0.0.1", "::ffff:198.51.100.7", "198.51.100.7"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),  # not listed
    ],
)
def test_sender_is_the_last_address_that_no_trusted_proxy_has(peer: str, chain: str, sender: str) -> None:
    scope = {"client": (peer, 1), "scheme": "http", "headers": [(b"x-forwarded-for", chain.encode())]}
    proxies = TrustedProxies(("127.0.0.1/32", "10.0.0.0/8"))
    assert proxies.see_through(scope, {b"x-forwarded-for": chain, b"a": "b"}) == {b"a": "b"}
    assert (scope["client"][0], scope["headers"]) == (sender, [])


async def test_log_names_the_address_behind_a_trusted_proxy(start_server: StartServer) -> None:
    server = await start_server(trusted_proxies=HERE)
    with capture_logs() as logs:
        await server.user().post("/my/projects", {"name": "x"}, headers={"X-Forwarded-For": "198.51.100.7"})
    assert [line["address"] for line in logs if line["event"] == "request"] == ["198.51.100.7"]


@pytest.mark.parametrize("listed", ["0.0.0.0/0", "::/0", "10.0.0.1/8", "proxy.example.com"])
def test_proxies_that_are_everybody_or_no_address_are_refused(listed: str) -> None:
    with pytest.raises(ValidationError, match=r"list the addresses|write an address"):
        ServerSettings(trusted_proxies=(listed,))


def test_proxies_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLEAVE_TRUSTED_PROXIES", "127.0.0.1, 10.0.0.0/8,::1")
    assert ServerSettings().trusted_proxies == ("127.0.0.1/32", "10.0.0.0/8", "::1/128")
    assert json.loads(ServerSettings().model_dump_json())["trusted_proxies"][1] == "10.0.0.0/8"
