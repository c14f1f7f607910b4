"""execute_command: one judged argument list, run in the sandbox, with what it changed told."""
