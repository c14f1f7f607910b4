"""execute_command: runs one gated argument list in the sandbox and reports the files it changed."""
