"""`byleave link`: a one-time link to the chat page of a running server, for a browser or an editor.

The server makes it, for the user of this machine's token; nothing is signed here. Anyone who reads the link within ten
minutes is signed in as that user, so it is printed to stdout and nowhere else.
"""

import logging
from typing import Annotated
from urllib.parse import quote

import typer
from yarl import URL

from byleave.protocol.sign_in import PhoneLink

from .options import AsJson, Server, new_app
from .places import find_server
from .process import in_loop, set_up_logging
from .screen import put, put_json, qr_code, say, shown

app = new_app()


EDITOR = "vscode://byleave.byleave/signin?link="
"""VS Code passes such a link to the extension, which asks before it follows the one inside."""


@in_loop(app)
async def link(
    server: Server = None,
    editor: Annotated[bool, typer.Option("--editor", help="As a link that opens in VS Code.")] = False,
    qr: Annotated[bool, typer.Option("--qr", help="As a code to scan with a phone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a link to the chat page that signs a browser in, or VS Code, or a phone.

    For the server that `byleave up` runs here, or the one that is named. It works once and for ten minutes: open it, or
    paste it into a browser's address bar. Needs a token that may chat and approve, as `byleave token` makes them.

    \b
    Example:
      byleave link
      byleave link --qr
      byleave link --server http://127.0.0.1:8477
    """
    if qr and editor:
        raise typer.BadParameter("a phone has no VS Code: use --qr or --editor", param_hint="--qr / --editor")
    set_up_logging(logging.WARNING)
    async with find_server(server).api() as api:
        if qr:
            show_phone_link(await api.phone_link(), as_json=as_json)
            return
        made = await api.sign_in_link()
        # Use the proven address: `localhost` may be another address to a browser, where another user listens.
        base = await api.resolved(URL(api.server_url))
    url = str(base).rstrip("/") + made.path
    in_editor = EDITOR + quote(url, safe="")
    if as_json:
        put_json({"sign_in_url": url, "editor_url": in_editor, "expires_in_seconds": made.expires_in_seconds})
        return
    put(shown(in_editor if editor else url))
    minutes = made.expires_in_seconds // 60
    if editor:
        say(f"Signs VS Code in once, within {minutes} minutes: open it there, or in a browser on this machine.")
    else:
        say(f"Signs a browser in once, within {minutes} minutes; or paste it into Byleave: Sign In in VS Code.")


def show_phone_link(made: PhoneLink, *, as_json: bool = False) -> None:
    """Print a link for a phone as a code to scan, and as text."""
    if as_json:
        put_json({"sign_in_url": made.url, "expires_in_seconds": made.expires_in_seconds})
        return
    say(qr_code(made.qr))
    say("Scan this with your phone's camera and open the link. It signs one device in as you, once,")
    say(f"within {made.expires_in_seconds // 60} minutes. Show it to nobody.")
    if made.url.startswith("http://"):
        say("Notifications on the phone need https; answering works without.")
    put(shown(made.url))
