"""Sandbox backends of this system, strongest first, and the choice of one.

Each is probed before it is chosen: it returns a sandbox that really ran a command here, or the reason why it cannot. A
weaker one is never used silently. `NoSandbox` isolates nothing: it gives a clean environment, limits and a private
HOME, and reports `none`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from byleave.gate import UNKNOWN_COMMAND, UnderstoodCommand
from byleave.protocol.errors import ConfigurationError, ToolFailure
from byleave.settings import SandboxName

from .bubblewrap import working_sandbox
from .environment import clean_environment, find_program, git_files, lacks_descriptors, own_home
from .sandbox import (
    NO_FILES,
    NOTHING_WITHHELD,
    PROBE_SECONDS,
    BoundFile,
    Isolation,
    Launch,
    Sandbox,
    Withheld,
    limit_argv,
    limit_program,
    limits_of,
    report_unmasked,
)

Files = Mapping[str, str]
Make = Callable[[Path, Files, str], Sandbox | str]
"""Takes the workspace, the files of a command's home, and the reasons why nothing stronger works."""


def _bubblewrap(root: Path, files: Files, _reason: str) -> Sandbox | str:
    try:
        return working_sandbox(root, files=files)
    except ToolFailure as error:
        return error.message


def _landlock(root: Path, files: Files, reason: str) -> Sandbox | str:
    from .landlock import working_landlock  # only where bubblewrap does not work

    return working_landlock(root, files=files, reason=reason)


def _seatbelt(root: Path, files: Files, _reason: str) -> Sandbox | str:
    from .seatbelt import working_seatbelt

    return working_seatbelt(root, files=files)


def dying_argv(workspace: Path) -> list[str]:
    """The argv prefix that ends a command with its parent, even a killed one; empty if unavailable. Processes that the
    command starts are not reached."""
    try:
        prefix = [find_program("setpriv", workspace), "--pdeathsig", "KILL", "--"]
        tried = [*prefix, prefix[0], "--version"]
        subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=PROBE_SECONDS)
    except (ToolFailure, OSError, subprocess.SubprocessError):
        return []
    return prefix


class NoSandbox:
    """No isolation: the command runs as the user, with a clean environment and limits."""

    # Not nproc: outside a user namespace it counts all of the user's processes.
    _LIMITS = ("nofile", "core", "fsize", "cpu", "data")

    def __init__(self, root: Path, *, reason: str, files: Mapping[str, str] = NO_FILES) -> None:
        self._root = root
        self._reason = reason
        self._files = files
        self._prlimit = limit_program(root)
        self._dying = dying_argv(root)

    def isolation(self, *, network: bool = False) -> Isolation:
        # Granted or not, the network stays the host's.
        return Isolation(
            isolated=False,
            backend="none",
            fs="none",
            net="host",
            pidns=False,
            runs_as="root" if os.geteuid() == 0 else "user",
            limits=self._LIMITS if self._prlimit else (),
            degraded=(self._reason,),
        )

    @contextmanager
    def launch(
        self,
        argv: list[str],
        *,
        understood: UnderstoodCommand = UNKNOWN_COMMAND,
        network: bool = False,
        bound_files: Sequence[BoundFile] = (),
        masked: Sequence[str] = (),
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> Generator[Launch]:
        with own_home() as home:
            for name, content in self._files.items():
                (home / name).write_text(content, encoding="utf-8")
            env = clean_environment(self._root, str(home)) | {"TMPDIR": str(home), "BYLEAVE_RUN": home.name}
            limits = {name: value for name, value in limits_of(withheld).items() if name in self._LIMITS}
            yield Launch(
                argv=[*limit_argv(self._prlimit, limits), *self._dying, *argv],
                env=env,
                cwd=str(self._root),
                isolation=report_unmasked(self.isolation(network=network), masked),
                mark=f"BYLEAVE_RUN={home.name}",
            )


def sandboxes() -> dict[SandboxName, Make]:
    """The backends of this system, strongest first."""
    if sys.platform == "darwin":
        return {"seatbelt": _seatbelt}
    return {"bwrap": _bubblewrap, "landlock": _landlock}


def choose_sandbox(root: Path, wanted: SandboxName = "auto") -> Sandbox:
    """The strongest sandbox that works here, or the one wanted and no other.

    ToolFailure if no files could be opened to try one: ask again later.
    """
    try:
        return _choose(root, wanted)
    except OSError as error:
        if not lacks_descriptors(error):
            raise
        raise ToolFailure(
            f"Which sandbox works here could not be tried: {error.strerror}. Nothing was run.",
            hint="end other programs, or raise the limit of open files (ulimit -n), and try again",
        ) from error


def _choose(root: Path, wanted: SandboxName) -> Sandbox:
    files = git_files(root)
    reasons: list[str] = []
    for make in (make for name, make in sandboxes().items() if wanted in ("auto", name)):
        found = make(root, files, " ".join(reasons))
        if not isinstance(found, str):
            return found
        reasons.append(found)
    if wanted not in ("auto", "none"):
        raise ConfigurationError(
            f"BYLEAVE_SANDBOX wants {wanted!r}, which does not work here: {' '.join(reasons) or 'wrong system'}",
            hint="mend that, or set BYLEAVE_SANDBOX to 'auto' to take what works",
        )
    reason = " ".join(reasons) if wanted == "auto" else "BYLEAVE_SANDBOX says that commands are not isolated."
    return NoSandbox(root, reason=reason, files=files)
