"""The whole way with the record in PostgreSQL: separate processes, a killed server, and the commands on the record."""

import json
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from harness.forks import untraced_forks
from harness.postgres import PostgresServer
from harness.processes import Site, User, open_site

pytestmark = [pytest.mark.timeout(90), pytest.mark.promise("D")]


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Generator[str]:
    with postgres_server.database() as url:
        yield url


@pytest.fixture
async def site(tmp_path: Path, database_url: str) -> AsyncIterator[Site]:
    async with open_site(tmp_path, untraced_forks(), database_url=database_url) as site:
        (site.workspace / "a.txt").write_text("hello\n")
        yield site


async def test_calls_go_on_after_the_server_was_killed(site: Site) -> None:
    server = await site.serve()
    alice = User(site.url, site.token("alice"))
    project_id = (await alice.post("/my/projects", {"name": "demo"})).body["project_id"]
    client = await site.connect(project_id, alice.token)
    async with alice.watch(project_id) as stream:
        await alice.post(f"/my/projects/{project_id}/chat/messages", {"content": "write notes.md: remember the milk"})
        request = await stream.until("tool.approval_request")
    await server.kill()
    await site.serve()  # waits for the lease of the one that was killed
    agent = User(site.url, site.token("alice", "agent"))
    path = f"/my/projects/{project_id}/approvals/{request['approval_id']}/approve"
    assert (await alice.post(path, {"decision": "approved"})).status == 200
    assert (await alice.post(path, {"decision": "approved"})).status == 409
    ended = await alice.end_of(request["tool_id"])
    assert ended["status"] == "completed"
    assert (site.workspace / "notes.md").read_text().strip() == "remember the milk"
    for _ in range(5):
        answer = await agent.execute(project_id, "read_file", path="a.txt")
        assert answer["result"]["content"] == "hello\n"
    assert json.loads(site.byleave("audit", "verify", "--json"))["whole"]
    outlook = json.loads(site.byleave("db", "prune", "--older-than", "1h", "--dry-run", "--json"))
    assert (outlook["dry_run"], outlook["calls"]) == (True, 0)
    await client.stop()
    for user in (alice, agent):
        await user.close()


async def test_a_second_server_says_who_has_the_database(site: Site, tmp_path: Path) -> None:
    server = await site.serve()
    second = await site.start("second", "serve", "--port", "0")
    assert await second.process.wait() == 1
    assert "in use by another Byleave server" in second.output()
    assert "several servers on one database are not supported yet" in " ".join(second.output().split())
    assert await server.stop() == 0
    await site.serve()
