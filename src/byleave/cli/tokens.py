"""`byleave token`: a signed token for a person, a machine or an agent.

Signed with the server's own secret, so it works only where that secret can be read. An agent's token that could also
approve is never made: an agent would then answer its own questions.
"""

import typer

from byleave.protocol.states import Scope
from byleave.server.auth import issue_token
from byleave.settings import ServerSettings

from .preferences import read_settings
from .screen import put_json, say

DEFAULT_SCOPES = (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE)
DAY = 24 * 3600
DEFAULT_DAYS = 30


def print_token(
    user: str, scopes: list[Scope], *, days: int | None, seconds: int | None, save: bool, as_json: bool
) -> None:
    """Print the token, and nothing else, on stdout."""
    wanted = list(dict.fromkeys(scopes)) or list(DEFAULT_SCOPES)
    if Scope.AGENT in wanted and Scope.APPROVE in wanted:
        raise typer.BadParameter(
            "an agent never approves its own requests, so `agent` and `approve` do not go together",
            param_hint="--scope",
        )
    if days is not None and seconds is not None:
        raise typer.BadParameter("give --days or --seconds, not both", param_hint="--seconds")
    lifetime = seconds if seconds is not None else (days if days is not None else DEFAULT_DAYS) * DAY
    settings = read_settings(ServerSettings)
    token = issue_token(settings, user, wanted, lifetime)
    if as_json:
        put_json({"token": token, "user": user, "scopes": [scope.value for scope in wanted], "seconds": lifetime})
    else:
        print(token, flush=True)
    if save:
        # Here and not above: without --save a token needs nothing of the client, which takes its time to load.
        from byleave.client.identity import save_token

        say(f"Saved in {save_token(settings.home, token)}.")
