"""What a reading command meets on the real disk: links, pipes, and secrets below a searched directory."""

import os
import sys

import pytest

from byleave.gate import understand
from byleave.protocol.errors import PathValidationError, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.workspace.commands.operands import MAX_LEFT_OUT
from byleave.workspace.workspace import Workspace
from harness.place import Place

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
        ("cp", "notes.txt", "copy.txt"),
    ],
)
async def test_link_to_a_secret_is_not_shown(workspace: Workspace, place: Place, call: tuple[str, ...]) -> None:
    place.file(".env", "API=1")
    place.file("sub/x", "")
    for name in ("notes.txt", "a holds b, or is empty"):
        (place.root / name).symlink_to(".env")
    with pytest.raises(PathValidationError, match="may hold secrets"):
        await run(workspace, *call)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("target", ["package.json", "deploy.sh", ".github/workflows/ci.txt"])
@pytest.mark.parametrize(
    "call",
    [
        ("cp", "evil.txt", "data.txt"),
        ("cp", "evil.txt", "sub/../data.txt"),
        ("cp", "evil.txt", "sub"),
        ("cp", "-t", "sub", "evil.txt"),
        ("cp", "-b", "--suffix=.old", "sub/x", "sub/y", "evil.txt", "sub/"),
        ("touch", "data.txt"),
        ("sort", "-o", "data.txt", "evil.txt"),
        ("sort", "evil.txt", "--output=data.txt"),
        ("zip", "data.txt", "evil.txt"),
        ("tar", "-cf", "data.txt", "evil.txt"),
        ("tar", "-cf", "data.txt", "-C", "sub", "x"),
        ("git", "diff", "--output=data.txt"),
        ("git", "-C", "sub", "diff", "--output=evil.txt"),
    ],
)
async def test_no_command_writes_behind_a_link_what_is_judged_more_strictly(
    workspace: Workspace, place: Place, call: tuple[str, ...], target: str, there: bool
) -> None:
    place.file("evil.txt", "evil\n")
    place.file("sub/x", "")
    place.file("sub/y", "")
    place.file(".github/workflows/other.yml")
    (place.root / "data.txt").symlink_to(target)
    (place.root / "sub/evil.txt").symlink_to(f"../{target}")
    if there:
        place.file(target, "mine\n")
    with pytest.raises(PathValidationError, match="judged more strictly"):
        await run(workspace, *call)
    path = place.root / target
    assert (path.read_text() if path.exists() else None) == ("mine\n" if there else None)


async def test_command_writes_behind_a_link_what_is_judged_alike(workspace: Workspace, place: Place) -> None:
    place.file("new.md", "new\n")
    readme = place.file("README.md", "old\n")
    place.file("build/out/x", "")
    place.file("docs/x", "")
    (place.root / "docs/index.md").symlink_to("../README.md")
    (place.root / "latest.js").symlink_to("build/out")
    assert (await run(workspace, "cp", "new.md", "docs/index.md")).exit_code == 0
    assert readme.read_text() == "new\n"
    assert (await run(workspace, "cp", "new.md", "latest.js")).exit_code == 0
    assert (await run(workspace, "cp", "new.md", "latest.js/lib.so")).exit_code == 0
    assert sorted(path.name for path in (place.root / "build/out").iterdir()) == ["lib.so", "new.md", "x"]


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


SECRETS = (
    *("SERVER.PEM", "Secrets.JSON", ".Env", ".SSH/known", "a/token.json", "a b/.env"),
    *("deep/er/.docker/config.json", ".config/gh/hosts.yml", "x/.m2/settings.xml"),
)


@pytest.mark.parametrize(
    "call",
    [
        ("grep", "-hd", "rec", "needle", "."),
        ("grep", "-d", "recu", "-h", "needle", "."),
        ("grep", "-rh", "--include=*", "--", "needle", "."),
        ("grep", "-rh", "needle"),
        ("grep", "-Rh", "needle", "."),
        ("grep", "-hR", "needle"),
        ("grep", "--dereference-recursive", "-h", "needle", "."),
        ("grep", "-rhe", "needle", "--exclude=nothing", "."),
        ("diff", "-r", "empty", "."),
        ("diff", "-ruN", "empty", "."),
        ("diff", "-rN", "--to-file=.", "empty"),
    ],
)
async def test_no_spelling_of_a_low_line_opens_secrets(
    workspace: Workspace, place: Place, call: tuple[str, ...]
) -> None:
    for name in SECRETS:
        place.file(name, f"needle KEY={name}\n")
    place.file("src/a.txt", "needle plain\n")
    (place.root / "empty").mkdir()
    (place.root / "src/link").symlink_to("../a/token.json")
    result = await run(workspace, *call)
    assert "KEY=" not in result.stdout + result.stderr
    assert "plain" in result.stdout or call[0] == "diff"
    assert any("'SERVER.PEM'" in warning and "Left out" in warning for warning in result.warnings)


async def test_secret_behind_a_link_is_left_out_where_it_lies(workspace: Workspace, place: Place) -> None:
    place.file("conf/.env", "needle\n")
    place.file("src/a.txt", "needle\n")
    (place.root / "src/conf").symlink_to("../conf")
    (place.root / "src/b.txt").symlink_to("../conf/.env")
    result = await run(workspace, "grep", "-r", "needle", "src")
    assert result.stdout == "src/a.txt:needle\n"
    assert any("'conf/.env'" in warning for warning in result.warnings)


async def test_search_without_secrets_says_nothing_of_them(workspace: Workspace, place: Place) -> None:
    place.file("src/a.txt", "needle\n")
    place.file(".env", "needle\n")
    result = await run(workspace, "grep", "-rl", "needle", "src")
    assert (result.exit_code, result.warnings) == (0, [])
    assert (await run(workspace, "grep", "-rl", "needle", ".")).exit_code == 0


async def test_directory_full_of_secrets_is_left_out_whole(workspace: Workspace, place: Place) -> None:
    for number in range(MAX_LEFT_OUT + 1):
        place.file(f"test/certs/{number}.pem", "needle\n")
    place.file(".env", "needle\n")
    place.file("src/a.txt", "needle\n")
    result = await run(workspace, "grep", "-rl", "needle", ".")
    assert result.stdout.split() == ["./src/a.txt"]
    assert any("'test/certs'" in warning for warning in result.warnings)


async def test_virtual_environment_that_is_called_env_is_searched(workspace: Workspace, place: Place) -> None:
    place.file(".env/lib/a.py", "needle\n")
    assert (await run(workspace, "grep", "-rl", "needle", ".")).stdout.split() == ["./.env/lib/a.py"]


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


@pytest.mark.parametrize(
    ("given", "run_as"),
    [
        ("x a", "x a"),
        ("-e", "-e"),
        ("-nR x", "-nr x"),
        ("-RReR -Re R.py", "-rreR -re R.py"),
        ("-e -R a", "-e -R a"),
        ("--dereference-recursive x", "-r x"),
        ("-r -- -R", "-r -- -R"),
    ],
)
def test_grep_is_run_so_that_it_follows_no_link(given: str, run_as: str) -> None:
    assert list(understand("grep", given.split()).safe_args) == run_as.split()


@pytest.mark.parametrize("call", [("grep", "-Rh", "SECRET", "."), ("diff", "-r", "-N", "empty", ".")])
async def test_links_out_of_the_workspace_are_not_followed(
    workspace: Workspace, place: Place, call: tuple[str, ...]
) -> None:
    (place.root / "empty").mkdir()
    (place.root / "away").symlink_to("../out")
    (place.root / "system").symlink_to("/etc/passwd")
    result = await run(workspace, *call)
    assert "SECRET" not in result.stdout
    assert "root:" not in result.stdout


@pytest.mark.parametrize("call", [("diff", "-r", "sub", "."), ("du", "-a"), ("sort", "a.txt")])
async def test_command_nobody_is_asked_about_cannot_write_and_sees_no_names_of_ours(
    workspace: Workspace, place: Place, call: tuple[str, ...]
) -> None:
    place.file("sub/a.txt", "a\n")
    place.file("a.txt", "a\n")
    result = await run(workspace, *call)
    assert result.isolation["protected"] == ["."]
    assert ".vscode" not in result.stdout
    assert ".bashrc" not in result.stdout


async def test_copies_of_secrets_are_left_out_too(workspace: Workspace, place: Place) -> None:
    for name in ("conf/server.key.bak", "id_rsa~", ".id_rsa.swp", "secrets.prod.yaml", "prod.tfstate", "#.netrc#"):
        place.file(name, "needle\n")
    place.file("notes.bak", "needle\n")
    assert (await run(workspace, "grep", "-rh", "needle", ".")).stdout == "needle\n"
