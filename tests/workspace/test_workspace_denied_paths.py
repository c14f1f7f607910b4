"""The owner's floor on a real disk: what the rules deny is left out, let go of and covered, whatever leads there."""

import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from byleave.gate import NO_POLICY, Policy, parse_policy, understand
from byleave.gate.paths import directory_of, path_fits
from byleave.policy_files import load_policy
from byleave.protocol.errors import ByleaveError, ConfigurationError, PathValidationError, RefusedError
from byleave.protocol.overview import Layer
from byleave.protocol.tools import (
    ExecuteCommandResult,
    ListDirectoryResult,
    ReadFileParams,
    SearchFilesResult,
    WriteFileParams,
    WriteFileResult,
)
from byleave.settings import ClientSettings
from byleave.workspace import denied_paths as denials_module
from byleave.workspace import denied_paths as floor_module
from byleave.workspace.denied_paths import Denials, DeniedPaths, GuardedPaths
from byleave.workspace.files.executor import FileSystemExecutor
from byleave.workspace.paths import PathValidator
from byleave.workspace.stopping import CommandTimeout
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("G9", "S")

Obeying = Callable[..., Awaitable[Workspace]]


def policy(*paths: str, tool: str | None = None, more: str = "") -> Policy:
    """One rule that denies these paths."""
    named = f'tool = "{tool}"\n' if tool else ""
    text = f'[[rule]]\naction = "deny"\n{named}paths = {json.dumps(paths)}\n{more}'
    return Policy((parse_policy(text, Layer.USER, source="policy.toml"),))


@pytest.fixture
async def obeying(place: Place, settings: ClientSettings) -> AsyncIterator[Obeying]:
    """A workspace under rules."""
    made: list[Workspace] = []

    async def make(*paths: str, **parts: str) -> Workspace:
        workspace = Workspace(place.root, settings)
        made.append(workspace)
        workspace.obey(policy(*paths, **parts))
        return workspace

    yield make
    for workspace in made:
        await workspace.close()


@pytest.fixture
def paths(place: Place) -> Iterator[PathValidator]:
    validator = PathValidator(place.root)
    yield validator
    validator.close()


async def python(workspace: Workspace, script: str, *, record_as: str | None = None) -> ExecuteCommandResult:
    params = {"command": "python", "args": ["-c", script]}
    result = await workspace.run("execute_command", params, record_as=record_as)
    assert isinstance(result, ExecuteCommandResult)
    return result


async def kept_out(workspace: Workspace, *scripts: str) -> None:
    """Each script must end in an OSError, inside the real sandbox."""
    probe = (
        "import json, os, sys\n"
        f"for script in json.loads({json.dumps(scripts)!r}):\n"
        "    try: exec(script)\n"
        "    except OSError as error: print('KEPT OUT', script, error)\n"
        "    else: print('DONE', script)\n"
    )
    result = await python(workspace, probe)
    assert result.exit_code == 0, result.stderr
    assert "DONE" not in result.stdout, result.stdout
    assert result.stdout.count("KEPT OUT") == len(scripts)


# Patterns


GLOBS = [
    *("a", "a/", "a/**", "/a", "./a/b", "*.pem", "?.txt", "a*", "*b*", "a*c", "**/b", "a/**/c", "a/*/c", "**/b/**"),
    *("B.Pem", "x.", "*", "**", "/*", "a/**/b/**", "*.tar.gz", "a b", "ﬁle"),
]
NAMES = ["a", "A", "b", "c", "x", "x.", "x.pem", "X.PEM", "b.pem", "abc", "a.txt", "A b", "x.tar.gz", "file", "ab"]


def test_a_pattern_means_here_what_it_means_to_the_gate() -> None:
    chosen = random.Random(4)
    for _ in range(4000):
        glob = chosen.choice(GLOBS)
        path = "/".join(chosen.choices(NAMES, k=chosen.randint(1, 4)))
        above = [path[:end] for end in (*(at for at, letter in enumerate(path) if letter == "/"), len(path))]
        wanted = any(path_fits(glob, one, careless=True) or directory_of(one, glob) for one in above)
        assert Denials([glob]).forbid(path) is wanted, (glob, path)


def test_many_patterns_forbid_what_one_of_them_forbids() -> None:
    chosen, together = random.Random(5), Denials(GLOBS[:12])
    alone = [Denials([glob]) for glob in GLOBS[:12]]
    for _ in range(2000):
        path = "/".join(chosen.choices(NAMES, k=chosen.randint(1, 4)))
        assert together.forbid(path) is any(one.forbid(path) for one in alone), path


@pytest.mark.parametrize("path", ["a:b", "A:B/c", "end.", "END./x", "back\\slash"])
def test_names_that_a_careless_file_system_would_cut_short_are_forbidden_as_they_stand(path: str) -> None:
    assert Denials(["a:b", "end.", "back\\slash"]).forbid(path)


def test_what_is_remembered_of_names_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials_module, "_MOST_REMEMBERED", 3)
    monkeypatch.setattr(denials_module, "_MOST_PLACES", 2)
    denied = Denials(["*.pem", "a/b/c/d"])
    for number in range(20):
        assert not denied.forbid(f"a/b/c/{number}.txt")
        assert denied.forbid(f"a/{number}.pem")
    assert denied.forbid("a/b/c/d/e")


def test_only_denials_of_paths_alone_are_part_of_the_floor() -> None:
    text = """
[[rule]]
action = "deny"
command = ["cat"]
paths = ["one"]
[[rule]]
action = "deny"
options = ["--force"]
paths = ["two"]
[[rule]]
action = "ask"
paths = ["three"]
[[rule]]
action = "deny"
tool = "write_file"
paths = ["four"]
[[rule]]
action = "deny"
paths = ["five"]
"""
    floor = DeniedPaths(Policy((parse_policy(text, Layer.USER, source="x"),)))
    assert [name for name in ("one", "two", "three", "four", "five") if floor.forbids(name, "execute_command")] == [
        "five"
    ]
    assert [name for name in ("four", "five") if floor.forbids(name, "write_file")] == ["four", "five"]
    assert DeniedPaths(NO_POLICY).guards.get("read_file") is None


# What is covered


def test_a_directory_is_covered_whole_and_names_are_found_anywhere(place: Place, paths: PathValidator) -> None:
    for name in ("private/a/key.txt", "src/x.pem", "src/deep/Y.PEM", "src/deep/z.txt", "x.pem/inside.txt"):
        place.file(name)
    floor = DeniedPaths(policy("private/**", "*.pem"))
    assert floor.masked(paths) == ["private", "src/deep/Y.PEM", "src/x.pem", "x.pem"]
    assert DeniedPaths(policy("src/*/z.*")).masked(paths) == ["src/deep/z.txt"]
    assert DeniedPaths(policy("absent/**", "/key.txt")).masked(paths) == []
    assert DeniedPaths(NO_POLICY).masked(paths) == []


def test_what_no_rule_can_reach_is_not_walked(place: Place, paths: PathValidator) -> None:
    for number in range(50):
        place.file(f"big/{number}.txt")
    place.file("private/key.txt")
    assert DeniedPaths(policy("private/**", "/other/x")).masked(paths, max_entries=3) == ["private"]


@pytest.mark.promise("G1")
def test_a_denied_link_is_covered_where_it_leads(place: Place, paths: PathValidator) -> None:
    for name in ("config/real.txt", "config/whole.txt", "other/b/key.txt", "private/key.txt"):
        place.file(name)
    (place.root / "whole.pem").symlink_to(place.root / "config" / "whole.txt")
    (place.root / "known.pem").symlink_to("private/key.txt")
    (place.root / "key.pem").symlink_to("config/real.txt")
    (place.root / "out.pem").symlink_to(place.outside / "secret.txt")
    (place.root / "nowhere.pem").symlink_to("absent")
    (place.root / "a").symlink_to("other")
    (place.root / "other" / "loop").symlink_to("../other")
    assert DeniedPaths(policy("*.pem", "a/b/key.txt", "**/loop/x", "private/**")).masked(paths) == [
        "config/real.txt",
        "config/whole.txt",
        "other/b/key.txt",
        "private",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every directory")
def test_what_cannot_be_looked_into_is_covered(place: Place, paths: PathValidator) -> None:
    place.file("closed/x.pem")
    (place.root / "closed").chmod(0o000)
    try:
        assert DeniedPaths(policy("*.pem")).masked(paths) == ["closed"]
    finally:
        (place.root / "closed").chmod(0o700)


class Shy(PathValidator):
    """A disk on which some directories cannot be opened."""

    def open_child(self, dir_fd: int, name: str, flags: int) -> int:
        if name == "closed":
            raise PermissionError
        if name == "gone":
            raise FileNotFoundError
        return super().open_child(dir_fd, name, flags)

    def open_exact(self, relative: str, flags: int) -> int:
        if relative == "shut":
            raise PermissionError
        return super().open_exact(relative, flags)


def test_what_could_not_be_opened_is_covered_and_what_is_gone_is_not(place: Place) -> None:
    for name in ("closed/x.txt", "gone/x.txt", "open/x.pem", "shut/x.txt"):
        place.file(name)
    (place.root / "a").symlink_to("shut")
    (place.root / "b").symlink_to("open")
    validator = Shy(place.root)
    assert DeniedPaths(policy("*.pem")).masked(validator) == ["closed", "open/x.pem", "shut"]
    validator.close()


@pytest.mark.parametrize("bound", [{"max_entries": 20}, {"seconds": -1.0}])
def test_too_much_to_look_through_is_an_error_that_names_the_rule(
    place: Place, paths: PathValidator, bound: JsonObject
) -> None:
    for number in range(30):
        place.file(f"big/{number}.txt")
    with pytest.raises(RefusedError, match=r"Rule user\.1 denies '\*\.pem'.*nothing was run") as caught:
        DeniedPaths(policy("private/**", "*.pem")).masked(paths, **bound)
    assert "narrower" in (caught.value.hint or "")


def test_too_deep_is_too_much(place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor_module, "MAX_DEPTH", 2)
    place.file("a/b/c/d.txt")
    with pytest.raises(RefusedError, match="too much"):
        DeniedPaths(policy("*.pem")).masked(paths)


def test_a_rule_about_everything_lets_no_command_run(place: Place, paths: PathValidator) -> None:
    with pytest.raises(RefusedError, match="denies the whole workspace"):
        DeniedPaths(policy("**")).masked(paths)
    (place.root / "x.pem").symlink_to(".")
    with pytest.raises(RefusedError, match="links to the whole workspace"):
        DeniedPaths(policy("*.pem")).masked(paths)


# Commands, in the real sandbox


@pytest.mark.promise("T3")
async def test_no_command_can_open_what_is_denied(obeying: Obeying, place: Place) -> None:
    place.file("private/key.txt", "mine")
    place.file("src/x.pem", "mine")
    place.file("src/app.txt", "free")
    (place.root / "door").symlink_to("private")
    (place.root / "key").symlink_to("private/key.txt")
    place.file("config/real.txt", "mine")
    (place.root / "whole.pem").symlink_to(place.root / "config" / "real.txt")
    workspace = await obeying("private/**", "*.pem")
    await kept_out(
        workspace,
        "open('whole.pem').read()",
        "open('private/key.txt').read()",
        "open('key').read()",
        "os.listdir('door')",
        "open('src/x.pem').read()",
        "open('src/x.pem', 'w')",
        "open('private/new.txt', 'w')",
        "os.unlink('src/x.pem')",
        "os.link('src/x.pem', 'src/y.txt')",
        "os.rename('src/x.pem', 'src/y.txt')",
        "os.rename('private', 'public')",
        "os.rename('src', 'other')",
        f"open({str(place.root / 'private/key.txt')!r}).read()",
        "open('/proc/self/cwd/private/key.txt').read()",
    )
    result = await python(workspace, "print(open('src/app.txt').read()); open('src/new.txt', 'w').write('x')")
    assert (result.stdout, result.warnings) == ("free\n", [])
    assert (place.root / "private" / "key.txt").read_text() == (place.root / "src" / "x.pem").read_text() == "mine"


@pytest.mark.promise("T3")
@pytest.mark.parametrize(
    "params",
    [
        {"command": "cat", "args": ["key"]},
        {"command": "grep", "args": ["-r", "mine", "."]},
        {"command": "head", "args": ["src/x.pem"]},
        {"command": "tar", "args": ["-cf", "all.tar", "private", "src"]},
    ],
)
async def test_reading_commands_meet_the_cover_too(obeying: Obeying, place: Place, params: JsonObject) -> None:
    place.file("private/key.txt", "mine")
    place.file("src/x.pem", "mine")
    (place.root / "key").symlink_to("private/key.txt")
    result = await (await obeying("private/**", "*.pem")).run("execute_command", params)
    assert isinstance(result, ExecuteCommandResult)
    assert "mine" not in result.stdout
    packed = place.root / "all.tar"
    assert not packed.exists() or b"mine" not in packed.read_bytes()


async def test_name_that_is_no_text_hides_nothing_from_the_rules(obeying: Obeying, place: Place) -> None:
    root = os.fsencode(place.root)
    os.mkdir(root + b"/d\xff")
    for name in (b"/d\xff.key", b"/d\xff/a.key", "/\ufffd.key".encode(), b"/d\xff.txt"):
        Path(os.fsdecode(root + name)).write_text("hidden" if name.endswith(b".key") else "plain")
    look = (
        "import os\n"
        "for place, _, names in os.walk(b'.'):\n"
        "    for name in names:\n"
        "        try: print(open(os.path.join(place, name)).read())\n"
        "        except OSError: pass\n"
    )
    workspace = await obeying("**/*.key")
    result = await workspace.run("execute_command", {"command": "python", "args": ["-c", look]})
    assert isinstance(result, ExecuteCommandResult)
    assert result.stdout.split() == ["plain"]


@pytest.mark.promise("T3")
async def test_a_script_that_is_bound_meets_the_cover_too(obeying: Obeying, place: Place) -> None:
    place.file("private/key.txt", "mine")
    place.file("x.py", "print(open('private/key.txt').read())")
    workspace = await obeying("private/**")
    params = {"command": "python", "args": ["x.py"]}
    looked = await workspace.inspect(understand("python", ["x.py"]))
    bound = {file.path: file.sha256 for file in looked.files}
    result = await workspace.run("execute_command", params, bound=bound)
    assert isinstance(result, ExecuteCommandResult)
    assert (result.exit_code, "PermissionError" in result.stderr, result.stdout) == (1, True, "")


async def test_a_rule_about_another_tool_does_not_bind_commands(obeying: Obeying, place: Place) -> None:
    place.file("migrations/1.txt", "made by a command")
    workspace = await obeying("migrations/**", tool="write_file")
    assert (await python(workspace, "print(open('migrations/1.txt').read())")).stdout == "made by a command\n"
    with pytest.raises(PathValidationError):
        await workspace.run("write_file", {"path": "migrations/2.txt", "content": "x"})
    assert (await workspace.run("read_file", {"path": "migrations/1.txt"})).success


async def test_what_a_command_makes_where_it_is_denied_is_told(obeying: Obeying, place: Place) -> None:
    workspace = await obeying("private/**", "*.pem")
    script = "import os\nfor n in range(12): open(f'{n:02}.pem', 'w')\nos.mkdir('private')"
    told = (await python(workspace, script, record_as="tool_1")).warnings
    assert told[0] == "It made '00.pem', which this machine's rules deny; look at it."
    assert (len(told), told[-1]) == (11, "It made 3 more that are denied.")
    assert (await python(workspace, "pass")).warnings == []


async def test_what_it_made_is_told_of_a_command_that_ran_out_of_time_too(obeying: Obeying, place: Place) -> None:
    workspace = await obeying("*.pem")
    script = "import time\nopen('x.pem', 'w').close()\ntime.sleep(30)"
    with pytest.raises(CommandTimeout) as caught:
        await workspace.run("execute_command", {"command": "python", "args": ["-c", script], "timeout": 1})
    assert caught.value.partial is not None
    assert "x.pem" in caught.value.partial.warnings[0]


async def test_where_it_cannot_be_looked_at_afterwards_that_is_told(
    obeying: Obeying, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = await obeying("*.pem")
    monkeypatch.setattr(floor_module, "MAX_DEPTH", 1)
    told = (await python(workspace, "import os; os.makedirs('a/b/c')")).warnings
    assert "could not be looked at" in told[0]
    with pytest.raises(RefusedError, match="too much"):
        await python(workspace, "pass")


@pytest.mark.parametrize("sandbox", ["none", "landlock"])
async def test_where_nothing_can_be_covered_no_command_runs_beside_what_is_denied(
    place: Place, settings: ClientSettings, sandbox: str
) -> None:
    workspace = Workspace(place.root, settings.model_copy(update={"sandbox": sandbox}))
    workspace.obey(policy("*.pem"))
    try:
        assert (await python(workspace, "print(1)")).stdout == "1\n"
        place.file("x.pem", "mine")
        with pytest.raises(RefusedError, match="nothing keeps a command from it; nothing was run"):
            await python(workspace, "open('x.pem')")
    except ConfigurationError:
        pytest.skip(f"{sandbox} does not work here")
    finally:
        await workspace.close()


@pytest.mark.parametrize("sandbox", ["none", "landlock"])
async def test_where_the_projects_rules_cannot_be_protected_no_command_runs_that_could_change_them(
    place: Place, settings: ClientSettings, sandbox: str
) -> None:
    rules = place.file(".byleave/policy.toml", "commands = []\n")
    workspace = Workspace(place.root, settings.model_copy(update={"sandbox": sandbox}))
    try:
        with pytest.raises(RefusedError, match=r"rules in '\.byleave/policy\.toml'.*nothing was run") as caught:
            await python(workspace, "open('.byleave/policy.toml', 'w')")
        assert "bubblewrap" in (caught.value.hint or "")
        assert rules.read_text() == "commands = []\n"
        reading = await workspace.run("execute_command", {"command": "cat", "args": [".byleave/policy.toml"]})
        assert reading.success, "what only reads goes on"
        rules.unlink()
        assert (await python(workspace, "print(1)")).stdout == "1\n", "there is nothing to loosen"
    except ConfigurationError:
        pytest.skip(f"{sandbox} does not work here")
    finally:
        await workspace.close()


# The file tools


@pytest.mark.promise("T1", "T2", "T4", "T5", "G1")
@pytest.mark.parametrize(
    "path", ["private/key.txt", "door/key.txt", "key", "Private/KEY.TXT", "./src/../private/key.txt"]
)
async def test_no_spelling_and_no_link_opens_what_is_denied(obeying: Obeying, place: Place, path: str) -> None:
    place.file("private/key.txt", "mine")
    place.file("src/a.txt")
    (place.root / "door").symlink_to("private")
    (place.root / "key").symlink_to("private/key.txt")
    workspace = await obeying("private/**", more='because = "Private."')
    parent = path.rpartition("/")[0] if "/" in path else "door"
    for tool, params in (
        ("read_file", {"path": path}),
        ("write_file", {"path": path, "content": "x"}),
        ("write_file", {"path": f"{parent}/new.txt", "content": "x"}),
        ("list_directory", {"path": parent}),
        ("search_files", {"path": path, "pattern": "mine"}),
    ):
        with pytest.raises(PathValidationError, match=r"denied by rule user\.1\. Private\."):
            await workspace.run(tool, params)
    assert sorted(os.listdir(place.root / "private")) == ["key.txt"]
    assert not (place.root / "Private").exists()


async def test_writes_beside_what_is_denied_are_recorded_as_ever(obeying: Obeying, place: Place) -> None:
    place.file("private/key.txt", "mine")
    workspace = await obeying("private/**")
    result = await workspace.run("write_file", {"path": "a.txt", "content": "x"}, record_as="tool_1")
    assert isinstance(result, WriteFileResult)
    assert (result.size, result.warnings) == (1, [])
    with pytest.raises(PathValidationError):
        await workspace.run("write_file", {"path": "private/key.txt", "content": "x"}, record_as="tool_2")


@pytest.mark.promise("T4", "T5")
async def test_listings_and_searches_leave_out_what_is_denied(obeying: Obeying, place: Place) -> None:
    for name in ("private/key.txt", "src/x.pem", "src/a.txt"):
        place.file(name, "mine")
    workspace = await obeying("private/**", "*.pem")
    listed = await workspace.run("list_directory", {"path": ".", "recursive": True})
    assert isinstance(listed, ListDirectoryResult)
    assert [entry.path for entry in listed.files] == ["src", "src/a.txt"]
    found = await workspace.run("search_files", {"path": ".", "pattern": "mine"})
    assert isinstance(found, SearchFilesResult)
    assert [match.path for match in found.matches] == ["src/a.txt"]


async def test_listing_does_not_tell_how_large_what_is_denied_behind_a_link_is(obeying: Obeying, place: Place) -> None:
    place.file("private/key", "x" * 999)
    place.file("open/a", "12345")
    (place.root / "open/link").symlink_to("../private/key")
    (place.root / "open/near").symlink_to("a")
    listed = await (await obeying("private/**")).run("list_directory", {"path": "open"})
    assert isinstance(listed, ListDirectoryResult)
    assert {entry.name: entry.size for entry in listed.files} == {"a": 5, "link": len("../private/key"), "near": 5}


@pytest.mark.promise("G1")
def test_a_link_swapped_after_the_look_opens_nothing_denied(place: Place, paths: PathValidator) -> None:
    """The guards alone, as after a lost race: they ask where the open descriptor lies."""
    place.file("private/key.txt", "mine")
    place.file("free/x.txt", "free")
    (place.root / "door").symlink_to("private")
    (place.root / "way").symlink_to("free")
    forbidden = Denials(["private/**", "free/new.txt"]).forbid
    guarded = GuardedPaths(paths, forbidden)
    files = FileSystemExecutor(guarded, max_file_bytes=1000)
    try:
        for call in (
            lambda: files.read_now(ReadFileParams(path="door/key.txt")),
            lambda: files.write_now(WriteFileParams(path="door/key.txt", content="x")),
            lambda: files.write_now(WriteFileParams(path="door/new.txt", content="x")),
            lambda: files.write_now(WriteFileParams(path="way/new.txt", content="x")),
        ):
            with pytest.raises(ByleaveError):
                call()
        for opening in (guarded.open_exact, guarded.open_raw):
            with pytest.raises(PermissionError):
                opening("private", os.O_PATH)
        assert guarded.open_cached("absent", os.O_RDONLY) is None
        assert files.read_now(ReadFileParams(path="way/x.txt")).content == "free"
        assert files.write_now(WriteFileParams(path="way/y.txt", content="x")).path == "free/y.txt"
    finally:
        files.close()
        guarded.close()
    assert (place.root / "private" / "key.txt").read_text() == "mine"
    assert sorted(os.listdir(place.root / "free")) == ["x.txt", "y.txt"]


def test_guards_let_go_of_what_they_refuse(place: Place, paths: PathValidator, monkeypatch: pytest.MonkeyPatch) -> None:
    place.file("x.pem")
    guarded = GuardedPaths(paths, Denials(["*.pem"]).forbid)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PermissionError):
        guarded.open_raw("x.pem", os.O_RDONLY)

    def lost(_: int) -> str:
        raise OSError("lost")

    monkeypatch.setattr(guarded, "real_path", lost)
    with pytest.raises(OSError, match="lost"):
        guarded.open_raw("x.pem", os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before
    guarded.close()


async def test_a_denied_script_behind_a_link_is_not_shown(obeying: Obeying, place: Place) -> None:
    place.file("private/x.py", "print('mine')")
    (place.root / "x.py").symlink_to("private/x.py")
    workspace = await obeying("private/**")
    seen = await workspace.inspect(understand("python", ["x.py"]))
    assert seen.problem
    assert "mine" not in seen.model_dump_json()


# Byleave's own files


@pytest.fixture
async def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workspace]:
    """A workspace that holds everything: the state directory and the place of the user's rules."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "ws" / ".config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "ws" / ".local" / "share"))
    root = tmp_path / "ws"
    (root / "state").mkdir(parents=True)
    (root / "state" / "token").write_text("a.b.c")
    (root / "notes.txt").write_text("free")
    settings = ClientSettings(home=root / "state")
    assert [rule.text for rule in load_policy(settings, root).policy.layers[0].rules] == [
        "deny in state",
        "deny in .local/share/byleave",
        "deny in .config/byleave",
    ]
    workspace = Workspace(root, settings)
    yield workspace
    await workspace.close()


@pytest.mark.parametrize(
    ("tool", "params"),
    [
        ("read_file", {"path": "state/token"}),
        ("write_file", {"path": "state/trusted.json", "content": "{}"}),
        ("write_file", {"path": ".config/byleave/policy.toml", "content": ""}),
        ("list_directory", {"path": "state"}),
        ("search_files", {"path": "state", "pattern": "a"}),
        ("read_file", {"path": "State/token"}),
        ("read_file", {"path": "door/token"}),
    ],
)
async def test_no_tool_touches_byleaves_own_files(at_home: Workspace, tool: str, params: JsonObject) -> None:
    (at_home.root / "door").symlink_to("state")
    with pytest.raises(PathValidationError, match="Byleave's own files"):
        await at_home.run(tool, params)


async def test_no_command_touches_byleaves_own_files(at_home: Workspace) -> None:
    await kept_out(
        at_home,
        "open('state/token').read()",
        "open('state/trusted.json', 'w')",
        "os.makedirs('.config/byleave', exist_ok=True); open('.config/byleave/policy.toml', 'w')",
        "os.rename('.config', 'old')",
        "os.rename('state', 'old')",
        "open('.local/share/byleave/token', 'w')",
    )
    assert (await python(at_home, "print(open('notes.txt').read())", record_as="tool_1")).stdout == "free\n"
    listed = await at_home.run("list_directory", {"path": "."})
    assert isinstance(listed, ListDirectoryResult)
    assert [entry.path for entry in listed.files] == ["notes.txt"]


async def test_own_files_stay_denied_under_rules_that_do_not_name_them(at_home: Workspace) -> None:
    at_home.obey(policy("*.pem"))
    with pytest.raises(PathValidationError, match="Byleave's own files"):
        await at_home.run("read_file", {"path": "state/token"})


def test_byleaves_own_directory_is_no_workspace(tmp_path: Path) -> None:
    settings = ClientSettings(home=tmp_path / "state")
    for place in ("state", "state/clients/x", "state/undo"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        with pytest.raises(ConfigurationError, match="keeps its own files"):
            Workspace(tmp_path / place, settings)
        with pytest.raises(ConfigurationError, match="keeps its own files"):
            load_policy(settings, tmp_path / place)
