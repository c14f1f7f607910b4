"""The shared results are what this client gives now: the TypeScript client is held against the same file."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.promise("C2", "T1", "T2", "T3", "T4", "T5")
async def test_shared_results_are_what_this_client_gives() -> None:
    vectors = _script("result_vectors")
    kept = json.loads(vectors.TARGET.read_text("utf-8"))
    made = json.loads(vectors.text_of(await vectors.build()))
    assert made["setup"] == kept["setup"]
    assert len(made["cases"]) >= 60
    for now, then in zip(made["cases"], kept["cases"], strict=True):
        assert now == then


@pytest.mark.promise("C2", "T3")
def test_tables_of_the_other_client_are_made_from_this_one() -> None:
    tables = _script("machine_tables")
    assert json.loads(tables.TARGET.read_text("utf-8")) == json.loads(json.dumps(tables.tables()))


@pytest.mark.promise("T6", "S")
async def test_shared_web_searches_are_what_this_client_makes_of_them() -> None:
    vectors = _script("web_vectors")
    kept = json.loads(vectors.TARGET.read_text("utf-8"))
    made = json.loads(vectors.text_of(await vectors.build()))
    assert kept.keys() == made.keys()
    for name, cases in made.items():
        for now, then in zip(cases, kept[name], strict=True):
            assert now == then
