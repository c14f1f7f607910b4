"""The process that makes the calls. Reads its task as JSON on stdin, writes one sample as JSON on stdout.

    {"target": "byleave" | "mcp", "url": …, "token": …, "project_id": …, "files": […], "plan": {…}}

A process of its own for each sample, so that neither side profits from a warm interpreter of the other.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import mcp

from .measure import Caller, Plan, measure


class WrongAnswer(Exception):
    """A call was answered, but not with the file."""


@contextlib.asynccontextmanager
async def byleave_caller(task: dict[str, Any], in_flight: int) -> AsyncGenerator[Caller]:
    """POST /my/tools/execute over kept-alive connections, as an agent that runs elsewhere does."""
    headers = {"Authorization": f"Bearer {task['token']}"}
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(
        task["url"], headers=headers, connector=connector, timeout=aiohttp.ClientTimeout(total=60)
    ) as session:

        async def call(number: int) -> None:
            body = {
                "project_id": task["project_id"],
                "tool_name": "read_file",
                "tool_params": {"path": task["files"][number % len(task["files"])]},
            }
            async with session.post("/my/tools/execute", json=body) as response:
                answer = await response.json(content_type=None)
                if response.status != 200 or answer.get("status") != "completed" or not answer["result"]["success"]:
                    raise WrongAnswer(f"{response.status}: {str(answer)[:500]}")

        yield call


@contextlib.asynccontextmanager
async def mcp_caller(task: dict[str, Any]) -> AsyncGenerator[Caller]:
    """call_tool through one client of the MCP SDK, which keeps its connections too."""
    async with mcp.Client(task["url"], read_timeout_seconds=60) as client:

        async def call(number: int) -> None:
            path = task["files"][number % len(task["files"])]
            answer = await client.call_tool("read_file", {"path": path})
            if answer.is_error or not (answer.structured_content or {}).get("success"):
                raise WrongAnswer(str(answer)[:500])

        yield call


async def main() -> None:
    task = json.load(sys.stdin)
    plan = Plan(**task["plan"])
    caller = byleave_caller(task, plan.in_flight) if task["target"] == "byleave" else mcp_caller(task)
    async with caller as call:
        sample = await measure(call, plan)
    json.dump(sample.as_json(), sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
