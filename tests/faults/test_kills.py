"""`kill -9` of the server and of the client at the worst moments: nothing lost, nothing run twice."""

import asyncio
import json
from pathlib import Path

import pytest

from harness.forks import untraced_forks
from harness.json_values import JsonObject
from harness.ports import free_port
from harness.processes import User, open_site
from harness.records import opened_outside

pytestmark = pytest.mark.timeout(120)


async def project_of(user: User) -> str:
    answer = await user.post("/my/projects", {"name": "demo"})
    return answer.body["project_id"]


async def appears(path: Path) -> None:
    """Wait until a file is written, and not only opened: how a sandboxed command says that it runs."""
    async with asyncio.timeout(30):
        while not path.exists() or not path.stat().st_size:
            await asyncio.sleep(0.01)


@pytest.mark.promise("W7", "W12")
async def test_server_killed_while_an_approval_waits_and_the_agent_still_finishes(
    tmp_path: Path, database_url: str | None
) -> None:
    async with open_site(tmp_path, untraced_forks(), database_url, lease_seconds="3") as site:
        alice = User(site.url, site.token("alice"))
        server = await site.serve()
        project_id = await project_of(alice)
        await site.connect(project_id, alice.token)
        async with alice.watch(project_id) as stream:
            answer = await alice.post(
                f"/my/projects/{project_id}/chat/messages", {"content": "append to log.txt: once"}
            )
            session_id = answer.body["session_id"]
            request = await stream.until("tool.approval_request")
            last_id = stream.last_id
        await server.kill()
        await site.serve()
        waiting = (await alice.get("/my/approvals")).body["approvals"]
        assert [approval["id"] for approval in waiting] == [request["approval_id"]]
        async with alice.watch(project_id, last_event_id=last_id) as stream:
            answer = await alice.post(f"/my/approvals/{request['approval_id']}/confirm", {"decision": "approved"})
            assert answer.status == 200, answer.body
            await stream.until("chat.message", lambda event: event["role"] == "agent")
        assert (site.workspace / "log.txt").read_text().strip() == "once"
        history = (await alice.get(f"/my/tools/history?session_id={session_id}")).body
        assert [row["status"] for row in history["executions"]] == ["completed"]
        assert (await alice.get("/my/approvals")).body["approvals"] == []
        await alice.close()


@pytest.mark.promise("C5", "W10")
async def test_server_killed_while_a_command_runs_gets_the_result_after_its_restart(
    tmp_path: Path, database_url: str | None
) -> None:
    async with open_site(tmp_path, untraced_forks(), database_url) as site:
        (site.workspace / "slow.py").write_text(SLOW)
        alice = User(site.url, site.token("alice"))
        server = await site.serve()
        project_id = await project_of(alice)
        await site.connect(project_id, alice.token)
        call = await run_slow(alice, project_id)
        await appears(site.workspace / "started")
        await server.kill()
        (site.workspace / "go").touch()
        await site.serve()
        ended = await alice.end_of(call["tool_id"])
        assert (ended["status"], ended["result"]["stdout"]) == ("completed", "done\n"), ended
        assert (site.workspace / "started").read_text() == "x"
        await alice.close()


@pytest.mark.promise("C5", "W10")
async def test_server_away_for_longer_than_a_call_may_take_still_gets_its_result(
    tmp_path: Path, database_url: str | None
) -> None:
    async with open_site(tmp_path, untraced_forks(), database_url) as site:
        (site.workspace / "slow.py").write_text(SLOW)
        alice = User(site.url, site.token("alice"))
        server = await site.serve()
        project_id = await project_of(alice)
        await site.connect(project_id, alice.token)
        call = await run_slow(alice, project_id)
        await appears(site.workspace / "started")
        await server.kill()
        (site.workspace / "go").touch()
        with opened_outside(site.database) as record:
            record.do("UPDATE tool_executions SET deadline = '2020-01-01T00:00:00.000Z'")
            assert len(record.rows("SELECT id FROM tool_executions")) == 1
        await site.serve()
        ended = await alice.end_of(call["tool_id"])
        assert (ended["status"], ended["result"]["stdout"]) == ("completed", "done\n"), ended
        await alice.close()


@pytest.mark.promise("C1", "C5")
async def test_client_killed_while_a_command_runs_reports_it_as_interrupted(
    tmp_path: Path, database_url: str | None
) -> None:
    async with open_site(tmp_path, untraced_forks(), database_url) as site:
        (site.workspace / "slow.py").write_text(SLOW)
        alice = User(site.url, site.token("alice"))
        await site.serve()
        project_id = await project_of(alice)
        client = await site.connect(project_id, alice.token)
        call = await run_slow(alice, project_id)
        await appears(site.workspace / "started")
        await client.kill()
        await site.connect(project_id, alice.token)
        ended = await alice.end_of(call["tool_id"])
        assert (ended["status"], ended["error_type"]) == ("failed", "interrupted"), ended
        assert (site.workspace / "started").read_text() == "x"
        again = await alice.execute(project_id, "read_file", path="started")
        assert again["result"]["content"] == "x"
        await alice.close()


@pytest.mark.postgres
@pytest.mark.promise("D")
async def test_clients_of_a_killed_server_are_gone_for_the_others_and_come_back(
    tmp_path: Path, database_url: str
) -> None:
    async with open_site(tmp_path, untraced_forks(), database_url) as site:
        (site.workspace / "a.txt").write_text("hello\n")
        first, port = await site.serve(), free_port()
        alice = User(site.url, site.token("alice"))
        project_id = await project_of(alice)
        await site.connect(project_id, alice.token)
        second = await site.serve(port=port)
        agent = User(f"http://127.0.0.1:{port}", site.token("alice", "agent"))
        person = User(f"http://127.0.0.1:{port}", alice.token)
        assert (await agent.execute(project_id, "read_file", path="a.txt"))["result"]["content"] == "hello\n"
        async with person.watch(project_id) as stream:
            await first.kill()
            await stream.until("project.machines", lambda event: not event["machines"])
            await site.serve()
            await stream.until("project.machines", lambda event: bool(event["machines"]))
        assert (await agent.execute(project_id, "read_file", path="a.txt"))["result"]["content"] == "hello\n"
        assert await second.stop() == 0
        assert json.loads(site.byleave("audit", "verify", "--json"))["whole"]
        for user in (alice, agent, person):
            await user.close()


SLOW = """\
import os, time
with open("started", "a") as mark:
    mark.write("x")
while not os.path.exists("go"):
    time.sleep(0.01)
print("done")
"""


async def run_slow(user: User, project_id: str) -> JsonObject:
    call = await user.execute(project_id, "execute_command", command="python", args=["slow.py"], timeout=60)
    answer = await user.post(f"/my/approvals/{call['approval_id']}/confirm", {"decision": "approved"})
    assert answer.status == 200, answer.body
    return call
