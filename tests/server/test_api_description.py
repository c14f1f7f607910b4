"""The OpenAPI description: complete, and true."""

import json
import re

from byleave.protocol import engine
from byleave.protocol.schema import wire_words
from byleave.protocol.states import Scope
from byleave.server import create_app, openapi_document
from byleave.settings import ServerSettings
from harness.http_server import Server
from harness.json_values import JsonObject


def _operations() -> list[tuple[str, str, JsonObject]]:
    document = openapi_document()
    return [(path, method, one) for path, methods in document["paths"].items() for method, one in methods.items()]


def test_every_route_is_described_with_its_errors() -> None:
    operations = _operations()
    assert len(operations) == len(create_app(ServerSettings()).routes)
    for path, method, operation in operations:
        name = f"{method} {path}"
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        statuses = set(operation["responses"])
        assert {"421", "500"} <= statuses, name
        if path.startswith("/my"):
            assert {"401", "403", "429"} <= statuses, name
            assert {next(iter(need))[:6] for need in operation["security"]} == {"bearer"}, name
        if "requestBody" in operation:
            assert {"400", "408", "413", "415", "429"} <= statuses, name
        if "{project_id}" in path:
            assert "404" in statuses, name
        for status, response in operation["responses"].items():
            if status.isdigit() and int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], name
        named = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        assert sorted(named) == sorted(re.findall(r"\{(\w+)\}", path)), name


def test_operations_have_names_of_their_own_and_references_lead_somewhere() -> None:
    document = openapi_document()
    names = [operation["operationId"] for _, _, operation in _operations()]
    assert len(names) == len(set(names))
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert referred <= set(document["components"]["schemas"])
    assert "$defs" not in json.dumps(document)
    local = {name for name, word in wire_words().items() if word.__module__ == engine.__name__}
    assert set(wire_words()) - local <= set(document["components"]["schemas"])
    assert not local & set(document["components"]["schemas"])
    assert all(f"`{scope}`" in document["components"]["securitySchemes"]["bearer"]["description"] for scope in Scope)


async def test_server_serves_its_own_description(server: Server) -> None:
    answer = await server.user().get("/openapi.json", headers={"Authorization": ""})
    assert answer.json == openapi_document()
