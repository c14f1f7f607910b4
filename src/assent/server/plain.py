"""Plain pages for a person whose browser got here without the chat page: a few sentences, no script, one style.

The style is named by its digest in the page's own policy, so that nothing else inline could count. Every text is
escaped here; nothing on these pages comes from anywhere but this server.
"""

import base64
import hashlib
from html import escape

from starlette.requests import Request
from starlette.responses import Response

from assent.gate import safe_text

STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}"
    "body{max-width:34rem;margin:12vh auto;padding:0 1.25rem}"
    "h1{font-size:1.35rem;margin:0 0 .75rem}"
    "code{font:.95em ui-monospace,monospace;padding:.1em .35em;border:1px solid #8886;border-radius:4px}"
    "bdi{font-weight:600;overflow-wrap:anywhere}"
    "button{font:inherit;padding:.5em 1.1em;cursor:pointer}"
)
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_MARKS = str.maketrans({"`": "'", "«": "<", "»": ">"})
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; frame-ancestors 'none'; base-uri 'none'; form-action "


def plain_page(title: str, *paragraphs: str, status: int, button: tuple[str, str] | None = None) -> Response:
    """Paragraphs are text in which `…` marks what is typed and «…» what somebody named. `button`: label, where to."""
    lines = "".join(f"<p>{_marked(paragraph)}</p>" for paragraph in paragraphs)
    if button is not None:
        label, target = button
        lines += f'<form method="post" action="{escape(target, quote=True)}"><button>{_marked(label)}</button></form>'
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - Assent</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{lines}</main></body></html>"
    )
    headers = {
        "content-security-policy": POLICY + ("'self'" if button is not None else "'none'"),
        "cache-control": "no-store",
        # Lets a browser say which page posted; to others nothing is told.
        "referrer-policy": "same-origin" if button is not None else "no-referrer",
    }
    return Response(html, status, headers=headers, media_type="text/html; charset=utf-8")


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
