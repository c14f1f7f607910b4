"""Values exchanged between agent, server and client, and stored in the record.

Only Pydantic models, enums and pure functions on them live here. Nothing in this package reads a file, opens a socket
or decides anything. Every other package may import it; it imports none of them. JSON Schema, `openapi.json` and the
TypeScript types are generated from these models (`make schema`).
"""
