"""Names in git's index or HEAD that something executes or trusts, with content that nobody saw.

What is in the index becomes a commit or a file without being shown: `git reset <commit> -- Makefile` puts it there and
leaves the file as it was. An entry may differ from HEAD or from the file that a person sees, not from both. Git itself
compares, so filters, modes and flags count as they do for the command. And `git reset <commit>` makes HEAD a commit
that nobody saw: what it has anew must be what the files hold. Nothing here changes or refuses anything.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable

AskGit = Callable[[list[str]], Awaitable[str | None]]
"""Run a git command that only reads; its output, or None if it failed."""

OnDisk = Callable[[str, str | None], bool]
"""True if the file of an absolute path has the content of a git blob; with None, if there is no file."""

_AT_ONCE = 500
_HELD = frozenset({"H"})
"""The only mark of a name that stands in the index as the file is: neither changed (C) nor told not to look (h, S)."""
_GONE = "D"
"""Not in the index. Without a mark the name is not on the disk either."""


async def head_of(ask_git: AskGit) -> str | None:
    """The commit that HEAD is; None if there is none."""
    said = await ask_git(["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])
    return None if said is None else said.strip()


async def moved_unseen(
    ask_git: AskGit, before: str | None, is_trusted: Callable[[str], bool], on_disk: OnDisk
) -> list[str]:
    """Trusted names, as absolute paths, that HEAD has otherwise than `before`, and otherwise than the files."""
    after = await head_of(ask_git)
    if after is None or after == before:
        return []
    top = (await ask_git(["rev-parse", "--show-toplevel"]) or "").removesuffix("\n")
    how = ["ls-tree", "-r", "--full-tree"] if before is None else ["diff-tree", "-r", "--no-renames"]
    listed = await ask_git([*how, "--name-only", "-z", *([] if before is None else [before]), after])
    names = [name for name in _entries(listed or "") if is_trusted(f"{top}/{name}")]
    found: list[str] = []
    for at in range(0, len(names), _AT_ONCE):
        some = names[at : at + _AT_ONCE]
        entries = _entries(await ask_git(["ls-tree", "-r", "-z", "--full-tree", after, "--", *some]) or "")
        blobs = {name: about.split()[2] for about, _, name in (entry.partition("\t") for entry in entries)}
        found += (path for name in some if not on_disk(path := f"{top}/{name}", blobs.get(name)))
    return found


async def staged_unseen(ask_git: AskGit, head: str | None, is_trusted: Callable[[str], bool]) -> list[str] | None:
    """Trusted names whose entry in the index is neither that of HEAD nor the file in the working tree.

    None if git failed to answer, so that it is not known. `is_trusted` takes an absolute path.
    """
    top = await ask_git(["rev-parse", "--show-toplevel"])
    changed = await _staged(ask_git, head)
    if top is None or changed is None:
        return None
    top = top.removesuffix("\n")
    names = sorted(name for name in changed if is_trusted(f"{top}/{name}"))
    found: list[str] = []
    for at in range(0, len(names), _AT_ONCE):
        some = names[at : at + _AT_ONCE]
        marks = await _marks(ask_git, some)
        if marks is None:
            return None
        for name in some:
            expected = frozenset[str]() if changed[name] == _GONE else _HELD
            if "\ufffd" in name or marks[name] != expected:  # a name that is no text matches no file
                found.append(name)
    return found


async def _staged(ask_git: AskGit, head: str | None) -> dict[str, str] | None:
    """Names whose entry in the index is not that of HEAD, each with how it differs."""
    if head is None:  # no commit, so every name is new
        listed = await ask_git(["ls-files", "-z", "--full-name", "--", ":/"])
        return None if listed is None else dict.fromkeys(_entries(listed), "A")
    listed = await ask_git(["diff-index", "--cached", "--name-status", "--no-renames", "-z", "HEAD", "--"])
    if listed is None:
        return None
    entries = _entries(listed)
    return dict(zip(entries[1::2], entries[::2], strict=True))


async def _marks(ask_git: AskGit, names: list[str]) -> defaultdict[str, frozenset[str]] | None:
    """The marks of `git ls-files` for each name, also for files that are not in the index."""
    specs = [f":(top,literal){name}" for name in names]
    listed = await ask_git(["ls-files", "-z", "-v", "-c", "-m", "-o", "--full-name", "--", *specs])
    if listed is None:
        return None
    marks: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for mark, _, name in (entry.partition(" ") for entry in _entries(listed)):
        marks[name] |= {mark}
    return marks


def _entries(said: str) -> list[str]:
    return [entry for entry in said.split("\0") if entry]
