"""`byleave token`: a signed token for a person, a machine or an agent.

Signed with the server's own secret, so it works only where that secret can be read. An agent's token that could also
approve or execute is never made: an agent would then answer its own questions, or report its own results.
"""

import typer

from byleave.protocol.states import AgentMode, Scope
from byleave.server.auth.tokens import issue_token
from byleave.settings import ServerSettings

from .preferences import read_settings
from .screen import put_json, say

DEFAULT_SCOPES = (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE)
DAY = 24 * 3600
DEFAULT_DAYS = 30


def print_token(
    user: str,
    scopes: list[Scope],
    *,
    days: int | None,
    seconds: int | None,
    agent: str | None,
    mode: AgentMode | None,
    save: bool,
    as_json: bool,
) -> None:
    """Print the token, and nothing else, on stdout."""
    is_agents = agent is not None or mode is not None
    wanted = list(dict.fromkeys(scopes)) or ([Scope.AGENT] if is_agents else list(DEFAULT_SCOPES))
    if is_agents and Scope.AGENT not in wanted:
        raise typer.BadParameter("--agent and --mode are for a token with the scope `agent`", param_hint="--scope")
    for scope, never in ((Scope.APPROVE, "approves its own requests"), (Scope.EXECUTE, "executes its own calls")):
        if Scope.AGENT in wanted and scope in wanted:
            raise typer.BadParameter(
                f"an agent never {never}, so `agent` and `{scope}` do not go together", param_hint="--scope"
            )
    if days is not None and seconds is not None:
        raise typer.BadParameter("give --days or --seconds, not both", param_hint="--seconds")
    lifetime = seconds if seconds is not None else (days if days is not None else DEFAULT_DAYS) * DAY
    settings = read_settings(ServerSettings)
    token = issue_token(settings, user, wanted, lifetime, agent=agent, mode=mode)
    if as_json:
        put_json({"token": token, "user": user, "scopes": [scope.value for scope in wanted], "seconds": lifetime})
    else:
        print(token, flush=True)
    if save:
        # Here and not above: without --save a token needs nothing of the client, which takes its time to load.
        from byleave.client.identity import save_token

        say(f"Saved in {save_token(settings.home, token)}.")
