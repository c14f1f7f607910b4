"""A workspace to be thrown away, full of traps: links out, pipes, files named like options, secrets, hostile lists.

Beside it lies `outside`, which nothing that runs unasked may open. As root everything is given to an ordinary user,
who alone runs commands on it. `changes` says what is not as it was made.
"""

import gzip
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534

FILES = {
    "a.txt": "one\ntwo TODO\nthree\n",
    "b.txt": "one\n2\nthree\n",
    "src/a.py": "import os  # TODO\nprint(1)\n",
    "src/b.py": "x = 'yesterday'\n",
    "src/deep/c.md": "# c\n",
    "other/a.py": "import sys\n",
    "empty": "",
    "words": "one\nTODO\n",
    "dates": 'yesterday\nTZ="{OUT}/secret.txt" now\nTZ="../outside/secret.txt" now\n',
    "names0": "a.txt\0{OUT}/secret.txt\0",
    "names": "a.txt\n{OUT}/secret.txt\n/etc/passwd\n",
    "script.sed": "w wrote\ne id\nr {OUT}/secret.txt\n",
    "magic": "0 string one one\n!:mime text/one\n",
    "two words": "a b\n",
    "ünï.txt": "ü\n",
    "wild*": "*\n",
    "x=y": "=\n",
    ".hidden": "h\n",
    ".gitignore": "*.pyc\n!{OUT}\n",
    ".info": "a.txt\n\tabout a\n",
    ".env": "KEY=secret\n",
    "other/.env": "KEY=other\n",
    "config/id_rsa": "KEY\n",
    ".git/config": "[core]\n\tfsmonitor = ./ls\n\tpager = ./ls\n",
    "ls": "#!/bin/sh\ntouch wrote\n",
    "noread": "no\n",
    # Names that are options to a reader that looks at words only.
    "-delete": "d\n",
    "-f": "f\n",
    "-n": "n\n",
    "--": "dashes\n",
    "+f": "plus\n",
    "+1f": "plus\n",
    "-": "minus\n",
    "--help": "help\n",
}
LINKS = {
    "in.txt": "a.txt",
    "out.txt": "{OUT}/secret.txt",
    "outdir": "{OUT}",
    "src/deep/out.txt": "../../../outside/secret.txt",
    "src/deep/outdir": "../../../outside",
    "other/b.py": "{OUT}/secret.txt",
    "up": "..",
    "loop": "loop",
    "dangling": "nowhere",
    "null": "/dev/null",
    "zero": "/dev/zero",
    "environ": "/proc/self/environ",
    "passwd": "/etc/passwd",
    "harmless": ".env",
    "topipe": "pipe",
}
BIG_LINES = 20_000


@dataclass(frozen=True)
class Playground:
    """The directories of one throw-away workspace."""

    base: Path
    root: Path
    outside: Path
    traces: Path
    user: int | None
    """Who runs commands here; None: whoever we are, who is not root."""
    made: dict[str, tuple[object, ...]]
    ends: tuple[str, ...]
    """Where the links lead."""

    def changes(self) -> list[str]:
        """Names that came, went, or are not what they were."""
        now = snapshot(self.root) | snapshot(self.outside)
        return sorted(name for name in now.keys() | self.made.keys() if now.get(name) != self.made.get(name))


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """What there is, by name: kind, mode, size, time of change, and where a link leads."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, directories, files in os.walk(root):
        for name in (".", *directories, *files):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(info.st_mode) else ""
            found[path] = (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino, target)
    return found


@contextmanager
def playground() -> Generator[Playground]:
    """Make one, and remove it afterwards."""
    base = Path(tempfile.mkdtemp(prefix="byleave-fuzz-")).resolve()
    try:
        root, outside, traces = base / "ws", base / "outside", base / "traces"
        for directory in (root, outside, traces):
            directory.mkdir()
        _fill(root, outside)
        user = NOBODY if os.geteuid() == 0 else None
        if user is not None:
            _give(base, user)
        ends = tuple(target.replace("{OUT}", str(outside)) for target in (*LINKS.values(), str(outside / "secret.txt")))
        yield Playground(base, root, outside, traces, user, snapshot(root) | snapshot(outside), ends)
    finally:
        shutil.rmtree(base)


def _fill(root: Path, outside: Path) -> None:
    (outside / "secret.txt").write_text("outside TODO\n")
    (outside / "sub").mkdir()
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content.replace("{OUT}", str(outside)))
    (root / "big.txt").write_text("".join(f"{n * 7919 % BIG_LINES} line\n" for n in range(BIG_LINES)))
    (root / "packed.gz").write_bytes(gzip.compress(b"packed\n", mtime=0))
    (root / "packed.zst").write_bytes(bytes.fromhex("28b52ffd0007390000") + b"packed\n")
    (root / "binary").write_bytes(bytes(range(256)))
    for name, target in LINKS.items():
        (root / name).symlink_to(target.replace("{OUT}", str(outside)))
    os.mkfifo(root / "pipe")
    os.mkfifo(root / "src" / "pipe")
    with socket.socket(socket.AF_UNIX) as bound, _inside(root):
        bound.bind("socket")  # by its short name: a long one does not fit
    (root / "ls").chmod(0o755)
    (root / "noread").chmod(0)


@contextmanager
def _inside(directory: Path) -> Generator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def _give(base: Path, user: int) -> None:
    base.chmod(0o755)
    for directory, directories, files in os.walk(base):
        for name in (".", *directories, *files):
            os.chown(os.path.join(directory, name), user, user, follow_symlinks=False)
