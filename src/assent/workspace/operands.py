"""What the file system adds to a reading command that the gate let pass by its spelling alone.

The gate cannot see links. Here, before a command that shows content starts, each of its names is resolved as the file
tools resolve theirs: a link out of the workspace, a link that hides a secret's own name, a pipe or device that would
never end are refused. A recursive grep is told to leave out files that hold secrets by their name, as search_files
does, unless the call names one itself and so was asked about. The sandbox still holds what is swapped later.
"""

import errno
import os
import stat

from assent.gate import CommandValidator, check_path, secret_globs, secret_name
from assent.protocol.errors import PathValidationError, ToolFailure

from .disguises import refuse_hidden_secret
from .files import refuse_odd_kind
from .paths import PathValidator, path_error

_SHOW_CONTENT = frozenset({"cat", "head", "tail", "wc", "grep", "date"})
_LEADS_OUT = frozenset({errno.EXDEV, errno.ELOOP})
_RECURSIVE = ("-r", "-R", "--rec", "--deref")


def check_operands(paths: PathValidator, command: str, args: list[str]) -> None:
    """Refuse names behind which the file system has something else than their spelling says."""
    if command in _SHOW_CONTENT:
        for name in dict.fromkeys(name for arg in args for name in _names_in(arg)):
            _check(paths, name)


def _names_in(arg: str) -> tuple[str, ...]:
    """What of an argument could be a name: all of it, or the value glued to an option."""
    if arg.startswith("--"):
        return (arg, arg.partition("=")[2])
    return (arg, arg[2:]) if arg.startswith("-") else (arg,)


def _check(paths: PathValidator, name: str) -> None:
    if not name or check_path(name, workspace=str(paths.root)).refusal is not None:
        return  # not a name of ours: a pattern, or something the gate has judged
    try:
        relative = paths.relative(name)
        fd = paths.open_raw(relative, os.O_PATH)
    except PathValidationError:
        return
    except OSError as error:
        if error.errno in _LEADS_OUT:
            raise path_error(name, error) from error
        return  # nothing of that name: the command says so itself
    try:
        info = os.fstat(fd)
        if not stat.S_ISDIR(info.st_mode):
            refuse_odd_kind(info, name)
        refuse_hidden_secret(relative, paths.real_path(fd))
    except OSError as error:
        raise ToolFailure(f"{name!r} could not be looked at: {error.strerror}.") from error
    finally:
        os.close(fd)


def without_secrets(args: list[str]) -> list[str]:
    """The arguments of grep; a recursive one leaves out files that hold secrets by their name."""
    understood = CommandValidator().judge("grep", args).understood
    if understood is None:
        return args
    options: list[list[str | None]] = understood["options"]
    recursive = any(_is_recursive(spelled or "", value) for spelled, value in options)
    wanted = [value or "" for spelled, value in options if (spelled or "").startswith("--inc")]
    named = (*understood["operands"], *wanted, *(glob.strip("*") for glob in wanted))
    if not recursive or any(secret_name(name) for name in named):
        return args
    globs = secret_globs()
    left_out = [f"--exclude={glob}" for glob in globs.files]
    left_out += [f"--exclude-dir={glob}" for glob in globs.directories]
    if not wanted:  # of contradicting globs the last wins; with an --include of its own it asked for less
        left_out += [f"--include={glob}" for glob in globs.harmless]
    # Last, so that no --include of the call overrules them; before a `--`, behind which there are no options.
    return [*left_out, *args] if "--" in args else [*args, *left_out]


def _is_recursive(spelled: str, value: str | None) -> bool:
    return spelled in _RECURSIVE or spelled.startswith(_RECURSIVE[2:]) or value == "recurse"
