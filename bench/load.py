"""The process that makes the calls from elsewhere. Its task is JSON in its one argument; its plans come on stdin.

{"target": "byleave" | "mcp", "url": …, "token": …, "project_id": …, "files": […]}
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import mcp

from .measure import Caller, WrongAnswer, answer_plans, say


@contextlib.asynccontextmanager
async def byleave_caller(task: dict[str, Any]) -> AsyncGenerator[Caller]:
    """POST /my/tools/execute over kept-alive connections, as an agent that runs elsewhere does."""
    headers = {"Authorization": f"Bearer {task['token']}"}
    connector = aiohttp.TCPConnector(limit=0)
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
    task = json.loads(sys.argv[1])
    async with byleave_caller(task) if task["target"] == "byleave" else mcp_caller(task) as call:
        say("ready")
        await answer_plans(call)


if __name__ == "__main__":
    asyncio.run(main())
