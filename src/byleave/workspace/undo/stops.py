"""How an undo comes to a stop, in words a person can act on.

Before its first step nothing has happened, and that is said; after it some paths may be back and others not, and that
is said too, whatever was in the way. Nothing here touches a file.
"""

import contextlib
import errno
from collections.abc import Generator
from pathlib import Path

from byleave.protocol.errors import ByleaveError, ToolFailure
from byleave.workspace.files.swapping import Unexpected
from byleave.workspace.paths import path_error, visible

_AGAIN = "what is already as it was is passed over."
_FULL = (errno.ENOSPC, errno.EDQUOT)


def refuse_full(error: OSError, store: Path) -> None:
    """What is there now could not be kept. Raises ToolFailure where the disk is full; no file changed for that."""
    if error.errno in _FULL:
        raise ToolFailure(
            "There is no room on the disk to keep what is there now, so nothing is undone.",
            hint=f"Free some space where {str(store)!r} lies, then undo again.",
        ) from error


@contextlib.contextmanager
def acting(path: str) -> Generator[None]:
    """One step. Turns a change that was noticed, and what the kernel says, into an error about `path`."""
    try:
        yield
    except (Unexpected, FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        raise changed(path) from error
    except OSError as error:
        raise stopped(path_error(visible(path), error)) from error


def stopped(error: ByleaveError) -> ToolFailure:
    """Something else than a change is in the way: where it stopped, and that it stopped in the middle."""
    hint = "Undo again when that is mended" if error.hint is None else f"{error.hint} Then undo again"
    return ToolFailure(
        f"{error.message} The undo stopped there; other paths may be back already.", hint=f"{hint}: {_AGAIN}"
    )


def changed(path: str) -> ToolFailure:
    return ToolFailure(
        f"{visible(path)!r} changed while it was undone; the undo stopped there.",
        hint=f"Look at the file, then undo again: {_AGAIN}",
    )
