"""Addresses that a program of ours may contact: which are public, which are this machine, which are never asked.

Names are checked by `resolver`, when they are resolved. An address that is written out reaches no resolver: who accepts
one checks it by `is_public` and `is_never_asked`. Nothing here connects to anything, or loads what does.
"""

import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16",
        "fe80::/10",
        # Cloud credential services outside the link-local range.
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "fd00:42::42/128",
        "fd00:ec2::/32",
        "fd20:ce::254/128",
    )
)
# Not public, though some Python versions' `is_global` says otherwise.
_NOT_PUBLIC = tuple(ipaddress.ip_network(network) for network in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20"))
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Prefixes before an IPv4 address in the last 32 bits: compatible, mapped, translated, NAT64.
_CARRIERS = (
    ipaddress.IPv6Network("::/96"),
    ipaddress.IPv6Network("::ffff:0:0/96"),
    ipaddress.IPv6Network("::ffff:0:0:0/96"),
    _NAT64,
)


def is_never_asked(address: Address) -> bool:
    """True for link-local addresses and cloud credential services, also embedded in an IPv6 address."""
    return any(each in network for each in (address, *_carried(address)) for network in _NEVER)


def is_public(address: Address) -> bool:
    """True for an address of the public internet. Tunnels are not: their ends are unknown."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None or address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _PUBLIC_V6 or address.sixtofour is not None or address.teredo is not None:
            return False
    if address.is_multicast or any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global


def _carried(address: Address) -> list[Address]:
    """The IPv4 addresses embedded in an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address | None] = [address.sixtofour, *(address.teredo or ())]
    if any(address in prefix for prefix in _CARRIERS):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]


def read_address(text: str) -> Address | None:
    """Parse an address in its usual form; None for anything else, also for one with a zone."""
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def system_number(host: str) -> Address | None:
    """Parse an address as the system does when it connects: with fewer parts, octal or hexadecimal; None for a name."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    return getattr(number, "ipv4_mapped", None) or number


def is_loopback(host: str) -> bool:
    """Return True if a listener there is reachable from this machine alone."""
    number = system_number(host)
    return is_local_name(host) if number is None else number.is_loopback


def is_local_name(host: str) -> bool:
    """True for a name that leads to this machine everywhere."""
    name = host.casefold().removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def is_localhost(host: str) -> bool:
    """True for the name of this machine."""
    return host.lower() in ("localhost", "localhost.")
