"""`assent link`: a new link to the chat page of a running server, which signs a browser in once.

The server makes it, for the user of the token that this machine has for it; nothing is signed here. Who can read the
link within its ten minutes is signed in as that user, so it goes to stdout and nowhere else.
"""

from .places import find_place
from .screen import put, put_json, say, shown


async def print_link(*, server_url: str | None, as_json: bool) -> None:
    """Ask for a link, and print it."""
    place = find_place(server_url)
    async with place.api() as api:
        link = await api.sign_in_link()
        url = f"{api.server_url}{link.path}"
    if as_json:
        put_json({"sign_in_url": url, "expires_in_seconds": link.expires_in_seconds})
        return
    put(shown(url))
    say(f"Signs a browser in once, within {link.expires_in_seconds // 60} minutes.")
