"""Retention in a running server: old calls go by themselves, and nobody who reads the feed misses that."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from pydantic import SecretStr

from byleave.calls.approvals import Clearance
from byleave.calls.executor import begin, settle
from byleave.protocol.errors import NotFound
from byleave.server.auth.secret import seal_keys
from byleave.server.retention import RetentionTask
from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.retention import Removed, Retention
from harness.http_server import SECRET, Server, StartServer
from harness.records import Clock, Records

pytestmark = pytest.mark.promise("D")


def _settings(home: Path, **more: int) -> ServerSettings:
    return ServerSettings(home=home, secret=SecretStr(SECRET), **more)  # type: ignore[arg-type]


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.005)


async def _call(records: Records, key: str, content: str = "x") -> None:
    row = await begin(records.store, records.call(key=key), Clearance("risk:LOW"), client_id="c1")
    await settle(
        records.store,
        row.id,
        user_id="alice",
        project_id=records.project.id,
        client_id="c1",
        result=f'{{"content":"{content}"}}',
        result_hash="h",
    )


@pytest.fixture
async def records(tmp_path: Path) -> AsyncGenerator[Records]:
    """Two calls of ten days ago."""
    settings = _settings(tmp_path / "home")
    clock = Clock(datetime.now(UTC) - timedelta(days=10))
    store = await Store.open(settings, seal_keys=seal_keys(settings), clock=clock)
    project = await store.chat.create_project("alice", "demo")
    records = Records(store, clock, settings, project, await store.chat.create_session("alice", project.id, "first"))
    for key in ("old1", "old2"):
        await _call(records, key, "x" * 600_000)
    yield records
    await store.close()


async def test_a_server_removes_old_calls_when_it_starts(records: Records, start_server: StartServer) -> None:
    records.clock.moment = datetime.now(UTC)
    await _call(records, "young")
    head = await records.store.feed.head(records.project.id)
    await records.store.close()
    server = await start_server(retention_days=7)
    await _until(lambda: server.parts.retention.passes > 0)
    alice, project = server.user(), records.project.id
    assert (await alice.get("/my/tools/old1")).status == 404
    assert (await alice.get("/my/tools/young")).status == 200
    page = (await alice.get("/my/tools/history")).json
    assert ([each["tool_id"] for each in page["executions"]], page["next_cursor"]) == (["young"], None)
    assert [check.fault for check in await server.parts.store.audit.verify()] == [None]
    oldest, newest = await server.parts.store.feed.span(project)
    assert 0 < oldest < newest == head
    async with alice.feed(project, last=1) as feed:
        gap, first = await feed.take(2)
        assert (gap.kind, gap.seq, gap.data["oldest"]) == ("feed.gap", 1, oldest)
        assert first.seq == oldest + 1
    async with alice.feed(project, last=oldest) as feed:
        assert (await feed.take(1))[0].seq == oldest + 1


async def test_everything_is_kept_by_default(records: Records, start_server: StartServer) -> None:
    await records.store.close()
    server = await start_server()
    await asyncio.sleep(0)
    assert server.parts.retention.passes == 0
    assert (await server.user().get("/my/tools/old1")).status == 200


async def test_a_machine_whose_position_was_removed_gets_its_signals_again(server: Server) -> None:
    alice = server.user()
    project = await alice.project()
    machine = "client=laptop&workspace=/home/someone/code&isolation=bubblewrap"
    async with alice.feed(project, machine) as feed:
        calling = asyncio.create_task(alice.execute(project, "read_file", {"path": "a.txt"}))
        signal = await feed.until("tool.execution_signal")
    await server.parts.store.database.write(lambda transaction: transaction.execute("DELETE FROM events").rowcount)
    async with alice.feed(project, machine, last=1) as feed:
        assert (await feed.take(1))[0].kind == "feed.gap"
        again = await feed.until("tool.execution_signal")
        assert again.data["tool_id"] == signal.data["tool_id"]
        report = {"status": "completed", "result": {"success": True, "content": "hello"}}
        path = f"/my/projects/{project}/tools/{signal.data['tool_id']}/result"
        assert (await alice.post(path, report, headers={"Byleave-Client": "laptop"})).status == 200
    assert (await calling).json["status"] == "completed"


async def test_a_record_is_brought_below_its_limit_and_gives_back_room(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    from byleave.server import retention

    monkeypatch.setattr(retention, "KEPT_FREE_BYTES", 0)
    records.clock.moment = datetime.now(UTC)
    task = RetentionTask(records.store, _settings(records.settings.home, retention_mb=1))
    assert (await task.run_once()).calls in (1, 2)
    space = await records.store.retention.space()
    assert space.used <= 1024 * 1024
    assert space.free == 0
    assert await task.run_once() == Removed()


async def test_a_pass_gives_back_the_room_of_one_that_was_killed_after_the_removal(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    from byleave.server import retention

    monkeypatch.setattr(retention, "KEPT_FREE_BYTES", 0)
    records.clock.moment = datetime.now(UTC)
    async for _ in records.store.retention.prune(await records.store.retention.moment(0)):
        pass
    assert (await records.store.retention.space()).free > 0
    task = RetentionTask(records.store, _settings(records.settings.home, retention_days=7))
    assert await task.run_once() == Removed()
    assert (await records.store.retention.space()).free == 0


async def test_a_pass_keeps_room_for_the_next_calls(records: Records) -> None:
    records.clock.moment = datetime.now(UTC)
    task = RetentionTask(records.store, _settings(records.settings.home, retention_days=7))
    assert (await task.run_once()).calls == 2
    assert (await records.store.retention.space()).free > 1024 * 1024


async def test_a_record_that_cannot_fit_says_so(records: Records) -> None:
    records.clock.moment = datetime.now(UTC)
    await _call(records, "young", "x" * 1_500_000)
    task = RetentionTask(records.store, _settings(records.settings.home, retention_mb=1))
    with structlog.testing.capture_logs() as lines:
        assert (await task.run_once()).calls == 2
    assert "larger than BYLEAVE_RETENTION_MB" in lines[-1]["event"]
    assert (await records.store.executions.get("young", user_id="alice")).id == "young"


async def test_a_failed_pass_is_logged_and_tried_again(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    records.clock.moment = datetime.now(UTC)
    real, tries = Retention.prune, 0

    async def failing(self: Retention, before: str, *, actor: str = "server") -> AsyncIterator[Removed]:
        nonlocal tries
        tries += 1
        async for removed in real(self, before, actor=actor):
            if tries == 1:
                raise sqlite3.OperationalError("database or disk is full")
            yield removed

    monkeypatch.setattr(Retention, "prune", failing)
    task = RetentionTask(records.store, _settings(records.settings.home, retention_days=7), every_seconds=0.01)
    with structlog.testing.capture_logs() as lines:
        task.start()
        await _until(lambda: task.passes > 1)
        await task.stop()
        await task.stop()
    assert [line["error"] for line in lines if line["log_level"] == "error"] == ["database or disk is full"]
    with pytest.raises(NotFound):
        await records.store.executions.get("old1", user_id="alice")
