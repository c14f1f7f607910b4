"""Command lines, parsed and judged by tables; nothing here runs one or reads the workspace.

In the order of a call: `validator` finds the program's table (`tables`), has `options` sort the arguments by it, judges
every value by its kind (`arguments`) and returns an `UnderstoodCommand` (`understood`), which names the files that
would run (`scripts`). `calls` shows any call as rules see it.
"""
