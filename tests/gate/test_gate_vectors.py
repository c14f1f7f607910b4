"""The shared vectors and tables of the TypeScript client are what this gate says now.

The client in the editor runs the same files with its own gate (vscode/test/gate); together the two tests say that both
gates agree. A change of the gate makes these fail until `make schema` has written the files again.
"""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
VECTORS = ROOT / "vscode" / "test" / "vectors"

pytestmark = pytest.mark.promise("C2", "G3")


def script(name: str) -> Any:
    """A script as a module."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(SCRIPTS))


def test_vectors_are_what_the_gate_says_now() -> None:
    vectors = script("vectors")
    stale = [
        name
        for name, value in vectors.generated().items()
        if (VECTORS / name).read_text(encoding="utf-8") != vectors.written(value)
    ]
    assert stale == [], "hint: make schema"


def test_vectors_fit_into_the_repository_and_no_scanner_takes_them_for_secrets() -> None:
    files = list(VECTORS.iterdir())
    assert sum(path.stat().st_size for path in files if path.name != "results.json") < 1_500_000
    assert (VECTORS / "results.json").stat().st_size < 500_000, "those of the tools' results"
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert re.search(r"(?:gh[pousr]_|sk-ant-|xox[abp]-|AKIA)[A-Za-z0-9_-]{16}", text) is None


def test_tables_of_the_client_are_fresh() -> None:
    tables = script("gate_tables")
    assert tables.TARGET.read_text(encoding="utf-8") == tables.text(), "hint: make schema"


@pytest.mark.parametrize(
    ("pattern", "flags", "expected"),
    [
        ("a.b$", 0, r"a[^\n]b(?=\n?$)"),
        ("^a$", re.MULTILINE, r"(?:^|(?<=\n))a(?=\n|$)"),
        (".", re.DOTALL, r"[\s\S]"),
        ("(x)(?P<name>y)", 0, "(?<g1>x)(?<name>y)"),
        ("a*+b", 0, r"(?=(?<kept1>a*))\k<kept1>b"),
        ("(?>ab|a)c", 0, r"(?=(?<kept1>a(?:b|)))\k<kept1>c"),
        ("(?i:k)s", 0, "(?:[kK\\u{212a}])s"),
        ("a{2,3}?-", 0, "a{2,3}?-"),
        (r"[^\W\d_]", 0, r"(?![\p{Nd}_]|[^\p{L}\p{N}_])[\s\S]"),
        (r"(?<!x)\Z", 0, "(?<!x)$"),
        ("[\U0001f600-\U0001f64f]", 0, "[\\u{1f600}-\\u{1f64f}]"),
    ],
)
def test_pattern_is_said_in_javascript(pattern: str, flags: int, expected: str) -> None:
    assert script("javascript_patterns").javascript(re.compile(pattern, flags)) == expected


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [("é", re.IGNORECASE), ("[à-ü]", re.IGNORECASE), (r"a\B", 0), ("(a)?(?(1)b|c)", 0)],
)
def test_pattern_that_javascript_cannot_say_is_an_error(pattern: str, flags: int) -> None:
    with pytest.raises(ValueError, match="cannot be said in JavaScript"):
        script("javascript_patterns").javascript(re.compile(pattern, flags))
