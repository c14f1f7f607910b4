"""A real OpenID provider of the tests' own, and a browser that signs in there, without a browser's weight."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

import aiohttp

from byleave.server.auth.tokens import HEADER
from harness.json_values import JsonObject
from harness.node import COMPAT, NODE, installed

PROGRAM = COMPAT / "provider.mjs"
FROM_TYPING = {"Sec-Fetch-Site": "none", "Accept": "text/html"}
_FORM = re.compile(r'<form[^>]*action="([^"]+)"', re.IGNORECASE)
_FIELD = re.compile(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', re.IGNORECASE)
_DATA = re.compile(r'data-ticket="([^"]+)" data-address="([^"]+)"')


def client(url: str, **more: object) -> JsonObject:
    """A server of ours, as the provider knows it."""
    known = {
        "client_id": "byleave",
        "client_secret": "s/e:c r%et",
        "redirect_uris": [f"{url}/signin/provider/return"],
        "post_logout_redirect_uris": [f"{url}/"],
        **more,
    }
    return {name: value for name, value in known.items() if value is not None}


@asynccontextmanager
async def provider(port: int, clients: list[JsonObject], people: Mapping[str, JsonObject]) -> AsyncGenerator[str]:
    """Start a provider; gives its issuer. It has new keys each time."""
    installed()
    options = json.dumps({"port": port, "clients": clients, "people": people})
    process = await asyncio.create_subprocess_exec(
        NODE, PROGRAM.as_posix(), options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).strip() != b"listening":
            assert line, "the provider did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


@dataclass
class Visitor:
    """A browser: cookies, and what the page keeps."""

    url: str
    session: aiohttp.ClientSession
    headers: dict[str, str] = field(default_factory=dict[str, str])

    async def begin(self) -> tuple[str, str]:
        """Press the button; the ticket that is kept, and the provider's page."""
        async with self.session.get(f"{self.url}/signin/provider", headers=FROM_TYPING) as answer:
            text = await answer.text()
            found = _DATA.search(text)
            assert found is not None, text[-600:]
            return found[1], unescape(found[2])

    async def sign_in_there(self, address: str, person: str) -> dict[str, str]:
        """Sign in at the provider, agree to everything; the query it leads back to us with."""
        for _ in range(12):
            async with self.session.get(address, allow_redirects=False) as answer:
                text, there = await answer.text(), answer.headers.get("Location")
            while there is None:
                form = _FORM.search(text)
                assert form is not None, text[-600:]
                fields = dict(_FIELD.findall(text))
                if 'name="login"' in text:
                    fields |= {"login": person, "password": "any"}
                target = urljoin(address, unescape(form[1]))
                async with self.session.post(target, data=fields, allow_redirects=False) as answer:
                    text, there = await answer.text(), answer.headers.get("Location")
            address = urljoin(address, there)
            if address.startswith(self.url):
                return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        raise AssertionError("the provider leads nowhere")

    async def finish(self, ticket: str, given: Mapping[str, str]) -> tuple[int, JsonObject]:
        """Post what our page's script posts."""
        body = {"ticket": ticket, "code": given["code"], "state": given["state"], "iss": given.get("iss")}
        marks = {"Sec-Fetch-Site": "same-origin", "Origin": self.url}
        async with self.session.post(f"{self.url}/signin/provider/finish", json=body, headers=marks) as answer:
            said: JsonObject = await answer.json(content_type=None)
            if answer.status == 200:
                self.headers = {HEADER: said["key"], "Sec-Fetch-Site": "same-origin"}
            return answer.status, said

    async def sign_in(self, person: str) -> tuple[int, JsonObject]:
        ticket, address = await self.begin()
        return await self.finish(ticket, await self.sign_in_there(address, person))

    async def me(self) -> JsonObject:
        async with self.session.get(f"{self.url}/my/me", headers=self.headers) as answer:
            return await answer.json()


@asynccontextmanager
async def visitor(url: str, connector: aiohttp.BaseConnector | None = None) -> AsyncGenerator[Visitor]:
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield Visitor(url, session)
