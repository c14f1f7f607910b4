"""The conformance suite of the MCP project finds no fault with the server, over streamable HTTP.

The suite cannot send a token, and calls the tools of its own test server: a proxy adds the one and puts a call of ours
in place of the other. Scenarios that do not apply are in `mcp_conformance.yml`.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from harness.household import open_household
from harness.json_values import JsonObject
from harness.node import COMPAT, installed, run_node

pytestmark = pytest.mark.promise("I")
BASELINE = COMPAT / "mcp_conformance.yml"
OURS: dict[str, JsonObject] = {
    "test_simple_text": {"name": "read_file", "arguments": {"path": "README.md"}},
    "test_error_handling": {"name": "read_file", "arguments": {"path": "missing.md"}},
    "test_reconnection": {"name": "list_directory", "arguments": {"path": "."}},
}
OF_A_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "content-length")


@asynccontextmanager
async def proxy_of_the_suite(url: str, token: str) -> AsyncGenerator[str]:
    """Pass on what the suite sends, Host and Origin as they came; gives the proxy's URL."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def pass_on(request: web.BaseRequest) -> web.StreamResponse:
            headers = {**request.headers, "Authorization": f"Bearer {token}"}
            headers.pop("Content-Length", None)
            body, breaks = await request.read(), False
            message = json.loads(body) if body else {}
            if message.get("method") == "tools/call":
                asked = message["params"]["name"]
                message["params"] |= OURS.get(asked, {})
                body = json.dumps(message).encode()
                breaks = asked == "test_reconnection"
            if breaks:
                # The version that the suite agreed on; it sends an older one, which has no event to resume from.
                headers["mcp-protocol-version"] = "2025-11-25"
            async with session.request(
                request.method, url + request.path_qs, headers=headers, data=body or None
            ) as answer:
                own = {name: value for name, value in answer.headers.items() if name.lower() not in OF_A_CONNECTION}
                response = web.StreamResponse(status=answer.status, headers=own)
                await response.prepare(request)
                if breaks:
                    await response.write(await answer.content.readuntil(b"\r\n\r\n"))
                else:
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                await response.write_eof()
                return response

        runner = web.ServerRunner(web.Server(pass_on))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def test_every_scenario_that_applies_passes(tmp_path: Path) -> None:
    suite = installed() / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    arguments = ("--suite", "all", "--expected-failures", str(BASELINE), "--output-dir", str(tmp_path / "checks"))
    async with open_household(tmp_path) as household, proxy_of_the_suite(household.url, household.token()) as url:
        (household.workspace / "README.md").write_text("hello\n")
        done = await run_node(suite, "server", "--url", f"{url}/mcp/{household.project_id}", *arguments, cwd=tmp_path)
        assert done.code == 0, done.stdout[-3000:] + done.stderr
        called = {row.tool_name for row in await household.person.record() if row.status.value == "completed"}
    assert called == {"read_file", "list_directory"}, "the stand-ins were really called"
    (polling,) = (tmp_path / "checks").glob("server-server-sse-polling-*/checks.json")
    checks = {check["id"]: check["status"] for check in json.loads(polling.read_text())}
    assert checks["server-sse-disconnect-resume"] == "SUCCESS", "the stream that broke was resumed"
