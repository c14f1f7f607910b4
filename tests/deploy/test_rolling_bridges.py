"""Hosts, editors and versions while servers end one after the other: three of them, on one record, behind nginx.

What an MCP host or an editor asked of a server that is killed goes on at another one, and two versions of Byleave work
side by side on one record.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from acp import PROTOCOL_VERSION
from acp.helpers import text_block
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import byleave
from adapters.test_acp_bridge import Editor, forked
from adapters.test_mcp_server import text
from byleave.store import migrations
from harness.fleet import End, Fleet, open_fleet
from harness.postgres import PostgresServer
from harness.processes import Process, User, open_site

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.promise("D", "I"), pytest.mark.timeout(180)]

LATER = "9000"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def fleet(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    with postgres_server.database() as url:
        async with open_fleet(tmp_path_factory.mktemp("fleet"), url) as fleet:
            yield fleet


async def machine(fleet: Fleet, user: User, workspace: Path) -> str:
    """A project whose machine is connected."""
    workspace.mkdir()
    project = (await user.post("/my/projects", {"name": "demo"})).body["project_id"]
    await fleet.connect(project, user.token, workspace)
    return project


async def approve(user: User, question: dict[str, object]) -> None:
    answer = await user.post(f"/my/approvals/{question['approval_id']}/confirm", {"decision": "approved"})
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("end", [Process.stop, Process.kill])
async def test_an_mcp_session_outlives_every_server_that_served_it(end: End, fleet: Fleet, tmp_path: Path) -> None:
    name = f"mcp-{end.__name__}"  # type: ignore[attr-defined]
    workspace = tmp_path / "workspace"
    async with fleet.user(name) as alice:
        project = await machine(fleet, alice, workspace)
        headers = {"Authorization": f"Bearer {fleet.site.token(name, 'agent')}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, verify=fleet.proxy.trust) as http,
            Client(streamable_http_client(f"{fleet.url}/mcp/{project}", http_client=http), mode="legacy") as host,
        ):
            for number in range(2):
                async with alice.watch(project) as stream:
                    line = {"path": "a.txt", "content": f"{number}\n", "mode": "append"}
                    writing = asyncio.create_task(host.call_tool("write_file", line))  # pyright: ignore[reportArgumentType]
                    question = await stream.until("tool.approval_request")
                for port in fleet.ports:
                    await fleet.restart(port, end)
                await approve(alice, question)
                async with asyncio.timeout(60):
                    told = await writing
                assert not told.is_error, told
            assert "0\n1\n" in text(await host.call_tool("read_file", {"path": "a.txt"})).replace("\\n", "\n")
        rows = (await alice.get("/my/tools/history")).body["executions"]
        assert [(row["tool_name"], row["status"]) for row in rows] == [
            ("read_file", "completed"),
            ("write_file", "completed"),
            ("write_file", "completed"),
        ]


async def test_prompts_of_an_editor_outlive_every_server_that_served_them(fleet: Fleet, tmp_path: Path) -> None:
    editor = Editor(hold=asyncio.Event())
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("BYLEAVE_")},
        "BYLEAVE_SERVER_URL": fleet.url,
        "BYLEAVE_TOKEN": fleet.site.token("acp"),
        "BYLEAVE_HOME": str(tmp_path / "editor"),
        "SSL_CERT_FILE": str(fleet.proxy.certificate),
    }
    async with forked(editor, ("acp",), environment, fleet.site.forks) as (connection, _):
        await connection.initialize(PROTOCOL_VERSION)
        session = (await connection.new_session(str(workspace))).session_id
        for number in range(2):
            assert editor.hold is not None
            editor.hold.clear()
            prompting = asyncio.create_task(connection.prompt(session, [text_block(f"append to log.txt: {number}")]))
            await editor.until(lambda asked=number + 1: len(editor.asked) == asked)
            for port in fleet.ports:
                await fleet.restart(port, Process.kill)
            editor.hold.set()
            async with asyncio.timeout(60):
                assert (await prompting).stop_reason == "end_turn"
        assert (workspace / "log.txt").read_text().split() == ["0", "1"]
        assert len(editor.asked) == 2


async def test_two_versions_serve_one_record_side_by_side(fleet: Fleet, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    async with fleet.user("upgrade") as alice:
        project = await machine(fleet, alice, workspace)
        settings = {name.removeprefix("BYLEAVE_").lower(): value for name, value in fleet.site.settings.items()}
        async with open_site(tmp_path / "later", None, **settings) as later:
            later.settings["PYTHONPATH"] = str(next_version(tmp_path / "package"))
            older, *others = fleet.ports
            for port in others:
                await fleet.servers[port].stop()
                await later.serve(port=port)
            agent = User(f"http://127.0.0.1:{older}", fleet.site.token("upgrade", "agent"))
            newer = User(f"http://127.0.0.1:{others[0]}", fleet.site.token("upgrade"))
            async with newer.watch(project) as stream:
                asked = await agent.execute(project, "write_file", path="a.txt", content="across")
                question = await stream.until("tool.approval_request")
                await approve(newer, question)
                assert (await agent.end_of(asked["tool_id"]))["status"] == "completed"
            back = User(newer.url, agent.token)
            read = await back.execute(project, "read_file", path="a.txt")
            assert "across" in str(read["result"])
            # The older version starts again beside the newer one, and after it.
            await fleet.restart(older, Process.stop)
            assert (await agent.get("/my/tools/history")).body["total_count"] == 2
            for user in (agent, newer, back):
                await user.close()
        for port in others:
            await fleet.serve(port)
        read = await alice.execute(project, "read_file", path="a.txt")
        assert "across" in str(read["result"])


def next_version(place: Path) -> Path:
    """The package with one more migration, which only adds; gives what PYTHONPATH has to name."""
    source = Path(byleave.__file__).parent
    shutil.copytree(source, place / "byleave", ignore=shutil.ignore_patterns("__pycache__", "page"))
    adds = "CREATE TABLE later (id VARCHAR(64) NOT NULL PRIMARY KEY, note TEXT)"
    schema = place / "byleave" / migrations.SCHEMA.relative_to(source)
    schema.write_text(f"{schema.read_text()}\n{adds};\n")
    versions = place / "byleave" / migrations.HERE.relative_to(source) / "versions"
    (versions / f"{LATER}_later.py").write_text(
        "from alembic import op\n"
        f"revision, down_revision = {LATER!r}, {migrations.NEWEST!r}\n\n\n"
        f"def upgrade() -> None:\n    op.execute({adds!r})\n"
    )
    return place
