"""Only gate/commands looks at the words of a command line; everybody else asks UnderstoodCommand."""

import ast
from collections.abc import Iterator
from pathlib import Path

import byleave

SOURCE = Path(byleave.__file__).parent
ROOMS = ("gate", "workspace", "client", "calls", "server", "store")
READERS = SOURCE / "gate/commands"
WORDS = frozenset({"args", "argv"})
LOOKS = frozenset({"all", "any", "enumerate", "filter", "iter", "map", "next", "reversed", "set", "sorted", "zip"})
ALLOWED = {
    "gate/text/secrets.py": "masks every word of a line before it is shown or stored, known to a table or not",
}


def _is_line(node: ast.AST) -> bool:
    """`args`, `x.argv`, `params["args"]`, `params.get("args", ())`; the program's own `sys.argv` is none."""
    match node:
        case ast.Attribute(value=ast.Name(id="sys" | "error")):
            return False
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in WORDS
        case ast.Subscript(slice=ast.Constant(value=name)):
            return name in WORDS
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=name), *_]):
            return name in WORDS
        case _:
            return False


def _looked_at(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions whose elements a node looks at."""
    match node:
        case ast.Subscript() if not (isinstance(node.slice, ast.Constant) and node.slice.value in WORDS):
            yield node.value
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            yield node.iter
        case ast.Compare():
            yield from (node.left, *node.comparators)
        case ast.Call(func=ast.Name(id=name)) if name in LOOKS:
            yield from node.args
        case ast.Call(func=ast.Attribute(value=value, attr="index" | "count" | "pop" | "remove")):
            yield value
        case ast.Assign(targets=[ast.Tuple() | ast.List()]):
            yield node.value
        case _:
            return


def looks(source: str) -> list[int]:
    """Lines in which an element of a command line is looked at, other than to start its program."""
    tree = ast.parse(source)
    started = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("os.exec")
        for inner in node.args
    }
    nodes = (node for node in ast.walk(tree) if id(node) not in started)
    found = ((node, inner) for node in nodes for inner in _looked_at(node))
    return sorted({inner.lineno for _, inner in found if isinstance(inner, ast.expr) and _is_line(inner)})


def test_nobody_else_looks_at_the_words_of_a_line() -> None:
    found = {
        str(path.relative_to(SOURCE)): lines
        for room in ROOMS
        for path in sorted((SOURCE / room).rglob("*.py"))
        if not path.is_relative_to(READERS) and (lines := looks(path.read_text("utf-8")))
    }
    assert set(found) <= set(ALLOWED), found


def test_a_look_is_seen_and_handing_on_is_none() -> None:
    for line in (
        "argv[0]",
        "args[1:]",
        "any(arg.startswith('-') for arg in args)",
        "'-R' in command.args",
        "call.argv[0] == 'git'",
        "args.index('-m')",
        "program, *rest = argv",
        "[word for word in params['args']]",
        "enumerate(params.get('args', ()))",
    ):
        assert looks(line) == [1], line
    for line in (
        "[program, *argv]",
        "start(argv)",
        "shlex.join([command.command, *command.args])",
        "params['args']",
        "sys.argv[1]",
        "os.execve(argv[0], argv, env)",
    ):
        assert looks(line) == [], line
