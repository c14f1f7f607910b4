"""The sides of the comparison, started as an operator would start them, each reading the same files.

    floor      our transport with nothing in it (`bench.floor`)
    mcp        the MCP SDK's own server over streamable HTTP, with a tool that reads the file
    fastmcp    the same with FastMCP
    inside     Byleave with its agent in the server: `serve` and `byleave connect`
    outside    Byleave with its agent elsewhere, over HTTP

Byleave has auth on and every commit on disk (durability full); the client's cache is off.
"""

import contextlib
import json
import secrets
import subprocess
import urllib.request
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .measure import FILES, Plan
from .processes import Process, byleave, cpu_seconds, free_port, python, running, wait_for_http

USER = "bench"
SIZES = (4096, 100 * 1024, 1024 * 1024)


@dataclass(frozen=True)
class Side:
    """A side that is up: the process that makes the calls, and those whose CPU counts."""

    caller: Process
    pids: dict[str, int]
    first_call_ms: float | None = None
    """The first call after the client's start, where it is measured."""

    def sample(self, plan: Plan) -> dict[str, Any]:
        """What one run of the plan gave, and the CPU of each part for a call in flight."""
        self.caller.tell(asdict(plan))
        self.caller.hear("marked")
        before = {part: cpu_seconds(pid) for part, pid in self.pids.items()}
        taken = self.caller.hear()
        used = {part: cpu_seconds(pid) - before[part] for part, pid in self.pids.items()}
        taken["cpu_ms_per_call"] = {part: 1000 * seconds / plan.together for part, seconds in used.items()}
        return taken


def workspace(directory: Path) -> None:
    """Text files to read."""
    directory.mkdir(exist_ok=True)
    line = "All work and no play makes a fine line of sixty-four letters...\n"
    for size in SIZES:
        for number in range(FILES):
            text = (line * (size // len(line) + 1))[:size]
            (directory / Plan(size=size).path(number)).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def floor_side(state: Path) -> Generator[Side]:
    port = free_port()
    with running("floor-server", python("bench.floor", "serve", str(port)), state) as server:
        wait_for_http(f"http://127.0.0.1:{port}/", server)
        command = python("bench.floor", "connect", f"http://127.0.0.1:{port}", str(state / "workspace"))
        with running("floor-client", command, state) as client:
            server.hear("ready")
            yield Side(server, {"server": server.pid, "client": client.pid})


def mcp_side(kind: str) -> Callable[[Path], contextlib.AbstractContextManager[Side]]:
    """A bare MCP server of one kind, and a client of the SDK."""

    @contextlib.contextmanager
    def up(state: Path) -> Generator[Side]:
        port = free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        command = python("bench.mcp_server", kind, str(port), str(state / "workspace"))
        with running(kind, command, state, talks=False) as server:
            wait_for_http(url, server)
            with _loading(state, kind, {"target": "mcp", "url": url}) as caller:
                yield Side(caller, {"server": server.pid, "caller": caller.pid})

    return up


@contextlib.contextmanager
def inside(state: Path) -> Generator[Side]:
    with _served(state, "inside", lambda port: python("bench.inside", str(port), USER)) as (server, client, project, _):
        server.hear("ready")
        server.tell_line(project)
        first = server.hear()["first_call_ms"]
        yield Side(server, {"server": server.pid, "client": client.pid}, first)


@contextlib.contextmanager
def outside(state: Path) -> Generator[Side]:
    def command(port: int) -> list[str]:
        return byleave("serve", "--host", "127.0.0.1", "--port", str(port))

    with _served(state, "outside", command) as (server, client, project, task):
        wanted = {"project_id": project, "tool_name": "read_file", "tool_params": {"path": Plan().path(0)}}
        first = post(f"{task['url']}/my/tools/execute", task["token"], wanted)
        if first["status"] != "completed":
            raise RuntimeError(f"The first call was not answered: {first}\nclient: {client.tail()}")
        with _loading(state, "outside", task) as caller:
            yield Side(caller, {"server": server.pid, "client": client.pid, "caller": caller.pid})


SIDES: dict[str, Callable[[Path], contextlib.AbstractContextManager[Side]]] = {
    "floor": floor_side,
    "mcp": mcp_side("mcp"),
    "fastmcp": mcp_side("fastmcp"),
    "inside": inside,
    "outside": outside,
}


@contextlib.contextmanager
def _loading(state: Path, name: str, task: dict[str, Any]) -> Generator[Process]:
    with running(f"{name}-caller", python("bench.load", json.dumps(task)), state) as caller:
        caller.hear("ready")
        yield caller


@contextlib.contextmanager
def _served(
    state: Path, name: str, command: Callable[[int], list[str]]
) -> Generator[tuple[Process, Process, str, dict[str, Any]]]:
    """A Byleave server and its client, in processes of their own; the project and the task of a caller elsewhere."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    shared = {
        "BYLEAVE_SECRET": secrets.token_hex(32),
        "BYLEAVE_HOME": str(state / f"{name}-home"),
        # How soon the first call gives up when the client did not come; no measured call waits for a client.
        "BYLEAVE_CLIENT_WAIT_SECONDS": "15",
        "BYLEAVE_USER_REQUESTS_PER_SECOND": "0",  # one user makes all calls, faster than any agent would
    }
    with running(f"{name}-server", command(port), state, shared, talks=name == "inside") as server:
        wait_for_http(f"{url}/healthz", server)
        person = token(shared, "chat", "execute", "approve")
        project = post(f"{url}/my/projects", person, {"name": "bench"})["project_id"]
        connect = byleave("connect", "--server", url, "--project", project, "--workspace", str(state / "workspace"))
        theirs = {
            "BYLEAVE_TOKEN": person,
            "BYLEAVE_HOME": str(state / f"{name}-client"),
            "BYLEAVE_CACHE_ENABLED": "false",
        }
        with running(f"{name}-client", connect, state, theirs, talks=False) as client:
            task = {"target": "byleave", "url": url, "project_id": project, "token": token(shared, "agent")}
            yield server, client, project, task


def token(environment: dict[str, str], *scopes: str) -> str:
    """A token, made by the command line as an operator makes one."""
    arguments = [part for scope in scopes for part in ("--scope", scope)]
    done = subprocess.run(
        byleave("token", "--user", USER, *arguments),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout.strip()


def post(url: str, bearer: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)
