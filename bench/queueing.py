"""`python -m bench.queueing`: how long a write waits for its commit, by simulation, beside the tables of docs/scale.md.

The model is the writer of `store/postgres`: units of work arrive at random; each server commits the units that wait,
at most 64 together, one commit after the other; and of all servers one at a time has its turn. A commit of n units
takes a fixed time and a time for each unit. Nothing here knows SQL, or the clock of the machine that runs it.
"""

import heapq
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "scale.md"
UNITS_OF_A_CALL = 2
"""A LOW call is begun, and ended."""
MAX_BATCH = 64
"""As `store/units.py` has it."""
FIXED_MS, UNIT_MS = 0.8, 0.57
"""A commit without its flush, and what each unit adds: `python -m bench.commits`, a project for each caller."""
FIXED_TRIPS, UNIT_TRIPS = 2, 2
"""Round trips between server and database, which the same measurement counts."""
TOLERANCE = 0.1
UNITS = 30_000
"""Units of one simulation; the first tenth is not counted."""

Service = Callable[[int], float]
"""Milliseconds of a commit, by its number of units."""


@dataclass(frozen=True)
class Database:
    """The time of a commit."""

    flush_ms: float = 0.1
    trip_ms: float = 0.0

    def __call__(self, units: int) -> float:
        fixed = FIXED_MS + self.flush_ms + FIXED_TRIPS * self.trip_ms
        return fixed + units * (UNIT_MS + UNIT_TRIPS * self.trip_ms)

    @property
    def most_calls(self) -> float:
        """Calls a second at which each commit is full: the limit, whatever the number of servers."""
        return MAX_BATCH / self(MAX_BATCH) / UNITS_OF_A_CALL * 1000


def simulate(
    service: Service,
    units_per_ms: float,
    *,
    servers: int = 1,
    most: int = MAX_BATCH,
    units: int = UNITS,
    waits_open: bool = False,
    seed: int = 1,
) -> list[float]:
    """Milliseconds that each unit waited until its commit was kept.

    A server closes its batch and then waits for its turn. `waits_open`: units that come meanwhile go with it.
    """
    chance = random.Random(seed)
    arrivals: list[list[float]] = [[] for _ in range(servers)]
    now = 0.0
    for _ in range(units):
        now += chance.expovariate(units_per_ms)
        arrivals[chance.randrange(servers)].append(now)
    next_unit = [0] * servers
    # The servers that have units, by the time they ask for their turn.
    asking = [(times[0], server) for server, times in enumerate(arrivals) if times]
    heapq.heapify(asking)
    waited: list[tuple[float, float]] = []
    free_at = 0.0
    while asking:
        asked_at, server = heapq.heappop(asking)
        begins_at = max(asked_at, free_at)
        times, first = arrivals[server], next_unit[server]
        last, closes_at = first + 1, begins_at if waits_open else asked_at
        while last < len(times) and last - first < most and times[last] <= closes_at:
            last += 1
        free_at = begins_at + service(last - first)
        waited += [(time, free_at - time) for time in times[first:last]]
        next_unit[server] = last
        if last < len(times):
            heapq.heappush(asking, (max(free_at, times[last]), server))
    waited.sort()
    return [wait for _, wait in waited[units // 10 :]]


def percentiles(waits: list[float]) -> tuple[float, float]:
    """The median, and what one in a hundred exceeds."""
    hundredths = statistics.quantiles(waits, n=100)
    return hundredths[49], hundredths[98]


def of_calls(database: Database, calls_per_second: float, servers: int, *, waits_open: bool = False) -> list[float]:
    rate = calls_per_second * UNITS_OF_A_CALL / 1000
    return simulate(database, rate, servers=servers, waits_open=waits_open)


# The tables of the document: each row is read, computed again and compared.

_FLUSHES = (0.1, 1.0, 5.0)


def latencies(row: list[str]) -> list[float]:
    """Columns: calls/s and servers; p50 and p99 for each time of a flush."""
    calls, servers = float(row[0]), int(row[1])
    return [each for flush in _FLUSHES for each in percentiles(of_calls(Database(flush), calls, servers))]


def ceilings(row: list[str]) -> list[float]:
    """Columns: round trip and flush in ms; most calls/s of one record."""
    return [Database(flush_ms=float(row[1]), trip_ms=float(row[0])).most_calls]


def closed(row: list[str]) -> list[float]:
    """Columns: callers that each wait for their call; calls/s. While half of their units commit, half wait."""
    callers = int(row[0])
    together = min(MAX_BATCH, max(1, callers // 2))
    return [together / Database()(together) / UNITS_OF_A_CALL * 1000]


def kept_open(row: list[str]) -> list[float]:
    """Columns: calls/s and servers; p50 and p99 if a server closed its batch when its turn has come."""
    return list(percentiles(of_calls(Database(), float(row[0]), int(row[1]), waits_open=True)))


TABLES: dict[str, tuple[int, Callable[[list[str]], list[float]]]] = {
    "latencies": (2, latencies),
    "ceilings": (2, ceilings),
    "closed": (1, closed),
    "kept_open": (2, kept_open),
}
"""By the name in a comment before the table: the number of given columns, and what follows from them."""


def rows(document: str, name: str) -> Iterator[list[str]]:
    """Cells of a table's rows, without its head."""
    _, mark, after = document.partition(f"<!-- bench/queueing.py: {name} -->\n\n")
    if not mark:
        raise LookupError(f"{DOCUMENT.name} has no table {name!r}")
    for line in after.partition("\n\n")[0].splitlines()[2:]:
        yield [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]


def main(document: str) -> int:
    """Print each row with what was computed; 1 if the document says something else."""
    wrong = 0
    for name, (given, compute) in TABLES.items():
        for row in rows(document, name):
            told = [float(cell) for cell in row[given:]][: len(computed := compute(row[:given]))]
            fits = all(abs(says - is_) <= TOLERANCE * is_ for says, is_ in zip(told, computed, strict=True))
            wrong |= not fits
            cells = "".join(f"{value:>9.1f}" for value in computed)
            sys.stdout.write(f"{name:<10}{', '.join(row[:given]):>12}{cells}{'' if fits else f'   NOT {told}'}\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(DOCUMENT.read_text("utf-8")))
