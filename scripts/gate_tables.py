"""Write the gate's tables for the TypeScript client, or check that the committed ones are fresh.

    python scripts/gate_tables.py            write vscode/src/gate/tables.json
    python scripts/gate_tables.py --check    write nothing; exit 1 when it is stale

The client in the editor judges every call again and has no rules of its own: commands, options, names, sizes, secrets'
forms and every regular expression come from here, out of the Python gate as it is loaded. Nothing here is imported by
Byleave itself.
"""

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from javascript_patterns import javascript

from byleave.gate import (
    arguments,
    characters,
    commands,
    gate,
    names,
    options,
    paths,
    policy,
    policy_text,
    reach,
    render,
    risk,
    rules,
    scripts,
    secret_formats,
    secret_names,
    secrets,
    sed,
    sizes,
    streams,
    synonyms,
)
from byleave.gate.table_files import load_tables
from byleave.gate.tables import CommandTable, Option
from byleave.protocol import inspections, policies, tools

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "vscode" / "src" / "gate" / "tables.json"

PATTERNS: dict[Any, str] = {
    arguments: "_NUMBER _WORD _GLUED _VARIABLE _EXPANDS _ZONE_FILE _URL _SCP _MAGIC _WEB",
    characters: "HIDDEN _SURROGATE _TEXT_HIDDEN LOOKALIKE_SLASHES",
    gate: "_GLOB_PIECES",
    options: "_DIGITS _PLUS_FOLLOWS _OPTION",
    paths: "_URL _DRIVE _DEVICE _DEVICE_FILE _SHORT_NAME",
    policy_text: "_COMMAND_NAME",
    render: "_PADDING _PADDING_IN_LINES _UNSEEN _EMPTY_LINES _REPEATED _HIDDEN_IN_LINES _LONG_RUN _SPELLED_OUT",
    risk: "_PROGRAM",
    rules: "_INNER _BROKEN",
    secret_formats: "PLACEHOLDER OPTION_NAME",
    secret_names: (
        "_ASSIGNMENT _PAIR _ARGUMENT _ELEMENT _VALUE _ELEMENT_VALUE _SETTING_VALUE _BACKWARDS _STRONG _UPPER _ABOUT "
        "_PASSWORD _FREE_FORM _DIGIT _LETTER _REFERENCE _TYPE _CALL _PLAIN_VALUE _NOT_A_PASSWORD _LINE_START"
    ),
    secrets: (
        "_SUSPECT _CONTROL_SEQUENCE _MANIFEST _MANIFEST_DATA _MANIFEST_ENTRY _MANIFEST_JSON _MANIFEST_JSON_DATA "
        "_JSON_ENTRY _USER_AND_PASSWORD"
    ),
    sed: "_ADDRESS _NUMBER _BLANK _SPACE",
}
VALUES: dict[Any, str] = {
    arguments: "_NETWORK_SCHEMES _SAFE_CHECKPOINTS _WHEEL _LINKER_PROGRAMS",
    commands: "DEFAULT_COMMANDS ALIASES LONG_COMMAND_BYTES",
    options: "_FIND_PUNCTUATION MOST_OPTIONS MOST_LETTERS",
    paths: "MAX_NAME_BYTES MAX_PATH_BYTES RELATIVE_HINT SYSTEM_DIRECTORIES",
    policy: "MOST_COMPARED MAX_FINDINGS",
    policies: "MAX_POLICY_CHARACTERS",
    policy_text: "MAX_RULES MAX_PATTERNS MAX_TEXT _TOP _KEYS",
    reach: "_NAMES_ONLY _WALK_WITH _GIVE_PATTERN _WALK _RUN_CODE _ABOUT_HISTORY",
    render: "MAX_SHOWN_CONTENT _CONTEXT _MASK_WHOLE _MUCH",
    risk: "MEDIUM_EXTENSIONS _SCRIPTS",
    rules: "FILE_TOOLS MAX_MENTIONS MAX_PIECES MAX_MENTION_CHARACTERS _CHANGES_DIRECTORY",
    scripts: (
        "UNKNOWN _PYTHON_FILES _SCRIPT_MODULES _PIP_BUILDS _NODE_FILES _NODE_LOADS _NODE_READS _NODE_CODE "
        "_NPM_RUNS_NOTHING _NPM_RUNS_SCRIPTS _NPM_INSTALLS _PYTEST_SETTINGS _MAKEFILES"
    ),
    inspections: "MAX_SEEN_FILES",
    secret_formats: "MASK_PREFIX _REACH _SHORTEST_KEY",
    secret_names: "_WORDS",
    secrets: "WITHHELD MAX_DEPTH SHORTEST SHORT _GLUED _APART",
    sed: "_PLAIN _WITH_NUMBER _UNCERTAIN_LINES _NAMES_FILE _DELIMITERS _TERMINALS",
    sizes: "MAX_GLOB_BRACES",
    streams: "MAX_HELD REMEMBERED _LONGEST_SECRET _TRIES _KEY_BEGINS _KEY_ENDS",
    synonyms: "_GROUPS",
    tools: "MAX_FILE_BYTES MAX_ARGUMENTS MAX_ARGUMENT_BYTES SCRIPT_NAMES",
}


class _Options:
    """Options of all tables, each kind once: most differ in their name only."""

    def __init__(self) -> None:
        self.kinds: list[dict[str, Any]] = []
        self._known: dict[str, int] = {}

    def kind(self, option: Option) -> int:
        entry = _fields(option, leave_out={"name"})
        key = json.dumps(entry, sort_keys=True)
        if key not in self._known:
            self._known[key] = len(self.kinds)
            self.kinds.append(entry)
        return self._known[key]

    def grouped(self, options: Mapping[str, Option]) -> list[Any]:
        """One kind, the names of its options, the next kind, and so on."""
        groups: dict[int, list[str]] = {}
        for name, option in options.items():
            if option.name != name:
                raise ValueError(f"The option {name} is called {option.name} in its table.")
            groups.setdefault(self.kind(option), []).append(name)
        return [item for kind, spelled in groups.items() for item in (kind, " ".join(spelled))]


def _fields(value: Any, leave_out: set[str]) -> dict[str, Any]:
    """What differs from the default."""
    given = {
        field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.name not in leave_out
    }
    defaults = {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for field in dataclasses.fields(value)
    }
    return {name: _plain(one) for name, one in given.items() if one != defaults[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, re.Pattern):
        return javascript(value)  # pyright: ignore[reportUnknownArgumentType] - all of ours are of text
    if isinstance(value, (set, frozenset)):
        return sorted(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - texts
    return value


def _table(table: CommandTable, options: _Options) -> dict[str, Any]:
    entry = _fields(table, leave_out={"options", "long_names", "subs", "modules", "match", "not_match"})
    entry["options"] = options.grouped(table.options)
    modules = {name: options.kind(option) for name, option in table.modules.items()}
    if modules:
        entry["modules"] = modules
    subs: dict[str, Any] = {}
    written: list[CommandTable] = []
    for name, sub in table.subs.items():
        same = next((one for one in written if dataclasses.replace(sub, name=one.name) == one), None)
        if sub.name != f"{table.name} {name}":
            raise ValueError(f"The subcommand {name} is called {sub.name}.")
        if same is None:
            written.append(sub)
            subs[name] = _table(sub, options)
        else:
            subs[name] = same.name.rpartition(" ")[2]
    if subs:
        entry["subs"] = subs
    return entry


def _names() -> dict[str, Any]:
    data: dict[str, Any] = names._DATA  # pyright: ignore[reportPrivateUsage] - its data is what is wanted
    odd = [
        p for group in (*data["trusted"], data["secrets"]) for p in group.get("patterns", ()) if re.search(r"[?\[]", p)
    ]
    if odd:
        raise ValueError(f"The TypeScript gate knows `*` only: {odd}.")
    return data


def _formats() -> list[dict[str, Any]]:
    """The forms of secrets in the order in which they are tried, with the sign that stands before a long run."""
    found: list[dict[str, Any]] = []
    keys: Any = secret_formats._KEYS_BY_SIGN  # pyright: ignore[reportPrivateUsage]
    places: Any = secret_formats._PLACES  # pyright: ignore[reportPrivateUsage]
    words: Any = secret_formats._WORDS  # pyright: ignore[reportPrivateUsage]
    found += [_format(form, "key", sign) for sign, forms in keys for _, form in forms]
    found += [_format(form, "place") for form in places]
    return found + [_format(form, "word") for form in words]


def _format(form: secret_formats.Format, where: str, sign: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {"where": where, "kind": form.kind, "needle": form.needle}
    entry["pattern"] = javascript(form.pattern)
    if form.pattern.groups:
        entry["part"] = True
    return entry | ({"also": form.also} if form.also else {}) | ({"sign": sign} if sign else {})


def _parameters() -> dict[str, Any]:
    """The form of each tool's parameters, flat as their models are."""
    schemas = {name: spec.params.model_json_schema() for name, spec in tools.TOOLS.items()}
    return {
        name: {
            "required": schema.get("required", []),
            "fields": {field: _parameter(one) for field, one in schema["properties"].items()},
        }
        for name, schema in schemas.items()
    }


def _parameter(schema: dict[str, Any]) -> dict[str, Any]:
    kinds = [schema] if "type" in schema else schema["anyOf"]
    kind = next(one for one in kinds if one["type"] != "null")
    known = {"type", "minLength", "maxLength", "minimum", "maximum", "enum", "items"}
    said = {key: value for key, value in kind.items() if key in known}
    if said.get("items", {"type": "string"}) != {"type": "string"}:
        raise ValueError("The TypeScript gate knows lists of texts only.")
    said.pop("items", None)
    if len(kinds) > 1:
        said["nullable"] = True
    return said | ({"default": schema["default"]} if "default" in schema else {})


def _casefold() -> dict[str, str]:
    """Letters of which folding makes more or other than lower case."""
    everything = (chr(point) for point in range(0x80, 0x20000) if not 0xD800 <= point < 0xE000)
    return {letter: letter.casefold() for letter in everything if letter.casefold() != letter.lower()}


def tables() -> dict[str, Any]:
    """Everything the TypeScript gate takes from the Python one."""
    kinds = _Options()
    commands_ = {name: _table(table, kinds) for name, table in load_tables().items()}
    runs: dict[str, re.Pattern[str]] = secret_formats._RUNS  # pyright: ignore[reportPrivateUsage]
    patterns = {name: javascript(pattern) for name, pattern in _listed(PATTERNS)}
    hits: Any = secret_names._hits  # pyright: ignore[reportPrivateUsage]
    words: Any = secret_names._WORDS  # pyright: ignore[reportPrivateUsage]
    return {
        "note": "Generated from src/byleave/gate by scripts/gate_tables.py. Do not edit.",
        "patterns": patterns
        | {f"secret_formats.RUNS{sign}": javascript(pattern) for sign, pattern in runs.items()}
        | {f"secret_names.hits.{word}": javascript(hits(word)) for word in words},
        "values": {name: _plain(value) for name, value in _listed(VALUES)},
        "parameters": _parameters(),
        "names": _names(),
        "casefold": _casefold(),
        "formats": _formats(),
        "options": kinds.kinds,
        "commands": commands_,
    }


def _listed(listed: Mapping[Any, str]) -> Iterator[tuple[str, Any]]:
    """Everything that is named, as `module.NAME`."""
    for module, names_ in listed.items():
        for name in names_.split():
            yield f"{module.__name__.rpartition('.')[2]}.{name.strip('_')}", getattr(module, name)


def text() -> str:
    """The file's content: one line for each entry, so that a change shows where it is."""
    parts = [f"{_json(key)}:{_written(value)}" for key, value in tables().items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return _json(value)
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(_json, cast("list[Any]", value))) + "\n]"
    entries: dict[str, Any] = value
    return "{\n" + ",\n".join(f"{_json(key)}:{_json(one)}" for key, one in entries.items()) + "\n}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the file is stale")
    check = parser.parse_args().check
    content = text()
    if not check:
        TARGET.write_text(content, encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != content:
        sys.stderr.write(f"{TARGET.relative_to(ROOT)} is stale.\nhint: make schema\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
