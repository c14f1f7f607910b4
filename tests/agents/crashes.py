"""Kills a server at every step of a run, one step later each time, and has a new one finish the run.

A program of its own: everything is imported once, then each life of the server is a fork. The points are the commits a
run goes through: dying after one is dying before the next. For every point it prints one line of JSON: whether the
process died there, and what the world looked like after the second one was done.
"""

import asyncio
import itertools
import json
import logging
import os
import secrets
import shutil
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCalls, FunctionModel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from byleave.agents.models import stream_function
from byleave.calls import executor
from byleave.protocol.executions import CompletedReport, FailedReport
from byleave.protocol.states import ErrorType, RunState
from byleave.settings import ServerSettings
from byleave.store import Store
from harness.json_values import JsonObject
from harness.records import SEAL_KEYS
from harness.room import Room, open_room

DIED = 17
MESSAGE = """\
append to log.txt: "one"
read log.txt
append to log.txt: "two"
list
append to log.txt: "three"
"""


class Points:
    """Counts the boundaries and dies at one of them."""

    def __init__(self, die_at: int) -> None:
        self._die_at = die_at
        self.passed = 0

    def pass_one(self) -> None:
        self.passed += 1
        if self.passed == self._die_at:
            os._exit(DIED)

    def watch(self, owner: Any, name: str) -> None:
        original: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def watched(*args: Any, **kwargs: Any) -> Any:
            result = await original(*args, **kwargs)
            self.pass_one()
            return result

        setattr(owner, name, watched)


class JournalledClient:
    """A client that notes what it did, as the real one does: it lives on when the server dies."""

    def __init__(self, room: Room, notes: Path) -> None:
        self._room = room
        self._act = room.act
        self._notes = notes
        notes.mkdir(exist_ok=True)

    async def act(self, signal: JsonObject) -> CompletedReport | FailedReport:
        note = self._notes / signal["tool_id"]
        if note.exists():
            text = note.read_text()
            if not text:
                return FailedReport(status="failed", error="Interrupted.", error_type=ErrorType.INTERRUPTED)
            return CompletedReport.model_validate_json(text)
        note.write_text("")
        # In a loop of its own, waited for: the server never dies in the middle, because a client is not part of it.
        with ThreadPoolExecutor(1) as thread:
            report = thread.submit(lambda: asyncio.run(self._act(signal))).result()
        note.write_text(report.model_dump_json())
        return report


async def forgetful(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """The offline model with ids made up anew every time it is asked, as real models do: only what is kept counts."""
    async for piece in stream_function(messages, info):
        if isinstance(piece, dict):
            for call in piece.values():
                call.tool_call_id = secrets.token_hex(8)
        yield piece


async def serve(base: Path, die_at: int, park_seconds: float) -> None:
    """One life of the server: until the run has ended, or until it dies."""
    points = Points(die_at)
    async with open_room(base / "home", base / "ws", connect=False, park_seconds=park_seconds) as room:
        client = JournalledClient(room, base / "notes")
        desk = room.desk
        for name in ("claim", "checkpoint", "say", "park", "finish"):
            points.watch(desk.store.runs, name)
        points.watch(executor, "begin")
        points.watch(desk.executor, "settle")
        points.watch(desk.approvals, "approve_tool")
        async with desk.client(client.act, workspace=str(room.root)):
            run_id = (base / "run").read_text()
            approver = asyncio.create_task(room.approve_everything())
            await room.worker(FunctionModel(stream_function=forgetful, model_name="forgetful")).start()
            await room.ended(run_id)
            approver.cancel()


async def prepare(base: Path) -> None:
    async with open_room(base / "home", base / "ws", connect=False) as room:
        (base / "run").write_text((await room.post(MESSAGE)).run_id)


async def report(base: Path) -> JsonObject:
    store = await Store.inspect(ServerSettings(home=base / "home"), seal_keys=SEAL_KEYS)
    try:
        run = await store.runs.get((base / "run").read_text(), user_id="alice")
        messages = await store.chat.messages("alice", run.session_id)
        log = base / "ws" / "log.txt"
        return {
            "done": run.state is RunState.DONE,
            "error": run.error,
            "claims": run.fence,
            "log": log.read_text() if log.exists() else None,
            "acted": len(list((base / "notes").iterdir())),
            "answers": [message.content for message in messages if message.role == "agent"],
        }
    finally:
        await store.close()


def in_fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the end of a forked process
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(where: Path, offset: int, every: int, park_seconds: float) -> None:
    """Points offset, offset + every, …, until a life goes by in which nothing dies."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    fresh = where / "fresh"
    fresh.mkdir()
    asyncio.run(prepare(fresh))
    # One life here first: what it imports and builds, every fork has already.
    asyncio.run(serve(Path(shutil.copytree(fresh, where / "warm")), 0, park_seconds))
    for point in itertools.count(offset, every):
        base = where / str(point)
        shutil.copytree(fresh, base)
        first = in_fork(lambda base=base, point=point: asyncio.run(serve(base, point, park_seconds)))
        second = in_fork(lambda base=base: asyncio.run(serve(base, 0, park_seconds))) if first == DIED else 0
        print(json.dumps({"point": point, "first": first, "second": second, **asyncio.run(report(base))}), flush=True)
        if first != DIED:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
