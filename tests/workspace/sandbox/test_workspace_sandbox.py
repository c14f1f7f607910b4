"""What a command cannot do: probes from inside the real sandbox. Each runs Python there and looks at the outside."""

import errno
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from byleave.protocol.errors import PathValidationError, ToolFailure
from byleave.protocol.tools import ExecuteCommandResult
from byleave.workspace.sandbox import backends as backends_module
from byleave.workspace.sandbox import bubblewrap as bubblewrap_module
from byleave.workspace.sandbox import environment as programs_module
from byleave.workspace.sandbox import landlock as landlock_module
from byleave.workspace.sandbox.backends import NoSandbox
from byleave.workspace.sandbox.bubblewrap import BubblewrapSandbox
from byleave.workspace.sandbox.landlock import LandlockSandbox
from byleave.workspace.sandbox.processes import OutputKeeper, run_process
from byleave.workspace.sandbox.protected_names import PROTECTED
from byleave.workspace.sandbox.sandbox import Sandbox, Withheld
from byleave.workspace.workspace import Workspace
from harness.json_values import JsonObject
from harness.lines import understood
from harness.place import Place

pytestmark = pytest.mark.promise("T3", "S")


async def _python(workspace: Workspace, script: str, *, network: bool = False) -> ExecuteCommandResult:
    params = {"command": "python", "args": ["-c", script]}
    result = await workspace.run("execute_command", params, network=network)
    assert isinstance(result, ExecuteCommandResult)
    return result


async def _refused(workspace: Workspace, *scripts: str) -> None:
    """Each script must end in an OSError."""
    probe = (
        "import json, os, socket, subprocess, sys\n"
        "for script in json.loads(sys.argv[1]):\n"
        "    try: exec(script)\n"
        "    except OSError as error: print('KEPT OUT', script, error)\n"
        "    else: print('DONE', script)\n"
    )
    params = {"command": "python", "args": ["-c", probe, json.dumps(scripts)]}
    result = await workspace.run("execute_command", params)
    assert isinstance(result, ExecuteCommandResult)
    assert result.exit_code == 0, result.stderr
    assert "DONE" not in result.stdout, result.stdout
    assert result.stdout.count("KEPT OUT") == len(scripts)


async def test_nothing_outside_can_be_read_or_written(workspace: Workspace, place: Place) -> None:
    (place.root / "link").symlink_to(place.outside)
    outside, home = place.outside, Path.home()
    await _refused(
        workspace,
        f"open({str(outside / 'secret.txt')!r}).read()",
        f"open({str(outside / 'new')!r}, 'w')",
        "open('link/secret.txt').read()",
        "open('link/new', 'w')",
        f"os.listdir({str(home / '.ssh')!r})",
        f"open({str(home / '.bashrc')!r}, 'a')",
        "open('/etc/shadow').read()",
        "open('/usr/bin/evil', 'w')",
        "open('/evil', 'w')",
        "open('/etc/passwd', 'a')",
        "os.listdir('/sys/kernel')",
    )
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


async def test_of_optional_packages_only_those_of_programs_are_there(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap_module, "optional_packages", lambda: ("/opt/needed",))
    script = "import os; print([name for name in ('/opt', '/srv', '/mnt', '/usr/etc', '/usr/local/etc')"
    script += " if os.path.isdir(name) and os.listdir(name)])"
    assert (await _python(workspace, script)).stdout == "[]\n"


async def test_of_the_machines_users_and_hosts_only_its_own_are_named(workspace: Workspace, place: Place) -> None:
    script = "import grp, os, pwd, socket; print(sorted({user.pw_uid for user in pwd.getpwall()}))"
    script += "; print({group.gr_gid for group in grp.getgrall() if group.gr_mem}, pwd.getpwuid(os.getuid()).pw_uid)"
    script += "; print({line.split()[0] for line in open('/etc/hosts')}, socket.gethostbyname('localhost'))"
    users, members, hosts = (await _python(workspace, script)).stdout.splitlines()
    needed = {0, 65534, os.geteuid(), place.root.stat().st_uid}
    assert set(json.loads(users)) <= needed
    assert members == f"set() {os.geteuid()}"
    assert hosts in ("{'127.0.0.1', '::1'} 127.0.0.1", "{'::1', '127.0.0.1'} 127.0.0.1")


@pytest.mark.parametrize("backend", [BubblewrapSandbox, LandlockSandbox])
async def test_only_what_a_toolchain_needs_is_readable(
    place: Place, monkeypatch: pytest.MonkeyPatch, backend: Callable[[Path], Sandbox]
) -> None:
    tools = place.outside / "conda"
    needed = ["bin/tool", "include/a.h", "lib/code.js", "share/a.txt", "ssl/cacert.pem"]
    beside = [".condarc", "conda-meta/state", "envs/other/.env", "etc/npmrc", "pkgs/x/y", "ssl/private/key.pem"]
    for name in (*needed, *beside):
        (tools / name).parent.mkdir(parents=True, exist_ok=True)
        (tools / name).write_text("needle")
    (tools / "lib64").symlink_to("lib")
    (tools / "libexec").symlink_to(place.outside)  # with secret.txt
    chains = (*programs_module.usable_toolchains(place.root), programs_module.Toolchain(tools, tools / "bin"))
    for module in (bubblewrap_module, landlock_module):
        monkeypatch.setattr(module, "usable_toolchains", lambda root: chains)
    script = "import sys\nfor path in sys.argv[1:]:\n    try: print(path if open(path).read() else '')\n"
    script += "    except OSError: pass\n"
    paths = [*needed, "lib64/code.js", *beside, "libexec/secret.txt"]
    keeper, sandbox = OutputKeeper(65536), backend(place.root)
    python = programs_module.find_program("python", place.root)
    with sandbox.launch([python, "-c", script, *(f"{tools}/{path}" for path in paths)]) as launch:
        await run_process(launch, keeper, seconds=20)
    assert keeper.captured().stdout.split() == [f"{tools}/{path}" for path in (*needed, "lib64/code.js")]


@pytest.mark.parametrize("backend", [BubblewrapSandbox, LandlockSandbox])
async def test_settings_put_beside_a_toolchain_later_are_not_readable(
    place: Place, monkeypatch: pytest.MonkeyPatch, backend: Callable[[Path], Sandbox]
) -> None:
    tools = place.outside / "node"
    for name in ("bin/tool", "lib/code.js"):
        (tools / name).parent.mkdir(parents=True)
        (tools / name).write_text("needle")
    chains = (programs_module.Toolchain(tools, tools / "bin"),)
    for module in (bubblewrap_module, landlock_module):
        monkeypatch.setattr(module, "usable_toolchains", lambda root: chains)
    sandbox = backend(place.root)

    async def read(*paths: str) -> str:
        keeper = OutputKeeper(65536)
        with sandbox.launch(["/bin/cat", *(f"{tools}/{path}" for path in paths)]) as launch:
            await run_process(launch, keeper, seconds=20)
        return keeper.captured().stdout

    assert await read("bin/tool", "lib/code.js") == "needleneedle"
    (tools / "etc").mkdir()
    (tools / "etc/npmrc").write_text("a token")
    assert await read("lib/code.js", "etc/npmrc") == "needle"


@pytest.mark.promise("S")
@pytest.mark.parametrize("backend", [BubblewrapSandbox, LandlockSandbox])
async def test_files_of_the_owner_beside_programs_are_not_readable(
    place: Place, monkeypatch: pytest.MonkeyPatch, backend: Callable[[Path], Sandbox]
) -> None:
    programs, opt, local = (place.outside / name for name in ("bin", "opt", "local"))
    needed = ["opt/scanner/bin/scan", "opt/scanner/lib/a.js", "local/go/bin/go"]
    beside = ["opt/scanner/conf/scan.properties", "opt/scanner/etc/rc", "opt/other/x", "local/go/config/token"]
    unlinked = ["local/tomcat/conf/users.xml", "local/notes.txt", "local/share/man"]
    for name in (*needed, *beside, *unlinked):
        (place.outside / name).parent.mkdir(parents=True, exist_ok=True)
        (place.outside / name).write_text("needle")
    programs.mkdir()
    for name in (needed[0], needed[2]):
        (programs / Path(name).name).symlink_to(place.outside / name)
    with monkeypatch.context() as here:
        here.setattr(programs_module, "SYSTEM_DIRECTORIES", (str(programs),))
        here.setattr(programs_module, "_OPT", str(opt))
        here.setattr(programs_module, "_LOCAL", str(local))
        packages = programs_module.optional_packages.__wrapped__()
        here.setattr(programs_module, "optional_packages", lambda: packages)
        hidden = programs_module.beside_programs()
    assert packages == (str(local / "go"), str(opt / "scanner"))
    assert {f"{local}/tomcat", f"{local}/notes.txt", "/usr/etc"} <= set(hidden)
    assert not {f"{local}/share", f"{local}/go"} & set(hidden)
    document = next(str(path) for path in Path("/usr/share/doc").rglob("copyright") if path.is_file())
    for module in (bubblewrap_module, landlock_module):
        monkeypatch.setattr(module, "optional_packages", lambda: packages)
        monkeypatch.setattr(module, "beside_programs", lambda: (*hidden, str(Path(document).parent)))
    keeper, sandbox = OutputKeeper(65536), backend(place.root)
    paths = [*(f"{place.outside}/{name}" for name in (*needed, *beside, *unlinked)), document]
    with sandbox.launch(["/usr/bin/head", "-qc6", *paths]) as launch:
        await run_process(launch, keeper, seconds=20)
    assert keeper.captured().stdout == "needle" * len(needed)


def test_package_that_a_program_leads_into_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").symlink_to("/opt/node-22/bin/node")
    (tmp_path / "odd").symlink_to("/opt/alone")
    (tmp_path / "conda").symlink_to("/opt/conda/bin/conda")
    (tmp_path / "ls").symlink_to("/usr/bin/ls")
    monkeypatch.setattr(programs_module, "SYSTEM_DIRECTORIES", (str(tmp_path), str(tmp_path / "missing")))
    conda = programs_module.Toolchain(Path("/opt/conda"), Path("/opt/conda/bin"))
    monkeypatch.setattr(programs_module, "toolchains", lambda: (conda,))
    assert programs_module.optional_packages.__wrapped__() == ("/opt/node-22",)


async def test_kernel_switches_cannot_be_written_even_by_root(workspace: Workspace) -> None:
    await _refused(
        workspace,
        "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
        "os.open('/proc/sysrq-trigger', os.O_WRONLY)",
        "os.open('/proc/sys/user/max_user_namespaces', os.O_WRONLY)",
        "os.open('/proc/self/uid_map', os.O_WRONLY)",
        "os.open('/proc/kmsg', os.O_RDONLY | os.O_NONBLOCK)",
        "os.mkdir('/sys/fs/cgroup/x')",
        "os.open('/dev/vda', os.O_RDONLY)",
        "os.setuid(12345)",
        "os.mknod('dev', 0o60600, os.makedev(254, 0))",
        "os.chroot('/tmp')",
    )


async def test_no_new_namespace_can_be_made(workspace: Workspace) -> None:
    script = "import ctypes; libc = ctypes.CDLL(None); print(libc.unshare(0x10000000), libc.unshare(0x20000))"
    assert (await _python(workspace, script)).stdout == "-1 -1\n"


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_network_is_off_unless_it_was_granted(workspace: Workspace, listener: int) -> None:
    connect = f"socket.create_connection(('127.0.0.1', {listener}), 2)"
    await _refused(workspace, connect)
    granted = await _python(workspace, f"import socket; {connect}; print('connected')", network=True)
    assert granted.stdout == "connected\n"
    assert granted.isolation["net"] == "host"
    names = await _python(workspace, "import os; print(os.path.exists('/etc/resolv.conf'))", network=True)
    assert names.stdout == f"{Path('/etc/resolv.conf').exists()}\n"


async def test_unix_sockets_of_the_machine_are_out_of_reach(workspace: Workspace, place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0byleave-{os.getpid()}")
        server.listen()
        await _refused(
            workspace,
            f"socket.socket(socket.AF_UNIX).connect('\\0byleave-{os.getpid()}')",
            "socket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket')",
            "socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
        )


async def test_environment_holds_nothing_of_the_clients(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLEAVE_TOKEN", "tell-nobody")
    monkeypatch.setenv("LD_PRELOAD_X", "tell-nobody")
    script = "import os; print(dict(os.environ), open('/proc/1/environ').read(), open('/proc/self/environ').read())"
    result = await _python(workspace, script)
    assert result.exit_code == 0, result.stderr
    assert "tell-nobody" not in result.stdout
    assert "GIT_CONFIG_NOSYSTEM" in result.stdout


async def test_other_processes_are_invisible(workspace: Workspace) -> None:
    script = "import os; print(len([name for name in os.listdir('/proc') if name.isdigit()]))"
    assert int((await _python(workspace, script)).stdout) <= 3
    await _refused(workspace, f"os.kill({os.getpid()}, 0)")


async def test_home_and_tmp_are_private_and_forgotten(workspace: Workspace) -> None:
    script = (
        "import os, pathlib; home = pathlib.Path.home(); print(home, os.listdir('/tmp'), (home / 'x').exists())\n"
        "(home / 'x').write_text('x'); pathlib.Path('/tmp/x').write_text('x')"
    )
    for _ in range(2):
        result = await _python(workspace, script)
        assert result.exit_code == 0, result.stderr
        assert result.stdout.endswith("False\n")
        assert "'x'" not in result.stdout


async def test_protected_names_cannot_be_changed_or_made(workspace: Workspace, place: Place) -> None:
    subprocess.run(["git", "init", "-q"], cwd=place.root, check=True)
    place.file(".vscode/settings.json", "{}")
    place.file(".envrc", "x")
    await _refused(
        workspace,
        "open('.git/hooks/pre-commit', 'w')",
        "open('.git/config', 'a')",
        "open('.vscode/tasks.json', 'w')",
        "open('.envrc', 'a')",
        "os.rename('.git', 'old')",
        "os.rename('.vscode', 'old')",
        "os.unlink('.envrc')",
        "open('.byleave/policy.toml', 'w')",
        "os.rmdir('.byleave')",
    )
    assert not (place.root / ".byleave").exists()
    assert {".git", ".vscode", ".envrc"} <= {path.name for path in place.root.iterdir()}


async def test_repository_cannot_be_made_by_anything_but_git(workspace: Workspace, place: Place) -> None:
    await _refused(workspace, "open('.git/config', 'w')", "os.rename('.git', 'x')")
    assert list(place.root.iterdir()) == []


async def test_missing_protected_name_cannot_be_made(workspace: Workspace, place: Place) -> None:
    await _refused(
        workspace,
        *(f"open({name!r}, 'w')" for name in PROTECTED),
        *(f"os.mkdir({name!r})" for name in PROTECTED),
        *(f"os.rename({name!r}, 'x')" for name in PROTECTED),
        *(f"os.rmdir({name!r})" for name in PROTECTED),
        "open('.vscode/tasks.json', 'w')",
    )
    assert list(place.root.iterdir()) == []


async def test_what_a_command_puts_into_a_stub_never_reaches_the_disk(workspace: Workspace, place: Place) -> None:
    script = "import os; os.chmod('.vscode', 0o755); open('.vscode/tasks.json', 'w').write('x')"
    await _python(workspace, script)
    assert list(place.root.iterdir()) == []


async def test_trusted_file_that_git_makes_is_told(workspace: Workspace, place: Place) -> None:
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        place.file(".vscode/tasks.json", "{}")
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *args], cwd=place.root, check=True)
    (place.root / ".vscode/tasks.json").unlink()
    (place.root / ".vscode").rmdir()
    params = {"command": "git", "args": ["checkout", "--", "."]}
    result = await workspace.run("execute_command", params)
    assert isinstance(result, ExecuteCommandResult)
    assert result.isolation["created"] == [".vscode"]


@pytest.mark.parametrize("name", [".git", ".byleave"])
async def test_repository_or_rules_that_are_a_link_are_refused(workspace: Workspace, place: Place, name: str) -> None:
    (place.root / name).symlink_to("../out")
    for command in ("git", "python"):
        with pytest.raises(PathValidationError, match="is a link"):
            await workspace.run("execute_command", {"command": command, "args": ["--version"]})
    assert Workspace(place.root).isolation.isolated


async def test_reading_commands_cannot_write_at_all(workspace: Workspace, place: Place) -> None:
    place.file("x", "x")
    result = await workspace.run("execute_command", {"command": "find", "args": [".", "-name", "x"]})
    assert isinstance(result, ExecuteCommandResult)
    assert (result.stdout, result.isolation["protected"]) == ("./x\n", ["."])
    assert [path.name for path in place.root.iterdir()] == ["x"]
    result = await workspace.run("execute_command", {"command": "find", "args": [".", "-name", "x", "-delete"]})
    assert not (place.root / "x").exists()


@pytest.mark.parametrize(
    ("argv", "reads"),
    [
        (["/usr/bin/ls"], True),
        (["/usr/bin/find", ".", "-name", "x"], True),
        (["/usr/bin/find", ".", "-fprintf", "x"], False),
        (["/usr/bin/find", ".", "-execdir", "x"], False),
        (["/usr/bin/git", "status"], True),
        (["/usr/bin/git", "add", "."], False),
        (["/usr/bin/tar", "tf", "x"], False),
    ],
)
def test_only_commands_that_must_write_get_a_writable_workspace(argv: list[str], reads: bool) -> None:
    assert understood(argv).only_reads is reads


async def test_program_that_only_reads_the_workspace_finds_little_else(place: Place) -> None:
    place.file("x", "x")
    script = "ls -A / /dev /tmp /.home; for n in /dev/x /tmp/x /.home/x /x x; do (: > $n) && echo WRITTEN; done"
    with BubblewrapSandbox(place.root).launch(["/usr/bin/cat", "x"], understood=understood(["cat", "x"])) as launch:
        # A shell in its place, to look around there.
        launch = replace(launch, argv=[*launch.argv[: launch.argv.index("--") + 1], "/bin/sh", "-c", script])
        keeper = OutputKeeper(65536)
        await run_process(launch, keeper, seconds=20)
    found = keeper.captured().stdout
    assert "WRITTEN" not in found
    assert found.split("/dev:\n")[1].split("\n\n")[0] == "null"
    assert not {"root", "home", "opt", "var", "sys", "proc", "run"} & set(found.split("\n\n")[0].split()) - {
        place.root.parts[1]
    }


@pytest.mark.parametrize(
    "line",
    [
        "head -c4 /dev/zero",
        "cat ../x",
        "cat sub/../../x",
        "cat -",
        "cat /dev/stdin",
        "ls /proc/self",
        "grep --file=/dev/stdin",
        "grep -f/dev/stdin x",
        "grep -fwords x",
        "grep -R x .",
        "grep x /a/b=c",
        "touch -r/etc/passwd x",
        "mkdir --parents=/tmp",
        "ln -t/tmp x",
        "ls -L",
        "ls -F",
        "ls --dereference",
        "find -L .",
        "find . -fstype ext4",
        "find -- . -fstype ext4",
        "find . -printf %F",
        "find . -xtype l",
        "find . -delete",
        "cat away",
        "ls away/",
        "ls -- away/x",
        "cat sub/alias/x",
        "touch {root}/away/x",
        "cat {root}/../x",
        "cat {root}//etc",
        "cat " + "a " * 40,
        "cp a.txt b.txt",
        "locate x",
    ],
)
def test_line_that_is_not_plain_has_what_every_command_has(line: str, place: Place) -> None:
    (place.root / "away").symlink_to("/opt")
    place.file("sub/real/x")
    (place.root / "sub/alias").symlink_to("real")
    argv = f"/usr/bin/{line.format(root=place.root)}".split()
    with BubblewrapSandbox(place.root).launch(argv, understood=understood(argv)) as launch:
        assert "/dev/shm" in launch.argv


@pytest.mark.parametrize(
    "line",
    [
        "cat a.txt",
        "cat {root}/a.txt",
        "cat -n -- -odd",
        "ls",
        "ls -la1 sub {root}",
        "true --anything=/x",
        "echo /x ../y",
        "head -n5 a.txt",
        "tail -n +5 a.txt",
        "grep -rn --include=*.py --exclude-dir=/x a/b=c .",
        "find . -name *.py -mtime -1 -not -type d",
        "touch x",
        "mkdir -p a/b/c",
        "rm -rf a",
        "date +%F",
        "grep -e " + "a" * 200 + " a.txt",
    ],
)
def test_plain_line_has_few_mounts(line: str, place: Place) -> None:
    place.file("sub/x")
    argv = f"/usr/bin/{line.format(root=place.root)}".split()
    with BubblewrapSandbox(place.root).launch(argv, understood=understood(argv)) as launch:
        assert "/dev/shm" not in launch.argv


async def test_program_that_reads_elsewhere_finds_it(workspace: Workspace, place: Place) -> None:
    (place.root / "notes").symlink_to("/etc/alternatives")
    for argv, found in (
        (["/usr/bin/find", ".", "-maxdepth", "0", "-printf", "%F"], ""),
        (["/usr/bin/cat", "/dev/stdin"], ""),
        (["/usr/bin/ls", "-d", "/proc/self"], "/proc/self"),
        (["/usr/bin/ls", "-d", "notes/"], "notes/"),
    ):
        keeper = OutputKeeper(65536)
        with workspace.sandbox.launch(argv, understood=understood(argv)) as launch:
            assert "/dev/shm" in launch.argv
            assert (await run_process(launch, keeper, seconds=20)).exit_code == 0, argv
        assert found in keeper.captured().stdout
    with workspace.sandbox.launch(["/usr/bin/cat", "a.txt"], understood=understood(["cat", "a.txt"])) as launch:
        assert "/dev/shm" not in launch.argv


async def test_program_of_the_workspace_is_held_like_any_other_whatever_its_name(workspace: Workspace) -> None:
    for name in ("cat", "cp"):
        with workspace.sandbox.launch([str(workspace.root / "bin" / name), "a.txt"]) as launch:
            assert "/proc" in launch.argv
            assert launch.isolation.limits == workspace.isolation.limits


async def test_read_only_directory_can_be_copied(workspace: Workspace, place: Place) -> None:
    place.file("shut/a.txt", "a")
    (place.root / "shut").chmod(0o555)
    with workspace.sandbox.launch(
        ["/usr/bin/cp", "-r", "shut", "copy"], understood=understood(["cp", "-r", "shut", "copy"])
    ) as launch:
        assert (await run_process(launch, OutputKeeper(65536), seconds=20)).exit_code == 0


@pytest.mark.parametrize("from_outside", [True, False])
async def test_limits_are_set(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, from_outside: bool) -> None:
    monkeypatch.setattr(bubblewrap_module, "may_limit", lambda uid: from_outside)
    script = "import resource as r; print(r.getrlimit(r.RLIMIT_NPROC)[0], r.getrlimit(r.RLIMIT_CORE)[0])"
    assert (await _python(workspace, script)).stdout == "256 0\n"
    assert (await _python(workspace, "x = bytearray(6 * 1024**3)")).exit_code == 1


@pytest.mark.parametrize("backend", [BubblewrapSandbox, LandlockSandbox, partial(NoSandbox, reason="x")])
@pytest.mark.parametrize("from_outside", [True, False])
async def test_command_nobody_was_asked_about_gets_less_memory(
    place: Place, monkeypatch: pytest.MonkeyPatch, backend: Callable[[Path], Sandbox], from_outside: bool
) -> None:
    monkeypatch.setattr(bubblewrap_module, "may_limit", lambda uid: from_outside)
    sandbox, found = backend(place.root), list[str]()
    for only_reads in (True, False):
        keeper = OutputKeeper(65536)
        with sandbox.launch(["/bin/bash", "-c", "ulimit -d"], withheld=Withheld(only_reads=only_reads)) as launch:
            await run_process(launch, keeper, seconds=20)
        found.append(keeper.captured().stdout.strip())
    assert found == [str(512 * 1024), str(4 * 1024**2)]


@pytest.mark.parametrize("asked", [True, False])
async def test_reading_command_cannot_take_gigabytes(workspace: Workspace, place: Place, asked: bool) -> None:
    place.file("a.txt", "b\na\n")
    params = {"command": "sort", "args": ["--parallel=10000000", "a.txt"]}
    result = await workspace.run("execute_command", params, asked=asked)
    assert isinstance(result, ExecuteCommandResult)
    assert (result.exit_code, "memory" in result.stderr) == (2, True)


async def test_command_cannot_reach_the_status_pipe(workspace: Workspace) -> None:
    result = await _python(workspace, "import os; print(sorted(os.listdir('/proc/self/fd')))")
    assert result.stdout == "['0', '1', '2', '3']\n"  # 3 is the listing itself


def test_isolation_says_what_was_applied(workspace: Workspace) -> None:
    isolation = workspace.isolation
    assert (isolation.isolated, isolation.backend, isolation.fs, isolation.pidns) == (True, "bwrap", "allowlist", True)
    told: JsonObject = isolation.to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["seccomp"] is True
    assert told["runs_as"] == ("root" if os.geteuid() == 0 else "user")
    assert any("root" in words for words in isolation.degraded) is (os.geteuid() == 0)


def test_missing_or_broken_sandbox_is_said_and_not_pretended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LandlockSandbox, "probe", lambda self: "Landlock does not work here: no.")
    monkeypatch.setattr(BubblewrapSandbox, "probe", lambda self: "bubblewrap does not work here: no.")
    isolation = backends_module.choose_sandbox(place.root).isolation(network=True)
    assert (isolation.isolated, isolation.backend, isolation.net) == (False, "none", "host")
    assert isolation.degraded == ("bubblewrap does not work here: no. Landlock does not work here: no.",)

    def missing(name: str, root: Path) -> str:
        raise ToolFailure(f"{name} is not installed on this machine.")

    monkeypatch.setattr(bubblewrap_module, "find_program", missing)
    monkeypatch.setattr(landlock_module, "find_program", missing)
    monkeypatch.setattr(backends_module, "find_program", missing)
    monkeypatch.setattr(programs_module, "find_program", missing)
    assert backends_module.choose_sandbox(place.root).isolation().degraded == (
        "bwrap is not installed on this machine. python is not installed on this machine.",
    )


@pytest.mark.parametrize("fails", ["subprocess.Popen", "os.memfd_create", "os.pidfd_open", "os.pipe"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_sandbox_that_found_no_descriptor_is_tried_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, fails: str, number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    bubblewrap_module._takes_descriptors.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(backends_module, "git_files", lambda root: {".gitconfig": ""})
        patch.setattr(fails, fail)
        with pytest.raises(ToolFailure, match="could not be tried: Too many open files"):
            workspace.sandbox.isolation()
    assert workspace.isolation.backend == "bwrap"


def test_probe_really_runs_something(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = BubblewrapSandbox(place.root)
    assert sandbox.probe() is None
    assert list(place.root.iterdir()) == []
    for part in ("_proc", "_system"):
        # Also what /bin/true itself would do without.
        monkeypatch.setattr(sandbox, part, ["--no-such-option"])
        assert "no-such-option" in (sandbox.probe() or "")
        monkeypatch.setattr(sandbox, part, [])
    monkeypatch.setattr(sandbox, "_bwrap", "/nonexistent")
    assert "nonexistent" in (sandbox.probe() or "")


def test_machine_without_prlimit_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, root: Path) -> str:
        raise ToolFailure(f"{name} is not installed on this machine.")

    monkeypatch.setattr("byleave.workspace.sandbox.sandbox.find_program", missing)
    assert {"data", "cpu"} <= set(BubblewrapSandbox(place.root).isolation().limits)  # bubblewrap needs none
    monkeypatch.setattr(bubblewrap_module, "may_limit", lambda uid: False)
    isolation = BubblewrapSandbox(place.root).isolation()
    assert set(isolation.limits) <= {"pids"}
    assert any("prlimit" in words for words in isolation.degraded)
    assert NoSandbox(place.root, reason="x").isolation().limits == ()


def test_stub_stays_while_another_command_needs_it(place: Place) -> None:
    sandbox = BubblewrapSandbox(place.root)
    with sandbox.launch(["/usr/bin/python"]):
        with sandbox.launch(["/usr/bin/python"]):
            assert (place.root / ".byleave").is_dir()
        assert (place.root / ".byleave").is_dir()
        (place.root / ".byleave" / "policy.toml").write_text("")  # the user, from outside
    assert (place.root / ".byleave" / "policy.toml").exists()
    assert not (place.root / ".git").exists()


def test_name_that_a_running_command_could_swap_is_not_mounted(place: Place) -> None:
    sandbox = BubblewrapSandbox(place.root)
    with sandbox.launch(["/usr/bin/git"], understood=understood(["git"])):
        place.file(".vscode/tasks.json")  # as the first command could
        with sandbox.launch(["/usr/bin/python"]) as second:
            assert ".vscode" not in second.isolation.protected
            assert any(words.startswith(".vscode could be made") for words in second.isolation.degraded)
    with sandbox.launch(["/usr/bin/python"]) as third:
        assert ".vscode" in third.isolation.protected


def test_workspace_that_cannot_hold_a_stub_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = BubblewrapSandbox(place.root)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(ToolFailure, match="could not be protected"), sandbox.launch(["/usr/bin/python"]):
        pass


def test_read_only_workspace_needs_no_stub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", read_only)
    with BubblewrapSandbox(place.root).launch(["/usr/bin/python"]) as launch:
        assert launch.isolation.protected == ()


def test_ordinary_user_needs_nothing_covered_in_proc(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    monkeypatch.setattr(bubblewrap_module.os, "geteuid", lambda: 1000)
    sandbox = BubblewrapSandbox(place.root)
    assert sandbox.isolation().degraded == ()
    assert sandbox.isolation().runs_as == "user"
    assert "/proc/kmsg" not in sandbox._system
