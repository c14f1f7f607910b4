"""One measurement: some calls to warm up, some one at a time for the latency, then many in flight for the rate.

Knows nothing of who answers: a caller is any coroutine function that makes one call and raises when it went wrong. One
that returns a number has timed the call itself, in milliseconds.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

Caller = Callable[[int], Awaitable[float | None]]


FILES = 32
"""Files of each size, so that not always the same one is asked for."""


class WrongAnswer(Exception):
    """A call was answered, but not with the file."""


@dataclass(frozen=True)
class Plan:
    """How many calls of each kind; small numbers make a quick look, not a measurement."""

    warm_up: int = 100
    one_at_a_time: int = 300
    together: int = 2000
    in_flight: int = 32
    size: int = 4096
    """Bytes of each file."""
    write: bool = False
    """Write files that a person approves, from the decision to the result, instead of reading."""

    def path(self, number: int) -> str:
        return f"{self.size}-{number % FILES}.txt"


@dataclass(frozen=True)
class Sample:
    """What one run gave."""

    latencies_ms: list[float]
    """Each call, one at a time."""
    calls_per_second: float
    """With `in_flight` at once."""
    loaded_latencies_ms: list[float]
    """Each call while so many were in flight."""
    cpu_seconds: float
    """What the calling process used for the calls in flight."""


async def measure(call: Caller, plan: Plan, mark: Callable[[], None] = lambda: None) -> Sample:
    """Run the plan; stops at the first call that goes wrong, since a wrong answer has no speed.

    `mark` is called when the calls in flight begin.
    """
    for number in range(plan.warm_up):
        await call(number)
    latencies = [await _timed(call, number) for number in range(plan.one_at_a_time)]

    numbers = iter(range(plan.together))
    loaded: list[float] = []

    async def worker() -> None:
        for number in numbers:
            loaded.append(await _timed(call, number))

    # The connections of all workers are made before the clock starts.
    await asyncio.gather(*(call(number) for number in range(plan.in_flight)))
    mark()
    used, started = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(plan.in_flight):
            group.create_task(worker())
    elapsed = time.perf_counter() - started
    return Sample(latencies, plan.together / elapsed, loaded, time.process_time() - used)


async def _timed(call: Caller, number: int) -> float:
    started = time.perf_counter()
    told = await call(number)
    return (time.perf_counter() - started) * 1000 if told is None else told


async def answer_plans(caller: Callable[[Plan], Caller]) -> None:
    """Run every plan that arrives on stdin, a line each; write `marked` and then the sample as a line on stdout."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        plan = Plan(**json.loads(line))
        sample = await measure(caller(plan), plan, lambda: say("marked"))
        say(asdict(sample))


def say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def percentile(values: list[float], percent: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]
