"""What the file system adds to a command that the gate let pass by its spelling alone.

The gate cannot see links. Here, before a reading command starts, each name it was given is resolved as the file tools
resolve theirs, as the gate read it: a link out of the workspace is refused to all; to those that show content also a
link that hides a secret's own name, and a pipe or device that would never end. No command writes under the name of a
link that asks for less than what it leads to, as `write_file` does not. `to_leave_out` finds the files with
secrets that the sandbox hides from a command nobody was asked about, so that no spelling of its arguments opens them.
The sandbox still holds what is swapped later.

What the file system would say of a call, without running it: for `byleave check`.

The gate judges a spelling; the client meets the disk when it executes. This asks the disk the same questions the tools
ask before they act: does a link lead out, is there a pipe that never ends, does a name hide a secret. It opens no
content and changes nothing.
"""

import errno
import os
import stat
from collections import Counter
from types import TracebackType

from byleave.gate import UnderstoodCommand, check_path, trusted_name, understand
from byleave.protocol.errors import ByleaveError, ConfigurationError, MachineError, PathValidationError, ToolFailure
from byleave.protocol.wire import JsonObject
from byleave.workspace.files.links import refuse_hidden_secret, refuse_hidden_target, under_real_names
from byleave.workspace.paths import PathValidator, path_error, refuse_odd_kind
from byleave.workspace.sandbox.masking import find, secrets

_LEADS_OUT = frozenset({errno.EXDEV, errno.ELOOP})
MAX_LEFT_OUT = 200
"""Each costs the start of a command about half a millisecond."""


def check_operands(paths: PathValidator, command: UnderstoodCommand) -> None:
    """Refuse names behind which the file system has something else than their spelling says."""
    for name in command.names:
        _check(paths, name.spelled, opened=name.opened)
    below = command.git_directories if command.is_git else ()
    for name in command.written:
        _check_written(paths, os.path.join(*below, name))


def _check(paths: PathValidator, name: str, *, opened: bool) -> None:
    if not name or check_path(name, workspace=str(paths.root)).refusal is not None:
        return  # not a name of ours: a pattern, or something the gate has judged
    try:
        relative = paths.relative(name)
        fd = paths.open_raw(relative, os.O_PATH)
    except PathValidationError:
        return
    except OSError as error:
        if error.errno in _LEADS_OUT:
            raise path_error(name, error) from error
        return  # nothing of that name: the command says so itself
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
    # What a link leads to need not be there: it is made then.
    real = os.path.realpath(os.path.join(root, name))
    # Of a directory's own name only what is trusted below it counts: what is put there has a name of its own.
    if real.startswith(f"{root}/") and (trusted_name(real[len(root) + 1 :]) or not os.path.isdir(real)):
        refuse_hidden_target(relative, real[len(root) + 1 :])


def to_leave_out(root: str, command: UnderstoodCommand) -> tuple[str, ...]:
    """Files with secrets that a command which nobody was asked about may not read.

    Programs that run code are left alone: what they open was decided with the code. A LOW command has only what lies in
    directories left to find: what it names was judged by its name.
    """
    if command.runs_code:
        return ()
    tops = [word for word in command.walked if os.path.isdir(os.path.join(root, word))] if command.is_low else ["."]
    return _few(find(root, tops, secrets())) if tops else ()


def _few(paths: list[str]) -> tuple[str, ...]:
    """As few covers as can be laid: of directories with many such files the fullest are left out whole."""
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
    """Looks at one workspace's directory."""

    def __init__(self, root: str) -> None:
        try:
            self._paths: PathValidator | None = PathValidator(root)
        except ConfigurationError:
            self._paths = None  # no such directory: then nothing on a disk can speak against a call

    def __enter__(self) -> "DryRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._paths is not None:
            self._paths.close()

    def under_real_names(self, params: JsonObject) -> JsonObject:
        """A call's parameters with links resolved: the client holds rules against these as well."""
        return params if self._paths is None else under_real_names(self._paths, params)

    def refusal(self, tool_name: str, params: JsonObject) -> ByleaveError | None:
        """Why the machine would refuse a call that the gate let pass; None when nothing speaks against it."""
        if self._paths is None:
            return None
        try:
            if tool_name == "execute_command":
                check_operands(self._paths, understand(params["command"], params["args"]))
            elif "path" in params:
                os.close(self._paths.open_beneath(params["path"], os.O_PATH))
        except MachineError as error:
            # A file that is not there yet is no reason against a call; a pipe that would hang a command is.
            return error if tool_name == "execute_command" else None
        except ByleaveError as error:
            return error
        return None
