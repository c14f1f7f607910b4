"""Command lines, parsed and judged by tables; nothing here runs one or reads the workspace."""
