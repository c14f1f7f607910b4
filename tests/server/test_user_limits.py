"""One user fills every limit, on one server with another: they alone meet it, each in words."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from byleave.calls.approvals import MAX_WAITING
from byleave.client.api import ServerApi
from byleave.protocol.errors import UnreachableError
from byleave.protocol.states import ResponseStatus, Scope
from byleave.server.feed import STREAMS_PER_USER
from byleave.server.request_rates import RequestRates
from harness.household import open_household
from harness.http_server import Answer, StartServer, User

pytestmark = pytest.mark.promise("D")
OPEN_CALLS = MAX_WAITING + 20
BURST = 900
MEGABYTE = 1024 * 1024
Result = TypeVar("Result")


async def _read(user: User, project: str) -> Answer:
    return await user.execute(project, "read_file", {"path": "a.txt"})


async def _beside(noise: Awaitable[Result], quiet: User, project: str) -> Result:
    """The outcome of some noise, beside which all that the quiet user does works."""
    outcome, calls = await asyncio.gather(noise, asyncio.gather(*(_read(quiet, project) for _ in range(10))))
    assert {(call.status, call.json["status"]) for call in calls} == {(200, "completed")}
    async with quiet.feed(project):
        assert (await quiet.get("/my/approvals")).status == 200
    return outcome


async def _first(tasks: Iterable["asyncio.Task[Answer]"], count: int) -> list[Answer]:
    """The first answers to come."""
    coming = asyncio.as_completed(tasks, timeout=60)
    return [await next(coming) for _ in range(count)]


def _outcomes(answers: Iterable[Answer]) -> Counter[str]:
    return Counter(answer.json["error"] or answer.json["status"] for answer in answers)


@pytest.mark.usefixtures("database_url")
async def test_noisy_user_meets_each_limit_alone_and_in_words(start_server: StartServer) -> None:
    server = await start_server(
        user_requests_per_second=1, user_request_burst=BURST, user_open_calls=OPEN_CALLS, user_mb=1
    )
    noisy, quiet = server.user("noisy"), server.user("quiet")
    loud, calm = await noisy.project(), await quiet.project()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(quiet.machine(calm))

        writes = (noisy.execute(loud, "write_file", {"path": f"{n}.txt", "content": "x"}) for n in range(250))
        assert _outcomes(await _beside(asyncio.gather(*writes), quiet, calm)) == {
            "awaiting_approval": MAX_WAITING,
            f"{MAX_WAITING} questions wait for this user already; nothing more is asked until some are answered.": 50,
        }

        # No machine is there: calls that begin wait for one.
        reads = [asyncio.create_task(_read(noisy, loud)) for _ in range(100)]
        stack.callback(lambda: [read.cancel() for read in reads])
        assert _outcomes(await _beside(_first(reads, 80), quiet, calm)) == {
            f"{OPEN_CALLS} calls of this user are open already; no more begin until some have ended or are "
            "cancelled.": 80
        }
        assert sum(not read.done() for read in reads) == OPEN_CALLS - MAX_WAITING

        await noisy.execute(loud, "write_file", {"path": "large.txt", "content": "x" * MEGABYTE})
        full = (await _beside(_read(noisy, loud), quiet, calm)).json
        assert (full["status"], full["error_type"]) == ("failed", "refused")
        assert full["error"].startswith("This user's part of the record is full: it has 1 MB")
        assert "byleave db prune" in full["hint"]
        assert (await noisy.get(f"/my/tools/{full['tool_id']}")).status == 404

        for _ in range(STREAMS_PER_USER):
            await stack.enter_async_context(noisy.feed(loud))
        stream = await _beside(noisy.get(f"/my/projects/{loud}/chat/stream?execute=false"), quiet, calm)
        assert (stream.status, stream.json["detail"]) == (429, f"You have {STREAMS_PER_USER} streams open already.")

        requests = await _beside(asyncio.gather(*(noisy.get("/my/projects") for _ in range(BURST))), quiet, calm)
        assert {answer.status for answer in requests} == {200, 429}
        refused = next(answer for answer in requests if answer.status == 429)
        assert refused.json["detail"] == "You send more than 1 requests a second."
        assert "Retry-After" in refused.json["hint"]
        assert int(refused.headers["Retry-After"]) >= 1

        agent = server.user("noisy", (Scope.AGENT,), agent="nightly")
        assert (await agent.get(f"/my/projects/{loud}/tools/available")).status == 200, "agents have their own rate"


async def test_refused_request_with_a_body_leaves_its_connection_in_order(start_server: StartServer) -> None:
    server = await start_server(user_requests_per_second=0.001, user_request_burst=2)
    alice, bob = server.user(), server.user("bob")
    project = await alice.project()
    large = {"path": "a.txt", "content": "x" * 300_000}
    answers = [await alice.execute(project, "write_file", large) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 429, 429, 429]
    assert (await bob.get("/my/projects")).status == 200


@pytest.mark.usefixtures("database_url")
async def test_restarted_server_measures_what_a_user_has_and_refuses_only_their_calls(
    start_server: StartServer,
) -> None:
    before = await start_server()
    alice = before.user()
    project = await alice.project()
    await alice.execute(project, "write_file", {"path": "a.txt", "content": "x" * 2 * MEGABYTE})
    before.listening.stop()
    await before.task
    server = await start_server(user_mb=1)
    async with asyncio.timeout(30):
        while not server.parts.shares.passes:
            await asyncio.sleep(0.005)
    alice, bob = server.user(), server.user("bob")
    assert "part of the record is full" in (await _read(alice, project)).json["error"]
    async with bob.machine(other := await bob.project()):
        assert (await _read(bob, other)).json["status"] == "completed"


async def test_client_sends_again_what_was_one_too_many(start_server: StartServer) -> None:
    server = await start_server(user_requests_per_second=4, user_request_burst=3)
    async with ServerApi(server.url, server.user().token) as api:
        answers = await asyncio.gather(*(api.list_projects() for _ in range(8)))
    assert [answer.total_count for answer in answers] == [0] * 8


async def test_client_gives_up_on_a_server_that_asks_for_a_long_pause(start_server: StartServer) -> None:
    server = await start_server(user_requests_per_second=0.01, user_request_burst=1)
    async with ServerApi(server.url, server.user().token) as api:
        await api.list_projects()
        with pytest.raises(UnreachableError, match=r"more than 0\.01 requests a second"):
            await api.list_projects()


async def test_reports_of_a_client_beyond_its_rate_all_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[object] = []
    take = RequestRates._take

    def watched(rates: RequestRates, sender: object) -> None:
        try:
            take(rates, sender)
        except Exception:
            refused.append(sender)
            raise

    monkeypatch.setattr(RequestRates, "_take", watched)
    async with open_household(tmp_path, user_requests_per_second=10, user_request_burst=14) as house:
        (house.workspace / "a.txt").write_text("hello")
        async with house.agent() as agent:
            calls = [agent.execute("read_file", {"path": "a.txt"}) for _ in range(40)]
            answers = await asyncio.gather(*calls)
    assert {answer.status for answer in answers} == {ResponseStatus.COMPLETED}
    assert {"alice"} == {sender[0] for sender in refused}  # type: ignore[index]
