"""A Byleave server whose agent lives in it, and makes the calls: the way the product is used.

    python -m bench.inside PORT USER

The first line on stdin is the project's id, each one after it a plan.
"""

import asyncio
import logging
import sys

from byleave.cli.process import run_long, set_up_logging
from byleave.server.serving import Listening, serve
from byleave.settings import ServerSettings

from .measure import WrongAnswer, answer_plans, say
from .sides import FILES


async def main(port: int, user: str) -> None:
    listening: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(ServerSettings(), "127.0.0.1", port, ready=listening.set_result))
    server = await listening
    executor = server.parts.executor
    say("ready")
    project_id = (await asyncio.to_thread(sys.stdin.readline)).strip()
    session = await executor.agent_session(user, project_id, None)

    async def call(number: int) -> None:
        answer = await executor.execute_tool("read_file", {"path": FILES[number % len(FILES)]}, session.id)
        if answer.status != "completed":
            raise WrongAnswer(str(answer)[:500])

    await call(0)
    say("ready")
    await answer_plans(call)
    server.stop()
    await serving


if __name__ == "__main__":
    set_up_logging(logging.INFO)
    run_long(main(int(sys.argv[1]), sys.argv[2]))
