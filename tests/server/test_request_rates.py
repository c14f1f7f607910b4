"""Token buckets: a sender may burst, then comes at their rate; others never wait for them."""

import pytest

from byleave.protocol.states import Scope
from byleave.server import request_rates
from byleave.server.errors import TooMany
from byleave.server.request_rates import ANSWER_BYTES, RequestRates
from harness.http_server import StartServer

pytestmark = pytest.mark.promise("D")


class Turned:
    """A clock turned by hand."""

    moment = 100.0

    def __call__(self) -> float:
        return self.moment


def _took(rates: RequestRates, sender: str, most: int = 50) -> int:
    """Requests of a sender that were taken before one was refused."""
    for number in range(most):
        try:
            with rates.admit(sender):
                pass
        except TooMany:
            return number
    return most


def test_sender_bursts_and_then_comes_at_their_rate() -> None:
    clock = Turned()
    rates = RequestRates(2, 8, clock)
    assert _took(rates, "alice") == 8
    clock.moment += 1.5
    assert _took(rates, "alice") == 3
    clock.moment += 1000
    assert _took(rates, "alice") == 8


def test_refused_sender_is_told_when_to_come_back_and_others_do_not_wait() -> None:
    clock = Turned()
    rates = RequestRates(0.125, 1, clock)
    assert _took(rates, "alice") == 1
    with pytest.raises(TooMany) as refused, rates.admit("alice"):
        pass
    assert (refused.value.retry_after, refused.value.status_code) == (8, 429)
    assert _took(rates, "bob") == 1
    clock.moment += 8
    assert _took(rates, "alice") == 1


def test_unanswered_requests_are_limited_too() -> None:
    clock = Turned()
    rates = RequestRates(1000, 2, clock)
    with rates.admit("alice"), rates.admit("alice"):
        clock.moment += 60
        with pytest.raises(TooMany, match="not answered yet") as refused, rates.admit("alice"):
            pass
        assert refused.value.retry_after == 1
        assert _took(rates, "bob", 2) == 2
    with rates.admit("alice"):
        pass


def test_large_answer_counts_as_many_requests() -> None:
    clock = Turned()
    rates = RequestRates(10, 20, clock)
    assert _took(rates, "alice", 1) == 1
    rates.charge("alice", 15 * ANSWER_BYTES)
    assert _took(rates, "alice", 9) == 4
    rates.charge("bob", ANSWER_BYTES - 1)
    assert _took(rates, "bob", 30) == 20, "a small one costs nothing more"
    clock.moment += 60
    assert _took(rates, "alice", 1) == 1
    rates.charge("alice", 2**40)
    with pytest.raises(TooMany) as refused, rates.admit("alice"):
        pass
    assert refused.value.retry_after == 3, "no longer than for two bursts"
    unlimited = RequestRates(0, 1)
    unlimited.charge("alice", 2**40)
    assert _took(unlimited, "alice", 3) == 3


async def test_who_reads_much_waits_and_nobody_else(start_server: StartServer) -> None:
    server = await start_server(user_requests_per_second=0.01, user_request_burst=30)
    alice, bob = server.user(), server.user("bob")
    project = await alice.project()
    where = f"/my/projects/{project}/chat/messages"
    session = (await alice.post(where, {"content": "words " * 16_000})).json["session_id"]
    for _ in range(13):
        assert (await alice.post(where, {"content": "words " * 16_000, "session_id": session})).status == 202
    page = await alice.get(f"{where}?session_id={session}")
    assert (page.status, page.json["total_count"] >= 14) == (200, True)
    refused = await alice.get(f"{where}?session_id={session}")
    assert (refused.status, int(refused.headers["Retry-After"]) > 0) == (429, True)
    assert (await bob.get("/my/projects")).status == 200
    assert (await server.user(scopes=(Scope.AGENT,)).get("/my/projects")).status == 200, "agents have their own"


def test_without_a_rate_nothing_is_refused() -> None:
    assert _took(RequestRates(0, 1), "alice", 2000) == 2000


def test_senders_are_forgotten_once_their_buckets_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rates, "FORGET_EVERY", 4)
    clock = Turned()
    rates = RequestRates(1, 4, clock)
    for number in range(100):
        _took(rates, f"user{number}", 1)
        clock.moment += 1
    assert len(rates._full_at) < 10
    assert not rates._open
