"""The entry: runs a command, and turns whatever goes wrong into one sentence and an exit code.

This is the boundary of the program. Behind it errors are exceptions; before it there is never a traceback, except with
`BYLEAVE_DEBUG=1`.
"""

import gc
import os
import sys
import traceback

from typer.exceptions import TyperException

from .commands import app
from .exits import ExitCode

STDERR = 2
ON_WINDOWS = "Windows itself cannot isolate what agents run, so Byleave does not start there."


def main() -> None:
    """What `byleave` runs."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and give its exit code."""
    # While everything is loaded nothing becomes garbage: at its usual pace the collector takes a tenth of a start.
    gc.set_threshold(20_000, 20, 20)
    if sys.platform == "win32":
        sys.stderr.write(f"error: {ON_WINDOWS}\nhint: install WSL 2 and run Byleave inside it\n")
        return ExitCode.FAILED
    _open_standard_streams()
    try:
        result = app(arguments, prog_name="byleave", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left. The interpreter must not fail again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary: a person gets a sentence, never a traceback
        return _explain(error)
    return result if isinstance(result, int) else ExitCode.OK


def _open_standard_streams() -> None:
    """Where stdin, stdout or stderr was closed nothing else may get its number: a file's would receive our messages."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - it is None when it was closed
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as we run
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # as stderr: what cannot be shown there must not stop the work


def _explain(error: Exception) -> int:
    # Imported when something went wrong: `byleave --help` and `byleave version` start without it.
    from byleave.protocol.errors import ByleaveError, UnreachableError, refusal_of_system

    from .screen import complain

    if os.environ.get("BYLEAVE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, TyperException):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "byleave"
        # What the library says of a value it refuses has a prefix that tells a person nothing.
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        complain(f"{message}.", f"see `{command} --help`")
        return ExitCode.USAGE
    if isinstance(error, ByleaveError):
        complain(error.message, error.hint)
        return ExitCode.UNREACHABLE if isinstance(error, UnreachableError) else ExitCode.FAILED
    if isinstance(error, OSError):
        refusal = refusal_of_system(error)
        complain(refusal.message, refusal.hint)
        return ExitCode.FAILED
    complain(
        f"Something in Byleave itself went wrong ({type(error).__name__}).",
        "run it again with BYLEAVE_DEBUG=1 and report what it prints",
    )
    return ExitCode.FAILED


if __name__ == "__main__":
    main()
