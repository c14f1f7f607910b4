"""The page of all settings, made from the settings models so that it cannot miss one.

Used by `scripts/schema.py`. Returns text; writes nothing.
"""

from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from byleave.settings import ClientSettings, ServerSettings

HEAD = """\
<!-- Generated from src/byleave/settings.py by `make schema`. Do not edit. -->

# Settings

Every setting is an environment variable, or a key of the TOML file named by `BYLEAVE_CONFIG` (there without the
prefix and in lower case: `BYLEAVE_CLIENT_WAIT_SECONDS` is `client_wait_seconds`). A variable wins over the file.
A list is written with commas. A value that does not fit stops the program with a sentence that says why.

| variable | means |
|---|---|
| `BYLEAVE_CONFIG` | A TOML file with settings. |
| `BYLEAVE_HOME` | State directory: the record, the client's journal, tokens. Default: the user's data directory. |
| `BYLEAVE_DEBUG` | Anything but empty: a command that fails also prints the traceback. |
| `BYLEAVE_LOG` | `json`: logs as JSON lines, for collectors. |
| `BYLEAVE_PROJECT` | The project of `byleave mcp`, where `--project` is not given. |
| `BYLEAVE_RUN` | Set by the client for a command without a sandbox, to find what it left behind; not yours to set. |
"""

SECTIONS: tuple[tuple[str, str, type[BaseSettings]], ...] = (
    ("The server", "Read by `byleave serve` and `byleave up`.", ServerSettings),
    ("The client", "Read by `byleave connect`, `byleave up`, `byleave chat` and `byleave tool`.", ClientSettings),
)


def variable(name: str) -> str:
    return f"BYLEAVE_{name.upper()}"


def settings_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, reader, model in SECTIONS:
        parts.append(f"\n## {title}\n\n{reader}\n\n| variable | default | means |\n|---|---|---|\n")
        for name, field in model.model_fields.items():
            if name != "home":
                parts.append(f"| `{variable(name)}` | {_default(field)} | {_meaning(field)} |\n")
    return "".join(parts)


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=False)
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{','.join(str(part) for part in value)}`"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def _meaning(field: FieldInfo) -> str:
    text = field.description or ""
    choices = _choices(field.annotation)
    if choices:
        text += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    if SecretStr in (field.annotation, *get_args(field.annotation)):
        text += " Never printed or logged."
    return text.replace("|", "\\|")


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    for part in get_args(annotation):
        if get_origin(part) is Literal:
            return get_args(part)
    return ()
