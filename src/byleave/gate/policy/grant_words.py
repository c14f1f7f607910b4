"""A grant's rule in words: what it covers, and the most that could then run without asking.

Made from the rule alone and safe to show: the ends of each word are visible, secrets are masked, and nothing moves the
cursor. It says what a rule means and never whether it may be saved.
"""

import re
from collections.abc import Sequence

from byleave.gate.commands.validator import ALIASES
from byleave.gate.risk import MEDIUM_EXTENSIONS, SOURCE_EXTENSIONS
from byleave.gate.text.render import quote
from byleave.gate.text.secrets import mask_arguments
from byleave.protocol.grants import GrantRule

from .breadth import breadth, named

_MISSING = "missing"
_MOST_SHOWN = 3
_ENDING = re.compile(r"\.\w+$", re.ASCII)
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def words_of(rule: GrantRule) -> tuple[str, ...]:
    """The words a line must begin with, an alias under its own name's."""
    return (ALIASES.get(rule.command[0], rule.command[0]), *rule.command[1:]) if rule.command else ()


def text_of(rule: GrantRule) -> str:
    """What a rule covers, in one sentence that is safe to show."""
    if rule.tool == "search_web":
        return "Search the web for anything."
    if rule.tool != "execute_command":
        where = " or ".join(_shown_path(path) for path in rule.paths) or "anything"
        return f"Write {where}." if rule.tool == "write_file" else f"Use {quote(rule.tool)} on {where}."
    line = line_of(words_of(rule)) or "any command"
    while_same = f", while {_shown_files(rule)} stays as it is now" if rule.files else ""
    if rule.exact:
        return f"Run exactly {line}{while_same}."
    opening = breadth().opening(words_of(rule))
    follows = "with anything after it" if opening is None else f"({opening.what}) with usual options"
    return f"Run {line} {follows}{while_same}."


def widest_of(rule: GrantRule) -> str:
    """The most that could then run without asking."""
    if rule.tool == "search_web":
        return "Any text of up to 400 characters is sent to the search service outside, also text from your files."
    if rule.tool != "execute_command":
        return _widest_write(rule.paths)
    words = words_of(rule)
    opening = breadth().opening(words)
    if opening is not None and not rule.exact:
        return opening.widest
    if rule.files:
        how = "This very line" if rule.exact else "This script, with whatever arguments"
        return f"{how}, as often as wanted, until {_shown_files(rule)} changes. What it reads or imports may change."
    if rule.exact:
        return "This very line, as often as wanted."
    said = breadth().widest.get(named(words))
    return said or f"Any {line_of(words)} that the gate calls MEDIUM; what is HIGH is asked about all the same."


def _widest_write(paths: Sequence[str]) -> str:
    if not any(set("*?") & set(path) or path.endswith("/") or "/" not in path for path in paths):
        return "It is replaced or emptied as often as wanted, without its content being shown to you."
    found = [_ENDING.search(path.rpartition("/")[2]) for path in paths]
    # A rule that names its endings lets no other through.
    only = {match[0] for match in found if match} if all(found) else set[str]()
    named = {match[0].lower() for match in found if match} & SOURCE_EXTENSIONS
    endings = " ".join(sorted((MEDIUM_EXTENSIONS & only) | named if all(found) else MEDIUM_EXTENSIONS | named))
    return (
        f"Any such file that ends with {endings} is made, replaced or emptied without its content being shown to you. "
        "Files that tools run or trust, such as package.json or conftest.py, are asked about all the same."
    )


def line_of(words: Sequence[str]) -> str:
    """Words with their ends visible: quotes wherever a word is not plain."""
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else quote(word) for word in mask_arguments(list(words)))


def _shown_path(glob: str) -> str:
    if "/" not in glob.rstrip("/") and not set("*?") & set(glob):
        # A bare name fits wherever it stands.
        return (
            f"any file {quote(glob)}, in whatever directory"
            if "/" not in glob
            else f"text files below any {quote(glob)}"
        )
    directory, _, name = glob.removeprefix("./").rpartition("/")
    below = f"below {quote(directory)}" if directory else "in the workspace's own directory"
    if name == "**" or glob.endswith("/"):
        return f"text files {below}" if name == "**" else f"text files below {quote(glob.rstrip('/'))}"
    if re.fullmatch(r"\*\.\w+", name) and directory.endswith("/**") and "*" not in directory[:-3]:
        return f"{quote(name)} files below {quote(directory[:-3])}"
    if re.fullmatch(r"\*\.\w+", name) and "*" not in directory:
        inside = f"directly in {quote(directory)}" if directory else "in the workspace's own directory"
        anywhere = "/" not in glob
        return f"{quote(name)} files {'anywhere' if anywhere else inside}"
    return quote(glob.removeprefix("./")) if "*" not in glob and "?" not in glob else f"files that fit {quote(glob)}"


def _shown_files(rule: GrantRule) -> str:
    there = [f"{quote(path)} ({digest[:12]})" for path, digest in rule.files.items() if digest != _MISSING]
    if len(there) > _MOST_SHOWN:
        there = [*there[:_MOST_SHOWN], f"{len(there) - _MOST_SHOWN} more"]
    return " and ".join(there) or "what it runs"
