"""Models of agents: `provider:model` from one setting, and the offline model, which is built in.

A provider's model is named as pydantic-ai names it; its package is imported on demand. A missing package or key becomes
one sentence with a hint, never a traceback, and never shows a key.

The offline model is a scripted stand-in for a language model, so that everything works without a key. It parses plain
phrases into tool calls and renders their results as Markdown. One step per line, or joined with "then VERB"; text in
quotes and the body of a write stay text, never commands. It works from the conversation alone, so it is deterministic
and resumable, and it uses the same toolset, gate and approvals as any model. It stops at the first step that fails.
Quoted file contents cannot close their fence. Nothing here judges a call.
"""

import functools
import json
import os
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.providers import Provider, infer_provider

from byleave.adapters.calls import ADVICE
from byleave.gate import mask_start
from byleave.installation import add_command
from byleave.protocol.errors import ConfigurationError
from byleave.protocol.tools import MAX_COMMAND_SECONDS
from byleave.protocol.wire import JsonObject

from .roles import OFFLINE

MAX_STEPS = 40
"""Limit of steps in one message; a run has 50 in all."""

MAX_PHRASE_CHARACTERS = 2000
"""A longer line (outside the body of a write) is not a phrase."""


@dataclass(frozen=True, slots=True)
class Step:
    """A tool call."""

    tool_name: str
    params: JsonObject
    field: str | None = None
    """Field to return from a file, such as `version`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of a message. With `unclear`, none is done."""

    steps: tuple[Step, ...]
    unclear: str | None = None


_POLITE = re.compile(
    r"(?:[-*•]|\d+[.)]|(?:please|kindly|hey|hi|hello|ok|okay|now|so|first|next|finally|and|then|also|(?:can|could|would|"
    r"will) you|por favor|пожалуйста|i want you to|i'd like you to|let's|let us)\b[,:!]?)\s+",
    re.IGNORECASE,
)
_VERB = (
    r"(?:please\s+)?(?:read|show(?!\s+me\s+(?:the|its|what)\b)|open|cat|print|display|what|list|ls|search|find|grep|look|"
    r"google|write|save|create|append|add|run|execute)\b"
)
# Possessive (`++`) wherever blanks repeat: parsing must stay linear in the message.
_THEN = rf"(?:and[ \t]++)?then[ \t]++(?={_VERB})"
_PIECE = re.compile(
    r"\"[^\"\n]*\"|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)"
    rf"|(?P<cut>\n|(?:[,;][ \t]++|(?<![ \t])[ \t]++){_THEN}|;[ \t]*+(?={_VERB}))|.",
    re.IGNORECASE,
)
_NEXT_STEP = re.compile(rf"[ \t]*+[,;.]?[ \t]*+(?:\r?\n|$|{_THEN})", re.IGNORECASE)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”"}

_NAME = r"(?P<path>\"[^\"]+\"|'[^']+'|`[^`]+`|\S+)"
_THE = r"(?:(?:the|my|our|this)\s+)?(?:(?:file|folder|directory)\s+)?"
_READ = r"(?:read|open|cat|print|display|check|look\s+(?:at|in|into)|show(?:\s+me)?)"
_HERE = {"here", "directory", "folder", "project", "workspace", "root", "files", "everything", "it"}
_SLOW = {"npm", "node", "python", "python3", "gcc"}
"""Commands that often take longer than the default 30 seconds."""


def _phrase(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_APPEND = ("append", "add", "añade", "agrega", "добавь")
_WRITE = "|".join(("write", "save", "create", "escribe", "guarda", "crea", "запиши", "сохрани", "создай", *_APPEND))
_BODY_FOLLOWS = (
    _phrase(
        rf"(?P<verb>{_WRITE})\s+(?:(?:in|on)?to\s+|(?:en|в)\s+)?" + _THE + r"(?P<path>\"[^\"\n]+\"|'[^'\n]+'|"
        r"`[^`\n]+`|[^\s\"'`:]\S*?)\s*:(?:[ \t]|\r?\n|$)"
    ),
    _phrase(
        rf"(?P<verb>{_WRITE})\s+(?:(?:in|on)?to\s+|(?:en|в)\s+)?" + _THE + r"(?P<path>[^\s\"'`:]+):(?=\S)",
    ),
)
_FIELD = _phrase(
    _READ + r"\s+" + _THE + _NAME + r"(?:\s+file)?,?\s+(?:and\s+then|and|then)\s+(?:tell|give|show)\s+me\s+"
    r"(?:what\s+is\s+the\s+|what\s+the\s+|what\s+its\s+|the\s+|its\s+|what\s+)?(?P<field>[\w.-]+)"
    r"(?:\s+(?:is|it\s+(?:is|has|says)|number|field))?"
)
_FIELD_IN = _phrase(
    r"(?:what(?:'s|\s+is)?|which|tell\s+me|give\s+me|show\s+me)\s+(?:the\s+)?(?P<field>[\w.-]+)\s+"
    r"(?:number\s+)?(?:is\s+)?(?:in|of|from)\s+" + _THE + _NAME
)
_LINES = _phrase(
    _READ + r"\s+(?:the\s+)?lines?\s+(?P<first>\d{1,9})(?:\s*(?:-|to)\s*(?P<last>\d{1,9}))?\s+(?:of|from|in)\s+"
    + _THE + _NAME
)  # fmt: skip
_WHOLE = _phrase(_READ + r"\s+" + _THE + _NAME + r"(?:\s+file)?")
_LIST = _phrase(
    r"(?:list|ls)(?:\s+(?:all\s+)?(?:the\s+)?(?:files|contents)(?:\s+(?:in|of|under|below))?)?"
    r"(?:\s+(?!recursively\b)" + _THE + _NAME + r")?(?P<deep>\s+recursively)?"
)
_WEB = _phrase(
    r"(?:(?:search|look)\s+(?:on\s+|in\s+|up\s+on\s+)?(?:the\s+)?(?:web|internet|online)\s*(?:for\s+|:\s*|\s)|"
    r"web\s+search\s+(?:for\s+)?|google\s+(?:for\s+)?)(?P<query>.+)"
)
_SEARCH_THERE = _phrase(r"(?:search|grep|look)\s+(?:in\s+)?" + _THE + r"(?!for\s)" + _NAME + r"\s+for\s+(?P<what>.+)")
_SEARCH = _phrase(
    r"(?:search|find|grep|look)\s+(?:for\s+)?(?:(?:the\s+)?(?:word|text|string)\s+)?"
    r"(?P<what>\"[^\"]+\"|'[^']+'|`[^`]+`|.+?)(?:(?<!\s)\s++(?:in|under|below|inside)\s++(?:all\s+)?"
    + _THE
    + _NAME
    + r")?"
)
# The same in Spanish and Russian, for those who type as they speak.
_READ_ABROAD = _phrase(
    r"(?:l[eé]e(?:me)?|lea|leer|abre|abrir|muestra|mu[eé]strame|прочита(?:й|йте|ть)|прочти|открой(?:те)?|покажи(?:те)?)\s+"
    r"(?:(?:el|la|mi|мне)\s+)?(?:(?:archivo|fichero|файл)\s+)?"
    + _NAME
    + r"(?:,?\s+(?:y|и)\s+(?:dime|dame|mu[eé]strame|"
    r"скажи(?:те)?|назови|покажи)\s+(?:мне\s+)?(?:cu[aá]l\s+es\s+)?(?:(?:el|la|su)\s+)?(?P<field>[\w.-]+))?"
)
_LIST_ABROAD = _phrase(
    r"(?:lista(?:r|me)?|muestra|перечисли|покажи|список)(?:\s+(?:(?:los|las)\s+)?(?:archivos|ficheros|файл(?:ы|ов)))"
    r"(?:\s+(?:de|en|в|из)\s+(?:(?:la|el)\s+)?(?:(?:carpeta|directorio|папк[еи])\s+)?" + _NAME + r")?"
)
_SEARCH_ABROAD = _phrase(
    r"(?:busca(?:r)?|encuentra|найди(?:те)?|поищи)\s+(?P<what>\"[^\"]+\"|'[^']+'|`[^`]+`|.+?)"
    r"(?:(?<!\s)\s++(?:en|в)\s++" + _NAME + r")?"
)
_FIELDS_ABROAD = {
    "versión": "version", "версию": "version", "версия": "version", "nombre": "name", "имя": "name", "название": "name",
    "descripción": "description", "описание": "description", "licencia": "license", "лицензию": "license",
}  # fmt: skip
_RUN = _phrase(
    r"(?:run|execute|ejecuta(?:r)?|corre|запусти(?:те)?|выполни(?:те)?)\s+(?:(?:the\s+)?command\s+)?(?P<line>.+)"
)


@functools.lru_cache(maxsize=256)  # called again at every step of a run
def understand(message: str) -> Plan:
    """Parse the steps of a message; none if it holds no known phrase."""
    steps: list[Step] = []
    rest = _without_courtesy(message.strip())
    while rest:
        written = _parse_write(rest)
        if written is not None:
            step, rest = written
        else:
            segment, rest = _first_segment(rest)
            step = _step(segment)
            if step is None:
                return Plan((), unclear=segment)
        steps.append(step)
        if len(steps) > MAX_STEPS:
            return Plan((), unclear=f"more than {MAX_STEPS} steps at once")
        rest = _without_courtesy(rest)
    return Plan(tuple(steps))


def _without_courtesy(text: str) -> str:
    text = text.lstrip(" \t\r\n,;")
    while match := _POLITE.match(text):
        text = text[match.end() :]
    return text


def _first_segment(text: str) -> tuple[str, str]:
    """Split at the end of the line or at "then VERB", whichever comes first outside quotes."""
    for piece in _PIECE.finditer(text):
        if piece.group("cut") is not None:
            return text[: piece.start()].strip(), text[piece.end() :]
    return text.strip(), ""


def _parse_write(text: str) -> tuple[Step, str] | None:
    """Parse a write or append at the start; return it and the rest of the text."""
    match = next((found for pattern in _BODY_FOLLOWS if (found := pattern.match(text))), None)
    if match is None:
        return None
    body, rest = _body(text[match.end() :])
    append = match.group("verb").lower() in _APPEND
    if append and not body.endswith("\n"):
        body += "\n"  # the next append then starts on its own line
    params: JsonObject = {"path": _bare(match.group("path")), "content": body}
    if append:
        params["mode"] = "append"
    return Step("write_file", params), rest


def _body(text: str) -> tuple[str, str]:
    """Split off a quoted body if a step or nothing follows it; otherwise take all text."""
    closing = _QUOTES.get(text[:1])
    end = text.find(closing, 1) if closing is not None else -1
    if end > 0 and _NEXT_STEP.match(text, end + 1):
        return text[1:end], text[end + 1 :]
    return text, ""


def _step(segment: str) -> Step | None:
    """Parse one phrase; None if unknown."""
    if len(segment) > MAX_PHRASE_CHARACTERS:
        return None
    segment = re.sub(r"(?:,\s*+|(?<!\s)\s++)please\s*+[.!?]*+$", "", segment, flags=re.IGNORECASE)
    if match := _RUN.fullmatch(segment):
        return _command(match.group("line"))
    segment = re.sub(r"(?<=[\w\"'`)])\.$", "", segment.rstrip("!? \t"))
    if match := _WEB.fullmatch(segment):
        return Step("search_web", {"query": _bare(match.group("query").strip())})
    return _reading(segment) or _listing(segment) or _searching(segment) or _abroad(segment)


def _reading(segment: str) -> Step | None:
    if match := _LINES.fullmatch(segment):
        first = int(match.group("first"))
        last = int(match.group("last") or first)
        return Step("read_file", {"path": _bare(match.group("path")), "start_line": first, "end_line": last})
    for pattern in (_FIELD, _FIELD_IN):
        if match := pattern.fullmatch(segment):
            return Step("read_file", {"path": _bare(match.group("path"))}, field=match.group("field"))
    if match := _WHOLE.fullmatch(segment):
        return Step("read_file", {"path": _bare(match.group("path"))})
    return None


def _listing(segment: str) -> Step | None:
    match = _LIST.fullmatch(segment)
    if match is None:
        return None
    params: JsonObject = {"path": _place(match.group("path"))}
    if match.group("deep"):
        params["recursive"] = True
    return Step("list_directory", params)


def _searching(segment: str) -> Step | None:
    match = _SEARCH_THERE.fullmatch(segment) or _SEARCH.fullmatch(segment)
    if match is None:
        return None
    return Step("search_files", {"pattern": _bare(match.group("what")), "path": _place(match.group("path"))})


def _abroad(segment: str) -> Step | None:
    """Parse a phrase in another language."""
    if match := _LIST_ABROAD.fullmatch(segment):
        return Step("list_directory", {"path": _place(match.group("path"))})
    if match := _READ_ABROAD.fullmatch(segment):
        field = match.group("field")
        field = None if field is None else _FIELDS_ABROAD.get(field.lower(), field)
        return Step("read_file", {"path": _bare(match.group("path"))}, field=field)
    if match := _SEARCH_ABROAD.fullmatch(segment):
        return Step("search_files", {"pattern": _bare(match.group("what")), "path": _place(match.group("path"))})
    return None


def _command(line: str) -> Step:
    """Split a command line into arguments. Nothing is expanded: there is no shell anywhere."""
    line = line.strip()
    if len(line) > 1 and line[0] == line[-1] == "`":
        line = line[1:-1]
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    command, args = (words[0], words[1:]) if words else ("", [])
    params: JsonObject = {"command": command, "args": args}
    if command in _SLOW:
        params["timeout"] = MAX_COMMAND_SECONDS
    return Step("execute_command", params)


def _bare(name: str) -> str:
    """Remove surrounding quotes."""
    if len(name) > 2 and _QUOTES.get(name[0]) == name[-1]:
        return name[1:-1]
    return name.rstrip(",;") or name


def _place(path: str | None) -> str:
    return "." if path is None or path.lower() in _HERE else _bare(path)


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
    """Outcome of a step."""

    step: Step
    failed: bool
    text: str
    """Result as JSON, or the failure's message."""

    @property
    def result(self) -> JsonObject:
        try:
            value: Any = json.loads(self.text)
        except ValueError:
            return {}
        return cast(JsonObject, value) if isinstance(value, dict) else {}

    @property
    def stops(self) -> bool:
        """True if the next step must not be taken."""
        result = self.result
        return self.failed or result.get("success") is False or result.get("exit_code") not in (None, 0)


def help_text(unclear: str | None) -> str:
    """Return the help, with the phrase that was not understood."""
    if not unclear:
        return HELP
    phrase = clip(" ".join(unclear.split()), 120).replace("`", "'")
    return f"I did not understand `{phrase}`, so I did nothing.\n\n{HELP}"


def answer(outcomes: list[Outcome], remaining: int) -> str:
    """Describe the outcomes of the steps, in order."""
    parts = [_describe(outcome, alone=len(outcomes) == 1) for outcome in outcomes]
    if remaining:
        parts.append(f"I stopped there: {_count(remaining, 'further step')} not taken.")
    return "\n\n".join(parts)


def _describe(outcome: Outcome, *, alone: bool) -> str:
    step = outcome.step
    if outcome.failed:
        return f"I could not {_named(step)}. {_without_advice(outcome.text)}"
    render = _RENDERERS[step.tool_name]
    if step.field is not None:
        return _field(step, outcome.result, alone=alone)
    return render(step, outcome.result)


def _without_advice(text: str) -> str:
    """Remove advice that only an agent can follow from a failure."""
    advice = {f"hint: {words}" for words in ADVICE.values()}
    lines = [line for line in text.split("\n") if line not in advice]
    # In Markdown a single newline would run the hint into the sentence before it.
    return "\n".join(line.replace("hint: ", "\nHint: ", 1) if line.startswith("hint: ") else line for line in lines)


def _named(step: Step) -> str:
    """Describe a step in a few words."""
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
    """Find a value by name (`version`, `scripts.test`) in JSON, or in a line `name = value` or `name: value`."""
    try:
        value: Any = json.loads(content)
    except ValueError:
        # Match the whole rest of the line and trim later: a file's content must not slow the search down.
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


def _file_read(step: Step, result: JsonObject) -> str:
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


_RENDERERS = {
    "read_file": _file_read,
    "write_file": _write,
    "list_directory": _list,
    "search_files": _search,
    "execute_command": _run,
    "search_web": _web,
}


def _objects(value: Any) -> list[JsonObject]:
    """Return the objects of a list sent by a client; skip anything else."""
    if not isinstance(value, list):
        return []
    return [cast(JsonObject, item) for item in cast(list[Any], value) if isinstance(item, dict)]


def is_short(text: str) -> bool:
    return len(text) <= SHORT_CHARACTERS and text.count("\n") < SHORT_LINES


def fenced(text: str) -> str:
    """Quote text in a fence longer than any inside it."""
    text = clip(text.rstrip("\n"), SHORT_CHARACTERS)
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def clip(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


_WORDS = re.compile(r"\S*\s*")


@dataclass
class _Conversation:
    """Relevant part of a history: the last request, its outcomes, and the number of calls."""

    prompt: str = ""
    returns: list[ToolReturnPart] = field(default_factory=list[ToolReturnPart])
    calls: int = 0


def offline_model() -> FunctionModel:
    """Return a model that needs no network."""
    return FunctionModel(respond, stream_function=stream_function, model_name=OFFLINE)


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Return the next step, or the answer."""
    return ModelResponse(parts=[_next_part(messages)])


async def stream_function(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Stream the next step, or the answer."""
    part = _next_part(messages)
    if isinstance(part, ToolCallPart):
        yield {0: DeltaToolCall(name=part.tool_name, json_args=part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        return
    for word in _WORDS.findall(part.content):
        if word:
            yield word


def _next_part(messages: list[ModelMessage]) -> TextPart | ToolCallPart:
    conversation = _read(messages)
    plan = understand(conversation.prompt)
    if not plan.steps:
        return TextPart(help_text(plan.unclear))
    # Calls are made one at a time, so the returns belong to the first steps, in order.
    outcomes = [
        Outcome(step, part.outcome != "success", part.content if isinstance(part.content, str) else "")
        for step, part in zip(plan.steps, conversation.returns, strict=False)
    ]
    remaining = plan.steps[len(outcomes) :]
    if remaining and not any(outcome.stops for outcome in outcomes):
        step = remaining[0]
        return ToolCallPart(step.tool_name, json.dumps(step.params), tool_call_id=f"offline_{conversation.calls + 1}")
    return TextPart(answer(outcomes, len(remaining)))


def _read(messages: list[ModelMessage]) -> _Conversation:
    conversation = _Conversation()
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                conversation.prompt = part.content if isinstance(part.content, str) else ""
                conversation.returns = []
            elif isinstance(part, ToolReturnPart):
                conversation.returns.append(part)
            elif isinstance(part, ToolCallPart):
                conversation.calls += 1
    return conversation


_EXAMPLES = (
    "Set BYLEAVE_MODEL to `offline`, or to provider:model such as `openai:gpt-5` or `anthropic:claude-sonnet-4-5`."
)

_ADDRESSES = {"VLLM_BASE_URL": "http://127.0.0.1:8000/v1"}
OLLAMA_URL = "http://127.0.0.1:11434/v1"
"""Ollama's own default address."""
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
        return infer_model(name, provider_factory=_ollama_here if provider == "ollama" else infer_provider)
    except ImportError as error:
        raise ConfigurationError(
            f"The model {name!r} needs a package that is not installed.", hint=_install_hint(error)
        ) from error
    except Exception as error:  # the boundary: each provider has its own errors for a missing key or setting
        raise _unusable(name, error) from error


def _ollama_here(provider: str) -> Provider[Any]:
    """Return Ollama where OLLAMA_BASE_URL says; else on this machine."""
    from pydantic_ai.providers.ollama import OllamaProvider

    return OllamaProvider(base_url=os.environ.get("OLLAMA_BASE_URL") or OLLAMA_URL)


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
    wanted = re.search(r"pip install [\"']?([^`\"'\n]+)", str(error))
    return f"Install it with {add_command(wanted.group(1).strip())}" if wanted else _masked_message(error)


def _masked_message(error: Exception) -> str:
    text = " ".join(mask_start(str(error), 1000).split())[:300]
    return text or type(error).__name__
