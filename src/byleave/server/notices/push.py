"""Web push: encrypted messages to a browser, by way of its push service (RFC 8030, 8291, 8292).

The address of a push service comes from a user, so it is treated as one that may lead anywhere: https only, public
addresses only, no redirects, nothing read of the answer; BYLEAVE_PUSH_ALLOW_PRIVATE lifts the first two. Only the
browser can read a message. The key that push services know this server by is made from the server's secret: all
servers of a record have the same, and a new secret ends all subscriptions.
"""

import base64
import json
import time
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from byleave.addresses import is_local_name, is_never_asked, is_public, system_number
from byleave.protocol.notices import PushDeviceBody
from byleave.server.auth.secret import push_seed
from byleave.server.errors import WrongForm
from byleave.settings import ServerSettings
from byleave.store.notices import Device

from .outcomes import Outcome, posted
from .words import Notice

if TYPE_CHECKING:
    import aiohttp
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from webpush import WebPush

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of P-256."""
TOKEN_SECONDS = 3600
TOPIC = "byleave-waiting"
"""A message that was not delivered yet is replaced by a later one."""


class Push:
    """Sends push messages as this server."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._allow_private = settings.push_allow_private
        self._session: aiohttp.ClientSession | None = None

    @cached_property
    def public_key(self) -> str:
        """The key that a browser subscribes with."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return base64.urlsafe_b64encode(point).decode().rstrip("=")

    def check(self, body: PushDeviceBody) -> None:
        """Raise unless messages could be sent there, as far as can be told without asking anybody."""
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            point = base64.urlsafe_b64decode(body.p256dh.rstrip("=") + "=")
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        except ValueError:
            raise WrongForm("The subscription's `p256dh` is no key.", hint="Send what the browser gave.") from None
        if (wrong := self._wrong(body.endpoint)) is not None:
            raise WrongForm(f"The push service's address {wrong}.", hint="Send what the browser gave.")

    async def send(self, notice: Notice, device: Device) -> Outcome:
        """Send a message once."""
        # Again: the settings may be stricter than when it was added.
        if (wrong := self._wrong(device.endpoint)) is not None:
            return Outcome(delivered=False, detail=f"Its push service's address {wrong}.")
        if self._session is None:
            import aiohttp

            from byleave.resolver import CheckedResolver

            resolver = CheckedResolver(allow_private=self._allow_private)
            self._session = aiohttp.ClientSession(
                # No DNS cache: it would outlive the check.
                connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        message = {"title": notice.title, "body": notice.text, "path": notice.path}
        try:
            encrypted = self._encrypted(json.dumps(message).encode(), device)
        except ValueError:
            return Outcome(delivered=False, detail="Its keys are damaged.", gone=True)
        headers = {
            "Authorization": self._authorization(device.endpoint),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(notice.seconds),
            "Urgency": "high",
            "Topic": TOPIC,
        }
        return await posted(self._session, device.endpoint, headers, encrypted)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _wrong(self, endpoint: str) -> str | None:
        try:
            parts = urlsplit(endpoint)
            host, scheme, port = parts.hostname or "", parts.scheme, parts.port
        except ValueError:
            return "is none"
        if not endpoint.isascii() or not endpoint.isprintable() or " " in endpoint or "\\" in endpoint or not host:
            return "is none"
        if "@" in parts.netloc or parts.fragment or port == 0:
            return "has parts that no push service's has"
        if scheme != "https" and not (self._allow_private and scheme == "http"):
            return "is not https"
        # A number reaches no resolver; every spelling counts that the system takes for one.
        number = system_number(host)
        if number is not None and is_never_asked(number):
            return "is never asked"
        if self._allow_private:
            return None
        private = is_local_name(host) if number is None else not is_public(number)
        return "is not a public one" if private else None

    def _encrypted(self, message: bytes, device: Device) -> bytes:
        from webpush import WebPushSubscription

        keys = {"p256dh": device.p256dh, "auth": device.auth}
        subscription = WebPushSubscription.model_validate({"endpoint": device.endpoint, "keys": keys})
        return self._webpush.get(message, subscription).encrypted

    def _authorization(self, endpoint: str) -> str:
        """Identify this server to a push service. The library's own claims leave the port out and take only e-mail."""
        import jwt

        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(time.time()) + TOKEN_SECONDS,
            "sub": self._contact,
        }
        return f"vapid t={jwt.encode(claims, self._key, algorithm='ES256')}, k={self.public_key}"

    @property
    def _contact(self) -> str:
        """Who a push service may turn to; some take no other form."""
        public = self._settings.public_url or ""
        return public if public.startswith("https://") else "mailto:byleave@example.com"

    @cached_property
    def _key(self) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives.asymmetric import ec

        number = int.from_bytes(push_seed(self._settings), "big") % (ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1())

    @cached_property
    def _webpush(self) -> "WebPush":
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
        from webpush import WebPush

        private = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return WebPush(private, public, subscriber="byleave@example.com")
