"""Runs command lines in bubblewrap under strace, and says what each did that a reading command must not do.

Never outside the sandbox: every namespace is its own, there is no network and no capability, an ordinary user runs it,
the throw-away workspace (and the directory of the traces) is all it can write. strace runs inside too. One sandbox
and one strace hold a whole batch.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from byleave.gate import secret_name, understand
from byleave.protocol.verdicts import Finding, VerdictLevel
from byleave.workspace.commands.operands import to_leave_out
from byleave.workspace.sandbox.environment import SYSTEM_DIRECTORIES, clean_environment

from .playground import Playground

LINE_SECONDS = 2
PATIENT_SECONDS = 15
"""For a line that did not end in time: the machine may have been busy."""
TOTAL_SECONDS = 240
MOST_TOLD = 4
# Whatever opens or looks at a file, starts or signals a process, talks to someone, or changes the machine.
_LOOKS = "stat lstat newfstatat statx access faccessat faccessat2 chdir"
_TRACED = f"""
{_LOOKS} open openat openat2 creat open_by_handle_at name_to_handle_at execve execveat clone clone3 fork vfork
kill tkill tgkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo socket socketpair connect bind listen
accept accept4 sendto sendmsg sendmmsg unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat
mkdir mkdirat rmdir
truncate ftruncate fallocate chmod fchmod fchmodat chown fchown lchown fchownat mknod mknodat utime utimes utimensat
futimesat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr settimeofday clock_settime clock_adjtime
adjtimex sethostname setdomainname ptrace mount umount2 mount_setattr fsmount move_mount open_tree pivot_root chroot
memfd_create io_uring_setup bpf userfaultfd keyctl add_key request_key unshare setns init_module finit_module reboot
syslog process_vm_writev setuid setgid setresuid setresgid setgroups shmget msgget semget mq_open inotify_add_watch
fanotify_mark swapon swapoff acct quotactl pause
"""
_OPENS = frozenset({"open", "openat", "openat2", "creat"})
_STARTS = frozenset({"clone", "clone3", "fork", "vfork"})
_WRITING = re.compile(r"\bO_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b")
_NOT_FILES = frozenset({"/dev/null", "/dev/tty"})
# What libc and the programs need to start at all: libraries, messages, time zones, what the kernel says of itself.
_SYSTEM = re.compile(
    r"/(?:usr/)?lib(?:64|32)?/|/etc/ld\.so\.|/usr/share/(?:locale|i18n|zoneinfo)(?:/|$)|/etc/(?:localtime|nsswitch\.conf|mtab)$"
    r"|/proc/(?:self|[0-9]+)/(?:mountinfo|mounts|maps|fd)$|/proc/(?:filesystems|mounts|meminfo)$"
    r"|/sys/devices/system/(?:cpu|node)"
)
_LOOKED_FOR = re.compile(r"/sys/fs/selinux$|/selinux$|/etc/selinux/")
_OWN_DATA = {
    "file": re.compile(r"/etc/magic(?:\.\w+)*$|/usr/share/(?:misc/magic|file)|/\.home/\.magic"),
    "tree": re.compile(r"/usr/share/finfo/"),
}
_NAMES_OF_USERS = frozenset({"/etc/passwd", "/etc/group"})
_SHOW_OWNERS = frozenset({"ls", "find", "stat", "whoami", "tree", "du"})
_PROBE = ', "/", O_RDONLY|O_CLOEXEC'
"""find -samefile tries on the root directory whether its libc knows O_CLOEXEC."""
_SHOW_NO_CONTENT = frozenset({"file", "find"})
"""They open a file, and say of it only what kind it is, or whether it is the same as another."""
_NSCD = 'sun_path="/var/run/nscd/socket"'
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (.*)")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DIRECTORY = re.compile(r"^(?:AT_FDCWD|[0-9]+)<((?:[^<>\\]|\\.)*)>")
_FD = re.compile(r"([0-9]+)<(.*)>$")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-f]{2}|.)")
_LETTERS = {"n": 10, "t": 9, "r": 13, "v": 11, "f": 12}


_trace = ",".join(f"?{name}" for name in _TRACED.split())  # with `?` a kernel may lack it


Line = tuple[str, ...]


class CannotTrace(Exception):
    """strace or bubblewrap is missing or does not work here."""


@dataclass(frozen=True)
class Misdeed:
    """What one line did, and should not have."""

    line: Line
    did: str

    def __str__(self) -> str:
        return f"{' '.join(map(_shown, self.line))}: {self.did}"


@dataclass(frozen=True)
class Ended:
    """How one line ended."""

    pid: int
    ended: bool
    """By itself, and in time."""


@dataclass(frozen=True)
class Call:
    """One system call of a trace."""

    name: str
    arguments: str
    result: str

    @property
    def failed(self) -> bool:
        return self.result.startswith("-1")

    def path(self, start: str) -> str:
        """The real path of what was opened; of what was not, the path that was tried from `start`."""
        opened = _FD.match(self.result)
        if opened is not None:
            return unescaped(opened.group(2)).removesuffix(" (deleted)")
        named = _TEXT.search(self.arguments)
        directory = _DIRECTORY.match(self.arguments)
        start = unescaped(directory.group(1)) if directory else start
        return os.path.normpath(os.path.join(start, unescaped(named.group(1)) if named else ""))


def unescaped(text: str) -> str:
    """strace's C string as text."""

    def one(found: re.Match[str]) -> str:
        code = found.group(1)
        if code[0] in "01234567":
            return chr(int(code, 8))
        if code[0] == "x" and len(code) == 3:
            return chr(int(code[1:], 16))
        return chr(_LETTERS[code]) if code in _LETTERS else code

    return _ESCAPE.sub(one, text).encode("latin-1", "replace").decode("utf-8", "replace")


def program(command: str) -> str | None:
    """Where the system, or the directory FUZZ_PROGRAMS, has a command; None where neither does."""
    return shutil.which(command, path=":".join((*SYSTEM_DIRECTORIES, *_further())))


def _further() -> tuple[str, ...]:
    """A directory with programs to try that are not installed, or not in this version."""
    directory = os.environ.get("FUZZ_PROGRAMS")
    return (directory,) if directory else ()


def why_not() -> str | None:
    """Why lines cannot be traced here, or None."""
    missing = [name for name in ("bwrap", "strace", "python3") if program(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


_LOW = (Finding(level=VerdictLevel.LOW, reason="For this harness every line is.", rule="test"),)


def trace_lines(
    place: Playground, lines: Sequence[Line], *, seconds: float = TOTAL_SECONDS, patience: float = PATIENT_SECONDS
) -> tuple[list[Misdeed], int]:
    """Run the lines one after the other, as many as fit into the time; what they did wrong, and how many were run."""
    results = _run(place, lines, LINE_SECONDS, seconds)
    misdeeds: list[Misdeed] = []
    for line, result in zip(lines, results, strict=False):
        left_out = to_leave_out(str(place.root), replace(understand(line[0], line[1:]), findings=_LOW))
        misdeeds += [Misdeed(line, did) for did in judge_trace(place, line[0], result.pid, left_out)]
    slow = [line for line, result in zip(lines, results, strict=False) if not result.ended]
    changed = place.changes()
    if changed:
        some = next((misdeed.line for misdeed in misdeeds), ("(one of the batch)",))
        misdeeds.append(Misdeed(some, f"changed {changed[:5]}"))
    for line in slow[:MOST_TOLD]:
        if not _run(place, [line], patience)[0].ended:
            misdeeds.append(Misdeed(line, f"did not end within {patience} s"))
    return misdeeds, len(results)


def judge_trace(place: Playground, command: str, pid: int, left_out: Sequence[str] = ()) -> list[str]:
    """What the process and its threads did that a reading command must not do; each thing once.

    `left_out`: what the client would have covered, so that reading it shows nothing.
    """
    calls = list(_calls(place.traces, pid))
    first = next((i for i, call in enumerate(calls) if call.name == "execve" and call.result == "0"), None)
    if first is None:
        return ["was not started"]
    found: list[str] = []
    threads: list[int] = []
    asked_nscd = _asks_nscd(calls)
    for call in calls[first + 1 :]:
        if call.name in _STARTS and "CLONE_THREAD" in call.arguments:
            threads.append(int(call.result.split()[0]))
        elif call.name in ("socket", "connect") and asked_nscd:
            continue
        else:
            found += _misdeed(place, command, call)
    for thread in threads:
        for call in _calls(place.traces, thread):
            found += _misdeed(place, command, call)
    covered = tuple(f"reads {path}{end}" for path in left_out for end in (",", "/"))
    return [did for did in dict.fromkeys(found) if not did.startswith(covered)][:MOST_TOLD]


def _asks_nscd(calls: list[Call]) -> bool:
    """Whether every socket is libc's own question for a user's name, to a service that is not there."""
    sockets = [call for call in calls if call.name in ("socket", "connect")]
    pairs = list(zip(sockets[::2], sockets[1::2], strict=False))
    return len(sockets) % 2 == 0 and all(
        made.name == "socket" and made.arguments.startswith("AF_UNIX") and asked.name == "connect"
        and _NSCD in asked.arguments and asked.failed
        for made, asked in pairs
    )  # fmt: skip


def _misdeed(place: Playground, command: str, call: Call) -> Iterator[str]:
    if call.name in ("execve", "execveat"):
        yield f"starts a second program: {call.arguments[:80]}"
    elif call.name in _STARTS:
        yield f"starts a second process by {call.name}"
    elif call.name in _OPENS:
        yield from _opened(place, command, call)
    elif call.name in _LOOKS.split():
        if not call.arguments.startswith(("0<", "1<", "2<")) and _leads_out(place, command, call):
            yield f"looks at {call.path(str(place.root))}, which lies outside"
    else:
        yield f"calls {call.name}({call.arguments[:80]})"


def _opened(place: Playground, command: str, call: Call) -> Iterator[str]:
    path = call.path(str(place.root))
    if path in _NOT_FILES or (command == "find" and call.arguments.endswith(_PROBE)):
        return
    if call.name == "creat" or _WRITING.search(call.arguments):
        yield f"opens {path} for writing"
    elif not _allowed(place, command, path):
        yield f"opens {path}, which lies outside"
    elif not call.failed and "O_DIRECTORY" not in call.arguments:
        relative = os.path.relpath(path, place.root)
        if (
            not relative.startswith("..")
            and command not in _SHOW_NO_CONTENT
            and secret_name(relative)
            and Path(path).is_file()
        ):
            yield f"reads {relative}, which holds secrets"


def _leads_out(place: Playground, command: str, call: Call) -> bool:
    """By its spelling alone: a link that is followed to be looked at gives away no more than whether its end is there.

    So ls may look where the links lead that it lists (-F, --color, --group-directories-first, --hyperlink).
    """
    if not _TEXT.search(call.arguments):
        return False
    path = call.path(str(place.root))
    ancestor = str(place.root).startswith(path.rstrip("/") + "/")
    if command == "ls" and any(f"{end}/".startswith(f"{path}/") for end in place.ends):
        return False
    return not ancestor and not _LOOKED_FOR.match(path) and not _allowed(place, command, path)


def _allowed(place: Playground, command: str, path: str) -> bool:
    root = str(place.root)
    if path == root or path.startswith(root + "/") or _SYSTEM.match(path):
        return True
    if path in _NAMES_OF_USERS:
        return command in _SHOW_OWNERS
    return bool(command in _OWN_DATA and _OWN_DATA[command].match(path))


def _calls(traces: Path, pid: int) -> Iterator[Call]:
    """The calls of one process, in their order. A line that is no call is a signal or the end."""
    for line in (traces / f"t.{pid}").read_text("utf-8", "replace").splitlines():
        found = _CALL.fullmatch(line)
        if found is not None:
            yield Call(*found.groups())
        elif not line.startswith(("+++", "---")) and not line.endswith(("<unfinished ...>", "= ?")):
            raise CannotTrace(f"This line of a trace is not understood: {line!r}")


def _run(place: Playground, lines: Sequence[Line], seconds: float, total: float = TOTAL_SECONDS) -> list[Ended]:
    for old in place.traces.iterdir():
        old.unlink()
    batch = place.traces / "batch.json"
    commands = [[program(line[0]) or line[0], *line[1:]] for line in lines]
    env = clean_environment(place.root, "/.home")
    limits = {"line_seconds": seconds, "total_seconds": min(total, TOTAL_SECONDS)}
    batch.write_text(json.dumps({"lines": commands, "env": env, **limits}))
    done = subprocess.run(
        sandboxed(place),
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TOTAL_SECONDS + 60,
        check=False,
        user=place.user,
        group=place.user,
        extra_groups=None if place.user is None else [],
    )
    results = place.traces / "results.json"
    if not results.exists():
        raise CannotTrace(f"The sandbox gave no results: {done.stderr.decode('utf-8', 'replace')[-500:]}")
    return [Ended(pid=result["pid"], ended=result["ended"]) for result in json.loads(results.read_text())]


def sandboxed(place: Playground) -> list[str]:
    """The command that runs the batch of a playground: bubblewrap, in it strace, in it the spawner."""
    arguments = [
        *[
            program("bwrap") or "bwrap",
            "--unshare-user",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--unshare-uts",
        ],
        *["--unshare-cgroup", "--disable-userns", "--new-session", "--die-with-parent", "--cap-drop", "ALL"],
        *["--hostname", "sandbox", "--ro-bind", "/usr", "/usr"],
    ]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    for name in ("alternatives", "group", "ld.so.cache", "localtime", "magic", "passwd"):
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for directory in _further():
        arguments += ["--ro-bind", directory, directory]
    names = place.base / "nsswitch.conf"
    names.write_text("passwd: files\ngroup: files\n")  # users come from files alone: libc asks no service for them
    spawner = place.base / "spawner.py"
    shutil.copyfile(Path(__file__).with_name("spawner.py"), spawner)  # where an ordinary user can read it
    return [
        *arguments,
        *["--proc", "/proc", "--dev", "/dev"],
        *["--bind", str(place.root), str(place.root), "--ro-bind", str(place.outside), str(place.outside)],
        *["--bind", str(place.traces), str(place.traces)],
        *["--ro-bind", str(names), "/etc/nsswitch.conf"],
        *["--ro-bind", str(spawner), "/spawner.py", "--remount-ro", "/", "--chdir", str(place.root), "--"],
        *["strace", "-ff", "--seccomp-bpf", "-y", "-s", "200", "-e", f"trace={_trace}", "-e", "signal=none"],
        *[
            "-o",
            str(place.traces / "t"),
            program("python3") or "python3",
            "-I",
            "-S",
            "/spawner.py",
            str(place.traces),
            str(place.root),
        ],
    ]


def _shown(argument: str) -> str:
    return argument if re.fullmatch(r"[\w./+=,:@%-]+", argument, re.ASCII) else ascii(argument)
