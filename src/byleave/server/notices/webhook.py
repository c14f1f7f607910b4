"""Webhook: posts a notice to the operator's address, in the form that ntfy, Slack or anything else takes.

The address may hold a secret, so it is never logged and never in an error. Redirects are not followed, proxies from the
environment are not used, and nothing of the answer is read but its status. Private addresses are the operator's own
word.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from .outcomes import Outcome, posted
from .words import Notice

if TYPE_CHECKING:
    import aiohttp

Form = Literal["auto", "ntfy", "slack", "json"]
PRIORITIES = {"HIGH": "high", "MEDIUM": "default"}
_SLACK = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Webhook:
    """The operator's address for notices."""

    def __init__(self, url: str, form: Form, public_url: str | None) -> None:
        """`public_url`: where links lead to; without one there are none."""
        self._url = url
        self._form = _guess(url) if form == "auto" else form
        self._public_url = public_url
        self._session: aiohttp.ClientSession | None = None

    async def send(self, notice: Notice, user_id: str) -> Outcome:
        """Post a notice once."""
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        headers, body = self._message(notice, user_id)
        return await posted(self._session, self._url, headers, body)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _message(self, notice: Notice, user_id: str) -> tuple[Mapping[str, str], bytes]:
        link = None if self._public_url is None else self._public_url + notice.path
        # The address is one for all users, so it is said who is meant.
        text = f"For {user_id}. {notice.text}"
        if self._form == "ntfy":
            headers = {"Title": notice.title, "Priority": PRIORITIES.get(notice.level or "", "default")}
            return {**headers, **({} if link is None else {"Click": link})}, text.encode()
        if self._form == "slack":
            lines = [f"*{notice.title}*", text.translate(_SLACK), *([] if link is None else [f"<{link}|Review>"])]
            return _JSON, json.dumps({"text": "\n".join(lines)}).encode()
        told = {"title": notice.title, "body": text, "user": user_id, "count": notice.count, "level": notice.level}
        return _JSON, json.dumps({**told, "link": link}).encode()


_JSON = {"Content-Type": "application/json"}


def _guess(url: str) -> Form:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if "ntfy" in host:
        return "ntfy"
    # Discord takes Slack's form at such a path, and so does Mattermost.
    return "slack" if host == "hooks.slack.com" or parts.path.endswith("/slack") else "json"
