"""The cost of a request, by the list prices that genai-prices ships. Imported with the providers: it loads slowly.

The list is part of the installed package. The library fetches a newer one only if a program starts its `UpdatePrices`.
"""

from decimal import Decimal

from genai_prices import calc_price

from quarterdeck.core.logging import fields, log
from quarterdeck.models.catalog import ANTHROPIC, OPENAI, OPENAI_CHAT

# Also with a base URL: proxies and gateways mostly keep the names of the models behind them. Endpoints have no prices.
_PRICE_LISTS = {
    OPENAI: "openai",
    OPENAI_CHAT: "openai",
    ANTHROPIC: "anthropic",
    "azure": "azure",
    "bedrock": "aws",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "google": "google",
    "google-cloud": "google",
    "groq": "groq",
    "mistral": "mistral",
    "moonshotai": "moonshotai",
    "openrouter": "openrouter",
    "together": "together",
    "xai": "x-ai",
}


def cost_usd(model: str, usage: object) -> Decimal | None:
    """`usage` has the attributes of pydantic-ai's RequestUsage. None: the price of the model is unknown."""
    provider, _, name = model.partition(":")
    try:
        return calc_price(usage, name, provider_id=_PRICE_LISTS[provider]).total_price
    except LookupError:
        return None
    except Exception as fault:
        # A compatible server may report numbers that contradict each other. An answer without a price is still stored.
        log.warning("the usage of a request has no price", exc_info=fault, extra=fields(model=model))
        return None
