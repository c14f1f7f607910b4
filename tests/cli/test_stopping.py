"""Being stopped: what a closed terminal does, and what one that was ignored does not."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from byleave.cli.process import on_stop

pytestmark = pytest.mark.promise("L1")


@pytest.fixture
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    yield
    signal.signal(signal.SIGHUP, before)


async def test_closed_terminal_is_told_to_the_innermost_block() -> None:
    told: list[str] = []
    heard = asyncio.Event()

    def inner() -> None:
        told.append("inner")
        heard.set()

    with on_stop(lambda: told.append("outer")), on_stop(lambda: told.append("Ctrl-C"), inner):
        signal.raise_signal(signal.SIGHUP)
        await heard.wait()
    assert told == ["inner"]


async def test_terminal_that_is_to_be_outlived_stops_nothing(ignored: None) -> None:
    told: list[str] = []
    with on_stop(lambda: told.append("stopped")):
        signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert told == []
