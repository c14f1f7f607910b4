"""docs/cli.md, from the commands themselves: their help, arguments and options, as Typer has them.

`scripts/schema.py` writes it, and says when it is stale.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from byleave.cli.main import app

HEAD = """<!-- Generated from src/byleave/cli by `make schema`. Do not edit. -->

# Commands

What `byleave --help` and `byleave COMMAND --help` say. Exit codes: 0 done or stopped as asked, 1 refused or failed,
2 wrong usage, 3 server unreachable, 130 interrupted.
"""
NOT_RUN = "<!-- not run: an example of --help; tests/cli run every command -->"
KEPT = "\b"
"""Typer keeps the lines of a paragraph that begins with it."""


def command_page() -> str:
    """The whole page."""
    group = typer.main.get_command(app)
    context = group.make_context("byleave", [], resilient_parsing=True)
    parts = [HEAD]
    for words, command, inside in _commands(group, context, ("byleave",)):
        parts.append(_section(words, command, inside))
    return "\n".join(parts)


def _commands(group: Any, context: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inside = type(context)(command, info_name=name, parent=context)
        yield (*words, name), command, inside
        if hasattr(command, "list_commands"):
            yield from _commands(command, inside, (*words, name))


def _section(words: tuple[str, ...], command: Any, context: Any) -> str:
    title = f"{'#' * len(words)} {' '.join(words)}"
    usage = " ".join([*words, *command.collect_usage_pieces(context)])
    parts = [title, f"`{usage}`", *_paragraphs(inspect.cleandoc(command.help or ""))]
    rows = [record for one in command.get_params(context) if (record := one.get_help_record(context)) is not None]
    rows = [(name, text) for name, text in rows if "--help" not in name]
    if rows:
        table = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows]
        parts.append("\n".join(["| argument or option | means |", "|---|---|", *table]))
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text; examples become fenced blocks."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        if lines[:1] != [KEPT]:
            yield " ".join(line.strip() for line in lines)
        elif re.fullmatch(r"Examples?:", lines[1]):
            yield "\n".join([NOT_RUN, "```sh", *inspect.cleandoc("\n".join(lines[2:])).splitlines(), "```"])
        else:
            yield "\n".join(["```text", *lines[1:], "```"])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
