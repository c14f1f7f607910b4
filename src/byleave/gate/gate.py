"""Gate: one call in, one verdict out. Read this first.

Validates (does the tool exist, do the parameters fit, path, command, sizes) and assesses (LOW, MEDIUM, HIGH) in one
pass, because a verdict is the strictest of its findings. Pure: the same call gives the same verdict, on the server
and on the client. It never raises; a call that it cannot judge is refused. The parameter models hold the simple limits
of size; the byte limits are here.

`ToolValidator` and `RiskAssessor` are the names people look for first (docs/names.md): thin wrappers of `Gate.judge`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from byleave.protocol.states import ErrorType, RiskLevel
from byleave.protocol.tools import MAX_FILE_BYTES, SCRIPT_NAMES, TOOLS, ToolParams
from byleave.protocol.verdicts import Finding, Validation, Verdict, VerdictLevel, verdict_of
from byleave.protocol.wire import JsonObject

from .commands.calls import call_of
from .commands.understood import UnderstoodCommand
from .commands.validator import DEFAULT_COMMANDS, CommandValidator
from .names import asks_for_secrets, assess_write, secret_name
from .paths import check_path, climbs_out
from .policy.policy import NO_POLICY, Policy, PolicyOpinion
from .text.characters import half_character, hidden_in
from .text.render import quoted

MAX_GLOB_BRACES = 8


def content_too_large(content: str) -> bool:
    """True if a text exceeds 100 MB as UTF-8; encoded only when its length cannot decide."""
    if len(content) > MAX_FILE_BYTES:
        return True
    if content.isascii() or len(content) * 4 <= MAX_FILE_BYTES:
        return False
    return len(content.encode("utf-8", "surrogatepass")) > MAX_FILE_BYTES


def glob_too_wide(pattern: str) -> bool:
    """True if a glob could be expanded into more alternatives than anyone means."""
    return pattern.count("{") > MAX_GLOB_BRACES or pattern.count("**") > MAX_GLOB_BRACES


@dataclass(frozen=True)
class GateRules:
    """Rules that an operator may change."""

    allowed_commands: frozenset[str] = DEFAULT_COMMANDS
    policy: Policy = NO_POLICY
    """May allow further commands, tighten verdicts, and waive questions that risk alone asks."""


class Judgement(NamedTuple):
    """The gate's answer: the call as it was understood, and the verdict."""

    tool_name: str
    """The canonical name; as given if there is no such tool."""
    params: JsonObject | None
    """Validated, with defaults filled in; None if malformed."""
    verdict: Verdict
    command: UnderstoodCommand | None = None
    """An execute_command as it was understood, for its executor; never on the wire."""


Rule = Callable[[JsonObject, str | None], Verdict]

DEFAULT_RULES = GateRules()
_LOW, _MEDIUM, _REFUSE = VerdictLevel.LOW, VerdictLevel.MEDIUM, VerdictLevel.REFUSE
_NO_SANDBOX = Finding(
    level=_MEDIUM,
    reason="There is no sandbox on this machine, so nothing runs without asking.",
    rule="gate.isolation",
    always_asks=True,
)


class Gate:
    """Judges calls by a set of rules."""

    def __init__(self, rules: GateRules = DEFAULT_RULES) -> None:
        self.rules = rules
        self.commands = CommandValidator(rules.allowed_commands | rules.policy.commands)
        self._policy = rules.policy if rules.policy.has_rules else None
        self._rules: dict[str, Rule] = {
            "read_file": self._read_file,
            "write_file": self._write_file,
            "list_directory": self._list_directory,
            "search_files": self._search_files,
            "search_web": self._search_web,
        }

    def judge(
        self,
        tool_name: str,
        tool_params: Mapping[str, Any],
        *,
        workspace: str | None = None,
        isolated: bool = True,
    ) -> Judgement:
        """Judge one call. `workspace` is its absolute path if known; `isolated` is True if there is a sandbox."""
        try:
            judgement = self._judge(tool_name, tool_params, workspace)
        except Exception as error:  # noqa: BLE001 - the boundary: a fault of ours must refuse, never let pass
            finding = _invalid(f"The call could not be judged ({type(error).__name__}).", "gate.fault")
            return Judgement(_shown_name(tool_name), None, _malformed(finding))
        verdict = judgement.verdict
        if isolated or verdict.refused:
            return judgement
        if verdict.level is _LOW:
            raised = verdict.model_copy(update={"level": _MEDIUM, "findings": (_NO_SANDBOX, *verdict.findings)})
        else:  # it asks already; this finding makes it ask in `full` mode too
            findings = (*verdict.findings, _NO_SANDBOX)
            raised = verdict.model_copy(update={"findings": findings, "waived_by": None})
        return judgement._replace(verdict=raised)

    def with_policy(self, policy: Policy) -> "Gate":
        """The same gate under another policy."""
        return Gate(replace(self.rules, policy=policy))

    def self_check(self) -> list[str]:
        """Examples in the command tables that are judged wrongly; empty if all is well."""
        return self.commands.self_check()

    def _judge(self, tool_name: object, tool_params: object, workspace: str | None) -> Judgement:
        if not isinstance(tool_name, str):
            finding = _invalid("The name of the tool is not a text.", "tools.unknown", _TOOL_HINT)
            return Judgement("", None, _malformed(finding))
        name = SCRIPT_NAMES.get(tool_name, tool_name)
        spec = TOOLS.get(name)
        if spec is None:
            finding = _invalid(f"Unknown tool: {quoted(tool_name, 100)}", "tools.unknown", _TOOL_HINT)
            if half_character(tool_name):
                finding = _half("`tool_name`")
            return Judgement(_shown_name(tool_name), None, _malformed(finding))
        params = _validated(name, spec.params, tool_params)
        if isinstance(params, Finding):
            return Judgement(name, None, _malformed(params))
        command = None
        if name == "execute_command":
            command = self.commands.judge(params["command"], params["args"], workspace)
            if (too_much := command.too_much) is not None:
                return Judgement(name, None, _malformed(too_much))  # the record keeps none of it
            verdict = _command_verdict(command)
        else:
            verdict = self._rules[name](params, workspace)
        if self._policy is not None and not verdict.refused:
            opinion = self._policy.judge(call_of(name, params, command, workspace))
            verdict = _under(opinion, verdict)
        return Judgement(name, params, verdict, command)

    def _read_file(self, params: JsonObject, workspace: str | None) -> Verdict:
        path = params["path"]
        relative, refusal = check_path(path, workspace=workspace)
        if refusal is not None:
            return verdict_of([refusal])
        start, end = params["start_line"], params["end_line"]
        if start is not None and end is not None and end < start:
            return _malformed(_invalid("Parameter 'end_line' of read_file lies before 'start_line'.", "tools.params"))
        return _SECRET_READ if secret_name(relative) else _PLAIN["read_file"]

    def _write_file(self, params: JsonObject, workspace: str | None) -> Verdict:
        relative, refusal = check_path(params["path"], workspace=workspace, writes=True)
        content = params["content"]
        if content_too_large(content):
            reason = f"Parameter 'content' of write_file is larger than {MAX_FILE_BYTES // 1024**2} MB."
            return _malformed(_invalid(reason, "sizes.content"))
        if refusal is not None:
            return verdict_of([refusal])
        return verdict_of(assess_write(relative, content))

    def _list_directory(self, params: JsonObject, workspace: str | None) -> Verdict:
        refusal = check_path(params["path"], workspace=workspace).refusal or _check_glob(params["pattern"], "pattern")
        return _PLAIN["list_directory"] if refusal is None else verdict_of([refusal])

    def _search_files(self, params: JsonObject, workspace: str | None) -> Verdict:
        relative, refusal = check_path(params["path"], workspace=workspace)
        glob = params["glob"]
        if refusal is None and glob is not None:
            refusal = _check_glob(glob, "glob")
        if refusal is not None:
            return verdict_of([refusal])
        return _SECRET_SEARCH if asks_for_secrets(relative, glob) else _PLAIN["search_files"]

    def _search_web(self, params: JsonObject, workspace: str | None) -> Verdict:
        if hidden_in(params["query"]) is not None:
            finding = _invalid("Parameter 'query' of search_web holds an invisible character.", "tools.params")
            return _malformed(finding)
        return _PLAIN["search_web"]


def _command_verdict(command: UnderstoodCommand) -> Verdict:
    refused = any(finding.level is _REFUSE for finding in command.findings)
    runs = () if refused else command.runs
    return verdict_of(command.findings, network=command.network, understood=command.to_json(), runs=runs)


def _under(opinion: PolicyOpinion, verdict: Verdict) -> Verdict:
    """Apply the owner's rules: add findings, or waive a question that risk alone asks."""
    if opinion.findings:
        # Before the gate's own of the same level: the owner's words explain most.
        judged = verdict_of([*opinion.findings, *verdict.findings])
        changed = {"level": judged.level, "findings": judged.findings, "error_type": judged.error_type}
        return verdict.model_copy(update={**changed, "runs": ()} if judged.refused else changed)
    if opinion.allow is None or verdict.level is _LOW or verdict.always_asks:
        return verdict
    return verdict.model_copy(update={"waived_by": opinion.allow.label})


def _validated(name: str, model: type[ToolParams], tool_params: object) -> JsonObject | Finding:
    """Return the parameters with defaults filled in, or a finding if they are invalid."""
    if not isinstance(tool_params, Mapping):
        return _invalid(f"The parameters of {name} are not an object.", "tools.params")
    given = dict(cast("Mapping[Any, Any]", tool_params))
    plain = _is_plain(given)
    half = None if plain else _half_characters(given)
    if half is not None:
        return half
    if not given.keys() <= _FIELDS[name]:
        key = next(key for key in given if key not in _FIELDS[name])
        takes = ", ".join(model.model_fields)
        return _invalid(f"{name} has no parameter {quoted(str(key), 60)}.", "tools.params", f"it takes: {takes}")
    try:
        # The models are flat and frozen, so their fields are the parameters.
        params = dict(model.__pydantic_validator__.validate_python(given).__dict__)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"][:3])
        return _invalid(f"Parameter {field!r} of {name}: {first['msg']}.", "tools.params")
    return params if plain else _unspeakable(name, params) or params


def _is_plain(params: dict[Any, Any]) -> bool:
    """True if all texts are ASCII without NUL and nothing is nested, as in most calls: no text needs a check."""
    for value in params.values():
        for text in cast("list[Any]", value) if type(value) is list else (value,):
            if type(text) is str:
                if not text.isascii() or "\0" in text:
                    return False
            elif text is not None and type(text) not in (int, bool, float):
                return False
    return all(type(field) is str and field.isascii() for field in params)


def _unspeakable(name: str, params: JsonObject) -> Finding | None:
    """Refuse a NUL byte outside a file's content: no path or argument can hold one."""
    for field, value in params.items():
        for text in cast("list[Any]", value) if isinstance(value, list) else (value,):
            if isinstance(text, str) and "\0" in text and field != "content":
                return _invalid(f"Parameter {field!r} of {name} holds a NUL byte.", "tools.params")
    return None


def _half_characters(params: dict[Any, Any]) -> Finding | None:
    """Refuse a lone surrogate in any text, however deep: no record, screen or program can hold one."""
    for field, value in params.items():
        if isinstance(field, str) and half_character(field):
            return _half("The name of a parameter")
        if _half_within(value):
            return _half(f"`{quoted(str(field), 60)[1:-1]}`")
    return None


def _half_within(value: object) -> bool:
    open_values = [value]
    seen: set[int] = set()
    while open_values:
        one = open_values.pop()
        if isinstance(one, str):
            if half_character(one):
                return True
        elif isinstance(one, (Mapping, list, tuple, set, frozenset)) and id(cast("object", one)) not in seen:
            seen.add(id(cast("object", one)))  # a value may contain itself
            open_values += cast("Iterable[object]", one)
            if isinstance(one, Mapping):
                open_values += cast("Mapping[object, object]", one).values()
    return False


def _half(where: str) -> Finding:
    return _invalid(f"{where} holds half a character (a lone surrogate).", "tools.unicode", "send valid Unicode")


def _shown_name(tool_name: object) -> str:
    return quoted(tool_name, 100)[1:-1] if isinstance(tool_name, str) else ""


def _check_glob(pattern: str, field: str) -> Finding | None:
    hidden = hidden_in(pattern)
    if hidden is not None or "\\" in pattern:
        reason = f"The {field} {quoted(pattern)} holds an invisible character or a backslash."
    elif pattern.startswith("/") or climbs_out(pattern) or ".." in _GLOB_PIECES.split(pattern):
        reason = f"The {field} {quoted(pattern)} leads out of the workspace."
    elif glob_too_wide(pattern):
        reason = f"The {field} {quoted(pattern)} has too many alternatives."
    else:
        return None
    return Finding(level=_REFUSE, reason=reason, rule=f"paths.{field}", instead="give a simple glob such as *.py")


def _invalid(reason: str, rule: str, instead: str | None = None) -> Finding:
    return Finding(level=_REFUSE, reason=reason, rule=rule, instead=instead)


def _malformed(finding: Finding) -> Verdict:
    return verdict_of([finding], error_type=ErrorType.INVALID)


def _fixed(level: VerdictLevel, reason: str, rule: str, *, network: bool = False, always_asks: bool = False) -> Verdict:
    finding = Finding(level=level, reason=reason, rule=rule, always_asks=always_asks)
    return Verdict(level=level, findings=(finding,), network=network)


_FIELDS = {name: frozenset(spec.params.model_fields) for name, spec in TOOLS.items()}
_GLOB_PIECES = re.compile(r"[/{},]")
_TOOL_HINT = f"use one of: {', '.join(TOOLS)}"
_PLAIN = {
    "read_file": _fixed(_LOW, "Reads a file of the workspace.", "tools.read_file"),
    "list_directory": _fixed(_LOW, "Lists a directory of the workspace.", "tools.list_directory"),
    "search_files": _fixed(_LOW, "Searches files of the workspace.", "tools.search_files"),
    "search_web": _fixed(_MEDIUM, "Sends the query to a search service outside.", "tools.search_web", network=True),
}
_SECRET_READ = _fixed(_MEDIUM, "Reads a file that usually holds secrets.", "names.secret", always_asks=True)
_SECRET_SEARCH = _fixed(_MEDIUM, "Searches a file that usually holds secrets.", "names.secret", always_asks=True)


class ToolValidator:
    """Validates paths and parameters of the file tools; valid calls may still need approval."""

    def __init__(self, workspace: str | None = None, gate: Gate | None = None) -> None:
        self._workspace = workspace
        self._gate = gate or Gate()

    def validate_file_path(self, path: str, *, writes: bool = False) -> Validation:
        """Check the path's syntax; the client checks its file system as well."""
        refusal = check_path(path, workspace=self._workspace, writes=writes).refusal
        return Validation(None if refusal is None else refusal.reason)

    def validate_read_params(self, params: Mapping[str, Any]) -> Validation:
        return self._validate("read_file", params)

    def validate_write_params(self, params: Mapping[str, Any]) -> Validation:
        return self._validate("write_file", params)

    def _validate(self, tool_name: str, params: Mapping[str, Any]) -> Validation:
        verdict = self._gate.judge(tool_name, params, workspace=self._workspace).verdict
        return Validation(verdict.message if verdict.refused else None)


class RiskAssessor:
    """Assesses the risk of a call."""

    def __init__(self, gate: Gate | None = None) -> None:
        self._gate = gate

    def get_risk_level(self, tool_name: str, params: Mapping[str, Any], workspace: str | None = None) -> RiskLevel:
        """The level of a call; a refused call counts as HIGH, as in the record."""
        return (self._gate or Gate()).judge(tool_name, params, workspace=workspace).verdict.level.risk

    def assess_write(self, path: str, content: str) -> list[Finding]:
        """Findings for a write to a path that is known to stay inside the workspace."""
        return assess_write(path, content)
