"""Calls, owners' rules and paths for the shared vectors: labelled cases, the fuzz's own lines, and odd ones.

All of it is the same for the same seed, on every machine. The labelled cases and the maker of command lines are those
of the tests; what else it is put together from is in `vector_data`. Nothing is run.
"""

import importlib
import itertools
import json
import random
import shlex
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byleave.gate.names import secret_globs
from byleave.gate.table_files import load_tables

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
argv: Any = importlib.import_module("harness.argv")

Call = tuple[str, dict[str, Any]]
WORKSPACE = "/home/user/ws"
CASES = ROOT / "tests" / "gate" / "cases"


def data(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("vector_data").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


PIECES = data("pieces")
HALF = "\ud800"


def maker(seed: int) -> random.Random:
    """Chance that is the same every time."""
    return random.Random(seed)  # noqa: S311 - for tests


@dataclass(frozen=True)
class PolicyCase:
    """Layers as (layer, text, trusted), and calls to hold against them."""

    layers: list[tuple[str, str, bool]]
    calls: list[Call] = field(default_factory=list[Call])


def run(*line: str) -> Call:
    return "execute_command", {"command": line[0], "args": list(line[1:])}


def _here(word: str) -> str:
    return word.replace("{WS}", WORKSPACE).replace("{OUT}", "/home/user/outside").replace("{WSNAME}", "ws")


def every_command() -> list[str]:
    return [*sorted(load_tables()), "python3"]


def _cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def labelled_lines() -> list[Call]:
    """Every labelled line of the tests, each once, and the tables' own examples."""
    found = [tuple(_here(word) for word in case["argv"]) for case in _cases("commands.jsonl") if case["argv"]]
    for name in ("lines.toml", "twins.toml"):
        some: dict[str, list[str]] = tomllib.loads((CASES / name).read_text(encoding="utf-8"))
        found += [tuple(map(_here, shlex.split(line))) for listed in some.values() for line in listed]
    found += [line for table in load_tables().values() for line in argv.examples(table)]
    return [run(*line) for line in dict.fromkeys(found)]


def made_lines(seed: int, count: int) -> list[Call]:
    """Lines from the maker of the fuzz, which changes known ones and makes new ones from the tables."""
    known = [tuple(case["argv"]) for case in _cases("commands.jsonl") if case["argv"]]
    made: Iterable[tuple[str, ...]] = argv.lines(dict(load_tables()), known, seed)
    some = (line for line in made if sum(map(len, line)) < 300)
    rng = maker(seed)
    unique = dict.fromkeys(_misspelled(rng, line) for line in itertools.islice(some, count))
    return [run(*map(_here, line)) for line in unique]


def _misspelled(rng: random.Random, line: tuple[str, ...]) -> tuple[str, ...]:
    """Now and then with a character in an argument that the two languages count, fold or match differently."""
    if len(line) < 2 or rng.random() < 0.75:
        return line
    at = rng.randrange(1, len(line))
    word = line[at]
    cut = rng.choice((0, len(word), rng.randint(0, len(word))))
    letter = rng.choice([*PIECES["hidden"], *PIECES["letters"], *PIECES["separators"]])
    return (*line[:at], word[:cut] + letter + word[cut:], *line[at + 1 :])


def odd_lines() -> list[Call]:
    """Lines at the limits of what is read at all."""
    found = [run(*shlex.split(line)) for line in data("lines")["lines"]]
    found += [run("ls", "-" + letter * count) for letter in ("a", "é") for count in (600, 700, 4001)]
    return [*found, run("tar", "z" * 700, "x"), run("tree", "-" + "a" * 700), run("echo", "x" * 9000)]


_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "read_file": ({"path": "a.txt"}, "path start_line end_line approved"),
    "write_file": ({"path": "a.md", "content": "x"}, "path content mode"),
    "execute_command": ({"command": "ls"}, "command args timeout cwd hasOwnProperty"),
    "list_directory": ({}, "path recursive pattern"),
    "search_files": ({"pattern": "x"}, "pattern path regex glob case_sensitive max_results"),
    "search_web": ({"query": "x"}, "query max_results toString"),
}


def odd_calls() -> list[Call]:
    """Calls of every tool in forms that agents send by mistake or on purpose."""
    found: list[Call] = [(name, {}) for name in ("read_file", "readFile", "nothing", "", "constructor", "__proto__")]
    for case in _cases("paths.jsonl"):
        path = _here(case["path"] or "a" * 251 + ".txt")
        found += [("read_file", {"path": path}), ("write_file", {"path": path, "content": "x"})]
        found += [("list_directory", {"path": path}), ("search_files", {"path": path, "pattern": "x"})]
    for path in (
        "a/\u2024\u2024/b",
        "\u2025/b",
        "a/\u2100/b",
        "paßwords.txt",
        ".paßword-store/x",
        ".ENV",
        "ⓒredentials",
        "ﬁle.md",
        ".gİt/x",
        "Σ.pem",
        "ΑΣ",
        "ẞ.key",
    ):
        found += [("read_file", {"path": path}), ("write_file", {"path": path, "content": "x"})]
    values: list[Any] = [None, True, 0, 1, -1, 300, 301, 1.5, "", "1", "x" * 401, [], ["a"], ["a", 1], [["a"]], {}]
    values += [{"a": HALF}, HALF, "a\0b", ["a\0"], 1000, 1001, 20, 21, "é" * 257, "😀" * 129, "append", "rm -rf /"]
    for (name, (usual, fields)), value in itertools.product(_FIELDS.items(), values):
        found += [(name, {**usual, one: value}) for one in fields.split()]
    found += [("read_file", {"path": "a", "start_line": 5, "end_line": 4}), ("search_web", {"query": "a\u202eb"})]
    found += [run("echo", *["x"] * count) for count in (255, 256, 257)]
    found += [run("echo", "x" * 2000, *["é" * 1100] * count) for count in (2, 3)]
    # A target that is the same text as the last operand is the target all the same.
    found += [run("cp", "-t", "d", "d"), run("mv", "-t", "d", "d")]
    return found + [run("echo", "é" * size) for size in (2000, 2047, 4090)]


def stricter_calls() -> list[Call]:
    """The kinds of calls for which the TypeScript gate is known to be stricter, or to say otherwise what it found."""
    return [
        # Numbers that JavaScript cannot hold exactly.
        ("read_file", {"path": "a.txt", "start_line": 2**53}),
        ("read_file", {"path": "a.txt", "end_line": 10**30}),
        # Digits that are not ASCII: Python counts them as a number glued to an option, or as a flag.
        run("tree", "-L²", "src"),
        run("sed", "-n", "s/a/b/²", "a.txt"),
        # Names and dates that are longer than any: refused as such, and not looked through for what they expand to.
        run("cat", "{a,/b}" * 800),
        run("date", "-d", "TZ=UTC " * 600),
    ]


def made_calls(seed: int, count: int) -> list[Call]:
    """File tools with paths, globs and contents put together at random."""
    rng = maker(seed)
    found: list[Call] = []
    for path in made_paths(seed + 1, count):
        tool = rng.choice(("read_file", "write_file", "write_file", "list_directory", "search_files", "searchFiles"))
        if tool == "write_file":
            content = rng.choice(("x", "", "a\0b", "[masked:key] x", "\x1b[2J", "é"))
            found.append((tool, {"path": path, "content": content, "mode": rng.choice(("write", "append"))}))
        elif tool == "list_directory":
            found.append((tool, {"path": path, "recursive": rng.random() < 0.5, "pattern": _glob(rng)}))
        elif tool == "read_file":
            found.append((tool, {"path": path}))
        else:
            glob = rng.choice((None, _glob(rng), path))
            found.append((tool, {"path": rng.choice((path, ".", "src")), "pattern": "x", "glob": glob}))
    return found


def _known_names() -> list[str]:
    """Names that mean something to someone, from the gate's own lists."""
    lists = tomllib.loads((ROOT / "src" / "byleave" / "gate" / "names.toml").read_text(encoding="utf-8"))
    kinds = ("directories", "files", "patterns", "paths")
    found = [
        name for group in (*lists["protected"], *lists["trusted"]) for kind in kinds for name in group.get(kind, ())
    ]
    secret = secret_globs()
    found += [*secret.files, *secret.directories, *sorted(secret.harmless), *lists["secrets"]["paths"]]
    return [name.replace("*", "x") for name in found]


def made_paths(seed: int, count: int) -> list[str]:
    """Paths of known names, ordinary ones, steps up, and characters that mislead."""
    rng = maker(seed)
    known = _known_names()
    names: list[str] = [*PIECES["names"], "x" * 260, "é" * 128]
    usual: tuple[Sequence[str], ...] = (argv.INSIDE, argv.TRAPS, argv.OUTSIDE, argv.ODD)
    between: list[str] = [*PIECES["hidden"], HALF, *PIECES["letters"], ":", "\\", "//", " ", "."]
    found: list[str] = []
    while len(found) < count:
        path = "/".join(rng.choice(rng.choice((names, known, known))) for _ in range(rng.choice((1, 1, 2, 3))))
        if rng.random() < 0.25:
            path = rng.choice(rng.choice(usual))
        if rng.random() < 0.2:
            at = rng.randint(0, len(path))
            path = path[:at] + rng.choice(between) + path[at:]
        if rng.random() < 0.2:
            path = rng.choice(PIECES["before"]) + path
        if rng.random() < 0.1:
            path = rng.choice((path.upper(), path.title(), path.swapcase()))
        found.append(_here(path))
    return found


def _glob(rng: random.Random) -> str:
    glob = "/".join(rng.choice(PIECES["globs"]) for _ in range(rng.choice((1, 1, 2, 3, 4))))
    glob = rng.choice(("", "", "", "/", "./")) + glob + rng.choice(("", "", "", "/", "/**", "{" * 9))
    return glob + (rng.choice(PIECES["hidden"]) if rng.random() < 0.05 else "")


def made_globs(seed: int, count: int) -> list[tuple[str, str]]:
    """Patterns of rules beside paths, many of which they fit."""
    rng = maker(seed)
    inside: Sequence[str] = argv.INSIDE
    found: list[tuple[str, str]] = []
    while len(found) < count:
        glob = _glob(rng)
        path = glob.replace("**", rng.choice(("a", "a/b", "."))).replace("*", rng.choice(("", "x", "long")))
        path = path.replace("?", "q") if rng.random() < 0.8 else rng.choice(inside)
        others = (path.strip("/") or ".", path.upper(), f"{path}/below", path.rpartition("/")[0] or ".", f"{path}.")
        found.append((glob, rng.choice((path, *others))))
    return found


_FILE_TOOLS: dict[str, dict[str, Any]] = {
    "read_file": {},
    "write_file": {"content": "x"},
    "list_directory": {"recursive": True},
    "search_files": {"pattern": "x"},
}


def written_policies() -> list[PolicyCase]:
    """Files that an owner might write, right and wrong."""
    files = data("policies")
    right: list[str] = files["right"]
    calls = [run(*shlex.split(line)) for line in files["lines"]]
    calls += [(tool, {"path": path, **more}) for tool, more in _FILE_TOOLS.items() for path in files["paths"]]
    calls.append(("search_web", {"query": "x"}))
    found = [PolicyCase([("user", text, True)], calls) for text in right]
    found += [PolicyCase([("project", text, trusted)], calls) for text in right[:4] for trusted in (True, False)]
    found.append(PolicyCase([("user", right[0], True), ("project", right[1], False)], calls))
    found.append(PolicyCase([("user", right[1], True)], _crowds()))
    return found + [PolicyCase([(layer, text, True)]) for text in files["wrong"] for layer in ("user", "organisation")]


def _crowds() -> list[Call]:
    """Lines that name more files than are looked at."""
    many = (f"d{number}/a,b{number}:c{number}" for number in range(200))
    deep = (f"{number}" + "/y" * 90 for number in range(99))
    return [run("python", "x.py", *many), run("cat", *deep), run("cat", *["x/" * 100 + "y"] * 90),
            run("wc", "--files0-from=names")]  # fmt: skip


def made_policies(seed: int, count: int) -> list[PolicyCase]:
    """Rules put together at random, and calls of the commands they are about."""
    rng = maker(seed)
    tables = load_tables()
    names = ["git", "npm", "python", "grep", "find", "ls", "cat", "node", "tar", "pip"]
    pool = made_lines(seed + 1, count * 20)
    found: list[PolicyCase] = []
    for _ in range(count):
        chosen = [rng.choice(names) for _ in range(rng.choice((1, 2, 3)))]
        rules = [_rule(rng, name, sorted(tables[name].subs), sorted(tables[name].options)) for name in chosen]
        turned_on = sorted({"pip", *rng.sample(["sort", "sed", "make", "curl", "frobnicate"], 2)})
        text = f"commands = {json.dumps(turned_on)}\n{''.join(rules)}"
        calls = [call for call in pool if call[1]["command"] in chosen][:12] + made_calls(rng.randrange(10**6), 5)
        found.append(PolicyCase([(rng.choice(("user", "device", "project")), text, True)], calls))
    return found


def _rule(rng: random.Random, name: str, subs: list[str], options: list[str]) -> str:
    action = rng.choice(("allow", "ask", "deny", "deny"))
    lines = [f"action = {json.dumps(action)}"]
    about = rng.choice(("command", "command", "paths", "both")) if action != "allow" else "command"
    if about != "paths":
        words: list[Any] = [name, *([rng.choice(subs)] if subs and rng.random() < 0.7 else [])]
        if rng.random() < 0.3:
            words.append(rng.choice(["a.txt", "src/a.py", ["x", "-n"], "-r"]))
        lines.append(f"command = {json.dumps(words)}")
        if action != "allow" and options and rng.random() < 0.4:
            lines.append(f"options = {json.dumps(rng.sample(options, min(2, len(options))))}")
    if about != "command":
        globs = (_glob(rng).replace("..", "b").replace("{" * 9, "") for _ in range(2))
        lines.append(f"paths = {json.dumps([*(glob for glob in globs if glob.strip('/.')), 'src/**'])}")
    return "\n[[rule]]\n" + "\n".join(lines) + "\n"
