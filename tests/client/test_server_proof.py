"""A token goes to the server it is from and to nobody who merely took its port."""

import asyncio
import base64
import hmac
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from aiohttp import web
from yarl import URL

from byleave.addresses import is_loopback
from byleave.client import loopback as proof
from byleave.client.api import ServerApi
from byleave.client.loopback import loopback_numbers
from byleave.protocol.errors import ByleaveError, ConfigurationError, UnreachableError
from byleave.protocol.sign_in import proof_message
from harness.json_values import JsonObject

pytestmark = pytest.mark.promise("S")

SECRET = "the server's own secret, long enough to be one"
TOKEN = jwt.encode({"sub": "alice", "exp": 4102444800}, SECRET, algorithm="HS256")
Answering = Callable[[JsonObject, int], JsonObject]


def honest(body: JsonObject, port: int, *, secret: str = SECRET, host: str = "127.0.0.1") -> JsonObject:
    key = hmac.digest(secret.encode(), body["claims"].encode(), "sha256")
    proof = hmac.digest(key, proof_message(body["challenge"], host, port), "sha256").hex()
    return {"host": host, "port": port, "proof": proof}


class Standing:
    """What stands at a port: how it answers, and everything it was told."""

    def __init__(self, answering: Answering | int) -> None:
        self.answering = answering
        self.proofs: list[JsonObject] = []
        self.tokens: list[str] = []
        self.raw = ""
        self.port = 0
        self.before: dict[tuple[str, int], list[str]] = {}
        """What came over each connection, in order."""
        self.piece: int | None = None
        """How many bytes of a proof come first, alone."""
        self.closes = False
        """Whether each connection is closed after one answer."""
        self.meeting: asyncio.Barrier | None = None
        """Where requests with a token wait for each other, so that each needs a connection of its own."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.raw += f"{request.raw_headers!r} {request.path} {text}"
        assert request.transport is not None
        self.before.setdefault(request.transport.get_extra_info("peername"), []).append(request.path)
        if request.path == "/proof":
            if isinstance(self.answering, int):
                return web.Response(status=self.answering)
            self.proofs.append(json.loads(text))
            return await self.prove(request, json.dumps(self.answering(self.proofs[-1], self.port)).encode())
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.meeting is not None:
            await self.meeting.wait()
        return web.json_response({"projects": [], "total_count": 0})

    async def prove(self, request: web.Request, told: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(told))})
        if self.closes:
            response.force_close()
        await response.prepare(request)
        if self.piece is not None:
            await response.write(told[: self.piece])
            for _ in range(10):  # turns of the loop, in which the other side reads what is there
                await asyncio.sleep(0)
        await response.write(told[self.piece or 0 :])
        return response


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


async def test_token_is_sent_once_the_server_has_proven_itself_and_not_again_on_the_same_connection() -> None:
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
        lambda body, port: honest(body, port, host="::ffff:127.0.0.2"),
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


async def test_server_that_does_not_answer_to_a_name_is_told_as_that() -> None:
    async with standing(421) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        with pytest.raises(ConfigurationError, match="says that this is not its name") as caught:
            await api.list_projects()
        assert "BYLEAVE_ALLOWED_HOSTS" in (caught.value.hint or "")
        assert server.tokens == []


async def test_who_took_the_port_the_moment_the_server_ended_gets_no_token() -> None:
    async with standing(honest) as server:
        api = ServerApi(f"http://127.0.0.1:{server.port}", TOKEN)
        await api.list_projects()
    # No request in between that fails: nothing but the connection itself says that the server is gone.
    async with standing(lambda body, port: {}, port=server.port) as squatter:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="did not prove"):
                await api.list_projects()
        assert squatter.tokens == []
    await api.close()


async def test_each_connection_is_proven_however_recently_another_was() -> None:
    """A server may hand its port over while connections to it stay open."""
    meeting = asyncio.Barrier(2)
    async with standing(honest) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        server.meeting = meeting
        await asyncio.gather(api.list_projects(), api.list_projects())
        assert len({proof["challenge"] for proof in server.proofs}) == 2
        assert server.before == {peer: ["/proof", "/my/projects"] for peer in server.before}, "on the very same one"
        assert len(server.before) == 2


async def test_stream_goes_over_a_connection_that_was_proven() -> None:
    async with standing(honest) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        with pytest.raises(ConfigurationError, match="has no feed"):
            async with api.stream("p1"):
                pass
        assert list(server.before.values()) == [["/proof", "/my/projects/p1/chat/stream"]]


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
    def contained(body: JsonObject, port: int) -> JsonObject:
        return honest(body, port, host="172.17.0.2")

    async with standing(contained) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert len(server.tokens) == 1


async def test_name_of_this_machine_leads_to_the_number_that_answers() -> None:
    async with standing(honest) as server, ServerApi(f"http://localhost:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert (await api.resolved(URL(f"http://localhost:{server.port}/x"))).host == "127.0.0.1"
    six: Answering = lambda body, port: honest(body, port, host="::1")  # noqa: E731 - its name is its type
    async with standing(six, host="::1") as server, ServerApi(f"http://localhost:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert len(server.tokens) == 1, "also where only the other one answers"
    with pytest.raises(UnreachableError):
        await api.list_projects()
    async with standing(honest, port=server.port) as again:
        await api.list_projects()
        assert len(again.tokens) == 1, "and at the other one by now"
    await api.close()


@pytest.fixture
def named_here(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name that the system gives to this machine, as a hosts file can."""
    real = socket.getaddrinfo

    def lookup(host: Any, *more: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == "byleave.test" else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return "byleave.test"


async def test_any_name_that_leads_to_this_machine_is_proven_and_no_proxy_sees_the_token(
    named_here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with standing(200) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with standing(honest) as server, ServerApi(f"http://{named_here}:{server.port}", TOKEN) as api:
            await api.list_projects()
            assert list(server.before.values()) == [["/proof", "/my/projects"]]
        async with standing(lambda body, port: {}) as squatter:
            async with ServerApi(f"http://{named_here}:{squatter.port}", TOKEN) as api:
                with pytest.raises(ConfigurationError, match="did not prove"):
                    await api.list_projects()
            assert squatter.tokens == []
        assert proxy.raw == ""


async def test_name_keeps_its_place_where_a_certificate_is_for_it() -> None:
    async with ServerApi("https://localhost:1", TOKEN) as api:
        assert (await api.resolved(URL("https://localhost:1/x"))).host == "localhost"


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f.1", "0.0.0.0", "0", "localhost.", "x.LOCALHOST", "[::ffff:127.0.0.1]"]
)
async def test_every_spelling_of_this_machine_is_proven(host: str) -> None:
    async with standing(lambda body, port: {}) as squatter, ServerApi(f"http://{host}:{squatter.port}", TOKEN) as api:
        with pytest.raises(ConfigurationError, match="did not prove"):
            await api.list_projects()
        assert squatter.tokens == []
    async with standing(honest) as server, ServerApi(f"http://{host}:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert len(server.tokens) == 1


async def test_server_that_sees_the_number_in_its_long_form_is_known_by_it() -> None:
    mapped: Answering = lambda body, port: honest(body, port, host="::ffff:127.0.0.1")  # noqa: E731 - as above
    async with standing(mapped) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert len(server.tokens) == 1


async def test_proof_that_arrives_in_pieces_is_read_to_its_end() -> None:
    async with standing(honest) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        server.piece = 40
        await api.list_projects()
        assert len(server.tokens) == 1


async def test_server_that_keeps_no_connection_open_cannot_be_spoken_to() -> None:
    async with standing(honest) as server, ServerApi(f"http://127.0.0.1:{server.port}", TOKEN) as api:
        server.closes = True
        with pytest.raises(UnreachableError):
            await api.list_projects()
        assert server.tokens == [], "another connection would be an unproven one"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", ConfigurationError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b" " * 5000, ConfigurationError),
        (b"HTTP/1.1 100 Continue\r\n\r\n", ConfigurationError),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", ConfigurationError),
        (b"", UnreachableError),
    ],
)
async def test_what_speaks_another_way_gets_no_token(said: bytes, expected: type[ByleaveError]) -> None:
    heard: list[bytes] = []
    speaking: list[asyncio.Task[None] | None] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        speaking.append(asyncio.current_task())
        heard.append(await reader.readuntil(b"}"))
        writer.write(said)
        if not said:
            writer.close()
        heard.append(await reader.read())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with ServerApi(f"http://127.0.0.1:{port}", TOKEN) as api:
            with pytest.raises(expected):
                await api.list_projects()
        await asyncio.gather(*filter(None, speaking))
    assert TOKEN.rpartition(".")[2].encode() not in b"".join(heard)


async def test_who_accepts_and_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "PROOF_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with ServerApi(f"http://127.0.0.1:{silent.getsockname()[1]}", TOKEN) as api:
            with pytest.raises(UnreachableError):
                await api.list_projects()


def _unsigned(header: str) -> str:
    return base64.urlsafe_b64encode(header.encode()).decode().rstrip("=") + ".e30.eHh4"


@pytest.mark.parametrize(
    "token", [_unsigned('{"alg":"RS256"}'), _unsigned("[]"), "opaque", "a.b.c", TOKEN.rpartition(".")[0] + "."]
)
async def test_token_that_no_server_of_this_machine_signed_goes_without_a_proof(token: str) -> None:
    async with standing(404) as server, ServerApi(f"http://127.0.0.1:{server.port}", token) as api:
        await api.list_projects()
        assert list(server.before.values()) == [["/my/projects"]]


async def test_server_of_another_machine_is_not_asked_to_prove_itself() -> None:
    """Here another address of this machine stands for one; over https the certificate speaks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it only says which address would be used
        except OSError:
            pytest.skip("this machine has no address but loopback")
        here = probe.getsockname()[0]
    async with standing(404, host=here) as server, ServerApi(f"http://{here}:{server.port}", TOKEN) as api:
        await api.list_projects()
        assert list(server.before.values()) == [["/my/projects"]]


@pytest.mark.parametrize(
    ("host", "numbers", "listens_here_alone"),
    [
        ("127.0.0.1", ("127.0.0.1",), True),
        ("127.9.9.9", ("127.9.9.9",), True),
        ("127.1", ("127.0.0.1",), True),
        ("0177.0.0.1", ("127.0.0.1",), True),
        ("::1", ("::1",), True),
        ("::ffff:127.0.0.1", ("127.0.0.1",), True),
        ("localhost", ("127.0.0.1", "::1"), True),
        ("localhost.", ("127.0.0.1", "::1"), True),
        ("a.localhost", ("127.0.0.1", "::1"), True),
        ("0.0.0.0", ("127.0.0.1",), False),
        ("::", ("::1",), False),
        ("::ffff:0.0.0.0", ("127.0.0.1",), False),
        ("192.168.1.1", (), False),
        ("notlocalhost", (), False),
        ("localhost.example.org", (), False),
        ("127.0.0.1.example.org", (), False),
        ("", (), False),
    ],
)
def test_this_machine_is_told_by_the_number(host: str, numbers: tuple[str, ...], listens_here_alone: bool) -> None:
    assert loopback_numbers(host) == numbers
    assert is_loopback(host) is listens_here_alone
