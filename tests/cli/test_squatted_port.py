"""Another program took the port of our server: the commands say so, and it never sees a token."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import jwt
import pytest
from pydantic import SecretStr

from byleave.cli.doctor import _server
from byleave.settings import ClientSettings

from .conftest import Program

pytestmark = pytest.mark.promise("S")


class _Squatter(BaseHTTPRequestHandler):
    seen: list[str]

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.seen.append(f"{self.path}\n{self.headers}\n{self.rfile.read(length)!r}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"projects": [], "total_count": 0}')

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name there


@pytest.fixture
def squatter() -> Iterator[tuple[str, list[str]]]:
    seen: list[str] = []
    handler = type("Squatter", (_Squatter,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()
        thread.join()


def test_token_is_not_shown_to_who_took_the_port(
    byleave: Program, squatter: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, seen = squatter
    token = byleave.here("token", "--user", "alice", "--save").stdout.strip()
    for arguments in (("connect", "--workspace", str(tmp_path)), ("link",), ("history",)):
        refused = byleave.here(*arguments, "--server", url)
        assert (refused.returncode, refused.stdout) == (1, ""), arguments
        assert "did not prove" in refused.stderr
        assert "another program" in refused.stderr, "and what to do"
    assert len(seen) == 3
    assert all(request.startswith("/proof\n") for request in seen)
    assert token.rpartition(".")[2] not in "".join(seen)


async def test_doctor_says_that_somebody_else_answers(squatter: tuple[str, list[str]]) -> None:
    url, seen = squatter
    token = jwt.encode({"sub": "alice"}, "x" * 40, algorithm="HS256")
    check, *_ = [check async for check in _server(ClientSettings(server_url=url, token=SecretStr(token)))]
    assert (check.level, "did not prove" in check.detail) == ("fail", True)
    assert token.rpartition(".")[2] not in "".join(seen)
