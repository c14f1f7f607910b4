"""The limit of open files of this process, raised once by a server and by a client."""

import resource

MOST = 1024 * 1024
"""A higher limit has no use, and programs that we start may loop up to it."""


def raise_limit() -> int | None:
    """Raise the soft limit to the hard one; return it, or None if there is no limit.

    The usual 1024 is for programs that cannot handle more. Commands in the sandbox have a limit of their own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return None if soft == resource.RLIM_INFINITY else soft
