"""Schemathesis, with every check, finds nothing wrong between the published schema and the server.

`make test-compat` gives it minutes, `make test` seconds: `COMPAT_SECONDS`.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from harness.http_server import StartServer

PROGRAM = Path(sys.executable).parent / "schemathesis"
CONFIG = Path(__file__).parent / "schemathesis.toml"
SECONDS = int(os.environ.get("COMPAT_SECONDS", "20"))
ELSEWHERE = r"^/mcp|/chat/stream|/tools/\{tool_id\}/stream"
"""What another protocol describes, and streams, which do not end."""


@pytest.mark.timeout(SECONDS * 2 + 120)
async def test_schemathesis_finds_nothing(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(user_requests_per_second=0)
    person = server.user()
    await person.project()
    arguments = [
        *("--config-file", str(CONFIG), "run", f"{server.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {person.token}"),
        *("--exclude-path-regex", ELSEWHERE),
        *("--max-time", str(SECONDS), "--max-examples", "20", "--continue-on-failure", "--seed", "1"),
    ]
    process = await asyncio.create_subprocess_exec(
        PROGRAM.as_posix(),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode()[-6000:]
