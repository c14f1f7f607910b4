"""`byleave doctor`: checks of this machine, and of the sandbox on this very kernel.

One line per check: ok, warn or fail, the finding, and what to do. The escape probes run in their own temporary
directory; nothing of the user is changed, and no secret is printed. Exit 1 if a check fails.
"""

import asyncio
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Literal

import aiohttp
import typer
from rich.text import Text
from yarl import URL

from byleave.client.api import ServerApi
from byleave.client.identity import load_token
from byleave.client.loopback import loopback_numbers
from byleave.policy_files import load_policy
from byleave.protocol.errors import ByleaveError, ConfigurationError, ToolFailure
from byleave.settings import ClientSettings, SandboxName
from byleave.workspace.sandbox.backends import choose_sandbox
from byleave.workspace.sandbox.conformance import KNOWN_GAPS, Probe, run_conformance
from byleave.workspace.sandbox.environment import command_user, find_program
from byleave.workspace.sandbox.sandbox import Isolation, Sandbox

from .options import AgentsDir, AsJson, ExitCode, new_app
from .places import running_note
from .process import existing_directory, in_loop, read_settings, set_up_logging
from .screen import put, put_json, shown

app = new_app()


Level = Literal["ok", "warn", "fail"]
_STYLES: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_SERVER_SECONDS = 5
_CLOCK_WARN, _CLOCK_FAIL = 5, 60
_MEGABYTE = 1024 * 1024
_LITTLE_ROOM = 100 * _MEGABYTE
_SECRET_FILES = ("token", "secret", "up.json", "byleave.db")
_NOT_WORKING = ("bubblewrap does not work here", "bubblewrap did not start")
_SWITCHES = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "15000"),
)
"""Kernel settings that block bubblewrap: the blocking value, and the one that allows it."""
_PROGRAMS = {
    "bwrap": (
        "fail",
        "install the package bubblewrap: without it commands are held by Landlock, which is weaker, or by nothing",
    ),
    "prlimit": (
        "warn",
        "install the package util-linux: without it searches are not limited in memory, nor are commands where the "
        "sandbox cannot do it",
    ),
    "git": ("warn", "install git: without it git commands fail"),
    "rg": ("warn", "install ripgrep: without it searching big trees is slower"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """Result of a check."""

    name: str
    level: Level
    detail: str
    hint: str | None = None


def _show(check: Check) -> None:
    style = _STYLES[check.level]
    put(Text.assemble((f"{check.level:<5}", style), shown(f"{check.name}: {check.detail}")))
    if check.hint:
        put(Text.assemble(("     hint: ", "bold"), shown(check.hint)))


async def _checks(workspace: Path, server_url: str | None) -> AsyncGenerator[Check]:
    yield _system()
    for name in _PROGRAMS:
        yield _program(name, workspace)
    try:
        settings = read_settings(ClientSettings, server_url=server_url)
    except ByleaveError as error:
        yield Check("settings", "fail", error.message, error.hint)
        return
    yield _policy(settings, workspace)
    yield _workspace(workspace)
    for check in _state(settings.home):
        yield check
    yield _undo(settings)
    async for check in _server(settings):
        yield check
    async for check in _sandbox(workspace, settings.sandbox):
        yield check


def _system() -> Check:
    if sys.platform.startswith("linux"):
        kernel = os.uname()
        return Check("system", "ok", f"Linux {kernel.release} on {kernel.machine}")
    if sys.platform == "win32":
        return Check("system", "fail", "Windows cannot isolate commands.", "run Byleave inside WSL 2")
    return Check("system", "fail", f"There is no tested sandbox for {sys.platform}.", "run Byleave in a Linux machine")


def _program(name: str, workspace: Path) -> Check:
    needed, hint = _PROGRAMS[name]
    level: Level = "fail" if needed == "fail" else "warn"
    try:
        program = find_program(name, workspace)
    except ToolFailure as error:
        return Check(name, level, error.message, hint)
    version = _version(program)
    if version is None:
        return Check(name, level, f"{program} is there, but does not run.", hint)
    return Check(name, "ok", f"{program} ({version})")


def _version(program: str) -> str | None:
    """Return a program's version line; None if it does not run."""
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SERVER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()[:100]


def _policy(settings: ClientSettings, workspace: Path) -> Check:
    try:
        loaded = load_policy(settings, workspace)
    except ByleaveError as error:
        return Check("rules", "fail", error.message, error.hint)
    if loaded.notes:
        return Check("rules", "warn", "; ".join(loaded.notes), "read the project's rules, then run `byleave trust`")
    found = (loaded.summary or "none of yours; what is built in holds").removeprefix("rules: ")
    return Check("rules", "ok", found)


def _workspace(workspace: Path) -> Check:
    if not os.access(workspace, os.R_OK | os.X_OK):
        return Check("workspace", "fail", f"{workspace} cannot be read.", f"chmod u+rx {workspace}, or name another")
    if not os.access(workspace, os.W_OK):
        hint = f"chmod u+w {workspace}, or let it be if that is meant"
        return Check("workspace", "warn", f"{workspace} can be read, but nothing can be written in it.", hint)
    return Check("workspace", "ok", str(workspace))


def _state(home: Path) -> Generator[Check]:
    """Check that only the owner can read the state directory: it holds a token and the record."""
    home = home.absolute()
    try:
        found = home.stat()
    except FileNotFoundError:
        yield _missing_home(home)
        return
    except OSError as error:
        hint = "set BYLEAVE_HOME to a directory of yours"
        yield Check("state directory", "fail", f"{home} cannot be used: {error.strerror}.", hint)
        return
    if not stat.S_ISDIR(found.st_mode):
        yield Check("state directory", "fail", f"{home} is not a directory.", "set BYLEAVE_HOME to one")
        return
    if found.st_uid != os.geteuid():
        yield Check("state directory", "fail", f"{home} belongs to another user.", "set BYLEAVE_HOME to one of yours")
    elif not _is_usable(home):
        hint = f"chmod 700 {home}, or set BYLEAVE_HOME to a directory that is not read-only"
        yield Check("state directory", "fail", f"{home} cannot be written.", hint)
    elif found.st_mode & 0o077:
        yield Check("state directory", "warn", f"{home} can be entered by others.", f"chmod 700 {home}")
    else:
        yield Check("state directory", "ok", str(home))
    for name in _SECRET_FILES:
        path = home / name
        with suppress(OSError):  # missing, or unreadable
            if not path.lstat().st_mode & 0o077:
                continue
            yield Check(name, "fail", f"{path} can be read or changed by others.", f"chmod 600 {path}")
    free = shutil.disk_usage(home).free
    if free < _LITTLE_ROOM and _is_usable(home):
        hint = "free some space: what is done can neither be recorded nor undone on a full disk"
        yield Check("state directory", "warn", f"Only {free // _MEGABYTE} MB are left where {home} is.", hint)


def _is_usable(directory: Path) -> bool:
    return os.access(directory, os.R_OK | os.W_OK | os.X_OK)


def _missing_home(home: Path) -> Check:
    above = next(parent for parent in home.parents if parent.exists())
    if not _is_usable(above):
        hint = "set BYLEAVE_HOME to a directory of yours"
        return Check("state directory", "fail", f"{home} cannot be made: {above} cannot be written.", hint)
    return Check("state directory", "ok", f"{home} is made at the first use")


def _undo(settings: ClientSettings) -> Check:
    """Check the data kept for undo: its size, and whether it is usable."""
    directory = settings.home.absolute() / "undo"
    if not os.path.exists(directory):
        return Check("undo", "ok", "nothing is kept yet")
    size, closed = 0, None
    for path in (directory, *directory.rglob("*")):
        usable = os.access(path, os.R_OK | os.W_OK)
        with suppress(FileNotFoundError):  # just removed by a running client
            found = path.lstat()
            closed = closed or (None if usable else path)
            size += 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    if closed is not None:
        hint = f"it may be from a client that ran as root: sudo chown -R $(id -u) {directory}"
        return Check("undo", "fail", f"{closed} cannot be read and written, so calls may not be undone.", hint)
    used = f"{size // _MEGABYTE} of {settings.undo_bytes // _MEGABYTE} MB are used"
    return Check("undo", "ok", f"{used}; calls can be undone for {settings.undo_days:g} days")


async def _server(settings: ClientSettings) -> AsyncGenerator[Check]:
    note = None if "server_url" in settings.model_fields_set else running_note(settings.home)
    url = note.server_url if note is not None else settings.server_url
    named = note is not None or "server_url" in settings.model_fields_set
    try:
        token = settings.token.get_secret_value() if settings.token else load_token(settings.home)
        token = token or (note.token if note is not None else None)
        api = ServerApi(url, token or "none")
    except ByleaveError as error:
        yield Check("server", "fail", error.message, error.hint or "mend the state directory, or set BYLEAVE_TOKEN")
        return
    where = URL(api.server_url)
    if named and where.scheme == "http" and not loopback_numbers(where.host or ""):
        yield Check("server", "warn", f"a token would travel unencrypted to {api.server_url}", "use https")
    async with api:
        async for check in _reached(api, named=named):
            yield check
        if named and token is not None:
            yield await _token(api)


async def _reached(api: ServerApi, *, named: bool) -> AsyncGenerator[Check]:
    limit = aiohttp.ClientTimeout(total=_SERVER_SECONDS)
    try:
        health = await api.resolved(URL(f"{api.server_url}/healthz"))
        async with api.session.get(health, timeout=limit, allow_redirects=False) as answer:
            status, date = answer.status, answer.headers.get("Date")
    except ByleaveError as error:
        yield Check("server", "fail", error.message, error.hint)
        return
    except (aiohttp.ClientError, TimeoutError) as error:
        if named:
            unreachable = api.unreachable(error)
            yield Check("server", "fail", unreachable.message, unreachable.hint)
        else:
            yield Check("server", "ok", "none is configured, and none runs here")
        return
    if status != 200:
        yield Check(
            "server", "fail", f"{api.server_url} answered {status}.", "is that the address of a Byleave server?"
        )
        return
    yield Check("server", "ok", f"{api.server_url} answers")
    yield _clock(date, datetime.now(UTC))


async def _token(api: ServerApi) -> Check:
    try:
        async with asyncio.timeout(_SERVER_SECONDS):
            projects = (await api.list_projects()).projects
    except TimeoutError:
        return Check("token", "fail", "The server did not answer in time.", "look at the server's log")
    except ByleaveError as error:
        return Check("token", "fail", error.message, error.hint)
    return Check("token", "ok", f"accepted; {len(projects)} projects")


def _clock(date: str | None, now: datetime) -> Check:
    """Compare the clock with the server's: approvals and tokens expire by it."""
    try:
        server = parsedate_to_datetime(date or "")
    except ValueError:
        return Check("clock", "warn", "The server did not tell the time.", "a proxy may have removed the Date header")
    if server.tzinfo is None:  # "-0000" means no zone, and HTTP dates are always UTC
        server = server.replace(tzinfo=UTC)
    apart = abs((now - server).total_seconds())
    level: Level = "ok" if apart <= _CLOCK_WARN else "warn" if apart <= _CLOCK_FAIL else "fail"
    hint = None if level == "ok" else "set both clocks by NTP: tokens and deadlines depend on them"
    return Check("clock", level, f"{apart:.0f} s apart from the server's", hint)


async def _sandbox(workspace: Path, wanted: SandboxName) -> AsyncGenerator[Check]:
    """Run the probes in `workspace` as a command would run: as the same user."""
    chosen: list[Sandbox] = []

    def make(root: Path) -> Sandbox:
        chosen.append(choose_sandbox(root, wanted))
        return chosen[0]

    base = Path(tempfile.mkdtemp(prefix="byleave-doctor-"))
    try:
        owner = command_user(workspace)
        if owner is not None:
            os.chown(base, owner.uid, owner.gid)
        probes = await run_conformance(make, base)
    except (ConfigurationError, ToolFailure) as error:
        yield Check("sandbox", "fail", error.message, error.hint)
        return
    finally:
        shutil.rmtree(base, ignore_errors=True)
    isolation = chosen[0].isolation()
    for check in _isolation(isolation):
        yield check
    if isolation.isolated:  # otherwise every line would say the same
        gaps = KNOWN_GAPS.get(isolation.backend, {})
        for probe in probes:
            yield _probed(probe, gaps.get(probe.name))


def _user_namespaces(switches: Path = Path("/proc/sys")) -> str:
    """Say which kernel setting blocks bubblewrap, if one does."""
    for switch, value, better in _SWITCHES:
        with suppress(OSError):
            if (switches / switch).read_text("ascii").strip() == value:
                name = switch.replace("/", ".")
                return f"let ordinary users make user namespaces: sudo sysctl {name}={better}"
    return "let it make user namespaces: a container must be started with the rights for them"


def _isolation(isolation: Isolation) -> Generator[Check]:
    if not isolation.isolated:
        hint = "install bubblewrap and allow user namespaces; until then every command asks"
        yield Check("sandbox", "fail", " ".join(isolation.degraded), hint)
        return
    limits = ", ".join(isolation.limits) or "none"
    yield Check(
        "sandbox", "ok", f"{isolation.backend}, seccomp {'on' if isolation.seccomp else 'off'}, limits: {limits}"
    )
    for words in isolation.degraded:
        if words.startswith(_NOT_WORKING):
            yield Check("sandbox", "fail", words, _user_namespaces())
        else:
            yield Check("sandbox", "warn", words)


def _probed(probe: Probe, gap: str | None = None) -> Check:
    """Return the check for a probe; `gap` says why this sandbox is known not to stop it."""
    if probe.stopped is None:
        return Check(probe.title, "warn", f"not tried ({probe.detail})", probe.hint)
    if probe.stopped:
        return Check(probe.title, "ok", f"stopped ({probe.detail})")
    if gap is not None:
        return Check(probe.title, "warn", f"possible ({gap})", "make bubblewrap work, which stops it")
    return Check(probe.title, "fail", f"POSSIBLE ({probe.detail})", probe.hint)


@in_loop(app)
async def doctor(
    directory: AgentsDir = Path(),
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="The server to reach; else BYLEAVE_SERVER_URL.")
    ] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Check this machine: the sandbox, programs, rules, server and clock.

    Tries every way out of the sandbox that we know, on this very kernel, in a directory of its own that is removed
    afterwards. One line for each check: ok, warn or fail, and what to do. Exit 1 when a check fails.

    \b
    Example:
      byleave doctor
      byleave doctor ~/code/app --json
    """
    set_up_logging(logging.ERROR)  # warnings of the log are lines of their own here
    checks: list[Check] = []
    async for check in _checks(existing_directory(directory), server):
        checks.append(check)
        if not as_json:
            _show(check)
    failed = sum(check.level == "fail" for check in checks)
    warned = sum(check.level == "warn" for check in checks)
    if as_json:
        report = [{"name": c.name, "level": c.level, "detail": c.detail, "hint": c.hint} for c in checks]
        put_json({"ok": failed == 0, "failed": failed, "warned": warned, "checks": report})
    else:
        put(f"{len(checks)} checks: {failed} failed, {warned} with a warning.")
    return ExitCode.FAILED if failed else ExitCode.OK
