"""Outcome: what became of one try to send a notice, told by the status of the answer alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byleave.protocol.errors import RefusedError

if TYPE_CHECKING:
    import aiohttp

SECONDS = 10
"""Longest that one try takes."""
GONE = (404, 410)
AGAIN = (408, 425, 429)


@dataclass(frozen=True)
class Outcome:
    """What became of one try."""

    delivered: bool
    detail: str | None = None
    again: bool = False
    """True if another try may succeed."""
    gone: bool = False
    """True if nobody is there any more."""


async def posted(session: "aiohttp.ClientSession", url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
    """Post once. Nothing of the answer's body is read, and nothing of an error is told that could quote the address."""
    import aiohttp

    try:
        async with session.post(
            url, headers=headers, data=body, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=SECONDS)
        ) as response:
            status = response.status
            response.close()
    except RefusedError:  # by the resolver; its message would tell users where names of our network lead
        return Outcome(delivered=False, detail="Its name leads to an address that is not contacted.")
    except TimeoutError:
        return Outcome(delivered=False, detail=f"No answer within {SECONDS} s.", again=True)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Outcome(delivered=False, detail=f"It could not be reached ({type(error).__name__}).", again=True)
    if 200 <= status < 300:
        return Outcome(delivered=True)
    return Outcome(
        delivered=False,
        detail=f"It answered with status {status}.",
        again=status >= 500 or status in AGAIN,
        gone=status in GONE,
    )
