"""`byleave connect`: the client as a process, with and without a terminal."""

import contextlib
import json
import os
import signal
import socketserver
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from .conftest import FreePort, Program, Site

pytestmark = pytest.mark.promise("L4")


def test_directory_without_a_project_gets_one_named_after_it(byleave: Program, workspace: Path) -> None:
    serving = byleave.start("serve", "--port", "0", "--json")
    url = json.loads(serving.line())["url"]
    byleave.here("token", "--user", "alice", "--save")
    first = byleave.start("connect", "--server", url, "--workspace", str(workspace), "--json")
    told = json.loads(first.line())
    assert told["workspace"] == str(workspace)
    assert told["isolation"] == "bwrap"
    code, out, err = first.stop(signal.SIGINT)
    assert (code, out) == (0, "")
    assert err == "Stopped.\n", "without a terminal it executes quietly"
    again = byleave.start("connect", "--server", url, "--workspace", str(workspace), "--json")
    found = json.loads(again.line())
    assert (found["project_id"], found["client_id"]) == (told["project_id"], told["client_id"])


def test_call_approved_elsewhere_is_executed_quietly(site: Site) -> None:
    assert site.connected["connected"] is True
    kept, approval_id = site.waiting("from-connect.md")
    assert site.here("approvals", "approve", approval_id).returncode == 0
    assert kept.process.wait(60) == 0
    assert (site.workspace / "from-connect.md").read_text(encoding="utf-8") == "hello"


def test_it_asks_on_a_terminal(byleave: Program, workspace: Path) -> None:
    url = json.loads(byleave.start("serve", "--port", "0", "--json").line())["url"]
    token = byleave.here("token", "--user", "alice").stdout.strip()
    env = {"BYLEAVE_SERVER_URL": url, "BYLEAVE_TOKEN": token}
    client = byleave.on_terminal("connect", "--workspace", str(workspace), **env)
    client.expect(f"Connected {workspace} to project ")
    asking = byleave.start("chat", "write notes.md: hello", **env)
    said = client.expect_question()
    listed = byleave.json("tool", "execute_command", '{"command": "ls"}', "--workspace", str(workspace))
    assert ("warning: isolation is weaker than it should be" in said) == bool(listed["isolation"]["degraded"])
    client.type("y")
    assert asking.process.wait(60) == 0
    assert (workspace / "notes.md").read_text(encoding="utf-8") == "hello"
    client.type("\x03")
    assert client.wait() == 0
    assert "Stopped." in client.seen


def test_server_that_goes_and_comes_back_is_told_on_a_terminal_without_log_lines(
    byleave: Program, workspace: Path, free_port: FreePort
) -> None:
    port = str(free_port())
    serving = byleave.start("serve", "--port", port)
    serving.line()
    byleave.here("token", "--user", "alice", "--save")
    client = byleave.on_terminal("connect", "--server", f"http://127.0.0.1:{port}", "--workspace", str(workspace))
    client.expect(f"Connected {workspace} to project ")
    serving.stop(signal.SIGKILL)
    client.expect("Trying again.")
    byleave.start("serve", "--port", port).line()
    client.expect("Connected again.")
    client.type("\x03")
    assert client.wait() == 0
    assert client.seen.count("Cannot reach the server") == 1
    assert "WARNING" not in client.seen
    assert "not connected" in (byleave.home / "terminal.log").read_text(encoding="utf-8")


def test_server_that_stays_away_at_the_start_is_exit_code_3(
    byleave: Program, workspace: Path, free_port: FreePort
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    here = ("connect", "--server", url, "--workspace", str(workspace))
    for client in [byleave.start(*here, *which, BYLEAVE_TOKEN="a.b.c") for which in ((), ("--project", "proj_1"))]:
        code, err = client.process.wait(60), client.process.communicate()[1]
        assert code == 3
        said = f"Cannot reach the server at {url}."
        assert err.splitlines()[:-1] == [f"{said} Trying again for a moment.", f"error: {said}"]
        assert err.splitlines()[-1].startswith("hint: ")


def test_server_that_restarts_at_the_start_is_waited_for(
    byleave: Program, workspace: Path, free_port: FreePort
) -> None:
    port = free_port()
    token = byleave.here("token", "--user", "alice").stdout.strip()
    here = ("--server", f"http://127.0.0.1:{port}", "--workspace", str(workspace), "--json")
    client = byleave.start("connect", *here, BYLEAVE_TOKEN=token)
    client.line_with("Trying again for a moment.", of="stderr")
    byleave.start("serve", "--port", str(port)).line()
    assert json.loads(client.line())["connected"] is True


@pytest.mark.parametrize("answer", [b"502 Bad Gateway", b"503 Service Unavailable"])
def test_proxy_without_a_server_is_tried_again(byleave: Program, workspace: Path, answer: bytes) -> None:
    with gateway(answer) as url:
        client = byleave.start("connect", "--server", url, "--workspace", str(workspace), BYLEAVE_TOKEN="a.b.c")
        assert "Trying again for a moment." in client.line(of="stderr")


@pytest.mark.parametrize(
    ("answer", "code"), [(b"401 Unauthorized", 1), (b"403 Forbidden", 1), (b"404 Not Found", 3), (b"200 OK", 3)]
)
def test_address_of_something_else_is_told_at_once(byleave: Program, workspace: Path, answer: bytes, code: int) -> None:
    with gateway(answer) as url:
        done = byleave.run("connect", "--server", url, "--workspace", str(workspace), BYLEAVE_TOKEN="a.b.c")
    assert done.returncode == code
    assert done.stderr.startswith("error: ")


def test_name_that_nobody_has_is_told_at_once(byleave: Program, workspace: Path) -> None:
    url = "https://byleave.invalid"
    done = byleave.run("connect", "--server", url, "--workspace", str(workspace), BYLEAVE_TOKEN="a.b.c")
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: Cannot reach the server at {url}.")


@contextlib.contextmanager
def gateway(answer: bytes) -> Generator[str]:
    """A program that gives this answer to everybody; gives its address."""

    class Gateway(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno" % answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Gateway) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


def test_it_waits_for_a_server_when_told_to(byleave: Program, workspace: Path, free_port: FreePort) -> None:
    port = free_port()
    token = byleave.here("token", "--user", "alice").stdout.strip()
    client = byleave.start(
        "connect",
        "--server",
        f"http://127.0.0.1:{port}",
        "--workspace",
        str(workspace),
        "--wait",
        "--json",
        BYLEAVE_TOKEN=token,
    )
    client.line_with("Trying again until it answers.", of="stderr")
    byleave.start("serve", "--port", str(port)).line()
    assert json.loads(client.line())["connected"] is True


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (["--workspace", "absent"], {"BYLEAVE_TOKEN": "a.b.c"}, "does not exist"),
        (["--workspace", __file__], {"BYLEAVE_TOKEN": "a.b.c"}, "is not a directory"),
        ([], {}, "There is no token for"),
        (["--server", "not a url"], {"BYLEAVE_TOKEN": "a.b.c"}, "not the address of a server"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    byleave: Program, tmp_path: Path, arguments: list[str], env: dict[str, str], words: str
) -> None:
    done = byleave.run("connect", *arguments, cwd=tmp_path, **env)
    assert done.returncode == 1
    assert words in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_token_and_unknown_project_are_refused(site: Site) -> None:
    here = ["--workspace", str(site.workspace)]
    done = site.run("connect", *here, BYLEAVE_TOKEN="a.b.c")
    assert done.returncode == 1
    assert "token" in done.stderr
    done = site.run("connect", *here, "--project", "proj_unknown")
    assert done.returncode == 1
    assert "proj_unknown" in done.stderr


def test_token_that_may_only_execute_is_enough(site: Site, tmp_path: Path) -> None:
    token = site.program.here("token", "--user", "bob", "--scope", "execute", "--scope", "chat").stdout.strip()
    first = site.program.start(
        "connect", "--server", site.url, "--workspace", str(tmp_path), "--json", BYLEAVE_TOKEN=token
    )
    project = json.loads(first.line())["project_id"]
    first.stop()
    only = site.program.here("token", "--user", "bob", "--scope", "execute").stdout.strip()
    second = site.program.start(
        "connect",
        "--server",
        site.url,
        "--project",
        project,
        "--workspace",
        str(tmp_path),
        "--json",
        BYLEAVE_TOKEN=only,
    )
    assert json.loads(second.line())["project_id"] == project
    assert second.stop()[0] == 0


def test_several_projects_must_be_named(site: Site, tmp_path: Path) -> None:
    token = site.program.here("token", "--user", "carol").stdout.strip()
    env = {"BYLEAVE_SERVER_URL": site.url, "BYLEAVE_TOKEN": token}
    for name in ("one", "two"):
        make_project(site.url, token, name)
    done = site.program.run("connect", "--workspace", str(tmp_path), **env)
    assert done.returncode == 1
    assert "You have 2 projects, so say which one." in done.stderr
    assert "(one)" in done.stderr
    assert "(two)" in done.stderr
    done = site.program.run("chat", "hello", cwd=tmp_path, **env)
    assert "You have 2 projects" in done.stderr


def make_project(url: str, token: str, name: str) -> str:
    import urllib.request

    request = urllib.request.Request(
        f"{url}/my/projects",
        data=json.dumps({"name": name}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["project_id"]


def test_state_of_the_client_is_private(site: Site) -> None:
    assert all(os.stat(path).st_mode & 0o077 == 0 for path in (site.program.home / "clients").iterdir())
