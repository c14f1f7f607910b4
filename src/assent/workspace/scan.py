"""The search of a machine without ripgrep: runs as a process of its own, so that it can be killed.

Reads one JSON object from stdin (see `search._scan_work`), walks by directory descriptors from the one it inherited,
and prints ripgrep's own JSON, so that one reader serves both. A regular expression may take for ever here; that is why
nobody runs this inside the client. It follows no link and imports nothing of Assent.
"""

import base64
import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pathspec

_MAX_FILE = 32 * 1024 * 1024
_MAX_DEPTH = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Ignore:
    """One .gitignore. `strip` and `add` turn a path told from the searched directory into one told from the file's."""

    spec: pathspec.GitIgnoreSpec
    strip: str = ""
    add: str = ""

    def opinion(self, path: str, is_directory: bool) -> bool | None:
        told = self.add + path.removeprefix(self.strip) + ("/" if is_directory else "")
        return self.spec.check_file(told).include


Ignores = list[Ignore]


class Scan:
    """One search."""

    def __init__(self, work: dict[str, Any]) -> None:
        flags = 0 if work["case_sensitive"] else re.IGNORECASE
        self._pattern = re.compile(work["pattern"].encode("utf-8"), flags)
        self._globs = [re.compile(fnmatch.translate(glob)).match for glob in work["globs"]]
        self._hidden = any(glob.startswith(".") for glob in work["globs"])

    def directory(self, fd: int, prefix: str, ignores: Ignores, depth: int = 0) -> Iterator[dict[str, Any]]:
        """Matches below an open directory, in the order of names."""
        ignores = [*ignores, *_ignores_in(fd, prefix)]
        with os.scandir(fd) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for name, is_directory in found:
            path = prefix + name
            if (name.startswith(".") and not self._hidden) or _ignored(
                path, is_directory=is_directory, ignores=ignores
            ):
                continue
            if not is_directory and self._globs and not any(fits(name) for fits in self._globs):
                continue
            try:
                child = os.open(name, _DIRECTORY if is_directory else _FILE, dir_fd=fd)
            except OSError:
                continue  # a link, no permission, or gone
            try:
                if not is_directory:
                    yield from self.file(child, path)
                elif depth < _MAX_DEPTH:
                    yield from self.directory(child, path + "/", ignores, depth + 1)
            finally:
                os.close(child)

    def file(self, fd: int, path: str) -> Iterator[dict[str, Any]]:
        """Matching lines of an open file; none of one that is no text."""
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_FILE:
            return
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(_MAX_FILE)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            data = data.decode("utf-16", "replace").encode("utf-8")
        if b"\x00" in data:
            return
        for number, line in enumerate(data.split(b"\n"), 1):
            if self._pattern.search(line.rstrip(b"\r")):
                yield {
                    "type": "match",
                    "data": {"path": _value(os.fsencode(path)), "lines": _value(line), "line_number": number},
                }


def _value(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(data).decode("ascii")}


def _ignores_in(fd: int, prefix: str) -> Ignores:
    try:
        file_fd = os.open(".gitignore", _FILE, dir_fd=fd)
    except OSError:
        return []
    with os.fdopen(file_fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(file_fd).st_mode):
            return []
        text = file.read(1 << 20).decode("utf-8", "replace")
    return [Ignore(pathspec.GitIgnoreSpec.from_lines(text.splitlines()), strip=prefix)]


def _ignored(path: str, *, is_directory: bool, ignores: Ignores) -> bool:
    """The deepest .gitignore with an opinion decides."""
    for ignore in reversed(ignores):
        opinion = ignore.opinion(path, is_directory)
        if opinion is not None:
            return opinion
    return False


def _ignores_above(fd: int, above: list[str]) -> Ignores:
    """The .gitignore files between the workspace and the searched directory; paths are told from the latter."""
    found: Ignores = []
    for steps in range(len(above), 0, -1):
        try:
            upper = os.open("/".join([".."] * steps), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        except OSError:
            continue
        try:
            add = "/".join(above[len(above) - steps :]) + "/"
            found += [Ignore(ignore.spec, add=add) for ignore in _ignores_in(upper, "")]
        finally:
            os.close(upper)
    # A directory that is ignored but was asked for by name is searched all the same.
    return [] if _ignored("", is_directory=False, ignores=found) else found


def main() -> int:
    work = json.load(sys.stdin)
    try:
        scan = Scan(work)
    except (re.error, OverflowError, RecursionError) as error:
        print(f"regex parse error: {error}", file=sys.stderr)
        return 2
    fd: int = work["fd"]
    is_file = stat.S_ISREG(os.fstat(fd).st_mode)
    matches = scan.file(fd, "") if is_file else scan.directory(fd, "", _ignores_above(fd, work["above"]))
    found = False
    for match in matches:
        found = True
        print(json.dumps(match))
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main())
