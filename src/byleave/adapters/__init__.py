"""Adapters: the six tools for the agent frameworks people use.

Each module is for one framework and imports it. All of them take a `ToolCaller` (`byleave.Machine`, or `LocalCaller`
inside the server) and leave everything to it: a framework's own history, flags and approvals are not authority. Only
the server knows what is approved.
"""
