"""Reading of settings; a mistake becomes one sentence that names the variable."""

import os
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

from byleave.protocol.errors import CallerError, ConfigurationError

Settings = TypeVar("Settings", bound=BaseSettings)


def read_settings(model: type[Settings], **given: Any) -> Settings:
    """Read the settings from variables and file; values given here (not None) take precedence."""
    config = os.environ.get("BYLEAVE_CONFIG")
    if config and not Path(config).is_file():
        raise ConfigurationError(
            f"BYLEAVE_CONFIG names {config!r}, and there is no such file.", hint="correct it or leave it out"
        )
    try:
        return model(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        source = f"--{name.replace('_', '-')}" if given.get(name) is not None else f"BYLEAVE_{name.upper()}"
        raise ConfigurationError(
            f"The setting {source} is wrong: {first['msg']}.", hint="docs/settings.md lists what it may be"
        ) from error
    except SettingsError as error:
        raise ConfigurationError(f"A setting cannot be read: {error}.", hint="correct the BYLEAVE_ variable") from error
    except (TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigurationError(
            f"The settings file {config!r} cannot be read: {error}.", hint="it must be TOML: name = value"
        ) from error


def existing_directory(directory: Path) -> Path:
    """Return the absolute directory; raise if it does not exist."""
    absolute = Path(os.path.realpath(directory.expanduser()))
    if not absolute.is_dir():
        what = "is not a directory" if absolute.exists() else "does not exist"
        raise CallerError(f"{str(directory)!r} {what}.", hint="name the directory that agents may work in")
    return absolute
