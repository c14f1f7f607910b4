"""Execution on the user's machine: runs calls that the gate has passed, inside one directory, in a sandbox.

Start at `workspace.py`. The kernel opens files beneath the workspace (`paths`, `files`); paths that the rules deny
stay out of every tool's reach (`denied_paths`). Searches are bounded (`search`), commands run in a sandbox
(`commands`, `sandbox`), web searches go to the one configured provider (`web`). Files that a command would run are
inspected before a person is asked (`files.inspection`) and held while it starts (`commands.bound_files`). Changes are
kept and can be undone (`undo`). Nothing here decides about risk or approval.
"""
