"""Workspace files that a command would run: an approval shows them and is bound to them.

`runs` names them from the line alone, so server and client name the same ones. If a name could mean several files
(`node app`, `python -m tool`), it names every candidate, missing ones too: one that appears later is a change like any
other. Files that these load (imports, packages) are not named. Nothing here touches the disk. `UNKNOWN` stands for a
line whose files cannot be determined: nobody can inspect it, so nobody can approve it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from byleave.protocol.approvals import MAX_SEEN_FILES

from .options import Reading


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNKNOWN = (".",)
"""A directory has no content, so its inspection fails."""

_PYTHON_FILES = (".py", ".pyw", ".pyc", ".pyz", ".zip")
_SCRIPT_MODULES = _names("pdb cProfile profile trace runpy doctest pydoc coverage debugpy memory_profiler")
"""Python modules that run or import a file given as an argument."""
_PIP_BUILDS = ("setup.py", "setup.cfg", "pyproject.toml")
_NODE_FILES = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".jsx", ".tsx", ".json", ".node", ".wasm")
_NODE_LOADS = _names("-r --require --import --loader --experimental-loader --test-global-setup --test-reporter")
_NODE_READS = _names(
    "--env-file --env-file-if-exists --openssl-config --experimental-config-file --snapshot-blob --build-snapshot"
)
_NODE_CODE = frozenset({"-e", "--eval", "-p", "--print", "-pe"})
_NPM_RUNS_NOTHING = _names(
    """ls list ll la explain why fund root prefix bin help help-search query sbom completion view v info show outdated
    search s se find ping doctor docs home repo bugs issues star stars unstar whoami config get cache token login
    logout adduser owner access org profile team"""
)
_NPM_RUNS_SCRIPTS = _names("test t tst run run-script rum urn start stop restart")
_NPM_INSTALLS = _names(
    """ci clean-install ic install-clean isntall-clean install i in ins inst insta instal isnt isnta isntal isntall add
    update up upgrade udpate install-test it cit install-ci-test clean-install-test rebuild rb link ln"""
)
_MEMBER_PATH = re.compile(r"\./[\w./-]+|(?!@)[\w.-]+/[\w./-]+")
"""A path that cannot be a package name and holds no pattern."""
_PYTEST_SETTINGS = ("conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")

Option = tuple[str, str | None]


class Line(NamedTuple):
    """A command line as its table read it."""

    args: Sequence[str]
    options: Sequence[Option]
    operands: Sequence[str]

    def values(self, *names: str) -> list[str]:
        """The values of an option under any of its names, abbreviations too."""
        return [
            value
            for spelled, value in self.options
            if value is not None
            and (spelled in names or (len(spelled) > 2 and any(n.startswith(spelled) for n in names if n[:2] == "--")))
        ]

    def has(self, *names: str) -> bool:
        return any(spelled in names for spelled, _ in self.options)


def line_of(args: Sequence[str], reading: Reading) -> Line:
    """Flatten a reading and those of its subcommands into one line."""
    options: list[Option] = []
    operands = list(reading.operands)
    part: Reading | None = reading
    while part is not None:
        options += [(said.spelled, said.value) for said in part.said]
        part = part.sub
        if part is not None and len(operands) == 1:
            operands += part.operands  # the command's own reading stops at its subcommand
    return Line(args, options, operands)


def runs(program: str, line: Line, workspace: str | None = None) -> tuple[str, ...]:
    """Files of the workspace whose content a program would run."""
    files_of = _RUNNERS.get(program)
    if files_of is None:
        return ()
    return tuple(dict.fromkeys(_plain(path, workspace) for path in files_of(line)))[:MAX_SEEN_FILES]


def changes_what_it_runs(program: str, line: Line) -> bool:
    """True if the command itself rewrites the files it runs, as `npm install` does package.json."""
    if program != "npm":
        return False
    subcommand = _npm_subcommand(line)
    return subcommand not in _NPM_RUNS_SCRIPTS and subcommand not in ("ci", "clean-install", "ic", "install-clean")


def package_scripts(program: str, line: Line) -> tuple[str, ...] | None:
    """The scripts of package.json that a line would run, in order; None if uncertain."""
    if program == "node":
        return tuple(line.values("--run")) or None
    subcommand = _npm_subcommand(line) if program == "npm" else ""
    if subcommand in ("test", "t", "tst"):
        return _around("test")
    if subcommand in ("start", "stop"):
        return _around(subcommand)
    if subcommand == "restart":
        return tuple(name for each in ("restart", "stop", "start") for name in _around(each))
    if subcommand in _NPM_RUNS_SCRIPTS:
        return _around(line.operands[1]) if len(line.operands) > 1 else ()
    if subcommand in _NPM_INSTALLS:
        return (*_around("install"), "prepublish", *_around("prepare"))
    return None


def _around(name: str) -> tuple[str, ...]:
    return (f"pre{name}", name, f"post{name}")


def _plain(path: str, workspace: str | None) -> str:
    """Strip the workspace and empty parts from a path. `..` stays: behind a link it may lead elsewhere."""
    root = workspace.rstrip("/") if workspace else ""
    if root and path.startswith(root + "/"):
        path = path[len(root) :].lstrip("/")
    start = "/" if path.startswith("/") else ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return start + "/".join(parts) or "."


def _join(directory: str, *names: str) -> list[str]:
    return [f"{directory}/{name}" if directory else name for name in names]


# Python


def _python(line: Line) -> Iterable[str]:
    if line.has("-c"):
        return ()
    modules = line.values("-m")
    if modules:
        # With -I or -P the workspace is not searched for modules.
        found = [] if line.has("-I", "-P") else list(_module(modules[0]))
        return found + _pointed_at(modules[0].partition(".")[0], line.args)
    if not line.operands or line.operands[0] == "-":
        return ()
    script = line.operands[0]
    if script.endswith(_PYTHON_FILES):
        return (script,)
    return (script, f"{script}/__main__.py", f"{script}/__main__.pyc")


def _pointed_at(module: str, args: Sequence[str]) -> list[str]:
    """Files that a module runs because its own arguments name them."""
    if module == "pip":
        return _local_packages(args)
    if module not in _SCRIPT_MODULES:
        return []
    return [arg for arg in args if arg.endswith((*_PYTHON_FILES, ".txt", ".md", ".rst"))]


def _local_packages(args: Sequence[str]) -> list[str]:
    """Build files of the packages that pip takes from the workspace."""
    found: list[str] = []
    for arg in args:
        plain = arg.partition("[")[0]
        if not arg.startswith("-") and ":" not in arg and (plain == "." or "/" in plain):
            found += _join("" if plain == "." else plain.rstrip("/"), *_PIP_BUILDS)
    return found


def _module(name: str) -> Iterable[str]:
    """Workspace paths where `python -m` looks for a module before it looks elsewhere."""
    parts = name.split(".")
    if not all(parts) or "/" in name:
        return ()  # not the name of a module
    path = "/".join(parts)
    found = [f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"]
    for depth in range(1, len(parts)):
        package = "/".join(parts[:depth])
        found += [f"{package}/__init__.py", f"{package}.py"]
    return found if len(found) <= MAX_SEEN_FILES else UNKNOWN


# JavaScript


def _node(line: Line) -> Iterable[str]:
    found = line.values(*_NODE_READS)
    for value in line.values(*_NODE_LOADS):
        if "/" in value or value.endswith(_NODE_FILES):  # else the name of a package
            found += _node_file(value.removeprefix("file:"), entry=False)
    if line.values("--run"):
        found.append("package.json")
    if line.has(*_NODE_CODE):
        return found
    operands = list(line.operands[:1])
    if operands in (["inspect"], ["debug"]) or _unread(line):
        # The script may be any of the first arguments: count each.
        operands = [arg for arg in line.args if not arg.startswith("-")][:4]
    for operand in operands:
        if operand not in ("-", "inspect", "debug"):
            found += _node_file(operand, entry=True)
    return found if len(set(found)) <= MAX_SEEN_FILES else UNKNOWN


def _node_file(name: str, *, entry: bool) -> list[str]:
    """Files that node may load for a name: as it is, with an extension, or from its directory."""
    if name.endswith(_NODE_FILES):
        return [name]
    found = [name, f"{name}.js", f"{name}.json", f"{name}.node"]
    return found + _join(name, "package.json", "index.js", "index.json", "index.node") if entry else found


def _unread(line: Line) -> bool:
    """True if an unknown option precedes the script: it may take the next argument as its value."""
    known = {spelled for spelled, _ in line.options}
    for arg in line.args:
        if arg in line.operands[:1]:
            return False
        if arg.startswith("-") and arg != "-" and arg.partition("=")[0] not in known and arg[:2] not in known:
            return True
    return False


def _npm(line: Line) -> Iterable[str]:
    subcommand = _npm_subcommand(line)
    looks = subcommand in _NPM_RUNS_NOTHING or line.operands[:2] == ["pkg", "get"]
    if not line.operands or (looks and not _unread(line)):
        return ()
    names = ["package.json", ".npmrc"]
    if subcommand in _NPM_INSTALLS:
        names.append("binding.gyp")  # npm builds, and so runs, one that exists
    if subcommand in ("start", "restart"):
        names.append("server.js")  # run by `npm start` if there is no script of that name
    directories = line.values("-C", "--prefix")
    members = _npm_members(line)
    if members is None or (members and directories):
        return UNKNOWN
    found = [path for directory in directories or [""] for path in _join(directory, *names)]
    found += [f"{member}/{name}" for member in members for name in names if name != ".npmrc"]
    return found if len(set(found)) <= MAX_SEEN_FILES else UNKNOWN


def _npm_members(line: Line) -> list[str] | None:
    """Directories of the packages that -w names; None if the line does not locate a chosen one.

    npm looks up packages chosen by name, or all of them, in files. It takes abbreviations, clusters and any number of
    dashes, so every option that may choose packages counts.
    """
    own = line.args[: line.args.index("--")] if "--" in line.args else line.args
    for arg in own:
        option = arg.partition("=")[0]
        name = option.lstrip("-")
        if option == name or option in ("-w", "--workspace") or name == "workspaces-update":
            continue
        if name.startswith(("w", "iwr", "include-w")) or (option[:2] != "--" and "w" in name):
            return None
    members = line.values("-w", "--workspace")
    return members if all(_MEMBER_PATH.fullmatch(member) for member in members) else None


def _npm_subcommand(line: Line) -> str:
    return line.operands[0] if line.operands else ""


# Builders and testers


def _make(line: Line) -> Iterable[str]:
    directory = "/".join(line.values("-C", "--directory"))
    return _join(directory, *(line.values("-f", "--file", "--makefile") or _MAKEFILES))


def _pytest(line: Line) -> Iterable[str]:
    found = [*line.values("-c", "--config-file"), *_PYTEST_SETTINGS]
    for operand in line.operands:
        path = operand.partition("::")[0].rstrip("/")
        if path.endswith(".py"):
            found.append(path)
            path = path.rpartition("/")[0]
        found += _join(path, "conftest.py")
    return found


def _cargo(line: Line) -> Iterable[str]:
    if not line.operands or line.operands[0] in ("new", "init", "help", "version", "search"):
        return ()
    manifests = line.values("--manifest-path")
    directory = manifests[0].rpartition("/")[0] if manifests else "/".join(line.values("-C"))
    return _join(directory, "Cargo.toml", "build.rs", ".cargo/config.toml")


def _pip(line: Line) -> Iterable[str]:
    return [
        *line.values("-r", "--requirement"),
        *_local_packages([*line.operands[1:], *line.values("-e", "--editable")]),
    ]


def _sed(line: Line) -> Iterable[str]:
    return line.values("-f", "--file")


def _go(line: Line) -> Iterable[str]:
    """Only the files that the line itself names: `go run x.go`."""
    return [operand for operand in line.operands[1:] if operand.endswith(".go")]


_RUNNERS: dict[str, Callable[[Line], Iterable[str]]] = {
    "python": _python,
    "node": _node,
    "npm": _npm,
    "make": _make,
    "pytest": _pytest,
    "cargo": _cargo,
    "go": _go,
    "pip": _pip,
    "sed": _sed,
}
