"""Model of the chat agent, from one setting.

`offline` is built in and needs nothing. Anything else is `provider:model`, as pydantic-ai names them; the provider's
package is imported on demand. A missing package or key becomes one sentence with a hint, never a traceback, and never
shows a key.
"""

import re

from pydantic_ai.models import Model, infer_model

from byleave.gate import mask_text
from byleave.protocol.errors import ConfigurationError

from .offline import offline_model
from .roles import OFFLINE

_EXAMPLES = (
    "Set BYLEAVE_MODEL to `offline`, or to provider:model such as `openai:gpt-5` or `anthropic:claude-sonnet-4-5`."
)

_ADDRESSES = {
    "OLLAMA_BASE_URL": "http://127.0.0.1:11434/v1",
    "VLLM_BASE_URL": "http://127.0.0.1:8000/v1",
}
_OWN_SERVER = " For a server of your own set OPENAI_BASE_URL too, and any key if it wants none."


def resolve_model(name: str) -> Model:
    """Return the model a setting names. Raise ConfigurationError."""
    name = name.strip()
    if name == OFFLINE:
        return offline_model()
    provider, _, model = name.partition(":")
    if not provider or not model:
        # pydantic-ai would take `test` for a model that calls every tool.
        raise ConfigurationError(f"There is no model {name!r}.", hint=_EXAMPLES)
    try:
        return infer_model(name)
    except ImportError as error:
        raise ConfigurationError(
            f"The model {name!r} needs a package that is not installed.", hint=_install_hint(error)
        ) from error
    except Exception as error:  # the boundary: each provider has its own errors for a missing key or setting
        raise _unusable(name, error) from error


def _unusable(name: str, error: Exception) -> ConfigurationError:
    """Return the error for an unusable model; name the missing variable if the provider does."""
    text = str(error)
    variable = re.search(r"`([A-Z][A-Z0-9_]*_(API_KEY|KEY|TOKEN|BASE_URL|ENDPOINT))`", text)
    if variable is None:
        if text.startswith("Unknown model"):
            return ConfigurationError(f"There is no model {name!r}.", hint=f"{_EXAMPLES} {_suggested(text)}".strip())
        return ConfigurationError(f"The model {name!r} cannot be used.", hint=_masked_message(error))
    key = variable.group(1)
    if key.endswith(("_BASE_URL", "_ENDPOINT")):
        example = f", such as {_ADDRESSES[key]}" if key in _ADDRESSES else ""
        return ConfigurationError(f"The model {name!r} has no address.", hint=f"Set {key} for the server{example}.")
    local = "" if key != "OPENAI_API_KEY" else _OWN_SERVER
    return ConfigurationError(f"The model {name!r} has no key.", hint=f"Set {key} for the server.{local}")


def _suggested(text: str) -> str:
    found = re.search(r"Did you mean ('[^']+')\?", text)
    return f"Did you mean {found.group(1)}?" if found else ""


def _install_hint(error: ImportError) -> str:
    command = re.search(r"pip install [^`\n]+", str(error))
    return f"Install it with {command.group(0)}" if command else _masked_message(error)


def _masked_message(error: Exception) -> str:
    text = " ".join(mask_text(str(error)).split())[:300]
    return text or type(error).__name__
