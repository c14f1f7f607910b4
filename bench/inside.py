"""A Byleave server whose agent lives in it, and makes the calls: the way the product is used.

    python -m bench.inside PORT USER

The first line on stdin is the project's id, each one after it a plan.
"""

import asyncio
import logging
import sys
import time
from functools import partial

from byleave.cli.process import run_long, set_up_logging
from byleave.server.serving import Listening, serve
from byleave.settings import ServerSettings

from .measure import Caller, Plan, WrongAnswer, answer_plans, say


async def main(port: int, user: str) -> None:
    listening: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(ServerSettings(), "127.0.0.1", port, ready=listening.set_result))
    server = await listening
    executor = server.parts.executor
    say("ready")
    project_id = (await asyncio.to_thread(sys.stdin.readline)).strip()
    session = await executor.agent_session(user, project_id, None)

    async def read(plan: Plan, number: int) -> None:
        answer = await executor.execute_tool("read_file", {"path": plan.path(number)}, session.id)
        if answer.status != "completed":
            raise WrongAnswer(str(answer)[:500])

    async def write(plan: Plan, number: int) -> float:
        params = {"path": f"written-{number}.txt", "content": "x" * plan.size}
        row = await executor.call("write_file", params, session, until_asked=True)
        decided = time.perf_counter()
        await server.parts.approvals.approve_tool(row.approval_id or "", user)
        row = await executor.wait(row)
        if row.status != "completed":
            raise WrongAnswer(str(row)[:500])
        return (time.perf_counter() - decided) * 1000

    def caller(plan: Plan) -> Caller:
        return partial(write if plan.write else read, plan)

    while server.parts.presence.choose(project_id) is None:
        await asyncio.sleep(0.005)
    began = time.perf_counter()
    await read(Plan(), 0)
    say({"first_call_ms": (time.perf_counter() - began) * 1000})
    await answer_plans(caller)
    server.stop()
    await serving


if __name__ == "__main__":
    set_up_logging(logging.INFO)
    run_long(main(int(sys.argv[1]), sys.argv[2]))
