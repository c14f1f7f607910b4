"""What an MCP host does with mcp_host.json: start the server, list its tools, call two."""

import asyncio
import json
import os
from pathlib import Path

from mcp import Client, StdioServerParameters


async def main() -> None:
    settings = os.path.expandvars(Path(__file__).with_name("mcp_host.json").read_text())
    server = StdioServerParameters(**json.loads(settings)["mcpServers"]["byleave"])
    async with Client(server) as client:
        print([tool.name for tool in (await client.list_tools()).tools])
        for name, arguments in (
            ("read_file", {"path": "README.md"}),
            ("write_file", {"path": "summary.md", "content": "A short summary.\n"}),
        ):
            result = await client.call_tool(name, arguments)
            print(name, "failed:" if result.is_error else "done:", result.content[0].text)


asyncio.run(main())
