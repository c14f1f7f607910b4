"""Path resolution: the kernel resolves a path beneath the workspace and opens it in the same step.

`PathValidator` pins the workspace directory once and opens names below it with `openat2(RESOLVE_BENEATH)`; on a kernel
without it, by a walk that opens one part at a time with `O_NOFOLLOW` and follows links itself. Relative links that stay
inside are followed, absolute links are not (wherever they point), nor are magic links or mounts. Nothing here
checks a name and opens it later: every check is on the open descriptor. It decides nothing about risk.
"""

import ctypes
import errno
import os
import stat
import unicodedata
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from byleave.gate.text.characters import HIDDEN
from byleave.protocol.errors import ConfigurationError, PathValidationError, ToolFailure

_SYS_OPENAT2 = 437  # the same on x86_64 and aarch64
_RESOLVE = 0x01 | 0x02 | 0x08  # NO_XDEV, NO_MAGICLINKS, BENEATH
_NO_SYMLINKS = 0x04
_CACHED = 0x20  # Linux 5.12
_RETRIES = 200
_MAX_LINKS = 40
_MAX_PATH_BYTES = 4096
# Control, format (bidi, zero-width), surrogate, line and paragraph separators: a name must be what it looks like.
# The gate's HIDDEN adds invisible characters of other categories, such as fillers.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MAX_SHOWN = 200
_MOST_TOLD = 10
_FALSE_SEPARATORS = frozenset("\\\u2044\u2215\u29f5\u29f8\ufe68\uff0f\uff3c")

_GONE = " (deleted)"

_libc = ctypes.CDLL(None, use_errno=True)

_SYSTEM = frozenset(
    ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")
) | frozenset(("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin", "/usr/share", "/var/lib", "/var/run"))
_SYSTEM_TREES = ("/boot/", "/dev/", "/etc/", "/proc/", "/sys/")


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _openat2(dir_fd: int, path: str, flags: int, mode: int, resolve: int, tries: int = _RETRIES) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    name = os.fsencode(path)
    for _ in range(tries):
        fd = int(
            _libc.syscall(
                ctypes.c_long(_SYS_OPENAT2),
                ctypes.c_int(dir_fd),
                ctypes.c_char_p(name),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
        )
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        # EAGAIN: a rename raced with the resolution of `..`, so the kernel gives no answer.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code))
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def visible(name: str) -> str:
    """Escape invisible characters and undecodable bytes, so that a name is safe to print."""
    if name.isascii() and name.isprintable():
        return name
    return "".join(_escape(char) if _is_unseen(char) else char for char in name)


def left_out(paths: Sequence[str]) -> list[str]:
    """The warning that lists the files hidden from a call."""
    if not paths:
        return []
    names = ", ".join(repr(visible(path)) for path in paths[:_MOST_TOLD])
    more = f" and {len(paths) - _MOST_TOLD} more" if len(paths) > _MOST_TOLD else ""
    return [
        f"Left out, because they usually hold secrets and nobody was asked: {names}{more}. "
        "A call that names such a file is asked about."
    ]


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN or HIDDEN.match(char) is not None


def _escape(char: str) -> str:
    point = ord(char)
    if 0xDC80 <= point <= 0xDCFF:  # a byte that os.fsdecode could not read
        return f"\\x{point - 0xDC00:02x}"
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def outside(path: str) -> PathValidationError:
    return PathValidationError(
        f"{path!r} is outside the workspace.", hint="Use a path relative to the workspace, such as 'src/app.py'."
    )


_NO_PERMISSION = "No permission for {}."
_NOT_REGULAR = "{} is not a regular file."
_NO_SPACE = ("There is no space left for {}.", "Free some space on the disk.")
_SENTENCES: dict[int | None, str | tuple[str, str]] = {
    errno.ENOENT: ("There is no {} in the workspace.", "List the directory to see what is there."),
    errno.ENOTDIR: "A part of {} is a file, not a directory.",
    errno.EISDIR: ("{} is a directory.", "Use list_directory to see what is in it."),
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: _NO_PERMISSION,
    errno.ENXIO: _NOT_REGULAR,
    errno.ENODEV: _NOT_REGULAR,
    errno.EAGAIN: ("{} kept changing while it was opened.", "Try again."),
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: "{} would be larger than this machine allows.",
    errno.ESTALE: (
        "The workspace's directory was moved or removed, so nothing can be done with {}.",
        "Put it back, or start Byleave again where it is now.",
    ),
}


def path_error(path: str, error: OSError) -> PathValidationError | ToolFailure:
    """Translate an OSError about `path` into an error with a message and a hint."""
    if error.errno == errno.ENAMETOOLONG:
        return PathValidationError(f"The path {path[:60]!r}… is too long for this file system.")
    path = path[:_MAX_SHOWN] + "…" * (len(path) > _MAX_SHOWN)
    if error.errno == errno.EXDEV:
        return outside(path)
    if error.errno == errno.ELOOP:
        return PathValidationError(
            f"{path!r} leads through a link that may not be followed, or through too many links."
        )
    said = _SENTENCES.get(error.errno) or f"{{}} could not be used: {os.strerror(error.errno or errno.EIO)}."
    sentence, hint = (said, None) if isinstance(said, str) else said
    return ToolFailure(sentence.format(repr(path)), hint=hint)


@contextmanager
def told_of(path: str) -> Generator[None]:
    """Turn an OSError raised inside into an error about `path`."""
    try:
        yield
    except OSError as error:
        raise path_error(path, error) from error


def parents_of(path: str) -> list[str]:
    """The directories above a path, from the workspace down: `a`, `a/b` for `a/b/c`."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def names_directory(path: str) -> bool:
    """True if the spelling of a path allows only a directory."""
    return path.endswith(("/", "/."))


def is_open(info: os.stat_result) -> bool:
    """True if the mode lets anybody read it. Root could read it anyway, against its owner's will."""
    return bool(info.st_mode & 0o444)


class PathValidator:
    """Resolves names against the real file system, beneath one pinned directory."""

    forbidden: Callable[[str], bool] | None = None
    """The real paths that `denied_paths.GuardedPaths` does not open."""

    def __init__(self, root: str | Path, *, use_openat2: bool = True) -> None:
        given = os.path.abspath(root)
        try:
            self._root_fd = os.open(given, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(
                f"{str(root)!r} cannot be a workspace: {os.strerror(error.errno or errno.EIO)}.",
                hint="Name a directory that exists.",
            ) from error
        self.root = Path(os.readlink(f"/proc/self/fd/{self._root_fd}"))
        if str(self.root) == "/":
            self.close()
            raise ConfigurationError("The whole file system cannot be a workspace.", hint="Name a project's directory.")
        if _belongs_to_the_system(str(self.root)):
            self.close()
            raise ConfigurationError(
                f"{str(self.root)!r} belongs to the system and cannot be a workspace.",
                hint="Name a project's directory.",
            )
        self._prefixes = tuple(dict.fromkeys((_parts(str(self.root)), _parts(given))))
        self.uses_openat2 = use_openat2 and self._has_openat2()

    def _has_openat2(self) -> bool:
        try:
            os.close(_openat2(self._root_fd, ".", os.O_PATH | os.O_DIRECTORY, 0, _RESOLVE))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the workspace's descriptor; every later call fails."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1

    def relative(self, path: str) -> str:
        """Return `path` relative to the workspace, without empty parts. Links are not resolved yet."""
        # The common case, printable ASCII without a backslash, needs no check of each character.
        if not (path.isascii() and path.isprintable() and "\\" not in path):
            for char in path:
                if char in _FALSE_SEPARATORS or _is_unseen(char):
                    raise PathValidationError(
                        f"The path {path[:200]!r} holds {char!r}, which no path here may hold.",
                        hint="Use '/' between parts, and only characters that can be seen.",
                    )
        if not path or len(os.fsencode(path)) > _MAX_PATH_BYTES:
            raise PathValidationError(f"The path {path[:60]!r} is empty or longer than {_MAX_PATH_BYTES} bytes.")
        parts = _parts(path)
        if path.startswith("/"):
            for prefix in self._prefixes:
                if parts[: len(prefix)] == prefix:
                    parts = parts[len(prefix) :]
                    break
            else:
                raise outside(path)
        return "/".join(parts) or "."

    def open_beneath(self, path: str, flags: int, mode: int = 0) -> int:
        """Open `path`, or raise if it is outside, missing or not permitted. The caller closes the descriptor."""
        try:
            return self.open_raw(self.relative(path), flags, mode)
        except OSError as error:
            raise path_error(path, error) from error

    def open_raw(self, relative: str, flags: int, mode: int = 0) -> int:
        """`open_beneath` for a path that `relative` returned; raises the kernel's OSError."""
        if not os.fstat(self._root_fd).st_nlink:  # in a removed directory, every file would only seem missing
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        if self.uses_openat2:
            return _openat2(self._root_fd, relative, flags, mode, _RESOLVE)
        return _Walk(self._root_fd).open(relative, flags, mode)

    def open_cached(self, relative: str, flags: int) -> int | None:
        """`open_raw` for the event loop: no links, and only what the kernel can resolve from its cache.

        None says nothing about the path: call `open_raw` in a thread.
        """
        if not self.uses_openat2:
            return None
        try:
            return _openat2(self._root_fd, relative, flags, 0, _RESOLVE | _NO_SYMLINKS | _CACHED, tries=1)
        except OSError:
            return None

    def open_child(self, dir_fd: int, name: str, flags: int) -> int:
        """Open one entry of a directory that is already open; never follows a link, never crosses a mount."""
        if self.uses_openat2:
            return _openat2(dir_fd, name, flags, 0, _RESOLVE | _NO_SYMLINKS)
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=dir_fd)
        if _mount_of(fd) != _mount_of(dir_fd):
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return fd

    def open_exact(self, relative: str, flags: int) -> int:
        """Open a path without following any link, not even in its directories."""
        if self.uses_openat2:
            return _openat2(self._root_fd, relative, flags, 0, _RESOLVE | _NO_SYMLINKS)
        parts = [part for part in relative.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        here = os.dup(self._root_fd)
        try:
            for part in parts[:-1]:
                above, here = here, self.open_child(here, part, os.O_PATH | os.O_DIRECTORY)
                os.close(above)
            return self.open_child(here, parts[-1] if parts else ".", flags)
        finally:
            os.close(here)

    def refuse_closed(self, fd: int, info: os.stat_result) -> None:
        """Raise if the modes let nobody read or reach it: the kernel would let root in."""
        if not is_open(info):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        self.refuse_out_of_reach(fd)

    def refuse_out_of_reach(self, fd: int) -> None:
        """Raise for a file in a directory that nobody may enter, if we are root."""
        if os.geteuid() != 0:
            return
        parts = self.real_path(fd).split("/")
        if any(self._is_closed("/".join(parts[:depth])) for depth in range(1, len(parts))):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    def _is_closed(self, directory: str) -> bool:
        try:
            return not os.stat(directory, dir_fd=self._root_fd, follow_symlinks=False).st_mode & 0o111
        except OSError:
            return False  # renamed since; it was reachable when it was opened

    def real_path(self, fd: int) -> str:
        """Return an open descriptor's path relative to the workspace, with links resolved."""
        real = os.readlink(f"/proc/self/fd/{fd}")
        if real.endswith(_GONE) and not _is_at(real, fd):
            real = real.removesuffix(_GONE)  # added by the kernel to the path it had
        root = str(self.root)
        if real == root:
            return "."
        if not real.startswith(root + "/"):
            code = errno.EXDEV if os.readlink(f"/proc/self/fd/{self._root_fd}") == root else errno.ESTALE
            raise OSError(code, os.strerror(code))
        return real[len(root) + 1 :]


def _is_at(path: str, fd: int) -> bool:
    """True if `path` is still `fd`'s inode. `st_nlink` cannot tell: other hard links may remain."""
    try:
        found, opened = os.stat(path, follow_symlinks=False), os.fstat(fd)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _belongs_to_the_system(root: str) -> bool:
    """True for directories of programs or of the kernel: an agent's changes there would change the machine."""
    if root in _SYSTEM:
        return True
    return root.startswith(_SYSTEM_TREES) and not root.startswith("/dev/shm/")  # noqa: S108 - ordinary files


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _mount_of(fd: int) -> str:
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as lines:
        return next((line for line in lines if line.startswith("mnt_id:")), "")


class _Walk:
    """One resolution without openat2. Keeps a stack of open directories, so that `..` is the real parent."""

    def __init__(self, root_fd: int) -> None:
        self._mount = _mount_of(root_fd)
        self._stack = [os.dup(root_fd)]

    def open(self, relative: str, flags: int, mode: int) -> int:
        try:
            return self._open(deque(relative.split("/")), flags, mode)
        finally:
            for fd in self._stack:
                os.close(fd)

    def _open(self, parts: deque[str], flags: int, mode: int) -> int:
        links = 0
        while parts:
            part = parts.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                self._leave()
                continue
            if not parts and flags & os.O_CREAT and not self._exists(part):
                return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self._stack[-1])
            fd = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._stack[-1])
            keep = False
            try:
                kind = os.fstat(fd).st_mode
                if stat.S_ISLNK(kind):
                    links += 1
                    parts.extendleft(reversed(self._target(fd, links)))
                    continue
                if _mount_of(fd) != self._mount:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                if not any(rest not in ("", ".") for rest in parts):
                    return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self._stack[-1])
                if not stat.S_ISDIR(kind):
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                self._stack.append(fd)
                keep = True
            finally:
                if not keep:
                    os.close(fd)
        return os.open(".", flags | os.O_CLOEXEC, mode, dir_fd=self._stack[-1])

    def _exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._stack[-1], follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _leave(self) -> None:
        if len(self._stack) == 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        os.close(self._stack.pop())

    def _target(self, fd: int, links: int) -> list[str]:
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink("", dir_fd=fd)
        if target.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return target.split("/")


def refuse_odd_kind(info: os.stat_result, path: str) -> None:
    """Raise unless it is a regular file: a FIFO blocks, and a device never ends."""
    if stat.S_ISREG(info.st_mode):
        return
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    kind = kinds.get(stat.S_IFMT(info.st_mode), "something else")
    raise ToolFailure(f"{path!r} is {kind}, not a regular file.")
