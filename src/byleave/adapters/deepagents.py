"""Byleave for deepagents: its file tools and its shell on the user's machine, through the gate.

    agent = create_deep_agent(model=model, backend=ByleaveBackend(byleave.Machine(url, token, project_id)))

deepagents has its own file tools (`ls`, `edit_file`, `glob`, `grep`, …) on top of a backend. Here every operation is a
call of one of the six tools, so none bypasses the gate. `/` is the workspace. There is no shell: `execute` takes one
command with plain arguments. Quotes and backslashes work as in a POSIX shell. Pipes, variables, globs, `~` and the
like are errors, never passed on as text: a command that got `*.log` as a name would do something else than intended.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from .versions import warn_if_untested

warn_if_untested("deepagents")

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    SandboxBackendProtocol,
    WriteResult,
)
from wcmatch import glob as globs

from byleave.gate.commands.lines import NotPlain, plain_words
from byleave.protocol.executions import BlockingCaller, ToolCaller
from byleave.protocol.states import ResponseStatus
from byleave.protocol.tools import MAX_COMMAND_SECONDS, MAX_MATCHES
from byleave.protocol.wire import JsonObject

from .calls import EDITED, caller_of, failure

_MASKED = "[masked:"
_BYTE_ORDER_MARK = {"utf-8": "", "utf-8-sig": "\ufeff"}
"""Byte order mark of each encoding that can be written back."""
_NOT_RUN = 126
"""A shell's exit code for a file it could not run."""


class _Failed(Exception):
    """A call did not complete; the message is for the model."""


class ByleaveBackend(SandboxBackendProtocol):
    """A project's workspace as a backend. Asynchronous only: a person may take hours."""

    def __init__(self, caller: ToolCaller | BlockingCaller, *, name: str = "byleave") -> None:
        self._caller = caller_of(caller)
        self._name = name

    @property
    def id(self) -> str:
        return self._name

    async def als(self, path: str) -> LsResult:
        try:
            found = await self._call("list_directory", {"path": _inside(path)})
        except _Failed as error:
            return LsResult(error=str(error))
        if found["truncated"]:
            # The framework cannot mark a list as partial, and half a directory would pass for all of it.
            return LsResult(
                error=f"{path} has more than {len(found['files']):,} entries, too many to be listed at once.\n"
                "hint: use glob with a narrower pattern"
            )
        return LsResult(entries=[_info(entry) for entry in found["files"]])

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        if limit <= 0:
            return ReadResult(file_data={"content": "", "encoding": "utf-8"}, no_lines_requested=True)
        first = max(offset, 0) + 1
        try:
            found = await self._call(
                "read_file", {"path": _inside(file_path), "start_line": first, "end_line": first + limit - 1}
            )
        except _Failed as error:
            return ReadResult(error=str(error))
        if found["encoding"] == "base64":
            return ReadResult(file_data={"content": found["content"], "encoding": "base64"})
        data = {"content": found["content"], "encoding": "utf-8"}
        begin, end, total = found.get("start_line"), found.get("end_line"), found.get("total_lines")
        if not found["content"] or begin is None or end is None or end < begin:
            return ReadResult(file_data=data)  # type: ignore[arg-type] - a TypedDict of just these
        following = end if total is not None and end < total else None
        return ReadResult(
            file_data=data,  # type: ignore[arg-type]
            start_line=begin,
            end_line=end,
            total_lines=total,
            next_offset=following,
        )

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        most = MAX_MATCHES if max_count is None else max(1, min(max_count, MAX_MATCHES))
        params: JsonObject = {"pattern": pattern, "path": _inside(path), "max_results": most}
        if glob is not None:
            params["glob"] = glob
        try:
            found = await self._call("search_files", params)
        except _Failed as error:
            return GrepResult(error=str(error))
        matches = [
            GrepMatch(path=f"/{one['path']}", line=one["line_number"], text=one["line"]) for one in found["matches"]
        ]
        return GrepResult(matches=matches, truncated=found["truncated"])

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        anchored = pattern.startswith("/")
        wanted = pattern.lstrip("/")
        if ".." in wanted.split("/"):
            return GlobResult(error="The pattern may not hold '..'.")
        start = _inside(path)
        name = wanted.rpartition("/")[2]
        plain = name if name and not set(name) & set("{}") and name != "**" else "*"
        try:
            found = await self._call("list_directory", {"path": start, "recursive": True, "pattern": plain})
        except _Failed as error:
            return GlobResult(error=str(error))
        flags = globs.GLOBSTAR | globs.BRACE
        prefix = "" if start == "." else f"{start}/"
        deep = "/" in wanted or anchored
        matches = [
            _info(entry)
            for entry in found["files"]
            if entry["type"] == "file"
            and globs.globmatch(entry["path"].removeprefix(prefix) if deep else entry["name"], wanted, flags=flags)
        ]
        return GlobResult(
            matches=matches, truncated=found["truncated"], truncation_reason="budget" if found["truncated"] else None
        )

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        try:
            written = await self._call("write_file", {"path": _inside(file_path), "content": content})
        except _Failed as error:
            return WriteResult(error=str(error))
        # There is no other text that the model would see.
        return WriteResult(error=f"Written. {written[EDITED]}") if EDITED in written else WriteResult(path=file_path)

    async def aedit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,
    ) -> EditResult:
        try:
            found = await self._call("read_file", {"path": _inside(file_path)})
            text, mark = found["content"], _BYTE_ORDER_MARK.get(found["encoding"])
            if mark is None:
                # It would be written back as UTF-8.
                return EditResult(error=f"{file_path} is not UTF-8 text ({found['encoding']}), so it cannot be edited.")
            if _MASKED in text:
                # Secrets are masked on reading: writing the text back would put the masks into the file.
                return EditResult(error=f"{file_path} holds a secret that you are not shown, so it cannot be edited.")
            if "\r\n" in text and text.count("\n") == text.count("\r\n"):
                old_string, new_string = _with_crlf(old_string), _with_crlf(new_string)
            count = text.count(old_string) if old_string else 0
            if count == 0:
                return EditResult(error=f"{file_path} does not hold the text to replace.")
            if count > 1 and not replace_all:
                return EditResult(error=f"The text to replace is {count} times in {file_path}; give more of it.")
            changed = mark + text.replace(old_string, new_string)
            written = await self._call("write_file", {"path": _inside(file_path), "content": changed})
        except _Failed as error:
            return EditResult(error=str(error))
        if EDITED in written:
            return EditResult(error=f"Written. {written[EDITED]}")
        return EditResult(path=file_path, occurrences=count)

    async def adelete(self, file_path: str) -> DeleteResult:
        try:
            await self._command(["rm", "-r", "--", _inside(file_path)], None)
        except _Failed as error:
            return DeleteResult(error=str(error))
        return DeleteResult(path=file_path)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:  # noqa: ASYNC109
        try:
            argv = _argv(command)
            found = await self._command(argv, timeout)
        except _Failed as error:
            return ExecuteResponse(output=str(error), exit_code=_NOT_RUN)
        output = found["stdout"] + (f"\n{found['stderr']}" if found["stderr"] else "")
        output = f"{found[EDITED]}\n{output}" if EDITED in found else output
        return ExecuteResponse(output=output, exit_code=found["exit_code"], truncated=found["truncated"])

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [await self._upload(path, content) for path, content in files]

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return list(await asyncio.gather(*(self._download(path) for path in paths)))

    async def _upload(self, path: str, content: bytes) -> FileUploadResponse:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            return FileUploadResponse(path=path, error="Only UTF-8 text can be written.")
        return FileUploadResponse(path=path, error=(await self.awrite(path, text)).error)

    async def _download(self, path: str) -> FileDownloadResponse:
        try:
            found = await self._call("read_file", {"path": _inside(path)})
        except _Failed as error:
            return FileDownloadResponse(path=path, error=str(error))
        text: str = found["content"]
        return FileDownloadResponse(
            path=path, content=base64.b64decode(text) if found["encoding"] == "base64" else text.encode("utf-8")
        )

    async def _command(self, argv: list[str], seconds: int | None) -> JsonObject:
        params: JsonObject = {"command": argv[0], "args": argv[1:]}
        if seconds:
            params["timeout"] = max(1, min(seconds, MAX_COMMAND_SECONDS))
        return await self._call("execute_command", params)

    async def _call(self, tool_name: str, params: Mapping[str, Any]) -> JsonObject:
        """Return the result of a call, or raise _Failed for the model. Calls have no key: each is a new one."""
        response = await self._caller.execute(tool_name, params)
        if response.status is not ResponseStatus.COMPLETED or response.result is None:
            raise _Failed(failure(response))
        return response.result if response.edited is None else {**response.result, EDITED: response.edited}


def _inside(path: str | None) -> str:
    """Convert a path of the framework, where `/` is the workspace, to ours."""
    return (path or "").strip("/") or "."


def _with_crlf(text: str) -> str:
    """Convert line ends to CRLF: a file with only CRLF keeps them, whatever a model writes."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _info(entry: Mapping[str, Any]) -> FileInfo:
    return FileInfo(
        path=f"/{entry['path']}",
        is_dir=entry["type"] == "directory",
        size=entry["size"],
        modified_at=entry["modified"],
    )


def _argv(command: str) -> list[str]:
    """Split one command with plain arguments; refuse shell syntax instead of passing it on as text."""
    try:
        return plain_words(command)
    except NotPlain as error:
        raise _Failed(str(error)) from error
