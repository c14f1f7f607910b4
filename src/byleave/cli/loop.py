"""How a command runs in a loop: one that ends soon, and one that stays.

Both hear Ctrl-C at once. One that stays runs on the quickest event loop there is, with a memory that is not searched
in vain: a server and a client make hardly any cycles, but many short-lived values, and the collector's usual pace would
spend a tenth of their time looking for garbage that is not there. What lives since the start is never looked at again.

Ctrl-C, SIGTERM and a closed terminal as calls in the loop, instead of an exception anywhere or an end at once.

Blocks may lie within each other.
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
    """Run a command to its end. Raises KeyboardInterrupt at Ctrl-C."""

    async def awake() -> Result:
        # Python acts on a signal when the main thread does something. One that comes right before the loop waits, or to
        # another thread, would be slept through; a loop that minds any signal has a descriptor that all of them wake.
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGURG, _nothing)
        return await work

    return asyncio.run(awake())


def _nothing() -> None: ...


def run_long(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command that stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(work)


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one."""
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None


Act = Callable[[], None]

_outer: ContextVar[tuple[Act, Act] | None] = ContextVar("byleave_stopping", default=None)


@contextmanager
def on_stop(interrupted: Act, terminated: Act | None = None) -> Generator[None]:
    """Call `interrupted` for each Ctrl-C and `terminated` (else the same) for each SIGTERM while the block runs.

    A terminal that is closed is a SIGTERM, unless we were told to outlive it (nohup).
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
