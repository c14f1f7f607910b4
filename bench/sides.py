"""The two sides of the comparison, started as an operator would start them, each reading the same files.

Byleave: `byleave serve` and `byleave connect`, auth on, every commit on disk (durability full), the client's cache off.
MCP: the SDK's own server over streamable HTTP with a tool that reads the file.
"""

import contextlib
import json
import secrets
import subprocess
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

from .processes import byleave, free_port, python, running, tail, wait_for_http

USER = "bench"
Task = dict[str, Any]


def workspace(directory: Path, *, files: int = 32, size: int = 1024) -> list[str]:
    """Small text files to read, so that not always the same one is asked for."""
    directory.mkdir()
    names = [f"file-{number}.txt" for number in range(files)]
    line = "All work and no play makes a fine line of sixty-four letters...\n"
    for name in names:
        (directory / name).write_text((line * (size // len(line) + 1))[:size], encoding="utf-8")
    return names


@contextlib.contextmanager
def mcp_side(state: Path, files: list[str]) -> Generator[Task]:
    """A bare MCP server; yields what the load process needs to know."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    log = state / "mcp.log"
    command = python("bench.mcp_server", str(port), str(state / "workspace"))
    with running("The MCP server", command, log=log) as process:
        wait_for_http(url, process, log)
        yield {"target": "mcp", "url": url, "files": files, "pids": {"server": process.pid}}


@contextlib.contextmanager
def byleave_side(state: Path, files: list[str]) -> Generator[Task]:
    """Server and client in processes of their own; yields what the load process needs to know."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    shared = {
        "BYLEAVE_SECRET": secrets.token_hex(32),
        "BYLEAVE_HOME": str(state / "server"),
        # How soon the first call gives up when the client did not come; no measured call waits for a client.
        "BYLEAVE_CLIENT_WAIT_SECONDS": "15",
    }
    log = state / "byleave-server.log"
    command = byleave("serve", "--host", "127.0.0.1", "--port", str(port))
    with running("The Byleave server", command, log=log, environment=shared) as server:
        wait_for_http(f"{url}/healthz", server, log)
        person = token(shared, "chat", "execute", "approve")
        agent = token(shared, "agent")
        project_id = create_project(url, person)
        connect = byleave("connect", "--server", url, "--project", project_id, "--workspace", str(state / "workspace"))
        theirs = {
            "BYLEAVE_TOKEN": person,
            "BYLEAVE_HOME": str(state / "client"),
            "BYLEAVE_CACHE_ENABLED": "false",
        }
        client_log = state / "byleave-client.log"
        with running("The Byleave client", connect, log=client_log, environment=theirs) as client:
            task: Task = {"target": "byleave", "url": url, "token": agent, "project_id": project_id, "files": files}
            task["pids"] = {"server": server.pid, "client": client.pid}
            first_answer(task, client, client_log)
            yield task


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


def create_project(url: str, bearer: str) -> str:
    return post(f"{url}/my/projects", bearer, {"name": "bench"})["project_id"]


def first_answer(task: Task, client: subprocess.Popen[bytes], log: Path) -> None:
    """One call, which waits for the client to connect; nothing is measured before it was answered rightly."""
    body = {"project_id": task["project_id"], "tool_name": "read_file", "tool_params": {"path": task["files"][0]}}
    answer = post(f"{task['url']}/my/tools/execute", task["token"], body)
    if answer["status"] != "completed":
        raise RuntimeError(f"The first call was not answered: {answer}\nclient ({client.poll()}): {tail(log)}")
