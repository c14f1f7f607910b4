"""Ctrl-C, SIGTERM and a closed terminal as calls in the loop, instead of an exception anywhere or an end at once.

Blocks may lie within each other.
"""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

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
