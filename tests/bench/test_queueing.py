"""The simulation of commits agrees with what is known in closed form, and with the tables of docs/scale.md."""

import importlib.util
import math
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

PLACE = Path(__file__).resolve().parent.parent.parent / "bench" / "queueing.py"


def loaded() -> Any:
    """The module by its path: `bench` is the name of this directory too."""
    spec = importlib.util.spec_from_file_location("bench_queueing", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


queueing = loaded()
Database, percentiles, simulate = queueing.Database, queueing.percentiles, queueing.simulate

pytestmark = pytest.mark.promise("M")


def test_single_units_that_take_equally_long_wait_as_in_m_d_1() -> None:
    for load in (0.3, 0.6, 0.8):
        waits = simulate(lambda units: 1.0, load, most=1)
        assert statistics.mean(waits) == pytest.approx(1 + load / (2 * (1 - load)), rel=0.05)


def test_single_units_of_random_length_wait_as_in_m_m_1() -> None:
    chance = random.Random(2)
    for load in (0.3, 0.6):
        waits = simulate(lambda units: chance.expovariate(1.0), load, most=1)
        median, hundredth = percentiles(waits)
        assert statistics.mean(waits) == pytest.approx(1 / (1 - load), rel=0.05)
        assert median == pytest.approx(math.log(2) / (1 - load), rel=0.05)
        assert hundredth == pytest.approx(math.log(100) / (1 - load), rel=0.1)


def test_turns_of_three_servers_cost_nothing_where_nothing_is_shared() -> None:
    """Whoever is next, the work is the same: the mean is that of M/D/1."""
    waits = simulate(lambda units: 1.0, 0.6, servers=3, most=1)
    assert statistics.mean(waits) == pytest.approx(1 + 0.6 / (2 * 0.4), rel=0.05)


def test_a_unit_that_comes_alone_waits_for_its_own_commit() -> None:
    median, _ = percentiles(simulate(Database(), 0.001, units=2000))
    assert median == pytest.approx(Database()(1))


@pytest.mark.parametrize(("servers", "waits_open"), [(1, False), (3, False), (10, False), (3, True)])
def test_a_round_of_turns_is_as_long_as_its_fixed_parts_make_it(servers: int, waits_open: bool) -> None:
    """In a round every server commits what came in the round before: T = k·F + c·λ·T."""
    fixed, each, rate = 20.0, 0.5, 1.2
    waits = simulate(lambda n: fixed + each * n, rate, servers=servers, most=10**6, waits_open=waits_open)
    round_ms = servers * fixed / (1 - each * rate)
    # Units come at any moment of a round. A batch that is closed waits for the turns of the others.
    share = 1 / 2 + 1 / servers if waits_open else 3 / 2
    assert statistics.mean(waits) == pytest.approx(share * round_ms, rel=0.05)


@pytest.mark.parametrize("servers", [1, 3])
def test_full_commits_are_the_limit_however_many_servers_there_are(servers: int) -> None:
    database, units = Database(), 20_000
    rate = 4 * database.most_calls * 2 / 1000
    waits = simulate(database, rate, servers=servers, units=units)
    took_ms = max(waits) + units / rate
    assert units / took_ms / 2 * 1000 == pytest.approx(database.most_calls, rel=0.02)


def test_the_document_tells_what_the_simulation_finds(capsys: pytest.CaptureFixture[str]) -> None:
    document = queueing.DOCUMENT.read_text("utf-8")
    assert queueing.main(document) == 0, capsys.readouterr().out


def test_a_document_that_tells_something_else_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    tables = {name: f"<!-- bench/queueing.py: {name} -->\n\n| |\n|-|\n| 8 | 0 | 1 |\n\n" for name in queueing.TABLES}
    tables["closed"] = tables["latencies"] = tables["kept_open"] = ""
    with pytest.raises(LookupError, match="latencies"):
        queueing.main("".join(tables.values()))
    only = {"closed": queueing.TABLES["closed"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queueing, "TABLES", only)
        assert queueing.main("<!-- bench/queueing.py: closed -->\n\n| |\n|-|\n| 8 | 900 |\n\n") == 1
    assert "NOT [900.0]" in capsys.readouterr().out
