"""Ports that stay free until they are used.

A port that the kernel gave and got back is given again at once, to any connection of any test beside this one: a
server that then binds it finds it taken. These lie below what the kernel gives by itself, so that only who asks for
one by its number can have it.
"""

import itertools
import os
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _USUAL_START = 10_240, 32_768


def _given_from() -> int:
    try:
        return int(_RANGE.read_text().split()[0])
    except OSError:  # not Linux
        return _USUAL_START


_FIRST_GIVEN = max(_given_from(), _LOWEST + 4096)
# Each process begins elsewhere, and takes none twice: what a test left, another may still wait for.
_COUNT = itertools.count(os.getpid() * 97)


def free_port() -> int:
    for number in _COUNT:
        port = _LOWEST + number % (_FIRST_GIVEN - _LOWEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("the count has no end")
