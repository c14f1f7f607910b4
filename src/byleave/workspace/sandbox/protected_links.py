"""Protected names that are links, such as `.vscode -> ../shared/.vscode` or `.bashrc -> dotfiles/.bashrc`.

Nothing can be mounted over a link, so a command can replace it. It is looked at before the command and after it has
ended: a link that is no longer what it was is made again, and what took its place is kept under another name beside it.
Never follows a link, and never deletes anything.
"""

import os
import secrets
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """A link in the workspace's own directory, as it was before the command."""

    name: str
    text: str
    owner: int
    group: int
    real: str
    """Where it led."""
    target: str | None
    """The same from the workspace; None when it lies outside."""
    target_exists: bool


def link_at(root: str, root_fd: int, name: str) -> Link:
    """The link of this name as it is now."""
    found = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    real = os.path.realpath(os.path.join(root, name))
    is_inside = real.startswith(f"{root}/")
    return Link(
        name=name,
        text=os.readlink(name, dir_fd=root_fd),
        owner=found.st_uid,
        group=found.st_gid,
        real=real,
        target=real.removeprefix(f"{root}/") if is_inside else "." if real == root else None,
        target_exists=is_inside and os.path.lexists(real),
    )


def led_to(root: str, names: Iterable[str]) -> frozenset[str]:
    """What those of these names lead to that are links, from the workspace, as far as it lies there."""
    links = (path for name in names if os.path.islink(path := f"{root}/{name}"))
    return frozenset(
        real.removeprefix(f"{root}/") for link in links if (real := os.path.realpath(link)).startswith(f"{root}/")
    )


def put_back(root: str, root_fd: int, link: Link) -> Generator[str]:
    """Make the link again where it is not what it was. Gives the names that are new, or lead to something new."""
    with suppress(OSError):
        if os.readlink(link.name, dir_fd=root_fd) == link.text:
            if _leads_elsewhere(root, link):
                yield link.name
            return
    try:
        yield from put_aside(root_fd, link.name)
        os.symlink(link.text, link.name, dir_fd=root_fd)
        if os.geteuid() == 0:
            os.chown(link.name, link.owner, link.group, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        yield link.name  # it could not be put back, so what is there now is told


def put_aside(directory: int, name: str) -> Generator[str]:
    """Give what is there, if anything is, another name; gives that name."""
    aside = f"{name}.replaced-{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):
        os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
        yield aside


def _leads_elsewhere(root: str, link: Link) -> bool:
    """Whether another link on the way was changed, or what it leads to was made."""
    if os.path.realpath(os.path.join(root, link.name)) != link.real:
        return True
    return link.target not in (None, ".") and not link.target_exists and os.path.lexists(link.real)
