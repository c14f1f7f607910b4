"""Server and client as processes, at debug level, with a real collector: one trace over both, and no secret."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.collector import Collector, Sent, open_collector
from harness.json_values import JsonObject
from harness.processes import Process, Site, User, open_site

pytestmark = pytest.mark.timeout(120)

PLANTED = {
    "parameter": "ghp_Zx9Qm4Vt7Kp2Ws5Yb8Nc1Df6Gh3Jl0Ra7Te",
    "content": "correct-horse-battery-staple-41",  # looks like nothing: only leaving it out keeps it out
    "result": "sk-ant-api03-Qw3Er5Ty7Ui9Op1As2Df4Gh6Jk8Lz0Xc2Vb4Nm6Qw8Er0Ty2Ui4Op6As8Df0Gh2Jk4Lz",
    "plain result": "swordfish-under-the-stairs-99",
    "error": "AKIAQ7RT3WXYZ5PLMN2D",
    "query": "glpat-Hy6Tg5Rf4De3Sw2Aq1Zz",
    "tool": "xoxb-2222333344445-6666777788889-AbCdEfGhIjKlMnOpQrStUvWx",
    "prompt": "open-sesame-from-the-prompt-17",
}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with open_collector() as collector:
        yield collector


@pytest.fixture
async def site(tmp_path: Path, collector: Collector) -> AsyncIterator[Site]:
    async with open_site(tmp_path, durability="normal", log="json") as site:
        site.settings |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        (site.workspace / "keys.txt").write_text(f"{PLANTED['result']}\n{PLANTED['plain result']}\n")
        yield site


async def provoke(site: Site, alice: User, project_id: str) -> str:
    """Calls of every kind with secrets in them; the run's id."""
    async with alice.watch(project_id) as stream:
        answer = await alice.post(
            f"/my/projects/{project_id}/chat/messages",
            {"content": f"write notes.md: {PLANTED['content']} {PLANTED['prompt']}"},
        )
        run_id: str = answer.body["run_id"]
        question = await stream.until("tool.approval_request")
        path = f"/my/projects/{project_id}/approvals/{question['approval_id']}/approve"
        assert (await alice.post(path, {"decision": "approved"})).status == 200
        await stream.until("chat.run", lambda event: event["state"] == "done")
    await alice.execute(project_id, "read_file", path="keys.txt")
    await alice.execute(project_id, "execute_command", command="echo", args=[PLANTED["parameter"]])
    await alice.execute(project_id, "read_file", path=f"missing/{PLANTED['error']}")
    await alice.execute(project_id, "write_file", path="x.txt", content={"not": PLANTED["content"]})
    await alice.execute(project_id, PLANTED["tool"], value=PLANTED["parameter"])
    assert (await alice.get(f"/my/tools/history?token={PLANTED['query']}")).status == 400
    assert (await alice.post(f"/my/projects/{project_id}/tools/{PLANTED['query']}/cancel")).status in (400, 404)
    return run_id


async def stop(*processes: Process) -> str:
    for process in processes:
        assert await process.stop() == 0, process.output()
    return "".join(process.output() for process in processes)


def lines_of(text: str) -> list[JsonObject]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.promise("S", "C9")
async def test_one_trace_over_both_processes_and_no_secret_in_logs_spans_or_metrics(
    site: Site, collector: Collector
) -> None:
    alice = User(site.url, site.token("alice"))
    server = await site.serve("--verbose")
    project_id: str = (await alice.post("/my/projects", {"name": "demo"})).body["project_id"]
    client = await site.connect(project_id, alice.token, options=("--verbose",))
    run_id = await provoke(site, alice, project_id)
    await collector.until(lambda: {"byleave-server", "byleave-client"} <= set(collector.metrics))
    logs = await stop(client, server)
    token = alice.token
    await alice.close()

    # One trace, across both processes, all of it sent by the time they have ended.
    (run,) = [span for span in collector.spans if span.name == "byleave.run"]
    trace = [span for span in collector.spans if span.trace_id == run.trace_id]
    by_id = {span.span_id: span for span in trace}
    assert run.attributes["byleave.run_id"] == run_id
    assert all(span.parent_id in by_id for span in trace if span is not run)
    assert {(span.service, span.name) for span in trace} == {
        ("byleave-server", "byleave.run"),
        ("byleave-server", "byleave.model"),
        ("byleave-server", "execute_tool write_file"),
        ("byleave-server", "byleave.gate"),
        ("byleave-server", "byleave.approval"),
        ("byleave-server", "byleave.client"),
        ("byleave-server", "byleave.result"),
        ("byleave-client", "byleave.client.execute"),
        ("byleave-client", "byleave.client.check"),
        ("byleave-client", "byleave.client.run"),
    }
    assert _way(by_id, "byleave.client.run") == [
        "byleave.client.run",
        "byleave.client.execute",
        "byleave.client",
        "execute_tool write_file",
        "byleave.run",
    ]
    assert {
        "byleave.calls",
        "byleave.approval.wait",
        "byleave.execution.duration",
        "byleave.clients",
    } <= collector.metrics["byleave-server"]
    assert "byleave.client.queue" in collector.metrics["byleave-client"]

    # No secret, in whatever form it was planted.
    sent = b"".join(collector.bodies)
    for where, secret in {**PLANTED, "token": token, "signature": token.rpartition(".")[2]}.items():
        assert secret not in logs, where
        assert secret.encode() not in sent, where

    # Lines about a call say which.
    lines = [line for line in lines_of(logs) if line["event"] in ("call judged", "executing", "done", "failed")]
    assert {line["event"] for line in lines} == {"call judged", "executing", "done", "failed"}
    for line in lines:
        assert line["project_id"] == project_id, line
        assert line["tool_id"].startswith("exec_"), line
        assert line["session_id"].startswith("sess_"), line
    assert [line["run_id"] for line in lines if "run_id" in line] == [run_id]


def _way(by_id: dict[str, Sent], name: str) -> list[str]:
    (span,) = [span for span in by_id.values() if span.name == name]
    names = [span.name]
    while span.parent_id:
        span = by_id[span.parent_id]
        names.append(span.name)
    return names
