"""The documentation site: it is built without the network, and every link of it leads somewhere."""

import re
import subprocess
import sys
import tomllib
import urllib.parse
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from harness.browser import USUAL_MS, need_chromium, new_context, open_browser
from harness.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser fetches by itself, unlike a link that a reader follows."""


class Page(HTMLParser):
    """Links, anchors and what is loaded of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """Every page of the built site, by its path. Built as `make docs` does, beside the tree's own."""
    place = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "scripts"))
        import docs_site  # pyright: ignore[reportMissingImports]

        docs_site.lay_out(place / "pages")
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for old, new in {'"build/site"': '"pages"', '["src"]': f'["{ROOT}/src"]'}.items():
        assert old in settings
        settings = settings.replace(old, new)
    (place / "zensical.toml").write_text(settings, encoding="utf-8")
    # A namespace without interfaces, where one can be made: nothing may be fetched.
    walls = ["unshare", "--net", "--map-root-user"]
    alone = walls if subprocess.run([*walls, "true"], capture_output=True, check=False).returncode == 0 else []
    built = subprocess.run(
        [*alone, str(Path(sys.executable).parent / "zensical"), "build", "--clean", "--strict"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return {path: Page(path) for path in (place / "site").rglob("*.html") if path.name != "404.html"}


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: dict[Path, Page]) -> None:
    assert len(site) > 50
    broken = [
        f"{path.name}: {link}" for path, page in site.items() for link in page.links if not _leads(site, path, link)
    ]
    assert broken == []


def _leads(site: dict[Path, Page], path: Path, link: str) -> bool:
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not parts.fragment or target.suffix != ".html":
        return target.exists()
    return target in site and urllib.parse.unquote(parts.fragment) in site[target].anchors


def test_nothing_is_loaded_from_elsewhere(site: dict[Path, Page]) -> None:
    assert [load for page in site.values() for load in page.loads if re.match(r"(https?:)?//", load)] == []
    root = next(path for path in site if path.name == "api.html").parent
    for style in root.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")), style.name


async def test_a_reader_searches_and_the_browser_asks_nobody_else(site: dict[Path, Page]) -> None:
    need_chromium()
    root = next(path for path in site if path.name == "api.html").parent
    asked: list[str] = []
    async with serving(root) as address, open_browser() as browser:
        page = await (await new_context(browser)).new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in ("api", "how", "compared", "index"):
            await page.goto(f"{address}/{name}.html")
        await page.get_by_role("button", name="Search").click()
        await page.keyboard.type("undo")
        await page.get_by_text("byleave undo").first.wait_for(timeout=USUAL_MS)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert any(url.endswith("api.html") for url in asked)


@asynccontextmanager
async def serving(root: Path) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_static("/", root)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def test_every_page_of_the_menu_is_there_and_every_page_of_docs_is_in_it(site: dict[Path, Page]) -> None:
    named = set(_named(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]))
    root = next(path for path in site if path.name == "api.html").parent
    assert {name for name in named if not (root / name).with_suffix(".html").exists()} == set()
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - named == set()


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for one in nav:
            yield from _named(one)
    else:
        for one in nav.values():
            yield from _named(one)


def test_the_python_reference_has_every_public_name(site: dict[Path, Page]) -> None:
    import byleave

    page = next(page for path, page in site.items() if path.name == "api.html")
    assert {name for name in byleave.__all__ if f"byleave.{name}" not in page.anchors} == set()
