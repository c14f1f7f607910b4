"""Call tools on a user's machine from any Python program."""

import asyncio
import os

import byleave


async def main() -> None:
    # The server and the token come from BYLEAVE_SERVER_URL and BYLEAVE_TOKEN.
    async with byleave.Machine(project_id=os.environ["BYLEAVE_PROJECT"]) as machine:
        print((await machine.read_file("README.md")).content)

        # A person is asked; what happens meanwhile comes as it happens, the response last.
        async for item in machine.stream("write_file", {"path": "summary.md", "content": "A short summary.\n"}):
            print(getattr(item, "kind", None) or f"{item.status} {item.error or ''}")


asyncio.run(main())
