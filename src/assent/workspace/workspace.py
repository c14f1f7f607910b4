"""One project's directory on this machine, and the six tools on it.

`Workspace.run` takes a call that the gate has passed, reads its parameters once more, and hands it to the executor of
its tool. It never asks whether a call may run; it makes sure that whatever runs stays inside: paths by the kernel,
commands by the sandbox. Errors are those of `protocol.errors`.
"""

import asyncio
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from assent.protocol.errors import InvalidParameters, ToolFailure, ToolTypeError
from assent.protocol.inspections import Inspection
from assent.protocol.tools import (
    TOOLS,
    ExecuteCommandParams,
    ListDirectoryParams,
    ReadFileParams,
    SearchFilesParams,
    SearchWebParams,
    ToolParams,
    ToolResult,
    WriteFileParams,
)
from assent.protocol.values import JsonObject
from assent.settings import ClientSettings

from .bubblewrap import working_sandbox
from .commands import CommandExecutor
from .effects import recorded
from .files import FileSystemExecutor
from .inspection import inspect
from .output import OnOutput
from .paths import PathValidator
from .pins import HeldFiles
from .programs import SYSTEM_DIRECTORIES, find_program
from .realnames import under_real_names
from .sandbox import Isolation, NoSandbox, Sandbox
from .search import SearchExecutor
from .undo import UndoRecorder
from .web import WebSearcher

_MAX_SUMMARY = 200


class Workspace:
    """One project's directory on this machine and the six tools on it."""

    def __init__(self, root: str | Path, settings: ClientSettings | None = None) -> None:
        self._settings = settings or ClientSettings()
        self._paths = PathValidator(root)
        self.root = self._paths.root
        self._files = FileSystemExecutor(self._paths, max_file_bytes=self._settings.max_file_bytes)
        self._search = SearchExecutor(self._paths)
        self._web = WebSearcher(self._settings)
        self._held = HeldFiles(self._paths, max_bytes=self._settings.max_file_bytes)
        self._undo = UndoRecorder(
            self._paths, self._settings.home, days=self._settings.undo_days, max_bytes=self._settings.undo_bytes
        )
        self._sandbox: Sandbox | None = None
        self._probing = threading.Lock()

    @property
    def isolation(self) -> Isolation:
        """What commands are held by, found out once by really running something through it."""
        return self.sandbox.isolation()

    @property
    def sandbox(self) -> Sandbox:
        with self._probing:
            if self._sandbox is None:
                self._sandbox = choose_sandbox(self.root)
            return self._sandbox

    async def inspect(self, tool_params: JsonObject, runs: Sequence[str]) -> Inspection:
        """What the files a command would run hold now. Never raises: what cannot be seen is said."""
        return await asyncio.to_thread(inspect, self._paths, tool_params, runs, max_bytes=self._settings.max_file_bytes)

    async def under_real_names(self, tool_params: JsonObject) -> JsonObject:
        """A call's parameters with links resolved: what rules about names must be held against as well."""
        return await asyncio.to_thread(under_real_names, self._paths, tool_params)

    async def run(
        self,
        tool_name: str,
        tool_params: JsonObject,
        *,
        network: bool = False,
        on_output: OnOutput | None = None,
        bound: Mapping[str, str] | None = None,
        record_as: str | None = None,
    ) -> ToolResult:
        """Execute one gated call. A cancelled call ends its processes before it returns.

        `bound`: a command runs only while these files have this content (SHA-256, or `missing`); else DriftedError.
        `record_as`: keep what a write or a command changes under this id, so that it can be undone.
        """
        params = _read_params(tool_name, tool_params)
        match params:
            case ReadFileParams():
                return await self._files.read_file(params)
            case WriteFileParams():
                await self._held.free(params.path)
                if record_as is None:
                    return await self._files.write_file(params)
                recording = self._undo.writing(record_as, f"write_file {params.path}"[:_MAX_SUMMARY])
                return await self._files.write_file(params, recording)
            case ListDirectoryParams():
                return await self._files.list_directory(params)
            case SearchFilesParams():
                return await self._search.search(params)
            case SearchWebParams():
                return await self._web.search(params)
            case _:
                command = cast(ExecuteCommandParams, params)
                sandbox = self._sandbox or await asyncio.to_thread(lambda: self.sandbox)
                executor = CommandExecutor(self.root, sandbox, self._settings, self._paths, self._held)
                run = partial(executor.run, command, network=network, on_output=on_output, bound=bound)
                return await run() if record_as is None else await recorded(self._undo, record_as, command, run)

    async def close(self) -> None:
        """Let go of the directory, the threads and the connections."""
        await self._web.close()
        await asyncio.to_thread(self._files.close)
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


def choose_sandbox(root: Path) -> Sandbox:
    """The strongest isolation that really works here."""
    identity = git_identity(root)
    try:
        found = working_sandbox(root, identity=identity)
    except ToolFailure as error:
        return NoSandbox(root, reason=error.message, identity=identity)
    return NoSandbox(root, reason=found, identity=identity) if isinstance(found, str) else found


def git_identity(root: Path) -> str:
    """The user's name and address for commits, and nothing else of their git settings, as a gitconfig."""
    try:
        git = find_program("git", root)
    except ToolFailure:
        return ""
    env = {"HOME": str(Path.home()), "PATH": ":".join(SYSTEM_DIRECTORIES), "GIT_CONFIG_NOSYSTEM": "1"}
    lines = ["[user]"]
    for key in ("name", "email"):
        asked = subprocess.run(
            [git, "config", "--global", "--get", f"user.{key}"],
            env=env,
            cwd=os.sep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        value = asked.stdout.strip()
        if asked.returncode == 0 and value.isprintable() and not set(value) & set('"\\'):
            lines.append(f'\t{key} = "{value}"')
    # What git would leave running in the background is killed with it, half done; so it runs in front.
    lines += ["[gc]", "\tautoDetach = false", "[maintenance]", "\tautoDetach = false"]
    return "\n".join(lines) + "\n"
