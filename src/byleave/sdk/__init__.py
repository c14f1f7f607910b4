"""The SDK for agents that run elsewhere: call tools on a user's machine over HTTP.

    async with byleave.Machine("http://127.0.0.1:8477", token, project_id) as machine:
        print((await machine.read_file("README.md")).content)

    with byleave.SyncMachine("http://127.0.0.1:8477", token, project_id) as machine:     # the same without a loop
        print(machine.read_file("README.md").content)

Every adapter in `byleave.adapters` takes either. Nothing here approves anything: a token of scope `agent` cannot.
"""

from .client import Client
from .machine import Machine, SyncMachine

__all__ = ["Client", "Machine", "SyncMachine"]
