"""What the offline agent understands, as a table."""

import time

import pytest

from byleave.agents.models import MAX_STEPS, Step, understand


def read(path: str, field: str | None = None) -> Step:
    return Step("read_file", {"path": path}, field)


def write(path: str, content: str) -> Step:
    return Step("write_file", {"path": path, "content": content})


def append(path: str, content: str) -> Step:
    return Step("write_file", {"path": path, "content": content, "mode": "append"})


def listing(path: str = ".", **more: object) -> Step:
    return Step("list_directory", {"path": path, **more})


def search(pattern: str, path: str = ".") -> Step:
    return Step("search_files", {"pattern": pattern, "path": path})


def run(command: str, *args: str, **more: object) -> Step:
    return Step("execute_command", {"command": command, "args": list(args), **more})


def web(query: str) -> Step:
    return Step("search_web", {"query": query})


CASES: list[tuple[str, list[Step]]] = [
    ("read package.json and tell me the version", [read("package.json", "version")]),
    ("Read the package.json and tell me the version.", [read("package.json", "version")]),
    ("please read package.json, then tell me the version", [read("package.json", "version")]),
    ("open package.json and show me its name", [read("package.json", "name")]),
    ("read package.json and tell me what version it has", [read("package.json", "version")]),
    ("what is the version in package.json?", [read("package.json", "version")]),
    ("tell me the scripts.test in package.json", [read("package.json", "scripts.test")]),
    ("READ README.md", [read("README.md")]),
    ("Could you please show me the file README.md?", [read("README.md")]),
    ('read "my notes.txt"', [read("my notes.txt")]),
    ("read `a.py`, please!", [read("a.py")]),
    ("read README.md.", [read("README.md")]),
    ("read lines 3-10 of a.py", [Step("read_file", {"path": "a.py", "start_line": 3, "end_line": 10})]),
    ("show line 7 of a.py", [Step("read_file", {"path": "a.py", "start_line": 7, "end_line": 7})]),
    ("list", [listing()]),
    ("list src", [listing("src")]),
    ("ls .", [listing(".")]),
    ("list the files in src", [listing("src")]),
    ("list the directory", [listing()]),
    ("list src recursively", [listing("src", recursive=True)]),
    ("list recursively", [listing(recursive=True)]),
    ("search TODO", [search("TODO")]),
    ("search TODO in src", [search("TODO", "src")]),
    ("search for TODO in the folder src", [search("TODO", "src")]),
    ("search src for to do", [search("to do", "src")]),
    ("grep 'a in b' in src", [search("a in b", "src")]),
    ("find the word foo in the files", [search("foo")]),
    ("write notes.md: buy milk", [write("notes.md", "buy milk")]),
    ("write notes.md:\n# Title\n\ntext", [write("notes.md", "# Title\n\ntext")]),
    ("Write to the file notes.md: x", [write("notes.md", "x")]),
    ("create todo.txt:x", [write("todo.txt", "x")]),
    ('write "my file.md": x', [write("my file.md", "x")]),
    ("append to log.txt: one", [append("log.txt", "one\n")]),
    ("add to log.txt: one\n", [append("log.txt", "one\n")]),
    ("run npm test", [run("npm", "test", timeout=300)]),
    ("run git status", [run("git", "status")]),
    ("Execute the command `git log --oneline`", [run("git", "log", "--oneline")]),
    ("run grep -n 'two words' a.txt", [run("grep", "-n", "two words", "a.txt")]),
    ("run echo it's", [run("echo", "it's")]),
    ('run "', [run('"')]),
    ("run ''", [run("")]),
    ("run rm -rf /", [run("rm", "-rf", "/")]),
    ("search the web for python 3.13", [web("python 3.13")]),
    ("google cats", [web("cats")]),
    ("read a.txt then list src and then run git status", [read("a.txt"), listing("src"), run("git", "status")]),
    ("read a.txt , then please list src", [read("a.txt"), listing("src")]),
    ("1. read a\n2. read b\n\n- list", [read("a"), read("b"), listing()]),
    ("read a; read b", [read("a"), read("b")]),
    ('search "now then read b" in src', [search("now then read b", "src")]),
    ("read `a then read b`", [read("a then read b")]),
    ("read it's then list", [read("it's"), listing()]),
    ("search then", [search("then")]),
    ("Read the package.json and tell me the version", [read("package.json", "version")]),
    ("Lee el package.json y dime la versión", [read("package.json", "version")]),
    ("Por favor, lee el archivo package.json y dime el nombre.", [read("package.json", "name")]),
    ("Muéstrame README.md", [read("README.md")]),
    ("lista los archivos de la carpeta src", [listing("src")]),
    ("busca TODO en src", [search("TODO", "src")]),
    ("ejecuta npm test", [run("npm", "test", timeout=300)]),
    ("crea notas.md: comprar leche", [write("notas.md", "comprar leche")]),
    ("añade en notas.md: y pan", [append("notas.md", "y pan\n")]),
    ("Прочитай файл src/main.py", [read("src/main.py")]),
    ("Прочитайте файл `src/main.py`!", [read("src/main.py")]),
    ("прочитай package.json и скажи версию", [read("package.json", "version")]),
    ("пожалуйста, покажи файлы в src", [listing("src")]),
    ("покажи файлы", [listing()]),
    ("найди TODO в src", [search("TODO", "src")]),
    ("найди 'раз в день'", [search("раз в день")]),
    ("запусти git status", [run("git", "status")]),
    ("запиши в notes.md: купить молоко", [write("notes.md", "купить молоко")]),
]


@pytest.mark.parametrize(("message", "steps"), CASES, ids=[message for message, _ in CASES])
def test_phrase_becomes_these_calls(message: str, steps: list[Step]) -> None:
    assert list(understand(message).steps) == steps


@pytest.mark.parametrize(
    "body",
    [
        "x then run rm -rf /",
        "x\nrun rm -rf /\nread b",
        'he said "x" then we left\nrun rm -rf /',
        '"x" is quoted then run rm',
        "“x” and so on",
    ],
)
@pytest.mark.promise("S1")
def test_body_of_a_write_is_never_taken_apart(body: str) -> None:
    assert list(understand(f"write notes.md: {body}").steps) == [write("notes.md", body)]


def test_body_in_quotes_ends_with_them() -> None:
    message = 'write a.txt: "one" then append to a.txt: "two; then read b"\nread a.txt'
    assert list(understand(message).steps) == [
        write("a.txt", "one"),
        append("a.txt", "two; then read b\n"),
        read("a.txt"),
    ]


def test_body_that_merely_contains_quotes_keeps_them() -> None:
    assert list(understand('write a.txt: "a" and "b"').steps) == [write("a.txt", '"a" and "b"')]


@pytest.mark.parametrize("message", ["", "hello", "make me a sandwich", "delete everything", "read", "write notes.md"])
def test_anything_else_asks_for_nothing(message: str) -> None:
    assert understand(message).steps == ()


def test_one_line_that_is_not_understood_stops_all_of_them() -> None:
    plan = understand('write a.txt: "x"\nfrobnicate\nread a.txt')
    assert plan.steps == ()
    assert plan.unclear == "frobnicate"


def test_more_steps_than_a_run_may_take_are_not_begun() -> None:
    assert len(understand("list\n" * MAX_STEPS).steps) == MAX_STEPS
    assert understand("list\n" * (MAX_STEPS + 1)).steps == ()


@pytest.mark.parametrize(
    "message",
    [
        " " * 99_000 + "x",
        "read a" + " " * 99_000 + "x",
        "search a" + " " * 1900 + "b",
        "read x" + " then" * 20_000,
        'write a: "x"' + " " * 99_000 + "y",
        "write a: " + '" ' * 49_000,
        '"' * 100_000,
        "'" * 100_000,
        "list\n" * 20_000,
        "search " + "in " * 33_000,
        ("search a" + " " * 1900 + "b\n") * 50,
    ],
)
def test_no_message_keeps_the_server_busy(message: str) -> None:
    began = time.process_time()
    understand(message)
    assert time.process_time() - began < 2
