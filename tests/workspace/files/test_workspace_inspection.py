"""What a call would run is looked at before it is asked about, and that is what runs: real sandbox, real races."""

import asyncio
import errno
import hashlib
import importlib
import json
import os
import py_compile
import re
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Literal, cast

import pytest

from byleave.gate import Gate, UnderstoodCommand, understand
from byleave.protocol.approvals import MAX_SEEN_TEXT, Inspection
from byleave.protocol.errors import ByleaveError, DriftedError, RefusedError, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings
from byleave.workspace.commands import bound_files as pins_module
from byleave.workspace.commands.bound_files import HeldFiles, Holding
from byleave.workspace.commands.executor import CommandExecutor
from byleave.workspace.files import inspection as inspection_module
from byleave.workspace.paths import PathValidator
from byleave.workspace.sandbox.backends import NoSandbox
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("A", "S")

GOOD = b"import sys\nprint('good', sys.argv[1:])\n"
EVIL = b"import sys\nprint('evil', sys.argv[1:])\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def call(command: str, *args: str) -> JsonObject:
    return {"command": command, "args": list(args), "timeout": 30}


async def inspected(workspace: Workspace, command: str, *args: str) -> Inspection:
    params = call(command, *args)
    judgement = Gate().judge("execute_command", params, workspace=str(workspace.root))
    assert judgement.command is not None
    assert not judgement.verdict.refused, judgement.verdict.message
    return await workspace.inspect(judgement.command)


async def run(workspace: Workspace, bound: dict[str, str], command: str, *args: str) -> ExecuteCommandResult:
    result = await workspace.run("execute_command", call(command, *args), bound=bound)
    assert isinstance(result, ExecuteCommandResult)
    return result


# Looking


async def test_a_script_is_shown_with_its_digest_size_and_age(workspace: Workspace, place: Place) -> None:
    path = place.file("src/x.py", GOOD)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    (file,) = (await inspected(workspace, "python", "src/x.py", "--fast")).files
    assert (file.path, file.sha256, file.size) == ("src/x.py", sha(GOOD), len(GOOD))
    assert (file.modified_at, file.text, file.shortened) == ("2023-11-14T22:13:20.000Z", GOOD.decode(), False)


async def test_a_long_script_is_shown_by_its_beginning_and_bound_by_all_of_it(
    workspace: Workspace, place: Place
) -> None:
    content = b"x = 1\n" * 500_000
    place.file("x.py", content)
    (file,) = (await inspected(workspace, "python", "x.py")).files
    assert (file.sha256, file.size, file.shortened) == (sha(content), len(content), True)
    assert file.text is not None
    # More than is shown, so that the server finds a secret that lies across the edge.
    assert MAX_SEEN_TEXT + 4096 <= len(file.text) <= 2 * MAX_SEEN_TEXT


async def test_scripts_of_a_package_are_sent_as_they_are(workspace: Workspace, place: Place) -> None:
    scripts = {"test": "curl https://ci:a1$(touch${IFS}MARK)@host/", "pretest": "TOKEN=aB3xyz99 node x.js"}
    scripts |= {"posttest": "npx --api-key evil-pkg2; GH_TOKEN=ghp_a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6 x"}
    place.file("package.json", json.dumps({"scripts": scripts}))
    (seen,) = [file for file in (await inspected(workspace, "npm", "test")).files if file.path == "package.json"]
    assert seen.text is not None
    assert "https://ci:a1$(touch${IFS}MARK)@host/" in seen.text
    assert "TOKEN=aB3xyz99 node x.js" in seen.text
    assert scripts["posttest"] in seen.text


async def test_a_file_that_runs_is_sent_as_it_is_whatever_its_name(workspace: Workspace, place: Place) -> None:
    place.file("package.json", json.dumps({"scripts": {"test": "x"}}))
    settings = "script-shell=tools/x\n//registry.example.org/:_authToken=aB3xyz99aB3xyz99\n"
    place.file(".npmrc", settings)
    place.file("client_secret_check.py", GOOD)
    npmrc = (await inspected(workspace, "npm", "test")).files[1]
    assert (npmrc.path, npmrc.text) == (".npmrc", settings)
    (script,) = (await inspected(workspace, "python", "client_secret_check.py")).files
    assert (script.text, script.note) == (GOOD.decode(), None)


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ("-ws", "It cannot be told which files this would run"),
        ("--workspace=mypkg", "It cannot be told which files this would run"),
        ("--workspace=./libs", "There is no 'libs/package.json'"),
        ("--workspace=libs/foo", None),
    ],
)
async def test_the_scripts_of_another_package_run_only_when_they_are_shown(
    workspace: Workspace, place: Place, chosen: str, problem: str | None
) -> None:
    place.file("package.json", json.dumps({"workspaces": ["libs/*"], "scripts": {"test": "echo root"}}))
    place.file("libs/foo/package.json", json.dumps({"name": "mypkg", "scripts": {"test": "echo member"}}))
    inspection = await inspected(workspace, "npm", "test", chosen)
    if problem is None:
        assert [file.text for file in inspection.files] == ['"test": "echo root"', None, '"test": "echo member"']
    else:
        assert (inspection.files, (inspection.problem or "").startswith(problem)) == ([], True)


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--token", "build", "deploy"],
        ["run", "--if-present", "true", "deploy"],
        ["--prefix", "app ", "run", "deploy"],
        ["--prefix", "l/..", "run", "deploy"],
        ["--prefix", "app/none", "run", "deploy"],
    ],
)
async def test_a_line_whose_script_or_directory_npm_could_read_otherwise_is_refused(
    workspace: Workspace, place: Place, args: list[str]
) -> None:
    place.file("package.json", json.dumps({"scripts": {"build": "echo build", "true": "echo true", "deploy": "x"}}))
    place.file("app/package.json", json.dumps({"scripts": {"deploy": "echo app"}}))
    (place.root / "l").symlink_to("app")
    inspection = await inspected(workspace, "npm", *args)
    assert inspection.files == []
    assert inspection.problem is not None


async def test_the_script_of_a_package_in_a_directory_is_shown_and_runs(workspace: Workspace, place: Place) -> None:
    place.file("package.json", json.dumps({"scripts": {"test": "echo root"}}))
    place.file("app/package.json", json.dumps({"scripts": {"test": "echo tested app"}}))
    inspection = await inspected(workspace, "npm", "--prefix", "app", "test")
    assert inspection.files[0].text == '"test": "echo tested app"'
    assert "tested app" in (await run(workspace, inspection.bound, "npm", "--prefix", "app", "test")).stdout


@pytest.mark.parametrize("subcommand", ["install", "ci", "it"])
async def test_an_install_shows_every_script_and_those_of_packages_in_the_workspace(
    workspace: Workspace, place: Place, subcommand: str
) -> None:
    scripts = {"dependencies": "echo deps", "test": "echo tested"}
    dependencies = {"p": "file:./p", "gone": "./gone", "react": "^18"}
    place.file("package.json", json.dumps({"scripts": scripts, "dependencies": dependencies, "workspaces": ["libs/*"]}))
    place.file("p/package.json", json.dumps({"name": "p", "scripts": {"postinstall": "echo of p"}}))
    text = (await inspected(workspace, "npm", subcommand)).files[0].text
    assert text is not None
    assert text.splitlines() == [
        '"dependencies": "echo deps"',
        '"test": "echo tested"',
        'Scripts of its workspaces may run too: ["libs/*"]',
        'Scripts of "p" may run too, from "file:./p":',
        '  "postinstall": "echo of p"',
        'Scripts of "gone" may run too, from "./gone":',
        "  (they cannot be shown)",
    ]


async def test_a_file_that_is_no_text_is_bound_and_a_note_says_that_it_is_not_shown(
    workspace: Workspace, place: Place
) -> None:
    place.file("app.pyz", b"PK\x03\x04\x00\x00")
    (archive,) = (await inspected(workspace, "python", "app.pyz")).files
    assert (archive.text, archive.sha256, archive.note) == (None, sha(b"PK\x03\x04\x00\x00"), "It is not text.")


async def test_text_with_an_archive_behind_it_is_not_shown_as_text(workspace: Workspace, place: Place) -> None:
    place.file("tool.py", b"print('harmless')\n" * 20_000 + b"PK\x05\x06" + bytes(18))
    (tool,) = (await inspected(workspace, "python", "tool.py")).files
    assert (tool.text, tool.note) == (None, "It is not text.")


@pytest.mark.parametrize(
    "start",
    [
        b"# coding: utf-7\n",
        b"#!/usr/bin/python\n# -*- coding: unicode_escape -*-\n",
        b"\xef\xbb\xbf# vim: set fileencoding=rot13 :\n",
        b"# x\r# coding=utf-7\n\n",
        b"\f\t # coding: coding: cp037\n",
        b"# coding: utf-8 coding: utf-7\n",
        b"#" * 300_000 + b"\n# coding: utf-7\n",
    ],
)
async def test_code_in_an_encoding_that_hides_it_is_not_shown(workspace: Workspace, place: Place, start: bytes) -> None:
    place.file("x.py").write_bytes(start + b"# +AAo-print('evil')\n")
    [file] = (await inspected(workspace, "python", "x.py")).files
    assert (file.text, file.note) == (None, inspection_module._OTHER_CODE)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("# coding: utf-8\nx = 'é'".encode(), "# coding: utf-8\nx = 'é'"),
        (b"# -*- coding: UTF_8-unix -*-\n", "# -*- coding: UTF_8-unix -*-\n"),
        (b"#!/x\n# coding: latin-1\nx = '\xe9'", "#!/x\n# coding: latin-1\nx = 'é'"),
        (b"x = 1\ny = 2\n# coding: utf-7", "x = 1\ny = 2\n# coding: utf-7"),
        (b"x = 'coding: utf-7'\n", "x = 'coding: utf-7'\n"),
    ],
)
async def test_code_is_shown_in_the_encoding_that_python_reads(
    workspace: Workspace, place: Place, data: bytes, text: str
) -> None:
    place.file("x.py").write_bytes(data)
    [file] = (await inspected(workspace, "python", "x.py")).files
    assert (file.text, file.note) == (text, None)


async def test_scripts_in_a_list_are_shown(workspace: Workspace, place: Place) -> None:
    place.file("package.json", '{"scripts": ["echo a"]}')
    package, *_ = (await inspected(workspace, "npm", "run", "0")).files
    assert "echo a" in (package.text or "")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["test"], '"pretest": "tsc"\n"test": "node --test"'),
        (["run", "lint", "--", "--fix"], '"lint": "eslint ."'),
        (["run", "absent"], "(no script of this name)"),
        (["ci"], None),
        (["version", "patch"], None),
    ],
)
async def test_of_a_package_the_very_scripts_that_would_run_are_shown(
    workspace: Workspace, place: Place, args: list[str], text: str | None
) -> None:
    scripts = {"test": "node --test", "lint": "eslint .", "pretest": "tsc", "postinstall": "node evil.js"}
    content = "\ufeff" + json.dumps({"name": "x", "scripts": scripts})
    place.file("package.json", content)
    package, npmrc, *_ = (await inspected(workspace, "npm", *args)).files
    assert (package.path, package.sha256) == ("package.json", sha(content.encode()))
    assert package.text == text if text is not None else package.text and all(name in package.text for name in scripts)
    assert (npmrc.path, npmrc.sha256, npmrc.size, npmrc.text) == (".npmrc", "missing", None, None)


@pytest.mark.parametrize("args", [["test"], ["run", "build"]])
async def test_nobody_is_asked_about_a_script_where_there_is_no_package(workspace: Workspace, args: list[str]) -> None:
    assert "There is no 'package.json'" in str((await inspected(workspace, "npm", *args)).problem)


@pytest.mark.parametrize("args", [["install"], ["ci"], ["i", "--save-dev"], ["clean-install", "--omit=dev"], ["cit"]])
async def test_nobody_is_asked_about_an_install_where_there_is_no_package(
    workspace: Workspace, place: Place, args: list[str]
) -> None:
    assert "There is no 'package.json'" in str((await inspected(workspace, "npm", *args)).problem)
    assert "There is no 'app/package.json'" in str((await inspected(workspace, "npm", "--prefix=app", *args)).problem)
    place.file("package.json", "{}")
    assert (await inspected(workspace, "npm", *args)).problem is None


@pytest.mark.parametrize("args", [["install", "lodash"], ["--prefix=app", "i", "lodash"], ["init", "-y"], ["update"]])
async def test_what_makes_a_package_is_asked_about_where_there_is_none(workspace: Workspace, args: list[str]) -> None:
    inspection = await inspected(workspace, "npm", *args)
    assert (inspection.problem, inspection.files[0].sha256) == (None, "missing")


@pytest.mark.parametrize("content", ["{", "[]", '{"scripts": 1}', '{"scripts": {"test": ["a"]}}', "[" * 100_000])
async def test_a_package_that_is_none_is_shown_as_it_is(workspace: Workspace, place: Place, content: str) -> None:
    place.file("package.json", content)
    package = (await inspected(workspace, "npm", "test")).files[0]
    assert package.sha256 == sha(content.encode())
    assert package.text


async def test_modules_are_bound_to_being_absent(workspace: Workspace) -> None:
    inspection = await inspected(workspace, "python", "-m", "pytest")
    assert inspection.problem is None
    assert inspection.bound == dict.fromkeys(("pytest.py", "pytest/__init__.py", "pytest/__main__.py"), "missing")


async def test_a_directory_stands_for_the_files_in_it(workspace: Workspace, place: Place) -> None:
    place.file("app/__main__.py", GOOD)
    inspection = await inspected(workspace, "python", "app")
    assert inspection.bound == {"app": "missing", "app/__main__.py": sha(GOOD), "app/__main__.pyc": "missing"}
    assert "good" in (await run(workspace, inspection.bound, "python", "app")).stdout


@pytest.mark.parametrize("name", ["json.pyc", "sub/json.pyc", "__pycache__/json.pyc", "link.pyc"])
async def test_compiled_code_without_source_does_not_run_beside_what_is_shown(
    workspace: Workspace, place: Place, name: str
) -> None:
    place.file("x.py", GOOD)
    place.file("sub/x.py", GOOD)
    if name == "link.pyc":
        place.file("plain.txt")
        (place.root / name).symlink_to("plain.txt")
    else:
        py_compile.compile(str(place.file("other.py", EVIL)), cfile=str(place.root / name))
    for line in (["python", "x.py"], ["python", "-m", "pytest"], ["python", "sub/x.py"]):
        inspection = await inspected(workspace, *line)
        with pytest.raises(RefusedError, match=re.escape(f"'{name}' is compiled code without its source")):
            await run(workspace, inspection.bound, *line)


async def test_compiled_code_that_python_does_not_take_for_a_module_holds_up_nothing(
    workspace: Workspace, place: Place
) -> None:
    place.file("x.py", GOOD)
    names = ("x.pyc", "__pycache__/json.cpython-311.pyc", "node_modules/json.pyc", ".venv/lib/json.pyc")
    for name in names:
        place.file(name, "old")
    inspection = await inspected(workspace, "python", "x.py")
    assert "good" in (await run(workspace, inspection.bound, "python", "x.py")).stdout


async def test_a_link_inside_is_followed_and_bound_by_content(workspace: Workspace, place: Place) -> None:
    place.file("real/x.py", GOOD)
    (place.root / "link").symlink_to("real")
    (place.root / "y.py").symlink_to("link/x.py")
    inspection = await inspected(workspace, "python", "y.py")
    assert inspection.bound == {"y.py": sha(GOOD)}
    assert "good" in (await run(workspace, inspection.bound, "python", "y.py")).stdout


async def test_a_path_through_a_link_and_back_shows_the_file_that_node_runs(workspace: Workspace, place: Place) -> None:
    place.file("decoy/x.js", "console.log('decoy')")
    place.file("x.js", "console.log('shown')")
    place.file("decoy/inner/k")
    (place.root / "l").symlink_to("decoy/inner")
    inspection = await inspected(workspace, "node", "l/../x.js")
    assert [file.text for file in inspection.files] == ["console.log('shown')"]
    assert (await run(workspace, inspection.bound, "node", "l/../x.js")).stdout == "shown\n"


def _fifo(place: Place) -> None:
    os.mkfifo(place.root / "x.py")


def _leads_out(place: Place) -> None:
    (place.root / "x.py").symlink_to("../out/secret.txt")


def _directory(place: Place) -> None:
    place.file("x.py/__main__.py", EVIL)


def _locked(place: Place) -> None:
    place.file("loop.py")
    (place.root / "x.py").symlink_to("x.py")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_fifo, "a FIFO"),
        (_leads_out, "outside the workspace"),
        (_directory, "is a directory"),
        (_locked, "link"),
        (lambda place: None, "There is no 'x.py'"),
    ],
)
async def test_what_cannot_be_seen_is_said_and_bound_to_nothing(
    workspace: Workspace, place: Place, make: Callable[[Place], None], why: str
) -> None:
    make(place)
    inspection = await inspected(workspace, "python", "x.py")
    assert (inspection.files, inspection.bound) == ([], {})
    assert inspection.problem is not None
    assert why in inspection.problem


async def test_a_file_that_is_too_large_is_not_looked_at(place: Place, tmp_path: Path) -> None:
    place.file("x.py", "#" * 2000)
    workspace = Workspace(place.root, ClientSettings(home=tmp_path / "home", max_file_bytes=1000))
    inspection = await workspace.inspect(understand("python", ["x.py"]))
    await workspace.close()
    assert inspection.problem is not None
    assert "larger than 1000 bytes" in inspection.problem


async def test_a_fault_while_looking_is_a_problem_and_no_crash(workspace: Workspace) -> None:
    inspection = await workspace.inspect(cast("UnderstoodCommand", None))
    assert inspection.problem is not None
    assert "could not be looked at" in inspection.problem


@pytest.mark.parametrize(
    ("package", "seen"),
    [
        ({"main": "lib/other.js"}, False),
        ({"main": "./index.js"}, True),
        ({"main": "./index"}, False),
        ({"main": "."}, False),
        ({"main": "index.json"}, False),
        ({"main": 1}, False),
        ({}, True),
        ([], False),
    ],
)
async def test_a_package_that_starts_an_unseen_file_is_not_shown_as_if_it_were_seen(
    workspace: Workspace, place: Place, package: object, seen: bool
) -> None:
    place.file("app/package.json", json.dumps(package))
    place.file("app/index.js", "console.log('good')")
    inspection = await inspected(workspace, "node", "app")
    assert (inspection.problem is None) is seen
    if seen:
        assert "good" in (await run(workspace, inspection.bound, "node", "app")).stdout


async def test_node_is_not_let_look_for_another_file(workspace: Workspace, place: Place) -> None:
    place.file("hook.js", "")
    place.file("x.js.js", EVIL)
    inspection = await inspected(workspace, "node", "-r", "./hook.js", "x.js")
    assert "There is no 'x.js'" in (inspection.problem or "")


async def test_each_test_of_node_is_shown_and_bound(workspace: Workspace, place: Place) -> None:
    place.file("ok.js", "")
    place.file("t.js", "")
    inspection = await inspected(workspace, "node", "--test", "ok.js", "t.js")
    assert inspection.problem is None
    place.file("t.js", "console.log('changed')")
    with pytest.raises(DriftedError, match=r"t\.js"):
        await run(workspace, inspection.bound, "node", "--test", "ok.js", "t.js")


@pytest.mark.parametrize("seconds", [1e300, float("inf"), -1e15])
def test_a_time_no_calendar_has_is_left_out(seconds: float) -> None:
    assert inspection_module._time(seconds) is None


# Running what was shown


async def test_what_was_shown_runs_under_its_own_name(workspace: Workspace, place: Place) -> None:
    place.file("src/helper.py", "NAME = 'helper'\n")
    script = place.file("src/x.py", "import helper, os, sys\nprint(helper.NAME, __file__, sys.path[0], sys.argv)\n")
    script.chmod(0o750)
    bound = {"src/x.py": sha(script.read_bytes())}
    result = await run(workspace, bound, "python", "src/x.py", "a")
    root = place.root
    assert result.stdout.split() == ["helper", f"{root}/src/x.py", f"{root}/src", "['src/x.py',", "'a']"]
    place.file(
        "mode.py", "import os\nprint(oct(os.stat('src/x.py').st_mode & 0o777), os.access('src/x.py', os.W_OK))\n"
    )
    bound |= {"mode.py": sha((root / "mode.py").read_bytes())}
    assert (await run(workspace, bound, "python", "mode.py")).stdout == "0o750 False\n"


@pytest.mark.parametrize("mode", [0o644, 0o444, 0o200])
async def test_permissions_do_not_hinder_what_was_shown(workspace: Workspace, place: Place, mode: int) -> None:
    if os.geteuid() != 0 and not mode & 0o400:
        pytest.skip("only root reads what nobody may")
    place.file("x.py", GOOD).chmod(mode)
    assert "good" in (await run(workspace, {"x.py": sha(GOOD)}, "python", "x.py")).stdout


@pytest.mark.promise("A", "C2")
@pytest.mark.parametrize(
    ("shown", "now"),
    [(GOOD, EVIL), (GOOD, None), (None, EVIL)],
)
async def test_what_changed_after_it_was_shown_is_not_run(
    workspace: Workspace, place: Place, shown: bytes | None, now: bytes | None
) -> None:
    if now is not None:
        place.file("x.py", now)
    with pytest.raises(DriftedError, match=r"'x\.py' changed after it was shown; nothing was run"):
        await run(workspace, {"x.py": "missing" if shown is None else sha(shown)}, "python", "x.py")


async def test_a_shadow_that_appears_later_is_not_run(workspace: Workspace, place: Place) -> None:
    inspection = await inspected(workspace, "python", "-m", "this")
    assert "Zen" in (await run(workspace, inspection.bound, "python", "-m", "this")).stdout
    place.file("this.py", EVIL)
    with pytest.raises(DriftedError, match=r"this\.py"):
        await run(workspace, inspection.bound, "python", "-m", "this")


async def test_compiled_code_in_place_of_a_module_is_not_run(workspace: Workspace, place: Place) -> None:
    place.file("foo.py", GOOD)
    place.file("e.py", EVIL)
    bound = (await inspected(workspace, "python", "-m", "foo")).bound
    plant = "import os, py_compile\nos.mkdir('foo')\n"
    plant += "for name in ('__init__', '__main__'): py_compile.compile('e.py', f'foo/{name}.pyc')\n"
    await run(workspace, {}, "python", "-c", plant)
    assert "evil" in (await run(workspace, {}, "python", "-m", "foo")).stdout
    assert "'foo/__init__.pyc' is compiled" in ((await inspected(workspace, "python", "-m", "foo")).problem or "")
    with pytest.raises(DriftedError, match=r"foo/__init__\.pyc"):
        await run(workspace, bound, "python", "-m", "foo")


@pytest.mark.parametrize("name", ["foo.pyc", "foo.so", "foo.cpython-311-x86_64-linux-gnu.so", "foo/__main__.abi3.so"])
async def test_compiled_code_beside_a_module_is_named(workspace: Workspace, place: Place, name: str) -> None:
    place.file("foo.py", GOOD)
    place.file(name, b"\x7fELF")
    assert repr(name) in ((await inspected(workspace, "python", "-m", "foo")).problem or "")
    assert (await inspected(workspace, "python", "foo.py")).problem is None


def forge_cache(source: Path, code: str, cache: Path) -> None:
    """Compile other code as if it were of this source: same size, same time."""
    info = source.stat()
    other = importlib._bootstrap_external._code_to_timestamp_pyc(  # type: ignore[attr-defined]
        compile(code, str(source), "exec"), int(info.st_mtime), info.st_size
    )
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_bytes(other)


@pytest.mark.parametrize("args", [["-m", "pkg.x"], ["-bEm", "pkg.x"], ["y.py"]])
@pytest.mark.parametrize("behind_link", [False, True])
@pytest.mark.parametrize("sandbox", ["bwrap", "none"])
async def test_compiled_code_never_runs_in_place_of_what_was_shown(
    place: Place, tmp_path: Path, args: list[str], behind_link: bool, sandbox: Literal["bwrap", "none"]
) -> None:
    workspace = Workspace(place.root, ClientSettings(home=tmp_path / "home", sandbox=sandbox))
    place.file("pkg/__init__.py", "")
    source = place.file("pkg/x.py", "print('good')\n")
    place.file("y.py", "import pkg.x\n")
    name = f"x.{sys.implementation.cache_tag}.pyc"
    forge_cache(source, "print('evil')", source.parent / ("made" if behind_link else "__pycache__") / name)
    if behind_link:
        (place.root / "pkg/__pycache__").symlink_to("made")
    bound = (await inspected(workspace, "python", *args)).bound
    assert bound
    assert (await run(workspace, bound, "python", *args)).stdout == "good\n"
    await workspace.close()


async def test_files_can_still_be_compiled_to_check_them(workspace: Workspace, place: Place) -> None:
    place.file("x.py", "x = 1\n")
    args = ["-m", "py_compile", "x.py"]
    bound = (await inspected(workspace, "python", *args)).bound
    result = await run(workspace, bound, "python", *args)
    assert (result.exit_code, result.stderr) == (0, "")
    assert not (place.root / "__pycache__").exists()


async def test_a_module_that_a_module_runs_is_shown_and_bound(workspace: Workspace, place: Place) -> None:
    place.file("e.py", GOOD)
    inspection = await inspected(workspace, "python", "-m", "runpy", "e")
    assert [file.text for file in inspection.files if file.path == "e.py"] == [GOOD.decode()]
    assert "good" in (await run(workspace, inspection.bound, "python", "-m", "runpy", "e")).stdout
    place.file("e.py", EVIL)
    with pytest.raises(DriftedError, match=r"e\.py"):
        await run(workspace, inspection.bound, "python", "-m", "runpy", "e")


async def test_compiled_code_beside_a_module_is_not_taken_for_it(workspace: Workspace, place: Place) -> None:
    place.file("pkg/__init__.py", b"")
    place.file("pkg/mod.py", GOOD)
    plant = "import importlib.util as u, pathlib, marshal, sys\nc = compile('print(\"evil\")', 'x', 'exec')\n"
    plant += "p = pathlib.Path(u.cache_from_source('pkg/mod.py'))\np.parent.mkdir()\n"
    plant += "p.write_bytes(u.MAGIC_NUMBER + (1).to_bytes(4, 'little') + bytes(8) + marshal.dumps(c))\n"
    await run(workspace, {}, "python", "-c", plant)
    assert (await run(workspace, {}, "python", "-m", "pkg.mod")).stdout == "evil\n"
    bound = (await inspected(workspace, "python", "-m", "pkg.mod")).bound
    assert (await run(workspace, bound, "python", "-m", "pkg.mod")).stdout == "good []\n"


async def test_what_can_no_longer_be_looked_at_is_not_run(workspace: Workspace, place: Place) -> None:
    _directory(place)
    with pytest.raises(DriftedError, match="Nothing was run"):
        await run(workspace, {"x.py": "missing"}, "python", "x.py")


async def test_a_command_that_rewrites_what_it_runs_may_do_so(workspace: Workspace, place: Place) -> None:
    package = place.file("package.json", json.dumps({"name": "x", "version": "1.0.0"}))
    bound = {"package.json": sha(package.read_bytes()), ".npmrc": "missing"}
    result = await run(workspace, bound, "npm", "version", "--no-git-tag-version", "2.0.0")
    assert result.exit_code == 0, result.stderr
    assert json.loads(package.read_text())["version"] == "2.0.0"
    with pytest.raises(DriftedError):
        await run(workspace, bound, "npm", "version", "--no-git-tag-version", "3.0.0")


async def test_an_npmrc_of_the_workspace_cannot_swap_the_shell_that_runs_scripts(
    workspace: Workspace, place: Place
) -> None:
    place.file("package.json", json.dumps({"scripts": {"test": "echo as shown"}}))
    place.file("tools/x", "#!/bin/sh\necho swapped\n").chmod(0o755)
    place.file(".npmrc", "script-shell=tools/x\n")
    bound = (await inspected(workspace, "npm", "test")).bound
    result = await run(workspace, bound, "npm", "test")
    assert result.stdout.endswith("as shown\n")
    assert "swapped" not in result.stdout


async def test_an_npmrc_of_the_workspace_cannot_swap_git(workspace: Workspace, place: Place) -> None:
    place.file("package.json", "{}")
    place.file("evil.sh", "#!/bin/sh\ntouch swapped\n").chmod(0o755)
    place.file(".npmrc", "git=./evil.sh\nfetch-retries=0\n")
    await run(workspace, {}, "npm", "view", "git+file:///nothere/a.git")
    assert not (place.root / "swapped").exists()


@pytest.mark.parametrize(
    "line",
    [
        *("workspace=pk/a", "workspaces = true", "workspace[]=pk/a", "  'workspace'=pk/a", "workspaces", "${x}=pk/a"),
        *('"work\\u0073pace"=pk/a', "a=b\rworkspace=pk/a", "node-options=--require ./evil.js", "[workspace]"),
    ],
)
async def test_an_npmrc_that_moves_what_npm_runs_is_named(workspace: Workspace, place: Place, line: str) -> None:
    place.file("package.json", json.dumps({"scripts": {"test": "echo root"}, "workspaces": ["pk/a"]}))
    place.file(".npmrc", f"save-exact=true\n{line}\n")
    assert "'.npmrc' sets" in ((await inspected(workspace, "npm", "test")).problem or "")


async def test_an_npmrc_of_other_settings_is_shown(workspace: Workspace, place: Place) -> None:
    place.file("package.json", "{}")
    text = "# workspace=pk/a\n@me:registry=https://x.example/\nlink-workspace-packages=true\ntag=${workspace}\n"
    place.file(".npmrc", text)
    inspection = await inspected(workspace, "npm", "test")
    assert (inspection.problem, inspection.files[1].text) == (None, text)


async def test_a_script_of_a_package_runs_as_it_was_shown(workspace: Workspace, place: Place) -> None:
    package = place.file("package.json", json.dumps({"scripts": {"test": "echo tested; echo x > out.txt"}}))
    bound = (await inspected(workspace, "npm", "test")).bound
    result = await run(workspace, bound, "npm", "test")
    assert "tested" in result.stdout, result.stderr
    assert (place.root / "out.txt").read_text() == "x\n"
    package.write_text(json.dumps({"scripts": {"test": "echo other"}}))
    with pytest.raises(DriftedError, match=r"package\.json"):
        await run(workspace, bound, "npm", "test")


# Races


@contextmanager
def rewriting(change: Callable[[int], None]) -> Generator[None]:
    """Something beside us that never stops changing a file."""
    stop = threading.Event()

    def loop() -> None:
        turn = 0
        while not stop.is_set():
            change(turn)
            turn += 1

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _by_rename(place: Place) -> Callable[[int], None]:
    def change(turn: int) -> None:
        temporary = place.root / "tmp.py"
        temporary.write_bytes(EVIL if turn % 2 else GOOD)
        temporary.replace(place.root / "src/x.py")
        threading.Event().wait(0.005 * (turn % 7))

    return change


def _in_place(place: Place) -> Callable[[int], None]:
    def change(turn: int) -> None:
        (place.root / "src/x.py").write_bytes(EVIL if turn % 2 else GOOD)
        threading.Event().wait(0.005 * (turn % 7))

    return change


def _by_link(place: Place) -> Callable[[int], None]:
    place.file("evil.py", EVIL)
    place.file("good.py", GOOD)

    def change(turn: int) -> None:
        link = place.root / "tmp.py"
        link.symlink_to("../evil.py" if turn % 2 else "../good.py")
        link.replace(place.root / "src/x.py")
        threading.Event().wait(0.005 * (turn % 7))

    return change


def _by_directory(place: Place) -> Callable[[int], None]:
    place.file("other/x.py", EVIL)

    def change(turn: int) -> None:
        (place.root / "src").rename(place.root / "old")
        (place.root / "other").rename(place.root / "src")
        (place.root / "old").rename(place.root / "other")
        threading.Event().wait(0.005 * (turn % 7))

    return change


async def _outcomes(workspace: Workspace, times: int) -> dict[str, int]:
    outcomes = {"good": 0, "drifted": 0}
    for _ in range(times):
        try:
            result = await run(workspace, {"src/x.py": sha(GOOD)}, "python", "src/x.py")
        except DriftedError:
            outcomes["drifted"] += 1
        else:
            assert result.stdout == "good []\n", result
            outcomes["good"] += 1
    return outcomes


@pytest.mark.promise("A", "C2")
@pytest.mark.parametrize(("way", "times"), [(_by_rename, 60), (_in_place, 15), (_by_link, 60), (_by_directory, 60)])
async def test_whoever_rewrites_it_meanwhile_what_was_not_shown_never_runs_unnoticed(
    workspace: Workspace, place: Place, way: Callable[[Place], Callable[[int], None]], times: int
) -> None:
    place.file("src/x.py", GOOD)
    change = way(place)
    await run(workspace, {}, "python", "-V")  # the sandbox is probed outside the race
    with rewriting(change):
        outcomes = await _outcomes(workspace, times)
    assert outcomes["drifted"] > 0


async def test_a_write_into_the_covered_file_changes_nothing(workspace: Workspace, place: Place) -> None:
    script = (
        b"import time, pathlib\nprint('up', flush=True)\n"
        b"while not pathlib.Path('go').exists(): time.sleep(0.01)\nprint(pathlib.Path('x.py').read_text())\n"
    )
    path = place.file("x.py", script)

    def on_output(stream: str, text: str) -> None:
        path.write_bytes(EVIL)
        (place.root / "go").touch()

    result = await workspace.run(
        "execute_command", call("python", "x.py"), bound={"x.py": sha(script)}, on_output=on_output
    )
    assert isinstance(result, ExecuteCommandResult)
    assert result.stdout == "up\n" + script.decode() + "\n"
    assert path.read_bytes() == EVIL


SLOW = b"import time\nprint('up', flush=True)\ntime.sleep(20)\n"


async def test_a_file_swapped_while_the_command_starts_ends_it_and_withholds_what_it_said(
    workspace: Workspace, place: Place
) -> None:
    place.file("x.py", SLOW)
    place.file("y.py", EVIL)
    with pytest.raises(DriftedError, match="it was ended while it started"):
        await workspace.run(
            "execute_command",
            call("python", "x.py"),
            bound={"x.py": sha(SLOW)},
            on_output=lambda stream, text: (place.root / "y.py").replace(place.root / "x.py") and None,
        )


async def test_once_it_has_started_the_file_may_change(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for Python to read its file on a busy machine; it ends once the other is written.
    monkeypatch.setattr(pins_module, "START_SECONDS", 3)
    script = b"import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')\n"
    place.file("x.py", script)
    running = asyncio.create_task(run(workspace, {"x.py": sha(script)}, "python", "x.py"))
    await workspace.run("write_file", {"path": "other.txt", "content": "at once"})
    await _until(lambda: bool(workspace._held._holdings))
    (holding,) = workspace._held._holdings
    await _until(lambda: bool(holding.bound_files))
    # Our own write waits for the start to be over instead of ending it.
    await workspace.run("write_file", {"path": "x.py", "content": "print('new')\n"})
    assert holding.over.is_set()
    place.file("go")
    assert (await running).stdout == "up\ndone\n"
    assert (place.root / "x.py").read_text() == "print('new')\n"


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_write_waits_also_for_a_command_that_began_to_start_while_it_looked_where_to_write(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file("x.py", GOOD)
    look, held = workspace._real, AsyncExitStack()

    async def look_while_a_command_starts(path: str) -> str:
        await held.enter_async_context(workspace._held.hold({"x.py": sha(GOOD)}))
        return await look(path)

    monkeypatch.setattr(workspace, "_real", look_while_a_command_starts)
    writing = asyncio.ensure_future(workspace.run("write_file", {"path": "x.py", "content": "new"}))
    await asyncio.wait([writing], timeout=0.2)
    assert (place.root / "x.py").read_bytes() == GOOD
    await held.aclose()
    assert (await writing).success


async def test_a_write_of_something_that_is_no_file_does_not_wait(workspace: Workspace, place: Place) -> None:
    place.file("x.py", GOOD)
    (place.root / "out").symlink_to(place.outside / "secret.txt")
    async with workspace._held.hold({"x.py": sha(GOOD)}):
        free = [asyncio.ensure_future(workspace._held.free(path)) for path in ("new.txt", "out", "\x00")]
        done, _ = await asyncio.wait(free, timeout=10)
        assert [task.exception() for task in done] == [None, None, None]
        held = asyncio.ensure_future(workspace._held.free("x.py"))
        assert not (await asyncio.wait([held], timeout=0.05))[0]
    await held


async def test_a_cancelled_command_is_cancelled_and_not_drifted(workspace: Workspace, place: Place) -> None:
    place.file("x.py", SLOW)
    up = asyncio.Event()
    running = asyncio.create_task(
        workspace.run(
            "execute_command",
            call("python", "x.py"),
            bound={"x.py": sha(SLOW)},
            on_output=lambda stream, text: up.set(),
        )
    )
    await up.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not workspace._held._holdings


async def test_beside_another_command_the_file_is_watched_instead_of_covered(
    workspace: Workspace, place: Place
) -> None:
    place.file("slow.py", SLOW)
    place.file("x.py", GOOD)
    up = asyncio.Event()
    other = asyncio.create_task(
        workspace.run("execute_command", call("python", "slow.py"), on_output=lambda stream, text: up.set())
    )
    await up.wait()
    result = await run(workspace, {"x.py": sha(GOOD)}, "python", "x.py")
    assert result.stdout == "good []\n"
    assert any("x.py was checked and watched" in said for said in result.isolation["degraded"])
    place.file("y.py", SLOW)
    with pytest.raises(DriftedError, match=r"y\.py"):
        await workspace.run(
            "execute_command",
            call("python", "y.py"),
            bound={"y.py": sha(SLOW)},
            on_output=lambda stream, text: place.file("y.py", EVIL) and None,
        )
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    covered = await run(workspace, {"x.py": sha(GOOD)}, "python", "x.py")
    assert not any("watched" in said for said in covered.isolation["degraded"])


async def test_without_a_sandbox_the_file_is_checked_and_watched(place: Place, workspace: Workspace) -> None:
    place.file("x.py", GOOD)
    held = HeldFiles(workspace._paths)
    executor = CommandExecutor(
        place.root, NoSandbox(place.root, reason="none"), ClientSettings(home=place.root), workspace._paths, held
    )
    line = understand("python", ["x.py"])
    assert (await executor.run(line, 30, bound={"x.py": sha(GOOD)})).stdout == "good []\n"
    with pytest.raises(DriftedError):
        await executor.run(line, 30, bound={"x.py": sha(EVIL)})
    place.file("x.py", SLOW)
    with pytest.raises(DriftedError, match="it was ended while it started"):
        await executor.run(
            line,
            30,
            bound={"x.py": sha(SLOW)},
            on_output=lambda stream, text: place.file("x.py", EVIL) and None,
        )
    bare = CommandExecutor(place.root, NoSandbox(place.root, reason="none"), ClientSettings(home=place.root))
    with pytest.raises(ToolFailure, match="cannot be checked"):
        await bare.run(line, 30, bound={"x.py": sha(GOOD)})


@pytest.mark.parametrize("flags", [os.O_PATH, os.O_PATH | os.O_DIRECTORY, inspection_module._READ])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.ENOENT, errno.ELOOP])
async def test_file_that_cannot_be_opened_is_no_changed_file(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch, flags: int, number: int
) -> None:
    place.file("x.py", GOOD)
    opening, paths = PathValidator.open_raw, workspace._paths

    def fail(self: PathValidator, relative: str, wanted: int, mode: int = 0) -> int:
        if wanted == flags:
            raise OSError(number, os.strerror(number))
        return opening(self, relative, wanted, mode)

    holding = Holding(paths, {"x.py": sha(GOOD)}, watch=True, max_bytes=1024)
    monkeypatch.setattr(PathValidator, "open_raw", fail)
    try:
        with pytest.raises(ByleaveError) as caught:
            holding.take()
    finally:
        holding.close()
    drifts = number in (errno.ENOENT, errno.ELOOP)
    assert isinstance(caught.value, DriftedError) is drifts
    assert drifts or ("changed" not in caught.value.message and "othing was run." in caught.value.message)
    assert number != errno.EMFILE or os.strerror(number) in caught.value.message


async def test_copy_of_a_file_that_finds_no_descriptor_is_no_changed_file(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    place.file("x.py", GOOD)
    monkeypatch.setattr(os, "memfd_create", fail)
    with pytest.raises(ToolFailure, match=r"Too many open files. Nothing was run\."):
        await run(workspace, {"x.py": sha(GOOD)}, "python", "x.py")


@pytest.mark.parametrize("call_that_fails", ["inotify_init1", "inotify_add_watch"])
async def test_where_files_cannot_be_watched_nothing_is_run(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch, call_that_fails: str
) -> None:
    place.file("x.py", GOOD)
    monkeypatch.setattr(pins_module._libc, call_that_fails, lambda *args: -1)
    with pytest.raises(ToolFailure, match="cannot be watched"):
        await run(workspace, {"x.py": sha(GOOD)}, "python", "x.py")
    assert not workspace._held._holdings


def test_the_sandbox_of_this_machine_is_the_real_one(workspace: Workspace) -> None:
    assert isinstance(workspace.sandbox, BubblewrapSandbox)
