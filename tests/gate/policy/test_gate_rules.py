"""How rules see a call: strictly for what loosens, leniently for what tightens."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byleave.gate import CommandValidator, Gate, GateRules, Policy, parse_policy
from byleave.gate.commands.calls import Call, call_of
from byleave.gate.paths import directory_of, path_above, path_fits
from byleave.gate.policy.rules import Fit, Pattern
from byleave.protocol.overview import Layer

pytestmark = pytest.mark.promise("G3", "S")

WORKSPACE = "/home/user/ws"


def line(*argv: str) -> Call:
    command, *args = argv
    understood = CommandValidator(frozenset({command})).judge(command, args, WORKSPACE)
    return call_of("execute_command", {"command": command, "args": args}, understood, WORKSPACE)


def file_call(tool: str, path: str, **more: object) -> Call:
    params = {"path": path, "recursive": False, "pattern": "*", "glob": None, **more}
    return call_of(tool, params, None, WORKSPACE)


def words(*command: str | tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple((word,) if isinstance(word, str) else word for word in command)


PUSH = Pattern(command=words("git", ("push", "pull")))


@pytest.mark.parametrize(
    ("argv", "strictly", "leniently"),
    [
        (("git", "push"), True, Fit.YES),
        (("git", "push", "origin", "main"), True, Fit.YES),
        (("git", "pull"), True, Fit.YES),
        (("git", "-C", "sub", "push"), False, Fit.YES),
        (("git", "--no-pager", "push"), False, Fit.YES),
        (("git", "status"), False, Fit.NO),
        (("git", "commit", "-m", "push"), False, Fit.NO),
        (("git", "log", "push"), False, Fit.NO),
        (("git", "pusj"), False, Fit.PERHAPS),  # may be an alias for anything
        (("git",), False, Fit.NO),
        (("grep", "push", "git"), False, Fit.NO),
    ],
)
def test_begin_of_a_line_is_found_behind_options(argv: tuple[str, ...], strictly: bool, leniently: Fit) -> None:
    call = line(*argv)
    assert PUSH.fits_strictly(call) is strictly
    assert PUSH.fit(call) is leniently
    assert PUSH.fits_leniently(call) is (leniently is Fit.YES)


@pytest.mark.parametrize(
    ("command", "argv", "fit"),
    [
        (words("python", "-m", "pytest"), ("python", "-m", "pytest"), Fit.YES),
        (words("python", "-m", "pytest"), ("python3", "-B", "-m", "pytest", "-x"), Fit.YES),
        (words("python", "-m", "pytest"), ("python", "-mpytest"), Fit.YES),
        (words("python", "-m", "pytest"), ("python", "-m", "http.server"), Fit.NO),
        (words("python", "manage.py", "migrate"), ("python", "-B", "manage.py", "migrate"), Fit.YES),
        (words("python", "manage.py", "migrate"), ("python", "./manage.py", "migrate"), Fit.YES),
        (words("python", "manage.py", "migrate"), ("python", "other.py", "manage.py", "migrate"), Fit.NO),
        (words("npm", "install"), ("npm", "isntalll", "left-pad"), Fit.PERHAPS),
        (words("npm", "install"), ("npm", "--silent", "install"), Fit.YES),
        (words("docker", "push"), ("docker", "push", "x"), Fit.YES),
        (words("docker", "push"), ("docker", "--context", "x", "push"), Fit.YES),
        (words("docker", "push"), ("docker", "run", "push"), Fit.NO),
        (words("docker", "push"), ("docker", "-x", "value", "push"), Fit.YES),
    ],
)
def test_lenient_look_sees_through_spellings(
    command: tuple[tuple[str, ...], ...], argv: tuple[str, ...], fit: Fit
) -> None:
    assert Pattern(command=command).fit(line(*argv)) is fit


@pytest.mark.parametrize(
    ("argv", "fits"),
    [
        (("git", "push", "--force"), True),
        (("git", "push", "-uf"), True),
        (("git", "push", "--forc"), True),
        (("git", "push", "origin", "main", "-f"), True),
        (("git", "push"), False),
        (("git", "push", "--force-with-lease"), False),
        (("git", "push", "--follow-tags"), False),
    ],
)
def test_option_is_found_clustered_and_abbreviated(argv: tuple[str, ...], fits: bool) -> None:
    pattern = Pattern(command=words("git", "push"), options=("--force", "-f"))
    assert pattern.fits_leniently(line(*argv)) is fits
    assert not pattern.fits_strictly(line(*argv))


def test_exact_pattern_takes_nothing_more() -> None:
    pattern = Pattern(command=words("npm", "test"), exact=True)
    assert pattern.fits_strictly(line("npm", "test"))
    assert not pattern.fits_strictly(line("npm", "test", "x"))
    assert pattern.fit(line("npm", "test")) is Fit.YES
    assert pattern.fit(line("npm", "test", "x")) is Fit.NO


SECRET = Pattern(paths=("secret/**",))


@pytest.mark.parametrize(
    ("argv", "fit"),
    [
        (("cat", "secret/key"), Fit.YES),
        (("cat", "./src/../secret/key"), Fit.YES),
        (("cat", "SECRET/Key"), Fit.YES),
        (("cat", f"{WORKSPACE}/secret/key"), Fit.YES),
        (("git", "show", "HEAD:secret/key"), Fit.YES),
        (("tar", "-cfx.tar", "-C", "secret/sub", "."), Fit.YES),
        (("grep", "--file=secret/key", "x"), Fit.YES),
        (("docker", "-v", "secret/key"), Fit.YES),
        (("docker", "-vsecret/key"), Fit.YES),
        (("ls", "secret"), Fit.PERHAPS),
        (("grep", "-r", "x", "."), Fit.PERHAPS),
        (("grep", "-r", "x"), Fit.PERHAPS),
        (("grep", "-rdread", "x"), Fit.PERHAPS),
        (("grep", "-re", "x"), Fit.PERHAPS),
        (("grep", "-re", "x", "src"), Fit.NO),
        (("find",), Fit.PERHAPS),
        (("ls", "-R"), Fit.PERHAPS),
        (("git", "diff"), Fit.PERHAPS),
        (("tar", "-cf", "a.tar", "src"), Fit.PERHAPS),
        (("docker", "ps"), Fit.PERHAPS),
        (("wc", "--files0-from=names"), Fit.PERHAPS),
        (("python", "-c", "print(open('secret/key').read())"), Fit.PERHAPS),
        (("python", "secret"), Fit.PERHAPS),
        (("mv", "secret", "public"), Fit.PERHAPS),
        (("cp", "-r", "secret", "public"), Fit.PERHAPS),
        (("grep", "-rn", "TODO", "src"), Fit.NO),
        (("grep", "-n", "TODO", "src/a.py"), Fit.NO),
        (("find", "src", "-name", "*.py"), Fit.NO),
        (("ls",), Fit.NO),
        (("cat", "a.txt"), Fit.NO),
        (("date",), Fit.NO),
        (("git", "status"), Fit.NO),
        (("python", "x.py"), Fit.NO),
        (("npm", "test"), Fit.NO),
    ],
)
def test_paths_are_found_wherever_a_command_names_them(argv: tuple[str, ...], fit: Fit) -> None:
    assert SECRET.fit(line(*argv)) is fit
    assert not SECRET.fits_strictly(line(*argv))


def test_directory_that_a_command_changes_to_counts() -> None:
    pattern = Pattern(paths=("src/secret/**",))
    assert pattern.fit(line("git", "-C", "src", "show", "HEAD:./secret/key")) is Fit.YES
    assert pattern.fit(line("git", "-C", "lib", "status", "secret/key")) is Fit.NO


@pytest.mark.parametrize(
    ("call", "fit", "strictly"),
    [
        (file_call("read_file", "secret/key"), Fit.YES, True),
        (file_call("read_file", f"{WORKSPACE}/secret/key"), Fit.YES, True),
        (file_call("read_file", "a/../secret/key"), Fit.YES, False),
        (file_call("read_file", "Secret/key"), Fit.YES, False),
        (file_call("write_file", "secretive/key"), Fit.NO, False),
        (file_call("list_directory", "secret"), Fit.YES, False),
        (file_call("list_directory", "."), Fit.NO, False),
        (file_call("list_directory", ".", recursive=True), Fit.PERHAPS, False),
        (file_call("list_directory", ".", pattern="secret/*"), Fit.YES, False),
        (file_call("search_files", "."), Fit.PERHAPS, False),
        (file_call("search_files", "src"), Fit.NO, False),
        (file_call("search_files", "src", glob="*.py"), Fit.NO, False),
        (file_call("read_file", "/etc/passwd"), Fit.NO, False),
        (call_of("search_web", {"query": "secret/key"}, None), Fit.NO, False),
    ],
)
def test_file_tools_fit_by_their_path(call: Call, fit: Fit, strictly: bool) -> None:
    assert SECRET.fit(call) is fit
    assert SECRET.fits_strictly(call) is strictly


def test_command_with_paths_asks_where_it_may_reach_them() -> None:
    pattern = Pattern(command=words("rm"), paths=("migrations/**",))
    assert pattern.fit(line("rm", "migrations/1.py")) is Fit.YES
    assert pattern.fit(line("rm", "-r", ".")) is Fit.PERHAPS
    assert pattern.fit(line("rm", "src/a.py")) is Fit.NO
    assert pattern.fit(line("cat", "migrations/1.py")) is Fit.NO


def test_tool_narrows() -> None:
    pattern = Pattern(tool="write_file", paths=("src/**",))
    assert pattern.fits_strictly(file_call("write_file", "src/a.py"))
    assert pattern.fit(file_call("read_file", "src/a.py")) is Fit.NO
    assert not pattern.fits_strictly(file_call("read_file", "src/a.py"))
    assert pattern.fit(line("cat", "src/a.py")) is Fit.NO


def test_call_with_too_much_in_it_may_reach_everything() -> None:
    many = line("cat", *(f"src/{number:040}/{number}.py" for number in range(250)), "x" * 9000)
    assert SECRET.fit(many) is Fit.PERHAPS
    deep = [f"{number}{'/y' * 90}" for number in range(99)]
    assert SECRET.fit(line("cat", *deep)) is Fit.PERHAPS
    assert SECRET.fit(line("cat", "secret/key", *deep)) is Fit.YES
    pieces = line("python", "-c", " ".join(f"a{number}" for number in range(5000)))
    assert SECRET.fit(pieces) is Fit.PERHAPS


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.pem", "key.pem", True),
        ("*.pem", "a/b/key.pem", True),
        ("*.pem", "key.pem/x", False),
        ("/*.pem", "a/key.pem", False),
        ("./a.txt", "a.txt", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "src", False),
        ("src/", "src/a", True),
        ("build/", "lib/build/a", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/**/x.py", "src/x.py", True),
        ("src/**/x.py", "src/a/b/x.py", True),
        ("**/x/**", "a/x/b", True),
        ("**", "anything/at/all", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[id].tsx", "app/[id].tsx", True),
        ("[id].tsx", "app/i.tsx", False),
        ("*a*b*", "xxaxxbxx", True),
        ("*a*b*", "xxbxxaxx", False),
    ],
)
def test_patterns_mean_what_people_expect(glob: str, path: str, fits: bool) -> None:
    assert path_fits(glob, path) is fits


def test_careless_look_covers_case_and_what_lies_below() -> None:
    assert path_fits("secret", "SECRET/key", careless=True)
    assert path_fits("*.pem", "a/Key.PEM", careless=True)
    assert path_fits(".Env", ".env", careless=True)
    assert not path_fits("secret", "secrets/key", careless=True)
    assert directory_of("Secret", "secret/**")
    assert not directory_of("secret", "secret/key")
    assert path_above(".", "a/b")
    assert path_above("a", "a/*/key")
    assert path_above("a/b", "a/*/key")
    assert not path_above("b", "a/*/key")
    assert path_above("b", "**/key")
    assert path_above("a/b", "a/**/key")


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("end.", "end."),
        ("end.", "a/END./b"),
        ("x?.", "xa."),
        ("a:b", "A:b"),
        ("/dot./key", "dot./key"),
        ("/dot./key", "dot./key."),
        ("dot./**", "dot./key"),
    ],
)
def test_careless_look_covers_a_name_as_it_stands_too(glob: str, path: str) -> None:
    assert path_fits(glob, path, careless=True)
    text = f'[[rule]]\naction = "deny"\npaths = ["{glob}"]\n'
    gate = Gate(GateRules(policy=Policy((parse_policy(text, Layer.USER, source="policy.toml"),))))
    assert gate.judge("read_file", {"path": path}, workspace="/w").verdict.refused
    assert gate.judge("execute_command", {"command": "cat", "args": [path]}, workspace="/w").verdict.refused


def test_careless_look_at_directories_covers_a_name_as_it_stands_too() -> None:
    assert directory_of("end.", "end./**")
    assert path_above("end.", "end./*/key")
    assert not path_above("other.", "end./*/key")


def test_hostile_pattern_takes_no_time() -> None:
    began = time.process_time()
    assert not path_fits("**/a/" * 20 + "b", "a/" * 2000 + "c")
    assert not path_fits("*a" * 80 + "b", "a" * 4000)
    assert time.process_time() - began < 2


names = st.text("ab*?", min_size=1, max_size=4)
paths = st.lists(names, min_size=1, max_size=5).map("/".join)


@given(paths.filter(lambda glob: "***" not in glob), st.lists(st.text("ab", min_size=1), min_size=1).map("/".join))
def test_strict_fit_is_a_careless_fit(glob: str, path: str) -> None:
    if path_fits(glob, path):
        assert path_fits(glob, path, careless=True)


@given(st.lists(st.sampled_from(["push", "-f", "--force", "-C", "x", "--", "origin", "-uf"]), max_size=6))
def test_strict_fit_of_a_line_is_a_lenient_fit(args: list[str]) -> None:
    call = line("git", *args)
    if PUSH.fits_strictly(call):
        assert PUSH.fits_leniently(call)
