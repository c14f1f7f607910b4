"""A mixed load through a server's public interface, and an account of all that it was told.

Agents read, append lines and run commands; runs of the chat append lines, too, and park; a person answers; a watcher
reads each project's feed. Everybody asks again until there is an answer, with keys, as the contract lets them. Each
line is written by one call, so the files tell what ran, and how often.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from byleave.client.api import ServerApi
from byleave.protocol.approvals import ApprovalRequest, ApproveBody, RejectBody
from byleave.protocol.chat import MessageBody, RunList
from byleave.protocol.errors import ByleaveError, ConflictError, UnreachableError
from byleave.protocol.executions import Execution, has_ended
from byleave.protocol.states import RunState
from byleave.sdk import Client, Machine

APPEND = """\
import sys
with open(sys.argv[1], "a") as file:
    file.write(sys.argv[2] + "\\n")
print("appended")
"""
FILE_TEXT = "what agents read\n"
FOREVER = 1e9
LOOK_SECONDS = 0.25
MOST_PAUSE_SECONDS = 0.3
"""Between two calls of one agent."""
Answer = TypeVar("Answer")
What = Literal["read", "write", "command", "chat"]


@dataclass
class Call:
    """One call that somebody asked for, and how it ended."""

    line: str
    """Unique: what it appends, and its key."""
    what: What
    project_id: str
    tool_id: str | None = None
    """None until the server has accepted it; for a run of the chat until the end."""
    run_id: str | None = None
    run_state: RunState | None = None
    end: Execution | None = None
    is_over: bool = False
    """Its caller was told of the end."""


class Event(NamedTuple):
    """An event as a watcher received it."""

    seq: int
    kind: str
    payload: str


@dataclass
class Account:
    """What the load did and was told."""

    calls: list[Call] = field(default_factory=list[Call])
    decisions: dict[str, str] = field(default_factory=dict[str, str])
    """Answers to questions that the server acknowledged."""
    seen: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    """Events by project, as its watcher got them."""
    faults: list[str] = field(default_factory=list[str])
    """Answers that no outage excuses."""
    stop: bool = False
    """Begin nothing new."""

    def ended(self) -> Counter[str]:
        return Counter(call.what for call in self.calls if call.is_over)


@dataclass(frozen=True)
class Place:
    """A project with the workspace of its client."""

    name: str
    project_id: str
    workspace: Path
    token: str
    """The person's."""
    agent_token: str


def furnish(workspace: Path) -> None:
    """Lay out what the load reads and runs."""
    workspace.mkdir(parents=True)
    (workspace / "append.py").write_text(APPEND)
    (workspace / "read.txt").write_text(FILE_TEXT)


class Load:
    """Everybody who works on one project."""

    def __init__(self, url: str, place: Place, account: Account, chance: random.Random) -> None:
        self._url = url
        self.place = place
        self.account = account
        self._chance = chance
        self._number = 0
        account.seen[place.project_id] = []

    @asynccontextmanager
    async def running(self, agents: int, chats: int) -> AsyncGenerator[list["asyncio.Task[None]"]]:
        """Work until the account says stop; yields the tasks that then end by themselves."""
        async with AsyncExitStack() as stack:
            person = await stack.enter_async_context(Client(self._url, self.place.token, patience_seconds=FOREVER))
            agent = await stack.enter_async_context(Client(self._url, self.place.agent_token, patience_seconds=FOREVER))
            for client in (person, agent):
                await client.projects()  # the first contact, after which a proxy's answers are no surprise
            workers = [
                *(self._work(f"a{number}", agent) for number in range(agents)),
                *(self._chat(f"c{number}", person) for number in range(chats)),
            ]
            tasks = [asyncio.create_task(worker) for worker in workers]
            others = [asyncio.create_task(self._answer_all(person)), asyncio.create_task(self._watch(person.api))]
            for task in (*tasks, *others):
                task.add_done_callback(self._has_ended)
            try:
                yield tasks
            finally:
                for task in (*tasks, *others):
                    task.cancel()
                await asyncio.gather(*tasks, *others, return_exceptions=True)

    def _has_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fault(f"the load itself failed: {task.exception()!r}")

    def _fault(self, text: str) -> None:
        self.account.faults.append(text)

    def _call(self, what: What, name: str) -> Call:
        self._number += 1
        call = Call(f"L-{self.place.name}-{name}-{self._number}.", what, self.place.project_id)
        self.account.calls.append(call)
        return call

    # An agent that runs elsewhere

    async def _work(self, name: str, client: Client) -> None:
        agent = Machine(project_id=self.place.project_id, client=client)
        while not self.account.stop:
            what = self._chance.choices(("read", "write", "command"), (4, 3, 3))[0]
            call = self._call(what, name)
            try:
                await self._ask(call, name, agent, client.api)
            except ByleaveError as error:
                self._fault(f"{call.line} ({what}) was answered: {type(error).__name__}: {error.message}")
            await asyncio.sleep(self._chance.uniform(0, MOST_PAUSE_SECONDS))

    async def _ask(self, call: Call, name: str, agent: Machine, api: ServerApi) -> None:
        if call.what == "read":
            tool, params = "read_file", {"path": "read.txt"}
        elif call.what == "write":
            tool, params = "write_file", {"path": f"{name}.txt", "content": f"{call.line}\n", "mode": "append"}
        else:
            tool, params = "execute_command", {"command": "python", "args": ["append.py", f"{name}-run.txt", call.line]}
        response = await agent.start(tool, params, key=call.line)
        call.tool_id = response.tool_id
        if self._chance.random() < 0.05:
            await agent.cancel(response.tool_id)
        if not has_ended(response):
            response = await agent.wait(response.tool_id)
        if self._chance.random() < 0.2:  # a caller that forgot that it asked
            again = await agent.start(tool, params, key=call.line)
            if again.tool_id != call.tool_id or again.status is not response.status:
                self._fault(f"{call.line} was asked again and is now {again.tool_id}, {again.status}")
        call.end = await _insist(lambda: api.get_tool(response.tool_id))
        if call.end.status.value != response.status.value:
            self._fault(f"{call.line} ended as {response.status} and is now {call.end.status}")
        if call.what == "read" and response.result and response.result.get("content") not in (None, FILE_TEXT):
            self._fault(f"{call.line} read something else: {response.result}")
        call.is_over = True

    # The chat

    async def _chat(self, name: str, client: Client) -> None:
        session_id: str | None = None
        while not self.account.stop:
            call = self._call("chat", name)
            body = MessageBody(
                content=f"append to {name}.txt: {call.line}", session_id=session_id, client_key=call.line
            )
            try:
                posted = await _insist(lambda body=body: client.api.post_message(self.place.project_id, body))
                call.run_id = posted.run_id
                session_id = posted.session_id if self._chance.random() < 0.7 else None
                await self._follow(call, posted.session_id, client.api)
            except ByleaveError as error:
                self._fault(f"{call.line} (chat) was answered: {type(error).__name__}: {error.message}")

    async def _follow(self, call: Call, session_id: str, api: ServerApi) -> None:
        """Look at a run until it has ended."""
        path = f"/my/projects/{self.place.project_id}/chat/runs?limit=5&session_id={session_id}"
        while True:
            with suppress(UnreachableError):
                status, body, _ = await api.ask("GET", path, None)
                if status == 200:
                    runs = {run.run_id: run for run in RunList.model_validate_json(body).runs}
                    call.run_state = runs[call.run_id or ""].state
                    if call.run_state in (RunState.DONE, RunState.FAILED):
                        call.is_over = True
                        return
                elif status < 500:
                    self._fault(f"{call.line} (chat) was answered {status}: {body!r}")
                    return
            await asyncio.sleep(LOOK_SECONDS)

    # The person

    async def _answer_all(self, client: Client) -> None:
        """Answer each question, soon or late; leave some until the end."""
        known: set[str] = set()
        left: list[ApprovalRequest] = []
        async with asyncio.TaskGroup() as group:
            while True:
                waiting = (await _insist(client.api.approvals)).approvals
                new = [one for one in waiting if one.id not in known and one.project_id == self.place.project_id]
                known.update(one.id for one in new)
                if self.account.stop:
                    new, left = [*new, *left], []
                for question in new:
                    if not self.account.stop and self._chance.random() < 0.03:
                        left.append(question)
                    else:
                        group.create_task(self._answer(question, client.api))
                await asyncio.sleep(LOOK_SECONDS)

    async def _answer(self, question: ApprovalRequest, api: ServerApi) -> None:
        is_quick = self.account.stop or self._chance.random() < 0.7
        decision = "rejected" if self._chance.random() < 0.1 else "approved"
        await asyncio.sleep(self._chance.uniform(0, 0.3) if is_quick else self._chance.uniform(1.5, 5))
        project_id = self.place.project_id
        try:
            if decision == "approved":
                body = ApproveBody(decision="approved")
                answer = await _insist(lambda: api.approve(project_id, question.id, body))
            else:
                answer = await _insist(lambda: api.reject(project_id, question.id, RejectBody(reason="not now")))
            self.account.decisions[question.id] = answer.status.value
        except ConflictError as error:  # too late, or decided by the first of two tries
            self.account.decisions[question.id] = error.state
        except ByleaveError as error:
            self._fault(f"the answer to {question.id} was answered: {type(error).__name__}: {error.message}")

    # The watcher

    async def _watch(self, api: ServerApi) -> None:
        """Read the feed from its beginning, on and on, and hold its numbers to their promise."""
        seen = self.account.seen[self.place.project_id]
        while True:
            last = seen[-1].seq if seen else 0
            try:
                async with api.stream(self.place.project_id, last) as stream:
                    async for frame in stream.frames():
                        self._take(Event(int(frame.id or 0), frame.event, frame.data.decode()))
            except UnreachableError:
                pass
            except ByleaveError as error:
                self._fault(f"the feed was answered: {type(error).__name__}: {error.message}")
            await asyncio.sleep(LOOK_SECONDS)

    def _take(self, event: Event) -> None:
        seen = self.account.seen[self.place.project_id]
        if seen and event.seq <= seen[-1].seq:
            self._fault(f"event {event.seq} came after event {seen[-1].seq} of {self.place.project_id}")
        json.loads(event.payload)
        seen.append(event)


async def _insist(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until the server answers."""
    while True:
        with suppress(UnreachableError):
            return await ask()
        await asyncio.sleep(LOOK_SECONDS)
