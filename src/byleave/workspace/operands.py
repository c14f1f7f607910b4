"""What the file system adds to a reading command that the gate let pass by its spelling alone.

The gate cannot see links. Here, before a reading command starts, each name it was given is resolved as the file tools
resolve theirs, as the gate read it: a link out of the workspace is refused to all; to those that show content also a
link that hides a secret's own name, and a pipe or device that would never end. A search or comparison of whole
directories is told to leave out files that hold secrets by their name, unless the call names one itself and so was
asked about. The sandbox still holds what is swapped later.
"""

import errno
import os
import stat
from collections.abc import Iterator

from byleave.gate import CommandValidator, check_path, secret_globs, secret_name
from byleave.gate.tables import Kind
from byleave.protocol.errors import PathValidationError, ToolFailure

from .disguises import refuse_hidden_secret
from .files import refuse_odd_kind
from .paths import PathValidator, path_error

_SHOW_CONTENT = frozenset({"cat", "head", "tail", "wc", "grep", "date", "sed", "sort", "diff", "cut", "uniq", "tree"})
_LIST_NAMES = frozenset({"ls", "find", "stat", "file", "du"})
_NOT_NAMES = frozenset({Kind.TEXT, Kind.NUMBER, Kind.WORD, Kind.GLOB, Kind.DATE, Kind.DATE_FORMAT, Kind.SED_SCRIPT})
_LEADS_OUT = frozenset({errno.EXDEV, errno.ELOOP})
_RECURSIVE = ("-r", "-R", "--rec", "--deref")
_GIVE_PATTERN = frozenset({"-e", "-f", "--regexp", "--file"})


def check_operands(paths: PathValidator, command: str, args: list[str]) -> None:
    """Refuse names behind which the file system has something else than their spelling says."""
    if command not in _SHOW_CONTENT and command not in _LIST_NAMES:
        return
    for name, of_option in dict.fromkeys(_names(command, args)):
        # The value of an option is opened even by a command that only lists, such as find -samefile.
        _check(paths, name, opened=of_option or command in _SHOW_CONTENT)


def _names(command: str, args: list[str]) -> Iterator[tuple[str, bool]]:
    """What of the arguments could be a name, as the gate reads them; True for the value of an option."""
    validator = CommandValidator(frozenset({command}))
    table, understood = validator.tables[command], validator.judge(command, args).understood
    if understood is None:  # unreadable, and so refused; were it not, every word counts
        yield from ((arg, True) for arg in args)
        return
    for spelled, value in understood["options"]:
        option = table.options.get(spelled)
        if value and (option is None or option.kind not in _NOT_NAMES):
            yield value, True
    said = {spelled for spelled, _ in understood["options"]}
    kinds = table.operands if table.first_given_by.isdisjoint(said) else table.operands[1:]
    for index, operand in enumerate(understood["operands"]):
        if not (index < len(kinds) and kinds[index] in _NOT_NAMES):
            yield operand, False


def _check(paths: PathValidator, name: str, *, opened: bool) -> None:
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
        if opened and not stat.S_ISDIR(info.st_mode):
            refuse_odd_kind(info, name)
        if opened:
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
    operands: list[str] = understood["operands"]
    files = operands if any(spelled in _GIVE_PATTERN for spelled, _ in options) else operands[1:]
    named = (*files, *wanted, *(glob.strip("*") for glob in wanted))
    if not recursive or any(secret_name(name) for name in named):
        return args
    globs = secret_globs()
    left_out = [f"--exclude={glob}" for glob in globs.files]
    left_out += [f"--exclude-dir={glob}" for glob in globs.directories]
    if not wanted:  # of contradicting globs the last wins; with an --include of its own it asked for less
        left_out += [f"--include={glob}" for glob in globs.harmless]
    # Last, so that no --include of the call overrules them; before a `--`, behind which there are no options.
    return [*left_out, *args] if "--" in args else [*args, *left_out]


def safe_diff(args: list[str]) -> list[str]:
    """The arguments of diff; in directories it follows no link and leaves out files that hold secrets by their name."""
    return ["--no-dereference", *(f"--exclude={glob}" for glob in _secret_names()), *args]


def _secret_names() -> Iterator[str]:
    globs = secret_globs()
    yield from globs.files
    yield from globs.directories


def _is_recursive(spelled: str, value: str | None) -> bool:
    return spelled in _RECURSIVE or spelled.startswith(_RECURSIVE[2:]) or value == "recurse"
