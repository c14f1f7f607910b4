"""Every promise that is due has a test, and every test that claims one names a real one.

Reads the tests' source, not a running session, so that it holds whichever tests are selected.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
MILESTONES = ("spine", "gate", "hands", "agents", "chat", "vscode")
LANDED = ("spine", "gate", "hands", "agents", "chat", "vscode")


def promises() -> dict[str, dict[str, str]]:
    return tomllib.loads((TESTS / "promises.toml").read_text(encoding="utf-8"))


def _is_promise_marker(node: ast.AST) -> bool:
    """Whether this is `pytest.mark.promise`."""
    return isinstance(node, ast.Attribute) and node.attr == "promise" and ast.unparse(node) == "pytest.mark.promise"


def claims(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Every promise named in a file, with the place that names it. Covers decorators, pytestmark and pytest.param."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _is_promise_marker(node.func):
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    pytest.fail(f"{name}:{node.lineno}: a promise must be a plain string, to be found by reading.")
                yield argument.value, f"{name}:{node.lineno}"


def claimed() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for promise, place in claims(path.read_text(encoding="utf-8"), str(path.relative_to(TESTS))):
            places.setdefault(promise, []).append(place)
    return places


def test_every_promise_has_a_sentence_and_a_milestone() -> None:
    for name, promise in promises().items():
        assert promise["sentence"].endswith("."), name
        assert promise["due"] in MILESTONES, name
        assert set(promise) == {"sentence", "due"}, name


def test_every_promise_that_is_due_has_a_test() -> None:
    kept = claimed()
    missing = [
        f"{name}: {promise['sentence']}"
        for name, promise in promises().items()
        if promise["due"] in LANDED and name not in kept
    ]
    assert not missing, "No test keeps:\n  " + "\n  ".join(missing)


def test_every_test_names_a_promise_that_exists() -> None:
    known = promises()
    unknown = [f"{name} at {', '.join(places)}" for name, places in claimed().items() if name not in known]
    assert not unknown, "Unknown promises:\n  " + "\n  ".join(unknown)


def test_claims_are_found_in_decorators_module_marks_and_parameters() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.promise("W1")]
@pytest.mark.promise("W2", "W3")
def test_a(): ...
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.promise("W4"))])
def test_b(x): ...
"""
    assert sorted(name for name, _ in claims(source, "x.py")) == ["W1", "W2", "W3", "W4"]
