"""People are told elsewhere that something waits: encrypted by a push service, and by webhook; once, and no more than
is safe to tell."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from socket import AF_INET
from urllib.parse import urlsplit

import pytest
import structlog
from aiohttp import ThreadedResolver
from aiohttp.abc import ResolveResult
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import SecretStr, ValidationError

from byleave.protocol.errors import RefusedError
from byleave.protocol.states import RiskLevel, Scope
from byleave.resolver import CheckedResolver
from byleave.server.notices import task
from byleave.server.notices.push import ORDER, Push
from byleave.server.notices.webhook import Webhook
from byleave.server.notices.words import Notice, notice_of
from byleave.settings import ServerSettings
from byleave.store.database import Transaction
from byleave.store.notices import Waiting
from harness.http_server import SECRET, Server, StartServer, User, running_server
from harness.postgres import PostgresServer
from harness.push_service import Keys, PushService, Receiver, decoded, push_service, receiver
from harness.signing import page_headers

pytestmark = pytest.mark.promise("A-elsewhere")

SOON = 0.2
"""Seconds that a question waits here before anybody is told."""


@pytest.fixture
async def pushing() -> AsyncGenerator[PushService]:
    async with push_service() as service:
        yield service


@pytest.fixture
async def hook() -> AsyncGenerator[Receiver]:
    async with receiver() as found:
        yield found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further tries come at once."""
    monkeypatch.setattr(task, "PAUSES", (0.0, 0.0))


async def _finished(server: Server, count: int = 1) -> None:
    """Wait until so many questions are over for who tells."""

    def told(transaction: Transaction) -> int:
        return len(transaction.execute("SELECT 1 FROM notices WHERE sent_at IS NOT NULL").fetchall())

    async with asyncio.timeout(20):
        while await server.parts.store.database.read(told) < count:
            await asyncio.sleep(0.02)


async def _subscribed(user: User, service: PushService, name: str = "phone", **headers: str) -> str:
    added = await user.post("/my/notices/devices", service.subscription(name), headers=headers)
    assert added.status == 200, added.text
    return added.json["id"]


def test_the_tests_own_browser_reads_the_example_of_the_standard() -> None:
    private = ec.derive_private_key(
        int.from_bytes(decoded("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"), "big"), ec.SECP256R1()
    )
    body = decoded(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
        "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    assert (
        Keys(private, decoded("BTBZMqHH6r4Tts7J_aSIgg")).decrypt(body) == b"When I grow up, I want to be a watermelon"
    )


# Push messages


async def test_waiting_question_is_pushed_once_encrypted_and_without_its_content(
    start_server: StartServer, pushing: PushService
) -> None:
    server = await start_server(
        push_allow_private=True, notify_after_seconds=SOON, public_url="https://byleave.example.com"
    )
    alice = server.user("alice")
    chrome = "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36"
    await _subscribed(alice, pushing, **{"User-Agent": chrome})
    _, approval_id = await alice.question(await alice.project("acquisition"), "secret-plans/merger.txt")
    message = await pushing.message()
    assert message.text == {
        "title": "Byleave: 1 to review",
        "body": "Medium risk. Expires in 5 min.",
        "path": f"/#/review/{approval_id}",
    }
    assert b"review" not in message.body
    assert message.claims["sub"] == "https://byleave.example.com"
    assert message.claims["aud"] == pushing.url
    listed = (await alice.get("/my/notices")).json
    assert message.sender == listed["push_key"]
    assert message.headers["Content-Encoding"] == "aes128gcm"
    assert (message.headers["Urgency"], message.headers["Topic"]) == ("high", "byleave-waiting")
    assert 0 < int(message.headers["TTL"]) <= 300
    await _finished(server)
    assert (pushing.tries, pushing.messages.empty()) == (1, True)
    [device] = (await alice.get("/my/notices")).json["devices"]
    assert (device["name"], device["service"]) == ("Chrome on Android", "127.0.0.1")
    assert device["sent_at"] is not None
    assert "push/phone" not in json.dumps(listed), "its address is told to nobody"


async def test_device_that_is_gone_is_removed_and_another_trouble_is_tried_again(
    start_server: StartServer, pushing: PushService, quick: None
) -> None:
    server = await start_server(push_allow_private=True, notify_after_seconds=SOON)
    alice = server.user("alice")
    await _subscribed(alice, pushing)
    pushing.answers = [503, 429]
    project = await alice.project()
    await alice.question(project)
    assert (await pushing.message()).text["title"] == "Byleave: 1 to review"
    assert pushing.tries == 3
    pushing.answers = [410]
    assert (await alice.post("/my/notices/test")).json["outcomes"] == [
        {"to": "Browser", "delivered": False, "detail": "It answered with status 410."}
    ]
    assert (await alice.get("/my/notices")).json["devices"] == []


async def test_redirect_of_a_push_service_is_not_followed_and_no_try_is_made_again(
    start_server: StartServer, pushing: PushService, quick: None
) -> None:
    server = await start_server(push_allow_private=True, notify_after_seconds=SOON)
    alice = server.user("alice")
    await _subscribed(alice, pushing)
    pushing.answers = [302]
    with structlog.testing.capture_logs() as logs:
        await alice.question(await alice.project())
        await _finished(server)
    assert pushing.tries == 1
    [said] = [line for line in logs if line["event"] == "not notified"]
    assert (said["user"], said["reason"]) == ("alice", "It answered with status 302.")


HERE = {"p256dh": "B" * 87, "auth": "A" * 22}


@pytest.mark.promise("S")
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example.com/x",
        "ftp://push.example.com/x",
        "https:///x",
        "https://127.0.0.1/x",
        "https://127.1/x",
        "https://2130706433/x",
        "https://0x7f.0.0.1/x",
        "https://[::1]/x",
        "https://[::ffff:10.0.0.1]/x",
        "https://10.0.0.1/x",
        "https://192.168.1.1:8443/x",
        "https://169.254.169.254/latest/meta-data",
        "https://100.100.100.200/x",
        "https://localhost/x",
        "https://a.localhost./x",
        "https://user@push.example.com/x",
        "https://push.example.com:0/x",
        "https://push.example.com:99999/x",
        "https://push.example.com/x y",
        "https://push.example.com/\nx",
        "https://push.example.com\\@127.0.0.1/x",
        "https://[push/x",
    ],
)
async def test_address_of_a_push_service_that_could_lead_inside_is_refused(endpoint: str, server: Server) -> None:
    keys = {name: value for name, value in PushService("https://x").subscription().items() if name != "endpoint"}
    refused = await server.user("alice").post("/my/notices/devices", {"endpoint": endpoint, **keys})
    assert refused.status == 400, refused.text
    assert refused.json["detail"].startswith("The push service's address ")


@pytest.mark.promise("S")
async def test_name_of_a_push_service_must_lead_to_public_addresses_when_it_is_asked(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leads_inside(self: ThreadedResolver, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="10.1.2.3", port=port, family=AF_INET, proto=0, flags=0)]

    alice = (await start_server()).user("alice")
    monkeypatch.setattr(ThreadedResolver, "resolve", leads_inside)
    keys = {name: value for name, value in PushService("https://x").subscription().items() if name != "endpoint"}
    await alice.post("/my/notices/devices", {"endpoint": "https://push.example.com/x", **keys})
    [outcome] = (await alice.post("/my/notices/test")).json["outcomes"]
    assert outcome["detail"] == "Its name leads to an address that is not contacted.", "nor is it said where"


async def test_localhost_is_no_public_address() -> None:
    resolver = CheckedResolver(allow_private=False)
    with pytest.raises(RefusedError, match="not a public address"):
        await resolver.resolve("localhost", 443)


@pytest.mark.promise("S")
async def test_cloud_credentials_are_never_asked_also_where_private_addresses_are_allowed(
    start_server: StartServer,
) -> None:
    alice = (await start_server(push_allow_private=True)).user("alice")
    keys = {name: value for name, value in PushService("https://x").subscription().items() if name != "endpoint"}
    for host in ("169.254.169.254", "[fd00:ec2::254]"):
        refused = await alice.post("/my/notices/devices", {"endpoint": f"https://{host}/x", **keys})
        assert (refused.status, "never asked" in refused.json["detail"]) == (400, True)


async def test_subscription_without_a_true_key_is_refused(server: Server) -> None:
    alice = server.user("alice")
    for changes in ({"p256dh": "B" * 87}, {"p256dh": "x"}, {"auth": "A"}, {"endpoint": ""}, {"more": "x"}):
        body = {**PushService("https://push.example.com").subscription(), **changes}
        assert (await alice.post("/my/notices/devices", body)).status == 400, changes


@pytest.mark.promise("S", "S5")
async def test_devices_are_nobody_elses_and_no_agents(start_server: StartServer, pushing: PushService) -> None:
    server = await start_server(push_allow_private=True)
    alice, bob = server.user("alice"), server.user("bob")
    device = await _subscribed(alice, pushing)
    assert (await bob.get("/my/notices")).json["devices"] == []
    assert (await bob.post(f"/my/notices/devices/{device}/remove")).status == 404
    assert (await bob.post("/my/notices/test")).json["outcomes"] == []
    for scopes in ((Scope.AGENT,), (Scope.EXECUTE,)):
        other = server.user("alice", scopes)
        assert (await other.get("/my/notices")).status == 403
    for scopes in ((Scope.AGENT,), (Scope.EXECUTE,), (Scope.CHAT,), (Scope.APPROVE,)):
        other = server.user("alice", scopes)
        assert (await other.post("/my/notices/devices", pushing.subscription("other"))).status == 403
        assert (await other.post(f"/my/notices/devices/{device}/remove")).status == 403
        assert (await other.post("/my/notices/test")).status == 403
    removed = await alice.post(f"/my/notices/devices/{device}/remove")
    assert (removed.status, removed.json["id"]) == (200, device)
    assert pushing.tries == 0


async def test_signing_out_ends_the_pushes_of_that_browser(start_server: StartServer, pushing: PushService) -> None:
    server = await start_server(push_allow_private=True)
    visitor = server.bearer("")
    code = await server.parts.sign_in.new_code("alice")
    opened = await visitor.get(f"/signin?code={code}", headers={"Authorization": ""})
    page = {
        "Authorization": "",
        "Sec-Fetch-Site": "same-origin",
        **page_headers(opened.headers["Set-Cookie"], opened.text),
    }
    added = await visitor.post("/my/notices/devices", pushing.subscription(), headers=page)
    assert added.status == 200, added.text
    alice = server.user("alice")
    await _subscribed(alice, pushing, "another")
    assert len((await alice.get("/my/notices")).json["devices"]) == 2
    assert (await visitor.post("/signout", {}, headers=page)).status == 204
    [left] = (await alice.get("/my/notices")).json["devices"]
    assert left["id"] != added.json["id"]


async def test_test_goes_to_every_way_and_not_too_often(
    start_server: StartServer, pushing: PushService, hook: Receiver
) -> None:
    server = await start_server(push_allow_private=True, notify_url=SecretStr(f"{hook.url}/x"))
    alice = server.user("alice")
    await _subscribed(alice, pushing)
    hook.answers = [500]
    tried = await alice.post("/my/notices/test")
    assert tried.json["outcomes"] == [
        {"to": "Browser", "delivered": True, "detail": None},
        {"to": "webhook", "delivered": False, "detail": "It answered with status 500."},
    ]
    assert (await pushing.message()).text == {
        "title": "Byleave: a test",
        "body": "Notifications work. Nothing waits for you.",
        "path": "/",
    }
    again = await alice.post("/my/notices/test")
    assert (again.status, again.headers["Retry-After"]) == (429, "5")


def test_servers_of_a_record_are_one_sender_and_another_secret_is_another(tmp_path: Path) -> None:
    def key(secret: str) -> str:
        return Push(ServerSettings(home=tmp_path, secret=SecretStr(secret))).public_key

    assert key(SECRET) == key(SECRET)
    assert key(SECRET) != key(SECRET[::-1])
    ec.derive_private_key(ORDER - 1, ec.SECP256R1())
    with pytest.raises(ValueError, match="out of range"):
        ec.derive_private_key(ORDER, ec.SECP256R1())


async def test_device_whose_keys_are_damaged_is_removed_and_keeps_nobody_from_being_told(
    start_server: StartServer, pushing: PushService
) -> None:
    server = await start_server(push_allow_private=True)
    alice = server.user("alice")
    damaged, _ = await _subscribed(alice, pushing, "damaged"), await _subscribed(alice, pushing, "phone")

    def damage(transaction: Transaction) -> None:
        transaction.execute("UPDATE push_devices SET p256dh = 'x' WHERE id = :id", {"id": damaged})

    await server.parts.store.database.write(damage)
    outcomes = (await alice.post("/my/notices/test")).json["outcomes"]
    assert sorted(each["delivered"] for each in outcomes) == [False, True]
    assert damaged not in str((await alice.get("/my/notices")).json)


# Webhook


async def test_webhook_is_told_what_waits_and_for_whom_but_not_what(start_server: StartServer, hook: Receiver) -> None:
    address = f"{hook.url}/hooks/s3cr3t-part?key=hidden"
    with structlog.testing.capture_logs() as logs:
        server = await start_server(
            notify_url=SecretStr(address), notify_after_seconds=SOON, public_url="https://byleave.example.com"
        )
        alice = server.user("alice")
        project = await alice.project("acquisition")
        _, approval_id = await alice.question(project, "merger.sh")
        headers, body = await hook.post()
        await _finished(server)
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "title": "Byleave: 1 to review",
        "body": "For alice. High risk. Expires in 10 min.",
        "user": "alice",
        "count": 1,
        "level": "HIGH",
        "link": f"https://byleave.example.com/#/review/{approval_id}",
    }
    assert hook.tries == 1
    assert not any(part in str(logs) for part in ("s3cr3t", "hidden"))
    assert [line["to"] for line in logs if line["event"] == "notified"] == ["webhook"]


async def test_several_questions_are_told_together(start_server: StartServer, pushing: PushService) -> None:
    server = await start_server(push_allow_private=True, notify_after_seconds=0)
    alice = server.user("alice")
    project = await alice.project()
    asked = [(await alice.question(project, name))[1] for name in ("a.txt", "b.sh", "c.txt")]
    await _subscribed(alice, pushing)
    told = (await pushing.message()).text
    assert told["title"] == "Byleave: 3 to review"
    assert told["body"].startswith("Highest: high risk. Expires in ")
    assert told["path"] == f"/#/review/{asked[0]}"
    await _finished(server, 3)
    assert pushing.tries == 1


async def test_webhook_that_fails_is_tried_a_few_times(start_server: StartServer, hook: Receiver, quick: None) -> None:
    server = await start_server(notify_url=SecretStr(hook.url), notify_after_seconds=SOON)
    alice = server.user("alice")
    hook.answers = [500] * 10
    with structlog.testing.capture_logs() as logs:
        await alice.question(await alice.project())
        await _finished(server)
    assert hook.tries == 3
    [said] = [line for line in logs if line["event"] == "not notified"]
    assert hook.url not in str(said)


async def test_no_further_try_is_made_after_the_answer(start_server: StartServer, hook: Receiver, quick: None) -> None:
    server = await start_server(notify_url=SecretStr(hook.url), notify_after_seconds=SOON)
    alice = server.user("alice")
    project = await alice.project()
    hook.answers = [500] * 10

    async def answer() -> None:
        [waiting] = (await alice.get("/my/approvals")).json["approvals"]
        await alice.post(f"/my/projects/{project}/approvals/{waiting['id']}/reject", {"reason": "no"})

    hook.meanwhile = answer
    await alice.question(project)
    await _finished(server)
    assert hook.tries == 1


async def test_of_several_servers_of_a_record_one_tells(
    postgres_server: PostgresServer, tmp_path: Path, hook: Receiver, pushing: PushService
) -> None:
    async with AsyncExitStack() as stack:
        url = stack.enter_context(postgres_server.database())
        servers = [
            await stack.enter_async_context(
                running_server(
                    ServerSettings(
                        home=tmp_path / str(number),
                        secret=SecretStr(SECRET),
                        database_url=url,
                        notify_url=SecretStr(hook.url),
                        notify_after_seconds=SOON,
                        push_allow_private=True,
                    )
                )
            )
            for number in range(3)
        ]
        token = servers[0].user("alice").token
        first, second, third = (server.bearer(token) for server in servers)
        await _subscribed(first, pushing)
        project = await second.project()
        _, approval_id = await second.question(project)
        assert (await pushing.message()).text["path"] == f"/#/review/{approval_id}"
        await hook.post()
        await _finished(servers[2])
        assert (hook.tries, pushing.tries) == (1, 1)
        keys = {(await user.get("/my/notices")).json["push_key"] for user in (first, second, third)}
        assert len(keys) == 1


async def test_question_waits_as_always_while_nobody_can_be_told(start_server: StartServer) -> None:
    server = await start_server(notify_url=SecretStr("http://127.0.0.1:9/x"), notify_after_seconds=0)
    alice = server.user("alice")
    _, approval_id = await alice.question(await alice.project())
    assert [each["id"] for each in (await alice.get("/my/approvals")).json["approvals"]] == [approval_id]
    tried = (await alice.post("/my/notices/test")).json["outcomes"]
    assert tried[0]["detail"].startswith("It could not be reached (")


def _message(url: str, form: str = "auto", public: str | None = "https://b.example") -> tuple[dict[str, str], str]:
    notice = Notice("Byleave: 1 to review", "High risk in <!channel> & co.", "/#/review/a", 60, 1, RiskLevel.HIGH)
    headers, body = Webhook(url, form, public)._message(notice, "alice")  # type: ignore[arg-type]
    return dict(headers), body.decode()


def test_ntfy_slack_and_everything_else_get_the_form_they_take() -> None:
    for url in ("https://ntfy.sh/my-topic", "https://ntfy.example.com/t"):
        headers, body = _message(url)
        assert headers == {"Title": "Byleave: 1 to review", "Priority": "high", "Click": "https://b.example/#/review/a"}
        assert body == "For alice. High risk in <!channel> & co."
    assert "Click" not in _message("https://ntfy.sh/my-topic", public=None)[0]
    assert json.loads(_message("https://relay.example.com", public=None)[1])["link"] is None
    for url in ("https://hooks.slack.com/services/T/B/x", "https://discord.com/api/webhooks/1/x/slack"):
        text = json.loads(_message(url)[1])["text"]
        assert text == (
            "*Byleave: 1 to review*\nFor alice. High risk in &lt;!channel&gt; &amp; co.\n<https://b.example/#/review/a|Review>"
        )
    assert json.loads(_message("https://relay.example.com/mail")[1])["title"] == "Byleave: 1 to review"
    assert _message("https://relay.example.com/mail", "ntfy")[1].startswith("For alice.")
    assert json.loads(_message("https://ntfy.sh/t", "json")[1])["level"] == "HIGH"


def test_wrong_address_for_notices_is_refused_without_being_quoted() -> None:
    for wrong in ("ntfy.sh/secret-topic", "ftp://x/secret-topic", "https:///secret-topic"):
        with pytest.raises(ValidationError, match="not a web address") as caught:
            ServerSettings(notify_url=SecretStr(wrong))
        assert "secret-topic" not in str(caught.value)


# What is told


def _waiting(**changes: object) -> Waiting:
    values = {
        "approval_id": "appr_1",
        "user_id": "alice",
        "project": "demo",
        "risk_level": RiskLevel.MEDIUM,
        "description": "Run 'curl' '-H' 'Authorization: Bearer sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789' now",
        "seconds_left": 280.0,
    }
    return Waiting(**{**values, **changes})  # type: ignore[arg-type]


def test_notice_tells_no_more_than_the_operator_allows() -> None:
    one = [_waiting()]
    assert notice_of(one, "level").text == "Medium risk. Expires in 5 min."
    assert notice_of(one, "project").text == "Medium risk in demo. Expires in 5 min."
    told = notice_of(one, "request").text
    assert told.startswith("Medium risk in demo: Run 'curl'")
    assert "sk-ant" not in told
    assert "[masked:" in told


def test_names_in_a_notice_are_one_short_line_without_hidden_characters() -> None:
    hostile = [_waiting(project="a\u202eb\nc" + "x" * 300, description="d\x1b[2J\n" + "y" * 999, seconds_left=20)]
    text = notice_of(hostile, "request").text
    assert not {"\n", "\x1b", "\u202e"} & set(text)
    assert len(text) < 400
    assert text.endswith("Expires in about a minute.")


def test_notice_of_several_projects_names_none() -> None:
    several = [_waiting(), _waiting(project="other", risk_level=RiskLevel.HIGH, seconds_left=500.0)]
    notice = notice_of(several, "request")
    assert (notice.title, notice.text) == (
        "Byleave: 2 to review",
        "Highest: high risk in 2 projects. Expires in 5 min.",
    )
    assert urlsplit(notice.path).fragment == "/review/appr_1"
    assert notice.seconds == 500
