"""Real nginx and Caddy in front of servers of the tests: the files of deploy/, with other values in them.

Nothing but values differs from what is shipped: names of files, ports, addresses of the servers, and the certificate,
which is made here and trusted by the sessions of these tests alone.
"""

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import AF_INET, AddressFamily
from typing import Literal

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from .ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "byleave.example.com"
EXAMPLES = ("127.0.0.1:8477", "127.0.0.1:8478", "127.0.0.1:8479")
START_SECONDS = 30

Kind = Literal["nginx", "caddy"]
KINDS: tuple[Kind, ...] = ("nginx", "caddy")


def program(kind: Kind) -> str | None:
    """Its path, also where Debian keeps it off ours; None if it is not installed."""
    return shutil.which(kind, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))


def why_not(kind: Kind) -> str | None:
    """The reason that it cannot be started here."""
    if program(kind) is None:
        return f"{kind} is not installed (scripts/setup-tests)"
    if kind == "nginx" and os.geteuid() != 0 and not Path("/var/lib/nginx/body").exists():
        return "nginx has not been started by root yet, which makes its directories"
    return None


@dataclass(frozen=True)
class Proxy:
    """A proxy that answers."""

    kind: Kind
    port: int
    plain_port: int
    directory: Path
    process: "asyncio.subprocess.Process"
    name: str = NAME

    @property
    def url(self) -> str:
        return f"https://{self.name}:{self.port}"

    @property
    def certificate(self) -> Path:
        return self.directory / "cert.pem"

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))

    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log")))

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """A session to which our name is this machine's, and our certificate a good one."""
        async with aiohttp.ClientSession(connector=self.connector(), cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield session

    def connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(resolver=_Here(), ssl=self.trust, limit=0)


class _Here(AbstractResolver):
    """Finds every name on this machine."""

    async def resolve(self, host: str, port: int = 0, family: AddressFamily | int = AF_INET) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def in_front_of(kind: Kind, directory: Path, servers: Sequence[int], name: str = NAME) -> AsyncGenerator[Proxy]:
    """Start a proxy before the servers at these ports of this machine, and stop it afterwards.

    `name`: the public name of the site. Other processes find only `localhost` here.
    """
    directory.mkdir()
    port, plain_port = free_port(), free_port()
    _make_certificate(directory, name)
    start = _nginx if kind == "nginx" else _caddy
    command, environment = start(directory, name, port, plain_port, servers)
    with (directory / "own.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    proxy = Proxy(kind, port, plain_port, directory, process, name)
    try:
        await _answers(proxy)
        yield proxy
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answers(proxy: Proxy) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            assert proxy.process.returncode is None, proxy.log()
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.close()
                return
            await asyncio.sleep(0.02)


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The text of a shipped file with other values; each must be there."""
    for old, new in values.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def _nginx(
    directory: Path, name: str, port: int, plain_port: int, servers: Sequence[int]
) -> tuple[list[str], Mapping[str, str]]:
    # As many servers as the file names: some of ours are there twice.
    found = [servers[number % len(servers)] for number in range(len(EXAMPLES))]
    values = {
        NAME: name,
        "/etc/byleave/tls": str(directory),
        "/run/nginx.pid": f"{directory}/pid",
        "/var/log/nginx": str(directory),
        "listen 80 ": f"listen 127.0.0.1:{plain_port} ",
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        **{old: f"127.0.0.1:{new}" for old, new in zip(EXAMPLES, found, strict=True)},
    }
    config = directory / "nginx.conf"
    config.write_text(with_values((DEPLOY / "nginx.conf").read_text(), values))
    command = [program("nginx") or "", "-e", f"{directory}/error.log", "-c", str(config), "-g", "daemon off;"]
    return command, os.environ


def _caddy(
    directory: Path, name: str, port: int, plain_port: int, servers: Sequence[int]
) -> tuple[list[str], Mapping[str, str]]:
    own = {
        "HOME": str(directory),
        "XDG_DATA_HOME": str(directory),
        "XDG_CONFIG_HOME": str(directory),
        "SITE": name,
        "SERVERS": " ".join(f"127.0.0.1:{server}" for server in servers),
        "TLS": f"tls {directory}/cert.pem {directory}/key.pem",
        "ADMIN": f"unix/{directory}/admin",
        "HTTP_PORT": str(plain_port),
        "HTTPS_PORT": str(port),
        "GLOBAL": "default_bind 127.0.0.1",
    }
    config = str(DEPLOY / "Caddyfile")
    return [program("caddy") or "", "run", "--adapter", "caddyfile", "--config", config], {**os.environ, **own}


def _make_certificate(directory: Path, site: str) -> None:
    """A certificate that signs itself, for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, site)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(site)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
