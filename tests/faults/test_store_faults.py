"""Fail the Nth database operation, N = 1, 2, … until a whole life of a call runs clean.

After each failure the record must be as if the failed step had never been tried: the chain verifies, the feed has no
gap, nothing is signalled twice, and trying the step again goes through.
"""

import json
import sqlite3
from pathlib import Path

import pytest

from byleave.calls.executor import begin, settle
from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.approvals import Question
from byleave.store.sqlite import SqliteDatabase
from harness.records import SEAL_KEYS, Clock, Records, answer
from harness.trouble import Trouble, TroubledDatabase


async def life_of_a_call(records: Records) -> int:
    """Ask, approve, settle; each step is tried again after a failure. Returns how many failures were met."""
    failures = 0
    call = records.call(key="exec_life")
    steps = ["begin", "decide", "settle"]
    approval_id = ""
    while steps:
        try:
            if steps[0] == "begin":
                row = await begin(records.store, call, Question("write", 300), client_id="c1")
                approval_id = row.approval_id or ""
            elif steps[0] == "decide":
                await answer(records.store, approval_id, user_id="alice", approve=True, client_id="c1")
            else:
                await settle(
                    records.store,
                    call.id,
                    user_id="alice",
                    project_id=records.project.id,
                    client_id="c1",
                    result="{}",
                    result_hash="h",
                )
        except sqlite3.OperationalError:
            failures += 1
        else:
            del steps[0]
    return failures


@pytest.mark.promise("W11", "D")
async def test_any_single_failure_of_the_disk_leaves_the_record_whole(tmp_path: Path) -> None:
    fail_at = 0
    while True:
        fail_at += 1
        assert fail_at < 200, "a life of a call takes far fewer operations"
        settings = ServerSettings(home=tmp_path / str(fail_at), durability="normal")
        clock = Clock()
        sound = await Store.open(settings, seal_keys=SEAL_KEYS, clock=clock)
        assert isinstance(sound.database, SqliteDatabase)
        project = await sound.chat.create_project("alice", "demo")
        session = await sound.chat.create_session("alice", project.id, "first")
        troubled = Store(TroubledDatabase(sound.database, Trouble(fail_at)), settings)
        failures = await life_of_a_call(Records(troubled, clock, settings, project, session))

        row = await sound.executions.get("exec_life", user_id="alice")
        assert row.status == "completed"
        assert [check.fault for check in await sound.audit.verify()] == [None]
        events = await sound.database.read(
            lambda transaction: transaction.execute("SELECT seq, kind, payload FROM events ORDER BY seq").fetchall()
        )
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        kinds = [event["kind"] for event in events]
        assert kinds == [
            "tool.started",
            "tool.approval_request",
            "tool.approval_decided",
            "tool.execution_signal",
            "tool.result_ack",
            "tool.finished",
        ]
        assert "tool_params" not in json.loads(events[3]["payload"])
        await sound.close()
        if failures == 0:
            break
    assert fail_at > 10
