"""Paths against the real file system: every case with openat2 and with the walk that stands in for it."""

import ctypes
import errno
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from byleave.protocol.errors import ByleaveError, ConfigurationError, PathValidationError, ToolFailure
from byleave.protocol.tools import ListDirectoryParams, ReadFileParams, WriteFileParams
from byleave.workspace.files.executor import FileSystemExecutor, Listing
from byleave.workspace.paths import PathValidator, path_error, visible
from harness.json_values import JsonObject
from harness.place import Place

pytestmark = pytest.mark.promise("G1")

CASES: list[JsonObject] = [
    json.loads(line) for line in (Path(__file__).parent / "cases" / "paths.jsonl").read_text("utf-8").splitlines()
]
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_libc = ctypes.CDLL(None)
LONGEST = "a" * 251 + ".txt"


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def paths(request: pytest.FixtureRequest, place: Place) -> Iterator[PathValidator]:
    validator = PathValidator(place.root, use_openat2=request.param)
    assert validator.uses_openat2 is request.param
    yield validator
    validator.close()


def _link(root: Path, name: str, target: str) -> None:
    (root / name).symlink_to(target)


def _chain(root: Path, count: int) -> None:
    for number in range(1, count):
        _link(root, f"l{number}", f"l{number + 1}")
    (root / f"l{count}").write_text("end")


SETUPS: dict[str, Callable[[Place], object]] = {
    "path-026": lambda at: _link(at.root, "src/link", "a.py"),
    "path-031": lambda at: at.file("empty.txt"),
    "path-070": lambda at: [_link(at.root, f"l{n}", t) for n, t in ((1, "l2"), (2, "l3"), (3, str(at.outside)))],
    "path-071": lambda at: _link(at.root, "link", f"../{at.root.name}/README.md"),
    "path-074": lambda at: (at.file("src/deep/x"), _link(at.root, "a", "src/deep")),
    "path-077": lambda at: _chain(at.root, 45),
    "path-078": lambda at: _link(at.root, "link", "/proc/self/root"),
    "path-080": lambda at: _link(at.root, "link", "/proc/self/fd/3"),
    "path-083": lambda at: _link(at.root, "link", "/dev/stdin"),
    "path-084": lambda at: _link(at.root, "d", str(at.outside)),
    "path-086": lambda at: _link(at.root, "notes.txt", str(at.outside / "secret.txt")),
    "path-089": lambda at: os.link(at.outside / "secret.txt", at.root / "h.txt"),
    "path-091": lambda at: os.mkfifo(at.root / "pipe"),
    "path-094": lambda at: _device(at.root / "dev"),
    "path-095": lambda at: os.truncate(at.file("sparse.bin"), 1 << 40),
    "path-098": lambda at: (at.root / "d").mkdir(),
    "path-103": lambda at: at.file("src/\n\x1b[2J.py"),
    "path-104": lambda at: at.file("rnd.dat", bytes(range(256)) * 16),
    "path-105": lambda at: at.file("locked.txt", "x").chmod(0),
    "path-112": lambda at: at.file("cafe\u0301.md"),
    "path-144": lambda at: (at.file("a.exe"), _link(at.root, "link.txt", "a.exe")),
}
# The name says why another answer than the label's is as safe (see `note` in the case), or what the spec says instead.
NOT_FOUND_IS_FINE = {"path-112"}
BINARY_IS_REFUSED = {"path-104"}
MOUNT = {"path-090"}


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o20666, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def _attempt(paths: PathValidator, op: str, path: str) -> object:
    files = FileSystemExecutor(paths)
    try:
        if op == "read":
            return files.read_now(ReadFileParams(path=path))
        if op == "write":
            return files.write_now(WriteFileParams(path=path, content="new"))
        return Listing(paths, ListDirectoryParams(path=path), threading.Event()).run()
    except ByleaveError as error:
        return error
    finally:
        files.close()


@pytest.mark.promise("T1", "T2", "T4", "S")
@pytest.mark.parametrize("case", [case for case in CASES if case["id"] not in MOUNT], ids=lambda case: case["id"])
def test_case_is_answered_as_expected_and_nothing_outside_is_touched(
    case: JsonObject, paths: PathValidator, place: Place
) -> None:
    place.file("src/a.py", "print()\n")
    place.file("README.md", "# readme\n")
    SETUPS.get(case["id"], lambda _: None)(place)
    path = case["path"].replace("{WSNAME}", place.root.name).replace("{WS}", str(place.root))
    path = LONGEST if case.get("placeholder") else path
    lenient = case["id"] in NOT_FOUND_IS_FINE | BINARY_IS_REFUSED
    answer = _attempt(paths, case["op"], path)
    refused = isinstance(answer, ByleaveError)
    assert lenient or refused is (case["expect"] == "REFUSE"), answer
    assert "SECRET" not in str(answer)
    assert "\x1b" not in str(answer)
    if refused and not path.startswith("/"):
        assert str(place.root) not in str(answer)
    assert (place.outside / "secret.txt").read_text() == "SECRET"
    assert os.listdir(place.outside) == ["secret.txt"]


def _links(at: Place, **links: str) -> None:
    for name, target in links.items():
        _link(at.root, name.replace("__", "/"), target.replace("{OUT}", str(at.outside)).replace("{WS}", str(at.root)))


NEIGHBOURS: list[tuple[str, str, str, dict[str, str]]] = [
    # operation, path, outcome, links
    ("read", "src/up", "OK", {"src__up": "../README.md"}),
    ("read", "l/../README.md", "OK", {"l": "src"}),
    ("list", "l", "OK", {"l": "src/."}),
    ("write", "l/new.txt", "OK", {"l": "src"}),
    ("read", "l/secret.txt", "REFUSE", {"l": "../out"}),
    ("read", "l/secret.txt", "REFUSE", {"l": "src/../../out"}),
    ("read", "l", "REFUSE", {"l": "{WS}/README.md"}),
    ("read", "l/README.md", "REFUSE", {"l": "{WS}"}),
    ("read", "l/out/secret.txt", "REFUSE", {"l": ".."}),
    ("read", "src/l/../secret.txt", "REFUSE", {"src__l": "../../out/."}),
    ("list", "l", "REFUSE", {"l": ".."}),
    ("list", "l", "REFUSE", {"l": "/"}),
    ("read", "l", "REFUSE", {"l": "m", "m": "l"}),
    ("read", "l", "REFUSE", {"l": "l"}),
    ("read", "l/README.md", "REFUSE", {"l": "/proc/self/cwd"}),
    ("read", "l", "REFUSE", {"l": "/proc/self/exe"}),
    ("read", "l", "REFUSE", {"l": "/dev/fd/0"}),
    ("read", "l", "REFUSE", {"l": "/dev/zero"}),
    ("read", "l", "REFUSE", {"l": "nowhere"}),
    ("write", "l", "REFUSE", {"l": "nowhere"}),
    ("write", "l", "REFUSE", {"l": "../out/new.txt"}),
    ("write", "l/new/deep.txt", "REFUSE", {"l": "../out"}),
    ("write", "a/b/l/x.txt", "REFUSE", {"a": "src", "src__b": ".", "src__l": "{OUT}"}),
    ("write", "l.txt", "REFUSE", {"l.txt": "tool.dll"}),
    ("write", "l.txt", "REFUSE", {"l.txt": ".git/config"}),
    ("write", "l/config", "REFUSE", {"l": ".GIT"}),
    ("write", "l/policy.toml", "REFUSE", {"l": ".byleave"}),
    ("write", "src/.Git/config", "REFUSE", {}),
    ("write", ".git /config", "REFUSE", {}),
    ("write", "BYLEAVE~1/policy.toml", "REFUSE", {}),
    ("write", "a.Dylib. .", "REFUSE", {}),
    ("write", "a\u2029b", "REFUSE", {}),
    ("write", "a\u00adb", "REFUSE", {}),
    ("read", "src\uff0fa.py", "REFUSE", {}),
    ("read", "README.md/", "REFUSE", {}),
    ("read", "README.md/.", "REFUSE", {}),
    ("read", "README.md/../README.md", "REFUSE", {}),
    ("list", "README.md", "REFUSE", {}),
    ("read", "a/" * 2000, "REFUSE", {}),
    ("read", "~/README.md", "REFUSE", {}),
    ("read", "$PWD/README.md", "REFUSE", {}),
    ("write", "~/x.md", "OK", {}),
    ("write", "..%2fx.md", "OK", {}),
    ("write", "%00.md", "OK", {}),
    ("write", "--force.md", "OK", {}),
]


@pytest.mark.promise("T1", "T2", "T4", "S")
@pytest.mark.parametrize(
    ("op", "path", "expected", "links"), NEIGHBOURS, ids=[f"{op}-{ascii(path)[1:20]}" for op, path, *_ in NEIGHBOURS]
)
def test_neighbours_of_the_cases_are_answered_alike(
    op: str, path: str, expected: str, links: dict[str, str], paths: PathValidator, place: Place
) -> None:
    place.file("src/a.py", "print()\n")
    place.file("README.md", "# readme\n")
    place.file(".git/config", "git's")
    place.file(".GIT/config", "git's")
    place.file(".byleave/policy.toml", "owner's")
    place.file("tool.dll", "program")
    _links(place, **links)
    kept = {name: (place.root / name).read_text() for name in (".git/config", ".byleave/policy.toml", "tool.dll")}
    answer = _attempt(paths, op, path)
    assert isinstance(answer, ByleaveError) is (expected == "REFUSE"), answer
    assert "SECRET" not in str(answer)
    assert {name: (place.root / name).read_text() for name in kept} == kept
    assert os.listdir(place.outside) == ["secret.txt"]
    assert (place.outside / "secret.txt").read_text() == "SECRET"


def test_forty_links_are_followed_and_not_one_more(paths: PathValidator, place: Place) -> None:
    _chain(place.root, 42)
    os.close(paths.open_beneath("l2", os.O_RDONLY))
    with pytest.raises(PathValidationError, match="too many links"):
        paths.open_beneath("l1", os.O_RDONLY)


@pytest.mark.promise("T1", "S")
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_bind_mount_is_refused_as_labelled(paths: PathValidator, place: Place) -> None:
    """path-090 of the cases."""
    (place.root / "mnt").mkdir()
    place.file("x", "inside")
    mounted = subprocess.run(["mount", "--bind", str(place.outside), str(place.root / "mnt")], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount")
    try:
        for op in ("read", "write"):
            assert isinstance(_attempt(paths, op, "mnt/secret.txt"), PathValidationError)
        assert isinstance(_attempt(paths, "list", "mnt"), PathValidationError)
        assert isinstance(_attempt(paths, "write", "mnt/new.txt"), PathValidationError)
        files = [
            entry.path for entry in Listing(paths, ListDirectoryParams(recursive=True), threading.Event()).run().files
        ]
        assert files == ["mnt", "x"]
    finally:
        subprocess.run(["umount", str(place.root / "mnt")], check=True)
    assert os.listdir(place.outside) == ["secret.txt"]


def test_dotdot_after_a_link_goes_where_the_link_led(paths: PathValidator, place: Place) -> None:
    place.file("src/a.py", "right")
    place.file("a.py", "wrong")
    place.file("src/deep/x")
    _link(place.root, "a", "src/deep")
    fd = paths.open_beneath("a/../a.py", os.O_RDONLY)
    with os.fdopen(fd) as file:
        assert file.read() == "right"


def test_absolute_path_below_the_workspace_is_taken_as_relative(paths: PathValidator, place: Place) -> None:
    assert paths.relative(f"{place.root}/src//./a.py") == "src/a.py"
    assert paths.relative(str(place.root)) == "."


def test_workspace_named_through_a_link_takes_both_spellings(place: Place, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(place.root)
    paths = PathValidator(tmp_path / "alias")
    assert paths.root == place.root.resolve()
    assert paths.relative(f"{tmp_path}/alias/x") == "x"
    assert paths.relative(f"{place.root}/x") == "x"
    paths.close()
    paths.close()


@pytest.mark.parametrize("name", ["\ud800", "a\u200bb", "a\\b", "a\u2215b", "", "x" * 5000, "a\u0000"])
def test_path_that_is_not_what_it_looks_like_is_refused(paths: PathValidator, name: str) -> None:
    with pytest.raises(PathValidationError):
        paths.relative(name)


def test_absolute_link_is_refused_even_when_it_points_inside(paths: PathValidator, place: Place) -> None:
    _link(place.root, "abs", str(place.file("x.txt", "x")))
    with pytest.raises(PathValidationError, match="outside the workspace"):
        paths.open_beneath("abs", os.O_RDONLY)


def test_file_in_the_middle_of_a_path_is_said(paths: PathValidator, place: Place) -> None:
    place.file("x.txt")
    with pytest.raises(ToolFailure, match="is a file, not a directory"):
        paths.open_beneath("x.txt/y", os.O_RDONLY)


def test_link_loop_is_refused(paths: PathValidator, place: Place) -> None:
    _link(place.root, "a", "b")
    _link(place.root, "b", "a")
    with pytest.raises(PathValidationError, match="too many links"):
        paths.open_beneath("a", os.O_RDONLY)


def test_file_is_created_beneath(paths: PathValidator, place: Place) -> None:
    os.close(paths.open_beneath("new.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    assert (place.root / "new.txt").exists()
    assert paths.open_cached("new.txt", os.O_RDONLY) is None or paths.uses_openat2


def test_child_is_opened_only_when_it_is_no_link(paths: PathValidator, place: Place) -> None:
    (place.root / "d").mkdir()
    _link(place.root, "l", "d")
    root = paths.open_beneath(".", os.O_RDONLY | os.O_DIRECTORY)
    os.close(paths.open_child(root, "d", os.O_RDONLY | os.O_DIRECTORY))
    with pytest.raises(OSError, match=r"link|Not a directory"):
        paths.open_child(root, "l", os.O_RDONLY | os.O_DIRECTORY)
    os.close(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_mount_inside_the_workspace_is_not_entered(paths: PathValidator) -> None:
    # /proc is on another mount than /, and no test needs to mount anything for that.
    wide = object.__new__(PathValidator)
    wide.__dict__.update(paths.__dict__)
    wide._root_fd = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(PathValidationError, match="outside"):
            wide.open_beneath("proc/version", os.O_RDONLY)
        with pytest.raises(OSError, match="link"):
            wide.open_child(wide._root_fd, "proc", os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(wide._root_fd)


def test_descriptor_outside_has_no_path_here(paths: PathValidator, place: Place) -> None:
    fd = os.open(place.outside, os.O_PATH)
    with pytest.raises(OSError, match="cross-device"):
        paths.real_path(fd)
    os.close(fd)


@pytest.mark.parametrize("root", ["missing", "file", "/"])
def test_workspace_must_be_a_directory_and_not_everything(place: Place, root: str) -> None:
    place.file("file")
    with pytest.raises(ConfigurationError):
        PathValidator(root if root == "/" else place.root / root)


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOSPC, errno.EFBIG, errno.ENXIO, errno.EIO, errno.EISDIR])
def test_every_answer_of_the_kernel_becomes_a_sentence(code: int) -> None:
    assert path_error("a.txt", OSError(code, "x")).message.endswith(".")


def test_unseen_characters_become_visible() -> None:
    assert visible("a\x1b\u202e\udcff\U000e0041é") == "a\\x1b\\u202e\\xff\\U000e0041é"


def _racing(swap: Callable[[], object], attempt: Callable[[], None], tries: int, seen: set[str]) -> None:
    """Try against a racer; longer, within a bound, when both outcomes have not been seen yet."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            swap()

    racer = threading.Thread(target=run)
    racer.start()
    try:
        for count in range(tries * 20):
            if count >= tries and len(seen) > 1:
                break
            attempt()
    finally:
        stop.set()
        racer.join()


def _exchange(root: Path) -> Callable[[], object]:
    """Flip `d` between a directory and a link to the outside."""
    (root / "d").mkdir()
    (root / "d" / "secret.txt").write_text("inside")
    (root / "evil").symlink_to("../out")

    one, other = os.fsencode(root / "d"), os.fsencode(root / "evil")
    return lambda: _libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE)


@pytest.mark.promise("T1", "S")
def test_swapped_link_never_lets_a_read_out(paths: PathValidator, place: Place) -> None:
    files = FileSystemExecutor(paths)
    seen: set[str] = set()

    def read() -> None:
        try:
            seen.add(files.read_now(ReadFileParams(path="d/secret.txt")).content)
        except ByleaveError as error:
            seen.add(type(error).__name__)

    _racing(_exchange(place.root), read, 3000 if paths.uses_openat2 else 1000, seen)
    files.close()
    assert "SECRET" not in seen
    assert seen - {"inside"}, "the race never happened"


@pytest.mark.promise("T2", "S")
def test_swapped_link_never_lets_a_write_out(paths: PathValidator, place: Place) -> None:
    files = FileSystemExecutor(paths)
    outcomes: set[str] = set()

    def write() -> None:
        try:
            files.write_now(WriteFileParams(path="d/secret.txt", content="changed"))
            outcomes.add("written")
        except ByleaveError as error:
            outcomes.add(type(error).__name__)

    _racing(_exchange(place.root), write, 3000 if paths.uses_openat2 else 500, outcomes)
    files.close()
    assert len(outcomes) > 1, "the race never happened"
    assert (place.outside / "secret.txt").read_text() == "SECRET"
    assert os.listdir(place.outside) == ["secret.txt"]
    assert not [name for _, _, names in os.walk(place.root) for name in names if name.endswith(".tmp")]


@pytest.mark.parametrize("root", ["/", "/proc", "/proc/self", "/sys", "/dev", "/etc", "/usr", "/usr/bin", "/var"])
def test_a_directory_of_the_system_cannot_be_a_workspace(root: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a workspace") as refused:
        PathValidator(root)
    assert refused.value.hint == "Name a project's directory."
