"""What is proposed for a provider's key that is in the environment."""

import importlib.util
import typing

import pytest
from pydantic_ai.models import KnownModelName

from byleave.agents.providers import PROVIDERS, proposals

KEYS = [key for provider in PROVIDERS for key in provider.keys]


@pytest.mark.parametrize("key", KEYS)
def test_each_key_gets_a_line_that_names_a_model_and_never_the_key(key: str) -> None:
    [(named, lines)] = proposals({key: "sk-secret", "HOME": "/root"})
    assert named == key
    assert lines[-1].startswith("export BYLEAVE_MODEL=")
    assert "sk-secret" not in str(lines)


def test_package_that_is_missing_is_installed_first() -> None:
    for provider in PROVIDERS:
        [(_, lines)] = proposals({provider.keys[0]: "any"})
        module = provider.package.split(".", maxsplit=1)[0]
        if importlib.util.find_spec(module) is None:
            assert lines[0].endswith(f" 'pydantic-ai-slim[{provider.extra}]'")
        else:
            assert len(lines) == 1


def test_models_that_are_proposed_exist() -> None:
    known = typing.get_args(KnownModelName.__value__)
    assert [provider.model for provider in PROVIDERS if provider.model not in known] == []


def test_nothing_is_proposed_for_nothing_or_an_empty_key() -> None:
    assert proposals({}) == []
    assert proposals({"OPENAI_API_KEY": ""}) == []


def test_one_provider_is_proposed_once() -> None:
    assert [key for key, _ in proposals({"GOOGLE_API_KEY": "a", "GEMINI_API_KEY": "b"})] == ["GEMINI_API_KEY"]
