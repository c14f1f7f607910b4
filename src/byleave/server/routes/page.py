"""The chat page: its files by name, and plain HTML pages such as the sign-in question.

The files are built by `make ui` and held in memory: no path of a request ever reaches the file system. A file with a
hash in its name never changes, so a browser may keep it for good; other files are revalidated each time, with 304 while
they are the same. A new build is noticed when the index is requested. Nothing served here depends on who asks.

A plain page has a few sentences and one style. Its policy names the style, and the script of the one page that has any,
by their digests, so that nothing else inline applies. Every text is escaped here.
"""

import asyncio
import base64
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from byleave.gate import safe_text
from byleave.protocol.errors import NotFound
from byleave.server.dependencies import StrictRoute
from byleave.server.problems import problems

router = APIRouter(route_class=StrictRoute, tags=["page"])

FOREVER = "public, max-age=31536000, immutable"
ANEW = "no-cache"
NO_WEIGHT = re.compile(r"q=0(\.0*)?")
PAGE = Path(__file__).parents[1] / "page"
INDEX = "index.html"
SERVICE_WORKER = "sw.js"
SMALLEST_COMPRESSED = 256
"""Below this compression gains nothing."""

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
}
UNKNOWN = "application/octet-stream"
PACKED = frozenset({".png", ".ico", ".webp", ".woff2", ".mp3", ".ogg"})
"""Formats that are compressed already."""
HASHED = re.compile(r"[-.](?=[a-z_-]*[A-Z0-9])[A-Za-z0-9_-]{8}\.[a-z0-9]+")
"""End of a name with one of Vite's hashes; a plain word of eight letters is none."""


@dataclass(frozen=True)
class PageFile:
    """One file, ready to be sent."""

    name: str
    content: bytes

    @property
    def ending(self) -> str:
        return Path(self.name).suffix.lower()

    @property
    def media_type(self) -> str:
        return TYPES.get(self.ending, UNKNOWN)

    @property
    def never_changes(self) -> bool:
        """True if another content would have another name."""
        return any(found.end() == len(self.name) for found in HASHED.finditer(self.name))

    @cached_property
    def tag(self) -> str:
        """Its ETag; weak, since compressed and plain share it."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def packed(self) -> bytes | None:
        """Its content, compressed once; None if that gains nothing."""
        if self.ending in PACKED or len(self.content) < SMALLEST_COMPRESSED:
            return None
        return gzip.compress(self.content, 9, mtime=0)


class PageFiles:
    """The page as it was built last."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = PAGE if directory is None else directory
        self._files: dict[str, PageFile] = {}
        self._before: dict[str, PageFile] = {}
        """Files of the previous build, which a page still open in a browser may ask for."""
        self._stamp: tuple[int, ...] | None = None

    def index(self) -> PageFile | None:
        """The page itself; None if it was never built."""
        self._look()
        return self._files.get(INDEX)

    def file(self, name: str) -> PageFile | None:
        """One of the files it refers to, or None."""
        if name == INDEX:
            return None
        if name not in self._files:
            self._look()
        return self._files.get(name) or self._before.get(name)

    def _look(self) -> None:
        """Read the files again if they changed. During a build the last ones stay."""
        try:
            stamp = self._now()
            if stamp == self._stamp:
                return
            paths = [path for path in sorted(self._directory.iterdir()) if path.is_file() and not path.is_symlink()]
            files = {path.name: PageFile(path.name, path.read_bytes()) for path in paths}
        except OSError:  # not built, or just being built
            return
        if INDEX in files:
            self._before = {name: file for name, file in self._files.items() if file.never_changes}
            self._files, self._stamp = files, stamp

    def _now(self) -> tuple[int, ...]:
        index, directory = (self._directory / INDEX).stat(), self._directory.stat()
        return index.st_mtime_ns, index.st_size, index.st_ino, directory.st_mtime_ns


@router.get("/", summary="The chat page", response_class=HTMLResponse, responses=problems(503))
async def index(request: Request) -> Response:
    """HTML."""
    found = request.app.state.page.index()
    if found is None:
        return plain_page(
            "The chat page was not built",
            "This server was started from a checkout without it. Run `make ui` there, then load this page again.",
            "Everything else works: `byleave chat` talks to the agent in a terminal.",
            status=503,
        )
    return await _sent(request, found)


@router.get(
    "/page/{name}",
    summary="A file of the chat page",
    response_class=Response,
    responses={200: {"content": {"*/*": {"schema": {}}}}, **problems(404)},
)
async def page_file(request: Request, name: str) -> Response:
    """Its script or its style. A name with a hash in it never changes."""
    found = request.app.state.page.file(name)
    if found is None:
        raise NotFound("There is nothing here.", hint="The chat page is at /.")
    return await _sent(request, found)


async def _sent(request: Request, file: PageFile) -> Response:
    headers = {
        "cache-control": FOREVER if file.never_changes else ANEW,
        "etag": file.tag,
        "vary": "Accept-Encoding",
        # It shows notifications of the whole page, which is not below its own path.
        **({"service-worker-allowed": "/"} if file.name == SERVICE_WORKER else {}),
    }
    if file.tag in _tags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        # Compressed in a thread, once: it takes a while.
        packed = await asyncio.to_thread(lambda: file.packed)
        if packed is not None:
            return Response(packed, headers={**headers, "content-encoding": "gzip"}, media_type=file.media_type)
    return Response(file.content, headers=headers, media_type=file.media_type)


def _tags(header: str) -> list[str]:
    tags = [tag.strip() for tag in header.split(",")]
    return [tag if tag.startswith("W/") else f"W/{tag}" for tag in tags]


def _takes_gzip(header: str) -> bool:
    for coding in header.lower().split(","):
        name, _, weight = coding.strip().partition(";")
        if name.strip() == "gzip":
            return NO_WEIGHT.fullmatch(weight.replace(" ", "")) is None
    return False


# Plain pages

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
    asks: bool = False,
) -> Response:
    """Make a page of paragraphs. In them `…` marks text to type, and «…» a name. `button` is its label and target.
    `script` is the same for everybody and runs before anything is shown; it reads `data`, and `asks` this server."""
    lines = "".join(f"<p>{_marked(paragraph)}</p>" for paragraph in paragraphs)
    if button is not None:
        label, target = button
        lines += f'<form method="post" action="{escape(target, quote=True)}"><button>{_marked(label)}</button></form>'
    return html_page(title, lines, status=status, script=script, data=data, posts=button is not None, asks=asks)


def html_page(
    title: str,
    body: str,
    *,
    status: int,
    script: str | None = None,
    data: Mapping[str, str] = NOTHING,
    posts: bool = False,
    asks: bool = False,
) -> Response:
    """A page around HTML of our own."""
    known = "".join(f' data-{name}="{escape(value, quote=True)}"' for name, value in data.items())
    runs = "" if script is None else f"<script>{script}</script>"
    html = (
        f'<!doctype html><html lang="en"{known}><head><meta charset="utf-8">{runs}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - Byleave</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
    headers = {
        "content-security-policy": _policy(script, posts=posts, asks=asks),
        "cache-control": "no-store",
        # A form needs the referrer, so that the browser sends its origin; no other site gets one.
        "referrer-policy": "same-origin" if posts or asks else "no-referrer",
    }
    return Response(html, status, headers=headers, media_type="text/html; charset=utf-8")


def _policy(script: str | None, *, posts: bool, asks: bool) -> str:
    runs = "" if script is None else f" script-src {_digest(script)};"
    runs += " connect-src 'self';" if asks else ""
    target = "'self'" if posts else "'none'"
    return (
        f"default-src 'none'; style-src {_digest(STYLE)};{runs} "
        f"frame-ancestors 'none'; base-uri 'none'; form-action {target}"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def named(text: str) -> str:
    """Mark a name in a paragraph, so that it is shown as it is and never read as markup."""
    return f"«{safe_text(text).translate(_MARKS)}»"


def reads_html(request: Request) -> bool:
    """True if the request accepts HTML, as a browser's does."""
    accepted = request.headers.get("accept", "").lower()
    return any(kind.partition(";")[0].strip() == "text/html" for kind in accepted.split(","))


def _marked(text: str) -> str:
    pieces = escape(text).split("`")
    marked = "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
    return marked.replace("«", "<bdi>").replace("»", "</bdi>")
