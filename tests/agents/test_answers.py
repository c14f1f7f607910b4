"""How the offline agent words its results."""

import json

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart

from byleave.adapters.calls import ADVICE
from byleave.agents.models import Outcome, Step, answer, find_field, help_text, respond, understand
from byleave.protocol.states import ErrorType


def told(message: str, **result: object) -> str:
    [step] = understand(message).steps
    return answer([Outcome(step, failed=False, text=json.dumps({"success": True, **result}))], 0)


def test_long_file_is_summarised_by_its_size() -> None:
    content = "\n".join(f"line {number}" for number in range(5000))
    text = told("read a.txt", content=content, encoding="utf-8", size=len(content), total_lines=5000)
    assert text.startswith("`a.txt` has 5,000 lines, 48,889 bytes. It begins:\n\n```\nline 0\n")
    assert len(text) < 3000


def test_file_cannot_close_the_fence_it_is_quoted_in() -> None:
    assert told("read a.md", content="```\nx\n````\n") == "`a.md`:\n\n`````\n```\nx\n````\n`````"


def test_one_enormous_line_is_cut() -> None:
    assert len(told("read a.txt", content="x" * 90_000, size=90_000)) < 5000


def test_image_is_told_by_its_size() -> None:
    assert (
        told("read a.png", content="aGk=", encoding="base64", size=1234)
        == "`a.png` is an image or a PDF of 1,234 bytes."
    )


def test_empty_results_are_told() -> None:
    assert told("read a.txt", content="", size=0) == "`a.txt` is empty."
    assert told("list src", files=[]) == "There is nothing in `src`."
    assert told("search x", matches=[]) == "I found no “x”."
    assert (
        told("run git status", exit_code=0, stdout="", stderr="")
        == "`git status` ran without an error and printed nothing."
    )
    assert told("google x", results=[]) == "The web search for “x” found nothing."


def test_long_lists_say_how_much_is_left_out() -> None:
    files = [{"name": f"{n}", "path": f"src/{n}", "type": "directory" if n == 0 else "file"} for n in range(60)]
    text = told("list src recursively", files=files, total_count=1000)
    assert "1,000 entries in `src`:" in text
    assert "- `src/0/`" in text
    assert "- … and 950 more" in text
    matches = [{"path": "a", "line_number": n, "line": "x" * 1000} for n in range(40)]
    text = told("search x", matches=matches, total_count=40)
    assert "… and 10 more" in text
    assert len(text) < 8000


def test_long_output_shows_its_end() -> None:
    output = "\n".join(str(number) for number in range(500))
    text = told("run npm test", exit_code=0, stdout=output, stderr="")
    assert "printed 500 lines. They end:" in text
    assert "499" in text
    assert "\n100\n" not in text


def test_output_and_errors_are_both_shown() -> None:
    text = told("run git status", exit_code=128, stdout="out\n", stderr="err\n")
    assert text == "`git status` printed:\n\n```\nout\nerr\n```\n\nIt ended with exit code 128."
    many = told("run npm test", exit_code=1, stdout="".join(f"{number}\n" for number in range(30)), stderr="")
    assert many.startswith("`npm test` printed 30 lines. They end:\n\n```\n10\n")
    assert many.endswith("\n29\n```\n\nIt ended with exit code 1.")
    assert told("run git grep x", exit_code=1) == "`git grep x` ended with exit code 1 and printed nothing."


def test_web_results_are_listed() -> None:
    hits = [{"title": "T", "url": "https://t.example", "snippet": "S"}, "nonsense"]
    assert told("google x", results=hits) == "- T: https://t.example\n  S"


def test_result_of_another_shape_is_not_a_crash() -> None:
    for message in (
        "read a",
        "list",
        "search x",
        "run git status",
        "google x",
        "write a: b",
        "what is the version in a",
    ):
        [step] = understand(message).steps
        for text in ("", "[]", "{}", '{"files": 1, "matches": {}, "results": null}'):
            assert answer([Outcome(step, failed=False, text=text)], 0)


@pytest.mark.parametrize(
    ("content", "field", "value"),
    [
        ('{"version": "1.2.3"}', "version", "1.2.3"),
        ('{"Version": "1.2.3"}', "version", "1.2.3"),
        ('{"version": 3}', "version", "3"),
        ('{"scripts": {"test": "jest"}}', "scripts.test", "jest"),
        ('{"a.b": 1}', "a.b", "1"),
        ('{"tags": ["a", "b"]}', "tags", '["a", "b"]'),
        ('{"name": "x"}', "version", None),
        ('["version"]', "version", None),
        ('"version"', "version", None),
        ('[project]\nversion = "0.1.0"\n', "version", "0.1.0"),
        ("version: 2\n", "version", "2"),
        ("version:\n", "version", None),
        ("nothing here", "version", None),
    ],
)
def test_value_is_found_by_its_name(content: str, field: str, value: str | None) -> None:
    assert find_field(content, field) == value


def test_missing_value_is_told() -> None:
    assert told("what is the version in a.json", content="{}") == "I found no version in `a.json`."


def test_value_among_other_steps_is_told_in_a_sentence() -> None:
    steps = understand("read a.json and tell me the version\nlist").steps
    outcomes = [
        Outcome(steps[0], failed=False, text='{"content": "{\\"version\\": \\"1\\"}"}'),
        Outcome(steps[1], failed=True, text="No client."),
    ]
    assert answer(outcomes, 0) == "The version in `a.json` is 1.\n\nI could not list `.`. No client."


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("run git push", "run `git push`"),
        ("google cats", "search the web for “cats”"),
        ("search x", "search for “x”"),
        ("append to a: b", "append to `a`"),
    ],
)
def test_failed_step_is_named(message: str, words: str) -> None:
    [step] = understand(message).steps
    assert answer([Outcome(step, failed=True, text="No.")], 0) == f"I could not {words}. No."


def test_a_person_is_not_told_what_only_an_agent_can_take_to_heart() -> None:
    [step] = understand("list").steps
    text = f"Rejected by the user: not now\nhint: {ADVICE[ErrorType.REJECTED]}"
    assert answer([Outcome(step, failed=True, text=text)], 0) == "I could not list `.`. You denied it: not now"
    plain = Outcome(step, failed=True, text="Rejected by the user.")
    assert answer([plain], 0) == "I could not list `.`. You denied it."
    useful = "Command not allowed: rm\nhint: use one of: cat"
    assert answer([Outcome(step, failed=True, text=useful)], 0).endswith("rm\n\nHint: use one of: cat")


def test_help_does_not_repeat_markdown_of_the_message() -> None:
    assert help_text("a `b`\nc").startswith("I did not understand `a 'b' c`")
    assert help_text(None).startswith("I am the offline agent")


@pytest.mark.parametrize("message", ["undo", "/undo", "undo that"])
def test_who_asks_it_to_undo_is_told_how_to(message: str) -> None:
    plan = understand(message)
    assert not plan.steps
    assert "`byleave undo` in a terminal" in help_text(plan.unclear)


def test_same_history_gives_the_same_next_step() -> None:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("list then list src")])]
    first, again = respond(messages, None), respond(messages, None)  # type: ignore[arg-type]
    assert first.tool_calls[0].tool_call_id == again.tool_calls[0].tool_call_id == "offline_1"
    messages += [first, ModelRequest(parts=[ToolReturnPart("list_directory", "{}", "offline_1")])]
    second = respond(messages, None)  # type: ignore[arg-type]
    assert second.tool_calls[0].tool_call_id == "offline_2"
    assert second.tool_calls[0].args_as_dict() == {"path": "src"}


def test_message_that_is_not_text_gets_help() -> None:
    reply: ModelResponse = respond([ModelRequest(parts=[UserPromptPart(["list"])])], None)  # type: ignore[arg-type]
    assert isinstance(reply.parts[0], TextPart)
    assert Step("list_directory", {"path": "."}) not in understand("").steps
