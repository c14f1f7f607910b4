"""Ctrl-C and SIGTERM as something a coroutine can wait for, instead of an exception anywhere."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def on_stop(act: Callable[[], None]) -> Generator[None]:
    """Call `act` for each Ctrl-C and SIGTERM while the block runs."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
