"""What a run costs: list prices where they are known, and nothing where they would be a guess."""

from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RequestUsage

from byleave.agents.prices import cost_of

pytestmark = pytest.mark.promise("U-model")
OPENAI = "https://api.openai.com/v1/"


def said(url: str | None, provider: str | None, model: str | None, tokens: int = 1000) -> ModelResponse:
    usage = RequestUsage(input_tokens=tokens, output_tokens=tokens)
    return ModelResponse([TextPart("x")], usage=usage, model_name=model, provider_name=provider, provider_url=url)


def cost(*responses: ModelResponse) -> str | None:
    messages: list[ModelMessage] = [said(OPENAI, "openai", "gpt-5"), ModelRequest([UserPromptPart("go")]), *responses]
    return cost_of(messages)


def test_responses_of_the_run_are_added_up() -> None:
    one = cost(said(OPENAI, "openai", "gpt-5"))
    assert one is not None
    assert Decimal(one) > 0
    assert cost(said(OPENAI, "openai", "gpt-5"), said(OPENAI, "openai", "gpt-5")) == f"{2 * Decimal(one):f}"
    assert Decimal(cost(said(None, "anthropic", "claude-sonnet-4-5")) or 0) > 0


@pytest.mark.parametrize(
    "response",
    [
        said("http://127.0.0.1:8000/v1", "openai", "gpt-5"),
        said(OPENAI, "openai", "a-model-of-tomorrow"),
        said(None, "nobody", "gpt-5"),
        said(None, None, "offline"),
        said(OPENAI, "openai", None),
    ],
    ids=["a server of one's own", "unknown model", "unknown provider", "offline", "unnamed"],
)
def test_unknown_price_is_no_price(response: ModelResponse) -> None:
    assert cost(response) is None
    assert cost(said(OPENAI, "openai", "gpt-5"), response) is None


def test_run_without_an_answer_costs_nothing_that_is_known() -> None:
    assert cost() is None
