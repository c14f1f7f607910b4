"""What the offline agent says: the results of its steps as readable text, in Markdown.

Short results are quoted, long ones summarised by their size with their beginning or end. A step that was refused,
rejected or failed ends the answer with the plain reason. File contents are quoted in a fence that they cannot close.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from byleave.adapters.model_text import ADVICE
from byleave.protocol.wire import JsonObject

from .phrases import Step

SHORT_CHARACTERS = 4000
SHORT_LINES = 60
EXCERPT_LINES = 20
MOST_ENTRIES = 50
MOST_MATCHES = 30
LINE_CHARACTERS = 120

HELP = """\
I am the offline agent: I work without a model and understand a few plain phrases.

- `read package.json and tell me the version`
- `read README.md`
- `list src`
- `search TODO in src`
- `write notes.md: buy milk`
- `append to notes.md: and bread`
- `run npm test`
- `search the web for python 3.13 release notes`

Several steps: one per line, or joined with `then`. Writing, most commands and the web ask you first.
For free conversation set `BYLEAVE_MODEL`, for example to `openai:gpt-5`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one step ended."""

    step: Step
    failed: bool
    text: str
    """The result as JSON, or the message of the failure."""

    @property
    def result(self) -> JsonObject:
        try:
            value: Any = json.loads(self.text)
        except ValueError:
            return {}
        return cast(JsonObject, value) if isinstance(value, dict) else {}

    @property
    def stops(self) -> bool:
        """Whether the next step must not be taken."""
        result = self.result
        return self.failed or result.get("success") is False or result.get("exit_code") not in (None, 0)


def help_text(unclear: str | None) -> str:
    """What can be asked, and what was not understood."""
    if not unclear:
        return HELP
    shown = clip(" ".join(unclear.split()), 120).replace("`", "'")
    return f"I did not understand `{shown}`, so I did nothing.\n\n{HELP}"


def answer(outcomes: list[Outcome], remaining: int) -> str:
    """What came of the steps, in order."""
    parts = [_told(outcome, alone=len(outcomes) == 1) for outcome in outcomes]
    if remaining:
        parts.append(f"I stopped there: {_count(remaining, 'further step')} not taken.")
    return "\n\n".join(parts)


def _told(outcome: Outcome, *, alone: bool) -> str:
    step = outcome.step
    if outcome.failed:
        return f"I could not {_named(step)}. {_for_a_person(outcome.text)}"
    tell = _TELLERS[step.tool_name]
    if step.field is not None:
        return _field(step, outcome.result, alone=alone)
    return tell(step, outcome.result)


def _for_a_person(text: str) -> str:
    """Why a call failed, without the advice that only an agent can take."""
    advice = {f"hint: {words}" for words in ADVICE.values()}
    return "\n".join(line for line in text.split("\n") if line not in advice)


def _named(step: Step) -> str:
    """A step in a few words."""
    params = step.params
    match step.tool_name:
        case "execute_command":
            return f"run `{clip(' '.join([params['command'], *params['args']]), 120)}`"
        case "search_web":
            return f"search the web for “{clip(params['query'], 80)}”"
        case "search_files":
            return f"search for “{clip(params['pattern'], 80)}”"
        case "list_directory":
            return f"list `{params['path']}`"
        case "write_file":
            return f"{'append to' if params.get('mode') == 'append' else 'write'} `{params['path']}`"
        case _:
            return f"read `{params['path']}`"


def _field(step: Step, result: JsonObject, *, alone: bool) -> str:
    path, field = step.params["path"], step.field or ""
    value = find_field(str(result.get("content", "")), field)
    if value is None:
        return f"I found no {field} in `{path}`."
    return value if alone else f"The {field} in `{path}` is {value}."


def find_field(content: str, field: str) -> str | None:
    """A value by its name (`version`, `scripts.test`) from JSON, or from a line `name = value` or `name: value`."""
    try:
        value: Any = json.loads(content)
    except ValueError:
        # The rest of the line is taken whole and trimmed after: what a file contains must not slow the search down.
        line = re.search(rf"(?im)^[ \t]*+[\"']?{re.escape(field)}[\"']?[ \t]*+[:=](?P<value>[^\n]*)", content)
        value = line.group("value").strip(" \t\r,").strip("\"'") if line else ""
        return clip(value, LINE_CHARACTERS) if value else None
    for name in [field] if isinstance(value, dict) and field in value else field.split("."):
        inner = _member(value, name)
        if inner is None:
            return None
        value = inner
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        return None
    members = cast(JsonObject, value)
    folded = {key.lower(): item for key, item in members.items()}
    return members.get(name, folded.get(name.lower()))


def _read(step: Step, result: JsonObject) -> str:
    path, content = step.params["path"], str(result.get("content", ""))
    size = f"{result.get('size', len(content)):,} bytes"
    if result.get("encoding") == "base64":
        return f"`{path}` is an image or a PDF of {size}."
    if not content:
        return f"`{path}` is empty."
    if is_short(content):
        return f"`{path}`:\n\n{fenced(content)}"
    lines = content.splitlines()
    beginning = fenced("\n".join(lines[:EXCERPT_LINES]))
    return f"`{path}` has {result.get('total_lines') or len(lines):,} lines, {size}. It begins:\n\n{beginning}"


def _write(step: Step, result: JsonObject) -> str:
    done = "Appended to" if step.params.get("mode") == "append" else "Wrote"
    return f"{done} `{step.params['path']}` ({result.get('size', 0):,} bytes now)."


def _list(step: Step, result: JsonObject) -> str:
    files = _objects(result.get("files"))
    path = step.params["path"]
    where = "the workspace" if path == "." else f"`{path}`"
    if not files:
        return f"There is nothing in {where}."
    total = int(result.get("total_count", len(files)))
    lines = [
        f"- `{entry.get('path') if step.params.get('recursive') else entry.get('name')}"
        f"{'/' if entry.get('type') == 'directory' else ''}`"
        for entry in files[:MOST_ENTRIES]
    ]
    more = [f"- … and {total - len(lines):,} more"] if total > len(lines) else []
    return "\n".join([f"{_count(total, 'entry', 'entries')} in {where}:", "", *lines, *more])


def _search(step: Step, result: JsonObject) -> str:
    matches = _objects(result.get("matches"))
    what = clip(step.params["pattern"], 80)
    if not matches:
        return f"I found no “{what}”."
    total = int(result.get("total_count", len(matches)))
    lines = [
        f"{match.get('path')}:{match.get('line_number')}: {clip(str(match.get('line', '')).strip(), LINE_CHARACTERS)}"
        for match in matches[:MOST_MATCHES]
    ]
    more = f"\n\n… and {total - len(lines):,} more" if total > len(lines) else ""
    return f"{_count(total, 'match', 'matches')} for “{what}”:\n\n{fenced(chr(10).join(lines))}{more}"


def _run(step: Step, result: JsonObject) -> str:
    name = _named(step).removeprefix("run ")
    code = result.get("exit_code")
    ended = f"{name} ran without an error" if code == 0 else f"{name} ended with exit code {code}"
    output = "\n".join(text.rstrip("\n") for text in (result.get("stdout"), result.get("stderr")) if text)
    if not output.strip():
        return f"{ended} and printed nothing."
    if is_short(output):
        return f"{ended}:\n\n{fenced(output)}"
    lines = output.splitlines()
    return f"{ended} and printed {len(lines):,} lines. They end:\n\n{fenced(chr(10).join(lines[-EXCERPT_LINES:]))}"


def _web(step: Step, result: JsonObject) -> str:
    hits = _objects(result.get("results"))
    if not hits:
        return f"The web search for “{clip(step.params['query'], 80)}” found nothing."
    return "\n".join(f"- {hit.get('title')}: {hit.get('url')}\n  {hit.get('snippet', '')}".rstrip() for hit in hits)


_TELLERS = {
    "read_file": _read,
    "write_file": _write,
    "list_directory": _list,
    "search_files": _search,
    "execute_command": _run,
    "search_web": _web,
}


def _objects(value: Any) -> list[JsonObject]:
    """The objects of a list that came from a client; whatever else is in it is left out."""
    if not isinstance(value, list):
        return []
    return [cast(JsonObject, item) for item in cast(list[Any], value) if isinstance(item, dict)]


def is_short(text: str) -> bool:
    return len(text) <= SHORT_CHARACTERS and text.count("\n") < SHORT_LINES


def fenced(text: str) -> str:
    """Quoted as it is, in a fence longer than any inside it."""
    text = clip(text.rstrip("\n"), SHORT_CHARACTERS)
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def clip(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
