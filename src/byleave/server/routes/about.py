"""The server's health and metrics, the proof of its identity, and the description of its API.

`/docs` is plain HTML without a script or anything from elsewhere: it works offline and under the strictest policy.

The proof is an HMAC keyed with the signature of the asker's token, which the asker does not send: a program that merely
occupies our port learns nothing by being asked, and cannot answer. It covers the address this server was reached at, so
that nobody can pass our answer on as theirs. Pages may not ask, not even our own.
"""

import asyncio
import base64
import hmac
import json
from html import escape
from typing import Any, cast

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from byleave.protocol.sign_in import ProofBody, ServerProof, proof_message
from byleave.protocol.wire import JsonObject, WireModel
from byleave.server.dependencies import Parts, StrictRoute, from_a_program
from byleave.server.errors import WrongForm
from byleave.server.isolation import unlogged
from byleave.server.metrics import Exposition, check_may_read
from byleave.server.problems import problems
from byleave.telemetry.prometheus import CONTENT_TYPE

from .page import html_page

router = APIRouter(route_class=StrictRoute, tags=["health"])


class Health(WireModel):
    status: str
    note: str | None = None
    """What works slowly, in a sentence."""


@router.get("/healthz", summary="Alive", response_model_exclude_none=True)
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", summary="Ready", responses=problems(503), response_model_exclude_none=True)
async def readyz(parts: Parts) -> Health:
    """The record answers and can be written, and the server is not about to stop. `note` says when news of other
    servers takes seconds: a lost bus makes no server useless."""
    await parts.check_ready()
    return Health(status="ready", note=parts.wake_ups.trouble if parts.wake_ups else None)


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=PlainTextResponse,
    responses=problems(401, 403),
    dependencies=[Depends(from_a_program)],
)
async def metrics(parts: Parts, request: Request) -> Response:
    """Text for Prometheus, counted from the first request on. Needs the bearer token of BYLEAVE_METRICS_TOKEN; when
    that is not set, only programs on the server's machine read it, and not through a proxy."""
    headers = request.headers
    authorization, host = headers.get("authorization", ""), headers.get("host", "")
    check_may_read(parts.settings.metrics_token, request.scope, authorization, host)
    exposition = await Exposition.of(parts)
    return Response(exposition.text(), headers={"content-type": CONTENT_TYPE, "cache-control": "no-store"})


@router.post(
    "/proof",
    summary="Prove which server this is",
    responses=problems(403),
    dependencies=[Depends(from_a_program)],
)
@unlogged
async def prove(parts: Parts, request: Request, body: ProofBody, response: Response) -> ServerProof:
    """Takes a token without its signature, and answers with an HMAC keyed with that signature. A client checks it
    before it sends the token itself. Refused to pages."""
    if not _signed_by_secret(body.claims):
        raise WrongForm("This is not the beginning of a token this server could have signed.")
    host, port = request.scope["server"]
    key = parts.signing.signature(body.claims)
    proof = hmac.digest(key, proof_message(body.challenge, host, port), "sha256").hex()
    response.headers["cache-control"] = "no-store"
    return ServerProof(host=host, port=port, proof=proof)


def _signed_by_secret(claims: str) -> bool:
    """True if the header says HS256: only such a token is signed with the secret."""
    head = claims.partition(".")[0]
    try:
        header: object = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except ValueError:
        return False
    return isinstance(header, dict) and cast(JsonObject, header).get("alg") == "HS256"


@router.get("/openapi.json", summary="This description", response_model=dict[str, Any])
async def description(request: Request) -> Response:
    """OpenAPI 3.1."""
    # In a thread: the first time it takes a while, and streams must not wait for it.
    text = await asyncio.to_thread(lambda: request.app.openapi_text)
    return Response(text, media_type="application/json")


@router.get("/docs", summary="This description for people", response_class=HTMLResponse)
async def docs(request: Request) -> Response:
    """HTML, without a script."""
    document = await asyncio.to_thread(request.app.openapi)
    return html_page("API", _listing(document), status=200)


def _listing(document: JsonObject) -> str:
    """All operations as HTML, grouped by tag."""
    found: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            found[operation["tags"][0]].append(_operation(f"{method.upper()} {path}", operation))
    texts = {tag["name"]: tag["description"] for tag in document["tags"]}
    listed = "".join(f"<h2>{escape(texts[tag])}</h2>{''.join(each)}" for tag, each in found.items())
    return f'<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>{listed}'


def _operation(name: str, operation: JsonObject) -> str:
    lines = [escape(operation["description"])]
    lines += [
        f"<code>{escape(one['name'])}</code> ({one['in']}{', needed' if one['required'] else ''}): "
        f"{escape(one.get('description', ''))}"
        for one in operation["parameters"]
    ]
    scopes = [" and ".join(need["bearer"]) for need in operation["security"]]
    lines.append(f"Scopes: {' or '.join(scopes)}." if scopes else "Needs no token.")
    if "requestBody" in operation:
        lines.append(f"Takes {_schemas(operation['requestBody']['content'])}.")
    lines += [
        f"{status} {escape(answer['description'])} {_schemas(answer.get('content', {}))}"
        for status, answer in operation["responses"].items()
    ]
    told = "".join(f"<p>{line}</p>" for line in lines)
    return f"<details><summary><code>{escape(name)}</code> {escape(operation['summary'])}</summary>{told}</details>"


def _schemas(content: JsonObject) -> str:
    """Names of the schemas in a body."""
    names = [one["schema"].get("$ref", kind).rpartition("/")[2] for kind, one in content.items()]
    return ", ".join(f"<code>{escape(name)}</code>" for name in names)
