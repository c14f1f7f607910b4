"""Choosing a model by one string: what works, and what is said when it does not."""

import importlib.util
import os
import subprocess
import sys

import pytest

from byleave.agents.models import resolve_model
from byleave.installation import add_command
from byleave.protocol.errors import ConfigurationError


def test_offline_model_needs_nothing() -> None:
    assert resolve_model(" offline ").model_name == "offline"


@pytest.mark.parametrize("name", ["", "gpt-5", "test", "Offline"])
def test_name_without_a_provider_is_refused_with_examples(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_model(name)
    assert caught.value.message == f"There is no model {name!r}."
    assert "openai:gpt-5" in (caught.value.hint or "")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """None of the developer's own providers."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_AUTH_TOKEN")):
            monkeypatch.delenv(name)


def test_unknown_provider_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="There is no model 'nowhere:big'") as caught:
        resolve_model("nowhere:big")
    assert "openai:gpt-5" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "sentence", "hint"),
    [
        ("openai:gpt-5", "The model 'openai:gpt-5' has no key.", "Set OPENAI_API_KEY for the server."),
        ("openai-chat:gpt-5", "The model 'openai-chat:gpt-5' has no key.", "set OPENAI_BASE_URL too"),
        ("anthropic:claude-sonnet-4-5", "The model 'anthropic:claude-sonnet-4-5' has no key.", "Set ANTHROPIC_API_KEY"),
        ("openrouter:some/model", "The model 'openrouter:some/model' has no key.", "Set OPENROUTER_API_KEY"),
        (
            "vllm:llama3",
            "The model 'vllm:llama3' has no address.",
            "Set VLLM_BASE_URL for the server, such as http://127.0.0.1:8000/v1.",
        ),
        ("openai:", "There is no model 'openai:'.", "openai:gpt-5"),
        (":gpt-5", "There is no model ':gpt-5'.", "openai:gpt-5"),
    ],
)
def test_what_is_missing_is_one_sentence_and_what_to_set(name: str, sentence: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_model(name)
    assert caught.value.message == sentence
    assert hint in (caught.value.hint or "")
    assert "\n" not in (caught.value.hint or "")
    assert "pydantic" not in str(caught.value).lower()


@pytest.mark.parametrize("name", ["openai:m", "openai-chat:m", "ollama:m"])
def test_base_url_of_your_own_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    for variable in ("OPENAI_BASE_URL", "OLLAMA_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/v1")
    assert (resolve_model(name).base_url or "").startswith("http://127.0.0.1:9/v1")


def test_ollama_is_looked_for_on_this_machine() -> None:
    model = resolve_model("ollama:llama3")
    assert (model.model_name, (model.base_url or "").rstrip("/")) == ("llama3", "http://127.0.0.1:11434/v1")


@pytest.mark.parametrize(("package", "name"), [("openai", "openai-chat:m"), ("anthropic", "anthropic:m")])
def test_missing_extra_is_told_with_how_to_install_it(package: str, name: str) -> None:
    program = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from byleave.agents.models import resolve_model\n"
        "from byleave.protocol.errors import ConfigurationError\n"
        "try:\n"
        f"    resolve_model({name!r})\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    sentence, hint = done.stdout.splitlines()
    assert sentence == f"The model {name!r} needs a package that is not installed."
    assert hint.startswith(f"hint: Install it with {add_command('x').removesuffix('x')}")
    assert package in hint


def test_key_makes_a_model_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    assert resolve_model("anthropic:claude-sonnet-4-5").model_name == "claude-sonnet-4-5"


@pytest.mark.skipif(importlib.util.find_spec("mistralai") is not None, reason="its package is installed here")
def test_missing_package_is_named_with_how_to_install_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_model("mistral:mistral-large-latest")
    assert "needs a package that is not installed" in caught.value.message
    assert "pip install" in (caught.value.hint or "")
    assert "mistral" in (caught.value.hint or "")
