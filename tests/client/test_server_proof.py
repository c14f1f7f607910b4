"""A token goes to the server it is from and to nobody who merely took its port."""

import base64
import hmac
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from yarl import URL

from assent.client import ServerApi
from assent.client.proof import Proof
from assent.protocol.entering import proof_message
from assent.protocol.errors import ConfigurationError, UnreachableError

pytestmark = pytest.mark.promise("S")

SECRET = "the server's own secret, long enough to be one"
TOKEN = jwt.encode({"sub": "alice", "exp": 4102444800}, SECRET, algorithm="HS256")
Answering = Callable[[dict[str, Any], int], dict[str, Any]]


def honest(body: dict[str, Any], port: int, *, secret: str = SECRET, host: str = "127.0.0.1") -> dict[str, Any]:
    key = hmac.digest(secret.encode(), body["claims"].encode(), "sha256")
    proof = hmac.digest(key, proof_message(body["challenge"], host, port), "sha256").hex()
    return {"host": host, "port": port, "proof": proof}


class Standing:
    """What stands at a port: how it answers, and everything it was told."""

    def __init__(self, answering: Answering | int) -> None:
        self.answering = answering
        self.proofs: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.raw = ""
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.raw += f"{request.raw_headers!r} {request.path} {text}"
        if request.path == "/proof":
            if isinstance(self.answering, int):
                return web.Response(status=self.answering)
            self.proofs.append(json.loads(text))
            return web.json_response(self.answering(self.proofs[-1], self.port))
        self.tokens.append(request.headers.get("Authorization", ""))
        return web.json_response({"projects": [], "total_count": 0})


@asynccontextmanager
async def standing(answering: Answering | int, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[Standing]:
    made = Standing(answering)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        made.port = runner.addresses[0][1]
        yield made
    finally:
        await runner.cleanup()


async def test_token_is_sent_once_the_server_has_proven_itself_and_is_not_proven_again_while_it_answers() -> None:
    async with standing(honest) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        await api.list_projects()
        await api.list_projects()
        assert server.tokens == [f"Bearer {TOKEN}"] * 2
        [proof] = server.proofs
        assert proof["claims"] == TOKEN.rpartition(".")[0]


@pytest.mark.parametrize(
    "squatter",
    [
        lambda body, port: honest(body, port, secret="a guess of somebody who cannot read the secret"),
        lambda body, port: honest(body, port) | {"proof": "0" * 64},
        lambda body, port: honest(body, port) | {"proof": "é"},
        lambda body, port: honest(body, 9),  # passed on from the real server at another port
        lambda body, port: honest(body, port, host="127.0.0.2"),  # and at another loopback address
        lambda body, port: honest(body, port, host="::1"),
        lambda body, port: {"what": "is this"},
        404,
        200,
        302,
    ],
)
async def test_who_took_the_port_gets_no_token(squatter: Answering | int) -> None:
    async with standing(squatter) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        with pytest.raises(ConfigurationError, match="did not prove") as caught:
            await api.list_projects()
        assert "port" in (caught.value.hint or "")
        with pytest.raises(ConfigurationError, match="did not prove"):
            async with api.stream("p1"):
                pass
        assert server.tokens == []
        assert TOKEN.rpartition(".")[2] not in server.raw


async def test_what_stands_there_after_a_restart_proves_itself_before_it_gets_the_token() -> None:
    async with standing(honest) as server:
        api = ServerApi(f"http://127.0.0.1:{server.port}", TOKEN)
        await api.list_projects()
    with pytest.raises(UnreachableError):
        await api.list_projects()
    async with standing(lambda body, port: {}, port=server.port) as squatter:
        with pytest.raises(ConfigurationError, match="did not prove"):
            await api.list_projects()
        assert squatter.tokens == []
    async with standing(honest, port=server.port) as again:
        await api.list_projects()
        assert len(again.tokens) == 1
    await api.close()


async def test_server_that_is_just_ending_is_tried_again() -> None:
    async with standing(503) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        with pytest.raises(UnreachableError):
            await api.list_projects()
        assert server.tokens == []


async def test_server_in_a_container_is_known_by_its_port() -> None:
    def contained(body: dict[str, Any], port: int) -> dict[str, Any]:
        return honest(body, port, host="172.17.0.2")

    async with standing(contained) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert len(server.tokens) == 1


async def test_name_of_this_machine_leads_to_the_number_that_was_proven() -> None:
    async with standing(honest) as server, ServerApi(f"http://localhost:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert (await api.proven(URL(f"http://localhost:{server.port}/x"))).host == "127.0.0.1"
    six: Answering = lambda body, port: honest(body, port, host="::1")  # noqa: E731 - its name is its type
    async with standing(six, host="::1") as server, ServerApi(f"http://localhost:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert len(server.tokens) == 1, "also where only the other one answers"


async def test_proof_is_asked_for_again_after_a_while() -> None:
    async with standing(honest) as server:
        url = URL(f"http://127.0.0.1:{server.port}")
        proof = Proof(url, TOKEN, lasts=-1)
        await proof.ensure(url)
        await proof.ensure(url)
        assert len({body["challenge"] for body in server.proofs}) == 2
    with pytest.raises(aiohttp.ClientConnectorError):
        await proof.ensure(url)


def _unsigned(header: str) -> str:
    return base64.urlsafe_b64encode(header.encode()).decode().rstrip("=") + ".e30.eHh4"


@pytest.mark.parametrize(
    ("url", "token", "needed"),
    [
        ("http://127.0.0.1:1", TOKEN, True),
        ("http://localhost:1", TOKEN, True),
        ("http://[::1]:1", TOKEN, True),
        ("https://127.0.0.1:1", TOKEN, False),
        ("http://example.org", TOKEN, False),
        ("http://127.0.0.1:1", _unsigned('{"alg":"RS256"}'), False),
        ("http://127.0.0.1:1", _unsigned("[]"), False),
        ("http://127.0.0.1:1", "opaque", False),
        ("http://127.0.0.1:1", "a.b.c", False),
    ],
)
def test_only_a_token_a_server_of_this_machine_signed_can_be_proven(url: str, token: str, needed: bool) -> None:
    assert Proof(URL(url), token, lasts=1).needed is needed
