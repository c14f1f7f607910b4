"""Policy: the rules of all layers, parsed and applied to a call; their order does not matter.

Of all rules that fit, the strictest wins. A deny refuses and an ask always asks; both only add findings, so no rule can
take back what another or the gate itself found. An allow adds no finding: the gate lets it waive a question that the
risk level alone would ask.

A layer is TOML, refused whole if anything in it is not understood. Each rule's own examples (`match`, `not_match`) are
checked as it is read, so its author learns at once if it means something else. Errors name the file, the rule and the
field. Nothing here opens a file.
"""

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, cast

from byleave.gate.commands.calls import FILE_TOOLS, Call, call_of
from byleave.gate.commands.tables import ALIASES, all_names, load_tables
from byleave.gate.commands.validator import understand
from byleave.gate.paths import climbs_out
from byleave.gate.text.characters import half_character, hidden_in, hidden_in_prose
from byleave.gate.text.render import quoted
from byleave.protocol.errors import CallerError
from byleave.protocol.overview import MAX_POLICY_CHARACTERS, Layer, PolicyText
from byleave.protocol.states import AgentMode
from byleave.protocol.tools import SCRIPT_NAMES, TOOLS
from byleave.protocol.verdicts import Finding, Verdict, VerdictLevel

from .rules import Fit, Pattern

MOST_COMPARED = 20_000
"""Most comparisons for one call: patterns times names."""
MAX_FINDINGS = 20
"""Most findings for one call; the strictest are kept."""
MAX_DOTS = 50
"""Most dots between the keys of a line: the parser's time grows with their square."""
_TEXT_OR_COMMENT = re.compile(
    r'''"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)|\'{3}.*?(?:\'{3,5}|\Z)|"(?:\\.|[^"\\\n])*+"?|\'[^\'\n]*+\'?|#[^\n]*+''',
    re.DOTALL,
)
"""Strings and comments, whose dots separate no keys. One without an end goes to the end, as for the parser."""


class PolicyError(CallerError):
    """A policy that cannot be used: the message names the file, the rule and the field."""


class Action(StrEnum):
    """Effect of a rule."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one layer."""

    layer: Layer
    number: int
    """Counted from 1, in its file."""
    action: Action
    pattern: Pattern
    text: str
    """The rule on one line."""
    because: str | None = None
    instead: str | None = None

    @property
    def name(self) -> str:
        return f"{self.layer.value}.{self.number}"

    @property
    def label(self) -> str:
        return f"{self.name}: {self.text}"

    def finding(self, call: Call) -> Finding | None:
        """The finding of an ask or a deny for a call; None if it does not match."""
        sure = self.pattern.fit(call)
        if sure is Fit.NO:
            return None
        reason, denies = self._reason(sure), self.action is Action.DENY and sure is Fit.YES
        return Finding(
            level=VerdictLevel.REFUSE if denies else VerdictLevel.MEDIUM,
            reason=reason,
            rule=f"policy.{self.name}",
            instead=self.instead,
            always_asks=not denies,
        )

    def _reason(self, sure: Fit) -> str:
        if sure is Fit.PERHAPS:
            does = "denies" if self.action is Action.DENY else "asks about"
            why = f" {self._said(self.because)}" if self.because else ""
            if self.pattern.paths:
                return f"It could reach {_listed(self.pattern.paths)}, which rule {self.name} {does}.{why}"
            return f"It could be what rule {self.name} {does} under another name ({self.text}).{why}"
        if self.because:
            return self._said(self.because)
        does = "denies this" if self.action is Action.DENY else "wants this asked"
        return f"Rule {self.name} {does} ({self.text})."

    def _said(self, because: str) -> str:
        # The words of a repository's file must not pass for the owner's or for ours.
        return f"The project's own rule says: {because}" if self.layer is Layer.PROJECT else because


def _listed(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(f"'{path}'" for path in paths[:3]) + more


@dataclass(frozen=True)
class LayerPolicy:
    """One layer, parsed."""

    layer: Layer
    source: str
    rules: tuple[Rule, ...] = ()
    """All rules, including those held back."""
    turned_on: frozenset[str] = frozenset()
    """Commands it turns on."""
    widest_mode: AgentMode = AgentMode.FULL
    trusted: bool = True

    @property
    def in_force(self) -> tuple[Rule, ...]:
        """The rules that apply: an allow only if the layer is trusted."""
        return self.rules if self.trusted else tuple(rule for rule in self.rules if rule.action is not Action.ALLOW)

    @property
    def commands(self) -> frozenset[str]:
        return self.turned_on if self.trusted else frozenset()

    @property
    def loosening(self) -> tuple[str, ...]:
        """Everything it loosens, one line each."""
        turned_on = [f"turns on the command {name}" for name in sorted(self.turned_on)]
        return (*turned_on, *(f"rule {rule.number}: {rule.text}" for rule in self.rules if rule.action is Action.ALLOW))

    @property
    def held_back(self) -> tuple[str, ...]:
        """Everything it would loosen if it were trusted."""
        return () if self.trusted else self.loosening


@dataclass(frozen=True, slots=True)
class PolicyOpinion:
    """A policy's findings about one call, and a rule that allows it."""

    findings: tuple[Finding, ...] = ()
    """Strictest first."""
    allow: Rule | None = None
    """It waives a question of risk and nothing else."""


_NO_OPINION = PolicyOpinion()


@dataclass(frozen=True)
class Policy:
    """All layers together."""

    layers: tuple[LayerPolicy, ...] = ()
    commands: frozenset[str] = field(init=False)
    """Commands that are turned on."""
    widest_mode: AgentMode = field(init=False)
    """The widest mode an agent may have here."""
    _by_command: dict[str, tuple[Rule, ...]] = field(init=False, repr=False, compare=False)
    _by_tool: dict[str | None, tuple[Rule, ...]] = field(init=False, repr=False, compare=False)
    _most_names: int = field(init=False, repr=False, compare=False)

    def __init__(self, layers: Iterable[LayerPolicy] = ()) -> None:
        layers = tuple(layers)
        by_command: dict[str, tuple[Rule, ...]] = {}
        by_tool: dict[str | None, tuple[Rule, ...]] = {}
        for rule in (rule for layer in layers for rule in layer.in_force):
            for name in dict.fromkeys(rule.pattern.command[0]) if rule.pattern.command else ():
                by_command[name] = (*by_command.get(name, ()), rule)
            if not rule.pattern.command:
                by_tool[rule.pattern.tool] = (*by_tool.get(rule.pattern.tool, ()), rule)
        globs = sum(len(rule.pattern.paths) for layer in layers for rule in layer.in_force)
        modes = {layer.widest_mode for layer in layers}
        values = {
            "layers": layers,
            "commands": frozenset[str]().union(*(layer.commands for layer in layers)),
            "widest_mode": AgentMode.SANDBOX if AgentMode.SANDBOX in modes else AgentMode.FULL,
            "_by_command": by_command,
            "_by_tool": by_tool,
            "_most_names": MOST_COMPARED // max(globs, 1),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def has_rules(self) -> bool:
        return bool(self._by_command or self._by_tool)

    def path_denials(self, tool: str) -> tuple[Rule, ...]:
        """Rules that deny paths to a tool unconditionally, whether for this tool or for all."""
        about = (rule for name in (None, tool) for rule in self._by_tool.get(name, ()))
        return tuple(
            rule for rule in about if rule.action is Action.DENY and rule.pattern.paths and not rule.pattern.options
        )

    def plus(self, *layers: LayerPolicy) -> "Policy":
        """This policy with further layers."""
        return Policy((*self.layers, *layers))

    def judge(self, call: Call) -> PolicyOpinion:
        """Apply the rules to one call."""
        found: dict[tuple[VerdictLevel, str], Finding] = {}
        allow: Rule | None = None
        if call.names > self._most_names:
            call = call.cut(self._most_names)
        for rule in self._candidates(call):
            if rule.action is Action.ALLOW:
                if allow is None and rule.pattern.fits_strictly(call):
                    allow = rule
            elif (finding := rule.finding(call)) is not None:
                found.setdefault((finding.level, finding.reason), finding)
        if not found and allow is None:
            return _NO_OPINION
        strictest = sorted(found.values(), key=lambda finding: -finding.level.rank)
        return PolicyOpinion(tuple(strictest[:MAX_FINDINGS]), allow)

    def _candidates(self, call: Call) -> Iterator[Rule]:
        yield from self._by_tool.get(None, ())
        yield from self._by_tool.get(call.tool, ())
        for one in (call, call.also):
            if one is not None and one.program is not None:
                yield from self._by_command.get(one.program, ())


NO_POLICY = Policy()


MAX_RULES = 500
MAX_PATTERNS = 500
"""Paths in one layer, all rules together."""
MAX_TEXT = 300
_TOP = ("commands", "mode", "rule")
_KEYS = ("action", "tool", "command", "options", "paths", "because", "instead", "match", "not_match")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_DECLARED = (Layer.USER, Layer.DEVICE, Layer.PROJECT)


def parse_policy(text: str, layer: Layer, *, source: str, trusted: bool = True) -> LayerPolicy:
    """Parse one layer. Whatever an untrusted project's file would loosen is held back."""
    reader = _Reader(source, layer)
    data = reader.toml(text)
    reader.known(data, _TOP, "")
    entries = data.get("rule", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in cast("list[Any]", entries)):
        raise reader.wrong("`rule` is not a list of tables.", "begin each rule with [[rule]]")
    entries = cast("list[dict[str, Any]]", entries)
    if len(entries) > MAX_RULES:
        raise reader.wrong(f"There are {len(entries)} rules; at most {MAX_RULES} are read.", "merge some of them")
    rules = tuple(reader.rule(number, entry) for number, entry in enumerate(entries, 1))
    if sum(len(rule.pattern.paths) for rule in rules) > MAX_PATTERNS:
        raise reader.wrong(f"There are more than {MAX_PATTERNS} paths in all rules together.", "use wider patterns")
    return LayerPolicy(
        layer=layer,
        source=source,
        rules=rules,
        turned_on=reader.commands(data),
        widest_mode=reader.mode(data),
        trusted=trusted or layer is not Layer.PROJECT,
    )


def declared_layers(texts: Iterable[PolicyText]) -> tuple[LayerPolicy, ...]:
    """Parse the layers that a client declares for its machine; it may declare no others."""
    layers: dict[Layer, LayerPolicy] = {}
    for text in texts:
        if text.layer not in _DECLARED or text.layer in layers:
            raise PolicyError(
                f"A machine cannot declare a layer {text.layer.value!r} here.",
                hint="it declares user, device and project, each once",
            )
        layers[text.layer] = parse_policy(text.text, text.layer, source=text.source, trusted=text.trusted)
    return tuple(layers.values())


class _Reader:
    """Parses one file, which its errors name."""

    def __init__(self, source: str, layer: Layer) -> None:
        self.source = source
        self.layer = layer

    def wrong(self, what: str, hint: str | None = None, rule: int | None = None) -> PolicyError:
        where = quoted(self.source, 200)[1:-1] + (f", rule {rule}" if rule is not None else "")
        return PolicyError(f"{where}: {what}", hint=hint)

    def toml(self, text: str) -> dict[str, Any]:
        if len(text) > MAX_POLICY_CHARACTERS:
            raise self.wrong(f"It is longer than {MAX_POLICY_CHARACTERS // 1024} kB.")
        text = text.replace("\r\n", "\n")
        if hidden_in_prose(text) is not None:
            raise self.wrong("It holds an invisible character.", "a rule must be what it looks like: remove it")
        if any(line.count(".") > MAX_DOTS for line in _TEXT_OR_COMMENT.sub("", text).split("\n")):
            raise self.wrong(
                f"A line has a key of more than {MAX_DOTS} parts.", "no key here has a dot: see docs/policy.md"
            )
        try:
            return tomllib.loads(text)
        except RecursionError:
            raise self.wrong("It is nested too deeply.") from None
        except ValueError as error:
            raise self.wrong(f"It is not TOML: {error}.", "see docs/policy.md for the form") from None

    def known(self, data: Mapping[str, Any], keys: tuple[str, ...], what: str, rule: int | None = None) -> None:
        for key in data:
            if key not in keys:
                hint = f"known: {', '.join(keys)}"
                if rule is not None and key in _TOP:
                    hint = f"write `{key}` above the first [[rule]]"
                raise self.wrong(f"{quoted(key, 60)} is not a key{what}.", hint, rule)

    def commands(self, data: Mapping[str, Any]) -> frozenset[str]:
        names = self._texts(data, "commands", None)
        if names and self.layer is Layer.ORGANISATION:
            raise self.wrong("`commands` loosens, and the organisation's rules only tighten.", "leave it out")
        for name in names:
            if not _COMMAND_NAME.fullmatch(name):
                raise self.wrong(f"{quoted(name, 60)} in `commands` is not the plain name of a command.")
            table = load_tables().get(name) or load_tables().get(name.partition(".")[0])
            if table is not None and table.level is VerdictLevel.REFUSE:
                raise self.wrong(f"The command {name!r} is never allowed, whatever a policy says.", "leave it out")
        return frozenset(names)

    def mode(self, data: Mapping[str, Any]) -> AgentMode:
        value = data.get("mode", AgentMode.FULL.value)
        if value not in tuple(AgentMode):
            raise self.wrong("`mode` is neither 'sandbox' nor 'full'.", "it is the widest mode you permit")
        return AgentMode(value)

    def rule(self, number: int, entry: Mapping[str, Any]) -> Rule:
        self.known(entry, _KEYS, " of a rule", number)
        try:
            action = Action(entry.get("action", ""))
        except ValueError:
            raise self.wrong("`action` is not allow, ask or deny.", 'write action = "ask"', number) from None
        pattern = Pattern(
            tool=self._tool(entry, number),
            command=self._command(entry, number, action),
            options=self._options(entry, number),
            paths=self._paths(entry, number),
        )
        self._sensible(pattern, action, number)
        because, instead = (self._sentence(entry, key, number) for key in ("because", "instead"))
        rule = Rule(self.layer, number, action, pattern, _text_of(entry, action), because, instead)
        self._examples(entry, rule)
        return rule

    def _sensible(self, pattern: Pattern, action: Action, number: int) -> None:
        """Refuse combinations that cannot mean what they seem to."""
        if not (pattern.tool or pattern.command or pattern.options or pattern.paths):
            raise self.wrong("It is about every call.", "say which: tool, command, options or paths", number)
        about_commands = bool(pattern.command or pattern.options)
        if about_commands and pattern.tool not in (None, "execute_command"):
            raise self.wrong(f"{pattern.tool} takes no command.", "leave out `tool`", number)
        if pattern.paths and pattern.tool == "search_web":
            raise self.wrong("search_web has no path.", "leave out `paths`", number)
        if action is not Action.ALLOW:
            return
        if self.layer is Layer.ORGANISATION:
            raise self.wrong("The organisation's rules only tighten, so none may allow.", "use ask or deny", number)
        if pattern.options:
            raise self.wrong("An allow cannot be about options.", "allow the command, ask for the options", number)
        if pattern.paths and pattern.tool not in FILE_TOOLS:
            hint = f"add tool, one of {', '.join(sorted(FILE_TOOLS))}; what a command opens cannot be told from paths"
            raise self.wrong("An allow with paths needs the tool it is about.", hint, number)
        if pattern.tool == "execute_command" and not pattern.command:
            raise self.wrong("It would allow every command.", "name the command", number)

    def _tool(self, entry: Mapping[str, Any], number: int) -> str | None:
        name = entry.get("tool")
        if name is None:
            return None
        name = SCRIPT_NAMES.get(name, name) if isinstance(name, str) else ""
        if name not in TOOLS:
            raise self.wrong("`tool` is not the name of a tool.", f"one of: {', '.join(TOOLS)}", number)
        return name

    def _command(self, entry: Mapping[str, Any], number: int, action: Action) -> tuple[tuple[str, ...], ...]:
        given = entry.get("command")
        if given is None:
            return ()
        hint = 'write the words of the line: command = ["git", ["push", "pull"]]'
        if not isinstance(given, list) or not given or len(cast("list[Any]", given)) > 32:
            raise self.wrong("`command` is not a list of words.", hint, number)
        words: list[tuple[str, ...]] = []
        for word in cast("list[Any]", given):
            alternatives = cast("list[Any]", word) if isinstance(word, list) else [word]
            if not alternatives or not all(isinstance(one, str) and one for one in alternatives):
                raise self.wrong("A word of `command` is neither a text nor a list of texts.", hint, number)
            words.append(tuple(self._plain(one, "command", number) for one in cast("list[str]", alternatives)))
        words[0] = tuple(ALIASES.get(name, name) for name in words[0])
        for name in words[0]:
            if not _COMMAND_NAME.fullmatch(name):
                raise self.wrong(f"{quoted(name, 60)} in `command` is not the plain name of a command.", hint, number)
        if action is not Action.ALLOW and len(words) > 1:
            words[1] = tuple(
                dict.fromkeys(one for name in words[0] for sub in words[1] for one in all_names(name, sub))
            )
        return tuple(words)

    def _options(self, entry: Mapping[str, Any], number: int) -> tuple[str, ...]:
        options = self._texts(entry, "options", number)
        for option in options:
            if not option.startswith("-") or "=" in option or len(option) < 2:
                raise self.wrong(f"{quoted(option, 60)} in `options` is not an option.", "such as --force", number)
        return options

    def _paths(self, entry: Mapping[str, Any], number: int) -> tuple[str, ...]:
        paths = self._texts(entry, "paths", number)
        hint = "paths are from the workspace, such as src/** or *.pem"
        for path in paths:
            if path.startswith(("~", "!", "//")) or "\\" in path or ".." in path.split("/") or climbs_out(path):
                raise self.wrong(f"{quoted(path, 60)} in `paths` is not a pattern of the workspace.", hint, number)
            if len(path) > 200 or not path.strip("/."):
                raise self.wrong(f"{quoted(path, 60)} in `paths` is too long or names nothing.", hint, number)
            if any("**" in part and part != "**" for part in path.split("/")):
                raise self.wrong(f"`**` in {quoted(path, 60)} does not stand between slashes.", hint, number)
        return paths

    def _sentence(self, entry: Mapping[str, Any], key: str, number: int) -> str | None:
        text = entry.get(key)
        if text is None:
            return None
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT:
            raise self.wrong(f"`{key}` is not a text of at most {MAX_TEXT} characters.", None, number)
        return self._plain(" ".join(text.split()), key, number)

    def _texts(self, data: Mapping[str, Any], key: str, number: int | None) -> tuple[str, ...]:
        given = data.get(key)
        if given is None:
            return ()
        hint = f'write a list: {key} = ["…"]'
        if not isinstance(given, list) or not given:
            raise self.wrong(f"`{key}` is not a list of texts.", hint, number)
        for one in cast("list[Any]", given):
            if not isinstance(one, str) or not one:
                raise self.wrong(f"`{key}` holds something that is not a text.", hint, number)
        return tuple(self._plain(one, key, number) for one in cast("list[str]", given))

    def _plain(self, text: str, key: str, number: int | None) -> str:
        if hidden_in(text) is not None or half_character(text) or len(text) > 1000:
            raise self.wrong(f"`{key}` holds an invisible character or is too long.", None, number)
        return text

    def _examples(self, entry: Mapping[str, Any], rule: Rule) -> None:
        for key, wanted in (("match", True), ("not_match", False)):
            for example in self._texts(entry, key, rule.number):
                call = self._call(example, rule.number)
                strict = rule.action is Action.ALLOW
                fits = rule.pattern.fits_strictly(call) if strict else rule.pattern.fits_leniently(call)
                if fits is not wanted:
                    what = "does not fit" if wanted else "fits"
                    hint = f"correct the rule ({rule.text}) or the example"
                    raise self.wrong(f"{quoted(example)} of `{key}` {what} the rule.", hint, rule.number)

    def _call(self, example: str, number: int) -> Call:
        try:
            first, *others = shlex.split(example)
        except ValueError:
            raise self.wrong(f"The example {quoted(example)} cannot be read.", "quote as in a shell", number) from None
        if first not in TOOLS:
            return call_of("execute_command", {"command": first, "args": others}, understand(first, others))
        if first in FILE_TOOLS and len(others) == 1:
            recursive = {"recursive": False, "pattern": "*", "glob": None}
            return call_of(first, {"path": others[0], **recursive}, None)
        if first not in FILE_TOOLS and first != "execute_command":
            return Call(first)
        raise self.wrong(f"The example {quoted(example)} is not a call.", "such as write_file src/a.py", number)


def _text_of(entry: Mapping[str, Any], action: Action) -> str:
    """The rule on one line, as its author wrote it."""
    command = cast("list[list[str] | str]", entry.get("command", []))
    words = ["|".join(word) if isinstance(word, list) else word for word in command]
    parts = [action.value, *([] if words else [entry["tool"]] if "tool" in entry else []), *words]
    if "options" in entry:
        parts.append(f"with {' or '.join(entry['options'])}")
    if "paths" in entry:
        parts.append(f"in {', '.join(entry['paths'])}")
    text = " ".join(parts)
    return text if len(text) <= 160 else f"{text[:159]}…"


MEANING = {
    VerdictLevel.LOW: "runs at once",
    VerdictLevel.MEDIUM: "asks first, 5 minutes to answer",
    VerdictLevel.HIGH: "asks first, 10 minutes to answer",
    VerdictLevel.REFUSE: "never runs",
}


class Decider(NamedTuple):
    """The rule that decides about a call."""

    rule: str
    """`user.3` for the third rule of the user's layer; else the gate's own, such as `commands.find.-delete`."""
    text: str | None
    """The rule on one line, if it waives the question."""
    layer: Layer
    source: str | None
    """The file it was written in; None for the gate's own."""


def meaning(verdict: Verdict) -> str:
    """Say what happens to a call with this verdict, apart from grants and modes."""
    if verdict.waived_by is not None:
        return "runs without asking, by a rule of yours"
    return MEANING[verdict.level]


def decider(verdict: Verdict, policy: Policy) -> Decider:
    """Return the rule that waives the question, else the rule of the strictest finding."""
    if verdict.waived_by is not None:
        name, _, text = verdict.waived_by.partition(": ")
        return _written(name, text, policy)
    kind, _, name = verdict.findings[0].rule.partition(".")
    if kind == "policy":
        return _written(name, None, policy)
    return Decider(verdict.findings[0].rule, None, Layer.BUILT_IN, None)


def _written(name: str, text: str | None, policy: Policy) -> Decider:
    layer = Layer(name.partition(".")[0])
    source = next((found.source for found in policy.layers if found.layer is layer), None)
    return Decider(name, text, layer, source)
