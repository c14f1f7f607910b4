"""Which tests coverage traces, and how it is started and stopped.

Tracing makes Python nearly twice as slow, and CI has fifteen minutes for everything. So it is stopped for tests that
cover nothing that others do not: with all that is made for such a test, and in what it starts. pytest-cov cannot do
that: beside several workers it traces the process that only distributes, and goes on in the workers when told to pause.
`make` asks for it with TRACED=1; each worker leaves a `.coverage.*`, which `scripts/coverage_table.py` combines.
"""

import os
from collections import Counter

import pytest
from coverage import Coverage

UNTRACED = (
    # What runs for long, over lines that quick tests run too.
    "tests/agents/test_worker.py::test_long_answer_is_a_few_events_and_arrives_whole",
    "tests/bench/",
    "tests/faults/",
    "tests/gate/test_gate_fuzz.py",
    "tests/gate/test_gate_properties.py",
    "tests/gate/test_gate_render.py::test_half_a_character_is_replaced_in_all_that_is_shown",
    "tests/gate/test_gate_secrets.py::test_hostile_text",
    "tests/gate/test_gate_secrets.py::test_what_a_stream_holds_back_is_bounded",
    "tests/gate/test_gate_vectors.py::test_vectors_are_what_the_gate_says_now",
    "tests/protocol/test_digests.py",
    "tests/protocol/test_wire_schema.py::test_event_fits_the_schema",
    "tests/server/test_tool_routes.py::test_write_beyond_100_mb_fails_clearly",
    "tests/workspace/test_workspace_races.py",
    # What reads our files, and runs nothing of them.
    "tests/test_promises.py",
    "tests/test_shape.py",
    # What starts programs from nothing, to see how they load or end.
    "tests/adapters/test_examples.py",
    "tests/adapters/test_mcp_callers.py::test_neither_server_nor_client_loads_a_bridge_before_it_is_asked_for",
    "tests/agents/test_models.py::test_missing_extra_is_told_with_how_to_install_it",
    "tests/server/test_serving.py::test_making_a_token_loads_no_server",
    "tests/server/test_serving.py::test_process_ends_in_order_on_a_signal",
    "tests/telemetry/test_telemetry_secrets.py",
)
"""Tests that cover nothing that others do not."""
MOST_CASES = 12
"""How many cases of one test are traced, spread over all: hundreds of lines for the gate run the same lines of it."""

_untraced = pytest.StashKey[bool]()


class Tracing:
    """Traces while tests want it."""

    def __init__(self) -> None:
        self._coverage = Coverage(data_suffix=True)
        self._on = False
        self.switch(on=True)

    def switch(self, *, on: bool) -> None:
        if on is not self._on:
            (self._coverage.start if on else self._coverage.stop)()
            self._on = on

    def save(self) -> None:
        self.switch(on=False)
        self._coverage.save()


def started() -> Tracing | None:
    """Trace from now on, if that is asked for and this is a worker: the process that distributes runs no test."""
    return Tracing() if os.environ.get("TRACED") and "PYTEST_XDIST_WORKER" in os.environ else None


def sort_out(items: list[pytest.Item]) -> None:
    """Decide of each test whether it is traced."""
    tests = [item.nodeid.partition("[")[0] for item in items]
    cases, seen = Counter(tests), Counter[str]()
    for item, test in zip(items, tests, strict=True):
        every = -(-cases[test] // MOST_CASES)
        item.stash[_untraced] = test.startswith(UNTRACED) or seen[test] % every != 0
        seen[test] += 1


def is_traced(item: pytest.Item) -> bool:
    return not item.stash.get(_untraced, False)
