"""A short drill of `harness.chaos`, and proof that its verdict would find what must not happen.

`make chaos MINUTES=10` strikes for longer, with a new seed each time.
"""

import asyncio
import os
import random
import signal
import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import chaos
from harness.chaos import Drill, Plan
from harness.forks import untraced_forks
from harness.load import Account, Event, Place
from harness.processes import environment
from harness.verdict import Record, faults

pytestmark = pytest.mark.timeout(300)
STRIKES = 12
SHORT = Plan(seed=0, strikes=STRIKES, strikes_in_a_round=STRIKES, longest_pause=4.0, projects=2, agents=2, patience=100)


def plan(**changes: object) -> Plan:
    """The short drill with a new seed, or a reason to skip it."""
    planned = replace(SHORT, seed=random.randrange(2**32), **changes)
    reason = chaos.why_not(planned)
    if reason is not None:
        pytest.skip(reason)
    return planned


@pytest.mark.promise("W10", "C5", "D", "X22")
async def test_no_promise_is_broken_while_everything_is_killed_and_paused() -> None:
    outcome = await chaos.drill(plan(database="postgres", servers=3, with_bus=True), print)
    print(outcome.text)
    assert not outcome.faults, outcome.text
    assert outcome.strikes == STRIKES


class Tampered(Drill):
    """A drill after which evidence is forged, piece by piece: each forgery alone has to be found."""

    def compare(self, account: Account, record: Record, places: Sequence[Place]) -> list[str]:
        assert faults(account, record, places) == []
        done = next(call for call in account.calls if call.what == "write" and call.end and call.end.approved_by)
        place = next(place for place in places if place.project_id == done.project_id)
        file = next(path for path in place.workspace.glob("a*.txt") if done.line in path.read_text())
        seen = account.seen[place.project_id]
        for forge, words in (
            (text(file, f"{done.line}\n", f"{done.line}\n{done.line}\n"), "is 2 times in its file"),
            (text(file, f"{done.line}\n", ""), "is 0 times in its file"),
            (text(file, "L-", "L-nobody. L-"), "nobody asked for it"),
            (listed(seen, seen[:3] + seen[4:]), "a watcher never got event"),
            (listed(seen, [*seen, Event(10**6, "x", "{}")]), "which the record does not have"),
            (listed(seen, [*seen[1:], seen[0]]), "in another order"),
            (listed(account.calls, [call for call in account.calls if call is not done]), "nobody asked for it"),
            (self.row("events", "seq = 2", "seq", "1000000"), "have a gap"),
            (self.row("approvals", "status = 'approved'", "status", "'pending'"), "is still pending"),
            (self.row("approvals", "status = 'approved'", "status", "'rejected'"), "was acknowledged as approved"),
            (self.row("tool_executions", f"id = '{done.tool_id}'", "status", "'EXECUTING'"), "is still executing"),
            (self.row("tool_executions", f"id = '{done.tool_id}'", "id", "'another'"), "is not in the record"),
            (self.row("runs", "state = 'DONE'", "state", "'WAITING'"), "is still waiting"),
            (self.row("audit", "seq = 2", "detail", "'{}'"), "the audit chain is broken"),
        ):
            with forge:
                found = faults(account, record, places) or self.audit_faults()
            assert any(words in fault for fault in found), (words, found)
        return []

    @contextmanager
    def row(self, table: str, where: str, column: str, value: str) -> Generator[None]:
        """One row is another for a while."""
        with closing(sqlite3.connect(self.database_url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            (number, was) = connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {where}").fetchone()
            connection.execute(f"UPDATE {table} SET {column} = {value} WHERE rowid = {number}")
            yield
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {number}", (was,))


@contextmanager
def text(file: Path, old: str, new: str) -> Generator[None]:
    was = file.read_text()
    file.write_text(was.replace(old, new, 1))
    yield
    file.write_text(was)


@contextmanager
def listed(whole: list[Any], forged: list[Any]) -> Generator[None]:
    was = list(whole)
    whole[:] = forged
    yield
    whole[:] = was


async def test_drill_on_sqlite_finds_each_forgery_of_its_evidence_and_nothing_else() -> None:
    outcome = await Tampered(plan(database="sqlite"), print).run()
    assert not outcome.faults, outcome.text


async def test_end_of_a_fork_is_told_to_who_waits_though_another_polled_it_first(tmp_path: Path) -> None:
    fork = untraced_forks().start(("serve", "--port", "0"), environment(tmp_path / "home"), tmp_path)
    waiting = asyncio.create_task(fork.ended())
    await asyncio.sleep(0)
    os.kill(fork.pid, signal.SIGKILL)
    while fork.poll() is None:
        time.sleep(0.01)
    async with asyncio.timeout(10):
        assert await waiting == -signal.SIGKILL
    fork.close()
