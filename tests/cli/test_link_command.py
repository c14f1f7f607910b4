"""`byleave link`: a new link to the chat page of a running server."""

import json
import urllib.error
import urllib.request
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import segno

from harness.signing import page_headers

from .conftest import FreePort, Program, Site

pytestmark = pytest.mark.promise("L1")


def _opened(link: str) -> tuple[int, dict[str, str]]:
    """Follow a link as a browser does: the last status, and what the page then sends with its requests."""
    try:
        with urllib.request.urlopen(link, timeout=30) as page:
            return page.status, page_headers(page.headers["Set-Cookie"], page.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, {}


def test_link_signs_in_once_as_the_user_of_the_token(site: Site) -> None:
    printed = site.here("link")
    assert printed.returncode == 0, printed.stderr
    link = printed.stdout.strip()
    assert link.startswith(f"{site.url}/signin?code=")
    assert "within 10 minutes" in printed.stderr
    _, headers = _opened(link)
    asking = urllib.request.Request(f"{site.url}/my/me", headers=headers)
    with urllib.request.urlopen(asking, timeout=30) as answer:
        told = json.load(answer)
    assert (told["user_id"], told["scopes"]) == ("alice", ["approve", "chat"])
    assert _opened(link) == (401, {})


def test_link_is_json_when_asked_and_names_the_server_that_was_named(site: Site) -> None:
    told = json.loads(site.here("link", "--server", f"{site.url}/", "--json").stdout)
    assert told["sign_in_url"].startswith(f"{site.url}/signin?code=")
    assert told["expires_in_seconds"] == 600
    assert told["editor_url"] == "vscode://byleave.byleave/signin?link=" + quote(told["sign_in_url"], safe="")


@pytest.mark.promise("S")
def test_link_names_the_number_that_was_proven_and_not_a_name_that_may_lead_to_another_user(site: Site) -> None:
    port = urlsplit(site.url).port
    for name in ("localhost", "127.1"):
        told = json.loads(site.here("link", "--server", f"http://{name}:{port}", "--json").stdout)
        assert told["sign_in_url"].startswith(f"http://127.0.0.1:{port}/signin?code=")
        assert told["editor_url"] == "vscode://byleave.byleave/signin?link=" + quote(told["sign_in_url"], safe="")


def test_link_for_the_editor_is_exchanged_for_a_token_that_may_execute(site: Site) -> None:
    printed = site.here("link", "--editor")
    assert "VS Code" in printed.stderr
    opened = urlsplit(printed.stdout.strip())
    assert (opened.scheme, opened.netloc, opened.path) == ("vscode", "byleave.byleave", "/signin")
    [link] = parse_qs(opened.query)["link"]
    asking = urllib.request.Request(
        f"{site.url}/signin/exchange",
        data=json.dumps({"code": parse_qs(urlsplit(link).query)["code"][0]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asking, timeout=30) as answer:
        told = json.load(answer)
    assert (told["user_id"], told["scopes"]) == ("alice", ["approve", "chat", "execute"])
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(asking, timeout=30)


def test_link_without_a_server_or_with_an_agents_token_says_what_to_do(
    site: Site, byleave: Program, free_port: FreePort
) -> None:
    nobody = byleave.here("link")
    assert (nobody.returncode, "byleave up" in nobody.stderr) == (1, True)
    gone = byleave.here("link", "--server", f"http://127.0.0.1:{free_port()}", BYLEAVE_TOKEN="x")
    assert (gone.returncode, gone.stdout) == (3, "")
    agent = site.program.here("token", "--user", "alice", "--scope", "agent").stdout.strip()
    refused = site.program.here("link", BYLEAVE_SERVER_URL=site.url, BYLEAVE_TOKEN=agent)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "without `agent`" in refused.stderr


def test_link_for_a_phone_is_drawn_as_a_code_and_printed(byleave: Program, free_port: FreePort) -> None:
    port = free_port()
    serving = byleave.start("serve", "--port", str(port), BYLEAVE_PUBLIC_URL="http://phone.example.com")
    serving.line_with("ready")
    token = byleave.here("token", "--user", "alice", "--scope", "chat", "--scope", "approve").stdout.strip()
    asked = {"BYLEAVE_TOKEN": token, "BYLEAVE_SERVER_URL": f"http://127.0.0.1:{port}"}
    printed = byleave.here("link", "--qr", **asked)
    link = printed.stdout.strip()
    assert link.startswith("http://phone.example.com/signin?code=")
    assert "within 10 minutes" in printed.stderr
    assert "need https" in printed.stderr
    drawn = [line for line in printed.stderr.splitlines() if line.startswith("█")]
    rows = [
        row
        for line in drawn
        for row in ("".join("1" if mark in halves else "0" for mark in line) for halves in (" ▄", " ▀"))
    ]
    code = ["".join(map(str, row)) for row in segno.make_qr(link, error="l").matrix]
    assert [row[2:-2] for row in rows[2 : 2 + len(code)]] == code
    told = json.loads(byleave.here("link", "--qr", "--json", **asked).stdout)
    assert told["sign_in_url"].startswith("http://phone.example.com/signin?code=")
    assert byleave.here("link", "--qr", "--editor", **asked).returncode == 2


def test_link_for_a_phone_says_what_to_do_when_only_this_machine_reaches_the_server(site: Site) -> None:
    refused = site.here("link", "--qr")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "only its own machine" in refused.stderr
    assert "BYLEAVE_PUBLIC_URL" in refused.stderr
