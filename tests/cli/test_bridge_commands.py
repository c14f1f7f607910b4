"""`byleave mcp` and `byleave acp` before anybody speaks to them: one sentence says what is missing, with a hint."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from byleave.cli.acp import MOST_REMEMBERED, SessionMemory
from byleave.cli.places import UP, KnownServer, known_directory, remember_project
from byleave.installation import install_command
from harness.household import open_household

from .conftest import Program

BRIDGES = ["mcp", "acp"]


@pytest.mark.parametrize("name", BRIDGES)
def test_help_has_a_ready_entry_for_the_hosts_settings(byleave: Program, name: str) -> None:
    done = byleave.here(name, "--help")
    assert done.returncode == 0
    assert f'"command": "byleave", "args": ["{name}"' in done.stdout


@pytest.mark.parametrize("name", BRIDGES)
def test_without_its_extra_it_says_which_one_to_install(
    byleave: Program, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (f"byleave.cli.{name}", f"byleave.adapters.{name}"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.context" if name == "mcp" else "acp", None)
    done = byleave.here(name)
    assert (done.returncode, done.stdout) == (1, "")
    assert install_command(name) in done.stderr


@pytest.mark.parametrize("name", BRIDGES)
def test_without_a_token_or_a_server_it_says_so_and_writes_nothing_to_stdout(byleave: Program, name: str) -> None:
    none = byleave.here(name)
    assert (none.returncode, none.stdout) == (1, "")
    assert "There is no token" in none.stderr
    away = byleave.here(name, "--server", "http://127.0.0.1:9", BYLEAVE_TOKEN="a.b.c")
    assert (away.returncode, away.stdout) == (3, "")
    assert "Cannot reach the server" in away.stderr


async def test_an_unknown_project_is_said_at_once_and_a_host_that_leaves_ends_it(
    tmp_path: Path, byleave: Program
) -> None:
    async with open_household(tmp_path) as household:
        place = {"BYLEAVE_SERVER_URL": household.url, "BYLEAVE_TOKEN": household.token()}
        unknown, ended = await asyncio.gather(
            asyncio.to_thread(byleave.run, "mcp", "--project", "proj_none", **place),
            asyncio.to_thread(byleave.run, "mcp", **place),
        )
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert household.project_id in unknown.stderr
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", ""), "the host closed stdin"


@pytest.mark.parametrize("name", BRIDGES)
async def test_it_stops_when_asked_also_while_the_host_is_silent(tmp_path: Path, name: str) -> None:
    async with open_household(tmp_path) as household:
        plain = {key: value for key, value in os.environ.items() if not key.startswith("BYLEAVE_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "byleave.cli.main", name, "--verbose"),
            env=plain
            | {
                "BYLEAVE_SERVER_URL": household.url,
                "BYLEAVE_TOKEN": household.token(),
                "BYLEAVE_PROJECT": household.project_id,
                "BYLEAVE_HOME": str(tmp_path / "mine"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(HELLO[name])
            async with asyncio.timeout(100):  # it is started from nothing, perhaps on a busy machine
                assert b'"id":1' in (await process.stdout.readline()).replace(b" ", b"")
                process.send_signal(signal.SIGTERM)
                _, said = await process.communicate()
            assert process.returncode == 0, said.decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


HELLO = {
    "mcp": b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}\n',
    "acp": b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n',
}


def test_which_session_is_behind_an_editors_is_known_after_a_restart(tmp_path: Path) -> None:
    memory = SessionMemory(tmp_path / "new")
    memory["acp_1"] = "sess_1"
    memory["acp_1"] = "sess_1"
    again = SessionMemory(tmp_path / "new")
    assert dict(again) == {"acp_1": "sess_1"}
    for number in range(MOST_REMEMBERED):
        dict.__setitem__(again, f"old_{number}", "x")
    (tmp_path / "new" / "acp.json").write_text("[]")
    again["acp_2"] = "sess_2"
    del again["acp_2"]
    assert len(again) == 0
    (tmp_path / "new" / "acp.json").write_text("{")
    assert dict(SessionMemory(tmp_path / "new")) == {}


def test_the_directory_of_a_project_is_the_one_it_had_last(tmp_path: Path) -> None:
    place = KnownServer("http://127.0.0.1:1", "t", tmp_path, UP)
    assert known_directory(place, "proj_1") is None
    remember_project(place, Path("/a"), "proj_1")
    remember_project(place, Path("/b"), "proj_1")
    remember_project(KnownServer("http://x", "t", tmp_path, "http://x"), Path("/c"), "proj_1")
    assert known_directory(place, "proj_1") == Path("/b")
