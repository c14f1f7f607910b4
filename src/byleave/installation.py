"""How this Byleave was installed, and the command that adds an extra to it.

The only place that words such hints. Nothing of Byleave is on a package registry yet, so a hint names what it was
installed from: the tree, or the wheel file. It must never name a source that pip did not report, and never be sent to
another machine: it holds paths (`missing_extra` is for those).
"""

import importlib.util
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "byleave"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation."""
    wanted = f"{_source()}[{extra}]"
    if any(part.startswith("archive-v") for part in Path(sys.prefix).parts):  # of `uvx`: made anew for each command
        return f"uvx --from {shlex.quote(wanted)} {NAME} …"
    return add_command(wanted)


def add_command(requirement: str) -> str:
    """Return the command that installs a requirement where this program runs."""
    what, prefix = shlex.quote(requirement), Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx runpip {shlex.quote(prefix.name)} install {what}"
    uv = prefix / ".tools" / "bin" / "uv"  # as scripts/setup puts it
    python = shlex.quote(sys.executable)
    if uv.is_file() or importlib.util.find_spec("pip") is None:
        return f"{shlex.quote(str(uv)) if uv.is_file() else 'uv'} pip install --python {python} {what}"
    return f"{python} -m pip install {what}"


def missing_extra(extra: str) -> str:
    """Return a hint for somebody on another machine: no path of this one is in it."""
    return f"Whoever runs the server installs Byleave's extra {extra!r} there."


def _source() -> str:
    """Return what pip was given: a directory, a wheel file or an address; else the name alone, from an index."""
    try:
        text = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    try:
        url = str(json.loads(text or "")["url"])
    except (ValueError, KeyError, TypeError):
        return NAME
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else url
