"""A whole Byleave for tests that are no Python: `python -m harness.standing DIRECTORY`.

Writes one line of JSON when everything is up, and runs until stdin ends. The household's person answers nothing: the
test does, with the person's token.
"""

import asyncio
import json
import sys
from pathlib import Path

from byleave.protocol.states import Scope

from .household import open_household


async def main(directory: Path) -> None:
    async with open_household(directory, high_approval_seconds=1) as household:
        (household.workspace / "README.md").write_text("hello\n")
        print(
            json.dumps(
                {
                    "serverUrl": household.url,
                    "projectId": household.project_id,
                    "emptyProjectId": (await household.person.api.create_project("no machine")).project_id,
                    "token": household.agent_token,
                    "expiredToken": household.expired_token,
                    "personToken": household.token(Scope.CHAT, Scope.APPROVE),
                    "workspace": str(household.workspace),
                }
            ),
            flush=True,
        )
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
