"""The providers whose key may already be in the environment, and the setting that would use it.

Only the names of variables are looked at: a key is never read here, sent anywhere, or used before a setting names its
model. Loads nothing of a provider, since `byleave up` asks this at each start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from byleave.installation import add_command


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models."""

    keys: tuple[str, ...]
    """Variables that hold its key; the first that is set counts."""
    model: str
    """The model proposed, as BYLEAVE_MODEL names it."""
    package: str
    """Module that its models need."""
    extra: str
    """Extra of pydantic-ai-slim that installs it."""


PROVIDERS = (
    Provider(("ANTHROPIC_API_KEY",), "anthropic:claude-sonnet-4-5", "anthropic", "anthropic"),
    Provider(("OPENAI_API_KEY",), "openai:gpt-5", "openai", "openai"),
    Provider(("GEMINI_API_KEY", "GOOGLE_API_KEY"), "google:gemini-2.5-flash", "google.genai", "google"),
    Provider(("MISTRAL_API_KEY",), "mistral:mistral-large-latest", "mistralai", "mistral"),
    Provider(("GROQ_API_KEY",), "groq:llama-3.3-70b-versatile", "groq", "groq"),
)


def proposals(environment: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return each variable that holds a provider's key, with the lines to type to use it."""
    found: list[tuple[str, list[str]]] = []
    for provider in PROVIDERS:
        key = next((name for name in provider.keys if environment.get(name)), None)
        if key is not None:
            lines = [] if _installed(provider.package) else [add_command(f"pydantic-ai-slim[{provider.extra}]")]
            found.append((key, [*lines, f"export BYLEAVE_MODEL={provider.model}"]))
    return found


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # nor is the package it would be in
        return False
