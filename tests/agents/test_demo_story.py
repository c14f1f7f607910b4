"""The scripted model of the demo: what it says and calls next, from the conversation alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from byleave.agents.demo import BEGIN, FIXED, MISTAKE, WELCOME, demo_model, project_files, reply
from byleave.agents.models import Step, resolve_model
from byleave.protocol.errors import ConfigurationError

pytestmark = pytest.mark.promise("L9")
Answers = Mapping[str, tuple[bool, str]]
"""By path or command: whether it works, and its text."""


def play(answers: Answers) -> list[tuple[str, Sequence[Step]]]:
    """All rounds of the story with these answers; without one, a call works as on the machine."""
    files = project_files()
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(BEGIN)])]
    rounds: list[tuple[str, Sequence[Step]]] = []
    number = 0
    while True:
        said, steps = reply(messages, "The end.")
        rounds.append((said, steps))
        if not steps:
            return rounds
        calls: list[ToolCallPart] = []
        returns: list[ToolReturnPart] = []
        for step in steps:
            number += 1
            place = step.params.get("path", step.params.get("command"))
            works, text = answers.get(f"{step.tool_name} {place}", (True, _result(step, files)))
            calls.append(ToolCallPart(step.tool_name, dict(step.params), tool_call_id=str(number)))
            outcome = "success" if works else "failed"
            returns.append(ToolReturnPart(step.tool_name, text, tool_call_id=str(number), outcome=outcome))
        messages += [ModelResponse(parts=[TextPart(said), *calls]), ModelRequest(parts=list(returns))]


def _result(step: Step, files: dict[str, str]) -> str:
    result: dict[str, Any] = {"success": True}
    if step.tool_name == "read_file":
        result["content"] = files[step.params["path"]]
    elif step.tool_name == "execute_command":
        result["exit_code"] = 0
    elif step.tool_name == "search_files":
        result["total_count"] = 3
    return json.dumps(result)


def _texts(answers: Answers) -> str:
    return "\n".join(said for said, _ in play(answers))


def test_mistake_is_corrected_in_what_was_read() -> None:
    writes = [step for _, steps in play({}) for step in steps if step.tool_name == "write_file"]
    assert [step.params["path"] for step in writes] == list(FIXED)
    files = project_files()
    for step in writes:
        before, after = files[step.params["path"]], step.params["content"]
        assert after.replace(" // 100", "") == before
        assert before.count(MISTAKE) == 1


def test_file_that_is_corrected_already_or_unread_is_left_out() -> None:
    fine = json.dumps({"success": True, "content": f"{MISTAKE} // 100"})
    answers = {f"read_file {FIXED[0]}": (False, "Denied."), f"read_file {FIXED[1]}": (True, fine)}
    writes = [step for _, steps in play(answers) for step in steps if step.tool_name == "write_file"]
    assert [step.params["path"] for step in writes] == [FIXED[2]]
    assert f"I could not read {FIXED[0]}." in _texts(answers)


@pytest.mark.parametrize(
    ("call", "answer", "said"),
    [
        ("search_files shop", (False, "No."), "I could not search. No."),
        (f"write_file {FIXED[0]}", (False, "Rejected by the user: mine"), "stays as it is. You denied it: mine"),
        ("execute_command python3", (False, "Approval timeout"), "Then it stays untested. Approval timeout"),
        ("read_file .env", (False, "Approval timeout"), "Then I do without it. Approval timeout"),
        ("execute_command git", (True, '{"exit_code": 0}'), "It is pushed."),
        ("execute_command git", (True, '{"exit_code": 1, "stderr": "fatal: no"}'), "git failed: `fatal: no`"),
        ("execute_command rm", (False, "Command not allowed: rm"), "Refused before anything ran"),
        # What cannot happen is not passed over in silence.
        ("execute_command rm", (True, '{"exit_code": 0}'), "It ran."),
        ("execute_command python3", (True, '{"exit_code": 0}'), "It ran as it was."),
        ("execute_command python3", (False, "'release.py' changed after it was shown; nothing was run."), "exactly"),
    ],
)
def test_comment_is_about_what_came_back(call: str, answer: tuple[bool, str], said: str) -> None:
    assert said in _texts({call: answer})


def test_story_goes_to_its_end_whatever_is_answered() -> None:
    calls: tuple[str, ...] = (
        "search_files shop",
        "write_file shop/cart.py",
        "read_file .env",
        "execute_command python3",
    )
    nothing: Answers = dict.fromkeys(calls, (False, "No."))
    for answers in ({}, nothing):
        assert play(answers)[-1][0].endswith("The end.")


def test_any_other_message_is_told_how_to_begin() -> None:
    assert reply([ModelRequest(parts=[UserPromptPart("hello")])], "The end.") == (WELCOME, ())


def test_no_setting_names_it() -> None:
    with pytest.raises(ConfigurationError, match="There is no model 'demo'"):
        resolve_model(demo_model().model_name)


def test_secrets_are_made_up_anew_each_time() -> None:
    assert project_files()[".env"] != project_files()[".env"]
