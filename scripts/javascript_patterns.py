r"""Python's regular expressions in JavaScript's words: the TypeScript gate searches with the very patterns of ours.

Read by Python's own parser and written out again for the flag `u`, with what JavaScript means otherwise spelled out:
`.`, `$`, `\s`, `\w`, `\b`, letters of either case, and possessive repeats (a look ahead that keeps what it took).
Groups keep their names; one that has only a number, 1, is called `g1`. What cannot be said the same way is an error,
never something near it.
"""

import importlib
import re
from typing import Any

# Python's own reader of patterns: part of it, but without a description of its types.
sre: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

_WORD = r"\p{L}\p{N}_"
_SPACE = r"\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CATEGORIES = {
    "CATEGORY_SPACE": (_SPACE, False),
    "CATEGORY_NOT_SPACE": (_SPACE, True),
    "CATEGORY_WORD": (_WORD, False),
    "CATEGORY_NOT_WORD": (_WORD, True),
    "CATEGORY_DIGIT": (r"\p{Nd}", False),
    "CATEGORY_NOT_DIGIT": (r"\p{Nd}", True),
}
# Never as a look around for nothing: V8 finds nothing in the middle of a character beyond the first 65,536, too.
_NOTHING_FOLLOWS = "$"
_NOTHING_BEFORE = "^"
_OTHER_CASES = {"i": "\u0130\u0131", "s": "\u017f", "k": "\u212a"}
"""What Python takes for the same letter besides its two cases."""
_SINGLE = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
_SYNTAX = frozenset("\\^$.*+?()[]{}|/-")


def javascript(pattern: re.Pattern[str]) -> str:
    """The source of the same pattern for `new RegExp(source, "u")`."""
    parsed = parser.parse(pattern.pattern, pattern.flags)
    names: dict[int, str] = {number: name for name, number in parsed.state.groupdict.items()}
    return _Writer(names).sequence(parsed, parsed.state.flags)


class _Writer:
    def __init__(self, names: dict[int, str]) -> None:
        self.names = names
        self.kept = 0

    def sequence(self, items: Any, flags: int) -> str:
        return "".join(self._item(operation, value, flags) for operation, value in items)

    def _item(self, operation: Any, value: Any, flags: int) -> str:
        write = getattr(self, f"_{str(operation).lower()}", None)
        if write is None:
            raise ValueError(f"{operation} cannot be said in JavaScript.")
        return write(value, flags)

    def _literal(self, value: int, flags: int) -> str:
        cases = _cases(value) if flags & re.IGNORECASE else [value]
        if len(cases) > 1:
            return f"[{''.join(map(_character, cases))}]"
        return "-" if value == ord("-") else _character(value)  # escaped, it is an error outside a class

    def _not_literal(self, value: int, flags: int) -> str:
        cases = _cases(value) if flags & re.IGNORECASE else [value]
        return f"[^{''.join(map(_character, cases))}]"

    def _any(self, _: None, flags: int) -> str:
        return r"[\s\S]" if flags & re.DOTALL else r"[^\n]"

    def _in(self, value: list[tuple[Any, Any]], flags: int) -> str:
        negated = bool(value) and value[0][0] is sre.NEGATE
        parts: list[str] = []
        others: list[str] = []
        """What is not of some category: JavaScript cannot say it among other characters."""
        for operation, one in value[negated:]:
            if operation is sre.LITERAL:
                parts += map(_character, _cases(one) if flags & re.IGNORECASE else [one])
            elif operation is sre.RANGE:
                parts.append(_range(*one, ignore_case=bool(flags & re.IGNORECASE)))
            elif operation is sre.CATEGORY:
                inside, outside = _CATEGORIES[str(one)]
                (others if outside else parts).append(inside)
            else:
                self._fail(str(operation))
        if not others:
            return f"[{'^' if negated else ''}{''.join(parts)}]"
        if len(others) == 1 and not parts:
            return f"[{'' if negated else '^'}{others[0]}]"
        listed = [f"[{''.join(parts)}]"] * bool(parts) + [f"[^{one}]" for one in others]
        return f"(?!{'|'.join(listed)})[\\s\\S]" if negated else f"(?:{'|'.join(listed)})"

    def _fail(self, what: str) -> str:
        raise ValueError(f"{what} cannot be said in JavaScript.")

    def _branch(self, value: tuple[None, list[Any]], flags: int) -> str:
        return f"(?:{'|'.join(self.sequence(one, flags) for one in value[1])})"

    def _subpattern(self, value: tuple[int | None, int, int, Any], flags: int) -> str:
        group, added, removed, inner = value
        text = self.sequence(inner, (flags | added) & ~removed)
        return f"(?:{text})" if group is None else f"(?<{self._name(group)}>{text})"

    def _name(self, group: int) -> str:
        return self.names.get(group, f"g{group}")

    def _groupref(self, group: int, _: int) -> str:
        return rf"\k<{self._name(group)}>"

    def _max_repeat(self, value: tuple[int, Any, Any], flags: int) -> str:
        return self._repeated(value, flags)

    def _min_repeat(self, value: tuple[int, Any, Any], flags: int) -> str:
        return f"{self._repeated(value, flags)}?"

    def _possessive_repeat(self, value: tuple[int, Any, Any], flags: int) -> str:
        return self._kept(self._repeated(value, flags))

    def _atomic_group(self, value: Any, flags: int) -> str:
        return self._kept(self.sequence(value, flags))

    def _kept(self, text: str) -> str:
        """What a look ahead found is not tried another way."""
        self.kept += 1
        return rf"(?=(?<kept{self.kept}>{text}))\k<kept{self.kept}>"

    def _repeated(self, value: tuple[int, Any, Any], flags: int) -> str:
        least, most, inner = value
        text = self.sequence(inner, flags)
        if len(inner) != 1 or inner[0][0] not in _SINGLE or text.startswith("("):
            text = f"(?:{text})"
        unbounded = most is sre.MAXREPEAT
        short = {(0, True): "*", (1, True): "+", (0, False): "?" if most == 1 else None}.get((least, unbounded))
        return text + (short or f"{{{least},{'' if unbounded else most}}}")

    def _assert(self, value: tuple[int, Any], flags: int) -> str:
        direction, inner = value
        return f"(?{'=' if direction > 0 else '<='}{self.sequence(inner, flags)})"

    def _assert_not(self, value: tuple[int, Any], flags: int) -> str:
        direction, inner = value
        return f"(?{'!' if direction > 0 else '<!'}{self.sequence(inner, flags)})"

    def _at(self, where: Any, flags: int) -> str:
        lines = bool(flags & re.MULTILINE)
        match str(where):
            case "AT_BEGINNING":
                return rf"(?:{_NOTHING_BEFORE}|(?<=\n))" if lines else _NOTHING_BEFORE
            case "AT_BEGINNING_STRING":
                return _NOTHING_BEFORE
            case "AT_END":
                return rf"(?=\n|{_NOTHING_FOLLOWS})" if lines else rf"(?=\n?{_NOTHING_FOLLOWS})"
            case "AT_END_STRING":
                return _NOTHING_FOLLOWS
            case "AT_BOUNDARY":
                return f"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))"
            case other:
                return self._fail(other)


def _cases(point: int) -> list[int]:
    letter = chr(point)
    if not letter.isalpha():
        return [point]
    if not letter.isascii():
        raise ValueError(f"{letter!r} in a pattern that ignores case cannot be said in JavaScript.")
    return [ord(one) for one in (letter.lower(), letter.upper(), *_OTHER_CASES.get(letter.lower(), ""))]


def _range(first: int, last: int, *, ignore_case: bool) -> str:
    text = f"{_character(first)}-{_character(last)}"
    if not ignore_case:
        return text
    letters = [letter for letter in map(chr, range(first, min(last, 0x7F) + 1)) if letter.isalpha()]
    if last > 0x7F:
        raise ValueError("A range beyond ASCII that ignores case cannot be said in JavaScript.")
    return text + "".join(_character(one) for letter in letters for one in _cases(ord(letter)) if chr(one) != letter)


def _character(point: int) -> str:
    letter = chr(point)
    if letter in _SYNTAX:
        return f"\\{letter}"
    return letter if 0x20 <= point < 0x7F else f"\\u{{{point:x}}}"
