"""What was settled where the sources disagreed or were silent, as the gate answers it.

Classified only; nothing here is run.
"""

import pytest

from byleave.gate import Gate, mask_text
from byleave.protocol.verdicts import VerdictLevel
from byleave.protocol.wire import JsonObject

WORKSPACE = "/home/alice/project"
LEVELS = {level.value: level.rank for level in VerdictLevel}


def verdict(tool_name: str, **params: object) -> tuple[str, str]:
    """The level, and all reasons as one text."""
    call: JsonObject = dict(params)
    answer = Gate().judge(tool_name, call, workspace=WORKSPACE).verdict
    return answer.level.value, " ".join(answer.reasons)


def command(*argv: str) -> str:
    return verdict("execute_command", command=argv[0], args=list(argv[1:]))[0]


def write(path: str) -> str:
    return verdict("write_file", path=path, content="x")[0]


@pytest.mark.promise("X1")
def test_config_json_is_an_ordinary_json_file() -> None:
    assert write("config.json") == "MEDIUM"
    assert write("src/config.json") == "MEDIUM"


@pytest.mark.promise("X2", "T2")
@pytest.mark.parametrize("path", ["a.exe", "a.bin", "lib.so", "x.dll", "x.dylib", "x.sys", "A.EXE", "dir/lib.so"])
def test_program_files_are_refused_rather_than_asked_about(path: str) -> None:
    assert write(path) == "REFUSE"


@pytest.mark.promise("X3", "S2", "G2")
@pytest.mark.parametrize(
    "name",
    ["docker", "sudo", "su", "rm", "dd", "mkfs", "ssh-keygen", "openssl", "pacman", "apt", "yum", "curl", "wget", "sh"],
)
def test_command_outside_the_list_is_refused_by_name(name: str) -> None:
    level, reasons = verdict("execute_command", command=name, args=[])
    assert level == "REFUSE"
    assert f"Command not allowed: {name}" in reasons


@pytest.mark.promise("X8")
@pytest.mark.parametrize(
    "name", ["python2", "python3.11", "Python", "LS", "/bin/ls", "./ls", "ls ", " ls", "ls\n", "l\u0455", "git status"]
)
def test_only_the_names_themselves_are_commands(name: str) -> None:
    assert command(name) == "REFUSE"


@pytest.mark.promise("X8")
def test_python3_is_python() -> None:
    assert command("python3", "x.py") == command("python", "x.py") == "MEDIUM"


@pytest.mark.promise("X9")
@pytest.mark.parametrize("args", [[], ["passwd"], ["--help"], ["-c", "x"]])
def test_locate_is_never_low(args: list[str]) -> None:
    assert LEVELS[command("locate", *args)] >= LEVELS["HIGH"]


@pytest.mark.promise("X10")
@pytest.mark.parametrize("args", [["status"], ["log"], ["diff"], ["--version"], ["show", "HEAD"], ["branch"]])
def test_git_is_never_below_medium(args: list[str]) -> None:
    assert LEVELS[command("git", *args)] >= LEVELS["MEDIUM"]


@pytest.mark.promise("X11")
@pytest.mark.parametrize(
    "path",
    [
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        "package.json",
        "Makefile",
        "tests/conftest.py",
        ".npmrc",
        ".envrc",
        ".husky/pre-commit",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".mcp.json",
    ],
)
def test_writing_what_others_execute_or_trust_is_high(path: str) -> None:
    level, reasons = verdict("write_file", path=path, content="x")
    assert level == "HIGH"
    assert len(reasons) > 20


@pytest.mark.promise("X12")
@pytest.mark.parametrize("path", [".git/config", ".git/hooks/pre-commit", ".byleave/policy.toml", "a/../.git/config"])
def test_writing_below_git_and_byleave_is_refused(path: str) -> None:
    assert write(path) == "REFUSE"


@pytest.mark.promise("X13")
@pytest.mark.parametrize("path", [".env", ".env.local", "server.pem", "id_rsa", "a/.netrc", "credentials", "src/.ENV"])
def test_reading_what_holds_secrets_by_its_name_asks(path: str) -> None:
    assert verdict("read_file", path=path)[0] == "MEDIUM"


@pytest.mark.promise("X14")
@pytest.mark.parametrize(
    "secret",
    ["AKIAIOSFODNN7EXAMPLE", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "sk-" + "a1B2c3D4" * 6],
)
def test_what_looks_like_a_secret_is_masked(secret: str) -> None:
    assert secret not in mask_text(f"token: {secret}\n")


@pytest.mark.promise("X15", "G3")
@pytest.mark.parametrize(
    "argv",
    [
        ("find", ".", "-exec", "sh", "{}", ";"),
        ("git", "-c", "core.pager=sh", "log"),
        ("tar", "--checkpoint-action=exec=sh", "-xf", "a.tar"),
        ("tar", "-I", "sh", "-xf", "a.tar"),
    ],
)
def test_argument_that_names_a_program_is_refused(argv: tuple[str, ...]) -> None:
    assert command(*argv) == "REFUSE"


@pytest.mark.promise("X16", "G3")
@pytest.mark.parametrize("argv", [("ls", "--zzz"), ("grep", "--recurs", "x", "."), ("cat", "--num", "a"), ("wc", "-Q")])
def test_unknown_or_abbreviated_option_is_never_low(argv: tuple[str, ...]) -> None:
    assert command(*argv) != "LOW"


@pytest.mark.promise("X17", "S3", "G1")
@pytest.mark.parametrize(
    "argv",
    [
        ("cat", "/etc/passwd"),
        ("ls", "../other"),
        ("grep", "-f", "/etc/shadow", "."),
        ("head", "a/../../b"),
        ("ls", "/home/alice/project-evil"),
        ("wc", "/proc/self/environ"),
    ],
)
def test_path_argument_outside_the_workspace_is_refused(argv: tuple[str, ...]) -> None:
    assert command(*argv) == "REFUSE"
