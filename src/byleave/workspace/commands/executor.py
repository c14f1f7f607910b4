"""execute_command: one gated argv, run in the workspace's sandbox, without a shell.

`CommandExecutor` finds the program in fixed directories, adds the options that keep git and zip from running or reading
what they should not, starts it in the sandbox, and returns bounded output. Exit codes are the command's own; 128 + n
if signal n ended it; None if we did. Denied paths are covered (`denied_paths`); if that is impossible, nothing runs. A
command that nobody was asked about cannot see files with secrets (`operands`), and files that something executes or
trusts stay as they are (`trusted`). Beyond that it never decides whether a command may run.
"""

import asyncio
import hashlib
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from byleave.gate import UnderstoodCommand, understand
from byleave.policy_files import PROJECT_POLICY
from byleave.protocol.errors import (
    ByleaveError,
    RefusedError,
    ToolFailure,
)
from byleave.protocol.tools import ExecuteCommandResult
from byleave.settings import ClientSettings
from byleave.workspace.denied_paths import COMMANDS, DeniedPaths
from byleave.workspace.paths import PathValidator, left_out, visible
from byleave.workspace.sandbox.environment import find_program
from byleave.workspace.sandbox.processes import Ended, OnOutput, OutputKeeper, run_process
from byleave.workspace.sandbox.protected_names import GIT_CONFIG
from byleave.workspace.sandbox.sandbox import Isolation, Launch, Sandbox, Withheld
from byleave.workspace.stopping import CommandStopped, CommandTimeout, drifted, outlast

from .bound_files import HeldFiles, Holding
from .operands import check_operands, refuse_compiled, refuse_moved, to_leave_out
from .staged import AskGit, head_of, moved_unseen, staged_unseen
from .trusted import TrustedFiles, forget_put_back, still_put_back

_MAX_TOLD = 10
_LIST_SECONDS = 30
_MOST_LISTED = 16 * 1024**2
_MOST_COMPARED = 16 * 1024**2
_SETTINGS_KEPT = re.compile(
    r"could not (?:lock|write) config file .*\.git/config: (?:Device or resource busy|Read-only file system)"
)
"""Messages of git when it could not change the file because it is a mount."""
_SETTINGS_WORDS = (
    f"Byleave keeps the repository's settings ({GIT_CONFIG}) as they are, so git could not write them, and a part of "
    "this command was not done. `git config` in a call of its own is asked about and works."
)
_NAMES_REPOSITORY = "leave out options that choose a repository, or let a person be asked"
_RULES_HELD = frozenset({".", os.path.dirname(PROJECT_POLICY)})
"""If one of these is read-only, so are the project's rules."""


class CommandExecutor:
    """Runs commands of one workspace."""

    def __init__(
        self,
        root: Path,
        sandbox: Sandbox,
        settings: ClientSettings,
        paths: PathValidator | None = None,
        held: HeldFiles | None = None,
        denied_paths: DeniedPaths | None = None,
        unasked_git: asyncio.Lock | None = None,
    ) -> None:
        self._paths = paths
        self._denied_paths = denied_paths
        self._held = held
        self._root = root
        self._sandbox = sandbox
        self._settings = settings
        self._idle = settings.command_idle_seconds
        self._unasked_git = unasked_git or asyncio.Lock()
        """One of the workspace: held by a git command that nobody was asked about, so that no other changes what it was
        judged by."""

    async def run(
        self,
        command: UnderstoodCommand,
        wanted_seconds: float,
        *,
        network: bool = False,
        on_output: OnOutput | None = None,
        bound: Mapping[str, str] | None = None,
        until: float | None = None,
        asked: bool = True,
    ) -> ExecuteCommandResult:
        """Run a command to its end. Raises CommandTimeout (with the output so far) if time is up; if cancelled,
        CancelledError with a CommandStopped as its cause.

        `bound`: run only while these files have this content (SHA-256, or `missing`); else DriftedError.
        `asked`: True if a person was asked about this very call. LOW calls are never asked.
        `until`: it is not started after this time (on the clock `steady`).
        """
        if "\x00" in "".join((command.command, *command.args)):
            raise ToolFailure("An argument holds a NUL character, which no program can be given.")
        asked = asked and not command.is_low
        how = partial(self._run, network=network, on_output=on_output, bound=bound, until=until, asked=asked)
        if asked or command.only_reads or not command.is_git:
            return await how(command, wanted_seconds)
        async with self._unasked_git:
            return await how(command, wanted_seconds)

    async def _run(
        self,
        command: UnderstoodCommand,
        wanted_seconds: float,
        *,
        network: bool,
        on_output: OnOutput | None,
        bound: Mapping[str, str] | None,
        until: float | None,
        asked: bool,
    ) -> ExecuteCommandResult:
        program, masked, secrets = await asyncio.to_thread(self._look_around, command, asked=asked)
        if secrets and command.is_git:
            secrets = await self._not_in_the_repository(program, secrets)
        kept, withheld = None, Withheld(secrets, only_reads=command.is_low)
        if asked:
            withheld = Withheld(git_settings=not command.changes_settings)
        elif not (command.is_low or self._paths is None or command.only_reads):
            kept = await asyncio.to_thread(self._keep_trusted, self._paths, command)
            withheld = Withheld(secrets, sealed=kept.sealed)
        keeper = OutputKeeper(self._settings.max_output_bytes, on_output)
        seconds = min(wanted_seconds, self._settings.command_timeout_seconds)
        began = time.monotonic()
        launching = partial(
            self._sandbox.launch,
            [program, *command.safe_args],
            understood=command,
            network=network,
            masked=masked,
            withheld=withheld,
        )
        told: list[str] = []
        async with self._watch_git(program, command, kept):
            try:
                async with self._hold(command, bound) as holding:
                    with launching(bound_files=holding.bound_files if holding else ()) as launch:
                        self._check_covered(launch, masked, command)
                        _check_left_out(launch, withheld)
                        launch = _without_compiled(launch) if bound else launch
                        if kept is not None and "." not in launch.isolation.protected:
                            await asyncio.to_thread(kept.keep, launch.isolation.protected)
                        start = partial(_run_to_its_end, launch, keeper, seconds, self._idle, until)
                        ended = await (start() if holding is None else _run_held(launch, start, holding))
            finally:
                if kept is not None:
                    told = await outlast(asyncio.get_running_loop().run_in_executor(None, kept.put_back))
        result = _result(command.command, ended, keeper, launch, time.monotonic() - began)
        result = result.model_copy(update={"warnings": [*result.warnings, *left_out(launch.isolation.left_out), *told]})
        if command.is_git and _SETTINGS_KEPT.search(result.stderr) and GIT_CONFIG in launch.isolation.protected:
            result = result.model_copy(update={"warnings": [*result.warnings, _SETTINGS_WORDS]})
        if not command.starts_nothing:
            result = result.model_copy(update={"warnings": [*result.warnings, *await self._new_denied(masked)]})
        if ended.stopped:
            raise asyncio.CancelledError from CommandStopped(f"{command.command} was stopped.", partial=result)
        if ended.idle:
            raise CommandTimeout(
                f"{command.command} printed nothing for {self._idle} s and was ended.",
                partial=result,
                hint="BYLEAVE_COMMAND_IDLE_SECONDS says how long it may be quiet.",
            )
        if ended.timed_out:
            raise CommandTimeout(
                f"{command.command} ran longer than {seconds} s and was ended.",
                partial=result,
                hint=_more_time(wanted_seconds, seconds),
            )
        return result

    def _look_around(self, command: UnderstoodCommand, *, asked: bool) -> tuple[str, list[str], tuple[str, ...]]:
        """The program, the denied paths, and the secrets to hide because nobody was asked. Blocking."""
        if self._paths is not None:
            check_operands(self._paths, command)
        masked = self._denied()
        program, root = find_program(command.command, self._root), str(self._root)
        if asked:
            if command.is_git and not command.only_reads:
                forget_put_back(root, command.git_named)
            return program, masked, ()
        refuse_moved(root, command)
        return program, masked, to_leave_out(root, command)

    def _keep_trusted(self, paths: PathValidator, command: UnderstoodCommand) -> TrustedFiles:
        """Find the trusted files that a command may not change because nobody was asked about it. Blocking."""
        if command.is_git and (changed := still_put_back(str(self._root))):
            names = ", ".join(repr(visible(path)) for path in changed[:_MAX_TOLD])
            raise RefusedError(
                f"An earlier git command changed {names}, which was put back because nobody was asked. Git would now "
                "record it so; nothing was run.",
                hint="ask for `git checkout HEAD -- …` with these names: a person is asked about it",
            )
        return TrustedFiles(paths, is_git=command.is_git)

    def _denied(self) -> list[str]:
        """Existing paths that the rules deny to commands."""
        if self._denied_paths is None or self._paths is None:
            return []
        return self._denied_paths.masked(self._paths)

    def _check_covered(self, launch: Launch, masked: Sequence[str], command: UnderstoodCommand) -> None:
        """Refuse to run unless denied paths are covered and the project's rules are read-only. A weak sandbox, or none,
        cannot do that."""
        for path in masked:
            if path not in launch.isolation.masked and os.path.lexists(self._root / path):
                raise RefusedError(
                    f"{visible(path)!r} is denied by this machine's rules, and here nothing keeps a command from it; "
                    "nothing was run.",
                    hint="install bubblewrap (`byleave doctor` says what is missing), or use the file tools",
                )
        # A command could change the rules for the next start. If there are none, there is nothing to loosen.
        held = command.starts_nothing or not _RULES_HELD.isdisjoint(launch.isolation.protected)
        if not held and os.path.lexists(self._root / PROJECT_POLICY):
            raise RefusedError(
                f"Here nothing keeps a command from the rules in {PROJECT_POLICY!r}, so nothing was run.",
                hint="install bubblewrap (`byleave doctor` says what is missing), or move them into your own rules",
            )

    async def _new_denied(self, before: Sequence[str]) -> list[str]:
        """Warnings about denied paths that a command created: they could not be covered before they existed."""
        if self._denied_paths is None or COMMANDS not in self._denied_paths.guards:
            return []
        try:
            now = await outlast(asyncio.ensure_future(asyncio.to_thread(self._denied)))
        except RefusedError as error:
            return [f"Whether it made something that is denied could not be looked at. {error.message}"]
        made = [path for path in now if path not in before]
        told = [f"It made {visible(path)!r}, which this machine's rules deny; look at it." for path in made[:_MAX_TOLD]]
        return told if len(made) <= _MAX_TOLD else [*told, f"It made {len(made) - _MAX_TOLD} more that are denied."]

    async def _not_in_the_repository(self, git: str, paths: Sequence[str]) -> tuple[str, ...]:
        """Files whose content is not in git's index; the index shows the content of the others anyway."""
        said = await self._ask_git(git, ["ls-files", "-s", "-z", "--", *paths])
        if said is None:
            return tuple(paths)
        listed = [entry.partition("\t") for entry in said.split("\0") if entry]
        staged = {path: info.split()[1] for info, _, path in listed}
        return tuple([path for path in paths if path not in staged or self._blob(path, staged[path]) != staged[path]])

    @asynccontextmanager
    async def _watch_git(self, git: str, command: UnderstoodCommand, kept: TrustedFiles | None) -> AsyncGenerator[None]:
        """Around a git command that nobody was asked about: refuse it if it could record or write trusted content
        unseen, and remember what HEAD has of it afterwards."""
        if kept is None or not command.is_git or command.makes_repository:
            yield
            return
        place = command.git_repository
        if place is None:
            raise _not_looked_through(_NAMES_REPOSITORY)

        async def ask_git(args: list[str]) -> str | None:
            return await self._ask_git(git, [*place, *args])

        head = await head_of(ask_git)
        if command.uses_index:
            await self._refuse_staged(ask_git, head, kept)
        try:
            yield
        finally:
            await outlast(asyncio.ensure_future(self._remember_moved(ask_git, head, kept)))

    async def _remember_moved(self, ask_git: AskGit, before: str | None, kept: TrustedFiles) -> None:
        try:
            found = await moved_unseen(ask_git, before, kept.trusts, self._on_disk)
        except RefusedError:  # it could not be looked through
            found = [f"{self._root}/.git/HEAD"]
        for path in found:
            kept.remember(path.removeprefix(f"{self._root}/"))

    def _on_disk(self, path: str, blob: str | None) -> bool:
        if blob is None:
            return not os.path.lexists(path)
        return self._blob(path, blob) == blob

    async def _refuse_staged(self, ask_git: AskGit, head: str | None, kept: TrustedFiles) -> None:
        """Refuse a git command that nobody was asked about if it could record or write trusted content unseen."""
        unseen = await staged_unseen(ask_git, head, kept.trusts)
        if unseen is None:
            raise _not_looked_through(_NAMES_REPOSITORY)
        if unseen:
            names = ", ".join(repr(visible(path)) for path in unseen[:_MAX_TOLD])
            raise RefusedError(
                f"Something runs or trusts {names}, and what is staged there is neither what the last commit has nor "
                "what the file holds. Nobody was asked about it; nothing was run.",
                hint="stage these files as they are with `git add`, or take them back with `git reset --`",
            )

    async def _ask_git(self, git: str, args: list[str]) -> str | None:
        """The output of a git command that only reads; None if it failed."""
        keeper, question = OutputKeeper(_MOST_LISTED), understand("git", args)
        with self._sandbox.launch([git, *question.safe_args], understood=question) as launch:
            ended = await run_process(launch, keeper, seconds=_LIST_SECONDS, idle_seconds=self._idle)
        said = keeper.captured()
        if ended.exit_code is None or said.truncated:
            raise _not_looked_through("ask for it in smaller parts")
        return said.stdout if ended.exit_code == 0 else None

    def _blob(self, path: str, like: str) -> str | None:
        """The git blob id of a file's content; None if it cannot be read."""
        with suppress(OSError, ByleaveError):
            with open(self._root / path, "rb") as file:
                content = file.read(_MOST_COMPARED)
            header = f"blob {len(content)}\0".encode()
            return hashlib.new("sha1" if len(like) == 40 else "sha256", header + content).hexdigest()
        return None

    @asynccontextmanager
    async def _hold(
        self, command: UnderstoodCommand, bound: Mapping[str, str] | None
    ) -> AsyncGenerator[Holding | None]:
        """Watch the files that the command is bound to."""
        if not bound:
            yield None
            return
        if self._held is None:
            raise ToolFailure("What this command would run cannot be checked here; nothing was run.")
        async with self._held.hold(bound, watch=not command.changes_what_it_runs) as holding:
            await asyncio.to_thread(refuse_compiled, str(self._root), command, bound)
            yield holding


def _not_looked_through(hint: str) -> RefusedError:
    return RefusedError("What git has staged could not be looked through, so nothing was run.", hint=hint)


def _check_left_out(launch: Launch, withheld: Withheld) -> None:
    """Refuse to run unless the secrets are hidden: a sandbox may be too weak for it."""
    bare = [path for path in withheld.secrets if path not in launch.isolation.left_out]
    if bare:
        raise RefusedError(
            f"{visible(bare[0])!r} usually holds secrets, and here nothing keeps a command from it; nothing was run.",
            hint="name other files or a smaller directory, or use search_files, which leaves such files out",
        )


def _without_compiled(launch: Launch) -> Launch:
    """Make Python compile what it loads: compiled files of the workspace may hold other code than was shown."""
    return replace(launch, env={**launch.env, "PYTHONPYCACHEPREFIX": f"{launch.env['HOME']}/.pycache"})


def _more_time(asked: float, given: float) -> str:
    if given < asked:
        return "BYLEAVE_COMMAND_TIMEOUT_SECONDS says how long a command may take on this machine."
    return "Give it more time with 'timeout' (at most 300), or less to do."


async def _run_to_its_end(
    launch: Launch, keeper: OutputKeeper, seconds: float, idle_seconds: float | None, until: float | None
) -> Ended:
    """Run the process. A cancellation also returns an `Ended`, so that its output is kept."""
    try:
        return await run_process(launch, keeper, seconds=seconds, idle_seconds=idle_seconds, until=until)
    except asyncio.CancelledError:
        return Ended(None, timed_out=False, stopped=True)


async def _run_held(launch: Launch, run: Callable[[], Coroutine[Any, Any, Ended]], holding: Holding) -> Ended:
    """Run it under the watch. If a bound file changes, end it and withhold its output."""
    holding.covered = launch.covered
    holding.check()
    work = asyncio.get_running_loop().create_task(run())
    holding.begin(work.cancel)
    task = asyncio.current_task()
    try:
        ended = await work
    except (asyncio.CancelledError, ToolFailure) as error:
        if not holding.changed() or (task is not None and task.cancelling()):
            raise
        # We ended it, or the change made the sandbox fail.
        raise drifted(holding.drifted or "", "it was ended while it started") from error
    if holding.changed():
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        raise drifted(holding.drifted or "", "it was ended while it started")
    return ended


def _result(command: str, ended: Ended, keeper: OutputKeeper, launch: Launch, seconds: float) -> ExecuteCommandResult:
    captured = keeper.captured()
    isolation: Isolation = launch.isolation
    if launch.created:
        isolation = isolation.model_copy(update={"created": tuple(launch.created)})
    error = None
    if ended.stopped:
        error = f"{command} was stopped before its end."
    elif ended.timed_out:
        error = f"{command} was ended because its time was up."
    # Success whatever the exit code: its meaning is the command's own. grep's 1 means no match.
    return ExecuteCommandResult(
        success=error is None,
        error=error,
        stdout=captured.stdout,
        stderr=captured.stderr,
        exit_code=ended.exit_code,
        execution_time=round(seconds, 3),
        truncated=captured.truncated,
        isolation=isolation.to_json(),
    )
