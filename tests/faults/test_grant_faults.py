"""Fail the Nth database operation of the flows around grants, N = 1, 2, … until all of them run clean.

Declare rules; ask; say yes to a class, which lets a second call go; use the grant; look at a script, ask, grant it, run
it again; revoke; ask again. After each failure the step is tried again. In the end the record must be the same as if
nothing had failed: same states, same events, same audit; each call signalled once, each use counted once.
"""

import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from byleave.calls.executor import Inspect, begin, settle
from byleave.gate import Gate
from byleave.protocol.approvals import Inspection, SeenFile, call_digest
from byleave.protocol.grants import GrantRule
from byleave.protocol.states import ApprovalScope, RiskLevel
from byleave.protocol.wire import plain_json
from byleave.settings import ServerSettings
from byleave.store import Store
from byleave.store.approvals import Question
from byleave.store.database import Transaction
from byleave.store.grants import NewGrant
from byleave.store.ledger import write_batch
from byleave.store.sqlite import SqliteDatabase
from byleave.store.transitions import NewExecution
from harness.json_values import JsonObject
from harness.records import SEAL_KEYS, Clock, Records, answer, inspected
from harness.trouble import Trouble, TroubledDatabase

SCRIPT = {"command": "python", "args": ["x.py"], "timeout": 30}
SEEN = Inspection(files=[SeenFile(path="x.py", sha256="a" * 64, text="print(1)")])
BELOW_SRC = NewGrant(ApprovalScope.CLASS, GrantRule(tool="write_file", paths=("src/**",)), "src", 3600, None)
THE_SCRIPT = GrantRule(tool="execute_command", command=("python", "x.py"), exact=True, files=SEEN.bound)


R = TypeVar("R")


class Life:
    """All flows, one small step after the other; each may be tried again."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.store = records.store
        self.approvals: dict[str, str] = {}
        self.grants: list[str] = []
        self.failures = 0

    async def step(self, work: Callable[[], Awaitable[R]]) -> R:
        self.records.clock.turn(1)
        while True:
            try:
                return await work()
            except sqlite3.OperationalError:
                self.failures += 1

    def _call(self, key: str, tool: str, params: JsonObject) -> NewExecution:
        digest = call_digest(tool, params, self.records.project.id)
        return self.records.call(
            tool_name=tool, key=key, params=plain_json(params), digest=digest, risk_level=RiskLevel.MEDIUM
        )

    async def write(self, key: str, path: str) -> str:
        call = self._call(key, "write_file", {"path": path, "content": "x", "create_dirs": True})
        row = await self.step(lambda: begin(self.store, call, Question("write", 300), client_id="c1"))
        self.approvals[key] = row.approval_id or ""
        return row.status

    async def script(self, key: str) -> str:
        call = self._call(key, "execute_command", SCRIPT)
        await self.step(lambda: begin(self.store, call, Inspect(), client_id="c1"))
        question = Question("run", 300, inspection=SEEN, runs_code=True)
        digest = call_digest("execute_command", SCRIPT, self.records.project.id, SEEN.bound)
        verdict = Gate().judge("execute_command", SCRIPT).verdict
        row = await self.step(lambda: inspected(self.store, key, question, verdict, digest=digest, client_id="c1"))
        self.approvals[key] = row.approval_id or ""
        return row.status

    async def say_yes(self, key: str, grant: NewGrant | None) -> tuple[str, ...]:
        decided = await self.step(
            lambda: answer(
                self.store,
                self.approvals[key],
                user_id="alice",
                approve=True,
                client_id="c1",
                grant=grant,
            )
        )
        self.grants += [decided.grant.id] if decided.grant else []
        return decided.released

    async def settle(self, *keys: str) -> None:
        for key in keys:
            await self.step(
                lambda key=key: settle(
                    self.store,
                    key,
                    user_id="alice",
                    project_id=self.records.project.id,
                    client_id="c1",
                    result="{}",
                    result_hash="h",
                )
            )

    async def live(self) -> None:
        declare = self.store.machines.declare
        await self.step(lambda: declare(self.records.project.id, "c1", "{}", digest="d"))
        assert await self.write("a", "src/a.py") == "awaiting_approval"
        assert await self.write("b", "src/b.py") == "awaiting_approval"
        assert await self.say_yes("a", BELOW_SRC) == ("b",)
        await self.settle("a", "b")
        assert await self.write("c", "src/c.py") == "executing"
        await self.settle("c")
        assert await self.script("d") == "awaiting_approval"
        grant = NewGrant(ApprovalScope.CLASS, THE_SCRIPT, "script", 3600, None)
        assert await self.say_yes("d", grant) == ()
        await self.settle("d")
        assert await self.script("e") == "executing"
        await self.settle("e")
        revoke = self.store.grants.revoke
        await self.step(lambda: revoke(self.grants[0], user_id="alice", actor="person:alice"))
        assert await self.write("f", "src/f.py") == "awaiting_approval"
        await self.step(lambda: self.store.executions.cancel("f", user_id="alice", actor="user:alice"))


async def told(store: Store) -> list[tuple[object, ...]]:
    """Everything the record says, without ids that are made up anew each time."""

    def work(transaction: Transaction) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for sql in (
            "SELECT seq, kind, ref, target FROM events ORDER BY seq",
            "SELECT seq, action, execution_id, substr(actor, 1, 6) AS actor FROM audit ORDER BY seq",
            "SELECT id, status, requires_approval, substr(approved_by, 1, 6) AS yes FROM tool_executions ORDER BY id",
            "SELECT status, unseen, substr(decided_by, 1, 6) AS yes, scope FROM approvals ORDER BY created_at",
            "SELECT text, uses, revoked_by FROM grants ORDER BY created_at",
            "SELECT client_id, policy FROM machines",
        ):
            found += [tuple(row) for row in transaction.execute(sql).fetchall()]
        return found

    return await store.database.read(work)


@pytest.mark.promise("W11", "D", "G8")
async def test_any_single_failure_leaves_grants_their_uses_and_what_they_let_go_whole(tmp_path: Path) -> None:
    clean: list[tuple[object, ...]] = []
    fail_at = 0
    empty = await Store.open(ServerSettings(home=tmp_path / "empty", durability="normal"), seal_keys=SEAL_KEYS)
    project = await empty.chat.create_project("alice", "demo")
    session = await empty.chat.create_session("alice", project.id, "first")
    await empty.close()
    while True:
        settings = ServerSettings(home=tmp_path / str(fail_at), durability="normal")
        clock = Clock()
        shutil.copytree(tmp_path / "empty", settings.home)
        database = SqliteDatabase(
            settings.home / "byleave.db",
            durability="normal",
            clock=clock,
            before_commit=write_batch,
            seal_keys=SEAL_KEYS,
        )
        sound = Store(database, settings)
        troubled = Store(TroubledDatabase(database, Trouble(fail_at)), settings)
        life = Life(Records(troubled, clock, settings, project, session))
        await life.live()
        assert [check.fault for check in await sound.audit.verify()] == [None]
        record = await told(sound)
        await sound.close()
        if fail_at == 0:
            clean = record
            signals = [row[2] for row in clean if row[1] == "tool.execution_signal"]
            assert signals == ["a", "b", "c", "d", "e"]
            assert ("src", 2, "person:alice") in clean
            assert ("script", 1, None) in clean
        else:
            assert record == clean, f"after a failure of operation {fail_at}"
            if life.failures == 0:
                break
        fail_at += 1
    assert fail_at > 100
