"""What a run may use, read from the conversation alone, and when a provider is asked again."""

import pytest
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from byleave.agents import failures, history
from byleave.agents.failures import LimitReached, RunLimits, count_seconds, pause_before_retry, used


def asked(text: str = "go") -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def step(call_id: str, outcome: str, arguments: str = '{"path": "a"}', name: str = "read_file") -> list[ModelMessage]:
    return [
        ModelResponse(
            parts=[ToolCallPart(name, arguments, call_id)], usage=RequestUsage(input_tokens=3, output_tokens=2)
        ),
        ModelRequest(parts=[ToolReturnPart(name, "…", tool_call_id=call_id, outcome=outcome)]),  # type: ignore[arg-type]
    ]


def test_only_what_came_after_the_last_message_counts() -> None:
    messages = [asked(), *step("1", "failed"), asked("again"), *step("2", "success"), *step("3", "success")]
    assert used(messages) == failures.Used(steps=2, seconds=0.0, input_tokens=6, output_tokens=4)
    assert used(messages).tokens == 10


def test_seconds_are_kept_with_the_response_and_survive_being_stored() -> None:
    [response, result] = step("1", "success")
    assert isinstance(response, ModelResponse)
    count_seconds(response, 1.25)
    count_seconds(response, 0.5)
    messages = history.load(history.dump([asked(), response, result]))
    assert used(messages).seconds == 1.75
    with pytest.raises(LimitReached, match=r"after 1\.5 seconds of work"):
        RunLimits(seconds=1.5).check(messages)


def test_failures_are_the_same_only_in_a_row_and_with_the_same_arguments() -> None:
    def times(*steps: list[ModelMessage]) -> int:
        return history.same_failure([asked(), *(message for one in steps for message in one)]).times

    same = [step(str(number), "failed") for number in range(4)]
    assert times(*same) == 4
    assert times(*same, step("x", "retried", '{ "path":"a" }')) == 5
    assert times(*same, step("x", "success")) == 0
    assert times(*same, step("x", "failed", '{"path": "b"}')) == 1
    assert times(*same, step("x", "failed", name="write_file")) == 1
    assert times(step("1", "failed", "{"), step("2", "failed", "{")) == 2
    assert times(*same, [asked("try another")]) == 0
    assert times([ModelRequest(parts=[ToolReturnPart("read_file", "…", tool_call_id="nobody's")])]) == 0


def test_answer_that_broke_off_is_left_out() -> None:
    messages = [asked(), ModelResponse(parts=[TextPart("hal")]), ModelResponse(parts=[TextPart("f")])]
    assert history.unanswered(messages) == messages[:1]
    assert history.unanswered([]) == []
    assert history.ends_in_silence([asked(), ModelResponse(parts=[TextPart(" ")])])
    assert not history.ends_in_silence(messages)
    assert not history.ends_in_silence([asked()])


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ModelHTTPError(429, "m"), True),
        (ModelHTTPError(503, "m"), True),
        (ModelHTTPError(408, "m"), True),
        (ModelConnectionError("m", "reset"), True),
        (ModelRateLimitError("m", "slow"), True),
        (ModelQuotaExceededError("m", "pay"), False),
        (ModelHTTPError(400, "m"), False),
        (ModelAPIError("m", "odd"), False),
    ],
)
def test_only_what_may_pass_is_asked_again(error: ModelAPIError, again: bool) -> None:
    assert (pause_before_retry(error, 0) is not None) is again
    assert pause_before_retry(error, failures.RETRIES) is None


def test_pauses_grow_and_the_provider_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 1.0)
    pauses = [pause_before_retry(ModelHTTPError(500, "m"), tries) or 0 for tries in range(4)]
    assert all(0.75 * 2**tries <= pause <= 1.25 * 2**tries for tries, pause in enumerate(pauses))
    assert pause_before_retry(ModelRateLimitError("m", "slow", retry_after=7.5), 0) == 7.5
    assert pause_before_retry(ModelRateLimitError("m", "slow", retry_after=-1), 0) == 0
