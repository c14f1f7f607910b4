"""The state machine as a property: every pair of states, every walk."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byleave.protocol.states import (
    APPROVAL_TIMEOUTS,
    ENDED,
    RESPONSE_STATUS,
    TRANSITIONS,
    ErrorType,
    ExecutionStatus,
    ResponseStatus,
    RiskLevel,
    get_timeout_for_risk_level,
)

S = ExecutionStatus
DRAWN = {
    (S.PENDING, S.APPROVED),
    (S.PENDING, S.AWAITING_APPROVAL),
    (S.PENDING, S.FAILED),
    (S.AWAITING_APPROVAL, S.APPROVED),
    (S.AWAITING_APPROVAL, S.REJECTED),
    (S.AWAITING_APPROVAL, S.TIMEOUT),
    (S.AWAITING_APPROVAL, S.FAILED),
    (S.AWAITING_APPROVAL, S.PENDING),  # a person changed the call: it is judged, inspected and asked anew
    (S.APPROVED, S.EXECUTING),
    (S.APPROVED, S.FAILED),
    (S.EXECUTING, S.COMPLETED),
    (S.EXECUTING, S.FAILED),
}


@pytest.mark.promise("W-states")
def test_there_are_eight_states() -> None:
    assert [state.value for state in S] == [
        "pending",
        "awaiting_approval",
        "approved",
        "executing",
        "completed",
        "rejected",
        "timeout",
        "failed",
    ]


@pytest.mark.promise("W-transitions")
@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)))
def test_only_drawn_transitions_exist(before: S, after: S) -> None:
    assert (after in TRANSITIONS[before]) is ((before, after) in DRAWN)


@pytest.mark.promise("W-transitions")
def test_an_end_is_an_end() -> None:
    assert {state for state in S if state.ended} == ENDED
    assert {state for state, following in TRANSITIONS.items() if not following} == ENDED


@pytest.mark.promise("W-transitions", "W7")
@given(st.lists(st.sampled_from(list(S)), max_size=12))
def test_nothing_completes_unless_it_was_approved_and_executing(wishes: list[S]) -> None:
    """Whatever is asked for in whatever order, a walk to COMPLETED passes APPROVED and EXECUTING, once each. Only back
    and forth between the machine and the person, who changed the call, may it go."""
    walk = [S.PENDING]
    for wish in wishes:
        if wish in TRANSITIONS[walk[-1]]:
            walk.append(wish)
    after = [state for state in walk if state not in (S.PENDING, S.AWAITING_APPROVAL)]
    assert len(after) == len(set(after))
    if S.COMPLETED in walk:
        assert walk[-3:] == [S.APPROVED, S.EXECUTING, S.COMPLETED]
    if S.REJECTED in walk or S.TIMEOUT in walk:
        assert S.EXECUTING not in walk


@pytest.mark.promise("W-response")
def test_every_state_has_a_status_for_the_agent() -> None:
    assert set(RESPONSE_STATUS) == set(S)
    assert set(RESPONSE_STATUS.values()) == set(ResponseStatus)


@pytest.mark.promise("G6")
def test_time_to_answer_follows_the_risk() -> None:
    assert get_timeout_for_risk_level(RiskLevel.LOW) is None
    assert get_timeout_for_risk_level(RiskLevel.MEDIUM) == 300
    assert get_timeout_for_risk_level(RiskLevel.HIGH) == 600
    assert set(APPROVAL_TIMEOUTS) == set(RiskLevel)


@pytest.mark.promise("X21")
def test_outcomes_that_share_a_state_have_their_own_names() -> None:
    names = {"rejected", "approval_timeout", "refused", "no_client", "drifted", "cancelled", "interrupted"}
    assert names <= {kind.value for kind in ErrorType}


def test_risks_are_ordered() -> None:
    assert max(RiskLevel.HIGH, RiskLevel.LOW, RiskLevel.MEDIUM, key=lambda level: level.rank) is RiskLevel.HIGH
    assert [level.rank for level in RiskLevel] == [0, 1, 2]
