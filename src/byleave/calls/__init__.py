"""A tool call on the server, from the request to its end. Read `executor` first."""
