"""The page's key: what a sign-in gives a browser besides its cookie, kept where only this origin (with its port) reads.

Browsers send a cookie to every port of a host: also to a program that somebody else, or an agent, started there. So the
cookie alone opens nothing. The key is handed over once, in the body of the answer to a link, and never in an address:
an address stays in the browser's history, and any page could lead to one with a key of its own in it. The server keeps
no key, only a digest in the cookie's signed claims.
"""

import hashlib
import hmac
import re
import secrets

HEADER = "Byleave-Page-Key"
LONGEST_KEY = 200
DIGEST = re.compile(r"[0-9a-f]{64}")


def new_key() -> str:
    return secrets.token_urlsafe(32)


def key_digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def is_key(key: str, digest: str | None) -> bool:
    """Whether this is the key with that digest; no key and no digest is no match."""
    if not key or len(key) > LONGEST_KEY or digest is None:
        return False
    return hmac.compare_digest(key_digest(key), digest)
