"""Event loops and signals of commands: short ones and long-running ones.

Both react to Ctrl-C at once. Ctrl-C, SIGTERM and a closed terminal become callbacks in the loop, instead of an
exception anywhere. Long-running commands use uvloop if installed, and raised GC thresholds: a server and a client make
few cycles but many short-lived objects, and the default thresholds would cost a tenth of their time. Objects from the
start are frozen and never scanned again.
"""

import asyncio
import gc
import importlib
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Result = TypeVar("Result")


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
    """Run a long-running command."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(work)


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed."""
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None


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
