"""How commands run in a loop: Ctrl-C is heard at once, whatever the loop does."""

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from byleave.cli.process import run_short

pytestmark = pytest.mark.promise("D")


def test_ctrl_c_is_heard_also_where_it_reaches_another_thread() -> None:
    """The same as one that comes in the moment before the loop waits: the waiting itself is not interrupted."""
    told: list[str] = []

    async def work() -> None:
        # Wakes the loop in the end, so that what slept through it is told.
        asyncio.get_running_loop().call_later(10, told.append, "slept through")
        threading.Thread(target=_signal_this_thread).start()
        try:
            await asyncio.Event().wait()
        finally:
            told.append("heard")

    with pytest.raises(KeyboardInterrupt):
        run_short(work())
    assert told == ["heard"]


def _signal_this_thread() -> None:
    """Once the main thread waits for events, and not for its turn."""
    where = Path(f"/proc/self/task/{threading.main_thread().native_id}/wchan")
    while "poll" not in (found := where.read_text("ascii")) and found != "0":
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def test_result_is_handed_on_also_outside_the_main_thread() -> None:
    async def work() -> int:
        return 7

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(run_short(work())))
    thread.start()
    thread.join()
    assert (run_short(work()), found) == (7, [7])
