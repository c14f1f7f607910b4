"""Measurements: `python -m bench` compares the whole way of a call with a bare MCP call, `bench.gate` times the gate.

Everything here drives the public surface (command line, HTTP) in separate processes; nothing reaches into Byleave.
"""
