"""`python -m bench.scale`: the memory that one server needs for many clients, readers and open questions.

Clients and readers are connections to a real server, of as many users. Readers that never read get more events than a
connection holds. Questions are opened in this process, without HTTP; then a client leaves while all of them wait.
"""

import argparse
import asyncio
import gc
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from byleave.calls.machines import ConnectedClient
from byleave.protocol.states import Scope
from byleave.server.auth.tokens import issue_token
from byleave.server.services import Services, open_services
from byleave.settings import ServerSettings
from byleave.store import SessionRow

from .growth import Heart
from .parked import memory_mb
from .processes import Process, byleave, free_port, running, wait_for_http
from .sides import post

CLIENT_KB, QUESTIONS_MB, READERS_MB, STALL_MS = 30, 50, 20, 20
QUESTIONS_EACH = 100
"""Questions of one user: a user with more than some hundred is asked no more."""
AT_ONCE = 50
MESSAGES, MESSAGE_CHARACTERS = 20, 50_000


@dataclass(frozen=True)
class Person:
    user_id: str
    project_id: str
    token: str


async def people(settings: ServerSettings, count: int) -> list[Person]:
    """As many users, each with a project and a token."""
    parts = await open_services(settings)
    try:
        found: list[Person] = []
        for number in range(count):
            user = f"user{number}"
            project = await parts.store.chat.create_project(user, "bench")
            scopes = (Scope.CHAT, Scope.EXECUTE, Scope.APPROVE)
            found.append(Person(user, project.id, issue_token(settings, user, scopes, 3600)))
        return found
    finally:
        await parts.close()


async def connect(port: int, person: Person, client: str = "") -> asyncio.StreamWriter:
    """Open a feed, and read its first bytes only."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    headers = [
        f"GET /my/projects/{person.project_id}/chat/stream{f'?client={client}' if client else ''} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {person.token}",
        *([f"Byleave-Client-Key: {secrets.token_hex(32)}"] if client else []),
    ]
    writer.write(("\r\n".join(headers) + "\r\n\r\n").encode())
    first = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in first:
        raise RuntimeError(f"no feed: {first!r}")
    return writer


async def connect_all(port: int, folk: list[Person], *, execute: bool) -> list[asyncio.StreamWriter]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, person: Person) -> asyncio.StreamWriter:
        async with slots:
            return await connect(port, person, f"client{number}" if execute else "")

    return await asyncio.gather(*(one(number, person) for number, person in enumerate(folk)))


async def cost_of_clients(server: Process, port: int, folk: list[Person]) -> float:
    """Kilobytes of the server for one connected client."""
    warm = await connect_all(port, folk[:50], execute=True)
    before = memory_mb(server.pid)
    more = await connect_all(port, folk[50:], execute=True)
    grown = memory_mb(server.pid) - before
    for writer in (*warm, *more):
        writer.close()
    return grown * 1024 / len(more)


async def cost_of_events(server: Process, port: int, folk: list[Person], *, readers: bool = False) -> float:
    """Megabytes of the server while much happens in these projects, with readers that never read or without."""
    before = memory_mb(server.pid)
    writers = await connect_all(port, folk if readers else [], execute=False)
    url = f"http://127.0.0.1:{port}"
    for person in folk:
        for _ in range(MESSAGES):
            body = {"content": "x" * MESSAGE_CHARACTERS}
            await asyncio.to_thread(post, f"{url}/my/projects/{person.project_id}/chat/messages", person.token, body)
    grown = memory_mb(server.pid) - before
    for writer in writers:
        writer.close()
    return grown


async def cost_of_questions(home: Path, count: int) -> tuple[float, float]:
    """Megabytes for so many open questions, and the longest stall in ms when a client then leaves."""
    parts = await open_services(ServerSettings(home=home, durability="normal", medium_approval_seconds=36_000))
    try:
        with ExitStack() as stack:
            await ask(parts, "warm", QUESTIONS_EACH)
            gc.collect()
            before = memory_mb()
            for number in range(0, count, QUESTIONS_EACH):
                await ask(parts, f"user{number}", QUESTIONS_EACH)
            gc.collect()
            grown = memory_mb() - before
            project = (await parts.store.chat.projects("user0"))[0]
            client = ConnectedClient("client", project.id, declared=True, workspace="/ws", isolation="bwrap")
            leave = parts.presence.connect(client)
            await parts.executor.client_connected(client, resumed=False)
            heart = Heart()
            stack.callback(heart.stop)
            await asyncio.sleep(0.05)
            heart.longest_ms = 0.0
            leave()
            await asyncio.sleep(1.0)  # what follows from it happens beside
            return grown, heart.longest_ms
    finally:
        await parts.close()


async def ask(parts: Services, user: str, count: int) -> None:
    project = await parts.store.chat.create_project(user, "bench")
    session: SessionRow = await parts.executor.agent_session(user, project.id, None)
    for number in range(count):
        params = {"path": f"{number}.md", "content": "x"}
        row = await parts.executor.call("write_file", params, session, until_asked=True)
        if row.approval_id is None:
            raise RuntimeError(f"nobody was asked: {row}")


def served(clients: int, measure: Callable[[Process, int, list[Person]], Coroutine[Any, Any, float]]) -> float:
    """Measure on a server of its own: memory that others gave back would be used again, and not counted."""
    with tempfile.TemporaryDirectory(prefix="byleave-scale-") as directory:
        home, port = Path(directory), free_port()
        folk = asyncio.run(people(ServerSettings(home=home, model="offline"), clients))
        serve = byleave("serve", "--host", "127.0.0.1", "--port", str(port))
        environment = {"BYLEAVE_HOME": directory, "BYLEAVE_MODEL": "offline"}
        with running("server", serve, home, environment, talks=False) as server:
            wait_for_http(f"http://127.0.0.1:{port}/healthz", server)
            return asyncio.run(measure(server, port, folk))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=5000)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--questions", type=int, default=100_000)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began = time.perf_counter()
    each = served(options.clients, cost_of_clients)
    # Most of it is the store's and the agent's, with readers or without.
    readers = served(options.readers, partial(cost_of_events, readers=True)) - served(options.readers, cost_of_events)
    sys.stderr.write(f"clients and readers: {time.perf_counter() - began:.0f} s\n")
    with tempfile.TemporaryDirectory(prefix="byleave-scale-") as home:
        questions, stall = asyncio.run(cost_of_questions(Path(home), options.questions))
    rows = (
        (f"each of {options.clients:,} connected clients", each, CLIENT_KB, "KB"),
        (f"{options.readers:,} readers that never read", readers, READERS_MB, "MB"),
        (f"{options.questions:,} open questions", questions, QUESTIONS_MB, "MB"),
        ("longest stall when a client leaves then", stall, STALL_MS, "ms"),
    )
    for title, found, most, unit in rows:
        sys.stdout.write(f"{title:<44}{found:>8.1f} {unit}   wanted: at most {most}\n")
    return int(any(found > most for _, found, most, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
