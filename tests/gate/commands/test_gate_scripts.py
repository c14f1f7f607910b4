"""Which files a command line would run, from the line alone."""

import shlex

import pytest

from byleave.gate import Gate, GateRules, UnderstoodCommand
from byleave.gate.commands.scripts import UNKNOWN

pytestmark = pytest.mark.promise("A", "G3")

WORKSPACE = "/home/me/ws"
PYTEST = ("conftest.py", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_GATE = Gate(
    GateRules(
        allowed_commands=frozenset(["python", "node", "npm", "make", "pytest", "cargo", "go", "grep", "git", "gcc"])
        | {"pip", "sed"}
    )
)


def of(line: str) -> tuple[str, ...]:
    command, *args = shlex.split(line)
    params = {"command": command, "args": args, "timeout": 30}
    judgement = _GATE.judge("execute_command", params, workspace=WORKSPACE)
    assert not judgement.verdict.refused, judgement.verdict.message
    assert judgement.command is not None
    assert judgement.verdict.runs == judgement.command.runs
    return judgement.verdict.runs


def module(name: str) -> list[str]:
    return [f"{name}.py", f"{name}/__init__.py", f"{name}/__main__.py"]


def directory(name: str) -> list[str]:
    ends = (".js", ".json", ".node", "/package.json", "/index.js", "/index.json", "/index.node")
    return [name, *(f"{name}{end}" for end in ends)]


def understood(line: str) -> UnderstoodCommand:
    command, *args = shlex.split(line)
    return _GATE.commands.judge(command, args)


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("python x.py", ["x.py"]),
        ("python3 -u ./src//x.py other.py -c 1", ["src/x.py"]),
        ("python -W ignore x.py", ["x.py"]),
        (f"python {WORKSPACE}/x.py", ["x.py"]),
        ("python -i x.py", ["x.py"]),
        ("python app.pyz", ["app.pyz"]),
        ("python app", ["app", "app/__main__.py", "app/__main__.pyc"]),
        ("python .", [".", "__main__.py", "__main__.pyc"]),
        ("python a/../x.py", ["a/../x.py"]),
        ("python -m pytest -q", module("pytest")),
        ("python -m pkg.mod x.py", [*module("pkg/mod"), "pkg/__init__.py", "pkg.py"]),
        ("python -Im cProfile evil", ["evil"]),
        ("python -Im cProfile -o out x.py", ["x.py"]),
        ("python -Im cProfile -m e", ["e", *module("e")]),
        ("python -Im profile -s time evil arg", ["evil"]),
        ("python -Im trace -t --ignore-dir=lib evil", ["evil"]),
        ("python -Im pdb -c continue evil", ["evil"]),
        ("python -Im pickle a.bin b.bin", ["a.bin", "b.bin"]),
        ("python -Im coverage run --source=src -p evil x.py", ["evil"]),
        ("python -Im coverage run -m e", ["e", *module("e")]),
        ("python -Im coverage report", []),
        ("python -Im doctest x.py", [*module("x")]),
        ("python -Im runpy e arg", ["e", *module("e")]),
        ("python -Im inspect e:main", ["e:main", *module("e")]),
        ("python -Im pydoc e", ["e", *module("e")]),
        ("python -Im unittest -v e -k some", ["e", *module("e")]),
        ("python -Im unittest tests/e.py", [*module("tests/e"), "tests/__init__.py", "tests.py"]),
        ("python -Im unittest discover -s tests", []),
        ("python -Im http.server 8000", []),
        ("python -Im pip install -e ./lib[dev]", ["lib/setup.py", "lib/setup.cfg", "lib/pyproject.toml"]),
        ("python -Im pip install lib", []),
        ("python -Im pip install --requirement=r.txt -r s.txt", ["r.txt", "s.txt"]),
        ("python -Im pip install -e./lib", ["lib/setup.py", "lib/setup.cfg", "lib/pyproject.toml"]),
        ("python -Im pip install --editable=./lib", ["lib/setup.py", "lib/setup.cfg", "lib/pyproject.toml"]),
        ("python -Im pytest", []),
        ("python -P -m pytest", []),
        ("python -m pkg..mod", []),
        ("python -c 'import x'", []),
        ("python", []),
        ("python -i", []),
        ("python -", []),
        ("python --version", []),
    ],
)
def test_python_runs_the_script_or_what_the_module_could_be(line: str, files: list[str]) -> None:
    assert list(of(line)) == files


def test_a_module_too_deep_to_tell_stands_for_something_that_cannot_be_shown() -> None:
    assert of("python -m a.b.c.d.e.f.g") != UNKNOWN
    assert of("python -m a.b.c.d.e.f.g.h.i") == UNKNOWN
    assert of("npm " + " ".join(f"-w p{number}" for number in range(9)) + " test") == UNKNOWN
    assert of("python -m unittest a.b c.d e.f g.h") == UNKNOWN
    assert of("pytest " + " ".join(f"t{number}/test.py" for number in range(30))) == UNKNOWN


@pytest.mark.parametrize(
    "line",
    ["cProfile --out x.py evil", "trace -f x.py evil", "coverage run --new x.py evil", "doctest -- x.py", "pdb -p 1"],
)
def test_a_module_with_other_options_stands_for_something_that_cannot_be_shown(line: str) -> None:
    assert of(f"python -m {line}") == of(f"python -Im {line}") == UNKNOWN


def _tests(name: str) -> list[str]:
    return [name, f"{name}/index.js"]


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("node x.js", ["x.js"]),
        ("node --max-old-space-size=4096 x.mjs --y", ["x.mjs"]),
        ("node --experimental-specifier-resolution y.js x.js", ["y.js"]),  # takes no value apart from it
        ("node --inspect-port 9 x.js", ["x.js"]),
        (
            "node app",
            directory("app"),
        ),
        ("node l/../x.js", ["x.js"]),
        ("node -r ./l/../hook.js --env-file l/../.env x.js", ["l/../.env", "hook.js", "x.js"]),
        ("node --require ./hook.js x.js", ["hook.js", "x.js"]),
        ("node -r dotenv x.js", ["x.js"]),
        ("node --import=./hook.mjs x.js", ["hook.mjs", "x.js"]),
        ("node -r hook.js --import lib/hook.mjs x.js", ["x.js"]),  # of packages
        ("node --trace-require-module y.js x.js", ["y.js"]),
        ("node --max-heap-size=9 --no-newoption x.js", ["x.js"]),
        ("node --test ok.js evil.js", ["ok.js", "evil.js"]),
        ("node --test ok.js tests/", ["ok.js", "tests", "tests/index.js"]),
        ("node --test ok.js docs/x.md docs/x", ["ok.js", *_tests("docs/x.md"), *_tests("docs/x")]),
        ("node --test ok.js 'a#%20b.js' l/../c,d.txt", ["ok.js", "a#%20b.js", *_tests("c,d.txt")]),
        ("node --test ok.js '*.js' 'src/[ab]*' .", ["ok.js"]),
        ("node -r ./hook x.js", ["hook", "hook.js", "hook.json", "hook.node", "x.js"]),
        ("node --env-file .env.test x.js", [".env.test", "x.js"]),
        ("node -e 1 x.js", []),
        ("node --require ./hook.js -e 1", ["hook.js"]),
        ("node --run test", ["package.json"]),
        ("node -", []),
        ("node --test", []),
    ],
)
def test_node_runs_what_its_name_could_mean_and_what_is_loaded_first(line: str, files: list[str]) -> None:
    assert list(of(line)) == files


@pytest.mark.parametrize(
    "options",
    [
        *("--newoption", "--zz a --yy b", "-Z", "--exp", "--entry-url", "inspect", "debug"),
        *("--import ./x%32.mjs", "--import './x.mjs?a'", "--import file:./x.mjs", "--loader ./a//../x.mjs"),
        *("--test-reporter './x.mjs '", "--import data:text/javascript,1", "--import '.\\x.mjs'"),
    ],
)
def test_an_unknown_option_of_node_or_a_url_stands_for_something_that_cannot_be_shown(options: str) -> None:
    assert of(f"node {options} y.js x.js") == UNKNOWN


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("npm test", ["package.json", ".npmrc"]),
        ("npm run build -- --x", ["package.json", ".npmrc"]),
        ("npm start", ["package.json", ".npmrc", "server.js"]),
        ("npm ci", ["package.json", ".npmrc", "binding.gyp"]),
        ("npm install x", ["package.json", ".npmrc", "binding.gyp"]),
        ("npm frobnicate", ["package.json", ".npmrc", "binding.gyp"]),
        ("npm run start", ["package.json", ".npmrc", "server.js"]),
        ("npm --silent run build --if-present --no-color --loglevel=warn", ["package.json", ".npmrc"]),
        ("npm ci --no-audit --omit=dev --ignore-scripts=true", ["package.json", ".npmrc", "binding.gyp"]),
        (
            "npm install a@file:./lib @x/y@1 owner/repo pkg.tgz",
            ["package.json", ".npmrc", "binding.gyp", "lib/package.json", "lib/binding.gyp", "pkg.tgz"],
        ),
        ("npm -C app test", ["app/package.json", "app/.npmrc"]),
        ("npm --prefix=./app/ test", ["app/package.json", "app/.npmrc"]),
        ("npm --prefix 'my app' test", ["my app/package.json", "my app/.npmrc"]),
        (
            "npm -w packages/a --workspace=./b test",
            ["package.json", ".npmrc", "packages/a/package.json", "b/package.json"],
        ),
        (
            "npm -w libs/a start",
            ["package.json", ".npmrc", "server.js", "libs/a/package.json", "libs/a/server.js"],
        ),
        (
            "npm -w libs/a rebuild",
            ["package.json", ".npmrc", "binding.gyp", "libs/a/package.json", "libs/a/binding.gyp"],
        ),
        ("npm test -- -ws --workspaces", ["package.json", ".npmrc"]),
        ("npm ls -ws", []),
        ("npm pkg get version", []),
        ("npm pkg set a=b", ["package.json", ".npmrc", "binding.gyp"]),
        ("npm ls --depth 0 -g", []),
        ("npm view react", []),
        ("npm --version", []),
    ],
)
def test_npm_runs_the_scripts_of_a_package(line: str, files: list[str]) -> None:
    assert list(of(line)) == files


@pytest.mark.parametrize(
    "options",
    [
        *("-ws", "--ws", "--workspaces", "--workspaces=true", "--include-workspace-root", "--iwr", "--include-w"),
        *("-w mypkg", "-w=mypkg", "--w mypkg", "--workspace=mypkg", "--workspace @me/core", "-sw mypkg"),
        *("-w 'libs/*'", "-C app -w libs/foo", "-w ./libs/../foo"),
        *("--prefix=app --prefix=app", "--prefix 'app '", "--prefix ' '", "--prefix nothere/../app", "--prefi app"),
        *("-C node_modules/..", "--prefix null", "-g", "-sC app"),
    ],
)
def test_packages_that_npm_looks_up_itself_stand_for_something_that_cannot_be_shown(options: str) -> None:
    assert of(f"npm test {options}") == of(f"npm {options} test") == UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        *("run --token build deploy", "--name run build deploy", "run --newoption build deploy", "--newoption ls test"),
        *(
            "run --if-present true deploy",
            "run -D true deploy",
            "run --color always deploy",
            "run --silent=true deploy",
        ),
        *(
            "run --all=1 build",
            "run --no-tag build deploy",
            "run --no-token build",
            "run ---all build",
            "run -sq build",
        ),
        *("run --otp --prefix=app build", "--name test pkg set scripts.test=x", "run --userconfig=x build"),
    ],
)
def test_options_that_may_take_the_next_word_stand_for_something_that_cannot_be_shown(line: str) -> None:
    assert of(f"npm {line}") == UNKNOWN
    assert understood(f"npm {line}").package_scripts is None


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("make", ["GNUmakefile", "makefile", "Makefile"]),
        ("make -C sub -f x.mk all", ["sub/x.mk"]),
        ("make -C a -C b", ["a/b/GNUmakefile", "a/b/makefile", "a/b/Makefile"]),
        (
            "pytest tests/test_a.py::test_b -q",
            [
                "conftest.py",
                "pytest.ini",
                ".pytest.ini",
                "pyproject.toml",
                "tox.ini",
                "setup.cfg",
                "tests/test_a.py",
                "tests/conftest.py",
            ],
        ),
        ("cargo build", ["Cargo.toml", "build.rs", ".cargo/config.toml"]),
        ("cargo --version", []),
        ("cargo test --manifest-path sub/Cargo.toml", ["sub/Cargo.toml", "sub/build.rs", "sub/.cargo/config.toml"]),
        ("go run x.go", ["x.go"]),
        ("go test ./...", []),
        ("pip install -r r.txt .", ["r.txt", "setup.py", "setup.cfg", "pyproject.toml"]),
        ("pip install -e sub/lib", ["sub/lib/setup.py", "sub/lib/setup.cfg", "sub/lib/pyproject.toml"]),
        ("pip install requests", []),
        ("sed -n -f x.sed a.txt", ["x.sed"]),
        ("sed -n 1p a.txt", []),
        ("gcc x.c", []),
        ("git log", []),
        ("grep -rn x .", []),
    ],
)
def test_builders_run_what_describes_the_build(line: str, files: list[str]) -> None:
    assert list(of(line)) == files


def test_only_commands_run_files() -> None:
    assert _GATE.judge("write_file", {"path": "x.py", "content": ""}).verdict.runs == ()
    assert UnderstoodCommand("python", ("x.py",)).runs == ()


@pytest.mark.parametrize(
    ("line", "scripts"),
    [
        ("npm test", ["pretest", "test", "posttest"]),
        ("npm t", ["pretest", "test", "posttest"]),
        ("npm run lint -- --fix", ["prelint", "lint", "postlint"]),
        ("npm run", []),
        ("npm stop", ["prestop", "stop", "poststop"]),
        (
            "npm restart",
            ["prerestart", "restart", "postrestart", "prestop", "stop", "poststop", "prestart", "start", "poststart"],
        ),
        (
            "npm run restart",
            ["prerestart", "restart", "postrestart", "prestop", "stop", "poststop", "prestart", "start", "poststart"],
        ),
        ("npm run --tag build deploy", ["predeploy", "deploy", "postdeploy"]),
        ("npm run build --silent", ["prebuild", "build", "postbuild"]),
        ("npm ci", None),
        ("npm it", None),
        ("npm version patch", None),
        ("node --run lint", ["lint"]),
        ("node x.js", None),
        ("python x.py", None),
    ],
)
def test_the_scripts_of_a_package_are_named_in_the_order_they_run(line: str, scripts: list[str] | None) -> None:
    assert understood(line).package_scripts == (None if scripts is None else tuple(scripts))


@pytest.mark.parametrize(
    ("line", "rewrites"),
    [
        ("npm install x", True),
        ("npm version patch", True),
        ("npm frobnicate", True),
        ("npm test", False),
        ("npm ci", False),
        ("python x.py", False),
    ],
)
def test_some_commands_rewrite_what_they_run_by_their_own_nature(line: str, rewrites: bool) -> None:
    assert understood(line).changes_what_it_runs is rewrites


@pytest.mark.parametrize(
    "line",
    [
        "python -m pip install './pkg '",
        """python -m pip install "./pkg ;python_version>'3'" """,
        "python -m pip install -e ./l/../pkg",
        "python -X pycache_prefix=pc -m foo",
        "python -Xpycache_prefix=pc foo.py",
    ],
)
def test_what_python_or_pip_may_find_elsewhere_is_unknown(line: str) -> None:
    assert of(line) == UNKNOWN
