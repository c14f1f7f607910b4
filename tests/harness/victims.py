"""Programs that are killed and paused, and started again whenever they end, as a service manager would."""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .processes import Started

OF_ONE = ("kill", "pause")
OF_MANY = ("kill", "kill", "kill one", "pause", "pause one")
AGAIN_SECONDS = 0.3
"""Longest pause before a new start."""


@dataclass
class Victim:
    """One program, with the processes of its own that it lives by."""

    name: str
    start: Callable[[], Awaitable[Started]]
    chance: random.Random
    weight: float = 1.0
    """How often it is struck beside others; 0 is never."""
    is_many: bool = False
    """True if its children are struck too: PostgreSQL."""
    process: Started | None = None
    is_struck: bool = False
    """A strike is under way."""
    strikes: Counter[str] = field(default_factory=Counter[str])
    left: Counter[int] = field(default_factory=Counter[int])
    """Exit codes of the times it ended without a kill."""
    _killed: bool = False
    _paused: set[int] = field(default_factory=set[int])

    async def keep(self) -> None:
        """Start it, and start it again, until cancelled."""
        while True:
            self._killed = False
            self.process = await self.start()
            code = await self.process.wait()
            if not self._killed:
                self.left[code] += 1
            await asyncio.sleep(self.chance.uniform(0, AGAIN_SECONDS))

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def strike(self, longest_pause: float) -> None:
        """Kill or pause it, or a child."""
        process = self.process
        assert process is not None
        self.is_struck = True
        try:
            children = _children(process.pid) if self.is_many else []
            some = [self.chance.choice(children)] if children else [process.pid]
            everything = [process.pid, *children]
            match self.chance.choice(
                ("kill", "kill", "kill one", "pause", "pause one") if children else ("kill", "pause")
            ):
                case "kill":
                    self.strikes["kill"] += 1
                    self._kill(process)
                case "kill one":  # PostgreSQL then ends all others by itself, and recovers
                    self.strikes["kill one"] += 1
                    _send(some, signal.SIGKILL)
                case "pause":
                    self.strikes["pause"] += 1
                    await self._pause(everything, self._seconds(longest_pause))
                case _:
                    self.strikes["pause one"] += 1
                    await self._pause(some, self._seconds(longest_pause))
        finally:
            self.is_struck = False

    def end(self) -> None:
        """Kill it for good; `keep` must be cancelled."""
        if self.process is not None:
            everything = [*_children(self.process.pid), *self._paused]
            self._kill(self.process)
            _send(everything, signal.SIGKILL)

    def _kill(self, process: Started) -> None:
        self._killed = True
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)

    def _seconds(self, longest: float) -> float:
        """Mostly short; some long enough for every lease to run out."""
        return self.chance.uniform(0.05, 1.5) if self.chance.random() < 0.85 else self.chance.uniform(1.5, longest)

    async def _pause(self, pids: Sequence[int], seconds: float) -> None:
        self._paused.update(pids)
        try:
            _send(pids, signal.SIGSTOP)
            await asyncio.sleep(seconds)
        finally:
            _send(pids, signal.SIGCONT)
            self._paused.difference_update(pids)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
