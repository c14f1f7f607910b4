"""Lay out the documentation site for `make docs`: docs/ as it is, and what it links to in the repository.

The same files are read in the repository and on the site, so links must hold in both. What a page links to outside
docs/ comes to lie below repo/, with what that links to in turn. Links are rewritten for that, and bars in
tables for the other Markdown; nothing else is.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
FENCE = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2 *$)", re.M | re.S)
LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")
ROW, CODE = re.compile(r"^\|.*$", re.M), re.compile(r"`[^`\n]+`")
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:")


def prose(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to all of a page but its fenced blocks."""
    parts = FENCE.split(text)
    # Each fence is followed by its marker, which the second group caught.
    return "".join(part if at % 3 else change(part) for at, part in enumerate(parts) if at % 3 != 2)


def links(path: Path, text: str) -> Iterator[Path]:
    """Files that a page links to, as absolute paths."""
    found: list[str] = []

    def note(part: str) -> str:
        found.extend(match["path"] for match in LINK.finditer(part))
        return part

    prose(text, note)
    for target in found:
        if not ELSEWHERE.match(target):
            yield Path(os.path.normpath(path.parent / target))


def place(path: Path) -> Path:
    """Where a file of the repository lies on the site, from its top."""
    there = path.relative_to(DOCS) if path.is_relative_to(DOCS) else "repo" / path.relative_to(ROOT)
    return there.with_name("index.md") if path.name == "README.md" else there


def rewritten(path: Path, text: str) -> str:
    """The page with its links as they are on the site."""

    def one(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / match["path"]))
        if ELSEWHERE.match(match["path"]) or not target.is_relative_to(ROOT):
            return match[0]
        where = os.path.relpath(place(target), place(path).parent)
        return f"{match['before']}{where}{match['anchor'] or ''}{match['after']}"

    return prose(text, lambda part: ROW.sub(_plain_bars, LINK.sub(one, part)))


def _plain_bars(row: re.Match[str]) -> str:
    """A table's row; here a bar in code needs no backslash, and would show it."""
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def lay_out(site: Path = SITE) -> list[Path]:
    """Write the site's sources; return the files of the repository that are in it."""
    shutil.rmtree(site, ignore_errors=True)
    todo = [path for path in sorted(DOCS.rglob("*")) if path.is_file()]
    done: list[Path] = []
    while todo:
        path = todo.pop()
        if path in done or not path.is_file() or not path.is_relative_to(ROOT):
            continue
        done.append(path)
        there = site / place(path)
        there.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            todo += links(path, text)
            there.write_text(rewritten(path, text), encoding="utf-8")
        else:
            shutil.copyfile(path, there)
    return done


if __name__ == "__main__":
    sys.stderr.write(f"{len(lay_out())} files in {SITE.relative_to(ROOT)}\n")
