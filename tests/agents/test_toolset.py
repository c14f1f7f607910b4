"""What a model is shown of results and failures, and how its calls are kept."""

import json

import pytest
from pydantic_ai.exceptions import AgentRunError, ModelContextWindowExceededError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart

from byleave.adapters.calls import MODEL_CHARACTERS, failure, shown_to_model
from byleave.agents import history
from byleave.agents.failures import Failure, explain, trace
from byleave.protocol.errors import ByleaveError
from byleave.protocol.executions import ToolResponse
from byleave.protocol.states import ErrorType, ResponseStatus


def response(error_type: ErrorType | None, **values: object) -> ToolResponse:
    return ToolResponse(
        tool_id="t",
        tool_name="read_file",
        status=ResponseStatus.FAILED,
        error_type=error_type,
        **values,  # type: ignore[arg-type]
    )


def test_ordinary_result_is_shown_whole() -> None:
    assert json.loads(shown_to_model({"content": "ä", "size": 1})) == {"content": "ä", "size": 1}


@pytest.mark.parametrize(
    "result",
    [
        {"content": "x" * 1_000_000, "size": 1_000_000},
        {"files": [{"name": "n" * 50, "path": "p" * 200} for _ in range(1000)]},
        {"stdout": "\\" * 900_000, "stderr": "\x00" * 900_000},
        {str(number): "x" * 1000 for number in range(5_000)},
        {"deep": [[["y" * 30_000] * 10] * 10] * 10},
    ],
)
def test_long_result_is_shortened_and_says_so(result: dict[str, object]) -> None:
    text = shown_to_model(result)
    assert len(text) <= MODEL_CHARACTERS
    assert '"shortened": "' in text or "too long to show" in text


def test_shortened_output_keeps_beginning_and_end() -> None:
    shown = json.loads(shown_to_model({"stdout": "begin" + "x" * 200_000 + "end", "stderr": ""}))
    assert shown["stdout"].startswith("begin")
    assert shown["stdout"].endswith("end")
    assert "run it again so that it prints less" in shown["shortened"]


def test_long_file_is_cut_at_a_line_and_says_where_to_read_on() -> None:
    lines = [f"line {number}" + "." * 40 for number in range(1, 9001)]
    shown = json.loads(
        shown_to_model({"content": "\n".join(lines), "encoding": "utf-8", "size": 1, "total_lines": 9000})
    )
    last = shown["end_line"]
    assert shown["content"].splitlines() == lines[:last]
    assert shown["shortened"] == f"lines 1-{last:,} of 9,000; read on with start_line={last + 1}."
    rest = {"content": "\n".join(lines[last:]), "encoding": "utf-8", "start_line": last + 1, "total_lines": 9000}
    again = json.loads(shown_to_model(rest))
    assert again["content"].splitlines()[0] == lines[last]
    assert again["shortened"].startswith(f"lines {last + 1:,}-{again['end_line']:,} of 9,000; read on")


def test_reading_on_as_told_goes_through_a_whole_file() -> None:
    lines = [f"{number} " + "x" * (number * 7 % 900) for number in range(1, 2001)]
    seen: list[str] = []
    start = 1
    for _ in range(100):
        part = {"content": "\n".join(lines[start - 1 :]), "encoding": "utf-8", "start_line": start, "total_lines": 2000}
        shown = json.loads(shown_to_model(part))
        seen += shown["content"].splitlines()
        if "shortened" not in shown:
            break
        start = int(shown["shortened"].rstrip(".").split("start_line=")[1])
    assert seen == lines


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"content": "x" * 300_000, "encoding": "utf-8"}, "line 1 alone has 300,000 characters; its first 10,000 are"),
        ({"content": "x" * 300_000 + "\nb", "encoding": "utf-8"}, "; read on with start_line=2."),
        ({"content": "x" * 300_000, "encoding": "base64"}, "300,000 characters of base64 were left out"),
        (
            {"files": [{"path": "p" * 200}] * 1000, "total_count": 1000},
            "entries 1-400 of 1,000; list a subdirectory, or give a narrower pattern.",
        ),
        ({"matches": [{"line": "p" * 400}] * 1000}, "matches 1-150 of 1,000; search narrower"),
        ({"results": [{"snippet": "p" * 30_000}] * 20}, "ask for fewer with max_results"),
        ({"other": "x" * 300_000}, "ask for less at once"),
    ],
)
def test_every_shortened_result_says_how_to_get_the_rest(result: dict[str, object], words: str) -> None:
    assert words in json.loads(shown_to_model(result))["shortened"]


def test_failure_says_why_and_what_to_do() -> None:
    assert failure(response(ErrorType.REFUSED, error="No.", hint="try less")) == "No.\nhint: try less"
    assert "do not ask for the same again" in failure(response(ErrorType.REJECTED, error="Rejected by the user."))
    assert failure(response(None)) == "The call ended as failed."
    assert failure(response(ErrorType.EXECUTION_TIMEOUT, error="Late.", result={"stdout": "half"})) == (
        'Late.\n{"stdout": "half"}'
    )


def test_ids_of_calls_are_made_unique_without_touching_good_ones() -> None:
    first = ModelResponse(parts=[ToolCallPart("list_directory", "{}", "a")])
    second = ModelResponse(
        parts=[
            TextPart("x"),
            ToolCallPart("list_directory", "{}", "b"),
            ToolCallPart("list_directory", "{}", "a"),
            ToolCallPart("list_directory", "{}", "a"),
            ToolCallPart("list_directory", "{}", ""),
            ToolCallPart("list_directory", "{}", "x" * 500),
        ]
    )
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("go")]), first, second]
    history.settle_calls(second, messages)
    ids = [call.tool_call_id for call in second.tool_calls]
    assert ids[0] == "b"
    assert len({*ids, "a"}) == 6
    assert max(len(call_id) for call_id in ids) <= 40
    history.settle_calls(second, messages)
    assert [call.tool_call_id for call in second.tool_calls] == ids


def test_id_that_was_made_unique_meets_another_of_the_kind() -> None:
    taken: set[str] = {"a"}
    made = history._free_id("a", taken)
    taken = {"a", made.rsplit("_", 1)[0] + "_2"}
    assert history._free_id("a", taken) not in taken


def test_empty_history_has_no_answer_and_no_calls() -> None:
    assert history.final_answer([]) is None
    assert history.remember(None) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ByleaveError("No session.", hint="Open one."), "No session."),
        (AgentRunError("odd"), "could not answer: odd"),
        (ModelContextWindowExceededError("m", "too many tokens"), "too long for 'm'"),
        (UnexpectedModelBehavior("x" * 1000), "cannot be used: xxx"),
        (KeyError("k"), "(KeyError)"),
    ],
)
def test_every_failure_is_one_sentence(error: Exception, words: str) -> None:
    told = explain(error, model="m", model_seconds=1)
    assert isinstance(told, Failure)
    assert words in told.error
    assert len(told.error) < 500


def test_trace_names_the_error_and_stays_short() -> None:
    assert "KeyError: 'k'" in trace(KeyError("k"))
    assert len(trace(KeyError("k" * 100_000))) <= 8000
