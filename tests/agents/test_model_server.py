"""The scripted model server: the real SDK takes it for the real thing, and it misbehaves as told."""

from collections.abc import Generator

import httpx2
import pytest
from openai import APIConnectionError, AsyncOpenAI, OpenAI, RateLimitError

from harness.model_server import (
    Call,
    ModelServer,
    by_step,
    call,
    calls,
    nothing,
    open_model_server,
    refuse_with,
    say,
)


@pytest.fixture
def server() -> Generator[ModelServer]:
    with open_model_server() as server:
        yield server


@pytest.fixture
def client(server: ModelServer) -> Generator[OpenAI]:
    with OpenAI(base_url=server.url, api_key="test", max_retries=0) as client:
        yield client


def test_list_goes_by_the_request_and_stays_at_its_end(server: ModelServer, client: OpenAI) -> None:
    server.script = [say("one"), say("two")]
    said = [client.responses.create(model="m", input="hi").output_text for _ in range(3)]
    assert said == ["one", "two", "two"]
    assert [asked.prompts for asked in server.requests] == [("hi",)] * 3
    assert [model.id for model in client.models.list()] == ["scripted"]


def test_steps_go_by_the_conversation(server: ModelServer, client: OpenAI) -> None:
    server.script = by_step(calls(Call("read_file", {"path": "a"}), ("read_file", "{", "x"), text="so"), say("done"))
    first = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}]).choices[0]
    assert first.finish_reason == "tool_calls"
    asked = [one.function for one in first.message.tool_calls or [] if one.type == "function"]
    assert [one.arguments for one in asked] == ['{"path": "a"}', "{"]
    for api in ("chat", "responses"):
        if api == "chat":
            text = (
                client.chat.completions.create(
                    model="m",
                    messages=[
                        {"role": "user", "content": "go"},
                        {
                            "role": "assistant",
                            "tool_calls": [
                                {"id": "x", "type": "function", "function": {"name": "read_file", "arguments": "{"}}
                            ],
                        },
                        {"role": "tool", "tool_call_id": "x", "content": "no"},
                    ],
                )
                .choices[0]
                .message.content
            )
        else:
            text = client.responses.create(
                model="m",
                input=[
                    {"role": "user", "content": "go"},
                    {"type": "function_call", "call_id": "x", "name": "read_file", "arguments": "{"},
                    {"type": "function_call_output", "call_id": "x", "output": "no"},
                ],
            ).output_text
        assert text == "done"
        assert server.requests[-1].results == [("x", "no")]
        assert [one.name for one in server.requests[-1].called] == ["read_file"]


def test_streams_are_cut_apart_and_tell_usage(server: ModelServer, client: OpenAI) -> None:
    server.script = [say("a long enough answer", usage=(7, 3))]
    deltas: list[str] = []
    with client.responses.create(model="m", input="hi", stream=True) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                deltas.append(event.delta)
            if event.type == "response.completed":
                assert event.response.usage is not None
                assert event.response.usage.input_tokens == 7
    assert len(deltas) > 1
    assert "".join(deltas) == "a long enough answer"


def test_errors_carry_their_headers(server: ModelServer, client: OpenAI) -> None:
    server.script = [refuse_with(429, "slow down", retry_after=2), nothing()]
    with pytest.raises(RateLimitError, match="slow down") as caught:
        client.responses.create(model="m", input="hi")
    assert caught.value.response.headers["retry-after"] == "2"
    assert client.responses.create(model="m", input="hi").output == []


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_breaks_the_connection(server: ModelServer, client: OpenAI, *, stream: bool) -> None:
    server.script = [call("read_file", {"path": "a"}, text="half", hang_up=True)]

    def ask() -> None:
        list(
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "go"}], stream=stream, timeout=5
            )
        )

    # In the middle of a stream the SDK lets the transport's own error through.
    with pytest.raises((APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)):
        ask()


@pytest.mark.parametrize("held", [False, True])
async def test_endless_and_held_answers_notice_who_leaves(server: ModelServer, *, held: bool) -> None:
    server.script = [say("and on ", endless=not held, held=held)]
    async with AsyncOpenAI(base_url=server.url, api_key="test", max_retries=0) as client:
        stream = await client.responses.create(model="m", input="hi", stream=True)
        if not held:
            count = 0
            async for _ in stream:
                count += 1
                if count > 100:
                    break
        await stream.close()
    await server.received(1)
    await server.left()


def test_held_answer_goes_on_when_it_is_let_go(server: ModelServer, client: OpenAI) -> None:
    server.script = [say("late", held=True)]
    server.let_go()
    assert client.responses.create(model="m", input="hi").output_text == "late"
