"""Workspace files that a command would run: an approval shows them and is bound to them.

`runs` names them from the line alone, so server and client name the same ones. If a name could mean several files
(`node app`, `python -m tool`), it names every candidate, missing ones too: one that appears later is a change like any
other. Files that these load (imports, packages) are not named. Nothing here touches the disk. `UNKNOWN` stands for a
line whose files cannot be determined: nobody can inspect it, so nobody can approve it.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from byleave.protocol.approvals import MAX_SEEN_FILES

from .options import Reading, Unreadable, read
from .tables import load_tables


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNKNOWN = (".",)
"""A directory has no content, so its inspection fails."""

_PYTHON_FILES = (".py", ".pyw", ".pyc", ".pyz", ".zip")
_PROFILER = ("", "-o --outfile -s --sort")
_SCRIPT_MODULES = {
    "cProfile": _PROFILER,
    "coverage": ("--branch -a --append -p --parallel-mode", "--source --omit --include --rcfile --data-file --context"),
    "debugpy": ("--wait-for-client", "--listen --connect"),
    "doctest": ("-v --verbose -f --fail-fast", "-o --option"),
    "inspect": ("--details", ""),
    "memory_profiler": ("", ""),
    "pdb": ("", "-c --command"),
    "pickle": ("", ""),
    "profile": _PROFILER,
    "pydoc": ("", ""),
    "runpy": ("", ""),
    "trace": ("-c --count -t --trace -l --listfuncs -T --trackcalls", "--ignore-module --ignore-dir"),
    "unittest": ("-v --verbose -q --quiet -f --failfast -c --catch -b --buffer --locals", "-k"),
}
"""Modules that run, or import, what they are given: their flags, and their options with a value."""
_TAKE_MANY = _names("doctest pickle pydoc unittest")
_TAKE_MODULES = _names("doctest inspect pydoc runpy unittest")
"""The others take one only after -m."""
_PIP_BUILDS = ("setup.py", "setup.cfg", "pyproject.toml")
NODE_FILES = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".jsx", ".tsx", ".json", ".node", ".wasm")
_NODE_IMPORTS = _names("--import --loader --experimental-loader --test-global-setup --test-reporter")
_NODE_READS = _names(
    "--env-file --env-file-if-exists --openssl-config --experimental-config-file --snapshot-blob --build-snapshot"
)
_NODE_GLOB = re.compile(r"[*?\[\]{}()\\]")
_NODE_DEBUGS = (["inspect"], ["debug"])
_PATH_STARTS = (".", "/")
_NODE_CODE = frozenset({"-e", "--eval", "-p", "--print", "-pe"})
_NPM_RUNS_NOTHING = _names(
    """ls list ll la explain why fund root prefix bin help help-search query sbom completion view v info show outdated
    search s se find ping doctor docs home repo bugs issues star stars unstar whoami config get cache token login
    logout adduser owner access org profile team"""
)
_NPM_RUNS_SCRIPTS = _names("test t tst run run-script rum urn start stop restart")
_NPM_SWITCHES = _names(
    """all allow-same-version audit bin-links color commit-hooks dry-run engine-strict force foreground-scripts fund
    git-tag-version global if-present ignore-scripts include-staged include-workspace-root install-links json
    legacy-peer-deps long offline optional package-lock package-lock-only parseable prefer-dedupe prefer-offline
    prefer-online production progress provenance save save-bundle save-dev save-exact save-optional save-peer save-prod
    shrinkwrap strict-peer-deps strict-ssl timing update-notifier usage version versions workspaces workspaces-update
    yes"""
)
"""Options that take no word but those of `_NPM_TAKEN`, after `--` or `--no-`."""
_NPM_SHORT = _names(
    "-a -B -d -dd -ddd -D -E -f -g -h -l -O -p -P -q -s -S -v -y -? -ws --ws --iwr --help --quiet --silent --verbose"
)
_NPM_VALUES = _names(
    """-C --prefix -w --workspace -m --message -L --location --access --audit-level --before --cache --cpu --depth
    --include --install-strategy --libc --lockfile-version --loglevel --omit --os --otp --pack-destination --preid
    --registry --save-prefix --scope --searchlimit --tag"""
)
_NPM_TAKEN = _names("true false null always")
_NPM_CHOOSES = _names("--workspaces -ws --ws --include-workspace-root --iwr")
_NPM_ELSEWHERE = _names("-g --global -L --location")
_PLAIN_PATH = re.compile(r"[\w@+./ -]+")
"""A path that npm and node take as it is written: no home, no variable, nothing that a URL encodes."""
_MEMBER_PATH = re.compile(r"\./.+|(?!@)[^/]+/.+")
"""A path: no package's name is spelled so."""
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+(?:#.*)?")
_ARCHIVES = (".tgz", ".tar.gz", ".tar")
_PYTEST_SETTINGS = ("conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")

Option = tuple[str, str | None]


class Line(NamedTuple):
    """A command line as its table read it."""

    args: Sequence[str]
    options: Sequence[Option]
    operands: Sequence[str]
    rest: Sequence[str] = ()
    """Arguments of what the command starts."""
    doubtful: bool = False
    """True if an option that is not known, or only abbreviated, may have taken the argument after it."""

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
    doubtful = any(value is None and not name.startswith("--no-") for name, value in reading.unknown)
    doubtful = doubtful or any(said.abbreviated for said in reading.said)
    return Line(args, options, operands, reading.rest, doubtful)


def runs(program: str, line: Line, workspace: str | None = None) -> tuple[str, ...]:
    """Files of the workspace whose content one of `RUN_FILES` would run."""
    try:
        found = tuple(dict.fromkeys(_plain(path, workspace) for path in RUN_FILES[program](line)))
    except Unreadable:
        return UNKNOWN
    return found if len(found) <= MAX_SEEN_FILES else UNKNOWN


def changes_what_it_runs(program: str, line: Line) -> bool:
    """True if the command itself rewrites the files it runs, as `npm install` does package.json."""
    if program != "npm":
        return False
    subcommand = _npm_subcommand(_npm_line(line.args))
    return subcommand not in _NPM_RUNS_SCRIPTS and subcommand not in ("ci", "clean-install", "ic", "install-clean")


def package_scripts(program: str, line: Line) -> tuple[str, ...] | None:
    """The scripts of package.json that a line would run, in order; None if uncertain."""
    if program == "node":
        return tuple(line.values("--run")) or None
    npm = _npm_line(line.args) if program == "npm" else None
    if npm is None or _npm_subcommand(npm) not in _NPM_RUNS_SCRIPTS:
        return None
    script = _npm_script(npm)
    names = ("restart", "stop", "start") if script == "restart" else (script,) if script else ()
    return tuple(name for each in names for name in _around(each))


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
    if any(value.startswith("pycache_prefix") for value in line.values("-X")):
        return UNKNOWN  # compiled files from there run in place of those that are shown
    modules = line.values("-m")
    if modules:
        # With -I or -P the workspace is not searched for modules.
        found = [] if line.has("-I", "-P") else _module(modules[0])
        return found + _pointed_at(modules[0].partition(".")[0], line.rest)
    if not line.operands or line.operands[0] == "-":
        return ()
    script = line.operands[0]
    if script.endswith(_PYTHON_FILES):
        return (script,)
    return (script, f"{script}/__main__.py", f"{script}/__main__.pyc")


def _pointed_at(module: str, args: Sequence[str]) -> list[str]:
    """Files that a module runs because its own arguments name them. Raises Unreadable where another could be it."""
    if module == "pip":
        return _pip_module(args)
    if module not in _SCRIPT_MODULES or (module == "unittest" and args[:1] == ("discover",)):
        return []
    if module == "coverage":
        if args[:1] != ("run",):
            return []
        args = args[1:]
    flags, values = map(_names, _SCRIPT_MODULES[module])
    takes_modules = module in _TAKE_MODULES
    found: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg in values:
            next(rest, None)
        elif arg in ("-m", "--module") and not found:
            takes_modules = True
        elif not arg.startswith("-"):
            found += _script_or_module(arg) if takes_modules else [arg]
            if module not in _TAKE_MANY:
                break
        elif arg not in flags and arg.partition("=")[0] not in values:
            raise Unreadable(f"{arg} may take the next argument, or leave it")
    return found


def _script_or_module(name: str) -> list[str]:
    path = posixpath.normpath(name).removesuffix(".py")
    return [name, *_module(path.partition(":")[0].replace("/", "."))]


def _pip_module(args: Sequence[str]) -> list[str]:
    """`python -m pip` read as pip."""
    table = load_tables()["pip"]
    reading = read(table, args)
    sub = table.subs.get(reading.operands[0]) if reading.operands else None
    return _pip(line_of(args, reading if sub is None else replace(reading, sub=read(sub, reading.rest))))


def _local_packages(args: Sequence[str]) -> list[str]:
    """Build files of the packages that pip takes from the workspace."""
    found: list[str] = []
    for arg in args:
        plain = arg.partition("[")[0]
        if not arg.startswith("-") and ":" not in arg and (plain == "." or "/" in plain):
            if not _is_plain_path(plain):
                raise Unreadable  # pip trims it, cuts a marker off, and takes `..` away by its text
            found += _join("" if plain == "." else plain.rstrip("/"), *_PIP_BUILDS)
    return found


def _module(name: str) -> list[str]:
    """Workspace paths where `python -m` looks for a module before it looks elsewhere."""
    parts = name.split(".")
    if not all(parts) or "/" in name:
        return []  # not the name of a module
    path = "/".join(parts)
    found = [f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"]
    for depth in range(1, len(parts)):
        package = "/".join(parts[:depth])
        found += [f"{package}/__init__.py", f"{package}.py"]
    return found


# JavaScript


def _node(line: Line) -> Iterable[str]:
    script = list(line.operands[:1])
    imports = line.values(*_NODE_IMPORTS)  # URLs: only of a plain path do they mean that path
    if line.doubtful or line.has("--entry-url") or script in _NODE_DEBUGS or not all(map(_is_plain_path, imports)):
        return UNKNOWN
    found = line.values(*_NODE_READS)
    for value in line.values("-r", "--require"):
        found += _node_file(value, entry=False) if value.startswith(_PATH_STARTS) else []  # else it names a package
    found += [value for value in imports if value.startswith(_PATH_STARTS)]
    if line.values("--run"):
        found.append("package.json")
    if line.has(*_NODE_CODE) or script == ["-"]:
        return found
    if line.has("--test"):
        return found + [name for test in (*script, *line.rest) for name in _node_test(test)]
    for name in script:
        found += _node_file(name, entry=True)
    return found


def _node_test(name: str) -> list[str]:
    """Files that `node --test` runs for a name, whatever it ends with; none for a pattern, or for the workspace.

    Of these and of a directory node runs whatever tests there are, or its `index.js`.
    """
    name = posixpath.normpath(name)
    if name == "." or _NODE_GLOB.search(name):
        return []
    return [name] if name.endswith(NODE_FILES) else [name, f"{name}/index.js"]


def _node_file(name: str, *, entry: bool) -> list[str]:
    """Files that node may load for a name: as it is, with an extension, or from its directory."""
    name = posixpath.normpath(name)  # as node does: by the text, whatever is a link
    if name.endswith(NODE_FILES):
        return [name]
    found = [name, f"{name}.js", f"{name}.json", f"{name}.node"]
    return found + _join(name, "package.json", "index.js", "index.json", "index.node") if entry else found


class _Npm(NamedTuple):
    """A line of npm, in which it is certain what each word is."""

    words: Sequence[str]
    options: Sequence[tuple[str, str]]

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self.options if name in names]


def _npm_line(args: Sequence[str]) -> _Npm | None:
    """Read a line as every npm since 7 does; None where another word could be the script's name.

    npm takes abbreviations, clusters, any number of dashes, and `true` after a flag. An option that is not spelled as
    in the lists above may take or leave the next word, so such a line is not read at all.
    """
    words: list[str] = []
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(args):
        arg, at = args[at], at + 1
        following = args[at] if at < len(args) else ""
        name, equals, value = arg.partition("=")
        switch = name.removeprefix("--").removeprefix("no-") if name.startswith("--") else ""
        if arg == "--":
            words += args[at:]
            break
        if not arg.startswith("-"):
            words.append(arg)
        elif switch in _NPM_SWITCHES and (value in ("true", "false") if equals else following not in _NPM_TAKEN):
            options.append((f"--{switch}", value))
        elif arg in _NPM_SHORT and following not in _NPM_TAKEN:
            options.append((arg, ""))
        elif name in _NPM_VALUES and (value if equals else following) and (equals or not following.startswith("-")):
            options.append((name, value if equals else following))
            at += not equals
        else:
            return None
    return _Npm(words, options)


def _npm(line: Line) -> Iterable[str]:
    npm = _npm_line(line.args)
    if npm is None:
        return UNKNOWN
    subcommand = _npm_subcommand(npm)
    if not subcommand or subcommand in _NPM_RUNS_NOTHING or list(npm.words[:2]) == ["pkg", "get"]:
        return ()
    names = ["package.json", ".npmrc"]
    packages: list[str] = []
    if subcommand not in _NPM_RUNS_SCRIPTS:
        names.append("binding.gyp")  # npm builds, and so runs, one that exists
        packages = [path for word in npm.words[1:] if (path := local_package(word)) is not None]
    elif _npm_script(npm) in ("start", "restart"):
        names.append("server.js")  # run by `npm start` if there is no script of that name
    directories = npm.values("-C", "--prefix")
    members = npm.values("-w", "--workspace")
    given = {name for name, _ in npm.options}
    elsewhere = given & _NPM_CHOOSES or (subcommand in _NPM_RUNS_SCRIPTS and given & _NPM_ELSEWHERE)
    if elsewhere or len(directories) + bool(members) > 1 or (directories and packages):
        return UNKNOWN
    are_plain = all(map(_is_plain_path, [*directories, *members, *packages]))
    if not are_plain or not all(map(_MEMBER_PATH.fullmatch, members)):
        return UNKNOWN
    found = [path for directory in directories or [""] for path in _join(directory, *names)]
    found += [f"{member}/{name}" for member in members for name in names if name != ".npmrc"]
    for package in packages:
        found += [package] if package.endswith(_ARCHIVES) else _join(package, "package.json", "binding.gyp")
    return found


def _is_plain_path(path: str) -> bool:
    """True if npm, node and the kernel find the same file: npm trims a path, and takes `..` away by its text."""
    plain = _PLAIN_PATH.fullmatch(path) is not None and path == path.strip()
    return plain and ".." not in path.split("/") and path not in ("true", "false", "null", "undefined")


def local_package(spec: str) -> str | None:
    """The path of a package that npm takes from a file or directory; None for one from elsewhere."""
    _, file, path = spec.partition("file:")
    if not file:
        path = spec.rpartition("@")[2] if not spec.startswith((".", "/")) else spec
    is_named = ":" in path or not ("/" in path or path.endswith(_ARCHIVES)) or _REPOSITORY.fullmatch(path)
    is_local = file or path.startswith((".", "/", "~/")) or not is_named
    return path.removeprefix("//") if is_local else None


def _npm_script(npm: _Npm) -> str:
    """The script's name, for a subcommand that runs scripts; empty where `npm run` only lists them."""
    subcommand = npm.words[0]
    if subcommand in ("start", "stop", "restart"):
        return subcommand
    if subcommand in ("test", "t", "tst"):
        return "test"
    return npm.words[1] if len(npm.words) > 1 else ""


def _npm_subcommand(npm: _Npm | None) -> str:
    return npm.words[0] if npm is not None and npm.words else ""


# Builders and testers


def _make(line: Line) -> Iterable[str]:
    directory = "/".join(line.values("-C", "--directory"))
    return _join(directory, *(line.values("-f", "--file", "--makefile") or _MAKEFILES))


def _pytest(line: Line) -> Iterable[str]:
    found = [*line.values("-c", "--config-file"), *_PYTEST_SETTINGS]
    for operand in line.operands:
        path = posixpath.normpath(operand.partition("::")[0])  # as pytest does
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


def _pip(line: Line) -> list[str]:
    return [
        *line.values("-r", "--requirement"),
        *_local_packages([*line.operands[1:], *line.values("-e", "--editable")]),
    ]


def _sed(line: Line) -> Iterable[str]:
    return line.values("-f", "--file")


def _go(line: Line) -> Iterable[str]:
    """Only the files that the line itself names: `go run x.go`."""
    return [operand for operand in line.operands[1:] if operand.endswith(".go")]


RUN_FILES: dict[str, Callable[[Line], Iterable[str]]] = {
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
