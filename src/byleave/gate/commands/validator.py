"""CommandValidator: judges a command line by its table.

A line is LOW only if its command may be LOW and every argument is understood and harmless. Unknown options, followed
links and written files raise the level; a line that names a program to run, or a path that leads out, is refused.
It decides from argv and tables alone and never from the joined text.
"""

import re
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cache, lru_cache
from typing import cast

from byleave.gate.text.render import quoted
from byleave.protocol.tools import MAX_ARGUMENT_BYTES, MAX_ARGUMENTS
from byleave.protocol.verdicts import Finding, Validation, VerdictLevel

from .arguments import Argument, is_remote, judge_value
from .options import Reading, Said, Unreadable, read
from .tables import ALIASES, CommandTable, Kind, Style, TableError, load_tables
from .understood import AMOUNT_RULE, UnderstoodCommand

DEFAULT_COMMANDS = frozenset(
    ("grep", "find", "locate", "ls", "cat", "head", "tail", "wc", "gcc", "python", "python3", "node", "npm", "git")
) | frozenset(("zip", "unzip", "tar", "echo", "date", "pwd", "whoami"))
LONG_COMMAND_BYTES = 8 * 1024

_LOW, _MEDIUM, _HIGH, _REFUSE = VerdictLevel.LOW, VerdictLevel.MEDIUM, VerdictLevel.HIGH, VerdictLevel.REFUSE
NETWORK = "Uses the network."
_REMOTES = (Kind.REMOTE, Kind.TARGET, Kind.ORIGIN)
_BACK_REFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]")
_WRITTEN = (Kind.PATH_WRITE, Kind.PATH_CHANGE, Kind.ARCHIVE)


class CommandValidator:
    """Judges command lines for a list of allowed commands."""

    def __init__(self, allowed: frozenset[str] = DEFAULT_COMMANDS) -> None:
        self.allowed = allowed
        self.tables: Mapping[str, CommandTable] = load_tables()

    def check(self) -> None:
        """Check the tables of all allowed commands against their examples; raise `TableError` if one is wrong.

        The server does so when it starts, and a test does for every table, so a client need not on first use.
        """
        for name in sorted(self.allowed):
            table = self.tables.get(ALIASES.get(name, name))
            wrong = _wrong_examples(table) if table is not None else []
            if table is not None and wrong:
                raise TableError(f"{load_tables().file_of(table.name)}: [{table.name}]: {'; '.join(wrong)}")

    def is_command_allowed(self, command: str) -> bool:
        """True if a program is on the list; its arguments are judged separately."""
        return command in self.allowed or (command in ALIASES and ALIASES[command] in self.allowed)

    def validate_command_safety(
        self, command: str, args: Sequence[str] = (), workspace: str | None = None
    ) -> Validation:
        """Validate a line; a valid one may still need approval."""
        if not _are_texts(args):
            return Validation("The arguments are not a list of texts, one for each argument.")
        refusals = [one for one in self.judge(command, args, workspace).findings if one.level is _REFUSE]
        return Validation(refusals[0].reason if refusals else None)

    def judge(self, command: str, args: Sequence[str], workspace: str | None = None) -> UnderstoodCommand:
        """Parse and judge one line; there is always a finding."""
        if not self.is_command_allowed(command):
            return _unread(command, args, workspace, [_not_allowed(command, self.allowed)])
        too_much = _check_amount(command, args)
        if too_much is not None and too_much.level is _REFUSE:
            return _unread(command, args, workspace, [too_much])
        table = self.tables.get(ALIASES.get(command, command)) or self._family(command)
        further = () if too_much is None else (too_much,)
        if table is None:
            return _unread(command, args, workspace, [*_without_table(command, args, workspace), *further])
        judge = _judge_table(table, args, workspace)
        if isinstance(judge, Finding):
            return _unread(command, args, workspace, [judge, *further])
        findings, written = (*judge.findings, *further), tuple(judge.written)
        return UnderstoodCommand(command, tuple(args), workspace, findings, judge.network, judge.reading, written)

    def _family(self, command: str) -> CommandTable | None:
        """`mkfs.ext4` is as forbidden as `mkfs`, whatever the configuration allows."""
        table = self.tables.get(command.partition(".")[0])
        return table if table is not None and table.level is _REFUSE else None

    def self_check(self) -> list[str]:
        """Examples in the tables that are judged wrongly; empty if all is well."""
        return [wrong for table in self.tables.values() for wrong in _wrong_examples(table)]


def _wrong_examples(table: CommandTable) -> list[str]:
    wrong: list[str] = []
    for expected, lines in table.match.items():
        wrong += [f"{line}: {got}, not {expected}" for line in lines if (got := _example(table, line)) != expected]
    for unwanted, lines in table.not_match.items():
        wrong += [f"{line}: {unwanted}" for line in lines if _example(table, line) == unwanted]
    return wrong


def _example(table: CommandTable, line: str) -> str:
    """Level of an example line, as if its command were allowed: some with tables are not."""
    command, *args = shlex.split(line)
    if ALIASES.get(command, command) != table.name:
        return f"an example of {command}"
    judge = _judge_table(table, args, None)
    findings = [judge] if isinstance(judge, Finding) else judge.findings
    return max((finding.level for finding in findings), key=lambda level: level.rank).value


def _are_texts(args: object) -> bool:
    """False for one text too: it would be taken for a list of letters."""
    return isinstance(args, (list, tuple)) and all(isinstance(arg, str) for arg in cast("Sequence[object]", args))


def _not_allowed(command: str, allowed: frozenset[str]) -> Finding:
    shown = command if command.isascii() and command.isprintable() and len(command) <= 100 else quoted(command, 100)
    reason = f"Command not allowed: {shown}"
    return Finding(level=_REFUSE, reason=reason, rule="commands.allowed", instead=_listed(allowed))


@lru_cache(maxsize=64)
def _listed(allowed: frozenset[str]) -> str:
    return f"use one of: {', '.join(sorted(allowed))}"


def _check_amount(command: str, args: Sequence[str]) -> Finding | None:
    """A finding for too many or too long arguments, or None."""
    if len(args) > MAX_ARGUMENTS:
        return _amount(_REFUSE, f"{len(args)} arguments are more than {MAX_ARGUMENTS}.", "split the call")
    size = len(command) + sum(map(len, args)) + len(args)
    if size > LONG_COMMAND_BYTES // 4:
        size = sum(len(arg.encode("utf-8", "surrogatepass")) + 1 for arg in (command, *args))
    if size > MAX_ARGUMENT_BYTES:
        return _amount(_REFUSE, f"The arguments take {size} bytes; at most {MAX_ARGUMENT_BYTES} fit.", "use a file")
    if size > LONG_COMMAND_BYTES:
        return _amount(_MEDIUM, f"The arguments take {size} bytes: too long to be sure of.")
    return None


def _amount(level: VerdictLevel, reason: str, instead: str | None = None) -> Finding:
    return Finding(level=level, reason=reason, rule=AMOUNT_RULE, instead=instead)


def understand(command: str, args: Sequence[str], workspace: str | None = None) -> UnderstoodCommand:
    """Parse and judge a line whose program is allowed, or was when it was judged before."""
    return CommandValidator(frozenset({command})).judge(command, args, workspace)


@lru_cache(maxsize=2048)
def understood_line(argv: tuple[str, ...]) -> UnderstoodCommand:
    """Parse and judge a recorded line or the words of a rule, by the tables alone."""
    return understand(argv[0], argv[1:])


def _unread(command: str, args: Sequence[str], workspace: str | None, findings: list[Finding]) -> UnderstoodCommand:
    return UnderstoodCommand(command, tuple(args), workspace, tuple(findings))


def _without_table(command: str, args: Sequence[str], workspace: str | None) -> list[Finding]:
    """Judge a command without a table, which the configuration allows: it is always HIGH."""
    table = CommandTable(command)
    place = Argument(table, workspace)
    findings = [place.finding(_HIGH, f"Nothing is known of the arguments of {quoted(command)}.")]
    for arg in args:
        findings += judge_value(Kind.LOOSE, arg, place)
    return findings


def _judge_table(table: CommandTable, args: Sequence[str], workspace: str | None) -> "_Judge | Finding":
    """Judge arguments by a table; one finding if they cannot be parsed, which refuses them."""
    try:
        judge = _Judge(table, read(table, args), workspace)
        judge.run()
    except Unreadable as error:
        reason = f"The arguments of {table.name} cannot be read: {error}."
        return Finding(level=_REFUSE, reason=reason, rule=f"{_rule(table)}.syntax")
    if judge.network:
        judge.findings.append(_constant(table.level, NETWORK, "commands.network"))
    return judge


def _rule(table: CommandTable) -> str:
    return f"commands.{table.name.replace(' ', '.')}"


class _Judge:
    """Collects findings over one reading, and over the reading of its subcommand."""

    def __init__(
        self, table: CommandTable, reading: Reading, workspace: str | None, given: Set[str] = frozenset()
    ) -> None:
        self.given = given
        """Options given before the subcommand."""
        self.table = table
        self.reading = reading
        self.workspace = workspace
        self.findings: list[Finding] = []
        self.written: list[str] = []
        self.network = table.network
        self.place = Argument(table, workspace)
        # Each written file is also written under its name with a suffix: the backup of the old content.
        self.suffixes = ["", *(said.value for said in reading.said if said.option.kind is Kind.SUFFIX and said.value)]

    def run(self) -> None:
        reading, table = self.reading, self.table
        if not (table.subs and reading.operands and reading.operands[0] in table.subs):
            self.findings.append(_base(table))
        for said in reading.said:
            self._option(said)
        for name, value in reading.unknown:
            self._unknown(name, value)
        if not (table.subs and self._subcommand()):
            self._operands()
        if table.bounded.isdisjoint(said.option.name for said in reading.said):
            self._patterns()
        for arg in reading.rest if not table.subs else ():
            self.findings += judge_value(table.after, arg, self.place)

    def _option(self, said: Said) -> None:
        option, table = said.option, self.table
        harmless = option.unless is not None and said.value is not None and option.unless.fullmatch(said.value)
        if (option.level is not _LOW or option.because) and not harmless:
            reason = f"{said.spelled}: {option.because or 'changes what the command does'}"
            rule = f"{_rule(table)}.{option.name}"
            self.findings.append(_constant(option.level, reason, rule, option.instead, option.always_asks))
        if said.abbreviated and said.spelled != option.name:
            reason = f"{said.spelled} is an abbreviation, perhaps of {option.name}."
            self.findings.append(
                Finding(level=_MEDIUM, reason=reason, rule="commands.abbreviated", instead="spell options in full")
            )
        if said.value is not None and option.kind is not None and not harmless:
            place = Argument(table, self.workspace, said.spelled)
            if option.never is not None and option.never.search(said.value):
                self.findings.append(place.finding(_REFUSE, f"{said.spelled}: {option.never_because}"))
            self.findings += judge_value(option.kind, said.value, place)
            self.written += [said.value] if option.kind in _WRITTEN else []
            if option.kind is Kind.MODULE:
                self._module(said.value)
            self.network = self.network or (option.kind in _REMOTES and is_remote(said.value))
        self.network = self.network or option.network

    def _module(self, name: str) -> None:
        module = self.table.modules.get(name.partition(".")[0])
        if module is not None and module.same_as is not None:
            table = load_tables()[module.same_as]
            self._join(_Judge(table, read(table, self.reading.rest), self.workspace))
        if module is not None and module.network:
            self.network = self.network or not self.reading.rest or self.reading.rest[0] not in module.offline_with

    def _unknown(self, name: str, value: str | None) -> None:
        level = max(_MEDIUM, self.table.level, key=lambda item: item.rank)
        reason = f"{quoted(name, 60)} is not an option known of {self.table.name}."
        self.findings.append(Finding(level=level, reason=reason, rule=f"{_rule(self.table)}.unknown"))
        if value is not None:
            self.findings += judge_value(Kind.TREE, value, self.place)  # it may be written

    def _subcommand(self) -> bool:
        """Judge the first operand as a subcommand; False if it is a plain operand of this table."""
        table, reading = self.table, self.reading
        if not reading.operands:
            return False
        name = reading.operands[0]
        sub = table.subs.get(name)
        if sub is None:
            if " " in table.name:
                return False
            if "/" in name:
                reason = f"{quoted(name, 60)} is no subcommand: {table.name} would run a program of that name."
                self.findings.append(Finding(level=_REFUSE, reason=reason, rule=f"{_rule(table)}.subcommand"))
            if "--" in name:  # `git bisect--helper run x` runs x
                reason = f"{quoted(name, 60)} is a part of {table.name} that only its own programs use."
                self.findings.append(Finding(level=_REFUSE, reason=reason, rule=f"{_rule(table)}.subcommand"))
            reason = f"{quoted(name, 60)} is not a subcommand known of {table.name}; it may be an alias."
            rule = f"{_rule(table)}.subcommand"
            self.findings.append(Finding(level=_HIGH, reason=reason, rule=rule, always_asks=True))
            for arg in (*reading.operands, *reading.rest):
                self.findings += judge_value(Kind.LOOSE, arg, self.place)
            if table.style is Style.CONFIG:
                self._perhaps_meant(name)
            return True
        inner = read(sub, reading.rest) if table.stops_at_operand else Reading(sub, operands=reading.operands[1:])
        self._inner(sub, inner)
        if table.style is Style.CONFIG:
            self._doubtful_subcommands()
        return True

    def _inner(self, sub: CommandTable, reading: Reading) -> None:
        judge = _Judge(sub, reading, self.workspace, given={said.option.name for said in self.reading.said})
        self._join(judge)
        self.reading = replace(self.reading, sub=judge.reading)

    def _join(self, judge: "_Judge") -> None:
        """Judge another table's part of the line, and add what is found."""
        judge.run()
        self.findings += judge.findings
        self.written += judge.written
        self.network = self.network or judge.network

    def _doubtful_subcommands(self) -> None:
        """Judge later words too: npm may take the first as the value of an unknown option."""
        swallowed = sum(value is None for _, value in self.reading.unknown)
        for name in self.reading.operands[1 : 1 + swallowed]:
            sub = self.table.subs.get(name)
            if sub is not None:
                self._inner(sub, Reading(sub))

    def _perhaps_meant(self, name: str) -> None:
        """Judge all that npm may mean: it takes `exe` for `exec`, and `true` for the value of a flag before it."""
        meant = [full for full in self.table.subs if name and full.startswith(name)]
        meant += [word for word in self.reading.operands[1:] if word in self.table.subs]
        for full in meant:
            self._inner(self.table.subs[full], Reading(self.table.subs[full]))

    def _operands(self) -> None:
        table, reading = self.table, self.reading
        operands, kinds = reading.operands, table.operands
        surely: Set[str] = frozenset()
        turned: Kind | None = None
        # If an option was not understood, the roles of the operands are uncertain too.
        doubtful = bool(reading.unknown)
        if reading.said or self.given:
            surely = {item.option.name for item in reading.said if not item.abbreviated}
            doubtful = doubtful or any(item.abbreviated for item in reading.said)
            turned = next((item.option.operands for item in reading.said if item.option.operands is not None), None)
            if not table.first_given_by.isdisjoint({item.option.name for item in reading.said} | self.given):
                kinds = kinds[1:]
        self._amount(len(operands), surely)
        if table.last is not None and len(operands) > 1 and table.last_given_by.isdisjoint(surely):
            operands = operands[:-1]
        for index, operand in enumerate(operands):
            if index < len(kinds):
                kind = kinds[index]
            elif kinds and table.repeats:
                kind = kinds[-1]
            else:
                self._note(_MEDIUM, f"{quoted(operand, 60)} is one operand more than {table.name} takes.")
                kind = Kind.LOOSE
            if turned is not None and kind is Kind.PATH_READ:
                kind = turned
            self._operand(kind, operand)
            if doubtful and kind is not Kind.LOOSE:
                self.findings += judge_value(Kind.LOOSE, operand, self.place)
        if table.last is not None:
            self._destination(table.last)

    def _patterns(self) -> None:
        """Note patterns that may take unbounded time to match."""
        reading, table = self.reading, self.table
        patterns = [said.value for said in reading.said if said.option.kind is Kind.PATTERN]
        given = {said.option.name for said in reading.said}
        if table.operands[:1] == (Kind.PATTERN,) and table.first_given_by.isdisjoint(given):
            patterns += reading.operands[:1]
        if any(_BACK_REFERENCE.search(pattern or "") for pattern in patterns):
            self._note(_MEDIUM, "A pattern that refers back to a group may take very long to match.")

    def _amount(self, count: int, surely: Set[str]) -> None:
        table = self.table
        if count < table.least and table.answers.isdisjoint(surely):
            self._note(
                table.lacking_level, table.lacking or f"Without an operand {table.name} runs what it is given as input."
            )
        if table.most is not None and count > table.most:
            self._note(_HIGH, table.beyond or f"{table.name} has more operands than are understood.", always_asks=True)

    def _destination(self, kind: Kind) -> None:
        """Judge the destination, and the name each source would have there, which the line does not show."""
        *sources, last = self.reading.operands or [""]
        named = [item for item in self.reading.said if item.option.name in self.table.last_given_by]
        given = [item.value for item in named if item.value is not None and not item.abbreviated]
        by_option = bool(given)
        if by_option:
            sources = self.reading.operands
        elif sources:
            given = [last, *(item.value for item in named if item.value is not None)]
            for suffix in self.suffixes:
                self.findings += judge_value(kind, last + suffix, self.place)
                self.written.append(last + suffix)
        whole = any(item.option.name == "--parents" for item in self.reading.said)
        surely = given and (by_option or last.endswith(("/", "/.")) or last == "." or len(sources) > 1)
        for place in given:
            for source in sources:
                below = source if whole else source.rstrip("/").rpartition("/")[2]
                name = f"{place.rstrip('/') or '.'}/{below}"
                for suffix in self.suffixes:
                    self.written.append(name + suffix)
                    found = judge_value(kind if surely else Kind.PATH_MAKE, name + suffix, self.place)
                    # `b.txt` is hardly a directory: a file in it matters only if it is refused
                    self.findings += [item for item in found if surely or "." not in place[1:] or item.level is _REFUSE]

    def _operand(self, kind: Kind, operand: str) -> None:
        if self.table.never is not None and self.table.never.search(operand):
            self.findings.append(self.place.finding(_REFUSE, f"{quoted(operand, 80)}: {self.table.never_because}"))
        if kind in _REMOTES and is_remote(operand):
            self.network = True
        for suffix in self.suffixes if kind in _WRITTEN else ("",):
            self.findings += judge_value(kind, operand + suffix, self.place)
            self.written += [operand + suffix] if kind in _WRITTEN else []

    def _note(self, level: VerdictLevel, reason: str, *, always_asks: bool = False) -> None:
        level = max(level, self.table.level, key=lambda item: item.rank)
        rule = f"{_rule(self.table)}.operands"
        self.findings.append(Finding(level=level, reason=reason, rule=rule, always_asks=always_asks))


@lru_cache(maxsize=1024)
def _constant(
    level: VerdictLevel, reason: str, rule: str, instead: str | None = None, always_asks: bool = False
) -> Finding:
    """A finding that quotes nothing of the call; made once."""
    return Finding(level=level, reason=reason, rule=rule, instead=instead, always_asks=always_asks)


@cache
def _base(table: CommandTable) -> Finding:
    """The finding every use of a command has; made once for each table."""
    reason = table.because or f"{table.name} {table.does}."
    return _constant(table.level, reason, _rule(table), table.instead, table.always_asks)
