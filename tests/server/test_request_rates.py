"""Token buckets: a sender may burst, then comes at their rate; others never wait for them."""

import pytest

from byleave.server import request_rates
from byleave.server.errors import TooMany
from byleave.server.request_rates import RequestRates

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
