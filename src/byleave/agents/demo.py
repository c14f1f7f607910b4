"""The story of `byleave demo`: a small project with a mistake in three files, and a scripted model that works on it.

The model plays fixed scenes through the chat agent, as any model would: it announces each scene in one line, makes its
calls, and comments on what really came back. It works from the conversation alone, so that a run can be resumed. Its
calls pass the same gate, approvals and record as all others; nothing here decides, answers or pretends. It must never
become a model that a setting names: on a project of one's own its scenes make no sense.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from byleave.protocol.wire import JsonObject

from .models import Outcome, Step, fenced, for_a_person
from .roles import DEMO

ANNOUNCED = "Next: "
"""Begins the line that announces a scene."""
GREETING = "Show me what Byleave does."
BEGIN = "Correct the discounts, and try what you may do here."
"""The message that starts the story; any other is answered with `WELCOME`."""
WELCOME = f"""\
This is the demo of Byleave. I play fixed steps; every question, refusal and record is real.

It begins with “{BEGIN}”"""

MISTAKE = "price * percent"
CORRECT = "price * percent // 100"
FIXED = ("shop/cart.py", "shop/invoice.py", "shop/voucher.py")
TEST = "test_shop.py"
CHANGED = "release.py"
"""The script that the demo changes after its approval."""
ADDED = 'print("This line came after your yes.")\n'
"""What the demo adds to it."""

DRIFTED = "changed after it was shown"
"""In the error of a call whose files are no longer the approved ones."""

_FILES = {
    "README.md": f"# Bookshop\n\nPrices of a small bookshop, in cents. `python3 {TEST}` checks them.\n",
    "shop/cart.py": '''\
"""What a cart costs."""


def total(prices, percent):
    return sum(price - price * percent for price in prices)
''',
    "shop/invoice.py": '''\
"""A line of an invoice."""


def line(title, price, percent):
    return f"{title}: {price - price * percent}"
''',
    "shop/voucher.py": '''\
"""What a voucher saves."""


def saved(price, percent):
    return price * percent
''',
    TEST: """\
from shop import cart, invoice, voucher

assert cart.total([1000, 500], percent=10) == 1350, "cart"
assert invoice.line("Emma", 1000, percent=10) == "Emma: 900", "invoice"
assert voucher.saved(1000, percent=10) == 100, "voucher"
print("All three prices are right.")
""",
    CHANGED: 'print("New in this release: discounts are right.")\n',
    ".gitignore": ".env\n__pycache__/\n",
}


def project_files() -> dict[str, str]:
    """Return the files of the project by path, with secrets in `.env` made up for this time."""
    key, password = secrets.token_hex(16), secrets.token_urlsafe(12)
    return {**_FILES, ".env": f"SHOP=Bookshop\nSTRIPE_SECRET_KEY=sk_live_{key}\nDATABASE_PASSWORD={password}\n"}


@dataclass(frozen=True, slots=True)
class Scene:
    """One response of the model: what it announces and calls, and what it says of the outcome."""

    announced: str | None
    steps: Callable[[Sequence[Outcome]], Sequence[Step]]
    """Steps of the scene, after all outcomes so far; without any, the scene is left out."""
    comment: Callable[[Sequence[Outcome]], str]
    """Comment on the outcomes of these steps."""


def _said(outcome: Outcome) -> str:
    """Return the reason of a failed call in one line."""
    return " ".join(line.strip() for line in for_a_person(outcome.text).split("\n") if line.strip())


def _only(*steps: Step) -> Callable[[Sequence[Outcome]], Sequence[Step]]:
    return lambda _: steps


def _looked(outcomes: Sequence[Outcome]) -> str:
    found = outcomes[-1]
    if found.failed:
        return f"I could not search. {_said(found)}"
    count = found.result.get("total_count", 0)
    return f"`{MISTAKE}` is in {count} files: 10 percent of 1000 would be 10000. I read them."


def _was_read(outcomes: Sequence[Outcome]) -> str:
    unread = [str(one.step.params["path"]) for one in outcomes if one.failed]
    return f"I could not read {', '.join(unread)}." if unread else "Each needs a division by 100."


def _correction(path: str) -> Callable[[Sequence[Outcome]], Sequence[Step]]:
    """Write a file as it was read, without its mistake."""

    def steps(outcomes: Sequence[Outcome]) -> Sequence[Step]:
        for one in outcomes:
            if one.step.tool_name == "read_file" and one.step.params["path"] == path and not one.failed:
                content = str(one.result.get("content", ""))
                if MISTAKE in content and CORRECT not in content:
                    return (Step("write_file", {"path": path, "content": content.replace(MISTAKE, CORRECT)}),)
        return ()

    return steps


def _corrected(outcomes: Sequence[Outcome]) -> str:
    [one] = outcomes
    path = one.step.params["path"]
    return f"Then `{path}` stays as it is. {_said(one)}" if one.failed else f"`{path}` is corrected."


def _tested(outcomes: Sequence[Outcome]) -> str:
    [one] = outcomes
    if one.failed:
        return f"Then it stays untested. {_said(one)}"
    if one.stops:
        error = str(one.result.get("stderr", "")).strip().split("\n")[-1]
        return f"The test fails, and says why: `{error}`."
    return "The test passes."


def _secrets_read(outcomes: Sequence[Outcome]) -> str:
    [one] = outcomes
    if one.failed:
        return f"Then I do without it. {_said(one)}"
    return f"This is all that I get, and all that the record keeps:\n\n{_content(one.result)}"


def _content(result: JsonObject) -> str:
    return fenced(str(result.get("content", "")))


def _deleted(outcomes: Sequence[Outcome]) -> str:
    [one] = outcomes
    return "Refused before anything ran, and nobody had to be asked." if one.failed else "It ran."


def _pushed(outcomes: Sequence[Outcome]) -> str:
    [one] = outcomes
    if one.failed:
        return f"Then nothing leaves this machine. {_said(one)}"
    if one.stops:
        error = str(one.result.get("stderr", "")).strip().split("\n")[0]
        return (
            f"You allowed it, and git failed: `{error}`. The sandbox holds this project alone; its remote is outside."
        )
    return "It is pushed."


def _released(outcomes: Sequence[Outcome]) -> str:
    [one] = outcomes
    if not one.failed:
        return "It ran as it was."
    if DRIFTED in one.text:
        return "It did not run: what you allowed is exactly what runs, or nothing does."
    return f"Then there is nothing to change behind your back. {_said(one)}"


def _run(command: str, *args: str) -> Step:
    return Step("execute_command", {"command": command, "args": list(args)})


SCENES: tuple[Scene, ...] = (
    Scene(
        "the agent looks around. Reading runs at once.",
        _only(
            Step("list_directory", {"path": ".", "recursive": True}),
            Step("search_files", {"pattern": MISTAKE, "path": "shop"}),
        ),
        _looked,
    ),
    Scene(None, _only(*(Step("read_file", {"path": path}) for path in FIXED)), _was_read),
    *(
        Scene(
            f"it corrects file {number} of {len(FIXED)}. You see the difference first.", _correction(path), _corrected
        )
        for number, path in enumerate(FIXED, 1)
    ),
    Scene("it runs the test. Your yes is for the script as you see it.", _only(_run("python3", TEST)), _tested),
    Scene("it wants to read .env, which holds secrets.", _only(Step("read_file", {"path": ".env"})), _secrets_read),
    # `rm` itself refuses to remove `.`: even if it ran, it could delete nothing.
    Scene("it wants to delete everything.", _only(_run("rm", "-rf", ".")), _deleted),
    Scene(
        "it wants to force-push over the history of others.",
        _only(_run("git", "push", "--force", "origin", "main")),
        _pushed,
    ),
    Scene(
        f"{CHANGED} is changed after your yes, before it runs. The demo plays the attacker.",
        _only(_run("python3", CHANGED)),
        _released,
    ),
)


def demo_model(pause_seconds: float = 0.0, *, end: str = "That was my part.") -> FunctionModel:
    """Return the scripted model. It pauses after each announcement, so that people can read it; `end` are its last
    words."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        said, steps = reply(messages, end)
        yield said
        if not steps:
            return
        await asyncio.sleep(pause_seconds)
        number = sum(isinstance(part, ToolCallPart) for message in messages for part in message.parts)
        for place, step in enumerate(steps):
            call_id = f"{DEMO}_{number + place + 1}"
            yield {place: DeltaToolCall(step.tool_name, json.dumps(step.params), tool_call_id=call_id)}

    return FunctionModel(stream_function=stream, model_name=DEMO)


def reply(messages: Sequence[ModelMessage], end: str) -> tuple[str, Sequence[Step]]:
    """Return what the model says next, and its next calls; without calls the story is over."""
    prompt, rounds = _rounds(messages)
    if prompt != BEGIN:
        return WELCOME, ()
    said, outcomes = "", list[Outcome]()
    for scene in SCENES:
        steps = scene.steps(outcomes)
        if not steps:
            continue
        returned = next(rounds, None)
        if returned is None:
            announced = f"{ANNOUNCED}{scene.announced}" if scene.announced else ""
            return "\n\n".join(filter(None, (said, announced))), steps
        now = [Outcome(step, failed, text) for step, (failed, text) in zip(steps, returned, strict=False)]
        said = scene.comment(now)
        outcomes += now
    return f"{said}\n\n{end}", ()


def _rounds(messages: Sequence[ModelMessage]) -> tuple[str, Iterator[list[tuple[bool, str]]]]:
    """Return the last message of the user, and after it, of each response's calls: whether it failed, and its text."""
    prompt, asked, returned = "", list[list[str]](), dict[str, tuple[bool, str]]()
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            asked += [calls] if calls else []
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                prompt, asked = part.content if isinstance(part.content, str) else "", []
            elif isinstance(part, ToolReturnPart):
                text = part.content if isinstance(part.content, str) else ""
                returned[part.tool_call_id] = (part.outcome != "success", text)
    lost = (True, "There is no result.")
    return prompt, iter([[returned.get(call, lost) for call in calls] for calls in asked])
