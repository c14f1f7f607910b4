"""What an address says of itself, without asking anybody."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host name is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
