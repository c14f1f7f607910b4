"""The published schema holds for what the server really says and takes."""

import asyncio
import copy
from collections.abc import Iterator

import jsonschema
import pytest

from byleave.protocol.states import Scope
from byleave.server import openapi_document
from harness.http_server import Answer, Server, StartServer
from harness.json_values import Json, JsonObject
from harness.push_service import PushService

DOCUMENT = openapi_document()
DIGEST = "0" * 64
SAMPLES: JsonObject = {
    "ProjectBody": {"name": "x", "if_none": False},
    "MessageBody": {"content": "hello"},
    "ApproveBody": {"decision": "approved", "scope": "class", "terms": {"rule": {"tool": "write_file"}}},
    "RejectBody": {"reason": "no"},
    "ConfirmBody": {"decision": "approved"},
    "EditBody": {"digest": DIGEST, "content": "x", "timeout": 1},
    "CompletedReport": {"status": "completed", "result": {}, "duration_ms": 1},
    "OutputChunk": {"stream": "stdout", "text": "x", "sequence": 0},
    "QueueReport": {"tool_ids": ["exec_1"]},
    "ResultBatch": {"results": [{"tool_id": "exec_1", "report": {"status": "completed", "result": {}}}]},
    "Inspection": {"files": [{"path": "a", "sha256": DIGEST, "size": 1, "shortened": False}]},
    "UndoBody": {"plan": DIGEST, "partial": False},
    "SessionTitle": {"title": "Release 2"},
    "SessionUndoReport": {
        "request_id": "undoreq_1",
        "tool_id": "exec_1",
        "undone": [{"tool_id": "exec_1", "undo_id": "undo_1", "files": 1}],
        "done": False,
        "begun": False,
    },
    "UndoReport": {"request_id": "undoreq_1", "done": False, "begun": False},
    "GrantPreviewBody": {"rule": {"tool": "write_file", "exact": False, "paths": ["src/**"]}},
    "PolicyDeclaration": {
        "client_id": "c1",
        "layers": [{"layer": "project", "source": "a file", "text": "", "trusted": False}],
    },
    "CheckBody": {"tool_name": "read_file", "tool_params": {"path": "a"}},
    "ExecuteRequest": {"tool_name": "read_file", "tool_params": {"path": "a"}},
    "PushDeviceBody": {**PushService("https://push.example.com").subscription()},
    "ExchangeBody": {"code": "x"},
    "SignInFinishBody": {"ticket": "x", "code": "x", "state": "x", "iss": "x"},
    "ProofBody": {"claims": "a.b", "challenge": DIGEST},
}
IDS = {name: f"{name[:4]}_1" for name in ("tool_id", "approval_id", "run_id", "grant_id", "session_id", "device_id")}


def _operations() -> Iterator[tuple[str, str, JsonObject]]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation


def _holds(schema: JsonObject, value: Json) -> bool:
    whole = {**schema, "components": DOCUMENT["components"]}
    return jsonschema.Draft202012Validator(whole).is_valid(value)


def _check(method: str, path: str, answer: Answer) -> None:
    """Hold an answer against what the operation declares."""
    declared = DOCUMENT["paths"][path][method.lower()]["responses"]
    assert str(answer.status) in declared, (method, path, answer.status, answer.text[:200])
    content = declared[str(answer.status)].get("content", {})
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    if answer.status >= 400 or kind == "application/json":
        assert kind in content, (method, path, kind)
        assert _holds(content[kind]["schema"], answer.json), (method, path, answer.text[:300])


def _body_schema(operation: JsonObject) -> JsonObject:
    return operation["requestBody"]["content"]["application/json"]["schema"]


def _sample(operation: JsonObject) -> Json:
    schema = _body_schema(operation)
    name = schema.get("$ref", "/CompletedReport").rpartition("/")[2]
    return copy.deepcopy(SAMPLES[name])


def _wrong(value: Json) -> Iterator[Json]:
    """The same with one value of another type: JSON that Python or a lenient library would take for it."""
    if isinstance(value, dict):
        for key, item in value.items():
            for other in _wrong(item):
                yield {**value, key: other}
        yield {**value, "no such field": 1}
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for other in _wrong(item):
                yield [*value[:place], other, *value[place + 1 :]]
    elif isinstance(value, bool):
        yield from (int(value), str(value).lower())
    elif isinstance(value, int):
        yield from (str(value), True)
    elif isinstance(value, str):
        yield 0


async def test_every_kind_of_error_body_is_a_problem_as_described(server: Server, start_server: StartServer) -> None:
    alice, agent = server.user(), server.user(scopes=(Scope.AGENT,))
    project = await alice.project()
    tool_id, approval_id = await alice.question(project)
    decide = {"decision": "approved"}
    assert (await alice.post(f"/my/approvals/{approval_id}/confirm", decide)).status == 200
    json = {"Content-Type": "application/json"}
    confirm = "/my/approvals/{approval_id}/confirm"
    asked = [
        (400, "POST", "/my/projects", alice.post("/my/projects", {"name": 1})),
        (400, "POST", "/my/projects", alice.post("/my/projects", data=b"{", headers=json)),
        (400, "GET", "/my/tools/history", alice.get("/my/tools/history?limit=x")),
        (401, "GET", "/my/projects", alice.get("/my/projects", headers={"Authorization": ""})),
        (403, "POST", confirm, agent.post(f"/my/approvals/{approval_id}/confirm", decide)),
        (404, "GET", "/my/tools/{tool_id}", alice.get("/my/tools/exec_1")),
        (409, "POST", confirm, alice.post(f"/my/approvals/{approval_id}/confirm", {"decision": "rejected"})),
        (413, "POST", "/my/projects", alice.post("/my/projects", {"name": "x" * 2_000_000})),
        (415, "POST", "/my/projects", alice.post("/my/projects", data=b"x", headers={"Content-Type": "a/b"})),
        (421, "GET", "/healthz", alice.get("/healthz", headers={"Host": "evil.example"})),
        (404, "GET", "/page/{name}", alice.get("/page/nothing.js")),
        (401, "GET", "/signin", alice.get("/signin?code=x", headers={"Authorization": ""})),
        (401, "POST", "/signin/exchange", alice.post("/signin/exchange", {"code": "x"})),
    ]
    for status, method, path, answering in asked:
        answer = await answering
        assert answer.status == status, (path, answer.text)
        _check(method, path, answer)
    for answer in (await alice.get("/nothing"), await alice.ask("PATCH", "/my/me")):
        assert _holds({"$ref": "#/components/schemas/Problem"}, answer.json)
    assert not _holds({"$ref": "#/components/schemas/Problem"}, {"title": "no status"})
    _check("GET", "/my/tools/{tool_id}", await alice.get(f"/my/tools/{tool_id}"))


async def test_what_the_schema_refuses_the_server_refuses(server: Server) -> None:
    alice = server.user()
    ids = {**IDS, "project_id": await alice.project(), "name": "x"}
    client = {"Byleave-Client": "laptop"}
    tried = 0
    for method, path, operation in _operations():
        if "requestBody" not in operation:
            continue
        user = server.user(scopes=(Scope.AGENT,)) if path == "/my/tools/execute" else alice
        assert _holds(_body_schema(operation), _sample(operation)), path
        for body in _wrong(_sample(operation)):
            if _holds(_body_schema(operation), body):
                continue  # free JSON, such as the parameters of a call
            answer = await user.send(method, path.format(**ids), body, headers=client)
            assert answer.status == 400, (path, body, answer.text[:200])
            _check(method, path, answer)
            tried += 1
    assert tried > 40


async def test_parameters_are_bounded_and_needed_as_the_schema_says(server: Server, start_server: StartServer) -> None:
    alice = server.user()
    ids = {**IDS, "project_id": await alice.project(), "name": "x"}
    seen: set[str] = set()
    for method, path, operation in _operations():
        for one in operation["parameters"]:
            schema = one["schema"]
            wrong = None
            if one["in"] == "query" and schema.get("type") == "boolean":
                wrong = [0, 1, "yes", "on", ""]
            elif one["in"] == "query" and "maximum" in schema:
                wrong = [schema["maximum"] + 1]
            for value in wrong or ():
                answer = await alice.ask(method, f"{path.format(**ids)}?{one['name']}={value}")
                assert answer.status == 400, (path, one["name"], value)
                _check(method, path, answer)
                seen.add(one["name"])
            if one["in"] == "header" and one["required"]:
                answer = await alice.send(method, path.format(**ids), _sample(operation))
                assert (answer.status, one["name"] in answer.json["detail"]) == (400, True), (path, answer.text)
                seen.add(one["name"])
    assert seen >= {"wait", "execute", "reveal", "all", "limit", "Byleave-Client"}


async def test_the_longest_wait_is_that_of_the_server(start_server: StartServer) -> None:
    server = await start_server(max_wait_seconds=7)
    alice = server.user()
    described = (await alice.get("/openapi.json")).json
    (wait,) = [one for one in described["paths"]["/my/tools/{tool_id}"]["get"]["parameters"] if one["name"] == "wait"]
    assert wait["schema"]["maximum"] == 7
    tool_id, _ = await alice.question(await alice.project())
    assert (await alice.get(f"/my/tools/{tool_id}?wait=7.5")).status == 400


@pytest.mark.parametrize("page", ["", "?limit=1"])
async def test_answers_are_as_described(server: Server, page: str) -> None:
    alice = server.user()
    project = await alice.project()
    session = (await alice.post(f"/my/projects/{project}/chat/messages", {"content": "hello"})).json["session_id"]
    tool_id, approval_id = await alice.question(project)
    ids = {"project_id": project, "tool_id": tool_id, "approval_id": approval_id, "session_id": session}
    ids |= {"name": "x", "path": "mcp"}
    passed = 0
    for method, path, operation in _operations():
        streams = "text/event-stream" in str(operation["responses"].get("200"))
        if method != "GET" or streams or path.startswith(("/mcp", "/sign", "/.well-known")):
            continue
        query = f"?session_id={session}" if path.endswith(("/messages", "/runs")) else ""
        query = "?query=x" if path.endswith("/search") else query
        if page and any(one["name"] == "limit" for one in operation["parameters"]):
            query = f"{query}{'&' if query else '?'}limit=1"
        async with asyncio.timeout(20):
            answer = await alice.get(path.format(**ids) + query)
        _check(method, path, answer)
        passed += answer.status == 200
    assert passed > 15


async def test_people_read_the_same_without_a_script_or_anything_from_elsewhere(server: Server) -> None:
    page = await server.user().get("/docs", headers={"Authorization": ""})
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert "<script" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    for method, path, operation in _operations():
        assert f"<code>{method} {path}</code>" in page.text
        assert operation["summary"].replace("'", "&#x27;") in page.text
