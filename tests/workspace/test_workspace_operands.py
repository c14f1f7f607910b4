"""What a reading command meets on the real disk: links, pipes, and secrets below a searched directory."""

import os
import sys

import pytest

from byleave.protocol.errors import PathValidationError, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.workspace import Workspace
from byleave.workspace.commands import safe_arguments

from .conftest import Place

pytestmark = [pytest.mark.promise("G1", "T3"), pytest.mark.skipif(sys.platform != "linux", reason="needs bubblewrap")]


async def run(workspace: Workspace, command: str, *args: str) -> ExecuteCommandResult:
    result = await workspace.run("execute_command", {"command": command, "args": list(args), "timeout": 10})
    assert isinstance(result, ExecuteCommandResult)
    return result


@pytest.mark.parametrize("target", ["../out/secret.txt", "/etc/passwd", "/proc/self/environ"])
async def test_link_to_outside_is_not_shown(workspace: Workspace, place: Place, target: str) -> None:
    (place.root / "notes.txt").symlink_to(target)
    with pytest.raises(PathValidationError, match="outside"):
        await run(workspace, "cat", "notes.txt")


@pytest.mark.parametrize(
    "call",
    [
        ("cat", "notes.txt"),
        ("head", "-n", "5", "notes.txt"),
        ("grep", ".", "notes.txt"),
        ("date", "-f", "notes.txt"),
        ("date", "-fnotes.txt"),
        ("date", "--file=notes.txt"),
        ("cat", "sub/../notes.txt"),
        ("cat", "a holds b, or is empty"),
    ],
)
async def test_link_to_a_secret_is_not_shown(workspace: Workspace, place: Place, call: tuple[str, ...]) -> None:
    place.file(".env", "API=1")
    place.file("sub/x", "")
    for name in ("notes.txt", "a holds b, or is empty"):
        (place.root / name).symlink_to(".env")
    with pytest.raises(PathValidationError, match="may hold secrets"):
        await run(workspace, *call)


@pytest.mark.parametrize("call", [("cat", "pipe"), ("wc", "-l", "pipe"), ("grep", "-r", "x", "pipe")])
async def test_pipe_is_refused_instead_of_waited_for(workspace: Workspace, place: Place, call: tuple[str, ...]) -> None:
    os.mkfifo(place.root / "pipe")
    with pytest.raises(ToolFailure, match="FIFO"):
        await run(workspace, *call)


async def test_plain_files_links_inside_and_patterns_are_let_be(workspace: Workspace, place: Place) -> None:
    place.file("src/a.txt", "see ../out and /etc/passwd\n")
    (place.root / "alias").symlink_to("src/a.txt")
    assert (await run(workspace, "cat", "alias")).stdout.startswith("see")
    assert (await run(workspace, "grep", "-rn", "../out", "src")).exit_code == 0
    assert (await run(workspace, "grep", "-n", "/etc/passwd", str(place.root / "src/a.txt"))).exit_code == 0
    assert (await run(workspace, "cat", "missing")).exit_code == 1


async def test_recursive_grep_leaves_secrets_out(workspace: Workspace, place: Place) -> None:
    for name in (".env", ".env.local", "config/id_rsa", ".ssh/config", "secrets.json", "a/.aws/config"):
        place.file(name, "needle\n")
    for name in (".env.example", "id_rsa.pub", "src/a.json", "src/secrets.py"):
        place.file(name, "needle\n")
    found = sorted((await run(workspace, "grep", "-rl", "needle", ".")).stdout.split())
    assert found == ["./.env.example", "./id_rsa.pub", "./src/a.json", "./src/secrets.py"]
    found = (await run(workspace, "grep", "-d", "recurse", "-l", "needle", "--include=*.json", ".")).stdout.split()
    assert found == ["./src/a.json"]
    found = (await run(workspace, "grep", "-rl", "--", "needle", ".")).stdout
    assert ".env.local" not in found


async def test_secret_that_the_call_names_was_asked_about_and_is_searched(workspace: Workspace, place: Place) -> None:
    place.file(".env", "needle\n")
    assert (await run(workspace, "grep", "-r", "needle", ".env")).exit_code == 0
    assert (await run(workspace, "grep", "-r", "--include=.env", "needle", ".")).exit_code == 0


@pytest.mark.parametrize("pattern", ["secret", "credentials", ".env", "id_rsa"])
async def test_word_that_looks_like_a_secrets_name_does_not_open_secrets(
    workspace: Workspace, place: Place, pattern: str
) -> None:
    place.file(".env", f"{pattern}=1\n")
    place.file("src/a.txt", f"{pattern}\n")
    assert (await run(workspace, "grep", "-rl", pattern)).stdout.split() == ["src/a.txt"]


@pytest.mark.parametrize(
    "call",
    [
        ("ls", "away"),
        ("ls", "away/"),
        ("ls", "-l", "away/.."),
        ("find", "away/"),
        ("find", ".", "-samefile", "away/secret.txt"),
        ("stat", "away/secret.txt"),
        ("du", "away/"),
        ("file", "away/secret.txt"),
        ("sort", "away/secret.txt"),
        ("sed", "-n", "p", "away/secret.txt"),
        ("uniq", "away/secret.txt"),
        ("cut", "-c1", "away/secret.txt"),
        ("diff", "away/secret.txt", "a.txt"),
        ("grep", "-nfaway/secret.txt", "a.txt"),
    ],
)
async def test_no_reading_command_leaves_by_a_link(workspace: Workspace, place: Place, call: tuple[str, ...]) -> None:
    place.file("a.txt", "x\n")
    (place.root / "away").symlink_to("../out")
    with pytest.raises(PathValidationError, match="outside"):
        await run(workspace, *call)


async def test_diff_of_directories_follows_no_link_and_leaves_secrets_out(workspace: Workspace, place: Place) -> None:
    for name in ("one/.env", "two/.env"):
        place.file(name, f"KEY={name}\n")
    place.file("one/a.txt", "1\n")
    (place.root / "two").mkdir(exist_ok=True)
    (place.root / "two/a.txt").symlink_to("../../out/secret.txt")
    shown = (await run(workspace, "diff", "one", "two")).stdout
    assert "KEY" not in shown
    assert "SECRET" not in shown


def test_grep_without_recursion_is_left_as_it_is() -> None:
    assert safe_arguments("grep", ["x", "a"]) == ["x", "a"]
    assert safe_arguments("grep", ["-e"]) == ["-e"]
