"""The other side of the comparison: a bare MCP server with one tool that reads a file. No auth, no record, no gate.

    python -m bench.mcp_server mcp|fastmcp PORT DIRECTORY

Logs warnings only, as the Byleave server does without a terminal, so that printing is not what is measured.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer


def main(kind: str, port: int, directory: Path) -> None:
    async def read_file(path: str) -> dict[str, Any]:
        """Read a text file."""
        text = (directory / path).read_text(encoding="utf-8")
        return {"success": True, "content": text, "encoding": "utf-8", "size": len(text)}

    if kind == "mcp":
        sdk = MCPServer("bench", log_level="WARNING")
        sdk.tool()(read_file)
        sdk.run("streamable-http", host="127.0.0.1", port=port)
    else:
        server = importlib.import_module("fastmcp").FastMCP("bench")
        server.tool(read_file)
        server.run("http", host="127.0.0.1", port=port, show_banner=False, log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
