"""execute_command: real programs, in the sandbox, with bounded output and a bounded life."""

import asyncio
import hashlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from byleave.gate import understand
from byleave.protocol.errors import CommandNotAllowed, InvalidParameters, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings
from byleave.workspace.commands.executor import CommandExecutor
from byleave.workspace.sandbox import processes
from byleave.workspace.sandbox.backends import NoSandbox
from byleave.workspace.sandbox.environment import Toolchain, find_program, git_files, search_path, toolchains
from byleave.workspace.sandbox.processes import KeptStream, OutputKeeper
from byleave.workspace.sandbox.sandbox import Launch
from byleave.workspace.stopping import CommandTimeout
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = pytest.mark.promise("T3")


async def _run(workspace: Workspace, command: str, *args: str, timeout: int = 30) -> ExecuteCommandResult:
    result = await workspace.run("execute_command", {"command": command, "args": list(args), "timeout": timeout})
    assert isinstance(result, ExecuteCommandResult)
    return result


@pytest.fixture
def repository(place: Place) -> Place:
    for args in (["init", "-q"], ["config", "user.name", "A"], ["config", "user.email", "a@example.org"]):
        subprocess.run(["git", *args], cwd=place.root, check=True)
    place.file("a.txt", "one\n")
    return place


@pytest.fixture
def bare(place: Place, settings: ClientSettings) -> CommandExecutor:
    return CommandExecutor(place.root, NoSandbox(place.root, reason="for a test"), settings)


async def test_output_and_exit_code_come_back(workspace: Workspace, place: Place) -> None:
    place.file("a.txt", "hello\n")
    result = await _run(workspace, "cat", "a.txt")
    assert (result.success, result.stdout, result.stderr, result.exit_code) == (True, "hello\n", "", 0)
    assert result.isolation["backend"] == "bwrap"
    result = await _run(workspace, "cat", "missing")
    assert (result.success, result.error, result.exit_code) == (True, None, 1)
    assert "missing" in result.stderr


@pytest.mark.promise("T3")
async def test_a_grep_that_finds_nothing_is_an_answer_and_no_failure(workspace: Workspace, place: Place) -> None:
    place.file("a.txt", "hello\n")
    result = await _run(workspace, "grep", "absent", "a.txt")
    assert (result.success, result.error, result.exit_code, result.stdout) == (True, None, 1, "")


async def test_arguments_are_never_expanded_by_a_shell(workspace: Workspace) -> None:
    text = "; touch x && $(id) `id` $HOME * > y"
    result = await _run(workspace, "echo", text)
    assert result.stdout == text + "\n"
    assert not any(workspace.root.iterdir())


async def test_program_of_the_workspace_never_stands_in_for_the_systems(workspace: Workspace, place: Place) -> None:
    place.file("ls", "#!/bin/sh\necho evil\n").chmod(0o755)
    assert "evil" not in (await _run(workspace, "ls", "-d", ".")).stdout


@pytest.mark.parametrize("name", ["./ls", "/bin/ls", "ls\n", "a b", "-x", "$(ls)"])
async def test_command_with_a_path_is_refused(workspace: Workspace, name: str) -> None:
    with pytest.raises(CommandNotAllowed, match="Command not allowed"):
        await _run(workspace, name)


async def test_missing_program_is_said(workspace: Workspace) -> None:
    with pytest.raises(ToolFailure, match="nosuchprogram is not installed on this machine"):
        await _run(workspace, "nosuchprogram")


async def test_impossible_arguments_are_errors(workspace: Workspace) -> None:
    with pytest.raises(ToolFailure, match="NUL"):
        await _run(workspace, "echo", "a\0b")
    with pytest.raises(ToolFailure, match="too long"):
        await _run(workspace, "echo", "x" * 3_000_000)


async def test_signal_shows_in_the_exit_code(workspace: Workspace, bare: CommandExecutor) -> None:
    kill = "import os; os.kill(os.getpid(), 15)"
    assert (await _run(workspace, "python", "-c", kill)).exit_code == 128 + 15
    line = understand("python", ["-c", kill])
    assert (await bare.run(line, 30)).exit_code == 128 + 15


async def test_git_works_and_commits(workspace: Workspace, repository: Place) -> None:
    assert "a.txt" in (await _run(workspace, "git", "status", "--short")).stdout
    assert (await _run(workspace, "git", "add", "a.txt")).exit_code == 0
    committed = await _run(workspace, "git", "commit", "-m", "first")
    assert committed.exit_code == 0, committed.stderr
    assert "first" in (await _run(workspace, "git", "log", "--oneline")).stdout
    repository.file("a.txt", "two\n")
    assert "+two" in (await _run(workspace, "git", "diff")).stdout
    done = subprocess.run(
        ["git", "log", "--format=%s"], cwd=repository.root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "first\n"


@pytest.mark.parametrize("rules", [True, False])
async def test_git_cleans_all_but_what_is_byleaves(workspace: Workspace, place: Place, rules: bool) -> None:
    await _run(workspace, "git", "init")
    place.file("untracked.txt")
    if rules:
        place.file(".byleave/policy.toml", "commands = []\n")
    result = await _run(workspace, "git", "-C", ".", "clean", "-fdx")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Removing untracked.txt\n", "")
    assert (place.root / ".byleave" / "policy.toml").exists() == rules


@pytest.mark.parametrize("rules", [True, False])
async def test_git_stashes_untracked_files_whole_and_brings_them_back(
    workspace: Workspace, repository: Place, rules: bool
) -> None:
    await _run(workspace, "git", "add", "a.txt")
    await _run(workspace, "git", "commit", "-m", "first")
    repository.file("a.txt", "changed\n")
    notes = repository.file("work/notes.md", "mine\n")
    if rules:
        repository.file(".byleave/policy.toml", "commands = []\n")
    stashed = await _run(workspace, "git", "stash", "-u")
    assert (stashed.exit_code, stashed.stderr) == (0, "")
    assert not notes.exists()
    assert (repository.root / ".byleave" / "policy.toml").exists() == rules
    assert (await _run(workspace, "git", "stash", "pop")).exit_code == 0
    assert notes.read_text("utf-8") == "mine\n"
    assert (repository.root / "a.txt").read_text("utf-8") == "changed\n"


@pytest.mark.promise("S")
async def test_git_runs_no_hook_and_no_program_of_the_repository(workspace: Workspace, repository: Place) -> None:
    marker = repository.root / "ran"
    repository.file(".git/hooks/pre-commit", f"#!/bin/sh\ntouch {marker}\n").chmod(0o755)
    evil = repository.file("evil.sh", f"#!/bin/sh\ntouch {marker}\n")
    evil.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.pager", "diff.x.textconv"):
        subprocess.run(["git", "config", key, str(evil)], cwd=repository.root, check=True)
    repository.file(".gitattributes", "*.txt diff=x\n")
    assert (await _run(workspace, "git", "add", "-A")).exit_code == 0
    assert (await _run(workspace, "git", "commit", "-m", "x")).exit_code == 0
    repository.file("a.txt", "two\n")
    for args in (["status"], ["diff"], ["log", "-p"], ["show"]):
        await _run(workspace, "git", *args)
    assert not marker.exists()


@pytest.mark.promise("S")
async def test_git_cannot_change_what_runs_in_the_repository(workspace: Workspace, repository: Place) -> None:
    before = (repository.root / ".git/config").read_text()
    assert (await _run(workspace, "git", "branch", "-u", "master", "x")).exit_code != 0
    assert (repository.root / ".git/config").read_text() == before
    result = await _run(workspace, "git", "add", ".")
    assert {".git/hooks", ".git/config"} <= set(result.isolation["protected"])


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["config", "user.name", "Ann"], "name = Ann"),
        (["remote", "add", "origin", "https://example.org/x.git"], "url = https://example.org/x.git"),
    ],
)
async def test_settings_of_the_repository_change_when_a_person_was_asked_about_just_that(
    workspace: Workspace, repository: Place, args: list[str], line: str
) -> None:
    result = await _run(workspace, "git", *args)
    assert (result.exit_code, result.stderr) == (0, "")
    assert line in (repository.root / ".git/config").read_text()
    assert ".git/hooks" in result.isolation["protected"]


async def test_settings_of_the_repository_wait_until_no_other_command_could_change_them(
    workspace: Workspace, repository: Place
) -> None:
    repository.file(
        "wait.py", "import os, time\nprint(1, flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    )
    began = asyncio.Event()
    waiting = {"command": "python", "args": ["wait.py"], "timeout": 30}
    other = asyncio.create_task(workspace.run("execute_command", waiting, on_output=lambda *_: began.set()))
    await began.wait()
    change = asyncio.create_task(_run(workspace, "git", "config", "user.name", "Ann"))
    done, _ = await asyncio.wait([change], timeout=0.5)
    assert not done
    repository.file("go", "")
    assert (await other).success
    assert (await change).exit_code == 0


async def test_git_makes_a_repository_and_knows_the_user(workspace: Workspace, place: Place) -> None:
    assert (await _run(workspace, "git", "init", "-q")).exit_code == 0
    assert (place.root / ".git/HEAD").exists()


async def test_only_name_and_address_of_the_users_git_settings_are_taken(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[user]\nname = Ann O'Neil\nemail = a@example.org\n[core]\npager = evil\n")
    settings = git_files(place.root)[".gitconfig"]
    assert settings.startswith('[user]\n\tname = "Ann O\'Neil"\n\temail = "a@example.org"\n')
    assert "evil" not in settings


def test_large_files_of_git_lfs_are_filtered_as_the_users_git_does(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "lfs" not in git_files(place.root)[".gitconfig"]
    (tmp_path / ".gitconfig").write_text('[filter "lfs"]\nclean = evil\n[core]\nautocrlf = input\n', encoding="utf-8")
    settings = git_files(place.root)[".gitconfig"]
    assert '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n' in settings
    assert "\trequired = true\n" in settings
    assert '\tautocrlf = "input"\n' in settings
    assert "evil" not in settings


@pytest.mark.parametrize("where", [".config/git/ignore", "own-ignore"])
async def test_git_ignores_what_the_users_own_git_ignores_everywhere(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    home = tmp_path / "home"
    (home / where).parent.mkdir(parents=True)
    (home / where).write_text("private/\n", encoding="utf-8")
    if where == "own-ignore":
        (home / ".gitconfig").write_text("[core]\nexcludesFile = ~/own-ignore\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    place.file("a.txt")
    place.file("private/notes.md")
    place.file("Makefile.replaced-0a1b2c3d")
    workspace = Workspace(place.root)
    await _run(workspace, "git", "init", "-q")
    await _run(workspace, "git", "add", "-A")
    listed = await _run(workspace, "git", "ls-files")
    assert listed.stdout == "a.txt\n"
    await workspace.close()


def test_git_and_zip_get_options_that_keep_them_tame() -> None:
    safety = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
    safety += ["-c", "safe.bareRepository=explicit", "--no-pager"]
    assert list(understand("git", ["-C", "x", "fetch"]).safe_args) == [*safety, "-C", "x", "fetch"]
    safety += ["-c", "protocol.file.allow=never"]
    assert list(understand("git", ["status"]).safe_args) == [*safety, "status"]
    assert list(understand("git", ["-C", "x", "diff", "a"]).safe_args) == [
        *safety,
        *["-C", "x", "diff", "--no-ext-diff", "--no-textconv", "a"],
    ]
    assert list(understand("git", []).safe_args) == safety
    assert list(understand("zip", ["-r", "x.zip", "."]).safe_args) == ["-y", "-r", "x.zip", "."]
    assert list(understand("ls", ["-l"]).safe_args) == ["-l"]


@pytest.mark.promise("S")
async def test_git_runs_nothing_that_a_repository_among_the_files_names(
    workspace: Workspace, repository: Place
) -> None:
    made = (["add", "."], ["commit", "-qm", "one"], ["init", "-q", "--bare", "r"], ["push", "-q", "r", "HEAD:old"])
    for args in made:
        subprocess.run(["git", *args], cwd=repository.root, check=True, capture_output=True)
    repository.file("r/hooks/update", "#!/bin/sh\necho it ran >&2\n").chmod(0o755)
    with (repository.root / "r/config").open("a") as config:
        config.write('[tar "x"]\n\tcommand = echo it ran >&2; cat\n\tremote = true\n')
    for args in (["push", "r", "HEAD:new"], ["archive", "--remote=r", "--format=x", "old"]):
        result = await _run(workspace, "git", *args)
        assert "it ran" not in result.stderr
        assert "transport 'file' not allowed" in result.stderr
    assert (await _run(workspace, "git", "fetch", "r", "old")).exit_code == 0


@pytest.mark.promise("S")
async def test_zip_packs_links_not_what_they_lead_to(workspace: Workspace, place: Place) -> None:
    (place.root / "l").symlink_to("/etc/passwd")
    assert (await _run(workspace, "zip", "-q", "x.zip", "l")).exit_code == 0
    assert b"root:" not in (place.root / "x.zip").read_bytes()


async def test_toolchains_work_in_the_sandbox(workspace: Workspace, place: Place) -> None:
    place.file("x.py", "import json, ssl, sqlite3; open('out.txt', 'w').write('py'); print('python ok')")
    place.file("x.js", "require('fs').writeFileSync('out.js.txt', 'js'); console.log('node ok')")
    place.file("x.c", '#include <stdio.h>\nint main(void) { puts("c ok"); return 0; }\n')
    assert (await _run(workspace, "python", "x.py")).stdout == "python ok\n"
    assert (await _run(workspace, "python3", "x.py")).stdout == "python ok\n"
    assert (await _run(workspace, "node", "x.js")).stdout == "node ok\n"
    built = await _run(workspace, "gcc", "-o", "x", "x.c")
    assert built.exit_code == 0, built.stderr
    assert (place.root / "out.js.txt").exists()


async def test_npm_works_in_the_sandbox(workspace: Workspace, place: Place) -> None:
    place.file("package.json", '{"name": "x", "version": "1.0.0", "scripts": {"test": "node -p 6*7"}}')
    tested = await _run(workspace, "npm", "test")
    assert tested.exit_code == 0, tested.stderr
    assert "42" in tested.stdout
    installed = await _run(workspace, "npm", "install", "--offline")
    assert installed.exit_code == 0, installed.stderr
    assert (place.root / "package-lock.json").exists()


async def test_output_comes_while_it_runs_and_characters_stay_whole(workspace: Workspace) -> None:
    pieces: list[tuple[str, str]] = []

    def on_output(stream: Literal["stdout", "stderr"], text: str) -> None:
        pieces.append((stream, text))

    script = (
        "import os, sys, time\n"
        "os.write(1, b'\\xc3'); time.sleep(0.05); os.write(1, b'\\xa9')\n"
        "os.write(2, b'oops\\xff')\n"
    )
    await workspace.run("execute_command", {"command": "python", "args": ["-c", script]}, on_output=on_output)
    assert "".join(text for stream, text in pieces if stream == "stdout") == "é"
    assert "".join(text for stream, text in pieces if stream == "stderr") == "oops\ufffd"


@pytest.mark.promise("G4")
async def test_three_hundred_megabytes_are_drained_in_constant_memory(workspace: Workspace) -> None:
    live: list[int] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await workspace.run(
        "execute_command",
        {"command": "head", "args": ["-c", "300000000", "/dev/zero"]},
        on_output=lambda _, text: live.append(len(text)),
    )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert isinstance(result, ExecuteCommandResult)
    assert result.truncated
    assert len(result.stdout) <= 1024 * 1024
    assert "bytes left out" in result.stdout
    assert sum(live) < 2 * 1024 * 1024
    assert grown < 30_000, f"{grown} KiB"


@pytest.mark.promise("G4")
def test_cut_output_keeps_beginning_and_end_and_counts_the_rest() -> None:
    keeper = OutputKeeper(2000)
    for number in range(5000):
        keeper.feed("stdout", f"line é {number}\n".encode())
    keeper.feed("stderr", b"short")
    captured = keeper.captured()
    total = sum(len(f"line é {number}\n".encode()) for number in range(5000))
    assert captured.truncated
    assert captured.stderr == "short"
    assert captured.stdout.startswith("line é 0\n")
    assert captured.stdout.endswith("line é 4999\n")
    before, _, rest = captured.stdout.partition("\n[... ")
    left_out, _, after = rest.partition(" bytes left out ...]\n")
    assert int(left_out) + len(before.encode()) + len(after.encode()) == total
    assert len((captured.stdout + captured.stderr).encode()) <= 2000


@pytest.mark.promise("G4")
@pytest.mark.parametrize(("out", "err"), [(900, 900), (100, 1900), (1900, 90), (5000, 5000), (0, 0), (1000, 1000)])
def test_both_streams_share_the_bound(out: int, err: int) -> None:
    keeper = OutputKeeper(2000)
    keeper.feed("stdout", b"o" * out)
    keeper.feed("stderr", b"e" * err)
    captured = keeper.captured()
    assert captured.truncated is (out + err > 2000)
    assert len(captured.stdout) + len(captured.stderr) <= 2000
    if not captured.truncated:
        assert (len(captured.stdout), len(captured.stderr)) == (out, err)


def test_replaced_bytes_count_as_what_they_become() -> None:
    stream = KeptStream(100)
    stream.feed(b"\xff" * 1000, final=True)
    assert stream.total == 3000
    assert len(stream.text(100).encode()) <= 100


def _alive(marker: str) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker in Path(f"/proc/{name}/cmdline").read_bytes().decode("utf-8", "replace"):
                found.append(int(name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


DAEMON = """
import os, sys, time
print("started", flush=True)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep({sleep})  # {marker}
        os._exit(0)
{then}
"""


@pytest.fixture
def marker(place: Place) -> Iterator[str]:
    name = f"marker-{place.root.parent.name}-{os.getpid()}"
    yield name
    assert _alive(name) == []


@pytest.mark.promise("C8")
async def test_timeout_ends_the_whole_tree_and_keeps_the_output(workspace: Workspace, marker: str) -> None:
    script = DAEMON.format(sleep=100, marker=marker, then="time.sleep(100)")
    with pytest.raises(CommandTimeout, match="ran longer than 1 s") as caught:
        await _run(workspace, "python", "-c", script, timeout=1)
    assert caught.value.partial is not None
    assert caught.value.partial.stdout == "started\n"
    assert caught.value.partial.exit_code is None
    assert not caught.value.partial.success
    assert _alive(marker) == []


async def test_timeout_without_a_sandbox_ends_the_whole_tree_too(bare: CommandExecutor, marker: str) -> None:
    script = DAEMON.format(sleep=100, marker=marker, then="time.sleep(100)")
    with pytest.raises(CommandTimeout):
        await bare.run(understand("python", ["-c", script]), 1)
    assert _alive(marker) == []


@pytest.mark.parametrize("isolated", [True, False])
async def test_child_that_keeps_the_pipe_does_not_hold_up_the_result(
    workspace: Workspace, bare: CommandExecutor, marker: str, isolated: bool
) -> None:
    script = DAEMON.format(sleep=100, marker=marker, then="print('done')")
    line = understand("python", ["-c", script])
    async with asyncio.timeout(10):
        result = await (_run(workspace, "python", "-c", script, timeout=20) if isolated else bare.run(line, 30))
    assert (result.exit_code, result.stdout) == (0, "started\ndone\n")
    assert _alive(marker) == []


@pytest.mark.promise("C8")
@pytest.mark.parametrize("isolated", [True, False])
async def test_cancelling_ends_the_whole_tree_before_it_returns(
    workspace: Workspace, bare: CommandExecutor, marker: str, isolated: bool
) -> None:
    script = DAEMON.format(sleep=100, marker=marker, then="time.sleep(100)")
    line = understand("python", ["-c", script])
    started = asyncio.Event()

    def on_output(stream: str, text: str) -> None:
        started.set()

    if isolated:
        params = {"command": line.command, "args": [*line.args]}
        call = asyncio.ensure_future(workspace.run("execute_command", params, on_output=on_output))
    else:
        call = asyncio.ensure_future(bare.run(line, 30, on_output=on_output))
    await started.wait()
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()  # a second time, while the first is being carried out
    with pytest.raises(asyncio.CancelledError):
        await call
    assert _alive(marker) == []


@pytest.mark.promise("C6")
async def test_users_own_time_limit_holds(place: Place, tmp_path: Path) -> None:
    workspace = Workspace(place.root, ClientSettings(home=tmp_path, command_timeout_seconds=1))
    with pytest.raises(CommandTimeout, match="longer than 1 s") as caught:
        await _run(workspace, "python", "-c", "import time; time.sleep(60)", timeout=60)
    assert "BYLEAVE_COMMAND_TIMEOUT_SECONDS" in (caught.value.hint or ""), "the call itself asked for more already"
    await workspace.close()


@pytest.mark.parametrize("bound", [False, True])
async def test_quiet_command_is_ended_before_its_time_and_a_talking_one_is_not(
    place: Place, tmp_path: Path, bound: bool
) -> None:
    workspace = Workspace(place.root, ClientSettings(home=tmp_path, command_idle_seconds=1))
    quiet = place.file("quiet.py", "import time; print('started', flush=True); time.sleep(60)")
    digest = {"quiet.py": hashlib.sha256(quiet.read_bytes()).hexdigest()} if bound else None
    params = {"command": "python", "args": ["quiet.py"], "timeout": 50}
    with pytest.raises(CommandTimeout, match="printed nothing for 1 s") as caught:
        await workspace.run("execute_command", params, bound=digest)
    assert caught.value.partial is not None
    assert caught.value.partial.stdout == "started\n"
    talking = "import time\nfor n in range(15): print(n, flush=True); time.sleep(0.1)"
    assert (await _run(workspace, "python", "-c", talking, timeout=50)).exit_code == 0
    await workspace.close()


async def test_sandbox_that_cannot_start_is_not_taken_for_the_command(workspace: Workspace) -> None:
    isolation = workspace.isolation
    read_end, write_end = os.pipe()
    launch = Launch(["/bin/sh", "-c", "echo broken >&2; exit 1"], {}, "/", isolation, (write_end,), read_end)
    with pytest.raises(ToolFailure, match="sandbox could not start the command: broken"):
        await processes.run_process(launch, OutputKeeper(1000), seconds=5)
    os.close(read_end)
    os.close(write_end)


async def test_program_that_cannot_be_started_is_said(workspace: Workspace) -> None:
    with pytest.raises(ToolFailure, match="could not be started"):
        await processes.run_process(
            Launch(["/nonexistent"], {}, "/", workspace.isolation), OutputKeeper(1000), seconds=5
        )


async def test_parameters_are_read_again(workspace: Workspace) -> None:
    with pytest.raises(InvalidParameters, match="timeout"):
        await workspace.run("execute_command", {"command": "ls", "timeout": 10_000})


def test_toolchain_inside_the_workspace_is_not_searched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Toolchain(place.root, place.root / "bin")
    monkeypatch.setattr("byleave.workspace.sandbox.environment.toolchains", lambda: (inside,))
    assert search_path(place.root) == ("/usr/local/bin", "/usr/bin", "/bin")
    assert find_program("ls", place.root) in ("/usr/bin/ls", "/bin/ls")


def test_newest_node_of_nvm_is_a_toolchain_unless_others_may_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("v9.1.0", "v22.3.0"):
        (tmp_path / ".nvm/versions/node" / version / "bin").mkdir(parents=True)
    newest = tmp_path / ".nvm/versions/node/v22.3.0"
    monkeypatch.setenv("HOME", str(tmp_path))
    toolchains.cache_clear()
    assert newest in [chain.prefix for chain in toolchains()]
    (newest / "bin").chmod(0o777)
    toolchains.cache_clear()
    assert newest not in [chain.prefix for chain in toolchains()]
    (newest / "bin").rmdir()
    toolchains.cache_clear()
    assert newest not in [chain.prefix for chain in toolchains()]
    toolchains.cache_clear()
