"""What real agents did in 107 tasks (`cases/traces.jsonl.gz`), as calls of Byleave's tools.

Each task gets one workspace: the directory most of its paths lie in. `cd` before a command, which Byleave's tools do
not have, is put into the arguments where it matters. Nothing here is ever run.
"""

import gzip
import json
import posixpath
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRACES = Path(__file__).resolve().parent / "cases" / "traces.jsonl.gz"
BENCHMARKS = frozenset(
    {"SWE-agent/mini-swe-agent", "SWE-bench/SWE-smith", "SWE-agent/SWE-agent", "All-Hands-AI/OpenHands"}
)
"""Sources whose tasks are given once and done without a word; the others are conversations with a person."""
HOME = "/Users/dev"
_ROOTS = ("/testbed", "/workspace/*", f"{HOME}/workspaces/*", f"{HOME}/Source/SpecStory/*", "/tmp/*")


@dataclass(frozen=True)
class Call:
    tool_name: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Action:
    """One step of an agent."""

    task: str
    source: str
    turn: int
    effect: str
    calls: tuple[Call, ...]
    """As Byleave's tools; empty where the step has no such form."""
    further: tuple[Call, ...]
    """The same with the commands that are off by default; empty where that does not help."""
    unmappable: str | None
    line: str
    """The shell line where it was kept."""

    @property
    def is_benchmark(self) -> bool:
        return self.source in BENCHMARKS


@dataclass(frozen=True)
class Task:
    name: str
    source: str
    workspace: str
    actions: tuple[Action, ...]

    @property
    def is_benchmark(self) -> bool:
        return self.source in BENCHMARKS


def tasks(path: Path = TRACES) -> list[Task]:
    """Every task in the order it happened."""
    rows: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            rows.setdefault(row["task"], []).append(row)
    return [_task(name, found) for name, found in rows.items()]


def _task(name: str, rows: list[dict[str, Any]]) -> Task:
    workspace = _workspace(rows)
    actions = tuple(
        Action(
            task=name,
            source=row["source"],
            turn=row["turn"],
            effect=row["effect"],
            calls=tuple(_call(call["tool_name"], call["tool_params"], workspace) for call in row["calls"]),
            further=tuple(_further(row.get("line", ""), workspace)),
            unmappable=row.get("unmappable"),
            line=row.get("line", ""),
        )
        for row in rows
    )
    return Task(name, rows[0]["source"], workspace, actions)


def _workspace(rows: Iterable[dict[str, Any]]) -> str:
    """The root most absolute paths of a task lie in."""
    found: Counter[str] = Counter()
    for row in rows:
        for call in row["calls"]:
            params = call["tool_params"]
            for text in (params.get("path"), params.get("cwd"), *params.get("args", ())):
                root = _root(text) if text else None
                if root is not None:
                    found[root] += 1
    return found.most_common(1)[0][0] if found else "/workspace/project"


def _root(text: str) -> str | None:
    text = _one_case(text)
    for root in _ROOTS:
        fixed, star, _ = root.partition("*")
        if star and text.startswith(fixed) and text[len(fixed) :].partition("/")[0]:
            return fixed + text[len(fixed) :].partition("/")[0]
        if not star and (text + "/").startswith(root + "/"):
            return root
    return None


def _one_case(text: str) -> str:
    """One spelling of a directory that its disk knew under two."""
    return text.replace(f"{HOME}/source/", f"{HOME}/Source/")


def _call(tool_name: str, params: dict[str, Any], workspace: str) -> Call:
    if tool_name != "execute_command":
        return Call(tool_name, {**params, "path": _one_case(params["path"])} if "path" in params else params)
    where = posixpath.normpath(posixpath.join(workspace, _one_case(params.get("cwd", "."))))
    args = [_one_case(arg) for arg in params["args"]]
    return _command([params["command"], *args], where, workspace)


def _command(argv: list[str], where: str, workspace: str) -> Call:
    """A command line that ran in a directory, as one that runs in the workspace."""
    command, args = argv[0], argv[1:]
    inside = posixpath.relpath(where, workspace)
    if inside.startswith(".."):
        # Somewhere else on the disk: not within reach of the tools, and said so by an absolute path.
        return Call("execute_command", {"command": command, "args": [*args, where]})
    if inside != ".":
        if command == "npm":
            args = ["--prefix", inside, *args]
        elif command in ("python", "python3", "node") and args and not args[0].startswith(("-", "/")):
            args = [posixpath.normpath(posixpath.join(inside, args[0])), *args[1:]]
    return Call("execute_command", {"command": command, "args": args})


def _further(line: str, workspace: str) -> Iterable[Call]:
    """A line of plain commands joined by `&&` and `;`; nothing where there is more to it."""
    try:
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True)) if line else []
    except ValueError:
        return []
    calls: list[Call] = []
    where = workspace
    for segment in _segments(words):
        if not segment or any(set(word) & set("<>|&()$`*~") for word in segment):
            return []
        if segment[0] == "cd" and len(segment) == 2:
            where = posixpath.normpath(posixpath.join(where, _one_case(segment[1])))
        else:
            calls.append(_command([_one_case(word) for word in segment], where, workspace))
    return calls


def _segments(words: list[str]) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    at = 0
    while at < len(words):
        if words[at] in ("&&", ";"):
            segments.append([])
        elif words[at : at + 3] == ["2", ">&", "1"]:
            at += 2  # both outputs come back anyway
        elif words[at] == "|" and words[at + 1 : at + 2] in (["head"], ["tail"]):
            at += 1  # the end of a result is cut off by who reads it
            while at + 1 < len(words) and words[at + 1] not in ("&&", ";", "|"):
                at += 1
        else:
            segments[-1].append(words[at])
        at += 1
    return segments
