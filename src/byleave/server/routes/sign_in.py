"""How programs come in: a one-time link exchanged for a token, and the proof that this is the server a token is from.

Neither is open to a page, not even to our own: a page's cookie may not execute, and a link followed in a browser is a
browser's. A link gives a program no more than what asked for the link has. The proof is an HMAC keyed with the
signature of the asker's token, which the asker does not send: whoever merely holds our port learns nothing by being
asked, and cannot answer. It covers the address this server was reached at, so that nobody can pass our answer on as
theirs.
"""

import base64
import hmac
import json
from typing import cast

import structlog
from starlette.requests import Request
from starlette.responses import Response

from byleave.protocol.errors import RefusedError
from byleave.protocol.sign_in import ExchangeBody, ExchangedToken, ProofBody, ServerProof, proof_message
from byleave.protocol.states import Scope
from byleave.protocol.wire import JsonObject
from byleave.server.auth.links import PROGRAM_SECONDS
from byleave.server.auth.tokens import issue_token
from byleave.server.bodies import read_body
from byleave.server.problems import Unauthenticated, WrongForm
from byleave.server.routing import JsonAnswer, Route, parts_of

log = structlog.stdlib.get_logger(__name__)


async def exchange(request: Request) -> Response:
    """A code for a token. What stands in the way is said before the code is used up."""
    code = (await read_body(request, ExchangeBody)).code
    parts = parts_of(request)
    if parts.settings.jwks_url or parts.settings.public_key:
        raise RefusedError(
            "This server's tokens come from your identity provider, so a link gives none.", hint="Get a token there."
        )
    found = parts.sign_in.look_up(code)
    if found is None:
        parts.sign_in.count_wrong()
        raise Unauthenticated(
            "This link was used already or is too old: it works once, and for 10 minutes.",
            hint="Run `byleave link` for a new one.",
        )
    if Scope.EXECUTE not in found.scopes:
        raise RefusedError(
            "This link was made by a page, which may not execute, so it signs in a browser only.",
            hint="Run `byleave link` in a terminal, and use the link it prints.",
        )
    parts.sign_in.use(code)
    seconds = found.session_seconds(PROGRAM_SECONDS)
    scopes = sorted(found.scopes)
    log.info("a program was signed in by a link", user=found.user)
    token = issue_token(parts.settings, found.user, scopes, seconds)
    answer = JsonAnswer(ExchangedToken(token=token, user_id=found.user, scopes=scopes, expires_in_seconds=seconds))
    answer.headers["cache-control"] = "no-store"
    return answer


async def prove(request: Request) -> Response:
    """Say what only the one who signs these claims can say."""
    body = await read_body(request, ProofBody)
    if not _signed_by_secret(body.claims):
        raise WrongForm("This is not the beginning of a token this server could have signed.")
    host, port = request.scope["server"]
    key = parts_of(request).signing.signature(body.claims)
    proof = hmac.digest(key, proof_message(body.challenge, host, port), "sha256").hex()
    answer = JsonAnswer(ServerProof(host=host, port=port, proof=proof))
    answer.headers["cache-control"] = "no-store"
    return answer


def _signed_by_secret(claims: str) -> bool:
    """Whether the header says HS256: only such a token's signature is the secret's own."""
    head = claims.partition(".")[0]
    try:
        header: object = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except ValueError:
        return False
    return isinstance(header, dict) and cast(JsonObject, header).get("alg") == "HS256"


ROUTES = (
    Route(
        "POST",
        "/signin/exchange",
        exchange,
        "A token for a one-time link",
        "For programs: takes the code of a link once, and gives a token that may do what asked for the link may, and "
        "lasts no longer. Never from a page. Too many wrong codes are a 429.",
        "page",
        programs_only=True,
        body="ExchangeBody",
        answer="ExchangedToken",
        errors=(400, 401, 403, 413, 415, 429),
    ),
    Route(
        "POST",
        "/proof",
        prove,
        "Prove which server this is",
        "Takes a token without its signature, and answers with an HMAC keyed with that signature: a client looks at it "
        "before it sends the token itself. Never from a page.",
        "health",
        programs_only=True,
        body="ProofBody",
        answer="ServerProof",
        errors=(400, 403, 413, 415),
        quiet=True,
    ),
)
