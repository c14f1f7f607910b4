"""RiskAssessor: how much a write could harm, by what the file is for and by its extension.

Protected files and program files are refused, files that something executes or trusts are HIGH with a plain
warning, text of the named extensions is MEDIUM, everything else HIGH. It sees name and content, never a disk.
"""

import re

from byleave.gate.text.secrets import MASK_PREFIX
from byleave.protocol.verdicts import Finding, VerdictLevel

from .names import names_of, protected_name, trusted_name
from .paths import quoted

MEDIUM_EXTENSIONS = frozenset({".txt", ".md", ".json", ".py", ".js", ".ts", ".jsx", ".tsx"})
_PROGRAM = re.compile(
    r".*\.(?:exe|bin|so(?:\.[0-9.]+)?|dll|dylib|sys|com|scr|pif|msi|msp|drv|ocx|cpl|ko|o|a|obj|lib|class|jar|war|ear|"
    r"pyc|pyo|pyd|node|wasm|elf|efi|lnk|apk|deb|rpm|dmg|appimage|xpi|vsix|crx|gadget|mui|tlb)",
    re.DOTALL,
)

_SCRIPTS = frozenset(
    {"sh", "bash", "zsh", "fish", "ksh", "csh", "ps1", "psm1", "bat", "cmd", "vbs", "wsf", "hta", "command", "tool"}
    | {"pl", "rb", "php", "lua", "tcl", "awk", "exp", "applescript", "scpt", "reg", "jse", "mjs", "cjs", "mts", "cts"}
)
SOURCE_EXTENSIONS = frozenset(
    f".{ending}"
    for ending in (
        *("go", "rs", "java", "kt", "scala", "groovy", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "hxx", "cs", "fs"),
        *("swift", "m", "mm", "zig", "d", "nim", "dart", "ex", "exs", "erl", "hrl", "hs", "ml", "mli", "clj", "cljs"),
        *("elm", "jl", "r", "rb", "php", "lua", "mjs", "cjs", "mts", "cts", "pyi", "vue", "svelte", "astro", "sol"),
        *("html", "htm", "css", "scss", "sass", "less", "svg", "xml", "xsd", "xsl", "sql", "graphql", "gql", "proto"),
        *("toml", "yml", "yaml", "jsonc", "json5", "csv", "tsv", "rst", "adoc", "tex", "po", "hbs", "ejs", "erb", "j2"),
    )
)
"""Source code and data. A write is HIGH, and a grant that names the kind may cover it: nobody runs it by its name."""


def source_kind(path: str) -> str | None:
    """The ending of a path that is HIGH to write only because of its kind; None for any other."""
    stem, dot, ending = names_of(path)[-1].rpartition(".")
    is_source = bool(stem and dot) and f".{ending}" in SOURCE_EXTENSIONS and trusted_name(path) is None
    return f".{ending}" if is_source else None


class RiskAssessor:
    """Levels of the tools that change files."""

    def assess_write(self, path: str, content: str) -> list[Finding]:
        """Findings for a write to a path that is known to stay inside the workspace; never empty."""
        protected = protected_name(path)
        if protected is not None:
            return [_finding(VerdictLevel.REFUSE, f"{quoted(path)} may not be written. {protected}", "protected")]
        last = names_of(path)[-1]
        if _PROGRAM.fullmatch(last):
            reason = f"{quoted(path)} would be a program or binary file; only text is written."
            return [_finding(VerdictLevel.REFUSE, reason, "program")]
        findings = [self._by_name(path, last)]
        if MASK_PREFIX in content:
            reason = "The content holds a mask in place of a secret; writing it would replace the real secret."
            instead = "edit the file without its secret lines"
            findings.append(_finding(VerdictLevel.HIGH, reason, "masked", instead, always_asks=True))
        if content.startswith("#!") and source_kind(path) is not None:
            reason = "It begins with `#!`: whoever runs it next runs what is written here."
            findings.append(_finding(VerdictLevel.HIGH, reason, "script", always_asks=True))
        if "\0" in content:
            reason = "The content holds NUL bytes: it is not text."
            findings.append(_finding(VerdictLevel.HIGH, reason, "binary", always_asks=True))
        return findings

    def _by_name(self, path: str, last: str) -> Finding:
        trusted = trusted_name(path)
        if trusted is not None:
            reason = f"{quoted(path)} is more than text. {trusted}"
            return _finding(VerdictLevel.HIGH, reason, "trusted", always_asks=True)
        stem, dot, ending = last.rpartition(".")
        if dot and stem and f".{ending}" in MEDIUM_EXTENSIONS:
            return _finding(VerdictLevel.MEDIUM, "Writes a text file.", "text")
        if dot and stem and ending in _SCRIPTS:
            reason = f"Writes a .{ending} script: whoever runs it next runs what is written here."
            return _finding(VerdictLevel.HIGH, reason, "script")
        what = f".{ending} file" if dot and stem else "file without an extension"
        return _finding(
            VerdictLevel.HIGH, f"Writes a {what}, which is none of the kinds known to be plain text.", "other"
        )


def _finding(
    level: VerdictLevel, reason: str, rule: str, instead: str | None = None, *, always_asks: bool = False
) -> Finding:
    return Finding(level=level, reason=reason, rule=f"write.{rule}", instead=instead, always_asks=always_asks)
