"""One project's directory on this machine, and the six tools on it.

`Workspace.run` takes a call that the gate has passed, validates its parameters again, and hands it to the executor of
its tool. It never decides whether a call may run. It keeps each call inside the workspace (paths by the kernel,
commands by the sandbox) and off the paths that the owner's rules deny (`denied_paths`). Byleave's own files are denied
to every tool, whatever the rules say. Errors are those of `protocol.errors`.

A tool's modules are imported with its first call: reading a file must not wait for the sandbox to load.
"""

import asyncio
import posixpath
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, nullcontext, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from byleave.gate import NO_POLICY, Policy, UnderstoodCommand, mask_text, understand
from byleave.policy_files import own_directories, own_layer
from byleave.protocol.approvals import Inspection
from byleave.protocol.errors import (
    InvalidParameters,
    PathValidationError,
    ToolFailure,
    ToolTypeError,
)
from byleave.protocol.tools import (
    TOOLS,
    ExecuteCommandParams,
    ExecuteCommandResult,
    ListDirectoryParams,
    ReadFileParams,
    SearchFilesParams,
    SearchWebParams,
    ToolParams,
    ToolResult,
    WriteFileParams,
)
from byleave.protocol.wire import JsonObject
from byleave.settings import ClientSettings

from .denied_paths import COMMANDS, DeniedPaths, GuardedPaths, make_own
from .files.executor import FileSystemExecutor, Keep
from .files.links import under_real_names
from .paths import PathValidator, visible
from .stopping import refuse_late

if TYPE_CHECKING:
    from .commands.bound_files import HeldFiles
    from .commands.executor import CommandExecutor
    from .sandbox.processes import OnOutput
    from .sandbox.protected_names import WriteExclusion
    from .sandbox.sandbox import Isolation, Sandbox
    from .search.executor import SearchExecutor
    from .undo.desk import UndoDesk
    from .undo.recorder import UndoRecorder
    from .web import WebSearcher

_MAX_SUMMARY = 200
_MAX_UNABLE = 400


class Workspace:
    """One project's directory on this machine and the six tools on it."""

    def __init__(self, root: str | Path, settings: ClientSettings | None = None) -> None:
        self._settings = settings or ClientSettings()
        self._paths = PathValidator(root)
        self.root = self._paths.root
        self._own = own_layer(self._settings, self.root)
        self._files = FileSystemExecutor(
            self._paths, max_file_bytes=self._settings.max_file_bytes, around_write=self._own_write
        )
        self._sandbox: Sandbox | None = None
        self._probing = threading.Lock()
        self._guards = ExitStack()
        self._search: SearchExecutor | None = None
        self.obey(NO_POLICY)

    @cached_property
    def _web(self) -> "WebSearcher":
        from .web import WebSearcher

        return WebSearcher(self._settings)

    @cached_property
    def _held(self) -> "HeldFiles":
        from .commands.bound_files import HeldFiles

        return HeldFiles(self._paths, max_bytes=self._settings.max_file_bytes)

    @cached_property
    def _unasked_git(self) -> asyncio.Lock:
        return asyncio.Lock()

    @cached_property
    def _write_exclusion(self) -> "WriteExclusion":
        from .sandbox.protected_names import WriteExclusion

        return WriteExclusion()

    @cached_property
    def _undo(self) -> "UndoRecorder":
        from .undo.recorder import UndoRecorder

        settings = self._settings
        return UndoRecorder(self._paths, settings.home, days=settings.undo_days, max_bytes=settings.undo_bytes)

    @cached_property
    def undoing(self) -> "UndoDesk":
        """Undo for a person at another machine. Its methods block."""
        from .undo.desk import UndoDesk

        return UndoDesk(
            self._paths, self._settings.home, self._undo, lambda path, tool: self._denied_paths.forbids(path, tool)
        )

    def obey(self, policy: Policy) -> None:
        """Keep every tool off the paths a policy denies; call before `run`. Byleave's own files are always denied."""
        self._guards.close()
        if self._own is not None and self._own not in policy.layers:
            policy = policy.plus(self._own)
        self._denied_paths = DeniedPaths(policy)
        self._guarded = {
            tool: files
            for tool in ("read_file", "write_file", "list_directory")
            if (files := self._guarded_files(tool)) is not None
        }
        self._command_paths = self._guarded_paths(COMMANDS)
        self._write_paths = self._guarded_paths("write_file")
        self._search = None

    def _guarded_files(self, tool: str) -> FileSystemExecutor | None:
        paths = self._guarded_paths(tool)
        if paths is self._paths:
            return None
        files = FileSystemExecutor(paths, max_file_bytes=self._settings.max_file_bytes, around_write=self._own_write)
        self._guards.callback(files.close)
        return files

    def _guarded_paths(self, tool: str) -> PathValidator:
        guard = self._denied_paths.guards.get(tool)
        if guard is None:
            return self._paths
        paths = GuardedPaths(self._paths, guard)
        self._guards.callback(paths.close)
        return paths

    def _searcher(self) -> "SearchExecutor":
        if self._search is None:
            from .search.executor import SearchExecutor

            guard = self._denied_paths.guards.get("search_files")
            self._search = SearchExecutor(self._guarded_paths("search_files"), forbidden=guard)
        return self._search

    @property
    def isolation(self) -> "Isolation":
        """The isolation of commands, probed once by running a command in the sandbox."""
        return self.sandbox.isolation()

    @property
    def sandbox(self) -> "Sandbox":
        from .sandbox.backends import choose_sandbox
        from .sandbox.bubblewrap import end_orphans
        from .sandbox.environment import remove_left

        with self._probing:
            if self._sandbox is None:
                # First: an orphaned sandbox keeps busy the control group that choose_sandbox would remove.
                end_orphans(self.root)
                remove_left(self.root)
                self._sandbox = choose_sandbox(self.root, self._settings.sandbox)
            return self._sandbox

    @property
    def unable(self) -> dict[str, str]:
        """Tools that cannot work here, and why."""
        problem = self._web.problem
        return {} if problem is None else {"search_web": f"{problem.message} {problem.hint}"[:_MAX_UNABLE]}

    def prepare(self) -> None:
        """Remove the drafts of a killed client, and take the first snapshot, so that no command waits for it."""
        from .files.drafts import remove_drafts

        remove_drafts(self.root)
        # The first call that needs the undo store reports the error.
        with suppress(OSError, ToolFailure):
            self._undo.prepare()

    async def inspect(self, command: UnderstoodCommand) -> Inspection:
        """Inspect the files a command would run. Never raises: the inspection states the problem."""
        from .files.inspection import inspect

        return await asyncio.to_thread(inspect, self._command_paths, command, max_bytes=self._settings.max_file_bytes)

    async def inspect_write(self, path: str) -> Inspection:
        """Inspect the file a write would replace. Never raises: the inspection states the problem."""
        from .files.inspection import inspect_write

        try:
            await self._refuse_path(path, "write_file")
        except PathValidationError as error:
            return Inspection(files=[], problem=mask_text(error.message)[:400])
        look = partial(inspect_write, max_bytes=self._settings.max_file_bytes)
        unreadable = self._denied_paths.guards.get("read_file")
        if unreadable is not None:
            look = partial(look, unreadable=unreadable)
        return await asyncio.to_thread(look, self._write_paths, path)

    async def under_real_names(self, tool_params: JsonObject) -> JsonObject:
        """Return a call's parameters with links resolved; rules about names apply to these as well."""
        return await asyncio.to_thread(under_real_names, self._paths, tool_params)

    async def run(
        self,
        tool_name: str,
        tool_params: JsonObject,
        *,
        network: bool = False,
        on_output: "OnOutput | None" = None,
        bound: Mapping[str, str] | None = None,
        record_as: str | None = None,
        until: float | None = None,
        asked: bool = True,
        understood: UnderstoodCommand | None = None,
    ) -> ToolResult:
        """Execute one gated call. A cancelled call ends its processes before it returns.

        `understood`: the command as the gate parsed it; exactly this runs. None: it is parsed here.
        `bound`: a command runs only while these files have this content (SHA-256, or `missing`), and a write replaces
        only the one it names (by its real path); else DriftedError.
        `record_as`: keep the changes of a write or a command under this id, so that they can be undone.
        `until`: nothing takes effect after this time (on the clock `steady`); ExecutionCancelled says that nothing did.
        `asked`: True if a person was asked about this very call. Otherwise a command can neither read secrets nor
        change files that something executes or trusts, and a write must name the real path. LOW calls are never asked.
        """
        params = _read_params(tool_name, tool_params)
        await self._refuse_denied(tool_name, params)
        files = self._guarded.get(tool_name, self._files)
        match params:
            case ReadFileParams():
                return await files.read_file(params)
            case WriteFileParams():
                return await self._write(params, files, bound, record_as, until, asked=asked)
            case ListDirectoryParams():
                return await files.list_directory(params)
            case SearchFilesParams():
                return await self._searcher().search(params)
            case SearchWebParams():
                refuse_late(until)
                return await self._web.search(params)
            case _:
                command = cast(ExecuteCommandParams, params)
                line = understood or understand(command.command, command.args, str(self.root))
                executor = await self._commands()
                run = partial(
                    executor.run,
                    line,
                    command.timeout,
                    network=network,
                    on_output=on_output,
                    bound=bound,
                    until=until,
                    asked=asked,
                )
                return await self._run_command(line, run, record_as, asked=asked)

    async def _write(
        self,
        params: WriteFileParams,
        files: FileSystemExecutor,
        bound: Mapping[str, str] | None,
        record_as: str | None,
        until: float | None,
        *,
        asked: bool,
    ) -> ToolResult:
        from .commands.trusted import trusted_link_to
        from .sandbox.protected_names import PROTECTED, link_targets

        real = await self._real(params.path)
        if not asked and real != posixpath.normpath(self._paths.relative(params.path)):
            raise PathValidationError(
                f"{params.path!r} is really {visible(real)!r}, and nobody was asked about that name.",
                hint="Ask for the file by its own name.",
            )
        name = None if asked else await asyncio.to_thread(trusted_link_to, str(self.root), real)
        if name is not None:
            raise PathValidationError(
                f"{visible(real)!r} is also {visible(name)!r}, which something executes or trusts; nobody was asked.",
                hint="Ask for the file by that name.",
            )
        async with self._write_exclusion.write(real, await asyncio.to_thread(link_targets, str(self.root), PROTECTED)):
            await self._held.free(params.path)  # last: a command may start while we wait
            if record_as is None:
                return await files.write_file(params, bound=bound, until=until)
            recording = self._undo.writing(record_as, f"write_file {params.path}"[:_MAX_SUMMARY])
            return await files.write_file(params, recording, bound, until=until)

    def _own_write(self, keep: Keep | None) -> AbstractContextManager[Keep]:
        from .commands.trusted import own_write

        return own_write(str(self.root), keep)

    async def _commands(self) -> "CommandExecutor":
        from .commands.executor import CommandExecutor

        sandbox = self._sandbox or await asyncio.to_thread(lambda: self.sandbox)
        if self._own is not None:
            await asyncio.to_thread(make_own, self.root, own_directories(self._settings))
        return CommandExecutor(
            self.root, sandbox, self._settings, self._paths, self._held, self._denied_paths, self._unasked_git
        )

    async def _run_command(
        self,
        line: UnderstoodCommand,
        run: Callable[[], Awaitable[ExecuteCommandResult]],
        record_as: str | None,
        *,
        asked: bool,
    ) -> ToolResult:
        async with self._kept_from_writes(line, asked=asked):
            if record_as is None:
                return await run()
            from .commands.effects import recorded

            return await recorded(self._undo, record_as, line, run)

    def _kept_from_writes(self, command: UnderstoodCommand, *, asked: bool) -> AbstractAsyncContextManager[None]:
        if command.starts_nothing:
            return nullcontext()  # it has the workspace read-only
        from .sandbox.protected_names import GIT_CONFIG, PROTECTED, link_targets

        if asked and command.changes_settings:
            return self._write_exclusion.write(GIT_CONFIG)
        return self._write_exclusion.command(link_targets(str(self.root), PROTECTED))

    async def _refuse_denied(self, tool_name: str, params: ToolParams) -> None:
        """Raise with the rule that denies a path. The guards catch a path swapped after this check."""
        path = getattr(params, "path", None)
        if path is not None:
            await self._refuse_path(path, tool_name)

    async def _refuse_path(self, path: str, tool_name: str) -> None:
        if tool_name not in self._denied_paths.guards:
            return
        self._denied_paths.refuse(await self._real(path), tool_name)

    async def _real(self, path: str) -> str:
        """Return a workspace-relative path with links resolved."""
        real = (await self.under_real_names({"path": path}))["path"]
        return posixpath.normpath(self._paths.relative(real))

    async def close(self) -> None:
        """Close the directory, the threads and the connections."""
        made = vars(self)  # cached properties that a call has used
        if "_web" in made:
            await self._web.close()
        await asyncio.to_thread(self._guards.close)
        await asyncio.to_thread(self._files.close)
        if "undoing" in made:
            await asyncio.to_thread(self.undoing.close)
        if "_undo" in made:
            await asyncio.to_thread(self._undo.close)
        self._paths.close()


def _read_params(tool_name: str, tool_params: JsonObject) -> ToolParams:
    spec = TOOLS.get(tool_name)
    if spec is None:
        raise ToolTypeError(f"There is no tool {tool_name!r}.", hint=f"The tools are {', '.join(TOOLS)}.")
    try:
        return spec.params.model_validate(tool_params)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "parameters"
        raise InvalidParameters(f"{tool_name}: {where}: {first['msg']}.") from error
