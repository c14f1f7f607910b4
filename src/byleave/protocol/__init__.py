"""The words of Byleave, once: what travels between agent, server and client, and what is recorded.

Only values live here (Pydantic models, enums, pure functions on them). Nothing in this package reads a
file, opens a socket or decides anything; every other package may import it, and it imports none of them.
JSON Schema, `openapi.json` and the TypeScript types are generated from these models (`make schema`).
"""
