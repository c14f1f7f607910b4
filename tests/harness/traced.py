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
    # Slow when traced, over lines that quick tests run too.
    "tests/bench/",
    "tests/e2e/",
    "tests/faults/",
    "tests/gate/test_gate_properties.py",
    "tests/gate/text/test_gate_secrets.py::test_hostile_text",
    "tests/protocol/test_digests.py",
    "tests/protocol/test_wire_schema.py::test_event_fits_the_schema",
    "tests/workspace/commands/test_workspace_work.py",
    # Time, memory or a race is what they test.
    "tests/gate/test_gate_adversary.py::test_telling_names_without_end_are_searched_in_linear_time",
    "tests/gate/text/test_gate_secrets.py::test_what_a_stream_holds_back_is_bounded",
    "tests/server/test_feed_streams.py::test_reader_that_does_not_read_costs_bounded_memory_and_loses_nothing",
    "tests/workspace/test_workspace_paths.py::test_swapped_link_never_lets_a_read_out",
    "tests/workspace/test_workspace_races.py",
    "tests/workspace/sandbox/test_workspace_runaways.py::test_fork_bomb_is_bounded_and_gone",
    "tests/workspace/sandbox/test_workspace_runaways.py::test_output_in_single_bytes_weighs_no_more_than_what_it_holds",
    "tests/workspace/search/test_workspace_search.py::test_no_expression_can_hang_it",
    "tests/workspace/search/test_workspace_search_sandbox.py::test_nothing_outside_is_reported_while_links_are_swapped",
    # They read our files, and run nothing of them.
    "tests/test_promises.py",
    "tests/test_shape.py",
    # They start programs from nothing, to see how they load or end.
    "tests/adapters/test_examples.py",
    "tests/adapters/test_mcp_callers.py::test_neither_server_nor_client_loads_a_bridge_before_it_is_asked_for",
    "tests/agents/test_models.py::test_missing_extra_is_told_with_how_to_install_it",
    "tests/server/test_serving.py::test_making_a_token_loads_no_server",
    "tests/server/test_serving.py::test_process_ends_in_order_on_a_signal",
    "tests/telemetry/test_telemetry_switch.py::test_nothing_of_opentelemetry_is_imported_while_it_is_off",
    "tests/workspace/sandbox/test_workspace_runaways.py::test_sandbox_of_a_client_killed_while_it_started_is_ended_by_the_next",
    "tests/workspace/undo/test_workspace_undo.py::test_a_kill_in_the_middle_leaves_a_store_that_leads_all_the_way_back",
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
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if not os.environ.get("TRACED") or worker is None:
        return None
    tracing = Tracing()
    # All of them load the same, and traced that takes twice as long.
    tracing.switch(on=worker == "gw0")
    return tracing


def sort_out(items: list[pytest.Item]) -> None:
    """Decide of each test whether it is traced."""
    tests = [item.nodeid.partition("[")[0] for item in items]
    cases, seen = Counter(tests), Counter[str]()
    for item, test in zip(items, tests, strict=True):
        every = -(-cases[test] // MOST_CASES)
        item.stash[_untraced] = test.startswith(UNTRACED) or seen[test] % every != 0 or _repeats(item)
        seen[test] += 1


def _repeats(item: pytest.Item) -> bool:
    """True on PostgreSQL for a test that is traced on SQLite, too; the store is traced on both."""
    call = getattr(item, "callspec", None)
    on_postgres = call is not None and call.params.get("database_url") == "postgres"
    return on_postgres and item.get_closest_marker("postgres") is None and not item.nodeid.startswith("tests/store/")


def is_traced(item: pytest.Item) -> bool:
    return not item.stash.get(_untraced, False)
