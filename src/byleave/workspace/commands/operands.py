"""File-system checks of a command's operands, which the gate judged by their spelling alone.

The gate cannot see links. Before a command starts, `check_operands` resolves each name that the gate found, as the file
tools do. A link out of the workspace is always refused. A command that shows content is also refused a link that hides
a secret's own name, and a pipe or device that would never end. No command writes under the name of a link that is
judged less strictly than its target, as `write_file` does not. `to_leave_out` finds the files with secrets that the
sandbox hides from a command nobody was asked about, so that no spelling of its arguments opens them. `refuse_moved`
refuses it a directory that would take such files, or trusted ones, to other names. `refuse_compiled` keeps code that
cannot be shown from running in place of a module. The sandbox still confines a command
if a name is swapped later. `DryRun` makes the same checks for `byleave check`, without running the call. Nothing here
opens a file's content or changes anything.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Collection
from types import TracebackType

from byleave.gate import UnderstoodCommand, check_path, trusted_name, understand
from byleave.protocol.errors import (
    ByleaveError,
    ConfigurationError,
    MachineError,
    PathValidationError,
    RefusedError,
    ToolFailure,
)
from byleave.protocol.wire import JsonObject
from byleave.workspace.files.links import refuse_hidden_secret, refuse_hidden_target, under_real_names
from byleave.workspace.paths import PathValidator, path_error, refuse_odd_kind, visible

from .named_files import compiled, find, installed, secrets, trusted

_LEADS_OUT = frozenset({errno.EXDEV, errno.ELOOP})
_PYTHON = frozenset({"python", "pytest"})
MAX_LEFT_OUT = 200
"""Each adds about half a millisecond to the start of a command."""


def check_operands(paths: PathValidator, command: UnderstoodCommand) -> None:
    """Refuse names that lead out of the workspace, or to something other than their spelling says."""
    for name in command.names:
        _check(paths, name.spelled, opened=name.opened)
    below = command.git_directories if command.is_git else ()
    for name in command.written:
        _check_written(paths, os.path.join(*below, name))


def _check(paths: PathValidator, name: str, *, opened: bool) -> None:
    if not name or check_path(name, workspace=str(paths.root)).refusal is not None:
        return  # not a workspace path: a pattern, or something the gate has judged
    try:
        relative = paths.relative(name)
        fd = paths.open_raw(relative, os.O_PATH)
    except PathValidationError:
        return
    except OSError as error:
        if error.errno in _LEADS_OUT:
            raise path_error(name, error) from error
        return  # no such file: the command says so itself
    try:
        info = os.fstat(fd)
        if opened and not stat.S_ISDIR(info.st_mode):
            refuse_odd_kind(info, name)
        if opened:
            refuse_hidden_secret(relative, paths.real_path(fd))
    except OSError as error:
        raise ToolFailure(f"{name!r} could not be looked at: {error.strerror}.") from error
    finally:
        os.close(fd)


def _check_written(paths: PathValidator, name: str) -> None:
    try:
        relative = os.path.normpath(paths.relative(name))
    except PathValidationError:
        return  # the gate has judged it
    root = str(paths.root)
    # A link's target may be missing: the command would create it.
    real = os.path.realpath(os.path.join(root, name))
    # An untrusted directory is skipped: files put into it have names of their own.
    if real.startswith(f"{root}/") and (trusted_name(real[len(root) + 1 :]) or not os.path.isdir(real)):
        refuse_hidden_target(relative, real[len(root) + 1 :])


def to_leave_out(root: str, command: UnderstoodCommand) -> tuple[str, ...]:
    """Files with secrets to hide from a command that nobody was asked about.

    Programs that run code are exempt: the decision about the code covers what it opens. For a LOW command only the
    directories it walks are searched: the files it names were judged by name.
    """
    if command.runs_code:
        return ()
    tops = [word for word in command.walked if os.path.isdir(os.path.join(root, word))] if command.is_low else ["."]
    return _few(find(root, tops, secrets())) if tops else ()


def refuse_moved(root: str, command: UnderstoodCommand) -> None:
    """Refuse to move or copy a directory whose files would get new names, that nobody was asked about."""
    below = command.git_directories if command.is_git else ()
    for name in command.moved:
        place = os.path.join(root, *below, name.rstrip("/"))
        if os.path.islink(place) or not os.path.isdir(place):
            continue
        inside = f"{os.path.relpath(os.path.realpath(place), os.path.realpath(root))}/"
        found = (*find(root, [place], secrets()), *find(root, [place], trusted(), passing=installed()))
        held = next((path for path in found if path.startswith(inside)), None)
        if held is not None:
            raise RefusedError(
                f"{visible(name)!r} holds {visible(held)!r}, which usually holds secrets or is executed or trusted by "
                "something, and nobody was asked about it; nothing was run.",
                hint="move the files one by one: a person is asked about those",
            )


def refuse_compiled(root: str, command: UnderstoodCommand, bound: Collection[str]) -> None:
    """Refuse to run Python on shown files while it could import compiled code that has no source."""
    if command.program not in _PYTHON:
        return
    for path in find(root, ["."], compiled(), passing=installed()):
        if path.endswith(".pyc") and path not in bound and not os.path.isfile(f"{root}/{path[:-1]}"):
            raise RefusedError(
                f"{visible(path)!r} is compiled code without its source. Python could run it in place of what was "
                "shown, so nothing was run.",
                hint="remove it, or put its source beside it",
            )


def _few(paths: list[str]) -> tuple[str, ...]:
    """Reduce the number of covers: replace the files of the fullest directories by the directory."""
    while len(paths) > MAX_LEFT_OUT:
        counted = Counter(path.rpartition("/")[0] for path in paths)
        counted.pop("", None)
        fullest, count = max(counted.items(), key=lambda item: item[1], default=("", 0))
        if count < 2:
            raise ToolFailure(
                f"There are {len(paths)} files here that usually hold secrets, too many to leave out; nothing was run.",
                hint="Name a smaller directory.",
            )
        paths = sorted({fullest, *(path for path in paths if not path.startswith(f"{fullest}/"))})
    return tuple(paths)


class DryRun:
    """Checks calls against one workspace's files without running them."""

    def __init__(self, root: str) -> None:
        try:
            self._paths: PathValidator | None = PathValidator(root)
        except ConfigurationError:
            self._paths = None  # no such directory: nothing on disk to check

    def __enter__(self) -> "DryRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._paths is not None:
            self._paths.close()

    def under_real_names(self, params: JsonObject) -> JsonObject:
        """Return a call's parameters with links resolved; the client applies rules to these as well."""
        return params if self._paths is None else under_real_names(self._paths, params)

    def refusal(self, tool_name: str, params: JsonObject) -> ByleaveError | None:
        """The error with which the machine would refuse a call that the gate passed; None if it would not."""
        if self._paths is None:
            return None
        try:
            if tool_name == "execute_command":
                check_operands(self._paths, understand(params["command"], params["args"]))
            elif "path" in params:
                os.close(self._paths.open_beneath(params["path"], os.O_PATH))
        except MachineError as error:
            # A missing file is no reason to refuse a call; a pipe that would hang a command is.
            return error if tool_name == "execute_command" else None
        except ByleaveError as error:
            return error
        return None
