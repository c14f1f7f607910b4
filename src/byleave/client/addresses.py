"""What an address says of itself, without asking anybody.

Numbers are compared as numbers, never as they are spelled: `127.1` and `::ffff:127.0.0.1` are this machine too.
"""

import ipaddress
import socket

Number = ipaddress.IPv4Address | ipaddress.IPv6Address

_BOTH = ("127.0.0.1", "::1")


def loopback_numbers(host: str) -> tuple[str, ...]:
    """The numbers, the likeliest first, at which a program reaches this machine by `host`; none: it is another one."""
    number = _number(host)
    if number is None:
        return _BOTH if _is_local_name(host) else ()
    if number.is_unspecified:  # whoever connects to it comes out at loopback
        return _BOTH[:1] if number.version == 4 else _BOTH[1:]
    return (str(number),) if number.is_loopback else ()


def is_loopback(host: str) -> bool:
    """Whether what listens there is reached from this machine alone."""
    number = _number(host)
    return _is_local_name(host) if number is None else number.is_loopback


def same_number(one: str, other: str) -> bool:
    """Whether two spellings are one number."""
    number = _number(one)
    return number is not None and number == _number(other)


def _is_local_name(host: str) -> bool:
    name = host.casefold().removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def _number(host: str) -> Number | None:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        try:
            # As the system reads it when it connects: with fewer parts, in octal or hexadecimal.
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    return getattr(number, "ipv4_mapped", None) or number
