"""Notice: what is told of questions that wait, in words.

It passes other people's servers and shows on locked screens. So it tells that something waits and the level; more only
as the operator allows by BYLEAVE_NOTIFY_DETAIL, and never a file's content. Who reads it can decide nothing by it: its
link leads to the page, where a person must be signed in.
"""

from dataclasses import dataclass
from typing import Literal

from byleave.gate import mask_text, safe_text
from byleave.protocol.states import RiskLevel
from byleave.store.notices import Waiting

Detail = Literal["level", "project", "request"]
LONGEST_NAME = 60
LONGEST_REQUEST = 160
LEVELS = {RiskLevel.LOW: "Low risk", RiskLevel.MEDIUM: "Medium risk", RiskLevel.HIGH: "High risk"}
RANKS = list(LEVELS)


@dataclass(frozen=True)
class Notice:
    """A notice to one person, ready to be sent."""

    title: str
    text: str
    path: str
    """Of the page, where it leads to."""
    seconds: int
    """It is of use for so long."""
    count: int = 0
    level: RiskLevel | None = None


TEST = Notice("Byleave: a test", "Notifications work. Nothing waits for you.", "/", 60)


def notice_of(waiting: list[Waiting], detail: Detail) -> Notice:
    """The notice of questions that wait for the same person, oldest first."""
    oldest, count = waiting[0], len(waiting)
    level = max((each.risk_level for each in waiting), key=RANKS.index)
    level_words = LEVELS[level] if count == 1 else f"Highest: {LEVELS[level].lower()}"
    about = ""
    projects = sorted({_line(each.project, LONGEST_NAME) for each in waiting})
    if detail != "level":
        about = f" in {projects[0]}" if len(projects) == 1 else f" in {len(projects)} projects"
    if detail == "request" and count == 1:
        about += f": {_line(mask_text(oldest.description), LONGEST_REQUEST)}"
    soonest = min(each.seconds_left for each in waiting)
    text = f"{level_words}{about}. {_time_left(soonest)}"
    return Notice(
        f"Byleave: {count} to review",
        text,
        f"/#/review/{oldest.approval_id}",
        max(1, int(max(each.seconds_left for each in waiting))),
        count,
        level,
    )


def _time_left(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"Expires in {minutes} min." if minutes >= 2 else "Expires in about a minute."


def _line(text: str, limit: int) -> str:
    line = safe_text(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
