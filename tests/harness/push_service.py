"""A push service on this machine, and browsers that subscribed to it.

It takes messages, decrypts them and checks the sender: written from RFC 8030, 8188, 8291 and 8292, with nothing of what
it tests. `test_notices` checks it by the example in RFC 8291. It answers as it is told, such as 410 for a subscription
that is gone.
"""

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PATIENCE = 20


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derived(salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


@dataclass(frozen=True)
class Keys:
    """What a browser keeps of a subscription."""

    private: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = field(default_factory=lambda: os.urandom(16))

    @property
    def point(self) -> bytes:
        return _point(self.private.public_key())

    def decrypt(self, body: bytes) -> bytes:
        """The text of a message in one record."""
        salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(sealed) <= size
        shared = self.private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        secret = _derived(self.auth, shared, b"WebPush: info\0" + self.point + sender, 32)
        key = _derived(salt, secret, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _derived(salt, secret, b"Content-Encoding: nonce\0", 12)
        text = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert text[-1:] == b"\2", "the last record"
        return text[:-1]


@dataclass(frozen=True)
class Message:
    """A message as it came."""

    headers: dict[str, str]
    claims: dict[str, Any]
    sender: str
    """The sender's key, as a browser names it when it subscribes."""
    body: bytes
    keys: Keys

    @property
    def text(self) -> dict[str, Any]:
        return json.loads(self.keys.decrypt(self.body))


@dataclass
class PushService:
    """Takes messages at `/push/NAME`."""

    url: str = ""
    answers: list[int] = field(default_factory=list[int])
    """Statuses of the next answers; after them 201."""
    tries: int = 0
    messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue[Message])
    _keys: dict[str, Keys] = field(default_factory=dict[str, Keys])

    def subscription(self, name: str = "phone") -> dict[str, str]:
        """What a browser that subscribed tells its page."""
        keys = self._keys.setdefault(name, Keys())
        return {"endpoint": f"{self.url}/push/{name}", "p256dh": encoded(keys.point), "auth": encoded(keys.auth)}

    async def message(self) -> Message:
        """The next message that was taken."""
        async with asyncio.timeout(PATIENCE):
            return await self.messages.get()

    async def take(self, request: web.Request) -> web.Response:
        self.tries += 1
        status = self.answers.pop(0) if self.answers else 201
        if status == 302:
            return web.Response(status=302, headers={"Location": f"{self.url}/push/elsewhere"})
        if status == 201:
            scheme, _, rest = request.headers["Authorization"].partition(" ")
            parts = dict(part.strip().split("=", 1) for part in rest.split(","))
            point = decoded(parts["k"])
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
            claims = jwt.decode(parts["t"], key, algorithms=["ES256"], audience=self.url)
            assert scheme == "vapid"
            assert claims["exp"] - time.time() <= 24 * 3600
            keys = self._keys[request.match_info["name"]]
            self.messages.put_nowait(Message(dict(request.headers), claims, parts["k"], await request.read(), keys))
        return web.Response(status=status)


@asynccontextmanager
async def push_service() -> AsyncGenerator[PushService]:
    """One on a free port."""
    service = PushService()
    app = web.Application()
    app.router.add_post("/push/{name}", service.take)
    async with _served(app) as url:
        service.url = url
        yield service


@dataclass
class Receiver:
    """An address that takes webhooks."""

    url: str = ""
    answers: list[int] = field(default_factory=list[int])
    posts: asyncio.Queue[tuple[dict[str, str], str]] = field(default_factory=asyncio.Queue[tuple[dict[str, str], str]])
    """Headers and body of each that was taken."""
    tries: int = 0
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """Happens before an answer is given."""

    async def take(self, request: web.Request) -> web.Response:
        self.tries += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            self.posts.put_nowait((dict(request.headers), await request.text()))
        return web.Response(status=status)

    async def post(self) -> tuple[dict[str, str], str]:
        """The next that was taken."""
        async with asyncio.timeout(PATIENCE):
            return await self.posts.get()


@asynccontextmanager
async def receiver() -> AsyncGenerator[Receiver]:
    """One on a free port."""
    found = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.take)
    async with _served(app) as url:
        found.url = url
        yield found


@asynccontextmanager
async def _served(app: web.Application) -> AsyncGenerator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
