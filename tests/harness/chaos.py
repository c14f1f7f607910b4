"""`python -m harness.chaos --strikes 1000 --seed 1`: kills and pauses a whole Byleave at work, and checks what is left.

Real servers behind a real nginx, real clients on workspaces of their own, the record in PostgreSQL or SQLite, perhaps a
NATS server: each is struck at random (`kill -9`, SIGSTOP) and started again, while agents, chats, people and watchers
go on. Strikes come in rounds; after each round every kind of call must get through again. In the end all is up, every
call has to end, and `verdict` compares what everybody was told with the record and the files.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import aiohttp
import aiohttp.connector
from pydantic import SecretStr

from byleave.cli.token import DEFAULT_SCOPES
from byleave.client.api import ServerApi
from byleave.protocol.states import Scope
from byleave.server import issue_token
from byleave.settings import ServerSettings

from . import nats, postgres, proxy
from .forks import Forks
from .load import Account, Load, Place, What, furnish
from .ports import free_port
from .processes import Fork, Started, environment
from .verdict import Record, faults
from .victims import Victim

SECRET = "a secret of the drill, long enough to be one"
SERVER_SETTINGS = {
    "BYLEAVE_SECRET": SECRET,
    "BYLEAVE_PARK_SECONDS": "1",
    "BYLEAVE_LEASE_SECONDS": "3",
    "BYLEAVE_HEARTBEAT_SECONDS": "3",
    "BYLEAVE_CLIENT_WAIT_SECONDS": "20",
    "BYLEAVE_MEDIUM_APPROVAL_SECONDS": "60",
    "BYLEAVE_RESULT_GRACE_SECONDS": "10",
    "BYLEAVE_MAX_WAIT_SECONDS": "20",
}
"""Short times, so that pauses outlast them."""
START_SECONDS = 120
AT_ONCE = 3
"""Calls that a client works on at once: so many a strike on it may leave with an end that is not known."""
WATCHED_SECONDS = 30
LOOK_SECONDS = 0.05
TELL_SECONDS = 10
DAY = 86_400
UNEXPECTED = "unexpected error"
"""What a server logs with each answer 500."""
Kind = Literal["postgres", "sqlite"]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What a drill does."""

    seed: int
    strikes: int | None = None
    """None: as many as fit into `seconds`."""
    seconds: float = float("inf")
    servers: int = 1
    database: Kind = "postgres"
    with_bus: bool = False
    projects: int = 3
    agents: int = 3
    """In each project; and as many chats as there are of two."""
    longest_pause: float = 15.0
    strikes_in_a_round: int = 15
    gap_seconds: float = 1.0
    """Longest time between two strikes."""
    patience: float = 240.0
    """Seconds after a round in which every kind of call must get through, and after the last in which all must end."""


@dataclass
class Outcome:
    """What came of it."""

    plan: Plan
    directory: Path
    faults: list[str] = field(default_factory=list[str])
    strikes: int = 0
    seconds: float = 0.0
    told: list[str] = field(default_factory=list[str])
    """What was struck, and how calls ended."""

    @property
    def text(self) -> str:
        head = f"{self.strikes:,} strikes in {self.seconds:.0f} s, seed {self.plan.seed}"
        if not self.faults:
            return "\n".join([head, *self.told, "Every promise was kept."])
        broken = [f"Promises were broken. Logs and files: {self.directory}", *(f"  {fault}" for fault in self.faults)]
        return "\n".join([head, *self.told, *broken])


def why_not(plan: Plan) -> str | None:
    """The reason that a drill cannot be run here."""
    bus = "nats-server is not installed (scripts/setup-tests)" if plan.with_bus and nats.program() is None else None
    return proxy.why_not() or bus or (postgres.why_not() if plan.database == "postgres" else None)


class Drill:
    """One run of a plan."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._chance = random.Random(plan.seed)
        self._directory = Path(tempfile.mkdtemp(prefix="byleave-chaos-"))
        self._proxy = proxy.Proxy(self._directory / "proxy", free_port())
        self._account = Account()
        self._victims: list[Victim] = []
        self._outcome = Outcome(plan, self._directory)
        self.database_url = f"sqlite:///{self._directory / 'byleave.db'}"
        self._bus_url: str | None = None

    async def run(self) -> Outcome:
        """Strike, wait for every end, and compare."""
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            places = await self._open(stack)
            tasks = [
                task
                for place in places
                for task in await stack.enter_async_context(
                    Load(self._proxy.url, place, self._account, random.Random(self._chance.random())).running(
                        self._plan.agents, (self._plan.agents + 1) // 2
                    )
                )
            ]
            telling = asyncio.create_task(self._tell(began))
            stack.callback(telling.cancel)
            await self._strike_all(began)
            self._account.stop = True
            await asyncio.wait(tasks, timeout=self._plan.patience)
            record = Record(self.database_url)
            await self._until_watched(record)
            self._outcome.seconds = time.monotonic() - began
            self._outcome.faults += self.compare(self._account, record, places)
            self._outcome.faults += [*self.audit_faults(), *self._excuse_faults(record)]
            self._outcome.told = [*self._struck(), *self._ends(record)]
        self._outcome.faults += self._log_faults()
        if not self._outcome.faults:
            shutil.rmtree(self._directory, ignore_errors=True)
        return self._outcome

    def compare(self, account: Account, record: Record, places: Sequence[Place]) -> list[str]:
        """The faults of the whole drill."""
        return faults(account, record, places)

    # What is struck

    async def _open(self, stack: AsyncExitStack) -> list[Place]:
        """Start everything, and wait until it works."""
        ports = [free_port() for _ in range(self._plan.servers)]
        nginx = self._proxy.prepare(ports)
        trusting = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
        forks = Forks({**trusting, "SSL_CERT_FILE": str(self._proxy.certificate)})
        stack.callback(forks.close)
        # aiohttp made its context when it was loaded.
        aiohttp.connector._SSL_CONTEXT_VERIFIED.load_verify_locations(self._proxy.certificate)
        if self._plan.database == "postgres":
            server = stack.enter_context(postgres.created())
            self.database_url = server.url()
            command = server.command(fsync="on", max_connections="100")
            await self._keep(stack, "postgres", command, weight=1.5, is_many=True, user=postgres.OWNER)
        if self._plan.with_bus:
            port, program = free_port(), nats.program()
            assert program is not None
            self._bus_url = f"nats://127.0.0.1:{port}"
            await self._keep(stack, "nats", [program, "-a", "127.0.0.1", "-p", str(port)], weight=1)
        for number, port in enumerate(ports):
            await self._keep(
                stack,
                f"server-{number}",
                lambda log, number=number, port=port: self._serve(forks, number, port, log),
                weight=3 / len(ports),
            )
        await self._keep(stack, "nginx", nginx, weight=0)
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.gather(*(self._is_ready(port) for port in ports))
                places = [await self._place(number) for number in range(self._plan.projects)]
        except TimeoutError:
            raise TimeoutError(f"Not every server was ready within {START_SECONDS} s; see {self._directory}.") from None
        for place in places:
            await self._keep(
                stack,
                f"client-{place.name}",
                lambda log, place=place: self._connect(forks, place, log),
                weight=3 / len(places),
            )
        return places

    async def _keep(
        self,
        stack: AsyncExitStack,
        name: str,
        start: Sequence[str] | Callable[[int], Awaitable[Started]],
        *,
        weight: float,
        is_many: bool = False,
        user: str | None = None,
    ) -> None:
        """Keep a program running until the end, with one log."""

        async def begin() -> Started:
            with (self._directory / f"{name}.log").open("ab") as log:
                if callable(start):
                    return await start(log.fileno())
                group, groups = (None, None) if user is None else (user, ())
                return await asyncio.create_subprocess_exec(
                    *start,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    start_new_session=True,
                    user=user,
                    group=group,
                    extra_groups=groups,
                )

        victim = Victim(name, begin, random.Random(self._chance.random()), weight, is_many)
        keeping = asyncio.create_task(victim.keep(), name=name)

        async def end() -> None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            victim.end()
            if victim.process is not None:
                await victim.process.wait()

        stack.push_async_callback(end)
        self._victims.append(victim)

    async def _serve(self, forks: Forks, number: int, port: int, log: int) -> Started:
        settings = {**SERVER_SETTINGS, "BYLEAVE_DATABASE_URL": self.database_url}
        if self._bus_url is not None:
            settings["BYLEAVE_BUS_URL"] = self._bus_url
        env = environment(self._home(f"server-{number}"), **settings)
        return Fork(forks.start(("serve", "--port", str(port)), env, "/", output=log))

    async def _connect(self, forks: Forks, place: Place, log: int) -> Started:
        env = environment(
            self._home(f"client-{place.name}"),
            BYLEAVE_TOKEN=place.token,
            XDG_CONFIG_HOME=str(self._directory / "config"),
            SSL_CERT_FILE=str(self._proxy.certificate),
        )
        where = ("--server", self._proxy.url, "--project", place.project_id, "--workspace", str(place.workspace))
        return Fork(forks.start(("connect", *where), env, "/", output=log))

    def _home(self, name: str) -> Path:
        home = self._directory / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        return home

    async def _is_ready(self, port: int) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(LOOK_SECONDS)

    async def _place(self, number: int) -> Place:
        """A project with its workspace; every second one of the same person."""
        settings = ServerSettings(home=self._home("server-0"), secret=SecretStr(SECRET))
        user, name = f"user{number // 2}", f"p{number}"
        token = issue_token(settings, user, DEFAULT_SCOPES, DAY)
        workspace = self._directory / "workspaces" / name
        furnish(workspace)
        async with ServerApi(self._proxy.url, token) as api:
            project = await api.create_project(name)
        agent_token = issue_token(settings, user, (Scope.AGENT,), DAY, agent="helper")
        return Place(name, project.project_id, workspace, token, agent_token)

    # The strikes

    async def _strike_all(self, began: float) -> None:
        await self._round_ends()
        async with asyncio.TaskGroup() as group:
            for number in self._numbers(began):
                await asyncio.sleep(self._chance.uniform(0, self._plan.gap_seconds))
                free = [one for one in self._victims if one.weight and one.runs and not one.is_struck]
                if free:
                    victim = self._chance.choices(free, [one.weight for one in free])[0]
                    self._outcome.strikes += 1
                    group.create_task(victim.strike(self._plan.longest_pause))
                if number % self._plan.strikes_in_a_round == 0 and not await self._round_ends():
                    return

    def _numbers(self, began: float) -> Iterator[int]:
        number = 0
        while time.monotonic() - began < self._plan.seconds:
            if self._plan.strikes is not None and self._outcome.strikes >= self._plan.strikes:
                return
            number += 1
            yield number

    async def _round_ends(self) -> bool:
        """Wait until every kind of call gets through again; False if it does not."""
        before: Counter[str] | None = None
        try:
            async with asyncio.timeout(self._plan.patience):
                while True:
                    if before is None and not any(victim.is_struck for victim in self._victims):
                        before = self._account.ended()
                    after = self._account.ended()
                    if before is not None and all(after[what] > before[what] for what in get_args(What)):
                        return True
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            told = dict(self._account.ended())
            self._outcome.faults.append(
                f"after strike {self._outcome.strikes}, not every kind of call got through within "
                f"{self._plan.patience:g} s: {dict(before or {})}, then {told}"
            )
            return False

    async def _until_watched(self, record: Record) -> None:
        """Wait until each watcher has the newest event of its feed; who never gets it is found by the verdict."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WATCHED_SECONDS):
                for project_id, seen in self._account.seen.items():
                    while not seen or seen[-1].seq < record.head(project_id):
                        await asyncio.sleep(LOOK_SECONDS)

    # What is said

    async def _tell(self, began: float) -> None:
        while True:
            await asyncio.sleep(TELL_SECONDS)
            ended = self._account.ended()
            goal = "" if self._plan.strikes is None else f" of {self._plan.strikes:,}"
            calls = ", ".join(f"{count} {what}" for what, count in sorted(ended.items()))
            stage = ", waiting for the last ends" if self._account.stop else ""
            self._say(
                f"{time.monotonic() - began:4.0f} s  {self._outcome.strikes:,}{goal} strikes; ended: {calls}{stage}"
            )

    def _struck(self) -> list[str]:
        return [
            f"  {victim.name}: "
            + ", ".join(f"{kind} {count}" for kind, count in sorted(victim.strikes.items()))
            + "".join(f", left by itself with {code}: {count}" for code, count in sorted(victim.left.items()))
            for victim in self._victims
            if victim.strikes or victim.left
        ]

    def _ends(self, record: Record) -> list[str]:
        found = Counter(
            f"{tool} {error_type or status.lower()}"
            for tool, status, error_type in record.rows("SELECT tool_name, status, error_type FROM tool_executions")
        )
        runs = Counter(state for (state,) in record.rows("SELECT state FROM runs"))
        events = sum(map(len, self._account.seen.values()))
        return [
            "  calls: " + ", ".join(f"{what} {count}" for what, count in sorted(found.items())),
            "  runs: " + ", ".join(f"{state.lower()} {count}" for state, count in sorted(runs.items())),
            f"  {events:,} events seen, {len(self._account.decisions):,} answers of people",
        ]

    def audit_faults(self) -> list[str]:
        settings = {**SERVER_SETTINGS, "BYLEAVE_DATABASE_URL": self.database_url}
        done = subprocess.run(
            [sys.executable, "-m", "byleave.cli.main", "audit", "verify", "--json"],
            env=environment(self._home("server-0"), **settings),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and json.loads(done.stdout)["whole"]:
            return []
        return [f"the audit chain is broken: {done.stdout} {done.stderr}"]

    def _excuse_faults(self, record: Record) -> list[str]:
        """More calls with an end that is not known than strikes on clients explain."""
        strikes = sum(sum(victim.strikes.values()) for victim in self._victims if victim.name.startswith("client"))
        count = len(
            record.rows("SELECT id FROM tool_executions WHERE error_type IN ('interrupted', 'execution_timeout')")
        )
        return [f"the end of {count} calls is not known, after {strikes} strikes on clients"] * (
            count > AT_ONCE * strikes
        )

    def _log_faults(self) -> list[str]:
        """Answers 500 of a server: no outage excuses them."""
        found: list[str] = []
        for log in sorted(self._directory.glob("server-*.log")):
            lines = [line for line in log.read_text(errors="replace").splitlines() if UNEXPECTED in line]
            if lines:
                found.append(f"{log.name} has {len(lines)} unexpected errors, the first: {lines[0]}")
        return found


async def drill(plan: Plan, say: Say = lambda line: None) -> Outcome:
    """Carry a plan out."""
    return await Drill(plan, say).run()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strikes", type=int, help="how many; left out: as many as fit into the minutes")
    parser.add_argument("--minutes", type=float, help="longest time for strikes")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--bus", action="store_true", help="wake-ups by a NATS server")
    given = parser.parse_args(arguments)
    if given.database == "sqlite" and (given.servers > 1 or given.bus):
        parser.error("SQLite has one server, and needs no bus")
    seconds = float("inf") if given.minutes is None else given.minutes * 60
    if given.strikes is None and given.minutes is None:
        seconds = 180.0
    plan = Plan(given.seed, given.strikes, seconds, given.servers, given.database, given.bus)
    missing = why_not(plan)
    if missing is not None:
        sys.stderr.write(
            f"Nothing can be run: {missing}.\nhint: sudo apt-get install nginx-light nats-server postgresql\n"
        )
        return 2

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    say(f"seed {plan.seed}: {plan.servers} servers on {plan.database}{' with NATS' if plan.with_bus else ''}")
    outcome = asyncio.run(drill(plan, say))
    say(outcome.text)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
