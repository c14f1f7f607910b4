"""Notices: people are told elsewhere that something waits, by push message and by webhook.

`words` says what a notice tells and what never leaves the server; `task` decides when; `push` and `webhook` send.
"""
