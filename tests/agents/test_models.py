"""Choosing a model by one string: what works, and what is said when it does not."""

import importlib.util

import pytest

from assent.agents import resolve_model
from assent.protocol.errors import ConfigurationError


def test_offline_model_needs_nothing() -> None:
    assert resolve_model(" offline ").model_name == "offline"


@pytest.mark.parametrize("name", ["", "gpt-5", "test", "Offline"])
def test_name_without_a_provider_is_refused_with_examples(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_model(name)
    assert caught.value.message == f"There is no model {name!r}."
    assert "openai:gpt-5" in (caught.value.hint or "")


def test_unknown_provider_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'nowhere:big' cannot be used"):
        resolve_model("nowhere:big")


@pytest.mark.skipif(importlib.util.find_spec("mistralai") is not None, reason="its package is installed here")
def test_missing_package_is_named_with_how_to_install_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_model("mistral:mistral-large-latest")
    assert "needs a package that is not installed" in caught.value.message
    assert "pip install" in (caught.value.hint or "")
    assert "mistral" in (caught.value.hint or "")
