"""The SDK for agents that run elsewhere: call tools on a user's machine over HTTP.

    async with byleave.Agent("http://127.0.0.1:8470", token, project_id) as agent:
        answer = await agent.execute("read_file", {"path": "README.md"})

`Agent` is a `ToolCaller`, so every adapter in `byleave.adapters` takes one. Nothing here approves anything: a token of
scope `agent` cannot.
"""

from .client import Agent, Client

__all__ = ["Agent", "Client"]
