"""Digests and times: one spelling for one meaning."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byleave.protocol.approvals import call_digest
from byleave.protocol.wire import canonical_json, moment, now, timestamp
from harness.json_values import Json, JsonObject

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=10), JSON, max_size=5)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def _reversed(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [_reversed(item) for item in value]
    return value


@pytest.mark.promise("A3")
@given(OBJECTS)
def test_order_of_keys_does_not_change_a_digest(params: JsonObject) -> None:
    assert call_digest("read_file", params, "p") == call_digest("read_file", _reversed(params), "p")


@pytest.mark.promise("A3")
@given(OBJECTS)
def test_a_digest_survives_the_wire(params: JsonObject) -> None:
    travelled = json.loads(json.dumps(params))
    assert call_digest("write_file", travelled, "p") == call_digest("write_file", params, "p")


@pytest.mark.promise("A3")
@given(OBJECTS, OBJECTS)
def test_other_parameters_have_another_digest(one: JsonObject, other: JsonObject) -> None:
    same = canonical_json(one) == canonical_json(other)
    assert (call_digest("write_file", one, "p") == call_digest("write_file", other, "p")) is same


@pytest.mark.promise("A3")
def test_any_change_changes_the_digest() -> None:
    calls = [
        call_digest("write_file", {"path": "a", "content": "x"}, "p"),
        call_digest("write_file", {"path": "a", "content": "x "}, "p"),
        call_digest("write_file", {"path": "a", "content": "x", "mode": "write"}, "p"),
        call_digest("write_file", {"path": "a", "content": "x"}, "q"),
        call_digest("read_file", {"path": "a", "content": "x"}, "p"),
        call_digest("write_file", {"path": "a", "content": "x"}, "p", {"script": "1"}),
        call_digest("execute_command", {"command": "git", "args": ["a b"]}, "p"),
        call_digest("execute_command", {"command": "git", "args": ["a", "b"]}, "p"),
        call_digest("execute_command", {"command": "git", "timeout": 1}, "p"),
        call_digest("execute_command", {"command": "git", "timeout": True}, "p"),
        call_digest("execute_command", {"command": "git", "timeout": "1"}, "p"),
    ]
    assert len(set(calls)) == len(calls)
    assert all(len(digest) == 64 for digest in calls)


@pytest.mark.promise("A3")
def test_unequal_spellings_of_a_letter_are_not_the_same_call() -> None:
    assert call_digest("read_file", {"path": "\u00e9"}, "p") != call_digest("read_file", {"path": "e\u0301"}, "p")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_cannot_say_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": value})


@given(MOMENTS, MOMENTS)
def test_times_sort_as_text(one: datetime, other: datetime) -> None:
    first, second = timestamp(one), timestamp(other)
    if first != second:
        assert (first < second) is (one < other)


@given(MOMENTS)
def test_a_time_comes_back_to_the_millisecond(when: datetime) -> None:
    back = moment(timestamp(when))
    assert timedelta(0) <= when - back < timedelta(milliseconds=1)
    assert timestamp(back) == timestamp(when)
    assert len(timestamp(when)) == 24


def test_a_time_of_another_zone_is_written_in_utc() -> None:
    noon = datetime(2026, 11, 15, 12, 0, 0, 500_000, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert timestamp(noon) == "2026-11-15T06:30:00.500Z"
    assert moment(now()).tzinfo is UTC
