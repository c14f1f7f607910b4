"""Pattern matching of calls, shared by the policy and by grants.

Rules that loosen match strictly: the line must begin with the rule's words, one for one, and a path must be spelled
plainly. Rules that tighten match leniently: options before a subcommand, abbreviations, clusters and every argument
that could be a path count too, and an uncertain match is `Fit.PERHAPS`.
Both are pure, and a call that a pattern does not understand never matches strictly.
"""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from byleave.gate.commands.calls import FILE_TOOLS, Call
from byleave.gate.paths import directory_of, first_fixed, path_above, path_fits


class Fit(IntEnum):
    """Certainty that a rule is about a call."""

    NO = 0
    PERHAPS = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """The calls a rule is about. Empty parts match anything."""

    tool: str | None = None
    command: tuple[tuple[str, ...], ...] = ()
    """Words the line begins with; each may have alternatives."""
    exact: bool = False
    """True if nothing may follow them."""
    options: tuple[str, ...] = ()
    """Any of these options, anywhere. For rules that tighten."""
    paths: tuple[str, ...] = ()

    def fits_strictly(self, call: Call) -> bool:
        """Match for an allow or a grant: every part must fit plainly."""
        if self.options or (self.tool is not None and self.tool != call.tool):
            return False
        if self.command:
            if call.tool != "execute_command" or not _begins(call.argv, self.command):
                return False
            if self.exact and len(call.argv) != len(self.command):
                return False
        if self.paths:
            return call.path is not None and any(path_fits(glob, call.path) for glob in self.paths)
        return True

    def fit(self, call: Call) -> Fit:
        """Match for an ask or a deny: any reading of the call counts; the least certain part decides."""
        if self.tool is not None and self.tool != call.tool:
            return Fit.NO
        if call.also is not None and self.command and call.also.program in self.command[0]:
            call = call.also
        sure = self._command_fit(call) if self.command else Fit.YES
        if sure and self.options and not _has_option(self.options, call.options):
            return Fit.NO
        return min(sure, self._paths_fit(call)) if sure and self.paths else sure

    def fits_leniently(self, call: Call) -> bool:
        """True if the call certainly matches."""
        return self.fit(call) is Fit.YES

    def _command_fit(self, call: Call) -> Fit:
        command = self.command
        if call.tool != "execute_command" or call.program not in command[0]:
            return Fit.NO
        if self.exact and len(call.words) > len(command):
            return Fit.NO
        if any(_begins(line, command, loosely=True) for line in (call.argv, call.words)):
            return Fit.YES
        skipping = _begins_skipping(call.argv, command)
        about_options = any(word.startswith("-") for words in command[1:] for word in words)
        if about_options and (skipping or _begins_skipping(call.spelled, command)):
            return Fit.YES
        if skipping:
            return Fit.PERHAPS if call.read else Fit.YES
        return Fit.PERHAPS if call.doubtful else Fit.NO

    def _paths_fit(self, call: Call) -> Fit:
        sure = Fit.NO
        for glob in self.paths:
            sure = max(sure, _path_fit(glob, call))
            if sure is Fit.YES:
                break
        return sure


def _path_fit(glob: str, call: Call) -> Fit:
    first = first_fixed(glob)
    if first is None or first in call.firsts:
        if any(path_fits(glob, mention, careless=True) for mention in call.mentions):
            return Fit.YES
        if any(directory_of(mention, glob) for mention in call.mentions):
            # A file tool's path is a path; a word of a command may be anything.
            return Fit.YES if call.tool in FILE_TOOLS else Fit.PERHAPS
        if any(path_fits(glob, hint, careless=True) for hint in call.hints):
            return Fit.PERHAPS
    return Fit.PERHAPS if any(path_above(top, glob) for top in call.reach) else Fit.NO


def _begins(words: Sequence[str], command: Sequence[tuple[str, ...]], *, loosely: bool = False) -> bool:
    if len(words) < len(command):
        return False
    return all(
        word in wanted or (loosely and "/" in word and posixpath.normpath(word) in wanted)
        for word, wanted in zip(words, command, strict=False)
    )


def _begins_skipping(words: Sequence[str], command: Sequence[tuple[str, ...]]) -> bool:
    """True if the line begins with the command; options, with or without a value, may stand between its words."""
    if not words or words[0] not in command[0]:
        return False
    places = {1}
    for wanted in command[1:]:
        reached: set[int] = set()
        for place in sorted(places):
            reached |= _behind_options(words, place, reached)
        places = {at + 1 for at in reached if at < len(words) and words[at] in wanted}
    return bool(places)


def _behind_options(words: Sequence[str], place: int, known: set[int]) -> set[int]:
    found: set[int] = set()
    waiting = [place]
    while waiting:
        at = waiting.pop()
        if at in found or at in known:
            continue
        found.add(at)
        if at < len(words) and words[at].startswith("-"):
            waiting += [at + 1, at + 2]
    return found


def _has_option(wanted: Iterable[str], given: Iterable[str]) -> bool:
    return any(_is_option(one, other) for one in wanted for other in given)


def _is_option(wanted: str, given: str) -> bool:
    if given == wanted:
        return True
    # `--forc` may be read as `--force`.
    given = given.replace("_", "-")
    return wanted.startswith("--") and len(given) > 2 and given.startswith("--") and wanted.startswith(given)
