"""The terminal: what a question looks like there, and how a person answers it.

Only here is anything drawn; an unattended client never loads it. Every field is escaped again, whatever the server did,
and foreign text has a mark before each row, so that it cannot pass for ours. Nothing is left out without saying how to
see it. Nothing here decides: an answer is what a person typed, or none.
"""
