"""`byleave token`: a signed token for a person, a machine or an agent.

It is signed with the server's secret, so it works only where that secret can be read. An agent's token never also
approves or executes: the agent would answer its own questions, or report its own results.
"""

import getpass
from typing import Annotated

import typer

from byleave.protocol.states import AgentMode, Scope
from byleave.server.auth.tokens import issue_token
from byleave.settings import ServerSettings

from .options import AsJson, new_app
from .process import read_settings
from .screen import put_json, say

app = new_app()


DEFAULT_SCOPES = (Scope.CHAT, Scope.APPROVE, Scope.EXECUTE)
DAY = 24 * 3600
DEFAULT_DAYS = 30


def user_name() -> str:
    """Return the name of the person who started it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such entry, as in some containers
        return "me"


@app.command()
def token(
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose token it is; left out: you, as `byleave up` names you.")
    ] = None,
    scope: Annotated[list[Scope] | None, typer.Option(help="What it may do; give it again for more.")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="How long it lasts; left out: 30 days.")] = None,
    seconds: Annotated[
        int | None,
        typer.Option(min=1, help="How long it lasts, in seconds; accepted 5 seconds longer, for clocks that differ."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="An agent's token: what people see and the record keeps of it.")
    ] = None,
    mode: Annotated[
        AgentMode | None, typer.Option(help="The most this agent may do without asking; left out: sandbox.")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Also keep it for the other commands of this machine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a signed token.

    Signed with the server's secret: the one in BYLEAVE_SECRET, or the one kept in BYLEAVE_HOME. Without --scope: chat,
    approve and execute, all that a person needs. A token with `agent` never approves and never executes; each one is an
    agent of its own, with its own conversation and grants.

    \b
    Example:
      byleave token --user alice
      byleave token --scope agent
      byleave token --user alice --agent nightly --days 7
    """
    is_agents = agent is not None or mode is not None
    wanted = list(dict.fromkeys(scope or [])) or ([Scope.AGENT] if is_agents else list(DEFAULT_SCOPES))
    if is_agents and Scope.AGENT not in wanted:
        raise typer.BadParameter("--agent and --mode are for a token with the scope `agent`", param_hint="--scope")
    for one, never in ((Scope.APPROVE, "approves its own requests"), (Scope.EXECUTE, "executes its own calls")):
        if Scope.AGENT in wanted and one in wanted:
            raise typer.BadParameter(
                f"an agent never {never}, so `agent` and `{one}` do not go together", param_hint="--scope"
            )
    if days is not None and seconds is not None:
        raise typer.BadParameter("give --days or --seconds, not both", param_hint="--seconds")
    lifetime = seconds if seconds is not None else (days if days is not None else DEFAULT_DAYS) * DAY
    settings = read_settings(ServerSettings)
    if user is None:
        user = user_name()
        say(f"For {user!r}; --user names another.")
    made = issue_token(settings, user, wanted, lifetime, agent=agent, mode=mode)
    if as_json:
        put_json({"token": made, "user": user, "scopes": [one.value for one in wanted], "seconds": lifetime})
    else:
        print(made, flush=True)
    if save:
        # Imported late: without --save a token needs nothing of the client, which is slow to load.
        from byleave.client.identity import save_token

        say(f"Saved in {save_token(settings.home, made)}.")
