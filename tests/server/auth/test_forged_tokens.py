"""Tokens: what is accepted, and every way somebody might try to be somebody else."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Unpack

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pydantic import SecretStr

from byleave.protocol.errors import ConfigurationError, RefusedError
from byleave.protocol.states import Scope
from byleave.server import issue_token, server_secret
from byleave.server.auth import keys
from byleave.server.auth import tokens as auth
from byleave.server.auth.keys import PublishedKeys
from byleave.server.auth.tokens import TokenVerifier
from byleave.server.errors import Unauthenticated, Unavailable
from byleave.settings import ServerSettings
from harness.http_server import Server, StartServer
from harness.json_values import JsonObject
from harness.options import ServerOptions

SECRET = "a secret of the tests, long enough to be one"
RSA = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
EDWARDS = ed25519.Ed25519PrivateKey.generate()
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def _claims(**changes: object) -> JsonObject:
    claims = {"sub": "alice", "scope": "chat", "exp": int(time.time()) + 60, **changes}
    return {name: value for name, value in claims.items() if value is not None}


def _pem(key: PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _forged(header: JsonObject, claims: JsonObject, key: bytes | None) -> str:
    """A token put together by hand: libraries refuse to make these."""
    body = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(claims).encode())}"
    signature = b"" if key is None else hmac.new(key, body.encode(), hashlib.sha256).digest()
    return f"{body}.{_b64(signature)}"


def _settings(tmp_path: Path, **changes: Unpack[ServerOptions]) -> ServerSettings:
    values: ServerOptions = {"home": tmp_path / "home", "secret": SecretStr(SECRET), **changes}
    return ServerSettings(**values)


@pytest.mark.promise("R-user")
async def test_forged_and_broken_tokens_are_401_over_http(server: Server) -> None:
    good = jwt.encode(_claims(), SECRET, algorithm="HS256")
    head, body, signature = good.split(".")
    tokens = {
        "wrong secret": jwt.encode(_claims(), "another secret, just as long as ours", algorithm="HS256"),
        "none": _forged({"alg": "none", "typ": "JWT"}, _claims(), None),
        "None": _forged({"alg": "None"}, _claims(), None),
        "HS512": jwt.encode(_claims(), SECRET * 2, algorithm="HS512"),
        "expired": jwt.encode(_claims(exp=int(time.time()) - 60), SECRET, algorithm="HS256"),
        "not yet": jwt.encode(_claims(nbf=int(time.time()) + 600), SECRET, algorithm="HS256"),
        "no exp": jwt.encode(_claims(exp=None), SECRET, algorithm="HS256"),
        "no sub": jwt.encode(_claims(sub=None), SECRET, algorithm="HS256"),
        "empty sub": jwt.encode(_claims(sub=""), SECRET, algorithm="HS256"),
        "long sub": jwt.encode(_claims(sub="x" * 201), SECRET, algorithm="HS256"),
        "control sub": jwt.encode(_claims(sub="alice\x1b[2J"), SECRET, algorithm="HS256"),
        "padded sub": jwt.encode(_claims(sub=" alice"), SECRET, algorithm="HS256"),
        "number sub": _forged({"alg": "HS256"}, _claims(sub=5), SECRET.encode()),
        "text exp": _forged({"alg": "HS256"}, _claims(exp="tomorrow"), SECRET.encode()),
        "huge exp": _forged({"alg": "HS256"}, _claims(exp=1e400), SECRET.encode()),
        "other body": f"{head}.{_b64(json.dumps(_claims(sub='bob')).encode())}.{signature}",
        "no signature": f"{head}.{body}.",
        "two parts": f"{head}.{body}",
        "session": jwt.encode(_claims(use="page"), SECRET, algorithm="HS256"),
        "nonsense": "x",
        "long": "x" * 20_000,
    }
    for name, token in tokens.items():
        answer = await server.bearer(token).get("/my/projects")
        assert answer.status == 401, name
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json["hint"], name
        assert token not in answer.text, name
    assert (await server.bearer(good).get("/my/projects")).status == 200


async def test_request_without_a_usable_authorization_header_is_401(server: Server) -> None:
    for value in ("", "Basic YWxpY2U6eA==", "Bearer", "Bearer  ", "alice"):
        answer = await server.user().get("/my/projects", headers={"Authorization": value})
        assert answer.status == 401, value


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (CURVE, "ES256"), (EDWARDS, "EdDSA")])
async def test_public_key_verifies_its_own_algorithm_and_no_other(
    tmp_path: Path, key: PrivateKey, algorithm: str
) -> None:
    pem = _pem(key)
    verifier = TokenVerifier.of(_settings(tmp_path, public_key=pem.replace("\n", "\\n")))
    principal = await verifier.verify(jwt.encode(_claims(scope=["chat", "other"]), key, algorithm=algorithm))
    assert (principal.user_id, principal.scopes) == ("alice", {Scope.CHAT})
    forged = [
        _forged({"alg": "HS256"}, _claims(), pem.encode()),
        _forged({"alg": "none"}, _claims(), None),
        jwt.encode(_claims(), SECRET, algorithm="HS256"),
        jwt.encode(
            _claims(), EDWARDS if key is not EDWARDS else RSA, algorithm="EdDSA" if key is not EDWARDS else "RS256"
        ),
    ]
    for token in forged:
        with pytest.raises(Unauthenticated):
            await verifier.verify(token)


def test_public_key_that_is_none_or_too_weak_is_said_at_the_start(tmp_path: Path) -> None:
    weak = _pem(rsa.generate_private_key(65537, 1024))
    other = _pem(ec.generate_private_key(ec.SECP384R1()))
    for pem in ("nonsense", weak, other):
        with pytest.raises(ConfigurationError, match="BYLEAVE_PUBLIC_KEY"):
            TokenVerifier.of(_settings(tmp_path, public_key=pem))
    with pytest.raises(ConfigurationError, match="BYLEAVE_JWKS_URL"):
        TokenVerifier.of(_settings(tmp_path, jwks_url="file:///etc/passwd"))


async def test_audience_and_issuer_must_be_ours_when_they_are_configured(tmp_path: Path) -> None:
    settings = _settings(tmp_path, token_audience="byleave", token_issuer="https://id.example")
    verifier = TokenVerifier.of(settings)
    assert (await verifier.verify(issue_token(settings, "alice", [Scope.CHAT], 60))).user_id == "alice"
    for changes in ({}, {"aud": "other", "iss": "https://id.example"}, {"aud": "byleave", "iss": "https://evil"}):
        with pytest.raises(Unauthenticated):
            await verifier.verify(jwt.encode(_claims(**changes), SECRET, algorithm="HS256"))


@pytest.mark.parametrize(("seconds_ago", "is_good"), [(2, True), (8, False)])
async def test_token_is_accepted_five_seconds_longer_and_no_more(
    tmp_path: Path, seconds_ago: int, is_good: bool
) -> None:
    verifier = TokenVerifier.of(_settings(tmp_path))
    token = jwt.encode(_claims(exp=int(time.time()) - seconds_ago), SECRET, algorithm="HS256")
    with nullcontext() if is_good else pytest.raises(Unauthenticated, match="has expired"):
        assert (await verifier.verify(token)).user_id == "alice"


async def test_remembered_token_still_expires_and_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = TokenVerifier.of(_settings(tmp_path))
    token = jwt.encode(_claims(jti="t1"), SECRET, algorithm="HS256")
    assert (await verifier.verify(token)).token_id == "t1"
    assert await verifier.verify(token) is await verifier.verify(token)
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    known = next(iter(verifier._known))
    assert verifier._known[known][1] < later
    monkeypatch.undo()
    verifier._known[known] = (verifier._known[known][0], 0.0)
    assert (await verifier.verify(token)).user_id == "alice", "looked at again, and still good"
    monkeypatch.setattr(auth, "MOST_REMEMBERED", 1)
    await verifier.verify(jwt.encode(_claims(sub="bob"), SECRET, algorithm="HS256"))
    assert len(verifier._known) == 1


def _jwk(key: PrivateKey) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return RSAAlgorithm.to_jwk(key.public_key())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return ECAlgorithm.to_jwk(key.public_key())
    return OKPAlgorithm.to_jwk(key.public_key())


class _Provider:
    """An identity provider that publishes keys."""

    def __init__(self) -> None:
        self.keys: list[JsonObject] = []
        self.asked = 0
        self.fails = False

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(status=500) if self.fails else web.json_response({"keys": self.keys})

    def publish(self, kid: str, key: PrivateKey, **more: str) -> None:
        self.keys.append({**json.loads(_jwk(key)), "kid": kid, **more})


Published = tuple[_Provider, str]
"""A provider and the address of its keys."""


@pytest.fixture
async def provider() -> AsyncIterator[Published]:
    provider = _Provider()
    app = web.Application()
    app.router.add_get("/keys", provider.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # pyright: ignore
    yield provider, f"http://127.0.0.1:{port}/keys"
    await runner.cleanup()


async def test_published_keys_are_fetched_remembered_and_asked_for_again_only_now_and_then(provider: Published) -> None:
    published, url = provider
    clock = [1000.0]
    source = PublishedKeys(url, clock=lambda: clock[0])
    verifier = TokenVerifier(source)
    published.publish("one", RSA)
    published.publish("encryption", EDWARDS, use="enc")
    published.keys.append({"kty": "oct", "kid": "shared", "k": _b64(SECRET.encode())})
    good = [jwt.encode(_claims(jti=str(n)), RSA, algorithm="RS256", headers={"kid": "one"}) for n in range(4)]
    await asyncio.gather(*(verifier.verify(token) for token in good))
    assert published.asked == 1
    forged = [
        jwt.encode(_claims(), SECRET, algorithm="HS256", headers={"kid": "shared"}),
        jwt.encode(_claims(), EDWARDS, algorithm="EdDSA", headers={"kid": "encryption"}),
        jwt.encode(_claims(), CURVE, algorithm="ES256", headers={"kid": "new"}),
        _forged({"alg": "HS256", "kid": "one"}, _claims(), _pem(RSA).encode()),
        _forged({"alg": "none", "kid": "one"}, _claims(), None),
        "nonsense",
    ]
    for token in forged:
        with pytest.raises(Unauthenticated):
            await verifier.verify(token)
    assert published.asked == 1, "unknown keys do not make us ask again at once"
    published.publish("new", CURVE)
    clock[0] += keys.REFRESH_SECONDS + 1
    assert (await verifier.verify(forged[2])).user_id == "alice"
    assert published.asked == 2
    published.keys.clear()
    clock[0] += keys.KEYS_SECONDS + 1
    with pytest.raises(Unauthenticated):
        await verifier.verify(jwt.encode(_claims(jti="5"), RSA, algorithm="RS256", headers={"kid": "one"}))


async def test_only_published_key_needs_no_name_and_a_provider_that_is_down_is_said(provider: Published) -> None:
    published, url = provider
    published.publish("one", EDWARDS)
    token = jwt.encode(_claims(), EDWARDS, algorithm="EdDSA")
    assert (await TokenVerifier(PublishedKeys(url)).verify(token)).user_id == "alice"
    clock = [1000.0]
    source = PublishedKeys(url, clock=lambda: clock[0])
    await source.key_for(token)
    published.fails = True
    with pytest.raises(Unavailable):
        await TokenVerifier(PublishedKeys(url)).verify(token)
    clock[0] += keys.KEYS_SECONDS + 1
    await source.key_for(token)  # an outage of an hour locks nobody out
    clock[0] += keys.LONGEST_SECONDS
    with pytest.raises(Unavailable):
        await source.key_for(token)


async def test_server_with_an_identity_provider_takes_its_tokens_and_makes_none(
    provider: Published, start_server: StartServer
) -> None:
    published, url = provider
    published.publish("one", CURVE)
    server = await start_server(jwks_url=url)
    token = jwt.encode(_claims(), CURVE, algorithm="ES256", headers={"kid": "one"})
    assert (await server.bearer(token).get("/my/projects")).status == 200
    assert (await server.bearer(jwt.encode(_claims(), SECRET, algorithm="HS256")).get("/my/projects")).status == 401
    with pytest.raises(ConfigurationError, match="identity provider"):
        issue_token(server.settings, "alice", [Scope.CHAT], 60)


def test_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    settings = ServerSettings(home=tmp_path / "home")
    secret = server_secret(settings)
    assert server_secret(settings) == secret
    assert len(secret) >= 32
    assert (tmp_path / "home" / "secret").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "home") == ["secret"]


def test_secret_that_is_too_short_or_cannot_be_kept_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too short") as told:
        server_secret(_settings(tmp_path, secret=SecretStr("short")))
    assert told.value.hint
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "secret").write_text("short")
    with pytest.raises(ConfigurationError, match="too short"):
        server_secret(ServerSettings(home=tmp_path / "kept"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="Cannot keep a secret"):
        server_secret(ServerSettings(home=tmp_path / "file" / "home"))


def test_two_who_start_at_once_get_the_same_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServerSettings(home=tmp_path)
    link = os.link
    monkeypatch.setattr(os, "link", lambda source, target: (link(source, target), link(source, target)))
    first = server_secret(settings)
    monkeypatch.undo()
    assert server_secret(settings) == first


def test_token_is_made_only_for_a_possible_user(tmp_path: Path) -> None:
    for user in ("", "x" * 201, "a\nb", " a"):
        with pytest.raises(ConfigurationError):
            issue_token(_settings(tmp_path), user, [Scope.CHAT], 60)


def test_scopes_of_a_strange_kind_open_nothing() -> None:
    for scope in (5, {"chat": True}, None, [["chat"]], "CHAT chat2", [5]):
        principal = auth._principal({"sub": "alice", "scope": scope, "exp": 1}, "a.b.c")
        assert principal.scopes == frozenset()
        with pytest.raises(RefusedError):
            principal.require(frozenset(Scope))


@pytest.mark.promise("S4")
async def test_a_token_of_an_agent_that_executes_is_neither_made_nor_good(server: Server, tmp_path: Path) -> None:
    pair = (Scope.AGENT, Scope.EXECUTE)
    with pytest.raises(ConfigurationError, match="do not go together"):
        issue_token(_settings(tmp_path), "alice", pair, 60)
    for more in ((), (Scope.CHAT,), (Scope.CHAT, Scope.APPROVE)):
        answer = await server.user(scopes=(*pair, *more)).get("/my/projects")
        assert answer.status == 403


@pytest.mark.promise("X23")
async def test_two_tokens_of_the_same_name_and_moment_are_two_agents(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    verifier = TokenVerifier.of(settings)
    made = [issue_token(settings, "alice", (Scope.AGENT,), 60, agent="nightly") for _ in range(2)]
    first, second = [(await verifier.verify(token)).agent_id for token in made]
    assert first != second
    assert first.startswith("nightly-")
    assert second.startswith("nightly-")
    with pytest.raises(ConfigurationError, match="no name for an agent"):
        issue_token(settings, "alice", (Scope.AGENT,), 60, agent="a name\nwith lines")


@pytest.mark.parametrize("name", [None, "", "x" * 41, "a b", "chat\n", ["chat"], 7])
async def test_a_claim_that_is_no_name_names_nobody(tmp_path: Path, name: object) -> None:
    token = jwt.encode(_claims(scope="agent", agent=name, mode="fullest"), SECRET, algorithm="HS256")
    principal = await TokenVerifier.of(_settings(tmp_path)).verify(token)
    assert principal.agent_id.startswith("agent-")
    assert principal.mode == "sandbox"
