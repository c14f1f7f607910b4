"""A client that is killed a hundred times in the middle of its writes: every file old or new, nothing twice."""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from byleave.workspace.files.drafts import remove_drafts
from harness.forks import untraced_forks
from harness.json_values import JsonObject
from harness.processes import Site, User, environment, open_site
from harness.zygote import Zygote, open_zygote

KILLS = 100
SIZES = (10, 5_000, 300_000, 1_500_000, 4_000_000)
LONGEST = 0.2
"""How long a client lives once it is connected, in seconds: up to some calls."""
RECORD = re.compile(rb"<(\d+):(\d+):(x*)>\n")


@dataclass
class Written:
    """One file that calls write over and over, and what is known of it."""

    path: str
    appends: bool = False
    calls: int = 0
    held: set[int] = field(default_factory=lambda: {0})
    """Of a file that is replaced: the versions it may hold. Of one that grows: the calls that may be in it."""
    surely: set[int] = field(default_factory=set[int])
    ends: Counter[str] = field(default_factory=Counter[str])

    def content(self, number: int) -> str:
        size = SIZES[number % (3 if self.appends else len(SIZES))]
        return f"<{number}:{size}:{'x' * size}>\n"

    def check(self, workspace: Path) -> None:
        """What lies on the disk is whole, and is something that was asked for."""
        try:
            data = (workspace / self.path).read_bytes()
        except FileNotFoundError:
            assert not self.surely
            return
        records = RECORD.findall(data)
        whole = b"".join(b"<%s:%s:%s>\n" % record for record in records)
        assert hashlib.sha256(whole).digest() == hashlib.sha256(data).digest(), f"{self.path} is torn"
        assert all(int(size) == len(filler) for _, size, filler in records), f"{self.path} is torn"
        numbers = [int(number) for number, _, _ in records]
        if self.appends:
            assert len(numbers) == len(set(numbers)), f"{self.path} was appended to twice"
            assert numbers == sorted(numbers)
            assert self.surely <= set(numbers) <= self.held
        else:
            assert len(numbers) == 1
            assert numbers[0] in self.held


@dataclass
class Signs:
    """What the writers and the killer tell each other."""

    stop: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """A call ended."""


async def keep_writing(user: User, project_id: str, file: Written, workspace: Path, signs: Signs) -> None:
    """One call after the other, each approved, until told to stop; after each the file is looked at."""
    while not signs.stop:
        file.calls += 1
        number = file.calls
        if not file.appends:
            file.held = file.held | {number}
        else:
            file.held.add(number)
        ended = await write(user, project_id, file, number)
        outcome = ended["status"] if ended["error_type"] is None else ended["error_type"]
        file.ends[outcome] += 1
        assert outcome in ("completed", "interrupted", "no_client"), ended
        if outcome == "no_client":
            file.held.discard(number)
        elif outcome == "completed":
            file.surely = file.surely | {number} if file.appends else {number}
            file.held = file.held if file.appends else {number}
        await asyncio.to_thread(file.check, workspace)
        signs.ended.set()


async def write(user: User, project_id: str, file: Written, number: int) -> JsonObject:
    params = {"path": file.path, "content": file.content(number), "mode": "append" if file.appends else "write"}
    body = json.dumps({"project_id": project_id, "tool_name": "write_file", "tool_params": params})
    # As a file: a large text would be sent in one piece, and aiohttp warns of that.
    data, kind = io.BytesIO(body.encode()), {"Content-Type": "application/json"}
    async with user.http.post(f"{user.url}/my/tools/execute", data=data, headers=kind) as answered:
        call = await answered.json()
        assert answered.status == 200, call
    tool_id = call["tool_id"]
    while call["status"] in ("pending",):  # the client that looks may be killed; the next one looks then
        await asyncio.sleep(0.05)
        call = (await user.get(f"/my/tools/{tool_id}")).body
    if call["approval_id"] is not None:
        answer = await user.post(f"/my/approvals/{call['approval_id']}/confirm", {"decision": "approved"})
        assert answer.status == 200, answer.body
    while True:  # a client that is killed too soon reports nothing; one of the next does
        ended = await user.end_of(tool_id)
        if ended["status"] in ("completed", "failed"):
            return ended


async def kill_again_and_again(zygote: Zygote, chance: random.Random, signs: Signs) -> None:
    for number in range(KILLS):
        signs.ended.clear()
        await zygote.start()
        if number % 4 == 0:  # some live until they have got something done, however slow the machine is
            await signs.ended.wait()
        await asyncio.sleep(chance.uniform(0, LONGEST))
        await zygote.kill()
    await zygote.start()
    signs.stop = True


@pytest.mark.promise("T2", "C1", "C5", "S")
@pytest.mark.timeout(240)
async def test_client_killed_a_hundred_times_never_tears_a_file_and_runs_nothing_twice(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    files = [Written("a.txt"), Written("deep/b.md"), Written("log.txt", appends=True)]
    async with open_site(tmp_path, untraced_forks()) as site:
        alice = User(site.url, site.token("alice"))
        await site.serve()
        project_id = (await alice.post("/my/projects", {"name": "demo"})).body["project_id"]
        began = time.monotonic()
        async with open_zygote(client_env(site, alice), project_id, site.workspace, tmp_path / "client.log") as zygote:
            signs = Signs()
            async with asyncio.TaskGroup() as group:
                for file in files:
                    group.create_task(keep_writing(alice, project_id, file, site.workspace, signs))
                await kill_again_and_again(zygote, random.Random(seed), signs)
        seconds = time.monotonic() - began
        rows = (await alice.get("/my/tools/history?limit=100")).body["executions"]
        await alice.close()
    for file in files:
        print(f"{file.path}: {dict(file.ends)}")
        file.check(site.workspace)
    print(f"{KILLS} kills in {seconds:.1f} s, seed {seed}")
    assert sum(file.ends["interrupted"] for file in files) >= 5, "it was never killed in the middle"
    assert sum(file.ends["completed"] for file in files) >= 20
    assert all(row["status"] in ("completed", "failed") for row in rows)
    print(f"{remove_drafts(site.workspace)} drafts left")
    left = {str(path.relative_to(site.workspace)) for path in site.workspace.rglob("*") if path.is_file()}
    assert left <= {file.path for file in files}


def client_env(site: Site, user: User) -> dict[str, str]:
    return environment(site.home, BYLEAVE_SERVER_URL=site.url, BYLEAVE_TOKEN=user.token)


def alive(marker: str) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


DAEMONS = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
print("started", flush=True)
open("started", "w").close()
time.sleep(1000)
"""


@pytest.mark.promise("C8", "T3")
@pytest.mark.timeout(120)
async def test_cancel_in_the_chat_ends_every_process_of_the_command(tmp_path: Path) -> None:
    async with open_site(tmp_path, untraced_forks()) as site:
        marker = f"daemons-{site.port}.py"
        (site.workspace / marker).write_text(DAEMONS)
        alice = User(site.url, site.token("alice"))
        await site.serve()
        project_id = (await alice.post("/my/projects", {"name": "demo"})).body["project_id"]
        await site.connect(project_id, alice.token)
        async with alice.watch(project_id) as stream:
            message = {"content": f"run python {marker}"}
            run = (await alice.post(f"/my/projects/{project_id}/chat/messages", message)).body
            asked = await stream.until("tool.approval_request")
            await alice.post(f"/my/approvals/{asked['approval_id']}/confirm", {"decision": "approved"})
            await stream.until("tool.output")
            assert len(alive(marker)) >= 3
            answer = await alice.post(f"/my/projects/{project_id}/chat/runs/{run['run_id']}/cancel")
            assert answer.status == 200, answer.body
            ended = await stream.until("tool.finished")
        assert alive(marker) == []
        assert (ended["status"], ended["error_type"]) == ("failed", "cancelled"), ended
        await alice.close()


RAN = """\
import time
with open("ran", "a") as file:
    file.write("once\\n")
print("started", flush=True)
time.sleep(1000)
"""


@pytest.mark.promise("C1", "X22")
@pytest.mark.timeout(120)
async def test_client_that_loses_its_journal_runs_nothing_again_and_the_server_ends_its_calls(tmp_path: Path) -> None:
    async with open_site(tmp_path, untraced_forks(), result_grace_seconds="1") as site:
        (site.workspace / "ran.py").write_text(RAN)
        alice = User(site.url, site.token("alice"))
        await site.serve()
        project_id = (await alice.post("/my/projects", {"name": "demo"})).body["project_id"]
        client = await site.connect(project_id, alice.token)
        async with alice.watch(project_id) as stream:
            call = alice.execute(project_id, "execute_command", command="python", args=["ran.py"], timeout=3)
            asking = asyncio.create_task(call)
            asked = await stream.until("tool.approval_request")
            await alice.post(f"/my/approvals/{asked['approval_id']}/confirm", {"decision": "approved"})
            await stream.until("tool.output")
            await client.kill()
            (journal,) = site.home.glob("**/journal.jsonl")
            journal.unlink()
            again = await site.connect(project_id, alice.token)
            ended = await alice.end_of((await asking)["tool_id"])
        assert (ended["status"], ended["error_type"]) == ("failed", "interrupted"), ended
        assert "The client went away while this was running" in ended["error"]
        assert (site.workspace / "ran").read_text() == "once\n"
        assert "calls of the old one are given up" in again.output()
        await alice.close()
