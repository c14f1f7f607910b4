"""The shape of the code: what a reader may rely on in every file, held by a test instead of by good will."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from byleave.settings import ClientSettings, ServerSettings

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "byleave"
TESTS = ROOT / "tests"
SOUP = {"utils", "util", "helpers", "helper", "common", "misc", "core", "base", "manager", "service", "stuff"}
LONGEST_PAUSE = 0.05
MODULES = sorted(SOURCE.rglob("*.py"))
TEST_FILES = sorted(TESTS.rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_says_what_lives_there() -> None:
    trees = {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    assert [name for name, tree in trees.items() if not ast.get_docstring(tree)] == [], "These have no docstring."


def test_no_module_is_named_after_nothing() -> None:
    named = [_name(path) for path in MODULES if {path.stem, path.parent.name} & SOUP]
    assert not named


def test_no_module_takes_everything_from_another() -> None:
    starred = [
        f"{_name(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]
    assert not starred


def pauses(source: str) -> Iterator[int]:
    """Lines that sleep for a fixed time. `sleep(0)` and very short ones let others run and are no guess."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        duration = node.args[0]
        if isinstance(duration, ast.Constant) and ast.unparse(node.func).split(".")[-1] == "sleep":
            value = duration.value
            if isinstance(value, int | float) and value > LONGEST_PAUSE:
                yield node.lineno


def test_no_test_sleeps() -> None:
    found = [f"{_name(path)}:{line}" for path in TEST_FILES for line in pauses(path.read_text(encoding="utf-8"))]
    assert not found, f"Wait for the event instead: {found}"


def test_a_sleep_would_be_found() -> None:
    assert list(pauses("import time, asyncio\ntime.sleep(1)\nasync def f():\n  await asyncio.sleep(0.5)\n")) == [2, 4]
    assert not list(pauses("import asyncio\nasync def f():\n  await asyncio.sleep(0)\n"))


def test_names_of_test_files_are_unique() -> None:
    names = [path.name for path in TEST_FILES if path.name.startswith("test_")]
    assert len(names) == len(set(names))


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for model in (ServerSettings, ClientSettings):
        for name, field in model.model_fields.items():
            assert field.description, f"{name} has no description."
            assert f"`BYLEAVE_{name.upper()}`" in page, f"{name} is missing. hint: make schema"


def test_settings_page_is_what_the_models_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import settings_page  # pyright: ignore[reportMissingImports]

    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page.settings_page()


def _variables(paths: Iterator[Path] | list[Path]) -> dict[str, str]:
    """Every BYLEAVE_* name in these files, with one file that names it."""
    return {
        name: _name(path)
        for path in paths
        for name in re.findall(r"BYLEAVE_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8"))
    }


def test_every_variable_in_the_source_is_documented() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert {name: path for name, path in _variables(MODULES).items() if f"`{name}`" not in page} == {}


def test_every_variable_named_in_the_documents_exists() -> None:
    known = {f"BYLEAVE_{name.upper()}" for model in (ServerSettings, ClientSettings) for name in model.model_fields}
    known |= {"BYLEAVE_CONFIG", *_variables(MODULES)}
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
    assert {name: path for name, path in _variables(documents).items() if name not in known} == {}


def test_every_decision_is_linked() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    pages = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    assert pages
    assert [name for name in pages if f"]({name})" not in index] == []


def _links(path: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#", "mailto:")):
            yield target.split("#")[0]


def test_links_in_the_documents_lead_somewhere() -> None:
    broken = [
        f"{_name(path)} -> {target}"
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
        for target in _links(path)
        if not (path.parent / target).exists()
    ]
    assert not broken


def test_lock_file_agrees_with_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import check_lock  # pyright: ignore[reportMissingImports]

    assert check_lock.complaints() == []


def test_everything_that_is_imported_is_declared() -> None:
    """What comes along with another library today may stay away tomorrow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    owners = {module: {canonicalize_name(name) for name in names} for module, names in packages_distributions().items()}
    imported = {
        (module.split(".")[0], _name(path))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in _imported(node)
    }
    known = sys.stdlib_module_names | {"byleave"}
    missing = {(name, path) for name, path in imported if name not in known and not owners.get(name, set()) & declared}
    assert missing == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        return [node.module]
    return []


@pytest.mark.promise("M")
def test_every_part_has_a_coverage_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import coverage_table  # pyright: ignore[reportMissingImports]

    measured = tuple(prefix for prefixes in coverage_table.PARTS.values() for prefix in prefixes)
    left_out = [_name(path) for path in MODULES if not str(path.relative_to(SOURCE)).startswith(measured)]
    assert left_out == []
    assert coverage_table.FLOOR >= 90
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "scripts/coverage_table.py" in makefile
    assert "\nCOVERAGE ?= 1\n" in makefile, "measured by default"


def test_a_part_that_is_not_above_the_floor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import coverage_table  # pyright: ignore[reportMissingImports]

    def file(covered: int) -> dict[str, object]:
        counts = {"num_statements": 10, "covered_lines": covered, "num_branches": 0, "covered_branches": 0}
        return {"summary": counts, "missing_lines": list(range(covered, 10))}

    files = {f"{prefix}a.py": file(10) for prefixes in coverage_table.PARTS.values() for prefix in prefixes}
    assert coverage_table.table(files)[1] == []
    lines, below = coverage_table.table({**files, "gate/a.py": file(8), "telemetry/a.py": file(9)})
    assert below == ["gate", "telemetry"]
    assert any("gate/a.py: 2 lines missed" in line for line in lines)
    without_cli = {path: counts for path, counts in files.items() if not path.startswith("cli/")}
    assert coverage_table.table(without_cli)[1] == ["cli"]


def test_scripts_can_be_run() -> None:
    for path in (ROOT / "scripts" / "setup", ROOT / "scripts" / "setup-node", ROOT / ".ci" / "run"):
        assert os.access(path, os.X_OK), f"{_name(path)} is not executable."
    assert sys.version_info >= (3, 11)


def test_the_steps_of_make_up_say_what_they_do_and_nothing_where_nothing_is_to_be_done(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"private": true}')
    env = os.environ | {"npm_config_offline": "true"}
    node = subprocess.run([ROOT / "scripts/setup-node", tmp_path], env=env, capture_output=True, text=True, check=True)
    assert node.stderr.startswith(f"Installing Node packages for {tmp_path} (")
    shutil.copy(ROOT / "Makefile", tmp_path)
    sources = "requirements.lock pyproject.toml scripts/setup scripts/setup-node scripts/uv.txt ui/package-lock.json"
    built = "schema/types.ts ui/index.html ui/vite.config.ts ui/tsconfig.json src/byleave/server/page/index.html"
    ready = [".venv/.ready", "ui/node_modules/.ready"]
    for at, name in enumerate([*sources.split(), *ready, *built.split()]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, at))
    # Not those of a `make test` around it.
    flags = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    make = ["env", *(f"--unset={flag}" for flag in flags), "make", "--no-print-directory", "setup", "ui"]
    done = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    (tmp_path / "ui/index.html").touch()
    todo = subprocess.run([*make, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert todo.stdout.index("Building the page (") < todo.stdout.index("vite build")
