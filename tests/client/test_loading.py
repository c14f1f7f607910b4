"""What loading the client brings along, and what only comes when it is used."""

import subprocess
import sys

HEAVY = (
    "acp",
    "agents",
    "alembic",
    "fastapi",
    "langchain_core",
    "mcp",
    "openai",
    "opentelemetry",
    "prompt_toolkit",
    "pydantic_ai",
    "pygments",
    "rich",
    "sqlalchemy",
    "structlog",
    "uvicorn",
)


def _loaded(program: str) -> set[str]:
    """The top-level modules a fresh process has after a program."""
    told = f"{program}\nimport sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_client_loads_next_to_nothing() -> None:
    loaded = _loaded("import byleave.client")
    assert not loaded & {*HEAVY, "aiohttp", "pydantic"}


def test_a_whole_client_without_a_terminal_loads_no_framework_and_nothing_that_draws() -> None:
    program = """
import importlib, pkgutil
import byleave.client as client
for module in pkgutil.iter_modules(client.__path__):
    if module.name != "terminal":
        importlib.import_module(f"byleave.client.{module.name}")
assert client.ToolHandler.__name__ in client.__all__
assert not hasattr(client, "nothing")
import importlib, pkgutil
import byleave.workspace as workspace
modules = [found.name for found in pkgutil.walk_packages(workspace.__path__, "byleave.workspace.")]
assert len(modules) > 30
for name in modules:
    importlib.import_module(name)
"""
    loaded = _loaded(program)
    assert {"aiohttp", "pydantic"} <= loaded
    assert not loaded & set(HEAVY)


def test_loading_a_server_loads_no_model_no_migrations_and_no_client() -> None:
    loaded = _loaded("import byleave.server.serving")
    assert not loaded & {"acp", "agents", "aiohttp", "alembic", "mcp", "openai", "pydantic_ai", "sqlalchemy"}


def test_the_first_line_of_the_log_brings_what_writes_it() -> None:
    program = """
import logging, sys
from byleave.client.log import log, bind_ids
logging.basicConfig(level=logging.INFO, format="%(message)s")
log.debug("not wanted")
assert "structlog" not in sys.modules
bind_ids(tool_id="exec_1")
log.info("wanted", answer=42)
assert "structlog" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "event='wanted' tool_id='exec_1' answer=42\n"
