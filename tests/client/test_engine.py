"""`byleave connect --stdio`: the client as an editor's engine, a real process beside a real server."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import jwt
import pytest
import pytest_asyncio
from aiohttp import web

from byleave.protocol.engine import ENGINE_PROTOCOL, NOTIFICATIONS, REQUESTS
from byleave.server import server_secret
from byleave.settings import ServerSettings
from harness.engine import Editor, EngineError, open_engine
from harness.json_values import JsonObject
from harness.ports import free_port
from harness.processes import Site, User, environment, open_site

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.promise("C-engine")]

SLEEPER = "import pathlib, time; pathlib.Path('began').touch(); print('here', flush=True); time.sleep(60)"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with open_site(tmp_path_factory.mktemp("engine")) as site:
        await site.serve()
        yield site


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def user(site: Site) -> AsyncIterator[User]:
    user = User(site.url, site.token("alice"))
    yield user
    await user.close()


@pytest_asyncio.fixture(loop_scope="module")
async def project(user: User) -> str:
    return (await user.post("/my/projects", {"name": "ws"})).body["project_id"]


@pytest_asyncio.fixture(loop_scope="module")
async def editor(site: Site) -> AsyncIterator[Editor]:
    async with open_engine(site.home) as editor:
        yield editor


@pytest_asyncio.fixture(loop_scope="module")
async def connected(editor: Editor, site: Site, project: str, tmp_path: Path) -> AsyncIterator[tuple[Editor, Path]]:
    """An engine that executes in a directory of its own."""
    (tmp_path / "a.txt").write_text("alpha\n")
    await editor.use(site.url, site.token("alice"))
    await editor.ask("workspace/connect", project_id=project, workspace=str(tmp_path))
    await editor.hears("connection/changed", lambda told: told["state"] == "connected")
    yield editor, tmp_path


async def allowed(user: User, answer: JsonObject) -> str:
    """Approve what waits; its tool_id."""
    approval = (await user.get("/my/approvals")).body["approvals"]
    (digest,) = [each["digest"] for each in approval if each["id"] == answer["approval_id"]]
    await user.post(f"/my/approvals/{answer['approval_id']}/confirm", {"decision": "approved", "digest": digest})
    return answer["tool_id"]


async def test_a_call_runs_and_the_editor_hears_of_each_step(
    connected: tuple[Editor, Path], user: User, project: str
) -> None:
    editor, _ = connected
    answer = await user.execute(project, "read_file", path="a.txt")
    assert answer["result"]["content"] == "alpha\n"
    started = await editor.hears("execution/started")
    assert (started["tool_id"], started["tool_params"]["path"]) == (answer["tool_id"], "a.txt")
    ended = await editor.hears("execution/ended")
    assert (ended["status"], ended["result"]["content"]) == ("success", "alpha\n")
    acknowledged = await editor.hears("execution/acknowledged")
    assert (acknowledged["tool_id"], acknowledged["status"]) == (answer["tool_id"], "completed")
    assert (await editor.hears("isolation/found"))["backend"] == "bwrap"
    diagnosis = await editor.ask("diagnostics")
    assert (diagnosis["connection"], diagnosis["unsent"], diagnosis["running"]) == ("connected", 0, [])
    assert [(one["tool_id"], one["result"]) for one in diagnosis["history"]] == [(answer["tool_id"], None)]


async def test_output_comes_while_a_command_runs_and_the_editor_leaving_ends_it(
    connected: tuple[Editor, Path], user: User, project: str
) -> None:
    editor, workspace = connected
    asked = await user.execute(project, "execute_command", command="python3", args=["-c", SLEEPER], timeout=120)
    tool_id = await allowed(user, asked)
    assert (await editor.hears("execution/output"))["text"] == "here\n"
    assert (workspace / "began").exists()
    assert await editor.leave() == 0
    ended = await user.end_of(tool_id)
    assert (ended["status"], ended["error_type"]) == ("failed", "cancelled")


async def test_killed_in_the_middle_it_reports_the_call_as_interrupted_and_runs_it_never_again(
    connected: tuple[Editor, Path], user: User, project: str, site: Site
) -> None:
    editor, workspace = connected
    asked = await user.execute(project, "execute_command", command="python3", args=["-c", SLEEPER], timeout=120)
    tool_id = await allowed(user, asked)
    await editor.hears("execution/output")
    editor.process.kill()
    await editor.process.wait()
    (workspace / "began").unlink()
    async with open_engine(site.home) as second:
        await second.use(site.url, site.token("alice"))
        await second.ask("workspace/connect", project_id=project, workspace=str(workspace))
        ended = await user.end_of(tool_id)
        assert (ended["status"], ended["error_type"]) == ("failed", "interrupted")
        assert [method for method, _ in second.told if method == "execution/started"] == []
    assert not (workspace / "began").exists()


async def test_changes_are_listed_previewed_undone_and_brought_back(
    connected: tuple[Editor, Path], user: User, project: str
) -> None:
    editor, workspace = connected
    (workspace / "b.txt").write_text("before\n")
    tool_id = await allowed(user, await user.execute(project, "write_file", path="a.txt", content="beta\n"))
    await user.end_of(tool_id)
    (change,) = (await editor.ask("undo/list"))["changes"]
    assert (change["tool_id"], change["path"], change["kind"], change["interrupted"]) == (
        tool_id, "a.txt", "change", False,
    )  # fmt: skip
    assert await editor.ask("undo/before", tool_id=tool_id, path="a.txt") == {"text": "alpha\n", "shown": True}
    # What is kept while somebody looks is there too.
    other = await allowed(user, await user.execute(project, "write_file", path="b.txt", content="after\n"))
    await user.end_of(other)
    assert await editor.ask("undo/before", tool_id=other, path="b.txt") == {"text": "before\n", "shown": True}
    plan = await editor.ask("undo/preview", tool_id=tool_id)
    assert [(file["path"], file["before"], file["after"]) for file in plan["files"]] == [("a.txt", "beta\n", "alpha\n")]
    done = await editor.ask("undo/carryOut", tool_id=tool_id, plan=plan["plan"])
    assert done["message"] == "Undone: 1 path is as before the call."
    assert (workspace / "a.txt").read_text() == "alpha\n"
    listed = await editor.ask("undo/list")
    assert [one["path"] for one in listed["changes"]] == ["b.txt"]
    assert [one["paths"] for one in listed["undone"]] == [["a.txt"]]
    assert [method for method, _ in editor.told if method == "undo/done"] == [], "it asked for it itself"
    (workspace / "a.txt").write_text("mine\n")
    with pytest.raises(EngineError, match=r"Nothing was brought back: a\.txt changed since the undo"):
        await editor.ask("undo/bringBack", tool_id=done["undo_id"])
    (workspace / "a.txt").write_text("alpha\n")
    back = await editor.ask("undo/bringBack", tool_id=done["undo_id"])
    assert back["message"] == "Brought back: it is as it was before the undo."
    assert (workspace / "a.txt").read_text() == "beta\n"


async def test_an_undo_asked_for_on_the_page_is_told_to_the_editor(
    connected: tuple[Editor, Path], user: User, project: str
) -> None:
    editor, _ = connected
    tool_id = await allowed(user, await user.execute(project, "write_file", path="new.md", content="x"))
    await user.end_of(tool_id)
    plan = (await user.get(f"/my/tools/{tool_id}/undo")).body["plan"]
    await user.post(f"/my/tools/{tool_id}/undo", {"plan": plan})
    told = await editor.hears("undo/done")
    assert (told["tool_id"], told["paths"]) == (tool_id, ["new.md"])


async def test_a_file_that_changed_since_is_not_undone_and_without_a_server_undo_works_here(
    site: Site, tmp_path: Path
) -> None:
    async with open_engine(site.home) as editor:
        await editor.use(f"http://127.0.0.1:{free_port()}", site.token("alice"))
        await editor.ask("workspace/connect", project_id="proj_1", workspace=str(tmp_path))
        assert (await editor.hears("connection/changed"))["state"] == "lost"
        params = {"path": "n.md", "content": "one"}
        assert (await editor.ask("tool/run", tool_name="write_file", tool_params=params))["result"]["success"] is True
        (change,) = (await editor.ask("undo/list"))["changes"]
        plan = await editor.ask("undo/preview", tool_id=change["tool_id"])
        (tmp_path / "n.md").write_text("mine")
        with pytest.raises(EngineError, match="Something changed while you decided"):
            await editor.ask("undo/carryOut", tool_id=change["tool_id"], plan=plan["plan"])
        (tmp_path / "n.md").write_text("one")
        plan = await editor.ask("undo/preview", tool_id=change["tool_id"])
        done = await editor.ask("undo/carryOut", tool_id=change["tool_id"], plan=plan["plan"])
        assert done["message"] == "Undone. The server could not be told, so its record does not have it."
        assert not (tmp_path / "n.md").exists()


async def test_the_editors_own_hands_meet_the_gate_and_the_bounds(connected: tuple[Editor, Path]) -> None:
    editor, workspace = connected
    (workspace / "out").symlink_to("/etc")
    (workspace / "in").symlink_to("a.txt")
    read = await editor.ask("tool/run", tool_name="read_file", tool_params={"path": "a.txt"})
    assert read["result"]["content"] == "alpha\n"
    refused = await editor.ask(
        "tool/run", tool_name="execute_command", tool_params={"command": "rm", "args": ["a.txt"]}
    )
    assert (refused["result"]["success"], refused["result"]["error"]) == (False, "Command not allowed: rm")
    assert await editor.ask("path/resolve", path="in") == {
        "valid": True, "error": None, "real_path": str(workspace / "a.txt"),
    }  # fmt: skip
    for path in ("../x", "/etc/passwd", "out/passwd", "a\0b"):
        resolved = await editor.ask("path/resolve", path=path)
        assert (resolved["valid"], resolved["real_path"]) == (False, None), path
        assert resolved["error"], path


async def test_the_chat_asks_the_server_through_the_engine(
    connected: tuple[Editor, Path], user: User, project: str
) -> None:
    editor, _ = connected
    answer = await editor.ask("server/request", method="GET", path="/my/me")
    assert (answer["status"], answer["body"]["user_id"]) == (200, "alice")
    made = await editor.ask("server/request", method="POST", path="/my/projects", body={"name": "from the chat"})
    assert made["body"]["name"] == "from the chat"
    missing = await editor.ask("server/request", method="GET", path="/my/tools/exec_none")
    assert (missing["status"], missing["body"]["status"]) == (404, 404)
    path = f"/my/projects/{project}/chat/stream?execute=false"
    await editor.ask("server/openFeed", feed=7, path=path)
    await editor.hears("server/feedOpened")
    called = await user.execute(project, "read_file", path="a.txt")
    frame = await editor.hears("server/feedFrame", lambda told: told["event"] == "tool.finished")
    assert (frame["feed"], json.loads(frame["data"])["tool_id"]) == (7, called["tool_id"])
    with pytest.raises(EngineError, match="open already"):
        await editor.ask("server/openFeed", feed=7, path=path)
    await editor.ask("server/closeFeed", feed=7)
    await editor.ask("server/openFeed", feed=8, path="/my/projects/proj_none/chat/stream?execute=false")
    assert await editor.hears("server/feedClosed") == {"feed": 8, "status": 404}


@pytest.mark.parametrize("path", ["/readyz", "http://127.0.0.1:1/my/me", "//evil/my/me", "/my/me\r\nX: y", "my/me"])
async def test_the_chat_reaches_nothing_but_its_own_routes(editor: Editor, site: Site, path: str) -> None:
    await editor.use(site.url, site.token("alice"))
    with pytest.raises(EngineError) as caught:
        await editor.ask("server/request", method="GET", path=path)
    assert caught.value.code == -32602


async def test_a_token_is_tried_and_a_link_is_exchanged_once(editor: Editor, user: User, site: Site) -> None:
    tried = await editor.ask("server/try", server_url=site.url, token=site.token("bob"))
    assert (tried["status"], tried["body"]["user_id"]) == (200, "bob")
    code = (await user.post("/my/signin")).body["path"].partition("code=")[2]
    told = await editor.ask("server/exchange", server_url=site.url, code=code)
    assert (told["user_id"], "execute" in told["scopes"]) == ("alice", True)
    with pytest.raises(EngineError, match="used already or is too old") as caught:
        await editor.ask("server/exchange", server_url=site.url, code=code)
    assert caught.value.data["kind"] == "RefusedError"
    with pytest.raises(EngineError, match="Nothing answers at"):
        await editor.ask("server/exchange", server_url=f"http://127.0.0.1:{free_port()}", code=code)


@pytest.mark.promise("S")
async def test_whoever_holds_the_servers_port_gets_no_token(editor: Editor, site: Site, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("Authorization", "")))
        return web.json_response({})

    app, port = web.Application(), free_port()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        await editor.use(f"http://127.0.0.1:{port}", site.token("alice"))
        told = await editor.ask("server/request", method="GET", path="/my/me")
        assert (told["status"], told["body"]["state"]) == (421, "unproven")
        await editor.ask("workspace/connect", project_id="proj_1", workspace=str(tmp_path))
        ended = await editor.hears("connection/changed", lambda told: told["state"] == "ended")
        assert ("did not prove" in ended["message"], ended["signed_out"]) == (True, False)
    finally:
        await runner.cleanup()
    assert {*seen} == {("/proof", "")}


async def test_a_token_the_server_does_not_take_ends_the_connection_as_signed_out(
    editor: Editor, site: Site, tmp_path: Path
) -> None:
    claims = {"sub": "alice", "scope": "chat approve execute", "iat": 1, "exp": 3600}
    expired = jwt.encode(claims, server_secret(ServerSettings(home=site.home)), algorithm="HS256")
    await editor.use(site.url, expired)
    await editor.ask("workspace/connect", project_id="proj_1", workspace=str(tmp_path))
    ended = await editor.hears("connection/changed", lambda told: told["state"] == "ended")
    assert (ended["signed_out"], bool(ended["hint"])) == (True, True)


async def test_nothing_comes_from_the_environment_or_the_command_line(site: Site, tmp_path: Path) -> None:
    extra = {"BYLEAVE_TOKEN": site.token("mallory"), "BYLEAVE_SERVER_URL": "http://127.0.0.1:9"}
    async with open_engine(site.home, extra) as editor:
        with pytest.raises(EngineError, match="no server yet"):
            await editor.ask("server/request", method="GET", path="/my/me")
        with pytest.raises(EngineError, match="no server yet"):
            await editor.ask("workspace/connect", project_id="proj_1", workspace=str(tmp_path))
        token = site.token("alice")
        await editor.use(site.url, token)
        assert (await editor.ask("server/request", method="GET", path="/my/me"))["body"]["user_id"] == "alice"
        process = Path(f"/proc/{editor.process.pid}")
        for name in ("cmdline", "environ"):
            assert token.encode() not in (process / name).read_bytes()


async def test_commands_do_not_get_the_channel(connected: tuple[Editor, Path], user: User, project: str) -> None:
    """A command that writes to any descriptor it has reaches nobody: the wire is whole afterwards."""
    editor, _ = connected
    code = (
        "import os\nfor n in range(256):\n"
        "  try: os.write(n, b'Content-Length: 2\\r\\n\\r\\n{}')\n  except OSError: pass"
    )
    params = {"command": "python3", "args": ["-c", code]}
    await editor.ask("tool/run", tool_name="execute_command", tool_params=params)
    assert (await editor.ask("diagnostics"))["connection"] == "connected"


async def test_settings_of_the_editor_hold(editor: Editor, site: Site, tmp_path: Path) -> None:
    (tmp_path / "big").write_text("x" * 100)
    await editor.use(site.url, site.token("alice"))
    settings = {"max_file_bytes": 50, "sandbox": "none"}
    await editor.ask("workspace/connect", project_id="proj_1", workspace=str(tmp_path), settings=settings)
    read = await editor.ask("tool/run", tool_name="read_file", tool_params={"path": "big"})
    assert read["result"]["success"] is False
    found = await editor.hears("isolation/found")
    assert (found["isolated"], found["backend"], bool(found["warnings"])) == (False, "none", True)
    with pytest.raises(EngineError, match="concurrency"):
        await editor.ask("workspace/connect", project_id="proj_1", workspace=str(tmp_path), settings={"concurrency": 0})
    with pytest.raises(EngineError, match="no absolute path"):
        await editor.ask("workspace/connect", project_id="proj_1", workspace="ws")


async def test_what_is_no_request_is_told_and_the_conversation_goes_on(editor: Editor, site: Site) -> None:
    with pytest.raises(EngineError) as caught:
        await editor.ask("workspace/format")
    assert caught.value.code == -32601
    with pytest.raises(EngineError) as caught:
        await editor.ask("server/use", server_url=site.url, token=["a secret"])
    assert caught.value.code == -32602
    assert "a secret" not in str(caught.value)
    await editor.send({"jsonrpc": "2.0", "method": "exit"})
    await editor.send({"jsonrpc": "2.0", "id": 99, "result": None})
    assert (await editor.ask("diagnostics"))["connection"] == "none"


async def test_another_protocol_and_a_request_before_the_first_are_refused(site: Site) -> None:
    async with open_engine(site.home, initialize=False) as editor:
        with pytest.raises(EngineError, match="must be `initialize`"):
            await editor.ask("diagnostics")
        with pytest.raises(EngineError, match="speaks engine protocol"):
            await editor.ask("initialize", protocol=ENGINE_PROTOCOL + 1)
        assert (await editor.ask("initialize", protocol=ENGINE_PROTOCOL))["home"] == str(site.home)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"Content-Length: 99999999999\r\n\r\n", b"x" * 5000 + b"\n"]
)
async def test_what_is_no_message_ends_the_engine_with_a_sentence(site: Site, data: bytes) -> None:
    async with open_engine(site.home) as editor:
        with contextlib.suppress(OSError):
            await editor.write(data)
        async with asyncio.timeout(30):
            assert await editor.process.wait() == 1
    log = (site.home.parent / "engine.log").read_text()
    assert "error: What arrives on stdin is no message with a Content-Length." in log


@pytest.mark.parametrize("body", [b"[1,2]", b"{", b'"\xff"', b"[" * 5000 + b"]" * 5000, b"null"])
async def test_a_message_that_is_no_request_is_told_and_the_next_is_answered(editor: Editor, body: bytes) -> None:
    await editor.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert (await editor.ask("diagnostics"))["connection"] == "none"
    assert [answer["error"]["code"] for answer in editor.unasked] == [-32600]


async def test_feeds_that_are_closed_or_left_with_their_server_leave_room_for_others(
    editor: Editor, site: Site, project: str
) -> None:
    path = f"/my/projects/{project}/chat/stream?execute=false"
    for number in range(40):
        await editor.use(site.url, site.token("alice"))
        await editor.ask("server/openFeed", feed=number, path=path)
        if number % 2:
            await editor.ask("server/closeFeed", feed=number)
    await editor.ask("server/openFeed", feed=40, path=path)
    await editor.hears("server/feedOpened", lambda told: told["feed"] == 40)


@pytest.mark.parametrize("pipes", ["pipes", "sockets"])
async def test_an_editor_that_reads_nothing_holds_up_no_call_and_no_end(
    site: Site, user: User, project: str, tmp_path: Path, pipes: str
) -> None:
    """Neither its log nor its messages: the editor is stuck, and the agent goes on. Node's pipes are sockets."""
    (tmp_path / "a.txt").write_text("x" * 100)
    command = [sys.executable, "-m", "byleave.cli.main", "connect", "--stdio"]
    pipe = subprocess.PIPE
    requests: list[tuple[str, JsonObject]] = [
        ("initialize", {"protocol": ENGINE_PROTOCOL}),
        ("server/use", {"server_url": site.url, "token": site.token("alice")}),
        ("workspace/connect", {"project_id": project, "workspace": str(tmp_path)}),
    ]
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    errors = theirs.fileno() if pipes == "sockets" else pipe
    with (
        ours,
        theirs,
        subprocess.Popen(command, env=environment(site.home), stdin=pipe, stdout=pipe, stderr=errors) as process,
    ):
        assert process.stdin is not None
        for number, (method, params) in enumerate(requests):
            body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
            process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        process.stdin.flush()
        for _ in range(300):
            assert (await user.execute(project, "read_file", path="a.txt"))["status"] == "completed"
        process.stdin.close()
        assert await asyncio.to_thread(process.wait, 30) == 0


async def test_what_the_editor_runs_ends_when_the_folder_is_left(connected: tuple[Editor, Path]) -> None:
    editor, workspace = connected
    params = {"command": "python3", "args": ["-c", SLEEPER], "timeout": 100}
    running = asyncio.create_task(editor.ask("tool/run", tool_name="execute_command", tool_params=params))
    while not (workspace / "began").exists():
        await asyncio.sleep(0.02)
    await editor.ask("workspace/disconnect")
    with pytest.raises(EngineError, match="The folder was left while this ran"):
        await running


@pytest.mark.parametrize("asked", range(6))
@pytest.mark.parametrize("method", ["server/forget", "shutdown"])
async def test_an_editor_that_leaves_while_the_folder_is_being_left_loses_no_report(
    connected: tuple[Editor, Path], user: User, project: str, method: str, asked: int
) -> None:
    """It goes away after so many answers: at some of these moments the engine is in the middle of ending the call."""
    editor, _ = connected
    call = await user.execute(project, "execute_command", command="python3", args=["-c", SLEEPER], timeout=120)
    tool_id = await allowed(user, call)
    await editor.hears("execution/output")
    await editor.send({"jsonrpc": "2.0", "id": 99, "method": method, "params": {}})
    for _ in range(asked):
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(1):  # one that is gone answers no more
                await editor.ask("diagnostics")
    assert await editor.leave() == 0
    ended = (await user.get(f"/my/tools/{tool_id}?wait=10")).body
    assert (ended["status"], ended["error_type"]) == ("failed", "cancelled")


async def test_it_ends_when_asked_when_stopped_and_when_its_parent_dies(site: Site) -> None:
    async with open_engine(site.home) as editor:
        await editor.ask("shutdown")
        async with asyncio.timeout(30):
            assert await editor.process.wait() == 0
    async with open_engine(site.home) as editor:
        editor.process.terminate()
        async with asyncio.timeout(30):
            assert await editor.process.wait() == 0
    async with open_engine(site.home) as editor:
        assert await editor.leave() == 0


async def test_the_page_describes_every_message_and_the_version_names_the_protocol(site: Site) -> None:
    assert json.loads(site.byleave("version", "--json"))["engine"] == ENGINE_PROTOCOL
    page = (Path(__file__).resolve().parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
    missing = [name for name in (*REQUESTS, *NOTIFICATIONS) if f"`{name}`" not in page]
    assert missing == []
