"""Results both clients must give: `vscode/test/vectors/results.json`, made by running the Python tools for real.

The file describes a small workspace and calls on it, each with the result or error of the Python client and what the
files hold afterwards; the TypeScript client makes the same workspace and must agree. Times and what depends on the
machine (limits, users, paths) are taken out. A test runs everything again and says whether the file still holds.
"""

import asyncio
import base64
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from byleave.protocol.errors import ByleaveError
from byleave.protocol.tools import TOOLS
from byleave.settings import ClientSettings
from byleave.workspace import CommandTimeout, Workspace

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "vscode" / "test" / "vectors" / "results.json"
MTIME = 1_700_000_000
MAX_OUTPUT = 4096
MAX_FILE = 20_000
RUN_PY = b"import sys\nprint('ran', sys.argv[1:])\n"
A_TXT = b"one\ntwo\nthree\n"
ISOLATION = ("isolated", "backend", "fs", "net", "pidns", "protected", "created")

Entry = dict[str, Any]
Case = dict[str, Any]


def _file(path: str, content: bytes, mode: int = 0o644) -> Entry:
    return {"path": path, "kind": "file", "content": base64.b64encode(content).decode("ascii"), "mode": mode}


def _link(path: str, target: str) -> Entry:
    return {"path": path, "kind": "link", "target": target}


def _directory(path: str) -> Entry:
    return {"path": path, "kind": "directory"}


SETUP: list[Entry] = [
    _file("a.txt", A_TXT),
    _file("empty.txt", b""),
    _file("no-newline.txt", b"first\nlast"),
    _file("umlaut.txt", "Grüße\nKöln\n".encode()),
    _file("latin1.txt", "Grüße\n".encode("latin-1")),
    _file("cp1252.txt", b"\x93quoted\x94 \x80\n"),
    _file("bom8.txt", b"\xef\xbb\xbfwith a mark\n"),
    _file("utf16le.txt", b"\xff\xfe" + "sixteen é\n".encode("utf-16-le")),
    _file("utf16be.txt", b"\xfe\xff" + "sixteen é\n".encode("utf-16-be")),
    _file("utf32.txt", b"\xff\xfe\x00\x00" + "thirty-two\n".encode("utf-32-le")),
    _file("binary.dat", b"\x00\x01\x02needle\x03"),
    _file("control.dat", b"abc\x01\xff"),
    _file("picture.png", b"\x89PNG\r\n\x1a\n\x00\x00rest"),
    _file("paper.pdf", b"%PDF-1.4 text"),
    _file("separators.txt", "a\u2028b\nc\x0cd\n".encode()),
    _file("crlf.txt", b"needle one\r\nother\r\nneedle two\r\n"),
    _file("large.txt", b"x" * (MAX_FILE + 1)),
    _file("closed.txt", b"nobody\n", 0o000),
    _file("readonly.txt", b"keep\n", 0o444),
    _file("private.md", b"mine\n", 0o600),
    _file("run.py", RUN_PY, 0o755),
    _file(".hidden", b"needle in hidden\n"),
    _file(".env", b"SECRET=needle\n"),
    _file(".gitignore", b"*.log\n/build/\n!keep.log\n"),
    _file("noise.log", b"needle in log\n"),
    _file("keep.log", b"needle kept\n"),
    _file("build/out.txt", b"needle built\n"),
    _file("src/app.py", b"def needle():\n    return 'Needle (x)'\n"),
    _file("src/app.ts", b"export const needle = 1;\n"),
    _file("src/deep/er/est.txt", b"needle at depth\n"),
    _file("src/deep/.gitignore", b"skipped.txt\n"),
    _file("src/deep/skipped.txt", b"needle skipped\n"),
    _file("src/naïve é.txt", b"needle with an accent\n"),
    _file("tab\u2009thin.txt", b"thin space\n"),
    _file("many.txt", b"".join(b"needle %d\n" % number for number in range(1, 21))),
    _file("long.txt", b"needle " + b"y" * 2500 + b"\n"),
    _directory("empty"),
    _link("inside.txt", "a.txt"),
    _link("src/up.txt", "../a.txt"),
    _link("outside", "/etc/hostname"),
    _link("climbing", "../../etc/hostname"),
    _link("dead", "nothing-here"),
    _link("loop", "loop"),
    _link("source", "src"),
    _link("harmless.txt", ".env"),
    _link("plain.md", "run.py"),
    {"path": "pipe", "kind": "fifo"},
    {"path": "twin.txt", "kind": "hard", "target": "twin-of.txt", "content": base64.b64encode(b"twin\n").decode()},
]


def make_workspace(root: Path) -> None:
    """The workspace of every case."""
    for entry in SETUP:
        path = root / entry["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        match entry["kind"]:
            case "file":
                path.write_bytes(base64.b64decode(entry["content"]))
                path.chmod(entry["mode"])
            case "directory":
                path.mkdir()
            case "link":
                path.symlink_to(entry["target"])
            case "fifo":
                os.mkfifo(path)
            case _:
                (root / entry["target"]).write_bytes(base64.b64decode(entry["content"]))
                os.link(root / entry["target"], path)
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            os.utime(Path(directory) / name, (MTIME, MTIME), follow_symlinks=False)
        os.utime(directory, (MTIME, MTIME))
        for name in os.listdir(directory):
            if os.path.islink(Path(directory) / name):
                os.utime(Path(directory) / name, (MTIME, MTIME), follow_symlinks=False)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _case(
    tool: str,
    params: dict[str, Any],
    *,
    bound: dict[str, str] | None = None,
    look: tuple[str, ...] = (),
    record: bool = False,
) -> Case:
    case: Case = {"tool": tool, "params": params, "bound": bound or {}, "look": list(look)}
    return {**case, "record": True} if record else case


def _reads() -> list[Case]:
    names = (
        *("a.txt", "empty.txt", "no-newline.txt", "umlaut.txt", "latin1.txt", "cp1252.txt", "bom8.txt", "utf16le.txt"),
        *("utf16be.txt", "utf32.txt", "binary.dat", "control.dat", "picture.png", "paper.pdf", "separators.txt"),
        *("large.txt", "closed.txt", "private.md", ".env", "missing.txt", "src", "src/", "a.txt/x", "inside.txt"),
        *(
            "src/up.txt",
            "outside",
            "climbing",
            "dead",
            "loop",
            "source/app.py",
            "harmless.txt",
            "pipe",
            "../x",
            "/etc/passwd",
        ),
        *("./src/../a.txt", "src/../../a.txt", "a\u202etxt.exe", "a\\b", "it's", 'say "it\'s"', "n" * 300),
        *("src/naïve é.txt", "tab\u2009thin.txt", "twin.txt"),
    )
    ranges = (*((1, 1), (2, None), (None, 2), (2, 2), (3, 9), (4, 4), (9, None), (3, 2)),)
    cases = [_case("read_file", {"path": name}) for name in names]
    cases += [_case("read_file", {"path": "a.txt", "start_line": a, "end_line": b}) for a, b in ranges]
    cases += [
        _case("read_file", {"path": "no-newline.txt", "start_line": 2, "end_line": 5}),
        _case("read_file", {"path": "empty.txt", "start_line": 1, "end_line": 1}),
        _case("read_file", {"path": "empty.txt", "start_line": 2}),
        _case("read_file", {"path": "picture.png", "start_line": 1}),
        _case("read_file", {"path": "separators.txt", "start_line": 2}),
    ]
    return cases


def _lists() -> list[Case]:
    calls: list[dict[str, Any]] = [
        {},
        {"path": "src"},
        {"path": "source"},
        {"path": "empty"},
        {"path": "src", "recursive": True},
        {"recursive": True, "pattern": "*.txt"},
        {"pattern": ".*"},
        {"pattern": "*.TXT"},
        {"pattern": "[ab]*"},
        {"pattern": "[!a-m]*"},
        {"pattern": "?.txt"},
        {"pattern": "[z-a]*"},
        {"pattern": "*a*t*x*t*q*"},
        {"pattern": "[unclosed"},
        {"pattern": "a/b"},
        {"path": "a.txt"},
        {"path": "missing"},
        {"path": "outside"},
        {"path": ".."},
        {"path": "pipe"},
    ]
    return [_case("list_directory", params) for params in calls]


def _searches() -> list[Case]:
    calls: list[dict[str, Any]] = [
        {"pattern": "needle"},
        {"pattern": "needle", "path": "src"},
        {"pattern": "needle", "path": "src/deep"},
        {"pattern": "needle", "path": "a.txt"},
        {"pattern": "needle", "path": "many.txt", "max_results": 3},
        {"pattern": "needle", "max_results": 5},
        {"pattern": "NEEDLE", "case_sensitive": False},
        {"pattern": "NEEDLE", "case_sensitive": True},
        {"pattern": "(x)"},
        {"pattern": r"needle\(", "regex": True},
        {"pattern": r"^needle (one|two)$", "regex": True},
        {"pattern": r"\bneedle\s+\d+$", "regex": True},
        {"pattern": "n[ea]+dle", "regex": True, "glob": "*.py"},
        {"pattern": "needle", "glob": "*.{py,ts}"},
        {"pattern": "needle", "glob": "**/*.txt"},
        {"pattern": "needle", "glob": ".hid*"},
        {"pattern": "needle", "path": ".env"},
        {"pattern": "needle", "path": "harmless.txt"},
        {"pattern": "needle", "path": "long.txt"},
        {"pattern": "Köln"},
        {"pattern": "sixteen"},
        {"pattern": "two", "path": "inside.txt"},
        {"pattern": "nothing at all"},
        {"pattern": "a(", "regex": True},
        {"pattern": "needle", "glob": "a/b"},
        {"pattern": "needle", "glob": "[x"},
        {"pattern": "needle", "path": "missing"},
        {"pattern": "needle", "path": "outside"},
        {"pattern": "needle", "path": "pipe"},
        {"pattern": "needle", "path": "binary.dat"},
    ]
    return [_case("search_files", params) for params in calls]


def _writes() -> list[Case]:
    shown, gone = {"a.txt": _sha(A_TXT)}, {"new.txt": "missing"}

    def write(path: str, content: str = "new\n", **more: Any) -> Case:
        bound = more.pop("bound", None)
        look = more.pop("look", (path,))
        return _case("write_file", {"path": path, "content": content, **more}, bound=bound, look=look)

    return [
        write("a.txt"),
        write("a.txt", "four\n", mode="append"),
        write("new.txt"),
        write("new.txt", "added\n", mode="append"),
        write("made/on/the/way.md", "deep\n"),
        write("run.py", "print(1)\n"),
        write("private.md", "still private\n"),
        write("umlaut.txt", "ß\n", mode="append"),
        write("empty.txt", ""),
        write("readonly.txt"),
        write("closed.txt"),
        write("twin.txt"),
        write("inside.txt", look=("a.txt", "inside.txt")),
        write("plain.md", look=("run.py",)),
        write("harmless.txt", look=(".env",)),
        write("outside"),
        write("climbing"),
        write("dead"),
        write("loop"),
        write("pipe"),
        write("src"),
        write("src/"),
        write("a.txt/x"),
        write("source/app.py", look=("src/app.py",)),
        write(".git/config"),
        write(".BYLEAVE/x"),
        write("tool.exe"),
        write("lib.So. "),
        write("../x"),
        write("a.txt", "y" * (MAX_FILE + 1)),
        write("a.txt", "y" * MAX_FILE, mode="append"),
        write("half.txt", "\ud800"),
        write("a.txt", bound=shown),
        write("a.txt", "four\n", mode="append", bound=shown),
        write("a.txt", bound={"a.txt": _sha(b"other")}),
        write("a.txt", "x\n", mode="append", bound={"a.txt": _sha(b"other")}),
        write("a.txt", bound={"b.txt": _sha(A_TXT)}),
        write("a.txt", bound={"a.txt": "missing"}),
        write("new.txt", bound=gone),
        write("new.txt", bound={"new.txt": _sha(b"")}),
        write("inside.txt", bound=shown, look=("a.txt",)),
        write("dead", bound={"dead": "missing"}),
    ]


def _commands() -> list[Case]:
    def run(command: str, *args: str, timeout: int = 30, **more: Any) -> Case:
        return _case("execute_command", {"command": command, "args": list(args), "timeout": timeout}, **more)

    def python(code: str, **more: Any) -> Case:
        return run("python", "-c", code, **more)

    refused = "import os\ntry:\n    {}\nexcept OSError as e:\n    print(e.errno)"
    ran = {"run.py": _sha(RUN_PY)}
    return [
        run("echo", "hello", "$HOME", "*"),
        run("cat", "a.txt"),
        run("cat", "missing.txt"),
        run("cat", "outside"),
        run("cat", "pipe"),
        run("cat", "harmless.txt"),
        run("head", "-n", "1", "a.txt"),
        run("ls", "src"),
        run("grep", "-c", "needle", "many.txt"),
        run("grep", "needle", "a.txt"),
        run("grep", "-r", "-l", "SECRET", "."),
        run("wc", "-l", "a.txt"),
        run("find", "src", "-name", "*.py"),
        run("pwd"),
        run("zip", "-q", "out.zip", "a.txt"),
        run("no-such-program"),
        run("../evil"),
        run("echo", "a\x00b"),
        run("tar", "-cf", "out.tar", "a.txt"),
        python("import sys; sys.exit(7)"),
        python("import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
        python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        python("import sys; print('out'); print('err', file=sys.stderr)"),
        python("import sys; sys.stdout.buffer.write(b'a\\xffb\\xc3')"),
        python("print('x' * 10000)"),
        python("import sys; print('x' * 10000); print('y' * 10000, file=sys.stderr)"),
        python("print('é' * 5000)"),
        python("import time; print('begun', flush=True); time.sleep(60)", timeout=1),
        python("open('made.txt', 'w').write('made')", look=("made.txt",)),
        python(refused.format("open('.vscode/settings.json', 'w')")),
        python(refused.format("os.mkdir('.git/hooks')")),
        python(refused.format("open('/usr/made', 'w')")),
        python(refused.format("open('/etc/shadow')")),
        python(
            "import os; print([name for name in ('/etc/shadow', '/var/log', '/root/.ssh') if os.path.exists(name)])"
        ),
        python("import os; print('BYLEAVE_TOKEN' in os.environ, os.environ['HOME'], os.environ['USER'])"),
        python(
            "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), 2)\n"
            "except OSError as e:\n    print(e.errno)"
        ),
        python("import os\nif os.fork() == 0:\n    import time\n    time.sleep(100)\nprint('parent')"),
        run("python", "run.py", "x", bound=ran),
        run("python", "run.py", bound={"run.py": _sha(b"other")}),
        run("python", "run.py", bound={"run.py": "missing"}),
        run("python", "gone.py", bound={"gone.py": _sha(b"")}),
        run("python", "run.py", bound={**ran, "src": "missing"}),
        run("git", "init", "-q", "."),
        run("git", "status"),
        *_recorded(),
    ]


def _recorded() -> list[Case]:
    """What a command changed, told with its result."""

    def python(code: str, timeout: int = 30) -> Case:
        params = {"command": "python", "args": ["-c", code], "timeout": timeout}
        return _case("execute_command", params, record=True)

    made = "open('{0}', 'w').write('x')"
    return [
        python("import os; os.remove('a.txt'); os.mkdir('d'); open('d/new.txt', 'w').write('x')"),
        python(
            "open('a.txt', 'a').write('four'); import os; os.chmod('run.py', 0o700); os.rename('empty.txt', 'e.txt')"
        ),
        python("import os; os.remove('inside.txt'); os.symlink('run.py', 'inside.txt'); os.mkdir('only')"),
        python(
            "; ".join(made.format(name) for name in ("package.json", "Makefile", "src/conftest.py", "x.MK", "plain"))
        ),
        python("import os; os.makedirs('.github/workflows'); " + made.format(".github/workflows/ci.yml")),
        python("import os; os.makedirs('sub/node_modules/x'); " + made.format("sub/node_modules/x/index.js")),
        python("for n in range(30): open(f'm{n}.mk', 'w').write('x')"),
        python("pass"),
        python("import time; open('late.txt', 'w').write('x'); print('begun', flush=True); time.sleep(60)", timeout=1),
        python("open('fails.txt', 'w').write('x'); raise SystemExit(3)"),
        _case("execute_command", {"command": "cat", "args": ["a.txt"], "timeout": 30}, record=True),
        _case("execute_command", {"command": "git", "args": ["init", "-q", "."], "timeout": 30}, record=True),
        _case("write_file", {"path": "a.txt", "content": "new", "mode": "write"}, look=("a.txt",), record=True),
    ]


def cases() -> list[Case]:
    return [*_reads(), *_lists(), *_searches(), *_writes(), *_commands()]


def _settings(home: Path) -> ClientSettings:
    return ClientSettings(home=home, max_file_bytes=MAX_FILE, max_output_bytes=MAX_OUTPUT)


async def _run(case: Case, base: Path, number: int) -> Case:
    root = base / f"w{number}" / "workspace"
    root.mkdir(parents=True)
    make_workspace(root)
    workspace = Workspace(root, _settings(base / "home"))
    expected: dict[str, Any]
    tool, params = case["tool"], case["params"]
    params = {**_defaults(tool), **params}
    try:
        record = "exec_1" if "record" in case else None
        result = await workspace.run(tool, params, bound=case["bound"], record_as=record)
        expected = {"result": _normal(result.model_dump(mode="json"), root)}
    except ByleaveError as error:
        expected = _failed(error, root)
    finally:
        await workspace.close()
    expected["after"] = {path: _state(root / path) for path in case["look"]}
    return {**case, "params": params, "expected": expected}


def _defaults(tool: str) -> dict[str, Any]:
    fields = TOOLS[tool].params.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}


def _failed(error: ByleaveError, root: Path) -> dict[str, Any]:
    kind = "ExecutionTimeout" if isinstance(error, CommandTimeout) else type(error).__name__
    partial = error.partial if isinstance(error, CommandTimeout) else None
    return {
        "error": _plain(error.message, root),
        "hint": error.hint,
        "error_type": error.error_type.value,
        "kind": kind,
        "partial": None if partial is None else _normal(partial.model_dump(mode="json"), root),
    }


def _normal(result: dict[str, Any], root: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(_plain(json.dumps(result, ensure_ascii=False), root))
    if "isolation" in made:
        made["isolation"] = {key: made["isolation"][key] for key in ISOLATION}
        made["execution_time"] = 0
    return made


def _plain(text: str, root: Path) -> str:
    return text.replace(str(root), "{workspace}")


def _state(path: Path) -> dict[str, Any] | None:
    if path.is_symlink():
        return {"link": os.readlink(path)}
    if not path.is_file():
        return None
    return {"sha256": _sha(path.read_bytes()), "mode": path.stat().st_mode & 0o7777}


async def build() -> dict[str, Any]:
    """All cases with what the Python client gives now."""
    base = Path(tempfile.mkdtemp(prefix="byleave-vectors-"))
    umask = os.umask(0o022)
    try:
        made = [await _run(case, base, number) for number, case in enumerate(cases())]
    finally:
        os.umask(umask)
        shutil.rmtree(base, ignore_errors=True)
    limits = {"max_file_bytes": MAX_FILE, "max_output_bytes": MAX_OUTPUT, "mtime": MTIME}
    return {"limits": limits, "setup": SETUP, "cases": made}


def text_of(made: dict[str, Any]) -> str:
    """The file's text: one case on a line."""
    lines = ",\n".join(json.dumps(case) for case in made["cases"])
    return (
        f'{{"limits": {json.dumps(made["limits"])},\n"setup": {json.dumps(made["setup"])},\n"cases": [\n{lines}\n]}}\n'
    )


if __name__ == "__main__":
    TARGET.write_text(text_of(asyncio.run(build())), "utf-8")
