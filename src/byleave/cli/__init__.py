"""The command line: `byleave`, for people and scripts.

`main.py` is the entry and the one place where errors become sentences; `commands.py` declares every command with its
help; each other module does one of them. Data goes to stdout, messages to stderr. Nothing here judges, approves or
runs anything by itself: it asks the gate, the server, the client and the person.
"""
