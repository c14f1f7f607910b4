"""Nobody sees or touches what is another user's, on any route there is; and every route is open to its scopes alone."""

import re

import pytest

from byleave.protocol.states import Scope
from byleave.server import create_app, openapi_document
from byleave.server.dependencies import Allow, Anyone, StrictRoute
from byleave.settings import ServerSettings
from harness.http_server import Answer, Server, User
from harness.json_values import JsonObject
from harness.push_service import PushService

BEHIND_A_TOKEN = ("/my", "/mcp")
ROUTES = [*create_app(ServerSettings()).routes]
PRIVATE = [route for route in ROUTES if isinstance(route, StrictRoute) and route.path.startswith(BEHIND_A_TOKEN)]
DESCRIBED: JsonObject = openapi_document()["paths"]
WITHOUT_IDS = (
    *("/my/projects", "/my/me", "/my/signin", "/my/signin/phone", "/mcp"),
    *("/my/notices", "/my/notices/devices", "/my/notices/test"),
)
SUBSCRIPTION: JsonObject = PushService("https://push.example.com").subscription()
BODIES: JsonObject = {
    "ProjectBody": {"name": "x"},
    "MessageBody": {"content": "hello"},
    "ApproveBody": {"decision": "approved"},
    "RejectBody": {},
    "ConfirmBody": {"decision": "approved"},
    "EditBody": {"digest": "0" * 64, "content": "x"},
    "ResultReport": {"status": "completed", "result": {}},
    "OutputChunk": {"stream": "stdout", "text": "x", "sequence": 0},
    "QueueReport": {"tool_ids": ["exec_1"]},
    "ResultBatch": {"results": [{"tool_id": "exec_1", "report": {"status": "completed", "result": {}}}]},
    "Inspection": {"files": []},
    "UndoBody": {"plan": "0" * 64},
    "UndoReport": {"request_id": "undoreq_1"},
    "SessionTitle": {"title": "x"},
    "SessionUndoReport": {"request_id": "undoreq_1", "tool_id": "exec_1"},
    "GrantPreviewBody": {"rule": {"tool": "write_file", "paths": ["src/**"]}},
    "PolicyDeclaration": {"client_id": "c1", "layers": []},
    "CheckBody": {"tool_name": "read_file", "tool_params": {"path": "a"}},
    "PushDeviceBody": SUBSCRIPTION,
    "ExecuteRequest": {"tool_name": "read_file", "tool_params": {"path": "a"}},
}


def _method(route: StrictRoute) -> str:
    assert route.methods is not None
    (method,) = route.methods
    return method


def _name(route: StrictRoute) -> str:
    return f"{_method(route)} {route.path}"


def _body(route: StrictRoute) -> str | None:
    """The word a route takes, by its name."""
    content = DESCRIBED[route.path][_method(route).lower()].get("requestBody", {}).get("content")
    if content is None:
        return None
    schema = content["application/json"]["schema"]
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else "ResultReport"


@pytest.mark.promise("R-user")
def test_every_route_behind_a_token_says_who_may_call_it_and_no_other_does() -> None:
    for route in ROUTES:
        assert isinstance(route, StrictRoute)
        assert (route.allow is not None) is route.path.startswith(BEHIND_A_TOKEN), _name(route)
        assert route.allow is None or route.allow.scopes, _name(route)


def test_a_private_route_that_does_not_say_who_may_call_it_cannot_be_made() -> None:
    async def endpoint() -> None: ...

    async def asks(principal: Anyone) -> None: ...

    for path in ("/my/things", "/mcp", "/my/{name}"):
        with pytest.raises(TypeError, match="who may call it"):
            StrictRoute(path, endpoint)
    with pytest.raises(TypeError, match="who may call it"):
        StrictRoute("/things", asks)
    allow = StrictRoute("/my/things", asks).allow
    assert isinstance(allow, Allow)


@pytest.mark.promise("R-user")
async def test_a_path_that_only_looks_like_another_opens_nothing(server: Server) -> None:
    for path in ("/mcp%0A", "/my/me%0A", "/my%0A"):
        answer = await server.user().get(path, headers={"Authorization": ""})
        assert answer.status in (401, 404), path


async def _things_of(alice: User) -> dict[str, str]:
    project = await alice.project()
    accepted = await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})
    tool_id, approval_id = await alice.question(project)
    _, allowed = await alice.question(project, "src/a.txt")
    terms = {"rule": BODIES["GrantPreviewBody"]["rule"]}
    answer = await alice.post(
        f"/my/approvals/{allowed}/confirm", {"decision": "approved", "scope": "class", "terms": terms}
    )
    return {
        "project_id": project,
        "grant_id": answer.json["grant_id"],
        "session_id": accepted.json["session_id"],
        "run_id": accepted.json["run_id"],
        "tool_id": tool_id,
        "approval_id": approval_id,
        "device_id": (await alice.post("/my/notices/devices", SUBSCRIPTION)).json["id"],
    }


def _unknown(things: dict[str, str]) -> dict[str, str]:
    return {name: re.sub(r"_.*", "_" + "0" * 32, value) for name, value in things.items()}


async def _try(user: User, route: StrictRoute, things: dict[str, str]) -> Answer:
    path = route.path.format(**things)
    if _method(route) == "GET":
        query = f"?session_id={things['session_id']}" if route.path.endswith(("/messages", "/runs")) else ""
        if route.path.endswith("/search"):
            query = "?query=x"
        if route.path in ("/my/tools/history", "/my/approvals", "/my/grants"):
            query = f"?project_id={things['project_id']}"
        return await user.get(path + query)
    name = _body(route)
    body = dict(BODIES[name]) if name else None
    if name == "SessionUndoReport":
        body = {**BODIES["SessionUndoReport"], "tool_id": things["tool_id"]}
    if name == "ExecuteRequest":
        body = {**BODIES["ExecuteRequest"], "project_id": things["project_id"]}
    needs_client = route.path.endswith(("/queued", "/undo-report"))
    return await user.send(_method(route), path, body, headers={"Byleave-Client": "c1"} if needs_client else {})


@pytest.mark.promise("S5", "R-user")
async def test_another_users_ids_are_404_on_every_route_just_like_unknown_ones(server: Server) -> None:
    alice, bob = server.user(), server.user("bob", tuple(Scope)[:3])
    agent = server.user("bob", (Scope.AGENT,))
    things = await _things_of(alice)
    unknown = _unknown(things)
    # Also with one's own project in the path and another user's ids behind it.
    mixed = {**things, "project_id": await bob.project()}
    tried = 0
    for route in PRIVATE:
        if route.path in WITHOUT_IDS:
            continue
        asks = agent if route.path == "/my/tools/execute" else bob
        foreign, none = await _try(asks, route, things), await _try(asks, route, unknown)
        assert (foreign.status, none.status) == (404, 404), _name(route)
        for name, value in things.items():
            foreign_text = foreign.text.replace(value, f"<{name}>")
            assert foreign_text.replace(value, "") == foreign_text
        assert _plain(foreign.text) == _plain(none.text), _name(route)
        if re.search(r"\{(tool_id|approval_id|run_id|grant_id|session_id|device_id)\}", route.path):
            assert (await _try(bob, route, mixed)).status == 404, _name(route)
        tried += 1
    assert tried == len([route for route in PRIVATE if route.path not in WITHOUT_IDS]) > 20
    assert (await alice.get(f"/my/tools/{things['tool_id']}")).json["status"] == "awaiting_approval"
    for path in ("/my/projects", "/my/approvals", "/my/tools/history", "/my/grants?all=true"):
        assert things["project_id"] not in (await bob.get(path)).text


def _plain(text: str) -> str:
    """An answer without the id that was asked for."""
    return re.sub(r"(proj|sess|run|exec|appr|grant|device)_[0-9a-f]+", "ID", text)


@pytest.mark.promise("R-user")
async def test_every_route_needs_a_token_and_one_of_its_scopes(server: Server) -> None:
    alice = server.user()
    things = _unknown(await _things_of(alice))
    nobody = server.user(scopes=())
    for route in PRIVATE:
        path = route.path.format(**things)
        anonymous = await server.user().ask(_method(route), path, headers={"Authorization": ""})
        assert anonymous.status == 401, _name(route)
        assert (await _try(nobody, route, things)).status == 403, _name(route)
        assert route.allow is not None
        for scope in Scope:
            answer = await _try(server.user("carol", (scope,)), route, things)
            if scope in route.allow.scopes and len(route.allow.choices) == 1:
                assert answer.status not in (401, 403), (_name(route), scope)
            else:
                assert answer.status == 403, (_name(route), scope)
                assert answer.json["hint"]


@pytest.mark.promise("R-user")
async def test_what_is_a_persons_is_closed_to_every_token_that_carries_agent(server: Server) -> None:
    things = await _things_of(server.user())
    agent = server.user("alice", (Scope.CHAT, Scope.APPROVE, Scope.AGENT))
    closed = [route for route in PRIVATE if route.allow is not None and route.allow.people_only]
    names = {route.path.rpartition("/")[2] for route in closed}
    assert names >= {"check", "policy", "audit", "verify", "signin", "whole", "grants", "preview"}
    for route in closed:
        assert (await _try(agent, route, things)).status == 403, _name(route)
        if not route.path.endswith("/stream"):  # to a person it has no end
            assert (await _try(server.user(), route, things)).status in (200, 202, 404, 409, 429, 503), _name(route)


async def test_wrong_method_is_405_and_unknown_paths_are_404_only_for_those_who_are_known(server: Server) -> None:
    alice = server.user()
    for route in PRIVATE:
        answer = await alice.ask("PATCH", route.path.format(**_any_ids()))
        assert answer.status == 405, _name(route)
        assert _method(route) in answer.headers["Allow"]
    for path in (
        "/my",
        "/my/",
        "/my/nothing",
        "/my/projects/",
        "/my//projects",
        "/my/projects/x/tools//result",
        "/mcp/",
        "/mcp/x/y",
    ):
        assert (await alice.get(path)).status == 404, path
        assert (await alice.get(path, headers={"Authorization": ""})).status == 401, path
    assert (await alice.get("/nothing")).status == 404
    assert (await alice.ask("DELETE", "/healthz")).status == 405


def _any_ids() -> dict[str, str]:
    return dict.fromkeys(("project_id", "tool_id", "approval_id", "run_id", "session_id", "grant_id", "device_id"), "x")
