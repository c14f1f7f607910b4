"""What the file system would say of a call, without running it: for `byleave check`.

The gate judges a spelling; the client meets the disk when it executes. This asks the disk the same questions the tools
ask before they act: does a link lead out, is there a pipe that never ends, does a name hide a secret. It opens no
content and changes nothing.
"""

import os
from types import TracebackType

from byleave.protocol.errors import ByleaveError, ConfigurationError, MachineError
from byleave.protocol.wire import JsonObject
from byleave.workspace.paths import PathValidator

from .operands import check_operands
from .realnames import under_real_names


class DiskView:
    """Looks at one workspace's directory."""

    def __init__(self, root: str) -> None:
        try:
            self._paths: PathValidator | None = PathValidator(root)
        except ConfigurationError:
            self._paths = None  # no such directory: then nothing on a disk can speak against a call

    def __enter__(self) -> "DiskView":
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
                check_operands(self._paths, params["command"], params["args"])
            elif "path" in params:
                os.close(self._paths.open_beneath(params["path"], os.O_PATH))
        except MachineError as error:
            # A file that is not there yet is no reason against a call; a pipe that would hang a command is.
            return error if tool_name == "execute_command" else None
        except ByleaveError as error:
            return error
        return None
