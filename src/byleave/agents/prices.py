"""What a run costs at the providers' list prices, from the price list that pydantic-ai brings; nothing is fetched.

An unknown price is no price: a server of one's own often serves a model under a provider's name, so where the address
is known it alone tells whose prices hold.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from genai_prices import calc_price
from genai_prices.types import PriceCalculation
from pydantic_ai.messages import ModelMessage, ModelResponse

from . import history


def cost_of(messages: Sequence[ModelMessage]) -> str | None:
    """Return the US dollars of the responses since the user's last message; None if any of their prices is unknown."""
    costs = [_cost(response) for response in history.responses_since_prompt(messages)]
    known = [cost for cost in costs if cost is not None]
    return f"{sum(known, Decimal()):f}" if known and len(known) == len(costs) else None


def _cost(response: ModelResponse) -> Decimal | None:
    url = response.provider_url
    if response.model_name is None or response.usage.unmeasured_requests or not (url or response.provider_name):
        return None
    where: dict[str, Any] = {"provider_api_url": url} if url else {"provider_id": response.provider_name}
    try:
        price: PriceCalculation = calc_price(
            response.usage, response.model_name, genai_request_timestamp=response.timestamp, **where
        )
    except (LookupError, ValueError):  # a provider or a model that is not in the list, or a usage it cannot price
        return None
    return price.total_price
