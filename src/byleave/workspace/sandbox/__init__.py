"""Isolation of commands: the backends, and what a command may read and change."""
