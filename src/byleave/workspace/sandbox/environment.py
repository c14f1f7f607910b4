"""Find a command's program, and set up its environment, git settings, user, control group and home directory.

Programs come from directories that belong to root and from the toolchains of this machine's user (the Python that runs
Byleave, the newest Node of nvm), never from the workspace or the inherited PATH. The environment is built from nothing:
no variable of the client reaches a command, so neither do its secrets.

Root is more than any command needs. If the client runs as root and the workspace belongs to somebody else who can reach
it, commands run as that user: they can do there what its owner could, and nothing that only root can. Otherwise they
have to stay root, inside the sandbox; then the kernel's limit on processes does not count, and a control group replaces
it if there is one, which is tried before it is relied on.

`own_home` is for HOME and temporary files where the sandbox cannot provide a directory. It is removed with the command,
however deeply nested: at once, or in a thread if that takes long, since the client does nothing else meanwhile. The
next client removes one that a killed client left; a lock marks one in use. Only such directories of our own user, or as
root of the workspace's owner, are ever removed; no link is followed, and mounts in one are left alone.
"""

import _thread
import errno
import fcntl
import itertools
import os
import pwd
import re
import secrets
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from byleave.protocol.errors import CommandNotAllowed, ToolFailure

_CGROUPS = Path("/sys/fs/cgroup")
_COUNT = itertools.count(1)
_OURS = "byleave-"
# The shell joins the group before anything else of the command exists.
_JOIN = 'echo $$ > "$0" && exec "$@"'


_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def lacks_descriptors(error: BaseException) -> bool:
    """True if no more files could be opened. That passes, so no lasting answer may come from it."""
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS


@contextmanager
def _suppress_lasting() -> Generator[None]:
    """Suppress an OSError, except one that passes."""
    try:
        yield
    except OSError as error:
        if lacks_descriptors(error):
            raise


@dataclass(frozen=True, slots=True)
class CommandUser:
    """A user that is not root."""

    uid: int
    gid: int

    def reaches(self, path: Path) -> bool:
        """True if the modes let this user enter `path` and all directories above it."""
        try:
            return all(self._enters(parent) for parent in (path, *path.parents))
        except OSError:
            return False

    def _enters(self, directory: Path) -> bool:
        found = directory.stat()
        if found.st_uid == self.uid:
            return bool(found.st_mode & 0o100)
        return bool(found.st_mode & (0o010 if found.st_gid == self.gid else 0o001))


def command_user(workspace: Path) -> CommandUser | None:
    """The workspace's owner, if we are root and they are not; else None: commands run as we do.

    None too if the owner cannot reach it through the directories above. ToolFailure if they may not enter it itself: a
    command can bring that about, and must not become root by it.
    """
    if os.geteuid() != 0:
        return None
    try:
        found = workspace.stat()
    except OSError:
        return None
    if found.st_uid == 0:
        return None
    if not found.st_mode & 0o100:
        raise ToolFailure(
            f"The owner of {str(workspace)!r} may not enter it, so commands cannot be run there.",
            hint="Give the right back: chmod u+rwx",
        )
    try:
        gid = pwd.getpwuid(found.st_uid).pw_gid
    except KeyError:
        gid = found.st_gid
    runner = CommandUser(found.st_uid, gid if gid != 0 else 65534)
    return runner if runner.reaches(workspace) else None


def pids_group() -> Path | None:
    """The control group in which root may create groups that limit processes; None if there is none."""
    if os.geteuid() != 0:
        return None
    with _suppress_lasting():
        if (_CGROUPS / "pids").is_dir():
            base = _CGROUPS / "pids"
        elif "pids" in (_CGROUPS / "cgroup.subtree_control").read_text("ascii").split():
            base = _CGROUPS
        else:
            return None
        _sweep(base)
        with limited_group(base, 16) as (procs, argv):
            return base if procs.exists() and _joins(argv) else None
    return None


@contextmanager
def limited_group(base: Path, processes: int) -> Generator[tuple[Path, list[str]]]:
    """Create a group for one command; yield its file of members and the argv prefix that joins it."""
    group = base / f"{_OURS}{os.getpid()}-{next(_COUNT)}"
    group.mkdir()
    try:
        (group / "pids.max").write_text(str(processes), "ascii")
        procs = group / "cgroup.procs"
        yield procs, ["/bin/sh", "-c", _JOIN, str(procs)]
    finally:
        with suppress(OSError):  # a process in it is still exiting; the next client sweeps it
            group.rmdir()


def _joins(argv: list[str]) -> bool:
    done = subprocess.run([*argv, "/bin/true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


def _sweep(base: Path) -> None:
    """Remove groups of killed clients, by the process id in the name: a living one may be about to join."""
    for group in base.glob(f"{_OURS}*"):
        if not Path("/proc", group.name.removeprefix(_OURS).partition("-")[0]).exists():
            with suppress(OSError):
                group.rmdir()


SYSTEM_DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin")
_OPT, _LOCAL = "/opt", "/usr/local"
_LOCAL_PROGRAMS = ("bin", "sbin", "include", "lib", "lib32", "lib64", "libexec", "share", "man", "games")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")
# Programs to try for a command's name.
_SPELLINGS = {"python": ("python", "python3"), "python3": ("python", "python3")}
_PACKAGES = {"locate": "plocate", "python": "python3", "node": "nodejs", "rg": "ripgrep"}


# Beside these, conda keeps other environments and settings, and npm its registry tokens. The last two: a Python
# framework of macOS.
_NEEDED = (
    *("bin", "include", "lib", "lib32", "lib64", "libexec", "share", "ssl/cacert.pem", "ssl/cert.pem"),
    *("Python", "Resources"),
)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A directory with programs outside the system's own: `parts` are made readable, `programs` is searched."""

    prefix: Path
    programs: Path

    @property
    def parts(self) -> tuple[str, ...]:
        """The existing paths in `prefix` that its programs need; no link that leads out of it.

        `prefix` itself if nothing else lies there: each further mount makes commands start slower.
        """
        if all(entry.name in _NEEDED and not entry.is_symlink() for entry in _entries(str(self.prefix))):
            return (str(self.prefix),)
        paths = (f"{self.prefix}/{name}" for name in _NEEDED)
        return tuple(path for path in paths if os.path.exists(path) and self._holds(os.path.realpath(path)))

    def _holds(self, real: str) -> bool:
        return real.startswith(f"{os.path.realpath(self.prefix)}/")


@lru_cache(maxsize=1)
def toolchains() -> tuple[Toolchain, ...]:
    """Toolchains of this machine that its user, and nobody else, could have changed."""
    prefixes = [Path(sys.base_prefix).resolve()]
    nodes = Path.home() / ".nvm" / "versions" / "node"
    with _suppress_lasting():  # there are none, or HOME is somebody else's
        prefixes.extend(sorted(nodes.iterdir(), key=_version)[-1:])
    found = [Toolchain(prefix, prefix / "bin") for prefix in prefixes if _is_ours(prefix / "bin") and _is_bare(prefix)]
    return tuple(chain for chain in found if str(chain.programs) not in SYSTEM_DIRECTORIES)


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.name))


def _is_ours(directory: Path) -> bool:
    """Owned by root or by us, and writable by no one else."""
    try:
        info = directory.stat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid in (0, os.geteuid()) and not info.st_mode & 0o022


def _is_bare(prefix: Path) -> bool:
    """True if all of it may be readable: a Python in HOME or ~/.local has the user's own files beside it."""
    home = Path.home().resolve()
    return not home.is_relative_to(prefix) and prefix != home / ".local"


@lru_cache(maxsize=1)
def optional_packages() -> tuple[str, ...]:
    """Directories in /opt and /usr/local that system programs link into; commands may read no others there.

    A toolchain is none of them: only its parts are readable.
    """
    links = (entry.path for place in SYSTEM_DIRECTORIES for entry in _entries(place) if entry.is_symlink())
    targets = {os.path.realpath(link) for link in links}
    packages = {package for target in targets if (package := _package_of(target)) is not None}
    return tuple(sorted(packages - {str(chain.prefix) for chain in toolchains()}))


def _package_of(program: str) -> str | None:
    for place, others in ((_OPT, ()), (_LOCAL, _LOCAL_PROGRAMS)):
        name, slash, _ = program.removeprefix(f"{place}/").partition("/")
        if program.startswith(f"{place}/") and slash and name not in others:
            return f"{place}/{name}"
    return None


def beside_programs() -> tuple[str, ...]:
    """The owner's files beside the programs of /usr and of packages, such as registry tokens; they may not exist."""
    packages, prefixes = optional_packages(), [chain.prefix for chain in toolchains()]
    local = (
        entry.path
        for entry in _entries(_LOCAL)
        if entry.name not in _LOCAL_PROGRAMS
        and entry.path not in packages
        and not any(prefix.is_relative_to(entry.path) for prefix in prefixes)
    )
    settings = (f"{package}/{name}" for package in packages for name in ("etc", "conf", "config"))
    return ("/usr/etc", *local, *settings)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    with _suppress_lasting(), os.scandir(directory) as entries:
        return list(entries)
    return []


def usable_toolchains(workspace: Path) -> tuple[Toolchain, ...]:
    """Toolchains outside the workspace that the user of its commands can reach."""
    runner = command_user(workspace)
    outside = (chain for chain in toolchains() if not chain.prefix.is_relative_to(workspace))
    return tuple(chain for chain in outside if runner is None or runner.reaches(chain.programs))


def search_path(workspace: Path) -> tuple[str, ...]:
    """The PATH of a command: toolchains, then the system's directories."""
    return (*(str(chain.programs) for chain in usable_toolchains(workspace)), *SYSTEM_DIRECTORIES)


def find_program(name: str, workspace: Path) -> str:
    """The absolute path of the program `name`, or an error that says it is not installed."""
    if not _NAME.match(name):
        raise CommandNotAllowed(f"Command not allowed: {name!r} is not a plain name.")
    for spelling in _SPELLINGS.get(name, (name,)):
        for directory in search_path(workspace):
            candidate = os.path.join(directory, spelling)
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    raise ToolFailure(
        f"{name} is not installed on this machine.", hint=f"Install the package {_PACKAGES.get(name, name)!r}."
    )


def clean_environment(workspace: Path, home: str) -> dict[str, str]:
    """The whole environment of a command. It tells git and npm to ask nothing and to read no other settings."""
    return {
        "PATH": ":".join(search_path(workspace)),
        "HOME": home,
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own; NoSandbox puts its private directory here
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": f"{home}/.gitconfig",
        "GIT_OPTIONAL_LOCKS": "0",
        # Else a ref could put other content in place of what was looked at.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_CEILING_DIRECTORIES": str(workspace.parent),
        "NO_UPDATE_NOTIFIER": "1",
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
        # Stronger than a .npmrc of the workspace, which could name programs of its own.
        "npm_config_script_shell": "/bin/sh",
        "npm_config_shell": "/bin/sh",
        "npm_config_git": "git",
        "npm_config_browser": "false",
        "npm_config_editor": "false",
        "npm_config_init_module": f"{home}/.npm-init.js",
    }


MAX_IGNORED = 256 * 1024
_TAKEN = r"^(user\.(name|email)|core\.(autocrlf|eol|excludesfile)|filter\.lfs\.clean)$"


def git_files(root: Path) -> dict[str, str]:
    """Files of git for a command's home: the user's name, email, line endings and ignored files, and nothing else."""
    try:
        git = find_program("git", root)
    except ToolFailure:
        return {}
    env = {"HOME": str(Path.home()), "PATH": ":".join(SYSTEM_DIRECTORIES), "GIT_CONFIG_NOSYSTEM": "1"}

    said = subprocess.run(
        [git, "config", "--global", "-z", "--get-regexp", _TAKEN],
        env=env,
        cwd=os.sep,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    settings = (entry.partition("\n") for entry in said.stdout.split("\0"))
    plain = {name: value for name, _, value in settings if value.isprintable() and not set(value) & set('"\\')}
    lines: list[str] = []
    for section, keys in (("user", ("name", "email")), ("core", ("autocrlf", "eol"))):
        lines.append(f"[{section}]")
        lines += [f'\t{key} = "{value}"' for key in keys if (value := plain.get(f"{section}.{key}"))]
    lines.append("\texcludesFile = ~/.gitignore")
    if "filter.lfs.clean" in plain:
        # Else git would commit large files themselves. What is checked out stays a pointer: nothing is downloaded.
        lines += ['[filter "lfs"]', "\tclean = git-lfs clean -- %f", "\tsmudge = git-lfs smudge --skip -- %f"]
        lines.append("\trequired = true")
    # Background maintenance would be killed half done when the command ends, so it runs in the foreground.
    lines += ["[gc]", "\tautoDetach = false", "[maintenance]", "\tautoDetach = false"]
    # Files that were put aside are nothing to commit.
    ignored = _ignored(plain.get("core.excludesfile", "")) + "\n*.replaced-" + "[0-9a-f]" * 8 + "\n"
    return {".gitconfig": "\n".join(lines) + "\n", ".gitignore": ignored, ".stash-ignore": f"{ignored}/.byleave\n"}


def _ignored(excludes: str) -> str:
    """The patterns of files that the user's git ignores everywhere: an agent must not commit what they never see."""
    directory = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    try:
        with open(
            os.path.expanduser(excludes) or f"{directory}/git/ignore", encoding="utf-8", errors="replace"
        ) as file:
            return file.read(MAX_IGNORED)
    except OSError:
        return ""


_PREFIX = "byleave-home-"
_PATIENCE_SECONDS = 0.1
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def own_home() -> Generator[Path]:
    """Create an empty directory that lasts as long as the block."""
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    while (fd := _taken(path)) is None:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        yield path
    finally:
        until = time.monotonic() + _PATIENCE_SECONDS
        steps = _removing(path)
        if all(time.monotonic() < until for _ in steps):
            os.close(fd)
        else:
            _beside(steps, fd)


def _beside(steps: Generator[None], fd: int) -> None:
    def go_on() -> None:
        for _ in steps:
            pass
        os.close(fd)

    try:
        _thread.start_new_thread(go_on, ())
    except RuntimeError:  # no more threads, or the program is about to end
        go_on()


def _taken(path: Path) -> int | None:
    """Lock a new directory without waiting; None if another client takes it for a left one and removes it."""
    try:
        fd = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return None
    taken = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.fstat(fd).st_nlink > 0
    finally:
        if not taken:
            os.close(fd)
    return fd if taken else None


def remove_left(workspace: Path) -> None:
    """Remove directories that killed clients left: ours and, as root, those of the workspace's owner."""
    users = {os.geteuid()}
    with suppress(OSError):
        users |= {workspace.stat().st_uid} if os.geteuid() == 0 else set[int]()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for path in [each.path for each in found if each.name.startswith(_PREFIX)]:
            with suppress(OSError):
                _remove_if_left(path, users)


def _remove_if_left(path: str, users: set[int]) -> None:
    fd = os.open(path, _DIRECTORY)
    try:
        if os.fstat(fd).st_uid in users:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if it is in use
            remove_tree(path)
    finally:
        os.close(fd)


def remove_tree(path: str | Path) -> None:
    """Remove a directory and everything in it. Entries that cannot be removed stay, without an error."""
    for _ in _removing(path):
        pass


def _removing(path: str | Path) -> Generator[None]:
    """`remove_tree`, step by step.

    Directories are moved up before they are emptied: a path down could be longer than the kernel takes, and a descent
    could need more descriptors, or more stack, than there are.
    """
    with suppress(OSError):
        top = os.open(path, _DIRECTORY)
        try:
            yield from _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _empty(top: int) -> Generator[None]:
    token, mount = secrets.token_hex(8), _mount(top)
    moved = 0
    stays: set[str] = set()
    while names := [name for name in os.listdir(top) if name not in stays]:
        for name in names:
            stays.add(name)
            yield
            with suppress(OSError):
                if _unlinked(top, name):
                    continue
                child = _opened(top, name, mount)
                try:
                    for inner in os.listdir(child):
                        yield
                        if not _unlinked(child, inner):
                            os.close(_opened(child, inner, mount))  # only a writable directory can be moved
                            os.rename(inner, f"{token}-{moved}", src_dir_fd=child, dst_dir_fd=top)
                            moved += 1
                finally:
                    os.close(child)
                os.rmdir(name, dir_fd=top)


def _unlinked(directory: int, name: str) -> bool:
    """Remove an entry and return True; False for a directory, which stays."""
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=directory)
    return True


def _opened(directory: int, name: str, mount: bytes) -> int:
    """Make a directory accessible and open it. OSError if something is mounted there."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if _mount(fd) != mount:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        place = f"/proc/self/fd/{fd}"
        os.chmod(place, 0o700)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(fd)


def _mount(fd: int) -> bytes:
    """Id of the mount that a descriptor lies in; a device number does not tell two mounts of one directory apart."""
    with open(f"/proc/self/fdinfo/{fd}", "rb", buffering=0) as file:
        return file.read().partition(b"mnt_id:")[2].partition(b"\n")[0]
