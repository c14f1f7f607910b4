"""The other side of the comparison: a bare MCP server with one tool that reads a file. No auth, no record, no gate.

    python -m bench.mcp_server PORT DIRECTORY

Logs warnings only, as the Byleave server does without a terminal, so that printing is not what is measured.
"""

import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer


def server(directory: Path) -> MCPServer:
    mcp = MCPServer("bench", log_level="WARNING")

    @mcp.tool()
    async def read_file(path: str) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        """Read a text file."""
        text = (directory / path).read_text(encoding="utf-8")
        return {"success": True, "content": text, "encoding": "utf-8", "size": len(text)}

    return mcp


if __name__ == "__main__":
    server(Path(sys.argv[2])).run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
