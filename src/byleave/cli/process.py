"""The process of a command: its settings, its log on stderr, its event loop and signals.

A mistake in a setting becomes one sentence that names the variable. A log line has time, level, event, then
`key=value` with values as `repr`, so that nothing in a log can move a cursor; `BYLEAVE_LOG=json` writes JSON lines for
collectors. Secrets are masked, whoever logged them. Only this module configures logging.

Ctrl-C, SIGTERM and a closed terminal become callbacks in the loop, instead of an exception anywhere. Long-running
commands use uvloop if installed, and raised GC thresholds: a server and a client make few cycles but many short-lived
objects, and the default thresholds would cost a tenth of their time.
"""

import asyncio
import functools
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

if "structlog" not in sys.modules and "rich" not in sys.modules:
    # structlog loads Rich if it finds it, for coloured tracebacks that we never write, and Rich takes longer to load
    # than structlog. Hide it in this process, which is ours.
    sys.modules["rich"] = None  # type: ignore[assignment] - so an import is told that there is none
    try:
        import structlog
    finally:
        del sys.modules["rich"]
else:
    import structlog

from byleave.client.tasks import cancel
from byleave.gate import mask_text, mask_value, safe_text
from byleave.protocol.errors import CallerError, ConfigurationError

from .options import ExitCode

if TYPE_CHECKING:
    from structlog.typing import Processor

Settings = TypeVar("Settings", bound=BaseSettings)


def read_settings(model: type[Settings], **given: Any) -> Settings:
    """Read the settings from variables and file; values given here (not None) take precedence."""
    config = os.environ.get("BYLEAVE_CONFIG")
    if config and not Path(config).is_file():
        raise ConfigurationError(
            f"BYLEAVE_CONFIG names {config!r}, and there is no such file.", hint="correct it or leave it out"
        )
    try:
        return model(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        source = f"--{name.replace('_', '-')}" if given.get(name) is not None else f"BYLEAVE_{name.upper()}"
        raise ConfigurationError(
            f"The setting {source} is wrong: {first['msg']}.", hint="docs/settings.md lists what it may be"
        ) from error
    except SettingsError as error:
        raise ConfigurationError(f"A setting cannot be read: {error}.", hint="correct the BYLEAVE_ variable") from error
    except (TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigurationError(
            f"The settings file {config!r} cannot be read: {error}.", hint="it must be TOML: name = value"
        ) from error


def existing_directory(directory: Path) -> Path:
    """Return the absolute directory; raise if it does not exist."""
    absolute = Path(os.path.realpath(directory.expanduser()))
    if not absolute.is_dir():
        what = "is not a directory" if absolute.exists() else "does not exist"
        raise CallerError(f"{str(directory)!r} {what}.", hint="name the directory that agents may work in")
    return absolute


OURS = "byleave"


def on_terminal() -> bool:
    """True if a person can be asked here."""
    return sys.stdin.isatty() and sys.stderr.isatty()


LOG_FILE = "terminal.log"
"""In the state directory: the log of what has its terminal for a chat."""
MOST_LOGGED = 10_000_000


class LogStream(Protocol):
    """The stream that log lines are written to."""

    def write(self, text: str, /) -> object: ...


def set_up_logging(
    level: int, *, verbose: bool = False, file: Path | None = None, stream: LogStream | None = None
) -> None:
    """Send the log to stderr, or where it is told. Other libraries only log warnings, unless `verbose`."""
    as_json = os.environ.get("BYLEAVE_LOG", "").lower() == "json"
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    renderer: Processor = _json if as_json else _line
    handler = logging.StreamHandler(stream or sys.stderr) if file is None else _file_handler(file)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger(OURS).setLevel(logging.DEBUG if verbose else level)


def _file_handler(path: Path) -> logging.Handler:
    """Return a handler that appends to a private file, or to nothing if there can be none."""
    from byleave.client.identity import private_directory  # brings HTTP, which most commands do without

    try:
        private_directory(path.parent)
        if path.exists() and path.stat().st_size > MOST_LOGGED:
            path.unlink()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        return logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except (OSError, ConfigurationError):
        return logging.NullHandler()


def _line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    moment = str(event.pop("time", ""))
    level = str(event.pop("level", "")).upper()
    event.pop("logger", None)
    text = str(event.pop("event", ""))
    trace = event.pop("exception", None)
    values = "".join(f" {key}={value!r}" for key, value in event.items())
    safe = text if text.isprintable() else repr(text)
    line = f"{moment} {level:<7} {safe}{values}" + (f"\n{trace}" if trace else "")
    # `repr` keeps some invisible characters, and a traceback may quote anything.
    return safe_text(mask_text(line), lines=True)


def _json(logger: Any, method: str, event: MutableMapping[str, Any]) -> str | bytes:
    return structlog.processors.JSONRenderer(default=repr)(logger, method, mask_value(dict(event)))


Result = TypeVar("Result")
P = ParamSpec("P")


def run_short(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command to its end. Raise KeyboardInterrupt at Ctrl-C."""

    async def main() -> Result:
        # Python handles a signal only when the main thread runs. One that arrives just before the loop waits, or on
        # another thread, would be missed. Any signal handler gives the loop a wake-up descriptor for all signals.
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGURG, _nothing)
        return await work

    return asyncio.run(main())


def _nothing() -> None: ...


def run_long(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a long-running command, on uvloop if it is installed."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        loop_factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


Work = Callable[P, Coroutine[Any, Any, ExitCode | None]]


def in_loop(
    app: typer.Typer, run: Callable[[Coroutine[Any, Any, ExitCode | None]], ExitCode | None] = run_short
) -> Callable[[Work[P]], Work[P]]:
    """Register an async function as a command of `app`, with its result as the exit code."""

    def register(work: Work[P]) -> Work[P]:
        @functools.wraps(work)
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            raise typer.Exit(run(work(*args, **kwargs)) or ExitCode.OK)

        app.command()(command)
        return work

    return register


async def until_stopped(work: Coroutine[Any, Any, object]) -> None:
    """Run work until it ends or a signal stops it; raise the error that ended it."""
    stop = asyncio.Event()
    with on_stop(stop.set):
        working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            ended = working.done()
        finally:
            await cancel(working, stopping)
    if ended:
        working.result()


async def first_of(*tasks: "asyncio.Future[Any]") -> None:
    """Wait for the first to end; raise its error."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


Act = Callable[[], None]

_outer: ContextVar[tuple[Act, Act] | None] = ContextVar("byleave_stopping", default=None)


@contextmanager
def on_stop(interrupted: Act, terminated: Act | None = None) -> Generator[None]:
    """Call `interrupted` for each Ctrl-C and `terminated` for each SIGTERM inside the block.

    `terminated` defaults to `interrupted`. A closed terminal counts as SIGTERM, unless SIGHUP is ignored (nohup).
    Blocks may be nested.
    """
    acts = (interrupted, terminated or interrupted)
    outer = _outer.get()
    token = _outer.set(acts)
    _listen(acts)
    try:
        yield
    finally:
        _outer.reset(token)
        _listen(outer)


def _listen(acts: tuple[Act, Act] | None) -> None:
    loop = asyncio.get_running_loop()
    for number, position in ((signal.SIGINT, 0), (signal.SIGTERM, 1), (signal.SIGHUP, 1)):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        if acts is None:
            loop.remove_signal_handler(number)
        else:
            loop.add_signal_handler(number, acts[position])
