"""The floor of our transport: a signal over SSE, the answer over POST, and nothing else. No gate, no record, no auth.

    python -m bench.floor serve PORT          the server; makes the calls itself, as an agent in the server does
    python -m bench.floor connect URL DIR     the client that reads the files

The same libraries as Byleave: uvicorn with httptools and uvloop, aiohttp.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvicorn
import uvloop

from .measure import Plan, WrongAnswer, answer_plans, say


class Floor:
    """One client's stream, and the calls that wait for its answers."""

    def __init__(self) -> None:
        self._signals: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self.connected = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/stream":
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
            self.connected.set()
            while True:
                await send({"type": "http.response.body", "body": await self._signals.get(), "more_body": True})
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        found = orjson.loads(body)
        self._waiting.pop(found["id"]).set_result(found["result"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def call(self, plan: Plan, number: int) -> None:
        name = str(id(object())) + str(number)
        self._waiting[name] = answer = asyncio.get_running_loop().create_future()
        signal = orjson.dumps({"id": name, "path": plan.path(number)})
        self._signals.put_nowait(b"data: " + signal + b"\n\n")
        if not (await answer)["success"]:
            raise WrongAnswer(name)


async def serve(port: int) -> None:
    floor = Floor()
    server = uvicorn.Server(uvicorn.Config(floor, port=port, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await floor.connected.wait()
    say("ready")
    await answer_plans(lambda plan: partial(floor.call, plan))
    server.force_exit = server.should_exit = True
    await serving


async def connect(url: str, directory: Path) -> None:
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def answer(signal: dict[str, Any]) -> None:
            text = (directory / signal["path"]).read_text(encoding="utf-8")
            result = {"success": True, "content": text, "encoding": "utf-8", "size": len(text)}
            async with session.post("/result", data=orjson.dumps({"id": signal["id"], "result": result})) as response:
                await response.read()

        async with session.get("/stream") as stream, asyncio.TaskGroup() as group:
            async for line in stream.content:
                if line.startswith(b"data: "):
                    group.create_task(answer(orjson.loads(line[6:])))


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[2])) if sys.argv[1] == "serve" else connect(sys.argv[2], Path(sys.argv[3])))
