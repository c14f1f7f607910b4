"""What is searched for, in the words of the searching process: globs on names, and ripgrep's arguments.

Everything here comes from an agent: no word of it may become an option of ripgrep, or stand for more globs than a
search bears. Nothing is opened or started here.
"""

import re
from typing import TYPE_CHECKING

from byleave.protocol.errors import InvalidParameters
from byleave.protocol.tools import SearchFilesParams

from .answers import MAX_COLUMNS
from .scan import MAX_DEPTH, GlobError, glob_pattern

if TYPE_CHECKING:  # listings read globs too, and start nothing
    from .ripgrep import SearchRoot

_MAX_BRACES = 64


def expand_glob(glob: str | None) -> list[str]:
    """Globs on names without braces: `*.{ts,tsx}` gives two. A leading `**/` says nothing here and is dropped."""
    if glob is None:
        return []
    glob = glob.removeprefix("**/")
    if glob.startswith("!"):
        raise InvalidParameters(
            f"The glob {glob!r} would say what to leave out, and it can only say what to take.",
            hint="Name what to take, such as '*.py'.",
        )
    if "/" in glob or "\\" in glob or not glob.isprintable():
        raise InvalidParameters(
            f"The glob {glob!r} is for file names and cannot hold a slash.", hint="Name the directory in 'path'."
        )
    done: list[str] = []
    waiting = [glob]
    while waiting:
        current = waiting.pop()
        found = re.search(r"\{([^{}]*)\}", current)
        if found is None:
            done.append(_whole(current, glob))
        else:
            waiting.extend(current[: found.start()] + part + current[found.end() :] for part in found[1].split(","))
        if len(done) + len(waiting) > _MAX_BRACES:
            raise InvalidParameters(f"The glob {glob[:60]!r} stands for more than {_MAX_BRACES} others.")
    return sorted(set(done))


def _whole(glob: str, given: str) -> str:
    try:
        glob_pattern(glob, of_names=True)
    except GlobError as error:
        raise InvalidParameters(f"The glob {given!r} cannot be read: {error}.") from error
    return glob


def ripgrep_arguments(params: SearchFilesParams, globs: list[str], place: "SearchRoot") -> list[str]:
    """Everything after the program's name; the pattern and the place come last, where nothing is read as an option."""
    arguments = ["--no-config", "--no-messages", "--no-follow", "--heading", "--null", "--line-number"]
    arguments += ["--with-filename", "--color=never", "--crlf", f"--max-count={params.max_results + 1}"]
    arguments += [f"--max-columns={MAX_COLUMNS}", "--max-columns-preview"]
    arguments += ["--case-sensitive" if params.case_sensitive else "--ignore-case"]
    if not params.regex:
        arguments.append("--fixed-strings")
    if place.is_file:
        arguments += ["--no-ignore", "--hidden"]
    else:
        arguments += ["--no-require-git", "--no-ignore-global", "--no-ignore-dot", "--no-ignore-exclude"]
        arguments.append(f"--max-depth={MAX_DEPTH + 1}")
    if not place.is_file and globs:
        # A type, not --glob: a glob that is given overrules .gitignore. A colon would end it; the names are looked at
        # again when they come back.
        arguments += [f"--type-add=wanted:{glob.replace(':', '?')}" for glob in globs]
        arguments.append("--type=wanted")
        if any(glob.startswith(".") for glob in globs):
            arguments += ["--hidden", "--glob=!.*/"]
    return [*arguments, "-e", params.pattern, "--", "./"]
