"""Agents: the programs that ask for tools.

`RunWorker` takes the chat's runs, `ChatAgent` works on one, and `ByleaveToolset` is its only way to act. The offline
model makes all of it work without a key. Only this package imports pydantic-ai, which is heavy: a worker loads it with
its first run. Nothing here decides what a call may do.
"""
