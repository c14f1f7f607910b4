"""Isolation of commands: the backends, and the files a command may read and change."""
