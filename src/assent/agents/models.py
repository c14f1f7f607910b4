"""Which model the chat agent uses, from one string.

`offline` is built in and needs nothing. Everything else is `provider:model` as pydantic-ai names them; its provider's
package is imported only when it is asked for. What is missing comes back as one sentence with a hint, never as a
traceback, and never with a key in it.
"""

import re

from pydantic_ai.models import Model, infer_model

from assent.gate import mask_text
from assent.protocol.errors import ConfigurationError

from .offline import OFFLINE, offline_model

_EXAMPLES = (
    "Set ASSENT_MODEL to `offline`, or to provider:model such as `openai:gpt-5` or `anthropic:claude-sonnet-4-5`."
)


def resolve_model(name: str) -> Model:
    """The model a setting names. Raises ConfigurationError."""
    name = name.strip()
    if name == OFFLINE:
        return offline_model()
    if ":" not in name:
        # pydantic-ai would take `test` for a model that calls every tool it is given.
        raise ConfigurationError(f"There is no model {name!r}.", hint=_EXAMPLES)
    try:
        return infer_model(name)
    except ImportError as error:
        raise ConfigurationError(
            f"The model {name!r} needs a package that is not installed.", hint=_install_hint(error)
        ) from error
    except Exception as error:  # the boundary: each provider has errors of its own for a missing key or setting
        raise ConfigurationError(f"The model {name!r} cannot be used.", hint=_told(error)) from error


def _install_hint(error: ImportError) -> str:
    command = re.search(r"pip install [^`\n]+", str(error))
    return f"Install it with {command.group(0)}" if command else _told(error)


def _told(error: Exception) -> str:
    text = " ".join(mask_text(str(error)).split())[:300]
    return text or type(error).__name__
