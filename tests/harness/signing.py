"""What a browser has after a link signed it in, read out of the answer as its page would."""

import re
from html import unescape
from http.cookies import Morsel, SimpleCookie

from byleave.server.auth.sign_ins import COOKIE
from byleave.server.auth.tokens import HEADER

_KEY = re.compile(r'<html lang="en" data-key="([^"]+)" data-user="([^"]*)">')


def handed_key(text: str) -> tuple[str, str]:
    """The page's key and for whom it is."""
    found = _KEY.search(text)
    assert found is not None, text[:300]
    return found[1], unescape(found[2])


def page_headers(set_cookie: str, text: str) -> dict[str, str]:
    """What the page sends with every request: the cookie that was set, and the key that was handed over."""
    cookie = page_cookie(set_cookie)
    return {"Cookie": f"{cookie.key}={cookie.value}", HEADER: handed_key(text)[0]}


def page_cookie(set_cookie: str) -> "Morsel[str]":
    """The page's cookie, whatever the port it is named by."""
    (cookie,) = SimpleCookie(set_cookie).values()
    assert cookie.key.startswith(COOKIE), set_cookie
    return cookie
