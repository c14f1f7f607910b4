"""Plain pages for a person whose browser got here without the chat page: a few sentences and one style.

The style, and the script of the one page that has any, are named by their digests in the page's own policy, so that
nothing else inline could count. Every text is escaped here; nothing on these pages comes from anywhere but this server.
"""

import base64
import hashlib
from collections.abc import Mapping
from html import escape

from starlette.requests import Request
from starlette.responses import Response

from byleave.gate import safe_text

STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}"
    "body{max-width:34rem;margin:12vh auto;padding:0 1.25rem}"
    "h1{font-size:1.35rem;margin:0 0 .75rem}"
    "code{font:.95em ui-monospace,monospace;padding:.1em .35em;border:1px solid #8886;border-radius:4px}"
    "bdi{font-weight:600;overflow-wrap:anywhere}"
    "button{font:inherit;padding:.5em 1.1em;cursor:pointer}"
)
_MARKS = str.maketrans({"`": "'", "«": "<", "»": ">"})
NOTHING: Mapping[str, str] = {}


def plain_page(
    title: str,
    *paragraphs: str,
    status: int,
    button: tuple[str, str] | None = None,
    script: str | None = None,
    data: Mapping[str, str] = NOTHING,
) -> Response:
    """Paragraphs are text in which `…` marks what is typed and «…» what somebody named. `button`: label, where to.
    `script` is the same for everybody and runs before anything is shown; what it needs to know is in `data`."""
    lines = "".join(f"<p>{_marked(paragraph)}</p>" for paragraph in paragraphs)
    if button is not None:
        label, target = button
        lines += f'<form method="post" action="{escape(target, quote=True)}"><button>{_marked(label)}</button></form>'
    known = "".join(f' data-{name}="{escape(value, quote=True)}"' for name, value in data.items())
    runs = "" if script is None else f"<script>{script}</script>"
    html = (
        f'<!doctype html><html lang="en"{known}><head><meta charset="utf-8">{runs}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - Byleave</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{lines}</main></body></html>"
    )
    headers = {
        "content-security-policy": _policy(script, posts=button is not None),
        "cache-control": "no-store",
        # Lets a browser say which page posted; to others nothing is told.
        "referrer-policy": "same-origin" if button is not None else "no-referrer",
    }
    return Response(html, status, headers=headers, media_type="text/html; charset=utf-8")


def _policy(script: str | None, *, posts: bool) -> str:
    runs = "" if script is None else f" script-src {_digest(script)};"
    target = "'self'" if posts else "'none'"
    return (
        f"default-src 'none'; style-src {_digest(STYLE)};{runs} "
        f"frame-ancestors 'none'; base-uri 'none'; form-action {target}"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def named(text: str) -> str:
    """A name in a paragraph: shown as it is, and never taken for anything else."""
    return f"«{safe_text(text).translate(_MARKS)}»"


def reads_html(request: Request) -> bool:
    """Whether a person looks at this, as far as the browser says."""
    accepted = request.headers.get("accept", "").lower()
    return any(kind.partition(";")[0].strip() == "text/html" for kind in accepted.split(","))


def _marked(text: str) -> str:
    pieces = escape(text).split("`")
    marked = "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
    return marked.replace("«", "<bdi>").replace("»", "</bdi>")
