"""The command line: `byleave`, for people and scripts.

`main.py` is the entry and the only place that turns errors into sentences; each command has its own module, with its
help. Data goes to stdout, messages to stderr. Nothing here judges, approves or runs anything by itself: it asks the
gate, the server, the client and the person.
"""
