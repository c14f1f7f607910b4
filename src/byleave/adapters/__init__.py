"""Byleave under the agent you already have: its six tools for the frameworks people use.

Each module is for one framework and imports it; import the one you need. All of them take a `ToolCaller`
(`byleave.Agent`, or `LocalCaller` inside the server) and leave everything to it: a framework's own history, flags and
approvals are not authority here. That something is approved is known to the server alone.
"""
