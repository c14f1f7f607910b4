"""The entry: runs a command, and turns every error into one sentence and an exit code.

This is the boundary of the program. Inside, errors are exceptions; outside there is never a traceback, except with
`BYLEAVE_DEBUG=1`.
"""

import gc
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from .options import AsJson, ExitCode, needs_extra

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

STDERR = 2
HELP = """Let AI agents act on your machine, with your approval.

\b
See what it does, on a throw-away project:     byleave demo
Start everything for the current directory:    byleave up
Talk to the agent:                             byleave chat "read package.json and tell me the version"
See what the gate would say of a call:         byleave check execute_command '{"command": "git", "args": ["status"]}'

Settings come from BYLEAVE_* variables or the TOML file named by BYLEAVE_CONFIG. Data goes to stdout,
messages to stderr. BYLEAVE_LOG=json logs as JSON lines; BYLEAVE_DEBUG=1 shows tracebacks.

\b
Exit codes: 0 done or stopped as asked, 1 refused or failed, 2 wrong usage, 3 server unreachable, 130 interrupted.
"""


class Listed(NamedTuple):
    """A command in the list of `byleave --help`; its module has the same name."""

    help: str
    extra: str | None = None
    """Extra that installs its imports."""


COMMANDS = {
    "demo": Listed("See in a minute what it does, on a throw-away project.", "server,agents"),
    "up": Listed("Start everything for one directory.", "server"),
    "serve": Listed("Run the server.", "server"),
    "token": Listed("Print a signed token.", "server"),
    "link": Listed("Print a link that signs a browser or VS Code in."),
    "connect": Listed("Connect this machine to a project."),
    "chat": Listed("Chat with the agent in the terminal."),
    "check": Listed("Say what the gate would say, and why."),
    "tool": Listed("Run one tool here, print its result as JSON."),
    "history": Listed("List what was called, also what was refused."),
    "conversations": Listed("List, find, rename, export or delete conversations."),
    "undo": Listed("Put files back to what they were before a call or a conversation."),
    "approvals": Listed("List what waits for your decision, or decide it."),
    "grants": Listed("List what you allowed beyond one call, or take it back."),
    "notify": Listed("List where you are notified of what waits, or send a test."),
    "policy": Listed("Show the rules that hold here, or check a file of rules."),
    "trust": Listed("Let a project's own rules loosen."),
    "audit": Listed("Prove that the record is whole.", "server"),
    "db": Listed("Prune, migrate or copy the record.", "server"),
    "doctor": Listed("Check the sandbox, programs, rules, server and clock."),
    "mcp": Listed("Offer the tools to an MCP host, on stdin and stdout.", "mcp"),
    "acp": Listed("Be the agent of an editor that speaks ACP.", "acp"),
    "version": Listed("Print the version."),
}
EXTRAS = {
    "server": "the server",
    "server,agents": "the server and its agent",
    "mcp": "the MCP library",
    "acp": "the ACP library",
}
ON_WINDOWS = "Windows itself cannot isolate what agents run, so Byleave does not start there."


class Commands(TyperGroup):
    """The commands, each imported when called: `byleave --help` must not wait for a web framework."""

    def list_commands(self, ctx: "Context") -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        listed = COMMANDS.get(cmd_name)
        if listed is None or cmd_name in self.commands:
            return self.commands.get(cmd_name)
        if cmd_name in ("up", "demo") and sys.stderr.isatty() and "--json" not in ctx.args:
            typer.echo("Starting …", err=True)  # at once: imports take seconds on a small machine
        with needs_extra(listed.extra or "", EXTRAS.get(listed.extra or "", "")):
            module = importlib.import_module(f".{cmd_name}", __package__)
        return typer.main.get_command(module.app)

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.help) for name, listed in COMMANDS.items()])


app = typer.Typer(
    name="byleave",
    cls=Commands,
    help=HELP,
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback(invoke_without_command=True)
def everything(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version.

    \b
    Example:
      byleave version
    """
    from importlib.metadata import version as installed

    number = installed("byleave")
    # The version of `protocol.engine`, for an editor to check; importing that would take a while.
    typer.echo(f'{{"version": "{number}", "engine": 1}}' if as_json else f"byleave {number}")


def main() -> None:
    """Entry point of `byleave`."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code."""
    # Imports make no garbage: at the default thresholds the collector takes a tenth of a start.
    gc.set_threshold(20_000, 20, 20)
    if sys.platform == "win32":
        sys.stderr.write(f"error: {ON_WINDOWS}\nhint: install WSL 2 and run Byleave inside it\n")
        return ExitCode.FAILED
    _open_standard_streams()
    try:
        result = app(arguments, prog_name="byleave", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has closed. The interpreter must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary: a person gets a sentence, never a traceback
        return _explain(error)
    return result if isinstance(result, int) else ExitCode.OK


def _open_standard_streams() -> None:
    """Open closed standard streams on /dev/null: another file on that descriptor would receive our messages."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - it is None when it was closed
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as we run
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # as stderr: a character that cannot be shown must not stop the work


def _explain(error: Exception) -> int:
    # Imported on errors only: `byleave --help` and `byleave version` start without it.
    from byleave.protocol.errors import ByleaveError, UnreachableError, refusal_of_system

    from .screen import complain

    if os.environ.get("BYLEAVE_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, TyperException):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "byleave"
        # The library's prefix for a refused value tells a person nothing.
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
