"""Commands that nobody was asked about: a grant, the mode `full` or a rule let them run.

They read no secrets, whatever the line, and leave alone what something executes or trusts.
"""

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from byleave.gate import secret_name, understand
from byleave.protocol.errors import DriftedError, PathValidationError, RefusedError
from byleave.protocol.tools import ExecuteCommandResult
from byleave.workspace.commands.named_files import MAX_DEPTH, find, secrets
from byleave.workspace.commands.trusted import TrustedFiles, forget_put_back, still_put_back
from byleave.workspace.paths import PathValidator
from byleave.workspace.workspace import Workspace
from harness.place import Place

pytestmark = [pytest.mark.promise("G8", "T3"), pytest.mark.skipif(sys.platform != "linux", reason="needs bubblewrap")]


async def run(workspace: Workspace, command: str, *args: str, asked: bool = False) -> ExecuteCommandResult:
    params = {"command": command, "args": list(args), "timeout": 20}
    result = await workspace.run("execute_command", params, asked=asked)
    assert isinstance(result, ExecuteCommandResult)
    return result


def git(root: Path, *args: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *args], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(place: Place) -> Place:
    git(place.root, "init", "-q")
    place.file("README.md", "hello\n")
    git(place.root, "add", ".")
    git(place.root, "commit", "-qm", "first")
    return place


def said(result: ExecuteCommandResult) -> str:
    return "\n".join((result.stdout, result.stderr))


# Secrets


@pytest.mark.parametrize(
    "lines",
    [
        [["git", "grep", "--no-index", "needle"]],
        [["git", "grep", "--untracked", "needle"]],
        [["git", "diff", "--no-index", "README.md", "link"]],
        [["git", "add", "-f", "."], ["git", "diff", "--cached"]],
        [["git", "add", "-Af"], ["git", "show", ":.env"]],
        [["git", "stash", "-a"], ["git", "stash", "show", "-p", "--include-untracked"]],
        [["git", "hash-object", "-w", "link"], ["git", "cat-file", "--batch-all-objects", "--batch"]],
        [["dd", "if=link", "of=x.txt"], ["cat", "x.txt"]],
        [["tar", "cf", "all.tar", "."], ["tar", "xOf", "all.tar"]],
    ],
)
async def test_unasked_lines_show_no_secret(workspace: Workspace, repository: Place, lines: list[list[str]]) -> None:
    for name in (".env", "conf/.docker/config.json", "conf/Server.Pem"):
        repository.file(name, "needle\n")
    repository.file(".gitignore", ".env\n")
    (repository.root / "link").symlink_to(".env")
    for line in lines:
        result = await run(workspace, *line)
        assert "needle" not in said(result).replace("--no-index needle", "")
    assert not [path for path in repository.root.rglob("x.txt") if "needle" in path.read_text()]


@pytest.mark.parametrize(
    "line",
    [
        *(
            ["cp", "-r", "conf", "copy"],
            ["mv", "conf", "css"],
            ["mv", "-t", "docs", "conf/"],
            ["git", "mv", "conf", "css"],
        ),
        *(["mv", ".m2", "m2.txt"], ["git", "-C", "docs", "mv", "../conf", "css"], ["mv", "pkg.md", "pkg2.md"]),
        ["mv", "-b", "-T", "docs", ".m2"],
    ],
)
async def test_unasked_move_takes_no_kept_file_to_another_name(
    workspace: Workspace, repository: Place, line: list[str]
) -> None:
    for name in ("conf/a/tokens.json", ".m2/settings.xml", "pkg.md/package.json", "docs/a.txt", "conf/a.txt"):
        repository.file(name, "needle\n")
    git(repository.root, "add", "conf/a.txt", "docs")
    before = sorted(repository.root.rglob("*"))
    with pytest.raises(RefusedError, match="nobody was asked"):
        await run(workspace, *line)
    assert sorted(repository.root.rglob("*")) == before
    assert (await run(workspace, "mv", "docs", "texts")).exit_code == 0
    assert (await run(workspace, "mv", "README.md", "conf")).exit_code == 0


EVIL = "on: push\njobs: evil\n"


def _evil_branch(repository: Place, name: str) -> None:
    """A branch whose only commit changes a trusted file, as an agent may make it where its name is another."""
    git(repository.root, "checkout", "-qb", "evil")
    repository.file(name, EVIL)
    git(repository.root, "add", "-f", name)
    git(repository.root, "commit", "-qm", "evil")
    git(repository.root, "checkout", "-q", "-")


@pytest.mark.parametrize(
    "lines",
    [
        [["reset", "evil"]],
        [["reset", "--soft", "evil"]],
        [["symbolic-ref", "HEAD", "refs/heads/evil"]],
        [["update-ref", "HEAD", "evil"]],
    ],
)
async def test_unasked_git_goes_on_from_no_commit_whose_trusted_files_nobody_saw(
    workspace: Workspace, repository: Place, lines: list[list[str]]
) -> None:
    _evil_branch(repository, ".github/workflows/ci.yml")
    for line in lines:
        with suppress(RefusedError):
            await run(workspace, "git", *line)
    with pytest.raises(RefusedError, match=r"\.github/workflows/ci\.yml"):
        await run(workspace, "git", "commit", "--allow-empty", "-qm", "innocent")
    with pytest.raises(RefusedError, match=r"\.github/workflows/ci\.yml"):
        await run(workspace, "git", "push", "origin", "HEAD")
    assert not (repository.root / ".github/workflows/ci.yml").exists()
    await run(workspace, "git", "checkout", "HEAD", "--", ".github/workflows/ci.yml", asked=True)
    assert (await run(workspace, "git", "commit", "--allow-empty", "-qm", "seen")).exit_code == 0


async def test_unasked_git_stops_at_a_commit_in_the_middle_of_what_it_made(
    workspace: Workspace, repository: Place
) -> None:
    repository.file(".github/README.md", "hello\n")
    git(repository.root, "add", ".github")
    git(repository.root, "commit", "-qm", "second")
    git(repository.root, "checkout", "-qb", "b", "HEAD~1")
    repository.file("workflows/ci.yml", EVIL)
    git(repository.root, "add", "workflows")
    git(repository.root, "commit", "-qm", "A")
    git(repository.root, "rm", "-qr", "workflows")
    git(repository.root, "commit", "-qm", "B")
    git(repository.root, "checkout", "-q", "-")
    assert (await run(workspace, "git", "cherry-pick", "-X", "subtree=.github", "b~1", "b")).exit_code == 0
    assert (await run(workspace, "git", "reset", "HEAD~1")).exit_code == 0
    with pytest.raises(RefusedError, match=r"\.github/workflows/ci\.yml"):
        await run(workspace, "git", "commit", "--allow-empty", "-qm", "innocent")


async def test_unasked_git_goes_on_after_a_reset_to_what_the_files_hold(
    workspace: Workspace, repository: Place
) -> None:
    repository.file("Makefile", "all:\n")
    git(repository.root, "add", "Makefile")
    git(repository.root, "commit", "-qm", "make")
    for text in ("one\n", "two\n"):
        repository.file("README.md", text)
        assert (await run(workspace, "git", "commit", "-qam", text)).exit_code == 0
    assert (await run(workspace, "git", "reset", "--soft", "HEAD~2")).exit_code == 0
    assert (await run(workspace, "git", "commit", "-qm", "both")).exit_code == 0


async def test_what_a_running_command_does_to_a_file_that_was_put_back_frees_no_commit(
    workspace: Workspace, repository: Place
) -> None:
    _evil_branch(repository, "justfile")
    await run(workspace, "git", "merge", "-q", "evil")
    ready = repository.root / "ready"
    script = (
        "import os, time\nopen('justfile', 'w')\nopen('ready', 'w')\nwhile os.path.exists('ready'): time.sleep(.01)"
    )
    running = asyncio.create_task(run(workspace, "python", "-c", script))
    async with asyncio.timeout(20):
        while not ready.exists():
            await asyncio.sleep(0.01)
    with pytest.raises(RefusedError):
        await run(workspace, "git", "commit", "-qm", "while it runs")
    ready.unlink()
    await running
    with pytest.raises(RefusedError, match="'justfile'"):
        await run(workspace, "git", "commit", "--allow-empty", "-qm", "after")


async def test_secret_that_was_put_aside_stays_a_secret(workspace: Workspace, repository: Place) -> None:
    script = "import os\nos.mkdir('css')\nopen('css/.npmrc', 'w').write('needle')"
    await run(workspace, "python", "-c", script)
    (path,) = (repository.root / "css").iterdir()
    assert path.name.startswith(".npmrc.replaced-")
    assert secret_name(f"css/{path.name}")
    assert "needle" not in (await run(workspace, "git", "grep", "--no-index", "needle")).stdout


async def test_file_that_was_put_aside_is_not_executable(workspace: Workspace, place: Place) -> None:
    script = """
import os
os.makedirs("app/.husky")
for name in ("app/.husky/pre-push", "justfile"):
    open(name, "w").write("#!/bin/sh\\n")
    os.chmod(name, 0o755)
os.symlink("pre-push", "app/.husky/pre-commit")
"""
    assert (await run(workspace, "python", "-c", script)).exit_code == 0
    aside = {path.name.partition(".replaced-")[0]: path for path in place.root.rglob("*.replaced-*")}
    assert sorted(aside) == ["justfile", "pre-commit", "pre-push"]
    assert {aside[name].stat().st_mode & 0o777 for name in ("justfile", "pre-push")} == {0o644}


async def test_person_who_was_asked_gets_what_the_line_says(workspace: Workspace, repository: Place) -> None:
    repository.file(".env", "needle\n")
    result = await run(workspace, "git", "grep", "--no-index", "needle", asked=True)
    assert "needle" in result.stdout
    assert result.warnings == []


async def test_unasked_code_finds_its_settings(workspace: Workspace, place: Place) -> None:
    place.file(".env", "needle\n")
    assert "needle" in (await run(workspace, "python", "-c", "print(open('.env').read())")).stdout


NAMES = [
    *("secrets/postgres", "a/Credentials/b/x.bin", "secrets/x.go", "secrets/README.md", ".secrets/x.go", "css/x.key"),
    *("db_passwords.txt", "privateKey.json", "auth-token", "theme/tokens.json", "tokens/x", "secret_access_key"),
    *("server.key.20240101", ".netrc.rpmsave", "id_rsa (1)", ".netrc copy", "secrets.yaml.~1~", "shadow-", "x.json.gz"),
    *(
        "credentials.tar.gz",
        "pa\u00dfwords.txt",
        ".password",
        "user.passwd",
        "kube.config.yaml",
        "a (1).txt",
        "b copy.md",
    ),
    *(".env/lib/x.py", ".env/lib/.netrc", "keys.md", "x.key.go", "wp-config.bak", "templates/secrets.yml", "auth.json"),
]


def test_what_walks_directories_finds_every_name_that_the_gate_asks_about(place: Place) -> None:
    for name in NAMES:
        place.file(name, "x")
    found = find(str(place.root), ["."], secrets())
    assert ".secrets" in found  # as a whole
    assert {name for name in NAMES if name in found or name.startswith(".secrets/")} == {*filter(secret_name, NAMES)}


async def test_unasked_compiler_includes_no_secret(workspace: Workspace, place: Place) -> None:
    place.file(".env", "needle\n")
    place.file("m.c", '#include ".env"\n')
    for line in (["gcc", "-E", "-P", "m.c"], ["gcc", "-E", "-P", "-x", "c", "./conf/../.env"]):
        assert "needle" not in said(await run(workspace, *line))
    assert "needle" in (await run(workspace, "gcc", "-E", "m.c", asked=True)).stdout


async def test_secret_that_the_repository_holds_is_no_change(workspace: Workspace, repository: Place) -> None:
    repository.file("test/key.pem", "tracked\n")
    repository.file("test/other.pem", "tracked\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "keys")
    assert (await run(workspace, "git", "status", "--short")).stdout == ""
    repository.file("README.md", "changed\n")
    assert (await run(workspace, "git", "commit", "-qam", "x")).exit_code == 0
    repository.file("test/key.pem", "needle\n")  # what is there now is not what the repository holds
    result = await run(workspace, "git", "diff")
    assert "needle" not in said(result)
    assert any("'test/key.pem'" in warning for warning in result.warnings)


# What something executes or trusts


TRUSTED = (".vscode/tasks.json", ".husky/pre-commit", ".envrc", ".github/workflows/ci.yml", "Makefile", "package.json")


@pytest.mark.parametrize("name", [*TRUSTED, "sub/MAKEFILE", ".mcp.json", "node_modules/x/index.js"])
@pytest.mark.parametrize("there", [False, True])
async def test_granted_git_leaves_trusted_files_as_they_were(
    workspace: Workspace, repository: Place, name: str, there: bool
) -> None:
    if there:
        repository.file(name, "mine\n")
    blob = git(repository.root, "hash-object", "-w", str(repository.file("evil.txt", "evil\n")))
    assert (await run(workspace, "git", "update-index", "--add", "--cacheinfo", f"100755,{blob},{name}")).exit_code == 0
    for line in (("checkout", "--", name), ("checkout-index", "-fa"), ("restore", "."), ("stash",), ("stash", "pop")):
        forget_put_back(
            str(repository.root), still_put_back(str(repository.root))
        )  # each line is tried, whatever the one before did
        with pytest.raises(RefusedError, match=re.escape(repr(name))):
            await run(workspace, "git", *line)
        path = repository.root / name
        assert path.exists() is there, line
        assert not there or path.read_text() == "mine\n"
    await run(workspace, "git", "checkout", "-f", "--", name, asked=True)
    if not there and not name.startswith((".vscode", ".husky", ".envrc", ".mcp")):
        assert (repository.root / name).read_text() == "evil\n"


async def test_granted_switch_goes_through_and_tells_what_it_kept(workspace: Workspace, repository: Place) -> None:
    repository.file("Makefile", "all: old\n")
    repository.file("a.txt", "old\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    for name, content in (("Makefile", "all: new\n"), ("a.txt", "new\n"), ("conftest.py", "new\n")):
        repository.file(name, content)
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    result = await run(workspace, "git", "switch", "next")
    assert result.exit_code == 0
    assert (repository.root / "a.txt").read_text() == "new\n"
    assert (repository.root / "Makefile").read_text() == "all: old\n"
    assert not (repository.root / "conftest.py").exists()
    told = "\n".join(result.warnings)
    assert "'Makefile', which was put back" in told
    assert "It made 'conftest.py'" in told


async def test_unasked_git_records_nothing_until_a_person_was_asked_about_what_was_put_back(
    workspace: Workspace, repository: Place
) -> None:
    repository.file("package.json", "old\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    repository.file("package.json", "new\n")
    repository.file("package-lock.json", "new\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    assert (await run(workspace, "git", "merge", "next")).exit_code == 0
    for line in (["add", "-A"], ["commit", "-am", "x"], ["stash"]):
        with pytest.raises(RefusedError, match=r"'package-lock.json', 'package.json', which was put back") as refused:
            await run(workspace, "git", *line)
        assert "git checkout HEAD --" in str(refused.value.hint)
    assert (await run(workspace, "git", "status", "--short")).exit_code == 0
    names = ("package.json", "package-lock.json")
    for line in (["branch", "-D", "next"], ["checkout", "HEAD", "--", names[0]]):
        assert (await run(workspace, "git", *line, asked=True)).exit_code == 0
        with pytest.raises(
            RefusedError, match=r"changed 'package-lock.json'" if names[0] in line else "'package.json'"
        ):
            await run(workspace, "git", "add", "-A")
    assert (await run(workspace, "git", "checkout", "HEAD", "--", *names, asked=True)).exit_code == 0
    assert (await run(workspace, "git", "add", "-A")).exit_code == 0
    assert git(repository.root, "status", "--short", "-uno") == ""
    assert [(repository.root / name).read_text() for name in names] == ["new\n", "new\n"]


async def test_what_its_owner_settled_holds_up_no_git_command(workspace: Workspace, repository: Place) -> None:
    git(repository.root, "checkout", "-qb", "next")
    repository.file("Makefile", "new\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    await run(workspace, "git", "merge", "next")
    with pytest.raises(RefusedError):
        await run(workspace, "git", "commit", "-am", "x")
    repository.file("Makefile", "mine\n")
    assert (await run(workspace, "git", "commit", "-am", "x")).exit_code == 0


@pytest.fixture
def evil(repository: Place) -> Place:
    """A repository whose files run harmless code, while its last commit but one holds other code."""
    for content in ("evil\n", "mine\n"):
        repository.file("conftest.py", content)
        repository.file("sub/Makefile", content)
        repository.file("a.txt", content)
        git(repository.root, "add", "-A")
        git(repository.root, "commit", "-qm", content)
    return repository


@pytest.mark.parametrize(
    "lines",
    [
        [["reset", "-q", "HEAD~1", "--", "conftest.py"]],
        [["reset", "-q", "HEAD~1", "."]],
        [["read-tree", "HEAD~1"]],
        [["read-tree", "--prefix=x/", "HEAD~1"]],
        [["-C", "sub", "reset", "-q", "HEAD~1", "--", "Makefile"]],
        [["reset", "-q", "HEAD~1", "."], ["update-index", "--assume-unchanged", "conftest.py", "sub/Makefile"]],
        [["reset", "-q", "HEAD~1", "."], ["update-index", "--skip-worktree", "conftest.py", "sub/Makefile"]],
        [["rm", "-q", "--cached", "-r", "."]],
    ],
)
async def test_unasked_git_records_and_writes_nothing_trusted_that_was_staged_unseen(
    workspace: Workspace, evil: Place, lines: list[list[str]]
) -> None:
    for line in lines:
        with suppress(RefusedError):
            await run(workspace, "git", *line, asked=line[0] == "rm")
    head = git(evil.root, "rev-parse", "HEAD")
    commit = ["commit", "-m", "x"]
    pathspecs = (["--literal-pathspecs"], ["--glob-pathspecs", "--noglob-pathspecs"], ["--icase-pathspecs"])
    elsewhere = (["-C", "sub"], ["-C", "sub", "-C", ".."])
    for line in (commit, *([*begin, *commit] for begin in (*pathspecs, *elsewhere)), ["write-tree"], ["stash"]):
        with pytest.raises(RefusedError, match="staged") as refused:
            await run(workspace, "git", *line)
        assert "git reset --" in str(refused.value.hint)
    with pytest.raises(RefusedError, match="staged"):
        await run(workspace, "git", "checkout", "--", ".")
    assert git(evil.root, "rev-parse", "HEAD") == head
    assert (evil.root / "conftest.py").read_text() == "mine\n"
    await run(workspace, "git", "commit", "-m", "x", asked=True)
    assert git(evil.root, "rev-parse", "HEAD") != head


async def test_unasked_git_records_what_is_staged_as_the_files_are(workspace: Workspace, evil: Place) -> None:
    evil.file("conftest.py", "next\n")
    evil.file("sub/package.json", "new\n")
    git(evil.root, "rm", "-q", "sub/Makefile")
    for line in (["add", "-A"], ["commit", "-m", "x"]):
        assert (await run(workspace, "git", *line)).exit_code == 0
    assert git(evil.root, "show", "HEAD:conftest.py") == "next"
    evil.file("conftest.py", "first\n")
    await run(workspace, "git", "add", "conftest.py")
    evil.file("conftest.py", "second\n")
    with pytest.raises(RefusedError, match="staged"):
        await run(workspace, "git", "commit", "-m", "x")
    assert (await run(workspace, "git", "add", "conftest.py")).exit_code == 0
    assert (await run(workspace, "git", "commit", "-m", "x")).exit_code == 0
    await run(workspace, "git", "reset", "-q", "HEAD~2", "--", "conftest.py")
    assert (await run(workspace, "git", "reset", "--", "conftest.py")).exit_code == 0
    evil.file("a.txt", "other\n")
    assert (await run(workspace, "git", "commit", "-am", "x")).exit_code == 0


async def test_first_commit_is_recorded_unasked(workspace: Workspace, place: Place) -> None:
    git(place.root, "init", "-q")
    place.file("package.json", "{}")
    for line in (["add", "-A"], ["commit", "-m", "x"]):
        assert (await run(workspace, "git", *line)).exit_code == 0
    git(place.root, "checkout", "-q", "--orphan", "other")
    place.file("package.json", "changed")
    for begin in ([], ["--glob-pathspecs", "--noglob-pathspecs"], ["--literal-pathspecs"]):
        with pytest.raises(RefusedError, match=r"'package\.json'"):
            await run(workspace, "git", *begin, "commit", "-m", "x")


@pytest.mark.parametrize(
    "begin",
    [["--bare"], ["--git-dir", ".git"], ["-C", "sub", "--git-dir=../.git"], ["--work-tree=sub"], ["-C", "none"]],
)
async def test_unasked_git_runs_nothing_where_git_cannot_tell_what_is_staged(
    workspace: Workspace, evil: Place, begin: list[str]
) -> None:
    await run(workspace, "git", "reset", "-q", "HEAD~1", ".")
    with pytest.raises(RefusedError, match="could not be looked through"):
        await run(workspace, "git", *begin, "commit", "-m", "x")
    assert git(evil.root, "show", "HEAD:conftest.py") == "mine"


async def test_replaced_object_is_not_written(workspace: Workspace, evil: Place) -> None:
    old, new = (git(evil.root, "rev-parse", f"{commit}:conftest.py") for commit in ("HEAD", "HEAD~1"))
    git(evil.root, "replace", old, new)
    (evil.root / "conftest.py").unlink()
    await run(workspace, "git", "checkout", "HEAD", "--", "conftest.py", asked=True)
    assert (evil.root / "conftest.py").read_text() == "mine\n"


async def test_nothing_is_staged_between_the_look_and_the_commit(workspace: Workspace, evil: Place) -> None:
    """Unasked git commands run one after another."""
    first = git(evil.root, "rev-parse", "HEAD~1")
    lines = [["reset", "-q", first, "--", "conftest.py"], ["commit", "--allow-empty", "-m", "x"]] * 5
    results = await asyncio.gather(*(run(workspace, "git", *line) for line in lines), return_exceptions=True)
    assert [result for result in results if isinstance(result, RefusedError)]
    assert git(evil.root, "show", "HEAD:conftest.py") == "mine"


@pytest.mark.parametrize(
    ("link", "target"), [(".claude", "src"), ("GNUmakefile", "src/a.txt"), (".claude", "way"), (".github", "src")]
)
async def test_new_trusted_link_moves_nothing_that_it_leads_to(
    workspace: Workspace, repository: Place, link: str, target: str
) -> None:
    repository.file("src/a.txt", "mine\n")
    (repository.root / "way").symlink_to("src")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    (repository.root / link).symlink_to(target)
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    repository.file("src/unsaved.txt", "mine\n")
    result = await run(workspace, "git", "checkout", "next")
    assert (repository.root / "src/unsaved.txt").read_text() == "mine\n"
    assert (repository.root / "src/a.txt").read_text() == "mine\n"
    assert os.readlink(repository.root / "way") == "src"
    assert not (repository.root / link).is_symlink()
    assert f"It made {link!r}" in "\n".join(result.warnings)


LINKED = [
    (".vscode", "tools/editor", "tasks.json"),
    (".husky", "scripts/hooks", "sub/pre-commit"),
    (".github/workflows", "ci/workflows", "ci.yml"),
    (".github", "ci/gh", "workflows/ci.yml"),
    ("app/.vitepress", "docs/press", "config.ts"),
    ("app/.claude", "agent", "settings.json"),
    (".claude/skills", "skills", "one/text.md"),
]


def link_to(place: Place, link: str, target: str) -> None:
    path = place.root / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(place.root / target, path.parent))


@pytest.mark.parametrize(("link", "target", "name"), LINKED)
async def test_unasked_command_leaves_alone_what_a_trusted_link_to_a_directory_leads_to(
    workspace: Workspace, repository: Place, link: str, target: str, name: str
) -> None:
    kept = repository.file(f"{target}/{name}", "mine\n")
    link_to(repository, link, "way")
    (repository.root / "way").symlink_to(target)
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    new = "config.js" if name == "config.ts" else f"{os.path.dirname(name)}/new".removeprefix("/")
    for path in (name, new):
        repository.file(f"{target}/{path}", "evil\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    before = (repository.root / target).stat().st_ino
    result = await run(workspace, "git", "checkout", "next")
    assert result.exit_code == 0
    told = "\n".join(result.warnings)
    assert f"It changed '{target}/{name}', which was put back" in told
    assert f"It made '{target}/{new}'" in told
    script = "for path in {!r}:\n try: open(path, 'w').write('evil')\n except OSError: print('kept off')"
    paths = [f"{target}/{name}", f"{link}/{name}", f"{target}/{new}"]
    forget_put_back(str(repository.root), still_put_back(str(repository.root)))
    for line in (["git", "restore", "."], ["python", "-c", script.format(paths)]):
        await run(workspace, *line)
        assert kept.read_text() == "mine\n"
        assert not (repository.root / target / new).exists()
    assert (repository.root / target).stat().st_ino == before
    assert os.readlink(repository.root / "way") == target


@pytest.mark.parametrize(("link", "target", "name"), LINKED)
@pytest.mark.parametrize("below", ["", "lib/"])
async def test_unasked_git_records_nothing_staged_unseen_behind_a_trusted_link(
    workspace: Workspace, repository: Place, link: str, target: str, name: str, below: str
) -> None:
    at = ["-C", below] if below else []
    if below:
        git(repository.root, "init", "-q", below)
    new = "config.js" if name == "config.ts" else f"{os.path.dirname(name)}/new".removeprefix("/")
    for names, content in ([name, new], "evil\n"), ([name], "mine\n"):
        for path in names:
            repository.file(f"{below}{target}/{path}", content)
        if content == "mine\n":
            (repository.root / below / target / new).unlink()
        link_to(repository, f"{below}{link}", f"{below}{target}") if content == "evil\n" else None
        git(repository.root / below, "add", "-A")
        git(repository.root / below, "commit", "-qm", content)
    for path in (name, new):
        assert (await run(workspace, "git", *at, "reset", "-q", "HEAD~1", "--", f"{target}/{path}")).exit_code == 0
        with pytest.raises(RefusedError, match=re.escape(f"'{target}/{path}'")):
            await run(workspace, "git", *at, "commit", "-m", "x")
        assert (await run(workspace, "git", *at, "reset", "-q", "--", f"{target}/{path}")).exit_code == 0
    repository.file(f"{below}a.txt", "mine\n")
    git(repository.root / below, "add", "a.txt")
    assert (
        await run(workspace, "git", *at, "-c", "user.name=a", "-c", "user.email=a@e", "commit", "-m", "x")
    ).exit_code == 0


@pytest.mark.parametrize("changed", [".claude", "way", "over"])
async def test_trusted_link_that_led_elsewhere_for_a_while_moves_nothing_there(
    workspace: Workspace, repository: Place, changed: str
) -> None:
    repository.file("over/docs/guide.md", "mine\n")
    (repository.root / "way").symlink_to("over/docs")
    (repository.root / ".claude").symlink_to("way")
    for name in ("src/a.txt", "src/docs/a.txt"):
        repository.file(name, "mine\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    git(repository.root, "rm", "-rq", changed)
    (repository.root / changed).symlink_to("src")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    repository.file("src/unsaved.txt", "mine\n")
    result = await run(workspace, "git", "checkout", "next")
    assert sorted(os.listdir(repository.root / "src")) == ["a.txt", "docs", "unsaved.txt"], result.warnings
    assert os.listdir(repository.root / "src/docs") == ["a.txt"]
    assert (repository.root / ".claude/guide.md").read_text() == "mine\n"
    assert os.listdir(repository.root / ".claude") == ["guide.md"]


async def test_trusted_file_in_a_directory_too_deep_to_walk_is_found_through_a_link(
    workspace: Workspace, repository: Place
) -> None:
    git(repository.root, "checkout", "-qb", "next")
    deep = "/".join(["a"] * (MAX_DEPTH + 1))
    repository.file(f"{deep}/package.json", "evil\n")
    (repository.root / "app").symlink_to(deep)
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "deep")
    git(repository.root, "checkout", "-q", "main")
    result = await run(workspace, "git", "checkout", "next")
    assert not (repository.root / "app/package.json").exists(), result.warnings


@pytest.mark.parametrize("target", ["node_modules/foo/dist", "node_modules/foo", "node_modules"])
async def test_new_link_into_installed_code_moves_none_of_it(
    workspace: Workspace, repository: Place, target: str
) -> None:
    repository.file(".gitignore", "node_modules\n")
    for name in ("dist/index.js", "dist/Makefile", "package.json"):
        repository.file(f"node_modules/foo/{name}", "mine\n")
    before = sorted((repository.root / "node_modules").rglob("*"))
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    (repository.root / "lib").symlink_to(target)
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    result = await run(workspace, "git", "checkout", "next")
    assert sorted((repository.root / "node_modules").rglob("*")) == before, result.warnings
    # Code may change what is installed, so it may not give it another name.
    result = await run(workspace, "python", "-c", f"import os\nos.symlink({target!r}, 'app')")
    assert sorted((repository.root / "node_modules").rglob("*")) == before, result.warnings
    assert not (repository.root / "app").is_symlink()


async def test_link_to_an_empty_place_among_installed_code_gives_no_name_later(
    workspace: Workspace, place: Place
) -> None:
    place.file("node_modules/foo/index.js", "mine\n")
    for change in ("os.symlink('node_modules/foo', 'app')", "open('node_modules/foo/Makefile', 'w').write('evil')"):
        await run(workspace, "python", "-c", f"import os\n{change}")
    assert not (place.root / "app/Makefile").exists()
    assert (place.root / "node_modules/foo/index.js").read_text() == "mine\n"


async def test_new_link_into_the_repository_is_put_aside(workspace: Workspace, repository: Place) -> None:
    """Branches name the files there, and commit messages fill them."""
    repository.file("to.txt", ".git/logs/refs/heads/x")
    blob = git(repository.root, "hash-object", "-w", "to.txt")
    (repository.root / "mine").symlink_to(".git/description")
    for line in (
        ["checkout", "-b", "x/Makefile"],
        ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--allow-empty", "-m", "$(shell evil)"],
        ["update-index", "--add", "--cacheinfo", f"120000,{blob},app"],
        ["checkout", "--", "app"],
    ):
        result = await run(workspace, "git", *line)
        assert result.exit_code == 0, result
    assert (repository.root / ".git/logs/refs/heads/x/Makefile").exists()
    assert not (repository.root / "app").is_symlink()
    assert "It made 'app'" in "\n".join(result.warnings)
    assert (repository.root / "mine").is_symlink()


@pytest.mark.parametrize("becomes", ["nothing", "file", "link"])
async def test_trusted_file_comes_back_with_its_directories(
    workspace: Workspace, repository: Place, becomes: str
) -> None:
    path = repository.file("app/sub/package.json", "mine\n")
    repository.file("other/sub/a.txt")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    git(repository.root, "rm", "-rq", "app")
    if becomes == "file":
        repository.file("app", "new\n")
    elif becomes == "link":
        (repository.root / "app").symlink_to("other")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    result = await run(workspace, "git", "checkout", "next")
    assert path.read_text() == "mine\n", result.warnings
    assert not (repository.root / "app").is_symlink()
    assert len(list(repository.root.glob("app.replaced-*"))) == (becomes != "nothing")
    assert os.listdir(repository.root / "other/sub") == ["a.txt"]


@pytest.mark.parametrize("parts", [["objects/x", "refs/x"], ["commondir"]])
async def test_unasked_command_makes_no_repository_without_a_git_directory(
    workspace: Workspace, repository: Place, parts: list[str]
) -> None:
    repository.file("docs/config", "[core]\n\tfsmonitor = mine\n")
    repository.file("notes/HEAD", "mine\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    for name in ("HEAD", *parts):
        repository.file(f"docs/{name}", "ref: refs/heads/main\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    result = await run(workspace, "git", "checkout", "next")
    assert not (repository.root / "docs/HEAD").exists(), result.warnings
    assert (repository.root / "docs/config").exists()
    assert (repository.root / "notes/HEAD").exists()


async def test_unasked_git_keeps_the_settings_of_a_repository_without_a_git_directory(
    workspace: Workspace, repository: Place
) -> None:
    git(repository.root, "init", "-q", "--bare", "fixture")
    config = repository.root / "fixture/config"
    mine = config.read_text()
    git(repository.root, "checkout", "-qb", "next")
    config.write_text("[core]\n\tfsmonitor = evil\n")
    git(repository.root, "add", "fixture/config")
    git(repository.root, "commit", "-qm", "new")
    git(repository.root, "checkout", "-q", "main")
    config.write_text(mine)
    await run(workspace, "git", "checkout", "next", "--", "fixture/config")
    assert config.read_text() == mine


@pytest.mark.parametrize("name", ["Makefile", "package.json", "sub/.github/workflows/ci.yml", ".gitlab-ci.yml"])
async def test_unasked_code_cannot_change_what_runs_later(workspace: Workspace, place: Place, name: str) -> None:
    path = place.file(name, "mine\n")
    program = f"""
import os
for change in (lambda: open({name!r}, "w").write("evil"), lambda: os.remove({name!r}),
               lambda: (open("new", "w").write("evil"), os.replace("new", {name!r}))):
    try:
        change()
    except OSError as error:
        print(error.strerror)
os.makedirs("other", exist_ok=True)
open("other/conftest.py", "w").write("evil")
os.symlink("../other/conftest.py", "other/Makefile")
"""
    result = await run(workspace, "python", "-c", program)
    assert path.read_text() == "mine\n", result
    assert not (place.root / "other/conftest.py").exists()
    assert not (place.root / "other/Makefile").is_symlink()
    assert any("'other/conftest.py'" in warning for warning in result.warnings)


async def test_unasked_code_cannot_change_what_git_runs_in_a_repository_further_down(
    workspace: Workspace, place: Place
) -> None:
    for name in ("sub", "lib"):
        (place.root / name).mkdir()
        git(place.root / name, "init", "-q")
    program = """
import os
for name in ("sub/.git/hooks/pre-commit", "sub/.git/config", "new/.git/config", "made/.git", "held/config"):
    try:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        open(name, "w").write("evil")
    except OSError as error:
        print(error.strerror)
os.mkdir("linked")
os.symlink("../held", "linked/.git")
os.rename("lib", "moved")
os.makedirs("lib/.git")
open("lib/.git/config", "w").write("evil")
"""
    result = await run(workspace, "python", "-c", program)
    assert result.exit_code == 0, result
    assert "evil" not in (place.root / "sub/.git/config").read_text()
    assert not (place.root / "sub/.git/hooks/pre-commit").exists()
    for name in ("new/.git", "made/.git", "linked/.git", "lib/.git"):
        assert not (place.root / name).exists(), name
    assert any("'new/.git'" in warning for warning in result.warnings)
    assert git(place.root / "moved", "rev-parse", "--show-prefix") == "", "what was there may go elsewhere"
    (place.root / "more").mkdir()
    result = await run(workspace, "git", "init", "more")
    assert (place.root / "more/.git/HEAD").exists()
    assert result.warnings == []


@pytest.mark.parametrize("name", ["config", "config.worktree", "commondir", "hooks/pre-commit", "info/attributes"])
async def test_unasked_git_cannot_change_what_it_runs_in_a_repository_further_down(
    workspace: Workspace, repository: Place, name: str
) -> None:
    (repository.root / "sub").mkdir()
    git(repository.root / "sub", "init", "-q")
    path = repository.root / "sub/.git" / name
    before = path.read_bytes() if path.exists() else None
    # The gate refuses this line; the sandbox holds without it.
    parameters = {"command": "git", "args": ["log", "--format=format:evil", f"--output=sub/.git/{name}"]}
    understood = understand("git", parameters["args"])
    result = await workspace.run("execute_command", parameters, asked=False, understood=understood)
    assert isinstance(result, ExecuteCommandResult)
    assert (path.read_bytes() if path.exists() else None) == before
    assert result.exit_code or result.warnings
    assert (await run(workspace, "git", "-C", "sub", "status")).exit_code == 0


async def test_unasked_code_may_write_what_a_plain_link_leads_to(workspace: Workspace, place: Place) -> None:
    readme = place.file("README.md", "old\n")
    place.file("docs/index.txt", "")
    (place.root / "docs/index.md").symlink_to("../README.md")
    program = """
import os
open("README.md", "w").write("new")
os.mkdir("dist")
open("dist/libx.so.1.2", "w").write("built")
os.symlink("libx.so.1.2", "dist/libx.so")
"""
    result = await run(workspace, "python", "-c", program)
    assert (result.exit_code, result.warnings) == (0, [])
    assert readme.read_text() == "new"
    assert (place.root / "dist/libx.so").read_text() == "built"


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("link", "target"),
    [("data.json", "package.json"), ("package.json", "data.json"), ("a/b.txt", "../.github/workflows/ci.yml")],
)
async def test_unasked_command_writes_no_trusted_file_through_a_link(
    workspace: Workspace, place: Place, link: str, target: str, there: bool
) -> None:
    place.file("evil.txt", "evil\n")
    place.file("a/x")
    place.file(".github/workflows/other.yml")
    (place.root / link).symlink_to(target)
    path = place.root / os.path.normpath(os.path.join(os.path.dirname(link), target))
    if there:
        path.write_text("mine\n")
    for line in (["dd", "if=evil.txt", f"of={link}"], ["python", "-c", f"open({link!r}, 'w').write('evil')"]):
        await run(workspace, *line)
        for name in (link, path):
            found = place.root / name
            assert (found.read_text() if found.exists() else None) == ("mine\n" if there else None), line


async def test_what_is_new_is_found_however_much_was_made_beside_it(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import os
os.makedirs("sub/.vscode")
open("sub/.vscode/tasks.json", "w").write("evil")
open("Makefile", "w").write("evil")
os.makedirs("lib/.git")
for _ in range(300):
    os.mkdir("a")
    os.chdir("a")
"""
    result = await run(workspace, "python", "-c", program)
    for name in ("sub/.vscode/tasks.json", "Makefile", "lib/.git"):
        assert not (place.root / name).exists(), name
    assert any("'Makefile'" in warning for warning in result.warnings)
    paths = PathValidator(place.root / "sub")
    try:
        kept = TrustedFiles(paths, is_git=False)
        kept.keep(())
        place.file("sub/Makefile", "evil")
        monkeypatch.setattr("byleave.workspace.commands.named_files.MAX_SECONDS", -1)
        assert any("'Makefile'" in told for told in kept.put_back())
    finally:
        paths.close()


@pytest.mark.parametrize("closed", [".", "sub", "sub/.vscode"])
@pytest.mark.parametrize("mode", [0o555, 0o444, 0o600, 0o311, 0])
def test_what_is_new_is_moved_out_of_a_directory_that_was_closed_behind_it(closed: str, mode: int) -> None:
    with tempfile.TemporaryDirectory(prefix="walls-") as base:
        os.chmod(base, 0o777)  # as whoever asks; root may do everything
        as_root = os.geteuid() == 0
        if as_root:
            os.seteuid(65534)
        try:
            place = Place(Path(base, "ws"), Path(base))
            place.root.mkdir()
            paths = PathValidator(place.root)
            kept = TrustedFiles(paths, is_git=False)
            kept.keep(())
            made = place.file("sub/.vscode/tasks.json", "evil")
            (place.root / closed).chmod(mode)
            assert kept.put_back()
            assert not os.path.lexists(made)
            paths.close()
            for path in (place.root, *place.root.glob("sub*"), *place.root.glob("sub*/.vscode*")):
                path.chmod(0o755)
        finally:
            if as_root:
                os.seteuid(0)


async def test_file_that_its_owner_saves_meanwhile_stays(workspace: Workspace, place: Place) -> None:
    path = place.file("Makefile", "old\n")
    script = "open('up', 'w')\nwhile open('Makefile').read() == 'old\\n': pass"
    running = asyncio.create_task(run(workspace, "python", "-c", script))
    while not (place.root / "up").exists():
        await asyncio.sleep(0.01)
    place.file("draft", "mine\n").rename(path)
    assert (await running).warnings == []
    assert path.read_text() == "mine\n"


async def started(place: Place) -> None:
    while not (place.root / "up").exists():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ["write", "append"])
@pytest.mark.parametrize("there", [False, True])
async def test_what_a_person_approves_while_a_command_runs_stays(
    workspace: Workspace, place: Place, there: bool, mode: str
) -> None:
    path = place.root / "Makefile"
    if there:
        path.write_text("old\n")
    script = "import os\nopen('up', 'w')\nwhile not os.path.exists('go'): pass\nopen('Makefile', 'a').write('evil')"
    running = asyncio.create_task(run(workspace, "python", "-c", script))
    await started(place)
    await workspace.run("write_file", {"path": "Makefile", "content": "approved\n", "mode": mode})
    place.file("go")
    result = await running
    assert path.read_text() == ("old\n" if there and mode == "append" else "") + "approved\n", result.warnings


async def test_approved_file_behind_a_trusted_link_stays_while_a_command_runs(
    workspace: Workspace, place: Place
) -> None:
    place.file("tools/editor/tasks.json", "mine\n")
    link_to(place, "app/.vscode", "tools/editor")
    script = "import os\nopen('up', 'w')\nwhile not os.path.exists('go'): pass"
    running = asyncio.create_task(run(workspace, "python", "-c", script))
    await started(place)
    await workspace.run("write_file", {"path": "tools/editor/new.json", "content": "approved\n"})
    place.file("go")
    assert (await running).warnings == []
    assert (place.root / "tools/editor/new.json").read_text() == "approved\n"


async def test_write_that_fails_while_a_command_runs_leaves_the_file_kept(workspace: Workspace, place: Place) -> None:
    paths = PathValidator(place.root)
    try:
        kept = TrustedFiles(paths, is_git=True)
        kept.keep(())
        with pytest.raises(DriftedError):
            await workspace.run("write_file", {"path": "Makefile", "content": "x"}, bound={"Makefile": "0" * 64})
        place.file("Makefile", "evil\n")
        assert kept.put_back()
        assert not (place.root / "Makefile").exists()
    finally:
        paths.close()


async def test_what_its_owner_saves_stays_while_git_leaves_the_working_tree_alone(
    workspace: Workspace, repository: Place
) -> None:
    makefile = repository.file("Makefile", "old\n")
    with socket.create_server(("127.0.0.1", 0)) as remote:
        git(repository.root, "remote", "add", "origin", f"http://127.0.0.1:{remote.getsockname()[1]}/x.git")
        params = {"command": "git", "args": ["fetch", "origin"], "timeout": 20}
        running = asyncio.create_task(workspace.run("execute_command", params, asked=False, network=True))
        connection, _ = await asyncio.to_thread(remote.accept)
        makefile.write_text("mine\n")
        repository.file(".github/workflows/ci.yml", "mine\n")
        connection.close()
    result = await running
    assert isinstance(result, ExecuteCommandResult)
    assert result.warnings == []
    assert makefile.read_text() == "mine\n"
    assert (repository.root / ".github/workflows/ci.yml").read_text() == "mine\n"


@pytest.mark.parametrize("line", [["add", "."], ["tag", "v1"], ["branch", "next"], ["update-index", "--refresh"]])
async def test_git_that_needs_the_repository_alone_works_without_the_tree(
    workspace: Workspace, repository: Place, line: list[str]
) -> None:
    repository.file("sub/a.txt", "new\n")
    result = await run(workspace, "git", *line)
    assert (result.exit_code, result.warnings) == (0, [])
    assert "." in result.isolation["protected"]


async def test_directory_that_is_swapped_brings_no_other_file(workspace: Workspace, place: Place) -> None:
    place.file("sub/Makefile", "mine\n")
    script = "import os\nos.rename('sub', 'old')\nos.mkdir('sub')\nopen('sub/Makefile', 'w').write('evil')"
    script += "\nos.makedirs('x/workflows')\nos.symlink('x', '.github')"
    await run(workspace, "python", "-c", script)
    assert not (place.root / "sub/Makefile").exists()
    assert not (place.root / ".github").is_symlink()
    assert "evil" not in "".join(path.read_text() for path in place.root.rglob("Makefile"))


def test_commands_that_run_at_once_share_what_there_was(place: Place) -> None:
    path = place.file("Makefile", "mine\n")
    paths = PathValidator(place.root)
    try:
        first = TrustedFiles(paths, is_git=True)
        first.keep(())
        path.write_text("evil\n")
        place.file("sub/conftest.py", "evil\n")
        second = TrustedFiles(paths, is_git=True)
        second.keep(())
        assert first.put_back()
        path.write_text("evil\n")
        assert second.put_back()
        assert path.read_text() == "mine\n"
        assert not (place.root / "sub/conftest.py").exists()
        assert second.put_back() == []
    finally:
        paths.close()


async def test_unasked_git_replaces_nothing_that_is_sealed_for_code_that_runs(
    workspace: Workspace, repository: Place
) -> None:
    path = repository.file("package.json", "mine\n")
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "old")
    git(repository.root, "checkout", "-qb", "next")
    repository.file("package.json", "theirs\n")
    git(repository.root, "commit", "-qam", "new")
    git(repository.root, "checkout", "-q", "main")
    program = (
        "import os, time\nopen('up', 'w')\nwhile not os.path.exists('go'):\n"
        " try: open('package.json', 'w').write('evil')\n except OSError: time.sleep(0.01)"
    )
    code = asyncio.ensure_future(run(workspace, "python", "-c", program))
    try:
        await started(repository)
        with pytest.raises(RefusedError, match="still runs"):
            await run(workspace, "git", "checkout", "next")
    finally:
        repository.file("go")
        await code
    assert path.read_text() == "mine\n"
    assert (await run(workspace, "git", "checkout", "next")).exit_code == 0


async def test_unasked_code_may_fill_what_is_installed(workspace: Workspace, place: Place) -> None:
    place.file("node_modules/a/package.json", "{}")
    program = "open('node_modules/a/package.json', 'w').write('new')"
    result = await run(workspace, "python", "-c", program)
    assert (result.exit_code, result.warnings) == (0, [])


async def test_call_that_fails_to_start_moves_nothing(workspace: Workspace, place: Place) -> None:
    path = place.file("Makefile", "mine\n")
    with pytest.raises(Exception, match="not installed"):
        await run(workspace, "pytest-that-is-missing", "x")
    assert path.read_text() == "mine\n"


# Writes


async def test_granted_write_goes_by_the_real_path(workspace: Workspace, place: Place) -> None:
    readme = place.file("README.md", "mine\n")
    place.file("src/a.md", "old\n")
    (place.root / "src/up").symlink_to("..")
    (place.root / "src/b.md").symlink_to("a.md")
    for path in ("src/up/README.md", "src/up/new.md", "src/b.md", "src/up/src/a.md"):
        with pytest.raises(PathValidationError, match="nobody was asked about that name"):
            await workspace.run("write_file", {"path": path, "content": "evil"}, asked=False)
    assert readme.read_text() == "mine\n"
    assert not (place.root / "new.md").exists()
    for path in ("src/a.md", "./src//a.md", str(place.root / "src/a.md"), "src/new/b.md"):
        await workspace.run("write_file", {"path": path, "content": "new"}, asked=False)


@pytest.mark.parametrize(
    ("link", "target", "path", "is_kept"),
    [
        ("CLAUDE.md", "docs/guide.md", "docs/guide.md", True),
        (".claude", "docs", "docs/new.md", True),
        (".github", "docs", "docs/workflows/ci.md", True),
        (".claude", "over", "docs/guide.md", True),
        (".claude", ".", "docs/guide.md", True),
        (".github", "docs", "docs/guide.md", False),
        ("notes.md", "docs/guide.md", "docs/guide.md", False),
    ],
)
async def test_granted_write_changes_nothing_that_a_trusted_link_leads_to(
    workspace: Workspace, place: Place, link: str, target: str, path: str, is_kept: bool
) -> None:
    place.file("docs/guide.md", "mine\n")
    link_to(place, "over/docs", "docs")
    (place.root / link).symlink_to(target)
    params = {"path": path, "content": "new\n"}
    if is_kept:
        with pytest.raises(PathValidationError, match="which something executes or trusts"):
            await workspace.run("write_file", params, asked=False)
        assert (place.root / "docs/guide.md").read_text() == "mine\n"
    await workspace.run("write_file", params, asked=is_kept)
    assert (place.root / path).read_text() == "new\n"
