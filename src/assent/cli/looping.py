"""How a long-running command runs: on the quickest event loop there is, with a memory that is not searched in vain.

A server and a client make hardly any cycles, but many short-lived values: the collector's usual pace would spend a
tenth of their time looking for garbage that is not there. What lives since the start is never looked at again.
"""

import asyncio
import gc
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


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
